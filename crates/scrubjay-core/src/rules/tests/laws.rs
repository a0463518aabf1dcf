//! Properties: without an applying rule no byte changes, a change stays within its paths, and JSON stays valid.

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;

/// Nested JSON, with spellings that a rewrite would lose.
fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("1e400".to_owned()),
        Just("18446744073709551616".to_owned()),
        Just("1.10".to_owned()),
        Just("null".to_owned()),
        Just(r#""\u0061\ud83d\ude00\/""#.to_owned()),
        "[a-c ]{0,4}".prop_map(|text| format!("\"{text}\"")),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let member = ("[a-d]", inner.clone()).prop_map(|(key, value)| format!(" \"{key}\" :{value}"));
        prop_oneof![
            proptest::collection::vec(inner, 0..4).prop_map(|items| format!("[{} ]", items.join(" , "))),
            proptest::collection::vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

fn any_path(below: &'static str) -> impl Strategy<Value = String> {
    let step = prop_oneof![
        Just(".a".to_owned()),
        Just(".b".to_owned()),
        Just("..c".to_owned()),
        Just(".*".to_owned()),
        Just("[0]".to_owned()),
        Just("[-1]".to_owned()),
    ];
    proptest::collection::vec(step, 1..4).prop_map(move |steps| format!("{below}{}", steps.concat()))
}

fn any_change(below: &'static str) -> impl Strategy<Value = RuleChange> {
    prop_oneof![
        (any_path(below), any_json()).prop_map(|(place, json)| RuleChange::set(path(&place), json)),
        any_path(below).prop_map(|place| RuleChange::remove(path(&place))),
        (any_path(below), "[abc\"\\\\$0-2]{0,3}")
            .prop_map(|(place, with)| { RuleChange::replace(path(&place), "[ab]", with).unwrap() }),
    ]
}

/// Makes changes of a line, without a limit on its length; `None` if they leave it unchanged.
fn changed(line: &str, changes: Vec<RuleChange>) -> Result<Option<Vec<u8>>, TestCaseError> {
    let rules = Rules::new(vec![rule("r", RuleMatch::default(), RuleAction::Modify(changes))]);
    let judgement = Judge::new(Arc::new(rules), "files", 1 << 30).line(C, line.as_bytes());
    match judgement.forwarded {
        Forwarded::Unchanged => Ok(None),
        Forwarded::Changed(other) => Ok(Some(other)),
        // A key occurs twice.
        Forwarded::Nothing if judgement.marks.is_refused() => Ok(None),
        // Only a change that breaks the message would be refused.
        Forwarded::Nothing => Err(TestCaseError::fail("blocked")),
    }
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<Box<RawValue>>(text).is_ok()
}

proptest! {
    #[test]
    fn a_message_without_an_applying_rule_is_unchanged(line in prop_oneof![
        any::<Vec<u8>>(),
        any_json().prop_map(String::into_bytes),
        any_json().prop_map(|json| format!(r#"{{"method":"m","id":1,"params":{{"x":{json}}}}}"#).into_bytes()),
        any_json().prop_map(|json| format!(r#"[{{"result":{json},"id":1}}]"#).into_bytes()),
    ]) {
        let other = RuleMatch { methods: globs(&["n"]), ..RuleMatch::default() };
        let mut judge = judge(vec![rule("r", other, block())]);
        for direction in [C, S] {
            judge.line(direction.reversed(), br#"{"id":1,"method":"m"}"#);
            let judgement = judge.line(direction, &line);
            if !judgement.marks.is_refused() {
                prop_assert_eq!(judgement, Judgement::default());
            }
        }
    }

    #[test]
    fn messages_of_a_connection_without_rules_are_unchanged(line in prop_oneof![
        any::<Vec<u8>>(),
        any_json().prop_map(String::into_bytes),
    ]) {
        let other = RuleMatch { backends: globs(&["web"]), ..RuleMatch::default() };
        let mut judge = judge(vec![rule("r", other, block())]);
        prop_assert_eq!(judge.line(C, &line), Judgement::default());
        prop_assert_eq!(judge.line(S, &line), Judgement::default());
    }

    #[test]
    fn forwarded_messages_are_strict_json(line in prop_oneof![
        any::<Vec<u8>>(),
        "[\\[\\]{}\",:a0 \\\\\r\u{2028}]{0,80}".prop_map(String::into_bytes),
        any_json().prop_map(|json| format!("{{\"method\":\"m\",\"params\":{{\"x\u{2028}\":{json}}}}}").into_bytes()),
    ]) {
        let mut judge = judge(vec![rule("r", tool("x"), block())]);
        let onward = match judge.line(C, &line).forwarded {
            Forwarded::Unchanged => line,
            Forwarded::Changed(other) => other,
            Forwarded::Nothing => Vec::new(),
        };
        let is_blank = onward.iter().all(|b| matches!(b, b' ' | b'\t'));
        prop_assert!(is_blank || crate::json::strict::scan(&onward) == Ok(Vec::new()));
    }

    #[test]
    fn changed_messages_are_json_with_the_same_envelope(
        body in any_json(),
        changes in proptest::collection::vec(any_change("$.body"), 1..4),
    ) {
        let before = r#"{ "x":1e400, "method" : "m", "params" :{"body":"#;
        let behind = r#" } , "id":9007199254740991 }"#;
        let line = format!("{before}{body}{behind}");
        if let Some(other) = changed(&line, changes)? {
            prop_assert!(is_json(&other), "{}", String::from_utf8_lossy(&other));
            prop_assert!(other.starts_with(before.as_bytes()) && other.ends_with(behind.as_bytes()));
        }
    }

    #[test]
    fn a_change_below_one_member_keeps_the_others(
        (touched, left) in (any_json(), any_json()),
        change in any_change("$.a"),
    ) {
        let line = format!(r#"{{"method":"m","params":{{"a":{touched},"z":{left}}}}}"#);
        if let Some(other) = changed(&line, vec![change])? {
            let kept = format!(r#""z":{left}}}}}"#);
            prop_assert!(other.ends_with(kept.as_bytes()), "{}", String::from_utf8_lossy(&other));
        }
    }

    #[test]
    fn any_bytes_are_judged(line in any::<Vec<u8>>(), changes in proptest::collection::vec(any_change("$"), 1..3)) {
        let mut judge = judge(vec![rule("r", RuleMatch::default(), RuleAction::Modify(changes)), rule("s", RuleMatch::default(), block())]);
        judge.line(C, &line);
    }
}
