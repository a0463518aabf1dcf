//! Sends to a backend: calls, which wait for their answers, and lines without an answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use scrubjay_core::entry::Direction;
use scrubjay_core::message;
use scrubjay_core::protocol::method;
use scrubjay_core::rules::Forwarded;
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, oneshot};

use super::channel::{InBridge, PendingCall, RpcChannel, Writer};
use super::progress_token::request_line;
use crate::backend::caller::with_caller;
use crate::backend::{Answer, CallError};
use crate::budget::{MemoryUse, Queued};
use crate::delivery::{LineBatch, Outgoing};
use crate::ruled_line::RuledLine;
use crate::session::{Call, lock};

/// The most calls under way on one connection; others fail at once.
const CALLS_MAX: usize = 65_536;
/// Queued lines go out in one write until it has this many bytes. 64 KiB: a pipe's default capacity.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// A line that could not be sent without waiting, given back to its sender.
#[derive(Debug)]
pub(crate) struct UnsentLine(pub(super) String);

impl RpcChannel {
    pub(in crate::backend) async fn call(
        self: &Arc<Self>,
        call: Option<&Arc<Call>>,
        method: &str,
        params: Option<&str>,
        timeout: Duration,
    ) -> Result<Answer, CallError> {
        // Never used twice on a connection, so that a late answer cannot match another call.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let with_caller = call.filter(|_| self.is_own).map(|call| with_caller(call, params));
        let params = with_caller.as_ref().map_or(params, |params| params.as_deref());
        let (request, progress_token) = request_line(id, method, params, || self.progress_token(id));
        // Freed now, as it is a copy of params that may be large, and the answer may take long.
        drop(with_caller);
        // Dropped before the answer, it cancels the call at the backend.
        let mut guard = AbandonGuard { channel: self, id, call, is_under_way: false, is_answered: false };
        let line = self.judge(Direction::ClientToServer, request);
        line.hold().await;
        if let Some(answer) = line.answer() {
            let recorded = self.record_then(Direction::ClientToServer, call, &line, None);
            return recorded.map(|()| answer).map_err(|e| CallError::NotRecorded(e.to_string()));
        }
        if let Some(call) = call {
            lock(&self.clients_seen).add(&call.session);
        }
        let (reply, mut answer) = oneshot::channel();
        let progressed = Arc::new(tokio::sync::Notify::new());
        {
            let mut pending = lock(&self.pending);
            if !self.is_open() || pending.len() >= CALLS_MAX {
                drop(pending);
                return Err(CallError::Unavailable(self.backend.clone(), self.why_closed()));
            }
            let call = call.cloned();
            let may_demand =
                matches!(method, method::TOOLS_CALL | method::PROMPTS_GET | method::RESOURCES_READ);
            pending.insert(
                id,
                PendingCall { call, may_demand, reply, progress_token, progressed: progressed.clone() },
            );
        }
        // From here on the request may reach the backend, and has to be cancelled there.
        guard.is_under_way = true;
        let timed_out = || CallError::TimedOut(self.backend.clone(), timeout);
        let sent = self.send_judged(call, &line);
        tokio::time::timeout(timeout, sent).await.map_err(|_| timed_out())??;
        // Freed now: the answer may take long, and the request may be large.
        drop(line);
        let answered = loop {
            tokio::select! {
                answered = &mut answer => break answered,
                // Progress starts the timeout again: a backend that reports it is not hanging.
                () = progressed.notified() => {}
                () = tokio::time::sleep(timeout) => return Err(timed_out()),
            }
        };
        guard.is_answered = true;
        answered.map_err(|_| CallError::Unavailable(self.backend.clone(), self.why_closed()))
    }

    /// Judges a line, records it and sends it. Dropped while it waits, it is neither recorded nor sent.
    pub(in crate::backend) async fn send(
        &self,
        call: Option<&Arc<Call>>,
        line: String,
    ) -> Result<(), CallError> {
        let line = self.judge(Direction::ClientToServer, line);
        line.hold().await;
        self.send_judged(call, &line).await
    }

    async fn send_judged(&self, call: Option<&Arc<Call>>, line: &RuledLine) -> Result<(), CallError> {
        let goes_on = line.judgement.forwarded != Forwarded::Nothing;
        let leaving = goes_on.then(|| line.text().into_owned());
        self.record_and_send(Direction::ClientToServer, call, line, leaving).await
    }

    pub(super) fn send_now(&self, line: String) -> Result<(), UnsentLine> {
        let lines = lock(&self.lines).clone();
        let Some(permit) = lines.as_ref().and_then(|lines| lines.try_reserve().ok()) else {
            return Err(UnsentLine(line));
        };
        let line = self.judge(Direction::ClientToServer, line);
        if line.judgement.delay > Duration::ZERO {
            return Err(UnsentLine(line.original));
        }
        let mut leaving = None;
        if line.judgement.forwarded != Forwarded::Nothing {
            let text = line.text().into_owned();
            let Ok(charge) = self.queue.charge(MemoryUse::Backend, text.len()) else {
                return Err(UnsentLine(line.original));
            };
            leaving = Some((permit, Queued::new(text, charge)));
        }
        if let Err(e) = self.record_then(Direction::ClientToServer, None, &line, leaving) {
            tracing::error!(backend = self.backend, error = %e, "a notification was not passed on");
        }
        Ok(())
    }
}

/// Writes queued lines to a backend. A task of its own, so that a line is written whole even if its sender is dropped.
pub(super) async fn write(
    channel: std::sync::Weak<RpcChannel>,
    mut writer: Writer,
    in_bridge: InBridge,
    mut lines: mpsc::Receiver<Outgoing>,
) {
    while let Some(line) = lines.recv().await {
        let mut batch = LineBatch::default();
        batch.push(line);
        while batch.bytes() < WRITE_BYTES_MAX
            && let Ok(more) = lines.try_recv()
        {
            batch.push(more);
        }
        if let Some(in_bridge) = &in_bridge {
            batch.hand_over(in_bridge);
        }
        if let Err(e) = batch.write_to(&mut writer).await {
            // In this order: the tape names the lines that were not written before it names the end of the backend.
            drop(batch);
            lines.close();
            while lines.try_recv().is_ok() {}
            if let Some(channel) = channel.upgrade() {
                // Usually it has exited, and the exit status says more than the failed write.
                match channel.exit().await {
                    Some(exit) => channel.close_ended(Some(exit)),
                    None => channel.close(&format!("it does not read any more: {e}"), true),
                }
            }
            return;
        }
    }
    // A toolset or bridge learns from the end of its stream that the connection is closed. It may have ended before.
    let _ = writer.shutdown().await;
}

/// Cancels a call at the backend when its caller is dropped before the answer.
struct AbandonGuard<'a> {
    channel: &'a Arc<RpcChannel>,
    id: u64,
    call: Option<&'a Arc<Call>>,
    /// Whether the request may have reached the backend.
    is_under_way: bool,
    is_answered: bool,
}

impl Drop for AbandonGuard<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        // The judge remembers a limited number of open calls: one that nobody waits for must not take the place of
        // another.
        self.channel.judge.forget_call(self.id);
        if !self.is_under_way {
            return;
        }
        lock(&self.channel.pending).remove(&self.id);
        // Without a permit nothing is sent: a backend that does not read would collect a task for each call.
        let permit = self.channel.side_tasks.clone().try_acquire_owned().ok();
        if let Some(permit) = permit.filter(|_| self.channel.is_open()) {
            let (channel, call, id) = (self.channel.clone(), self.call.cloned(), self.id);
            tokio::spawn(async move {
                let _permit = permit;
                let params = format!(r#"{{"requestId":{id},"reason":"the caller left"}}"#);
                let line = message::notification(method::NOTIFICATIONS_CANCELLED, Some(&params));
                // Fails if the backend has ended, and its calls with it.
                let _ = channel.send(call.as_ref(), line).await;
            });
        }
    }
}
