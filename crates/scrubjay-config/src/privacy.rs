//! `recorder.privacy`: what is taken out of recordings, checked at start with its place in the file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use scrubjay_core::redact::{Action, Key, Pattern, RedactionConfig, Redactor, Rule};
use scrubjay_tape::home::Home;
use serde_json::{Value as Json, json};

use super::node::{Node, Origin, Value, below};
use super::problem::{ConfigError, Problem, entries};
use super::raw::RawPrivacy;
use super::setting::{Location, Setting, Shown, items, text, texts};

const KEY: &str = "recorder.privacy";
/// A key with less in it can be guessed.
const KEY_BYTES_MIN: usize = 16;
const VISIBLE_CHARS_DEFAULT: usize = 4;

/// Names of sensitive fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields(pub Vec<String>);

impl Setting for Fields {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let names = texts(node, key, problems)?;
        for (i, name) in names.iter().enumerate() {
            if let Err(what) = Pattern::Field(name.clone()).check() {
                problems.push(Problem::new(&node.origin, format!("{key}[{i}]"), what));
                return None;
            }
        }
        Some(Self(names))
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        out.push(Shown::new(key, json!(self.0), origin));
    }
}

/// The name of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyId(pub String);

impl Setting for KeyId {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let id = text(node, key, problems)?;
        let fits =
            !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        if !fits {
            problems.push(Problem::new(&node.origin, key, "must be letters, digits, _ or -"));
        }
        fits.then(|| Self(id.to_owned()))
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        out.push(Shown::new(key, self.0.as_str(), origin));
    }
}

/// Where a key is found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    Variable(String),
}

/// The keys, by name.
#[derive(Clone, Debug)]
pub struct Keys(BTreeMap<String, (Source, Origin)>);

impl Setting for Keys {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let Value::Map(named) = &node.value else {
            problems.push(Problem::new(
                &node.origin,
                key,
                "must be a map of names to { file: … } or { env: … }",
            ));
            return None;
        };
        let before = problems.len();
        let mut keys = BTreeMap::new();
        for (id, node) in named {
            let path = below(key, id);
            KeyId::read(&Node::text(id, node.origin.clone()), &path, problems);
            let given = entries(node, &path, &["file", "env"], problems);
            let source = match given.as_slice() {
                [(name, node)] if name == "file" => {
                    Location::read(node, &below(&path, name), problems).map(|place| Source::File(place.0))
                }
                [(name, node)] => {
                    text(node, &below(&path, name), problems).map(|name| Source::Variable(name.to_owned()))
                }
                _ => {
                    problems.push(Problem::new(&node.origin, &path, "must have either file or env"));
                    None
                }
            };
            keys.extend(source.map(|source| (id.clone(), (source, node.origin.clone()))));
        }
        (problems.len() == before).then_some(Self(keys))
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

/// A rule as it was written.
#[derive(Clone, Debug)]
struct WrittenRule {
    rule: Rule,
    /// The key it encrypts with.
    key_id: Option<String>,
    origin: Origin,
}

/// The user's rules.
#[derive(Clone)]
pub struct Rules {
    list: Vec<WrittenRule>,
}

impl Setting for Rules {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let items = items(node, key, problems, "rules")?;
        let before = problems.len();
        let read = |(i, item)| read_rule(item, &format!("{key}[{i}]"), problems);
        let list = items.iter().enumerate().filter_map(read).collect();
        (problems.len() == before).then_some(Self { list })
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        let names: Vec<&str> = self.list.iter().map(|written| written.rule.name.as_str()).collect();
        out.push(Shown::new(key, json!(names), origin));
    }
}

const RULE_KEYS: [&str; 10] =
    ["name", "field", "path", "regex", "method", "param", "action", "with", "visible_chars", "key_id"];

fn read_rule(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<WrittenRule> {
    let before = problems.len();
    entries(node, path, &RULE_KEYS, problems);
    let mut given = |key: &str| -> Option<String> {
        node.get(key).and_then(|node| text(node, &below(path, key), problems)).map(str::to_owned)
    };
    let (name, action) = (given("name"), given("action"));
    let [field, json_path, regex, method, param] =
        ["field", "path", "regex", "method", "param"].map(&mut given);
    let (with, visible, key_id) = (given("with"), given("visible_chars"), given("key_id"));
    let mut wrong = |key: &str, what: &str| {
        let origin = node.get(key).map_or(&node.origin, |node| &node.origin);
        problems.push(Problem::new(origin, below(path, key), what));
    };
    let name = name.unwrap_or_else(|| {
        wrong("name", "is required");
        String::new()
    });
    let pattern = match (field, json_path, regex, method, param) {
        (Some(field), None, None, None, None) => Some(("field", Pattern::Field(field))),
        (None, Some(path), None, None, None) => Some(("path", Pattern::Path(path))),
        (None, None, Some(regex), None, None) => Some(("regex", Pattern::Regex(regex))),
        (None, None, None, Some(method), Some(param)) => {
            Some(("param", Pattern::MethodParam { method, param }))
        }
        _ => {
            wrong("", "must have one of field, path, regex, or method with param");
            None
        }
    };
    if let Some((key, pattern)) = &pattern
        && let Err(what) = pattern.check()
    {
        wrong(key, &what);
    }
    let visible_chars =
        visible.as_deref().map_or(Ok(VISIBLE_CHARS_DEFAULT), str::parse).unwrap_or_else(|_| {
            wrong("visible_chars", "must be a whole number");
            0
        });
    let action = match action.as_deref() {
        None => Action::Mark,
        Some("remove") => Action::Remove,
        Some("replace") if with.is_none() => Action::Mark,
        Some("replace") => Action::Replace(Json::from(with.unwrap_or_default())),
        Some("hash") => Action::Hash,
        Some("mask") => Action::Mask { visible_chars },
        // The key is put in its place when all layers are known.
        Some("encrypt") => Action::Encrypt { key_id: key_id.clone().unwrap_or_default(), key: Key([0; 32]) },
        Some(_) => {
            wrong("action", "must be remove, replace, hash, mask or encrypt");
            Action::Mark
        }
    };
    if matches!(action, Action::Encrypt { .. }) && key_id.is_none() {
        wrong("key_id", "is required with the action encrypt");
    }
    let (_, pattern) = pattern?;
    let key_id = key_id.filter(|_| matches!(action, Action::Encrypt { .. }));
    let rule = Rule { name, pattern, action };
    (problems.len() == before).then(|| WrittenRule { rule, key_id, origin: node.origin.clone() })
}

/// Makes the redactor that the configuration asks for; reads the files of its keys.
///
/// # Errors
/// A key is missing or unusable.
pub(crate) fn redactor(privacy: &RawPrivacy, home: Option<&Home>) -> anyhow::Result<Arc<Redactor>> {
    let mut problems = Vec::new();
    let mut key = |id: &str, at: &str, origin: &Origin| -> Key {
        find_key(privacy, id).unwrap_or_else(|what| {
            problems.push(Problem::new(origin, at, what));
            Key([0; 32])
        })
    };
    let written = privacy.rules.as_ref().map(|given| given.value.list.clone()).unwrap_or_default();
    let rules = written.into_iter().enumerate().map(|(i, written)| match written.key_id {
        Some(id) => {
            let key = key(&id, &format!("{KEY}.rules[{i}].key_id"), &written.origin);
            Rule { action: Action::Encrypt { key_id: id, key }, ..written.rule }
        }
        None => written.rule,
    });
    let rules: Vec<Rule> = rules.collect();
    let encryption = &privacy.encryption;
    let action = match (&encryption.enabled, &encryption.key_id) {
        (Some(enabled), Some(id)) if enabled.value => {
            let found = key(&id.value.0, &format!("{KEY}.encryption.key_id"), &id.origin);
            Action::Encrypt { key_id: id.value.0.clone(), key: found }
        }
        _ => Action::Mark,
    };
    let hash_ids = privacy.hash_ids.as_ref().is_some_and(|given| given.value);
    let hashes = hash_ids || rules.iter().any(|rule| rule.action == Action::Hash);
    let named = privacy.keys.as_ref().is_some_and(|keys| keys.value.0.contains_key("hash"));
    let hash_key = match home {
        _ if named => key("hash", &format!("{KEY}.keys.hash"), &Origin::Default),
        Some(home) if hashes => Key(home.hash_key().context("cannot make a key for hashes")?),
        _ => Key([0; 32]),
    };
    ConfigError::unless_empty(problems)?;
    let config = RedactionConfig {
        redact_sensitive: privacy.redact_sensitive.as_ref().is_none_or(|given| given.value),
        sensitive_fields: privacy
            .sensitive_fields
            .as_ref()
            .map(|given| given.value.0.clone())
            .unwrap_or_default(),
        hash_ids,
        rules,
        action,
        hash_key,
    };
    let wrong = |errors: Vec<scrubjay_core::redact::RuleError>| {
        let told = errors
            .into_iter()
            .map(|e| Problem::new(&Origin::Default, format!("{KEY}.rules[{}]", e.rule), e.what));
        ConfigError { problems: told.collect() }
    };
    Ok(Arc::new(Redactor::new(&config).map_err(wrong)?))
}

/// Finds a key by its name; where the configuration has none of that name, in the variable of that name.
///
/// # Errors
/// There is no such key, or it cannot be used.
pub(crate) fn key(privacy: &RawPrivacy, id: &str) -> Result<Key, String> {
    let is_known = privacy.keys.as_ref().is_some_and(|keys| keys.value.0.contains_key(id));
    match std::env::var(id) {
        Ok(secret) if !is_known => derived(secret.as_bytes(), &format!("${id}")),
        _ => find_key(privacy, id),
    }
}

/// Finds a key by its name.
fn find_key(privacy: &RawPrivacy, id: &str) -> Result<Key, String> {
    let found = privacy.keys.as_ref().and_then(|keys| keys.value.0.get(id));
    let (source, _) = found.ok_or_else(|| format!("names no key: give {KEY}.keys.{id} a file or an env"))?;
    let (secret, place) = match source {
        Source::File(path) => {
            let place = path.display().to_string();
            (
                super::secret_file::read(path)
                    .map_err(|e| format!("has a key that cannot be read from {place}: {e}"))?,
                place,
            )
        }
        Source::Variable(name) => {
            let value =
                std::env::var(name).map_err(|_| format!("has its key in ${name}, which is not set"))?;
            (value.into_bytes(), format!("${name}"))
        }
    };
    derived(&secret, &place)
}

/// Makes a key of what a person keeps as one.
fn derived(secret: &[u8], place: &str) -> Result<Key, String> {
    let secret = secret.trim_ascii();
    if secret.len() < KEY_BYTES_MIN {
        return Err(format!("has too short a key in {place}: it needs at least {KEY_BYTES_MIN} bytes"));
    }
    Ok(Key(blake3::derive_key("scrubjay redaction key v1", secret)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{loaded, problems};
    use super::*;

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
