//! Backends that crash, hang, flood, fork or send invalid output. Each test checks what the client gets, and that
//! another backend of the same gateway answers meanwhile.

use std::time::Duration;

use scrubjay_gateway::config::BackendConfig;
use scrubjay_gateway::tree;
use serde_json::{Value, json};

use super::rig::{Client, Rig, error_message, program, repository, text, until};

/// How long a call to these backends may take.
const CALL_MAX: Duration = Duration::from_secs(30);
/// The same, in the test of this timeout.
const SHORT_CALL_MAX: Duration = Duration::from_secs(2);
/// How long a test waits for a list that names a missing backend.
const LIST_WAIT_MAX: Duration = Duration::from_secs(20);

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

    /// Makes the bad backend misbehave; returns the answer. The good one answers meanwhile and afterwards.
    async fn misbehave(&self, how: &str) -> Value {
        let client = self.client.clone();
        let (answer, ()) = tokio::join!(self.client.call(1, "bad_misbehave", json!({ "how": how })), async {
            let answer = client.call(2, "good_echo", json!({ "text": "meanwhile" })).await;
            assert_eq!(text(&answer), "meanwhile");
        });
        self.good_answers().await;
        answer
    }

    async fn good_answers(&self) {
        assert_eq!(text(&self.client.call(3, "good_echo", json!({ "text": "fine" })).await), "fine");
    }

    /// Checks that the bad backend answers again, after a restart or without one.
    async fn bad_answers(&self) {
        assert_eq!(text(&self.client.call(4, "bad_echo", json!({ "text": "again" })).await), "again");
    }

    /// Makes the bad backend misbehave in a way that neither fails the call nor restarts the backend.
    async fn survives(&self, how: &str, expected: &str) {
        let before = self.client.call(5, "bad_pid", json!({})).await;
        assert_eq!(text(&self.misbehave(how).await), expected);
        self.bad_answers().await;
        let after = self.client.call(6, "bad_pid", json!({})).await;
        assert_eq!(text(&before), text(&after), "the backend was restarted after {how}");
    }
}

#[tokio::test]
async fn a_crash_is_an_error_and_the_next_call_succeeds() {
    let pair = Pair::new().await;
    for how in ["crash", "crash_half_way", "crash"] {
        let answer = pair.misbehave(how).await;
        let why = error_message(&answer);
        assert!(why.contains("\"bad\"") && why.contains("exit status"), "{why}");
        // The end is on tape before the backend is needed again.
        let tape = String::from_utf8_lossy(&pair.rig.payloads("client")).into_owned();
        let ends: Vec<&str> = tape.lines().filter(|line| line.contains("backend_ended")).collect();
        let end: Value = serde_json::from_str(ends.last().expect("a note of the end")).expect("JSON");
        let status = if how == "crash" { 3 } else { 4 };
        assert_eq!((&end["backend"], &end["status"]), (&json!("bad"), &json!(status)), "{end}");
        pair.bad_answers().await;
    }
}

#[tokio::test]
async fn a_call_that_hangs_ends_at_its_timeout() {
    let mut bad = server("bad", &[]);
    bad.call_timeout = SHORT_CALL_MAX;
    let pair = Pair::with(bad).await;
    pair.client.await_tools(&["bad_misbehave"]).await;
    for how in ["never_answer", "hang"] {
        let start = tokio::time::Instant::now();
        let answer = pair.misbehave(how).await;
        assert!(error_message(&answer).contains("did not answer within 2s"), "{answer}");
        assert!(start.elapsed() >= SHORT_CALL_MAX, "the call ended before its timeout");
    }
}

#[tokio::test]
async fn a_backend_that_never_answers_the_handshake_does_not_affect_others() {
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
async fn a_program_that_does_not_exist_is_an_error_that_names_its_backend() {
    let pair = Pair::with(program("bad", "/nonexistent/server", &[], CALL_MAX)).await;
    let answer = pair.client.call(9, "bad_echo", json!({})).await;
    assert!(error_message(&answer).contains("bad"), "{answer}");
    pair.good_answers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_notifications_does_not_block_other_backends() {
    let pair = Pair::new().await;
    let client = pair.client.clone();
    let (flooded, ()) =
        tokio::join!(pair.client.call(1, "bad_misbehave", json!({ "how": "flood" })), async {
            for id in 100..150 {
                let answer = client.call(id, "good_echo", json!({ "text": "meanwhile" })).await;
                assert_eq!(text(&answer), "meanwhile");
            }
        });
    assert_eq!(text(&flooded), "flooded");
    pair.bad_answers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_blocks_its_backend_only_briefly() {
    let pair = Pair::new().await;
    let (client, _unread) = Client::not_reading(&pair.rig.gateway).await;
    // The gateway waits for it once, not for each of the 20,000 messages that it does not read.
    let flooded = client.call(1, "bad_misbehave", json!({ "how": "flood" })).await;
    assert_eq!(text(&flooded), "flooded");
    pair.bad_answers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_calls_leave_no_partial_line() {
    let pair = Pair::new().await;
    // The backend does not read while it sleeps, so lines longer than a pipe's buffer are written only in part.
    let sleeping = pair.client.clone();
    let nap = tokio::spawn(async move { sleeping.call(1, "bad_misbehave", json!({ "how": "nap" })).await });
    for id in 10..20 {
        pair.client.abandon_call(id, "bad_echo", json!({ "text": "x".repeat(300_000) })).await;
    }
    assert_eq!(text(&nap.await.expect("the call does not panic")), "slept");
    // A line that is not complete JSON would have ended the backend.
    let before = pair.client.call(5, "bad_pid", json!({})).await;
    pair.bad_answers().await;
    assert_eq!(text(&before), text(&pair.client.call(6, "bad_pid", json!({})).await));
}

#[tokio::test]
async fn child_processes_of_a_crashed_backend_are_ended() {
    // The binary does the same. Without it, orphans become children of a process that does not end them.
    tree::adopt_orphans().expect("Linux has subreapers");
    for how in ["grandchild", "escaped_grandchild"] {
        let pair = Pair::new().await;
        let file = pair.rig.data.path().join("pid");
        let answer = pair.client.call(1, "bad_misbehave", json!({ "how": how, "pid_file": file })).await;
        // The end of the backend is noticed although its child holds the stream open.
        assert!(error_message(&answer).contains("exit status: 5"), "{answer}");
        pair.good_answers().await;
        pair.bad_answers().await;
        let pid = std::fs::read_to_string(&file).expect("written before the crash");
        let pid = rustix::process::Pid::from_raw(pid.parse().expect("a pid")).expect("a pid");
        if how == "escaped_grandchild" {
            // A process that left its group is ended when the gateway's process exits, and this one goes on.
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("the grandchild lives");
        }
        until("the grandchild ends", || !tree::descendants().contains(&pid)).await;
    }
}

#[tokio::test]
async fn output_that_is_not_json_rpc_is_recorded_and_ignored() {
    let pair = Pair::new().await;
    pair.survives("garbage", "after garbage").await;
    pair.survives("crlf", "with crlf").await;
    pair.survives("byte_order_mark", "with a mark").await;
    pair.survives("bad_utf8", "caf\u{fffd}").await;
    pair.rig.gateway.shut_down("to look at its tapes");
    let tape = pair.rig.payloads("client");
    let has = |bytes: &[u8]| tape.windows(bytes.len()).any(|w| w == bytes);
    assert!(has(b"Listening on port 3000..."), "stray text is on tape");
    assert!(has(b"\n{\"jsonrpc\":\"2.0\",\"id\":\n"), "an incomplete message is on tape");
    assert!(has(b"\xff\xfe\x00 not text"), "bytes that are not UTF-8 are on tape unchanged");
    assert!(has(b"caf\xe9"), "an answer with such bytes is on tape unchanged");
}

#[tokio::test]
async fn unexpected_answers_reach_no_client() {
    let pair = Pair::new().await;
    pair.survives("duplicate", "first").await;
    pair.survives("unknown_ids", "after unknown ids").await;
    pair.rig.gateway.shut_down("to look at its tapes");
    let tape = String::from_utf8_lossy(&pair.rig.payloads("client")).into_owned();
    assert!(tape.contains("second"), "the second answer is on tape");
    assert_eq!(tape.matches("to nobody").count(), 7, "all answers with unknown ids are on tape");
}

#[tokio::test]
async fn an_answer_above_the_size_limit_is_an_error() {
    let pair = Pair::new().await;
    let answer = pair.misbehave("huge").await;
    assert!(error_message(&answer).contains("beyond the limit"), "{answer}");
    pair.bad_answers().await;
    pair.rig.gateway.shut_down("to look at its tapes");
    let tape = String::from_utf8_lossy(&pair.rig.payloads("client")).into_owned();
    assert!(tape.contains("blake3") || tape.contains("\"hash\""), "its length and hash are on tape");
}

#[tokio::test]
async fn an_answer_with_neither_or_both_of_result_and_error_is_an_error() {
    let pair = Pair::new().await;
    let answer = pair.misbehave("neither").await;
    assert!(error_message(&answer).contains("neither result nor error"), "{answer}");
    assert_eq!(error_message(&pair.misbehave("both").await), "both");
    pair.bad_answers().await;
}

#[tokio::test]
async fn a_backend_with_too_large_capabilities_or_lists_is_left_out_and_named() {
    let script = repository().join("tests/bombs/bomb_server.py");
    let script = script.to_str().expect("a path in UTF-8");
    for (what, bytes, limit) in [
        ("capabilities", "100000", "its capabilities have 100"),
        ("pages", "4000000", "its tools/list has more than 16777216 bytes in all (limits.max_message_size)"),
    ] {
        let args = ["-B", script, what, bytes, "1"];
        let pair = Pair::with(program("bad", "python3", &args, CALL_MAX)).await;
        let is_named = async {
            loop {
                let listed = pair.client.request(7, "tools/list", json!({})).await;
                let missing = &listed["result"]["_meta"]["scrubjay/incomplete"][0];
                assert_eq!(missing["backend"], "bad", "{what}: {listed}");
                if missing["why"].as_str().is_some_and(|why| why.contains(limit)) {
                    break;
                }
            }
        };
        tokio::time::timeout(LIST_WAIT_MAX, is_named)
            .await
            .expect("the list names the backend and the reason");
        pair.good_answers().await;
        assert!(
            String::from_utf8_lossy(&pair.rig.payloads("")).contains(limit),
            "{what}: the reason is on tape"
        );
    }
}
