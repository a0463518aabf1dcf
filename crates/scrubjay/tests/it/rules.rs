//! Rules in `wrap`: what each end receives, and what the tape says about it.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{DOWN, Lab, UP, Wrapped, kill, text, wait_for};

/// Starts the sample server behind these rules; what it receives goes to `log`.
fn start(lab: &Lab, rules: &Value) -> Wrapped {
    let config = lab.file("rules.yaml");
    std::fs::write(&config, json!({ "recorder": { "rules": rules } }).to_string()).unwrap();
    lab.wrap_logged_sample("log").with(&["--name", "sample", "--config", &config]).start()
}

fn received(lab: &Lab) -> String {
    String::from_utf8(lab.read("log")).unwrap()
}

fn call(id: u64, tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    )
}

#[test]
fn a_blocked_call_never_reaches_the_server() {
    let lab = Lab::new();
    let mut wrapped = start(
        &lab,
        &json!([{ "name": "no-echo", "match": { "tools": ["ec*"], "backends": ["sample"], "where": [
            { "path": "$.arguments.text", "matches": "^/etc/" }] },
            "action": "block", "code": -32050, "message": "not that one" }]),
    );
    wrapped.initialize();
    let answer = wrapped.call(1, "echo", &json!({ "text": "/etc/passwd" }));
    assert_eq!(
        answer["error"],
        json!({ "code": -32050, "message": "not that one", "data": { "rule": "no-echo" } })
    );
    let answer = wrapped.call(2, "echo", &json!({ "text": "/tmp/x" }));
    assert_eq!(answer["result"]["content"][0]["text"], "/tmp/x", "{answer}");
    assert_eq!(wrapped.leave(), 0);
    assert!(!received(&lab).contains("/etc/passwd"), "{}", received(&lab));
    let tape = lab.only_tape();
    let judged: Vec<&Value> =
        tape.entries.iter().map(|entry| &entry.json).filter(|entry| entry["intercepted"] == true).collect();
    let kinds: Vec<&str> = judged.iter().map(|entry| text(&entry["message_type"])).collect();
    assert_eq!(kinds, ["request", "error"], "{judged:?}");
    for entry in judged {
        assert_eq!(
            (&entry["applied_rules"], &entry["interception"]),
            (&json!(["no-echo"]), &json!(["blocked"]))
        );
        assert_eq!(entry["jsonrpc_id"], "1");
    }
    assert_eq!(lab.tapes()[0]["unanswered"], 0);
    let shown = String::from_utf8(lab.run_ok(&["tape", "show", &tape.id()])).unwrap();
    assert!(shown.contains("blocked by no-echo"), "{shown}");
    let found = lab.json(&["tape", "search", "no-echo", "--json"]);
    assert_eq!(
        (&found["total"], &found["hits"][0]["applied_rules"]),
        (&json!(1), &json!(["no-echo"])),
        "{found}"
    );
    lab.verify();
}

#[test]
fn the_tape_has_both_the_original_and_the_changed_call() {
    let lab = Lab::new();
    let mut wrapped = start(
        &lab,
        &json!([{ "name": "calm", "match": { "direction": "client_to_server", "tools": ["echo"] }, "action": "modify",
            "replace": [{ "path": "$.arguments.text", "pattern": "foo", "with": "bar" }],
            "set": { "$.arguments.limit": 10 }, "remove": ["$.arguments.debug"] },
            { "name": "note", "match": { "tools": ["echo"] }, "action": "tag", "tags": ["reviewed"] }]),
    );
    wrapped.initialize();
    let came = call(1, "echo", r#"{ "debug":{} ,"x":1.10, "text" : "a foo","y":18446744073709551616}"#);
    wrapped.send_line(&came);
    let answer = wrapped.message();
    assert_eq!(answer["result"]["content"][0]["text"], "a bar", "{answer}");
    assert_eq!(wrapped.leave(), 0);
    let went = call(1, "echo", r#"{ "x":1.10, "text" : "a bar","y":18446744073709551616,"limit":10}"#);
    assert!(received(&lab).contains(&went), "{}", received(&lab));
    let tape = lab.only_tape();
    let at = tape.entries.iter().position(|entry| entry.json["kind"] == "original").unwrap();
    let (original, sent) = (&tape.entries[at], &tape.entries[at + 1]);
    assert_eq!(String::from_utf8_lossy(&original.payload), came);
    assert_eq!(String::from_utf8_lossy(&sent.payload), went);
    let expected = json!({ "intercepted": true, "interception": ["changed"], "applied_rules": ["calm", "note"],
        "tags": ["reviewed"], "original_message": came, "direction": UP });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&sent.json[key], value, "{key} of {}", sent.json);
    }
    let answered = tape.messages(DOWN).last().unwrap();
    assert_eq!(
        (&answered.json["intercepted"], &answered.json["applied_rules"], &answered.json["tags"]),
        (&json!(false), &json!(["note"]), &json!(["reviewed"]))
    );
    // Counted once, paired once.
    let listed = &lab.tapes()[0];
    assert_eq!(
        (&listed["total_messages"], &listed["intercepted"], &listed["unanswered"]),
        (&json!(5), &json!(1), &json!(0)),
        "{listed}"
    );
    // An import has the same marks as the export.
    let other = Lab::new();
    let file = other.file("export.jsonl");
    std::fs::write(&file, lab.run_ok(&["tape", "export", &tape.id(), "--format", "jsonl"])).unwrap();
    assert_eq!(other.run(&["tape", "import", &file]).code, 0);
    assert_eq!(other.only_tape().entries, tape.entries);
    let found = lab.json(&["tape", "search", "type:original foo", "--json"]);
    assert_eq!((&found["total"], &found["hits"][0]["method"]), (&json!(1), &json!("tools/call")), "{found}");
}

#[test]
fn a_mocked_call_never_reaches_the_server() {
    let lab = Lab::new();
    let canned = json!({ "content": [{ "type": "text", "text": "canned" }] });
    let mut wrapped = start(
        &lab,
        &json!([{ "name": "canned", "match": { "tools": ["slow"] }, "action": "mock", "result": canned }]),
    );
    wrapped.initialize();
    assert_eq!(wrapped.call(1, "slow", &json!({ "ms": 60_000 }))["result"], canned);
    assert_eq!(wrapped.leave(), 0);
    assert!(!received(&lab).contains("slow"));
    let tape = lab.only_tape();
    let made = tape.messages(DOWN).last().unwrap();
    assert_eq!(
        (&made.json["interception"], &made.json["method"]),
        (&json!(["mocked"]), &json!("tools/call"))
    );
}

#[test]
fn rules_apply_to_answers_and_notifications() {
    let lab = Lab::new();
    let mut wrapped = start(
        &lab,
        &json!([
            { "name": "hush", "match": { "methods": ["notifications/initialized"] }, "action": "block" },
            { "name": "secret", "match": { "direction": "server_to_client", "tools": ["echo"],
                "where": [{ "path": "$.content[*].text", "contains": "hidden" }] }, "action": "block" },
            { "name": "shout", "match": { "direction": "server_to_client", "tools": ["echo"] }, "action": "modify",
                "set": { "$.content[0].text": "LOUD" } },
        ]),
    );
    wrapped.initialize();
    assert_eq!(wrapped.call(1, "echo", &json!({ "text": "hidden" }))["error"]["data"]["rule"], "secret");
    assert_eq!(wrapped.call(2, "echo", &json!({ "text": "quiet" }))["result"]["content"][0]["text"], "LOUD");
    assert_eq!(wrapped.leave(), 0);
    assert!(!received(&lab).contains("notifications/initialized"));
    let tape = lab.only_tape();
    let originals: Vec<String> =
        tape.of_kind("original").map(|entry| String::from_utf8_lossy(&entry.payload).into_owned()).collect();
    assert_eq!(originals.len(), 2, "{originals:?}");
    assert!(originals[0].contains("hidden") && originals[1].contains("quiet"), "{originals:?}");
    let hushed = tape.entries.iter().find(|e| e.json["method"] == "notifications/initialized").unwrap();
    assert_eq!(hushed.json["interception"], json!(["blocked"]));
}

/// A rule that delays calls of `echo`.
fn slow(direction: &str, delay: &str) -> Value {
    json!([{ "name": "slow", "match": { "direction": direction, "tools": ["echo"] }, "action": "delay", "delay": delay }])
}

fn until_delayed(lab: &Lab) {
    wait_for("the call to be on tape", || {
        let shown = lab.run(&["tape", "show", "latest"]);
        String::from_utf8_lossy(&shown.stdout).contains("delayed by slow").then_some(())
    });
}

#[test]
fn a_delayed_message_keeps_its_place() {
    let lab = Lab::new();
    let mut wrapped = start(&lab, &slow("client_to_server", "50ms"));
    wrapped.initialize();
    let lines = [call(1, "echo", r#"{"text":"first"}"#), call(2, "large", r#"{"bytes":9}"#)];
    wrapped.send(format!("{}\n{}\n", lines[0], lines[1]).as_bytes());
    let reply = [wrapped.message(), wrapped.message()];
    assert!(reply.iter().all(|answer| answer["result"].is_object()), "{reply:?}");
    assert_eq!(wrapped.leave(), 0);
    assert!(received(&lab).ends_with(&format!("{}\n{}\n", lines[0], lines[1])), "{}", received(&lab));
    let tape = lab.only_tape();
    let waited = tape.messages(UP).find(|entry| entry.json["name"] == "echo").unwrap();
    assert_eq!(waited.json["interception"], json!(["delayed"]));
    // It is on tape when it arrives, and reaches the server after the delay.
    let answered = tape.messages(DOWN).find(|entry| entry.json["name"] == "echo").unwrap();
    assert!(answered.json["response_time_ns"].as_u64() >= Some(50_000_000), "{}", answered.json);
}

#[test]
fn a_delay_ends_when_the_host_leaves() {
    for direction in ["client_to_server", "server_to_client"] {
        let lab = Lab::new();
        let mut wrapped = start(&lab, &slow(direction, "60s"));
        wrapped.initialize();
        wrapped.send_line(&call(1, "echo", r#"{"text":"never"}"#));
        until_delayed(&lab);
        wrapped.close_stdout();
        assert_eq!(wrapped.leave(), 0, "{direction}");
        lab.verify();
    }
}

#[test]
fn delayed_messages_are_delivered_after_the_server_exits() {
    let lab = Lab::new();
    let config = lab.file("rules.yaml");
    // Longer than the relay waits for the output of a server that has ended.
    let rules = json!([{ "name": "slow", "match": { "direction": "server_to_client" }, "action": "delay", "delay": "3s" }]);
    std::fs::write(&config, json!({ "recorder": { "rules": rules } }).to_string()).unwrap();
    let script = r#"read x; echo '{"jsonrpc":"2.0","id":1,"result":{}}'"#;
    let mut wrapped = lab.wrap(&["sh", "-c", script]).with(&["--config", &config]).start();
    assert_eq!(wrapped.ask(1, "last", &json!({}))["result"], json!({}));
    assert_eq!(wrapped.leave(), 0);
}

#[test]
fn a_delayed_message_is_only_on_tape_after_a_kill() {
    let lab = Lab::new();
    let mut wrapped = start(&lab, &slow("client_to_server", "60s"));
    wrapped.initialize();
    wrapped.send_line(&call(1, "echo", r#"{"text":"never"}"#));
    until_delayed(&lab);
    kill(wrapped.worker(), Signal::KILL);
    wrapped.wait();
    assert!(!received(&lab).contains("never"));
    let tape = lab.only_tape();
    assert!(tape.messages(UP).last().unwrap().payload.windows(5).any(|bytes| bytes == b"never"));
}

#[test]
fn rules_apply_to_messages_that_cannot_be_recorded() {
    let large = "x".repeat(20_000);
    for (mode, passes) in [("stop", false), ("forward", true)] {
        let lab = Lab::new();
        let config = lab.file("rules.yaml");
        let rules = json!([{ "name": "no", "match": { "direction": "client_to_server", "methods": ["bad"] }, "action": "block" }]);
        std::fs::write(&config, json!({ "recorder": { "rules": rules } }).to_string()).unwrap();
        let wrap = lab.wrap(&["cat"]).with(&["--config", &config, "--on-record-failure", mode]);
        // In blocks of 512 bytes.
        let mut wrapped = wrap.after("ulimit -f 16").start();
        let line = |method: &str| format!(r#"{{"id":1,"method":"{method}","params":{{"x":"{large}"}}}}"#);
        wrapped.send_line(&line("bad"));
        let reply = wrapped.line().unwrap();
        assert!(reply.contains(if passes { r#""rule":"no""# } else { "--on-record-failure" }), "{reply}");
        wrapped.send_line(&line("good"));
        let reply = wrapped.line().unwrap();
        assert_eq!(reply == line("good"), passes, "{mode}: {reply}");
        assert_eq!(wrapped.leave(), 0);
    }
}

#[test]
fn each_message_of_a_batch_is_judged() {
    let lab = Lab::new();
    let config = lab.file("rules.yaml");
    let rules = json!([{ "name": "no", "match": { "direction": "client_to_server", "methods": ["bad"] }, "action": "block" }]);
    std::fs::write(&config, json!({ "recorder": { "rules": rules } }).to_string()).unwrap();
    let mut wrapped = lab.wrap(&["cat"]).with(&["--config", &config]).start();
    wrapped.send_line(r#"[{"id":1,"method":"good","params":{"n":1e400}}, {"id":2,"method":"bad"}]"#);
    let mut reply = [wrapped.line().unwrap(), wrapped.line().unwrap()];
    reply.sort();
    assert_eq!(reply[0], r#"[{"id":1,"method":"good","params":{"n":1e400}}]"#);
    let answers: Value = serde_json::from_str(&reply[1]).unwrap();
    assert_eq!((&answers[0]["id"], answers.as_array().map(Vec::len)), (&json!(2), Some(1)));
    assert_eq!(wrapped.leave(), 0);
    let kinds: Vec<String> =
        lab.only_tape().entries.iter().map(|entry| text(&entry.json["kind"]).to_owned()).collect();
    assert_eq!(kinds, ["original", "message", "message", "message", "end"]);
}

#[test]
fn secrets_in_rules_and_in_changed_messages_reach_no_file() {
    const CANARY: &str = "c4n4ry-pw-0123456789";
    let lab = Lab::new();
    let password = format!("DB_PASSWORD={CANARY}");
    let mut wrapped = start(
        &lab,
        &json!([
            { "name": "no", "match": { "tools": ["fail"] }, "action": "block", "message": format!("ask with token={CANARY}") },
            { "name": "canned", "match": { "tools": ["slow"] }, "action": "mock", "result": { "password": CANARY } },
            { "name": "set", "match": { "direction": "client_to_server", "tools": ["echo"] }, "action": "modify",
                "set": { "$.arguments.api_key": CANARY }, "replace": [{ "path": "$.arguments.text", "pattern": "^x", "with": password }] },
        ]),
    );
    wrapped.initialize();
    assert!(wrapped.call(1, "fail", &json!({ "password": CANARY })).to_string().contains(CANARY));
    assert_eq!(wrapped.call(2, "slow", &json!({ "secret": CANARY }))["result"]["password"], CANARY);
    let echoed = wrapped.call(3, "echo", &json!({ "text": format!("x token={CANARY}") }));
    assert!(echoed.to_string().contains(&password), "the forwarded message is not redacted: {echoed}");
    let clean = |what: &str, bytes: &[u8]| {
        let found = bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
        assert!(!found, "{what}: {}", String::from_utf8_lossy(bytes));
    };
    let all_clean = || {
        let mut files = 0;
        for entry in std::fs::read_dir(lab.data().join("tapes")).unwrap() {
            let path = entry.unwrap().path();
            clean(&path.display().to_string(), &std::fs::read(&path).unwrap());
            files += 1;
        }
        assert!(files > 0);
    };
    all_clean();
    assert_eq!(wrapped.leave(), 0);
    all_clean();
    let id = lab.only_tape().id();
    clean("an export", &lab.run_ok(&["tape", "export", &id, "--format", "jsonl"]));
    assert_eq!(lab.only_tape().of_kind("original").count(), 1);
    let config = lab.file("rules.yaml");
    clean("the configuration as shown", &lab.run(&["config", "show", "--config", &config]).stdout);
}

#[test]
fn an_invalid_rule_is_reported_at_start() {
    let lab = Lab::new();
    let config = lab.file("c.yaml");
    for (rule, problem) in [
        (
            "{ name: a, action: block, match: { where: [{ path: '$.a[', exists: true }] } }",
            "rules[0].match.where[0].path is not a JSONPath",
        ),
        (
            "{ name: a, action: block, match: { where: [{ path: $.a, matches: '(' }] } }",
            "rules[0].match.where[0].matches is not a regular expression",
        ),
        (
            "{ name: a, action: block, match: { methods: ['tools/[a-z]'] } }",
            "rules[0].match.methods[0] is not a pattern",
        ),
        (
            "{ name: a, action: block, mesage: x }",
            "rules[0].mesage is not a known key: did you mean `message`?",
        ),
    ] {
        std::fs::write(&config, format!("recorder:\n  rules:\n    - {rule}\n")).unwrap();
        for command in [&["wrap", "--", "cat"][..], &["serve", "--", "cat"]] {
            let answer = lab.run(&[&["--config", &config], command].concat());
            assert_ne!(answer.code, 0, "{command:?}");
            let expected = format!("c.yaml:3: recorder.{problem}");
            assert!(answer.stderr.contains(&expected), "{expected}\n{}", answer.stderr);
        }
    }
}

#[test]
fn wrap_does_not_start_without_its_rules_if_a_file_is_invalid() {
    let lab = Lab::new();
    let config = lab.file("c.yaml");
    let rule = "{ name: a, action: block }";
    std::fs::write(&config, format!("colour: blue\nrecorder: {{ rules: [{rule}] }}\n")).unwrap();
    let output = lab.run(&["--config", &config, "wrap", "--", "cat"]);
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("c.yaml:1: colour is not a known key"), "{}", output.stderr);
}

#[test]
fn an_untrusted_file_neither_adds_nor_removes_rules() {
    let lab = Lab::new();
    let project = tempfile::tempdir().unwrap();
    let home = lab.file("home");
    let own = std::path::Path::new(&home).join(".config/scrubjay");
    std::fs::create_dir_all(&own).unwrap();
    let rule = |name: &str, method: &str| {
        json!({ "recorder": { "rules": [{ "name": name, "action": "block",
            "match": { "direction": "client_to_server", "methods": [method] } }] } })
    };
    std::fs::write(own.join("config.yaml"), rule("mine", "bad").to_string()).unwrap();
    for theirs in [rule("theirs", "good").to_string(), "colour: blue\n".to_owned()] {
        std::fs::write(project.path().join("scrubjay.yaml"), &theirs).unwrap();
        let script = format!("cd '{}'; export HOME='{home}' XDG_CONFIG_HOME=", project.path().display());
        let mut wrapped = lab.wrap(&["cat"]).after(&script).start();
        wrapped.send_line(r#"{"id":1,"method":"good"}"#);
        assert_eq!(wrapped.line().as_deref(), Some(r#"{"id":1,"method":"good"}"#), "{theirs}");
        wrapped.send_line(r#"{"id":2,"method":"bad"}"#);
        assert!(wrapped.line().unwrap().contains(r#""rule":"mine""#), "{theirs}");
        assert_eq!(wrapped.leave(), 0);
    }
}
