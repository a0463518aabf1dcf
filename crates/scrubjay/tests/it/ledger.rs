//! A ledger that cannot be used: commands name it at once, with the cause, and do not change it. Also the decryption of
//! redacted values.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// Prepares `scrubjay` in a home of its own. `timeout` ends it long before a wait for a lock would end.
fn scrubjay(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "20"]).arg(env!("CARGO_BIN_EXE_scrubjay"));
    command.arg("--data").arg(home.join("data")).args(args);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home);
    command.current_dir(home).stdin(Stdio::null());
    command
}

fn failed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Greets `serve` and calls tools; returns the greeting, the answers and what it logged.
fn converse(mut command: Command, calls: &[(&str, Value)]) -> (Value, Vec<Value>, String) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = |id: usize, method: &str, params: Value| -> Value {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(input, "{message}").unwrap();
        serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap()
    };
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}});
    let greeting = ask(0, "initialize", hello);
    let call = |(n, (tool, arguments)): (usize, &(&str, Value))| {
        ask(n + 1, "tools/call", json!({"name": tool, "arguments": arguments}))
    };
    let answers = calls.iter().enumerate().map(call).collect();
    drop(input);
    let output = child.wait_with_output().unwrap();
    (greeting, answers, String::from_utf8(output.stderr).unwrap())
}

fn plan() -> (&'static str, Value) {
    ("record_plan", json!({ "steps": ["a"] }))
}

fn log() -> (&'static str, Value) {
    ("log_progress", json!({ "projectId": "p", "title": "t", "content": "c" }))
}

#[test]
fn a_foreign_file_is_reported_to_the_host_and_not_changed() {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("mine");
    std::fs::create_dir(&place).unwrap();
    let notes = place.join("notes.txt");
    std::fs::write(&notes, "my notes").unwrap();
    std::fs::set_permissions(&notes, std::fs::Permissions::from_mode(0o644)).unwrap();
    let before = notes.metadata().unwrap();
    let words = format!("cannot use {} as the ledger: it is not a SQLite database", notes.display());
    let mut serve = scrubjay(home.path(), &["serve", "--toolsets", "recorder,progress,records,sample"]);
    serve.env("AGENT_PROGRESS_DB_PATH", &notes);
    let echo = ("echo", json!({ "text": "still here" }));
    let (greeting, answers, log_output) = converse(serve, &[plan(), log(), echo]);
    let instructions = greeting["result"]["instructions"].as_str().unwrap();
    assert!(instructions.starts_with(&format!("Scrubjay {words}")), "{instructions}");
    let error = &answers[0]["result"]["structuredContent"]["error"];
    assert_eq!((&error["code"], &error["message"]), (&json!("STORAGE"), &json!(words)));
    assert_eq!(
        (&answers[1]["error"]["code"], &answers[1]["error"]["message"]),
        (&json!(-32603), &json!(words))
    );
    assert_eq!(answers[2]["result"]["content"][0]["text"], "still here", "backends work without it");
    assert!(log_output.contains(&words) && log_output.contains("\"ERROR\""), "{log_output}");
    for args in [&["progress", "search"][..], &["session", "ls"], &["record", "ls"]] {
        let output = failed(scrubjay(home.path(), args).env("SCRUBJAY_STORAGE", &notes));
        assert!(output.contains(&words) && output.contains("Name another path in `storage`"), "{output}");
    }
    let after = notes.metadata().unwrap();
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "my notes");
    assert_eq!((after.mode(), after.modified().unwrap()), (before.mode(), before.modified().unwrap()));
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1, "no other file must be created there");
}

#[test]
fn an_unreachable_database_is_named_without_its_password() {
    let home = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("postgres://ann:c4n4ry@127.0.0.1:{port}/birds");
    let place = format!("PostgreSQL at 127.0.0.1:{port}, database birds: Connection refused");
    let mut serve = scrubjay(home.path(), &["serve", "--toolsets", "recorder,progress"]);
    serve.env("SCRUBJAY_STORAGE", &url);
    let (_, answers, log_output) = converse(serve, &[plan(), log()]);
    let message = answers[0]["result"]["structuredContent"]["error"]["message"].as_str().unwrap();
    assert!(message.contains(&place), "{message}");
    assert!(answers[1]["error"]["message"].as_str().unwrap().contains(&place), "{answers:?}");
    let typed = failed(scrubjay(home.path(), &["session", "ls"]).env("SCRUBJAY_STORAGE", &url));
    assert!(typed.contains(&place) && typed.contains("Check `storage`"), "{typed}");
    assert!(
        log_output.contains(&place) && !format!("{log_output}{typed}{answers:?}").contains("c4n4ry"),
        "{log_output}"
    );
}

#[test]
fn an_unsupported_storage_location_is_refused_with_the_right_one() {
    let home = tempfile::tempdir().unwrap();
    for (given, expected) in [
        ("~/x.db", "must not begin with ~, which only a shell knows: write the whole path"),
        ("sqlite://~/x.db", "write the whole path"),
        ("file:///tmp/x.db", "must be a path, not a file: URL: write /tmp/x.db"),
        ("file:x.db", "write x.db"),
        ("mysql://h/x", "must be a path, or a URL that begins with postgres://"),
    ] {
        for name in ["SCRUBJAY_STORAGE", "AGENT_PROGRESS_DB_PATH"] {
            let output = failed(scrubjay(home.path(), &["session", "ls"]).env(name, given));
            assert!(output.contains(expected), "{given}: {output}");
        }
    }
    let config = home.path().join("c.yaml");
    std::fs::write(&config, "storage: ~/x.db").unwrap();
    let output = failed(&mut scrubjay(home.path(), &["--config", config.to_str().unwrap(), "session", "ls"]));
    assert!(output.contains("must not begin with ~: write ${HOME}/x.db"), "{output}");
    assert!(!home.path().join("~").exists());
}

#[test]
fn the_config_option_accepts_the_file_of_the_progress_tracker() {
    let home = tempfile::tempdir().unwrap();
    for name in ["agent-progress.config.json", "other.json"] {
        let config = home.path().join(name);
        std::fs::write(
            &config,
            r#"{"dbPath": "./named.db", "openai": {"model": "tiny"}, "logging": {"level": "warn"}}"#,
        )
        .unwrap();
        let config = config.to_str().unwrap();
        let shown =
            scrubjay(home.path(), &["--config", config, "--json", "config", "show"]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.contains("tiny") && shown.contains("named.db") && shown.contains("warn"), "{shown}");
        let logged =
            scrubjay(home.path(), &["--config", config, "progress", "log", "--project", "p", "t", "c"]);
        assert!({ logged }.output().unwrap().status.success());
    }
    assert!(home.path().join("named.db").exists());
}

#[test]
fn progress_log_reports_which_fields_were_redacted() {
    let home = tempfile::tempdir().unwrap();
    let secret = "use ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let log = |args: &[&str]| scrubjay(home.path(), args).output().unwrap();
    let logged = log(&["progress", "log", "--project", "p", "title", secret]);
    let text = String::from_utf8(logged.stdout).unwrap() + &String::from_utf8(logged.stderr).unwrap();
    assert!(text.contains("Secrets were taken out before it was stored: content."), "{text}");
    let logged = log(&["--json", "progress", "log", "--project", "p", "title", secret]);
    let data: Value = serde_json::from_slice(&logged.stdout).unwrap();
    assert_eq!(data["redacted"], json!(["content"]));
}

/// Runs `scrubjay redact` on a text.
fn filtered(home: &Path, args: &[&str], input: &str) -> Output {
    let mut command = scrubjay(home, args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn encrypted_values_are_decrypted_with_the_key() {
    let home = tempfile::tempdir().unwrap();
    let key = home.path().join("key");
    std::fs::write(&key, "correct horse battery staple\n").unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let config = home.path().join("c.yaml");
    let settings = format!(
        "recorder: {{ privacy: {{ keys: {{ main: {{ file: {} }}, other: {{ env: OTHER_KEY }} }}, encryption: {{ enabled: true, key_id: main }} }} }}",
        key.display()
    );
    std::fs::write(&config, settings).unwrap();
    let config = config.to_str().unwrap();
    let text = "{\"password\":\"hun\\\"ter2\"}\r\nDB_PASSWORD=s3cret-pw here\n\nplain, no newline";
    let hidden = filtered(home.path(), &["--config", config, "redact"], text);
    let hidden = String::from_utf8(hidden.stdout).unwrap();
    assert_eq!(hidden.matches("enc:v1:main:").count(), 2, "{hidden}");
    let back = filtered(home.path(), &["--config", config, "redact", "--decrypt"], &hidden);
    assert_eq!((String::from_utf8(back.stdout).unwrap().as_str(), back.status.code()), (text, Some(0)));
    // From a file, with a key that a variable holds.
    let file = home.path().join("hidden.txt");
    std::fs::write(&file, &hidden).unwrap();
    let mut named =
        scrubjay(home.path(), &["redact", "--decrypt", "--key", "MY_KEY", file.to_str().unwrap()]);
    let back = named.env("MY_KEY", "correct horse battery staple").output().unwrap();
    assert_eq!(String::from_utf8(back.stdout).unwrap(), text);
    // Values that cannot be decrypted are reported line by line, and stay.
    let mut other =
        scrubjay(home.path(), &["redact", "--decrypt", "--key", "MY_KEY", file.to_str().unwrap()]);
    let other = other.env("MY_KEY", "another key of some length").output().unwrap();
    let output = String::from_utf8(other.stderr).unwrap();
    assert_eq!((String::from_utf8(other.stdout).unwrap(), other.status.code()), (hidden.clone(), Some(1)));
    assert!(output.contains("line 2: a value of the key main was not encrypted with MY_KEY"), "{output}");
    assert!(output.contains("2 encrypted values could not be decrypted and were left unchanged"), "{output}");
    let none = filtered(home.path(), &["redact", "--decrypt"], &hidden);
    let output = String::from_utf8(none.stderr).unwrap();
    assert!(
        output.contains("line 1: the key main names no key: give recorder.privacy.keys.main"),
        "{output}"
    );
    let missing = filtered(home.path(), &["redact", "--decrypt", "--key", "NOWHERE"], &hidden);
    assert_eq!((missing.stdout.len(), missing.status.code()), (0, Some(1)));
    let cut = filtered(home.path(), &["--config", config, "redact", "--decrypt"], &hidden[..45]);
    assert!(String::from_utf8(cut.stderr).unwrap().contains("is cut or damaged"));
}
