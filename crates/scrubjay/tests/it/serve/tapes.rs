//! An agent that searches recordings through the gateway that makes them.

use serde_json::{Value, json};

use super::rig::{Served, answer_text, modern, post_modern, scratch};

fn call(served: &Served, id: u64, tool: &str, arguments: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    post_modern(&served.target(), &modern(id, "tools/call", &params)).json()
}

#[test]
fn calls_through_the_gateway_are_found_by_its_search() {
    let scratch = scratch();
    let data = scratch.path().join("data");
    let served = Served::start(&data, &["--toolsets", "sample,tapes"], &[]);
    let echoed = call(&served, 1, "echo", &json!({ "text": "a needle in a haystack" }));
    assert!(answer_text(&echoed).contains("needle"), "{echoed}");
    for round in 0..2 {
        let found = call(&served, 2 + round, "search_tapes", &json!({ "query": "needle" }));
        let data = &found["result"]["structuredContent"];
        // Both legs are on tape, and only one is found; the searches themselves are not.
        assert_eq!((&data["total"], &data["hits"][0]["name"]), (&json!(1), &json!("echo")), "{found}");
        assert!(answer_text(&found).contains("«needle»"), "{found}");
    }
    let shown = call(&served, 5, "analyze_tape", &json!({}));
    let profile = shown["result"]["structuredContent"]["performance_profile"].as_array().expect("a list");
    let subjects: Vec<&str> = profile.iter().filter_map(|row| row["subject"].as_str()).collect();
    assert!(subjects.contains(&"tools/call echo"), "{shown}");
    let refused = call(&served, 6, "search_tapes", &json!({ "query": "tol:x" }));
    assert_eq!(refused["result"]["structuredContent"]["error"]["code"], "INVALID_QUERY", "{refused}");
}
