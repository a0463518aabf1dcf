//! `recorder.privacy`: what is taken out of recordings.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use scrubjay_core::redact::{
    RedactionAction, RedactionConfig, RedactionKey, RedactionPattern, RedactionRule, Redactor, RuleError,
};
use scrubjay_tape::home::Home;
use serde_json::{Value as Json, json};

use crate::cursor::Cursor;
use crate::loaded::Loaded;
use crate::node::{Origin, below};
use crate::problem::{ConfigError, Problem};
use crate::secret_file;
use crate::section::section;
use crate::setting::{Setting, Shown};

const KEY: &str = "recorder.privacy";
/// A key with less in it can be guessed.
const KEY_BYTES_MIN: usize = 16;
const VISIBLE_CHARS_DEFAULT: usize = 4;

section! {
    /// `recorder.privacy`.
    Privacy {
        redact_sensitive: bool = "true";
        sensitive_fields: Fields = "[]";
        hash_ids: bool = "false";
        encryption: Encryption;
        keys: Keys = "{}";
        rules: RedactionRules = "[]";
    }
}

section! {
    /// `recorder.privacy.encryption`: whether what is taken out is kept encrypted.
    Encryption {
        enabled: bool = "false";
        key_id: KeyId = "default";
    }
}

/// Names of sensitive fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fields(Vec<String>);

impl Setting for Fields {
    fn read(at: &Cursor<'_>) -> Option<Self> {
        at.each(|name| RedactionPattern::Field(name.to_owned()).check().map(|()| name.to_owned())).map(Self)
    }

    fn json(&self) -> Json {
        json!(self.0)
    }
}

/// The name of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyId(String);

impl KeyId {
    fn of(id: &str) -> Result<Self, &'static str> {
        let fits =
            !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        if fits { Ok(Self(id.to_owned())) } else { Err("must be letters, digits, _ or -") }
    }
}

impl Setting for KeyId {
    fn read(at: &Cursor<'_>) -> Option<Self> {
        at.reported(Self::of(at.text()?))
    }

    fn json(&self) -> Json {
        self.0.as_str().into()
    }
}

/// Where the bytes of a key are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    Variable(String),
}

/// The keys, by name.
#[derive(Clone, Debug)]
pub(crate) struct Keys(BTreeMap<String, (Source, Origin)>);

impl Setting for Keys {
    const FITS_VARIABLE: bool = false;

    fn read(at: &Cursor<'_>) -> Option<Self> {
        let named = at.map_of("names to { file: … } or { env: … }")?;
        at.if_right(|| {
            let read = |(id, at): (&str, Cursor<'_>)| {
                at.reported(KeyId::of(id));
                let source = match at.entries(&["file", "env"]).as_slice() {
                    [("file", at)] => PathBuf::read(at).map(Source::File),
                    [(_, at)] => at.text().map(|name| Source::Variable(name.to_owned())),
                    _ => at.wrong("must have either file or env"),
                };
                Some((id.to_owned(), (source?, at.origin().clone())))
            };
            Some(Self(named.into_iter().filter_map(read).collect()))
        })
    }

    fn json(&self) -> Json {
        json!({})
    }

    fn show(&self, key: &str, _: &Origin, out: &mut Vec<Shown>) {
        for (id, (source, origin)) in &self.0 {
            let shown = match source {
                Source::File(path) => json!({ "file": path }),
                Source::Variable(name) => json!({ "env": name }),
            };
            out.push(Shown::new(&below(key, id), shown, origin));
        }
    }
}

/// The user's rules, each with the key it encrypts with and its place.
#[derive(Clone)]
pub(crate) struct RedactionRules(Vec<(RedactionRule, Option<String>, Origin)>);

impl Setting for RedactionRules {
    const FITS_VARIABLE: bool = false;

    fn read(at: &Cursor<'_>) -> Option<Self> {
        let items = at.list_of(" of rules")?;
        at.if_right(|| Some(Self(items.iter().filter_map(|at| at.if_right(|| read_rule(at))).collect())))
    }

    fn json(&self) -> Json {
        json!(self.0.iter().map(|(rule, ..)| rule.name.as_str()).collect::<Vec<_>>())
    }
}

const RULE_KEYS: [&str; 10] =
    ["name", "field", "path", "regex", "method", "param", "action", "with", "visible_chars", "key_id"];

fn read_rule(at: &Cursor<'_>) -> Option<(RedactionRule, Option<String>, Origin)> {
    at.entries(&RULE_KEYS);
    let given = |key: &str| at.member(key)?.text().map(str::to_owned);
    let (name, action) = (given("name"), given("action"));
    let patterns = ["field", "path", "regex", "method", "param"].map(given);
    let [with, visible, key_id] = ["with", "visible_chars", "key_id"].map(given);
    let wrong = |key: &str, what: &str| at.place(key).wrong::<()>(what);
    if name.is_none() {
        wrong("name", "is required");
    }
    let pattern = match patterns {
        [Some(field), None, None, None, None] => Some(("field", RedactionPattern::Field(field))),
        [None, Some(path), None, None, None] => Some(("path", RedactionPattern::Path(path))),
        [None, None, Some(regex), None, None] => Some(("regex", RedactionPattern::Regex(regex))),
        [None, None, None, Some(method), Some(param)] => {
            Some(("param", RedactionPattern::MethodParam { method, param }))
        }
        _ => {
            wrong("", "must have one of field, path, regex, or method with param");
            None
        }
    };
    if let Some((key, pattern)) = &pattern {
        at.place(key).reported(pattern.check());
    }
    let visible_chars = visible.as_deref().map_or(Ok(VISIBLE_CHARS_DEFAULT), str::parse);
    if visible_chars.is_err() {
        wrong("visible_chars", "must be a whole number");
    }
    let action = match action.as_deref() {
        None => RedactionAction::Mark,
        Some("remove") => RedactionAction::Remove,
        Some("replace") => {
            with.map_or(RedactionAction::Mark, |with| RedactionAction::Replace(Json::from(with)))
        }
        Some("hash") => RedactionAction::Hash,
        Some("mask") => RedactionAction::Mask { visible_chars: visible_chars.unwrap_or_default() },
        // The key is read when all layers are known.
        Some("encrypt") => RedactionAction::Encrypt {
            key_id: key_id.clone().unwrap_or_default(),
            key: RedactionKey([0; 32]),
        },
        Some(_) => {
            wrong("action", "must be remove, replace, hash, mask or encrypt");
            RedactionAction::Mark
        }
    };
    let encrypts = matches!(action, RedactionAction::Encrypt { .. });
    if encrypts && key_id.is_none() {
        wrong("key_id", "is required with the action encrypt");
    }
    let rule = RedactionRule { name: name?, pattern: pattern?.1, action };
    Some((rule, key_id.filter(|_| encrypts), at.origin().clone()))
}

impl Loaded {
    /// Makes the redactor that the configuration asks for. Reads the files of its keys; a key for hashes is stored in the
    /// data directory.
    ///
    /// # Errors
    /// A key is missing or unusable.
    pub fn redactor(&self, home: Option<&Home>) -> anyhow::Result<Arc<Redactor>> {
        let privacy = &self.settings.recorder.privacy;
        let mut problems = Vec::new();
        let mut key = |id: &str, at: &str, origin: &Origin| -> RedactionKey {
            privacy.key(id).unwrap_or_else(|what| {
                problems.push(Problem::new(origin, format!("{KEY}.{at}"), what));
                RedactionKey([0; 32])
            })
        };
        let mut rules = Vec::new();
        for (i, (mut rule, key_id, origin)) in privacy.rules.0.iter().cloned().enumerate() {
            if let Some(id) = key_id {
                let key = key(&id, &format!("rules[{i}].key_id"), &origin);
                rule.action = RedactionAction::Encrypt { key_id: id, key };
            }
            rules.push(rule);
        }
        let encryption = &privacy.encryption;
        let action = if encryption.enabled {
            let (at, key_id) = ("encryption.key_id", encryption.key_id.0.clone());
            let key = key(&key_id, at, self.origin(&below(KEY, at)));
            RedactionAction::Encrypt { key_id, key }
        } else {
            RedactionAction::Mark
        };
        let hashes = privacy.hash_ids || rules.iter().any(|rule| rule.action == RedactionAction::Hash);
        let hash_key = match home {
            _ if privacy.keys.0.contains_key("hash") => key("hash", "keys.hash", &Origin::Default),
            Some(home) if hashes => RedactionKey(home.hash_key().context("cannot make a key for hashes")?),
            _ => RedactionKey([0; 32]),
        };
        ConfigError::unless_empty(problems)?;
        let config = RedactionConfig {
            redact_sensitive: privacy.redact_sensitive,
            sensitive_fields: privacy.sensitive_fields.0.clone(),
            hash_ids: privacy.hash_ids,
            rules,
            action,
            hash_key,
        };
        let wrong = |errors: Vec<RuleError>| {
            let problem = |e: RuleError| {
                Problem::new(&Origin::Default, format!("{KEY}.rules[{}]", e.rule), e.to_string())
            };
            ConfigError { problems: errors.into_iter().map(problem).collect() }
        };
        Ok(Arc::new(Redactor::new(&config).map_err(wrong)?))
    }

    /// Returns the key that encrypts under a name: the configuration's, else the one in the variable of that name.
    ///
    /// # Errors
    /// There is none, or it cannot be used; why, in words that follow its name.
    pub fn redaction_key(&self, id: &str) -> Result<RedactionKey, String> {
        let privacy = &self.settings.recorder.privacy;
        match std::env::var(id) {
            Ok(secret) if !privacy.keys.0.contains_key(id) => derived(secret.as_bytes(), &format!("${id}")),
            _ => privacy.key(id),
        }
    }
}

impl Privacy {
    /// Reads a key by its name; the error's words follow the name.
    fn key(&self, id: &str) -> Result<RedactionKey, String> {
        match self.keys.0.get(id) {
            None => Err(format!("names no key: give {KEY}.keys.{id} a file or an env")),
            Some((Source::File(path), _)) => {
                let place = path.display().to_string();
                let secret = secret_file::read(path)
                    .map_err(|e| format!("has a key that cannot be read from {place}: {e}"))?;
                derived(&secret, &place)
            }
            Some((Source::Variable(name), _)) => {
                let secret =
                    std::env::var(name).map_err(|_| format!("has its key in ${name}, which is not set"))?;
                derived(secret.as_bytes(), &format!("${name}"))
            }
        }
    }
}

/// Derives a key from the text that a person keeps as one.
fn derived(secret: &[u8], place: &str) -> Result<RedactionKey, String> {
    let secret = secret.trim_ascii();
    if secret.len() < KEY_BYTES_MIN {
        return Err(format!("has too short a key in {place}: it needs at least {KEY_BYTES_MIN} bytes"));
    }
    Ok(RedactionKey(blake3::derive_key("scrubjay redaction key v1", secret)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{loaded, problems};

    fn redact(config: &str, text: &str) -> String {
        let redactor = loaded(config).redactor(None).unwrap();
        String::from_utf8(redactor.redact(text.as_bytes()).as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn the_keys_mean_what_they_say() {
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
    fn wrong_rules_are_told_with_their_place() {
        let told = problems(
            "recorder:\n  privacy:\n    rules:\n      - name: a\n        regex: '('\n      - name: b\n        path: $.a[\n      - \
             { name: c, field: x, action: shred }\n      - { field: x, path: $.y }\n      - { name: e, field: x, action: encrypt }\n",
        );
        let expected = [
            ":5: recorder.privacy.rules[0].regex is not a regular expression: unclosed group",
            ":7: recorder.privacy.rules[1].path is not a JSONPath: a [ without its ] at character 4 of \"$.a[\"",
            ":8: recorder.privacy.rules[2].action must be remove, replace, hash, mask or encrypt",
            ":9: recorder.privacy.rules[3].name is required",
            ":9: recorder.privacy.rules[3]. must have one of field, path, regex, or method with param",
            ":10: recorder.privacy.rules[4].key_id is required with the action encrypt",
        ];
        assert_eq!(told.len(), expected.len(), "{told:#?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.ends_with(expected), "{told}\n{expected}");
        }
    }

    #[test]
    fn a_key_that_is_not_there_is_told() {
        let config = loaded("recorder: { privacy: { encryption: { enabled: true, key_id: main } } }");
        let told = config.redactor(None).unwrap_err();
        let told = &told.downcast_ref::<ConfigError>().unwrap().problems[0];
        assert!(told.to_string().contains("recorder.privacy.encryption.key_id names no key"), "{told}");
    }

    #[test]
    fn what_is_encrypted_names_its_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, "correct horse battery staple\n").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let config = format!(
            "recorder: {{ privacy: {{ keys: {{ main: {{ file: {} }} }}, encryption: {{ enabled: true, key_id: main }} }} }}",
            path.display()
        );
        let told = loaded(&config).redactor(None).unwrap_err();
        let told = told.downcast_ref::<ConfigError>().unwrap().problems[0].to_string();
        assert!(told.contains("chmod 600") && !told.contains("horse"), "{told}");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        assert!(redact(&config, r#"{"token":"abc"}"#).starts_with(r#"{"token":"enc:v1:main:"#));
    }
}
