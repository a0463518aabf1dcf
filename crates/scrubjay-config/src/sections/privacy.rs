//! `recorder.privacy`: what is removed from recordings.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use scrubjay_core::redact::{
    RedactionAction, RedactionConfig, RedactionKey, RedactionPattern, RedactionRule, Redactor, RuleError,
};
use scrubjay_tape::home::Home;
use serde_json::{Value as Json, json};
use thiserror::Error;

use crate::cursor::Cursor;
use crate::loaded::Loaded;
use crate::node::{Origin, below};
use crate::owned_file::{self, OwnedFileError};
use crate::problem::{ConfigError, Problem};
use crate::section::section;
use crate::setting::{Count, List, ListItem, Setting, ShownSetting, WrongValue, choice};

const KEY: &str = "recorder.privacy";
/// The shortest text of a key: a shorter one can be guessed.
const KEY_BYTES_MIN: usize = 16;
const VISIBLE_CHARS_DEFAULT: usize = 4;

section! {
    /// `recorder.privacy`.
    struct Privacy {
        redact_sensitive: bool = "true";
        sensitive_fields: List<Field> = "[]";
        hash_ids: bool = "false";
        encryption: Encryption;
        keys: Keys = "{}";
        rules: Vec<RedactionRule> = "[]";
    }
}

section! {
    /// `recorder.privacy.encryption`: whether removed values are kept, encrypted.
    struct Encryption {
        enabled: bool = "false";
        key_id: KeyId = "default";
    }
}

/// The name of a sensitive field.
pub(crate) struct Field;

impl ListItem for Field {
    type Value = String;

    fn read(name: &str) -> Result<String, WrongValue> {
        let check = RedactionPattern::Field(name.to_owned()).check();
        check.map(|()| name.to_owned()).map_err(WrongValue::new)
    }
}

/// The name of a key.
pub(crate) struct KeyId;

impl Setting for KeyId {
    type Value = String;

    fn read(at: &Cursor<'_>) -> Option<String> {
        at.reported(checked_id(at.text()?))
    }

    fn json(value: &String) -> Json {
        value.as_str().into()
    }
}

fn checked_id(id: &str) -> Result<String, WrongValue> {
    let fits = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    if fits { Ok(id.to_owned()) } else { Err("must be letters, digits, _ or -".into()) }
}

/// Where the bytes of a key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    File(PathBuf),
    Variable(String),
}

/// The keys by name, each with its source.
pub(crate) struct Keys;

impl Setting for Keys {
    type Value = BTreeMap<String, KeySource>;

    const FITS_VARIABLE: bool = false;

    fn read(at: &Cursor<'_>) -> Option<Self::Value> {
        let named = at.map_of("names to { file: … } or { env: … }")?;
        let read = |(id, at): (&str, Cursor<'_>)| {
            at.reported(checked_id(id));
            let source = match at.entries(&["file", "env"]).as_slice() {
                [("file", at)] => PathBuf::read(at).map(KeySource::File),
                [(_, at)] => at.text().map(|name| KeySource::Variable(name.to_owned())),
                _ => at.wrong("must have either file or env"),
            };
            Some((id.to_owned(), source?))
        };
        at.if_right(|| Some(named.into_iter().filter_map(read).collect()))
    }

    fn show(at: &Cursor<'_>, out: &mut Vec<ShownSetting>) {
        for (id, source) in Self::read(at).unwrap_or_default() {
            let shown = match source {
                KeySource::File(path) => json!({ "file": path }),
                KeySource::Variable(name) => json!({ "env": name }),
            };
            let at = at.member_or_self(&id);
            out.push(ShownSetting::of(&at, shown));
        }
    }
}

/// The user's own redaction rules; `config show` names them.
impl Setting for Vec<RedactionRule> {
    type Value = Self;

    const FITS_VARIABLE: bool = false;

    fn read(at: &Cursor<'_>) -> Option<Self> {
        at.read_items(" of rules", |at| at.if_right(|| read_rule(at)))
    }

    fn json(value: &Self) -> Json {
        value.iter().map(|rule| rule.name.as_str()).collect()
    }
}

const RULE_KEYS: [&str; 10] =
    ["name", "field", "path", "regex", "method", "param", "action", "with", "visible_chars", "key_id"];

choice!(enum ActionName: "remove" = Remove, "replace" = Replace, "hash" = Hash, "mask" = Mask, "encrypt" = Encrypt);

fn read_rule(at: &Cursor<'_>) -> Option<RedactionRule> {
    at.entries(&RULE_KEYS);
    let given = |key: &str| at.member(key)?.text().map(str::to_owned);
    let name = at.required("name").and_then(|at| Some(at.text()?.to_owned()));
    let pattern = match ["field", "path", "regex", "method", "param"].map(given) {
        [Some(field), None, None, None, None] => Some(("field", RedactionPattern::Field(field))),
        [None, Some(path), None, None, None] => Some(("path", RedactionPattern::Path(path))),
        [None, None, Some(regex), None, None] => Some(("regex", RedactionPattern::Regex(regex))),
        [None, None, None, Some(method), Some(param)] => {
            Some(("param", RedactionPattern::MethodParam { method, param }))
        }
        _ => at.wrong("must have one of field, path, regex, or method with param"),
    };
    if let Some((key, pattern)) = &pattern {
        at.member_or_self(key).reported(pattern.check());
    }
    let visible_chars = at.get::<Count<0, 1_000_000>>("visible_chars").unwrap_or(VISIBLE_CHARS_DEFAULT);
    let (with, key_id) = (given("with"), given("key_id"));
    let action = match at.get::<ActionName>("action") {
        None => RedactionAction::Mark,
        Some(ActionName::Remove) => RedactionAction::Remove,
        Some(ActionName::Replace) => {
            with.map_or(RedactionAction::Mark, |with| RedactionAction::Replace(Json::from(with)))
        }
        Some(ActionName::Hash) => RedactionAction::Hash,
        Some(ActionName::Mask) => RedactionAction::Mask { visible_chars },
        Some(ActionName::Encrypt) => {
            let missing = || at.member_or_self("key_id").wrong("is required with the action encrypt");
            // `redactor` puts the key in: another layer may define it.
            RedactionAction::Encrypt { key_id: key_id.or_else(missing)?, key: RedactionKey([0; 32]) }
        }
    };
    Some(RedactionRule { name: name?, pattern: pattern?.1, action })
}

impl Loaded {
    /// Makes the redactor. Reads the files of its keys; a generated key for hashes is stored in the data directory.
    ///
    /// # Errors
    /// A key is missing or unusable.
    pub fn redactor(&self, home: Option<&Home>) -> anyhow::Result<Arc<Redactor>> {
        let privacy = &self.settings.recorder.privacy;
        let mut problems = Vec::new();
        let mut key = |id: &str, at: &str, origin: &Origin| -> RedactionKey {
            privacy.key(id).unwrap_or_else(|error| {
                problems.push(Problem::new(origin, format!("{KEY}.{at}"), error));
                // Never used: `problems` refuses the configuration below.
                RedactionKey([0; 32])
            })
        };
        let mut rules = privacy.rules.clone();
        for (i, rule) in rules.iter_mut().enumerate() {
            if let RedactionAction::Encrypt { key_id, key: rule_key } = &mut rule.action {
                let written = self.layers.get(&format!("{KEY}.rules")).and_then(|rules| rules.item(i));
                let origin = written.map_or(&Origin::Default, |rule| &rule.origin);
                *rule_key = key(key_id, &format!("rules[{i}].key_id"), origin);
            }
        }
        let encryption = &privacy.encryption;
        let action = if encryption.enabled {
            let (at, key_id) = ("encryption.key_id", encryption.key_id.clone());
            let key = key(&key_id, at, self.origin(&below(KEY, at)));
            RedactionAction::Encrypt { key_id, key }
        } else {
            RedactionAction::Mark
        };
        let hashes = privacy.hash_ids || rules.iter().any(|rule| rule.action == RedactionAction::Hash);
        let hash_key = match home {
            _ if privacy.keys.contains_key("hash") => key("hash", "keys.hash", &Origin::Default),
            Some(home) if hashes => RedactionKey(home.hash_key().context("cannot make a key for hashes")?),
            _ => RedactionKey([0; 32]),
        };
        ConfigError::unless_empty(problems)?;
        let config = RedactionConfig {
            redact_sensitive: privacy.redact_sensitive,
            sensitive_fields: privacy.sensitive_fields.clone(),
            hash_ids: privacy.hash_ids,
            rules,
            action,
            hash_key,
        };
        let problem = |e: RuleError| Problem::new(&Origin::Default, format!("{KEY}.rules[{}]", e.rule), e);
        let wrong = |errors: Vec<_>| ConfigError { problems: errors.into_iter().map(problem).collect() };
        Ok(Arc::new(Redactor::new(&config).map_err(wrong)?))
    }

    /// Returns the key of a name for encryption: the configuration's, else the one in the variable of that name.
    ///
    /// # Errors
    /// There is none, or it cannot be used; the message follows the key's name.
    pub fn redaction_key(&self, id: &str) -> Result<RedactionKey, KeyError> {
        let privacy = &self.settings.recorder.privacy;
        match std::env::var(id) {
            Ok(secret) if !privacy.keys.contains_key(id) => derived(secret.as_bytes(), format!("${id}")),
            _ => privacy.key(id),
        }
    }
}

/// Why a key cannot be used; each message follows the key's name.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The configuration has no key of this name.
    #[error("names no key: give {KEY}.keys.{0} a file or an env")]
    Unknown(String),
    /// Its file cannot be read.
    #[error("has a key that cannot be read from {path}: {1}", path = .0.display())]
    Unreadable(PathBuf, OwnedFileError),
    /// Its variable is not set.
    #[error("has its key in ${0}, which is not set")]
    Unset(String),
    /// It is so short that it can be guessed.
    #[error("has too short a key in {0}: it needs at least {KEY_BYTES_MIN} bytes")]
    Short(String),
}

impl Privacy {
    /// Reads a key by its name.
    fn key(&self, id: &str) -> Result<RedactionKey, KeyError> {
        match self.keys.get(id) {
            None => Err(KeyError::Unknown(id.to_owned())),
            Some(KeySource::File(path)) => {
                let unreadable = |error| KeyError::Unreadable(path.clone(), error);
                let secret = owned_file::read_secret(path).map_err(unreadable)?;
                derived(&secret, path.display().to_string())
            }
            Some(KeySource::Variable(name)) => {
                let secret = std::env::var(name).map_err(|_| KeyError::Unset(name.clone()))?;
                derived(secret.as_bytes(), format!("${name}"))
            }
        }
    }
}

/// Derives the 32 bytes of a key from a text of any length.
fn derived(secret: &[u8], place: String) -> Result<RedactionKey, KeyError> {
    match secret.trim_ascii() {
        secret if secret.len() < KEY_BYTES_MIN => Err(KeyError::Short(place)),
        secret => Ok(RedactionKey(blake3::derive_key("scrubjay redaction key v1", secret))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{check_problems, loaded};

    fn redact(config: &str, text: &str) -> String {
        let redactor = loaded(config).redactor(None).unwrap();
        String::from_utf8(redactor.redact(text.as_bytes()).as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn each_privacy_key_takes_effect() {
        let text = r#"{"ssn":"078-05-1120","token":"abc"}"#;
        assert_eq!(redact("", text), r#"{"ssn":"078-05-1120","token":"[redacted:token]"}"#);
        assert_eq!(redact("recorder: { privacy: { redact_sensitive: false } }", text), text);
        let fields = "recorder: { privacy: { sensitive_fields: [ssn] } }";
        assert_eq!(redact(fields, text), r#"{"ssn":"[redacted:ssn]","token":"[redacted:token]"}"#);
        let mask =
            "recorder: { privacy: { rules: [{ name: n, field: ssn, action: mask, visible_chars: 2 }] } }";
        assert_eq!(redact(mask, text), r#"{"ssn":"[masked:20]","token":"[redacted:token]"}"#);
    }

    #[test]
    fn at_most_2000_sensitive_fields_are_accepted() {
        let names = |n: usize| (0..n).map(|i| format!("field{i:04}of")).collect::<Vec<_>>().join(", ");
        let config = |n| format!("recorder: {{ privacy: {{ sensitive_fields: [{}] }} }}", names(n));
        assert_eq!(
            redact(&config(2000), r#"{"field1999of":"x"}"#),
            r#"{"field1999of":"[redacted:field1999of]"}"#
        );
        check_problems(
            &config(2001),
            &[":1: recorder.privacy.sensitive_fields has 2001 items; the limit is 2000"],
        );
    }

    #[test]
    fn wrong_rules_are_reported_with_their_line() {
        check_problems(
            "recorder:\n  privacy:\n    rules:\n      - name: a\n        regex: '('\n      - name: b\n        path: $.a[\n      - \
             { name: c, field: x, action: shred }\n      - { field: x, path: $.y }\n      - { name: e, field: x, action: encrypt }\n",
            &[
                ":5: recorder.privacy.rules[0].regex is not a regular expression: unclosed group",
                ":7: recorder.privacy.rules[1].path is not a JSONPath: a [ without its ] at character 4 of \"$.a[\"",
                ":8: recorder.privacy.rules[2].action must be remove, replace, hash, mask or encrypt, not \"shred\"",
                ":9: recorder.privacy.rules[3].name is required",
                ":9: recorder.privacy.rules[3] must have one of field, path, regex, or method with param",
                ":10: recorder.privacy.rules[4].key_id is required with the action encrypt",
            ],
        );
    }

    #[test]
    fn a_missing_key_is_reported() {
        let config = loaded("recorder: { privacy: { encryption: { enabled: true, key_id: main } } }");
        let problem = config.redactor(None).unwrap_err();
        let problem = &problem.downcast_ref::<ConfigError>().unwrap().problems[0];
        assert!(problem.to_string().contains("recorder.privacy.encryption.key_id names no key"), "{problem}");
    }

    #[test]
    fn encryption_uses_the_named_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, "correct horse battery staple\n").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let config = format!(
            "recorder: {{ privacy: {{ keys: {{ main: {{ file: {} }} }}, encryption: {{ enabled: true, key_id: main }} }} }}",
            path.display()
        );
        let problem = loaded(&config).redactor(None).unwrap_err();
        let problem = problem.downcast_ref::<ConfigError>().unwrap().problems[0].to_string();
        assert!(problem.contains("chmod 600") && !problem.contains("horse"), "{problem}");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        assert!(redact(&config, r#"{"token":"abc"}"#).starts_with(r#"{"token":"enc:v1:main:"#));
    }
}
