//! Opens a connection to a backend and finds out which era it speaks.
//!
//! A backend is spoken to in its client's own era where it can: a modern client's calls go to a connection
//! that was opened with `server/discover`, a legacy client's to one that was initialized. Where the backend
//! speaks only the other era, the gateway translates. A backend that dies of the wrong greeting is started
//! again for the right one, and what was found is remembered.

use std::sync::Arc;
use std::time::Duration;

use scrubjay_core::envelope::Era;
use scrubjay_core::message;
use serde_json::value::RawValue;

use super::connection::{Connection, Incoming, Wire};
use super::{Answer, Backend, Link, process};
use crate::bridge::{self, endpoint::Endpoint};
use crate::config::BackendLink;
use crate::gateway::LEGACY_VERSIONS;

/// The modern protocol version.
const MODERN: &str = "2026-07-28";
/// The legacy version we offer.
const LEGACY: &str = "2025-11-25";
/// A server that ignores what it does not know keeps a modern client waiting for so long.
const DISCOVER_MAX: Duration = Duration::from_secs(8);
const INITIALIZE_MAX: Duration = Duration::from_secs(20);

/// The capabilities the gateway has towards backends: what it can pass on to a client that has them.
const CAPABILITIES: &str =
    r#"{"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}"#;

pub(super) async fn start(backend: &Backend, era: Era) -> Result<Arc<Connection>, String> {
    let wire = open(backend, era)?;
    let started = match era {
        Era::Modern => discover(&wire).await,
        Era::Legacy => initialize(&wire).await,
    };
    if let Err(why) = &started {
        wire.close(why);
    }
    started.map(Arc::new)
}

/// Opens a connection on which nothing has been said.
pub(super) fn open_as_it_is(backend: &Backend, era: Era) -> Result<Arc<Connection>, String> {
    let wire = open(backend, era)?;
    Ok(Arc::new(Connection::new(wire, era, "{}".to_owned(), None)))
}

/// Opens the streams of a backend and begins to listen.
fn open(backend: &Backend, era: Era) -> Result<Arc<Wire>, String> {
    let (program, (incoming, writer), complaints) = match backend.link() {
        Link::Configured(link @ BackendLink::Stdio { .. }) => {
            let (program, (reader, writer), complaints) = process::start(backend, link)?;
            (Some(program), (Incoming::Lines(reader), writer), complaints)
        }
        Link::Configured(BackendLink::Http { url, headers, sse }) => {
            let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let endpoint = Endpoint::new(url, headers)
                .map_err(|e| e.to_string())?
                .with_message_bytes_max(backend.keeping.message_bytes_max)
                .with_first_transport(*sse);
            let (received, writer) = bridge::http::connect(endpoint)
                .map_err(|e| format!("the system's certificates cannot be read: {e}"))?;
            (None, (Incoming::Received(received), writer), process::Complaints::default())
        }
        Link::Mounted(mount) => {
            let (reader, writer) = mount();
            (None, (Incoming::Lines(reader), writer), process::Complaints::default())
        }
    };
    let ended = program.as_ref().map(|program| program.ended.clone());
    let wire = Wire::new(backend, era, writer, program, complaints);
    if let Some(ended) = ended {
        tokio::spawn(Wire::close_after(Arc::downgrade(&wire), ended));
    }
    tokio::spawn(wire.clone().listen(incoming));
    Ok(wire)
}

/// Returns the `_meta` members that every modern request carries.
#[must_use]
pub(crate) fn modern_meta(capabilities: &str, info: &str) -> String {
    format!(
        r#""io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientCapabilities":{capabilities},"io.modelcontextprotocol/clientInfo":{info}"#
    )
}

fn own_info() -> String {
    format!(r#"{{"name":"scrubjay","version":"{}"}}"#, env!("CARGO_PKG_VERSION"))
}

async fn discover(wire: &Arc<Wire>) -> Result<Connection, String> {
    let params = format!(r#"{{"_meta":{{{}}}}}"#, modern_meta(CAPABILITIES, &own_info()));
    let answer = ask(wire, "server/discover", &params, DISCOVER_MAX).await?;
    let result = raw(&answer)?;
    let supported = message::elements(message::member(Some(result), "supportedVersions"));
    if !supported.iter().any(|v| v.get() == format!("\"{MODERN}\"")) {
        return Err(format!("it does not speak {MODERN}"));
    }
    Ok(connection(wire, Era::Modern, result))
}

async fn initialize(wire: &Arc<Wire>) -> Result<Connection, String> {
    let params = |version: &str| {
        let info = own_info();
        format!(r#"{{"protocolVersion":"{version}","capabilities":{CAPABILITIES},"clientInfo":{info}}}"#)
    };
    let first = wire.call(None, "initialize", Some(&params(LEGACY)), INITIALIZE_MAX).await;
    let answer = match first {
        // It names the versions it speaks: once more in the best of them.
        Ok(Answer::Error(error)) if let Some(version) = supported(&error) => {
            ask(wire, "initialize", &params(version), INITIALIZE_MAX).await?
        }
        first => answered("initialize", first)?,
    };
    let result = raw(&answer)?;
    let greeted = message::notification("notifications/initialized", None);
    wire.send(None, greeted).await.map_err(|e| e.to_string())?;
    Ok(connection(wire, Era::Legacy, result))
}

/// Returns the best other version that both know, where an error lists those its sender speaks.
fn supported(error: &str) -> Option<&'static str> {
    let error = serde_json::from_str::<&RawValue>(error).ok();
    let listed = message::elements(message::member(message::member(error, "data"), "supported"));
    let listed: Vec<String> =
        listed.into_iter().filter_map(|version| message::string(Some(version))).collect();
    LEGACY_VERSIONS
        .into_iter()
        .find(|known| *known != LEGACY && listed.iter().any(|version| version == known))
}

async fn ask(wire: &Arc<Wire>, method: &str, params: &str, timeout: Duration) -> Result<String, String> {
    answered(method, wire.call(None, method, Some(params), timeout).await)
}

fn answered(method: &str, answer: Result<Answer, super::CallError>) -> Result<String, String> {
    match answer {
        Ok(Answer::Result(result)) => Ok(result),
        Ok(Answer::Error(error)) => Err(format!("it refuses {method}: {error}")),
        Err(super::CallError::Unavailable(_, why)) => Err(why),
        Err(other) => Err(other.to_string()),
    }
}

fn raw(result: &str) -> Result<&RawValue, String> {
    serde_json::from_str(result).map_err(|e| format!("its greeting is no JSON: {e}"))
}

fn connection(wire: &Arc<Wire>, era: Era, greeting: &RawValue) -> Connection {
    let capabilities = message::member(Some(greeting), "capabilities").map_or("{}", RawValue::get).to_owned();
    let instructions = message::string(message::member(Some(greeting), "instructions"));
    Connection::new(wire.clone(), era, capabilities, instructions)
}
