//! Starts a backend's program in a process group of its own, with an allowlisted environment, and records its standard
//! error.

use std::collections::VecDeque;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use scrubjay_core::entry::{Direction, EntryKind, Terminator};
use scrubjay_core::inert::inert;
use scrubjay_core::redact::{LineContext, cut};
use scrubjay_tape::clock;
use scrubjay_tape::recording::Item;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};

use super::leg_tape::LegTape;
use super::{Backend, Streams};
use crate::config::{BackendLink, InheritEnv};
use crate::session::lock;
use crate::{tree, warden};

/// The variables that a backend inherits unless its configuration names more: others may hold secrets that are not for
/// it.
const BASIC: [&str; 14] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TERM",
    "TMPDIR",
    "TZ",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
];
/// How many of its last lines are kept for an error message.
const STDERR_LINES_KEPT: usize = 5;
/// How many characters of each are kept: every connection keeps its own.
const STDERR_LINE_CHARS_KEPT: usize = 2000;
/// A longer line is recorded in parts.
const STDERR_LINE_BYTES_MAX: usize = 64 * 1024;

/// How long a program gets to exit after its input has ended, and again after each signal.
const LEAVE_MAX: Duration = Duration::from_millis(500);

/// A line is cut between words, unless a word is longer than this: a secret that is cut in two would be recognised in
/// neither half.
const WORD_BYTES_MAX: usize = 4096;

/// The last lines that a backend wrote to its standard error, redacted: they are part of the error when it has ended.
pub(crate) type StderrTail = Arc<Mutex<VecDeque<String>>>;

/// Why the program of a backend does not run.
#[derive(Debug, Error)]
pub(crate) enum ProgramError {
    /// The backend is reached in another way.
    #[error("it is not started as a program: its configuration has no command")]
    NoProgram,
    /// The system does not start it.
    #[error("cannot start \"{program}\": {source}")]
    Spawn {
        /// As configured.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// It runs without the streams that were asked for.
    #[error("its streams could not be opened")]
    NoStreams,
}

/// A backend's program; dropped, it ends with all processes that it started.
pub(super) struct Program {
    /// Its exit status, once it has one.
    pub(super) ended: watch::Receiver<Option<Exit>>,
    group: Option<Pid>,
    _end: oneshot::Sender<()>,
}

impl Program {
    /// Returns how much processor time its process group has used, in the system's ticks.
    pub(super) fn busy_ticks(&self) -> Option<u64> {
        self.group.map(tree::ticks_of_group)
    }
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exit(ExitStatus);

impl Exit {
    pub(super) fn code(self) -> Option<i32> {
        self.0.code()
    }

    pub(super) fn signal(self) -> Option<i32> {
        std::os::unix::process::ExitStatusExt::signal(&self.0)
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it ended with {}", self.0)
    }
}

/// Waits in a task until a program has ended or its [`Program`] is dropped, and then ends its process group.
fn supervise(mut child: Child) -> Program {
    let (ended, how) = watch::channel(None);
    let (end, end_requested) = oneshot::channel::<()>();
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    tokio::spawn(async move {
        let status = tokio::select! {
            status = child.wait() => status.ok(),
            // Its input has ended too, upon which most programs exit without a signal.
            _ = end_requested => tokio::time::timeout(LEAVE_MAX, child.wait()).await.ok().and_then(Result::ok),
        };
        // Published before the group is ended, which may take a second: those who wait for the status need not wait for
        // that.
        if let Some(status) = status {
            ended.send_replace(Some(Exit(status)));
        }
        // Also after it has exited: what it started is in the same group, and may still run.
        for signal in [Signal::TERM, Signal::KILL] {
            let Some(group) = group.filter(|group| is_alive(*group)) else { return };
            // Fails if the group has ended meanwhile.
            let _ = rustix::process::kill_process_group(group, signal);
            let _ = tokio::time::timeout(LEAVE_MAX, child.wait()).await;
        }
    });
    Program { ended: how, group, _end: end }
}

/// Returns whether a descendant of this process belongs to a group. Descendants only: once the group has ended, its
/// number may belong to a stranger's.
fn is_alive(group: Pid) -> bool {
    tree::descendants().into_iter().any(|process| rustix::process::getpgid(Some(process)) == Ok(group))
}

/// Starts the program of a stdio backend.
pub(super) fn start(
    backend: &Backend,
    link: &BackendLink,
    tape: &Arc<LegTape>,
) -> Result<(Program, Streams, StderrTail), ProgramError> {
    let BackendLink::Stdio { command: program, args, env, inherit_env } = link else {
        return Err(ProgramError::NoProgram);
    };
    let mut command = std::process::Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if *inherit_env != InheritEnv::All {
        command.env_clear();
        for (name, value) in std::env::vars_os().filter(|(name, _)| inherits(inherit_env, name)) {
            command.env(name, value);
        }
    }
    // After the inherited ones, so that the configuration counts more.
    command.envs(env);
    warden::clean_environment(&mut command);
    if let Some(workspace) = backend.workspace() {
        command.current_dir(workspace);
    }
    // A group of its own, so that it can be ended with all that it started, and gets no signals from our terminal.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut command = Command::from(command);
    // For a start that fails after the spawn: from `supervise` on, the group is ended with signals of its own.
    command.kill_on_drop(true);
    let spawned = command.spawn();
    let mut child = spawned.map_err(|source| ProgramError::Spawn { program: program.clone(), source })?;
    warden::restore_open_files(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let stderr_tail = StderrTail::default();
    if let Some(stderr) = child.stderr.take() {
        tokio::spawn(record_stderr(stderr, backend.id.clone(), stderr_tail.clone(), tape.clone()));
    }
    match (stdin, stdout) {
        (Some(stdin), Some(stdout)) => {
            Ok((supervise(child), (Box::new(stdout), Box::new(stdin)), stderr_tail))
        }
        _ => Err(ProgramError::NoStreams),
    }
}

fn inherits(rule: &InheritEnv, name: &std::ffi::OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    BASIC.contains(&name)
        || name.starts_with("LC_")
        || matches!(rule, InheritEnv::Named(names) if names.iter().any(|n| n == name))
}

async fn record_stderr(
    stderr: tokio::process::ChildStderr,
    backend: String,
    stderr_tail: StderrTail,
    tape: Arc<LegTape>,
) {
    let mut reader = BufReader::new(stderr);
    let (mut line, mut rest) = (Vec::new(), Vec::new());
    let mut lines = LineContext::default();
    loop {
        std::mem::swap(&mut line, &mut rest);
        rest.clear();
        let limited = &mut tokio::io::AsyncReadExt::take(&mut reader, STDERR_LINE_BYTES_MAX as u64);
        match limited.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) if line.is_empty() => return,
            Ok(0) | Err(_) => {}
            Ok(_) if line.len() >= STDERR_LINE_BYTES_MAX => rest = last_word(&mut line),
            Ok(_) => {}
        }
        let text = line.trim_ascii_end();
        let item = Item::new(EntryKind::Stderr, Direction::ServerToClient, Terminator::Lf, text);
        let recording = tape.recording();
        let recorded = lock(&recording).record(clock::now(), std::iter::once(item));
        if let Err(e) = recorded {
            // It is still read: a full pipe would stop the backend.
            lock(&recording).note_gap(1, text.len() as u64, true, &e);
        }
        let redactor = lock(&recording).redactor();
        let text = String::from_utf8_lossy(lines.redact(&redactor, text).as_bytes()).into_owned();
        tracing::debug!(backend, stderr = %inert(&text), "the backend wrote to standard error");
        // Cut after the redaction, which might not recognise half a secret.
        let text = cut(&text, STDERR_LINE_CHARS_KEPT).to_owned();
        let mut kept = lock(&stderr_tail);
        if kept.len() == STDERR_LINES_KEPT {
            kept.pop_front();
        }
        kept.push_back(text);
        drop(kept);
        line.clear();
    }
}

/// Takes the incomplete last word off a line that was cut, unless it is longer than `WORD_BYTES_MAX`.
fn last_word(line: &mut Vec<u8>) -> Vec<u8> {
    if line.ends_with(b"\n") {
        return Vec::new();
    }
    let near = line.len().saturating_sub(WORD_BYTES_MAX);
    match line[near..].iter().rposition(u8::is_ascii_whitespace) {
        Some(space) => line.split_off(near + space + 1),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_between_words() {
        let check = |line: &str, kept: &str, rest: &str| {
            let mut line = line.as_bytes().to_vec();
            assert_eq!(last_word(&mut line), rest.as_bytes());
            assert_eq!(line, kept.as_bytes());
        };
        check("one two", "one ", "two");
        check("one two\n", "one two\n", "");
        check("one", "one", "");
        let long = "x".repeat(WORD_BYTES_MAX + 1);
        check(&format!("a {long}"), &format!("a {long}"), "");
    }
}
