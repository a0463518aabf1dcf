//! Layers: the keys that one source sets. Each layer is checked by itself and put over those below it key by key. Only
//! the result is turned into values, so the origin of a value is the one in its node.

use std::collections::BTreeMap;

use crate::agent_progress;
use crate::cursor::{self, Cursor};
use crate::environment::Environment;
use crate::node::{Node, Origin, Value};
use crate::problem::Problem;
use crate::section::{self, Key};
use crate::setting::Setting;

/// Keys with two names. A checked layer has the first only, so all other code knows one key.
const NAMES: [[&str; 2]; 3] = [
    DATA,
    ["limits.max_tape_size", "recorder.storage.max_tape_size"],
    ["limits.max_tape_duration", "recorder.storage.max_tape_duration"],
];

/// Two ways to give tokens: if a layer uses either, those below count no more. Both in one layer are reported when the
/// tokens are read.
const TOKENS: [&str; 2] = ["serve.auth_token", "serve.auth_token_file"];

/// The two names of the data directory.
pub(crate) const DATA: [&str; 2] = ["data", "recorder.storage.path"];

/// The keys that a source sets, by their paths. A key whose value is null is not set.
#[derive(Clone, Default)]
pub(crate) struct Layer(BTreeMap<&'static str, Node>);

impl Layer {
    /// Returns the lowest layer: the default of every key that has one.
    pub(crate) fn defaults() -> Self {
        let node = |text: &str| match text {
            "[]" => Node { origin: Origin::Default, value: Value::List(Vec::new()) },
            "{}" => Node { origin: Origin::Default, value: Value::Map(Vec::new()) },
            text => Node::text(text, Origin::Default),
        };
        Self(section::keys().iter().filter_map(|key| Some((key.path.as_str(), node(key.default?)))).collect())
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.0.get(key)
    }

    pub(crate) fn put(&mut self, key: &'static str, node: Node) {
        self.0.insert(key, node);
    }

    /// Removes the keys that only a trusted file may set.
    pub(crate) fn leave_free(&mut self) {
        self.0.retain(|path, _| section::key(path).is_some_and(|key| key.is_free));
    }

    /// Reads a key's value, if it is set and right.
    pub(crate) fn read<T: Setting>(&self, key: &str) -> Option<T::Value> {
        cursor::read(self.get(key)?, key, T::read).0
    }

    /// Reports the problems of all values, and gives those with a second name their first one.
    pub(crate) fn check(&mut self, problems: &mut Vec<Problem>) {
        for key in section::keys() {
            if let Some(node) = self.get(&key.path) {
                problems.extend(cursor::read(node, &key.path, key.check).1);
            }
        }
        self.join_names(problems);
    }

    /// Moves values from the second of their names to the first; reports those that are set under both.
    fn join_names(&mut self, problems: &mut Vec<Problem>) {
        for [first, second] in NAMES {
            let Some(node) = self.0.remove(second) else { continue };
            if self.get(first).is_none() {
                self.put(first, node);
            } else if problems.iter().all(|problem| ![first, second].contains(&problem.key.as_str())) {
                // A value that is wrong has been reported already.
                let message = format!("is another name of {first}, which is given too: keep one");
                problems.push(Problem::new(&node.origin, second, message));
            }
        }
    }

    /// Puts another layer over this one, key by key.
    pub(crate) fn put_over(&mut self, above: &Self) {
        if TOKENS.iter().any(|key| above.0.contains_key(key)) {
            self.0.retain(|key, _| !TOKENS.contains(key));
        }
        self.0.extend(above.0.iter().map(|(key, node)| (*key, node.clone())));
    }
}

/// The parsed text of a file. Its keys are ours, or those of the progress tracker's own file.
pub struct FileTree {
    root: Node,
    /// The path of each key in the file, and the key that it sets.
    names: Vec<(&'static str, &'static Key)>,
    is_ours: bool,
}

impl FileTree {
    pub(crate) fn new(root: Node, is_agent_progress: bool) -> Self {
        let names = if is_agent_progress {
            agent_progress::names()
        } else {
            section::keys().iter().map(|key| (key.path.as_str(), key)).collect()
        };
        Self { root, names, is_ours: !is_agent_progress }
    }

    /// Expands the variables and checks the values. Returns the problems of references to variables, and then all others.
    pub(crate) fn layer(&self, environment: &Environment) -> (Layer, Vec<Problem>, Vec<Problem>) {
        let (mut layer, mut unset) = (Layer::default(), Vec::new());
        let mut take = |key: &'static Key, at: &Cursor<'_>| {
            // The progress tracker's values are strings; ours have their own types.
            if at.is_null() || !(self.is_ours || at.text().is_some()) {
                return;
            }
            let mut node = at.node.clone();
            environment.expand(&mut node, &key.path, &mut unset);
            // Even if a variable is not set: `problems` then sorts out which message counts.
            (key.check)(&at.at(&node, key.path.clone()));
            layer.put(&key.path, node);
        };
        let ((), mut problems) = cursor::read(&self.root, "", |at| self.each_key(at, &mut take));
        layer.join_names(&mut problems);
        (layer, unset, problems)
    }

    /// Returns the problems of the file, except those of values whose variables are not set here.
    pub fn problems(&self, environment: &Environment) -> Vec<Problem> {
        let (_, unset, mut problems) = self.layer(environment);
        problems.retain(|problem| !unset.iter().any(|unset| unset.key == problem.key));
        problems
    }

    /// Returns the keys that only a trusted file may set, each with its value before variables are expanded.
    pub fn guarded(&self) -> Vec<(&'static str, Node)> {
        // Only known keys are taken, so a key that is unknown here cannot pass as harmless.
        let mut given = BTreeMap::new();
        let mut take = |key: &'static Key, at: &Cursor<'_>| drop(given.insert(&*key.path, at.node.clone()));
        cursor::read(&self.root, "", |at| self.each_key(at, &mut take));
        let guarded = section::keys().iter().filter(|key| !key.is_free);
        guarded.filter_map(|key| given.remove_entry(&*key.path)).collect()
    }

    /// Calls back with every key that is set; reports unknown keys.
    fn each_key(&self, at: &Cursor<'_>, found: &mut dyn FnMut(&'static Key, &Cursor<'_>)) {
        if let Some((_, key)) = self.names.iter().find(|(path, _)| *path == at.key) {
            return found(key, at);
        }
        let prefix = if at.key.is_empty() { String::new() } else { format!("{}.", at.key) };
        let names = self.names.iter();
        let mut known: Vec<&str> =
            names.filter_map(|(path, _)| path.strip_prefix(&prefix)?.split('.').next()).collect();
        // The keys of a section follow each other in its table, so equal names do too.
        known.dedup();
        at.entries(&known).iter().for_each(|(_, at)| self.each_key(at, found));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use scrubjay_gateway::config::Naming;

    use super::*;
    use crate::agent_progress::FILE_NAME;
    use crate::project;
    use crate::section::Part;
    use crate::sections::{LogLevel, Settings};

    fn tree(text: &str, path: &str) -> FileTree {
        project::parse(text.as_bytes(), Path::new(path), false, &mut Vec::new()).unwrap()
    }

    fn read_file(text: &str, path: &str) -> (Layer, Vec<String>) {
        let (layer, _, problems) = tree(text, path).layer(&Environment::of(&[]));
        (layer, problems.iter().map(ToString::to_string).collect())
    }

    fn read(text: &str) -> (Layer, Vec<String>) {
        read_file(text, "c.yaml")
    }

    fn together(layers: &[Layer]) -> (Settings, Layer) {
        let mut all = Layer::defaults();
        layers.iter().for_each(|layer| all.put_over(layer));
        (Settings::value(&all, ""), all)
    }

    #[test]
    fn only_the_expected_keys_have_no_default() {
        let (_, layers) = together(&[]);
        let keys = section::keys().iter().map(|key| key.path.as_str());
        let missing: Vec<&str> = keys.filter(|key| layers.get(key).is_none()).collect();
        let expected = [
            "data",
            "storage",
            "limits.max_memory",
            "limits.max_session_memory",
            "serve.http",
            "serve.auth_token",
            "serve.auth_token_file",
            "serve.max_body_size",
            "serve.debug_port",
            "serve.project",
            "llm.api_key",
            "recorder.filters.min_response_time",
            "recorder.storage.backend",
            "recorder.storage.path",
            "recorder.storage.max_tape_size",
            "recorder.storage.max_tape_duration",
            "recorder.storage.retention",
            "backends",
        ];
        assert_eq!(missing, expected);
        assert!(layers.0.values().all(|node| node.origin == Origin::Default));
    }

    #[test]
    fn all_problems_are_reported_at_once_with_line_and_key() {
        let (_, problems) = read(
            "logLevel: info\nlog_level: loud\nserve:\n  htpp: x\n  http: 8080\n  max_sessions: 0\n  naming: often\n\
             limits: 3\ndurability: [power]\ncolour: blue\n",
        );
        let expected = [
            "c.yaml:1: logLevel is not a known key: did you mean `log_level`?",
            "c.yaml:10: colour is not a known key: known are log_level, data, storage, on_record_failure, durability, quarantine, limits, serve, files, records, llm, router, recorder, index, backends",
            "c.yaml:2: log_level must be trace, debug, info, warn, error, fatal or silent, not \"loud\"",
            "c.yaml:4: serve.htpp is not a known key: did you mean `http`?",
            "c.yaml:5: serve.http must be an address and a port like 127.0.0.1:8080, not \"8080\"",
            "c.yaml:6: serve.max_sessions must be a whole number from 1 to 1000000, not \"0\"",
            "c.yaml:7: serve.naming must be where-needed or always, not \"often\"",
            "c.yaml:8: limits must be a map of keys to values",
            "c.yaml:9: durability must be a single value",
        ];
        assert_eq!(problems, expected);
    }

    #[test]
    fn a_higher_layer_wins_key_by_key() {
        let (low, _) = read("log_level: debug\nserve: { max_sessions: 5, naming: always }\n");
        let (high, _) = read("serve:\n  max_sessions: 7\nlog_level:\n");
        let (both, layers) = together(&[low, high]);
        assert_eq!((both.serve.max_sessions, both.serve.naming), (7, Naming::Always));
        let origin = layers.get("log_level").unwrap().origin.to_string();
        assert_eq!((both.log_level, origin.as_str()), (LogLevel::Debug, "c.yaml:1"));
        assert_eq!(both.limits.max_message_size, 16 << 20);
    }

    #[test]
    fn a_token_in_a_higher_layer_replaces_a_token_file() {
        let (low, _) = read("serve: { auth_token_file: /run/token }");
        let (high, _) = read("serve: { auth_token: abc }");
        let serve = together(&[low, high]).0.serve;
        assert!(serve.auth_token_file.is_none() && serve.auth_token.is_some());
    }

    #[test]
    fn the_example_of_the_progress_tracker_is_read() {
        let (layer, problems) = read_file(
            r#"{
  "dbPath": "./data/progress.db",
  "openai": { "apiKey": "sk-123456", "baseUrl": "https://api.openai.com/v1", "model": "gpt-4o-mini" },
  "logging": { "level": "warn" }
}"#,
            FILE_NAME,
        );
        assert!(problems.is_empty(), "{problems:?}");
        let given = |key: &str| {
            let node = layer.get(key).unwrap();
            let Value::Scalar(scalar) = &node.value else { panic!("{key}") };
            (scalar.text.clone(), node.origin.to_string())
        };
        let at = |line: usize| format!("{FILE_NAME}:{line}");
        assert_eq!(given("log_level"), ("warn".to_owned(), at(4)));
        assert_eq!(given("llm.api_key").0, "sk-123456");
        assert_eq!(given("llm.model").0, "gpt-4o-mini");
        assert_eq!(given("llm.base_url").1, at(3));
        assert_eq!(given("storage").0, "./data/progress.db");
    }

    #[test]
    fn a_file_of_the_progress_tracker_may_have_only_its_own_keys() {
        let (_, problems) =
            read_file(r#"{"log_level": "info", "logging": {"levle": "info"}, "backends": []}"#, FILE_NAME);
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(
            problems.iter().any(|p| p.contains("logging.levle") && p.contains("`level`")),
            "{problems:?}"
        );
        let (_, problems) = read_file(r#"{"logging": {"level": "loud"}}"#, FILE_NAME);
        assert!(problems[0].contains("not \"loud\""), "{problems:?}");
    }

    #[test]
    fn a_value_with_an_unset_variable_is_not_checked() {
        let problems = |text: &str| {
            let found = tree(text, "c").problems(&Environment::of(&[]));
            found.iter().map(|p| p.key.clone()).collect::<Vec<_>>()
        };
        assert!(problems("serve: { http: '${ADDRESS}' }").is_empty());
        assert_eq!(problems("serve: { http: '${ADDRESS}', naming: x }\nlogs: 1"), ["logs", "serve.naming"]);
    }

    #[test]
    fn only_keys_without_trust_are_used_from_an_untrusted_file() {
        let text = "log_level: debug\nbackends: []\nserve: { http: '[::]:80' }\nunheard_of: 1\n\
                    records: { stale_after: 3, other: 4 }\ndata: x\n";
        let guarded: Vec<&str> = tree(text, "c").guarded().into_iter().map(|(key, _)| key).collect();
        assert_eq!(guarded, ["log_level", "data", "serve.http", "backends"]);
        let (mut layer, _) = read(text);
        layer.leave_free();
        assert_eq!(layer.0.into_keys().collect::<Vec<_>>(), ["records.stale_after"]);
    }
}
