//! Serves one server unchanged: clients receive what it answers, greetings and errors included.
//!
//! A client with a session has a server of its own, as it would have on standard streams; requests without
//! one share a server. Only ids, progress tokens and subscription ids are ours towards the server.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use scrubjay_core::envelope::Era;
use scrubjay_core::message;
use scrubjay_core::protocol::{code, meta, method, version};
use serde_json::value::RawValue;
use thiserror::Error;

use super::greeting::ClientFactsError;
use super::parked_calls::foreign_state;
use super::{
    Gateway, NO_TIMEOUT, NewRecording, NewTape, Request, greeting, is_notification, not_found,
    unreadable_params,
};
use crate::backend::connection::Connection;
use crate::backend::{Answer, Backend, ConnectError};
use crate::budget::{Charge, OverBudget};
use crate::client_message::{ClientMessage, text_in};
use crate::config::{BackendConfig, Naming};
use crate::relay::Options;
use crate::session::{ClientFacts, Session, lock};

/// Why there is no server for a request.
#[derive(Debug, Error)]
enum NoServer {
    /// The request's session has none, and only `initialize` starts one.
    #[error("the session was not opened with initialize: send initialize first")]
    NotInitialized,
    /// There is no memory for what the client says of itself.
    #[error(transparent)]
    Full(#[from] OverBudget),
    /// It does not start.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// The one server, and its runs: one for each session, and one that requests without a session share.
pub(super) struct TransparentServer {
    server: BackendConfig,
    workspace: Option<PathBuf>,
    /// By the session each belongs to.
    own: Mutex<HashMap<String, ServerRun>>,
    /// The one that requests without a session share.
    shared: Mutex<Option<ServerRun>>,
}

#[derive(Clone)]
struct ServerRun {
    backend: Arc<Backend>,
    connection: Arc<Connection>,
}

impl ServerRun {
    fn end(&self, recording: scrubjay_tape::recording::Recording, reason: &str) {
        self.connection.close(reason);
        self.backend.finish_recording(recording, reason);
    }
}

impl Gateway {
    /// Makes a gateway to one server that nothing is changed of.
    pub fn transparent(
        server: BackendConfig,
        workspace: Option<PathBuf>,
        options: Options,
        new_recording: NewRecording,
    ) -> Arc<Self> {
        let transparent =
            TransparentServer { server, workspace, own: Mutex::default(), shared: Mutex::default() };
        Self::make(Naming::default(), new_recording, None, Some(transparent), options, |_, _| Vec::new())
    }

    /// Returns what a request says of its client. A transparent server says itself which versions it speaks, so a
    /// request of any version is passed to it.
    pub(super) fn facts_of(
        &self,
        session: &Arc<Session>,
        method: &str,
        message: &ClientMessage,
    ) -> Result<Arc<ClientFacts>, ClientFactsError> {
        let checked = greeting::facts_of(session, method, message);
        let version = text_in(message.meta(meta::PROTOCOL_VERSION));
        let is_other_version = version.as_deref().is_some_and(|version| version != version::MODERN);
        if self.transparent.is_none() || checked.is_ok() || !is_other_version {
            return checked;
        }
        let unknown = ClientFacts::default();
        let member = |key| message.meta(key).map(str::to_owned);
        Ok(Arc::new(ClientFacts {
            era: Era::Modern,
            version: version.unwrap_or(unknown.version),
            capabilities: member(meta::CLIENT_CAPABILITIES).unwrap_or(unknown.capabilities),
            info: member(meta::CLIENT_INFO).unwrap_or(unknown.info),
        }))
    }

    /// Passes a request to the client's server and returns what that answers.
    pub(super) async fn pass_transparently(
        self: &Arc<Self>,
        transparent: &TransparentServer,
        request: &Request,
    ) -> Answer {
        let unavailable = |why: NoServer| {
            let why = format!("\"{}\" is not available: {why}", transparent.server.id);
            Answer::error(code::INTERNAL, &why)
        };
        if request.call.facts.era == Era::Modern && !is_plainly_modern(request) {
            // A server on standard streams may take it for the beginning of a legacy conversation and stop serving
            // others, so the request gets a server of its own.
            return match self.start(transparent, Era::Modern, None) {
                Ok(run) => {
                    let answer = pass(&run.connection, request).await;
                    run.end(self.new_tape(NewTape::late()), "its one request was answered");
                    answer
                }
                Err(why) => unavailable(why.into()),
            };
        }
        if request.call.facts.era == Era::Modern {
            return match self.shared_server(transparent) {
                Ok(run) => self.pass_shared(&run, request).await,
                Err(why) => unavailable(why.into()),
            };
        }
        match self.server_for(transparent, request) {
            Ok(connection) => pass(&connection, request).await,
            Err(why) => unavailable(why),
        }
    }

    /// Returns the server that requests without a session share.
    fn shared_server(&self, transparent: &TransparentServer) -> Result<ServerRun, ConnectError> {
        let mut shared = lock(&transparent.shared);
        if let Some(run) = shared.as_ref().filter(|run| run.connection.is_open()) {
            return Ok(run.clone());
        }
        let run = self.start(transparent, Era::Modern, None)?;
        if let Some(before) = shared.replace(run.clone()) {
            before.end(self.new_tape(NewTape::late()), "the server exited");
        }
        Ok(run)
    }

    /// Passes a request to the server that several clients share. Its tasks and request states are bound to the client
    /// that got them, so that no other can use them.
    async fn pass_shared(&self, run: &ServerRun, request: &Request) -> Answer {
        let session = &request.call.session;
        let (client, server) = (&session.client, &run.backend.id);
        if !request.has_readable_params() {
            return unreadable_params();
        }
        if is_notification(&request.method) {
            // A server that looks at the method alone would perform it, perhaps on another client's request.
            return not_found(&request.method);
        }
        let Ok(params) = self.states.open(session, server, request.params.clone()) else {
            return foreign_state();
        };
        // Only checked: there is one backend to go to.
        if let Err(refused) = self.tasks.backend_for(request) {
            return refused;
        }
        let calling =
            run.connection.call(Some(&request.call), &request.method, params.as_deref(), NO_TIMEOUT);
        let answer = calling.await.unwrap_or_else(|e| Answer::error(code::INTERNAL, &e.to_string()));
        self.tasks.remember(client, &run.backend, true, &answer);
        match answer {
            Answer::Result(result) if request.method == method::TASKS_LIST => {
                self.tasks.only_own(client, server, &result)
            }
            Answer::Result(result) => Answer::Result(self.states.seal(session, server, result)),
            error @ Answer::Error(_) => error,
        }
    }

    /// Returns the connection to the server of a request's session; `initialize` starts it.
    fn server_for(
        self: &Arc<Self>,
        transparent: &TransparentServer,
        request: &Request,
    ) -> Result<Arc<Connection>, NoServer> {
        let session = &request.call.session;
        if let Some(run) = lock(&transparent.own).get(&session.id) {
            return Ok(run.connection.clone());
        }
        if request.method != method::INITIALIZE {
            return Err(NoServer::NotInitialized);
        }
        // Facts that are too long are not kept, but no reason to refuse the request: only the server needs them.
        if session.set_facts(facts_in(request)).is_err() {
            session.set_facts(ClientFacts::default())?;
        }
        let run = self.start(transparent, Era::Legacy, Some(session))?;
        let connection = run.connection.clone();
        // Stored before its end is watched: the watcher ends what it finds here.
        lock(&transparent.own).insert(session.id.clone(), run);
        self.close_with(&connection, session.id.clone());
        Ok(connection)
    }

    fn start(
        &self,
        transparent: &TransparentServer,
        era: Era,
        owner: Option<&Arc<Session>>,
    ) -> Result<ServerRun, ConnectError> {
        let client = owner.map(|session| session.id.as_str());
        let tape = self.new_tape(NewTape { client, ..NewTape::of_backend("server") });
        let backend =
            Backend::new(&transparent.server, transparent.workspace.clone(), tape, self.events.clone())
                .record_options(self.record_options)
                .within(self.budget.clone())
                .known_as(transparent.server.display_name.clone())
                .belonging_to(owner.cloned())
                .ruled_by(self.rules.clone());
        let connection = backend.open_without_handshake(era)?;
        Ok(ServerRun { backend: Arc::new(backend), connection })
    }

    /// Ends a session whose server has ended: its client opens another.
    fn close_with(self: &Arc<Self>, connection: &Arc<Connection>, session: String) {
        let (connection, gateway) = (connection.clone(), Arc::downgrade(self));
        tokio::spawn(async move {
            connection.closed().await;
            if let Some(gateway) = gateway.upgrade() {
                let why = format!("the server ended: {}", connection.why_closed());
                gateway.close_session(&session, &why);
            }
        });
    }

    /// Passes a client's notification to its server.
    pub(super) fn pass_notification(
        &self,
        transparent: &TransparentServer,
        session: &Session,
        method: &str,
        params: Option<&str>,
        charge: Charge,
    ) {
        let own = lock(&transparent.own).get(&session.id).map(|life| life.connection.clone());
        let Some(connection) = own else { return };
        if let Err(line) = connection.notify_now(method, params) {
            // Its queue is full: the line waits for its turn in a task, with the memory it is charged for.
            tokio::spawn(async move {
                if let Err(e) = connection.send_later(line).await {
                    tracing::debug!(error = %e, "a notification did not reach the server");
                }
                drop(charge);
            });
        }
    }

    pub(super) fn end_server_of(&self, transparent: &TransparentServer, session: &str, reason: &str) {
        // In a statement of its own, so that the lock is free again while the tape is sealed.
        let run = lock(&transparent.own).remove(session);
        if let Some(run) = run {
            run.end(self.new_tape(NewTape::late()), reason);
        }
    }

    pub(super) fn end_shared_server(&self, transparent: &TransparentServer, reason: &str) {
        let run = lock(&transparent.shared).take();
        if let Some(run) = run {
            run.end(self.new_tape(NewTape::late()), reason);
        }
    }
}

async fn pass(connection: &Connection, request: &Request) -> Answer {
    let calling =
        connection.call(Some(&request.call), &request.method, request.params.as_deref(), NO_TIMEOUT);
    calling.await.unwrap_or_else(|e| Answer::error(code::INTERNAL, &e.to_string()))
}

/// Tells whether every server takes a request for one of the modern era.
fn is_plainly_modern(request: &Request) -> bool {
    let Some(params) = &request.params else { return false };
    request.method != method::INITIALIZE
        && text_in(params.meta(meta::PROTOCOL_VERSION)).as_deref() == Some(version::MODERN)
        && params.meta(meta::CLIENT_CAPABILITIES).is_some()
}

fn facts_in(request: &Request) -> ClientFacts {
    let params = request.raw_params();
    let member = |key| message::member(params, key).map(|v: &RawValue| v.get().to_owned());
    let unknown = ClientFacts::default();
    ClientFacts {
        era: Era::Legacy,
        version: request.text_param("protocolVersion").unwrap_or(unknown.version),
        capabilities: member("capabilities").unwrap_or(unknown.capabilities),
        info: member("clientInfo").unwrap_or(unknown.info),
    }
}
