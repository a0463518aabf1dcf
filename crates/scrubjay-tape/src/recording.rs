//! The recording of one connection on its current tape.
//!
//! The relay passes messages to [`Recording::record`] and forwards them only after it returned. A failure is returned
//! at once; the gap that it leaves is recorded as soon as writing works again. The tape's file is created with the
//! first entry, so that a connection without messages leaves nothing behind. `rotation.rs` moves on to the next tape,
//! `end.rs` closes the last, `durable.rs` syncs, `undelivered.rs` marks what did not arrive. If the user wants only a
//! part recorded, or wants entries written later, `selection_buffer.rs` decides.

mod background_digest;
mod backlog;
mod buffered_entry;
mod durable;
mod end;
mod gaps;
mod item;
mod policy;
mod rotation;
mod selection_buffer;
mod undelivered;
mod watch;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use scrubjay_core::entry::{Direction, EntryKind, Gap, Terminator, Transport};
use scrubjay_core::id::TapeId;
use scrubjay_core::redact::{LineContext, Payload, Redacted, Redactor};
use thiserror::Error;

use crate::clock::{self, Moment};
use crate::conversation::Conversation;
use crate::format::digest::TapeEnd;
use crate::format::frame::OVERHEAD;
use crate::format::header::{Compression, Origin, SessionRef, TapeKind};
use crate::format::seal::SealError;
use crate::format::writer::Writer;
use crate::home::Home;

use self::background_digest::BackgroundDigest;
pub use self::backlog::Backlog;
use self::durable::SyncState;
pub use self::durable::{PendingSync, SyncExtent, SyncPoint};
use self::gaps::Gaps;
use self::item::Stamp;
pub use self::item::{Item, Leg};
pub use self::policy::Policy;
pub use self::rotation::RotationLimits;
use self::selection_buffer::SelectionBuffer;
pub use self::selection_buffer::selection_note;
pub use self::undelivered::EntryRef;
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
    /// The session it belongs to, if it is known.
    pub session: Option<SessionRef>,
    /// The conversation from which the session follows otherwise. A connection with neither is a session of its own.
    pub conversation: Option<Arc<Conversation>>,
}

/// Writing to a tape failed.
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
    /// The redaction of the server's standard error, where a secret may span lines.
    stderr: LineContext,
    /// The same for lines on standard output that are no messages.
    stray: LineContext,
    writer: Option<Writer>,
    /// The digest of the current tape, computed on another thread.
    digest: BackgroundDigest,
    /// The end of the previous tape, which the header of its successor names.
    before: Option<TapeEnd>,
    parts: u32,
    /// How many entries are on earlier tapes: a recording numbers its entries across tapes.
    earlier: u64,
    gaps: Gaps,
    /// What is known to be on the disk, with `durability: power`.
    durable: SyncState,
    /// The background thread that seals the previous tape; at most one at a time.
    sealing: Option<JoinHandle<Result<PathBuf, SealError>>>,
    /// Present only if entries are selected or buffered; else all are written at once.
    selection_buffer: Option<Box<SelectionBuffer>>,
    compression: Compression,
    /// The watcher of recorded messages, and this recording's number there.
    watch: Option<(Watch, u64)>,
    /// Counts recorded bytes, to start the indexer in time.
    backlog: Option<Backlog>,
    /// Undelivered messages that are not noted on a tape yet.
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
            stderr: LineContext::default(),
            stray: LineContext::default(),
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

    /// Counts what is recorded in `backlog`.
    #[must_use]
    pub fn with_backlog(self, backlog: &Backlog) -> Self {
        Self { backlog: Some(backlog.clone()), ..self }
    }

    /// Shows recorded messages to the watcher of `watch`.
    #[must_use]
    pub fn with_watch(self, watch: &Watch) -> Self {
        Self { watch: Some((watch.clone(), watch.next_source())), ..self }
    }

    /// Records what arrived together, all or nothing, before it is forwarded. Returns the number of the first entry, by
    /// which other items name it; [`Recording::tape_position`] returns where it is.
    ///
    /// # Errors
    /// Nothing was recorded. The caller decides whether to forward the messages, and calls [`Recording::note_gap`].
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
        // An operation that began on an earlier tape has no entry number on this one.
        let placed = move |item: Item<'a>| Item {
            operation: item.operation.and_then(|number| number.checked_sub(earlier)),
            ..item
        };
        let items = items.zip(&redacted).map(|(item, redacted)| (placed(item), redacted.payload()));
        let first = self.append(arrived, items.clone())?;
        self.durable.note_unawaited(items.clone().map(|(item, _)| item));
        self.show(arrived, items);
        if self.marks.is_overdue(arrived.instant) {
            // If this fails the notes wait for the next time; what was just recorded stands.
            let _ = self.note_undelivered(arrived);
        }
        Ok(earlier + first)
    }

    fn is_watched(&self) -> bool {
        self.watch.as_ref().is_some_and(|(watch, _)| watch.watcher().is_some())
    }

    /// Shows messages to the watcher, if there is one.
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

    /// Returns the redactor of this recording, for code that shows the same messages elsewhere.
    #[must_use]
    pub fn redactor(&self) -> Arc<Redactor> {
        Arc::clone(&self.redactor)
    }

    fn redacted<'a>(&mut self, redactor: &Redactor, item: Item<'a>) -> Redacted<'a> {
        match item.kind {
            EntryKind::Stderr => self.stderr.redact(redactor, item.payload),
            // A server may print to standard output by mistake, and a secret there may span lines, too.
            EntryKind::Message if !matches!(item.payload.first(), Some(b'{' | b'[')) => {
                self.stray.redact(redactor, item.payload)
            }
            _ => redactor.redact(item.payload),
        }
    }

    /// Appends to the current tape; notes of gaps come first.
    fn append<'a>(
        &mut self,
        arrived: Moment,
        items: impl Iterator<Item = (Item<'a>, Payload<'a>)>,
    ) -> Result<u64, RecordError> {
        let writer = self.writer.as_ref().expect("there is a tape by now");
        let stamp = Stamp::new(arrived, writer, self.subject.transport);
        self.append_stamped(stamp, items.map(|(item, payload)| (stamp, item, payload)))
    }

    /// Like [`Recording::append`], for entries with times of their own.
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
                // Only now: gaps that were not written must be reported by the next append.
                self.durable.note_written(writer.entries() - entries_before, std::mem::take(&mut self.gaps));
                Ok(first)
            }
            Err(source) => Err(RecordError { path: writer.path().to_owned(), source }),
        }
    }

    /// Remembers that messages could not be recorded; the tape notes it as soon as it can be written.
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
        let of_conversation = || self.subject.conversation.as_ref()?.session();
        self.subject.session.clone().or_else(of_conversation)
    }

    /// Moves the connection to another session; tapes that continue this one begin in it.
    pub fn set_session(&mut self, session: SessionRef) {
        self.subject.session = Some(session);
    }

    /// Returns the host's own id of the conversation, if it gave one.
    #[must_use]
    pub fn host_session(&self) -> Option<&str> {
        self.subject.origin.host_session.as_deref()
    }
}

/// Makes an id for a run of the gateway: its tapes carry it, and so belong together.
///
/// None if the system has no randomness; then the tapes are grouped by session.
#[must_use]
pub fn gateway_run_id() -> Option<String> {
    let mut random = [0; 10];
    getrandom::fill(&mut random).ok()?;
    Some(TapeId::from_random(random).to_string())
}

/// Gives this thread the lowest priority, so that sealing and indexing do not slow the relay down. On Linux each thread
/// has its own.
pub fn lower_thread_priority() {
    #[cfg(target_os = "linux")]
    // If it is refused, background work only competes with the relay.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19);
}
