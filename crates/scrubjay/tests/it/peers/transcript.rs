//! Reads what the taps saw: lines, eras, and what differs between any two runs.
//!
//! Works on text as far as it can, so that "the same" means the same bytes.

use super::rig::Server;
use serde_json::Value;

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// How the client opened the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// `initialize`, and no probe before it.
    Legacy,
    /// `server/discover`, and 2026-07-28 from there on.
    Modern,
    /// 2026-07-28 from the first message, without asking.
    Pinned,
    /// `server/discover`, then `initialize`.
    FellBack,
}

/// The two sides of a conversation, each in its own order.
pub(super) struct Transcript {
    pub(super) client: Vec<String>,
    pub(super) server: Vec<String>,
}

/// Splits bytes into lines; the framing says that each ends with a line feed.
pub(super) fn lines(bytes: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(bytes).expect("MCP is UTF-8");
    let text = text.strip_suffix('\n').expect("the last message is complete");
    text.split('\n').map(String::from).collect()
}

/// Tells the era from what the client sent.
pub(super) fn era(client_bytes: &[u8]) -> Era {
    let sent: Vec<Value> = lines(client_bytes).iter().map(|line| parse(line)).collect();
    let opener = method(&sent[0]).expect("a client opens with a request");
    let initializes = sent.iter().any(|message| method(message) == Some("initialize"));
    let is_modern = |message: &Value| message["params"]["_meta"][VERSION_KEY] == "2026-07-28";
    match (opener, initializes) {
        ("initialize", _) => Era::Legacy,
        ("server/discover", true) => Era::FellBack,
        ("server/discover", false) if sent.iter().all(is_modern) => Era::Modern,
        (_, false) if sent.iter().all(is_modern) => Era::Pinned,
        _ => panic!("no era opens with {opener}"),
    }
}

/// Hides what differs between any two runs, with or without wrap.
///
/// - `requestState` of `python_server.py`: sealed with a key of the process and a nonce.
/// - The roots exchange of server-everything: it asks for the client's roots 350 ms after `initialized`,
///   at any point of the conversation, if it has not ended.
///
/// Nothing else differed in a dozen direct runs, idle and under load.
pub(super) fn mask(client: Vec<String>, server: Vec<String>, peer: Server) -> Transcript {
    match peer {
        Server::Python => Transcript {
            client: client.iter().map(|line| mask_request_state(line)).collect(),
            server: server.iter().map(|line| mask_request_state(line)).collect(),
        },
        Server::Everything => drop_roots_exchange(client, server),
    }
}

fn mask_request_state(line: &str) -> String {
    let key = r#""requestState":""#;
    let Some((before, rest)) = line.split_once(key) else {
        return line.to_owned();
    };
    let (_, after) = rest.split_once('"').expect("a string ends");
    format!(r#"{before}{key}MASKED"{after}"#)
}

fn drop_roots_exchange(client: Vec<String>, server: Vec<String>) -> Transcript {
    let asks = |message: &Value| method(message) == Some("roots/list");
    let acknowledges = |message: &Value| {
        method(message) == Some("notifications/message") && message["params"]["logger"] == "everything-server"
    };
    let asked: Vec<Value> = server.iter().map(|line| parse(line)).filter(asks).collect();
    let answers = |message: &Value| {
        method(message).is_none() && asked.iter().any(|request| request["id"] == message["id"])
    };
    Transcript {
        client: client.into_iter().filter(|line| !answers(&parse(line))).collect(),
        server: server
            .into_iter()
            .filter(|line| !asks(&parse(line)) && !acknowledges(&parse(line)))
            .collect(),
    }
}

fn parse(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {}", shorten(line)))
}

fn method(message: &Value) -> Option<&str> {
    message["method"].as_str()
}

/// Compares two byte streams and points at the first difference.
#[track_caller]
pub(super) fn assert_same_bytes(what: &str, left: &[u8], right: &[u8]) {
    if left != right {
        let at = left.iter().zip(right).take_while(|(l, r)| l == r).count();
        let near = |bytes: &[u8]| shorten(&String::from_utf8_lossy(&bytes[at.saturating_sub(20)..]));
        let (left_bytes, right_bytes) = (left.len(), right.len());
        let (left, right) = (near(left), near(right));
        panic!("{what}: {left_bytes} and {right_bytes} bytes, differing at {at}:\n  {left}\n  {right}");
    }
}

/// Compares two lists of lines and shows the first that differ.
#[track_caller]
pub(super) fn assert_same_lines(what: &str, left: &[String], right: &[String]) {
    for (number, (left, right)) in left.iter().zip(right).enumerate() {
        assert_same_bytes(&format!("{what}, line {}", number + 1), left.as_bytes(), right.as_bytes());
    }
    assert_eq!(left.len(), right.len(), "{what}: number of lines");
}

fn shorten(text: &str) -> String {
    text.chars().take(200).collect()
}
