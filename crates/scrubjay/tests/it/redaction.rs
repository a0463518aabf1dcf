//! Canary secrets through every path of `wrap`: they are forwarded unchanged, and are in no file, log or export.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::Lab;

/// The secrets, which must not be found anywhere.
const CANARIES: [&str; 5] = [
    "c4n4ry-pw",
    "aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW1xY3",
    "c4n4ryKeyBody",
    "YzRuNHJ5LXB3",
    "\\u0063\\u0034n4ry",
];

/// Lines with one secret each, in the forms that messages have.
fn lines() -> Vec<String> {
    let token = format!("ghp_{}", CANARIES[1]);
    let call = |arguments: Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "x", "arguments": arguments } })
            .to_string()
    };
    vec![
        call(json!({ "password": "c4n4ry-pw" })),
        call(json!({ "text": token })),
        call(json!({ "headers": { "Authorization": "Bearer c4n4ry-pw-0123456789" } })),
        call(json!({ "env": "PATH=/bin\nDB_PASSWORD=c4n4ry-pw\n" })),
        call(json!({ "body": json!({ "apiKey": "c4n4ry-pw" }).to_string() })),
        call(json!({ "url": "https://user:c4n4ry-pw@example.com/" })),
        call(json!({ "blob": "eyJwYXNzd29yZCI6ImM0bjRyeS1wdyIsICJ4IjogIjEifQ==", "secret": "YzRuNHJ5LXB3" })),
        r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"\u0070assword":"\u0063\u0034n4ry-pw"}}"#.to_owned(),
        json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -1, "message": format!("denied for {token}") } }).to_string(),
        format!("not JSON at all: token={token}"),
        "-----BEGIN PRIVATE KEY-----\\nc4n4ryKeyBody\\n-----END PRIVATE KEY-----".to_owned(),
    ]
}

fn assert_clean(what: &str, bytes: &[u8]) {
    for canary in CANARIES {
        let found = bytes.windows(canary.len()).any(|window| window == canary.as_bytes());
        assert!(!found, "{canary} is in {what}: {}", String::from_utf8_lossy(bytes));
    }
}

fn assert_clean_below(directory: &Path) -> usize {
    let mut files = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files += assert_clean_below(&path);
        } else {
            assert_clean(&path.display().to_string(), &std::fs::read(&path).unwrap());
            files += 1;
        }
    }
    files
}

fn assert_exports_clean(lab: &Lab) {
    for id in lab.tape_ids() {
        assert_clean("an export", &lab.run_ok(&["tape", "export", &id, "--format", "jsonl"]));
        assert_clean("a listing", &lab.run_ok(&["tape", "show", &id, "--json"]));
    }
}

#[test]
fn messages_are_forwarded_unchanged_and_recorded_without_secrets() {
    let lab = Lab::new();
    let mut wrapped = lab.wrap(&["cat"]).with(&["--name", "server --token c4n4ry-pw"]).start();
    for line in lines() {
        wrapped.send_line(&line);
        assert_eq!(wrapped.line().as_deref(), Some(line.as_str()), "the forwarded line is unchanged");
    }
    // The live tape is not compressed: this is what a crash would leave.
    assert!(assert_clean_below(lab.data()) > 0);
    assert_eq!(wrapped.leave(), 0);
    assert_clean_below(lab.data());
    assert_exports_clean(&lab);
    let messages = lab.only_tape().of_kind("message").count();
    assert_eq!(messages, 2 * lines().len(), "each message is on tape in both directions");
}

#[test]
fn a_secret_that_arrives_in_two_pieces_is_redacted() {
    let lab = Lab::new();
    let line = format!("{}\n", lines()[1]);
    let mut wrapped = lab.wrap(&["cat"]).start();
    for cut in 0..line.len() {
        wrapped.send(&line.as_bytes()[..cut]);
        wrapped.send(&line.as_bytes()[cut..]);
        assert_eq!(wrapped.line().as_deref(), Some(line.trim_end()), "cut at {cut}");
    }
    assert_clean_below(lab.data());
    assert_eq!(wrapped.leave(), 0);
    assert_exports_clean(&lab);
}

#[test]
fn standard_error_is_recorded_without_secrets() {
    let lab = Lab::new();
    let script = "printf 'half DB_PASS' >&2; read x; printf 'WORD=c4n4ry-pw\\n-----BEGIN RSA PRIVATE KEY-----\\nc4n4ryKeyBody\\n' >&2; \
                  printf '%s\\n' 'c4n4ryKeyBody=' '-----END RSA PRIVATE KEY-----' 'after' >&2; env | grep APP_ >&2; echo bye";
    let mut wrapped =
        lab.wrap(&["sh", "-c", script]).after("export APP_API_TOKEN=c4n4ry-pw-0123456789").start();
    wrapped.send_line("go on");
    assert_eq!(wrapped.line().as_deref(), Some("bye"));
    assert_eq!(wrapped.exit_code(), 0);
    assert!(wrapped.stderr_text().contains("DB_PASSWORD=c4n4ry-pw"), "the host reads it as it is");
    assert_clean_below(lab.data());
    assert_exports_clean(&lab);
    let recorded = lab.only_tape();
    let lines: Vec<&[u8]> = recorded.of_kind("stderr").map(|entry| entry.payload.as_slice()).collect();
    assert!(lines.contains(&&b"after"[..]), "the lines behind the key are there");
}

#[test]
fn imports_are_redacted() {
    let lab = Lab::new();
    let config = lab.file("off.yaml");
    std::fs::write(&config, "recorder: { privacy: { redact_sensitive: false } }").unwrap();
    let other = Lab::new();
    let mut wrapped = other.wrap(&["cat"]).with(&["--config", &config]).start();
    for line in lines() {
        wrapped.send_line(&line);
        assert_eq!(wrapped.line().as_deref(), Some(line.as_str()));
    }
    assert_eq!(wrapped.leave(), 0);
    let id = other.tape_ids().into_iter().next().unwrap();
    let raw = other.run_ok(&["tape", "export", &id, "--format", "jsonl"]);
    assert!(String::from_utf8_lossy(&raw).contains("c4n4ry-pw"), "redaction was off");
    for format in ["jsonl", "native"] {
        let file = lab.file(format);
        std::fs::write(&file, other.run_ok(&["tape", "export", &id, "--format", format])).unwrap();
        assert_eq!(lab.run(&["tape", "import", &file]).code, 0);
        assert_clean_below(lab.data());
        assert_exports_clean(&lab);
        assert_eq!(lab.run(&["tape", "verify"]).code, 0);
        lab.run_ok(&["tape", "rm", &id, "--yes"]);
    }
}

#[test]
fn the_redact_command_removes_what_recording_removes() {
    let lab = Lab::new();
    let file = lab.file("lines");
    std::fs::write(&file, format!("{}\nclean line\r\nlast", lines().join("\n"))).unwrap();
    let output = lab.run(&["redact", &file, "--explain"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert_clean("the output", &output.stdout);
    assert_clean("the explanation", output.stderr.as_bytes());
    assert!(output.stdout.ends_with(b"clean line\r\nlast"));
    assert!(
        output.stderr.contains("line 1: password removed 11 bytes at $.params.arguments.password"),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("line 2: github-token removed 40 bytes at $.params.arguments.text"),
        "{}",
        output.stderr
    );
    let output = lab.run(&["redact", &file, "--explain", "--json"]);
    let first: Value = serde_json::from_str(output.stderr.lines().next().unwrap()).unwrap();
    assert_eq!(
        first,
        json!({ "line": 1, "rule": "password", "place": "$.params.arguments.password", "bytes": 11 })
    );
}

#[test]
fn an_invalid_redaction_rule_is_reported_at_start() {
    let lab = Lab::new();
    let config = lab.file("c.yaml");
    std::fs::write(&config, "recorder:\n  privacy:\n    rules:\n      - { name: a, regex: '[' }\n").unwrap();
    for command in [&["wrap", "--", "cat"][..], &["serve", "--", "cat"], &["redact"]] {
        let output = lab.run(&[&["--config", &config], command].concat());
        assert_ne!(output.code, 0, "{command:?}");
        assert!(
            output.stderr.contains("c.yaml:4: recorder.privacy.rules[0].regex is not a regular expression"),
            "{}",
            output.stderr
        );
    }
}
