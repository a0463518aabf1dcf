//! The data directory: listing, finding, locking and removing, also by several processes at once.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use scrubjay_core::id::TapeId;
use scrubjay_tape::format::reader::{Tape, TapeState};
use scrubjay_tape::format::seal::seal;
use scrubjay_tape::format::verify::verify;
use scrubjay_tape::home::{FindError, Home};
use scrubjay_tape::removed::RemovedBy;

use crate::fixture::{Owned, begin, header, home, numbered, read, scratch, until_abandoned};

/// Makes an empty file of a tape with this id.
fn create_file(home: &Home, when: &str, id: &str, extension: &str) {
    std::fs::write(home.tapes().join(format!("{when}-{id}.{extension}")), "").unwrap();
}

fn ids(home: &Home) -> Vec<String> {
    home.list().unwrap().iter().map(|tape| tape.id.to_string()).collect()
}

#[test]
fn tapes_are_listed_newest_first_and_once() {
    let scratch = scratch();
    let empty = Home::new(scratch.path().join("nowhere"));
    assert_eq!(empty.list().unwrap(), []);
    assert!(empty.seal_abandoned().unwrap().is_empty());
    assert!(!empty.root().exists(), "looking creates nothing");

    let home = home(&scratch);
    create_file(&home, "0000000000009", "aaaaaaaaaaaaaaaa", "tape");
    create_file(&home, "0000000000010", "bbbbbbbbbbbbbbbb", "live");
    create_file(&home, "0000000000011", "cccccccccccccccc", "live");
    create_file(&home, "0000000000011", "cccccccccccccccc", "tape");
    create_file(&home, "0000000000011", "cccccccccccccccc", "damaged");
    create_file(&home, "0000000000012", "dddddddddddddddd", "new");
    create_file(&home, "0000000000012", "dddddddddddddddd", "sealing");
    create_file(&home, "0000000000012", "dddddddddddddddd", "damaged");
    create_file(&home, "0000000000012", "not-a-tape-id", "tape");
    create_file(&home, "0000000000012", "iiiiiiiiiiiiiiii", "tape");
    std::fs::write(home.tapes().join("README"), "").unwrap();
    assert_eq!(ids(&home), ["cccccccccccccccc", "bbbbbbbbbbbbbbbb", "aaaaaaaaaaaaaaaa"]);
    let both = &home.list().unwrap()[0];
    assert_eq!(both.path.extension().unwrap(), "tape", "the sealed file must be listed, not the live one");
    assert_eq!(home.find("latest").unwrap().id.as_str(), "cccccccccccccccc");
}

#[test]
fn a_directory_that_cannot_be_read_is_an_error() {
    let scratch = scratch();
    let home = Home::new(scratch.path().to_owned());
    std::fs::write(home.tapes(), "a file").unwrap();
    let error = home.list().unwrap_err();
    assert!(matches!(&error, FindError::Io { path, .. } if *path == home.tapes()), "{error:?}");
    assert_eq!(error.to_string(), format!("cannot read {}", home.tapes().display()));
    home.seal_abandoned().unwrap_err();
}

#[test]
fn a_unique_name_finds_its_tape_and_others_are_refused_with_a_reason() {
    let scratch = scratch();
    let home = home(&scratch);
    let error_of = |name: &str| home.find(name).unwrap_err().to_string();
    assert_eq!(
        error_of("latest"),
        format!(
            "there are no tapes in {} yet: record one with `scrubjay wrap -- COMMAND`",
            home.root().display()
        )
    );
    create_file(&home, "0000000000001", "abc0000000000000", "tape");
    create_file(&home, "0000000000002", "abd0000000000000", "live");
    create_file(&home, "0000000000003", "abd1111111111111", "tape");
    for (name, id) in [
        ("abc", "abc0000000000000"),
        ("abd0", "abd0000000000000"),
        ("abd1111111111111", "abd1111111111111"),
        ("latest", "abd1111111111111"),
    ] {
        assert_eq!(home.find(name).unwrap().id.as_str(), id, "{name}");
    }
    assert_eq!(
        error_of("abd"),
        "\"abd\" matches several tapes (abd1111111111111, abd0000000000000): give more characters"
    );
    let unknown = |name| format!("no tape or session is called \"{name}\": `scrubjay tape ls` lists them");
    for name in ["xyz", "abc00000000000000", "../abc", "ABC", "late"] {
        assert_eq!(error_of(name), unknown(name));
    }
    for name in ["", "a", "ab"] {
        assert_eq!(
            error_of(name),
            format!("\"{name}\" is too short to name a tape: give at least 3 characters")
        );
    }
}

#[test]
fn the_lock_shows_whether_the_writer_lives() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut writer = begin(&home, 1);
    let entry = Owned::message("m");
    writer.append(std::iter::once(entry.written())).unwrap();
    let path = writer.path().to_owned();
    let tape = Tape::open(&path).unwrap();
    for _ in 0..3 {
        assert_eq!(tape.state(), TapeState::Live);
        assert_eq!(home.seal_abandoned().unwrap().len(), 0);
    }
    let handle = writer.sync_handle().unwrap();
    drop(writer);
    assert_eq!(tape.state(), TapeState::Live, "a tape stays live while a sync handle is open");
    drop(handle);
    until_abandoned(&tape);
    // Reading the state must not leave a lock, which would make the tape look live to others.
    let other = Tape::open(&path).unwrap();
    for _ in 0..3 {
        assert_eq!(tape.state(), TapeState::Abandoned);
        assert_eq!(other.state(), TapeState::Abandoned);
    }
    assert_eq!(home.seal_abandoned().unwrap().len(), 1);
    assert_eq!(Tape::open(&path.with_extension("tape")).unwrap().state(), TapeState::Sealed);
    assert!(!path.exists());
}

#[test]
fn a_tape_is_opened_under_its_new_name_once_it_is_sealed() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut writer = begin(&home, 1);
    let entries = [Owned::message("m")];
    writer.append(entries.iter().map(Owned::written)).unwrap();
    let file = home.find("latest").unwrap();
    drop(writer);
    home.seal_abandoned().unwrap();
    assert!(!file.path.exists());
    assert_eq!(read(&home.open(&file).unwrap()), numbered(&entries));
}

#[test]
fn removing_a_tape_leaves_nothing_of_it() {
    let scratch = scratch();
    let home = home(&scratch);
    let id = "abc0000000000000";
    for extension in ["live", "tape", "damaged", "sealing"] {
        create_file(&home, "0000000000001", id, extension);
    }
    create_file(&home, "0000000000001", "abd0000000000000", "tape");
    home.remove(&home.find("abc").unwrap(), RemovedBy::Person).unwrap();
    let left: Vec<_> = std::fs::read_dir(home.tapes()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["0000000000001-abd0000000000000.tape"]);
}

#[test]
fn a_tape_that_was_never_renamed_is_removed() {
    let scratch = scratch();
    let home = home(&scratch);
    create_file(&home, "0000000000001", "abc0000000000000", "new");
    assert_eq!(home.seal_abandoned().unwrap().len(), 0);
    assert_eq!(std::fs::read_dir(home.tapes()).unwrap().count(), 0);
}

#[test]
fn many_sealers_seal_each_tape_once() {
    const TAPES: u64 = 800;
    const SEALERS: usize = 12;
    let scratch = scratch();
    let home = home(&scratch);
    let entries: Vec<Owned> = (0..3).map(|n| Owned::message(format!("{n}"))).collect();
    for seed in 1..=TAPES {
        begin(&home, seed).append(entries.iter().map(Owned::written)).unwrap();
    }
    let start = std::sync::Barrier::new(SEALERS);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let sealers: Vec<_> = (0..SEALERS)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    home.seal_abandoned().unwrap()
                })
            })
            .collect();
        sealers.into_iter().flat_map(|sealer| sealer.join().unwrap()).collect()
    });
    let sealed: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(sealed.len() as u64, TAPES, "each tape must be sealed");
    assert_eq!(sealed.iter().collect::<BTreeSet<_>>().len() as u64, TAPES, "no tape must be sealed twice");
    for file in home.list().unwrap() {
        let tape = home.open(&file).unwrap();
        assert_eq!(tape.state(), TapeState::Sealed);
        assert_eq!(read(&tape), numbered(&entries));
        assert!(verify(&tape).unwrap().is_sound());
    }
}

/// Runs `meanwhile` repeatedly on other threads until `work` is done.
fn beside(work: impl FnOnce() + Send, meanwhile: impl Fn() + Sync) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Ends the other threads even if `work` panics.
            let _end = scopeguard(|| done.store(true, Ordering::Release));
            work();
        });
        while !done.load(Ordering::Acquire) {
            meanwhile();
        }
    });
}

fn scopeguard<F: FnMut()>(f: F) -> impl Drop {
    struct Guard<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Guard<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    Guard(f)
}

#[test]
fn a_tape_can_be_created_while_others_clean_up() {
    let scratch = scratch();
    let home = home(&scratch);
    beside(
        || {
            for seed in 0..3000 {
                let writer = begin(&home, seed);
                assert!(writer.path().exists());
                std::fs::remove_file(writer.path()).unwrap();
            }
        },
        || {
            for outcome in home.seal_abandoned().unwrap() {
                outcome.unwrap();
            }
        },
    );
}

#[test]
fn a_tape_stays_listed_while_it_is_sealed() {
    const TAPES: u64 = 1500;
    let scratch = scratch();
    let home = home(&scratch);
    let entry = Owned::message("m");
    let lives: Vec<_> = (0..TAPES)
        .map(|seed| {
            let mut writer = begin(&home, seed);
            writer.append(std::iter::once(entry.written())).unwrap();
            writer.path().to_owned()
        })
        .collect();
    let sought: TapeId = header(TAPES - 1).id;
    beside(
        || lives.iter().for_each(|live| drop(seal(live).unwrap())),
        || {
            let listed = home.list().unwrap();
            assert_eq!(listed.len() as u64, TAPES);
            let file = home.find(sought.as_str()).unwrap();
            assert_eq!(read(&home.open(&file).unwrap()).len(), 1);
        },
    );
}
