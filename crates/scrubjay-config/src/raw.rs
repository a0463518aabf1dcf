//! What was written in one layer, key by key: every key of the configuration file stands here once.
//!
//! A new section is one `section!` and one line in `RawConfig`; reading, layering, `config show`, the
//! variable's name and whether a stranger's file may set it follow from that.

use scrubjay_gateway::config::{Naming, Quarantine};
use scrubjay_gateway::relay::{Durability, OnRecordFailure};
use scrubjay_tape::format::header::Compression;

use super::backends::Backends;
use super::level::LogLevel;
use super::node::{Node, Origin, Value, below};
use super::privacy::{Fields, KeyId, Keys, Rules};
use super::problem::{Problem, entries};
use super::recorder::StorageBackend;
use super::router::{Calls, RouterMode, Share};
use super::rules::Interceptors;
use super::selection::{AlwaysSample, Globs, Rate, SamplingName, SamplingRules, StrategySetting};
use super::setting::{
    Address, Count, Hosts, Location, Origins, Setting, Shown, Size, Span, Text, Token, Toolsets,
};
use super::yaml;

/// A value and where it came from.
#[derive(Clone)]
pub struct Given<T> {
    pub value: T,
    pub origin: Origin,
}

/// Who may set a key. Every key names its guard, or it does not compile; in doubt it is `Owner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Any file, a stranger's too. `ANY_FILE` in this file's tests lists these keys and says why each is harmless.
    Free,
    /// A file in the working directory only once its owner trusted it: the key may weaken recording, privacy,
    /// limits or logging, start or open something, or lead elsewhere.
    Owner,
}

/// A key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub path: String,
    pub guard: Guard,
}

/// Part of a layer: a key, or a section of keys.
pub(crate) trait Part: Sized {
    fn keys(path: &str, guard: Guard, out: &mut Vec<Key>);
    fn read(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Self;
    /// Puts another layer over this one.
    fn under(self, over: Self) -> Self;
    fn show(&self, path: &str, out: &mut Vec<Shown>);
}

impl<T: Setting> Part for Option<Given<T>> {
    fn keys(path: &str, guard: Guard, out: &mut Vec<Key>) {
        out.push(Key { path: path.to_owned(), guard });
    }

    fn read(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Self {
        // A key with nothing behind it says nothing.
        if node.value == Value::Null {
            return None;
        }
        let value = T::read(node, path, problems)?;
        Some(Given { value, origin: node.origin.clone() })
    }

    fn under(self, over: Self) -> Self {
        over.or(self)
    }

    fn show(&self, path: &str, out: &mut Vec<Shown>) {
        match self {
            Some(given) => given.value.show(path, &given.origin, out),
            None => out.push(Shown::nothing(path)),
        }
    }
}

macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($(#[$key_doc:meta])* $key:ident: $part:ty, $guard:ident;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Default)]
        pub struct $name {
            $($(#[$key_doc])* pub $key: $part,)*
        }

        impl Part for $name {
            fn keys(path: &str, _: Guard, out: &mut Vec<Key>) {
                $(<$part>::keys(&below(path, stringify!($key)), Guard::$guard, out);)*
            }

            fn read(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Self {
                let mut section = Self::default();
                for (key, node) in entries(node, path, &[$(stringify!($key)),*], problems) {
                    let path = below(path, key);
                    match key.as_str() {
                        $(stringify!($key) => section.$key = <$part>::read(node, &path, problems),)*
                        _ => {}
                    }
                }
                section
            }

            fn under(self, over: Self) -> Self {
                Self { $($key: self.$key.under(over.$key),)* }
            }

            fn show(&self, path: &str, out: &mut Vec<Shown>) {
                $(self.$key.show(&below(path, stringify!($key)), out);)*
            }
        }
    };
}

section! {
    /// A layer of the configuration.
    RawConfig {
        log_level: Option<Given<LogLevel>>, Owner;
        data: Option<Given<Location>>, Owner;
        storage: Option<Given<Text>>, Owner;
        on_record_failure: Option<Given<OnRecordFailure>>, Owner;
        durability: Option<Given<Durability>>, Owner;
        quarantine: Option<Given<Quarantine>>, Owner;
        limits: RawLimits, Free;
        serve: RawServe, Free;
        files: RawFiles, Free;
        records: RawRecords, Free;
        llm: RawLlm, Free;
        router: RawRouter, Free;
        recorder: RawRecorder, Free;
        index: RawIndex, Free;
        backends: Option<Given<Backends>>, Owner;
    }
}

section! {
    /// `index`: the tables by which recordings are searched.
    RawIndex {
        background: Option<Given<bool>>, Owner;
    }
}

section! {
    /// `limits`: how much of what.
    RawLimits {
        max_message_size: Option<Given<Size<1024, GIB>>>, Owner;
        max_tape_size: Option<Given<Size<1024, { u64::MAX }>>>, Owner;
        max_tape_duration: Option<Given<Span<1000>>>, Owner;
        max_memory: Option<Given<Size<MIB, { u64::MAX }>>>, Owner;
        max_session_memory: Option<Given<Size<MIB, { u64::MAX }>>>, Owner;
    }
}

section! {
    /// `serve`: how the gateway listens and names.
    RawServe {
        http: Option<Given<Address>>, Owner;
        auth_token: Option<Given<Token>>, Owner;
        auth_token_file: Option<Given<Location>>, Owner;
        allowed_hosts: Option<Given<Hosts>>, Owner;
        allowed_origins: Option<Given<Origins>>, Owner;
        max_body_size: Option<Given<Size<1024, GIB>>>, Owner;
        max_sessions: Option<Given<Count<1, 1_000_000>>>, Owner;
        session_idle: Option<Given<Span<1000>>>, Owner;
        disconnect_grace: Option<Given<Span<100>>>, Owner;
        max_connections: Option<Given<Count<8, 1_000_000>>>, Owner;
        header_timeout: Option<Given<Span<100>>>, Owner;
        body_timeout: Option<Given<Span<100>>>, Owner;
        idle_timeout: Option<Given<Span<100>>>, Owner;
        write_timeout: Option<Given<Span<100>>>, Owner;
        debug_port: Option<Given<Count<0, 65_535>>>, Owner;
        naming: Option<Given<Naming>>, Owner;
        project: Option<Given<Text>>, Owner;
        reload: Option<Given<bool>>, Owner;
        toolsets: Option<Given<Toolsets>>, Owner;
    }
}

section! {
    /// `files`: what agents may do to files with `file_op`.
    RawFiles {
        max_size: Option<Given<Size<1024, GIB>>>, Owner;
        allow_vcs: Option<Given<bool>>, Owner;
    }
}

section! {
    /// `records`: design reasoning that agents share.
    RawRecords {
        stale_after: Option<Given<Count<1, 1_000_000>>>, Free;
    }
}

section! {
    /// `llm`: the model that is asked, and how.
    RawLlm {
        api_key: Option<Given<Token>>, Owner;
        base_url: Option<Given<Text>>, Owner;
        model: Option<Given<Text>>, Owner;
        timeout: Option<Given<Span<100>>>, Owner;
        retries: Option<Given<Count<0, 10>>>, Owner;
        concurrency: Option<Given<Count<1, 64>>>, Owner;
        required: Option<Given<bool>>, Owner;
        allow_insecure: Option<Given<bool>>, Owner;
    }
}

section! {
    /// `router`: how tasks in plain words become calls.
    RawRouter {
        mode: Option<Given<RouterMode>>, Owner;
        threshold: Option<Given<Share>>, Owner;
        confirm_destructive: Option<Given<bool>>, Owner;
        destructive: Option<Given<Calls>>, Owner;
        allowed: Option<Given<Calls>>, Owner;
        max_steps: Option<Given<Count<1, 10>>>, Owner;
        shortlist: Option<Given<Count<1, 15>>>, Free;
        learn: Option<Given<bool>>, Owner;
    }
}

section! {
    /// `recorder`: what is recorded, and how.
    RawRecorder {
        enabled: Option<Given<bool>>, Owner;
        capture: RawCapture, Owner;
        filters: RawFilters, Owner;
        sampling: RawSampling, Owner;
        strategy: Option<Given<StrategySetting>>, Owner;
        storage: RawStorage, Owner;
        privacy: RawPrivacy, Owner;
        rules: Option<Given<Interceptors>>, Owner;
        performance: RawPerformance, Owner;
    }
}

section! {
    /// `recorder.capture`: which parts of operations are kept.
    RawCapture {
        requests: Option<Given<bool>>, Owner;
        responses: Option<Given<bool>>, Owner;
        notifications: Option<Given<bool>>, Owner;
        errors: Option<Given<bool>>, Owner;
    }
}

section! {
    /// `recorder.filters`: which operations are kept by what they are.
    RawFilters {
        include_methods: Option<Given<Globs>>, Owner;
        exclude_methods: Option<Given<Globs>>, Owner;
        min_response_time: Option<Given<Span<1>>>, Owner;
    }
}

section! {
    /// `recorder.sampling`: what share of operations is kept.
    RawSampling {
        strategy: Option<Given<SamplingName>>, Owner;
        rate: Option<Given<Rate>>, Owner;
        interval: Option<Given<Count<1, 1_000_000>>>, Owner;
        target_rate: Option<Given<Rate>>, Owner;
        rules: Option<Given<SamplingRules>>, Owner;
        always_sample: Option<Given<AlwaysSample>>, Owner;
        slow_threshold: Option<Given<Span<1>>>, Owner;
    }
}

section! {
    /// `recorder.storage`: where and how recordings are kept; some are other names of older keys.
    RawStorage {
        backend: Option<Given<StorageBackend>>, Owner;
        path: Option<Given<Location>>, Owner;
        max_tape_size: Option<Given<Size<1024, { u64::MAX }>>>, Owner;
        max_tape_duration: Option<Given<Span<1000>>>, Owner;
        compression: Option<Given<Compression>>, Owner;
        retention: Option<Given<Span<1000>>>, Owner;
    }
}

section! {
    /// `recorder.performance`: when recordings are written.
    RawPerformance {
        buffer_size: Option<Given<Count<1, 1_000_000>>>, Owner;
        flush_interval: Option<Given<Span<1>>>, Owner;
        async_storage: Option<Given<bool>>, Owner;
    }
}

section! {
    /// `recorder.privacy`: what is taken out before it is written.
    RawPrivacy {
        redact_sensitive: Option<Given<bool>>, Owner;
        sensitive_fields: Option<Given<Fields>>, Owner;
        hash_ids: Option<Given<bool>>, Owner;
        encryption: RawEncryption, Owner;
        keys: Option<Given<Keys>>, Owner;
        rules: Option<Given<Rules>>, Owner;
    }
}

section! {
    /// `recorder.privacy.encryption`: whether what is taken out is kept encrypted.
    RawEncryption {
        enabled: Option<Given<bool>>, Owner;
        key_id: Option<Given<KeyId>>, Owner;
    }
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The lowest layer, in the notation of the others.
const DEFAULTS: &str = "
log_level: info
on_record_failure: stop
durability: process
quarantine: off
limits: { max_message_size: 16MiB, max_tape_size: 100MB, max_tape_duration: 1h }
serve: { max_sessions: 10000, session_idle: 1h, disconnect_grace: 1m, max_connections: 4096,
  header_timeout: 10s, body_timeout: 30s, idle_timeout: 5m, write_timeout: 1m, naming: where-needed,
  allowed_hosts: [], allowed_origins: [], toolsets: [recorder, progress, records, tapes, router],
  reload: false }
index: { background: true }
files: { max_size: 10MiB, allow_vcs: false }
records: { stale_after: 20 }
llm: { base_url: 'https://api.openai.com/v1', model: gpt-4o-mini, timeout: 30s, retries: 2, concurrency: 4,
  required: false, allow_insecure: false }
router: { mode: catalog, threshold: 0.5, confirm_destructive: true, destructive: [], allowed: [],
  max_steps: 1, shortlist: 10, learn: true }
recorder: { enabled: true, strategy: full,
  capture: { requests: true, responses: true, notifications: true, errors: true },
  filters: { include_methods: [], exclude_methods: [] },
  sampling: { strategy: none, rate: 1, interval: 10, target_rate: 0.1, rules: [], always_sample: [],
    slow_threshold: 1s },
  storage: { compression: zstd },
  privacy: { redact_sensitive: true, sensitive_fields: [], hash_ids: false,
    encryption: { enabled: false, key_id: default }, keys: {}, rules: [] }, rules: [],
  performance: { buffer_size: 1000, flush_interval: 5s, async_storage: false } }
";

impl RawConfig {
    /// Reads a layer from its tree.
    pub fn read_tree(tree: &Node, problems: &mut Vec<Problem>) -> Self {
        let raw = Self::read(tree, "", problems);
        let (limits, storage) = (&raw.limits, &raw.recorder.storage);
        told_twice(&raw.data, "data", &storage.path, "path", problems);
        told_twice(
            &limits.max_tape_size,
            "limits.max_tape_size",
            &storage.max_tape_size,
            "max_tape_size",
            problems,
        );
        told_twice(
            &limits.max_tape_duration,
            "limits.max_tape_duration",
            &storage.max_tape_duration,
            "max_tape_duration",
            problems,
        );
        raw
    }

    /// Returns the data directory, under either of its names.
    pub fn data(&self) -> Option<&Given<Location>> {
        self.recorder.storage.path.as_ref().or(self.data.as_ref())
    }

    /// Returns the built-in layer.
    pub fn defaults() -> Self {
        let mut problems = Vec::new();
        let mut tree = yaml::parse(DEFAULTS, std::path::Path::new("defaults"), &mut problems)
            .expect("the defaults are well-formed");
        set_origin(&mut tree, &Origin::Default);
        Self::read_tree(&tree, &mut problems)
    }

    /// Puts another layer over this one.
    pub fn under_layer(mut self, over: Self) -> Self {
        // A token replaces a token, whichever way each is given.
        if over.serve.auth_token.is_some() || over.serve.auth_token_file.is_some() {
            self.serve.auth_token = None;
            self.serve.auth_token_file = None;
        }
        let (limits, storage) = (&mut self.limits, &mut self.recorder.storage);
        let (limits_over, storage_over) = (&over.limits, &over.recorder.storage);
        give_way((&mut self.data, &mut storage.path), &over.data, &storage_over.path);
        give_way(
            (&mut limits.max_tape_size, &mut storage.max_tape_size),
            &limits_over.max_tape_size,
            &storage_over.max_tape_size,
        );
        give_way(
            (&mut limits.max_tape_duration, &mut storage.max_tape_duration),
            &limits_over.max_tape_duration,
            &storage_over.max_tape_duration,
        );
        self.under(over)
    }

    /// Lists every key.
    pub fn all_keys() -> Vec<Key> {
        let mut keys = Vec::new();
        Self::keys("", Guard::Free, &mut keys);
        keys
    }

    /// Shows every key, its value and where that came from.
    pub fn shown(&self) -> Vec<Shown> {
        let mut shown = Vec::new();
        self.show("", &mut shown);
        shown
    }
}

/// Reports a key that a layer gives under both of its names.
fn told_twice<T>(
    one: &Option<Given<T>>,
    name: &str,
    other: &Option<Given<T>>,
    key: &str,
    problems: &mut Vec<Problem>,
) {
    if let (Some(_), Some(other)) = (one, other) {
        let message = format!("is another name of {name}, which is given too: keep one");
        problems.push(Problem::new(&other.origin, format!("recorder.storage.{key}"), message));
    }
}

/// Forgets what stands below under either name of a key, where a layer above gives one.
fn give_way<T>(
    (one, other): (&mut Option<Given<T>>, &mut Option<Given<T>>),
    one_over: &Option<Given<T>>,
    other_over: &Option<Given<T>>,
) {
    if one_over.is_some() || other_over.is_some() {
        (*one, *other) = (None, None);
    }
}

fn set_origin(node: &mut Node, origin: &Origin) {
    node.origin = origin.clone();
    match &mut node.value {
        Value::Null | Value::Scalar(_) => {}
        Value::List(items) => items.iter_mut().for_each(|item| set_origin(item, origin)),
        Value::Map(entries) => entries.iter_mut().for_each(|(_, node)| set_origin(node, origin)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(text: &str) -> (RawConfig, Vec<String>) {
        let mut problems = Vec::new();
        let tree = yaml::parse(text, Path::new("c.yaml"), &mut problems).unwrap();
        let raw = RawConfig::read_tree(&tree, &mut problems);
        (raw, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_defaults_give_every_key_that_has_one() {
        let shown = RawConfig::defaults().shown();
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
        let both = RawConfig::defaults().under_layer(low).under_layer(high);
        assert_eq!(both.serve.max_sessions.unwrap().value.0, 7);
        assert_eq!(both.serve.naming.unwrap().value, Naming::Always);
        let level = both.log_level.unwrap();
        assert_eq!((level.value, level.origin.to_string()), (LogLevel::Debug, "c.yaml:1".to_owned()));
        assert_eq!(both.limits.max_message_size.unwrap().value.0, 16 << 20);
    }

    #[test]
    fn a_token_replaces_a_token_file() {
        let (low, _) = read("serve: { auth_token_file: /run/token }");
        let (high, _) = read("serve: { auth_token: abc }");
        let serve = low.under_layer(high).serve;
        assert!(serve.auth_token_file.is_none() && serve.auth_token.is_some());
    }

    /// The keys that a file nobody trusted may set, and why none of them is of use to a stranger.
    const ANY_FILE: [(&str, &str); 2] = [
        ("records.stale_after", "says only how soon a session hears that others wrote"),
        ("router.shortlist", "says only how many candidates an answer names, within 1 and 15"),
    ];

    /// A new key fails here until somebody has decided: `Owner` in its `section!`, or a line with a reason above.
    #[test]
    fn every_key_needs_trust_unless_it_is_argued_here() {
        let free: Vec<String> =
            RawConfig::all_keys().into_iter().filter(|k| k.guard == Guard::Free).map(|k| k.path).collect();
        for key in &free {
            assert!(
                ANY_FILE.iter().any(|(allowed, _)| allowed == key),
                "the key {key} is `Free`: an untrusted project file could set it. Write `Owner` in raw.rs and mark it \
                 *(t)* in docs/CONFIG.md, or say in ANY_FILE why it is of no use to a stranger"
            );
        }
        assert_eq!(free.len(), ANY_FILE.len(), "ANY_FILE names a key that is not free: {free:?}");
    }
}
