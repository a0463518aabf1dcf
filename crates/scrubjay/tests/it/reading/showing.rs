//! `tape show`: requests, errors, one entry in full, and tapes outside the data directory.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::harness::{Lab, SCRUBJAY};

/// A call that is answered, one that fails, and one without an answer; `cat` sends all of it back.
const LINES: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","arguments":{"zebra":1.0e2,"apple":"b"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"burn","arguments":{"what":"disk"}}}"#,
    "\n",
);

/// Records a server that answers with these lines, regardless of the requests.
fn recorded(lab: &Lab, asked: &str, answers: &[&str]) -> String {
    let script = answers.iter().fold("cat >/dev/null".to_owned(), |script, answer| {
        format!("IFS= read -r line; printf '%s\\n' '{answer}'; {script}")
    });
    let mut wrapped = lab.wrap(&["sh", "-c", &script]).start();
    wrapped.send(asked.as_bytes());
    for _ in answers {
        wrapped.line();
    }
    assert_eq!(wrapped.leave(), 0);
    lab.tape_ids().into_iter().next().expect("it was recorded")
}

fn shown(lab: &Lab, columns: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(SCRUBJAY);
    command.arg("--data").arg(lab.data()).args(["tape", "show"]).args(arguments).env("COLUMNS", columns);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_row_shows_arguments_and_failures() {
    let lab = Lab::new();
    let failed = r#"{"jsonrpc":"2.0","id":2,"result":{"isError":true,"content":[{"type":"text","text":"the disk is on fire"}]}}"#;
    recorded(&lab, LINES, &[failed]);
    let output = shown(&lab, "160", &[]);
    let row =
        |words: &str| output.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{output}"));
    assert!(row("tools/call burn").ends_with(r#"{"what":"disk"}"#), "{output}");
    assert!(row("failed").ends_with("failed: the disk is on fire"), "{output}");
    assert!(row("tools/call read").ends_with(r#"no answer {"zebra":1.0e2,"apple":"b"}"#), "{output}");
    assert_eq!(output.matches("no answer").count(), 1, "{output}");
    // The line is as long as the terminal is wide, and no longer.
    let narrow = shown(&lab, "100", &[]);
    assert!(narrow.lines().any(|line| line.chars().count() == 100 && line.ends_with('…')), "{narrow}");
    assert!(narrow.lines().take(4).all(|line| line.chars().count() <= 100), "{narrow}");
}

#[test]
fn a_call_under_way_has_no_answer_yet() {
    let lab = Lab::new();
    let mut wrapped = lab.wrap(&["sh", "-c", "IFS= read -r line; echo received >&2; cat >/dev/null"]).start();
    wrapped.send(LINES.as_bytes());
    crate::harness::wait_for("standard error on tape", || {
        String::from_utf8_lossy(&lab.run(&["tape", "show"]).stdout).contains("received").then_some(())
    });
    let output = shown(&lab, "160", &[]);
    assert!(output.contains("no answer yet") && output.contains("being recorded"), "{output}");
    let one = shown(&lab, "160", &["--entry", "0"]);
    assert!(one.contains("no answer yet"), "{one}");
    assert_eq!(wrapped.leave(), 0);
    assert!(!shown(&lab, "160", &[]).contains("yet"));
}

#[test]
fn one_entry_is_shown_in_full() {
    let lab = Lab::new();
    let secret = "sk-ant-api03-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let asked = LINES.replace("disk", secret);
    recorded(&lab, &asked, &[r#"{"jsonrpc":"2.0","id":2,"result":{"z":{},"a":[ 1.50 ]}}"#]);
    let entries = lab.export("latest").entries;
    let entry = |method: &str| {
        let found = entries
            .iter()
            .find(|entry| entry.json["message_type"] == "request" && entry.json["name"] == method);
        found.unwrap().json["entry"].to_string()
    };
    let (read, burn) = (entry("read"), entry("burn"));
    let output = shown(&lab, "160", &["--utc", "--entry", &burn]);
    let answer = entries.iter().find(|entry| entry.json["message_type"] == "response").unwrap();
    let fact = |output: &str, name: &str| {
        let line =
            output.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {output}"));
        line[name.len()..].trim().to_owned()
    };
    assert!(fact(&output, "time").contains("+00:00, "), "{output}");
    assert!(fact(&output, "pair").starts_with(&format!("answered by entry {} after", answer.json["entry"])));
    assert!(fact(&output, "kind").starts_with("request tools/call burn, id 2"), "{output}");
    assert!(fact(&output, "redacted").starts_with("[redacted:"), "{output}");
    assert!(fact(&output, "size").ends_with("after redaction"), "{output}");
    assert!(!output.contains(secret), "{output}");
    let output = shown(&lab, "160", &["--entry", &answer.json["entry"].to_string()]);
    assert!(fact(&output, "pair").starts_with(&format!("answers entry {burn} after")), "{output}");
    // In the original spelling: the order of keys and the digits of numbers stay.
    assert!(
        output.ends_with("\"result\": {\n    \"z\": {},\n    \"a\": [\n      1.50\n    ]\n  }\n}\n"),
        "{output}"
    );
    let output = shown(&lab, "160", &["--entry", &read]);
    assert!(output.find("zebra") < output.find("apple") && output.contains("1.0e2"), "{output}");
    assert!(
        fact(&output, "pair").contains("no answer on this tape") && !output.contains("redacted"),
        "{output}"
    );
    // The table says which sizes are after redaction.
    let table = shown(&lab, "160", &[]);
    assert!(table.contains(" B*") && table.contains("* the size after redaction"), "{table}");
    let raw = lab.run_ok(&["tape", "show", "--entry", &read, "--raw"]);
    assert_eq!(raw, LINES.lines().next().unwrap().as_bytes());
    assert_eq!(lab.run(&["tape", "show", "--raw"]).code, 2);
    // The same for programs.
    let json = lab.json(&["tape", "show", "--json"]);
    let of = |entry: &str| json[entry.parse::<usize>().unwrap()].clone();
    assert_eq!(of(&answer.json["entry"].to_string())["answers"], json!(burn.parse::<u64>().unwrap()));
    assert_eq!(of(&burn)["redactions"].as_array().map(Vec::len), Some(1), "{json}");
}

#[test]
fn the_effect_of_rules_is_shown_with_the_entry() {
    let lab = Lab::new();
    let config = lab.file("rules.yaml");
    let rules = "recorder: { rules: [{ name: no-burning, match: { tools: [burn] }, action: block }] }";
    std::fs::write(&config, rules).unwrap();
    let mut wrapped = lab.wrap_sample().with(&["--config", &config]).start();
    wrapped.ask(1, "tools/call", &json!({ "name": "burn", "arguments": {} }));
    assert_eq!(wrapped.leave(), 0);
    let output = shown(&lab, "160", &["--entry", "0"]);
    assert!(output.lines().any(|line| line == "rules      blocked by no-burning"), "{output}");
}

#[test]
fn a_tape_is_shown_from_a_file_and_from_standard_input() {
    let lab = Lab::new();
    recorded(&lab, LINES, &[r#"{"jsonrpc":"2.0","id":1,"result":{}}"#]);
    let expected = shown(&lab, "160", &[]);
    let elsewhere = Lab::new();
    for format in ["jsonl", "native"] {
        let exported = lab.run_ok(&["tape", "export", "--format", format]);
        for name in ["exported.tape", "exported"] {
            std::fs::write(elsewhere.file(name), &exported).unwrap();
            assert_eq!(shown(&elsewhere, "160", &[&elsewhere.file(name)]), expected, "{format} {name}");
        }
        let file = std::fs::File::open(elsewhere.file("exported")).unwrap();
        let mut command = Command::new(SCRUBJAY);
        command.arg("--data").arg(elsewhere.data()).args(["tape", "show", "-"]).env("COLUMNS", "160");
        let output = command.stdin(Stdio::from(file)).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{format} from standard input");
    }
    assert!(!elsewhere.data().exists(), "showing records nothing");
    std::fs::write(elsewhere.file("no.tape"), "rubbish\n").unwrap();
    let output = elsewhere.run_failing(&["tape", "show", &elsewhere.file("no.tape")]);
    assert!(output.contains("neither a tape nor a JSON Lines export"), "{output}");
    let output = elsewhere.run_failing(&["tape", "show", "./nowhere.tape"]);
    assert!(output.contains("cannot read ./nowhere.tape"), "{output}");
}
