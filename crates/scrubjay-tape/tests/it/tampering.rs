//! Tampering by someone who can write in the data directory, with valid checksums and chains: other tapes or a
//! checkpoint reveal it.

use std::collections::HashSet;
use std::path::Path;

use scrubjay_core::entry::EntryKind;
use scrubjay_core::id::TapeId;
use scrubjay_tape::chain::{Chain, CheckedTape, LinkProblem};
use scrubjay_tape::checkpoint::{Checkpoint, CheckpointError, TapeChange};
use scrubjay_tape::clock;
use scrubjay_tape::format::header::{Header, Imported, Links, SessionRef, SessionSource, TapeKind};
use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::format::seal::seal;
use scrubjay_tape::format::verify::verify;
use scrubjay_tape::format::writer::Writer;
use scrubjay_tape::home::{Home, TapeFile};
use scrubjay_tape::recording::{Recording, RotationLimits, Subject};
use scrubjay_tape::removed::RemovedBy;
use tempfile::TempDir;

use crate::fixture::{Owned, end, home, read, record_sealed, recording, say, scratch};
use crate::random::Random;

/// Four tapes of one connection, sealed, in order.
fn rotated(home: &Home) -> Vec<TapeFile> {
    let mut recording = recording(home, 2_000);
    let mut ids = Vec::new();
    let mut say_one = |recording: &mut Recording| {
        say(recording, &[&format!("{}: {}", ids.len(), "x".repeat(150))]).unwrap();
        ids.push(recording.tape().unwrap());
        ids.iter().collect::<HashSet<_>>().len()
    };
    while say_one(&mut recording) < 4 {}
    (0..3).for_each(|_| assert_eq!(say_one(&mut recording), 4));
    recording.finish(&end()).unwrap().unwrap();
    seal_all(home);
    in_order(home)
}

/// Seals all abandoned tapes, once their locks are free: a child of another test may hold one for a moment.
fn seal_all(home: &Home) {
    while home.list().unwrap().iter().any(is_live) {
        for outcome in home.seal_abandoned().unwrap() {
            outcome.unwrap();
        }
    }
}

fn header(home: &Home, file: &TapeFile) -> Header {
    home.open(file).unwrap().header().unwrap().clone()
}

fn in_order(home: &Home) -> Vec<TapeFile> {
    let mut files = home.list().unwrap();
    files.sort_by_key(|file| header(home, file).part);
    files
}

pub(crate) fn check_all(home: &Home) -> Vec<(TapeId, CheckedTape)> {
    let chain = Chain::read(home).unwrap();
    let files = home.list().unwrap();
    files.iter().map(|file| (file.id, chain.check(home, file).unwrap())).collect()
}

/// Lists the problems with links: the tape and the problem.
fn problems(home: &Home) -> Vec<(TapeId, LinkProblem)> {
    let checked = check_all(home);
    for (id, one) in &checked {
        assert!(one.report.is_sound(), "{id} is sound by itself: {:?}", one.report);
    }
    let found = checked.into_iter().flat_map(|(id, one)| one.links.into_iter().map(move |l| (id, l.problem)));
    found.collect()
}

/// Rewrites a tape in place, as a forger can do with this program.
fn forge(home: &Home, file: &TapeFile, edit: impl FnOnce(&mut Header, &mut Vec<Owned>)) {
    let tape = home.open(file).unwrap();
    let mut header = tape.header().unwrap().clone();
    let mut entries: Vec<Owned> = read(&tape).into_iter().map(|(_, entry)| entry).collect();
    edit(&mut header, &mut entries);
    drop(tape);
    std::fs::remove_file(&file.path).unwrap();
    let mut writer = Writer::create(file.path.with_extension("live"), header, clock::now().instant).unwrap();
    writer.append(entries.iter().map(Owned::written)).unwrap();
    seal(writer.path()).unwrap();
    drop(writer);
    assert!(verify(&Tape::open(&file.path).unwrap()).unwrap().is_sound());
}

fn flip_a_byte(entries: &mut [Owned], at: usize) {
    let payload = &mut entries[at].payload;
    let last = payload.len() - 1;
    payload[last] ^= 1;
}

#[test]
fn each_tape_of_a_connection_names_the_end_of_the_previous_one() {
    let scratch = scratch();
    let home = home(&scratch);
    let tapes = rotated(&home);
    assert_eq!(problems(&home), []);
    for pair in tapes.windows(2) {
        let previous = header(&home, &pair[1]).links.previous.unwrap();
        let entries = read(&home.open(&pair[0]).unwrap());
        assert_eq!((previous.tape, previous.entries), (pair[0].id, entries.len() as u64 - 1));
        assert_eq!(entries.last().unwrap().1.kind, EntryKind::End);
    }
    assert_eq!(header(&home, &tapes[0]).links, Links::default());
}

#[test]
fn a_digest_is_the_same_computed_in_the_background_or_at_the_end() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, 11 << 20);
    for number in 0..40 {
        say(&mut recording, &[&format!("{number}: {}", "y".repeat(700_000)), "short"]).unwrap();
    }
    // Dropped without `finish`, as if the process was killed.
    drop(recording);
    seal_all(&home);
    let tapes = in_order(&home);
    assert!(tapes.len() >= 3, "{}", tapes.len());
    assert_eq!(problems(&home), []);
    for file in &tapes {
        let tape = home.open(file).unwrap();
        assert_eq!(tape.footer().unwrap().digest, Some(verify(&tape).unwrap().digest));
    }
}

fn is_live(file: &TapeFile) -> bool {
    file.path.extension().is_some_and(|extension| extension == "live")
}

/// A way to tamper with tapes in order, the tape on which it shows, and the problem that is reported.
type Tampering = (&'static str, fn(&Home, &[TapeFile]), usize, LinkProblem);

const TAMPERINGS: &[Tampering] = &[
    (
        "a flipped byte, checksums and chain in order",
        |home, tapes| forge(home, &tapes[1], |_, entries| flip_a_byte(entries, 1)),
        1,
        LinkProblem::Changed,
    ),
    (
        "a flipped byte in the first tape of all",
        |home, tapes| forge(home, &tapes[0], |_, entries| flip_a_byte(entries, 0)),
        0,
        LinkProblem::Changed,
    ),
    (
        "another time on an entry",
        |home, tapes| forge(home, &tapes[1], |_, entries| entries[0].wall_ns += 1),
        1,
        LinkProblem::Changed,
    ),
    (
        "entries in another order",
        |home, tapes| forge(home, &tapes[2], |_, entries| entries.swap(0, 1)),
        2,
        LinkProblem::Changed,
    ),
    (
        "an entry taken out",
        |home, tapes| forge(home, &tapes[1], |_, entries| drop(entries.remove(0))),
        1,
        LinkProblem::Changed,
    ),
    (
        "the last entries cut off",
        |home, tapes| forge(home, &tapes[1], |_, entries| entries.truncate(2)),
        1,
        LinkProblem::Shortened,
    ),
    (
        "an entry added at the end",
        |home, tapes| {
            forge(home, &tapes[1], |_, entries| {
                let end = entries.pop().unwrap();
                entries.extend([Owned::message("never sent"), end]);
            });
        },
        1,
        LinkProblem::Added,
    ),
    (
        "another name in the header",
        |home, tapes| forge(home, &tapes[1], |header, _| header.name = "other".to_owned()),
        1,
        LinkProblem::Changed,
    ),
    (
        "the middle tape is gone",
        |_, tapes| std::fs::remove_file(&tapes[1].path).unwrap(),
        2,
        LinkProblem::Missing,
    ),
    (
        "the last tape is gone",
        |_, tapes| std::fs::remove_file(&tapes.last().unwrap().path).unwrap(),
        usize::MAX,
        LinkProblem::Missing,
    ),
    (
        "two tapes have changed places",
        |home, tapes| {
            let aside = home.root().join("aside");
            std::fs::rename(&tapes[1].path, &aside).unwrap();
            std::fs::rename(&tapes[2].path, &tapes[1].path).unwrap();
            std::fs::rename(&aside, &tapes[2].path).unwrap();
        },
        1,
        LinkProblem::Misplaced,
    ),
    (
        "the link to the tape before is another's",
        |home, tapes| {
            let other = header(home, &tapes[1]).links;
            forge(home, &tapes[2], |header, _| header.links = other);
        },
        2,
        LinkProblem::Changed,
    ),
    (
        "a second tape that continues the same one",
        |home, tapes| {
            let old = header(home, &tapes[2]);
            let header = Header { id: TapeId::from_random([9; 10]), ..old };
            let path = home.live_path(header.id, header.started_wall_ns);
            let mut writer = Writer::create(path, header, clock::now().instant).unwrap();
            writer.append([Owned::message("another story")].iter().map(Owned::written)).unwrap();
            seal(writer.path()).unwrap();
        },
        1,
        LinkProblem::Forked,
    ),
];

#[test]
fn tampering_with_one_tape_is_detected_by_another() {
    for (what, tamper, affected, problem) in TAMPERINGS {
        let scratch = scratch();
        let home = home(&scratch);
        let tapes = rotated(&home);
        assert_eq!(problems(&home), [], "{what}: before");
        tamper(&home, &tapes);
        let found = problems(&home);
        let affected = if *affected == usize::MAX { tapes.len() - 2 } else { *affected };
        assert!(found.contains(&(tapes[affected].id, *problem)), "{what}: {found:?}");
    }
}

#[test]
fn any_flipped_bit_is_detected_except_on_the_newest_tape() {
    let scratch = scratch();
    let home = home(&scratch);
    let tapes = rotated(&home);
    let mut random = Random::new(14);
    for _ in 0..60 {
        let file = &tapes[random.below(tapes.len() - 1)];
        let whole = std::fs::read(&file.path).unwrap();
        let mut done = String::new();
        forge(&home, file, |_, entries| {
            // The last entry is the end, which was written after the next tape had named its predecessor.
            let at = random.below(entries.len() - 1);
            let byte = random.below(entries[at].payload.len());
            entries[at].payload[byte] ^= 1 << random.below(8);
            done = format!("byte {byte} of entry {at} of {}", file.id);
        });
        assert!(problems(&home).contains(&(file.id, LinkProblem::Changed)), "{done}");
        put_back(&file.path, &whole);
    }
    assert_eq!(problems(&home), []);
}

#[test]
fn a_removed_tape_is_distinguished_from_a_missing_one() {
    let scratch = scratch();
    let home = home(&scratch);
    let tapes = rotated(&home);
    home.remove(&tapes[1], RemovedBy::Retention).unwrap();
    assert_eq!(problems(&home), []);
    let notes: Vec<String> = check_all(&home).into_iter().flat_map(|(_, one)| one.notes).collect();
    assert_eq!(notes.iter().filter(|note| note.contains("removed by the configured retention")).count(), 2);
    let removed = home.removed().unwrap();
    assert_eq!(removed[&tapes[1].id].by, RemovedBy::Retention);
    assert!(removed[&tapes[1].id].digest.is_some());
}

/// Rewrites a tape as an import of the same entries does.
fn import_again(home: &Home, file: &TapeFile) {
    forge(home, file, |header, _| {
        let (format, by) = ("jsonl".to_owned(), "test".to_owned());
        header.links.imported = Some(Imported { wall_ns: 1, format, by });
    });
}

#[test]
fn importing_the_neighbours_does_not_excuse_a_missing_tape() {
    let check = |imported: &[usize], gone: &[usize], expected: &[usize]| {
        let scratch = scratch();
        let home = home(&scratch);
        let tapes = rotated(&home);
        imported.iter().for_each(|at| import_again(&home, &tapes[*at]));
        assert_eq!(problems(&home), [], "{imported:?}: all are here");
        gone.iter().for_each(|at| std::fs::remove_file(&tapes[*at].path).unwrap());
        let mut found = problems(&home);
        found.sort_by_key(|(id, _)| tapes.iter().position(|tape| tape.id == *id));
        let expected: Vec<_> = expected.iter().map(|at| (tapes[*at].id, LinkProblem::Missing)).collect();
        assert_eq!(found, expected, "{imported:?} imported, {gone:?} gone");
        for (id, one) in check_all(&home) {
            let is_expected = expected.iter().any(|(expected, _)| *expected == id);
            assert!(
                is_expected || gone.len() < 2 || one.notes[0].contains("which is not here"),
                "{:?}",
                one.notes
            );
        }
    };
    // Four tapes: one is missing between two others, with and without tapes that were recorded here.
    check(&[0, 2], &[1], &[0, 2]);
    check(&[0, 1, 2, 3], &[1], &[0, 2]);
    check(&[0, 1, 2, 3], &[1, 2], &[0, 3]);
    // A missing tape at the end of a session that was recorded here.
    check(&[1], &[0], &[1]);
    check(&[2], &[3], &[2]);
    // Tapes that were recorded in another data directory.
    check(&[0, 1, 2, 3], &[0, 1, 3], &[]);
    check(&[0, 1, 2, 3], &[0, 3], &[]);
}

#[test]
fn importing_the_next_connection_does_not_excuse_a_missing_tape() {
    let scratch = scratch();
    let home = home(&scratch);
    let ids = ["one", "two", "three"].map(|text| {
        let mut recording = of_session(&home, "s");
        say(&mut recording, &[text]).unwrap();
        let id = recording.tape().unwrap();
        recording.finish(&end()).unwrap().unwrap();
        id
    });
    let files = home.list().unwrap();
    let file = |id: TapeId| files.iter().find(|file| file.id == id).unwrap();
    ids.iter().for_each(|id| import_again(&home, file(*id)));
    std::fs::remove_file(&file(ids[1]).path).unwrap();
    assert_eq!(problems(&home), [(ids[2], LinkProblem::Missing)]);
    std::fs::remove_file(&file(ids[0]).path).unwrap();
    assert_eq!(problems(&home), [], "a tape that was imported alone needs no predecessor");
}

#[test]
fn an_old_tape_that_names_no_end_is_sound() {
    let scratch = scratch();
    let home = home(&scratch);
    let tapes = rotated(&home);
    for file in &tapes {
        forge(&home, file, |header, _| header.links = Links::default());
    }
    assert_eq!(problems(&home), []);
    let notes: Vec<String> = check_all(&home).into_iter().flat_map(|(_, one)| one.notes).collect();
    assert!(notes.iter().all(|note| note.contains("but not its end")), "{notes:?}");
    assert_eq!(notes.len(), tapes.len() - 1);
}

fn of_session(home: &Home, session: &str) -> Recording {
    let subject = Subject {
        name: "test".to_owned(),
        kind: TapeKind::Conversation,
        gateway: None,
        transport: scrubjay_core::entry::Transport::Stdio,
        program: None,
        workspace: None,
        session: Some(SessionRef { id: session.to_owned(), told_by: SessionSource::HostSession }),
        conversation: None,
        origin: Default::default(),
    };
    let redactor = scrubjay_core::redact::Redactor::standard();
    Recording::new(home.clone(), subject, RotationLimits::default(), std::sync::Arc::new(redactor))
}

#[test]
fn a_connection_names_the_last_closed_tape_of_its_session() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut ids = Vec::new();
    for (session, text) in [("s", "one"), ("other", "two"), ("s", "three"), ("s", "four")] {
        let mut recording = of_session(&home, session);
        say(&mut recording, &[text]).unwrap();
        ids.push(recording.tape().unwrap());
        if text == "three" {
            // A crash: the next start seals it.
            drop(recording);
            seal_all(&home);
        } else {
            recording.finish(&end()).unwrap().unwrap();
        }
    }
    assert_eq!(problems(&home), []);
    let files = home.list().unwrap();
    let file = |id: TapeId| files.iter().find(|file| file.id == id).unwrap();
    let follows = |id: TapeId| header(&home, file(id)).links.follows.map(|end| end.tape);
    assert_eq!(
        ids.iter().map(|id| follows(*id)).collect::<Vec<_>>(),
        [None, None, Some(ids[0]), Some(ids[2])]
    );
    forge(&home, file(ids[2]), |_, entries| flip_a_byte(entries, 0));
    std::fs::remove_file(&file(ids[0]).path).unwrap();
    let mut found = problems(&home);
    found.sort_by_key(|(id, _)| ids.iter().position(|known| known == id));
    assert_eq!(found, [(ids[2], LinkProblem::Missing), (ids[2], LinkProblem::Changed)]);
    home.forget_ends().unwrap();
    assert!(home.session_end("s").is_some() && home.session_end("other").is_some());
    home.remove(file(ids[1]), RemovedBy::Person).unwrap();
    home.forget_ends().unwrap();
    assert!(home.session_end("other").is_none());
}

/// A checkpoint of a data directory with four sealed tapes and one live one.
struct CheckpointedHome {
    _scratch: TempDir,
    home: Home,
    tapes: Vec<TapeFile>,
    live: Recording,
    checkpoint: Checkpoint,
}

fn checkpointed() -> CheckpointedHome {
    let scratch = scratch();
    let home = home(&scratch);
    let tapes = rotated(&home);
    let mut live = recording(&home, 1 << 20);
    say(&mut live, &["one", "two", "three"]).unwrap();
    let made = Checkpoint::make(&home, 1).unwrap();
    let checkpoint = Checkpoint::parse(&serde_json::to_vec(&made).unwrap()).unwrap();
    assert_eq!(checkpoint, made);
    CheckpointedHome { _scratch: scratch, home, tapes, live, checkpoint }
}

impl CheckpointedHome {
    fn change_since(&self, id: TapeId) -> TapeChange {
        let compared = self.checkpoint.compare(&self.home).unwrap();
        compared.tapes.iter().find(|tape| tape.tape == id).unwrap().change.clone()
    }

    fn is_fine(&self) -> bool {
        self.checkpoint.compare(&self.home).unwrap().is_fine()
    }
}

#[test]
fn changes_by_normal_use_after_a_checkpoint_are_fine() {
    let mut checkpointed = checkpointed();
    let live = checkpointed.live.tape().unwrap();
    assert!(checkpointed.is_fine());
    assert_eq!(checkpointed.change_since(live), TapeChange::Same);
    say(&mut checkpointed.live, &["four"]).unwrap();
    assert_eq!(checkpointed.change_since(live), TapeChange::Grown { by: 1 });
    let CheckpointedHome { _scratch, home, tapes, live: recording, checkpoint } = checkpointed;
    recording.finish(&end()).unwrap().unwrap();
    let mut other = recording_of(&home);
    say(&mut other, &["later"]).unwrap();
    let new = other.tape().unwrap();
    home.remove(&tapes[0], RemovedBy::Person).unwrap();
    let compared = checkpoint.compare(&home).unwrap();
    assert!(compared.is_fine());
    assert_eq!(compared.new_tapes, [new]);
    let change = |id| &compared.tapes.iter().find(|tape| tape.tape == id).unwrap().change;
    assert_eq!(change(live), &TapeChange::Grown { by: 2 });
    assert!(matches!(change(tapes[0].id), TapeChange::Removed { note } if note.by == RemovedBy::Person));
    assert_eq!(change(tapes[1].id), &TapeChange::Same);
}

fn recording_of(home: &Home) -> Recording {
    recording(home, 1 << 20)
}

#[test]
fn a_checkpoint_names_the_change_of_each_tape() {
    let last = |tapes: &[TapeFile]| tapes.last().unwrap().clone();
    let check = |what: &str, tamper: &dyn Fn(&CheckpointedHome) -> TapeId, expected: TapeChange| {
        let checkpointed = checkpointed();
        let id = tamper(&checkpointed);
        assert_eq!(checkpointed.change_since(id), expected, "{what}");
        assert!(!checkpointed.is_fine(), "{what}");
    };
    for at in [0, 1, 2] {
        let flip = |checkpointed: &CheckpointedHome| {
            forge(&checkpointed.home, &last(&checkpointed.tapes), |_, entries| flip_a_byte(entries, at));
            last(&checkpointed.tapes).id
        };
        check(
            "a flipped byte in the last tape",
            &flip,
            TapeChange::Changed { first: at as u64, last: at as u64 },
        );
    }
    let rewritten = |checkpointed: &CheckpointedHome| {
        // All tapes of the session are rewritten with consistent links, so only the checkpoint can reveal it.
        for file in &checkpointed.tapes {
            forge(&checkpointed.home, file, |header, entries| {
                header.links = Links::default();
                flip_a_byte(entries, 1);
            });
        }
        assert_eq!(problems(&checkpointed.home), []);
        checkpointed.tapes[0].id
    };
    check("everything written anew", &rewritten, TapeChange::Changed { first: 1, last: 1 });
    let cut = |checkpointed: &CheckpointedHome| {
        forge(&checkpointed.home, &last(&checkpointed.tapes), |_, entries| entries.truncate(1));
        last(&checkpointed.tapes).id
    };
    check("the end of the newest tape cut off", &cut, TapeChange::Shortened { has: 1 });
    let added = |checkpointed: &CheckpointedHome| {
        forge(&checkpointed.home, &last(&checkpointed.tapes), |_, entries| {
            entries.push(Owned::message("more"))
        });
        last(&checkpointed.tapes).id
    };
    check("an entry more on a closed tape", &added, TapeChange::Added { by: 1 });
    let gone = |checkpointed: &CheckpointedHome| {
        std::fs::remove_file(&last(&checkpointed.tapes).path).unwrap();
        last(&checkpointed.tapes).id
    };
    check("a tape that is gone", &gone, TapeChange::Missing);
    let swapped = |checkpointed: &CheckpointedHome| {
        std::fs::copy(&checkpointed.tapes[1].path, &checkpointed.tapes[2].path).unwrap();
        checkpointed.tapes[2].id
    };
    let compared = checkpointed();
    let id = swapped(&compared);
    assert!(matches!(compared.change_since(id), TapeChange::Changed { first: 0, .. }));
    let cut_live = |checkpointed: &CheckpointedHome| {
        let id = checkpointed.live.tape().unwrap();
        let file = checkpointed.home.list().unwrap().into_iter().find(|file| file.id == id).unwrap();
        let length = std::fs::metadata(&file.path).unwrap().len();
        let open = std::fs::OpenOptions::new().write(true).open(&file.path).unwrap();
        open.set_len(length - 5).unwrap();
        id
    };
    check("a live tape that was cut", &cut_live, TapeChange::Shortened { has: 2 });
}

#[test]
fn an_altered_checkpoint_is_refused() {
    let checkpointed = checkpointed();
    let text = serde_json::to_string(&checkpointed.checkpoint).unwrap();
    for (from, to) in [("\"mark_step\":1", "\"mark_step\":2"), ("\"sealed\":true", "\"sealed\":false")] {
        assert!(text.contains(from), "{text}");
        let error = Checkpoint::parse(text.replacen(from, to, 1).as_bytes()).unwrap_err();
        assert!(matches!(error, CheckpointError::Altered { .. }), "{error}");
    }
    let newer = text.replacen("\"checkpoint\":2", "\"checkpoint\":3", 1);
    assert!(matches!(Checkpoint::parse(newer.as_bytes()), Err(CheckpointError::TooNew(3))));
    assert!(matches!(Checkpoint::parse(b"{}"), Err(CheckpointError::NotOne(_))));
}

#[test]
fn any_single_entry_that_was_changed_is_named_on_a_tape_of_many() {
    let scratch = scratch();
    let home = home(&scratch);
    let entries: Vec<Owned> = (0..3000).map(|n| Owned::message(format!("message {n}"))).collect();
    let path = record_sealed(&home, &entries);
    let whole = std::fs::read(&path).unwrap();
    let checkpoint = Checkpoint::make(&home, 1).unwrap();
    let file = home.list().unwrap().remove(0);
    for at in [0, 1, 2, 1023, 1024, 1500, 2998, 2999] {
        forge(&home, &file, |_, entries| flip_a_byte(entries, at));
        let compared = checkpoint.compare(&home).unwrap();
        let TapeChange::Changed { first, last } = compared.tapes[0].change else { panic!("{compared:?}") };
        assert!((first..=last).contains(&(at as u64)) && last - first < 4, "{at}: {first} to {last}");
        put_back(&path, &whole);
    }
    assert!(checkpoint.compare(&home).unwrap().is_fine());
}

pub(crate) fn put_back(path: &Path, whole: &[u8]) {
    std::fs::write(path, whole).unwrap();
}

#[test]
fn a_clock_that_ran_backwards_is_reported() {
    const HOUR: u64 = 3600 * 1_000_000_000;
    let scratch = scratch();
    let home = home(&scratch);
    let at = |wall: u64, since: u64| {
        let message = Owned::message("m");
        Owned { wall_ns: message.wall_ns + wall, since_start_ns: since, ..message }
    };
    let day = 24 * HOUR;
    let entries =
        [at(0, 0), at(HOUR, HOUR), at(0, 2 * HOUR), at(HOUR, 3 * HOUR), at(10 * 365 * day, 4 * HOUR)];
    record_sealed(&home, &entries);
    let (_, checked) = check_all(&home).remove(0);
    assert!(checked.is_sound(), "no clock makes a tape unsound");
    let jumps: Vec<(u64, bool)> =
        checked.report.clock_jumps.iter().map(|jump| (jump.entry, jump.is_back())).collect();
    assert_eq!(jumps, [(2, true), (4, false)]);
    assert!(checked.time_ran_back());
    let tape = home.open(&home.list().unwrap()[0]).unwrap();
    assert_eq!(tape.noted_clock_jumps(), Some(checked.report.clock_jumps.as_slice()));
    assert_eq!(tape.find_clock_jumps().unwrap(), checked.report.clock_jumps);
    assert!(checked.notes[0].contains("time ran backwards by 2h 00m before entry 2"), "{:?}", checked.notes);
}
