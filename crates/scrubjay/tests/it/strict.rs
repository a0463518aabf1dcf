//! Rules make a connection strict: what each end gets for lines that parsers read differently, and what the tape says.

use serde_json::{Value, json};

use crate::harness::{Lab, UP, Wrapped, text};

fn start(lab: &Lab, rules: &Value, command: &[&str]) -> Wrapped {
    let config = lab.file("rules.json");
    std::fs::write(&config, json!({ "recorder": { "rules": rules } }).to_string()).unwrap();
    lab.wrap(command).with(&["--name", "odd", "--config", &config]).start()
}

#[test]
fn only_unambiguous_lines_reach_the_server() {
    let lab = Lab::new();
    let log = lab.file("log");
    let rules = json!([{ "name": "no", "match": { "tools": ["delete_*"] }, "action": "block" }]);
    let mut wrapped = start(&lab, &rules, &["sh", "-c", "cat > \"$0\"", &log]);
    let sent: &[&str] = &[
        "{\"method\":\"a\"}\r\n",
        "\n",
        " {\"method\" : \"b\"}\t\n",
        "rubbish\n",
        "{\"method\":\"c\",\"params\":{\"x\":\"\u{2028}\"}}\n",
        "{\"id\":7,\"method\":\"d\",\"params\":{\"x\":[\r{\"id\":8,\"method\":\"e\"}\r]}}\n",
        "{\"id\":9,\"method\":\"f\",\"params\":{\"x\":NaN}}\r\n",
        "{\"method\":\"last\"}",
    ];
    wrapped.send(sent.concat().as_bytes());
    wrapped.close_stdin();
    let refusals: Vec<Value> = String::from_utf8(wrapped.rest())
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).expect("a refusal is JSON"))
        .collect();
    assert_eq!(wrapped.leave(), 0);
    let received = "{\"method\":\"a\"}\n\n {\"method\" : \"b\"}\t\n{\"method\":\"c\",\"params\":{\"x\":\"\\u2028\"}}\n{\"method\":\"last\"}\n";
    assert_eq!(String::from_utf8_lossy(&lab.read("log")), received);
    let refused: Vec<(Value, Value)> =
        refusals.iter().map(|one| (one["id"].clone(), one["error"]["data"]["rule"].clone())).collect();
    let expected = [(json!(null), "strict/json"), (json!(7), "strict/line-end"), (json!(9), "strict/json")];
    assert_eq!(refused, expected.map(|(id, why)| (id, json!(why))), "{refusals:?}");
    let tape = lab.only_tape();
    let noted: Vec<&str> = tape
        .messages(UP)
        .filter(|entry| entry.json["interception"] == json!(["refused"]))
        .map(|entry| text(&entry.json["applied_rules"][0]))
        .collect();
    assert_eq!(noted, ["strict/json", "strict/line-end", "strict/json"]);
    let changed = tape.messages(UP).find(|entry| entry.json["interception"] == json!(["changed"])).unwrap();
    assert_eq!(changed.json["applied_rules"], json!(["strict/line-separator"]));
    assert_eq!(changed.json["original_message"], sent[4].trim_end());
    // The original lines, with their line ends.
    assert_eq!(tape.entries[0].json["terminator"], "crlf");
    let shown = String::from_utf8(lab.run_ok(&["tape", "show", &tape.id()])).unwrap();
    assert!(shown.contains("refused by strict/line-end"), "{shown}");
    lab.verify();
}

#[test]
fn lines_of_the_server_are_checked_too() {
    let lab = Lab::new();
    let rules = json!([{ "name": "no", "match": { "tools": ["delete_*"] }, "action": "block" }]);
    let script =
        r#"echo 'listening on 8080'; read x; printf '{"jsonrpc":"2.0","id":1,"result":{"x":Infinity}}\n'"#;
    let mut wrapped = start(&lab, &rules, &["sh", "-c", script]);
    let answer = wrapped.ask(1, "ping", &json!({}));
    assert_eq!(answer["error"]["data"]["rule"], "strict/json", "the stray line was not forwarded: {answer}");
    assert_eq!(wrapped.leave(), 0);
    let tape = lab.only_tape();
    assert!(tape.entries.iter().any(|entry| entry.payload == b"listening on 8080"));
    let originals: Vec<_> = tape.of_kind("original").map(|entry| entry.payload.clone()).collect();
    assert_eq!(originals, [br#"{"jsonrpc":"2.0","id":1,"result":{"x":Infinity}}"#.to_vec()]);
}

#[test]
fn rules_about_other_connections_change_no_byte_of_this_one() {
    let lab = Lab::new();
    let rules = json!([{ "name": "no", "match": { "backends": ["files"] }, "action": "block" }]);
    let mut wrapped = start(&lab, &rules, &["cat"]);
    let lines: &[&[u8]] = &[
        b"{ \"id\" : 1e0 ,\"method\":\"a\\u0062\",\"params\":{\"n\":1e400,\"n\":18446744073709551616}}\r\n",
        b"\xef\xbb\xbf{\"method\":\"x\"}\n",
        b"rubbish \xff\xfe\n",
        b"[\r{\"id\":1,\"result\":{}} , {\"method\":\"\xe2\x80\xa8\"}]\n",
        b"\n",
        b"{\"id\":",
    ];
    let sent = lines.concat();
    wrapped.send(&sent);
    wrapped.close_stdin();
    assert_eq!(wrapped.rest(), sent);
    assert_eq!(wrapped.leave(), 0);
    assert_eq!(lab.only_tape().wire(UP), sent);
}

#[test]
fn unmatched_messages_pass_byte_for_byte() {
    let lab = Lab::new();
    let rules = json!([{ "name": "no", "match": { "methods": ["nothing/*"] }, "action": "block" }]);
    let mut wrapped = start(&lab, &rules, &["cat"]);
    let lines = [
        r#"{ "id" : -1 ,"method":"a\u0062","params":{"n":1e400,"m":18446744073709551616, "A":1.10,"s":"\/\u0000"}}"#,
        r#"[{"id":1,"method":"m"} , {"method":"m"}]"#,
        "",
        r#"{"jsonrpc":"2.0","method":"x","params":{"é":"鳥🐦\u007f"}}"#,
    ];
    let sent = format!("{}\n", lines.join("\n"));
    wrapped.send(sent.as_bytes());
    wrapped.close_stdin();
    assert_eq!(String::from_utf8_lossy(&wrapped.rest()), sent);
    assert_eq!(wrapped.leave(), 0);
    assert_eq!(String::from_utf8_lossy(&lab.only_tape().wire(UP)), sent);
}
