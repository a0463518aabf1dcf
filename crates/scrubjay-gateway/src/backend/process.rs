//! Starts a backend's program: its own process group, an allowlisted environment, its complaints kept.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use scrubjay_core::entry::{Direction, EntryKind, Terminator};
use scrubjay_core::inert::inert;
use scrubjay_store::clock;
use scrubjay_store::recording::{Item, Recording};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{Backend, Streams};
use crate::config::{BackendLink, InheritEnv};
use crate::session::lock;
use crate::warden;

/// Variables any program may need.
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
/// How many of its last complaints are kept for an error message.
const COMPLAINTS_MAX: usize = 5;
/// A complaint longer than this is cut.
const COMPLAINT_BYTES_MAX: usize = 64 * 1024;

/// The last lines a backend wrote to its standard error.
pub(crate) type Complaints = Arc<Mutex<VecDeque<String>>>;

/// Starts the program of a stdio backend.
pub(super) fn start(backend: &Backend, link: &BackendLink) -> Result<(Child, Streams, Complaints), String> {
    let BackendLink::Stdio { command: program, args, env, inherit_env } = link else {
        return Err("it is no program".to_owned());
    };
    let mut command = std::process::Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if *inherit_env != InheritEnv::All {
        command.env_clear();
        for (name, value) in std::env::vars_os().filter(|(name, _)| inherits(inherit_env, name)) {
            command.env(name, value);
        }
    }
    command.envs(env);
    warden::clean_environment(&mut command);
    if let Some(workspace) = backend.workspace() {
        command.current_dir(workspace);
    }
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    let mut child = command.spawn().map_err(|e| format!("cannot start \"{program}\": {e}"))?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let complaints = Complaints::default();
    if let Some(stderr) = child.stderr.take() {
        tokio::spawn(keep_complaints(
            stderr,
            backend.id.clone(),
            complaints.clone(),
            backend.recording.clone(),
        ));
    }
    match (stdin, stdout) {
        (Some(stdin), Some(stdout)) => Ok((child, (Box::new(stdout), Box::new(stdin)), complaints)),
        _ => Err("its streams could not be opened".to_owned()),
    }
}

fn inherits(rule: &InheritEnv, name: &std::ffi::OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    BASIC.contains(&name)
        || name.starts_with("LC_")
        || matches!(rule, InheritEnv::Named(names) if names.iter().any(|n| n == name))
}

async fn keep_complaints(
    stderr: tokio::process::ChildStderr,
    backend: String,
    complaints: Complaints,
    recording: Arc<Mutex<Recording>>,
) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        let limited = &mut tokio::io::AsyncReadExt::take(&mut reader, COMPLAINT_BYTES_MAX as u64);
        match limited.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = line.trim_ascii_end();
        let item = Item::new(EntryKind::Stderr, Direction::ServerToClient, Terminator::Lf, text);
        let recorded = lock(&recording).record(clock::now(), std::iter::once(item));
        if let Err(e) = recorded {
            lock(&recording).note_gap(1, text.len() as u64, true, &e);
        }
        let text = String::from_utf8_lossy(text).into_owned();
        tracing::debug!(backend, stderr = %inert(&text), "backend complains");
        let mut kept = lock(&complaints);
        if kept.len() == COMPLAINTS_MAX {
            kept.pop_front();
        }
        kept.push_back(text);
    }
}
