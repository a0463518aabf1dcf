//! Nested messages and tasks: each is judged as if it were a message of its own.

use super::*;

fn methods(names: &[&str]) -> RuleMatch {
    RuleMatch { methods: globs(names), ..RuleMatch::default() }
}

/// An answer with a request for input; `state` is the server's own.
fn demand(id: u64, requests: &str, state: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"input_required","inputRequests":{requests},"requestState":"{state}"}}}}"#
    )
}

fn given(id: u64, responses: &str, state: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"asks","arguments":{{}},"inputResponses":{responses},"requestState":"{state}"}}}}"#
    )
}

const SAMPLE: &str = r#"{"a":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":10}}}"#;
const FORM: &str = r#"{"f":{"method":"elicitation/create","params":{"message":"who?"}}}"#;

fn names(judgement: &Judgement) -> Vec<String> {
    judgement.marks.as_marks().rule_names().into_iter().map(str::to_owned).collect()
}

/// Makes a call, and judges its answer.
fn after_call(judge: &mut Judge, answer: &str) -> Judgement {
    judge.line(C, call(1, "asks", &json!({})).as_bytes());
    judge.line(S, answer.as_bytes())
}

#[test]
fn an_input_request_is_judged_as_a_request() {
    for when in
        [methods(&["sampling/createMessage"]), RuleMatch { direction: Some(S), ..methods(&["sampling/*"]) }]
    {
        let mut judge = judge(vec![rule("no-sampling", when, block())]);
        let judgement = after_call(&mut judge, &demand(1, SAMPLE, "s"));
        let onward: Value = serde_json::from_str(&text(&judgement)).unwrap();
        assert_eq!(
            onward,
            json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -7, "message": "no", "data": { "rule": "no-sampling" } } })
        );
        assert_eq!(
            (names(&judgement), judgement.marks.as_marks().effects),
            (vec!["no-sampling".to_owned()], RuleEffects::BLOCKED)
        );
        // Another request for input passes, byte for byte.
        assert_eq!(after_call(&mut judge, &demand(1, FORM, "s")), Judgement::default());
    }
    // An `allow` of the call is not one of the requests for input in its result.
    let mut judge = judge(vec![
        rule("fine", tool("asks"), RuleAction::Allow),
        rule("no-sampling", methods(&["sampling/*"]), block()),
    ]);
    assert!(text(&after_call(&mut judge, &demand(1, SAMPLE, "s"))).contains("no-sampling"));
}

#[test]
fn an_input_request_is_found_in_every_legal_position() {
    let no_sampling = || judge(vec![rule("no", methods(&["sampling/*"]), block())]);
    let task = format!(r#""taskId":"t","status":"input_required","inputRequests":{SAMPLE}"#);
    for answer in [
        format!(r#"{{"id":1,"result":{{"inputRequests":{SAMPLE}}}}}"#),
        format!(r#"{{"id":1,"result":{{"task":{{{task}}}}}}}"#),
        format!(r#"{{"id":1,"result":{{{task}}}}}"#),
        demand(1, &SAMPLE.replace("sampling/", r"s\u0061mpling\/"), "s"),
        demand(1, SAMPLE, "s").replace("inputRequests", r"input\u0052equests"),
        format!(r#"{{"id":1,"result":{{"taskId":"t","result":{{"inputRequests":{SAMPLE}}}}}}}"#),
    ] {
        assert!(text(&after_call(&mut no_sampling(), &answer)).contains(r#""rule":"no""#), "{answer}");
    }
    let news = format!(r#"{{"method":"notifications/tasks","params":{{{task}}}}}"#);
    assert_eq!(text(&no_sampling().line(S, news.as_bytes())), "nothing");
    // In earlier versions an error may demand input.
    let mut no_forms = judge(vec![rule("no-forms", methods(&["elicitation/create"]), block())]);
    for (code, stops) in [("-32042", true), ("-3.2042e4", true), ("-32000", false)] {
        let data = r#"{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://x","message":"m"}]}"#;
        let answer = format!(r#"{{"id":1,"error":{{"code":{code},"message":"m","data":{data}}}}}"#);
        let judgement = after_call(&mut no_forms, &answer);
        assert_eq!(names(&judgement) == ["no-forms"], stops, "{answer}");
    }
}

#[test]
fn ambiguous_nested_messages_are_refused() {
    let mut judge = judge(vec![rule("no", methods(&["sampling/*"]), block())]);
    for (answer, why) in [
        (demand(1, SAMPLE, "s").replace("inputRequests", "InputRequests"), "strict/spelling"),
        (demand(1, &SAMPLE.replace("method", "Method"), "s"), "strict/spelling"),
        (demand(1, r#"{"a":{"params":{}}}"#, "s"), "strict/message"),
        (demand(1, r#"{"a":{"id":1,"result":{}}}"#, "s"), "strict/message"),
        (demand(1, r#"{"a":"sampling/createMessage"}"#, "s"), "strict/message"),
        (demand(1, r#"[{"method":"sampling/createMessage"}]"#, "s"), "strict/message"),
        (demand(1, r#"{"a":{"method":"sampling/createMessage\u0000"}}"#, "s"), "strict/name"),
        (demand(1, r#"{"a":{"method":"tools/call","params":{"Name":"x"}}}"#, "s"), "strict/spelling"),
    ] {
        let judgement = after_call(&mut judge, &answer);
        assert_eq!(
            (names(&judgement), judgement.marks.is_refused()),
            (vec![why.to_owned()], true),
            "{answer}"
        );
    }
    let mut deep = format!(r#"{{"inputRequests":{SAMPLE}}}"#);
    for _ in 0..4 {
        deep = format!(r#"{{"taskId":"t","result":{deep}}}"#);
    }
    let judgement = after_call(&mut judge, &format!(r#"{{"id":1,"result":{deep}}}"#));
    assert_eq!(names(&judgement), ["strict/message"]);
}

#[test]
fn an_input_response_is_judged_as_the_answer_to_its_request() {
    let when = || RuleMatch { direction: Some(C), ..methods(&["elicitation/create"]) };
    let mut judge = judge(vec![rule("no-forms", when(), block())]);
    let both = format!("{},{}", &SAMPLE[..SAMPLE.len() - 1], &FORM[1..]);
    assert_eq!(after_call(&mut judge, &demand(1, &both, "s1")), Judgement::default());
    let form = r#"{"f":{"action":"accept","content":{"password":"hunter2"}}}"#;
    let judgement = judge.line(C, given(2, form, "s1").as_bytes());
    assert_eq!(
        (text(&judgement).as_str(), &back(&judgement)["error"]["data"]["rule"]),
        ("nothing", &json!("no-forms"))
    );
    let sample = r#"{"a":{"role":"assistant","content":{"type":"text","text":"x"}}}"#;
    assert_eq!(judge.line(C, given(3, sample, "s1").as_bytes()), Judgement::default());
    // With another state or key, it may be a response to any request for input.
    for (responses, state) in [(sample, "s2"), (&*sample.replace("\"a\"", "\"b\""), "s1")] {
        assert_eq!(names(&judge.line(C, given(4, responses, state).as_bytes())), ["no-forms"], "{responses}");
    }
    let other = RuleMatch { direction: Some(C), ..methods(&["prompts/*"]) };
    let mut judge = super::judge(vec![rule("no-prompts", other, block()), rule("no-x", tool("x"), block())]);
    assert_eq!(judge.line(C, given(4, sample, "s2").as_bytes()), Judgement::default());
}

#[test]
fn changes_apply_to_nested_messages_and_marks_add_up() {
    let change = RuleChange::set(path("$.maxTokens"), "5".to_owned());
    let mask = RuleChange::replace(path("$..text"), "hunter2", "***".to_owned()).unwrap();
    let mut judge = judge(vec![
        rule("cap", methods(&["sampling/*"]), RuleAction::Modify(vec![change, mask])),
        rule("slow", methods(&["sampling/*"]), RuleAction::Delay(Duration::from_secs(1))),
        rule("seen", methods(&["sampling/*"]), RuleAction::Tag(vec!["asked".to_owned()])),
        rule(
            "canned",
            RuleMatch { direction: Some(C), ..methods(&["roots/list"]) },
            RuleAction::Mock { result: r#"{"roots":[]}"#.to_owned() },
        ),
        rule(
            "made",
            RuleMatch { direction: Some(S), ..methods(&["elicitation/*"]) },
            RuleAction::Mock { result: "{}".to_owned() },
        ),
    ]);
    let asked = format!(r#"{},"r":{{"method":"roots/list"}}}}"#, &SAMPLE[..SAMPLE.len() - 1]);
    let judgement = after_call(&mut judge, &demand(1, &asked, "s"));
    assert_eq!(text(&judgement), demand(1, &asked.replace("\"maxTokens\":10", "\"maxTokens\":5"), "s"));
    assert_eq!(
        (judgement.delay, judgement.marks.as_marks().tag_names()),
        (Duration::from_secs(1), vec!["asked"])
    );
    assert_eq!(judgement.marks.as_marks().effects.names(), ["changed", "delayed"]);
    let responses = r#"{"a":{"content":{"text":"hunter2"}},"r":{"roots":[{"uri":"file:///home"}]}}"#;
    let judgement = judge.line(C, given(2, responses, "s").as_bytes());
    let expected = r#"{"a":{"content":{"text":"***"},"maxTokens":5},"r":{"roots":[]}}"#;
    assert_eq!(text(&judgement), given(2, expected, "s"));
    // A request for input cannot be answered from here.
    let judgement = after_call(&mut judge, &demand(1, FORM, "s"));
    assert!(text(&judgement).contains(r#""rule":"made""#), "{judgement:?}");
}

fn with_task(id: u64, tool: &str) -> String {
    call(id, tool, &json!({})).replace("\"arguments\"", "\"task\":{\"ttl\":1},\"arguments\"")
}

fn ask(id: u64, method: &str, task: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"taskId":{task}}}}}"#)
}

fn hide() -> Vec<Rule> {
    let text =
        Condition { path: path("$.content[0].text"), check: ValueCheck::contains("SECRET".to_owned()) };
    vec![rule("hide", RuleMatch { direction: Some(S), conditions: vec![text], ..tool("secret") }, block())]
}

const SECRET: &str = r#"{"content":[{"type":"text","text":"SECRET"}]}"#;

#[test]
fn the_result_of_a_task_matches_the_rules_of_its_call() {
    for begun in
        [r#"{"task":{"taskId":"TASK","status":"working"}}"#, r#"{"resultType":"task","taskId":"TASK"}"#]
    {
        let mut judge = judge(hide());
        for (id, name) in [(1, "secret"), (2, "plain")] {
            judge.line(C, with_task(id, name).as_bytes());
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, begun.replace("TASK", name));
            assert_eq!(judge.line(S, answer.as_bytes()), Judgement::default());
        }
        let mut brings = |task: &str, method: &str, result: &str| {
            judge.line(C, ask(5, method, task).as_bytes());
            let judgement =
                judge.line(S, format!(r#"{{"jsonrpc":"2.0","id":5,"result":{result}}}"#).as_bytes());
            !names(&judgement).is_empty()
        };
        let inline = format!(r#"{{"taskId":"secret","status":"completed","result":{SECRET}}}"#);
        let unnamed = format!(r#"{{"status":"completed","result":{SECRET}}}"#);
        for _ in 0..2 {
            assert!(brings("\"secret\"", "tasks/result", SECRET));
            assert!(brings(r#""s\u0065cret""#, "tasks/result", SECRET));
            assert!(
                brings("\"secret\"", "tasks/get", &inline) && brings("\"secret\"", "tasks/get", &unnamed)
            );
            assert!(!brings("\"secret\"", "tasks/get", r#"{"taskId":"secret","status":"working"}"#));
            assert!(
                !brings("\"plain\"", "tasks/result", SECRET) && !brings("\"plain\"", "tasks/get", &inline)
            );
            assert!(brings("\"other\"", "tasks/result", SECRET), "an unknown task may be any");
        }
        let news = |task: &str| {
            format!(r#"{{"method":"notifications/tasks","params":{}}}"#, inline.replace("\"secret\"", task))
        };
        assert_eq!(text(&judge.line(S, news("\"secret\"").as_bytes())), "nothing");
        assert_eq!(text(&judge.line(S, news("\"other\"").as_bytes())), "nothing");
        assert_eq!(text(&judge.line(S, news("\"plain\"").as_bytes())), "same");
    }
}

#[test]
fn naming_a_task_again_does_not_change_its_rules() {
    let begun = |id: u64| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"task":{{"taskId":"t"}}}}}}"#);
    let result = format!(r#"{{"jsonrpc":"2.0","id":9,"result":{SECRET}}}"#);
    let mut judge = judge(hide());
    // The answer to an unknown request does not tell which call began the task.
    judge.line(S, begun(7).as_bytes());
    judge.line(C, ask(9, "tasks/result", "\"t\"").as_bytes());
    assert_eq!(names(&judge.line(S, result.as_bytes())), ["hide"]);
    // A second call does not replace the first.
    for (id, name) in [(1, "secret"), (2, "plain")] {
        judge.line(C, with_task(id, name).as_bytes());
        judge.line(S, begun(id).as_bytes());
    }
    judge.line(C, ask(9, "tasks/result", "\"t\"").as_bytes());
    assert_eq!(names(&judge.line(S, result.as_bytes())), ["hide"]);
    // Under other rules the task is unknown.
    judge.line(C, with_task(1, "plain").as_bytes());
    judge.line(S, begun(1).replace("\"t\"", "\"u\"").as_bytes());
    judge.replace_rules(Arc::new(Rules::new(hide())));
    judge.line(C, ask(9, "tasks/result", "\"u\"").as_bytes());
    assert_eq!(names(&judge.line(S, result.as_bytes())), ["hide"]);
}

#[test]
fn rules_apply_to_a_client_that_answers_with_a_task() {
    let content = Condition { path: path("$.content"), check: ValueCheck::exists(true) };
    let when =
        RuleMatch { direction: Some(C), conditions: vec![content], ..methods(&["sampling/createMessage"]) };
    let mut judge = judge(vec![rule("no", when, block())]);
    judge.line(S, br#"{"id":1,"method":"sampling/createMessage","params":{"messages":[],"task":{}}}"#);
    assert_eq!(judge.line(C, br#"{"id":1,"result":{"task":{"taskId":"t"}}}"#), Judgement::default());
    judge.line(S, ask(2, "tasks/result", "\"t\"").as_bytes());
    assert_eq!(names(&judge.line(C, br#"{"id":2,"result":{"content":{}}}"#)), ["no"]);
}

#[test]
fn a_refused_batch_leaves_no_state() {
    let when = RuleMatch { direction: Some(S), ..tool("secret") };
    let mut judge = judge(vec![rule("hide", when, block())]);
    let batch = format!(r#"[{},{{"id":2,"Method":"x"}}]"#, call(1, "secret", &json!({})));
    assert!(judge.line(C, batch.as_bytes()).marks.is_refused());
    judge.line(C, call(1, "plain", &json!({})).as_bytes());
    let answer = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    assert_eq!(judge.line(S, answer), Judgement::default(), "the call of secret went nowhere");
    // An answer in a refused batch is replaced once, by an error.
    judge.line(C, call(1, "plain", &json!({})).as_bytes());
    judge.line(C, call(1, "plain", &json!({})).as_bytes());
    assert!(judge.line(S, br#"[{"id":1,"result":{}},{"id":9,"Result":{}}]"#).marks.is_refused());
    assert_eq!(judge.line(S, answer), Judgement::default());
    assert_eq!(names(&judge.line(S, answer)), ["hide"]);
}

#[test]
fn the_output_of_a_rule_is_checked_like_a_message() {
    let set = |place: &str, json: &str| {
        let change = RuleChange::set(path(place), json.to_owned());
        let mut judge = judge(vec![rule("r", RuleMatch::default(), RuleAction::Modify(vec![change]))]);
        names(&judge.line(C, call(1, "x", &json!({ "a": 1 })).as_bytes()))
    };
    assert_eq!(set("$.arguments.a", "2"), ["r"]);
    assert_eq!(set("$.arguments.a", r#"{"b":1,"b":2}"#), ["strict/duplicate-key"]);
    assert_eq!(set("$.name", "\"x\u{200b}\""), ["strict/name"]);
    assert_eq!(set("$.Arguments2", "1"), ["r"]);
}
