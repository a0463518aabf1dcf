//! Requests of a backend to its client, each answered in a task of its own.

use std::sync::Arc;

use scrubjay_core::entry::Direction;
use scrubjay_core::message;
use scrubjay_core::protocol::{code, method};
use tokio::sync::oneshot;

use crate::backend::connection::channel::RpcChannel;
use crate::backend::{Answer, Event, Question};
use crate::budget::MemoryUse;
use crate::ruled_line::RuledLine;
use crate::session::lock;

impl RpcChannel {
    pub(super) async fn receive_request(
        self: Arc<Self>,
        method: String,
        id: String,
        params: Option<String>,
        line: &RuledLine,
        stream_of: Option<u64>,
    ) {
        let busy = self.callers(stream_of);
        let only = self.belongs_to(&busy, stream_of);
        if let Err(e) = self.record(Direction::ServerToClient, only.as_ref(), line) {
            tracing::error!(backend = self.backend, error = %e, "cannot record what the backend asks");
            return;
        }
        // With `SIDE_TASKS_MAX` questions open this waits, and the backend is not read: each question is a task in
        // memory.
        let Ok(permit) = self.side_tasks.clone().acquire_owned().await else { return };
        let charge = self.budget.charge(MemoryUse::Backend, line.original.len());
        let outside_calls = !self.has_call_that_may_demand();
        let (questions, open) = (self.questions.clone(), self.questions.begin(outside_calls));
        // In a task: a client may take minutes, and the answer of the call it belongs to must still be read.
        tokio::spawn(async move {
            let answer = if let Err(full) = &charge {
                Answer::error(code::INTERNAL, &full.to_string())
            } else if let Some(owner) = &self.passes_to {
                let outbox = only.as_ref().map(|call| call.outbox());
                owner.ask(outbox.as_ref(), &method, params.as_deref()).await
            } else if method == method::PING {
                // Asks whether this process is alive, and concerns no client.
                Answer::Result("{}".to_owned())
            } else if !self.is_greeted() {
                Answer::error(code::INTERNAL, "nothing can be asked before the greeting is answered")
            } else if stream_of.is_some() && busy.is_empty() && self.owner().is_none() {
                Answer::error(code::INTERNAL, "no client waits for the call on whose stream this was asked")
            } else {
                let (reply, answer) = oneshot::channel();
                let backend = self.backend.clone();
                let (owner, questions) = (self.owner(), questions.clone());
                let (only, clients_seen) = (only.clone(), lock(&self.clients_seen).clone());
                let question = Question {
                    backend,
                    owner,
                    outside_calls,
                    questions,
                    method,
                    params,
                    busy,
                    only,
                    clients_seen,
                    reply,
                };
                match self.events.send(Event::Request(question)).await {
                    Ok(()) => {
                        answer.await.unwrap_or_else(|_| Answer::error(code::INTERNAL, "nobody answered"))
                    }
                    Err(_) => Answer::error(code::INTERNAL, "the gateway is shutting down"),
                }
            };
            let line = match answer {
                Answer::Result(result) => message::result(&id, &result),
                Answer::Error(error) => message::raw_error(&id, &error),
            };
            if let Err(e) = self.send(only.as_ref(), line).await {
                tracing::warn!(backend = self.backend, error = %e, "an answer did not reach the backend");
            }
            // Held until the answer is sent: a call that waits for all questions to be settled must not overtake it.
            drop((open, permit, charge));
        });
    }
}
