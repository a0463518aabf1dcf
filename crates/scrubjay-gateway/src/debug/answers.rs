//! What the endpoints answer.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use scrubjay_store::clock;
use serde_json::{Value, json};

use super::Server;
use super::ring::{LINES_MAX, Ring};
use crate::backend::Backend;
use crate::front::http;

/// So many entries where nothing else is asked for.
const RECENT: usize = 100;

/// Says that it runs, since when, and how much there is of everything.
pub(super) fn status(server: &Server) -> Response {
    let gateway = server.shown.gateway.upgrade();
    let backends = gateway.as_ref().map(|gateway| gateway.backends());
    let backends = backends.as_deref().unwrap_or_default();
    let ready = backends.iter().filter(|backend| backend.state().is_ready).count();
    let kept = &server.shown.kept;
    let ((logs, follow_logs), (trace, follow_trace)) = (kept.logs.counts(), kept.trace.counts());
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
            "mcptrace": { "kept": trace, "followers": follow_trace, "lost": kept.lost() },
        }),
    )
}

/// Lists the backends and how each is.
pub(super) fn backends(server: &Server) -> Response {
    let backends = server.shown.gateway.upgrade().map(|gateway| gateway.backends());
    let told: Vec<Value> = backends.iter().flat_map(|all| all.iter()).map(|b| backend(server, b)).collect();
    cleaned(server, &told.into())
}

fn backend(server: &Server, backend: &Arc<Backend>) -> Value {
    let state = backend.state();
    let mut told = json!({ "id": backend.id, "isReady": state.is_ready, "type": state.kind });
    if let Some(name) = &backend.display_name {
        told["displayName"] = name.as_str().into();
    }
    if let Some(why) = state.why {
        told["statusMessage"] = server.shown.redactor.redact_text(&why).into();
    }
    told
}

/// Shows the configuration.
pub(super) fn config(server: &Server) -> Response {
    cleaned(server, &(server.shown.config)())
}

/// Returns the newest lines of a ring: as many as `limit` says.
pub(super) fn recent(ring: &Ring, query: Option<&str>) -> Response {
    let asked = query.iter().flat_map(|query| query.split('&')).find_map(|pair| pair.strip_prefix("limit="));
    let limit = match asked.map(str::parse::<usize>) {
        None => RECENT,
        Some(Ok(limit)) if (1..=LINES_MAX).contains(&limit) => limit,
        Some(_) => {
            return http::plain(StatusCode::BAD_REQUEST, "limit must be a whole number from 1 to 1000");
        }
    };
    // They are JSON and clean already.
    http::json(StatusCode::OK, format!("[{}]", ring.recent(limit).join(",")))
}

fn cleaned(server: &Server, value: &Value) -> Response {
    http::json(StatusCode::OK, (server.shown.clean)(&value.to_string()))
}
