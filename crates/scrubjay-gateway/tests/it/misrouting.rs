//! Many clients use the same ids at the same time, and the backend answers in random order: each answer reaches the
//! client that made the call.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use scrubjay_gateway::backend::{Mount, Streams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf};

use super::rig::{Client, Rig, text};

const CLIENTS: u64 = 50;
/// 100,000 calls in all.
const CALLS_EACH: u64 = 2_000;
/// How many calls of one client are under way at the same time.
const CONCURRENT_CALLS: usize = 16;
/// How many answers the backend delays, to send them in another order.
const DELAYED_MAX: usize = 64;
/// How long it waits for the next request before it sends all delayed answers.
const DELAY: Duration = Duration::from_micros(500);

/// Answers requests of both eras, in random order.
async fn answer_shuffled(theirs: DuplexStream) {
    let (reader, mut writer) = tokio::io::split(theirs);
    let mut lines: Lines<BufReader<ReadHalf<DuplexStream>>> = BufReader::new(reader).lines();
    let mut delayed: Vec<String> = Vec::new();
    // The same sequence in each run, so that a failure can be repeated.
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    loop {
        let line = match tokio::time::timeout(DELAY, lines.next_line()).await {
            Ok(Ok(Some(line))) => Some(line),
            Ok(_) => return,
            Err(_) => None,
        };
        let is_idle = line.is_none();
        delayed.extend(line.as_deref().and_then(answer_to));
        while !delayed.is_empty() && (is_idle || delayed.len() > DELAYED_MAX) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let chosen = usize::try_from(random >> 33).expect("31 bits") % delayed.len();
            if writer.write_all(delayed.swap_remove(chosen).as_bytes()).await.is_err() {
                return;
            }
        }
        if is_idle && delayed.is_empty() {
            // Without the timeout, which would only wake it for nothing.
            match lines.next_line().await {
                Ok(Some(line)) => delayed.extend(answer_to(&line)),
                _ => return,
            }
        }
    }
}

fn answer_to(line: &str) -> Option<String> {
    let request: Value = serde_json::from_str(line).expect("the gateway writes whole lines of JSON");
    let id = request.get("id")?;
    let capabilities = json!({ "tools": {} });
    let result = match request["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "serverInfo": { "name": "shuffler", "version": "1" },
        }),
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
            "ttlMs": 0, "cacheScope": "private",
        }),
        "tools/list" => json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
        "tools/call" => {
            json!({ "content": [{ "type": "text", "text": request["params"]["arguments"]["payload"] }] })
        }
        // The gateway listens until the connection ends, so there is no answer.
        _ => return None,
    };
    Some(format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "result": result })))
}

fn shuffler() -> Mount {
    Arc::new(|| {
        let (ours, theirs) = tokio::io::duplex(256 * 1024);
        tokio::spawn(answer_shuffled(theirs));
        let (reader, writer) = tokio::io::split(ours);
        let streams: Streams = (Box::new(reader), Box::new(writer));
        streams
    })
}

/// Makes all calls of one client. Every client uses the same ids.
async fn make_calls(client: Client, number: u64) {
    let calls = futures_util::stream::iter(1..=CALLS_EACH).map(|id| {
        let client = &client;
        async move {
            let payload = format!("client {number}, call {id}");
            let answer = client.call(id, "echo", json!({ "payload": payload })).await;
            assert_eq!(text(&answer), payload, "{answer}");
        }
    });
    calls.buffer_unordered(CONCURRENT_CALLS).collect::<Vec<()>>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_reaches_the_client_that_made_the_call() {
    let rig = Rig::new(&[], vec![("shuffler", shuffler())]);
    // Half of the clients have their own sessions. The others share an inferred one, like modern clients with the same
    // name.
    let shared = rig.gateway.open_inferred_session("shared", "shared");
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        let client = if number % 2 == 0 {
            Client::legacy(&rig.gateway).await
        } else {
            Client::modern(&rig.gateway, shared.clone())
        };
        clients.spawn(make_calls(client, number));
    }
    let all = async {
        while let Some(done) = clients.join_next().await {
            done.expect("no client fails")
        }
    };
    // About 20 s on two idle cores; a busy machine needs longer.
    tokio::time::timeout(Duration::from_secs(300), all).await.expect("100,000 calls end in time");
}
