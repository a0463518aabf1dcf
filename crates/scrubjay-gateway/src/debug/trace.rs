//! The trace: every recorded message, with its direction and method.
//!
//! Recordings hand over redacted copies and go on; a thread of its own parses them. If they come faster than that, the
//! trace loses some and counts them; the tapes have them all.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use scrubjay_core::entry::Direction;
use scrubjay_core::message::Parts;
use scrubjay_tape::recording::{RecordedMessage, Watcher};
use serde::Serialize;
use serde_json::value::RawValue;

use super::Sanitizer;
use super::ring::Ring;

/// How many messages may wait to be parsed.
const WAITING_MAX: usize = 4096;
/// How many bytes the waiting messages may have in all.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// Longer parameters, results and errors are replaced by their length.
const VALUE_BYTES_MAX: usize = 32 * 1024;
/// Longer ids are left out.
const ID_BYTES_MAX: usize = 256;
const METHOD_CHARS_MAX: usize = 256;
/// How many requests are remembered until their answer; the oldest are forgotten first.
const OPEN_MAX: usize = 4096;

/// Hands messages to the thread.
pub(super) struct Trace {
    queue: SyncSender<Message>,
    waiting_bytes: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
}

struct Message {
    source: u64,
    direction: Direction,
    /// The backend and the connection to it.
    via: Option<(String, u32)>,
    wall_ns: u64,
    payload: Vec<u8>,
}

impl Trace {
    /// Starts the thread that parses messages and adds them to a ring.
    pub(super) fn begin(ring: Arc<Ring>, lost: Arc<AtomicU64>, clean: Sanitizer) -> std::io::Result<Self> {
        let (queue, messages) = sync_channel(WAITING_MAX);
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let waiting = waiting_bytes.clone();
        let keep = move || keep(&messages, &waiting, &ring, &clean);
        std::thread::Builder::new().name("trace".to_owned()).spawn(keep)?;
        Ok(Self { queue, waiting_bytes, lost })
    }
}

impl Watcher for Trace {
    fn on_recorded(&self, seen: &RecordedMessage<'_>) {
        let bytes = seen.payload.as_bytes();
        // Added before the check, so that recordings on several threads cannot exceed the limit together.
        let waiting = self.waiting_bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        let message = || Message {
            source: seen.source,
            direction: seen.direction,
            via: seen.via.map(|leg| (leg.backend.to_owned(), leg.connection)),
            wall_ns: seen.wall_ns,
            payload: bytes.to_vec(),
        };
        if waiting + bytes.len() > WAITING_BYTES_MAX || self.queue.try_send(message()).is_err() {
            self.waiting_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn keep(messages: &Receiver<Message>, waiting_bytes: &AtomicUsize, ring: &Ring, clean: &Sanitizer) {
    let mut methods = Methods::default();
    for message in messages {
        waiting_bytes.fetch_sub(message.payload.len(), Ordering::Relaxed);
        ring.push(&clean(&entry(&message, &mut methods)));
    }
}

/// A message as it is shown.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'m> {
    timestamp: u64,
    direction: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    backend_id: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'m RawValue>,
    method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    params_or_result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Box<RawValue>>,
}

fn entry(message: &Message, methods: &mut Methods) -> String {
    let text = String::from_utf8_lossy(&message.payload);
    let from_client = message.direction == Direction::ClientToServer;
    let mut entry = Entry {
        timestamp: message.wall_ns / 1_000_000,
        // Messages of clients and of backends come in; messages to them go out.
        direction: if from_client == message.via.is_none() {
            "INCOMING_TO_GATEWAY"
        } else {
            "OUTGOING_FROM_GATEWAY"
        },
        backend_id: message.via.as_ref().map(|(backend, _)| backend.as_str()),
        id: None,
        method: String::new(),
        params_or_result: None,
        error: None,
    };
    match Parts::of(&text) {
        Ok(parts) => {
            entry.id = parts.id.filter(|id| id.get().len() <= ID_BYTES_MAX);
            entry.method = methods.of(message, &parts);
            entry.params_or_result = parts.params.or(parts.result).map(shown);
            entry.error = parts.error.map(shown);
        }
        Err(_) => entry.error = raw(r#"{"message":"this is no JSON-RPC message"}"#.to_owned()),
    }
    serde_json::to_string(&entry).expect("an entry is plain data")
}

/// Returns a value, or its length if it is too long.
fn shown(value: &RawValue) -> Box<RawValue> {
    let bytes = value.get().len();
    let omitted = || raw(format!(r#"{{"omitted":true,"bytes":{bytes}}}"#));
    if bytes > VALUE_BYTES_MAX { omitted().unwrap_or_default() } else { value.to_owned() }
}

fn raw(json: String) -> Option<Box<RawValue>> {
    RawValue::from_string(json).ok()
}

/// Identifies a request: the recording, the leg, whether the client sent it, the id.
type OpenRequestKey = (u64, Option<(String, u32)>, bool, String);

/// The methods of the requests that have no answer yet.
#[derive(Default)]
struct Methods {
    open: HashMap<OpenRequestKey, String>,
    order: VecDeque<OpenRequestKey>,
}

impl Methods {
    /// Returns the method of a message, or of the request that it answers.
    fn of(&mut self, message: &Message, parts: &Parts<'_>) -> String {
        let key = |by_client: bool| {
            let id = parts.id.filter(|id| id.get().len() <= ID_BYTES_MAX)?;
            Some((message.source, message.via.clone(), by_client, id.get().to_owned()))
        };
        let from_client = message.direction == Direction::ClientToServer;
        let Some(method) = &parts.method else {
            return key(!from_client).and_then(|key| self.open.remove(&key)).unwrap_or_default();
        };
        let method: String = method.chars().take(METHOD_CHARS_MAX).collect();
        if let Some(key) = key(from_client) {
            self.remember(key, &method);
        }
        method
    }

    fn remember(&mut self, key: OpenRequestKey, method: &str) {
        if self.open.insert(key.clone(), method.to_owned()).is_none() {
            self.order.push_back(key);
        }
        // Answered requests are still in `order`, so old ones are removed from there even if few are open.
        while self.order.len() > OPEN_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.open.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn message(direction: Direction, via: Option<&str>, payload: &str) -> Message {
        Message {
            source: 1,
            direction,
            via: via.map(|backend| (backend.to_owned(), 1)),
            wall_ns: 5_000_000,
            payload: payload.as_bytes().to_vec(),
        }
    }

    const UP: Direction = Direction::ClientToServer;
    const DOWN: Direction = Direction::ServerToClient;

    #[test]
    fn messages_have_their_way_their_method_and_what_they_carry() {
        let mut methods = Methods::default();
        let mut shown = |direction, via, payload: &str| -> Value {
            serde_json::from_str(&entry(&message(direction, via, payload), &mut methods)).unwrap()
        };
        let asked = shown(UP, None, r#"{"id":7,"method":"tools/call","params":{"name":"t"}}"#);
        let expected = json!({ "timestamp": 5, "direction": "INCOMING_TO_GATEWAY", "id": 7,
            "method": "tools/call", "paramsOrResult": { "name": "t" } });
        assert_eq!(asked, expected);
        let passed = shown(UP, Some("b"), r#"{"id":7,"method":"other"}"#);
        assert_eq!(passed["direction"], "OUTGOING_FROM_GATEWAY");
        assert_eq!((&passed["backendId"], passed.get("paramsOrResult")), (&json!("b"), None));
        let failed = shown(DOWN, Some("b"), r#"{"id":7,"error":{"code":-1}}"#);
        assert_eq!(
            (&failed["direction"], &failed["method"]),
            (&json!("INCOMING_TO_GATEWAY"), &json!("other"))
        );
        assert_eq!(failed["error"], json!({ "code": -1 }));
        let answered = shown(DOWN, None, r#"{"id":7,"result":{"n":1}}"#);
        assert_eq!(
            (&answered["direction"], &answered["method"]),
            (&json!("OUTGOING_FROM_GATEWAY"), &json!("tools/call"))
        );
        assert_eq!(answered["paramsOrResult"], json!({ "n": 1 }));
        assert_eq!(shown(DOWN, None, r#"{"id":7,"result":{}}"#)["method"], "", "it was answered already");
        assert!(shown(DOWN, Some("b"), "stray text")["error"]["message"].is_string());
    }

    #[test]
    fn ids_keep_their_spelling_and_long_values_are_left_out() {
        let mut methods = Methods::default();
        let id = "123456789012345678901234567890";
        let long =
            format!(r#"{{"id":{id},"method":"m","params":{{"x":"{}"}}}}"#, "x".repeat(VALUE_BYTES_MAX));
        let text = entry(&message(UP, None, &long), &mut methods);
        assert!(
            text.contains(id) && text.contains(r#""paramsOrResult":{"omitted":true,"bytes":32776}"#),
            "{text}"
        );
        let endless = format!(r#"{{"id":"{}","method":"{}"}}"#, "i".repeat(9999), "m".repeat(9999));
        assert!(entry(&message(UP, None, &endless), &mut methods).len() < 500);
    }

    #[test]
    fn requests_that_are_never_answered_are_forgotten() {
        let mut methods = Methods::default();
        for i in 0..3 * OPEN_MAX {
            entry(&message(UP, None, &format!(r#"{{"id":{i},"method":"m"}}"#)), &mut methods);
        }
        assert_eq!((methods.open.len(), methods.order.len()), (OPEN_MAX, OPEN_MAX));
    }
}
