//! Starts the debug endpoints if they are configured: on a loopback port, with a token that only the user can read.
//!
//! A client's options may ask for them after the gateway has started. If they cannot be started, a message says
//! so, and the gateway continues without them.

mod token;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use jiff::tz::TimeZone;
use scrubjay_config::{Loaded, mask};
use scrubjay_core::inert::inert_json;
use scrubjay_core::query;
use scrubjay_core::redact::Redactor;
use scrubjay_gateway::debug::{self, DebugBuffers, DebugSources, Sanitizer, Search, SearchError};
use scrubjay_gateway::gateway::Gateway;
use scrubjay_store::ledger::Storage;
use scrubjay_tape::clock;
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::Watch;
use serde_json::{Value, json};

use self::token::TokenFile;
use super::super::tape::found_json;
use crate::log::Log;

/// The debug endpoints, running or not.
pub(super) struct Debug {
    watch: Watch,
    home: Home,
    redactor: Arc<Redactor>,
    log: Arc<Log>,
    gateway: OnceLock<Weak<Gateway>>,
    config: Arc<Mutex<Value>>,
    running: Mutex<Option<TokenFile>>,
}

impl Debug {
    pub(super) fn new(watch: Watch, home: Home, redactor: Arc<Redactor>, log: Arc<Log>) -> Self {
        let (gateway, config, running) = (OnceLock::new(), Arc::default(), Mutex::default());
        Self { watch, home, redactor, log, gateway, config, running }
    }

    /// Sets the gateway to show.
    pub(super) fn set_gateway(&self, gateway: &Arc<Gateway>) {
        // It fails only on a second call, and there is one call.
        let _ = self.gateway.set(Arc::downgrade(gateway));
    }

    /// Shows a configuration from now on, and starts the endpoints if it asks for them.
    pub(super) fn adopt(&self, loaded: &Loaded) {
        *lock(&self.config) = shown(loaded);
        let Some(port) = loaded.debug_port() else { return };
        let mut running = lock(&self.running);
        if running.is_some() {
            // A port that was changed needs a restart, as `reload.rs` reports.
            return;
        }
        match self.start(port, loaded) {
            Ok((address, token)) => {
                let file = token.path().display();
                super::super::wrap::say(&format!("debug endpoints on http://{address}, token in {file}"));
                *running = Some(token);
            }
            Err(e) => {
                super::super::wrap::say(&format!(
                    "cannot start the debug endpoints on 127.0.0.1:{port}: {e}"
                ));
            }
        }
    }

    /// Removes the token file: no further client can connect.
    pub(super) fn end(&self) {
        *lock(&self.running) = None;
    }

    fn start(&self, port: u16, loaded: &Loaded) -> io::Result<(SocketAddr, TokenFile)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        // Bound without tokio, because this is not async; tokio then needs it non-blocking.
        listener.set_nonblocking(true)?;
        // The port is known only now if it was 0, and the token's file is named after it.
        let address = listener.local_addr()?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (token, file) = TokenFile::create(&self.home.debug(), address.port())?;
        let hidden = self.log.hidden().clone();
        let clean: Sanitizer = Arc::new(move |text| inert_json(&hidden.hide(text)).into_owned());
        let buffers = DebugBuffers::begin(&self.watch, &clean)?;
        self.log.mirror(loaded, buffers.log_taker());
        let (config, redactor) = (self.config.clone(), self.redactor.clone());
        let sources = DebugSources {
            buffers,
            gateway: self.gateway.get().cloned().unwrap_or_default(),
            // Redacted at each request, because a client's options may change it.
            config: Box::new(move || {
                let mut config = lock(&config).clone();
                redact_texts(&redactor, &mut config);
                config
            }),
            search: search(self.home.clone(), loaded.storage().map_err(io::Error::other)?),
            redactor: self.redactor.clone(),
            clean,
            token,
        };
        tokio::spawn(async move {
            if let Err(e) = debug::serve(sources, listener).await {
                tracing::error!(error = %e, "the debug endpoints failed");
            }
        });
        Ok((address, file))
    }
}

/// Redacts secrets in every text by their format alone. What is secret because of its key is masked already.
fn redact_texts(redactor: &Redactor, value: &mut Value) {
    match value {
        Value::String(text) => *text = redactor.text(text).as_str().to_owned(),
        Value::Array(values) => values.iter_mut().for_each(|value| redact_texts(redactor, value)),
        Value::Object(members) => members.values_mut().for_each(|value| redact_texts(redactor, value)),
        _ => {}
    }
}

/// Searches as `scrubjay tape search` does, on a thread, because filling the index must not delay messages.
fn search(home: Home, storage: Storage) -> Search {
    Box::new(move |typed| {
        let (home, storage) = (home.clone(), storage.clone());
        let found = tokio::task::spawn_blocking(move || {
            let query = query::parse(&typed, clock::now().wall_ns, &TimeZone::system())
                .map_err(|wrong| SearchError::Wrong(wrong.to_string()))?;
            let looking = super::super::index::search(&home, &storage, &query);
            looking.map(|found| found_json(&query, &found)).map_err(|e| SearchError::Failed(format!("{e:#}")))
        });
        Box::pin(async move { found.await.unwrap_or_else(|e| Err(SearchError::Failed(e.to_string()))) })
    })
}

/// Returns a configuration in the form of a client's options, and every value with its origin.
fn shown(loaded: &Loaded) -> Value {
    let values = loaded.shown();
    let value = |key: &str| values.iter().find(|shown| shown.key == key).map(|shown| shown.value.clone());
    let mut backends: Vec<Value> = Vec::new();
    for shown in &values {
        let Some((at, path)) = shown.key.strip_prefix("backends[").and_then(|rest| rest.split_once("]."))
        else {
            continue;
        };
        let at: usize = at.parse().unwrap_or_default();
        backends.resize_with(backends.len().max(at + 1), || json!({}));
        match path.split_once('.') {
            Some((key, name)) => backends[at][key][name] = shown.value.clone(),
            None => backends[at][path] = shown.value.clone(),
        }
    }
    json!({
        "logLevel": value("log_level"),
        // Masked even if it is empty, so that the output does not show whether it is.
        "OPENAI_API_KEY": value("llm.api_key").filter(|key| !key.is_null()).map(|_| mask::MASK),
        "DEBUG_PORT": loaded.debug_port(),
        "backends": backends,
        "values": values,
        "files": loaded.files,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::loaded;

    #[test]
    fn a_configuration_is_shown_without_its_secrets() {
        let config = loaded(
            "log_level: debug\nllm: { api_key: sk-canary-0123456789 }\nserve: { debug_port: 0, auth_token: canary-1 }\n\
             backends:\n  - { id: a, type: stdio, command: c, args: [--key, canary-2], env: { API_KEY: canary-3, PORT: 80 } }\n  \
             - { id: b, type: http, url: 'https://u:canary-4@h/', headers: { Authorization: Bearer canary-5 } }\n",
        );
        let shown = shown(&config);
        assert!(!shown.to_string().contains("canary"), "{shown}");
        assert_eq!((&shown["logLevel"], &shown["OPENAI_API_KEY"]), (&json!("debug"), &json!("***")));
        assert_eq!(shown["DEBUG_PORT"], 0);
        assert_eq!(shown["backends"][0]["args"], json!(["--key", "***"]));
        assert_eq!(shown["backends"][0]["env"], json!({ "API_KEY": "***", "PORT": "80" }));
        assert_eq!(shown["backends"][1]["url"], "https://u:***@h/");
    }
}
