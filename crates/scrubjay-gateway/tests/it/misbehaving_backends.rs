//! Backends that crash, hang, flood, fork and babble: each with its outcome, and the good one beside them
//! answering all the while.

use std::time::Duration;

use scrubjay_gateway::config::BackendConfig;
use scrubjay_gateway::tree;
use serde_json::{Value, json};

use super::rig::{Client, Rig, error_message, program, repository, text, until};

/// How long a call to these backends may take.
const CALL_MAX: Duration = Duration::from_secs(30);
/// How long where it is the deadline that is tested.
const SHORT_CALL_MAX: Duration = Duration::from_secs(2);
/// How long anything that happens beside a call may take.
const SETTLE_MAX: Duration = Duration::from_secs(20);

fn server(id: &str, more: &[&str]) -> BackendConfig {
    let script = repository().join("tests/backends/bad_server.py");
    let mut args = vec!["-B", script.to_str().expect("a path in UTF-8"), id];
    args.extend(more);
    program(id, "python3", &args, CALL_MAX)
}

/// A bad backend and a good one behind one gateway, with a client.
struct Pair {
    rig: Rig,
    client: Client,
}

impl Pair {
    async fn new() -> Self {
        let pair = Self::with(server("bad", &[])).await;
        pair.client.await_tools(&["bad_echo"]).await;
        pair
    }

    async fn with(bad: BackendConfig) -> Self {
        let rig = Rig::new(&[bad, server("good", &[])], Vec::new());
        let client = Client::legacy(&rig.gateway).await;
        client.await_tools(&["good_echo"]).await;
        Self { rig, client }
    }

    async fn misbehave(&self, how: &str) -> Value {
        let beside = self.client.clone();
        let (answer, ()) = tokio::join!(
            self.client.call(1, "bad_misbehave", json!({ "how": how })),
            // While it misbehaves, the other one answers.
            async {
                let answer = beside.call(2, "good_echo", json!({ "text": "meanwhile" })).await;
                assert_eq!(text(&answer), "meanwhile");
            }
        );
        self.good_answers().await;
        answer
    }

    async fn good_answers(&self) {
        assert_eq!(text(&self.client.call(3, "good_echo", json!({ "text": "fine" })).await), "fine");
    }

    /// The bad backend answers, after a restart or without one.
    async fn bad_answers(&self) {
        assert_eq!(text(&self.client.call(4, "bad_echo", json!({ "text": "again" })).await), "again");
    }

    /// Misbehaves in a way that the call survives.
    async fn survives(&self, how: &str, expected: &str) {
        let before = self.client.call(5, "bad_pid", json!({})).await;
        assert_eq!(text(&self.misbehave(how).await), expected);
        self.bad_answers().await;
        let after = self.client.call(6, "bad_pid", json!({})).await;
        assert_eq!(text(&before), text(&after), "{how} is no reason to start it again");
    }
}

#[tokio::test]
async fn a_crash_is_an_error_and_the_next_call_succeeds() {
    let pair = Pair::new().await;
    for how in ["crash", "crash_half_way", "crash"] {
        let answer = pair.misbehave(how).await;
        let why = error_message(&answer);
        assert!(why.contains("\"bad\"") && why.contains("exit status"), "{why}");
        // It is on tape when it happens, not when the backend is next needed.
        let tape = String::from_utf8_lossy(&pair.rig.payloads("client")).into_owned();
        let ends: Vec<&str> = tape.lines().filter(|line| line.contains("backend_ended")).collect();
        let end: Value = serde_json::from_str(ends.last().expect("its end is noted")).expect("JSON");
        let status = if how == "crash" { 3 } else { 4 };
        assert_eq!((&end["backend"], &end["status"]), (&json!("bad"), &json!(status)), "{end}");
        pair.bad_answers().await;
    }
}

#[tokio::test]
async fn a_hang_ends_at_the_deadline() {
    let mut hasty = server("bad", &[]);
    hasty.call_timeout = SHORT_CALL_MAX;
    let pair = Pair::with(hasty).await;
    pair.client.await_tools(&["bad_misbehave"]).await;
    for how in ["never_answer", "hang"] {
        let begun = tokio::time::Instant::now();
        let answer = pair.misbehave(how).await;
        assert!(error_message(&answer).contains("did not answer within 2s"), "{answer}");
        assert!(begun.elapsed() >= SHORT_CALL_MAX, "no call ends before its deadline");
    }
}

#[tokio::test]
async fn a_backend_that_never_greets_is_missing_and_nothing_else() {
    let pair = Pair::with(server("bad", &["--silent"])).await;
    let tools = pair.client.list_tools(7).await;
    assert!(
        tools.contains(&"good_echo".to_owned()) && !tools.iter().any(|t| t.starts_with("bad")),
        "{tools:?}"
    );
    let answer = pair.client.call(8, "good_echo", json!({ "text": "still" })).await;
    assert_eq!(text(&answer), "still");
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_named_and_harmless() {
    let pair = Pair::with(program("bad", "/nonexistent/server", &[], CALL_MAX)).await;
    let answer = pair.client.call(9, "bad_echo", json!({})).await;
    assert!(error_message(&answer).contains("bad"), "{answer}");
    pair.good_answers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_notifications_drowns_nobody() {
    let pair = Pair::new().await;
    let beside = pair.client.clone();
    let (flooded, ()) =
        tokio::join!(pair.client.call(1, "bad_misbehave", json!({ "how": "flood" })), async {
            for id in 100..150 {
                let answer = beside.call(id, "good_echo", json!({ "text": "dry" })).await;
                assert_eq!(text(&answer), "dry");
            }
        });
    assert_eq!(text(&flooded), "flooded");
    pair.bad_answers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_holds_up_nobody_for_long() {
    let pair = Pair::new().await;
    let (deaf, _unread) = Client::not_reading(&pair.rig.gateway).await;
    // It is waited for once, not for each of the 20,000 messages it does not read.
    let flooded = deaf.call(1, "bad_misbehave", json!({ "how": "flood" })).await;
    assert_eq!(text(&flooded), "flooded");
    pair.bad_answers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_leave_do_not_leave_half_a_line() {
    let pair = Pair::new().await;
    // It does not read for now, so that lines much longer than a pipe are stuck half-way.
    let slow = pair.client.clone();
    let nap = tokio::spawn(async move { slow.call(1, "bad_misbehave", json!({ "how": "nap" })).await });
    for id in 10..20 {
        pair.client.abandon_call(id, "bad_echo", json!({ "text": "x".repeat(300_000) })).await;
    }
    assert_eq!(text(&nap.await.expect("no panic")), "slept");
    // Half a line would have been the end of it: it reads JSON or dies.
    let before = pair.client.call(5, "bad_pid", json!({})).await;
    pair.bad_answers().await;
    assert_eq!(text(&before), text(&pair.client.call(6, "bad_pid", json!({})).await));
}

#[tokio::test]
async fn what_a_dead_backend_leaves_behind_is_ended() {
    // As the gateway's own process does: without it, orphans go to somebody who does not look for them.
    tree::adopt_orphans().expect("Linux has subreapers");
    for how in ["grandchild", "escaped_grandchild"] {
        let pair = Pair::new().await;
        let file = pair.rig.data.path().join("pid");
        let answer = pair.client.call(1, "bad_misbehave", json!({ "how": how, "pid_file": file })).await;
        // It holds the stream open; that its parent is gone is noticed all the same.
        assert!(error_message(&answer).contains("exit status: 5"), "{answer}");
        pair.good_answers().await;
        pair.bad_answers().await;
        let pid = std::fs::read_to_string(&file).expect("written before the crash");
        let pid = rustix::process::Pid::from_raw(pid.parse().expect("a pid")).expect("a pid");
        if how == "escaped_grandchild" {
            // One that left its group is ended with the gateway's process, and here there is none.
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is alive");
        }
        until("the grandchild ends", || !tree::descendants().contains(&pid)).await;
    }
}

#[tokio::test]
async fn babble_is_kept_and_ignored() {
    let pair = Pair::new().await;
    pair.survives("garbage", "after garbage").await;
    pair.survives("crlf", "with crlf").await;
    pair.survives("byte_order_mark", "with a mark").await;
    pair.survives("bad_utf8", "caf\u{fffd}").await;
    pair.rig.gateway.shut_down("to look at its tapes");
    let tape = pair.rig.payloads("client");
    let has = |bytes: &[u8]| tape.windows(bytes.len()).any(|w| w == bytes);
    assert!(has(b"Listening on port 3000..."), "stray text is on tape");
    assert!(has(b"\n{\"jsonrpc\":\"2.0\",\"id\":\n"), "half a message is on tape");
    assert!(has(b"\xff\xfe\x00 not text"), "bytes that are no text are on tape as they came");
    assert!(has(b"caf\xe9"), "an answer with such bytes too");
}

#[tokio::test]
async fn answers_to_nobody_reach_nobody() {
    let pair = Pair::new().await;
    pair.survives("duplicate", "first").await;
    pair.survives("unknown_ids", "after unknown ids").await;
    pair.rig.gateway.shut_down("to look at its tapes");
    let tape = String::from_utf8_lossy(&pair.rig.payloads("client")).into_owned();
    assert!(tape.contains("second"), "the second answer is on tape");
    assert_eq!(tape.matches("to nobody").count(), 7, "and so is every made-up one");
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_an_error() {
    let pair = Pair::new().await;
    let answer = pair.misbehave("huge").await;
    assert!(error_message(&answer).contains("beyond the limit"), "{answer}");
    pair.bad_answers().await;
    pair.rig.gateway.shut_down("to look at its tapes");
    let tape = String::from_utf8_lossy(&pair.rig.payloads("client")).into_owned();
    assert!(tape.contains("blake3") || tape.contains("\"hash\""), "its length and hash are on tape");
}

#[tokio::test]
async fn an_answer_that_is_none_is_an_error() {
    let pair = Pair::new().await;
    let answer = pair.misbehave("neither").await;
    assert!(error_message(&answer).contains("neither result nor error"), "{answer}");
    assert_eq!(error_message(&pair.misbehave("both").await), "both");
    pair.bad_answers().await;
}

#[tokio::test]
async fn a_backend_that_says_too_much_of_itself_is_left_out_and_named() {
    let script = repository().join("tests/bombs/bomb_server.py");
    let script = script.to_str().expect("a path in UTF-8");
    for (what, bytes, limit) in [
        ("capabilities", "100000", "its capabilities have 100"),
        ("pages", "4000000", "its tools/list has more than 16777216 bytes in all (limits.max_message_size)"),
    ] {
        let args = ["-B", script, what, bytes, "1"];
        let pair = Pair::with(program("bad", "python3", &args, CALL_MAX)).await;
        let named = async {
            loop {
                let listed = pair.client.request(7, "tools/list", json!({})).await;
                let missing = &listed["result"]["_meta"]["scrubjay/incomplete"][0];
                assert_eq!(missing["backend"], "bad", "{what}: {listed}");
                if missing["why"].as_str().is_some_and(|why| why.contains(limit)) {
                    break;
                }
            }
        };
        tokio::time::timeout(SETTLE_MAX, named).await.expect("it is named with the reason");
        pair.good_answers().await;
        assert!(String::from_utf8_lossy(&pair.rig.payloads("")).contains(limit), "{what}: on tape");
    }
}
