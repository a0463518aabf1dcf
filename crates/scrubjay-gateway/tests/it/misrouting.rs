//! Many clients use the same ids at once, and the backend answers in any order: nobody hears another's answer.

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
/// How many calls of one client are under way at once.
const AT_ONCE: usize = 16;
/// How many answers the backend keeps back, to mix them.
const KEPT_BACK: usize = 64;
/// How long it keeps them while nothing else comes.
const KEPT_FOR: Duration = Duration::from_micros(500);

/// Answers in both eras, what it was asked last perhaps first.
async fn answer_shuffled(theirs: DuplexStream) {
    let (reader, mut writer) = tokio::io::split(theirs);
    let mut lines: Lines<BufReader<ReadHalf<DuplexStream>>> = BufReader::new(reader).lines();
    let mut kept: Vec<String> = Vec::new();
    // Any sequence without a pattern will do; the same each time is easier to look into.
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    loop {
        let line = match tokio::time::timeout(KEPT_FOR, lines.next_line()).await {
            Ok(Ok(Some(line))) => Some(line),
            Ok(_) => return,
            Err(_) => None,
        };
        let quiet = line.is_none();
        kept.extend(line.as_deref().and_then(answer_to));
        while !kept.is_empty() && (quiet || kept.len() > KEPT_BACK) {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let chosen = usize::try_from(dice >> 33).expect("31 bits") % kept.len();
            if writer.write_all(kept.swap_remove(chosen).as_bytes()).await.is_err() {
                return;
            }
        }
        if quiet && kept.is_empty() {
            // Nothing to do before something comes.
            match lines.next_line().await {
                Ok(Some(line)) => kept.extend(answer_to(&line)),
                _ => return,
            }
        }
    }
}

fn answer_to(line: &str) -> Option<String> {
    let asked: Value = serde_json::from_str(line).expect("the gateway writes whole lines of JSON");
    let id = asked.get("id")?;
    let capabilities = json!({ "tools": {} });
    let result = match asked["method"].as_str()? {
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
            json!({ "content": [{ "type": "text", "text": asked["params"]["arguments"]["payload"] }] })
        }
        // A listener is answered when it ends.
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

/// Makes all calls of one client, with ids that every client uses.
async fn converse(client: Client, number: u64) {
    let calls = futures_util::stream::iter(1..=CALLS_EACH).map(|id| {
        let client = &client;
        async move {
            let payload = format!("client {number}, call {id}");
            let answer = client.call(id, "echo", json!({ "payload": payload })).await;
            assert_eq!(text(&answer), payload, "{answer}");
        }
    });
    calls.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_reaches_the_client_that_asked() {
    let rig = Rig::new(&[], vec![("shuffler", shuffler())]);
    // Half of them have sessions of their own; the others share one that is only inferred, as modern
    // clients of the same name do.
    let shared = rig.gateway.open_inferred_session("shared", "shared");
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        let client = if number % 2 == 0 {
            Client::legacy(&rig.gateway).await
        } else {
            Client::modern(&rig.gateway, shared.clone())
        };
        clients.spawn(converse(client, number));
    }
    let all = async {
        while let Some(done) = clients.join_next().await {
            done.expect("no client fails")
        }
    };
    // Some 20 s on two idle cores; a machine that is busy with other things may take its time.
    tokio::time::timeout(Duration::from_secs(300), all).await.expect("100,000 calls end in time");
}
