//! The end of a recording: its last notes, the entry that says how it ended, and the sealing of its tape.

use std::path::PathBuf;
use std::sync::Arc;

use scrubjay_core::entry::End;
use scrubjay_core::redact::Redacted;

use super::item::{end_item, note_item};
use super::{RecordError, Recording};
use crate::clock;
use crate::format::seal::{SealError, seal};

impl Recording {
    /// Ends the recording: records how the connection ended, and seals the tape. `None` if nothing was recorded.
    ///
    /// # Errors
    /// The tape could not be sealed; it stays as it is and the next start seals it.
    pub fn finish(mut self, end: &End) -> Result<Option<PathBuf>, SealError> {
        let Some(recorded) = self.note_end(end) else { return Ok(None) };
        let sealed = match &self.writer {
            // The writer keeps its lock until the sealed file is complete.
            Some(writer) => seal(writer.path()).map(Some),
            None => recorded.map(|_| None).map_err(|e| SealError::Io { path: e.path, source: e.source }),
        };
        if let Ok(Some(sealed)) = &sealed {
            // Without the note a later connection only names no tape before it.
            let _ = self.home.note_session_end(sealed);
        }
        // A failure to seal the previous tape must not keep this one from being sealed. A panic was reported by its
        // thread.
        let before =
            self.sealing.take().map_or(Ok(PathBuf::new()), |s| s.join().unwrap_or(Ok(PathBuf::new())));
        before.and(sealed)
    }

    /// Records how the connection ended, and leaves the tape for the next start to seal.
    ///
    /// # Errors
    /// The end could not be written.
    pub fn finish_unsealed(mut self, end: &End) -> Result<(), RecordError> {
        self.note_end(end).map_or(Ok(()), |recorded| recorded.map(|_| ()))
    }

    /// Writes the last notes and the end; `None` if nothing was recorded.
    fn note_end(&mut self, end: &End) -> Option<Result<u64, RecordError>> {
        self.finish_selection();
        let left = self.leave_failed();
        // One write for notes and end, so that a tape with an end has all its notes.
        let mut notes = self.undelivered_notes().encode();
        notes.extend(self.take_left_out().map(|left_out| left_out.note().to_string().into_bytes()));
        let is_empty = self.writer.is_none() && self.gaps.is_empty() && notes.is_empty();
        if is_empty && self.sealing.is_none() && left.is_ok() {
            return None;
        }
        Some(if is_empty { left.map(|()| 0) } else { self.record_end(end, &notes) })
    }

    /// Writes the end to the current tape even if it is full: another tape would hold nothing else.
    fn record_end(&mut self, end: &End, notes: &[Vec<u8>]) -> Result<u64, RecordError> {
        let payload = serde_json::to_vec(end).expect("an end is plain data");
        let now = clock::now();
        self.leave_failed()?;
        if self.writer.is_none() {
            self.writer = Some(self.next_tape(now, self.durable.before)?);
        }
        let redactor = Arc::clone(&self.redactor);
        let preface = self.preface();
        let notes: Vec<(&[u8], Redacted<'_>)> =
            preface.iter().chain(notes).map(|note| (note.as_slice(), redactor.redact(note))).collect();
        let notes = notes.iter().map(|(note, redacted)| (note_item(note), redacted.payload()));
        let redacted = redactor.redact(&payload);
        self.append(now, notes.chain(std::iter::once((end_item(&payload), redacted.payload()))))
    }
}
