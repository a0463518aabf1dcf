//! Removal of old tapes: only while two clocks agree, and never of a running conversation.

use std::time::Duration;

use scrubjay_tape::chain::Chain;
use scrubjay_tape::clock::{self, Boot};
use scrubjay_tape::clock_trust::{ClockDoubt, ClockReading};
use scrubjay_tape::format::header::Header;
use scrubjay_tape::format::seal::seal;
use scrubjay_tape::format::writer::Writer;
use scrubjay_tape::home::Home;
use scrubjay_tape::removed::RemovedBy;

use crate::fixture::{Owned, end, header, home, recording, say, scratch};

const DAY_NS: u64 = 24 * 3600 * 1_000_000_000;
const YEAR_NS: u64 = 365 * DAY_NS;
const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// Records five tapes with the current time.
fn five(home: &Home) {
    for number in 0..5 {
        let mut recording = recording(home, 1 << 20);
        say(&mut recording, &[&format!("tape {number}")]).unwrap();
        recording.finish(&end()).unwrap().unwrap();
    }
}

/// The clocks some time from now: the wall clock, and the boot clock, which cannot be set.
fn after(wall_ns: u64, boot_ns: u64) -> ClockReading {
    let wall_ns = clock::now().wall_ns + wall_ns;
    let boot = Boot { id: "this".to_owned(), ns: DAY_NS + boot_ns };
    ClockReading { wall_ns, boot: Some(boot), file_wall_ns: Some(wall_ns) }
}

/// The current clocks.
fn today() -> ClockReading {
    ClockReading { wall_ns: clock::now().wall_ns, boot: clock::boot(), file_wall_ns: None }
}

#[test]
fn a_clock_ten_years_ahead_deletes_nothing() {
    let scratch = scratch();
    let home = home(&scratch);
    five(&home);
    assert_eq!(home.check_clock(&after(0, 0), Some(RETENTION)).unwrap(), None);
    // Several times: repeating the reading must not make it trusted.
    for seconds in 1..4 {
        let expired = home.expire(RETENTION, &after(10 * YEAR_NS, seconds * 1_000_000_000)).unwrap();
        assert_eq!(expired.removed, 0);
        assert!(matches!(expired.doubt, Some(ClockDoubt::Jump { rebooted: false, .. })), "{expired:?}");
    }
    assert_eq!(home.list().unwrap().len(), 5);
    // The clock is right again: nothing is in doubt, and nothing is old.
    let expired = home.expire(RETENTION, &after(DAY_NS, DAY_NS)).unwrap();
    assert_eq!((expired.removed, expired.doubt), (0, None));
}

#[test]
fn a_clock_that_was_never_seen_is_compared_with_the_files() {
    let scratch = scratch();
    let home = home(&scratch);
    five(&home);
    let jumped =
        ClockReading { boot: Some(Boot { id: "other".to_owned(), ns: DAY_NS }), ..after(10 * YEAR_NS, 0) };
    assert!(matches!(home.expire(RETENTION, &jumped).unwrap().doubt, Some(ClockDoubt::Jump { .. })));
    let faked = ClockReading { file_wall_ns: Some(clock::now().wall_ns), ..after(10 * YEAR_NS, 0) };
    assert!(matches!(home.expire(RETENTION, &faked).unwrap().doubt, Some(ClockDoubt::Files { .. })));
    assert_eq!(home.list().unwrap().len(), 5);
}

#[test]
fn old_tapes_are_removed_if_both_clocks_agree_or_a_person_confirms() {
    let scratch = scratch();
    let home = home(&scratch);
    five(&home);
    home.check_clock(&after(0, 0), Some(RETENTION)).unwrap();
    let expired = home.expire(RETENTION, &after(29 * DAY_NS, 29 * DAY_NS)).unwrap();
    assert_eq!((expired.removed, expired.doubt), (0, None));
    let expired = home.expire(RETENTION, &after(31 * DAY_NS, 31 * DAY_NS)).unwrap();
    assert_eq!((expired.removed, expired.doubt), (5, None));
    assert!(home.removed().unwrap().values().all(|removed| removed.by == RemovedBy::Retention));
    home.trust_clock(&today()).unwrap();
    five(&home);
    // Off for three months: the time is in doubt until a person confirms it.
    let off = ClockReading { boot: Some(Boot { id: "next".to_owned(), ns: 0 }), ..after(120 * DAY_NS, 0) };
    assert!(matches!(
        home.expire(RETENTION, &off).unwrap().doubt,
        Some(ClockDoubt::Jump { rebooted: true, .. })
    ));
    home.trust_clock(&off).unwrap();
    assert_eq!(home.expire(RETENTION, &off).unwrap().removed, 5);
}

#[test]
fn tapes_of_a_running_conversation_are_kept() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut running = recording(&home, 300);
    for number in 0..6 {
        say(&mut running, &[&format!("{number}: {}", "x".repeat(200))]).unwrap();
    }
    five(&home);
    for _ in 0..3 {
        home.seal_abandoned().unwrap();
    }
    let tapes = home.list().unwrap().len();
    assert_eq!(home.remove_ended_before(u64::MAX).unwrap(), 5, "only the ended tapes of others are removed");
    assert_eq!(home.list().unwrap().len(), tapes - 5);
    running.finish(&end()).unwrap().unwrap();
    home.seal_abandoned().unwrap();
    assert_eq!(home.remove_ended_before(u64::MAX).unwrap(), tapes - 5);
}

/// The clock was a year behind while it was recorded, and is right again: the tape is not as old as it says.
#[test]
fn tapes_recorded_with_a_late_clock_are_kept() {
    let scratch = scratch();
    let home = home(&scratch);
    // The trusted time is a year ahead, so the recording finds its own clock behind.
    let believed = ClockReading { wall_ns: clock::now().wall_ns + YEAR_NS, ..today() };
    home.trust_clock(&believed).unwrap();
    five(&home);
    let files = home.list().unwrap();
    let behind = |at: usize| home.open(&files[at]).unwrap().header().unwrap().clock_behind_ns;
    assert!(behind(0).is_some_and(|ns| ns > YEAR_NS - DAY_NS && ns < YEAR_NS + DAY_NS), "{:?}", behind(0));
    // The clock is right again: by their times the tapes are a year old.
    let expired = home.expire(RETENTION, &believed).unwrap();
    assert_eq!((expired.removed, expired.doubt), (0, None));
    assert_eq!(home.remove_ended_before(u64::MAX).unwrap(), 0);
    assert_eq!(home.list().unwrap().len(), 5);
    let checked = Chain::read(&home).unwrap().check(&home, &files[0]).unwrap();
    assert!(checked.is_sound() && checked.notes[0].contains("behind when it began"), "{:?}", checked.notes);
    // A clock that agrees leaves no note.
    home.trust_clock(&today()).unwrap();
    five(&home);
    let newest = home.list().unwrap().into_iter().find(|file| !files.contains(file)).unwrap();
    assert_eq!(home.open(&newest).unwrap().header().unwrap().clock_behind_ns, None);
    assert_eq!(home.remove_ended_before(u64::MAX).unwrap(), 5);
}

/// A file that is younger than the tape says was copied here, or written by a process with a clock of its own.
#[test]
fn a_tape_whose_file_is_younger_is_kept() {
    let scratch = scratch();
    let home = home(&scratch);
    let written = clock::now().wall_ns;
    let header = Header { started_wall_ns: written - YEAR_NS, ..header(1) };
    let live = home.live_path(header.id, header.started_wall_ns);
    let mut writer = Writer::create(live.clone(), header, clock::now().instant).unwrap();
    let entry = Owned { wall_ns: written - YEAR_NS, ..Owned::message("m") };
    writer.append([entry].iter().map(Owned::written)).unwrap();
    drop(writer);
    seal(&live).unwrap();
    assert_eq!(home.remove_ended_before(written - DAY_NS).unwrap(), 0);
    assert_eq!(home.remove_ended_before(written + DAY_NS).unwrap(), 1);
}

#[test]
fn tapes_from_the_future_are_kept() {
    let scratch = scratch();
    let home = home(&scratch);
    five(&home);
    // The clock went back by a year since.
    let back = ClockReading { wall_ns: clock::now().wall_ns - YEAR_NS, boot: None, file_wall_ns: None };
    let expired = home.expire(RETENTION, &back).unwrap();
    assert_eq!((expired.removed, expired.doubt), (0, None));
    assert_eq!(home.list().unwrap().len(), 5);
}
