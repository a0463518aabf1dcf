//! Starts the server of `wrap` as a child process with pipes.

use std::ffi::OsString;
use std::io;
use std::process::{Command, Stdio};

use thiserror::Error;
use tokio::process::Child;

use crate::pipe::{self, Sink, Source};
use crate::warden;

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    /// The process.
    pub(crate) process: Child,
    /// The pipe to its standard input.
    pub(crate) stdin: Sink,
    /// The pipe from its standard output.
    pub(crate) stdout: Source,
    /// The pipe from its standard error.
    pub(crate) stderr: Source,
}

/// Why a server did not start.
#[derive(Debug, Error)]
#[error("cannot start {program:?}")]
pub struct StartError {
    /// The program.
    pub program: OsString,
    /// The system's error.
    pub source: io::Error,
}

/// Starts a server.
///
/// # Errors
/// The program is not there, may not be run, or the process is out of descriptors.
pub(crate) fn start(program: &OsString, arguments: &[OsString]) -> Result<Server, StartError> {
    let start = || {
        let (stdin, child_stdin) = pipe::to_child()?;
        let (stdout, child_stdout) = pipe::from_child()?;
        let (stderr, child_stderr) = pipe::from_child()?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::from(child_stdin))
            .stdout(Stdio::from(child_stdout))
            .stderr(Stdio::from(child_stderr));
        warden::clean_environment(&mut command);
        // In the worker's own process group: with a terminal, only the foreground group may ask its user for a
        // password.
        let process = tokio::process::Command::from(command).spawn()?;
        Ok(Server { process, stdin, stdout, stderr })
    };
    start().map_err(|source| StartError { program: program.clone(), source })
}
