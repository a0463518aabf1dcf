//! What a backend says: answers go to the call that asked, notifications and questions to the client they belong to.
//!
//! Everything is on tape before it is passed on; what belongs to no client is on the backend's own tape.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use scrubjay_core::entry::{Direction, EntryKind, Terminator};
use scrubjay_core::framing::{Framer, FramerOutput};
use scrubjay_core::message::{self, Parts, Splice};
use scrubjay_core::protocol::{code, meta, method};
use scrubjay_core::redact::cut;
use scrubjay_core::rules::Onward;
use scrubjay_tape::recording::Item;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, oneshot};

use super::{BEFORE_GREETING_BYTES_MAX, PendingCall, RpcChannel, only_session};
use crate::backend::process::Exit;
use crate::backend::{Answer, Event, Question};
use crate::bridge::received::Received;
use crate::budget::{Charge, Use};
use crate::gateway::related_task;
use crate::ruled_line::RuledLine;
use crate::session::{Call, lock};

/// Memory for a line is counted from this length on.
const LARGE_BYTES: usize = 64 * 1024;
/// Notifications up to this length may use the memory reserve: a `list_changed` fits.
const BRIEF_BYTES: usize = 256;
/// A buffer that has grown beyond this is freed when it is empty.
const BUFFER_BYTES_MAX: usize = 256 * 1024;
/// How long reading from a backend waits for memory.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a backend's last output may take to arrive after it has exited.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where what a backend says comes from.
pub(in crate::backend) enum Incoming {
    /// A stream of lines.
    Lines(Box<dyn AsyncRead + Send + Unpin>),
    /// An HTTP server: each line with the request on whose stream it came.
    Received(mpsc::Receiver<Received>),
}

impl RpcChannel {
    /// Reads what the backend says until its stream ends.
    pub(in crate::backend) async fn listen(self: Arc<Self>, incoming: Incoming) {
        match incoming {
            Incoming::Lines(reader) => self.listen_to_lines(reader).await,
            Incoming::Received(received) => self.listen_to_received(received).await,
        }
    }

    async fn listen_to_received(self: Arc<Self>, mut received: mpsc::Receiver<Received>) {
        let mut closed = self.closed.subscribe();
        loop {
            let heard = tokio::select! {
                heard = received.recv() => heard,
                // Closed from our side: what still comes is dropped.
                _ = closed.wait_for(|closed| *closed) => return,
            };
            match heard {
                Some(heard) => self.receive(&heard.line, heard.on).await,
                None => return self.close_ended(None),
            }
        }
    }

    async fn listen_to_lines(self: Arc<Self>, mut reader: Box<dyn AsyncRead + Send + Unpin>) {
        let mut framer = Framer::new(self.record_options.message_bytes_max);
        let mut room = self.budget.nothing(Use::Backend, true);
        let mut closed = self.closed.subscribe();
        loop {
            self.make_room(&mut framer, &mut room).await;
            let read = tokio::select! {
                read = reader.read_buf(framer.room()) => read.unwrap_or(0),
                // Closed from our side: what still comes is dropped.
                _ = closed.wait_for(|closed| *closed) => return,
            };
            loop {
                match if read == 0 { framer.finish() } else { framer.step() } {
                    FramerOutput::Batch(batch) => {
                        for line in batch.lines() {
                            self.receive(line.bytes, None).await;
                        }
                    }
                    FramerOutput::Oversize(line) => self.too_long(&line),
                    FramerOutput::Starved => break,
                }
            }
            framer.shrink(BUFFER_BYTES_MAX);
            if read == 0 {
                let exit = self.exit().await;
                self.close_ended(exit);
                return;
            }
        }
    }

    /// Takes room for a long line that is being read. Where there is none for a while the line is let pass, as one that
    /// is too long.
    async fn make_room(&self, framer: &mut Framer, room: &mut Charge) {
        let held = framer.pending_bytes();
        // The buffer doubles as it grows; what is small is not worth counting.
        let bytes = if held > LARGE_BYTES { held * 2 } else { 0 };
        if room.resize_within(bytes, ROOM_WAIT_MAX).await.is_err() {
            framer.drop_pending();
            let _ = room.resize(0);
        }
    }

    /// Returns how the process ended, waiting a moment for it to.
    pub(super) async fn exit(&self) -> Option<Exit> {
        let ended = lock(&self.program).as_ref().map(|program| program.ended.clone());
        let mut ended = ended?;
        let waited = tokio::time::timeout(LAST_WORDS, ended.wait_for(|ended| ended.is_some())).await;
        waited.ok().and_then(Result::ok).and_then(|exit| *exit)
    }

    /// Closes the connection of a program that has ended, though something it started may hold its streams.
    pub(in crate::backend) async fn close_after(
        channel: std::sync::Weak<Self>,
        mut ended: tokio::sync::watch::Receiver<Option<Exit>>,
    ) {
        let exit = match ended.wait_for(|ended| ended.is_some()).await {
            Ok(exit) => *exit,
            Err(_) => return,
        };
        tokio::time::sleep(LAST_WORDS).await;
        if let Some(channel) = channel.upgrade() {
            channel.close_ended(exit);
        }
    }

    fn too_long(&self, line: &scrubjay_core::oversize::Oversize) {
        tracing::warn!(backend = self.backend, bytes = line.bytes, "a line of the backend is too long");
        let facts = serde_json::to_vec(line).expect("an oversize is plain data");
        let item = Item::new(EntryKind::Oversize, Direction::ServerToClient, Terminator::Lf, &facts);
        if let Err(e) = self.record_item(item) {
            tracing::error!(backend = self.backend, error = %e, "cannot record that a line was too long");
        }
        let id = line.id.as_deref().and_then(|id| id.parse::<u64>().ok());
        if let Some(pending) = id.and_then(|id| lock(&self.pending).remove(&id)) {
            let why = if line.bytes > self.record_options.message_bytes_max as u64 {
                format!("the backend's answer of {} bytes is beyond the limit", line.bytes)
            } else {
                let key = crate::budget::PROCESS_KEY;
                format!(
                    "the backend's answer of {} bytes was not read, for want of memory ({key})",
                    line.bytes
                )
            };
            let _ = pending.reply.send(Answer::error(code::INTERNAL, &why));
        }
    }

    async fn receive(self: &Arc<Self>, bytes: &[u8], on: Option<u64>) {
        if !self.is_greeted()
            && self.bytes_before.fetch_add(bytes.len() + 1, Ordering::Relaxed) > BEFORE_GREETING_BYTES_MAX
        {
            self.close(
                &format!("it said {BEFORE_GREETING_BYTES_MAX} bytes without answering its greeting"),
                true,
            );
            return;
        }
        let line = String::from_utf8_lossy(bytes);
        // Some systems put a byte order mark before the first thing a program says.
        let line = line.strip_prefix('\u{feff}').unwrap_or(&line).to_owned();
        if line.as_bytes() != bytes {
            // Parsed lossily; the bytes it sent are on its own tape.
            self.record_own(bytes);
        }
        let line = self.judge_inbound(bytes, line);
        let stops = line.judgement.onward == Onward::Nothing;
        if line.judgement.delay.is_zero() && line.judgement.back.is_none() {
            return if stops {
                self.deal_with_stopped(&line, on).await
            } else {
                self.hear_judged(&line, on).await
            };
        }
        // An answer is given though its backend should end meanwhile; one that rules stopped is given to nobody.
        let pending = if stops { None } else { self.pending_of(&line) };
        let call = match &pending {
            Some(pending) => pending.call.clone(),
            None => self.addressee(&line, on),
        };
        let (place, room) = match self.hold_permit(&line, call.as_ref()).await {
            Ok(place) => place,
            // It goes nowhere, so it need not wait.
            Err(_) if stops => return self.deal_with_stopped(&line, on).await,
            Err(full) => return self.refuse_held(&line, call, pending, &full).await,
        };
        let channel = self.clone();
        // Beside the reading: what others wait for is not held up, and a backend that does not read is still heard.
        tokio::spawn(async move {
            line.hold().await;
            // Who passes it on takes room for it.
            drop(room);
            let text = line.text();
            if stops {
                channel.deal_with_stopped(&line, on).await
            } else if let Some((pending, parts)) = pending.zip(Parts::of(&text).ok()) {
                channel.answer(pending, &parts, &line);
            } else {
                channel.hear_judged(&line, on).await
            }
            drop(place);
        });
    }

    async fn hear_judged(self: &Arc<Self>, line: &RuledLine, on: Option<u64>) {
        let text = line.text();
        let Ok(parts) = Parts::of(&text) else {
            // Stray text on the stream: recorded on the backend's own tape, and not passed on.
            if !text.trim().is_empty() {
                self.record_own(line.came.as_bytes());
                tracing::debug!(backend = self.backend, "the backend said something that is no message");
            }
            return;
        };
        match (&parts.method, parts.id) {
            (None, Some(id)) => self.receive_answer(id, &parts, line),
            (Some(method), Some(id)) => {
                let (method, id) = (method.clone(), id.get().to_owned());
                let params = parts.params.map(|p| p.get().to_owned());
                self.clone().receive_request(method, id, params, line, on).await;
            }
            (Some(method), None) => {
                let method = method.clone();
                self.receive_notification(method, line, &text, on).await;
            }
            (None, None) => self.record_own(line.came.as_bytes()),
        }
    }

    fn record_own(&self, line: &[u8]) {
        let item = Item::new(EntryKind::Message, Direction::ServerToClient, Terminator::Lf, line);
        if let Err(e) = self.record_item(item) {
            tracing::error!(backend = self.backend, error = %e, "cannot record what the backend said");
        }
    }

    /// Removes the pending call that a line answers, where it answers one.
    fn pending_of(&self, line: &RuledLine) -> Option<PendingCall> {
        let parts = Parts::of(&line.came).ok().filter(|parts| parts.method.is_none())?;
        let id = parts.id?.get().parse().ok()?;
        lock(&self.pending).remove(&id)
    }

    fn receive_answer(&self, id: &RawValue, parts: &Parts<'_>, line: &RuledLine) {
        let pending = id.get().parse::<u64>().ok().and_then(|id| lock(&self.pending).remove(&id));
        match pending {
            Some(pending) => self.answer(pending, parts, line),
            // Late, repeated or made up: recorded, and passed on to no client.
            None => self.record_own(line.came.as_bytes()),
        }
    }

    fn answer(&self, pending: PendingCall, parts: &Parts<'_>, line: &RuledLine) {
        if let Err(e) = self.record(Direction::ServerToClient, pending.call.as_ref(), line) {
            let why = format!("the answer was not passed on, because it could not be recorded: {e}");
            let _ = pending.reply.send(Answer::error(code::INTERNAL, &why));
            return;
        }
        if line.came.len() > LARGE_BYTES
            && let Some(call) = &pending.call
        {
            // Held until the answer is delivered to the client.
            match self.budget.charge(Use::Backend, line.came.len()) {
                Ok(room) => call.hold(room),
                Err(full) => {
                    call.session.note_dropped(1, line.came.len(), full.key);
                    let why =
                        format!("the answer has {} bytes, and was not passed on: {full}", line.came.len());
                    let _ = pending.reply.send(Answer::error(code::INTERNAL, &why));
                    return;
                }
            }
        }
        let answer = match (parts.result, parts.error) {
            (_, Some(error)) if !message::is_error(error) => {
                // A client would drop such an error and go on waiting.
                let said = cut(error.get(), 200);
                Answer::error(code::INTERNAL, &format!("the backend's error is no JSON-RPC error: {said}"))
            }
            (_, Some(error)) => Answer::Error(error.get().to_owned()),
            (Some(result), None) => Answer::Result(result.get().to_owned()),
            (None, None) => {
                Answer::error(code::INTERNAL, "the backend's answer has neither result nor error")
            }
        };
        // The caller may have left.
        let _ = pending.reply.send(answer);
    }

    async fn receive_request(
        self: Arc<Self>,
        method: String,
        id: String,
        params: Option<String>,
        line: &RuledLine,
        on: Option<u64>,
    ) {
        let busy = self.callers(on);
        let only = self.belongs_to(&busy, on);
        if let Err(e) = self.record(Direction::ServerToClient, only.as_ref(), line) {
            tracing::error!(backend = self.backend, error = %e, "cannot record what the backend asks");
            return;
        }
        // The backend is not read while `OPEN_ENDS_MAX` questions have no answer: each of them is a task that waits.
        let Ok(end) = self.open_ends.clone().acquire_owned().await else { return };
        let room = self.budget.charge(Use::Backend, line.came.len());
        let outside_calls = !self.is_called();
        let (questions, open) = (self.questions.clone(), self.questions.begin(outside_calls));
        // Answered beside the reading: the call it belongs to may be answered first.
        tokio::spawn(async move {
            let answer = if let Err(full) = &room {
                Answer::error(code::INTERNAL, &full.to_string())
            } else if let Some(owner) = &self.passes_to {
                let outbox = only.as_ref().map(|call| call.outbox());
                owner.ask(outbox.as_ref(), &method, params.as_deref()).await
            } else if method == method::PING {
                Answer::Result("{}".to_owned())
            } else if !self.is_greeted() {
                Answer::error(code::INTERNAL, "nothing can be asked before the greeting is answered")
            } else if on.is_some() && busy.is_empty() && self.owner().is_none() {
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
            drop((open, end, room));
        });
    }

    async fn receive_notification(&self, method: String, judged: &RuledLine, line: &str, on: Option<u64>) {
        if method == method::NOTIFICATIONS_PROGRESS {
            return self.receive_progress(judged, line, on).await;
        }
        if let Some((call, line)) = self.subscribed(judged, line, on) {
            self.say(&call, line).await;
            return;
        }
        let busy = self.callers(on);
        let only = self.belongs_to(&busy, on);
        if let Err(e) = self.record(Direction::ServerToClient, only.as_ref(), judged) {
            tracing::error!(backend = self.backend, error = %e, "cannot record a notification");
            return;
        }
        if on.is_some() && busy.is_empty() && !concerns_all(&method) {
            // It belongs to a call that was given up: no other client may get it.
            return;
        }
        let names_task = !self.is_one_clients() && names_task(line);
        if let Some(call) = only.filter(|_| !concerns_all(&method) && !names_task) {
            // At once, not through the queue: the answer behind it must not overtake it.
            if method != method::NOTIFICATIONS_MESSAGE || call.wants_log(line) {
                self.say(&call, line.to_owned()).await;
            }
            return;
        }
        if let Some(owner) = &self.passes_to {
            owner.say_on_standing_stream(line.to_owned());
            return;
        }
        if !self.is_greeted() {
            // Before the greeting it belongs to no client: it is recorded, and not passed on.
            return;
        }
        // A backend that says much waits, and leaves the reserve to calls.
        let mut room = self.budget.nothing(Use::Backend, line.len() <= BRIEF_BYTES);
        if let Err(full) = room.resize_within(line.len(), ROOM_WAIT_MAX).await {
            self.note_dropped(line.len(), full.key);
            return;
        }
        let event = Event::Notification {
            backend: self.backend.clone(),
            owner: self.owner(),
            era: self.era(),
            method,
            line: line.to_owned(),
            busy,
            clients_seen: lock(&self.clients_seen).clone(),
            room,
        };
        // Waits when the gateway cannot keep up: nothing is dropped silently.
        let _ = self.events.send(event).await;
    }

    /// Records that something the backend said, which is on its tape, went no further.
    pub(super) fn note_dropped(&self, bytes: usize, key: &str) {
        let note = serde_json::json!({
            "event": "undelivered", "why": "dropped by limit", "limit": key, "messages": 1, "bytes": bytes,
        });
        let note = note.to_string();
        let item = Item::new(EntryKind::Note, Direction::ServerToClient, Terminator::Eof, note.as_bytes());
        if let Err(e) = self.record_item(item) {
            tracing::error!(backend = self.backend, error = %e, "a note could not be recorded");
        }
    }

    /// Passes progress on to the call that the token was made for. Any other token, and that of a call on whose stream
    /// it did not come, is on tape and reaches nobody.
    async fn receive_progress(&self, judged: &RuledLine, line: &str, on: Option<u64>) {
        let parts = Parts::of(line).ok();
        let token = parts.as_ref().and_then(|parts| parts.param("progressToken"));
        let Some((token, (call, own))) = token.and_then(|token| Some((token, self.progressing(token, on)?)))
        else {
            return self.record_own(judged.came.as_bytes());
        };
        if let Err(e) = self.record(Direction::ServerToClient, Some(&call), judged) {
            tracing::error!(backend = self.backend, error = %e, "cannot record progress");
            return;
        }
        let line = Splice::new(line).replace(Some(token), &own).finish();
        self.say(&call, line).await;
    }

    /// Passes a line on to the client of a call. One that does not read is waited for, unless others wait for what this
    /// backend says.
    async fn say(&self, call: &Arc<Call>, line: String) {
        call.say(line, || self.others_wait(call)).await;
    }

    /// Returns whether other clients wait for what the backend says, which is not read while one is waited for. The
    /// calls of that one are not too slow for it.
    fn others_wait(&self, call: &Arc<Call>) -> bool {
        let is_other = |other: &Arc<Call>| match other.session.is_inferred {
            // Several clients may share it.
            true => !Arc::ptr_eq(other, call),
            false => other.session.client != call.session.client,
        };
        let pending = lock(&self.pending);
        pending.values().for_each(|pending| pending.moves.notify_one());
        pending.values().filter_map(|pending| pending.call.as_ref()).any(is_other)
    }

    fn progressing(&self, token: &RawValue, on: Option<u64>) -> Option<(Arc<Call>, String)> {
        let id = self.call_of_token(token).filter(|id| on.is_none_or(|on| on == *id))?;
        let pending = lock(&self.pending);
        let pending = pending.get(&id)?;
        pending.moves.notify_one();
        Some((pending.call.clone()?, pending.progress_token.clone()?))
    }

    /// Returns whose subscription a notification is part of, and how that client knows it; recorded.
    fn subscribed(&self, judged: &RuledLine, line: &str, on: Option<u64>) -> Option<(Arc<Call>, String)> {
        let parts = Parts::of(line).ok()?;
        let subscription = parts.meta(meta::SUBSCRIPTION_ID)?;
        let id = subscription.get().parse::<u64>().ok().filter(|id| on.is_none_or(|on| on == *id))?;
        let call = lock(&self.pending).get(&id)?.call.clone()?;
        // What cannot be recorded is not passed on; the caller records it again and reports the error.
        self.record(Direction::ServerToClient, Some(&call), judged).ok()?;
        let line = Splice::new(line).replace(Some(subscription), call.id.as_raw()).finish();
        Some((call, line))
    }

    /// Returns the call that what the backend says belongs to, as far as that can be told: the newest, where it is said on
    /// the stream of a call or no other client has ever spoken here.
    pub(super) fn belongs_to(&self, busy: &[Arc<Call>], on: Option<u64>) -> Option<Arc<Call>> {
        if self.is_one_clients() {
            return busy.first().cloned();
        }
        only_session(busy)
            .filter(|call| on.is_some() || lock(&self.clients_seen).is_nobody_but(&call.session))
    }

    /// Returns the call that something is for which answers none, as far as that can be told.
    fn addressee(&self, line: &RuledLine, on: Option<u64>) -> Option<Arc<Call>> {
        let text = line.text();
        let parts = Parts::of(&text).ok();
        let token = parts.as_ref().and_then(|parts| parts.param("progressToken"));
        let progressing = token.and_then(|token| self.progressing(token, on));
        progressing.map(|(call, _)| call).or_else(|| self.belongs_to(&self.callers(on), on))
    }

    /// Returns whether a call is under way whose client may be asked by its answer.
    fn is_called(&self) -> bool {
        lock(&self.pending).values().any(|pending| pending.may_demand && pending.call.is_some())
    }

    /// Returns the calls that something the backend says may belong to, newest first: on the stream of one
    /// call, that call alone.
    pub(super) fn callers(&self, on: Option<u64>) -> Vec<Arc<Call>> {
        match on {
            Some(id) => lock(&self.pending).get(&id).and_then(|p| p.call.clone()).into_iter().collect(),
            None => self.busy(),
        }
    }

    /// Returns the calls under way, newest first.
    pub(super) fn busy(&self) -> Vec<Arc<Call>> {
        let pending = lock(&self.pending);
        let mut calls: Vec<(u64, Arc<Call>)> =
            pending.iter().filter_map(|(id, p)| Some((*id, p.call.clone()?))).collect();
        calls.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
        calls.into_iter().map(|(_, call)| call).collect()
    }
}

/// Tells whether a notification is about a task, which may be another client's than the one with calls under way.
fn names_task(line: &str) -> bool {
    Parts::of(line).is_ok_and(|parts| related_task(parts.params).is_some())
}

/// Returns whether a notification is for every client, not only for those with calls under way.
fn concerns_all(method: &str) -> bool {
    method.ends_with("/list_changed")
        || matches!(
            method,
            method::NOTIFICATIONS_RESOURCES_UPDATED | method::NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED
        )
}
