//! Names that indicate a secret, and how certain they make it that their value is one.
//!
//! Names are compared without case, `-`, `_`, `.` and spaces, so `api_key`, `apiKey` and `API-KEY` are the same. Any
//! value of a name on the list is a secret; a name that only ends like one needs a value that looks like a secret.

use std::collections::HashMap;

use super::shape::is_random;

/// What a name says about its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameEvidence {
    /// The name is on the list, so the value is a secret; the number of the name's rule.
    Sensitive(u16),
    /// The name ends in a word for a password: any value but a placeholder is a secret.
    Strong,
    /// The name ends in a word for a key or token: a value that looks random is a secret.
    Weak,
    /// The name is `auth`, which holds `user:password` in base64 in Docker's settings and in `.npmrc`.
    BasicCredentials,
}

/// The built-in names whose values are secrets.
pub const SENSITIVE: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "token",
    "api_key",
    "api_token",
    "api_secret",
    "access_token",
    "refresh_token",
    "id_token",
    "auth_token",
    "bearer_token",
    "session_token",
    "client_secret",
    "app_secret",
    "private_key",
    "secret_key",
    "secret_key_base",
    "secret_access_key",
    "aws_secret_access_key",
    "aws_session_token",
    "signing_key",
    "encryption_key",
    "master_key",
    "access_key_secret",
    "account_key",
    "authorization",
    "proxy_authorization",
    "x_api_key",
    "x_auth_token",
    "cookie",
    "set_cookie",
    "user_password",
    "db_password",
    "webhook_secret",
    "signing_secret",
    "jwt_secret",
    "ssh_private_key",
];

/// Names that end like a secret's and hold none.
const HARMLESS: &[&str] = &[
    "progresstoken",
    "nextpagetoken",
    "pagetoken",
    "prevpagetoken",
    "continuationtoken",
    "nexttoken",
    "synctoken",
    "endoftoken",
    "eostoken",
    "bostoken",
    "padtoken",
    "unktoken",
    "stoptoken",
    "masktoken",
    "septoken",
    "clstoken",
    "maxtoken",
    "pertoken",
    "csrfcookie",
    "forgotpassword",
    "resetpassword",
    "changepassword",
    "hassecret",
    "issecret",
    "haspassword",
    "ispassword",
    "nopassword",
    "showpassword",
    "hastoken",
    "istoken",
    "publickey",
    "tokentype",
    "requirepassword",
    "invalidpassword",
    "invalidtoken",
];

/// Patterns for the search over raw bytes: every name that is evidence contains one of these stems, with or without a
/// separator between its two words. (A test checks that.)
pub(super) const STEMS: &[(&str, &str)] = &[
    ("pass", "w"),
    ("pass", "phrase"),
    ("pass", "code"),
    ("pwd", ""),
    ("secret", ""),
    ("token", ""),
    ("api", "key"),
    ("access", "key"),
    ("private", "key"),
    ("signing", "key"),
    ("encryption", "key"),
    ("master", "key"),
    ("account", "key"),
    ("auth", "key"),
    ("authoriz", ""),
    ("cookie", ""),
    ("credential", ""),
];

/// Patterns for [`NameEvidence::BasicCredentials`]: `auth` alone would hit `author`, `authenticate` and many more.
pub(super) const AUTH_STEMS: &[&str] = &["auth\"", "auth\\", "auth'", "auth:", "auth=", "auth :", "auth ="];

/// Lists the spellings of a stem, one for each separator.
pub(super) fn spellings((first, second): (&str, &str)) -> Vec<String> {
    // Two separators in a row: frameworks name nested settings in the environment like `DB__PASSWORD`.
    let separators: &[&str] = if second.is_empty() { &[""] } else { &["", "_", "-", " ", ".", "__", "--"] };
    separators.iter().map(|separator| format!("{first}{separator}{second}")).collect()
}

const STRONG: &[&str] = &["password", "passwd", "passphrase", "passcode", "secret", "pwd"];
const WEAK: &[&str] = &[
    "token",
    "apikey",
    "accesskey",
    "secretkey",
    "secretkeybase",
    "privatekey",
    "signingkey",
    "encryptionkey",
    "masterkey",
    "accountkey",
    "authkey",
    "credential",
    "credentials",
    "authorization",
    "accesskeyid",
    "cookie",
];

/// Returns a name in lower case and without separators, as names are compared.
pub(super) fn normal(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '-' | '_' | ' ' | '.')).flat_map(char::to_lowercase).collect()
}

/// Tells whether a name ends in a word for a password.
pub(super) fn is_password(name: &[u8]) -> bool {
    let name = normal(&String::from_utf8_lossy(name));
    STRONG.iter().any(|word| name.ends_with(word))
}

/// A number of fewer digits is a count of tokens, a price or a limit; a longer one could be a numeric secret.
const COUNT_DIGITS_MAX: usize = 10;

/// Tells whether a value is a number with a unit or a limit, or a price: `23.5ms`, `120/sec`, `1024/4096`, `$0.002`.
fn is_measure(value: &[u8]) -> bool {
    const UNITS: &[&[u8]] = &[b"ns", b"us", b"ms", b"s", b"sec", b"/s", b"/sec", b"%"];
    let is_number = |number: &[u8]| {
        (1..COUNT_DIGITS_MAX).contains(&number.len())
            && number.iter().all(|b| b.is_ascii_digit() || *b == b'.')
    };
    if let Some(price) = value.strip_prefix(b"$") {
        return is_number(price);
    }
    let length = value.iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
    let (number, rest) = value.split_at(length);
    is_number(number) && (UNITS.contains(&rest) || rest.strip_prefix(b"/").is_some_and(is_number))
}

/// Tells whether a value is an absolute path that begins as directories do, with a word.
fn is_directory(value: &[u8]) -> bool {
    let path = match value {
        [b'/', path @ ..] => path,
        [drive, b':', b'/' | b'\\', path @ ..] if drive.is_ascii_alphabetic() => path,
        _ => return false,
    };
    let mut parts = path.split(|b| matches!(b, b'/' | b'\\'));
    let is_word = |part: &[u8]| part.iter().all(u8::is_ascii_alphabetic);
    parts.next().is_some_and(is_word) && !parts.any(is_random)
}

/// The names that indicate a secret.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    listed: HashMap<String, u16>,
    built_in: bool,
    /// The rule for names that are evidence but on no list.
    unlisted_rule: u16,
    /// The built-in rule for `token`, which parsers and models use for a piece of text.
    token_rule: Option<u16>,
    /// The built-in rule for `pwd`, which shells use for the working directory.
    pwd_rule: Option<u16>,
}

impl Names {
    pub(super) fn new(built_in: bool, unlisted_rule: u16) -> Self {
        Self { built_in, unlisted_rule, ..Self::default() }
    }

    /// Lists a name; the first rule for a name counts.
    pub(super) fn list(&mut self, name: &str, rule: u16) {
        self.listed.entry(normal(name)).or_insert(rule);
    }

    /// Lists a built-in name. If the user has listed it before, the user's rule stands and has no exceptions.
    pub(super) fn list_built_in(&mut self, name: &str, rule: u16) {
        self.list(name, rule);
        match name {
            "token" => self.token_rule = Some(rule),
            "pwd" => self.pwd_rule = Some(rule),
            _ => {}
        }
    }

    /// Tells whether a value is a number that is no secret under its name: `"token": 1234`.
    pub(super) fn is_count(&self, evidence: NameEvidence, value: &[u8]) -> bool {
        let is_number =
            value.iter().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
        matches!(evidence, NameEvidence::Sensitive(rule) if Some(rule) == self.token_rule)
            && is_number
            && value.iter().filter(|b| b.is_ascii_digit()).count() < COUNT_DIGITS_MAX
    }

    /// Tells whether a name has its other meaning, in which it names no secret: `time per token: 23.5ms`,
    /// `PWD=/home/anna`.
    pub(super) fn has_other_meaning(&self, evidence: NameEvidence, name: &[u8], value: &[u8]) -> bool {
        match evidence {
            NameEvidence::Sensitive(rule) if Some(rule) == self.token_rule => is_measure(value),
            NameEvidence::Sensitive(rule) if Some(rule) == self.pwd_rule => is_directory(value),
            NameEvidence::Strong => name.eq_ignore_ascii_case(b"oldpwd") && is_directory(value),
            _ => false,
        }
    }

    /// Returns the rule for a name that is evidence.
    pub(super) fn rule_of(&self, evidence: NameEvidence) -> u16 {
        match evidence {
            NameEvidence::Sensitive(rule) => rule,
            NameEvidence::Strong | NameEvidence::Weak | NameEvidence::BasicCredentials => self.unlisted_rule,
        }
    }

    /// Returns what a name says about its value; `None` if nothing.
    pub(super) fn evidence(&self, name: &[u8]) -> Option<NameEvidence> {
        // A longer key is data, not a name.
        if name.is_empty() || name.len() > 128 {
            return None;
        }
        let name = normal(&String::from_utf8_lossy(name));
        if let Some(rule) = self.listed.get(&name) {
            return Some(NameEvidence::Sensitive(*rule));
        }
        // After the listed names, so that a user can list a name that is harmless by default.
        if !self.built_in || HARMLESS.contains(&name.as_str()) {
            return None;
        }
        if STRONG.iter().any(|s| name.ends_with(s)) {
            return Some(NameEvidence::Strong);
        }
        if name == "auth" {
            return Some(NameEvidence::BasicCredentials);
        }
        WEAK.iter().any(|s| name.ends_with(s)).then_some(NameEvidence::Weak)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_a_name_are_equal() {
        let mut names = Names::new(true, 9);
        names.list("api_key", 3);
        for name in ["api_key", "apiKey", "API-KEY", "ApiKey", "api key", "APIKEY"] {
            assert_eq!(names.evidence(name.as_bytes()), Some(NameEvidence::Sensitive(3)), "{name}");
        }
        assert_eq!(names.evidence(b"PGPASSWORD"), Some(NameEvidence::Strong));
        assert_eq!(names.evidence(b"githubToken"), Some(NameEvidence::Weak));
        assert_eq!(names.evidence(b"_auth"), Some(NameEvidence::BasicCredentials));
        for name in ["progressToken", "maxTokens", "public_key", "key", "passwords_changed", ""] {
            assert_eq!(names.evidence(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn every_sensitive_name_contains_a_stem() {
        for name in SENSITIVE.iter().chain(STRONG).chain(WEAK) {
            let name = normal(name);
            let leads = |stem: &(&str, &str)| name.contains(&format!("{}{}", stem.0, stem.1));
            assert!(STEMS.iter().any(leads), "{name}");
        }
    }
}
