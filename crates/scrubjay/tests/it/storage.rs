//! A full disk or a file-size limit: messages are refused with a reason or, if configured,
//! forwarded; recordings stay readable, and recording resumes by itself.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Entry, Lab, UP, Wrapped, kill, request, standing_alone};
use crate::needs;
use crate::random::Random;

/// A call of this size does not fit into the few bytes that a full disk may have left.
const LARGE: usize = 20_000;

/// A small disk, mounted as long as this value exists.
pub(crate) struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Self {
        Self::mount_of("1m")
    }

    /// Mounts a disk of this size, which needs root.
    pub(crate) fn mount_of(size: &str) -> Self {
        needs::root();
        let place = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "scrubjay-it"]).arg(place.path());
        let output = mount.output().expect("mount is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(place)
    }

    /// Makes a lab whose recordings are on this disk.
    pub(crate) fn lab(&self) -> Lab {
        Lab::new().with_data(self.0.path().join("data"))
    }

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }

    /// Fills the disk.
    pub(crate) fn fill(&self) {
        let mut file = std::fs::File::create(self.filler()).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    /// Frees the disk.
    pub(crate) fn clear(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount, because a process that is ending may still have a file open there.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Makes a call; returns its text, or the error message.
fn call(wrapped: &mut Wrapped, id: u64, text: &str) -> Result<String, String> {
    let answer = wrapped.call_alone(id, "echo", &json!({ "text": text }));
    match answer["error"]["message"].as_str() {
        Some(words) => Err(words.to_owned()),
        None => Ok(answer["result"]["content"][0]["text"].as_str().expect("an echo").to_owned()),
    }
}

/// Asserts that all commands that only read still work.
fn assert_readable(lab: &Lab) {
    lab.verify();
    let tape = lab.only_tape();
    assert!(tape.messages(UP).count() > 0);
    lab.run_ok(&["tape", "show", "latest"]);
}

fn gaps(lab: &Lab) -> Vec<Value> {
    lab.only_tape().of_kind("gap").map(Entry::facts).collect()
}

/// Makes calls while the disk is full, and again when it is not; only the first fail.
fn check_refusal(
    lab: &Lab,
    mut wrapped: Wrapped,
    why: &str,
    fill: impl Fn(&Wrapped),
    clear: impl Fn(&Wrapped),
) {
    let large = "x".repeat(LARGE);
    let refused = "the server must not see this";
    for round in 0..2 {
        let id = round * 10;
        assert_eq!(call(&mut wrapped, id, "before").as_deref(), Ok("before"));
        fill(&wrapped);
        for more in 1..=3 {
            let words = call(&mut wrapped, id + more, &format!("{refused} {large}")).unwrap_err();
            assert!(words.contains(why) && words.contains("--on-record-failure"), "{words}");
        }
        assert_readable(lab);
        clear(&wrapped);
        assert_eq!(call(&mut wrapped, id + 4, "after").as_deref(), Ok("after"));
        let gaps = gaps(lab);
        assert_eq!(gaps.len() as u64, round + 1, "{gaps:?}");
        let gap = &gaps[gaps.len() - 1];
        assert_eq!((&gap["messages"], &gap["forwarded"]), (&json!(3), &json!(false)));
        assert!(gap["reason"].as_str().unwrap().contains(why), "{gap}");
    }
    let output = wrapped.await_stderr("recording works again");
    assert!(output.contains(why), "{output}");
    assert_eq!(wrapped.leave(), 0);
    assert!(!String::from_utf8(lab.read("log")).unwrap().contains(refused));
    assert!(lab.tapes().iter().all(|tape| tape["state"] == "sealed"));
    lab.verify();
}

#[test]
#[ignore = "needs root"]
fn a_full_disk_refuses_messages_and_recording_resumes() {
    let disk = SmallDisk::mount();
    let lab = disk.lab();
    let wrapped = lab.wrap_logged_sample("log").start();
    check_refusal(&lab, wrapped, "No space left", |_| disk.fill(), |_| disk.clear());
}

#[test]
#[ignore = "needs root"]
fn a_disk_that_is_full_at_the_start_refuses_messages() {
    let disk = SmallDisk::mount();
    let lab = disk.lab();
    disk.fill();
    let mut wrapped = lab.wrap_logged_sample("log").start();
    let words = call(&mut wrapped, 1, "too early").unwrap_err();
    assert!(words.contains("No space left"), "{words}");
    disk.clear();
    assert_eq!(call(&mut wrapped, 2, "now").as_deref(), Ok("now"));
    assert_eq!(wrapped.leave(), 0);
    assert_eq!(gaps(&lab)[0]["messages"], 1);
    assert!(!String::from_utf8(lab.read("log")).unwrap().contains("too early"));
}

#[test]
#[ignore = "needs root"]
fn a_full_disk_at_the_end_leaves_a_readable_tape() {
    let disk = SmallDisk::mount();
    let lab = disk.lab();
    let mut wrapped = lab.wrap_logged_sample("log").start();
    assert_eq!(call(&mut wrapped, 1, "fine").as_deref(), Ok("fine"));
    disk.fill();
    wrapped.close_stdin();
    assert_eq!(wrapped.exit_code(), 0, "the server's own exit code, even if the tape could not be written");
    let output = wrapped.stderr_text();
    assert!(output.contains("No space left") && output.contains("the next start seals it"), "{output}");
    assert_readable(&lab);
    assert_eq!(lab.tapes()[0]["state"], "abandoned");
    disk.clear();
    lab.start_again();
    assert_eq!(lab.tapes()[0]["state"], "sealed");
    assert_readable(&lab);
}

#[test]
#[ignore = "needs root"]
fn a_full_disk_forwards_messages_if_configured() {
    let disk = SmallDisk::mount();
    let lab = disk.lab();
    let mut wrapped = lab.wrap_logged_sample("log").with(&["--on-record-failure", "forward"]).start();
    let large = "x".repeat(LARGE);
    assert_eq!(call(&mut wrapped, 1, "before").as_deref(), Ok("before"));
    disk.fill();
    let mut missing = 0;
    for id in 2..=5 {
        let sent = request(id, "tools/call", &standing_alone("echo", &json!({ "text": large })));
        wrapped.send_line(&sent);
        let received = wrapped.line().expect("an answer");
        assert!(received.contains(&large), "{received}");
        missing += sent.len() + received.len() + 2;
    }
    disk.clear();
    assert_eq!(call(&mut wrapped, 6, "after").as_deref(), Ok("after"));
    assert_eq!(wrapped.leave(), 0);
    let gaps = gaps(&lab);
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    // Four questions and four answers.
    assert_eq!((&gaps[0]["messages"], &gaps[0]["forwarded"]), (&json!(8), &json!(true)));
    assert_eq!(gaps[0]["bytes"], missing);
    assert_eq!(lab.tapes()[0]["gap_messages"], 8);
    lab.verify();
}

/// Sets how large the files of a running process may become.
fn limit_files(wrapped: &Wrapped, limit: &str) {
    let mut command = Command::new("prlimit");
    command.args(["--pid", &wrapped.worker().to_string(), &format!("--fsize={limit}")]);
    assert!(command.status().expect("util-linux is installed").success());
}

/// Returns the size of the only file among the tapes.
fn tape_bytes(data: &Path) -> u64 {
    let files: Vec<_> = std::fs::read_dir(data.join("tapes")).unwrap().collect();
    assert_eq!(files.len(), 1);
    files[0].as_ref().unwrap().metadata().unwrap().len()
}

#[test]
fn a_file_size_limit_refuses_messages_and_recording_resumes() {
    let lab = Lab::new();
    let wrapped = lab.wrap_logged_sample("log").start();
    let fill = |wrapped: &Wrapped| limit_files(wrapped, &format!("{}:", tape_bytes(lab.data()) + 4096));
    check_refusal(&lab, wrapped, "File too large", fill, |wrapped| limit_files(wrapped, "unlimited:"));
}

#[test]
fn a_file_size_limit_at_the_start_refuses_large_messages() {
    let lab = Lab::new();
    let wrapped = lab.wrap_logged_sample("log");
    // In blocks of 512 bytes.
    let mut wrapped = wrapped.after("ulimit -f 16").start();
    let words = call(&mut wrapped, 1, &"x".repeat(LARGE)).unwrap_err();
    assert!(words.contains("File too large"), "{words}");
    assert_eq!(call(&mut wrapped, 2, "small").as_deref(), Ok("small"));
    assert_eq!(wrapped.leave(), 0);
    assert_readable(&lab);
    assert_eq!(lab.tapes()[0]["state"], "sealed");
}

#[test]
fn a_tape_too_large_to_seal_is_sealed_later() {
    let lab = Lab::new();
    let mut wrapped = lab.wrap(&["cat"]).start();
    // Random bytes, which sealing cannot compress.
    let mut random = Random::from_environment();
    let noise: Vec<u8> = (0..LARGE).map(|_| b'!' + u8::try_from(random.below(90)).unwrap()).collect();
    wrapped.send(&[noise.as_slice(), b"\n"].concat());
    wrapped.line();
    // Both are killed at once, because the one that is left would seal the tape.
    let (warden, worker) = (wrapped.pid(), wrapped.worker());
    kill(warden, Signal::STOP);
    kill(worker, Signal::KILL);
    kill(warden, Signal::KILL);
    wrapped.wait();
    let mut wrapped = lab.wrap(&["cat"]).after("ulimit -f 16").start();
    let output = wrapped.await_stderr("cannot seal");
    assert!(output.contains("File too large"), "{output}");
    wrapped.send_line("this one is small");
    assert_eq!(wrapped.line().as_deref(), Some("this one is small"));
    assert_eq!(wrapped.leave(), 0);
    let states = || lab.tapes().into_iter().map(|tape| tape["state"].clone()).collect::<Vec<_>>();
    assert_eq!(states(), ["sealed", "abandoned"]);
    lab.start_again();
    assert_eq!(states(), ["sealed", "sealed"]);
    lab.verify();
}
