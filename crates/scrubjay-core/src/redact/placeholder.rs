//! Recognises values that only stand for a secret: a variable, a template, a call, a type, a sample.
//!
//! The whole value must be such a form. Generated passwords also begin with `$` or `@` and contain `(`, `::` or `xxxx`,
//! so the first byte or a part of a value proves nothing. A form may extend past the value, which was cut at a closing
//! bracket or a space.

use std::ops::Range;

/// Where a value stands, which decides which forms count as placeholders there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValuePosition {
    /// An environment variable or a member of JSON: only templates and samples.
    Setting,
    /// In quotes, a command or an XML element: also a name that itself mentions a secret, such as `api_key`.
    Text,
    /// After `=` or `:` without quotes, where code stands: also calls and paths.
    Code,
}

/// The longest form that is followed, in bytes: an unclosed bracket must not cost a search of the whole text.
const FORM_BYTES_MAX: usize = 256;
/// The fewest masking characters, and the longest prefix before them, as in `sk-xxxx`.
const MASK_BYTES_MIN: usize = 3;
const PREFIX_BYTES_MAX: usize = 8;

/// Words that stand in place of a secret: types, literals and placeholders.
const WORDS: &[&str] = &[
    "str",
    "string",
    "text",
    "none",
    "null",
    "nil",
    "true",
    "false",
    "undefined",
    "bool",
    "boolean",
    "number",
    "int",
    "integer",
    "float",
    "object",
    "array",
    "any",
    "required",
    "optional",
    "empty",
    "unset",
    "changed",
    "default",
    "value",
    "self",
    "this",
    "new",
    "the",
    "missing",
    "invalid",
    "expired",
    "redacted",
    "hidden",
    "bytes",
    "option",
    "function",
    "async",
    "await",
    "return",
    "not",
    "type",
    "var",
    "let",
    "const",
    "mut",
    "hash",
];

/// Substrings of samples, which consist of letters and separators only: `your-api-key-here`.
const SAMPLES: &[&str] = &["your-", "your_", "my-secret", "my_secret", "placeholder", "redacted"];

/// Words with which names of secrets begin or end.
const STEMS: &[&str] = &["password", "passwd", "token", "secret", "credential", "cookie", "apikey"];
/// The same, but only as separate words: `monkey` ends in `key` too.
const SHORT_STEMS: &[&str] = &["key", "pwd", "auth"];

/// Tells whether a value only stands for a secret.
pub(super) fn is_placeholder(text: &[u8], value: &Range<usize>, position: ValuePosition) -> bool {
    let bytes = &text[value.clone()];
    let word = bytes.trim_ascii();
    let start = value.start + (bytes.len() - bytes.trim_ascii_start().len());
    let end = start + word.len();
    word.is_empty()
        || is_mask(word)
        || is_sample(word)
        || template_end(text, start).is_some_and(|form| form >= end)
        || position != ValuePosition::Setting && names_a_secret(word)
        || position == ValuePosition::Code && code_end(text, start).is_some_and(|form| form >= end)
}

/// The same for a value with no text around it.
pub(super) fn is_placeholder_alone(value: &[u8], position: ValuePosition) -> bool {
    is_placeholder(value, &(0..value.len()), position)
}

/// Tells whether a value is a template as a whole: `${VAR}`, `<password>`, `****`.
pub(super) fn is_template(value: &[u8]) -> bool {
    is_mask(value) || template_end(value, 0) == Some(value.len())
}

/// Tells whether a value is masked: `****`, `xxxx-xxxx`, `sk-...`.
fn is_mask(word: &[u8]) -> bool {
    let is_mask = |b: &u8| matches!(b, b'*' | b'x' | b'X' | b'.' | b'#');
    let is_same = word.len() == 1 || word.iter().all(|b| *b == word[0] && b.is_ascii_punctuation());
    let tail = word.iter().rev().take_while(|b| is_mask(b) || matches!(b, b'-' | b'_')).count();
    let (prefix, tail) = word.split_at(word.len() - tail);
    let is_prefix = prefix.is_empty()
        || prefix.len() <= PREFIX_BYTES_MAX
            && prefix.iter().all(u8::is_ascii_alphabetic)
            && matches!(tail.first(), Some(b'-' | b'_'));
    is_same || is_prefix && tail.iter().filter(|b| is_mask(b)).count() >= MASK_BYTES_MIN
}

/// Tells whether a value is a type, a word like `required`, or a sample like `your-token`.
fn is_sample(word: &[u8]) -> bool {
    let lower = String::from_utf8_lossy(word).to_ascii_lowercase();
    let is_plain = word.iter().all(|b| b.is_ascii_alphabetic() || matches!(b, b'-' | b'_'));
    WORDS.contains(&lower.trim_matches('*')) || is_plain && SAMPLES.iter().any(|s| lower.contains(s))
}

/// Tells whether a value is a variable's name that itself mentions a secret, like `user_password` or `@apiKey`.
fn names_a_secret(word: &[u8]) -> bool {
    let name = word.strip_prefix(b"@").unwrap_or(word);
    let lower = String::from_utf8_lossy(name).to_ascii_lowercase();
    // A word ends at a separator or before a capital.
    let is_between = |b: Option<&u8>| b.is_none_or(|b| matches!(b, b'_' | b'-' | b'.'));
    let meet = |at: usize| {
        let (before, behind) = (at.checked_sub(1).and_then(|at| name.get(at)), name.get(at));
        let is_hump =
            before.is_some_and(u8::is_ascii_lowercase) && behind.is_some_and(u8::is_ascii_uppercase);
        is_between(before) || is_between(behind) || is_hump
    };
    let short = |stem: &&str| {
        lower.ends_with(*stem) && meet(name.len() - stem.len())
            || lower.starts_with(*stem) && meet(stem.len())
    };
    name.iter().all(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'-' | b'.'))
        && (STEMS.iter().any(|stem| lower.ends_with(stem) || lower.starts_with(stem))
            || SHORT_STEMS.iter().any(short))
}

/// Returns the end of the template that begins here; several may be joined, as in `${USER}:${PASS}`.
fn template_end(text: &[u8], at: usize) -> Option<usize> {
    let mut end = one_template(text, at)?;
    while matches!(text.get(end), Some(b':' | b'-' | b'_' | b'.' | b'@'))
        && let Some(next) = one_template(text, end + 1)
    {
        end = next;
    }
    is_border(text, end).then_some(end)
}

fn one_template(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at..)? {
        [b'$' | b'#' | b'%' | b'@', b'{', ..] | [b'$', b'(', ..] => closed(text, at + 1),
        [b'%', b'(', ..] => {
            let end = closed(text, at + 1)?;
            // Python's `%(name)s`.
            Some(end + usize::from(text.get(end) == Some(&b's')))
        }
        [b'{', b'{', ..] => closed(text, at),
        // Generated passwords contain these brackets too, so only a label in them is a template.
        [b'<' | b'[' | b'(' | b'{', ..] => closed(text, at).filter(|end| is_label(&text[at + 1..end - 1])),
        [b'%', ..] => name_end(text, at + 1).filter(|end| text.get(*end) == Some(&b'%')).map(|end| end + 1),
        [b'$', b'e', b'n', b'v', b':', ..] => name_end(text, at + "$env:".len()),
        [b'$', ..] => name_end(text, at + 1),
        _ => None,
    }
}

/// Returns the end of the code that begins here, a path, call or index: `config.token`, `tokens[i + 1]`,
/// `next()?.text`.
fn code_end(text: &[u8], at: usize) -> Option<usize> {
    if text.get(at) == Some(&b'(') {
        // A tuple or a parenthesised expression: `(NAME, 'x')`, `(params.get("x") or {})`.
        let inside = &text[at + 1..closed(text, at)? - 1];
        let first = inside.split(|b| matches!(b, b'"' | b'\'')).next().unwrap_or_default();
        let is_more = first.iter().any(|b| matches!(b, b'.' | b',' | b'(' | b' '));
        return (is_more && is_label(first)).then_some(at + 1 + inside.len() + 1);
    }
    let is_sigil = matches!(text.get(at), Some(b'&' | b'*' | b'@' | b'!' | b'$'));
    let start = at + usize::from(is_sigil);
    let mut end = name_end(text, start)?;
    let is_known = [&b"process.env"[..], b"os.environ"].iter().any(|path| text[start..].starts_with(path));
    let (mut is_path, mut is_called) = (false, is_known);
    loop {
        end = match &text[end..] {
            [b'(' | b'[', ..] => {
                is_called = true;
                closed(text, end).or_else(|| continues_below(text, end))?
            }
            [b'!', b'(', ..] | [b'?', ..] => end + 1,
            [b'!', ..] if is_called => end + 1,
            rest => {
                let separator = [&b"."[..], b"::", b"->"].into_iter().find(|s| rest.starts_with(s));
                let next = separator.and_then(|separator| member_end(text, end + separator.len()));
                let Some(next) = next else { break };
                is_path = true;
                next
            }
        };
    }
    let form = &text[start..end];
    let is_code = is_called || is_path && !form.iter().any(u8::is_ascii_digit) || is_sigil && is_sample(form);
    (is_code && is_border(text, end)).then_some(end)
}

/// Returns the end of the identifier that begins here. One number in it is usual; several are a sign of a random token.
fn name_end(text: &[u8], at: usize) -> Option<usize> {
    let near = &text[at.min(text.len())..text.len().min(at + FORM_BYTES_MAX)];
    let length = near.iter().position(|b| !b.is_ascii_alphanumeric() && *b != b'_').unwrap_or(near.len());
    let name = &near[..length];
    let begins = name.first().is_some_and(|b| !b.is_ascii_digit());
    (begins && is_name(name)).then_some(at + length)
}

/// Returns the end of a member's name, or of its number as in `pair.0`.
fn member_end(text: &[u8], at: usize) -> Option<usize> {
    let is_number = text.get(at).is_some_and(u8::is_ascii_digit)
        && !text.get(at + 1).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    if is_number { Some(at + 1) } else { name_end(text, at) }
}

fn is_name(word: &[u8]) -> bool {
    let numbers = word.split(|b| !b.is_ascii_digit()).filter(|number| !number.is_empty()).count();
    let is_constant = word.contains(&b'_') && !word.iter().any(u8::is_ascii_lowercase);
    numbers <= 1 || is_constant
}

/// Tells whether the text in brackets is a label: names and numbers with separators between them.
fn is_label(inside: &[u8]) -> bool {
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let between = b" -.:,;/|*+&=<>[](){}?";
    inside.iter().all(|b| is_word(b) || between.contains(b)) && inside.split(|b| !is_word(b)).all(is_name)
}

/// Returns the position after the bracket that closes the one here, on the same line.
fn closed(text: &[u8], at: usize) -> Option<usize> {
    let open = text[at];
    let close = match open {
        b'(' => b')',
        b'[' => b']',
        b'<' => b'>',
        _ => b'}',
    };
    let mut depth = 0;
    let near = text[at..].iter().take(FORM_BYTES_MAX).take_while(|b| **b != b'\n');
    for (i, b) in near.enumerate() {
        if *b == open {
            depth += 1;
        } else if *b == close {
            depth -= 1;
        }
        if depth == 0 {
            return Some(at + i + 1);
        }
    }
    None
}

/// Returns the end of a line on which a call begins but does not close, because its arguments are on the lines below.
fn continues_below(text: &[u8], at: usize) -> Option<usize> {
    let near = &text[at..text.len().min(at + FORM_BYTES_MAX)];
    let line = &near[..memchr::memchr(b'\n', near).unwrap_or(near.len())];
    matches!(line.trim_ascii_end().last(), Some(b'(' | b'[' | b'{' | b',' | b'|')).then_some(at + line.len())
}

/// Tells whether a form may end here: the next byte is not one that passwords contain and code does not.
fn is_border(text: &[u8], at: usize) -> bool {
    let goes_on = |b: &u8| {
        b.is_ascii_alphanumeric() || matches!(b, b'_' | b'@' | b'#' | b'$' | b'%' | b'^' | b'~' | b'!')
    };
    !text.get(at).is_some_and(goes_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(position: ValuePosition, value: &str, expected: bool) {
        assert_eq!(is_placeholder_alone(value.as_bytes(), position), expected, "{value} in {position:?}");
    }

    #[test]
    fn whole_placeholder_forms_are_recognised() {
        for value in [
            "$TOKEN",
            "$db_password",
            "$env:DB_PASSWORD",
            "${VAR}",
            "${VAR:-x9}",
            "$(cat /run/x)",
            "${{ secrets.A1 }}",
            "{{ .Values.password }}",
            "{password}",
            "<token>",
            "<your API key>",
            "%PASSWORD%",
            "%(password)s",
            "[REDACTED]",
            "(empty)",
            "********",
            "xxxxxxxx",
            "xxxx-xxxx",
            "sk-...",
            "...",
            "your_password",
            "YOUR-API-KEY-HERE",
            "String",
            "none",
            "*required*",
            "${USER}:${PASS}",
            "[u8; 32]",
            "$S3_KEY_2",
        ] {
            for position in [ValuePosition::Setting, ValuePosition::Text, ValuePosition::Code] {
                check(position, value, true);
            }
        }
        for value in [
            "get_password()",
            "self.token.clone()",
            "tokens[i+1]",
            "jwt.encode(",
            "next(a,",
            "process.env.KEY_1!",
            "$this->password",
            "crate::secret::NEW",
            "b64decode(x)?.text",
            "config.pass",
            "pair.0.clone()",
            "(NAME, 'x')",
            "(a.get(\"x\") or {})",
            "format!(\"{x}\")",
        ] {
            check(ValuePosition::Code, value, true);
            check(ValuePosition::Setting, value, false);
        }
        for value in ["api_key", "apiKey", "user-password", "@token", "authHeader", "key", "key_name"] {
            check(ValuePosition::Text, value, true);
            check(ValuePosition::Setting, value, false);
        }
    }

    #[test]
    fn a_password_that_contains_a_placeholder_form_is_none() {
        for value in [
            "@dm1nZq8",
            "$c4n4ryZq8",
            "*c4n4ry",
            "{c4n4ry",
            "{c4n4ry8}",
            "[c4n4ry",
            "[abc]x9",
            "(c4n4ry",
            "<c4n4ry",
            "c4n4ry(x9",
            "ab(c)d9",
            "c4n4ry::x9",
            "c4n4->Zq8",
            "c4n4xxxx1",
            "your_c4n4",
            "monkey",
            "author",
            "hotkey",
            "${abc}9x",
            "%ab",
            "ab****cd",
            "1111",
            "aaaa",
            "swordfish",
            "P4ss.w0rd",
            "ab,cd",
            "keyring",
        ] {
            for position in [ValuePosition::Setting, ValuePosition::Text, ValuePosition::Code] {
                check(position, value, false);
            }
        }
    }
}
