//! Messages that readers may read in different ways do not pass, under any rule; all others do.

use super::*;

fn no_deletes() -> Judge {
    judge(vec![rule("no-deletes", tool("delete_*"), block())])
}

/// Returns the reason for a refusal.
#[track_caller]
fn reason(judgement: &Judgement) -> String {
    let judged = judgement.marks.as_marks();
    assert_eq!(judged.effects, RuleEffects::REFUSED, "{judgement:?}");
    judged.rule_names().join(" ")
}

#[track_caller]
fn refused(line: impl AsRef<[u8]>, expected: &str) -> Judgement {
    let judgement = no_deletes().line(C, line.as_ref());
    assert_eq!(reason(&judgement), expected, "{}", line.as_ref().escape_ascii());
    assert_eq!(judgement.forwarded, Forwarded::Nothing);
    judgement
}

const HIDDEN: &str =
    r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"delete_all","arguments":{}}}"#;

#[test]
fn raw_line_ends_are_refused() {
    for end in ["\r", "\u{b}", "\u{c}", "\u{1c}", "\u{1d}", "\u{1e}", "\u{85}", "\u{2028}", "\u{2029}", "\n"]
    {
        let line = call(1, "echo", &json!({ "x": 0 })).replace(":0", &format!(":[{end}{HIDDEN}{end}]"));
        let judgement = refused(&line, "strict/line-end");
        assert_eq!(back(&judgement)["id"], 1, "the id is beyond doubt: {judgement:?}");
        assert_eq!(back(&judgement)["error"]["data"]["rule"], "strict/line-end");
        refused(format!("{end}{}", call(1, "echo", &json!({}))), "strict/line-end");
        refused(format!("{}{end}{HIDDEN}", call(1, "echo", &json!({}))), "strict/line-end");
    }
}

#[test]
fn line_separators_in_strings_are_forwarded_as_escapes() {
    let line = call(1, "echo", &json!({ "text": "a\u{2028}{\"b\u{2029}c\u{85}d" }));
    let judgement = no_deletes().line(C, line.as_bytes());
    let onward = text(&judgement);
    assert!(onward.contains(r#"a\u2028{\"b\u2029c\u0085d"#), "{onward}");
    assert_eq!(
        serde_json::from_str::<Value>(&onward).unwrap(),
        serde_json::from_str::<Value>(&line).unwrap()
    );
    let judged = judgement.marks.as_marks();
    assert_eq!((judged.effects, judged.rule_names()), (RuleEffects::CHANGED, vec!["strict/line-separator"]));
    // In an answer too.
    let judgement = no_deletes().line(C, HIDDEN.replace(":9,", ":\"\u{2028}\",").as_bytes());
    assert!(
        String::from_utf8_lossy(judgement.back.as_ref().unwrap()).contains(r#""id":"\u2028""#),
        "{judgement:?}"
    );
}

#[test]
fn what_is_not_strict_json_is_refused() {
    let with = |value: &str| call(1, "echo", &json!({ "x": 0 })).replace(":0", &format!(":{value}"));
    for (value, why) in [
        ("NaN", "json"),
        ("-Infinity", "json"),
        ("[1,]", "json"),
        ("1/*x*/", "json"),
        ("01", "json"),
        ("'x'", "json"),
        ("\"\u{0}\"", "control-character"),
        (r#""\ud800""#, "surrogate"),
        (&"[".repeat(300), "depth"),
        (r#"{"a":1,"a":1}"#, "duplicate-key"),
        (r#"{"__proto__":1}"#, "prototype-key"),
    ] {
        refused(with(value), &format!("strict/{why}"));
    }
    refused(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", "strict/utf-8");
    refused("\u{feff}{\"id\":1,\"method\":\"x\"}", "strict/byte-order-mark");
    refused(format!("{}{HIDDEN}", call(1, "echo", &json!({}))), "strict/json");
    refused("// hello", "strict/json");
    refused("null", "strict/message");
    refused("[]", "strict/message");
    refused("[[]]", "strict/message");
}

#[test]
fn the_waiting_side_gets_an_error() {
    // A request with an unambiguous id.
    let judgement = refused(r#"{"id":"a","method":"x","params":{"n":NaN}}"#, "strict/json");
    assert_eq!((&back(&judgement)["id"], &back(&judgement)["error"]["code"]), (&json!("a"), &json!(-32700)));
    // A request with an ambiguous id.
    let judgement = refused(r#"{"id":1,"id":2,"method":"x"}"#, "strict/duplicate-key");
    assert_eq!((&back(&judgement)["id"], &back(&judgement)["error"]["code"]), (&Value::Null, &json!(-32600)));
    // A notification expects no answer, and a server's stray output does not either.
    assert_eq!(refused(r#"{"method":"x","params":{"n":NaN}}"#, "strict/json").back, None);
    let judgement = no_deletes().line(S, b"listening on port 8080");
    assert_eq!(
        (reason(&judgement).as_str(), &judgement.forwarded, &judgement.back),
        ("strict/json", &Forwarded::Nothing, &None)
    );
    // An answer becomes an error.
    let judgement = no_deletes().line(S, br#"{"jsonrpc":"2.0","id":4,"result":{"n":NaN}}"#);
    assert_eq!((reason(&judgement).as_str(), &judgement.back), ("strict/json", &None));
    let onward: Value = serde_json::from_str(&text(&judgement)).unwrap();
    assert_eq!((&onward["id"], &onward["error"]["data"]["rule"]), (&json!(4), &json!("strict/json")));
    // Each request of a batch gets an error.
    let judgement = refused(
        r#"[{"id":1,"method":"x"},{"id":2,"method":"y","Params":{}},{"method":"z"}]"#,
        "strict/spelling",
    );
    assert_eq!(back(&judgement).as_array().map(Vec::len), Some(2), "{judgement:?}");
}

#[test]
fn an_empty_line_passes() {
    for line in ["", "  ", "\t"] {
        assert_eq!(no_deletes().line(C, line.as_bytes()), Judgement::default());
    }
}

#[test]
fn a_connection_without_rules_is_not_parsed() {
    let other = RuleMatch { backends: globs(&["web"]), ..RuleMatch::default() };
    let mut judge = judge(vec![rule("no", other, block())]);
    assert!(!judge.is_strict());
    for line in ["rubbish", "[\r]", "{\"id\":1,\"id\":2,\"method\":\"x\"}"] {
        assert_eq!(judge.line(C, line.as_bytes()), Judgement::default(), "{line:?}");
    }
    // Without rules the connection is no longer strict, once no request is open.
    let mut judge = no_deletes();
    judge.line(C, call(1, "echo", &json!({})).as_bytes());
    judge.replace_rules(Arc::new(Rules::new(Vec::new())));
    assert!(judge.is_strict());
    judge.line(S, br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert!(!judge.is_strict());
    assert_eq!(judge.line(C, b"rubbish"), Judgement::default());
}

fn where_path(action: RuleAction, check: ValueCheck) -> Judge {
    let conditions = vec![Condition { path: path("$.arguments.path"), check }];
    judge(vec![rule("r", RuleMatch { conditions, ..tool("*") }, action), rule("rest", tool("none"), block())])
}

#[test]
fn conditions_see_every_spelling_of_a_key() {
    let etc = || where_path(block(), ValueCheck::matches("^/etc/").unwrap());
    for key in ["path", "Path", "PATH", "\\u0050ath", "p\\u0061th"] {
        let line = call(1, "read", &json!({ "KEY": "/etc/passwd" })).replace("KEY", key);
        assert_eq!(etc().line(C, line.as_bytes()).marks.as_marks().rule_names(), ["r"], "{key}");
    }
    let both = json!({ "path": "/tmp/x", "Path": "/etc/passwd" });
    assert_eq!(reason(&etc().line(C, call(1, "read", &both).as_bytes())), "strict/duplicate-key");
    // Elsewhere, keys that differ by case are different keys.
    let other = json!({ "path": "/tmp/x", "env": { "A": 1, "a": 2 } });
    assert_eq!(etc().line(C, call(1, "read", &other).as_bytes()), Judgement::default());
}

#[test]
fn an_allow_applies_only_if_the_match_is_certain() {
    let rules = || {
        let conditions = vec![Condition {
            path: path("$.arguments.path"),
            check: ValueCheck::matches("^/safe/").unwrap(),
        }];
        judge(vec![
            rule("fine", RuleMatch { conditions, ..tool("read") }, RuleAction::Allow),
            rule("rest", tool("*"), block()),
        ])
    };
    let by = |arguments: &Value| {
        let judgement = rules().line(C, call(1, "read", arguments).as_bytes());
        judgement.marks.as_marks().rule_names().join(" ")
    };
    assert_eq!(by(&json!({ "path": "/safe/x" })), "fine");
    assert_eq!(by(&json!({ "Path": "/safe/x" })), "rest", "some readers see no path");
    assert_eq!(by(&json!({ "path": "/etc/x" })), "rest");
    // A value that must be absent must be absent for every reader.
    let mut confirmed = where_path(block(), ValueCheck::exists(false));
    let judgement = confirmed.line(C, call(1, "read", &json!({ "Path": 1 })).as_bytes());
    assert_eq!(judgement.marks.as_marks().rule_names(), ["r"], "some readers see no path");
}

#[test]
fn strings_and_numbers_are_judged_as_readers_convert_them() {
    let blocked = |check: ValueCheck, value: &str| {
        let line = call(1, "read", &json!({ "path": 0 })).replace(":0", &format!(":{value}"));
        where_path(block(), check).line(C, line.as_bytes()).forwarded == Forwarded::Nothing
    };
    for value in ["11", "1.1e1", "\"11\"", "\" 11 \"", "\"1_1\"", "1e400", "10.00000000000000000001"] {
        assert!(blocked(ValueCheck::greater(10.0), value), "{value}");
    }
    assert!(!blocked(ValueCheck::greater(10.0), "10") && !blocked(ValueCheck::greater(10.0), "\"x\""));
    for value in ["5", "5.0", "50e-1", "\"5\"", "\"5.0\"", "\"05\""] {
        assert!(blocked(ValueCheck::equals(json!(5)), value), "{value}");
    }
    for value in ["5", "5.0", "50e-1"] {
        assert!(blocked(ValueCheck::matches("^5$").unwrap(), value), "{value}");
    }
    for value in [r#"{"c":"rm -rf"}"#, r#"{"c": "\u0072m -rf"}"#, r#"[ "rm \u002drf" ]"#] {
        assert!(blocked(ValueCheck::matches("rm -rf").unwrap(), value), "{value}");
        assert!(blocked(ValueCheck::contains("RM -RF".to_owned()), value), "{value}");
    }
    assert!(
        blocked(ValueCheck::matches("^/etc$").unwrap(), r#""/etc\u0000.txt""#),
        "C reads only its beginning"
    );
    assert!(!blocked(ValueCheck::matches("^/etc$").unwrap(), r#""/tmp\u0000/etc""#));
    assert!(
        blocked(ValueCheck::matches("^/etc$").unwrap(), r#"[["/etc"]]"#),
        "JavaScript makes a text of it"
    );
    let large = json!({ "path": 0, "text": "a\0b" }).to_string().replace(":0", ":18446744073709551616");
    let line = call(1, "read", &json!(0)).replace("\"arguments\":0", &format!("\"arguments\":{large}"));
    assert_eq!(
        where_path(block(), ValueCheck::equals(json!(5))).line(C, line.as_bytes()),
        Judgement::default()
    );
    let allowed = |value: &str| {
        let line = call(1, "read", &json!({ "path": 0 })).replace(":0", &format!(":{value}"));
        where_path(RuleAction::Allow, ValueCheck::less(10.0)).line(C, line.as_bytes()).marks.as_marks().rules
            == "r"
    };
    assert!(allowed("9") && allowed("9.5") && !allowed("\"9\"") && !allowed("9.99999999999999999999"));
}

#[test]
fn a_number_beyond_doubles_does_not_hide_other_values() {
    let contains = |place: &str, action: RuleAction| {
        let conditions =
            vec![Condition { path: path(place), check: ValueCheck::contains("/etc/".to_owned()) }];
        judge(vec![
            rule("r", RuleMatch { conditions, ..tool("*") }, action),
            rule("rest", tool("*"), block()),
        ])
    };
    for number in ["1", "1e999", "-1e999", "[1e999]", "{\"x\":1e999}"] {
        let hidden = format!(r#"{{"path":"\u002fetc\u002fpasswd","n":{number}}}"#);
        let line = call(1, "read", &json!(0)).replace("\"arguments\":0", &format!("\"arguments\":{hidden}"));
        for place in ["$.arguments", "$..arguments"] {
            let judgement = contains(place, block()).line(C, line.as_bytes());
            assert_eq!(judgement.marks.as_marks().rule_names(), ["r"], "{line}");
        }
        let judgement = contains("$.arguments", RuleAction::Allow).line(C, line.as_bytes());
        let expected = if number == "1" { "r" } else { "rest" };
        assert_eq!(judgement.marks.as_marks().rule_names(), [expected], "nothing is certain: {line}");
    }
}

#[test]
fn values_that_lenient_servers_convert_match() {
    let judged = |action: RuleAction, check: ValueCheck, value: &str| {
        let line = call(1, "read", &json!({ "path": 0 })).replace(":0", &format!(":{value}"));
        where_path(action, check).line(C, line.as_bytes()).marks.as_marks().rules == "r"
    };
    let blocked = |check: ValueCheck, value: &str| judged(block(), check, value);
    for value in [
        "true", "\"true\"", "\"True\"", "1", "1.0", "\"1\"", "\"yes\"", "\"ON\"", "\" y \"", "\"t\"",
        "[true]",
    ] {
        assert!(blocked(ValueCheck::equals(json!(true)), value), "{value}");
        assert!(!blocked(ValueCheck::equals(json!(false)), value), "{value}");
        let is_certain = value == "true";
        assert_eq!(judged(RuleAction::Allow, ValueCheck::equals(json!(true)), value), is_certain, "{value}");
    }
    for value in ["false", "\"False\"", "0", "0.0", "\"0\"", "\"no\"", "\"off\"", "\"\"", "\"f\"", "\"N\""] {
        assert!(blocked(ValueCheck::equals(json!(false)), value), "{value}");
        assert!(!blocked(ValueCheck::equals(json!(true)), value), "{value}");
    }
    for value in ["1", "true", "\"0x1\"", "\"１\"", "\"0b1\"", "\"\\ufeff1\"", "\"1\\u001c\""] {
        assert!(blocked(ValueCheck::equals(json!(1)), value), "{value}");
        assert_eq!(judged(RuleAction::Allow, ValueCheck::equals(json!(1)), value), value == "1", "{value}");
    }
    for value in ["\"0x1F4\"", "\"\\ufeff500\"", "\"５００\"", "\"500\\u001c\"", "\"٥٠٠\""] {
        assert!(blocked(ValueCheck::greater(10.0), value), "{value}");
        assert!(!blocked(ValueCheck::less(10.0), value), "{value}");
        assert!(!judged(RuleAction::Allow, ValueCheck::greater(10.0), value), "{value}");
    }
    assert!(blocked(ValueCheck::greater(0.5), "true") && blocked(ValueCheck::less(0.5), "false"));
    assert!(!judged(RuleAction::Allow, ValueCheck::greater(0.5), "true"));
    assert!(
        blocked(ValueCheck::equals(json!("5")), "5")
            && !judged(RuleAction::Allow, ValueCheck::equals(json!("5")), "5")
    );
}

/// A call with this string as an argument.
fn with_text(text: &str) -> String {
    call(1, "read", &json!({ "path": text, "n": 1 }))
}

#[test]
fn json_in_a_string_argument_is_judged() {
    let judged = |place: &str, check: ValueCheck, action: RuleAction, line: &str| {
        let conditions = vec![Condition { path: path(place), check }];
        let when = RuleMatch { conditions, ..tool("*") };
        let rules = vec![rule("r", when, action), rule("rest", tool("none"), block())];
        judge(rules).line(C, line.as_bytes()).marks.as_marks().rules.to_owned()
    };
    let etc = || ValueCheck::matches("^/etc/").unwrap();
    for text in [
        r#"["/etc/passwd"]"#,
        r#" ["\u002fetc/passwd"]"#,
        "\n[\"/etc/passwd\"]",
        r#"["/etc/passwd",NaN,-Infinity]"#,
        r#"["/etc/passwd",1e999]"#,
    ] {
        assert_eq!(judged("$.arguments.path[0]", etc(), block(), &with_text(text)), "r", "{text}");
        assert_eq!(judged("$..path[0]", etc(), block(), &with_text(text)), "r", "{text}");
        let holds = ValueCheck::contains("/etc/".to_owned());
        assert_eq!(judged("$.arguments.path", holds, block(), &with_text(text)), "r", "{text}");
        assert_eq!(judged("$.arguments.path[0]", etc(), RuleAction::Allow, &with_text(text)), "", "{text}");
    }
    for text in ["[/etc/passwd]", "{not JSON}", "[\"/tmp/x\"]", "\"/etc/passwd\"", ""] {
        assert_eq!(judged("$.arguments.path[0]", etc(), block(), &with_text(text)), "", "{text}");
    }
    let force = || ValueCheck::equals(json!(true));
    assert_eq!(judged("$.arguments.path.force", force(), block(), &with_text(r#"{"Force":"yes"}"#)), "r");
    // A string may also be read as its content.
    let safe = || ValueCheck::matches("safe").unwrap();
    assert_eq!(judged("$.arguments.path", safe(), RuleAction::Allow, &with_text("safe")), "r");
    let any = |text: &str| {
        judged("$.arguments.path", ValueCheck::matches("^.safe").unwrap(), RuleAction::Allow, text)
    };
    assert_eq!((any(&with_text("[safe]")), any(&with_text(r#"[safe"]"#))), ("r".to_owned(), "r".to_owned()));
    assert_eq!(any(&with_text(r#" safe"#)), "r");
    // More than can be unpacked.
    let deep = format!(r#"{{"force":true,"x":{}{}}}"#, "[".repeat(300), "]".repeat(300));
    assert_eq!(judged("$.arguments.path.force", force(), block(), &with_text(&deep)), "strict/depth");
    let twice = r#"{"force":true,"Force":false}"#;
    assert_eq!(judged("$.arguments.path.force", force(), block(), &with_text(twice)), "strict/duplicate-key");
}

#[test]
fn a_change_inside_json_in_a_string_is_refused() {
    let by = |change: RuleChange, text: &str| {
        let mut judge = judge(vec![rule("r", tool("*"), RuleAction::Modify(vec![change]))]);
        judge.line(C, with_text(text).as_bytes()).marks.as_marks().rules.to_owned()
    };
    let limit = || RuleChange::set(path("$.arguments.path.limit"), "10".to_owned());
    assert_eq!(by(limit(), r#"{"limit":500}"#), "strict/packed");
    assert_eq!(by(limit(), r#"{"x":1}"#), "strict/packed", "what is missing is not set");
    assert_eq!((by(limit(), r#"{"limit":10}"#), by(limit(), "[1]"), by(limit(), "x")), Default::default());
    assert_eq!(by(RuleChange::remove(path("$..secret")), r#"[{"secret":1}]"#), "strict/packed");
    assert_eq!(by(RuleChange::remove(path("$..secret")), r#"[{"public":1}]"#), "");
    let replace = || RuleChange::replace(path("$..*"), "hunter2", "***".to_owned()).unwrap();
    assert_eq!(by(replace(), r#"["hunter2"]"#), "r");
    assert_eq!(by(replace(), r#"["\u0068unter2"]"#), "strict/packed");
    assert_eq!(by(replace(), r#"["other"]"#), "");
}

#[test]
fn a_change_reaches_every_spelling() {
    let change = |change: RuleChange, arguments: &str, expected: &str| {
        let mut judge = judge(vec![rule("r", tool("x"), RuleAction::Modify(vec![change]))]);
        let line = |arguments: &str| {
            format!(r#"{{"id":1,"method":"tools/call","params":{{"name":"x","arguments":{arguments}}}}}"#)
        };
        assert_eq!(text(&judge.line(C, line(arguments).as_bytes())), line(expected));
    };
    let limit = || path("$.arguments.limit");
    change(RuleChange::set(limit(), "10".to_owned()), r#"{"a":1, "Limit" : 500}"#, r#"{"a":1, "limit":10}"#);
    change(RuleChange::remove(limit()), r#"{"a":1,"LIMIT":500}"#, r#"{"a":1}"#);
    change(
        RuleChange::replace(limit(), "x", "y".to_owned()).unwrap(),
        r#"{"lIMIT":"x"}"#,
        r#"{"lIMIT":"y"}"#,
    );
}

#[test]
fn two_spellings_of_a_key_that_a_rule_changes_are_refused() {
    let hide = RuleChange::replace(path("$.arguments.page.text"), "me", "you".to_owned()).unwrap();
    let mut judge = judge(vec![rule("hide", tool("search"), RuleAction::Modify(vec![hide]))]);
    let both = json!({ "page": { "Text": "me", "text": "me" } });
    assert_eq!(reason(&judge.line(C, call(1, "search", &both).as_bytes())), "strict/duplicate-key");
    let elsewhere = json!({ "other": { "Text": "me", "text": "me" } });
    assert!(
        judge.line(C, call(2, "search", &elsewhere).as_bytes()).marks.as_marks().effects
            != RuleEffects::REFUSED
    );
}

#[test]
fn an_error_without_an_id_matches_no_method() {
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}"#;
    let mut by_method = judge(vec![
        rule("calls", tool("delete_*"), block()),
        rule("lists", RuleMatch { methods: globs(&["*/list"]), ..RuleMatch::default() }, block()),
        rule("tools", RuleMatch { tools: globs(&["*"]), ..RuleMatch::default() }, block()),
    ]);
    assert_eq!(by_method.line(S, error.as_bytes()).forwarded, Forwarded::Unchanged);
    let mut of_all =
        judge(vec![rule("all", RuleMatch { direction: Some(S), ..RuleMatch::default() }, block())]);
    let judgement = of_all.line(S, error.as_bytes());
    let judged = judgement.marks.as_marks();
    assert_eq!((judged.effects, judged.rule_names()), (RuleEffects::BLOCKED, vec!["all"]));
}

#[test]
fn an_answer_cannot_be_taken_for_one_to_another_request() {
    let when = || RuleMatch { direction: Some(S), ..tool("secret") };
    let answer = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":1}}}}"#);
    // The same id twice: it is unknown which of them is answered first.
    let mut judge = judge(vec![rule("hide", when(), block())]);
    judge.line(C, call(1, "plain", &json!({})).as_bytes());
    judge.line(C, call(1, "secret", &json!({})).as_bytes());
    assert!(text(&judge.line(S, answer("1").as_bytes())).contains("\"rule\":\"hide\""));
    // Ids that a reader takes for numbers, and ids of no request.
    judge.line(C, call(2, "secret", &json!({})).as_bytes());
    assert!(text(&judge.line(S, answer("\"2\"").as_bytes())).contains("\"rule\":\"hide\""));
    assert!(text(&judge.line(S, answer("\"0x2\"").as_bytes())).contains("\"rule\":\"hide\""));
    // A client's answer to a request that was not seen does not pass either.
    for when in
        [tool("secret"), RuleMatch { methods: globs(&["elicitation/create"]), ..RuleMatch::default() }]
    {
        let rules = Arc::new(Rules::new(vec![rule("hide", when, block())]));
        let mut judge = Judge::new(rules, "files", 4096);
        for direction in [C, S] {
            let judgement = judge.line(direction, answer("7").as_bytes());
            assert_eq!(judgement.marks.as_marks().rule_names(), ["hide"], "{direction:?}");
        }
    }
}

#[test]
fn an_allow_needs_every_value_at_its_path_to_match() {
    let allowed = |place: &str, check: ValueCheck, arguments: Value| {
        let conditions = vec![Condition { path: path(place), check }];
        let mut judge = judge(vec![
            rule("fine", RuleMatch { conditions, ..tool("write") }, RuleAction::Allow),
            rule("no", tool("write"), block()),
        ]);
        judge.line(C, call(1, "write", &arguments).as_bytes()).marks.as_marks().rule_names() == ["fine"]
    };
    let safe = || ValueCheck::matches("^/safe/").unwrap();
    for place in ["$.arguments.files[*]", "$.arguments..files[*]", "$.arguments.files.*"] {
        let files = |files: Value| allowed(place, safe(), json!({ "files": files }));
        assert!(files(json!(["/safe/a", "/safe/b"])), "{place}");
        assert!(!files(json!(["/safe/a", "/etc/passwd"])) && !files(json!(["/etc/passwd", "/safe/a"])));
        // There is no value, so the match is not certain.
        assert!(!files(json!([])) && !allowed(place, safe(), json!({})));
        // A string with a list in it is not a list for every reader.
        assert!(!files(json!("[\"/safe/a\"]")) && !files(json!("[\"/safe/a\",\"/etc/passwd\"]")));
    }
    let place = "$.arguments..path";
    assert!(!allowed(place, safe(), json!({ "path": "/safe/a", "more": { "path": "/etc" } })));
    assert!(!allowed(place, safe(), json!({ "path": "/safe/a", "more": "{\"path\":\"/etc\"}" })));
    // `exists` is about all values together, not about each.
    let force = "$.arguments..force";
    assert!(allowed(force, ValueCheck::exists(false), json!({ "files": [] })));
    assert!(!allowed(force, ValueCheck::exists(false), json!({ "files": [{ "force": false }] })));
    assert!(!allowed(force, ValueCheck::exists(false), json!({ "files": "[{\"force\":false}]" })));
    assert!(allowed(force, ValueCheck::exists(true), json!({ "files": [{}, { "force": false }] })));
}

#[test]
fn the_checks_apply_to_clients_of_a_gateway() {
    let judgement = refuse_unreadable(C, b"{\"id\":1,\"method\":\"x\",\"params\":{\"a\":[\r]}}").unwrap();
    assert_eq!((reason(&judgement).as_str(), &back(&judgement)["id"]), ("strict/line-end", &json!(1)));
    assert_eq!(refuse_unreadable(C, br#"{"id":1,"method":"x","params":{"a":[]}}"#), None);
    assert!(refuse_unreadable(C, br#"[{"id":1,"method":"x"}]"#).is_some());
}
