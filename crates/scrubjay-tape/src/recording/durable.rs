//! `durability: power`: group syncs that all waiting callers share, and what follows when one fails.
//!
//! After a failed sync the kernel forgets which bytes did not reach the disk, and the next sync succeeds without them.
//! So everything that was not synced before is taken off the tape, each caller that waits for it gets an error, and the
//! recording goes on in a new file. The old tape is sealed, which writes all of it anew. A tape counts as synced only
//! when its name is: its directory is synced with its first entries.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use scrubjay_core::entry::{EntryKind, Gap};
use scrubjay_core::id::TapeId;

use super::gaps::Gaps;
use super::undelivered::NotedMarks;
use super::{Item, RecordError, Recording};
use crate::clock;
use crate::format::writer::Writer;

/// How many failed syncs are remembered. Waiting callers look within milliseconds, so a few would do.
const LOST_MAX: usize = 64;

/// What a recording knows about what is on the disk.
#[derive(Debug, Default)]
pub(super) struct SyncState {
    /// Whether entries must survive a loss of power.
    is_wanted: bool,
    /// Whether a sync is under way. The tape must not rotate until its outcome is known.
    is_syncing: bool,
    /// How many entries were written, including those that were taken off again.
    written: u64,
    /// How many of them are synced or lost.
    settled: u64,
    /// Which of them were taken off, and why.
    lost: VecDeque<LostEntries>,
    /// What must be recorded again if the next sync fails.
    unsynced: Unsynced,
    /// What must be recorded again if the sync under way fails.
    being_synced: Unsynced,
    /// The tape whose sync failed, until its unsynced entries are taken off.
    failed: Option<Writer>,
    /// The tape that the next one continues, while the recording has no current tape.
    pub(super) before: Option<TapeId>,
    /// The tape that the end of its predecessor names.
    pub(super) announced: Option<TapeId>,
}

/// The content of unsynced entries that no caller would record again.
#[derive(Debug, Default)]
struct Unsynced {
    /// Entries for whose sync no caller waits: how many, and their bytes.
    unawaited: (u64, u64),
    gaps: Gaps,
    undelivered: Vec<NotedMarks>,
}

impl Unsynced {
    fn add_all(&mut self, more: Self) {
        self.unawaited.0 += more.unawaited.0;
        self.unawaited.1 += more.unawaited.1;
        self.gaps.add_all(more.gaps);
        self.undelivered.extend(more.undelivered);
    }
}

#[derive(Debug)]
struct LostEntries {
    after: u64,
    up_to: u64,
    kind: io::ErrorKind,
    why: String,
}

/// A number of recorded entries; a caller waits until a sync covers them.
#[derive(Clone, Copy, Debug)]
pub struct SyncPoint(u64);

/// A sync that can run on another thread.
#[derive(Debug)]
pub struct PendingSync {
    file: File,
    /// The directories to sync with a new file, so that its name survives too.
    directories: Vec<PathBuf>,
    extent: SyncExtent,
}

/// What a sync covers.
#[derive(Clone, Copy, Debug)]
pub struct SyncExtent {
    written: u64,
    bytes: u64,
    entries: u64,
}

impl PendingSync {
    /// Waits for the disk.
    ///
    /// # Errors
    /// The sync failed: it is not known what is on the disk.
    pub fn run(&self) -> io::Result<()> {
        self.file.sync_data()?;
        self.directories.iter().try_for_each(|directory| File::open(directory)?.sync_all())
    }

    /// Returns what it covers.
    #[must_use]
    pub fn extent(&self) -> SyncExtent {
        self.extent
    }
}

impl SyncState {
    pub(super) fn is_syncing(&self) -> bool {
        self.is_syncing
    }

    /// Notes that entries were written, and the gaps that they report.
    pub(super) fn note_written(&mut self, entries: u64, gaps: Gaps) {
        self.written += entries;
        if self.is_wanted {
            self.unsynced.gaps.add_all(gaps);
        }
    }

    /// Notes undelivered messages whose notes are written but not synced.
    pub(super) fn note_marks(&mut self, marks: NotedMarks) {
        if self.is_wanted {
            self.unsynced.undelivered.push(marks);
        }
    }

    /// Notes entries that were written without a caller that waits for the sync.
    pub(super) fn note_unawaited<'a>(&mut self, items: impl Iterator<Item = Item<'a>>) {
        if self.is_wanted {
            // A caller that records a message waits for its sync, and learns of a failure itself.
            for item in items.filter(|item| matches!(item.kind, EntryKind::Stderr | EntryKind::Note)) {
                self.unsynced.unawaited.0 += 1;
                self.unsynced.unawaited.1 += item.payload.len() as u64;
            }
        }
    }

    fn lost(&self, mark: SyncPoint) -> Option<io::Error> {
        let lost = self.lost.iter().find(|lost| (lost.after + 1..=lost.up_to).contains(&mark.0))?;
        Some(io::Error::new(lost.kind, lost.why.clone()))
    }
}

impl Recording {
    /// Turns on `durability: power` for what is recorded from now on.
    pub fn survive_power(&mut self) {
        self.durable.is_wanted = true;
    }

    /// Returns how much is recorded now, to wait until it is on the disk.
    #[must_use]
    pub fn sync_point(&self) -> SyncPoint {
        // Buffered entries are synced when they are written; their callers do not wait.
        SyncPoint(if self.selection_buffer.is_some() { 0 } else { self.durable.written })
    }

    /// Syncs everything that is recorded, on this thread.
    ///
    /// # Errors
    /// The sync failed; entries that were not synced before are off the tape.
    pub fn sync(&mut self) -> Result<(), RecordError> {
        self.sync_up_to(self.sync_point())
    }

    fn sync_up_to(&mut self, mark: SyncPoint) -> Result<(), RecordError> {
        match self.begin_sync(mark)? {
            Some(sync) => self.end_sync(sync.extent(), sync.run()),
            None => Ok(()),
        }
    }

    /// Begins a sync that covers everything recorded so far; `None` if `up_to` is synced already. Only one may be under
    /// way, and its outcome must be passed to [`Recording::end_sync`].
    ///
    /// # Errors
    /// Entries up to `up_to` were taken off the tape because an earlier sync failed, or this one cannot begin.
    pub fn begin_sync(&mut self, up_to: SyncPoint) -> Result<Option<PendingSync>, RecordError> {
        if let Some(source) = self.durable.lost(up_to) {
            return Err(RecordError { path: self.home.tapes(), source });
        }
        let Some(writer) = self.writer.as_ref().filter(|_| up_to.0 > self.durable.settled) else {
            return Ok(None);
        };
        let (written, bytes, entries) = (self.durable.written, writer.bytes(), writer.entries());
        // Once is enough, because appending does not change the name.
        let directories = if writer.is_named() { Vec::new() } else { self.home.directories_to_sync() };
        match writer.sync_handle() {
            Ok(file) => {
                self.durable.is_syncing = true;
                let unsynced = std::mem::take(&mut self.durable.unsynced);
                self.durable.being_synced.add_all(unsynced);
                Ok(Some(PendingSync { file, directories, extent: SyncExtent { written, bytes, entries } }))
            }
            Err(e) => Err(self.sync_failed(e)),
        }
    }

    /// Takes the outcome of a sync.
    ///
    /// # Errors
    /// It failed; entries that were not synced before are off the tape.
    pub fn end_sync(&mut self, extent: SyncExtent, done: io::Result<()>) -> Result<(), RecordError> {
        self.durable.is_syncing = false;
        done.map_err(|e| self.sync_failed(e))?;
        self.durable.settled = extent.written;
        if let Some(writer) = &mut self.writer {
            writer.note_synced(extent.bytes, extent.entries);
        }
        self.durable.being_synced = Unsynced::default();
        Ok(())
    }

    /// Syncs what was just written, with `durability: power`.
    pub(super) fn sync_if_wanted(&mut self) -> Result<(), RecordError> {
        if self.durable.is_wanted { self.sync_up_to(SyncPoint(self.durable.written)) } else { Ok(()) }
    }

    /// Gives up all unsynced entries, and the file.
    fn sync_failed(&mut self, source: io::Error) -> RecordError {
        let durable = &mut self.durable;
        if durable.lost.len() == LOST_MAX {
            durable.lost.pop_front();
        }
        durable.lost.push_back(LostEntries {
            after: durable.settled,
            up_to: durable.written,
            kind: source.kind(),
            why: source.to_string(),
        });
        durable.settled = durable.written;
        let mut again = std::mem::take(&mut durable.being_synced);
        again.add_all(std::mem::take(&mut durable.unsynced));
        // The gaps and undelivered messages that these entries reported are on no tape now.
        self.gaps.add_all(again.gaps);
        again.undelivered.into_iter().for_each(|marks| self.marks.add_again(marks));
        let (messages, bytes) = again.unawaited;
        if messages > 0 {
            let (since_wall_ns, reason) = (clock::now().wall_ns, source.to_string());
            self.gaps.add(Gap { messages, bytes, forwarded: true, since_wall_ns, reason });
        }
        let path = self.writer.as_ref().map_or_else(|| self.home.tapes(), |writer| writer.path().to_owned());
        self.durable.failed = self.writer.take();
        // If this fails, it is tried again before anything else is recorded.
        let _ = self.leave_failed();
        RecordError { path, source }
    }

    /// Takes the unsynced entries off the tape whose sync failed, and seals that tape in the background.
    pub(super) fn leave_failed(&mut self) -> Result<(), RecordError> {
        let Some(mut failed) = self.durable.failed.take() else { return Ok(()) };
        // Their numbers are not reused: one of them may still be marked as undelivered.
        let numbers = failed.entries();
        if let Err(source) = failed.take_back_unsynced() {
            let path = failed.path().to_owned();
            self.durable.failed = Some(failed);
            return Err(RecordError { path, source });
        }
        let is_announced = self.durable.announced == Some(failed.header().id);
        if failed.entries() == 0 && !is_announced {
            // It has no entries, so its predecessor is continued instead. If it cannot be removed, the next start seals
            // it.
            let _ = std::fs::remove_file(failed.path());
            self.parts -= 1;
            self.earlier += numbers;
        } else {
            // The next tape names the end of this one, without what was taken off.
            self.before = self.digest.end(&failed).ok();
            self.note_past_tape(&failed, numbers);
            self.seal_in_background(failed);
        }
        Ok(())
    }
}
