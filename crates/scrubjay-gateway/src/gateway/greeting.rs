//! Opens conversations in both eras: `initialize`, `server/discover`, and what a request says of its client.

use std::sync::Arc;

use scrubjay_core::envelope::Era;
use scrubjay_core::message::{self, Parts};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Gateway, Request, code};
use crate::backend::Answer;
use crate::session::{ClientFacts, Session};

/// The legacy versions, newest first.
pub const LEGACY_VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The modern version.
pub const MODERN_VERSION: &str = "2026-07-28";
/// Every version a client may ask for.
pub const SUPPORTED: [&str; 5] = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

pub(super) const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(super) const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(super) const META_INFO: &str = "io.modelcontextprotocol/clientInfo";
pub(super) const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// Returns what a request says of its client, or the error it earns.
pub(super) fn facts_of(
    session: &Arc<Session>,
    method: &str,
    parts: &Parts<'_>,
) -> Result<ClientFacts, String> {
    let Some(version) = parts.meta(META_VERSION) else {
        if method == "server/discover" {
            return Err(missing(META_VERSION));
        }
        let mut facts = session.facts();
        facts.era = Era::Legacy;
        return Ok(facts);
    };
    let version = message::string(Some(version)).unwrap_or_default();
    if version != MODERN_VERSION {
        let data = json!({ "supported": SUPPORTED, "requested": version });
        return Err(message::error(code::UNSUPPORTED_VERSION, "unsupported protocol version", Some(&data)));
    }
    let Some(capabilities) = parts.meta(META_CAPABILITIES) else { return Err(missing(META_CAPABILITIES)) };
    let known = session.facts();
    let facts = ClientFacts {
        era: Era::Modern,
        version,
        capabilities: capabilities.get().to_owned(),
        info: parts.meta(META_INFO).map_or(known.info, |info| info.get().to_owned()),
    };
    Ok(facts)
}

fn missing(key: &str) -> String {
    message::error(code::INVALID_PARAMS, &format!("params._meta[\"{key}\"] is required"), None)
}

impl Gateway {
    pub(super) fn initialize(self: &Arc<Self>, request: &Request) -> Answer {
        let Some(asked) = request.text_param("protocolVersion") else {
            return Answer::error(code::INVALID_PARAMS, "params.protocolVersion is required");
        };
        let version = LEGACY_VERSIONS.iter().find(|v| **v == asked).copied().unwrap_or(LEGACY_VERSIONS[0]);
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
        let unknown = super::unknown_client();
        request.call.session.set_facts(ClientFacts {
            era: Era::Legacy,
            version: version.to_owned(),
            capabilities: member("capabilities").unwrap_or(unknown.capabilities),
            info: member("clientInfo").unwrap_or(unknown.info),
        });
        self.warm_up(Era::Legacy);
        let mut result = json!({
            "protocolVersion": version,
            "capabilities": self.capabilities(Era::Legacy),
            "serverInfo": own_info(),
        });
        if let Some(instructions) = self.instructions() {
            result["instructions"] = Value::from(instructions);
        }
        Answer::Result(result.to_string())
    }

    pub(super) fn discover(self: &Arc<Self>, request: &Request) -> Answer {
        // Kept, so that what else the client says can be told to be its.
        request.call.session.set_facts(request.call.facts.clone());
        self.warm_up(Era::Modern);
        let mut result = json!({
            "resultType": "complete",
            "supportedVersions": SUPPORTED,
            "capabilities": self.capabilities(Era::Modern),
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": { "io.modelcontextprotocol/serverInfo": own_info() },
        });
        if let Some(instructions) = self.instructions() {
            result["instructions"] = Value::from(instructions);
        }
        Answer::Result(result.to_string())
    }

    /// Returns what the gateway offers: everything it can pass on, before any backend is up.
    fn capabilities(&self, era: Era) -> Value {
        let mut all = json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "resources": { "listChanged": true, "subscribe": true },
            "completions": {},
            "logging": {},
        });
        // Tasks and extensions only where a backend that is up has them: nobody else could serve them.
        for connection in self.backends().iter().flat_map(|b| b.open_connections()).filter(|c| c.era == era) {
            let offered: Value = serde_json::from_str(&connection.capabilities).unwrap_or_default();
            for key in ["tasks", "extensions", "experimental"] {
                if let Some(more) = offered.get(key).filter(|m| m.is_object()) {
                    merge(&mut all[key], more);
                }
            }
        }
        all
    }

    /// Returns what the backends that are up tell clients to do, each under its name.
    fn instructions(&self) -> Option<String> {
        let backends = self.backends();
        let told: Vec<String> = backends
            .iter()
            .filter_map(|backend| {
                let text = backend.open_connections().first()?.instructions.clone()?;
                Some(if backends.len() == 1 { text } else { format!("## {}\n{text}", backend.title()) })
            })
            .collect();
        (!told.is_empty()).then(|| told.join("\n\n"))
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

fn own_info() -> Value {
    json!({ "name": "scrubjay", "title": "Scrubjay", "version": env!("CARGO_PKG_VERSION") })
}
