//! Recording that survives a loss of power: syncs that all share who wait for one, and what follows when one fails.
//!
//! After a sync that failed the system forgets which bytes did not reach the disk, and the next one succeeds without
//! them. So everything that was not synced before is taken off the tape, each caller that waits for it learns that it
//! was not recorded, and the recording goes on in a new file. The tape that was left is sealed, which writes all of it
//! anew. A tape counts as synced only when its name is: its directory is synced with its first entries.

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

/// So many failures are remembered for those who wait; each of them is told as soon as it looks.
const LOST_MAX: usize = 64;

/// What a recording knows of what is on the disk.
#[derive(Debug, Default)]
pub(super) struct SyncState {
    /// Whether everything is to survive a loss of power.
    is_wanted: bool,
    /// Whether a sync is under way: its tape must stay until it is known how that went.
    is_syncing: bool,
    /// How many entries were written, those included that were taken back.
    written: u64,
    /// How many of them need no sync any more.
    settled: u64,
    /// Which of them were taken back, and why.
    lost: VecDeque<LostEntries>,
    /// What has to be said again if the next sync fails.
    unsynced: Unsynced,
    /// What has to be said again if the sync under way fails.
    being_synced: Unsynced,
    /// A tape whose sync failed, while entries have to be taken off it.
    failed: Option<Writer>,
    /// The tape before the next one, where the recording has none at this moment.
    pub(super) before: Option<TapeId>,
    /// The tape that the end of the one before it names.
    pub(super) announced: Option<TapeId>,
}

/// What entries say that are not synced yet and that nobody else would record again.
#[derive(Debug, Default)]
struct Unsynced {
    /// Entries for whose sync nobody waits: how many, and their bytes.
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

/// How much was recorded at some moment.
#[derive(Clone, Copy, Debug)]
pub struct SyncPoint(u64);

/// A sync to be done, beside everything else.
#[derive(Debug)]
pub struct PendingSync {
    file: File,
    /// Where the names of a new file and of its directories stand.
    directories: Vec<PathBuf>,
    extent: SyncExtent,
}

/// What a sync is of.
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
    /// It is not known what is on the disk.
    pub fn run(&self) -> io::Result<()> {
        self.file.sync_data()?;
        self.directories.iter().try_for_each(|directory| File::open(directory)?.sync_all())
    }

    /// Returns what it is of.
    #[must_use]
    pub fn extent(&self) -> SyncExtent {
        self.extent
    }
}

impl SyncState {
    pub(super) fn is_syncing(&self) -> bool {
        self.is_syncing
    }

    /// Takes note of entries that were written, and of what they tell of gaps.
    pub(super) fn note_written(&mut self, entries: u64, gaps: Gaps) {
        self.written += entries;
        if self.is_wanted {
            self.unsynced.gaps.add_all(gaps);
        }
    }

    /// Takes note of undelivered messages whose notes are written but not synced.
    pub(super) fn note_marks(&mut self, marks: NotedMarks) {
        if self.is_wanted {
            self.unsynced.undelivered.push(marks);
        }
    }

    /// Takes note of entries that are written without anybody waiting for the disk.
    pub(super) fn note_unawaited<'a>(&mut self, items: impl Iterator<Item = Item<'a>>) {
        if self.is_wanted {
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
    /// Makes everything survive a loss of power that a sync is asked for.
    pub fn survive_power(&mut self) {
        self.durable.is_wanted = true;
    }

    /// Returns how much is recorded now, for whoever waits until it is on the disk.
    #[must_use]
    pub fn sync_point(&self) -> SyncPoint {
        // What may wait in memory is synced when it is written; whoever recorded it has nothing to wait for.
        SyncPoint(if self.selection_buffer.is_some() { 0 } else { self.durable.written })
    }

    /// Syncs everything that is recorded, here and now.
    ///
    /// # Errors
    /// What was not synced before is off the tape.
    pub fn sync(&mut self) -> Result<(), RecordError> {
        self.sync_up_to(self.sync_point())
    }

    fn sync_up_to(&mut self, mark: SyncPoint) -> Result<(), RecordError> {
        match self.begin_sync(mark)? {
            Some(sync) => self.end_sync(sync.extent(), sync.run()),
            None => Ok(()),
        }
    }

    /// Begins to sync all that was recorded up to a mark and since then; `None` where that is done. Only one may be
    /// under way, and [`Recording::end_sync`] must be told how it went.
    ///
    /// # Errors
    /// It was taken off the tape because an earlier sync failed, or this one cannot begin.
    pub fn begin_sync(&mut self, up_to: SyncPoint) -> Result<Option<PendingSync>, RecordError> {
        if let Some(source) = self.durable.lost(up_to) {
            return Err(RecordError { path: self.home.tapes(), source });
        }
        let Some(writer) = self.writer.as_ref().filter(|_| up_to.0 > self.durable.settled) else {
            return Ok(None);
        };
        let (written, bytes, entries) = (self.durable.written, writer.bytes(), writer.entries());
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

    /// Hears how a sync went.
    ///
    /// # Errors
    /// It failed: what was not synced before is off the tape.
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

    /// Syncs what was just written, where that is wanted.
    pub(super) fn sync_if_wanted(&mut self) -> Result<(), RecordError> {
        if self.durable.is_wanted { self.sync_up_to(SyncPoint(self.durable.written)) } else { Ok(()) }
    }

    /// Gives up everything that is not known to be on the disk, and the file with it.
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
        // What these entries told of gaps and of undelivered messages is on no tape now.
        self.gaps.add_all(again.gaps);
        again.undelivered.into_iter().for_each(|marks| self.marks.add_again(marks));
        let (messages, bytes) = again.unawaited;
        if messages > 0 {
            let (since_wall_ns, reason) = (clock::now().wall_ns, source.to_string());
            self.gaps.add(Gap { messages, bytes, forwarded: true, since_wall_ns, reason });
        }
        let path = self.writer.as_ref().map_or_else(|| self.home.tapes(), |writer| writer.path().to_owned());
        self.durable.failed = self.writer.take();
        // Where that cannot be done now it is before anything else is recorded.
        let _ = self.leave_failed();
        RecordError { path, source }
    }

    /// Takes what was not synced off the tape whose sync failed, and leaves that tape to be sealed.
    pub(super) fn leave_failed(&mut self) -> Result<(), RecordError> {
        let Some(mut failed) = self.durable.failed.take() else { return Ok(()) };
        // Their numbers are not given to other entries: somebody may still mark one of them as undelivered.
        let numbers = failed.entries();
        if let Err(source) = failed.take_back_unsynced() {
            let path = failed.path().to_owned();
            self.durable.failed = Some(failed);
            return Err(RecordError { path, source });
        }
        let is_announced = self.durable.announced == Some(failed.header().id);
        if failed.entries() == 0 && !is_announced {
            // Nothing was ever recorded on it; left behind, it is sealed by the next start. The next tape continues
            // the one before it.
            let _ = std::fs::remove_file(failed.path());
            self.parts -= 1;
            self.earlier += numbers;
        } else {
            // The tape that goes on names the end of this one, without what was taken off.
            self.before = self.digest.end(&failed).ok();
            self.note_past_tape(&failed, numbers);
            self.seal_in_background(failed);
        }
        Ok(())
    }
}
