//! Opens conversations in both eras: `initialize`, `server/discover`, and what a request says of its client.
//!
//! A client is greeted with what the backends offer, as their profiles say. The greeting waits only for backends
//! without a profile, and only for a moment.

use std::sync::Arc;
use std::time::Duration;

use scrubjay_core::envelope::Era;
use scrubjay_core::message::{self, error as jsonrpc_error};
use scrubjay_core::protocol::{code, meta, method, result, version};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use thiserror::Error;

use super::{Gateway, Request};
use crate::backend::Answer;
use crate::client_message::{ClientMessage, text_in};
use crate::own_info::server_info;
use crate::session::{ClientFacts, Session, lock};

/// How long a greeting waits for backends without a profile to start. Well below three seconds, after which common
/// hosts try another greeting.
const GREETING_MAX: Duration = Duration::from_secs(1);

/// Why a request does not say what every request must say of its client.
#[derive(Debug, Error)]
pub(crate) enum ClientFactsError {
    /// A key of `params._meta` is missing.
    #[error("params._meta[\"{0}\"] is required")]
    Missing(&'static str),
    /// It is of a version that the gateway does not speak.
    #[error("unsupported protocol version")]
    UnsupportedVersion {
        /// The version, or nothing if it is no text.
        requested: String,
    },
}

impl ClientFactsError {
    /// Returns the JSON-RPC error to answer with.
    pub(crate) fn to_json_rpc(&self) -> String {
        let message = self.to_string();
        match self {
            Self::Missing(_) => jsonrpc_error(code::INVALID_PARAMS, &message, None),
            Self::UnsupportedVersion { requested } => {
                let data = json!({ "supported": version::SUPPORTED, "requested": requested });
                jsonrpc_error(code::UNSUPPORTED_VERSION, &message, Some(&data))
            }
        }
    }
}

/// Returns what a request says of its client.
///
/// # Errors
/// It is of the modern era and does not say what it must, or of a version that the gateway does not speak.
pub(super) fn facts_of(
    session: &Arc<Session>,
    method: &str,
    message: &ClientMessage,
) -> Result<Arc<ClientFacts>, ClientFactsError> {
    let Some(version) = message.meta(meta::PROTOCOL_VERSION) else {
        if method == method::SERVER_DISCOVER {
            return Err(ClientFactsError::Missing(meta::PROTOCOL_VERSION));
        }
        let mut facts = session.facts();
        if facts.era != Era::Legacy {
            Arc::make_mut(&mut facts).era = Era::Legacy;
        }
        return Ok(facts);
    };
    let version = text_in(Some(version)).unwrap_or_default();
    if version != version::MODERN {
        return Err(ClientFactsError::UnsupportedVersion { requested: version });
    }
    let Some(capabilities) = message.meta(meta::CLIENT_CAPABILITIES) else {
        return Err(ClientFactsError::Missing(meta::CLIENT_CAPABILITIES));
    };
    let info = match message.meta(meta::CLIENT_INFO) {
        Some(info) => info.to_owned(),
        None => session.facts().info.clone(),
    };
    Ok(Arc::new(ClientFacts { era: Era::Modern, version, capabilities: capabilities.to_owned(), info }))
}

impl Gateway {
    /// Sets or removes the text that goes before the instructions of the backends, from the next greeting on.
    pub fn notice(&self, notice: Option<String>) {
        *lock(&self.notice) = notice;
    }

    pub(super) async fn initialize(self: &Arc<Self>, request: &Request) -> Answer {
        let Some(asked) = request.text_param("protocolVersion") else {
            return Answer::error(code::INVALID_PARAMS, "params.protocolVersion is required");
        };
        let version =
            version::LEGACY.iter().find(|v| **v == asked).copied().unwrap_or(version::LEGACY_NEWEST);
        let params = request.raw_params();
        if let Some(options) = message::member(params, "initializationOptions").filter(|o| o.get() != "null")
            && let Some(take) = &self.options
        {
            match take(options.get()) {
                Ok(backends) => self.add_backends(&backends),
                Err(problems) => {
                    let keys = problems.as_array().into_iter().flatten().filter_map(|p| p["path"].as_str());
                    let keys = keys.collect::<Vec<_>>().join(", ");
                    let why = format!("params.initializationOptions are refused: {keys}");
                    let data = json!({ "problems": problems });
                    return Answer::Error(message::error(code::INVALID_PARAMS, &why, Some(&data)));
                }
            }
        }
        let member = |key| message::member(params, key).map(|v: &RawValue| v.get().to_owned());
        let unknown = ClientFacts::default();
        let facts = ClientFacts {
            era: Era::Legacy,
            version: version.to_owned(),
            capabilities: member("capabilities").unwrap_or(unknown.capabilities),
            info: member("clientInfo").unwrap_or(unknown.info),
        };
        if let Err(full) = request.call.session.set_facts(facts.clone()) {
            return Answer::error(code::INTERNAL, &full.to_string());
        }
        self.warm_up(&request.call.session, &facts).await;
        let mut result = json!({
            "protocolVersion": version,
            "capabilities": self.capabilities(Era::Legacy),
            "serverInfo": server_info(),
        });
        if let Some(instructions) = self.instructions(&request.call.session, Era::Legacy) {
            result["instructions"] = Value::from(instructions);
        }
        Answer::Result(result.to_string())
    }

    pub(super) async fn discover(self: &Arc<Self>, request: &Request) -> Answer {
        // Kept, because notifications between requests do not state them.
        if let Err(full) = request.call.session.set_facts(request.call.facts.clone()) {
            return Answer::error(code::INTERNAL, &full.to_string());
        }
        self.warm_up(&request.call.session, &request.call.facts).await;
        let mut result = json!({
            result::RESULT_TYPE: result::COMPLETE,
            "supportedVersions": version::SUPPORTED,
            "capabilities": self.capabilities(Era::Modern),
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": { meta::SERVER_INFO: server_info() },
        });
        if let Some(instructions) = self.instructions(&request.call.session, Era::Modern) {
            result["instructions"] = Value::from(instructions);
        }
        Answer::Result(result.to_string())
    }

    /// Starts backends for a greeting, and waits a moment for those without a profile.
    ///
    /// The one client of standard streams will need all of them. With many clients, those with a profile start when a
    /// client first uses them.
    async fn warm_up(self: &Arc<Self>, session: &Arc<Session>, facts: &ClientFacts) {
        let is_only_client = self.has_one_client();
        let mut unknown = tokio::task::JoinSet::new();
        for backend in self.backends().iter() {
            let is_known = backend.known.greeting(facts.era).is_some() || backend.known.was_slow();
            if is_known && !is_only_client {
                continue;
            }
            let (gateway, backend) = (Arc::downgrade(self), backend.clone());
            let (session, facts) = (session.clone(), facts.clone());
            let start = async move {
                // A backend that does not start has been reported, and is missing from lists.
                if let Ok(connection) = backend.connection(&session, &facts).await
                    && let Some(gateway) = gateway.upgrade()
                {
                    gateway.watch_connection(&session, &backend, &connection);
                }
            };
            if is_known {
                tokio::spawn(start);
            } else {
                unknown.spawn(start);
            }
        }
        let all = async { while unknown.join_next().await.is_some() {} };
        if tokio::time::timeout(GREETING_MAX, all).await.is_err() {
            // Dropped, the set would abort the starts.
            unknown.detach_all();
        }
    }

    /// Returns the gateway's capabilities: what it passes on for any backend, and what some backend declares.
    fn capabilities(&self, era: Era) -> Value {
        let mut all = json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "resources": { "listChanged": true, "subscribe": true },
            "completions": {},
            "logging": {},
        });
        // Tasks and extensions only if a backend has them: the gateway itself cannot serve them.
        let backends = self.backends();
        let greetings = backends.iter().filter_map(|backend| backend.known.greeting(era));
        for (_, greeting) in greetings.filter(|(spoken, _)| *spoken == era) {
            let offered: Value = serde_json::from_str(&greeting.capabilities).unwrap_or_default();
            for key in ["tasks", "extensions", "experimental"] {
                if let Some(more) = offered.get(key).filter(|m| m.is_object()) {
                    merge(&mut all[key], more);
                }
            }
        }
        all
    }

    /// Returns the instructions of the backends, each under its name, behind the gateway's own notice.
    fn instructions(&self, session: &Session, era: Era) -> Option<String> {
        let backends = self.backends();
        let of_backends: Vec<String> = backends
            .iter()
            .filter_map(|backend| {
                let (spoken, greeting) = backend.known.greeting(era)?;
                let text = self.seen_instructions(session, backend, spoken, greeting)?;
                Some(if backends.len() == 1 { text } else { format!("## {}\n{text}", backend.title()) })
            })
            .collect();
        let all: Vec<String> = lock(&self.notice).clone().into_iter().chain(of_backends).collect();
        (!all.is_empty()).then(|| all.join("\n\n"))
    }
}

fn merge(into: &mut Value, more: &Value) {
    if !into.is_object() {
        *into = json!({});
    }
    if let (Some(into), Some(more)) = (into.as_object_mut(), more.as_object()) {
        for (key, value) in more {
            into.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

#[cfg(test)]
mod tests;
