//! Passes calls to the backend that owns them, in the era that the backend speaks.
//!
//! `owners.rs` finds the backend by name or URI. `forward` opens a connection to it, refuses what is held back
//! (`quarantine.rs`), and makes the call. If client and backend speak different eras, the call goes through
//! `parked_calls.rs` (modern client, legacy backend) or `eras.rs` (legacy client, modern backend).

use std::sync::Arc;

use scrubjay_core::envelope::Era;
use scrubjay_core::message::{self, Splice, quoted};
use scrubjay_core::protocol::{code, method};

use super::eras::ask_for_demands;
use super::owners::{NameOwner, known_table, resource_not_found};
use super::parked_calls::foreign_state;
use super::request_state::ForeignState;
use super::{Gateway, Request, not_found};
use crate::backend::connection::Connection;
use crate::backend::list::ListKind;
use crate::backend::{Answer, Backend, CallError};
use crate::client_message::Params;
use crate::session::{Call, lock, log_level};

impl Gateway {
    /// Returns the connection to a backend that serves a client, in the client's era where it can be.
    pub(super) async fn connect(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        call: &Call,
    ) -> Result<Arc<Connection>, CallError> {
        let connection = backend.connection(&call.session, &call.facts).await?;
        self.watch_connection(&call.session, backend, &connection);
        Ok(connection)
    }

    /// Returns the connection for a call. A client that may be any of several gets none that is one client's own.
    pub(super) async fn connect_for_call(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        call: &Call,
    ) -> Result<Arc<Connection>, CallError> {
        let connection = self.connect(backend, call).await?;
        // A legacy server keeps state for its client; it would show one of them what another left there.
        if call.session.may_be_several && connection.owner().is_some() {
            return Err(CallError::SeveralClients(backend.id.clone()));
        }
        Ok(connection)
    }

    pub(super) async fn call_by_name(self: &Arc<Self>, request: &mut Request) -> Answer {
        if let Some(parked) = self.unpark(request) {
            return parked.await;
        }
        let kind = if request.method == method::TOOLS_CALL { ListKind::Tools } else { ListKind::Prompts };
        let Some(name) = request.text_param("name") else {
            return Answer::error(code::INVALID_PARAMS, "params.name is required");
        };
        let NameOwner { backend, own_name } = match self.owner(&request.call, kind, &name).await {
            Ok(owner) => owner,
            Err(e) => return Answer::error(code::INVALID_PARAMS, &e.to_string()),
        };
        // With its own name the params need no change, and their text is shared, not copied.
        let params = if own_name == name { request.params.clone() } else { renamed(request, &own_name) };
        self.forward(request, &backend, params).await
    }

    pub(super) async fn read_resource(self: &Arc<Self>, request: &mut Request) -> Answer {
        if let Some(parked) = self.unpark(request) {
            return parked.await;
        }
        let Some(uri) = request.text_param("uri") else {
            return Answer::error(code::INVALID_PARAMS, "params.uri is required");
        };
        match self.owner_of_uri(&request.call, &uri).await {
            Some(backend) => self.forward(request, &backend, request.params.clone()).await,
            None => {
                let data = serde_json::json!({ "uri": uri });
                let code = resource_not_found(request.call.facts.era);
                Answer::Error(message::error(code, "resource not found", Some(&data)))
            }
        }
    }

    pub(super) async fn complete(self: &Arc<Self>, request: &mut Request) -> Answer {
        let reference = message::member(request.raw_params(), "ref");
        let text = |key| message::string(message::member(reference, key));
        let (name, uri) = (text("name"), text("uri"));
        if let Some(name) = name {
            let NameOwner { backend, own_name } =
                match self.owner(&request.call, ListKind::Prompts, &name).await {
                    Ok(owner) => owner,
                    Err(e) => return Answer::error(code::INVALID_PARAMS, &e.to_string()),
                };
            let raw = request.raw_params();
            let old = message::member(message::member(raw, "ref"), "name");
            let params =
                raw.and_then(|p| Params::new(Splice::new(p.get()).replace(old, &quoted(&own_name)).finish()));
            return self.forward(request, &backend, params).await;
        }
        let Some(uri) = uri else { return Answer::error(code::INVALID_PARAMS, "params.ref is required") };
        // An empty table is not trusted: a backend may have started since it was made.
        let table = match known_table(&request.call.session, ListKind::Templates) {
            Some(table) if table.names().next().is_some() => table,
            _ => self.aggregate(&request.call, ListKind::Templates).await.table,
        };
        let exact = self.templates(&table).into_iter().find(|(template, _)| *template == uri).map(|(_, b)| b);
        let owner = match exact {
            Some(backend) => Some(backend),
            None => self.owner_of_uri(&request.call, &uri).await,
        };
        match owner {
            Some(backend) => self.forward(request, &backend, request.params.clone()).await,
            None => Answer::error(code::INVALID_PARAMS, &format!("unknown resource: {uri}")),
        }
    }

    /// Passes on a method that the gateway does not know: to its task's backend, or to the only backend.
    pub(super) async fn pass_on(self: &Arc<Self>, request: &mut Request) -> Answer {
        let task = match self.tasks.backend_for(request) {
            Ok(task) => task,
            Err(refused) => return refused,
        };
        let backends = self.backends();
        // Toolsets of this process do not count: a method that the gateway does not know is not theirs.
        let mut others = backends.iter().filter(|b| !b.is_own);
        let only = match (others.next(), others.next()) {
            (Some(only), None) => Some(only.clone()),
            _ => None,
        };
        match task.or(only) {
            Some(backend) => self.forward(request, &backend, request.params.clone()).await,
            None => not_found(&request.method),
        }
    }

    pub(super) async fn set_log_level(self: &Arc<Self>, request: &mut Request) -> Answer {
        // A modern backend gets the level with each call; one that is not running gets it when it starts.
        let session = &request.call.session;
        let Some(level) = request.text_param("level").and_then(|level| log_level(&level)) else {
            return Answer::error(code::INVALID_PARAMS, "params.level must be one of the eight levels");
        };
        *lock(&session.log_level) = Some(level);
        for backend in self.backends().iter() {
            let open = backend.connections_of(session, Era::Legacy).into_iter();
            for connection in open.filter(|c| c.era == Era::Legacy && c.offers("logging")) {
                let params = request.params.as_deref();
                let set = connection.call(
                    Some(&request.call),
                    method::LOGGING_SET_LEVEL,
                    params,
                    backend.call_timeout(),
                );
                if let Ok(Answer::Error(error)) = set.await {
                    return Answer::Error(error);
                }
            }
        }
        Answer::Result("{}".to_owned())
    }

    /// Makes the call on a backend and brings the answer into the client's era.
    async fn forward(
        self: &Arc<Self>,
        request: &mut Request,
        backend: &Arc<Backend>,
        params: Option<Params>,
    ) -> Answer {
        let call = request.call.clone();
        let connection = match self.connect_for_call(backend, &call).await {
            Ok(connection) => connection,
            Err(e) => return Answer::error(code::INTERNAL, &e.to_string()),
        };
        // After the connection is chosen: each client may have a server of its own, and those may describe a tool
        // differently.
        let refusal = self.held_call(&call, backend, &connection, &request.method, params.as_deref());
        if let Some(refusal) = refusal.await {
            return refusal;
        }
        // Only a modern backend gives out states of its own.
        let params = match connection.era {
            Era::Modern => match self.states.open(&call.session, &backend.id, params) {
                Ok(params) => params,
                Err(ForeignState) => return foreign_state(),
            },
            Era::Legacy => params,
        };
        let answer = match (call.facts.era, connection.era) {
            (Era::Modern, Era::Legacy) => {
                self.start_parkable(request, backend, &connection, params.as_deref()).await
            }
            (Era::Legacy, Era::Modern) => {
                // Boxed, so that calls within one era do not carry its room.
                let asking = ask_for_demands(&call, &request.method, backend, &connection, params.as_deref());
                Box::pin(asking).await
            }
            _ => {
                let calling =
                    connection.call(Some(&call), &request.method, params.as_deref(), backend.call_timeout());
                calling.await.unwrap_or_else(|e| Answer::error(code::INTERNAL, &e.to_string()))
            }
        };
        // On a shared connection the server takes all clients for one, so what belongs to one of them is checked here.
        let is_shared = connection.owner().is_none();
        self.tasks.remember(&call.session.client, backend, is_shared, &answer);
        match answer {
            Answer::Result(result) if is_shared && request.method == method::TASKS_LIST => {
                self.tasks.only_own(&call.session.client, &backend.id, &result)
            }
            Answer::Result(result) if connection.era == Era::Modern => {
                Answer::Result(self.states.seal(&call.session, &backend.id, result))
            }
            answer => answer,
        }
    }

    /// Makes a call that the router chose for a client, which may be asked questions on the way.
    pub(super) async fn call_backend(
        self: &Arc<Self>,
        call: &Arc<Call>,
        method: &str,
        backend: &Arc<Backend>,
        params: Option<String>,
    ) -> Answer {
        let connection = match self.connect_for_call(backend, call).await {
            Ok(connection) => connection,
            Err(e) => return Answer::error(code::INTERNAL, &e.to_string()),
        };
        if let Some(refusal) = self.held_call(call, backend, &connection, method, params.as_deref()).await {
            return refusal;
        }
        let answer = if connection.era == Era::Modern {
            ask_for_demands(call, method, backend, &connection, params.as_deref()).await
        } else {
            let calling = connection.call(Some(call), method, params.as_deref(), backend.call_timeout());
            calling.await.unwrap_or_else(|e| Answer::error(code::INTERNAL, &e.to_string()))
        };
        self.tasks.remember(&call.session.client, backend, connection.owner().is_none(), &answer);
        answer
    }
}

fn renamed(request: &Request, name: &str) -> Option<Params> {
    let params = request.params.as_ref()?;
    Params::new(Splice::new(params).replace_text(params.get("name"), &quoted(name)).finish())
}

#[cfg(test)]
mod tests;
