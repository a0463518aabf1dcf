//! The tape says what was delivered: it has as many messages without a mark as the receiver counts.
//!
//! Delivered means handed to the system. So a receiver that paused still finds the messages in its pipe that were
//! written before the sender ended, and counts them. One that leaves may count fewer, by as many as a pipe holds.

use std::time::Duration;

use rustix::process::Signal;
use scrubjay_tape::clock;
use serde_json::{Value, json};

use crate::harness::{DOWN, ExportedTape, Lab, Running, UP, kill, wait_for};

/// The most bytes that a pipe holds after it was enlarged.
const PIPE_BYTES_MAX: usize = 256 * 1024;
const STEPS: usize = 4000;
/// The mark of messages that were not written when the recorder stopped, because the client did not read.
pub(crate) const STOPPED: &str = "recorder stopped";

/// Counts the messages of one direction between client and gateway: those without a mark, and those with one.
pub(crate) fn counted(tape: &ExportedTape, direction: &str, holds: &str) -> (usize, usize) {
    let of_client = tape.messages(direction).filter(|entry| entry.json["via"].is_null());
    let wanted = of_client.filter(|entry| entry.payload.windows(holds.len()).any(|w| w == holds.as_bytes()));
    let (marked, unmarked): (Vec<_>, Vec<_>) = wanted.partition(|entry| !entry.json["undelivered"].is_null());
    (marked.len(), unmarked.len())
}

pub(crate) fn why_marked(tape: &ExportedTape) -> Vec<String> {
    let mut why: Vec<String> = tape
        .of_kind("message")
        .filter_map(|entry| entry.json["undelivered"].as_str().map(str::to_owned))
        .collect();
    why.dedup();
    why
}

/// Waits until the live tapes together have this many bytes.
pub(crate) fn await_recorded(lab: &Lab, bytes: u64) {
    wait_for("enough to be recorded", || (recorded_bytes(lab) >= bytes).then_some(()));
}

/// Waits until the live tapes have entries and have not grown for a second: then the receiver blocks the sender.
pub(crate) fn await_held_up(lab: &Lab) {
    let (mut before, mut since) = (0, clock::now().instant);
    wait_for("the recorder to be held up", || {
        let held = recorded_bytes(lab);
        if held != before {
            (before, since) = (held, clock::now().instant);
        }
        (held > 0 && since.elapsed() > Duration::from_secs(1)).then_some(())
    });
}

fn recorded_bytes(lab: &Lab) -> u64 {
    let files = std::fs::read_dir(lab.data().join("tapes")).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

fn whole_lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// A server that writes this many lines of this many bytes, and reads nothing.
fn talker(lines: usize) -> Vec<String> {
    let script = format!(
        "import sys\nfor n in range({lines}):\n print('{{\"n\":%06d,\"p\":\"%s\"}}' % (n, 'x' * 280), flush=False)"
    );
    ["python3", "-c", &script].map(str::to_owned).to_vec()
}

fn words(command: &[String]) -> Vec<&str> {
    command.iter().map(String::as_str).collect()
}

#[test]
fn messages_that_a_stopped_recorder_did_not_write_are_marked() {
    let lab = Lab::new();
    let mut wrapped = lab.wrap(&words(&talker(20_000))).start();
    wrapped.reads_stdout = false;
    await_held_up(&lab);
    kill(wrapped.pid(), Signal::TERM);
    wrapped.wait();
    wrapped.reads_stdout = true;
    let received = whole_lines(&wrapped.rest());
    wrapped.mark().await_gone();
    let tape = lab.only_tape();
    let (marked, unmarked) = counted(&tape, DOWN, "\"p\"");
    assert_eq!(unmarked, received, "{marked} are marked");
    assert!(marked > 0);
    assert_eq!(why_marked(&tape), [STOPPED]);
    // Few notes cover many messages.
    let notes = tape.of_kind("note").filter(|note| note.facts()["event"] == "undelivered").count();
    assert!((1..=20).contains(&notes), "{notes}");
    lab.verify();
}

#[test]
fn messages_after_the_client_left_are_marked_undelivered() {
    let lab = Lab::new();
    let mut wrapped = lab.wrap(&words(&talker(20_000))).start();
    let received = whole_lines(wrapped.await_output(500_000));
    wrapped.reads_stdout = false;
    await_held_up(&lab);
    wrapped.close_stdout();
    wrapped.close_stdin();
    wrapped.wait();
    wrapped.mark().await_gone();
    let tape = lab.only_tape();
    let (marked, unmarked) = counted(&tape, DOWN, "\"p\"");
    assert!(marked > 0, "{unmarked} of {received}");
    assert!(unmarked >= received);
    assert!((unmarked - received) * 300 <= PIPE_BYTES_MAX + 300_000, "{unmarked} of {received}");
    assert_eq!(why_marked(&tape), ["client left"]);
}

#[test]
fn messages_that_a_server_did_not_read_before_it_exited_are_marked() {
    let lab = Lab::new();
    let (unread, line) = (lab.file("unread"), format!("{{\"p\":\"{}\"}}\n", "x".repeat(1000)));
    // Reads a little, waits until nothing more arrives, prints how much it leaves unread, and ends.
    let script = "import array, fcntl, os, sys, termios, time\nos.read(0, 100)\n\
                  def held():\n b = array.array('i', [0]); fcntl.ioctl(0, termios.FIONREAD, b); return b[0]\n\
                  before = -1\nwhile held() != before:\n before = held(); time.sleep(1)\n\
                  open(sys.argv[1], 'w').write(str(held()))";
    let mut wrapped = lab.wrap(&["python3", "-c", script, &unread]).start();
    wrapped.send(line.repeat(3000).as_bytes());
    wrapped.wait();
    wrapped.mark().await_gone();
    let tape = lab.only_tape();
    let (marked, unmarked) = counted(&tape, UP, "\"p\"");
    let unread: usize = String::from_utf8_lossy(&lab.read("unread")).parse().expect("a number");
    assert_eq!(unmarked, (100 + unread) / line.len(), "{marked} are marked");
    assert!(marked > 0);
    assert_eq!(why_marked(&tape), ["server left"]);
}

#[test]
fn messages_to_an_unreachable_server_are_marked() {
    let lab = Lab::new();
    let mut wrapped = lab.start(&["wrap", "--url", "http://127.0.0.1:9/mcp"]);
    let asked = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let answer = wrapped.ask(1, "initialize", &asked);
    assert!(
        answer["error"]["message"].as_str().is_some_and(|why| why.contains("cannot be reached")),
        "{answer}"
    );
    wrapped.close_stdin();
    wrapped.wait();
    let tape = lab.only_tape();
    assert_eq!(why_marked(&tape), ["server unreachable"]);
    assert_eq!(counted(&tape, UP, "initialize"), (1, 0));
    assert_eq!(counted(&tape, DOWN, "cannot be reached"), (0, 1));
}

/// A gateway on standard streams, with a server that counts as its backend.
struct Counting {
    lab: Lab,
    gateway: Running,
    is_modern: bool,
}

impl Counting {
    fn start(era: &str) -> Self {
        let lab = Lab::new();
        let script = crate::harness::repository().join("tests/backends/handles_server.py");
        let script = script.to_str().expect("a path in UTF-8");
        let mut gateway =
            lab.start(&["serve", "--toolsets", "none", "--", "python3", "-B", script, "--era", era]);
        let is_modern = era == "modern";
        if !is_modern {
            let client = json!({ "name": "t", "version": "1" });
            let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
            assert!(gateway.ask(0, "initialize", &hello)["result"].is_object());
        }
        Self { lab, gateway, is_modern }
    }

    /// Calls a tool and does not wait for the answer.
    fn call(&mut self, id: u64, tool: &str, arguments: &Value) {
        let mut params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "p" } });
        if self.is_modern {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        self.gateway.send_line(&request.to_string());
    }

    fn tape(&self) -> ExportedTape {
        conversation(&self.lab)
    }
}

/// Returns the tape of the one client's conversation.
pub(crate) fn conversation(lab: &Lab) -> ExportedTape {
    let tapes = lab.tapes();
    let mut all = tapes.iter().map(|tape| lab.export(tape["id"].as_str().expect("an id")));
    let calls = |tape: &ExportedTape| {
        tape.messages(UP).any(|entry| entry.json["via"].is_null() && entry.json["method"] == "tools/call")
    };
    all.find(calls).expect("a conversation")
}

#[test]
fn a_client_that_pauses_gets_every_message() {
    for era in ["legacy", "modern"] {
        let mut counting = Counting::start(era);
        counting.gateway.reads_stdout = false;
        counting.call(1, "count", &json!({ "steps": STEPS, "bytes": 100 }));
        // More than all buffers hold, so the server is blocked.
        await_recorded(&counting.lab, 150_000);
        counting.gateway.reads_stdout = true;
        let mut received = 0;
        loop {
            let message = counting.gateway.message();
            if message["id"] == 1 {
                break;
            }
            received += usize::from(message["method"] == "notifications/progress");
        }
        counting.gateway.close_stdin();
        counting.gateway.wait();
        let (marked, unmarked) = counted(&counting.tape(), DOWN, "notifications/progress");
        assert_eq!((received, marked, unmarked), (STEPS, 0, STEPS), "{era}");
    }
}

#[test]
fn a_client_that_pauses_gets_notifications_without_a_call() {
    // More than the pipe, one write and the stream hold; the rest waits in the gateway.
    const MESSAGES: usize = 700;
    let mut counting = Counting::start("legacy");
    counting.gateway.reads_stdout = false;
    counting.call(1, "log", &json!({ "text": "x".repeat(180), "times": MESSAGES }));
    await_held_up(&counting.lab);
    counting.gateway.reads_stdout = true;
    let mut received = 0;
    while received < MESSAGES {
        received += usize::from(counting.gateway.message()["method"] == "notifications/message");
    }
    counting.gateway.close_stdin();
    counting.gateway.wait();
    let (marked, unmarked) = counted(&counting.tape(), DOWN, "notifications/message");
    assert_eq!((marked, unmarked), (0, MESSAGES));
}

#[test]
fn messages_that_a_stopped_gateway_did_not_write_are_marked() {
    for era in ["legacy", "modern"] {
        let mut counting = Counting::start(era);
        counting.gateway.reads_stdout = false;
        counting.call(1, "count", &json!({ "steps": STEPS, "bytes": 1000 }));
        await_recorded(&counting.lab, 400_000);
        kill(counting.gateway.pid(), Signal::TERM);
        counting.gateway.wait();
        counting.gateway.reads_stdout = true;
        let output = counting.gateway.rest();
        let lines: Vec<&[u8]> = output.split_inclusive(|byte| *byte == b'\n').collect();
        let received = lines.iter().filter(|line| line.ends_with(b"\n")).count();
        let tape = counting.tape();
        let (marked, unmarked) = counted(&tape, DOWN, "notifications/progress");
        assert_eq!(unmarked, received, "{era}: {marked} are marked");
        assert!(marked > 0, "{era}");
        assert_eq!(why_marked(&tape), [STOPPED], "{era}");
        shown(&counting.lab, &tape, marked);
    }
}

/// Reads a tape with marks in text and in JSON.
fn shown(lab: &Lab, tape: &ExportedTape, marked: usize) {
    let of = |why: Option<&str>| {
        let all = tape.of_kind("message").filter_map(|entry| entry.json["undelivered"].as_str());
        all.filter(|noted| why.is_none_or(|why| *noted == why)).count()
    };
    let all = of(None);
    let text = String::from_utf8(lab.run_ok(&["tape", "show", &tape.id()])).expect("text");
    let why = format!("undelivered: {STOPPED}");
    let rows = text.lines().filter(|line| line.contains("notice") && line.contains(&why));
    assert_eq!(rows.count(), marked);
    assert!(text.contains(&format!("; {all} undelivered")), "{}", text.lines().last().unwrap_or_default());
    let first = tape.of_kind("message").find(|entry| !entry.json["undelivered"].is_null()).expect("one");
    let number = first.json["entry"].to_string();
    let one = String::from_utf8(lab.run_ok(&["tape", "show", &tape.id(), "--entry", &number])).expect("text");
    assert!(one.contains(&format!("delivered  no: {STOPPED}")), "{one}");
    let stats = lab.json(&["tape", "stats", &tape.id(), "--json"]);
    assert_eq!(stats["undelivered"], all, "{stats}");
    let found = lab.json(&["tape", "search", "undelivered", "--json"]);
    assert!(found["hits"][0]["type"] == "note", "{found}");
    let found = lab.json(&[
        "tape",
        "search",
        "notifications/progress",
        "method:notifications/progress",
        "-via:python3",
        "limit:50",
        "--json",
    ]);
    let hits = found["hits"].as_array().expect("hits");
    let marked_hits = hits.iter().filter(|hit| hit["undelivered"] == STOPPED).count();
    assert!(marked_hits > 0, "{found}");
    // It survives being exported and imported.
    let exported = lab.run_ok(&["tape", "export", &tape.id(), "--format", "jsonl"]);
    let why = format!(r#""undelivered":"{STOPPED}""#);
    assert_eq!(String::from_utf8_lossy(&exported).matches(&why).count(), of(Some(STOPPED)));
}
