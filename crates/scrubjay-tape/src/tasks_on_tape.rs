//! What this installation's own tapes tell of tasks in plain words: what was asked, and which calls did it.
//!
//! Reads the newest tapes first and stops at a limit. A tape that cannot be read is left out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use scrubjay_core::reading::Reader;
use scrubjay_core::routed::{FIND_TOOL, Lists, TASK_METHOD, TASK_TOOL, Task, Tasks};
use serde_json::Value;

use crate::clock;
use crate::format::reader::{OpenError, Tape};
use crate::home::{FindError, Home};

/// How much is read at most.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// So many tapes.
    pub tapes: usize,
    /// So many bytes of them, as they are in their files.
    pub bytes: u64,
    /// For so long.
    pub time: Duration,
    /// Until there are so many tasks, or tools.
    pub found: usize,
}

/// What tapes tell.
#[derive(Debug, Default)]
pub struct TasksOnTape {
    /// Tasks, each with the session it was asked in; the newest tapes first.
    pub tasks: Vec<(String, Task)>,
    /// Definitions of tools by backend and name, as the newest list has them.
    pub tools: BTreeMap<(String, String), Value>,
    /// How many tapes were looked at.
    pub tapes: usize,
    /// Whether there was nothing left to look at.
    pub is_all: bool,
}

/// Reads tasks, and on demand the tools there were.
///
/// # Errors
/// The tapes cannot be listed.
pub fn read(home: &Home, limits: ReadLimits, with_tools: bool) -> Result<TasksOnTape, FindError> {
    let deadline = clock::now().instant + limits.time;
    let mut told = TasksOnTape { is_all: true, ..TasksOnTape::default() };
    let mut bytes = 0;
    for file in home.list()? {
        let is_enough = told.tasks.len().max(told.tools.len()) >= limits.found;
        let is_over = told.tapes >= limits.tapes || bytes >= limits.bytes;
        if is_enough || is_over || clock::now().instant >= deadline {
            told.is_all = false;
            break;
        }
        told.tapes += 1;
        match home.open(&file) {
            Ok(tape) if with_tools || may_hold_tasks(&tape) => {
                bytes += tape.file_bytes().unwrap_or_default();
                // What was read up to the damage counts.
                let _ = read_tape(&tape, with_tools, deadline, &mut told);
            }
            Ok(_) | Err(OpenError::Io { .. } | OpenError::Header { .. }) => {}
        }
    }
    Ok(told)
}

/// Tells from its totals whether a tape may hold a task; one that is not sealed may.
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
    told: &mut TasksOnTape,
) -> std::io::Result<()> {
    let (mut reader, mut tasks, mut lists) = (Reader::default(), Tasks::default(), Lists::default());
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
            told.is_all = false;
            break Ok(());
        }
    };
    let session = tape.header().map(|header| header.session.id.clone()).unwrap_or_default();
    told.tasks.extend(tasks.finish().map(|task| (session.clone(), task)));
    for (name, definition) in lists.finish() {
        told.tools.entry(name).or_insert(definition);
    }
    read
}
