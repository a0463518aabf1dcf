//! Calls that wait for input of a modern client.
//!
//! If a legacy backend asks something in the middle of a call, a modern client cannot be sent the question as a
//! request. The client gets the result `input_required` with a state that cannot be guessed, and the call is parked: it
//! runs on, and its backend waits. The client's next request with that state resumes the call. No other client can use
//! the state.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scrubjay_core::envelope::Era;
use scrubjay_core::message::{self, quoted};
use scrubjay_core::protocol::result::{
    INPUT_REQUESTS, INPUT_REQUIRED, INPUT_RESPONSES, REQUEST_STATE, RESULT_TYPE,
};
use scrubjay_core::protocol::{code, method};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::eras::{adapted, modernised};
use super::request_state::is_sealed;
use super::{Gateway, Request};
use crate::backend::connection::Connection;
use crate::backend::questions::{QuestionTaker, Questions};
use crate::backend::{Answer, Backend, CallError};
use crate::client_message::text_in;
use crate::session::{Call, Demand, lock};

/// How many calls may be parked: each holds a task, its request in memory, and a call of a backend.
const PARKED_MAX: usize = 1024;
/// How many of them may be one client's, so that others can still be asked.
const PARKED_EACH_MAX: usize = PARKED_MAX / 16;
/// How long a parked call waits for its client: a person may have to answer.
const PARKED_FOR: Duration = Duration::from_secs(600);
/// How long a call waits for another call of its client to bring what the server asked outside calls.
const SETTLED_MAX: Duration = Duration::from_secs(3);

/// Calls whose backend waits for the client's input.
#[derive(Default)]
pub(super) struct ParkedCalls {
    calls: Mutex<HashMap<String, ParkedCall>>,
}

impl ParkedCalls {
    /// Drops the calls of a client that left, which aborts them.
    pub(super) fn forget_client(&self, client: &Arc<str>) {
        lock(&self.calls).retain(|_, parked| parked.running.call.session.client != *client);
    }

    /// Parks a call under a state.
    fn park(&self, state: &str, parked: ParkedCall) -> Result<(), TooManyParked> {
        let mut calls = lock(&self.calls);
        calls.retain(|_, parked| parked.since.elapsed() < PARKED_FOR);
        let is_same = |other: &&ParkedCall| other.running.call.is_of_client_of(&parked.running.call);
        if calls.values().filter(is_same).count() >= PARKED_EACH_MAX {
            return Err(TooManyParked::OfThisClient);
        }
        if calls.len() >= PARKED_MAX {
            return Err(TooManyParked::OfAll);
        }
        calls.insert(state.to_owned(), parked);
        Ok(())
    }

    /// Returns whether a call is parked under a state.
    fn holds(&self, state: &str) -> bool {
        lock(&self.calls).contains_key(state)
    }

    /// Removes and returns the call that is parked under a state, if it belongs to the client of `call`.
    fn take(&self, state: &str, call: &Call) -> Option<ParkedCall> {
        let mut calls = lock(&self.calls);
        // Checked before it is removed: a stranger's attempt must not abort the call.
        let is_its_own = calls.get(state).is_some_and(|parked| parked.running.call.is_of_client_of(call));
        is_its_own.then(|| calls.remove(state)).flatten()
    }
}

/// Why a call cannot be parked.
#[derive(Debug, PartialEq, Eq, Error)]
enum TooManyParked {
    #[error("too many calls wait for input: this client has {PARKED_EACH_MAX} already")]
    OfThisClient,
    #[error("too many calls wait for input: there are {PARKED_MAX} already")]
    OfAll,
}

struct ParkedCall {
    running: RunningCall,
    /// Where the client's responses go, by their keys in `inputRequests`.
    replies: Vec<(String, oneshot::Sender<Answer>)>,
    since: tokio::time::Instant,
}

/// A call that runs in a task of its own, so that it can outlive its request; dropping it aborts the task.
struct RunningCall {
    task: JoinHandle<Result<Answer, CallError>>,
    demands: mpsc::Receiver<Demand>,
    /// What a legacy backend asks this client, whichever call it is for.
    questions: Option<Arc<Questions>>,
    /// Whether its client was asked something on its way.
    was_asked: bool,
    call: Arc<Call>,
    method: String,
}

impl RunningCall {
    fn taker(&self) -> QuestionTaker {
        QuestionTaker { was_asked: self.was_asked, takes_all: self.method == method::TOOLS_CALL }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Gateway {
    /// Runs a job for a modern client; if it asks the client something, it outlives the request.
    pub(super) async fn run_parkable(
        self: &Arc<Self>,
        request: &mut Request,
        job: impl Future<Output = Answer> + Send + 'static,
    ) -> Answer {
        let task = tokio::spawn(async move { Ok(job.await) });
        let demands = taken_demands(request);
        let (call, method) = (request.call.clone(), request.method.clone());
        self.await_or_park(RunningCall { task, demands, questions: None, was_asked: false, call, method })
            .await
    }

    /// Calls a legacy backend for a modern client: the call outlives the request if the backend asks back.
    pub(super) async fn start_parkable(
        self: &Arc<Self>,
        request: &mut Request,
        backend: &Arc<Backend>,
        connection: &Arc<Connection>,
        params: Option<&str>,
    ) -> Answer {
        let (connection, call, method) = (connection.clone(), request.call.clone(), request.method.clone());
        let timeout = backend.call_timeout();
        let params = adapted(&call, Era::Legacy, params);
        let questions = connection.owner().map(|_| connection.questions());
        let task = {
            let (call, method, questions) = (call.clone(), method.clone(), questions.clone());
            tokio::spawn(async move {
                if let Some(questions) = questions.filter(|_| method == method::TOOLS_CALL) {
                    // A server may need an answer first, such as the client's roots. Not longer than this: the call
                    // that carries the question to the client may never come back.
                    let _ = tokio::time::timeout(SETTLED_MAX, questions.settled()).await;
                }
                connection.call(Some(&call), &method, params.as_deref(), timeout).await
            })
        };
        let demands = taken_demands(request);
        self.await_or_park(RunningCall { task, demands, questions, was_asked: false, call, method }).await
    }

    async fn await_or_park(self: &Arc<Self>, mut running: RunningCall) -> Answer {
        let taker = running.taker();
        let demand = tokio::select! {
            answered = &mut running.task => {
                return match answered {
                    Ok(Ok(Answer::Result(result))) => Answer::Result(modernised(&result, &running.method)),
                    Ok(Ok(error)) => error,
                    Ok(Err(e)) => Answer::error(code::INTERNAL, &e.to_string()),
                    Err(_) => Answer::error(code::INTERNAL, "the call was abandoned"),
                };
            }
            Some(demand) = running.demands.recv() => demand,
            demand = next_question(running.questions.as_deref(), taker) => demand,
        };
        running.was_asked = true;
        // All that is asked by now goes into one result: each result costs the client another request.
        let mut demands = vec![demand];
        while let Ok(more) = running.demands.try_recv() {
            demands.push(more);
        }
        while let Some(more) = running.questions.as_ref().and_then(|q| q.try_take(running.taker())) {
            demands.push(more);
        }
        let state = super::handle();
        let mut requests = Vec::new();
        let mut replies = Vec::new();
        for (number, demand) in demands.into_iter().enumerate() {
            let key = format!("input-{}", number + 1);
            let params = demand.params.map(|p| format!(",\"params\":{p}")).unwrap_or_default();
            requests.push(format!("\"{key}\":{{\"method\":{}{params}}}", quoted(&demand.method)));
            replies.push((key, demand.reply));
        }
        let since = tokio::time::Instant::now();
        if let Err(why) = self.parked.park(&state, ParkedCall { running, replies, since }) {
            return Answer::error(code::INTERNAL, &why.to_string());
        }
        Answer::Result(format!(
            r#"{{"{RESULT_TYPE}":"{INPUT_REQUIRED}","{INPUT_REQUESTS}":{{{}}},"{REQUEST_STATE}":"{state}"}}"#,
            requests.join(",")
        ))
    }

    /// Resumes the parked call that a request names in `requestState`; `None` if it names none.
    pub(super) fn unpark(
        self: &Arc<Self>,
        request: &Request,
    ) -> Option<impl Future<Output = Answer> + use<>> {
        if request.call.facts.era != Era::Modern {
            // A legacy client is sent requests, and gets no state to come back with.
            return None;
        }
        let state = request.params.as_ref()?.get(REQUEST_STATE)?;
        let state = text_in(Some(state)).unwrap_or_default();
        if is_sealed(&state) && !self.parked.holds(&state) {
            // A backend's own state, which `forward` opens for that backend.
            return None;
        }
        // Taken now, not when the future is polled: of two requests with one state only the first resumes the call.
        let parked = self.parked.take(&state, &request.call);
        let resumed = parked.map(|parked| self.resume(parked, request));
        // Boxed: every call has room for this future, and few calls resume another.
        Some(Box::pin(async move {
            match resumed {
                Some(resumed) => resumed.await,
                None => foreign_state(),
            }
        }))
    }

    /// Hands a parked call its client's responses, and goes on with it.
    fn resume(
        self: &Arc<Self>,
        parked: ParkedCall,
        request: &Request,
    ) -> impl Future<Output = Answer> + use<> {
        let ParkedCall { running, replies, .. } = parked;
        let params = request.raw_params();
        for (key, reply) in replies {
            let response = message::member(message::member(params, INPUT_RESPONSES), &key);
            // The call it belongs to may have ended meanwhile; then its answer is what the client gets.
            let _ = reply.send(match response {
                Some(response) => Answer::Result(response.get().to_owned()),
                None => Answer::error(code::INTERNAL, "the client gave no answer"),
            });
        }
        // Its progress and logs go on the stream of the new request: that of the first is over.
        running.call.redirect(request.call.outbox());
        let gateway = self.clone();
        async move { gateway.await_or_park(running).await }
    }
}

/// Refuses a state that this client was not given; the error does not reveal whether another client was.
pub(super) fn foreign_state() -> Answer {
    Answer::error(code::INVALID_PARAMS, "no call waits for this client with this requestState")
}

/// Takes the receiver of demands out of a request, because the call may outlive it.
fn taken_demands(request: &mut Request) -> mpsc::Receiver<Demand> {
    // A legacy client has none. A channel without a sender never yields anything.
    request.demands.take().unwrap_or_else(|| mpsc::channel(1).1)
}

/// Waits for a question of a connection's backend; forever if the connection serves several clients.
async fn next_question(questions: Option<&Questions>, taker: QuestionTaker) -> Demand {
    match questions {
        Some(questions) => questions.take(taker).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
