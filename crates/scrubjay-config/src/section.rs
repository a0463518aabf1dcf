//! Sections: tables of keys. A key's line in its table says its type, its default, and whether a stranger's file may
//! set it; checking, layering, `config show`, the variable's name and trust follow from that.
//!
//! Layers are trees (`node`), each checked by itself, and put over each other key by key. Only the outcome is turned
//! into values, so a value's origin is the one in the tree.

use crate::cursor::{self, Cursor};
use crate::node::{Node, Origin, Value};
use crate::problem::Problem;
use crate::sections::Settings;
use crate::setting::{Setting, Shown};

/// Who may set a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Any file, a stranger's too. `ANY_FILE` in this file's tests lists these keys and says why each is harmless.
    Free,
    /// A file in the working directory only once its owner trusted it: the key may weaken recording, privacy,
    /// limits or logging, start or open something, or lead elsewhere.
    Owner,
}

/// A key of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) path: String,
    pub(crate) guard: Guard,
    default: Option<&'static str>,
    fits_variable: bool,
}

impl Key {
    pub(crate) fn below(&self, name: &str, default: Option<&'static str>, is_free: bool) -> Self {
        let guard = if is_free { Guard::Free } else { Guard::Owner };
        Self { path: crate::node::below(&self.path, name), guard, default, fits_variable: true }
    }

    /// Returns the variable of the environment that gives it.
    pub(crate) fn variable(&self) -> Option<String> {
        self.fits_variable.then(|| format!("SCRUBJAY_{}", self.path.replace('.', "_").to_uppercase()))
    }
}

/// Returns an optional part of a line of `section!`.
pub(crate) fn first(of: &[&'static str]) -> Option<&'static str> {
    of.first().copied()
}

/// Part of a section: a key, or a section of its own.
pub(crate) trait Part: Sized {
    fn keys(key: Key, out: &mut Vec<Key>);
    /// Reports what is wrong in one layer.
    fn check(at: &Cursor<'_>);
    /// Reads what all layers say together, once each was checked.
    fn value(at: Option<Cursor<'_>>) -> Self;
    fn show(&self, key: &str, tree: &Node, out: &mut Vec<Shown>);
}

/// A key with a default.
impl<T: Setting> Part for T {
    fn keys(key: Key, out: &mut Vec<Key>) {
        out.push(Key { fits_variable: T::FITS_VARIABLE, ..key });
    }

    fn check(at: &Cursor<'_>) {
        if !at.is_null() {
            T::read(at);
        }
    }

    fn value(at: Option<Cursor<'_>>) -> Self {
        at.and_then(|at| T::read(&at)).expect("the defaults give every such key, and each layer was checked")
    }

    fn show(&self, key: &str, tree: &Node, out: &mut Vec<Shown>) {
        Setting::show(self, key, tree.find(key).map_or(&Origin::Default, |node| &node.origin), out);
    }
}

/// A key without one.
impl<T: Setting> Part for Option<T> {
    fn keys(key: Key, out: &mut Vec<Key>) {
        <T as Part>::keys(key, out);
    }

    fn check(at: &Cursor<'_>) {
        <T as Part>::check(at);
    }

    fn value(at: Option<Cursor<'_>>) -> Self {
        T::read(&at?)
    }

    fn show(&self, key: &str, tree: &Node, out: &mut Vec<Shown>) {
        match self {
            Some(value) => Part::show(value, key, tree, out),
            None => out.push(Shown::new(key, serde_json::Value::Null, &Origin::Default)),
        }
    }
}

/// Makes a section of lines `key: Type = "default", free;`. A key is its owner's to set unless it says `free`.
macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($key:ident: $part:ty $(= $default:literal)? $(, $guard:ident)?;)* }) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub(crate) struct $name { $(pub(crate) $key: $part,)* }

        impl $crate::section::Part for $name {
            fn keys(key: $crate::section::Key, out: &mut Vec<$crate::section::Key>) {
                $(<$part as $crate::section::Part>::keys(
                    key.below(
                        stringify!($key),
                        $crate::section::first(&[$($default)?]),
                        $crate::section::first(&[$(stringify!($guard))?]).is_some(),
                    ),
                    out,
                );)*
            }

            fn check(at: &$crate::cursor::Cursor<'_>) {
                for (name, at) in at.entries(&[$(stringify!($key)),*]) {
                    match name {
                        $(stringify!($key) => <$part as $crate::section::Part>::check(&at),)*
                        _ => {}
                    }
                }
            }

            fn value(at: Option<$crate::cursor::Cursor<'_>>) -> Self {
                let at = at.as_ref();
                Self { $($key: $crate::section::Part::value(at.and_then(|at| at.member(stringify!($key)))),)* }
            }

            fn show(&self, key: &str, tree: &$crate::node::Node, out: &mut Vec<$crate::setting::Shown>) {
                $($crate::section::Part::show(&self.$key, &$crate::node::below(key, stringify!($key)), tree, out);)*
            }
        }
    };
}
pub(crate) use section;

/// Two keys of which a layer gives one at most; either gives way to both of a higher layer.
struct Pair {
    keys: [&'static str; 2],
    /// They are two names of one value, and a layer that gives both is wrong.
    are_names: bool,
}

const PAIRS: [Pair; 4] = [
    Pair { keys: ["data", "recorder.storage.path"], are_names: true },
    Pair { keys: ["limits.max_tape_size", "recorder.storage.max_tape_size"], are_names: true },
    Pair { keys: ["limits.max_tape_duration", "recorder.storage.max_tape_duration"], are_names: true },
    // Both in one layer are reported when the tokens are read.
    Pair { keys: ["serve.auth_token", "serve.auth_token_file"], are_names: false },
];

/// Lists every key.
pub(crate) fn keys() -> Vec<Key> {
    let mut keys = Vec::new();
    let root = Key { path: String::new(), guard: Guard::Owner, default: None, fits_variable: true };
    Settings::keys(root, &mut keys);
    keys
}

/// Returns the lowest layer.
pub(crate) fn defaults() -> Node {
    let mut tree = Node::map(Origin::Default);
    for key in keys() {
        let node = match key.default {
            Some("[]") => Node { origin: Origin::Default, value: Value::List(Vec::new()) },
            Some("{}") => Node { origin: Origin::Default, value: Value::Map(Vec::new()) },
            Some(text) => Node::text(text, Origin::Default),
            None => continue,
        };
        tree.put(&key.path, node);
    }
    tree
}

/// Reports what is wrong in one layer.
pub(crate) fn check(tree: &Node, problems: &mut Vec<Problem>) {
    cursor::read(tree, "", problems, Settings::check);
    for Pair { keys: [first, second], are_names } in PAIRS {
        // A value that is wrong has been reported, and gives nothing twice.
        let is_right = |key: &str| problems.iter().all(|problem| problem.key != key);
        if are_names
            && tree.find(first).is_some_and(|_| is_right(first))
            && let Some(node) = tree.find(second).filter(|_| is_right(second))
        {
            let message = format!("is another name of {first}, which is given too: keep one");
            problems.push(Problem::new(&node.origin, second, message));
        }
    }
}

/// Puts a layer over others, key by key. A key with nothing behind it leaves the value below.
pub(crate) fn put_over(below: &mut Node, above: &Node) {
    for Pair { keys, .. } in PAIRS {
        if keys.iter().any(|key| above.find(key).is_some()) {
            keys.iter().for_each(|key| drop(below.take(key)));
        }
    }
    for key in keys() {
        if let Some(node) = above.find(&key.path) {
            below.put(&key.path, node.clone());
        }
    }
}

/// Reads the values of all layers together, each of which was checked.
pub(crate) fn values(tree: &Node) -> Settings {
    cursor::read(tree, "", &mut Vec::new(), |at| Settings::value(Some(at.clone())))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use scrubjay_gateway::config::Naming;

    use super::*;
    use crate::level::LogLevel;
    use crate::yaml;

    fn read(text: &str) -> (Node, Vec<String>) {
        let mut problems = Vec::new();
        let tree = yaml::parse(text, Path::new("c.yaml"), &mut problems).unwrap();
        check(&tree, &mut problems);
        (tree, problems.iter().map(ToString::to_string).collect())
    }

    fn together(layers: &[Node]) -> (Settings, Node) {
        let mut tree = defaults();
        layers.iter().for_each(|layer| put_over(&mut tree, layer));
        (values(&tree), tree)
    }

    #[test]
    fn the_defaults_give_every_key_that_has_one() {
        let (settings, tree) = together(&[]);
        let mut shown = Vec::new();
        Part::show(&settings, "", &tree, &mut shown);
        let missing: Vec<&str> = shown.iter().filter(|s| s.value.is_null()).map(|s| s.key.as_str()).collect();
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
        assert!(shown.iter().all(|s| s.origin == "default"));
    }

    #[test]
    fn all_problems_are_told_at_once_with_place_and_key() {
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
        let (both, tree) = together(&[low, high]);
        assert_eq!((both.serve.max_sessions.0, both.serve.naming), (7, Naming::Always));
        let origin = tree.find("log_level").unwrap().origin.to_string();
        assert_eq!((both.log_level, origin.as_str()), (LogLevel::Debug, "c.yaml:1"));
        assert_eq!(both.limits.max_message_size.0, 16 << 20);
    }

    #[test]
    fn a_token_replaces_a_token_file() {
        let (low, _) = read("serve: { auth_token_file: /run/token }");
        let (high, _) = read("serve: { auth_token: abc }");
        let serve = together(&[low, high]).0.serve;
        assert!(serve.auth_token_file.is_none() && serve.auth_token.is_some());
    }

    /// The keys that a file nobody trusted may set, and why none of them is of use to a stranger.
    const ANY_FILE: [(&str, &str); 2] = [
        ("records.stale_after", "says only how soon a session hears that others wrote"),
        ("router.shortlist", "says only how many candidates an answer names, within 1 and 15"),
    ];

    /// A key marked `free` fails here until its line with a reason stands above.
    #[test]
    fn every_key_needs_trust_unless_it_is_argued_here() {
        let free: Vec<String> =
            keys().into_iter().filter(|k| k.guard == Guard::Free).map(|k| k.path).collect();
        for key in &free {
            assert!(
                ANY_FILE.iter().any(|(allowed, _)| allowed == key),
                "the key {key} is `free`: an untrusted project file could set it. Leave `free` out and mark it *(t)* in \
                 docs/CONFIG.md, or say in ANY_FILE why it is of no use to a stranger"
            );
        }
        assert_eq!(free.len(), ANY_FILE.len(), "ANY_FILE names a key that is not free: {free:?}");
    }
}
