//! Passwords in commands and their files: `curl -u`, `mysql -p`, SQL that creates users, netrc.
//!
//! Quotes and line ends may be escaped in raw bytes, so the check of raw bytes sees little more than the anchors. An
//! anchor that sensitive names contain too is spelled like their stem (`passw`), so that the search stops no more
//! often.

use std::ops::Range;

use super::{Detector, Form};
use crate::redact::placeholder::{ValuePosition, is_placeholder};
use crate::redact::shape::{begins, quoted_end, user_end};

// Anchors are the rarest bytes that all such commands have, because each hit costs a check of the raw bytes.
pub(super) const ALL: &[Detector] = &[
    Detector {
        name: "curl-password",
        anchors: &["curl "],
        any_case: false,
        form: Form::Prechecked(may_name_user, curl),
    },
    Detector {
        name: "mysql-password",
        anchors: &["mysql", "mariadb"],
        any_case: false,
        form: Form::Prechecked(may_name_password, mysql),
    },
    Detector {
        name: "sql-password",
        anchors: &["identified", "passw"],
        any_case: true,
        form: Form::Prechecked(may_be_sql, |text, at| sql(text, at).into_iter().collect()),
    },
    Detector {
        name: "netrc-password",
        anchors: &["passw"],
        any_case: false,
        form: Form::Prechecked(may_be_netrc, |text, at| netrc(text, at).into_iter().collect()),
    },
];

/// The longest command that is followed, in bytes; a limit on the work for one hit.
const COMMAND_BYTES_MAX: usize = 2048;
/// The most letters of a flag that are examined; `-proxy-user` has its letter in the second part.
const FLAG_BYTES_MAX: usize = 16;
/// Short flags of curl without a value, which may precede another in one word.
const WITHOUT_VALUE: &[u8] = b"aBfgGiIjJkLlMnNOpqRsSvZ";
/// Flags of mysql that people write with one dash.
const LONG_FLAGS: &[&[u8]] = &[b"port", b"protocol", b"pager", b"prompt", b"pipe", b"plugin-dir"];
/// The most bytes before a password that are searched for the statement or entry it belongs to.
const BEFORE_BYTES: usize = 256;
/// The same in raw bytes, where escapes make it longer.
const BEFORE_RAW_BYTES: usize = 2048;

/// Statements of SQL that set a password.
const STATEMENTS: &[&str] = &["create user ", "alter user ", "create role ", "alter role "];

/// Tells whether a flag with one of these letters follows within the length of a command.
fn has_flag(raw: &[u8], at: usize, letters: [u8; 2]) -> bool {
    let near = &raw[at..raw.len().min(at + COMMAND_BYTES_MAX)];
    memchr::memchr_iter(b'-', near).any(|dash| {
        let flag = near[dash + 1..].iter().take(FLAG_BYTES_MAX).take_while(|b| b.is_ascii_alphabetic());
        flag.into_iter().any(|b| letters.contains(b))
    })
}

fn may_name_user(raw: &[u8], at: usize) -> bool {
    has_flag(raw, at, [b'u', b'U'])
}

fn may_name_password(raw: &[u8], at: usize) -> bool {
    has_flag(raw, at, [b'p', b'p'])
}

/// Lists the words of the command that begins here, without their quotes.
fn words(text: &[u8], at: usize) -> Vec<Range<usize>> {
    let near = &text[..text.len().min(at + COMMAND_BYTES_MAX)];
    let (mut at, mut words) = (at, Vec::new());
    let is_gap = |b: &u8| matches!(b, b' ' | b'\t' | b'\\');
    while let Some(first) = near[at..].iter().position(|b| !is_gap(b)).map(|gap| at + gap) {
        // A backslash before the line end continues the command.
        if near[first] == b'\n' && near[..first].ends_with(b"\\") {
            at = first + 1;
            continue;
        }
        if matches!(near[first], b'\n' | b'\r' | b'|' | b';' | b'&') {
            break;
        }
        let quote = Some(near[first]).filter(|b| matches!(b, b'"' | b'\''));
        let start = first + usize::from(quote.is_some());
        let ends = |b: &u8| match quote {
            Some(quote) => *b == quote || *b == b'\n',
            None => b.is_ascii_whitespace() || matches!(b, b'"' | b'\'' | b'`' | b'|' | b';' | b'\\' | b')'),
        };
        let end = start + near[start..].iter().position(ends).unwrap_or(near.len() - start);
        let escapes = near[start..end].iter().rev().take_while(|b| **b == b'\\').count();
        words.push(start..end - escapes);
        // A quote within a word begins the next one: `-p'secret'`.
        at = end + usize::from(quote.is_some() || end == start);
        if at >= near.len() {
            break;
        }
    }
    words
}

fn is_secret(text: &[u8], value: &Range<usize>) -> bool {
    value.len() >= 3 && !is_placeholder(text, value, ValuePosition::Text)
}

/// Returns the length of the flag for a user at the beginning of a word; the rest of the word is its value.
fn user_flag(word: &[u8]) -> Option<usize> {
    for long in ["--user", "--proxy-user"] {
        match word.strip_prefix(long.as_bytes()) {
            Some([]) => return Some(long.len()),
            Some([b'=', ..]) => return Some(long.len() + 1),
            _ => {}
        }
    }
    // Short flags are combined: `-sSu`. The check of raw bytes sees no more letters either.
    let letters = word.strip_prefix(b"-")?.iter().take(FLAG_BYTES_MAX);
    let before = letters.take_while(|b| WITHOUT_VALUE.contains(b)).count();
    let is_user = before < FLAG_BYTES_MAX && matches!(word.get(before + 1), Some(b'u' | b'U'));
    is_user.then_some(before + 2)
}

fn curl(text: &[u8], at: usize) -> Vec<Range<usize>> {
    if !begins(text, at) {
        return Vec::new();
    }
    let words = words(text, at + "curl ".len());
    let password = |(i, word): (usize, &Range<usize>)| {
        let flag = &text[word.clone()];
        let value = word.start + user_flag(flag)?..word.end;
        // The next word, or quotes directly after the flag.
        let value = if value.is_empty() { words.get(i + 1)?.clone() } else { value };
        let colon = value.start + user_end(&text[value.clone()])?;
        let secret = colon + 1..value.end;
        is_secret(text, &secret).then_some(secret)
    };
    words.iter().enumerate().filter_map(password).collect()
}

fn mysql(text: &[u8], at: usize) -> Vec<Range<usize>> {
    let program =
        text[at..].iter().take_while(|b| b.is_ascii_lowercase() || matches!(b, b'-' | b'_')).count();
    if !begins(text, at) || text.get(at + program) != Some(&b' ') {
        return Vec::new();
    }
    let words = words(text, at + program);
    let password = |(i, word): (usize, &Range<usize>)| {
        let flag = text[word.clone()].strip_prefix(b"-p")?;
        let name = text[word.start + 1..word.end].split(|b| *b == b'=').next().unwrap_or_default();
        if LONG_FLAGS.contains(&name) {
            return None;
        }
        let value = match flag {
            // The value is in quotes directly after the flag, so it is the next word.
            [] => words
                .get(i + 1)
                .filter(|next| next.start == word.end + 1 && matches!(text[word.end], b'"' | b'\''))?,
            _ => &(word.start + 2..word.end),
        };
        let bytes = &text[value.clone()];
        // `docker run mysql -p3306:3306`
        let is_port = bytes.iter().all(|b| b.is_ascii_digit() || *b == b':') && bytes.contains(&b':');
        (is_secret(text, value) && !is_port).then(|| value.clone())
    };
    words.iter().enumerate().filter_map(password).collect()
}

fn may_be_sql(raw: &[u8], at: usize) -> bool {
    let lower = raw[at..raw.len().min(at + 16)].to_ascii_lowercase();
    let is_quoted = |quote: &[u8]| quote.starts_with(b"'") || quote.starts_with(b"\\");
    lower.strip_prefix(b"password ").is_some_and(is_quoted)
        || lower.starts_with(b"identified by ")
        || lower.starts_with(b"identified with ")
}

/// Finds a password in SQL: `IDENTIFIED BY '…'`, `CREATE USER a PASSWORD '…'`.
fn sql(text: &[u8], at: usize) -> Option<Range<usize>> {
    let line = &text[at..text.len().min(at + BEFORE_BYTES)];
    let line = &line[..memchr::memchr(b'\n', line).unwrap_or(line.len())].to_ascii_lowercase();
    let quote_at = if line.starts_with(b"password '") {
        let before = text[at.saturating_sub(BEFORE_BYTES)..at].to_ascii_lowercase();
        let is_statement =
            STATEMENTS.iter().any(|what| memchr::memmem::find(&before, what.as_bytes()).is_some());
        is_statement.then_some("password ".len())?
    } else if line.starts_with(b"identified by ") {
        let hash =
            if line["identified by ".len()..].starts_with(b"password ") { "password ".len() } else { 0 };
        "identified by ".len() + hash
    } else if line.starts_with(b"identified with ") {
        memchr::memmem::find(line, b" by ")? + " by ".len()
    } else {
        return None;
    };
    let quote = line.get(quote_at..)?.iter().position(|b| *b != b'\\').map(|skip| quote_at + skip)?;
    if !matches!(line[quote], b'\'' | b'"') {
        return None;
    }
    let secret = at + quote + 1..sql_end(text, at + quote, quote - quote_at);
    is_secret(text, &secret).then_some(secret)
}

/// Finds the end of a quoted text in SQL, which writes a quote twice or after a backslash.
fn sql_end(text: &[u8], open: usize, escapes: usize) -> usize {
    let (quote, start) = (text[open], open + 1);
    let near = &text[..text.len().min(start + BEFORE_BYTES)];
    let mut at = start;
    loop {
        let end = quoted_end(near, at, quote, escapes);
        let closing = end + near[end..].iter().take(escapes).take_while(|b| **b == b'\\').count();
        if near.get(closing) != Some(&quote) {
            // The quote does not close on this line, so any quote may end the text.
            let any = |b: &u8| matches!(b, b'\'' | b'"' | b'\\' | b'\n');
            return start + near[start..].iter().position(any).unwrap_or(near.len() - start);
        }
        let next = &near[closing + 1..];
        let again = next.iter().take(escapes).take_while(|b| **b == b'\\').count();
        if next.get(again) != Some(&quote) {
            return end;
        }
        at = closing + 1 + again + 1;
    }
}

fn may_be_netrc(raw: &[u8], at: usize) -> bool {
    let before = &raw[at.saturating_sub(BEFORE_RAW_BYTES)..at];
    raw[at..].starts_with(b"password ")
        && ["machine", "default"].iter().any(|word| memchr::memmem::find(before, word.as_bytes()).is_some())
}

/// Finds the password of a netrc entry: `machine a login b password c`, on one line or several.
fn netrc(text: &[u8], at: usize) -> Option<Range<usize>> {
    if !text[at..].starts_with(b"password ") {
        return None;
    }
    let before = &text[at.saturating_sub(BEFORE_BYTES)..at];
    let mut words = before.split(u8::is_ascii_whitespace).rev().filter(|word| !word.is_empty());
    let is = |word: Option<&[u8]>, name: &str| {
        word.is_some_and(|word| word.ends_with(name.as_bytes()) && begins(word, word.len() - name.len()))
    };
    let _user_or_host = words.next()?;
    let word = words.next();
    let is_entry = is(word, "machine")
        || is(word, "login") && {
            let host = words.next();
            is(host, "default") || is(words.next(), "machine")
        };
    let start = at + "password ".len();
    let stop = |b: &u8| b.is_ascii_whitespace() || matches!(b, b'"' | b'\'' | b'\\');
    let end = start + text[start..].iter().position(stop).unwrap_or(text.len() - start);
    (is_entry && begins(text, at) && is_secret(text, &(start..end))).then_some(start..end)
}
