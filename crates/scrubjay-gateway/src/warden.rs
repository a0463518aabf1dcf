//! Runs the recorder as a pair of processes, so that the servers are ended even if one of the two is killed.
//!
//! The process that a host starts is the warden. It starts the worker, which does everything else and whose
//! descendants the servers are. If the worker is killed, the warden inherits the servers and ends them. If the warden
//! is killed, the kernel sends the worker a signal, and the worker ends the servers and closes its tape. The warden
//! holds neither standard input nor output.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal};
use tokio::signal::unix::{SignalKind, signal};

use crate::tree;

/// The name (`argv[0]`) of a worker. Unlike an environment variable, it is not inherited by a server that is Scrubjay
/// again, nor by a background process.
const WORKER_NAME: &str = "scrubjay-worker";
/// Holds the process id of the warden.
const WARDEN_VARIABLE: &str = "SCRUBJAY_WARDEN";

/// Marks that the warden set the variables of `ALLOCATOR`, so that servers do not inherit them.
const ALLOCATOR_VARIABLE: &str = "SCRUBJAY_WARDEN_MALLOC";
/// Makes glibc's allocator return memory: large allocations get mappings of their own, so that no small allocation
/// behind them keeps them resident, and few threads have a heap of their own.
const ALLOCATOR: [(&str, &str); 3] =
    [("MALLOC_MMAP_THRESHOLD_", "131072"), ("MALLOC_TRIM_THRESHOLD_", "131072"), ("MALLOC_ARENA_MAX", "2")];

/// The signals that the warden forwards to the worker, and the worker to the server of `wrap`.
pub(crate) const FORWARDED_SIGNALS: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// Which of the two this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Started by the host.
    Warden,
    /// Started by a warden.
    Worker {
        /// The warden's process.
        warden: Pid,
    },
}

/// Returns which of the two this process is. It stays a worker if its warden is gone already: [`begin_work`] then
/// fails.
#[must_use]
pub fn role() -> Role {
    let is_worker = std::env::args_os().next().is_some_and(|name| name == WORKER_NAME);
    let named = std::env::var(WARDEN_VARIABLE).ok().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    match named {
        // Both are needed: the variable alone may be inherited from a worker further up.
        Some(warden) if is_worker => Role::Worker { warden },
        _ => Role::Warden,
    }
}

/// Returns whether this is a worker whose warden has died.
pub(crate) fn is_orphaned() -> bool {
    matches!(role(), Role::Worker { warden } if rustix::process::getppid() != Some(warden))
}

/// Prepares the worker: the death of its warden reaches it as SIGTERM, it inherits orphans, and a file-size limit
/// makes a write fail instead of killing it. To be called inside a runtime, before anything is written.
///
/// # Errors
/// The system does not offer it, or the warden is gone already.
pub fn begin_work() -> io::Result<()> {
    // Tokio keeps the signal caught after the stream is dropped; a recording handles the failed write.
    let _ = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    // Checked after the death signal is set: a warden that died before that sends none.
    if is_orphaned() {
        return Err(io::Error::other("the process that started this one is gone"));
    }
    tree::adopt_orphans()
}

/// Removes the variables that only warden and worker need from a server's environment.
pub fn clean_environment(command: &mut Command) {
    command.env_remove(WARDEN_VARIABLE);
    if std::env::var_os(ALLOCATOR_VARIABLE).is_some() {
        command.env_remove(ALLOCATOR_VARIABLE);
        for (name, _) in ALLOCATOR {
            command.env_remove(name);
        }
    }
}

/// The limit of open files with which this process started, if it was raised.
static OPEN_FILES_BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Lets this process have as many files open as the system allows: each client may take several.
pub fn raise_open_files() {
    let limits = rustix::process::getrlimit(Resource::Nofile);
    if limits.current == limits.maximum {
        return;
    }
    let raised = Rlimit { current: limits.maximum, maximum: limits.maximum };
    match rustix::process::setrlimit(Resource::Nofile, raised) {
        // Fails if it was set before, and the first value is the right one.
        Ok(()) => drop(OPEN_FILES_BEFORE.set(limits)),
        Err(e) => tracing::warn!(error = %e, "the limit of open files could not be raised"),
    }
}

/// Gives a new server the limit of open files with which this process started: some programs loop over all descriptors
/// up to the limit.
pub(crate) fn restore_open_files(server: Option<Pid>) {
    #[cfg(target_os = "linux")]
    if let (Some(before), Some(server)) = (OPEN_FILES_BEFORE.get(), server) {
        // Fails if it has exited already.
        let _ = rustix::process::prlimit(Some(server), Resource::Nofile, *before);
    }
}

/// How the worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerEnded {
    /// The exit code that a shell would report.
    pub exit_code: u8,
    /// Whether a signal ended it, so that it could not close its tape and its sessions.
    pub was_killed: bool,
}

/// Starts this program again as the worker, waits for it, and returns how it ended. With `serves_many`, the worker's
/// allocator returns memory to the system early.
///
/// # Errors
/// The worker cannot be started.
pub async fn watch_over(serves_many: bool) -> io::Result<WorkerEnded> {
    // Before the worker starts: if the worker is killed, its processes become children of this one.
    tree::adopt_orphans()?;
    // Caught before the worker starts: a signal in between would end the warden alone.
    let mut signals = Vec::new();
    for number in FORWARDED_SIGNALS {
        signals.push((number, signal(SignalKind::from_raw(number.as_raw()))?));
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(WORKER_NAME).args(std::env::args_os().skip(1));
    command.env(WARDEN_VARIABLE, rustix::process::getpid().to_string());
    // Set for the worker, because glibc reads them at its start. A user's own settings count more.
    if serves_many && ALLOCATOR.iter().all(|(name, _)| std::env::var_os(name).is_none()) {
        command.env(ALLOCATOR_VARIABLE, "1").envs(ALLOCATOR);
    }
    if !has_terminal() {
        // A signal to the host's process group then reaches the server once, forwarded by this process.
        command.process_group(0);
    }
    let mut worker = tokio::process::Command::from(command).spawn()?;
    let pid = worker.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    release_streams()?;
    let status = loop {
        tokio::select! {
            status = worker.wait() => break status?,
            received = next_signal(&mut signals) => {
                if let Some(pid) = pid {
                    // Fails if the worker has exited, which is noticed next.
                    let _ = rustix::process::kill_process(pid, received);
                }
            }
        }
    };
    // Without patience: a worker that ended in order has ended its servers already.
    tree::end_descendants(Duration::ZERO, Duration::ZERO).await;
    Ok(WorkerEnded { exit_code: exit_code(status), was_killed: status.signal().is_some() })
}

/// Returns a future that waits for SIGTERM or SIGINT.
///
/// # Errors
/// The signals cannot be caught.
pub fn stopped() -> io::Result<impl Future<Output = ()> + Send> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    })
}

/// Waits for the next of the signals.
pub(crate) async fn next_signal(signals: &mut [(Signal, tokio::signal::unix::Signal)]) -> Signal {
    std::future::poll_fn(|context| {
        for (number, stream) in signals.iter_mut() {
            if stream.poll_recv(context).is_ready() {
                return std::task::Poll::Ready(*number);
            }
        }
        std::task::Poll::Pending
    })
    .await
}

/// Returns the exit code that a shell would report for this status.
#[must_use]
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|s| 128 + s)).unwrap_or(1);
    u8::try_from(code & 0xff).unwrap_or(1)
}

/// Returns whether there is a controlling terminal. Only processes of its foreground group may read from it.
#[must_use]
pub fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Closes standard input and output: with the worker's copies alone, they close when the worker closes them.
fn release_streams() -> io::Result<()> {
    let nothing = crate::pipe::dev_null()?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(())
}
