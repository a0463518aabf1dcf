//! Commands on a terminal: a pager like that of `git`, and questions before anything is removed.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::harness::{Lab, SCRUBJAY};

const LINE: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\n";

/// Runs a command on a terminal of 120 columns, types something, and returns what was on the screen and the exit code.
fn on_terminal(lab: &Lab, arguments: &[&str], pager: Option<&str>, typed: &str) -> (String, i32) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let path = ptsname(&master, Vec::new()).unwrap();
    let terminal = File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&terminal, size).unwrap();
    let stream = || Stdio::from(terminal.try_clone().unwrap());
    let mut command = Command::new(SCRUBJAY);
    command.arg("--data").arg(lab.data()).args(arguments);
    command.env_remove("COLUMNS").env_remove("PAGER").env_remove("SCRUBJAY_PAGER").env("NO_COLOR", "1");
    command.envs(pager.map(|pager| ("SCRUBJAY_PAGER", pager)));
    let mut child = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
    // Our copy must be closed, or reading the screen never ends.
    drop(command);
    drop(terminal);
    let mut master = File::from(master);
    master.write_all(typed.as_bytes()).unwrap();
    let mut screen = Vec::new();
    // Linux returns an error, not an end, from a terminal that no process has open.
    let _ = master.read_to_end(&mut screen);
    let code = child.wait().unwrap().code().unwrap_or(-1);
    (String::from_utf8(screen).unwrap().replace('\r', ""), code)
}

#[test]
fn long_output_is_shown_in_a_pager() {
    let lab = Lab::new();
    let lines: Vec<u8> = (0..2000).flat_map(|_| LINE.to_vec()).collect();
    lab.record("n", &lines);
    let mark = Some("sed s/^/paged:/");
    for arguments in
        [&["tape", "show"][..], &["tape", "ls"], &["tape", "show", "--entry", "1"], &["tape", "du"]]
    {
        let (screen, code) = on_terminal(&lab, arguments, mark, "");
        assert_eq!(code, 0, "{arguments:?}: {screen}");
        assert!(screen.lines().all(|line| line.starts_with("paged:")), "{arguments:?}: {screen}");
        let not = [arguments, &["--no-pager"]].concat();
        let (screen, _) = on_terminal(&lab, &not, mark, "");
        assert!(!screen.is_empty() && !screen.contains("paged:"), "{not:?}: {screen}");
    }
    for never in [
        &["tape", "show", "--json"][..],
        &["tape", "follow", "latest"],
        &["tape", "show", "--entry", "1", "--raw"],
    ] {
        let (screen, code) = on_terminal(&lab, never, mark, "");
        assert!(code == 0 && !screen.contains("paged:"), "{never:?}");
    }
    // Not reported as a misspelt variable. The index is filled before, so that no progress bar is shown.
    lab.run_ok(&["tape", "search", "m"]);
    let (screen, _) = on_terminal(&lab, &["tape", "search", "m"], mark, "");
    assert!(screen.lines().all(|line| line.starts_with("paged:")), "{screen}");
    // Without a pager, or with one that does not exist, the output is printed directly.
    for pager in ["", "cat", "/nowhere/pager"] {
        let (screen, code) = on_terminal(&lab, &["tape", "ls"], Some(pager), "");
        assert!(code == 0 && screen.contains("1 conversation"), "{pager}: {screen}");
    }
}

#[test]
fn leaving_the_pager_is_no_error() {
    let lab = Lab::new();
    let lines: Vec<u8> = (0..5000).flat_map(|_| LINE.to_vec()).collect();
    lab.record("n", &lines);
    let (screen, code) = on_terminal(&lab, &["tape", "show"], Some("head -n 3"), "");
    assert_eq!((code, screen.lines().count()), (0, 3), "{screen}");
}

#[test]
fn rows_are_as_wide_as_the_terminal() {
    let lab = Lab::new();
    let long = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"t\",\"arguments\":{{\"a\":\"{}\"}}}}}}\n",
        "x".repeat(500)
    );
    lab.record("n", long.as_bytes());
    for pager in [None, Some("sed s/^//")] {
        let arguments: &[&str] =
            if pager.is_none() { &["tape", "show", "--no-pager"] } else { &["tape", "show"] };
        let (screen, _) = on_terminal(&lab, arguments, pager, "");
        assert!(screen.lines().any(|line| line.ends_with('…') && line.chars().count() == 120), "{screen}");
    }
}

#[test]
fn removing_asks_for_confirmation() {
    let lab = Lab::new();
    let id = lab.record("my recording", LINE);
    for no in ["n\n", "\n", "\u{4}"] {
        let (screen, code) = on_terminal(&lab, &["tape", "rm", &id], None, no);
        assert!(screen.contains("my recording") && screen.contains("Remove 1 tape, "), "{screen}");
        assert!(code == 1 && screen.contains("nothing was removed"), "{screen}");
        assert_eq!(lab.tapes().len(), 1);
    }
    let (screen, code) = on_terminal(&lab, &["tape", "rm", &id], None, "y\n");
    assert!(code == 0 && screen.contains(&format!("removed {id}")), "{screen}");
    assert!(lab.tapes().is_empty());
}
