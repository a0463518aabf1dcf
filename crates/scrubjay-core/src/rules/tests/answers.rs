//! For any order of answers, any ids and any changes of rules: an answer that is blocked by the rules of its request
//! does not pass.

use proptest::prelude::*;

use super::*;

/// An event on a connection. Numbers choose one of the tools, ids or open calls.
#[derive(Clone, Debug)]
enum Step {
    /// The client calls a tool under one of a few ids, spelled as a number or a string.
    Call { id: u64, is_text: bool, tool: usize },
    /// The server answers one of the open calls.
    Answer(usize),
    /// The server answers two of them in one line.
    Batch(usize, usize),
    /// The answer to one of them is no longer awaited.
    Forget(usize),
    /// Other rules come into force.
    Replace(usize),
}

const TOOLS: [&str; 2] = ["secret", "plain"];

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..3u64, any::<bool>(), 0..TOOLS.len())
            .prop_map(|(id, is_text, tool)| Step::Call { id, is_text, tool }),
        4 => any::<usize>().prop_map(Step::Answer),
        1 => any::<(usize, usize)>().prop_map(|(one, other)| Step::Batch(one, other)),
        1 => any::<usize>().prop_map(Step::Forget),
        1 => (0..4usize).prop_map(Step::Replace),
    ]
}

/// Rules with the tools whose answers they block; the blocking rules have different numbers.
fn rule_set(which: usize) -> (Arc<Rules>, &'static [&'static str]) {
    let hide = |tool_name: &str| {
        let when = RuleMatch { direction: Some(S), ..tool(tool_name) };
        rule(&format!("hide-{tool_name}"), when, block())
    };
    let other = rule("other", tool("other"), RuleAction::Tag(vec!["seen".to_owned()]));
    let elsewhere =
        rule("elsewhere", RuleMatch { backends: globs(&["web"]), ..RuleMatch::default() }, block());
    let (rules, blocked): (_, &[&str]) = match which {
        0 => (vec![hide("secret")], &["secret"]),
        1 => (vec![other, hide("plain"), hide("secret")], &["plain", "secret"]),
        2 => (vec![other, hide("plain")], &["plain"]),
        _ => (vec![elsewhere], &[]),
    };
    (Arc::new(Rules::new(rules)), blocked)
}

/// A call that the server has not answered.
struct OpenCall {
    id: String,
    is_blocked: bool,
}

impl OpenCall {
    fn answer(&self) -> String {
        let text = if self.is_blocked { "HIDDEN" } else { "open" };
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"said":"{text}"}}}}"#, self.id)
    }
}

fn what_passes(judge: &mut Judge, line: &str) -> String {
    match judge.line(S, line.as_bytes()).forwarded {
        Forwarded::Unchanged => line.to_owned(),
        Forwarded::Changed(other) => String::from_utf8(other).unwrap(),
        Forwarded::Nothing => String::new(),
    }
}

fn take(open: &mut Vec<OpenCall>, which: usize) -> Option<OpenCall> {
    (!open.is_empty()).then(|| open.remove(which % open.len()))
}

proptest! {
    #[test]
    fn answers_that_the_rules_of_their_request_block_do_not_pass(
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let (rules, mut blocked) = rule_set(0);
        let mut judge = Judge::new(rules, "files", 4096);
        let mut open: Vec<OpenCall> = Vec::new();
        for step in steps {
            let line = match step {
                Step::Call { id, is_text, tool } => {
                    let asked = call(id, TOOLS[tool], &json!({}));
                    let id = if is_text { format!("\"{id}\"") } else { id.to_string() };
                    let asked = asked.replacen(&format!("\"id\":{}", id.trim_matches('"')), &format!("\"id\":{id}"), 1);
                    // While no rule is about the connection, calls are not recorded, so their ids are not used again
                    // here.
                    if !judge.is_strict() {
                        continue;
                    }
                    judge.line(C, asked.as_bytes());
                    open.push(OpenCall { id, is_blocked: blocked.contains(&TOOLS[tool]) });
                    continue;
                }
                Step::Replace(which) => {
                    let (rules, now_blocked) = rule_set(which);
                    judge.replace_rules(rules);
                    blocked = now_blocked;
                    continue;
                }
                Step::Forget(which) => {
                    if let Some(left) = take(&mut open, which) {
                        judge.forget(C, left.id.as_bytes());
                    }
                    continue;
                }
                Step::Answer(which) => take(&mut open, which).map(|one| one.answer()),
                Step::Batch(one, other) => {
                    let both = [take(&mut open, one), take(&mut open, other)];
                    let both: Vec<String> = both.iter().flatten().map(OpenCall::answer).collect();
                    (!both.is_empty()).then(|| format!("[{}]", both.join(",")))
                }
            };
            let Some(line) = line else { continue };
            let passed = what_passes(&mut judge, &line);
            prop_assert!(!passed.contains("HIDDEN"), "{line} passed as {passed}");
        }
    }
}

#[test]
fn answers_under_one_id_may_be_to_any_of_its_requests_until_all_are_answered() {
    let (rules, _) = rule_set(0);
    let mut judge = Judge::new(rules, "files", 4096);
    let answer = br#"{"jsonrpc":"2.0","id":"7","result":{}}"#;
    for tool in ["secret", "plain", "plain"] {
        judge.line(C, call(7, tool, &json!({})).as_bytes());
    }
    for _ in 0..3 {
        assert_eq!(judge.line(S, answer).marks.as_marks().rule_names(), ["hide-secret"]);
    }
    judge.line(C, call(7, "plain", &json!({})).as_bytes());
    assert_eq!(judge.line(S, answer), Judgement::default(), "the earlier ones are answered");
}

#[test]
fn unawaited_answers_do_not_push_out_open_requests() {
    let (rules, _) = rule_set(0);
    let mut judge = Judge::new(rules, "files", 4096);
    judge.line(C, call(0, "plain", &json!({})).as_bytes());
    for id in 1..=crate::operation::OPEN_MAX as u64 + 1 {
        judge.line(C, call(id, "plain", &json!({})).as_bytes());
        judge.forget(C, id.to_string().as_bytes());
    }
    assert_eq!(judge.line(S, br#"{"jsonrpc":"2.0","id":0,"result":{}}"#), Judgement::default());
}

#[test]
fn rules_may_change_often_while_a_call_is_under_way() {
    let (rules, _) = rule_set(0);
    let mut judge = Judge::new(rules, "files", 4096);
    for id in 0..10 {
        judge.line(C, call(id, "secret", &json!({})).as_bytes());
        judge.replace_rules(rule_set(0).0);
    }
    // Not even if no rule is in force any more.
    judge.replace_rules(rule_set(3).0);
    for id in 0..10 {
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        let judgement = judge.line(S, answer.as_bytes());
        let expected = if id < 6 { "strict/rules-changed" } else { "hide-secret" };
        assert_eq!(judgement.marks.as_marks().rule_names(), [expected], "{id}");
    }
    assert!(!judge.is_strict());
}
