//! Computes the digest of the tape that is being written, on a thread of its own.
//!
//! The next tape names the digest of this one, so it must be known when this one is full. Hashing each message as it
//! passes would slow the relay down. So a thread reads back what was written, a few megabytes at a time, and at the
//! end only the rest is left to hash.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use scrubjay_core::id::TapeId;

use crate::format::digest::{RunningDigest, TapeEnd};
use crate::format::writer::Writer;

/// How much is hashed at a time. 4 MiB take about 2 ms, which is also the longest that a rotation waits for the hash.
const STEP_BYTES: u64 = 4 << 20;
/// 256 KiB: large enough that system calls do not count, small enough for the cache.
const READ_BYTES: usize = 256 * 1024;

/// The digest of the current tape, up to some offset.
#[derive(Debug, Default)]
pub(super) struct BackgroundDigest {
    /// The tape.
    tape: Option<TapeId>,
    /// Up to which offset the thread was requested to hash.
    requested: u64,
    hashed: Option<Arc<Mutex<HashProgress>>>,
    worker: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct HashProgress {
    running: RunningDigest,
    file: File,
    at: u64,
}

impl HashProgress {
    fn catch_up(&mut self, until: u64) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        while self.at < until {
            let wanted = usize::try_from(until - self.at).unwrap_or(READ_BYTES).min(READ_BYTES);
            self.file.read_exact_at(&mut buffer[..wanted], self.at)?;
            self.running.update(&buffer[..wanted]);
            self.at += wanted as u64;
        }
        Ok(())
    }
}

impl BackgroundDigest {
    /// Starts a thread once the tape has grown by 4 MiB; else this is one comparison.
    pub(super) fn tape_grew(&mut self, writer: &Writer) {
        self.follow_tape(writer);
        let until = writer.bytes();
        if until < self.requested + STEP_BYTES || self.worker.as_ref().is_some_and(|work| !work.is_finished())
        {
            return;
        }
        self.requested = until;
        // What is not hashed now is hashed at the end.
        let Ok(hashed) = self.hash_progress(writer) else { return };
        let work = move || {
            let _ = hashed.lock().unwrap_or_else(PoisonError::into_inner).catch_up(until);
        };
        self.worker = std::thread::Builder::new().name("digest".to_owned()).spawn(work).ok();
    }

    /// Returns the end of the tape as it is now.
    pub(super) fn end(&mut self, writer: &Writer) -> io::Result<TapeEnd> {
        self.follow_tape(writer);
        let hashed = self.hash_progress(writer)?;
        let mut hashed = hashed.lock().unwrap_or_else(PoisonError::into_inner);
        if hashed.at > writer.bytes() {
            // Entries were taken off the tape after they had been hashed: begin again.
            (hashed.running, hashed.at) = (RunningDigest::new(Some(writer.header())), writer.body());
        }
        hashed.catch_up(writer.bytes())?;
        Ok(TapeEnd { tape: writer.header().id, entries: writer.entries(), digest: hashed.running.hex() })
    }

    /// Begins anew if the tape is another one.
    pub(super) fn follow_tape(&mut self, writer: &Writer) {
        let tape = Some(writer.header().id);
        if self.tape != tape {
            *self = Self { tape, ..Self::default() };
        }
    }

    fn hash_progress(&mut self, writer: &Writer) -> io::Result<Arc<Mutex<HashProgress>>> {
        if let Some(hashed) = &self.hashed {
            return Ok(hashed.clone());
        }
        let (running, at) = (RunningDigest::new(Some(writer.header())), writer.body());
        let hashed = Arc::new(Mutex::new(HashProgress { running, file: writer.sync_handle()?, at }));
        self.hashed = Some(hashed.clone());
        Ok(hashed)
    }
}
