//! A secret reaches no file of the data directory on any path.

use std::sync::{Arc, Mutex};

use scrubjay_core::entry::{Direction, End, EntryKind, Terminator, Transport};
use scrubjay_core::redact::Redactor;
use scrubjay_tape::clock;
use scrubjay_tape::format::header::{Origin, TapeKind};
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::{
    Item, RecordError, RecordedMessage, Recording, RotationLimits, Subject, Watch, Watcher,
};

use crate::fixture::{LEG, scratch};

const CANARY: &str = "c4n4ry-53cr3t";

fn files_with_canary(home: &Home) -> Vec<String> {
    let mut found = Vec::new();
    for file in home.list().unwrap() {
        let tape = home.open(&file).unwrap();
        let header = format!("{:?}", tape.header());
        let entries: Vec<String> = crate::fixture::read(&tape)
            .into_iter()
            .map(|(_, entry)| String::from_utf8_lossy(&entry.payload).into_owned())
            .collect();
        found.extend(entries.into_iter().chain([header]).filter(|text| text.contains(CANARY)));
    }
    found
}

#[test]
fn secrets_reach_no_tape() {
    let directory = scratch();
    let home = Home::new(directory.path().to_owned());
    let subject = Subject {
        name: format!("server token={CANARY}"),
        kind: TapeKind::Conversation,
        gateway: None,
        transport: Transport::Stdio,
        program: Some(format!("https://user:{CANARY}@example.com/")),
        workspace: None,
        session: None,
        conversation: None,
        origin: Origin {
            host_program: Some(format!("host --password={CANARY}")),
            traceparent: Some(format!("00-token={CANARY}")),
            ..Origin::default()
        },
    };
    let limits = RotationLimits { tape_bytes_max: 2000, ..RotationLimits::default() };
    let mut recording = Recording::new(home.clone(), subject, limits, Arc::new(Redactor::standard()));
    let source = std::io::Error::other(format!("password={CANARY}"));
    recording.note_gap(1, 1, false, &RecordError { path: "x".into(), source });
    let texts = [
        (EntryKind::Message, format!(r#"{{"params":{{"password":"{CANARY}"}}}}"#)),
        (EntryKind::Original, format!(r#"{{"params":{{"password":"{CANARY}"}}}}"#)),
        (EntryKind::Stderr, format!("starting with API_TOKEN={CANARY}")),
        (EntryKind::Oversize, format!(r#"{{"bytes":1,"hash":"","id":"password={CANARY}"}}"#)),
        (EntryKind::Note, format!(r#"{{"event":"x","secret":"{CANARY}"}}"#)),
    ];
    for _ in 0..20 {
        for (kind, text) in &texts {
            let item = Item::new(*kind, Direction::ServerToClient, Terminator::Lf, text.as_bytes());
            recording.record(clock::now(), std::iter::once(item)).unwrap();
        }
    }
    let end = End { reason: format!("token={CANARY}"), exit_code: None, signal: None, continues_on: None };
    recording.finish(&end).unwrap();
    assert!(home.list().unwrap().len() > 1, "the recording went over several tapes");
    assert_eq!(files_with_canary(&home), Vec::<String>::new());
}

/// A message as the watcher saw it: the recording, the backend and the text.
type WatchedMessage = (u64, Option<String>, String);

/// A watcher that collects the messages.
#[derive(Clone, Default)]
struct CollectedMessages(Arc<Mutex<Vec<WatchedMessage>>>);

impl Watcher for CollectedMessages {
    fn on_recorded(&self, seen: &RecordedMessage<'_>) {
        let text = String::from_utf8_lossy(seen.payload.as_bytes()).into_owned();
        self.0.lock().unwrap().push((seen.source, seen.via.map(|leg| leg.backend.to_owned()), text));
    }
}

#[test]
fn a_watcher_sees_exactly_the_recorded_messages() {
    let directory = scratch();
    let home = Home::new(directory.path().to_owned());
    let (watch, collected) = (Watch::default(), CollectedMessages::default());
    let recording = |name: &str| {
        let subject = Subject {
            name: name.to_owned(),
            kind: TapeKind::Conversation,
            gateway: None,
            transport: Transport::Stdio,
            program: None,
            workspace: None,
            session: None,
            conversation: None,
            origin: Origin::default(),
        };
        let redactor = Arc::new(Redactor::standard());
        Recording::new(home.clone(), subject, RotationLimits::default(), redactor).with_watch(&watch)
    };
    let (mut one, mut two) = (recording("one"), recording("two"));
    let say = |on: &mut Recording, via, kind, text: &str| {
        let item = Item::new(kind, Direction::ClientToServer, Terminator::Lf, text.as_bytes());
        on.record(clock::now(), std::iter::once(Item { via, ..item })).unwrap();
    };
    say(&mut one, None, EntryKind::Message, "nobody watches yet");
    assert!(watch.begin(Box::new(collected.clone())));
    assert!(!watch.begin(Box::new(collected.clone())), "a second observer must be refused");
    say(&mut one, None, EntryKind::Message, &format!(r#"{{"params":{{"password":"{CANARY}","n":1}}}}"#));
    say(&mut two, Some(LEG), EntryKind::Message, "{}");
    say(&mut one, None, EntryKind::Note, "{}");
    let seen = collected.0.lock().unwrap().clone();
    assert_eq!(seen.len(), 2, "messages only: {seen:?}");
    assert!(seen[0].0 != seen[1].0 && seen[1].1.as_deref() == Some(LEG.backend), "{seen:?}");
    assert!(seen[0].2.contains("\"n\":1") && !seen[0].2.contains(CANARY), "{seen:?}");
}
