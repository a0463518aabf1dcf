//! Each key of `recorder:`, in `wrap` and in `serve`: what is on tape, and what the tape says was left out.

use std::collections::BTreeSet;
use std::ops::DerefMut;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{ExportedTape, Lab, Running, SCRUBJAY, kill, text, wait_for};

/// How a server is recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Wrap,
    Serve,
}

const MODES: [Mode; 2] = [Mode::Wrap, Mode::Serve];

/// A lab with a configuration for its recorders.
struct ConfiguredLab {
    lab: Lab,
    config: String,
}

impl ConfiguredLab {
    fn new(config: &str) -> Self {
        let lab = Lab::new();
        let file = lab.file("c.yaml");
        std::fs::write(&file, config).unwrap();
        Self { lab, config: file }
    }

    /// Starts a recorder before the sample server, in either mode.
    fn start(&self, mode: Mode) -> Box<dyn DerefMut<Target = Running>> {
        match mode {
            Mode::Wrap => Box::new(self.lab.wrap_sample().with(&["--config", &self.config]).start()),
            Mode::Serve => {
                let serve = [
                    "--config",
                    &self.config,
                    "serve",
                    "--toolsets",
                    "none",
                    "--",
                    SCRUBJAY,
                    "sample-server",
                ];
                Box::new(Box::new(self.lab.start(&serve)))
            }
        }
    }

    /// Runs a conversation with one call of each kind, and returns what was recorded of it.
    fn converse(&self, mode: Mode) -> RecordedConversation {
        self.converse_slowly(mode, 1)
    }

    /// The same, with one call that takes this long.
    fn converse_slowly(&self, mode: Mode, slow_ms: u64) -> RecordedConversation {
        let mut running = self.start(mode);
        converse(&mut running, slow_ms);
        running.close_stdin();
        assert_eq!(running.exit_code(), 0, "{}", running.stderr_text());
        drop(running);
        let named = self.lab.tapes().into_iter().filter(|tape| mode == Mode::Wrap || tape["name"] == "serve");
        let tapes: Vec<ExportedTape> = named.map(|tape| self.lab.export(text(&tape["id"]))).collect();
        self.lab.verify();
        RecordedConversation { tapes }
    }
}

fn greet(running: &mut Running) {
    let client = json!({ "name": "it", "version": "1" });
    running.ask(
        0,
        "initialize",
        &json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client }),
    );
    running.send_line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
}

fn converse(running: &mut Running, slow_ms: u64) {
    greet(running);
    running.ask(1, "tools/list", &json!({}));
    running.ask(2, "ping", &json!({}));
    running.ask(3, "tools/call", &json!({ "name": "echo", "arguments": { "text": "hello" } }));
    running.ask(4, "tools/call", &json!({ "name": "slow", "arguments": { "ms": slow_ms } }));
    let meta = json!({ "progressToken": "p" });
    running.ask(5, "tools/call", &json!({ "name": "count", "arguments": { "to": 2 }, "_meta": meta }));
    running.ask(6, "tools/call", &json!({ "name": "fail", "arguments": {} }));
}

/// What was recorded of a conversation.
struct RecordedConversation {
    tapes: Vec<ExportedTape>,
}

const GREETING: &str = "greeting";

impl RecordedConversation {
    /// Returns the calls that were recorded on the client's leg, and checks that each was recorded as a whole.
    fn calls(&self) -> BTreeSet<&'static str> {
        let ids = ["0", "1", "2", "3", "4", "5", "6"];
        let names = [GREETING, "list", "ping", "echo", "slow", "count", "fail"];
        let mut calls = BTreeSet::new();
        for (id, name) in ids.into_iter().zip(names) {
            let messages = self.client_leg().filter(|entry| entry["jsonrpc_id"] == id).count();
            assert!(
                messages == 0 || messages == 2,
                "{name}: a request and its answer, or neither: {messages}"
            );
            if messages == 2 {
                calls.insert(name);
            }
        }
        let progress = self.of_type("notification").any(|entry| entry["method"] == "notifications/progress");
        assert_eq!(progress, calls.contains("count"), "progress is kept or left out with its call");
        calls
    }

    fn client_leg(&self) -> impl Iterator<Item = &Value> {
        let all = self.tapes.iter().flat_map(|tape| tape.of_kind("message")).map(|entry| &entry.json);
        all.filter(|entry| entry["via"].is_null())
    }

    fn of_type<'a>(&'a self, message_type: &'a str) -> impl Iterator<Item = &'a Value> {
        self.client_leg().filter(move |entry| entry["message_type"] == message_type)
    }

    fn notes(&self, event: &str) -> Vec<Value> {
        let notes = self.tapes.iter().flat_map(|tape| tape.of_kind("note")).map(|entry| entry.facts());
        notes.filter(|note| note["event"] == event).collect()
    }
}

/// Plays the conversation under some settings, in both modes, and compares which calls are recorded.
fn check(recorder: &str, expected: &[&str]) {
    check_slowly(recorder, 1, expected);
}

/// The same, with a call that takes this long, so that the other calls are quicker on any machine.
fn check_slowly(recorder: &str, slow_ms: u64, expected: &[&str]) {
    for mode in MODES {
        let configured = ConfiguredLab::new(&format!("recorder: {recorder}"));
        let recorded = configured.converse_slowly(mode, slow_ms);
        let calls: BTreeSet<&str> = recorded.calls();
        let expected: BTreeSet<&str> = expected.iter().copied().chain([GREETING]).collect();
        assert_eq!(calls, expected, "{mode:?} {recorder}");
        let begin = recorded.notes("selection");
        assert_eq!(begin.len(), 1, "{mode:?} {recorder}: a note says that a selection was in force");
        let left_out = recorded.notes("left_out");
        let messages: u64 = left_out.iter().filter_map(|note| note["messages"].as_u64()).sum();
        assert!(messages >= 2 * (7 - expected.len() as u64), "{mode:?} {recorder}: {left_out:?}");
        if mode == Mode::Serve {
            let tape = &recorded.tapes[0];
            let backend = tape.of_kind("message").filter(|entry| entry.json["via"] == "scrubjay");
            let tools: BTreeSet<&str> = backend.filter_map(|entry| entry.json["name"].as_str()).collect();
            let called: BTreeSet<&str> =
                expected.difference(&BTreeSet::from([GREETING, "list", "ping"])).copied().collect();
            assert_eq!(tools, called, "both legs of a call are one: {recorder}");
        }
    }
}

#[test]
fn everything_is_recorded_by_default() {
    for mode in MODES {
        let recorded = ConfiguredLab::new("").converse(mode);
        assert_eq!(recorded.calls().len(), 7, "{mode:?}");
        assert!(recorded.notes("selection").is_empty() && recorded.notes("left_out").is_empty());
    }
}

#[test]
fn filters_select_by_method_and_time() {
    check("{ filters: { include_methods: ['tools/*'] } }", &["list", "echo", "slow", "count", "fail"]);
    check("{ filters: { exclude_methods: [ping, '*/list'] } }", &["echo", "slow", "count", "fail"]);
    check_slowly("{ filters: { min_response_time: 2s } }", 2100, &["slow", "fail"]);
}

#[test]
fn sampling_keeps_its_share() {
    check("{ sampling: { strategy: random, rate: 0 } }", &[]);
    check("{ sampling: { strategy: adaptive, target_rate: 0 } }", &[]);
    let all = ["list", "ping", "echo", "slow", "count", "fail"];
    check("{ sampling: { strategy: adaptive, target_rate: 1 }, filters: { exclude_methods: [x] } }", &all);
    let rules = "{ sampling: { strategy: priority, rate: 0, rules: [{ tools: [ec*], rate: 1 }, { methods: [ping], rate: 1 }] } }";
    check(rules, &["echo", "ping"]);
    for mode in MODES {
        let configured = ConfiguredLab::new(
            "recorder: { sampling: { strategy: systematic, interval: 1000 }, filters: { exclude_methods: ['notifications/*'] } }",
        );
        let recorded = configured.converse(mode);
        assert_eq!(recorded.calls().len(), 2, "{mode:?}: the greeting, and the first of a thousand");
    }
}

#[test]
fn errors_and_slow_requests_can_always_be_sampled() {
    check("{ sampling: { strategy: random, rate: 0, always_sample: [errors] } }", &["fail"]);
    let slow =
        "{ sampling: { strategy: random, rate: 0, always_sample: [slow_requests], slow_threshold: 2s } }";
    check_slowly(slow, 2100, &["slow"]);
    let never =
        "{ sampling: { strategy: random, rate: 0, always_sample: [slow_requests], slow_threshold: 1h } }";
    check(never, &[]);
}

#[test]
fn strategies_select_by_outcome() {
    check("{ strategy: { kind: sampled, by: session, rate: 0 } }", &[]);
    check("{ strategy: { kind: sampled, by: window, window: 1ms, every: 100d } }", &[]);
    check("{ strategy: { kind: error_focused, before: 0, after: 0 } }", &["fail"]);
    check_slowly("{ strategy: { kind: performance, threshold: 2s } }", 2100, &["slow"]);
}

#[test]
fn the_calls_before_a_failure_are_kept() {
    for mode in MODES {
        let configured =
            ConfiguredLab::new("recorder: { strategy: { kind: error_focused, before: 5, after: 0 } }");
        let calls = configured.converse(mode).calls();
        assert!(
            calls.contains("fail") && calls.contains("count") && !calls.contains("ping"),
            "{mode:?} {calls:?}"
        );
    }
}

#[test]
fn parts_of_calls_can_be_left_out() {
    let recorded = |flag: &str, mode: Mode| {
        ConfiguredLab::new(&format!("recorder: {{ capture: {{ {flag}: false }} }}")).converse(mode)
    };
    for mode in MODES {
        let requests = recorded("requests", mode);
        assert_eq!(
            requests.of_type("request").filter(|entry| entry["direction"] == "client_to_server").count(),
            1,
            "the greeting"
        );
        assert_eq!(requests.of_type("response").count(), 7);
        let responses = recorded("responses", mode);
        assert_eq!(responses.of_type("response").count(), 2, "the greeting, and a failure");
        let notifications = recorded("notifications", mode);
        let methods: Vec<&Value> =
            notifications.of_type("notification").map(|entry| &entry["method"]).collect();
        assert_eq!(methods, ["notifications/initialized"]);
        let errors = recorded("errors", mode);
        assert_eq!(errors.of_type("response").count(), 6);
        assert!(errors.client_leg().all(|entry| entry["failed"] == false));
    }
}

#[test]
fn disabled_recording_still_relays_messages() {
    for mode in MODES {
        let configured = ConfiguredLab::new("recorder: { enabled: false }");
        let mut running = configured.start(mode);
        converse(&mut running, 1);
        running.close_stdin();
        assert_eq!(running.exit_code(), 0);
        assert_eq!(
            running.stderr_text().matches("nothing is recorded").count(),
            1,
            "{}",
            running.stderr_text()
        );
        assert!(configured.lab.tape_ids().is_empty());
    }
}

#[test]
fn tapes_rotate_at_the_limits_of_the_storage_section() {
    for (storage, ms) in [("max_tape_size: 1KiB", 1), ("max_tape_duration: 1s", 1100)] {
        for mode in MODES {
            let configured = ConfiguredLab::new(&format!("recorder: {{ storage: {{ {storage} }} }}"));
            let mut running = configured.start(mode);
            greet(&mut running);
            for id in 1..4 {
                running.ask(id, "tools/call", &json!({ "name": "slow", "arguments": { "ms": ms } }));
            }
            running.close_stdin();
            assert_eq!(running.exit_code(), 0);
            drop(running);
            let parts =
                configured.lab.tapes().iter().filter(|t| mode == Mode::Wrap || t["name"] == "serve").count();
            assert!(parts > 1, "{mode:?} {storage}: {parts}");
        }
    }
}

#[test]
fn a_tape_can_be_sealed_without_compression() {
    for mode in MODES {
        for (compression, is_plain) in [("zstd", false), ("none", true)] {
            let configured =
                ConfiguredLab::new(&format!("recorder: {{ storage: {{ compression: {compression} }} }}"));
            assert_eq!(configured.converse(mode).calls().len(), 7);
            let files = std::fs::read_dir(configured.lab.data().join("tapes"))
                .unwrap()
                .map(|file| file.unwrap().path());
            let wanted = br#""method":"tools/call""#;
            let found = files.filter(|file| {
                std::fs::read(file).unwrap().windows(wanted.len()).any(|window| window == wanted)
            });
            assert_eq!(found.count() > 0, is_plain, "{mode:?} {compression}");
        }
    }
}

#[test]
fn recordings_are_at_the_storage_path() {
    let lab = Lab::new();
    let config = lab.file("c.yaml");
    std::fs::write(&config, "recorder: { storage: { path: ./tapes } }").unwrap();
    for arguments in [&["wrap"][..], &["serve", "--toolsets", "none"]] {
        let mut command = Command::new(SCRUBJAY);
        command.args(["--config", &config]).args(arguments).args(["--", SCRUBJAY, "sample-server"]);
        command.env_remove("SCRUBJAY_DATA");
        let mut running = Running::start(&mut command);
        greet(&mut running);
        running.close_stdin();
        assert_eq!(running.exit_code(), 0, "{}", running.stderr_text());
    }
    let there = Lab::new().with_data(lab.file("tapes").into());
    let names: BTreeSet<String> = there.tapes().iter().map(|tape| text(&tape["name"]).to_owned()).collect();
    assert!(names.contains("scrubjay") && names.contains("serve"), "{names:?}");
}

#[test]
fn tapes_past_their_retention_are_removed() {
    for mode in MODES {
        let configured = ConfiguredLab::new("recorder: { storage: { retention: 1s } }");
        let old = configured.lab.record("old", b"{\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n");
        wait_for("the old tape to go", || {
            let mut running = configured.start(mode);
            greet(&mut running);
            running.close_stdin();
            running.exit_code();
            (!configured.lab.tape_ids().contains(&old)).then_some(())
        });
        assert!(!configured.lab.tape_ids().is_empty(), "the newest tape is kept");
    }
}

/// Tells whether a file of a tape contains this text.
fn is_on_disk(lab: &Lab, wanted: &str) -> bool {
    let files = std::fs::read_dir(lab.data().join("tapes")).into_iter().flatten();
    let mut read = files.filter_map(|file| std::fs::read(file.ok()?.path()).ok());
    read.any(|bytes| bytes.windows(wanted.len()).any(|window| window == wanted.as_bytes()))
}

#[test]
fn a_buffer_is_written_when_it_is_full_or_due() {
    let call = json!({ "name": "echo", "arguments": { "text": "c4n4ry" } });
    for mode in MODES {
        // The default: a message is on tape before it is forwarded.
        for (performance, at_once) in [
            ("{ async_storage: false, flush_interval: 10d }", true),
            ("{ async_storage: true, flush_interval: 10d }", false),
            ("{ async_storage: true, flush_interval: 10d, buffer_size: 1 }", true),
        ] {
            let configured = ConfiguredLab::new(&format!("recorder: {{ performance: {performance} }}"));
            let mut running = configured.start(mode);
            greet(&mut running);
            running.ask(1, "tools/call", &call);
            assert_eq!(is_on_disk(&configured.lab, "c4n4ry"), at_once, "{mode:?} {performance}");
            running.close_stdin();
            assert_eq!(running.exit_code(), 0);
            drop(running);
            let tape = configured
                .lab
                .tapes()
                .into_iter()
                .find(|t| mode == Mode::Wrap || t["name"] == "serve")
                .unwrap();
            let tape = configured.lab.export(text(&tape["id"]));
            let recorded = tape
                .of_kind("message")
                .filter(|entry| String::from_utf8_lossy(&entry.payload).contains("c4n4ry"));
            assert!(recorded.count() >= 2, "the buffer is written at the end: {mode:?} {performance}");
        }
        let configured =
            ConfiguredLab::new("recorder: { performance: { async_storage: true, flush_interval: 20ms } }");
        let mut running = configured.start(mode);
        greet(&mut running);
        running.ask(1, "tools/call", &call);
        wait_for("the buffer to be written", || is_on_disk(&configured.lab, "c4n4ry").then_some(()));
        kill(running.pid(), Signal::KILL);
    }
}

#[test]
fn a_tape_notes_that_a_crash_may_lose_buffered_messages() {
    let configured =
        ConfiguredLab::new("recorder: { performance: { async_storage: true, flush_interval: 20ms } }");
    let mut wrapped = configured.lab.wrap(&["cat"]).with(&["--config", &configured.config]).start();
    wrapped.send_line(r#"{"jsonrpc":"2.0","method":"first"}"#);
    wait_for("the buffer to be written", || is_on_disk(&configured.lab, "first").then_some(()));
    kill(wrapped.worker(), Signal::KILL);
    wrapped.wait();
    drop(wrapped);
    configured.lab.start_again();
    let tape = configured.lab.only_tape();
    assert!(tape.entries.iter().any(|entry| entry.payload.ends_with(br#""first"}"#)));
    let note = tape.entries[0].facts();
    assert!(note["may_be_missing"].to_string().contains("after a crash"), "{note}");
    assert_eq!(note["recorded_before_passed_on"], false);
}

#[test]
fn every_view_of_a_tape_reports_left_out_messages() {
    let configured = ConfiguredLab::new("recorder: { sampling: { strategy: random, rate: 0 } }");
    configured.converse(Mode::Wrap);
    let listed = &configured.lab.tapes()[0];
    let left_out = listed["left_out"]["sample"]["messages"].as_u64().unwrap();
    assert!(left_out >= 12, "{listed}");
    let wanted = format!("{left_out} messages");
    for command in [&["tape", "show"][..], &["tape", "stats"]] {
        let shown = String::from_utf8(configured.lab.run_ok(command)).unwrap();
        assert!(shown.contains(&wanted) && shown.contains("by sample"), "{command:?}: {shown}");
    }
    let shown = String::from_utf8(configured.lab.run_ok(&["tape", "show"])).unwrap();
    assert!(shown.contains("recorded in part: sampling random"), "{shown}");
    let stats = configured.lab.json(&["tape", "stats", "--json"]);
    assert_eq!(stats["left_out"]["sample"]["messages"], left_out);
}

#[test]
fn the_example_of_the_specification_is_accepted_unchanged() {
    let seed = "recorder:\n  enabled: true\n  capture: { requests: true, responses: true, notifications: true, errors: true }\n  \
        filters:\n    include_methods: [\"tools/*\", \"resources/*\"]\n    exclude_methods: [ping, \"*/list\"]\n    min_response_time: 100ms\n  \
        sampling: { strategy: adaptive, target_rate: 0.1, always_sample: [errors, slow_requests] }\n  \
        storage: { backend: sqlite, path: ./tapes, max_tape_size: 100MB, max_tape_duration: 1h, compression: zstd, retention: 30d }\n  \
        privacy:\n    redact_sensitive: true\n    sensitive_fields: [password, api_key, token, secret]\n    hash_ids: true\n    \
        encryption: { enabled: false, key_id: \"default\" }\n  performance: { buffer_size: 1000, flush_interval: 5s, async_storage: true }\n";
    for mode in MODES {
        let configured = ConfiguredLab::new(seed);
        let mut running = configured.start(mode);
        converse(&mut running, 1);
        running.close_stdin();
        assert_eq!(running.exit_code(), 0, "{}", running.stderr_text());
        drop(running);
        let tape =
            configured.lab.tapes().into_iter().find(|t| mode == Mode::Wrap || t["name"] == "serve").unwrap();
        let tape = configured.lab.export(text(&tape["id"]));
        assert!(tape.of_kind("message").any(|entry| entry.json["failed"] == true), "{mode:?}");
        let pinged = tape.of_kind("message").any(|entry| entry.json["method"] == "ping");
        let note = tape.entries[0].facts();
        assert!(!pinged && note["settings"]["min_response_time_ms"] == 100, "{mode:?}: {note}");
    }
}

#[test]
fn an_invalid_value_is_reported_at_start_with_its_place() {
    let wrong = [
        ("enabled: perhaps", "enabled must be true or false"),
        ("capture: { requests: 1 }", "capture.requests must be true or false"),
        ("filters: { include_methods: ['a b'] }", "filters.include_methods[0] is not a pattern"),
        ("filters: { min_response_time: soon }", "filters.min_response_time must be a duration"),
        ("sampling: { strategy: lucky }", "sampling.strategy must be none, random"),
        ("sampling: { rate: 1.5 }", "sampling.rate must be a number from 0 to 1"),
        ("sampling: { always_sample: [x] }", "sampling.always_sample[0] must be errors or slow_requests"),
        ("strategy: best", "strategy must be full, sampled"),
        ("storage: { compression: rar }", "storage.compression must be zstd or none"),
        ("storage: { backend: postgres }", "storage.backend says postgres"),
        ("storage: { retention: long }", "storage.retention must be a duration"),
        ("storage: { max_tape_size: 1 }", "storage.max_tape_size must be a size"),
        ("performance: { buffer_size: 0 }", "performance.buffer_size must be a whole number"),
        ("performance: { flush_interval: 0ms }", "performance.flush_interval must be a duration"),
        ("performance: { sync: true }", "performance.sync is not a known key"),
    ];
    for (line, message) in wrong {
        let configured = ConfiguredLab::new(&format!("recorder:\n  {line}\n"));
        for command in [&["wrap", "--", "cat"][..], &["serve", "--", "cat"]] {
            let answer = configured.lab.run(&[&["--config", &configured.config], command].concat());
            assert_ne!(answer.code, 0, "{command:?} {line}");
            let wanted = format!("c.yaml:2: recorder.{message}");
            assert!(answer.stderr.contains(&wanted), "{command:?} {line}: {}", answer.stderr);
        }
    }
}

#[test]
fn an_untrusted_project_cannot_disable_recording() {
    let lab = Lab::new();
    let project = tempfile::tempdir().unwrap();
    let file = project.path().join("scrubjay.yaml");
    std::fs::write(&file, "recorder: { enabled: false, sampling: { strategy: random, rate: 0 } }").unwrap();
    let mut command = Command::new(SCRUBJAY);
    command.arg("--data").arg(lab.data()).args(["wrap", "--", "cat"]).current_dir(project.path());
    command.env("XDG_CONFIG_HOME", project.path().join("none")).env_remove("SCRUBJAY_DATA");
    let mut running = Running::start(&mut command);
    running.send_line(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#);
    assert!(running.line().is_some());
    running.close_stdin();
    assert_eq!(running.exit_code(), 0);
    assert_eq!(lab.only_tape().of_kind("message").count(), 2);
}
