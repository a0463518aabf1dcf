//! Finds secrets by their name or form, and hides them in output to people: `config show`, `trust`, the logs.
//!
//! Hides everything that redaction finds and more. Redaction must not destroy recorded data, so a name has to end in a
//! word for a secret there; here any word counts, because a value that is hidden needlessly does no harm.

use std::sync::LazyLock;

use scrubjay_core::redact::Redactor;

/// Recognises the formats of well-known services.
static FORMATS: LazyLock<Redactor> = LazyLock::new(Redactor::standard);

/// Printed in place of a secret.
pub const MASK: &str = "***";

/// A name that contains one of these words names a secret.
const WORDS: &str = "auth authorization bearer cookie cookies credential credentials dsn hmac jwt key pass passphrase \
    passwd password pat pwd sas secret sig signature token";
/// A name that contains one of these when its words are joined names a secret too.
const PIECES: &str = "accesskey apikey authtoken passphrase password privatekey secret token";
/// Secrets of well-known services begin like this. Redaction needs a whole one; here the beginning is enough.
const BEGINNINGS: [&str; 14] = [
    "AIza",
    "AKIA",
    "Basic ",
    "Bearer ",
    "bb_",
    "eyJ",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_",
    "xox",
];

/// A text with its secrets replaced, and those secrets.
#[derive(Debug, PartialEq, Eq)]
pub struct Masked {
    /// The text without its secrets.
    pub shown: String,
    pub(crate) hidden: Vec<String>,
}

/// Hides a whole text.
pub(crate) fn hide(text: &str) -> Masked {
    Masked { shown: MASK.to_owned(), hidden: vec![text.to_owned()] }
}

/// Hides the secrets in a value, which has a name or `""`.
pub fn mask(name: &str, text: &str) -> Masked {
    if looks_secret(name) && !text.is_empty()
        || BEGINNINGS.iter().any(|b| text.starts_with(b) && text.len() > b.len())
    {
        return hide(text);
    }
    hide_if_known(text, mask_url(text))
}

/// Hides a whole text if its visible part still contains a secret of a known form.
fn hide_if_known(text: &str, masked: Masked) -> Masked {
    if FORMATS.text(&masked.shown).as_str() == masked.shown { masked } else { hide(text) }
}

/// Hides the secrets among a program's arguments: those that follow the name of a secret, those that look like one, and
/// those that redaction finds in the whole command line.
pub(crate) fn mask_args<'a>(command: &str, args: impl Iterator<Item = &'a str>) -> Vec<Masked> {
    let mut follows = false;
    let program = command.rsplit('/').next().unwrap_or_default();
    let mut line = program.to_owned();
    args.map(|arg| {
        // Redaction recognises some secrets only behind their program and options, so the line grows argument by argument.
        let before = FORMATS.text(&line).into_string();
        line.extend([" ", arg]);
        let is_found = FORMATS.text(&line).as_str() != format!("{before} {arg}");
        let is_flag = arg.starts_with('-');
        let after_name = std::mem::replace(&mut follows, false);
        // `--name=value`, or `NAME=value` as `docker run -e` and `env` take it.
        let pair = arg.split_once('=').filter(|(name, _)| is_flag || !name.contains(['/', ':', '?']));
        let masked = match pair {
            _ if after_name && !is_flag => hide(arg),
            Some((name, value)) => {
                let masked = mask(name, value);
                Masked { shown: format!("{name}={}", masked.shown), ..masked }
            }
            None if is_flag => {
                follows = looks_secret(arg);
                hide_if_known(arg, Masked { shown: arg.to_owned(), hidden: Vec::new() })
            }
            None => mask("", arg),
        };
        // What redaction found may span arguments; if none of them is hidden yet, hide this one.
        let is_left = masked.hidden.is_empty() && (is_found || is_attached_password(arg));
        if is_left { hide(arg) } else { masked }
    })
    .collect()
}

/// Tells whether an argument is `-p` with a password attached, as `mysql` takes it, and not a port or an option like `-path`.
fn is_attached_password(arg: &str) -> bool {
    let Some(value) = arg.strip_prefix("-p").filter(|value| !value.is_empty()) else { return false };
    let is_port = value.chars().all(|c| c.is_ascii_digit() || ".:-/".contains(c));
    let is_option = value.chars().all(|c| c.is_ascii_lowercase() || c == '-') || value.contains('=');
    !is_port && !is_option
}

/// Tells whether a name names a secret.
pub(crate) fn looks_secret(name: &str) -> bool {
    let words = words(name);
    let joined = words.concat();
    words.iter().any(|word| WORDS.split(' ').any(|w| w == word))
        || PIECES.split(' ').any(|p| joined.contains(p))
}

/// Splits a name into lower-case words: `X-Api-Key`, `API_KEY` and `apiKey` have the same.
fn words(name: &str) -> Vec<String> {
    let mut spaced = String::new();
    let mut lower_before = false;
    for c in name.chars() {
        if lower_before && c.is_uppercase() || !c.is_alphanumeric() {
            spaced.push(' ');
        }
        if c.is_alphanumeric() {
            spaced.extend(c.to_lowercase());
        }
        lower_before = c.is_lowercase();
    }
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// Hides the password and the secret-looking parameters of an address.
fn mask_url(text: &str) -> Masked {
    let mut hidden = Vec::new();
    let Some((scheme, rest)) = text.split_once("://") else {
        return Masked { shown: text.to_owned(), hidden };
    };
    let (address, query) = rest.split_once('?').map_or((rest, None), |(a, q)| (a, Some(q)));
    let host_end = address.find('/').unwrap_or(address.len());
    let address = match address[..host_end].rsplit_once('@') {
        Some((user, host)) => {
            let (name, password) = user.split_once(':').unwrap_or(("", user));
            hidden.push(password.to_owned());
            let colon = if name.is_empty() { "" } else { ":" };
            format!("{name}{colon}{MASK}@{host}{}", &address[host_end..])
        }
        None => address.to_owned(),
    };
    let mut shown = format!("{scheme}://{address}");
    for (i, pair) in query.iter().flat_map(|query| query.split('&')).enumerate() {
        shown.push(if i == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((name, value)) if looks_secret(name) => {
                hidden.push(value.to_owned());
                shown.extend([name, "=", MASK]);
            }
            _ => shown.push_str(pair),
        }
    }
    Masked { shown, hidden }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_are_recognised() {
        for name in [
            "API_KEY",
            "apiKey",
            "X-Api-Key",
            "OPENAI_API_KEY",
            "GITHUB_TOKEN",
            "Authorization",
            "Cookie",
            "set-cookie",
            "DB_PASSWORD",
            "PGPASSWORD",
            "SECRET",
            "clientSecret",
            "AUTH",
            "auth_token",
            "jwt",
            "BROWSERBASE_APIKEY",
            "KEY",
            "GOOGLE_APPLICATION_CREDENTIALS",
        ] {
            assert!(looks_secret(name), "{name}");
        }
        for name in ["PATH", "AUTHOR", "KEYBOARD", "MONKEY", "PORT", "Accept", "PASSENGER", "HOME", ""] {
            assert!(!looks_secret(name), "{name}");
        }
    }

    #[test]
    fn values_are_hidden_by_name_and_by_format() {
        assert_eq!(mask("TOKEN", "abc"), hide("abc"));
        assert_eq!(mask("WHATEVER", "ghp_abcdef"), hide("ghp_abcdef"));
        assert_eq!(mask("PORT", "3000").shown, "3000");
        assert_eq!(mask("TOKEN", "").shown, "");
    }

    #[test]
    fn only_the_secret_parts_of_a_url_are_hidden() {
        let masked = mask("DATABASE", "postgres://me:hunter2@db:5432/x?sslmode=on&api_key=k1");
        assert_eq!(masked.shown, "postgres://me:***@db:5432/x?sslmode=on&api_key=***");
        assert_eq!(masked.hidden, ["hunter2", "k1"]);
        assert_eq!(mask("u", "https://t0ken@host/p").shown, "https://***@host/p");
        assert_eq!(mask("u", "https://host/p@q?x=1").shown, "https://host/p@q?x=1");
    }

    #[test]
    fn arguments_after_a_secret_flag_are_hidden() {
        let args =
            ["-y", "run", "--key", "k1", "--token=k2", "-e", "API_KEY=k3", "--port", "1", "a/b?token=c=d"];
        let shown: Vec<String> = mask_args("npx", args.into_iter()).into_iter().map(|m| m.shown).collect();
        let expected =
            ["-y", "run", "--key", "***", "--token=***", "-e", "API_KEY=***", "--port", "1", "***"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn arguments_that_redaction_recognises_are_hidden() {
        let check = |command: &str, args: &[&str], expected: &[&str]| {
            let shown: Vec<String> =
                mask_args(command, args.iter().copied()).into_iter().map(|m| m.shown).collect();
            assert_eq!(shown, expected);
        };
        check("/usr/bin/mysql", &["-h", "db", "-phunter"], &["-h", "db", "***"]);
        check("curl", &["-u", "bob:hunter2", "https://x"], &["-u", "***", "https://x"]);
        check("python3", &["srv.py", "-pS3CRET"], &["srv.py", "***"]);
        check("sh", &["-c", "mysql -phunter x"], &["-c", "***"]);
        let plain = ["-p", "8080", "-p8080:80", "-port", "-path=/x", "-prod"];
        check("docker", &plain, &plain);
    }

    #[test]
    fn signatures_in_urls_are_hidden() {
        let masked = mask("u", "https://h/c?sv=2022&sig=abc&X-Amz-Signature=def");
        assert_eq!(masked.shown, "https://h/c?sv=2022&sig=***&X-Amz-Signature=***");
    }
}
