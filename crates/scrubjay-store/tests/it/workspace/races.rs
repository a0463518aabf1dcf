//! Other programs at work in the same directories: links swapped in, changes made at the same time.

use std::os::unix::fs::symlink;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use scrubjay_store::workspace::{Durability, ExpectedContent, Workspace, WorkspaceError};

use crate::random::Random;

use super::{Lab, MAX, code, content, names};

const OPERATIONS: u64 = 100_000;

/// Stops the other thread when dropped, so that a failed assertion ends it as well.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Swaps a directory for a link to outside and back while files in it are read, created, edited and removed.
fn check_swapped(lab: &Lab, workspace: &Workspace, operations: u64) {
    let evil = lab.scratch.path().join("ws-evil");
    let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let path = lab.at("src/canary");
    symlink(&evil, lab.disk("link")).unwrap();
    let mut refused = 0;
    let mut done = [0; 4];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let (one, other) = (lab.disk("src"), lab.disk("link"));
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _stop = Stop(&stop);
        for n in 0..operations {
            // The expected content is that of the file outside: an edit or removal there would not be refused for it.
            let expected = ["mine", "canary"][(n / 4 % 2) as usize];
            let outcome = match n % 4 {
                0 => workspace.read(&path, MAX).map(|read| {
                    assert!(read.is_none_or(|read| read.bytes != b"canary"), "outside was read");
                }),
                1 => workspace
                    .stage(&path, b"mine", None)
                    .and_then(|staged| staged.commit(ExpectedContent::Missing)),
                2 => workspace.stage(&path, b"mine", None).and_then(|s| s.commit(content(expected))),
                _ => workspace.remove(&path, blake3::hash(expected.as_bytes())),
            };
            match outcome {
                Ok(()) => done[(n % 4) as usize] += 1,
                Err(WorkspaceError::Refused(_)) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
    });
    assert_eq!(names(&evil), ["canary"], "something landed outside");
    assert_eq!(std::fs::read(evil.join("canary")).unwrap(), b"canary", "something outside was changed");
    assert!(done.iter().all(|done| *done > operations / 1000), "hardly anything was done: {done:?}");
    assert!(refused > operations / 100 && swaps.into_inner() > operations / 100, "there was no race");
}

#[test]
fn a_link_swapped_in_for_a_directory_is_not_followed() {
    let lab = Lab::new();
    check_swapped(&lab, &lab.workspace, OPERATIONS / 2);
    let lab = Lab::step_by_step();
    let workspace = lab.workspace.clone().durability(Durability::Process);
    check_swapped(&lab, &workspace, OPERATIONS / 2);
}

#[test]
fn one_of_two_changes_of_the_same_content_is_made() {
    let lab = Lab::new();
    lab.put("src/a", "0", 0o644);
    for round in 0..200 {
        let before = round.to_string();
        let barrier = Barrier::new(4);
        let outcomes: Vec<Result<(), WorkspaceError>> = std::thread::scope(|scope| {
            let commit = || {
                let after = (round + 1).to_string();
                let staged = lab.workspace.stage(&lab.at("src/a"), after.as_bytes(), None).unwrap();
                barrier.wait();
                staged.commit(content(&before))
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(commit)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (made, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!(made.len(), 1);
        assert!(refused.into_iter().all(|outcome| code(outcome) == "changed"));
    }
    assert_eq!(names(&lab.disk("src")), ["a"]);
}

#[test]
fn one_of_two_creations_is_made() {
    let lab = Lab::new();
    for round in 0..200 {
        let path = lab.at(&format!("src/{round}"));
        let staged = ["a", "b"].map(|bytes| lab.workspace.stage(&path, bytes.as_bytes(), None).unwrap());
        let outcomes = std::thread::scope(|scope| {
            let threads = staged.map(|staged| scope.spawn(|| staged.commit(ExpectedContent::Missing)));
            threads.map(|thread| thread.join().unwrap())
        });
        let (made, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!(made.len(), 1);
        assert!(refused.into_iter().all(|outcome| code(outcome) == "exists"));
    }
    assert_eq!(names(&lab.disk("src")).len(), 200);
}

/// A program without our locks puts a file of its own in place at about the same time, as editors do: its file is there
/// in the end, both if it came before the change and after it.
#[test]
fn a_change_of_another_program_is_not_overwritten() {
    let lab = Lab::new();
    let workspace = lab.workspace.clone().durability(Durability::Process);
    let path = lab.at("src/a");
    let barrier = Barrier::new(2);
    let (rounds, mut made, mut random) = (20_000, 0, Random::new(1));
    for round in 0..rounds {
        lab.put("src/a", "before", 0o644);
        lab.put("src/next", "theirs", 0o644);
        let staged = workspace.stage(&path, b"ours", None).unwrap();
        let pause = random.below(4_000);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                (0..pause).for_each(|_| std::hint::spin_loop());
                std::fs::rename(lab.disk("src/next"), lab.disk("src/a")).unwrap();
            });
            barrier.wait();
            staged.commit(content("before"))
        });
        assert_eq!(lab.read("src/a").unwrap().bytes, b"theirs", "round {round}: {outcome:?}");
        match outcome {
            Ok(()) => made += 1,
            refused => assert_eq!(code(refused), "changed"),
        }
    }
    assert!((1..rounds).contains(&made), "there was no race: {made}");
    assert_eq!(names(&lab.disk("src")), ["a"]);
}
