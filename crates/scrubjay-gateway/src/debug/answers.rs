//! The responses of the endpoints.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::Query;
use axum::http::{StatusCode, Uri};
use scrubjay_tape::clock;
use serde_json::{Value, json};

use super::ring::{LINES_MAX, Ring};
use super::{DebugServer, SearchError};
use crate::backend::Backend;
use crate::front::http;
use crate::front::http::body::Response;

/// The longest query.
const QUERY_BYTES_MAX: usize = 4096;
/// How many entries a response has by default.
const RECENT: usize = 100;

/// Returns the state of the process, and counts.
pub(super) fn status(server: &DebugServer) -> Response {
    let gateway = server.sources.gateway.upgrade();
    let backends = gateway.as_ref().map(|gateway| gateway.backends());
    let backends = backends.as_deref().unwrap_or_default();
    let ready = backends.iter().filter(|backend| backend.state().is_ready).count();
    let buffers = &server.sources.buffers;
    let ((logs, follow_logs), (trace, follow_trace)) = (buffers.logs.counts(), buffers.trace.counts());
    let up = server.started.instant.elapsed();
    cleaned(
        server,
        &json!({
            "status": if gateway.is_some() { "running" } else { "stopping" },
            "name": "scrubjay",
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "timestamp": clock::now().wall_ns / 1_000_000,
            "startedAt": server.started.wall_ns / 1_000_000,
            "uptimeMs": u64::try_from(up.as_millis()).unwrap_or(u64::MAX),
            "sessions": gateway.as_ref().map_or(0, |gateway| gateway.session_count()),
            "backends": { "total": backends.len(), "ready": ready },
            "logs": { "kept": logs, "followers": follow_logs },
            "mcptrace": { "kept": trace, "followers": follow_trace, "lost": buffers.lost() },
        }),
    )
}

/// Lists the backends with their states.
pub(super) fn backends(server: &DebugServer) -> Response {
    let backends = server.sources.gateway.upgrade().map(|gateway| gateway.backends());
    let answer: Vec<Value> = backends.iter().flat_map(|all| all.iter()).map(|b| backend(server, b)).collect();
    cleaned(server, &answer.into())
}

fn backend(server: &DebugServer, backend: &Arc<Backend>) -> Value {
    let state = backend.state();
    let connections = state.connections;
    let mut answer = json!({ "id": backend.id, "isReady": state.is_ready, "type": state.kind, "connections": connections });
    if let Some(name) = &backend.display_name {
        answer["displayName"] = name.as_str().into();
    }
    // It may quote the server's output.
    if let Some(why) = state.why {
        answer["statusMessage"] = server.sources.redactor.redact_text(&why).into();
    }
    answer
}

/// Returns the configuration.
pub(super) fn config(server: &DebugServer) -> Response {
    cleaned(server, &(server.sources.config)())
}

/// Returns the newest lines of a ring, at most `limit` of the query.
pub(super) fn recent(ring: &Ring, query: Option<&str>) -> Response {
    let limit = query.iter().flat_map(|query| query.split('&')).find_map(|pair| pair.strip_prefix("limit="));
    let limit = match limit.map(str::parse::<usize>) {
        None => RECENT,
        Some(Ok(limit)) if (1..=LINES_MAX).contains(&limit) => limit,
        Some(_) => {
            return http::plain(StatusCode::BAD_REQUEST, "limit must be a whole number from 1 to 1000");
        }
    };
    // The lines are sanitized JSON already.
    http::json(StatusCode::OK, format!("[{}]", ring.recent(limit).join(",")))
}

/// Searches the recordings for `q` of the query.
pub(super) async fn search(server: &DebugServer, uri: &Uri) -> Response {
    let Ok(Query(mut parameters)) = Query::<HashMap<String, String>>::try_from_uri(uri) else {
        return http::plain(StatusCode::BAD_REQUEST, "the query string cannot be parsed");
    };
    let Some(query) = parameters.remove("q").filter(|q| q.len() <= QUERY_BYTES_MAX) else {
        return http::plain(StatusCode::BAD_REQUEST, "say what to look for: /api/search?q=error:true");
    };
    let _permit = server.searching.lock().await;
    match (server.sources.search)(query).await {
        Ok(found) => cleaned(server, &found),
        Err(SearchError::Wrong(what)) => http::plain(StatusCode::BAD_REQUEST, &(server.sources.clean)(&what)),
        Err(SearchError::Failed(why)) => {
            http::plain(StatusCode::INTERNAL_SERVER_ERROR, &(server.sources.clean)(&why))
        }
    }
}

fn cleaned(server: &DebugServer, value: &Value) -> Response {
    http::json(StatusCode::OK, (server.sources.clean)(&value.to_string()))
}
