//! Faults that can be had without a failing disk: a database that is full, a server that is gone, a sync whose failure
//! the recording is told of.

use std::io;

use scrubjay_core::entry::{Direction, EntryKind, Gap, Terminator};
use scrubjay_store::clock;
use scrubjay_store::home::Home;
use scrubjay_store::index::Index;
use scrubjay_store::ledger::session;
use scrubjay_store::ledger::{Conn, Ledger, LedgerError, Storage, Survives};
use scrubjay_store::recording::{Item, Recording};
use scrubjay_store::tape::reader::Tape;
use scrubjay_store::tape::verify::verify;
use sqlx::{Connection, Executor};

use crate::database::{Database, caller, on_both};
use crate::failure::{end, recording, say};
use crate::fixture::{Owned, read, scratch};

/// More than a pool has connections, so that each of them fails at least once.
const ROUNDS: u32 = 9;

on_both![failed_statement, failed_commit];

/// Lets the database end a transaction under way, as a full disk or a server that goes down does.
async fn break_off(write: &mut scrubjay_store::ledger::Write, storage: &Storage) {
    let failure = match storage {
        Storage::File(_) => {
            // As large as it is, and no larger: SQLite takes the whole transaction back then.
            write
                .conn()
                .execute("CREATE TABLE large (content BLOB); PRAGMA max_page_count = 1")
                .await
                .unwrap();
            write.conn().execute("INSERT INTO large VALUES (zeroblob(9000000))").await
        }
        Storage::Postgres(_) => write.conn().execute("SELECT pg_terminate_backend(pg_backend_pid())").await,
    };
    assert!(failure.is_err(), "it went on");
}

async fn is_there(ledger: &Ledger, session: &str) -> bool {
    let mut read = ledger.read().await.unwrap();
    session::get(&mut read, session).await.unwrap().is_some()
}

/// What is written next is there.
async fn goes_on(ledger: &Ledger, name: &str) {
    let mut write = ledger.write(Survives::Power).await.unwrap();
    let session = session::current(&mut write, &caller(name), None).await.unwrap();
    write.commit().await.unwrap();
    assert!(is_there(ledger, &session.id).await, "{name}");
}

/// A transaction whose statement failed, and with it its connection: the next one has another.
async fn failed_statement(database: Database) {
    let ledger = database.open().await;
    for round in 0..ROUNDS {
        let mut write = ledger.write(Survives::Power).await.unwrap();
        break_off(&mut write, &database.storage).await;
        drop(write);
        goes_on(&ledger, &format!("round-{round}")).await;
    }
}

/// One that is committed all the same: that fails, nothing of it stays, and the next one works.
async fn failed_commit(database: Database) {
    let ledger = database.open().await;
    for round in 0..ROUNDS {
        let mut write = ledger.write(Survives::Power).await.unwrap();
        let never = session::current(&mut write, &caller("never"), None).await.unwrap();
        break_off(&mut write, &database.storage).await;
        let failure = write.commit().await.unwrap_err();
        assert!(matches!(failure, LedgerError::Database(_) | LedgerError::Uncertain(_)), "{failure}");
        goes_on(&ledger, &format!("round-{round}")).await;
        assert!(!is_there(&ledger, &never.id).await);
    }
}

/// The server ends every connection at once, those in use too, again and again.
#[tokio::test]
async fn a_server_that_drops_all_its_connections_is_reached_again() {
    let Some(database) = Database::postgres().await else { return };
    let Storage::Postgres(url) = &database.storage else { return };
    let ledger = database.open().await;
    for round in 0..ROUNDS {
        let reads = [ledger.read().await.unwrap(), ledger.read().await.unwrap()];
        let mut write = ledger.write(Survives::Power).await.unwrap();
        let never = session::current(&mut write, &caller("never"), None).await.unwrap();
        let mut other = sqlx::AnyConnection::connect(url).await.unwrap();
        other
            .execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
            .await
            .unwrap();
        other.close().await.unwrap();
        let failure = write.commit().await.unwrap_err();
        assert!(matches!(failure, LedgerError::Database(_) | LedgerError::Uncertain(_)), "{failure}");
        drop(reads);
        goes_on(&ledger, &format!("round-{round}")).await;
        assert!(!is_there(&ledger, &never.id).await);
    }
}

pub(crate) fn failed() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(5))
}

/// All entries of all tapes, in the order of their parts.
fn taped(home: &Home) -> Vec<Vec<Owned>> {
    home.seal_abandoned().unwrap();
    let mut tapes: Vec<Tape> = home.list().unwrap().iter().map(|file| home.open(file).unwrap()).collect();
    tapes.sort_by_key(|tape| tape.header().unwrap().part);
    assert!(tapes.iter().all(|tape| verify(tape).unwrap().is_sound()));
    tapes.iter().map(|tape| read(tape).into_iter().map(|(_, entry)| entry).collect()).collect()
}

fn said(entries: &[Owned]) -> Vec<String> {
    let messages = entries.iter().filter(|entry| entry.kind == EntryKind::Message);
    messages.map(|entry| String::from_utf8(entry.payload.clone()).unwrap()).collect()
}

pub(crate) fn gaps(entries: &[Owned]) -> Vec<(u64, bool)> {
    let gaps = entries.iter().filter(|entry| entry.kind == EntryKind::Gap);
    gaps.map(|entry| serde_json::from_slice(&entry.payload).unwrap())
        .map(|gap: Gap| (gap.messages, gap.forwarded))
        .collect()
}

pub(crate) fn complain(recording: &mut Recording, text: &str) {
    let item = Item::new(EntryKind::Stderr, Direction::ServerToClient, Terminator::Lf, text.as_bytes());
    recording.record(clock::now(), std::iter::once(item)).unwrap();
}

/// Two wait for the disk, one sync is for both, and it fails: neither is on the tape, and both hear of it.
#[test]
fn a_sync_that_fails_takes_back_what_all_wait_for() {
    let scratch = scratch();
    let home = Home::new(scratch.path().join("data"));
    let mut recording = recording(&home, 1 << 20);
    recording.survive_power();
    say(&mut recording, &["kept"]).unwrap();
    recording.sync().unwrap();
    complain(&mut recording, "nobody waits for this");
    say(&mut recording, &["refused one"]).unwrap();
    let first = recording.mark();
    let sync = recording.begin_sync(first).unwrap().expect("something is to be synced");
    say(&mut recording, &["refused two", "refused three"]).unwrap();
    let second = recording.mark();
    let error = recording.end_sync(sync.extent(), failed()).unwrap_err();
    recording.note_gap(1, 11, false, &error);
    let error = recording.begin_sync(second).unwrap_err();
    assert!(error.to_string().contains("Input/output error"), "{error}");
    recording.note_gap(2, 24, false, &error);
    say(&mut recording, &["goes on"]).unwrap();
    recording.sync().unwrap();
    recording.finish(&end()).unwrap().unwrap();
    let tapes = taped(&home);
    assert_eq!(tapes.iter().map(|tape| said(tape)).collect::<Vec<_>>(), [["kept"], ["goes on"]]);
    assert_eq!(gaps(&tapes[1]), [(1, true), (3, false)], "what was passed on is told apart");
}

/// What tells of a gap is not on the disk either: it is told again.
#[test]
fn a_gap_that_was_not_synced_is_told_again() {
    let scratch = scratch();
    let home = Home::new(scratch.path().join("data"));
    let mut recording = recording(&home, 1 << 20);
    recording.survive_power();
    for _ in 0..3 {
        say(&mut recording, &["refused"]).unwrap();
        let sync = recording.begin_sync(recording.mark()).unwrap().unwrap();
        let error = recording.end_sync(sync.extent(), failed()).unwrap_err();
        recording.note_gap(1, 7, false, &error);
        assert_eq!(home.list().unwrap().len(), 0, "nothing is left of a tape on which nothing is");
    }
    recording.finish(&end()).unwrap().unwrap();
    let tapes = taped(&home);
    assert_eq!((tapes.len(), gaps(&tapes[0])), (1, vec![(3, false)]));
}

/// One sync serves all who recorded before it began, and who come later wait for another.
#[test]
fn one_sync_is_for_all_that_came_before() {
    let scratch = scratch();
    let home = Home::new(scratch.path().join("data"));
    let mut recording = recording(&home, 1 << 20);
    recording.survive_power();
    say(&mut recording, &["one"]).unwrap();
    let one = recording.mark();
    say(&mut recording, &["two"]).unwrap();
    let two = recording.mark();
    let sync = recording.begin_sync(one).unwrap().unwrap();
    say(&mut recording, &["three"]).unwrap();
    recording.end_sync(sync.extent(), sync.run()).unwrap();
    assert!(recording.begin_sync(two).unwrap().is_none());
    assert!(recording.begin_sync(recording.mark()).unwrap().is_some());
}

/// A tape that is full while a sync is under way grows until it is known how that went.
#[test]
fn a_tape_is_not_left_while_it_is_synced() {
    let scratch = scratch();
    let home = Home::new(scratch.path().join("data"));
    let mut recording = recording(&home, 200);
    recording.survive_power();
    say(&mut recording, &["kept"]).unwrap();
    recording.sync().unwrap();
    say(&mut recording, &["refused, and long enough for the tape to be full"]).unwrap();
    let sync = recording.begin_sync(recording.mark()).unwrap().unwrap();
    say(&mut recording, &["refused with it"]).unwrap();
    recording.end_sync(sync.extent(), failed()).unwrap_err();
    say(&mut recording, &["next"]).unwrap();
    recording.sync().unwrap();
    recording.finish(&end()).unwrap().unwrap();
    let said: Vec<String> = taped(&home).iter().flat_map(|tape| said(tape)).collect();
    assert_eq!(said.iter().filter(|text| text.starts_with("refused")).count(), 0, "{said:?}");
    assert!(said.contains(&"kept".to_owned()) && said.contains(&"next".to_owned()), "{said:?}");
}

/// An index that has read what was taken back forgets it.
#[tokio::test]
async fn the_index_forgets_what_was_taken_back() {
    let scratch = scratch();
    let home = Home::new(scratch.path().join("data"));
    let storage = Storage::File(home.root().join("ledger.db"));
    let mut recording = recording(&home, 1 << 20);
    recording.survive_power();
    let call = |id: u32| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t{id}"}}}}"#)
    };
    say(&mut recording, &[&call(1)]).unwrap();
    recording.sync().unwrap();
    say(&mut recording, &[&call(2)]).unwrap();
    let sync = recording.begin_sync(recording.mark()).unwrap().unwrap();
    let index = Index::open(&home, &storage).await.unwrap();
    index.catch_up(|_| ()).await.unwrap();
    let found = async |index: &Index, tool: &str| {
        let query =
            scrubjay_core::query::parse(&format!("tool:{tool}"), 0, &jiff::tz::TimeZone::UTC).unwrap();
        index.search(&query).await.unwrap().hits.len()
    };
    assert_eq!((found(&index, "t1").await, found(&index, "t2").await), (1, 1));
    recording.end_sync(sync.extent(), failed()).unwrap_err();
    say(&mut recording, &[&call(3)]).unwrap();
    recording.sync().unwrap();
    index.catch_up(|_| ()).await.unwrap();
    assert_eq!((found(&index, "t1").await, found(&index, "t2").await, found(&index, "t3").await), (1, 0, 1));
    recording.finish(&end()).unwrap();
    index.catch_up(|_| ()).await.unwrap();
    assert_eq!((found(&index, "t1").await, found(&index, "t2").await, found(&index, "t3").await), (1, 0, 1));
}
