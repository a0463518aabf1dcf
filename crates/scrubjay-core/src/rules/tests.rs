//! Tests of rules on single lines; `laws` has properties of any rule and any message.

mod answers;
mod laws;
mod strict;
mod within;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::entry::RuleEffects;
use Direction::{ClientToServer as C, ServerToClient as S};

fn globs(names: &[&str]) -> Vec<Glob> {
    names.iter().map(|name| Glob::parse(name).unwrap()).collect()
}

fn path(text: &str) -> JsonPath {
    JsonPath::parse(text).unwrap()
}

fn rule(name: &str, when: RuleMatch, action: RuleAction) -> Rule {
    Rule { name: name.to_owned(), when, action }
}

fn tool(name: &str) -> RuleMatch {
    RuleMatch { methods: globs(&["tools/call"]), tools: globs(&[name]), ..RuleMatch::default() }
}

fn block() -> RuleAction {
    RuleAction::Block { code: -7, message: "no".to_owned() }
}

fn judge(rules: Vec<Rule>) -> Judge {
    Judge::new(Arc::new(Rules::new(rules)), "files", 4096)
}

fn call(id: u64, tool: &str, arguments: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool, "arguments": arguments } })
        .to_string()
}

fn text(judgement: &Judgement) -> String {
    match &judgement.forwarded {
        Forwarded::Unchanged => "same".to_owned(),
        Forwarded::Nothing => "nothing".to_owned(),
        Forwarded::Changed(other) => String::from_utf8(other.clone()).unwrap(),
    }
}

fn back(judgement: &Judgement) -> Value {
    serde_json::from_slice(judgement.back.as_deref().unwrap_or(b"null")).unwrap()
}

#[test]
fn the_first_deciding_rule_is_the_last_to_apply() {
    let mut judge = judge(vec![
        rule("note", RuleMatch::default(), RuleAction::Tag(vec!["seen".to_owned()])),
        rule("fine", tool("delete_tmp"), RuleAction::Allow),
        rule("no-deletes", tool("delete_*"), block()),
        rule("never", RuleMatch::default(), RuleAction::Tag(vec!["late".to_owned()])),
    ]);
    let judgement = judge.line(C, call(1, "delete_all", &json!({})).as_bytes());
    assert_eq!(text(&judgement), "nothing");
    assert_eq!(
        back(&judgement),
        json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -7, "message": "no", "data": { "rule": "no-deletes" } } })
    );
    let judged = judgement.marks.as_marks();
    assert_eq!((judged.rule_names(), judged.effects), (vec!["note", "no-deletes"], RuleEffects::BLOCKED));
    let judgement = judge.line(C, call(2, "delete_tmp", &json!({})).as_bytes());
    assert_eq!((judgement.forwarded.clone(), judgement.back.clone()), (Forwarded::Unchanged, None));
    let judged = judgement.marks.as_marks();
    assert_eq!((judged.rule_names(), judged.tag_names()), (vec!["note", "fine"], vec!["seen"]));
    assert!(!judged.is_intercepted());
}

#[test]
fn every_part_of_a_match_narrows_it() {
    let by = |when: RuleMatch| {
        let mut judge = judge(vec![rule("r", when, block())]);
        let one = judge.line(C, call(1, "read", &json!({ "path": "/etc/passwd", "n": 3 })).as_bytes());
        one.forwarded == Forwarded::Nothing
    };
    assert!(by(RuleMatch::default()));
    assert!(by(RuleMatch { direction: Some(C), ..RuleMatch::default() }));
    assert!(!by(RuleMatch { direction: Some(S), ..RuleMatch::default() }));
    assert!(by(RuleMatch { methods: globs(&["x", "tools/*"]), ..RuleMatch::default() }));
    assert!(!by(RuleMatch { methods: globs(&["*/list"]), ..RuleMatch::default() }));
    assert!(by(RuleMatch { backends: globs(&["fil*"]), ..RuleMatch::default() }));
    assert!(!by(RuleMatch { backends: globs(&["web"]), ..RuleMatch::default() }));
    assert!(!by(tool("write")));
    let with = |place: &str, check: ValueCheck| {
        by(RuleMatch { conditions: vec![Condition { path: path(place), check }], ..RuleMatch::default() })
    };
    assert!(with("$.arguments.path", ValueCheck::matches("^/etc/").unwrap()));
    assert!(!with("$.arguments.path", ValueCheck::matches("^/tmp/").unwrap()));
    assert!(
        with("$.arguments.path", ValueCheck::exists(true))
            && !with("$.arguments.path", ValueCheck::exists(false))
    );
    assert!(with("$.arguments.mode", ValueCheck::exists(false)));
    assert!(
        with("$.arguments.n", ValueCheck::equals(json!(3)))
            && !with("$.arguments.n", ValueCheck::equals(json!(4)))
    );
    assert!(with("$.arguments.path", ValueCheck::contains("PASSWD".to_owned())));
    assert!(
        with("$.arguments.n", ValueCheck::greater(2.0)) && !with("$.arguments.n", ValueCheck::greater(3.0))
    );
    assert!(with("$.arguments.n", ValueCheck::less(4.0)) && !with("$.arguments.path", ValueCheck::less(4.0)));
}

#[test]
fn an_answer_matches_the_rules_of_its_request() {
    let when = RuleMatch { direction: Some(S), ..tool("read") };
    let mut judge =
        judge(vec![rule("r", when, RuleAction::Modify(vec![RuleChange::remove(path("$.secret"))]))]);
    for (id, tool) in [(1, "read"), (2, "write"), (3, "read")] {
        assert_eq!(text(&judge.line(C, call(id, tool, &json!({})).as_bytes())), "same");
    }
    let answer = |id: &str| format!(r#"{{"id":{id},"result":{{"secret":1,"rest":1e400}},"jsonrpc":"2.0"}}"#);
    assert_eq!(text(&judge.line(S, answer("2").as_bytes())), "same");
    assert_eq!(
        text(&judge.line(S, answer("1").as_bytes())),
        r#"{"id":1,"result":{"rest":1e400},"jsonrpc":"2.0"}"#
    );
    // The request was answered already, so this may be an answer to anything.
    assert_ne!(text(&judge.line(S, answer("1").as_bytes())), "same");
    // A response from the side that sent the request is not an answer either.
    assert_eq!(text(&judge.line(C, answer("3").as_bytes())), "same");
    assert_ne!(text(&judge.line(S, answer("3").as_bytes())), "same");
}

#[test]
fn a_blocked_answer_becomes_an_error_and_a_mocked_one_is_replaced() {
    let when = |name: &str| RuleMatch { direction: Some(S), ..tool(name) };
    let mut judge = judge(vec![
        rule("no", when("a"), block()),
        rule("canned", when("b"), RuleAction::Mock { result: r#"{"content":[]}"#.to_owned() }),
    ]);
    judge.line(C, call(1, "a", &json!({})).as_bytes());
    judge.line(C, call(2, "b", &json!({})).as_bytes());
    let judgement = judge.line(S, br#"{"jsonrpc":"2.0","id":1,"result":{"x":1}}"#);
    assert!(text(&judgement).contains(r#""id":1,"error":{"code":-7"#) && judgement.back.is_none());
    assert_eq!(judgement.marks.as_marks().effects, RuleEffects::BLOCKED);
    let judgement = judge.line(S, br#"{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":""}}"#);
    assert_eq!(text(&judgement), r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#);
}

#[test]
fn a_notification_is_blocked_without_a_reply_and_never_mocked() {
    let canned = RuleAction::Mock { result: "{}".to_owned() };
    let line = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
    let judgement = judge(vec![rule("canned", RuleMatch::default(), canned.clone())]).line(S, line);
    assert_eq!(judgement, Judgement::default());
    let judgement = judge(vec![rule("no", RuleMatch::default(), block())]).line(S, line);
    assert_eq!((text(&judgement).as_str(), judgement.back.is_none()), ("nothing", true));
    let judgement = judge(vec![rule("canned", RuleMatch::default(), canned)])
        .line(C, call(5, "x", &json!({})).as_bytes());
    assert_eq!(
        (back(&judgement), judgement.marks.as_marks().effects),
        (json!({"jsonrpc":"2.0","id":5,"result":{}}), RuleEffects::MOCKED)
    );
}

#[test]
fn changes_add_up_and_delays_are_limited() {
    let set =
        |json: &str| RuleAction::Modify(vec![RuleChange::set(path("$.arguments.limit"), json.to_owned())]);
    let capped = RuleMatch {
        conditions: vec![Condition { path: path("$.arguments.limit"), check: ValueCheck::greater(10.0) }],
        ..tool("search")
    };
    let mut judge = judge(vec![
        rule("raise", tool("search"), set("20")),
        rule("cap", capped, set("10")),
        rule("slow", RuleMatch::default(), RuleAction::Delay(Duration::from_secs(50))),
        rule("slower", RuleMatch::default(), RuleAction::Delay(Duration::from_secs(50))),
    ]);
    let judgement =
        judge.line(C, br#"{"id":1,"method":"tools/call","params":{"name":"search","arguments":{ }}}"#);
    assert_eq!(
        text(&judgement),
        r#"{"id":1,"method":"tools/call","params":{"name":"search","arguments":{ "limit":10}}}"#
    );
    assert_eq!(judgement.delay, DELAY_MAX);
    let judged = judgement.marks.as_marks();
    assert_eq!(judged.rule_names(), ["raise", "cap", "slow", "slower"]);
    assert_eq!(judged.effects.names(), ["changed", "delayed"]);
}

#[test]
fn a_change_without_effect_is_not_reported() {
    let change = RuleChange::set(path("$.arguments.limit"), "10".to_owned());
    let mut judge = judge(vec![rule("cap", RuleMatch::default(), RuleAction::Modify(vec![change]))]);
    for line in [
        call(1, "x", &json!({ "limit": 10 })),
        r#"{"id":1,"method":"tools/call","params":{"name":"x"}}"#.to_owned(),
        r#"{"id":1,"method":"tools/list"}"#.to_owned(),
    ] {
        assert_eq!(judge.line(C, line.as_bytes()), Judgement::default(), "{line}");
    }
}

#[track_caller]
fn check_change(change: RuleChange, params: &str, expected: &str) {
    let mut judge = judge(vec![rule("r", RuleMatch::default(), RuleAction::Modify(vec![change]))]);
    let line = |params: &str| format!(r#"{{ "method":"m", "params" : {params} ,"id":1}}"#);
    assert_eq!(text(&judge.line(C, line(params).as_bytes())), line(expected));
}

#[test]
fn changes_keep_every_other_byte() {
    let set = |place: &str, json: &str| RuleChange::set(path(place), json.to_owned());
    check_change(
        set("$.a", "1"),
        r#"{"b": 1e400, "a" : [1, 2] , "c":18446744073709551616}"#,
        r#"{"b": 1e400, "a" : 1 , "c":18446744073709551616}"#,
    );
    check_change(set("$.a", r#"{"x":1}"#), r#"{"b":2.0 }"#, r#"{"b":2.0 ,"a":{"x":1}}"#);
    check_change(
        set("$.a[*].k", "0"),
        r#"{"a":[{"k":1},{},{"j":2}]}"#,
        r#"{"a":[{"k":0},{"k":0},{"j":2,"k":0}]}"#,
    );
    check_change(set("$..k", "0"), r#"{"k":{"k":1},"j":{"k":2}}"#, r#"{"k":0,"j":{"k":0}}"#);
    let remove = |place: &str| RuleChange::remove(path(place));
    check_change(remove("$.a"), r#"{"a":1, "b":2}"#, r#"{"b":2}"#);
    check_change(remove("$.b"), r#"{"a":1 , "b":2 }"#, r#"{"a":1 }"#);
    check_change(remove("$.*"), r#"{"a":1,"b":{"c":[]}}"#, "{}");
    check_change(remove("$.a[1]"), r#"{"a":[1, 2 ,3]}"#, r#"{"a":[1 ,3]}"#);
    check_change(remove("$..a"), r#"{"a":{"a":1},"b":{"x":1,"a":2}}"#, r#"{"b":{"x":1}}"#);
    let replace =
        |place: &str, pattern: &str, with: &str| RuleChange::replace(path(place), pattern, with.to_owned());
    check_change(
        replace("$.q", "fo+", "b\"$0").unwrap(),
        r#"{"q":"foo \ud83d\ude00 \u0066oo","n":1.10}"#,
        r#"{"q":"b\"foo \ud83d\ude00 b\"foo","n":1.10}"#,
    );
    check_change(
        replace("$..*", "(a)(b)", "$2$1").unwrap(),
        r#"{"q":["ab","xab"],"n":{"ab":"ab"}}"#,
        r#"{"q":["ba","xba"],"n":{"ab":"ba"}}"#,
    );
    assert_eq!(replace("$.q", "x*", "").unwrap_err(), ExpressionError::MatchesEmpty);
}

#[test]
fn a_change_cannot_exceed_the_maximum_length() {
    let change = RuleChange::replace(path("$.q"), "a", "b".repeat(100)).unwrap();
    let mut judge = judge(vec![rule("grow", RuleMatch::default(), RuleAction::Modify(vec![change]))]);
    let line = format!(r#"{{"id":1,"method":"m","params":{{"q":"{}"}}}}"#, "a".repeat(50));
    let judgement = judge.line(C, line.as_bytes());
    assert_eq!(text(&judgement), "nothing");
    assert!(
        back(&judgement)["error"]["message"].as_str().unwrap().contains("maximum length"),
        "{judgement:?}"
    );
}

#[test]
fn each_message_of_a_batch_is_judged() {
    let change = RuleChange::set(path("$.arguments.limit"), "1".to_owned());
    let mut judge = judge(vec![
        rule("no", tool("bad"), block()),
        rule("cap", tool("search"), RuleAction::Modify(vec![change])),
    ]);
    let (good, bad, search) = (
        call(1, "good", &json!({})),
        call(2, "bad", &json!({})),
        r#"{"id":3,"method":"tools/call","params":{"name":"search","arguments":{}}}"#,
    );
    let judgement = judge.line(C, format!("[{good}, {bad} ,{search}]").as_bytes());
    assert_eq!(text(&judgement), format!("[{good} ,{}]", search.replace("{}", r#"{"limit":1}"#)));
    assert_eq!(back(&judgement)[0]["id"], 2);
    assert_eq!(judgement.marks.as_marks().rule_names(), ["no", "cap"]);
    let judgement = judge.line(C, format!("[{bad},{bad}]").as_bytes());
    assert_eq!((text(&judgement).as_str(), back(&judgement).as_array().map(Vec::len)), ("nothing", Some(2)));
    assert_eq!(judge.line(C, format!("[{good}]").as_bytes()), Judgement::default());
}

#[test]
fn messages_that_readers_read_differently_are_refused() {
    let rules = || vec![rule("fine", tool("good"), RuleAction::Allow), rule("no", tool("bad"), block())];
    for line in [
        r#"{"id":1,"method":"tools/call","params":{"name":"good","name":"bad"}}"#,
        r#"{"id":1,"method":"tools/call","params":{"name":"bad","name":"good"}}"#,
        r#"{"id":1,"method":"ping","method":"tools/call","params":{"name":"bad"}}"#,
        r#"{"id":1,"method":"tools/call","params":{"name":"good"},"params":{"name":"bad"}}"#,
        r#"{"id":1,"Method":"tools/call","PARAMS":{"Name":"bad"}}"#,
        r#"{"id":1,"\u006dethod":"tools\/call","params":{"name":"b\u0061d"}}"#,
        "\u{feff}{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"bad\"}}",
    ] {
        assert_eq!(text(&judge(rules()).line(C, line.as_bytes())), "nothing", "{line}");
    }
    let good = r#"{"id":1,"method":"tools/call","params":{"name":"good"}}"#;
    assert_eq!(judge(rules()).line(C, good.as_bytes()).marks.as_marks().rule_names(), ["fine"]);
}

#[test]
fn messages_that_are_nested_too_deeply_do_not_pass() {
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{{"name":"x","a":{}{}}}}}"#,
        "[".repeat(300),
        "]".repeat(300)
    );
    let judgement = judge(vec![rule("no", tool("x"), block())]).line(C, deep.as_bytes());
    assert_eq!((text(&judgement).as_str(), &back(&judgement)["id"]), ("nothing", &json!(9)));
    for disguised in [deep.replace("method", "Method"), format!("[{}{deep}]", "{},".repeat(2000))] {
        let judgement = judge(vec![rule("no", tool("x"), block())]).line(C, disguised.as_bytes());
        assert_eq!(text(&judgement), "nothing", "{disguised}");
    }
}

#[test]
fn numbers_of_any_size_are_compared() {
    let large = Condition { path: path("$.n"), check: ValueCheck::greater(1e300) };
    let mut judge =
        judge(vec![rule("no", RuleMatch { conditions: vec![large], ..RuleMatch::default() }, block())]);
    for (number, stops) in [("1e400", true), ("1e10", false), ("\"1e301\"", true), ("\"x\"", false)] {
        let line = format!(r#"{{"id":1,"method":"m","params":{{"n":{number}}}}}"#);
        assert_eq!(judge.line(C, line.as_bytes()).forwarded == Forwarded::Nothing, stops, "{number}");
    }
}

#[test]
fn an_answer_is_judged_by_the_rules_of_its_request() {
    let when = RuleMatch { direction: Some(S), ..tool("x") };
    let mut judge = judge(vec![rule("old", when.clone(), block())]);
    let answer = |id: u64| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
    judge.line(C, call(1, "x", &json!({})).as_bytes());
    judge.replace_rules(Arc::new(Rules::new(vec![rule("new", when, block())])));
    judge.line(C, call(2, "x", &json!({})).as_bytes());
    for (id, name) in [(1, "old"), (2, "new")] {
        let judgement = judge.line(S, answer(id).as_bytes());
        assert_eq!(judgement.marks.as_marks().rule_names(), [name]);
    }
}
