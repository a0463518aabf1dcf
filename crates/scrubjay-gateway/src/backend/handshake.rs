//! Opens a connection to a backend and finds out which era it speaks.
//!
//! A backend is spoken to in its client's own era if it speaks that era: a modern client's calls go to a connection
//! that was opened with `server/discover`, a legacy client's to one that was opened with `initialize`. If the backend
//! speaks only the other era, the gateway translates. To find out, one process gets both greetings; it is started
//! again only if it exits because of the first.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::Either;
use scrubjay_core::envelope::Era;
use scrubjay_core::message;
use scrubjay_core::protocol::{meta, method, version};
use scrubjay_core::redact::cut;
use serde_json::value::RawValue;
use thiserror::Error;

use super::connecting::Starter;
use super::connection::{Connection, Incoming, RpcChannel};
use super::leg_tape::LegTape;
use super::process::{self, ProgramError};
use super::profile::{CapabilitiesTooLong, Greeting, INSTRUCTIONS_BYTES_MAX};
use super::{Answer, Backend, CallError, Link, Owner};
use crate::bridge::endpoint::{Endpoint, EndpointError};
use crate::bridge::{self, http::OnSent};
use crate::config::BackendLink;
use crate::delivery::BridgeReceipts;
use crate::own_info::client_info;
use crate::session::{Session, lock};

/// How long a server may take to answer `server/discover` when it is not also sent `initialize`.
const DISCOVER_MAX: Duration = Duration::from_secs(8);
/// Some legacy servers ignore methods that they do not know: after this time they are sent `initialize` as well. A
/// server that is only slow to start finds both greetings, and the first one that it answers counts.
const PROBE_MAX: Duration = Duration::from_millis(1500);
/// How long a server may take to answer `initialize`.
const INITIALIZE_MAX: Duration = Duration::from_secs(20);
/// How many characters of a server's error are kept in the reason for a failed start, which every client gets.
const REFUSAL_CHARS_MAX: usize = 1000;

/// The capabilities that the gateway declares on a connection that serves all clients: it passes such requests to
/// clients that support them.
const CAPABILITIES: &str =
    r#"{"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}"#;

/// Why there is no connection to a backend. The texts end sentences such as `backend "x" is not available: …`.
#[derive(Debug, Error)]
pub(crate) enum ConnectError {
    /// Its program does not run.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// Its address or headers cannot be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// No server on HTTPS can be trusted.
    #[error("the system's certificates cannot be read: {0}")]
    Certificates(#[source] io::Error),
    /// It did not answer its greeting.
    #[error("{}", unavailable_reason(.0))]
    NoAnswer(#[from] CallError),
    /// It went away before it learned that the handshake is complete.
    #[error(transparent)]
    Unsent(CallError),
    /// It answered its greeting with an error.
    #[error("it refuses {method}: {error}")]
    Refused {
        /// The greeting.
        method: &'static str,
        /// The beginning of the error, as JSON.
        error: String,
    },
    /// It refused both greetings.
    #[error("{legacy}; and {modern}")]
    RefusedBoth {
        /// What came of `initialize`.
        legacy: Box<Self>,
        /// What came of `server/discover`.
        modern: Box<Self>,
    },
    /// It answers a modern greeting, and speaks other versions.
    #[error("it does not speak {}", version::MODERN)]
    NotModern,
    /// Its answer cannot be parsed.
    #[error("its greeting is no JSON: {0}")]
    NotJson(#[source] serde_json::Error),
    /// It declares too much.
    #[error(transparent)]
    Capabilities(#[from] CapabilitiesTooLong),
    /// It took too long.
    #[error("it did not start within {0:?}")]
    TooSlow(Duration),
}

/// Returns the reason alone: the texts that contain it name the backend already.
fn unavailable_reason(error: &CallError) -> String {
    match error {
        CallError::Unavailable(_, why) => why.clone(),
        other => other.to_string(),
    }
}

/// Starts a backend and greets it in the first of these eras that it speaks.
pub(super) async fn start(
    backend: &Backend,
    starter: Starter<'_>,
    eras: &[Era],
) -> Result<Arc<Connection>, ConnectError> {
    let mut start = Handshake { backend, starter, channel: None, is_greeted: false };
    let greeted = match eras {
        [Era::Modern, Era::Legacy] => start.probe().await,
        [Era::Legacy, Era::Modern] => match start.initialize().await {
            // If both fail, the error in the client's own era is reported.
            Err(refused) => start.discover(DISCOVER_MAX).await.map_err(|_| refused),
            initialized => initialized,
        },
        [Era::Modern] => start.discover(DISCOVER_MAX).await,
        _ => start.initialize().await,
    };
    if let (Err(why), Some(channel)) = (&greeted, &start.channel) {
        channel.close(&why.to_string(), true);
    }
    // Only now: until here, a drop of this future closes what was opened.
    start.is_greeted = greeted.is_ok();
    greeted
}

/// A start under way; dropped before it succeeds, it closes what it opened.
struct Handshake<'a> {
    backend: &'a Backend,
    starter: Starter<'a>,
    channel: Option<Arc<RpcChannel>>,
    is_greeted: bool,
}

impl Drop for Handshake<'_> {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.take_if(|_| !self.is_greeted) {
            channel.close("its start was given up", true);
        }
    }
}

impl Handshake<'_> {
    /// Returns the open channel, or opens a new one if the server closed it.
    fn channel(&mut self) -> Result<Arc<RpcChannel>, ConnectError> {
        if let Some(channel) = self.channel.as_ref().filter(|channel| channel.is_open()) {
            return Ok(channel.clone());
        }
        // A connection for all clients is recorded on the backend's own tape.
        let session = (!self.backend.is_shared).then_some(self.starter.session);
        let channel = open(self.backend, session)?;
        self.backend.note_start(&channel);
        Ok(self.channel.insert(channel).clone())
    }

    /// Finds out the era: sends `server/discover` and, if that is refused or ignored, `initialize` to the same process.
    async fn probe(&mut self) -> Result<Arc<Connection>, ConnectError> {
        let channel = self.channel()?;
        let mut discovering = Box::pin(discover(channel, DISCOVER_MAX));
        match tokio::time::timeout(PROBE_MAX, &mut discovering).await {
            Ok(Ok(greeting)) => return Ok(self.settle(greeting, None)),
            Ok(Err(refused)) => {
                return self.initialize().await.map_err(|legacy| ConnectError::RefusedBoth {
                    legacy: Box::new(legacy),
                    modern: Box::new(refused),
                });
            }
            Err(_) => {}
        }
        // It may only be slow: whichever greeting it answers counts.
        let first = {
            let initializing = std::pin::pin!(self.initialize());
            match futures_util::future::select(discovering, initializing).await {
                Either::Left((Ok(greeting), _)) => Ok(greeting),
                Either::Left((Err(_), initializing)) => Err(initializing.await),
                Either::Right((initialized, _)) => Err(initialized),
            }
        };
        first.map_or_else(|initialized| initialized, |greeting| Ok(self.settle(greeting, None)))
    }

    async fn discover(&mut self, patience: Duration) -> Result<Arc<Connection>, ConnectError> {
        let channel = self.channel()?;
        let greeting = discover(channel, patience).await?;
        Ok(self.settle(greeting, None))
    }

    async fn initialize(&mut self) -> Result<Arc<Connection>, ConnectError> {
        let channel = self.channel()?;
        let owner = self.backend.owner_for(self.starter.session);
        // A client's own connection declares what the client itself declared, as without a gateway.
        let (capabilities, info) = match &owner {
            Some(_) => self.client(),
            None => (CAPABILITIES.to_owned(), client_info()),
        };
        let params = |version: &str| {
            format!(r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"clientInfo":{info}}}"#)
        };
        let first = channel
            .call(None, method::INITIALIZE, Some(&params(version::LEGACY_NEWEST)), INITIALIZE_MAX)
            .await;
        let answer = match first {
            // Its error lists the versions it speaks: tried once more in the newest that we know.
            Ok(Answer::Error(error)) if let Some(version) = supported(&error) => {
                ask(&channel, method::INITIALIZE, &params(version), INITIALIZE_MAX).await?
            }
            first => answered(method::INITIALIZE, first)?,
        };
        let greeting = read(channel.clone(), Era::Legacy, &answer)?;
        let connection = self.settle(greeting, owner);
        let greeted = message::notification(method::NOTIFICATIONS_INITIALIZED, None);
        channel.send(None, greeted).await.map_err(ConnectError::Unsent)?;
        Ok(connection)
    }

    /// Returns the client's capabilities and name as a legacy server gets them.
    fn client(&self) -> (String, String) {
        let facts = self.starter.facts;
        let capabilities = match facts.era {
            Era::Legacy => facts.capabilities.clone(),
            Era::Modern => facts.legacy_capabilities(),
        };
        (capabilities, facts.named().map_or_else(client_info, str::to_owned))
    }

    fn settle(&self, greeted: GreetedServer, owner: Owner) -> Arc<Connection> {
        let GreetedServer { channel, era, greeting } = greeted;
        let connection = Connection::new(channel.clone(), era, &greeting.capabilities);
        self.backend.known.learn_greeting(era, greeting);
        // Last: from here on the backend's messages go to clients.
        channel.settle(era, owner);
        Arc::new(connection)
    }
}

/// A server that answered a greeting.
struct GreetedServer {
    channel: Arc<RpcChannel>,
    era: Era,
    greeting: Greeting,
}

/// Opens a connection without a handshake.
pub(super) fn open_without_handshake(backend: &Backend, era: Era) -> Result<Arc<Connection>, ConnectError> {
    let channel = open(backend, None)?;
    channel.settle(era, None);
    Ok(Arc::new(Connection::new(channel, era, "{}")))
}

/// Opens the streams of a backend and begins to read. Messages that belong to no request go on the session's tape.
fn open(backend: &Backend, session: Option<&Arc<Session>>) -> Result<Arc<RpcChannel>, ConnectError> {
    let tape = Arc::new(LegTape::new(backend.recording.clone(), session));
    let mut in_bridge = None;
    let (program, (incoming, writer), stderr_tail) = match backend.link() {
        Link::Configured(link @ BackendLink::Stdio { .. }) => {
            let (program, (reader, writer), stderr_tail) = process::start(backend, link, &tape)?;
            (Some(program), (Incoming::Lines(reader), writer), stderr_tail)
        }
        Link::Configured(BackendLink::Http { url, headers, sse }) => {
            let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let endpoint = Endpoint::new(url, headers)?
                .with_message_bytes_max(backend.record_options.message_bytes_max)
                .with_first_transport(*sse);
            let handed_over = Arc::new(Mutex::new(BridgeReceipts::default()));
            let receipts = handed_over.clone();
            let on_sent: OnSent = Box::new(move |number, why_not| {
                let receipt = lock(&receipts).take(number);
                match (receipt, why_not) {
                    (Some(receipt), None) => receipt.delivered(),
                    (Some(receipt), Some(why)) => receipt.undelivered(why),
                    (None, _) => {}
                }
            });
            let (received, writer) =
                bridge::http::connect_reporting(endpoint, backend.budget.clone(), on_sent)
                    .map_err(ConnectError::Certificates)?;
            in_bridge = Some(handed_over);
            (None, (Incoming::Received(received), writer), process::StderrTail::default())
        }
        Link::Mounted(mount) => {
            let (reader, writer) = mount();
            (None, (Incoming::Lines(reader), writer), process::StderrTail::default())
        }
    };
    let ended = program.as_ref().map(|program| program.ended.clone());
    let channel = RpcChannel::new(backend, (writer, in_bridge), program, stderr_tail, tape);
    if let Some(ended) = ended {
        // The end of the stream is not enough: a process that the program started may hold it open.
        tokio::spawn(RpcChannel::close_after(Arc::downgrade(&channel), ended));
    }
    tokio::spawn(channel.clone().listen(incoming));
    Ok(channel)
}

/// Returns the `_meta` members that every modern request carries.
#[must_use]
pub(crate) fn modern_meta(capabilities: &str, info: &str) -> String {
    format!(
        r#""{}":"{}","{}":{capabilities},"{}":{info}"#,
        meta::PROTOCOL_VERSION,
        version::MODERN,
        meta::CLIENT_CAPABILITIES,
        meta::CLIENT_INFO
    )
}

async fn discover(channel: Arc<RpcChannel>, patience: Duration) -> Result<GreetedServer, ConnectError> {
    let params = format!(r#"{{"_meta":{{{}}}}}"#, modern_meta(CAPABILITIES, &client_info()));
    let answer = ask(&channel, method::SERVER_DISCOVER, &params, patience).await?;
    let result = raw(&answer)?;
    let supported = message::elements(message::member(Some(result), "supportedVersions"));
    if !supported.iter().any(|v| v.get() == format!("\"{}\"", version::MODERN)) {
        return Err(ConnectError::NotModern);
    }
    read(channel, Era::Modern, &answer)
}

/// Returns the newest version that both sides know, if an error lists the versions that its sender speaks.
fn supported(error: &str) -> Option<&'static str> {
    let error = serde_json::from_str::<&RawValue>(error).ok();
    let listed = message::elements(message::member(message::member(error, "data"), "supported"));
    let listed: Vec<String> =
        listed.into_iter().filter_map(|version| message::string(Some(version))).collect();
    version::LEGACY
        .into_iter()
        .find(|known| *known != version::LEGACY_NEWEST && listed.iter().any(|version| version == known))
}

async fn ask(
    channel: &Arc<RpcChannel>,
    method: &'static str,
    params: &str,
    timeout: Duration,
) -> Result<String, ConnectError> {
    answered(method, channel.call(None, method, Some(params), timeout).await)
}

fn answered(method: &'static str, answer: Result<Answer, CallError>) -> Result<String, ConnectError> {
    match answer {
        Ok(Answer::Result(result)) => Ok(result),
        // Cut, because the back-off keeps it until the next start.
        Ok(Answer::Error(error)) => {
            Err(ConnectError::Refused { method, error: cut(&error, REFUSAL_CHARS_MAX).to_owned() })
        }
        Err(error) => Err(error.into()),
    }
}

fn raw(result: &str) -> Result<&RawValue, ConnectError> {
    serde_json::from_str(result).map_err(ConnectError::NotJson)
}

fn read(channel: Arc<RpcChannel>, era: Era, greeting: &str) -> Result<GreetedServer, ConnectError> {
    let greeting = raw(greeting)?;
    let capabilities = message::member(Some(greeting), "capabilities").map_or("{}", RawValue::get).to_owned();
    let instructions = message::string(message::member(Some(greeting), "instructions"));
    let bytes = instructions.as_ref().map_or(0, String::len);
    let greeting = Greeting::new(capabilities, instructions)?;
    if bytes > INSTRUCTIONS_BYTES_MAX {
        channel.note_cut("instructions", bytes, INSTRUCTIONS_BYTES_MAX);
    }
    Ok(GreetedServer { channel, era, greeting })
}
