//! Forged headers and footers of sealed tapes, with valid checksums and chain and untouched entries. `verify` computes
//! again what follows from the entries; a checkpoint detects other changes.

use scrubjay_core::entry::{Direction, EntryKind, Terminator};
use scrubjay_tape::checkpoint::{Checkpoint, TapeChange};
use scrubjay_tape::clock;
use scrubjay_tape::format::header::{self, Header, Imported, Layout, Origin, SessionSource, TapeKind};
use scrubjay_tape::format::reader::{Damage, Tape};
use scrubjay_tape::format::seal::write_sealed_as;
use scrubjay_tape::format::sealed::{BlockRef, Footer};
use scrubjay_tape::format::verify::ClockJump;
use scrubjay_tape::format::writer::Writer;
use scrubjay_tape::home::{Home, TapeFile};
use scrubjay_tape::recording::{Item, Recording};
use tempfile::TempDir;

use crate::fixture::{Owned, end, home, read, recording, say, scratch};
use crate::hostile::{ENTRIES, Forgery};
use crate::tampering::{check_all, put_back};

/// A sealed tape with a failure, an undelivered message, a move to another session and an end; and a checkpoint of it.
struct Eventful {
    _scratch: TempDir,
    home: Home,
    file: TapeFile,
    whole: Vec<u8>,
    checkpoint: Checkpoint,
}

fn eventful() -> Eventful {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, 1 << 20);
    let note = |recording: &mut Recording, text: &str| {
        let item = Item::new(EntryKind::Note, Direction::ServerToClient, Terminator::Lf, text.as_bytes());
        recording.record(clock::now(), std::iter::once(item)).unwrap();
    };
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
    say(&mut recording, &[call, r#"{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"no"}}"#]).unwrap();
    note(&mut recording, r#"{"event":"undelivered","why":"client left","messages":1,"entries":[[1,1]]}"#);
    note(&mut recording, r#"{"event":"session","session":"other"}"#);
    recording.finish(&end()).unwrap().unwrap();
    let file = home.list().unwrap().remove(0);
    let whole = std::fs::read(&file.path).unwrap();
    let checkpoint = Checkpoint::make(&home, 1).unwrap();
    Eventful { _scratch: scratch, home, file, whole, checkpoint }
}

impl Eventful {
    /// Rewrites header and footer with valid checksums and chain; the entries stay.
    fn remake(&self, edit: impl FnOnce(&mut Header, &mut Footer)) {
        put_back(&self.file.path, &self.whole);
        let tape = self.home.open(&self.file).unwrap();
        let (mut header, mut footer) = (tape.header().unwrap().clone(), tape.footer().unwrap().clone());
        edit(&mut header, &mut footer);
        let mut forgery = Forgery::begin(&header::encode(&header, Layout::Sealed));
        for block in &mut footer.blocks {
            let stored = &self.whole[usize::try_from(block.offset).unwrap() + 64..];
            let stored = &stored[..block.stored_bytes as usize];
            *block = BlockRef { offset: forgery.bytes.len() as u64, ..*block };
            forgery.block(ENTRIES, block, stored);
        }
        std::fs::write(&self.file.path, forgery.end(&footer, None)).unwrap();
    }

    fn change_since(&self, checkpoint: &Checkpoint) -> TapeChange {
        checkpoint.compare(&self.home).unwrap().tapes.remove(0).change
    }
}

/// A forged fact of a footer, and its name.
type ForgedFooterFact = (&'static str, fn(&mut Footer));

const FORGED_FOOTER_FACTS: &[ForgedFooterFact] = &[
    ("total_errors", |footer| footer.metadata.total_errors = 0),
    ("methods", |footer| footer.metadata.methods.clear()),
    ("p95_response_time_ns", |footer| footer.metadata.p95_response_time_ns += 1),
    ("error_rate", |footer| footer.metadata.error_rate += 0.25),
    ("undelivered", |footer| {
        let marks = r#"{"messages":2,"ranges":[[0,1,"client left"]]}"#;
        footer.metadata.undelivered = serde_json::from_str(marks).unwrap();
    }),
    ("undelivered", |footer| footer.metadata.undelivered = Default::default()),
    ("moved_to", |footer| footer.metadata.moved_to = Some("elsewhere".to_owned())),
    ("moved_to", |footer| footer.metadata.moved_to = None),
    ("ended_wall_ns", |footer| footer.ended_wall_ns += 1),
    ("duration_ns", |footer| footer.duration_ns += 1),
    ("end", |footer| footer.end = None),
    ("clock_jumps", |footer| footer.clock_jumps = vec![ClockJump { entry: 1, by_ns: -1 }]),
];

#[test]
fn a_footer_that_contradicts_the_entries_is_detected() {
    let eventful = eventful();
    eventful.remake(|_, _| {});
    assert!(check_all(&eventful.home)[0].1.is_sound(), "rewritten without a change, it is sound");
    assert_eq!(eventful.change_since(&eventful.checkpoint), TapeChange::Same);
    for (fact, change) in FORGED_FOOTER_FACTS {
        eventful.remake(|_, footer| change(footer));
        let report = check_all(&eventful.home).remove(0).1.report;
        let found = format!("{:?}", report.damage);
        assert!(found.contains("the footer was altered") && found.contains(fact), "{fact}: {found}");
        assert_eq!((report.head, report.entries), (None, 5), "{fact}");
        let change = eventful.change_since(&eventful.checkpoint);
        assert!(matches!(change, TapeChange::FactsChanged { header: None, footer: Some(_) }), "{change:?}");
    }
}

#[test]
fn only_totals_that_other_versions_may_compute_differently_are_doubtful() {
    let eventful = eventful();
    for version in [None, Some(u32::MAX)] {
        let check = |change: fn(&mut Footer), is_sound: bool, doubtful: &[&str]| {
            eventful.remake(|_, footer| {
                change(footer);
                footer.totals_version = version;
            });
            let checked = check_all(&eventful.home).remove(0).1;
            assert_eq!(checked.is_sound(), is_sound, "{:?}", checked.report);
            assert_eq!(checked.report.doubtful_totals, doubtful);
            let is_told = checked.notes.iter().any(|note| note.contains("another version of scrubjay"));
            assert_eq!(is_told, !doubtful.is_empty(), "{:?}", checked.notes);
        };
        check(|_| {}, true, &[]);
        check(|footer| footer.metadata.total_errors = 0, true, &["total_errors"]);
        check(|footer| footer.metadata.moved_to = None, true, &["moved_to"]);
        check(|footer| footer.clock_jumps.clear(), true, &[]);
        check(|footer| footer.end = None, false, &[]);
        check(|footer| footer.duration_ns = 0, false, &[]);
    }
    // Facts that no version writes without an entry that reports them.
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, 1 << 20);
    say(&mut recording, &["m"]).unwrap();
    recording.finish(&end()).unwrap().unwrap();
    let file = home.list().unwrap().remove(0);
    let whole = std::fs::read(&file.path).unwrap();
    let plain =
        Eventful { checkpoint: Checkpoint::make(&home, 1).unwrap(), _scratch: scratch, home, file, whole };
    plain.remake(|_, footer| {
        footer.totals_version = None;
        footer.metadata.moved_to = Some("elsewhere".to_owned());
    });
    assert!(!check_all(&plain.home)[0].1.is_sound());
    assert!(!plain.checkpoint.compare(&plain.home).unwrap().is_fine());
}

/// A forged fact of a header that no entry contradicts, and its name.
type ForgedHeaderFact = (&'static str, fn(&mut Header));

const FORGED_HEADER_FACTS: &[ForgedHeaderFact] = &[
    ("kind", |header| header.noted_kind = Some(TapeKind::Backend)),
    ("origin", |header| {
        header.origin = Origin { host_session: Some("other".to_owned()), ..Origin::default() }
    }),
    ("clock_behind_ns", |header| header.clock_behind_ns = Some(1)),
    ("session", |header| header.session.told_by = SessionSource::Agent),
    ("recorder", |header| header.recorder = "9".to_owned()),
];

#[test]
fn a_checkpoint_detects_an_altered_header() {
    let eventful = eventful();
    for (fact, change) in FORGED_HEADER_FACTS {
        eventful.remake(|header, _| change(header));
        let header = Some(vec![(*fact).to_owned()]);
        assert_eq!(
            eventful.change_since(&eventful.checkpoint),
            TapeChange::FactsChanged { header, footer: None }
        );
        let compared = eventful.checkpoint.compare(&eventful.home).unwrap();
        let words = &compared.tapes[0].words;
        assert!(!compared.is_fine() && words.contains(&format!("its header is not ({fact})")), "{words}");
    }
    // Facts of a footer that do not follow from the entries.
    let damage = Damage { entry: None, offset: 7, what: "x".to_owned() };
    eventful.remake(|_, footer| footer.damage.push(damage));
    let footer = Some(vec!["damage".to_owned()]);
    assert_eq!(
        eventful.change_since(&eventful.checkpoint),
        TapeChange::FactsChanged { header: None, footer }
    );
}

#[test]
fn a_checkpoint_detects_a_sealed_tape_turned_live() {
    let eventful = eventful();
    let tape = eventful.home.open(&eventful.file).unwrap();
    let entries: Vec<Owned> = read(&tape).into_iter().map(|(_, entry)| entry).collect();
    let live = eventful.file.path.with_extension("live");
    let mut writer = Writer::create(live, tape.header().unwrap().clone(), clock::now().instant).unwrap();
    writer.append(entries.iter().map(Owned::written)).unwrap();
    std::fs::remove_file(&eventful.file.path).unwrap();
    let change = eventful.change_since(&eventful.checkpoint);
    assert!(matches!(change, TapeChange::FactsChanged { header: None, footer: Some(_) }), "{change:?}");
}

#[test]
fn an_import_after_a_checkpoint_is_reported_but_is_no_tampering() {
    let eventful = eventful();
    let aside = eventful.home.root().join("exported.tape");
    std::fs::rename(&eventful.file.path, &aside).unwrap();
    let exported = Tape::open(&aside).unwrap();
    let mut header = exported.header().unwrap().clone();
    let (format, by) = ("native".to_owned(), "test".to_owned());
    let note = Imported { wall_ns: 1, format, by };
    header.links.imported = Some(note.clone());
    write_sealed_as(&exported, &header, &eventful.file.path).unwrap();
    assert_eq!(eventful.change_since(&eventful.checkpoint), TapeChange::Imported { note: note.clone() });
    assert!(eventful.checkpoint.compare(&eventful.home).unwrap().is_fine());
    // An import does not excuse a footer that `verify` does not check.
    let claim = |header: &mut Header| header.links.imported = Some(note.clone());
    eventful.remake(|header, footer| {
        claim(header);
        (footer.totals_version, footer.metadata.total_errors) = (None, 0);
    });
    let change = eventful.change_since(&eventful.checkpoint);
    assert!(matches!(change, TapeChange::FactsChanged { header: Some(_), footer: Some(_) }), "{change:?}");
    eventful.remake(|header, _| claim(header));
    // Removing the fact that it was imported is detected.
    let later = Checkpoint::make(&eventful.home, 2).unwrap();
    assert_eq!(eventful.change_since(&later), TapeChange::Same);
    eventful.remake(|_, _| {});
    let header = Some(vec!["imported".to_owned()]);
    assert!(
        matches!(eventful.change_since(&later), TapeChange::FactsChanged { header: found, .. } if found == header)
    );
}

#[test]
fn an_old_checkpoint_reports_that_it_covers_no_facts() {
    let eventful = eventful();
    let mut old = eventful.checkpoint.clone();
    old.checkpoint = 1;
    for tape in &mut old.tapes {
        (tape.header, tape.footer) = (None, None);
    }
    let listed = serde_json::to_vec(&(1, old.made_wall_ns, &old.tapes)).unwrap();
    assert!(!String::from_utf8_lossy(&listed).contains("footer"), "an old checkpoint lists no footers");
    old.root = blake3::hash(&[&b"scrubjay checkpoint\n"[..], &listed].concat()).to_hex().to_string();
    let old = Checkpoint::parse(&serde_json::to_vec(&old).unwrap()).unwrap();
    eventful.remake(|header, _| header.noted_kind = Some(TapeKind::Backend));
    let compared = old.compare(&eventful.home).unwrap();
    assert!(compared.is_fine() && !compared.covers_facts);
    assert!(eventful.checkpoint.compare(&eventful.home).unwrap().covers_facts);
    eventful.remake(|header, _| header.name = "other".to_owned());
    assert!(
        !old.compare(&eventful.home).unwrap().is_fine(),
        "an old checkpoint covers the identity of a tape"
    );
}
