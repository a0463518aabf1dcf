//! What the sample server offers, asked for in both eras.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{Client, Era};

const MIB: usize = 1024 * 1024;

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn tools_describe_themselves() {
    for era in Era::BOTH {
        let mut client = Client::open(era).await;
        let answer = client.ask("tools/list", json!({})).await;
        let tools = answer["result"]["tools"].as_array().unwrap();
        let names: BTreeSet<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, BTreeSet::from(["count", "echo", "fail", "large", "process", "slow"]));
        for tool in tools {
            assert!(tool["title"].is_string() && tool["description"].is_string(), "{tool}");
            assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool}");
            assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
            assert!(tool["inputSchema"]["properties"].is_object(), "{tool}");
        }
        client.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn schemas_state_limits_and_results() {
    let mut client = Client::open(Era::Modern).await;
    let answer = client.ask("tools/list", json!({})).await;
    let tool = |name: &str| {
        let tools = answer["result"]["tools"].as_array().unwrap();
        tools.iter().find(|tool| tool["name"] == name).unwrap()
    };
    assert_eq!(tool("slow")["inputSchema"]["properties"]["ms"]["maximum"], 60_000);
    assert_eq!(tool("slow")["outputSchema"]["required"], json!(["waited_ms"]));
    assert_eq!(tool("large")["inputSchema"]["properties"]["bytes"]["maximum"], 12 * MIB);
    assert_eq!(tool("count")["inputSchema"]["required"], json!(["to"]));
    assert_eq!(tool("count")["outputSchema"]["required"], json!(["counted_to"]));
    assert_eq!(tool("fail")["inputSchema"]["required"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn echo_sends_the_text_back() {
    for era in Era::BOTH {
        let mut client = Client::open(era).await;
        let result = client.call("echo", json!({"text": "Grüße, \"jay\"\n"})).await;
        assert_eq!(text(&result), "Grüße, \"jay\"\n");
        assert_eq!(result["isError"], false);
        let result_type = if era == Era::Modern { json!("complete") } else { Value::Null };
        assert_eq!(result["resultType"], result_type);
        client.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn slow_waits_as_long_as_asked() {
    for era in Era::BOTH {
        let mut client = Client::open(era).await;
        let start = Instant::now();
        let result = client.call("slow", json!({"ms": 60_000})).await;
        assert!(start.elapsed() >= Duration::from_secs(60));
        assert_eq!(result["structuredContent"], json!({"waited_ms": 60_000}));
        client.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn slow_stops_when_cancelled() {
    for era in Era::BOTH {
        let mut client = Client::open(era).await;
        let start = Instant::now();
        let params = json!({"name": "slow", "arguments": {"ms": 50_000}});
        let id = client.send_request("tools/call", params).await;
        let params = json!({"requestId": id, "reason": "changed my mind"});
        client.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})).await;
        // The next message answers this call: a cancelled request gets no answer.
        assert_eq!(text(&client.call("echo", json!({"text": "still here"})).await), "still here");
        client.close().await.unwrap();
        // A call still waiting would have held the close back for rmcp's five seconds.
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn fail_is_a_tool_error() {
    for era in Era::BOTH {
        let mut client = Client::open(era).await;
        let result = client.call("fail", json!({"message": "no such bird"})).await;
        assert_eq!(result["isError"], true);
        assert_eq!(text(&result), "no such bird");
        let result = client.call("fail", json!({})).await;
        assert_eq!(result["isError"], true);
        assert_eq!(text(&result), "this tool always fails");
        client.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn large_has_exactly_the_size_asked_for() {
    for era in Era::BOTH {
        let mut client = Client::open(era).await;
        for bytes in [0, 1, 100_000, 12 * MIB] {
            let result = client.call("large", json!({"bytes": bytes})).await;
            assert_eq!(text(&result).len(), bytes);
        }
        client.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_out_of_range_are_tool_errors_that_name_the_limit() {
    let mut client = Client::open(Era::Legacy).await;
    for (tool, arguments, limit) in [
        ("slow", json!({"ms": 60_001}), "60000"),
        ("large", json!({"bytes": 12 * MIB + 1}), "12582912"),
        ("count", json!({"to": 10_001}), "10000"),
        ("count", json!({"to": 1, "delay_ms": 10_001}), "10000"),
        ("slow", json!({"ms": -1}), "u32"),
    ] {
        let result = client.call(tool, arguments).await;
        assert_eq!(result["isError"], true, "{tool}: {result}");
        assert!(text(&result).contains(limit), "{tool}: {result}");
    }
}

#[tokio::test(start_paused = true)]
async fn count_reports_progress_to_a_caller_that_asked() {
    for (era, token) in [(Era::Legacy, json!("token")), (Era::Modern, json!(7))] {
        let mut client = Client::open(era).await;
        let params = json!({
            "name": "count",
            "arguments": {"to": 3, "delay_ms": 500},
            "_meta": {"progressToken": token},
        });
        let start = Instant::now();
        let id = client.send_request("tools/call", params).await;
        for step in 1..=3 {
            let message = client.receive().await;
            assert_eq!(message["method"], "notifications/progress");
            assert_eq!(message["params"]["progressToken"], token);
            assert_eq!(message["params"]["progress"], f64::from(step));
            assert_eq!(message["params"]["total"], 3.0);
        }
        let answer = client.answer_to(id).await;
        assert!(start.elapsed() >= Duration::from_millis(1500));
        assert_eq!(answer["result"]["structuredContent"], json!({"counted_to": 3}));
        client.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn count_is_silent_without_a_token() {
    for era in Era::BOTH {
        let mut client = Client::open(era).await;
        let result = client.call("count", json!({"to": 10_000})).await;
        assert_eq!(result["structuredContent"], json!({"counted_to": 10_000}));
        client.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_tool_is_a_protocol_error() {
    for era in Era::BOTH {
        let mut client = Client::open(era).await;
        let answer = client.ask("tools/call", json!({"name": "nope", "arguments": {}})).await;
        assert_eq!(answer["error"]["code"], -32602);
    }
}

#[tokio::test(start_paused = true)]
async fn the_readme_is_listed_and_read() {
    for era in Era::BOTH {
        let mut client = Client::open(era).await;
        let listed = client.ask("resources/list", json!({})).await;
        let readme = &listed["result"]["resources"][0];
        assert_eq!(readme["uri"], "sample://readme");
        assert_eq!(readme["mimeType"], "text/markdown");

        let read = client.ask("resources/read", json!({"uri": "sample://readme"})).await;
        let contents = &read["result"]["contents"][0];
        assert_eq!(contents["mimeType"], "text/markdown");
        assert_eq!(contents["text"].as_str().unwrap().len() as u64, readme["size"].as_u64().unwrap());
        assert_eq!(read["result"]["ttlMs"].is_u64(), era == Era::Modern);
        client.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_note_exists_for_any_plain_name() {
    for (era, not_found) in [(Era::Legacy, -32002), (Era::Modern, -32602)] {
        let mut client = Client::open(era).await;
        let listed = client.ask("resources/templates/list", json!({})).await;
        assert_eq!(listed["result"]["resourceTemplates"][0]["uriTemplate"], "sample://note/{name}");

        let read = client.ask("resources/read", json!({"uri": "sample://note/blue-jay_2"})).await;
        assert!(read["result"]["contents"][0]["text"].as_str().unwrap().contains("blue-jay_2"));

        for uri in ["sample://note/", "sample://note/a/b", "sample://note/a%2Fb", "sample://other"] {
            let answer = client.ask("resources/read", json!({"uri": uri})).await;
            assert_eq!(answer["error"]["code"], not_found, "{uri}");
        }
        client.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_prompt_mentions_its_topic() {
    for era in Era::BOTH {
        let mut client = Client::open(era).await;
        let listed = client.ask("prompts/list", json!({})).await;
        let prompt = &listed["result"]["prompts"][0];
        assert_eq!(prompt["name"], "summarize");
        assert_eq!(prompt["arguments"][0]["name"], "topic");
        assert_eq!(prompt["arguments"][0]["required"], true);

        let params = json!({"name": "summarize", "arguments": {"topic": "scrub jays"}});
        let got = client.ask("prompts/get", params).await;
        let message = &got["result"]["messages"][0];
        assert_eq!(message["role"], "user");
        assert!(message["content"]["text"].as_str().unwrap().contains("scrub jays"));

        let answer = client.ask("prompts/get", json!({"name": "summarize"})).await;
        assert_eq!(answer["error"]["code"], -32602);
        client.close().await.unwrap();
    }
}
