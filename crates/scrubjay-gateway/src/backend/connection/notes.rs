//! Notes about a connection on its tape.

use std::sync::Arc;

use scrubjay_core::entry::{BackendEnded, Direction, EntryKind, Terminator};
use scrubjay_tape::recording::Item;

use super::RpcChannel;
use crate::backend::process::Exit;
use crate::session::{Session, lock};

impl RpcChannel {
    /// Records that a text of the backend about itself was cut to a limit.
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

    /// Records the end of this connection. At once, not when the connection is next needed, so that the tape has the
    /// time and the calls that were under way.
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
            // Also on the tape of each session with a call under way, once.
            let mut noted: Vec<&Arc<Session>> = Vec::new();
            for session in busy.iter().map(|call| &call.session) {
                if !noted.iter().any(|one| Arc::ptr_eq(one, session)) {
                    session.record_ended(&ended);
                    noted.push(session);
                }
            }
        }
    }

    /// Records that a message of the backend, which is on its tape, was not passed on for lack of memory.
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
