//! A process whose standard streams are written and read without blocking, with a deadline.

use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::{Deadline, kill};

/// How much is read at once.
const READ_BYTES: usize = 256 * 1024;

/// A running process and its output so far.
pub(crate) struct Running {
    child: Child,
    pidfd: OwnedFd,
    status: Option<ExitStatus>,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    /// The part of standard output that no method returned yet.
    inbox: Vec<u8>,
    stderr_bytes: Vec<u8>,
    /// Whether standard output and error are read as they come.
    pub(crate) reads_stdout: bool,
    pub(crate) reads_stderr: bool,
}

impl Running {
    /// Starts a process with three pipes.
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stdin = child.stdin.take().map(OwnedFd::from);
        let stdout = child.stdout.take().map(OwnedFd::from);
        let mut running = Self::around(child, stdin, stdout);
        running.stderr = running.child.stderr.take().map(OwnedFd::from).inspect(stop_blocking);
        running
    }

    /// Wraps a process whose streams were made elsewhere; these are our ends of them.
    pub(crate) fn around(child: Child, stdin: Option<OwnedFd>, stdout: Option<OwnedFd>) -> Self {
        stdin.iter().chain(&stdout).for_each(stop_blocking);
        let pid = Pid::from_raw(child.id().cast_signed()).expect("a process has a number");
        Self {
            child,
            pidfd: rustix::process::pidfd_open(pid, PidfdFlags::empty()).expect("the process is ours"),
            status: None,
            stdin,
            stdout,
            stderr: None,
            inbox: Vec::new(),
            stderr_bytes: Vec::new(),
            reads_stdout: true,
            reads_stderr: true,
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed()).expect("a process has a number")
    }

    /// Sends bytes, and reads its output meanwhile; if the process no longer reads, the rest is dropped.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        self.turn_until("to send", |me, deadline| {
            if rest.is_empty() || me.stdin.is_none() {
                return Some(());
            }
            rest = me.turn(rest, deadline);
            None
        });
    }

    /// Returns whether the process still reads its input.
    pub(crate) fn reads_stdin(&self) -> bool {
        self.stdin.is_some()
    }

    /// Sends one message.
    pub(crate) fn send_line(&mut self, line: &str) {
        self.send(format!("{line}\n").as_bytes());
    }

    /// Returns the next line, without its ending; `None` at the end of the stream.
    pub(crate) fn line(&mut self) -> Option<String> {
        self.turn_until("a line", |me, deadline| {
            if let Some(end) = me.inbox.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = me.inbox.drain(..=end).collect();
                return Some(Some(String::from_utf8(line[..end].to_vec()).expect("a line of text")));
            }
            if me.stdout.is_none() {
                return Some(None);
            }
            me.turn(&[], deadline);
            None
        })
    }

    /// Returns the next line as JSON.
    pub(crate) fn message(&mut self) -> serde_json::Value {
        let line = self.line().expect("the stream goes on");
        serde_json::from_str(&line).expect("a message is JSON")
    }

    /// Sends a request and returns its answer; other messages are dropped.
    pub(crate) fn ask(&mut self, id: u64, method: &str, params: &serde_json::Value) -> serde_json::Value {
        self.send_line(&request(id, method, params));
        loop {
            let message = self.message();
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Reads standard output to its end, and returns the part that no method returned yet.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        self.turn_until("the end of standard output", |me, deadline| {
            if me.stdout.is_some() {
                me.turn(&[], deadline);
            }
            me.stdout.is_none().then_some(())
        });
        std::mem::take(&mut self.inbox)
    }

    /// Waits until this many bytes have arrived, and returns all that have.
    pub(crate) fn await_output(&mut self, bytes: usize) -> &[u8] {
        self.turn_until("more bytes", |me, deadline| {
            if me.inbox.len() < bytes && me.stdout.is_some() {
                me.turn(&[], deadline);
            }
            (me.inbox.len() >= bytes || me.stdout.is_none()).then_some(())
        });
        &self.inbox
    }

    /// Waits until standard error contains a text, and returns all of it.
    pub(crate) fn await_stderr(&mut self, wanted: &str) -> String {
        self.turn_until(wanted, |me, deadline| {
            let text = String::from_utf8_lossy(&me.stderr_bytes).into_owned();
            if text.contains(wanted) {
                return Some(text);
            }
            assert!(me.stderr.is_some(), "standard error ended without {wanted:?}: {text}");
            me.turn(&[], deadline);
            None
        })
    }

    /// Closes the process's input.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Closes our ends of its output.
    pub(crate) fn close_stdout(&mut self) {
        self.stdout = None;
    }

    pub(crate) fn close_stderr(&mut self) {
        self.stderr = None;
    }

    /// Waits for the process to exit, and reads all of its output.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.turn_until("the process to exit", |me, deadline| {
            let stdout_ended = me.stdout.is_none() || !me.reads_stdout;
            let stderr_ended = me.stderr.is_none() || !me.reads_stderr;
            if let Some(status) = me.status
                && stdout_ended
                && stderr_ended
            {
                return Some(status);
            }
            me.turn(&[], deadline);
            None
        })
    }

    /// Waits for the exit code.
    pub(crate) fn exit_code(&mut self) -> i32 {
        let status = self.wait();
        status.code().unwrap_or_else(|| panic!("ended by a signal: {status}; {}", self.stderr_text()))
    }

    pub(crate) fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr_bytes).into_owned()
    }

    fn turn_until<T>(&mut self, what: &str, mut turn: impl FnMut(&mut Self, Deadline) -> Option<T>) -> T {
        let deadline = Deadline::new();
        loop {
            if let Some(done) = turn(self, deadline) {
                return done;
            }
            if deadline.has_passed() {
                panic!("waited in vain for {what}; standard error: {}", self.stderr_text());
            }
        }
    }

    /// Waits for anything to happen; returns the bytes that are still to be sent.
    fn turn<'a>(&mut self, to_send: &'a [u8], deadline: Deadline) -> &'a [u8] {
        let left = deadline.left();
        let time = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let (mut may_write, mut may_read_stdout, mut may_read_stderr, mut has_exited) = Default::default();
        {
            let mut polled: Vec<(PollFd<'_>, &mut bool)> = Vec::new();
            if let Some(stdin) = self.stdin.as_ref().filter(|_| !to_send.is_empty()) {
                polled.push((PollFd::new(stdin, PollFlags::OUT), &mut may_write));
            }
            if let Some(stdout) = self.stdout.as_ref().filter(|_| self.reads_stdout) {
                polled.push((PollFd::new(stdout, PollFlags::IN), &mut may_read_stdout));
            }
            if let Some(stderr) = self.stderr.as_ref().filter(|_| self.reads_stderr) {
                polled.push((PollFd::new(stderr, PollFlags::IN), &mut may_read_stderr));
            }
            if self.status.is_none() {
                polled.push((PollFd::new(&self.pidfd, PollFlags::IN), &mut has_exited));
            }
            let (mut fds, flags): (Vec<_>, Vec<_>) = polled.into_iter().unzip();
            match rustix::event::poll(&mut fds, Some(&time)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => panic!("poll: {e}"),
            }
            for (fd, flag) in fds.iter().zip(flags) {
                *flag = !fd.revents().is_empty();
            }
        }
        if may_read_stdout {
            read_into(&mut self.stdout, &mut self.inbox);
        }
        if may_read_stderr {
            read_into(&mut self.stderr, &mut self.stderr_bytes);
        }
        if has_exited {
            self.status = self.child.try_wait().expect("the child is ours");
        }
        if may_write { self.write(to_send) } else { to_send }
    }

    fn write<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(stdin) = &self.stdin else { return bytes };
        match rustix::io::write(stdin, bytes) {
            Ok(n) => &bytes[n..],
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => bytes,
            Err(_) => {
                self.stdin = None;
                bytes
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.status.is_none() {
            kill(self.pid(), Signal::KILL);
            // Waited for, so that no zombie is left; its exit code does not matter.
            let _ = self.child.wait();
        }
    }
}

/// Writes a request.
pub(crate) fn request(id: u64, method: &str, params: &serde_json::Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// Reads what has arrived; closes the stream at its end.
fn read_into(stream: &mut Option<OwnedFd>, into: &mut Vec<u8>) {
    let Some(fd) = stream else { return };
    let before = into.len();
    into.resize(before + READ_BYTES, 0);
    let read = rustix::io::read(fd, &mut into[before..]);
    into.truncate(before + read.unwrap_or(0));
    match read {
        Ok(1..) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
        // A socket whose peer was killed returns an error; a pipe only ends.
        Ok(0) | Err(_) => *stream = None,
    }
}

fn stop_blocking(fd: &OwnedFd) {
    rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK).expect("the descriptor is ours");
}
