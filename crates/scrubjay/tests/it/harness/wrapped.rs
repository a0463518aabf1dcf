//! `scrubjay wrap`, started as a host starts it.

use std::ffi::OsString;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Command;

use rustix::process::Pid;
use serde_json::{Value, json};

use super::processes::{MARK_VARIABLE, Mark, Process};
use super::running::Running;
use super::{BACKGROUND_VARIABLE, SCRUBJAY, wait_for};

/// The command line of a `wrap` that is not started yet.
pub(crate) struct Wrap {
    /// Words before `scrubjay`: a shell that sets limits.
    before: Vec<OsString>,
    arguments: Vec<OsString>,
    command: Vec<OsString>,
}

/// A running pair of recorder processes and the processes that they started.
pub(crate) struct Wrapped {
    running: Running,
    mark: Mark,
}

impl Wrap {
    pub(super) fn new(data: &Path, command: &[&str]) -> Self {
        let arguments = [OsString::from("--data"), data.into(), "wrap".into()].into();
        Self { before: Vec::new(), arguments, command: command.iter().map(OsString::from).collect() }
    }

    /// Adds options of `wrap`.
    pub(crate) fn with(mut self, options: &[&str]) -> Self {
        self.arguments.extend(options.iter().map(OsString::from));
        self
    }

    /// Starts it with another program, which then executes it.
    pub(crate) fn by(mut self, words: &[&str]) -> Self {
        self.before = words.iter().map(OsString::from).collect();
        self
    }

    /// Lets a shell run this first.
    pub(crate) fn after(self, script: &str) -> Self {
        self.by(&["sh", "-c", &format!("{script}\nexec \"$0\" \"$@\"")])
    }

    /// Returns the command line and the mark of what it will start.
    pub(crate) fn command(&self) -> (Command, Mark) {
        let mark = Mark::new();
        let words = self.before.iter().cloned().chain([SCRUBJAY.into()]);
        let words = words.chain(self.arguments.iter().cloned()).chain(["--".into()]);
        let mut words = words.chain(self.command.iter().cloned());
        let mut command = Command::new(words.next().expect("there is a program"));
        command.args(words).env(MARK_VARIABLE, &mark.0).env_remove("SCRUBJAY_DATA");
        command.env(BACKGROUND_VARIABLE, "false");
        (command, mark)
    }

    pub(crate) fn start(&self) -> Wrapped {
        let (mut command, mark) = self.command();
        Wrapped { running: Running::start(&mut command), mark }
    }
}

impl Wrapped {
    /// Wraps a running `wrap` whose streams were made elsewhere.
    pub(crate) fn around(running: Running, mark: Mark) -> Self {
        Self { running, mark }
    }

    pub(crate) fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Waits for the worker: the warden's child, after its exec.
    pub(crate) fn worker(&self) -> Pid {
        let warden = self.running.pid();
        let variable = format!("SCRUBJAY_WARDEN={warden}");
        self.find("the worker", |process| {
            process.parent == warden.as_raw_nonzero().get() && process.has_variable(&variable)
        })
    }

    /// Waits for the server: the worker's child, after its exec.
    pub(crate) fn server(&self) -> Pid {
        let (warden, worker) = (self.running.pid(), self.worker());
        let variable = format!("SCRUBJAY_WARDEN={warden}");
        self.find("the server", |process| {
            process.parent == worker.as_raw_nonzero().get() && !process.has_variable(&variable)
        })
    }

    fn find(&self, what: &str, is_it: impl Fn(&Process) -> bool) -> Pid {
        wait_for(what, || self.mark.living().into_iter().find(&is_it).map(|process| process.pid))
    }

    /// Sends the greeting of a legacy client to the sample server.
    pub(crate) fn initialize(&mut self) {
        let client = json!({ "name": "it", "version": "1" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let answer = self.ask(0, "initialize", &params);
        assert_eq!(answer["result"]["serverInfo"]["name"], "scrubjay-sample", "{answer}");
        self.send_line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    }

    /// Calls a tool of the sample server.
    pub(crate) fn call(&mut self, id: u64, tool: &str, arguments: &Value) -> Value {
        self.ask(id, "tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Calls a tool of the sample server without a greeting before it, as modern clients do.
    pub(crate) fn call_alone(&mut self, id: u64, tool: &str, arguments: &Value) -> Value {
        self.ask(id, "tools/call", &standing_alone(tool, arguments))
    }

    /// Closes both streams, and waits until all processes have ended; returns the exit code.
    pub(crate) fn leave(mut self) -> i32 {
        self.running.close_stdin();
        let code = self.running.exit_code();
        self.mark.await_gone();
        code
    }
}

impl Deref for Wrapped {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

impl DerefMut for Wrapped {
    fn deref_mut(&mut self) -> &mut Running {
        &mut self.running
    }
}

impl Drop for Wrapped {
    fn drop(&mut self) {
        self.mark.end_all();
    }
}

/// Writes the parameters of a call that carries its protocol version.
pub(crate) fn standing_alone(tool: &str, arguments: &Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "name": tool, "arguments": arguments, "_meta": meta })
}
