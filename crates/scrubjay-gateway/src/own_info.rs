//! The name and version under which Scrubjay speaks: to backends as their client, to clients as their server.

use serde_json::{Value, json};

const NAME: &str = "scrubjay";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the `clientInfo` that backends get, as JSON; for requests that are not on behalf of a client.
pub(crate) fn client_info() -> String {
    format!(r#"{{"name":"{NAME}","version":"{VERSION}"}}"#)
}

/// Returns the `serverInfo` that clients get.
pub(crate) fn server_info() -> Value {
    json!({ "name": NAME, "title": "Scrubjay", "version": VERSION })
}
