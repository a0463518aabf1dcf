//! Files can be read only by their owner, with any umask.
//!
//! The umask belongs to the process, so each is tried in a process of its own: a shell sets it and executes this test
//! binary with the one test that is otherwise ignored.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::format::seal::write_sealed;
use scrubjay_tape::home::Home;

use crate::fixture::{Owned, begin, end, recording, run_in_a_process_of_its_own, say, scratch};

const DIRECTORY: &str = "SCRUBJAY_TEST_MODES_IN";

#[test]
fn files_are_private_under_any_umask() {
    for umask in ["000", "022", "077", "777"] {
        let scratch = scratch();
        let environment = [(DIRECTORY, scratch.path())];
        run_in_a_process_of_its_own(
            &format!("umask {umask}"),
            "modes::one_umask_in_child_process",
            &environment,
        );
    }
}

#[test]
#[ignore = "run by files_are_private_under_any_umask, in a process of its own"]
fn one_umask_in_child_process() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let home = Home::new(directory.join("data"));
    // A tape that rotates, one that is live, one that was abandoned, one that is damaged, one that is exported.
    let mut rotating = recording(&home, 1);
    say(&mut rotating, &["one"]).unwrap();
    check(home.root(), 1);
    say(&mut rotating, &["two"]).unwrap();
    let mut writer = begin(&home, 1);
    writer.append(std::iter::once(Owned::message("m").written())).unwrap();
    let export = home.root().join("export.tape");
    write_sealed(&Tape::open(writer.path()).unwrap(), &export).unwrap();
    let mut damaged = begin(&home, 2);
    damaged.append([Owned::message("a"), Owned::message("b")].iter().map(Owned::written)).unwrap();
    let path = damaged.path().to_owned();
    drop(damaged);
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(home.seal_abandoned().unwrap().iter().all(Result::is_ok));
    assert!(path.with_extension("damaged").exists());
    check(home.root(), 5);
    rotating.finish(&end()).unwrap().unwrap();
    check(home.root(), 5);
}

/// Checks everything below a directory, and that there is something.
fn check(directory: &Path, files_min: usize) {
    let mut files = 0;
    let mut waiting = vec![directory.to_owned()];
    while let Some(path) = waiting.pop() {
        // Sealing in the background may remove files meanwhile.
        let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
        let mode = metadata.permissions().mode() & 0o7777;
        if metadata.is_dir() {
            assert_eq!(mode, 0o700, "{}", path.display());
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            assert_eq!(mode, 0o600, "{}", path.display());
            files += 1;
        }
    }
    assert!(files >= files_min, "{files} files");
}
