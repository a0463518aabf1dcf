//! The tape says what was delivered over HTTP: it has as many messages without a mark as the client counts.

use std::io::Read;
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::http::Target;
use super::rig::{Served, modern, open_session, repository, text, until};
use crate::delivered::{STOPPED, await_held_up, await_recorded, conversation, counted, why_marked};
use crate::harness::{DOWN, ExportedTape, Lab, UP};

const STEPS: usize = 4000;
const PROGRESS: &str = "notifications/progress";

fn handles(era: &str) -> Vec<String> {
    let script = text(&repository().join("tests/backends/handles_server.py"));
    ["python3", "-B", &script, "--era", era].map(str::to_owned).to_vec()
}

/// Begins a call with progress, and reads nothing of it.
fn begin(served: &Served, era: &str, bytes: usize) -> TcpStream {
    let arguments = json!({ "steps": STEPS, "bytes": bytes });
    if era == "modern" {
        let params = json!({ "name": "count", "arguments": arguments, "_meta": { "progressToken": "p" } });
        let target = served.target().with("MCP-Protocol-Version", "2026-07-28");
        let target = target.with("Mcp-Method", "tools/call").with("Mcp-Name", "count");
        return target.begin("POST", &modern(7, "tools/call", &params).to_string());
    }
    begin_in(&open_session(&served.target()), "count", &arguments)
}

/// Begins a call in a legacy session.
fn begin_in(target: &Target, tool: &str, arguments: &Value) -> TcpStream {
    let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "p" } });
    let request = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    target.begin("POST", &request.to_string())
}

/// Counts the events that are complete and have data.
fn whole_events(stream_bytes: &[u8], wanted: &str) -> usize {
    let mut events: Vec<&[u8]> = Vec::new();
    let mut rest = stream_bytes;
    while let Some(end) = rest.windows(2).position(|two| two == b"\n\n") {
        events.push(&rest[..end]);
        rest = &rest[end + 2..];
    }
    events.iter().filter(|event| occurrences(event, wanted) > 0).count()
}

fn occurrences(bytes: &[u8], wanted: &str) -> usize {
    bytes.windows(wanted.len()).filter(|part| *part == wanted.as_bytes()).count()
}

/// Leaves a connection, and waits until the gateway has closed its end of it.
fn leave(stream: TcpStream) {
    let port = format!(":{:04X} ", stream.local_addr().expect("it is connected").port());
    drop(stream);
    // State 05 (FIN-WAIT-2): we have closed our side, and the other end has not.
    until("the gateway closes its end", || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").expect("there is /proc");
        let ours =
            |line: &&str| line.split_whitespace().nth(1).is_some_and(|own| own.ends_with(port.trim_end()));
        !sockets.lines().filter(ours).any(|line| line.split_whitespace().nth(3) == Some("05"))
    });
}

/// Ends the gateway as its user does, and returns the tape.
fn ended(lab: &Lab, mut served: Served) -> ExportedTape {
    served.signal(Signal::TERM);
    drop(served);
    conversation(lab)
}

#[test]
fn a_client_that_pauses_gets_every_message() {
    for era in ["legacy", "modern"] {
        let lab = Lab::new();
        let served = Served::start(lab.data(), &[], &handles(era));
        let mut stream = begin(&served, era, 100);
        await_recorded(&lab, 150_000);
        let mut stream_bytes = Vec::new();
        stream.read_to_end(&mut stream_bytes).expect("the stream ends with the answer");
        let received = occurrences(&stream_bytes, PROGRESS);
        assert_eq!(occurrences(&stream_bytes, "counted"), 1, "{era}");
        let (marked, unmarked) = counted(&ended(&lab, served), DOWN, PROGRESS);
        assert_eq!((received, marked, unmarked), (STEPS, 0, STEPS), "{era}");
    }
}

#[test]
fn messages_after_the_client_left_are_marked_undelivered() {
    for era in ["legacy", "modern"] {
        let lab = Lab::new();
        let served = Served::start(lab.data(), &[], &handles(era));
        // More than all buffers of the operating system hold.
        let mut stream = begin(&served, era, 5000);
        let mut stream_bytes = vec![0; 300_000];
        stream.read_exact(&mut stream_bytes).expect("the stream has that many bytes");
        let received = occurrences(&stream_bytes, PROGRESS);
        // It pauses until the sender is blocked, and leaves.
        await_held_up(&lab);
        leave(stream);
        // If the client may come back, its call continues; the test must not stop it in the middle.
        await_held_up(&lab);
        let tape = ended(&lab, served);
        let (marked, unmarked) = counted(&tape, DOWN, PROGRESS);
        assert!(
            marked > 0 && unmarked >= received,
            "{era}: {marked} marked, {unmarked} not, {received} received"
        );
        assert!(
            why_marked(&tape).iter().all(|why| why == "client left" || why == "dropped by limit"),
            "{era}"
        );
    }
}

#[test]
fn messages_that_a_stopped_gateway_did_not_write_are_marked() {
    for era in ["legacy", "modern"] {
        let lab = Lab::new();
        let served = Served::start(lab.data(), &[], &handles(era));
        let mut stream = begin(&served, era, 200);
        await_held_up(&lab);
        let tape = ended(&lab, served);
        let mut stream_bytes = Vec::new();
        stream.read_to_end(&mut stream_bytes).expect("the stream ends with the gateway");
        let (marked, unmarked) = counted(&tape, DOWN, PROGRESS);
        assert_eq!(unmarked, whole_events(&stream_bytes, PROGRESS), "{era}: {marked} are marked");
        assert!(marked > 0, "{era}");
        let progress = tape.messages(DOWN).filter(|entry| entry.json["method"] == PROGRESS);
        let mut why = progress.filter_map(|entry| entry.json["undelivered"].as_str());
        assert!(why.all(|why| why == STOPPED), "{era}");
    }
}

/// An answer larger than the buffers of the operating system; its client reads the beginning and leaves. Not much larger:
/// an answer that takes long comes on a stream, which the client could resume.
fn leaves_in_a_long_answer(lab: &Lab, served: Served) {
    let target = open_session(&served.target());
    let mut stream = begin_in(&target, "long", &json!({ "bytes": 2_000_000 }));
    stream.read_exact(&mut [0; 1000]).expect("the answer begins");
    await_held_up(lab);
    drop(stream);
    until("the tape has the mark", || why_marked(&conversation(lab)) == ["client left"]);
    assert_eq!(counted(&ended(lab, served), DOWN, "xxxxxxxx"), (1, 0));
}

#[test]
fn a_partly_read_answer_is_marked_undelivered() {
    let lab = Lab::new();
    let served = Served::start(lab.data(), &[], &handles("legacy"));
    leaves_in_a_long_answer(&lab, served);

    let lab = Lab::new();
    let options = ["--"];
    let served = Served::wrap(lab.data(), &options, &handles("legacy"));
    leaves_in_a_long_answer(&lab, served);

    let (lab, behind) = (Lab::new(), Lab::new());
    let upstream = Served::wrap(behind.data(), &options, &handles("legacy"));
    let url = format!("http://{}/mcp", upstream.address);
    let served = Served::wrap(lab.data(), &["--url", &url], &[]);
    leaves_in_a_long_answer(&lab, served);
}

#[test]
fn events_read_after_resuming_a_stream_are_not_marked() {
    // More than the system's buffers hold, and less than the gateway keeps for a client that comes back.
    const EVENTS: usize = 180;
    let lab = Lab::new();
    let served = Served::start(lab.data(), &[], &handles("legacy"));
    let target = open_session(&served.target());
    let mut stream = begin_in(&target, "count", &json!({ "steps": EVENTS, "bytes": 5000 }));
    await_held_up(&lab);
    let mut beginning = [0; 1000];
    stream.read_exact(&mut beginning).expect("the stream begins");
    leave(stream);
    let beginning = String::from_utf8_lossy(&beginning).into_owned();
    let (_, rest) = beginning.split_once("id: ").expect("the first event has an id");
    let mut again = target.with("Last-Event-ID", rest.lines().next().expect("an id")).begin("GET", "");
    let mut stream_bytes = Vec::new();
    again.read_to_end(&mut stream_bytes).expect("the stream ends with the answer");
    assert_eq!(whole_events(&stream_bytes, PROGRESS), EVENTS);
    let (marked, unmarked) = counted(&ended(&lab, served), DOWN, PROGRESS);
    assert_eq!((marked, unmarked), (0, EVENTS));
}

#[test]
fn an_answer_that_ends_its_session_is_not_marked() {
    let lab = Lab::new();
    let served = Served::start(lab.data(), &[], &handles("legacy"));
    let refused = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {} });
    assert!(served.target().post(&refused.to_string()).text().contains("protocolVersion"));
    drop(served);
    let mut tapes = lab.tapes().into_iter().map(|tape| lab.export(tape["id"].as_str().expect("an id")));
    let tape = tapes.find(|tape| tape.messages(UP).next().is_some()).expect("a conversation");
    assert_eq!(counted(&tape, DOWN, "protocolVersion"), (0, 1));
}

#[test]
fn an_answer_that_a_client_did_not_wait_for_is_marked() {
    let lab = Lab::new();
    let served = Served::start(lab.data(), &[], &handles("legacy"));
    let target = open_session(&served.target());
    let call = |id: u64, tool: &str, arguments: &Value| {
        let params = json!({ "name": tool, "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
    };
    let mut left = target.begin("POST", &call(5, "wait", &json!({})));
    let mut stream_bytes = Vec::new();
    // A slow request is answered on a stream, which begins with an event without data.
    while !stream_bytes.ends_with(b"\n\n\r\n") {
        let mut byte = [0];
        left.read_exact(&mut byte).expect("the stream begins");
        stream_bytes.push(byte[0]);
    }
    leave(left);
    assert!(target.post(&call(7, "release", &json!({}))).text().contains("done"));
    assert_eq!(target.delete().status, 200);
    let tape = ended(&lab, served);
    let (marked, unmarked) = counted(&tape, DOWN, "released");
    assert_eq!((marked, unmarked), (1, 0));
    assert_eq!(counted(&tape, DOWN, "done"), (0, 1));
}
