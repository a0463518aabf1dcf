//! Applies rules to requests that the gateway answers itself, as if it were a backend.
//!
//! In rules the router goes by the name of its toolset, everything else by the gateway's own. Lists and greetings are
//! not judged here: they are made of messages of backends, which were judged when they came.

use std::sync::Arc;

use scrubjay_core::entry::{Direction, Terminator, Transport};
use scrubjay_core::message::{self, Parts};
use scrubjay_core::protocol::{code, method};
use scrubjay_core::rules::{Forwarded, Judge, Rules};
use scrubjay_tape::recording::{Item, Leg};

use super::{Gateway, Request, shutdown};
use crate::backend::Answer;
use crate::client_message::Params;
use crate::ruled_line::{self, RuledLine, answer_in};
use crate::session::Call;

/// The router's name in rules.
const ROUTER: &str = "router";
/// The gateway's own name in rules.
const GATEWAY: &str = "scrubjay";

/// The leg between a client's request and the gateway's own answer: judged and recorded like one to a backend.
struct OwnLeg {
    judge: Judge,
    name: &'static str,
    call: Arc<Call>,
}

impl Gateway {
    /// Answers a request; one that the gateway answers itself passes the rules first.
    pub(super) async fn answer_ruled(self: &Arc<Self>, request: &mut Request) -> Answer {
        let rules = self.rules.are_any().then(|| self.rules.now()).flatten();
        let leg = rules.and_then(|rules| self.own_leg(rules, request));
        match leg {
            Some(leg) => match Box::pin(self.answer_over(leg, request)).await {
                Ok(answer) | Err(answer) => answer,
            },
            None => self.respond(request).await,
        }
    }

    /// Returns the leg for a request, if only the gateway answers it and a rule applies to that. Boxed: other requests
    /// must not carry its room.
    fn own_leg(&self, rules: Arc<Rules>, request: &Request) -> Option<Box<OwnLeg>> {
        let name = match request.method.as_str() {
            _ if self.is_task(request) => ROUTER,
            method::PING | method::LOGGING_SET_LEVEL | shutdown::SHUTDOWN => GATEWAY,
            _ => return None,
        };
        let judge = Judge::new(rules, name, self.record_options.message_bytes_max);
        judge.is_strict().then(|| Box::new(OwnLeg { judge, name, call: request.call.clone() }))
    }

    /// Answers a request over such a leg; an error is what the rules answer instead.
    async fn answer_over(
        self: &Arc<Self>,
        mut leg: Box<OwnLeg>,
        request: &mut Request,
    ) -> Result<Answer, Answer> {
        let id = request.id.as_raw().to_owned();
        let line = message::request(&id, &request.method, request.params.as_deref());
        let line = leg.pass(Direction::ClientToServer, line).await?;
        // A rule may have changed the params: the answer is to what it let pass.
        request.params = Parts::of(&line).ok().and_then(|parts| Params::new(parts.params?.get()));
        let answer = match self.respond(request).await {
            Answer::Result(result) => message::result(&id, &result),
            Answer::Error(error) => message::raw_error(&id, &error),
        };
        let answer = leg.pass(Direction::ServerToClient, answer).await?;
        answer_in(&answer).ok_or_else(|| Answer::error(code::INTERNAL, "rules left no answer"))
    }

    /// Logs the rules that name no backend of this gateway: a misspelt name must not look like a rule in force.
    pub(super) fn name_idle_rules(&self) {
        let Some(rules) = self.rules.now().filter(|_| self.transparent.is_none()) else { return };
        let backends = self.backends();
        let known: Vec<&str> = backends.iter().map(|b| b.id.as_str()).chain([ROUTER, GATEWAY]).collect();
        for rule in rules.about_none_of(&known) {
            tracing::warn!(
                rule,
                "this rule applies to nothing: no backend or toolset goes by a name in `backends`"
            );
        }
    }
}

impl OwnLeg {
    /// Judges a line and records it; returns the line to pass on, or what the rules answer instead.
    async fn pass(&mut self, direction: Direction, line: String) -> Result<String, Answer> {
        let line = RuledLine { judgement: self.judge.line(direction, line.as_bytes()), original: line };
        line.hold().await;
        let via = Some(Leg { backend: self.name, connection: 1, transport: Transport::Memory });
        let operation = self.call.recorded.map(|entry| entry.number);
        let items = ruled_line::items(direction, Terminator::Lf, line.original.as_bytes(), &line.judgement);
        let items: Vec<Item<'_>> = items.into_iter().map(|item| Item { via, operation, ..item }).collect();
        let recorded = self.call.session.record_backend(&items, 0, |_| ());
        recorded.map_err(|e| {
            let why = format!("this was not answered, because it could not be recorded: {e}");
            Answer::error(code::INTERNAL, &why)
        })?;
        match line.answer() {
            Some(answer) => Err(answer),
            None if line.judgement.forwarded == Forwarded::Nothing => {
                Err(Answer::error(code::INTERNAL, "rules left no answer"))
            }
            None => Ok(line.text().into_owned()),
        }
    }
}
