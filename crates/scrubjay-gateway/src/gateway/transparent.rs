//! One server, passed through: what a client hears is what the server said, greetings and errors included.
//!
//! A client with a session has a server of its own, as it would have on standard streams; requests without
//! one share a server. Only ids, progress tokens and subscription ids are ours towards the server.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scrubjay_core::envelope::Era;
use scrubjay_core::message;
use scrubjay_core::protocol::{code, meta, method, version};
use serde_json::value::RawValue;

use super::parked_calls::foreign_state;
use super::{
    Gateway, NewRecording, NewTape, Request, greeting, is_notification, not_found, unreadable_params,
};
use crate::backend::connection::Connection;
use crate::backend::{Answer, Backend};
use crate::budget::Charge;
use crate::client_message::{ClientMessage, text_in};
use crate::config::{BackendConfig, Naming};
use crate::relay::Options;
use crate::session::{ClientFacts, Session, lock};

/// The server decides how long an answer takes; this is a year.
const FOR_EVER: Duration = Duration::from_secs(31_536_000);

/// The one server, and its lives.
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

    /// Returns what a request says of its client, or the error it earns; which versions a server passed through
    /// speaks it says itself.
    pub(super) fn facts_of(
        &self,
        session: &Arc<Session>,
        method: &str,
        message: &ClientMessage,
    ) -> Result<Arc<ClientFacts>, String> {
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
        let unavailable = |why| {
            let why = format!("\"{}\" is not available: {why}", transparent.server.id);
            Answer::error(code::INTERNAL, &why)
        };
        if request.call.facts.era == Era::Modern && !is_plainly_modern(request) {
            // A server on standard streams may take it for the beginning of a legacy conversation and serve nobody
            // else any more, so it gets one that nobody else uses.
            return match self.start(transparent, Era::Modern, None) {
                Ok(life) => {
                    let answer = pass(&life.connection, request).await;
                    life.end(self.new_tape(NewTape::late()), "its one request was answered");
                    answer
                }
                Err(why) => unavailable(why),
            };
        }
        if request.call.facts.era == Era::Modern {
            return match self.shared_server(transparent) {
                Ok(life) => self.pass_shared(&life, request).await,
                Err(why) => unavailable(why),
            };
        }
        match self.server_for(transparent, request) {
            Ok(connection) => pass(&connection, request).await,
            Err(why) => unavailable(why),
        }
    }

    /// Returns the server that requests without a session share.
    fn shared_server(&self, transparent: &TransparentServer) -> Result<ServerRun, String> {
        let mut shared = lock(&transparent.shared);
        if let Some(life) = shared.as_ref().filter(|life| life.connection.is_open()) {
            return Ok(life.clone());
        }
        let life = self.start(transparent, Era::Modern, None)?;
        if let Some(before) = shared.replace(life.clone()) {
            before.end(self.new_tape(NewTape::late()), "the server exited");
        }
        Ok(life)
    }

    /// Passes a request to the server that several clients share: what it gives one to come back with is for that one.
    async fn pass_shared(&self, life: &ServerRun, request: &Request) -> Answer {
        let session = &request.call.session;
        let (client, server) = (&session.client, &life.backend.id);
        if !request.has_readable_params() {
            return unreadable_params();
        }
        if is_notification(&request.method) {
            // To a server that goes by the method alone it may be about another client's request.
            return not_found(&request.method);
        }
        let Ok(params) = self.states.open(session, server, request.params.clone()) else {
            return foreign_state();
        };
        if let Err(refused) = self.tasks.backend_for(request) {
            return refused;
        }
        let made = life.connection.call(Some(&request.call), &request.method, params.as_deref(), FOR_EVER);
        let answer = made.await.unwrap_or_else(|e| Answer::error(code::INTERNAL, &e.to_string()));
        self.tasks.remember(client, &life.backend, true, &answer);
        match answer {
            Answer::Result(result) if request.method == method::TASKS_LIST => {
                Answer::Result(self.tasks.only_own(client, server, result))
            }
            Answer::Result(result) => Answer::Result(self.states.seal(session, server, result)),
            error @ Answer::Error(_) => error,
        }
    }

    fn server_for(
        self: &Arc<Self>,
        transparent: &TransparentServer,
        request: &Request,
    ) -> Result<Arc<Connection>, String> {
        let session = &request.call.session;
        if let Some(life) = lock(&transparent.own).get(&session.id) {
            return Ok(life.connection.clone());
        }
        if request.method != method::INITIALIZE {
            return Err("the session was not opened with initialize".to_owned());
        }
        // What is too long is only not kept: the server makes of it what it likes.
        if session.set_facts(facts_in(request)).is_err() {
            session.set_facts(ClientFacts::default()).map_err(|full| full.to_string())?;
        }
        let life = self.start(transparent, Era::Legacy, Some(session))?;
        let connection = life.connection.clone();
        lock(&transparent.own).insert(session.id.clone(), life);
        self.close_with(&connection, session.id.clone());
        Ok(connection)
    }

    fn start(
        &self,
        transparent: &TransparentServer,
        era: Era,
        owner: Option<&Arc<Session>>,
    ) -> Result<ServerRun, String> {
        let client = owner.map(|session| session.id.as_str());
        let tape = self.new_tape(NewTape { client, ..NewTape::of_backend("server") });
        let backend =
            Backend::new(&transparent.server, transparent.workspace.clone(), tape, self.events.clone())
                .record_options(self.record_options)
                .within(self.budget.clone())
                .known_as(transparent.server.display_name.clone())
                .belonging_to(owner.cloned())
                .ruled_by(self.rules.clone());
        let connection = backend.open_without_handshake(era).map_err(|e| e.to_string())?;
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

    /// Tells a client's server what the client tells.
    pub(super) fn tell_server(
        &self,
        transparent: &TransparentServer,
        session: &Session,
        method: &str,
        params: Option<&str>,
        room: Charge,
    ) {
        let own = lock(&transparent.own).get(&session.id).map(|life| life.connection.clone());
        let Some(connection) = own else { return };
        if let Err(line) = connection.notify_now(method, params) {
            // Its queue is full; behind what waits there.
            tokio::spawn(async move {
                if let Err(e) = connection.send_later(line).await {
                    tracing::debug!(error = %e, "a notification did not reach the server");
                }
                drop(room);
            });
        }
    }

    pub(super) fn end_server_of(&self, transparent: &TransparentServer, session: &str, reason: &str) {
        let life = lock(&transparent.own).remove(session);
        if let Some(life) = life {
            life.end(self.new_tape(NewTape::late()), reason);
        }
    }

    pub(super) fn end_shared_server(&self, transparent: &TransparentServer, reason: &str) {
        let life = lock(&transparent.shared).take();
        if let Some(life) = life {
            life.end(self.new_tape(NewTape::late()), reason);
        }
    }
}

async fn pass(connection: &Connection, request: &Request) -> Answer {
    let made = connection.call(Some(&request.call), &request.method, request.params.as_deref(), FOR_EVER);
    made.await.unwrap_or_else(|e| Answer::error(code::INTERNAL, &e.to_string()))
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
