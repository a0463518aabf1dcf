//! What is noted of a connection on its tape.

use std::sync::Arc;

use scrubjay_core::entry::{BackendEnded, Direction, EntryKind, Terminator};
use scrubjay_tape::recording::Item;

use super::RpcChannel;
use crate::backend::process::Exit;
use crate::session::{Session, lock};

impl RpcChannel {
    /// Puts on tape that only a part of something that the backend says of itself is passed on.
    pub(in crate::backend) fn note_cut(&self, what: &str, bytes: usize, bytes_max: usize) {
        tracing::warn!(
            backend = self.backend,
            what,
            bytes,
            bytes_max,
            "what the backend says of itself is cut"
        );
        let note = serde_json::json!({
            "event": "cut", "backend": self.recorded_as, "what": what, "bytes": bytes, "limit": bytes_max,
        });
        self.note(note.to_string().as_bytes());
    }

    /// Puts on tape that this connection is over, when that happens and not when somebody next needs it.
    pub(super) fn note_end(&self, why: &str, exit: Option<Exit>) {
        let busy = self.busy();
        let stderr: Vec<String> = lock(&self.stderr_tail).iter().cloned().collect();
        let ended = BackendEnded {
            backend: self.backend.clone(),
            connection: self.number,
            why: Some(why.to_owned()),
            status: exit.and_then(Exit::code),
            signal: exit.and_then(Exit::signal),
            stderr,
            calls: busy.len() as u64,
        };
        self.note(&ended.note());
        if self.owner().is_none() {
            // On the tape of everybody who waits for it, too, once each.
            let mut told: Vec<&Arc<Session>> = Vec::new();
            for session in busy.iter().map(|call| &call.session) {
                if !told.iter().any(|one| Arc::ptr_eq(one, session)) {
                    session.record_ended(&ended);
                    told.push(session);
                }
            }
        }
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

    fn note(&self, note: &[u8]) {
        let item = Item::new(EntryKind::Note, Direction::ServerToClient, Terminator::Eof, note);
        if let Err(e) = self.record_item(item) {
            tracing::error!(backend = self.backend, error = %e, "a note could not be recorded");
        }
    }
}
