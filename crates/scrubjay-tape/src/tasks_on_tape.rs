//! Reads tasks in plain words off the tapes: what a client asked the router for, and which calls fulfilled it.
//!
//! Reads the newest tapes first and stops at a limit. A tape that cannot be read is skipped.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use scrubjay_core::reading::EntryReader;
use scrubjay_core::tasks_on_tape::{
    FIND_TOOL, TASK_METHOD, TASK_TOOL, TaskOnTape, TaskReader, ToolListReader,
};
use serde_json::Value;

use crate::clock;
use crate::format::reader::{OpenError, Tape};
use crate::home::{FindError, Home};

/// When reading stops.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// After this many tapes.
    pub tapes: usize,
    /// After this many bytes of their files.
    pub bytes: u64,
    /// After this time.
    pub time: Duration,
    /// After this many tasks or tools.
    pub found: usize,
}

/// The tasks and tools that were found.
#[derive(Debug, Default)]
pub struct TasksOnTape {
    /// Tasks with their session; the newest tapes first.
    pub tasks: Vec<(String, TaskOnTape)>,
    /// Tool definitions by backend and name, from the newest list.
    pub tools: BTreeMap<(String, String), Value>,
    /// How many tapes were read.
    pub tapes: usize,
    /// Whether all tapes were read: no limit was reached.
    pub is_all: bool,
}

/// Reads tasks, and with `with_tools` the tools that servers offered.
///
/// # Errors
/// The tapes cannot be listed.
pub fn read(home: &Home, limits: ReadLimits, with_tools: bool) -> Result<TasksOnTape, FindError> {
    let deadline = clock::now().instant + limits.time;
    let mut found = TasksOnTape { is_all: true, ..TasksOnTape::default() };
    let mut bytes = 0;
    for file in home.list()? {
        let is_enough = found.tasks.len().max(found.tools.len()) >= limits.found;
        let is_over = found.tapes >= limits.tapes || bytes >= limits.bytes;
        if is_enough || is_over || clock::now().instant >= deadline {
            found.is_all = false;
            break;
        }
        found.tapes += 1;
        match home.open(&file) {
            Ok(tape) if with_tools || may_hold_tasks(&tape) => {
                bytes += tape.file_bytes().unwrap_or_default();
                // What was read before an error counts.
                let _ = read_tape(&tape, with_tools, deadline, &mut found);
            }
            Ok(_) | Err(OpenError::Io { .. } | OpenError::Header { .. }) => {}
        }
    }
    Ok(found)
}

/// Tells from its statistics whether a tape may hold a task; an unsealed tape has none, so it may.
fn may_hold_tasks(tape: &Tape) -> bool {
    tape.footer().is_none_or(|footer| {
        let sums = &footer.metadata;
        sums.methods.contains_key(TASK_METHOD)
            || [TASK_TOOL, FIND_TOOL].iter().any(|tool| sums.tools.contains_key(*tool))
    })
}

fn read_tape(
    tape: &Tape,
    with_tools: bool,
    deadline: Instant,
    found: &mut TasksOnTape,
) -> std::io::Result<()> {
    let (mut reader, mut tasks, mut lists) =
        (EntryReader::default(), TaskReader::default(), ToolListReader::default());
    let mut entries = tape.entries()?;
    let read = loop {
        match entries.next() {
            Ok(Some((number, entry))) => {
                let reading = reader.read(&entry);
                tasks.observe(number, &entry, &reading);
                if with_tools {
                    lists.observe(&entry, &reading);
                }
            }
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        }
        if clock::now().instant >= deadline {
            found.is_all = false;
            break Ok(());
        }
    };
    let session = tape.header().map(|header| header.session.id.clone()).unwrap_or_default();
    found.tasks.extend(tasks.finish().map(|task| (session.clone(), task)));
    for (name, definition) in lists.finish() {
        // Tapes come newest first, so the first definition of a tool is the current one.
        found.tools.entry(name).or_insert(definition);
    }
    read
}
