//! The recording of one connection: its current tape, rotation, and what happens when writing fails.
//!
//! The relay hands over what arrived and forwards it only when this says it is on tape. A failure is told to
//! the caller at once; the gap it makes is itself recorded as soon as writing works again. The tape's file
//! is created with the first entry, so that a connection on which nothing was said leaves nothing behind.
//! Where the user wants less than everything, or everything a little later, `selection_buffer.rs` decides.

mod background_digest;
mod backlog;
mod buffered_entry;
mod durable;
mod gaps;
mod policy;
mod selection_buffer;
mod undelivered;
mod watch;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use scrubjay_core::entry::{Direction, End, Entry, EntryKind, Gap, Judged, Terminator, Transport};
use scrubjay_core::id::TapeId;
use scrubjay_core::redact::{Lines, Payload, Redacted, Redactor};
use thiserror::Error;

use crate::clock::{self, Moment, saturate};
use crate::conversation::Conversation;
use crate::format::digest::TapeEnd;
use crate::format::frame::OVERHEAD;
use crate::format::header::{Compression, Header, Links, Origin, SessionRef, SessionSource, TapeKind};
use crate::format::seal::{SealError, seal};
use crate::format::writer::Writer;
use crate::home::Home;

use self::background_digest::BackgroundDigest;
pub use self::backlog::Backlog;
use self::durable::SyncState;
pub use self::durable::{PendingSync, SyncExtent, SyncPoint};
use self::gaps::Gaps;
pub use self::policy::Policy;
use self::selection_buffer::SelectionBuffer;
pub use self::selection_buffer::selection_note;
pub use self::undelivered::EntryRef;
use self::undelivered::PastTape;
pub use self::watch::{RecordedMessage, Watch, Watcher};

/// What a recording is of.
#[derive(Clone, Debug)]
pub struct Subject {
    /// What the user calls the connection.
    pub name: String,
    /// What the recording is of.
    pub kind: TapeKind,
    /// The run of the gateway it belongs to.
    pub gateway: Option<String>,
    /// What carries its messages.
    pub transport: Transport,
    /// The program that serves.
    pub program: Option<String>,
    /// The directory the connection was opened in.
    pub workspace: Option<String>,
    /// Where the connection came from.
    pub origin: Origin,
    /// The session it belongs to, where that is known.
    pub session: Option<SessionRef>,
    /// The conversation that tells otherwise; a connection without either is a session of its own.
    pub conversation: Option<Arc<Conversation>>,
}

/// When a tape is full.
#[derive(Clone, Copy, Debug)]
pub struct RotationLimits {
    /// By size, in bytes of the live file.
    pub tape_bytes_max: u64,
    /// By age.
    pub tape_duration_max: Duration,
}

impl Default for RotationLimits {
    fn default() -> Self {
        Self { tape_bytes_max: 100 << 20, tape_duration_max: Duration::from_secs(3600) }
    }
}

/// The connection between the gateway and a backend that carries a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg<'a> {
    /// The backend.
    pub backend: &'a str,
    /// Which connection to it, counted from 1: a backend that was restarted begins with its ids again.
    pub connection: u32,
    /// What carries its messages, which need not be what carries the client's.
    pub transport: Transport,
}

/// One thing to record.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// What it is.
    pub kind: EntryKind,
    /// Which way it goes.
    pub direction: Direction,
    /// How its line ended.
    pub terminator: Terminator,
    /// The connection to a backend, for a message between the gateway and one.
    pub via: Option<Leg<'a>>,
    /// The operation such a message belongs to.
    pub operation: Option<u64>,
    /// What rules did to it.
    pub judged: Judged<'a>,
    /// The message or line; only a redacted copy of it is written.
    pub payload: &'a [u8],
}

impl<'a> Item<'a> {
    /// Makes an item of the client's own leg.
    #[must_use]
    pub fn new(kind: EntryKind, direction: Direction, terminator: Terminator, payload: &'a [u8]) -> Self {
        Self { kind, direction, terminator, via: None, operation: None, judged: Judged::default(), payload }
    }
}

/// Recording failed.
#[derive(Debug, Error)]
#[error("cannot record to {path}: {source}")]
pub struct RecordError {
    /// The tape, or the directory it should be in.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// The recording of one connection.
#[derive(Debug)]
pub struct Recording {
    home: Home,
    subject: Subject,
    limits: RotationLimits,
    redactor: Arc<Redactor>,
    /// What is going on on the server's standard error.
    stderr: Lines,
    /// What is going on among lines that are no messages.
    stray: Lines,
    writer: Option<Writer>,
    /// The digest of the current tape, worked out beside.
    digest: BackgroundDigest,
    /// The end of the tape before, for the one that continues it.
    before: Option<TapeEnd>,
    parts: u32,
    /// How many entries were written to the tapes before the current one: numbers go on from tape to tape.
    earlier: u64,
    gaps: Gaps,
    /// What is on the disk, where that matters.
    durable: SyncState,
    /// The sealing of the previous tape, in the background; at most one at a time.
    sealing: Option<JoinHandle<Result<PathBuf, SealError>>>,
    /// Which entries are kept and which may wait, where not all are written at once.
    selection_buffer: Option<Box<SelectionBuffer>>,
    compression: Compression,
    /// Who sees what is recorded, and this recording's number there.
    watch: Option<(Watch, u64)>,
    /// Who counts what is recorded.
    backlog: Option<Backlog>,
    /// What did not reach its receiver, until the tape says so.
    marks: undelivered::UndeliveredMarks,
}

impl Recording {
    /// Prepares a recording; nothing is on disk before the first entry.
    #[must_use]
    pub fn new(home: Home, subject: Subject, limits: RotationLimits, redactor: Arc<Redactor>) -> Self {
        Self {
            home,
            subject,
            limits,
            redactor,
            stderr: Lines::default(),
            stray: Lines::default(),
            writer: None,
            digest: BackgroundDigest::default(),
            before: None,
            parts: 0,
            earlier: 0,
            gaps: Gaps::default(),
            durable: SyncState::default(),
            sealing: None,
            selection_buffer: None,
            compression: Compression::default(),
            watch: None,
            backlog: None,
            marks: undelivered::UndeliveredMarks::default(),
        }
    }

    /// Lets what is recorded be counted.
    #[must_use]
    pub fn with_backlog(self, backlog: &Backlog) -> Self {
        Self { backlog: Some(backlog.clone()), ..self }
    }

    /// Lets whoever watches see what is recorded.
    #[must_use]
    pub fn with_watch(self, watch: &Watch) -> Self {
        Self { watch: Some((watch.clone(), watch.next_source())), ..self }
    }

    /// Records what arrived together, all or nothing, before it is forwarded; returns the number by which other
    /// items name the first entry. [`Recording::tape_position`] knows where it is.
    ///
    /// # Errors
    /// Nothing was recorded; the caller decides what becomes of the messages and calls
    /// [`Recording::note_gap`].
    pub fn record<'a>(
        &mut self,
        arrived: Moment,
        items: impl Iterator<Item = Item<'a>> + Clone,
    ) -> Result<u64, RecordError> {
        if self.selection_buffer.is_some() {
            return self.record_selected(arrived, items);
        }
        let redactor = Arc::clone(&self.redactor);
        let redacted: Vec<Redacted<'a>> = items.clone().map(|item| self.redacted(&redactor, item)).collect();
        let bytes: usize = redacted.iter().map(|payload| OVERHEAD + payload.as_bytes().len()).sum();
        self.make_room(arrived, bytes as u64)?;
        let earlier = self.earlier;
        // What began on an earlier tape has no number on this one.
        let placed = move |item: Item<'a>| Item {
            operation: item.operation.and_then(|number| number.checked_sub(earlier)),
            ..item
        };
        let items = items.zip(&redacted).map(|(item, redacted)| (placed(item), redacted.payload()));
        let first = self.append(arrived, items.clone())?;
        self.durable.note_unawaited(items.clone().map(|(item, _)| item));
        self.show(arrived, items);
        if self.marks.is_overdue(arrived.instant) {
            // They wait for the next time where this fails; what was just recorded stands.
            let _ = self.note_undelivered(arrived);
        }
        Ok(earlier + first)
    }

    fn is_watched(&self) -> bool {
        self.watch.as_ref().is_some_and(|(watch, _)| watch.watcher().is_some())
    }

    /// Shows messages to whoever watches.
    fn show<'a>(&self, arrived: Moment, items: impl Iterator<Item = (Item<'a>, Payload<'a>)>) {
        let Some((watch, source)) = &self.watch else { return };
        let Some(watcher) = watch.watcher() else { return };
        for (item, payload) in items.filter(|(item, _)| item.kind == EntryKind::Message) {
            let (direction, via) = (item.direction, item.via);
            watcher.on_recorded(&RecordedMessage {
                source: *source,
                direction,
                via,
                wall_ns: arrived.wall_ns,
                payload,
            });
        }
    }

    /// Returns what takes secrets out of what is recorded, for those who show the same elsewhere.
    #[must_use]
    pub fn redactor(&self) -> Arc<Redactor> {
        Arc::clone(&self.redactor)
    }

    fn redacted<'a>(&mut self, redactor: &Redactor, item: Item<'a>) -> Redacted<'a> {
        match item.kind {
            EntryKind::Stderr => self.stderr.redact(redactor, item.payload),
            // Something that a server prints among its messages may go over several lines, too.
            EntryKind::Message if !matches!(item.payload.first(), Some(b'{' | b'[')) => {
                self.stray.redact(redactor, item.payload)
            }
            _ => redactor.redact(item.payload),
        }
    }

    /// Appends to the current tape, after what is to be said of a gap.
    fn append<'a>(
        &mut self,
        arrived: Moment,
        items: impl Iterator<Item = (Item<'a>, Payload<'a>)>,
    ) -> Result<u64, RecordError> {
        let writer = self.writer.as_ref().expect("there is a tape by now");
        let stamp = Stamp::new(arrived, writer, self.subject.transport);
        self.append_stamped(stamp, items.map(|(item, payload)| (stamp, item, payload)))
    }

    /// Appends to the current tape what has times of its own.
    fn append_stamped<'a>(
        &mut self,
        stamp: Stamp,
        items: impl Iterator<Item = (Stamp, Item<'a>, Payload<'a>)>,
    ) -> Result<u64, RecordError> {
        let redactor = Arc::clone(&self.redactor);
        let gaps = self.gaps.facts();
        let gaps: Vec<_> = gaps.iter().map(|facts| (facts, redactor.redact(facts))).collect();
        let gap_items = gaps.iter().map(|(facts, redacted)| {
            let item = Item::new(EntryKind::Gap, Direction::ClientToServer, Terminator::Eof, facts);
            (stamp, item, redacted.payload())
        });
        let writer = self.writer.as_mut().expect("there is a tape by now");
        let entries = gap_items
            .map(|(stamp, item, payload)| stamp.entry(item).with_payload(payload))
            .chain(items.map(|(stamp, item, payload)| stamp.entry(item).with_payload(payload)));
        let first = writer.entries() + gaps.len() as u64;
        let (bytes_before, entries_before) = (writer.bytes(), writer.entries());
        match writer.append(entries) {
            Ok(()) => {
                if let Some(backlog) = &self.backlog {
                    backlog.add(writer.bytes() - bytes_before);
                }
                self.digest.tape_grew(writer);
                self.durable.note_written(writer.entries() - entries_before, std::mem::take(&mut self.gaps));
                Ok(first)
            }
            Err(source) => Err(RecordError { path: writer.path().to_owned(), source }),
        }
    }

    /// Notes messages that are on no tape.
    pub fn note_gap(&mut self, messages: u64, bytes: u64, forwarded: bool, reason: &RecordError) {
        let (since_wall_ns, reason) = (clock::now().wall_ns, reason.source.to_string());
        self.gaps.add(Gap { messages, bytes, forwarded, since_wall_ns, reason });
    }

    /// Returns the id of the current tape, once there is one.
    #[must_use]
    pub fn tape(&self) -> Option<TapeId> {
        self.writer.as_ref().map(|w| w.header().id)
    }

    /// Returns the session the recording belongs to, once it is known.
    #[must_use]
    pub fn session(&self) -> Option<SessionRef> {
        let notes = || self.subject.conversation.as_ref()?.session();
        self.subject.session.clone().or_else(notes)
    }

    /// Says that the connection is in another session from now on; tapes that continue this one begin in it.
    pub fn set_session(&mut self, session: SessionRef) {
        self.subject.session = Some(session);
    }

    /// Returns the host's own id of the conversation, where it gave one.
    #[must_use]
    pub fn host_session(&self) -> Option<&str> {
        self.subject.origin.host_session.as_deref()
    }

    /// Ends the recording: notes how, and seals. `None` where nothing was recorded.
    ///
    /// # Errors
    /// The tape could not be sealed; it stays as it is and the next start seals it.
    pub fn finish(mut self, end: &End) -> Result<Option<PathBuf>, SealError> {
        let Some(recorded) = self.note_end(end) else { return Ok(None) };
        let sealed = match &self.writer {
            // The writer's lock is held until the sealed file stands.
            Some(writer) => seal(writer.path()).map(Some),
            None => recorded.map(|_| None).map_err(|e| SealError::Io { path: e.path, source: e.source }),
        };
        if let Ok(Some(sealed)) = &sealed {
            // Without the note a later connection names no tape before it, which harms nothing else.
            let _ = self.home.note_session_end(sealed);
        }
        // What became of the tape before must not keep this one from being sealed. A panic there has been
        // reported by its thread.
        let before =
            self.sealing.take().map_or(Ok(PathBuf::new()), |s| s.join().unwrap_or(Ok(PathBuf::new())));
        before.and(sealed)
    }

    /// Ends the recording and leaves its tape unsealed, with its end: the next start seals it.
    ///
    /// # Errors
    /// The end could not be written.
    pub fn finish_unsealed(mut self, end: &End) -> Result<(), RecordError> {
        self.note_end(end).map_or(Ok(()), |recorded| recorded.map(|_| ()))
    }

    /// Writes what there is to say at the end; `None` where nothing was recorded.
    fn note_end(&mut self, end: &End) -> Option<Result<u64, RecordError>> {
        self.finish_selection();
        let left = self.leave_failed();
        // One write for the notes and the end: a tape that has its end has its notes.
        let mut notes = self.undelivered_notes().encode();
        notes.extend(self.take_left_out().map(|left_out| left_out.note().to_string().into_bytes()));
        let is_empty = self.writer.is_none() && self.gaps.is_empty() && notes.is_empty();
        if is_empty && self.sealing.is_none() && left.is_ok() {
            return None;
        }
        Some(if is_empty { left.map(|()| 0) } else { self.record_end(end, &notes) })
    }

    /// Notes the end on the tape it is the end of, full or not: another would hold nothing else.
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

    /// Makes sure that there is a tape with room for so many bytes.
    fn make_room(&mut self, now: Moment, bytes: u64) -> Result<(), RecordError> {
        self.leave_failed()?;
        let Some(writer) = &self.writer else {
            self.writer = Some(self.next_tape(now, self.durable.before)?);
            return Ok(());
        };
        let age = now.instant.saturating_duration_since(writer.started());
        let full = writer.entries() > 0
            && (writer.bytes() + bytes > self.limits.tape_bytes_max || age > self.limits.tape_duration_max);
        if full && !self.durable.is_syncing() {
            // Where this fails they are noted on the next tape, with the name of this one.
            let _ = self.note_undelivered(now);
            // What is not synced by now would be out of reach on a tape that is being sealed. The notes are synced
            // too: the next tape names an end that they are part of.
            self.sync_if_wanted()?;
            self.rotate(now);
        }
        Ok(())
    }

    /// Goes on with the next tape; where none can be made, the current one just grows.
    fn rotate(&mut self, now: Moment) {
        let Some(mut full) = self.writer.take() else { return };
        // The end is named as it is before the next tape is there: a crash between the two must not look like a tape
        // that was taken away. A tape whose digest cannot be read is named by its id alone.
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

    /// Writes the last entries of a full tape: what was left out of it, and where the connection goes on.
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
        // Where this fails the tape reads as cut off, and its successor still names it.
        if closed.is_err()
            && let Some(left_out) = left_out
        {
            self.defer_left_out_note(&left_out);
        }
    }

    /// Remembers a tape that is written no more, for those who name its entries: the first numbers of them, as many as
    /// it has entries; the others were taken off it.
    fn note_past_tape(&mut self, tape: &Writer, numbers: u64) {
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

    fn seal_in_background(&mut self, full: Writer) {
        if self.sealing.as_ref().is_some_and(|s| !s.is_finished()) {
            // Sealing cannot keep up: this tape waits, abandoned, for the next start.
            return;
        }
        let sealing = std::thread::Builder::new().name("seal".to_owned()).spawn(move || {
            lower_thread_priority();
            seal(full.path())
        });
        self.sealing = sealing.ok();
    }

    fn next_tape(&mut self, now: Moment, continues: Option<TapeId>) -> Result<Writer, RecordError> {
        let tapes = self.home.tapes();
        let failed = |source| RecordError { path: tapes.clone(), source };
        self.home.create().map_err(failed)?;
        let mut random = [0; 10];
        getrandom::fill(&mut random).map_err(|e| failed(io::Error::other(e)))?;
        let id = TapeId::from_random(random);
        // A connection on several tapes is still one: they go by the first.
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
        // Only now: a session must not be named by a tape that never was.
        self.subject.session = Some(session);
        self.parts += 1;
        Ok(writer)
    }

    /// Returns what a tape says of those before it.
    fn links(&self, continues: Option<TapeId>, session: &SessionRef) -> Links {
        if continues.is_some() {
            let previous = self.before.clone().filter(|end| Some(end.tape) == continues);
            return Links { previous, ..Links::default() };
        }
        // A session that is this connection alone has no earlier tape, and a backend's tape is no part of one.
        let is_shared =
            self.subject.kind == TapeKind::Conversation && session.told_by != SessionSource::Connection;
        let follows = is_shared.then(|| self.home.session_end(&session.id)).flatten();
        Links { follows, ..Links::default() }
    }
}

/// Names a run of the gateway: by it, its tapes are known to belong together.
///
/// None where the system gives no random numbers; then their sessions have to tell.
#[must_use]
pub fn gateway_run_id() -> Option<String> {
    let mut random = [0; 10];
    getrandom::fill(&mut random).ok()?;
    Some(TapeId::from_random(random).to_string())
}

/// Puts this thread behind everything else that wants to run: on Linux a thread has a priority of its own.
pub fn lower_thread_priority() {
    #[cfg(target_os = "linux")]
    // Where it is refused, sealing competes with the relay; it is right all the same.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19);
}

/// What all entries of one append have in common.
#[derive(Clone, Copy)]
struct Stamp {
    transport: Transport,
    wall_ns: u64,
    since_start_ns: u64,
    processing_ns: u32,
}

impl Stamp {
    fn new(arrived: Moment, writer: &Writer, transport: Transport) -> Self {
        Self::at(arrived, clock::now(), writer.started(), transport)
    }

    /// Stamps what was taken in at a moment that may be past.
    fn at(arrived: Moment, now: Moment, started: Instant, transport: Transport) -> Self {
        let processing = saturate(now.instant.saturating_duration_since(arrived.instant));
        Self {
            transport,
            wall_ns: now.wall_ns,
            since_start_ns: saturate(now.instant.saturating_duration_since(started)),
            processing_ns: u32::try_from(processing).unwrap_or(u32::MAX),
        }
    }

    fn entry<'a>(&self, item: Item<'a>) -> Entry<'a> {
        Entry {
            kind: item.kind,
            direction: item.direction,
            transport: item.via.map_or(self.transport, |leg| leg.transport),
            terminator: item.terminator,
            wall_ns: self.wall_ns,
            since_start_ns: self.since_start_ns,
            processing_ns: self.processing_ns,
            via: item.via.map(|leg| leg.backend),
            connection: item.via.map_or(0, |leg| leg.connection),
            operation: item.operation,
            judged: item.judged,
            payload: item.payload,
        }
    }
}

fn note_item(facts: &[u8]) -> Item<'_> {
    Item::new(EntryKind::Note, Direction::ServerToClient, Terminator::Eof, facts)
}

fn end_item(payload: &[u8]) -> Item<'_> {
    Item::new(EntryKind::End, Direction::ServerToClient, Terminator::Eof, payload)
}
