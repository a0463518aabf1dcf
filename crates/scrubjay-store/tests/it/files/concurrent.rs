//! Concurrent changes of the same files: eight processes of ours, and a program that swaps links in.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use scrubjay_store::files::{Action, AppliedChange, Change, FILE_BYTES_MAX, FileError, Files, NewContent};
use scrubjay_store::ledger::blob::{self, Hash};
use scrubjay_store::ledger::event::{self, Event, EventKind, EventPage};
use scrubjay_store::ledger::revision::{self, Revision, RevisionSource, RevisionState};
use scrubjay_store::ledger::{Ledger, Storage, session};
use scrubjay_store::workspace::Workspace;
use tempfile::TempDir;

use crate::database::caller;
use crate::fixture::scratch;
use crate::random::Random;

const DIRECTORY: &str = "SCRUBJAY_TEST_CONCURRENT_IN";
const NUMBER: &str = "SCRUBJAY_TEST_CONCURRENT_NUMBER";
const PROCESSES: u64 = 8;
const ROUNDS: usize = 60;
const PATHS: [&str; 3] = ["a", "b", "dir/c"];
/// The longest time that a process may take.
const LIMIT_S: &str = "100";

async fn open(directory: &Path) -> (Arc<Files>, Ledger) {
    let ledger = Ledger::open(&Storage::File(directory.join("data/ledger.db")), crate::database::redactor())
        .await
        .unwrap();
    let workspace = Workspace::open(&directory.join("workspace")).unwrap();
    let files = Files::new(ledger.clone(), workspace, directory.join("locks"), FILE_BYTES_MAX);
    (Arc::new(files), ledger)
}

fn change(path: &str, action: Action, expected: Option<Hash>) -> Change {
    Change { session: None, path: path.to_owned(), action, expected, mode: None, rewinds_to: None }
}

fn body(text: &str) -> NewContent {
    NewContent::Bytes(text.as_bytes().to_vec())
}

async fn evolution(ledger: &Ledger, files: &Files, path: &str) -> Vec<Revision> {
    revision::page(&mut ledger.read().await.unwrap(), &files.root(), path, 0, 100_000).await.unwrap()
}

async fn timeline(ledger: &Ledger, key: &str) -> Vec<Event> {
    let mut read = ledger.read().await.unwrap();
    let session = session::of_caller(&mut read, &caller(key)).await.unwrap().unwrap().id;
    event::page(&mut read, EventPage { session: &session, after: 0, limit: 100_000 }).await.unwrap()
}

/// Each state of a file follows from the one before, in the order of the ledger, and the last is on disk.
fn check_chain(revisions: &[Revision], on_disk: Option<&[u8]>) {
    let mut at = None;
    for pair in revisions.windows(2) {
        assert!(pair[0].id < pair[1].id && pair[0].event_id < pair[1].event_id, "{pair:?}");
    }
    for revision in revisions {
        assert_eq!(revision.source, RevisionSource::Enforced, "nobody else was there: {revision:?}");
        match revision.state {
            RevisionState::Done => {
                assert_eq!(revision.before, at, "{revision:?} does not follow");
                at = revision.after;
            }
            RevisionState::Failed => {}
            open => panic!("{open:?}: {revision:?}"),
        }
    }
    assert_eq!(on_disk.map(blob::hash), at, "the last revision is not on disk");
}

/// The results of one process.
#[derive(Debug, Default)]
struct Tally {
    made: usize,
    /// Refusals because the file was not the expected one.
    conflicts: usize,
    /// Refusals because a file was there, or was not.
    others: usize,
}

#[test]
#[ignore = "run by the test below, eight at once"]
fn one_process_in_child_process() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let number: u64 = std::env::var(NUMBER).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tally = runtime.block_on(async {
        let (files, ledger) = open(&directory).await;
        let mut stdout = std::io::stdout();
        stdout.write_all(b"\nready\n").unwrap();
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let tally = take_part(&files, &directory, number).await;
        ledger.close().await;
        tally
    });
    let Tally { made, conflicts, others } = tally;
    std::io::stdout().write_all(format!("\ntally {made} {conflicts} {others}\n").as_bytes()).unwrap();
}

async fn take_part(files: &Arc<Files>, directory: &Path, number: u64) -> Tally {
    let (mut tally, mut random) = (Tally::default(), Random::new(number));
    for round in 0..ROUNDS {
        let path = PATHS[random.below(PATHS.len())];
        let seen = std::fs::read(directory.join("workspace").join(path)).ok();
        let content = body(&format!("process {number}, round {round}\n"));
        // Half of the changes expect the content that was read.
        let expected = seen.as_deref().map(blob::hash).filter(|_| random.below(2) == 0);
        let action = match (seen, random.below(8)) {
            (None, _) => Action::Create(content),
            (Some(_), 0) => Action::Delete,
            (Some(_), _) => Action::Edit(content),
        };
        match files.change(&caller(&format!("agent {number}")), change(path, action, expected)).await {
            Ok(made) => {
                let before = made.revision.unwrap().before;
                assert!(expected.is_none() || before == expected, "what was expected was not replaced");
                tally.made += 1;
            }
            Err(FileError::Refused { code: "changed", .. }) => tally.conflicts += 1,
            Err(FileError::Refused { code: "exists" | "missing", .. }) => tally.others += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    tally
}

#[tokio::test]
async fn eight_processes_change_the_same_files_one_after_the_other() {
    let scratch = scratch();
    std::fs::create_dir(scratch.path().join("workspace")).unwrap();
    let mut children = Vec::new();
    for number in 0..PROCESSES {
        let mut child = Command::new("timeout")
            .arg(LIMIT_S)
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "files::concurrent::one_process_in_child_process"])
            .args(["--ignored", "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, scratch.path())
            .env(NUMBER, number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "ready"), "it did not start");
        children.push((child, lines));
    }
    children.iter_mut().for_each(|(child, _)| child.stdin.take().unwrap().write_all(b"go\n").unwrap());
    let mut all = Tally::default();
    for (mut child, mut lines) in children {
        let tally_line = lines.find_map(|line| line.strip_prefix("tally ").map(str::to_owned));
        let tally_line = tally_line.expect("an error surfaced");
        let counts: Vec<usize> = tally_line.split(' ').map(|count| count.parse().unwrap()).collect();
        all.made += counts[0];
        all.conflicts += counts[1];
        all.others += counts[2];
        lines.for_each(drop);
        assert!(child.wait().unwrap().success());
    }
    check_all(&scratch, &all).await;
}

async fn check_all(scratch: &TempDir, all: &Tally) {
    let (files, ledger) = open(scratch.path()).await;
    let mut done = 0;
    for path in PATHS {
        let revisions = evolution(&ledger, &files, path).await;
        let on_disk = std::fs::read(scratch.path().join("workspace").join(path)).ok();
        check_chain(&revisions, on_disk.as_deref());
        done += revisions.iter().filter(|revision| revision.state == RevisionState::Done).count();
    }
    assert_eq!(done, all.made, "as many as were acknowledged");
    let (mut conflicts, mut others) = (0, 0);
    for number in 0..PROCESSES {
        let events = timeline(&ledger, &format!("agent {number}")).await;
        let refused = events.iter().filter(|event| event.kind == EventKind::FileRefused);
        for event in refused {
            *(if event.details["code"] == "changed" { &mut conflicts } else { &mut others }) += 1;
        }
    }
    assert_eq!((conflicts, others), (all.conflicts, all.others), "each refusal is on a timeline");
    assert!(all.conflicts > 10 && all.made > 100, "there was no race: {all:?}");
}

const OPERATIONS: u64 = 3_000;

/// Stops the other thread when dropped, so that a failed assertion ends it as well.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Swaps a directory for a link to outside and back while files in it are created, edited and deleted.
#[test]
fn a_link_swapped_in_for_a_directory_is_not_followed_and_is_recorded() {
    let scratch = scratch();
    for directory in ["workspace/src", "outside"] {
        std::fs::create_dir_all(scratch.path().join(directory)).unwrap();
    }
    std::fs::write(scratch.path().join("outside/file"), "canary").unwrap();
    let (src, link) = (scratch.path().join("workspace/src"), scratch.path().join("workspace/link"));
    symlink(scratch.path().join("outside"), &link).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (files, ledger) = runtime.block_on(open(scratch.path()));
    let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let swap = || renameat_with(CWD, &src, CWD, &link, RenameFlags::EXCHANGE).unwrap();
    let (done, refused) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                swap();
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _stop = Stop(&stop);
        runtime.block_on(change_while_swapped(&files))
    });
    if src.is_symlink() {
        swap();
    }
    let outside: Vec<_> = std::fs::read_dir(scratch.path().join("outside")).unwrap().collect();
    assert_eq!(outside.len(), 1, "something landed outside: {outside:?}");
    assert_eq!(std::fs::read(scratch.path().join("outside/file")).unwrap(), b"canary");
    runtime.block_on(async {
        assert_eq!(files.settle(&caller("agent")).await.unwrap(), 0, "nothing is open");
        let revisions = evolution(&ledger, &files, "src/file").await;
        check_chain(&revisions, std::fs::read(src.join("file")).ok().as_deref());
        let events = timeline(&ledger, "agent").await;
        let recorded = events.iter().filter(|event| event.kind == EventKind::FileRefused).count();
        assert_eq!(recorded as u64, refused);
        let canary = blob::get(&mut ledger.read().await.unwrap(), &blob::hash(b"canary")).await;
        assert!(canary.is_err(), "what is outside was read and recorded");
    });
    assert!(done > OPERATIONS / 100 && refused > OPERATIONS / 100, "there was no race: {done}, {refused}");
    assert!(swaps.into_inner() > OPERATIONS);
}

async fn change_while_swapped(files: &Arc<Files>) -> (u64, u64) {
    let (mut done, mut refused) = (0, 0);
    for n in 0..OPERATIONS {
        let content = body(&format!("{n}\n"));
        let action = match n % 3 {
            0 => Action::Create(content),
            1 => Action::Edit(content),
            _ => Action::Delete,
        };
        match files.change(&caller("agent"), change("src/file", action, None)).await {
            Ok(AppliedChange { revision, .. }) => done += u64::from(revision.is_some()),
            Err(FileError::Refused { .. }) => refused += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    (done, refused)
}
