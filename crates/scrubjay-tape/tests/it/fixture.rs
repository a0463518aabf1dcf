//! Tapes to test with: entries that own their bytes, and files made of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};

use proptest::prelude::{Just, Strategy, any, prop_oneof};
use scrubjay_core::entry::{Direction, End, Entry, EntryKind, RuleEffects, RuleMarks, Terminator, Transport};
use scrubjay_core::id::TapeId;
use scrubjay_core::redact::{Payload, RedactionConfig, Redactor};
use scrubjay_tape::clock;
use scrubjay_tape::format::header::{Compression, Header, Origin, TapeKind};
use scrubjay_tape::format::reader::{Tape, TapeState};
use scrubjay_tape::format::seal::seal;
use scrubjay_tape::format::writer::Writer;
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::{Item, Leg, RecordError, Recording, RotationLimits, Subject};
use tempfile::TempDir;

/// An entry that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) kind: EntryKind,
    pub(crate) direction: Direction,
    pub(crate) transport: Transport,
    pub(crate) terminator: Terminator,
    pub(crate) wall_ns: u64,
    pub(crate) since_start_ns: u64,
    pub(crate) processing_ns: u32,
    pub(crate) via: Option<String>,
    pub(crate) connection: u32,
    pub(crate) operation: Option<u64>,
    pub(crate) effects: RuleEffects,
    pub(crate) rules: String,
    pub(crate) tags: String,
    pub(crate) payload: Vec<u8>,
}

impl Owned {
    /// A message with fixed times, so that equal bytes give equal entries.
    pub(crate) fn message(payload: impl Into<Vec<u8>>) -> Self {
        Self {
            kind: EntryKind::Message,
            direction: Direction::ClientToServer,
            transport: Transport::Stdio,
            terminator: Terminator::Lf,
            wall_ns: 1_800_000_000_000_000_000,
            since_start_ns: 1_000_000,
            processing_ns: 500,
            via: None,
            connection: 0,
            operation: None,
            effects: RuleEffects::default(),
            rules: String::new(),
            tags: String::new(),
            payload: payload.into(),
        }
    }

    /// The entry as it can be written: the payload passes redaction unchanged.
    pub(crate) fn written(&self) -> Entry<'_, Payload<'_>> {
        static OFF: LazyLock<Redactor> = LazyLock::new(|| {
            let config = RedactionConfig { redact_sensitive: false, ..RedactionConfig::default() };
            Redactor::new(&config).unwrap()
        });
        let payload = OFF.redact(&self.payload).unchanged().unwrap();
        self.entry().with_payload(payload)
    }

    pub(crate) fn entry(&self) -> Entry<'_> {
        Entry {
            kind: self.kind,
            direction: self.direction,
            transport: self.transport,
            terminator: self.terminator,
            wall_ns: self.wall_ns,
            since_start_ns: self.since_start_ns,
            processing_ns: self.processing_ns,
            via: self.via.as_deref(),
            connection: self.connection,
            operation: self.operation,
            rule_marks: RuleMarks { effects: self.effects, rules: &self.rules, tags: &self.tags },
            payload: &self.payload,
        }
    }
}

impl From<Entry<'_>> for Owned {
    fn from(entry: Entry<'_>) -> Self {
        Self {
            kind: entry.kind,
            direction: entry.direction,
            transport: entry.transport,
            terminator: entry.terminator,
            wall_ns: entry.wall_ns,
            since_start_ns: entry.since_start_ns,
            processing_ns: entry.processing_ns,
            via: entry.via.map(str::to_owned),
            connection: entry.connection,
            operation: entry.operation,
            effects: entry.rule_marks.effects,
            rules: entry.rule_marks.rules.to_owned(),
            tags: entry.rule_marks.tags.to_owned(),
            payload: entry.payload.to_vec(),
        }
    }
}

/// A connection to a backend over something else than the recording's own transport.
pub(crate) const LEG: Leg<'_> = Leg { backend: "files", connection: 2, transport: Transport::Http };

/// A directory in memory if the system has one: sealing syncs, and these tests seal many tapes.
pub(crate) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// Runs an ignored test of this binary in a process that a shell prepares, for settings that a whole process shares.
pub(crate) fn run_in_a_process_of_its_own(prepare: &str, test: &str, environment: &[(&str, &Path)]) {
    let output = Command::new("sh")
        .args(["-c", &format!("{prepare} && exec \"$@\""), "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{prepare}: {stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("1 passed"), "{prepare}: {stdout}");
}

pub(crate) fn header(seed: u64) -> Header {
    let mut random = [0; 10];
    random[..8].copy_from_slice(&seed.to_be_bytes());
    Header {
        id: TapeId::from_random(random),
        name: "test".to_owned(),
        noted_kind: None,
        gateway: None,
        transport: Transport::Stdio,
        started_wall_ns: 1_800_000_000_000_000_000 + seed * 1_000_000,
        clock_behind_ns: None,
        program: None,
        workspace: None,
        session: Default::default(),
        origin: Origin::default(),
        continues: None,
        part: 1,
        recorder: "0".to_owned(),
        compression: Compression::default(),
        links: Default::default(),
    }
}

pub(crate) fn home(directory: &TempDir) -> Home {
    let home = Home::new(directory.path().join("data"));
    home.create().unwrap();
    home
}

/// Begins a live tape; `seed` gives it an id of its own.
pub(crate) fn begin(home: &Home, seed: u64) -> Writer {
    let header = header(seed);
    let path = home.live_path(header.id, header.started_wall_ns);
    Writer::create(path, header, clock::now().instant).unwrap()
}

/// Records a live tape in one batch, and releases its lock.
pub(crate) fn record_live(home: &Home, entries: &[Owned]) -> PathBuf {
    let mut writer = begin(home, 1);
    writer.append(entries.iter().map(Owned::written)).unwrap();
    let path = writer.path().to_owned();
    drop(writer);
    until_abandoned(&Tape::open(&path).unwrap());
    path
}

/// Waits until the lock of a tape is free after its writer has ended: a child that another test forks at this moment
/// holds the lock as well, until it executes its program.
pub(crate) fn until_abandoned(tape: &Tape) {
    while tape.state() == TapeState::Live {
        std::thread::yield_now();
    }
}

pub(crate) fn record_sealed(home: &Home, entries: &[Owned]) -> PathBuf {
    seal(&record_live(home, entries)).unwrap()
}

/// Reads all entries of a tape with their numbers.
pub(crate) fn read(tape: &Tape) -> Vec<(u64, Owned)> {
    read_from(tape, 0)
}

pub(crate) fn read_from(tape: &Tape, entry: u64) -> Vec<(u64, Owned)> {
    let mut entries = tape.entries_from(entry).unwrap();
    let mut all = Vec::new();
    while let Some((number, entry)) = entries.next().unwrap() {
        all.push((number, entry.into()));
    }
    all
}

pub(crate) fn numbered(entries: &[Owned]) -> Vec<(u64, Owned)> {
    (0..).zip(entries.iter().cloned()).collect()
}

/// Any entry, with a payload that the given strategy makes.
pub(crate) fn any_entry(payload: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Owned> {
    let kind = prop_oneof![
        4 => Just(EntryKind::Message),
        1 => Just(EntryKind::Stderr),
        1 => Just(EntryKind::Oversize),
        1 => Just(EntryKind::Gap),
        1 => Just(EntryKind::End),
        1 => Just(EntryKind::Note),
        1 => Just(EntryKind::Original),
    ];
    let direction = prop_oneof![Just(Direction::ClientToServer), Just(Direction::ServerToClient)];
    let transport = prop_oneof![Just(Transport::Stdio), Just(Transport::Http), Just(Transport::Memory)];
    let terminator = prop_oneof![Just(Terminator::Lf), Just(Terminator::Crlf), Just(Terminator::Eof)];
    let via = proptest::option::weighted(0.2, "[a-zäé]{0,12}");
    let names = || proptest::collection::vec("[a-z_./:-]{1,9}", 0..3).prop_map(|names| names.join("\n"));
    let judged = (any::<u8>().prop_map(RuleEffects::of_bits), names(), names());
    let shape = (kind, direction, transport, terminator, (via, any::<u32>()), any::<Option<u64>>());
    // At most thirteen days, so that sums of them do not overflow.
    let times = (any::<u64>(), 0..1u64 << 50, any::<u32>());
    (shape, times, judged, payload).prop_map(
        |(
            (kind, direction, transport, terminator, (via, connection), operation),
            (wall_ns, since_start_ns, processing_ns),
            (effects, rules, tags),
            payload,
        )| {
            Owned {
                kind,
                direction,
                transport,
                terminator,
                wall_ns,
                since_start_ns,
                processing_ns,
                via,
                connection,
                operation,
                effects,
                rules,
                tags,
                payload,
            }
        },
    )
}

pub(crate) fn subject() -> Subject {
    Subject {
        name: "test".to_owned(),
        kind: TapeKind::Conversation,
        gateway: None,
        transport: Transport::Stdio,
        program: None,
        workspace: None,
        session: None,
        conversation: None,
        origin: Origin::default(),
    }
}

pub(crate) fn recording(home: &Home, tape_bytes_max: u64) -> Recording {
    recording_of(home, subject(), tape_bytes_max)
}

pub(crate) fn recording_of(home: &Home, subject: Subject, tape_bytes_max: u64) -> Recording {
    let limits = RotationLimits { tape_bytes_max, ..RotationLimits::default() };
    Recording::new(home.clone(), subject, limits, Arc::new(Redactor::standard()))
}

pub(crate) fn say(recording: &mut Recording, payloads: &[&str]) -> Result<u64, RecordError> {
    let items = payloads.iter().map(|payload| {
        Item::new(EntryKind::Message, Direction::ClientToServer, Terminator::Lf, payload.as_bytes())
    });
    recording.record(clock::now(), items)
}

pub(crate) fn end() -> End {
    End { reason: "done".to_owned(), exit_code: Some(0), signal: None, continues_on: None }
}
