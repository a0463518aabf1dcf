//! Rotation: when a tape is full, how it is closed, and how the next one links to it.

use std::io;
use std::time::Duration;

use scrubjay_core::entry::End;
use scrubjay_core::id::TapeId;

use super::item::{Stamp, end_item, note_item};
use super::undelivered::PastTape;
use super::{RecordError, Recording, lower_thread_priority};
use crate::clock::Moment;
use crate::format::header::{Header, Links, SessionRef, SessionSource, TapeKind};
use crate::format::seal::seal;
use crate::format::writer::Writer;

/// The size and the age at which a tape is full.
#[derive(Clone, Copy, Debug)]
pub struct RotationLimits {
    /// The size of the live file, in bytes.
    pub tape_bytes_max: u64,
    /// The age since its first entry.
    pub tape_duration_max: Duration,
}

impl Default for RotationLimits {
    fn default() -> Self {
        Self { tape_bytes_max: 100 << 20, tape_duration_max: Duration::from_secs(3600) }
    }
}

impl Recording {
    /// Makes sure that there is a tape with room for `bytes` more.
    pub(super) fn make_room(&mut self, now: Moment, bytes: u64) -> Result<(), RecordError> {
        self.leave_failed()?;
        let Some(writer) = &self.writer else {
            self.writer = Some(self.next_tape(now, self.durable.before)?);
            return Ok(());
        };
        let age = now.instant.saturating_duration_since(writer.started());
        let full = writer.entries() > 0
            && (writer.bytes() + bytes > self.limits.tape_bytes_max || age > self.limits.tape_duration_max);
        if full && !self.durable.is_syncing() {
            // If this fails, the next tape notes them with the id of this one.
            let _ = self.note_undelivered(now);
            // A tape that is being sealed can no longer be synced. The notes must be synced too, because they are part
            // of the end that the next tape names.
            self.sync_if_wanted()?;
            self.rotate(now);
        }
        Ok(())
    }

    /// Moves on to the next tape. If none can be created, the current one keeps growing.
    fn rotate(&mut self, now: Moment) {
        let Some(mut full) = self.writer.take() else { return };
        // The successor names the end as it is now, before the closing entries: a crash before they are written must
        // not look like tampering. If the digest cannot be read, the successor names the id alone.
        let before = std::mem::replace(&mut self.before, self.digest.end(&full).ok());
        match self.next_tape(now, Some(full.header().id)) {
            Ok(next) => {
                let end = End {
                    reason: "the tape was full".to_owned(),
                    exit_code: None,
                    signal: None,
                    continues_on: Some(next.header().id),
                };
                self.close_full(&mut full, &end, now);
                let numbers = full.entries();
                self.note_past_tape(&full, numbers);
                self.durable.announced = Some(next.header().id);
                self.digest.follow_tape(&next);
                self.writer = Some(next);
                self.seal_in_background(full);
            }
            Err(_) => (self.writer, self.before) = (Some(full), before),
        }
    }

    /// Writes the last entries of a full tape: what was left out of it, and which tape continues it.
    fn close_full(&mut self, full: &mut Writer, end: &End, now: Moment) {
        let payload = serde_json::to_vec(end).expect("an end is plain data");
        let stamp = Stamp::new(now, full, self.subject.transport);
        let left_out = self.take_left_out();
        let note = left_out.map(|left_out| left_out.note().to_string().into_bytes());
        let note = note.as_deref().map(|note| (note_item(note), self.redactor.redact(note)));
        let note = note.iter().map(|(item, redacted)| (*item, redacted.payload()));
        let redacted = self.redactor.redact(&payload);
        let last = note.chain(std::iter::once((end_item(&payload), redacted.payload())));
        let closed = full.append(last.map(|(item, payload)| stamp.entry(item).with_payload(payload)));
        // If this fails the tape reads as cut off, and its successor still names it.
        if closed.is_err()
            && let Some(left_out) = left_out
        {
            self.defer_left_out_note(&left_out);
        }
    }

    /// Remembers a tape that is no longer written, so that its entries can still be named. `numbers` were given out for
    /// it; those beyond its entries were taken off it.
    pub(super) fn note_past_tape(&mut self, tape: &Writer, numbers: u64) {
        let header = tape.header();
        self.marks.tape_ended(PastTape {
            part: header.part,
            first: self.earlier,
            entries: tape.entries(),
            id: header.id,
        });
        self.earlier += numbers;
        self.durable.before = Some(header.id);
    }

    pub(super) fn seal_in_background(&mut self, full: Writer) {
        if self.sealing.as_ref().is_some_and(|s| !s.is_finished()) {
            // Sealing cannot keep up. This tape stays live and abandoned; the next start seals it.
            return;
        }
        let sealing = std::thread::Builder::new().name("seal".to_owned()).spawn(move || {
            lower_thread_priority();
            seal(full.path())
        });
        self.sealing = sealing.ok();
    }

    pub(super) fn next_tape(
        &mut self,
        now: Moment,
        continues: Option<TapeId>,
    ) -> Result<Writer, RecordError> {
        let tapes = self.home.tapes();
        let failed = |source| RecordError { path: tapes.clone(), source };
        self.home.create().map_err(failed)?;
        let mut random = [0; 10];
        getrandom::fill(&mut random).map_err(|e| failed(io::Error::other(e)))?;
        let id = TapeId::from_random(random);
        // Without a session the connection is one of its own, named by its first tape.
        let session = self.session().unwrap_or_else(|| SessionRef::of_connection(id.as_str()));
        let links = self.links(continues, &session);
        let header = Header {
            id,
            name: self.subject.name.clone(),
            noted_kind: Some(self.subject.kind),
            gateway: self.subject.gateway.clone(),
            transport: self.subject.transport,
            started_wall_ns: now.wall_ns,
            clock_behind_ns: self.home.clock_behind_ns(),
            program: self.subject.program.clone(),
            workspace: self.subject.workspace.clone(),
            origin: self.subject.origin.clone(),
            session: session.clone(),
            continues,
            part: self.parts + 1,
            recorder: env!("CARGO_PKG_VERSION").to_owned(),
            compression: self.compression,
            links,
        };
        let header = header.redacted(&self.redactor);
        let path = self.home.live_path(header.id, header.started_wall_ns);
        let writer = Writer::create(path.clone(), header, now.instant)
            .map_err(|source| RecordError { path, source })?;
        // Only now: a session must not be named after a tape that could not be created.
        self.subject.session = Some(session);
        self.parts += 1;
        Ok(writer)
    }

    /// Returns the links of a new tape to the tapes before it.
    fn links(&self, continues: Option<TapeId>, session: &SessionRef) -> Links {
        if continues.is_some() {
            let previous = self.before.clone().filter(|end| Some(end.tape) == continues);
            return Links { previous, ..Links::default() };
        }
        // A session of one connection has no earlier tape, and a backend's tape belongs to no session.
        let is_shared =
            self.subject.kind == TapeKind::Conversation && session.told_by != SessionSource::Connection;
        let follows = is_shared.then(|| self.home.session_end(&session.id)).flatten();
        Links { follows, ..Links::default() }
    }
}
