//! Reads from a backend, and passes answers to the call that asked, notifications and questions to the client they
//! belong to.
//!
//! Every message is on tape before it is passed on; one that belongs to no client is on the backend's own tape.

mod answers;
mod notifications;
mod requests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use scrubjay_core::entry::{Direction, EntryKind, Terminator};
use scrubjay_core::framing::{Framer, FramerOutput};
use scrubjay_core::message::Parts;
use scrubjay_core::protocol::code;
use scrubjay_core::rules::Forwarded;
use scrubjay_tape::recording::Item;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

use super::channel::RpcChannel;
use crate::backend::Answer;
use crate::backend::process::Exit;
use crate::bridge::received::ReceivedLine;
use crate::budget::{Charge, MemoryUse};
use crate::ruled_line::RuledLine;
use crate::session::lock;

/// How much a backend may write before it answers its greeting. Some print logs; one that floods is closed: until the
/// greeting, its output belongs to no client.
const BEFORE_GREETING_BYTES_MAX: usize = 4 << 20;
/// The memory of a longer line is charged to the budget.
const LARGE_BYTES: usize = 64 * 1024;
/// A buffer that has grown beyond this is freed when it is empty: there may be a connection for each client.
const BUFFER_BYTES_MAX: usize = 256 * 1024;
/// How long a line waits for memory, while its backend is not read.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long the last output of a program may take to arrive after it has exited, or its exit status after its output.
const LAST_OUTPUT_MAX: Duration = Duration::from_secs(1);

/// The source of a backend's messages.
pub(in crate::backend) enum Incoming {
    /// A stream of lines.
    Lines(Box<dyn AsyncRead + Send + Unpin>),
    /// A bridge to an HTTP server: each line comes with the request on whose stream it was sent.
    Received(mpsc::Receiver<ReceivedLine>),
}

impl RpcChannel {
    /// Reads until the stream ends.
    pub(in crate::backend) async fn listen(self: Arc<Self>, incoming: Incoming) {
        match incoming {
            Incoming::Lines(reader) => self.listen_to_lines(reader).await,
            Incoming::Received(received) => self.listen_to_received(received).await,
        }
    }

    async fn listen_to_received(self: Arc<Self>, mut received: mpsc::Receiver<ReceivedLine>) {
        let mut closed = self.closed.subscribe();
        loop {
            let line = tokio::select! {
                line = received.recv() => line,
                // Closed by the gateway: later output is dropped.
                _ = closed.wait_for(|closed| *closed) => return,
            };
            match line {
                Some(line) => self.receive(&line.line, line.stream_of).await,
                None => return self.close_ended(None),
            }
        }
    }

    async fn listen_to_lines(self: Arc<Self>, mut reader: Box<dyn AsyncRead + Send + Unpin>) {
        let mut framer = Framer::new(self.record_options.message_bytes_max);
        let mut charge = self.budget.nothing(MemoryUse::Backend, true);
        let mut closed = self.closed.subscribe();
        loop {
            self.make_room(&mut framer, &mut charge).await;
            let read = tokio::select! {
                read = reader.read_buf(framer.room()) => read.unwrap_or(0),
                // Closed by the gateway: later output is dropped.
                _ = closed.wait_for(|closed| *closed) => return,
            };
            loop {
                match if read == 0 { framer.finish() } else { framer.step() } {
                    FramerOutput::Batch(batch) => {
                        for line in batch.lines() {
                            self.receive(line.bytes, None).await;
                        }
                    }
                    FramerOutput::Oversize(line) => self.receive_oversize(&line),
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

    /// Charges the memory of a long line that is being read. If there is no room within `ROOM_WAIT_MAX`, the line is
    /// skipped like one that is too long.
    async fn make_room(&self, framer: &mut Framer, charge: &mut Charge) {
        let held = framer.pending_bytes();
        // Twice what it holds, because the buffer doubles as it grows.
        let bytes = if held > LARGE_BYTES { held * 2 } else { 0 };
        if charge.resize_within(bytes, ROOM_WAIT_MAX).await.is_err() {
            framer.drop_pending();
            // Shrinking a charge cannot fail.
            let _ = charge.resize(0);
        }
    }

    /// Waits a moment for the exit status of the program, and returns it.
    pub(super) async fn exit(&self) -> Option<Exit> {
        let ended = lock(&self.program).as_ref().map(|program| program.ended.clone());
        let mut ended = ended?;
        let waited = tokio::time::timeout(LAST_OUTPUT_MAX, ended.wait_for(|ended| ended.is_some())).await;
        waited.ok().and_then(Result::ok).and_then(|exit| *exit)
    }

    /// Closes the connection when its program has ended, even if a process that it started holds the streams open.
    pub(in crate::backend) async fn close_after(
        channel: std::sync::Weak<Self>,
        mut ended: tokio::sync::watch::Receiver<Option<Exit>>,
    ) {
        let exit = match ended.wait_for(|ended| ended.is_some()).await {
            Ok(exit) => *exit,
            Err(_) => return,
        };
        tokio::time::sleep(LAST_OUTPUT_MAX).await;
        if let Some(channel) = channel.upgrade() {
            channel.close_ended(exit);
        }
    }

    fn receive_oversize(&self, line: &scrubjay_core::oversize::Oversize) {
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

    async fn receive(self: &Arc<Self>, bytes: &[u8], stream_of: Option<u64>) {
        if !self.is_greeted()
            && self.bytes_before_greeting.fetch_add(bytes.len() + 1, Ordering::Relaxed)
                > BEFORE_GREETING_BYTES_MAX
        {
            self.close(
                &format!("it said {BEFORE_GREETING_BYTES_MAX} bytes without answering its greeting"),
                true,
            );
            return;
        }
        let line = String::from_utf8_lossy(bytes);
        // Some systems write a byte order mark before the first output of a program.
        let line = line.strip_prefix('\u{feff}').unwrap_or(&line).to_owned();
        if line.as_bytes() != bytes {
            // The line that is passed on is not what came: the original bytes are kept on the backend's own tape.
            self.record_own(bytes);
        }
        let line = self.judge_inbound(bytes, line);
        let stops = line.judgement.forwarded == Forwarded::Nothing;
        if line.judgement.delay.is_zero() && line.judgement.back.is_none() {
            return if stops {
                self.finish_stopped(&line, stream_of).await
            } else {
                self.dispatch(&line, stream_of).await
            };
        }
        // Taken out of `pending` before the delay: closing fails the calls that are pending, and this one has its
        // answer. An answer that the rules stopped is delivered to nobody.
        let pending = if stops { None } else { self.pending_of(&line) };
        let call = match &pending {
            Some(pending) => pending.call.clone(),
            None => self.addressee(&line, stream_of),
        };
        let (permit, charge) = match self.hold_permit(&line, call.as_ref()).await {
            Ok(permit) => permit,
            // It is not passed on, so it need not wait either.
            Err(_) if stops => return self.finish_stopped(&line, stream_of).await,
            Err(full) => return self.refuse_held(&line, call, pending, &full).await,
        };
        let channel = self.clone();
        // In a task, so that a delay holds up neither messages for others nor the reading of a backend that does not
        // read.
        tokio::spawn(async move {
            line.hold().await;
            // Passing it on charges its memory again.
            drop(charge);
            let text = line.text();
            if stops {
                channel.finish_stopped(&line, stream_of).await
            } else if let Some((pending, parts)) = pending.zip(Parts::of(&text).ok()) {
                channel.answer(pending, &parts, &line);
            } else {
                channel.dispatch(&line, stream_of).await
            }
            drop(permit);
        });
    }

    async fn dispatch(self: &Arc<Self>, line: &RuledLine, stream_of: Option<u64>) {
        let text = line.text();
        let Ok(parts) = Parts::of(&text) else {
            // Not JSON-RPC, such as a log line: recorded on the backend's own tape, and not passed on.
            if !text.trim().is_empty() {
                self.record_own(line.original.as_bytes());
                tracing::debug!(backend = self.backend, "the backend wrote something that is no message");
            }
            return;
        };
        match (&parts.method, parts.id) {
            (None, Some(id)) => self.receive_answer(id, &parts, line),
            (Some(method), Some(id)) => {
                let (method, id) = (method.clone(), id.get().to_owned());
                let params = parts.params.map(|p| p.get().to_owned());
                self.clone().receive_request(method, id, params, line, stream_of).await;
            }
            (Some(method), None) => {
                let method = method.clone();
                self.receive_notification(method, line, &text, stream_of).await;
            }
            (None, None) => self.record_own(line.original.as_bytes()),
        }
    }

    fn record_own(&self, line: &[u8]) {
        let item = Item::new(EntryKind::Message, Direction::ServerToClient, Terminator::Lf, line);
        if let Err(e) = self.record_item(item) {
            tracing::error!(backend = self.backend, error = %e, "cannot record what the backend said");
        }
    }
}
