//! What a backend says: answers go to the call that asked, notifications and questions to the client they belong to.
//!
//! Everything is on tape before it is passed on; what belongs to no client is on the backend's own tape.

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
use scrubjay_core::rules::Onward;
use scrubjay_tape::recording::Item;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

use super::channel::RpcChannel;
use crate::backend::Answer;
use crate::backend::process::Exit;
use crate::bridge::received::ReceivedLine;
use crate::budget::{Charge, Use};
use crate::ruled_line::RuledLine;
use crate::session::lock;

/// How much a backend may say before it answers its greeting: some print their logs, but one that floods is ended.
const BEFORE_GREETING_BYTES_MAX: usize = 4 << 20;
/// Memory for a line is counted from this length on.
const LARGE_BYTES: usize = 64 * 1024;
/// A buffer that has grown beyond this is freed when it is empty.
const BUFFER_BYTES_MAX: usize = 256 * 1024;
/// How long reading from a backend waits for memory.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a backend's last output may take to arrive after it has exited.
const LAST_OUTPUT_MAX: Duration = Duration::from_secs(1);

/// Where what a backend says comes from.
pub(in crate::backend) enum Incoming {
    /// A stream of lines.
    Lines(Box<dyn AsyncRead + Send + Unpin>),
    /// An HTTP server: each line with the request on whose stream it came.
    Received(mpsc::Receiver<ReceivedLine>),
}

impl RpcChannel {
    /// Reads what the backend says until its stream ends.
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
                // Closed from our side: what still comes is dropped.
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
        let held = framer.held();
        // The buffer doubles as it grows; what is small is not worth counting.
        let bytes = if held > LARGE_BYTES { held * 2 } else { 0 };
        if room.resize_within(bytes, ROOM_WAIT_MAX).await.is_err() {
            framer.let_pass();
            let _ = room.resize(0);
        }
    }

    /// Returns how the process ended, waiting a moment for it to.
    pub(super) async fn exit(&self) -> Option<Exit> {
        let ended = lock(&self.program).as_ref().map(|program| program.ended.clone());
        let mut ended = ended?;
        let waited = tokio::time::timeout(LAST_OUTPUT_MAX, ended.wait_for(|ended| ended.is_some())).await;
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
        tokio::time::sleep(LAST_OUTPUT_MAX).await;
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
                self.finish_stopped(&line, stream_of).await
            } else {
                self.dispatch(&line, stream_of).await
            };
        }
        // An answer is given though its backend should end meanwhile; one that rules stopped is given to nobody.
        let pending = if stops { None } else { self.pending_of(&line) };
        let call = match &pending {
            Some(pending) => pending.call.clone(),
            None => self.addressee(&line, stream_of),
        };
        let (permit, room) = match self.hold_permit(&line, call.as_ref()).await {
            Ok(permit) => permit,
            // It goes nowhere, so it need not wait.
            Err(_) if stops => return self.finish_stopped(&line, stream_of).await,
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
                self.clone().receive_request(method, id, params, line, stream_of).await;
            }
            (Some(method), None) => {
                let method = method.clone();
                self.receive_notification(method, line, &text, stream_of).await;
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
}
