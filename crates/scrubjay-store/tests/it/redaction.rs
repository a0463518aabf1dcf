//! What is secret is in no file of the data directory, whichever way it came in.

use std::sync::Arc;

use scrubjay_core::entry::{Direction, End, EntryKind, Terminator, Transport};
use scrubjay_core::redact::Redactor;
use scrubjay_store::clock;
use scrubjay_store::home::Home;
use scrubjay_store::recording::{Item, Limits, RecordError, Recording, Subject};
use scrubjay_store::tape::header::Origin;

use crate::fixture::scratch;

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
        transport: Transport::Stdio,
        program: Some(format!("https://user:{CANARY}@example.com/")),
        workspace: None,
        session: None,
        origin: Origin { host_program: Some(format!("host --password={CANARY}")), ..Origin::default() },
    };
    let limits = Limits { tape_bytes_max: 2000, ..Limits::default() };
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
