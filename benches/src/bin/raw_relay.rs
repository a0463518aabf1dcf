//! `raw-relay -- COMMAND…`: copies bytes between its own stdio and a child's, and nothing else.
//!
//! Two threads, blocking reads and writes of up to 64 KiB, no parsing: no relay in a process of
//! its own can cost less, so it is what recording relays are compared with. End of input and exit
//! code pass through. Arguments before `--` are ignored, so that it can replace
//! `scrubjay --data DIR wrap --name N -- COMMAND…`.

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::thread;

use scrubjay_bench::stdio;

const BUFFER_BYTES: usize = 64 * 1024;

fn main() -> io::Result<ExitCode> {
    let mut command = std::env::args_os().skip_while(|argument| argument != "--").skip(1);
    let program = command.next().ok_or_else(|| io::Error::other("usage: raw-relay -- COMMAND…"))?;
    let mut child =
        Command::new(program).args(command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let to_child = child.stdin.take().expect("stdin was asked for as a pipe");
    let from_child = child.stdout.take().expect("stdout was asked for as a pipe");

    let input = stdio::input()?;
    // Not joined: it may stay blocked on input that never comes, after the child is gone. Its
    // errors mean that the child stopped reading, which the exit code tells.
    thread::spawn(move || copy(input, to_child));
    copy(from_child, stdio::output()?)?;
    child.wait().map(exit_code)
}

// Both ends are dropped, and so closed, at the end of input.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let bytes = from.read(&mut buffer)?;
        if bytes == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..bytes])?;
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
