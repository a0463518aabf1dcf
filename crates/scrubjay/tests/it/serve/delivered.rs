//! The tape tells what was delivered, on HTTP: as many messages stand on it unmarked as the client counts.

use std::io::Read;
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::rig::{Served, modern, open_session, repository, text, until};
use crate::delivered::{await_held_up, await_recorded, conversation, counted, why_marked};
use crate::harness::{DOWN, Lab, Recorded};

const STEPS: usize = 4000;
const PROGRESS: &str = "notifications/progress";

fn handles(era: &str) -> Vec<String> {
    let script = text(&repository().join("tests/backends/handles_server.py"));
    ["python3", "-B", &script, "--era", era].map(str::to_owned).to_vec()
}

/// Begins a call that makes progress, and reads nothing of it.
fn begin(served: &Served, era: &str, bytes: usize) -> TcpStream {
    let arguments = json!({ "steps": STEPS, "bytes": bytes });
    let params = json!({ "name": "count", "arguments": arguments, "_meta": { "progressToken": "p" } });
    if era == "modern" {
        let target = served.target().with("MCP-Protocol-Version", "2026-07-28");
        let target = target.with("Mcp-Method", "tools/call").with("Mcp-Name", "count");
        return target.begin("POST", &modern(7, "tools/call", &params).to_string());
    }
    let request = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    open_session(&served.target()).begin("POST", &request.to_string())
}

fn occurrences(bytes: &[u8], wanted: &str) -> usize {
    bytes.windows(wanted.len()).filter(|part| *part == wanted.as_bytes()).count()
}

/// Leaves a connection, and waits until the gateway has closed its end of it.
fn leave(stream: TcpStream) {
    let port = format!(":{:04X} ", stream.local_addr().expect("it is connected").port());
    drop(stream);
    // State 05: we have said that we left, and the other end has not.
    until("the gateway notices", || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").expect("there is /proc");
        let ours =
            |line: &&str| line.split_whitespace().nth(1).is_some_and(|own| own.ends_with(port.trim_end()));
        !sockets.lines().filter(ours).any(|line| line.split_whitespace().nth(3) == Some("05"))
    });
}

/// Ends the gateway as its user does, and returns the tape.
fn ended(lab: &Lab, mut served: Served) -> Recorded {
    served.signal(Signal::TERM);
    drop(served);
    conversation(lab)
}

#[test]
fn a_client_that_pauses_and_reads_on_loses_nothing() {
    for era in ["legacy", "modern"] {
        let lab = Lab::new();
        let served = Served::start(lab.data(), &[], &handles(era));
        let mut stream = begin(&served, era, 100);
        await_recorded(&lab, 150_000);
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).expect("the stream ends with the answer");
        let received = occurrences(&heard, PROGRESS);
        assert_eq!(occurrences(&heard, "counted"), 1, "{era}");
        let (marked, unmarked) = counted(&ended(&lab, served), DOWN, PROGRESS);
        assert_eq!((received, marked, unmarked), (STEPS, 0, STEPS), "{era}");
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_is_not_said_to_have_heard_the_rest() {
    for era in ["legacy", "modern"] {
        let lab = Lab::new();
        let served = Served::start(lab.data(), &[], &handles(era));
        // More than all buffers of the system hold.
        let mut stream = begin(&served, era, 5000);
        let mut heard = vec![0; 300_000];
        stream.read_exact(&mut heard).expect("it says that much");
        let received = occurrences(&heard, PROGRESS);
        // It pauses until everything behind is held up, and leaves.
        await_held_up(&lab);
        leave(stream);
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
fn an_answer_that_a_client_did_not_wait_for_is_marked() {
    let lab = Lab::new();
    let served = Served::start(lab.data(), &[], &handles("legacy"));
    let target = open_session(&served.target());
    let call = |id: u64, tool: &str, arguments: &Value| {
        let params = json!({ "name": tool, "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
    };
    let mut left = target.begin("POST", &call(5, "wait", &json!({})));
    let mut heard = Vec::new();
    // What is slow is answered on a stream, which begins with an event without data.
    while !heard.ends_with(b"\n\n\r\n") {
        let mut byte = [0];
        left.read_exact(&mut byte).expect("the stream begins");
        heard.push(byte[0]);
    }
    leave(left);
    assert!(target.post(&call(7, "release", &json!({}))).text().contains("done"));
    assert_eq!(target.delete().status, 200);
    let tape = ended(&lab, served);
    let (marked, unmarked) = counted(&tape, DOWN, "released");
    assert_eq!((marked, unmarked), (1, 0));
    assert_eq!(counted(&tape, DOWN, "done"), (0, 1));
}
