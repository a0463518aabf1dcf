use std::time::Duration;

use scrubjay_core::entry::Direction;
use scrubjay_core::rules::{Forwarded, Judge};
use serde_json::json;

use crate::tests::{check_problems, loaded, problems};

const ALL: &str = r#"
recorder:
  rules:
    - name: no-deletes
      match:
        direction: client_to_server
        methods: ["tools/call"]
        backends: [files]
        tools: ["delete_*"]
        where:
          - { path: $.arguments.path, matches: ^/etc/ }
          - { path: $.arguments.force, exists: false }
          - { path: $.arguments.depth, less: 5 }
          - { path: $.arguments.depth, greater: 1 }
          - { path: $.arguments.depth, equals: 3 }
          - { path: $.arguments.path, contains: pass }
      action: block
      code: -32001
      message: deleting is not allowed here
    - name: cap
      match: { tools: [search] }
      action: modify
      set: { $.arguments.limit: 10, $.arguments.big: 1e400, $.arguments.half: .5, $.arguments.on: True, $.arguments.q2: [a, null] }
      remove: [$.arguments.debug]
      replace: [{ path: $.arguments.q, pattern: foo, with: bar }]
    - { name: slow, match: { methods: ["*/list"] }, action: delay, delay: 200ms }
    - { name: canned, match: { tools: [weather] }, action: mock, result: { content: [] } }
    - { name: note, action: tag, tags: [reviewed] }
    - { name: fine, action: allow }
"#;

fn line(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
}

#[test]
fn configured_rules_take_effect() {
    let rules = loaded(ALL).rules().unwrap();
    let judge = |line: &str| {
        Judge::new(rules.clone(), "files", 1 << 20).line(Direction::ClientToServer, line.as_bytes())
    };
    let delete = r#"{"name":"delete_file","arguments":{"path":"/etc/passwd","depth":3}}"#;
    let judged = judge(&line("tools/call", delete));
    let back = String::from_utf8(judged.back.unwrap()).unwrap();
    assert!(back.contains("-32001") && back.contains("deleting is not allowed here"), "{back}");
    for spared in ["/tmp/pass", "/etc/shadow"] {
        assert!(
            judge(&line("tools/call", &delete.replace("/etc/passwd", spared))).back.is_none(),
            "{spared}"
        );
    }
    let judged = judge(&line("tools/call", r#"{"name":"search","arguments":{"q":"a foo","debug":1}}"#));
    let Forwarded::Changed(other) = judged.forwarded else { panic!("{judged:?}") };
    assert_eq!(
        String::from_utf8(other).unwrap(),
        line(
            "tools/call",
            r#"{"name":"search","arguments":{"q":"a bar","limit":10,"big":1e400,"half":0.5,"on":true,"q2":["a",null]}}"#
        )
    );
    assert_eq!(judged.marks.as_marks().rule_names(), ["cap", "note", "fine"]);
    assert_eq!(judged.marks.as_marks().tag_names(), ["reviewed"]);
    assert_eq!(judge(&line("tools/list", "{}")).delay, Duration::from_millis(200));
    let judged = judge(&line("tools/call", r#"{"name":"weather"}"#));
    assert!(String::from_utf8(judged.back.unwrap()).unwrap().contains(r#""result":{"content":[]}"#));
}

#[test]
fn without_rules_none_are_in_force() {
    assert!(loaded("").rules().is_none());
    assert!(loaded("recorder: { rules: [] }").rules().is_none());
}

#[test]
fn wrong_rules_are_reported_with_their_line() {
    check_problems(
        "recorder:\n  rules:\n\
         \x20   - { name: a, action: shout }\n\
         \x20   - { name: b b, action: allow }\n\
         \x20   - { action: allow, code: 3 }\n\
         \x20   - name: d\n      action: block\n      match:\n        methods: ['tools/?']\n        direction: up\n        tool: [x]\n\
         \x20       where:\n          - { path: '$.a[', matches: '(' }\n          - { path: $.a }\n          - { path: $.a, greater: many }\n\
         \x20   - name: e\n      action: modify\n      set: { '$..': 1 }\n      remove: [$]\n      replace: [{ path: $.a, pattern: 'x*', with: '' }]\n\
         \x20   - { name: f, action: delay, delay: 2m }\n\
         \x20   - { name: g, action: mock }\n\
         \x20   - { name: h, action: tag, tags: ['a b'] }\n\
         \x20   - { name: h, action: modify }\n\
         \x20   - { name: i, action: allow, match: { tools: [] } }\n",
        &[
            ":3: recorder.rules[0].action must be allow, block, modify, delay, mock or tag, not \"shout\"",
            ":4: recorder.rules[1].name must be 1 to 64 letters, digits, _ - . : or /",
            ":5: recorder.rules[2].name is required",
            ":5: recorder.rules[2].code is not a known key: known are name, match, action",
            ":11: recorder.rules[3].match.tool is not a known key: did you mean `tools`?",
            ":9: recorder.rules[3].match.methods[0] is not a pattern: it holds '?', and the only wildcard is *",
            ":10: recorder.rules[3].match.direction must be client_to_server or server_to_client, not \"up\"",
            ":13: recorder.rules[3].match.where[0].path is not a JSONPath: a [ without its ] at character 4 of \"$.a[\"",
            ":13: recorder.rules[3].match.where[0].matches is not a regular expression: unclosed group",
            ":14: recorder.rules[3].match.where[1] must have one of exists, equals, contains, matches, greater, less",
            ":15: recorder.rules[3].match.where[2].greater must be a number, not \"many\"",
            ":18: recorder.rules[4].set.$.. is not a JSONPath: no name at character 4 of \"$..\"",
            ":19: recorder.rules[4].remove[0] is not a JSONPath: no step at character 2 of \"$\"",
            ":20: recorder.rules[4].replace[0].pattern matches the empty text, so it would match everywhere",
            ":21: recorder.rules[5].delay must be a duration of up to 1m, like 200ms, not \"2m\"",
            ":22: recorder.rules[6].result is required",
            ":23: recorder.rules[7].tags[0] must be 1 to 64 letters, digits, _ - . : or /",
            ":24: recorder.rules[8] must have at least one of set, remove and replace",
            ":25: recorder.rules[9].match.tools must name at least one: leave it out to match all",
        ],
    );
}

#[test]
fn two_rules_cannot_have_one_name() {
    let found =
        problems("recorder:\n  rules:\n    - { name: a, action: allow }\n    - { name: a, action: allow }\n");
    assert!(
        found[0].ends_with(":4: recorder.rules[1].name is the name of an earlier rule, too"),
        "{found:?}"
    );
}

#[test]
fn rules_are_shown_by_name_only() {
    let shown =
        loaded("recorder: { rules: [{ name: canned, action: mock, result: { token: s3cret } }] }").shown();
    let rules = shown.iter().find(|shown| shown.key == "recorder.rules").unwrap();
    assert_eq!(rules.value, json!(["canned: mock"]));
}

#[test]
fn a_rule_cannot_have_the_name_of_a_strict_check() {
    let found = problems("recorder: { rules: [{ name: strict/json, action: allow }] }");
    assert!(found[0].contains("recorder.rules[0].name must not begin with strict/"), "{found:?}");
}
