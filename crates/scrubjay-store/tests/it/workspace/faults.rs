//! Full disks, killed processes and what they leave.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};
use scrubjay_store::workspace::{Durability, ExpectedContent, FilePath, Workspace, WorkspaceError};

use super::{DIRECTORY, Lab, code, content, names};
use crate::fixture::run_in_a_process_of_its_own;
use crate::needs;

const LONG: usize = 200_000;

#[test]
fn a_write_over_the_size_limit_leaves_the_old_file() {
    let lab = Lab::new();
    let directory = lab.disk("");
    let environment = [(DIRECTORY, directory.as_path())];
    let test = "workspace::faults::one_full_disk_in_child_process";
    run_in_a_process_of_its_own("trap '' XFSZ && ulimit -f 64", test, &environment);
}

#[test]
#[ignore = "needs root"]
fn a_full_disk_leaves_the_old_file() {
    needs::root();
    let lab = Lab::new();
    let directory = lab.disk("");
    let environment = [(DIRECTORY, directory.as_path())];
    let mount = format!("mount -t tmpfs -o size=128k none \"${DIRECTORY}\" && mkdir \"${DIRECTORY}/src\"");
    let prepare = format!("exec unshare -rm sh -c '{mount} && exec \"$0\" \"$@\"' \"$@\"");
    run_in_a_process_of_its_own(&prepare, "workspace::faults::one_full_disk_in_child_process", &environment);
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn one_full_disk_in_child_process() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let workspace = Workspace::open(&directory).unwrap();
    let path = workspace.locate("src/a").unwrap();
    workspace.stage(&path, b"old", None).unwrap().commit(ExpectedContent::Missing).unwrap();
    for name in ["src/a", "src/new", "made/new"] {
        let error = workspace.stage(&workspace.locate(name).unwrap(), &[0; LONG], None).unwrap_err();
        assert!(matches!(error, WorkspaceError::Io { .. }), "{error:?}");
        assert!(error.to_string().contains(name), "{error}");
    }
    assert_eq!(workspace.read(&path, 10).unwrap().unwrap().bytes, b"old");
    assert_eq!(names(&directory.join("src")), ["a"]);
    assert_eq!(names(&directory), ["src"]);
    workspace.stage(&path, b"new", None).unwrap().commit(content("old")).unwrap();
}

#[test]
fn a_killed_process_leaves_a_complete_file_and_at_most_one_temporary() {
    let lab = Lab::new();
    let states = ["a".repeat(LONG), "b".repeat(LONG)];
    lab.put("src/a", &states[0], 0o644);
    let mut left = 0;
    for round in 0..40 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "workspace::faults::one_that_is_killed_in_child_process",
                "--ignored",
                "--nocapture",
            ])
            .env(DIRECTORY, lab.disk(""))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // The child is killed during or just after a change, each time after another number of changes.
        let mut before = lab.read("src/a").unwrap().bytes[0];
        let mut changes = 0;
        while changes < 1 + round % 5 {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            let now = lab.read("src/a").unwrap().bytes;
            assert!(states.iter().any(|state| state.as_bytes() == now), "a torn file");
            changes += usize::from(now[0] != before);
            before = now[0];
        }
        while round % 4 != 0 && names(&lab.disk("src")).len() < 2 {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let now = lab.read("src/a").unwrap().bytes;
        assert!(states.iter().any(|state| state.as_bytes() == now), "a torn file");
        let there = names(&lab.disk("src"));
        let temporaries = there.iter().filter(|name| name.starts_with(".scrubjay-")).count();
        assert!(there.len() == 1 + temporaries && temporaries <= 1, "{there:?}");
        left += temporaries;
        let is_known = |content: &[u8]| states.iter().any(|state| state.as_bytes().starts_with(content));
        let swept = lab.workspace.sweep_temporaries(&lab.at("src/a"), u64::MAX, &is_known).unwrap();
        assert_eq!(swept, temporaries);
        assert_eq!(names(&lab.disk("src")), ["a"]);
    }
    assert!(left > 0, "never killed at work");
}

#[test]
#[ignore = "run by the test of killed processes, which ends it"]
fn one_that_is_killed_in_child_process() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let workspace = Workspace::open(&directory).unwrap().durability(Durability::Process);
    let path = workspace.locate("src/a").unwrap();
    // Bounded, in case the parent does not kill it.
    for _ in 0..200_000 {
        let before = workspace.read(&path, 1 << 20).unwrap().unwrap();
        let after = if before.bytes[0] == b'a' { "b" } else { "a" }.repeat(LONG);
        let staged = workspace.stage(&path, after.as_bytes(), None).unwrap();
        staged.commit(ExpectedContent::Content(before.hash)).unwrap();
    }
}

#[test]
fn only_abandoned_temporaries_are_swept() {
    let lab = Lab::new();
    let path = lab.put("src/a", "one", 0o644);
    let ours = format!(".scrubjay-{:032x}.tmp", 7);
    let theirs = [".scrubjay-x.tmp", ".scrubjay-.tmp", "b.tmp"];
    for name in theirs.iter().copied().chain([ours.as_str()]) {
        std::fs::write(lab.disk("src").join(name), "left").unwrap();
    }
    let staged = lab.workspace.stage(&path, b"two", None).unwrap();
    let sweep = |path: &FilePath, known: &str| {
        let is_known = |content: &[u8]| known.as_bytes().starts_with(content);
        lab.workspace.sweep_temporaries(path, u64::MAX, &is_known).unwrap()
    };
    assert_eq!(sweep(&path, "another"), 0, "what nobody knows may be someone's work");
    assert_eq!((sweep(&lab.at("none/x"), "left"), sweep(&lab.at("src/other"), "left")), (0, 1));
    assert!(!lab.disk("src").join(ours).exists());
    staged.commit(content("one")).unwrap();
    assert_eq!(names(&lab.disk("src")), [".scrubjay-.tmp", ".scrubjay-x.tmp", "a", "b.tmp"]);
}

#[test]
fn a_directory_that_another_program_keeps_locked_is_busy() {
    let lab = Lab::new();
    let path = lab.put("src/a", "one", 0o644);
    let held = std::fs::File::open(lab.disk("src")).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let staged = lab.workspace.stage(&path, b"two", None).unwrap();
    assert_eq!(code(staged.commit(content("one"))), "busy");
    assert_eq!(names(&lab.disk("src")), ["a"]);
}
