//! Remembers the last closed tape of each session, so that the next connection of the session can name its end.
//!
//! `<data>/ends/<hash of the session's id>` is one small file for each session. It is written when a conversation's
//! tape is sealed, and read when the next connection of that session records its first message. It is disposable:
//! without it a tape does not name the tape before it.

use std::io;
use std::path::{Path, PathBuf};

use crate::format::digest::TapeEnd;
use crate::format::header::TapeKind;
use crate::format::reader::Tape;
use crate::format::sealed::BlockRef;
use crate::format::writer::create_private;
use crate::home::{Home, create_private_dir};

impl Home {
    fn ends(&self) -> PathBuf {
        self.root().join("ends")
    }

    fn end_path(&self, session: &str) -> PathBuf {
        // Hashed, because an agent chooses the id and it may not be a valid file name.
        self.ends().join(&blake3::hash(session.as_bytes()).to_hex()[..32])
    }

    /// Returns the end of the last closed tape of a session, if it is known.
    #[must_use]
    pub fn session_end(&self, session: &str) -> Option<TapeEnd> {
        serde_json::from_slice(&std::fs::read(self.end_path(session)).ok()?).ok()
    }

    /// Notes a tape that was just sealed as the last one of its session.
    ///
    /// # Errors
    /// The note cannot be written, or the tape not be read.
    pub(crate) fn note_session_end(&self, sealed: &Path) -> io::Result<()> {
        let tape = Tape::open(sealed).map_err(io::Error::other)?;
        let (Some(header), Some(footer)) = (tape.header(), tape.footer()) else { return Ok(()) };
        let goes_on = footer.end.as_ref().is_some_and(|end| end.continues_on.is_some());
        let is_whole = footer.damage.is_empty() && header.links.imported.is_none();
        let Some(digest) = footer.digest.clone() else { return Ok(()) };
        // A tape that is continued is not the last one. The entries of a damaged or imported tape need not be all
        // that was recorded here.
        if goes_on || !is_whole || header.kind() != TapeKind::Conversation {
            return Ok(());
        }
        let session = footer.metadata.moved_to.as_deref().unwrap_or(&header.session.id);
        let end = TapeEnd { tape: header.id, entries: footer.blocks.last().map_or(0, BlockRef::end), digest };
        let directory = self.ends();
        if !directory.is_dir() {
            create_private_dir(&directory)?;
        }
        let path = self.end_path(session);
        // Renamed into place, so that a connection that begins now reads the old note or the new one, never half a
        // note.
        let temporary = path.with_extension(header.id.as_str());
        let written = create_private(&temporary)
            .and_then(|mut file| io::Write::write_all(&mut file, &serde_json::to_vec(&end)?))
            .and_then(|()| std::fs::rename(&temporary, &path));
        if written.is_err() {
            // The caller gets the first error; one from clearing up would hide it.
            let _ = std::fs::remove_file(&temporary);
        }
        written
    }

    /// Removes the notes about tapes that are not there any more.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn forget_ends(&self) -> io::Result<()> {
        let directory = match std::fs::read_dir(self.ends()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            directory => directory?,
        };
        let tapes = self.list().map_err(io::Error::other)?;
        for entry in directory {
            let path = entry?.path();
            let end =
                std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<TapeEnd>(&text).ok());
            if end.is_some_and(|end| tapes.iter().all(|tape| tape.id != end.tape)) {
                // Another process may have removed it first.
                let _ = std::fs::remove_file(&path);
            }
        }
        Ok(())
    }
}
