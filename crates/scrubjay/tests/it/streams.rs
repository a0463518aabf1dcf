//! All kinds of standard input and output that a host may use: pipes, sockets, files, nothing; read fast or slowly.

use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use rustix::process::Signal;
use rustix::pty::OpenptFlags;
use rustix::termios::OptionalActions;

use crate::harness::{Lab, Running, SCRUBJAY, UP, Wrap, Wrapped, kill, wait_for};

/// Twice the 2 s that the relay gives the last output of an ended server, and some more: output that a slow client has
/// yet to read must not be dropped then.
const PAUSE: Duration = Duration::from_secs(5);
/// More than any pipe or socket holds.
const MUCH: usize = 1 << 20;

/// Makes lines with a given total length.
fn lines(bytes: usize) -> Vec<u8> {
    let line = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{}\"}}\n", "m".repeat(900));
    line.bytes().cycle().take(bytes / line.len() * line.len()).collect()
}

fn socket_pair() -> (OwnedFd, OwnedFd) {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
}

/// Starts a wrapped `cat` with these ends of streams.
fn start_cat(lab: &Lab, theirs: [OwnedFd; 2], ours: [OwnedFd; 2]) -> Wrapped {
    start(&lab.wrap(&["cat"]), theirs, ours.map(Some))
}

/// Starts a wrap with these as standard input and output; the others are our ends of them.
fn start(wrap: &Wrap, theirs: [OwnedFd; 2], ours: [Option<OwnedFd>; 2]) -> Wrapped {
    let (mut command, mark) = wrap.command();
    let [stdin, stdout] = theirs.map(Stdio::from);
    let child = command.stdin(stdin).stdout(stdout).stderr(Stdio::inherit()).spawn().unwrap();
    // Dropped, because the command still holds the ends that it gave to the child.
    drop(command);
    let [stdin, stdout] = ours;
    Wrapped::around(Running::around(child, stdin, stdout), mark)
}

/// Checks that many bytes pass, and that the tape has all of them.
fn check_much(lab: &Lab, mut wrapped: Wrapped, hang_up: impl FnOnce(&mut Wrapped)) {
    let sent = lines(MUCH);
    wrapped.send(&sent);
    hang_up(&mut wrapped);
    assert!(wrapped.rest() == sent, "what came back is not what was sent");
    assert_eq!(wrapped.leave(), 0);
    assert!(lab.only_tape().wire(UP) == sent);
}

#[test]
fn messages_pass_over_two_sockets() {
    let lab = Lab::new();
    let ((stdin, their_stdin), (stdout, their_stdout)) = (socket_pair(), socket_pair());
    let wrapped = start_cat(&lab, [their_stdin, their_stdout], [stdin, stdout]);
    check_much(&lab, wrapped, |wrapped| wrapped.close_stdin());
}

#[test]
fn messages_pass_over_one_socket_for_both_streams() {
    let lab = Lab::new();
    let (ours, theirs) = socket_pair();
    let [again, to_hang_up] = [(); 2].map(|()| ours.try_clone().unwrap());
    let wrapped = start_cat(&lab, [theirs.try_clone().unwrap(), theirs], [ours, again]);
    check_much(&lab, wrapped, |_| rustix::net::shutdown(to_hang_up, Shutdown::Write).unwrap());
}

#[test]
fn messages_pass_from_and_to_files() {
    let lab = Lab::new();
    let sent = [lines(MUCH), b"and a last line without an ending".to_vec()].concat();
    std::fs::write(lab.file("in"), &sent).unwrap();
    std::fs::write(lab.file("out"), "before\n").unwrap();
    let redirect = format!("exec < {} >> {}", lab.file("in"), lab.file("out"));
    assert_eq!(lab.wrap(&["cat"]).after(&redirect).start().leave(), 0);
    assert!(lab.read("out") == [b"before\n", sent.as_slice()].concat());
    assert!(lab.only_tape().wire(UP) == sent);
}

#[test]
fn streams_may_be_null_or_closed() {
    let lab = Lab::new();
    let script = format!("cat > {}; echo sent to nobody", lab.file("received"));
    let wrap = lab.wrap(&["sh", "-c", &script]).after("exec < /dev/null > /dev/null");
    assert_eq!(wrap.start().leave(), 0);
    assert_eq!(lab.read("received"), b"");
    assert_eq!(lab.only_tape().entries[0].payload, b"sent to nobody");
    let wrap = lab.wrap(&["sh", "-c", "cat; exit 3"]).after("exec <&- >&-");
    assert_eq!(wrap.start().leave(), 3);
}

/// Makes a raw terminal, which does not change bytes; returns our side and the program's side.
fn terminal() -> (OwnedFd, OwnedFd) {
    let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    rustix::pty::grantpt(&ours).unwrap();
    rustix::pty::unlockpt(&ours).unwrap();
    let name = rustix::pty::ptsname(&ours, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
    let mut attributes = rustix::termios::tcgetattr(&theirs).unwrap();
    attributes.make_raw();
    rustix::termios::tcsetattr(&theirs, OptionalActions::Now, &attributes).unwrap();
    (ours, theirs)
}

#[test]
fn a_terminal_that_is_read_late_gets_everything() {
    let lab = Lab::new();
    let ((ours, theirs), (from_nobody, _)) = (terminal(), socket_pair());
    // Few enough bytes for the relay to write at once, and more than a terminal holds.
    let sent = lines(60_000);
    std::fs::write(lab.file("sent"), &sent).unwrap();
    let mut wrapped =
        start(&lab.wrap(&["cat", &lab.file("sent")]), [from_nobody, theirs], [None, Some(ours)]);
    wrapped.reads_stdout = false;
    wait_for("the tape to end", || {
        (lab.tape_ids().len() == 1 && wrapped.mark().living().len() <= 2).then_some(())
    });
    // The reader is slow on purpose; this waits for nothing.
    std::thread::sleep(Duration::from_secs(1));
    wrapped.reads_stdout = true;
    let received = wrapped.rest();
    assert!(received == sent, "{} bytes of {} arrived", received.len(), sent.len());
    assert_eq!(wrapped.leave(), 0);
}

#[test]
fn shared_file_descriptions_stay_blocking() {
    let lab = Lab::new();
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    let ((their_stdin, stdin), (stdout, their_stdout)) = (pipe(), pipe());
    let shared = [their_stdin.try_clone().unwrap(), their_stdout.try_clone().unwrap()];
    let mut wrapped = start_cat(&lab, [their_stdin, their_stdout], [stdin, stdout]);
    wrapped.send_line("there and back");
    assert_eq!(wrapped.line().as_deref(), Some("there and back"));
    for description in &shared {
        let flags = rustix::fs::fcntl_getfl(description).unwrap();
        assert!(
            !flags.contains(OFlags::NONBLOCK),
            "another process that shares the file would get a non-blocking one"
        );
    }
    drop(shared);
    assert_eq!(wrapped.leave(), 0);
}

#[test]
fn a_shell_can_use_its_streams_after_wrap() {
    let lab = Lab::new();
    let sent = lines(300_000);
    std::fs::write(lab.file("in"), &sent).unwrap();
    let script = r#"("$0" --data "$1" wrap -- cat < "$2"; cat "$2"; echo done) | cat"#;
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, SCRUBJAY]).arg(lab.data()).arg(lab.file("in"));
    let mut shell = Running::start(&mut command);
    assert!(shell.rest() == [&sent, &sent, b"done\n".as_slice()].concat());
    assert_eq!(shell.exit_code(), 0);
}

/// Starts a server that writes more than one (enlarged) pipe holds and exits; its client does not read.
fn start_with_paused_client(lab: &Lab, sent: &[u8]) -> Wrapped {
    std::fs::write(lab.file("sent"), sent).unwrap();
    let mut wrapped = lab.wrap(&["cat", &lab.file("sent")]).start();
    wrapped.reads_stdout = false;
    wait_for("the server to exit", || {
        let living = wrapped.mark().living();
        (lab.tape_ids().len() == 1 && living.iter().all(|process| process.name != "cat")).then_some(())
    });
    wrapped
}

#[test]
fn a_slow_client_gets_everything() {
    let lab = Lab::new();
    let sent = lines(450_000);
    let mut wrapped = start_with_paused_client(&lab, &sent);
    // The reader is slow on purpose; this waits for nothing.
    std::thread::sleep(PAUSE);
    wrapped.reads_stdout = true;
    let received = wrapped.rest();
    assert!(received == sent, "{} bytes of {} arrived", received.len(), sent.len());
    assert_eq!(wrapped.leave(), 0);
}

#[test]
fn a_client_that_never_reads_can_end_wrap() {
    let lab = Lab::new();
    let mut wrapped = start_with_paused_client(&lab, &lines(450_000));
    kill(wrapped.pid(), Signal::TERM);
    assert_eq!(wrapped.exit_code(), 0, "the server had exited by then");
    wrapped.mark().await_gone();
    lab.verify();
}

#[test]
fn a_client_that_never_reads_can_end_a_blocked_server() {
    for signal in [Signal::TERM, Signal::KILL] {
        let lab = Lab::new();
        let mut wrapped = lab.wrap(&["yes", &"y".repeat(1000)]).start();
        wrapped.await_output(100_000);
        wrapped.reads_stdout = false;
        kill(wrapped.pid(), signal);
        wrapped.mark().await_gone();
        lab.verify();
    }
}
