//! Shows long output in a pager, as `git` does: only on a terminal, and not for JSON.
//!
//! Standard output itself is redirected to the pager, so that code that prints does not depend on it.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};

use crate::cli::Global;
use crate::{commands, render};

/// A pager that shows what is printed. Dropping it waits until the user has quit the pager.
pub(crate) struct Pager {
    child: Child,
    /// Ignores interrupts, for as long as it exists: Ctrl-C is meant for the pager, which stops a search with it.
    _interrupts: Option<(tokio::runtime::Runtime, tokio::signal::unix::Signal)>,
}

impl Pager {
    /// Starts a pager if one is wanted. If it cannot be started, output goes to the terminal.
    pub(crate) fn start(global: &Global) -> Option<Self> {
        if global.json || global.no_pager || !io::stdout().is_terminal() {
            return None;
        }
        let mut command = command(|name| std::env::var_os(name))?;
        // As git sets it. F: quit if the output fits on one screen; R: show colours; X: do not clear the screen.
        for (name, value) in [("LESS", "FRX"), ("LV", "-c")] {
            if std::env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        // Before standard output is redirected: afterwards the width cannot be measured.
        render::columns();
        // Colours are decided while standard output is still the terminal; on a pipe they would be off.
        let colours = anstream::AutoStream::choice(&io::stdout());
        let mut child = command.stdin(Stdio::piped()).spawn().ok()?;
        let into = child.stdin.take()?;
        let interrupts = commands::runtime().ok().and_then(|runtime| {
            let inside = runtime.enter();
            let signal = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()).ok()?;
            drop(inside);
            Some((runtime, signal))
        });
        rustix::stdio::dup2_stdout(&into).ok()?;
        colours.write_global();
        Some(Self { child, _interrupts: interrupts })
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        // It fails if the user has quit the pager, and then nobody wants the rest.
        let _ = io::stdout().flush();
        // The pager waits for the end of its input, so our end of the pipe, which is standard output, is closed.
        if let Ok(nowhere) = std::fs::File::options().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&nowhere);
        }
        // It fails only if the pager was reaped elsewhere, and then it has ended.
        let _ = self.child.wait();
    }
}

/// Returns the pager that the user wants; none if that is empty or `cat`.
fn command(variable: impl Fn(&str) -> Option<OsString>) -> Option<Command> {
    let Some(wanted) = ["SCRUBJAY_PAGER", "PAGER"].into_iter().find_map(variable) else {
        return Some(Command::new("less"));
    };
    if wanted.is_empty() || wanted == "cat" {
        return None;
    }
    // A shell only if the command has words or other syntax: without a shell, a missing program fails to start, and the
    // output goes to the terminal instead.
    if wanted.as_bytes().iter().any(|b| b"|&;<>()$`\\\"' \t\n*?[#~=%".contains(b)) {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(wanted);
        return Some(shell);
    }
    Some(Command::new(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pager_is_chosen_as_git_chooses() {
        let check = |set: &[(&str, &str)], expected: Option<&[&str]>| {
            let variable =
                |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value));
            let words = command(variable).map(|command| {
                let words = std::iter::once(command.get_program()).chain(command.get_args());
                words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
            });
            let expected = expected.map(|e| e.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(words, expected);
        };
        check(&[], Some(&["less"]));
        check(&[("PAGER", "more")], Some(&["more"]));
        check(&[("PAGER", "more"), ("SCRUBJAY_PAGER", "most")], Some(&["most"]));
        check(&[("PAGER", "less -S | cat")], Some(&["sh", "-c", "less -S | cat"]));
        check(&[("PAGER", "more"), ("SCRUBJAY_PAGER", "")], None);
        check(&[("PAGER", "cat")], None);
    }
}
