//! Adds the caller to each request to a toolset of this process: one connection serves all clients, and a toolset keeps
//! its data by session.
//!
//! A value that the client itself put under the same key is replaced wherever it stands, so no client can pass for
//! another.

use scrubjay_core::message::{self, Splice};
use scrubjay_core::protocol::meta;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::session::Call;

/// Returns the parameters of a request with its caller added.
pub(super) fn with_caller(call: &Call, params: Option<&str>) -> Option<String> {
    let caller = caller(call).to_string();
    let base = params.filter(|p| *p != "null").unwrap_or("{}");
    let Ok(object) = serde_json::from_str::<&RawValue>(base) else { return params.map(str::to_owned) };
    let whole = format!("{{\"{}\":{caller}}}", meta::CALLER);
    let metas = message::members_named(Some(object), "_meta");
    let mut splice = Splice::new(object.get());
    if metas.is_empty() {
        splice = splice.add_member(Some(object), "_meta", &whole);
    }
    // All of them, since readers differ on which of two equal keys counts.
    for meta in metas {
        let claimed = message::members_named(Some(meta), meta::CALLER);
        splice = match (meta.get().starts_with('{'), claimed.is_empty()) {
            (false, _) => splice.replace(Some(meta), &whole),
            (true, true) => splice.add_member(Some(meta), meta::CALLER, &caller),
            (true, false) => claimed.into_iter().fold(splice, |s, forged| s.replace(Some(forged), &caller)),
        };
    }
    Some(splice.finish())
}

/// Describes the caller of a request, for the toolset.
pub(crate) fn caller(call: &Call) -> Value {
    let session = call.session.recorded_as();
    let entry = call.recorded.and_then(|place| place.entry);
    let named: Option<Value> = call.facts.named().and_then(|info| serde_json::from_str(info).ok());
    json!({
        "connection": call.session.connection(),
        "session": session.as_ref().map(|s| &s.id),
        "hostSession": call.session.host_session(),
        "toldBy": session.as_ref().map(|s| s.told_by),
        "tape": entry.map(|(_, tape)| tape.to_string()),
        "entry": entry.map(|(entry, _)| entry),
        "client": named.map(|info| json!({ "name": info["name"], "version": info["version"] })),
    })
}

#[cfg(test)]
mod tests;
