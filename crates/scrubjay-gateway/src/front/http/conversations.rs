//! Which conversation a request without a session belongs to.
//!
//! A modern request names no session, so one is inferred for the recording: by its trace id, or else by its TCP
//! connection. On a new connection `server/discover` begins a conversation; any other request joins the newest
//! conversation of the same client, that is of the same token, name and process. A pause ends a conversation. The tape
//! notes how it was inferred. If neither a process nor a token distinguishes clients, several of them may be recorded
//! as one conversation, which then shares no state of a backend.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::http::{HeaderMap, header};
use scrubjay_core::protocol::{meta, method};
use serde_json::json;

use super::Front;
use super::guard::{is_forwarded, principal_name};
use super::peer::PeerProcess;
use super::tcp::Tcp;
use crate::client_message::{ClientMessage, text_in};
use crate::config::HttpConfig;
use crate::session::{Session, lock};

/// What a request says about its sender.
#[derive(Debug, Default)]
pub(super) struct Sender {
    token: String,
    info: String,
    /// The name that the user gave to the token.
    principal: Option<String>,
    trace: Option<String>,
    /// Whether a header says that a proxy forwarded it.
    is_forwarded: bool,
    /// Whether it is the first request of a client (`server/discover`).
    begins: bool,
}

impl Sender {
    /// Describes the sender of a modern request.
    pub(super) fn of(config: &HttpConfig, headers: &HeaderMap, message: &ClientMessage) -> Self {
        let trace = text_in(message.meta("traceparent"));
        // The second field of a trace context is the trace's id.
        let trace = trace.as_deref().and_then(|t| t.split('-').nth(1)).filter(|t| !t.is_empty());
        let info = message.meta(meta::CLIENT_INFO).unwrap_or_default();
        Self {
            token: token(headers),
            info: info.to_owned(),
            principal: principal_name(config, headers).map(str::to_owned),
            trace: trace.map(str::to_owned),
            is_forwarded: is_forwarded(headers),
            begins: message.method() == Some(method::SERVER_DISCOVER),
        }
    }

    /// Describes the sender of a message that cannot be parsed.
    pub(super) fn unknown(headers: &HeaderMap) -> Self {
        Self { token: token(headers), is_forwarded: is_forwarded(headers), ..Self::default() }
    }

    /// Returns a hash that distinguishes this client from others on one connection.
    fn client(&self) -> String {
        let how = if self.is_forwarded { "forwarded" } else { "direct" };
        blake3::hash(format!("{}|{how}|{}", self.token, self.info).as_bytes()).to_hex().to_string()
    }

    /// Returns the sender's process, if it is known. The process behind a forwarded request is the proxy's.
    async fn process(&self, tcp: &Tcp) -> Option<PeerProcess> {
        if self.is_forwarded { None } else { tcp.process().await }
    }
}

/// Returns what identifies the sender of a request: a hash of its credentials, or an empty text.
pub(super) fn principal(headers: &HeaderMap) -> String {
    token(headers)
}

fn token(headers: &HeaderMap) -> String {
    let shown = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes().trim_ascii());
    // Without the scheme: its case does not matter, so `bearer x` and `Bearer x` are the same credentials.
    let secret = shown.map(|value| value.splitn(2, |byte| *byte == b' ').last().unwrap_or_default());
    secret.map(|secret| blake3::hash(secret).to_hex().to_string()).unwrap_or_default()
}

/// The live conversations, by the id of their session.
#[derive(Debug, Default)]
pub(super) struct Conversations {
    known: Mutex<ConversationTable>,
}

#[derive(Debug, Default)]
struct ConversationTable {
    traced: HashMap<String, String>,
    /// The newest conversation of each client.
    newest: HashMap<String, String>,
}

impl Conversations {
    pub(super) fn forget(&self, session: &str) {
        let mut known = lock(&self.known);
        known.traced.retain(|_, id| id != session);
        known.newest.retain(|_, id| id != session);
    }
}

impl Front {
    /// Makes a session the newest conversation of a client.
    pub(super) async fn adopt(&self, tcp: &Tcp, sender: &Sender, session: &Session) {
        let client = sender.client();
        let identity = identity(&client, sender.process(tcp).await);
        lock(&self.conversations.known).newest.insert(identity, session.id.clone());
        tcp.remember(&client, &session.id);
    }

    /// Returns the session that a request belongs to, and begins one if needed; `None` if there are too many.
    pub(super) async fn conversation(&self, tcp: &Tcp, sender: &Sender) -> Option<Arc<Session>> {
        let client = sender.client();
        let live = |id: Option<String>| id.and_then(|id| self.gateway.session(&id));
        // The fast way, for all but the first request of a connection: it needs no search for the process.
        if sender.trace.is_none()
            && let Some(session) = live(tcp.conversation(&client))
        {
            return Some(session);
        }
        let process = sender.process(tcp).await;
        let identity = identity(&client, process);
        // The key holds the client's identity, because trace ids are no secret: another client that knows one must not
        // join. It is hashed, because a trace id may have any length.
        let traced = sender.trace.as_ref().map(|trace| format!("{identity}|{trace}"));
        let traced = traced.map(|traced| blake3::hash(traced.as_bytes()).to_hex().to_string());
        // Locked until the conversation is found or begun, so that simultaneous requests get the same one.
        let mut known = lock(&self.conversations.known);
        let found = match &traced {
            Some(traced) => live(known.traced.get(traced).cloned()),
            // `server/discover` on a new connection: a client that starts again begins another conversation.
            None if sender.begins => None,
            None => live(known.newest.get(&identity).cloned()),
        };
        let session = match found {
            Some(session) => session,
            None if self.gateway.session_count() >= self.config.sessions_max => return None,
            None => {
                let session = match process.is_some() || self.config.tells_by_token() {
                    true => self.gateway.open_inferred_session("http", &identity),
                    false => self.gateway.open_ambiguous_session("http", &identity),
                };
                let how = how(sender, process.is_some());
                let mut note = json!({ "event": "session_inferred", "how": how });
                if let Some(name) = &sender.principal {
                    note["principal"] = json!(name);
                }
                session.record_note(&note);
                session
            }
        };
        if let Some(traced) = traced {
            known.traced.insert(traced, session.id.clone());
        }
        known.newest.insert(identity, session.id.clone());
        tcp.remember(&client, &session.id);
        Some(session)
    }
}

/// Returns a hash that identifies a client across connections.
fn identity(client: &str, process: Option<PeerProcess>) -> String {
    let process = process.map(|p| format!("{}@{}", p.pid, p.started)).unwrap_or_default();
    blake3::hash(format!("{client}|{process}").as_bytes()).to_hex().to_string()
}

/// Returns how a conversation was inferred, for its tape.
fn how(sender: &Sender, process_is_known: bool) -> &'static str {
    match (&sender.trace, sender.begins, sender.token.is_empty(), process_is_known) {
        (Some(_), ..) => "by its trace",
        (None, true, ..) => "by its connection, which began with server/discover",
        (None, false, false, true) => "by its token, name and process",
        (None, false, false, false) => "by its token and name",
        (None, false, true, true) => "by its name and process",
        (None, false, true, false) => "by its name alone",
    }
}
