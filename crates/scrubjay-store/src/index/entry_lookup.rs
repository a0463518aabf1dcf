//! Reads single entries from their tapes: for filters on fields, and for snippets.

use std::collections::BTreeMap;
use std::io;

use scrubjay_core::entry::Entry;

use scrubjay_tape::format::entries::Entries;
use scrubjay_tape::format::reader::TapeState;
use scrubjay_tape::home::{Home, TapeFile};

/// The most entries that are read in passing to reach a wanted one. For farther ones a sealed tape seeks to their
/// block.
const WALK_MAX: u64 = 512;

/// Calls `visit` with each wanted entry that can be read.
///
/// A tape that is gone or cannot be read is skipped: the index may still have rows of removed tapes.
pub(super) fn visit_entries(
    home: &Home,
    wanted: &BTreeMap<TapeKey, Vec<u64>>,
    mut visit: impl FnMut(&TapeKey, u64, &Entry<'_>),
) {
    for (key, entries) in wanted {
        // What cannot be read is missing in the answer; a search must not fail because of one tape.
        let _ = visit_tape(home, key, entries, &mut visit);
    }
}

/// A tape, with what is needed to find its file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TapeKey {
    pub(super) number: i64,
    pub(super) id: String,
    pub(super) started_ns: u64,
}

fn visit_tape(
    home: &Home,
    key: &TapeKey,
    wanted: &[u64],
    visit: &mut impl FnMut(&TapeKey, u64, &Entry<'_>),
) -> io::Result<()> {
    let Ok(id) = key.id.parse() else { return Ok(()) };
    // The path follows from id and start, so the directory is searched only if the tape is not there.
    let live = home.live_path(id, key.started_ns);
    let opened = home.open(&TapeFile { id, path: live });
    let Ok(tape) = opened.or_else(|e| home.find(&key.id).map_err(|_| e).and_then(|file| home.open(&file)))
    else {
        return Ok(());
    };
    let is_sealed = tape.state() == TapeState::Sealed;
    let mut at = 0;
    let mut entries: Option<Entries> = None;
    for number in wanted {
        if entries.is_none() || is_sealed && *number > at + WALK_MAX {
            entries = Some(tape.entries_from(*number)?);
        }
        let Some(reading) = entries.as_mut() else { continue };
        while at <= *number {
            let Some((found, entry)) = reading.next()? else { break };
            at = found + 1;
            if found == *number {
                visit(key, found, &entry);
            }
        }
    }
    Ok(())
}
