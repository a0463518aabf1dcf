//! Faults that need no failing disk: a database that is full, a server that is gone, a sync whose failure is reported
//! to the recording.

use std::io;

use scrubjay_store::index::Index;
use scrubjay_store::ledger::session;
use scrubjay_store::ledger::{CommitDurability, Ledger, LedgerConnection, LedgerError, Storage};
use scrubjay_tape::home::Home;
use sqlx::{Connection, Executor};

use crate::database::{Database, caller, on_both};
use crate::fixture::{end, recording, say, scratch};

/// More than a pool has connections, so that each connection fails at least once.
const ROUNDS: u32 = 9;

on_both![failed_statement, failed_commit];

/// Makes the database end an open transaction, as a full disk or a server that stops does.
async fn break_off(write: &mut scrubjay_store::ledger::Write, storage: &Storage) {
    let failure = match storage {
        Storage::File(_) => {
            // The database may not grow any more: then SQLite rolls the whole transaction back.
            write
                .conn()
                .execute("CREATE TABLE large (content BLOB); PRAGMA max_page_count = 1")
                .await
                .unwrap();
            write.conn().execute("INSERT INTO large VALUES (zeroblob(9000000))").await
        }
        Storage::Postgres(_) => write.conn().execute("SELECT pg_terminate_backend(pg_backend_pid())").await,
    };
    assert!(failure.is_err(), "the statement must fail");
}

async fn is_there(ledger: &Ledger, session: &str) -> bool {
    let mut read = ledger.read().await.unwrap();
    session::get(&mut read, session).await.unwrap().is_some()
}

/// Checks that the next write succeeds.
async fn goes_on(ledger: &Ledger, name: &str) {
    let mut write = ledger.write(CommitDurability::Power).await.unwrap();
    let session = session::current(&mut write, &caller(name), None).await.unwrap();
    write.commit().await.unwrap();
    assert!(is_there(ledger, &session.id).await, "{name}");
}

/// A statement fails and with it the connection: the next transaction has another connection.
async fn failed_statement(database: Database) {
    let ledger = database.open().await;
    for round in 0..ROUNDS {
        let mut write = ledger.write(CommitDurability::Power).await.unwrap();
        break_off(&mut write, &database.storage).await;
        drop(write);
        goes_on(&ledger, &format!("round-{round}")).await;
    }
}

/// If the transaction is committed nevertheless, the commit fails, nothing of it is stored, and the next one works.
async fn failed_commit(database: Database) {
    let ledger = database.open().await;
    for round in 0..ROUNDS {
        let mut write = ledger.write(CommitDurability::Power).await.unwrap();
        let never = session::current(&mut write, &caller("never"), None).await.unwrap();
        break_off(&mut write, &database.storage).await;
        let failure = write.commit().await.unwrap_err();
        assert!(matches!(failure, LedgerError::Database(_) | LedgerError::Uncertain(_)), "{failure}");
        goes_on(&ledger, &format!("round-{round}")).await;
        assert!(!is_there(&ledger, &never.id).await);
    }
}

/// The server ends all connections at once, used and unused, several times.
#[tokio::test]
#[ignore = "needs postgres"]
async fn a_server_that_drops_all_its_connections_is_reached_again() {
    let database = Database::postgres().await;
    let Storage::Postgres(url) = &database.storage else { unreachable!() };
    let ledger = database.open().await;
    for round in 0..ROUNDS {
        let reads = [ledger.read().await.unwrap(), ledger.read().await.unwrap()];
        let mut write = ledger.write(CommitDurability::Power).await.unwrap();
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

/// The index forgets entries that it has read and the tape's writer has removed.
#[tokio::test]
async fn the_index_forgets_entries_that_the_writer_removed() {
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
    let sync = recording.begin_sync(recording.sync_point()).unwrap().unwrap();
    let index = Index::open(&home, &storage).await.unwrap();
    index.catch_up(|_| ()).await.unwrap();
    let found = async |index: &Index, tool: &str| {
        let query =
            scrubjay_core::query::parse(&format!("tool:{tool}"), 0, &jiff::tz::TimeZone::UTC).unwrap();
        index.search(&query).await.unwrap().hits.len()
    };
    assert_eq!((found(&index, "t1").await, found(&index, "t2").await), (1, 1));
    recording.end_sync(sync.extent(), Err(io::ErrorKind::Other.into())).unwrap_err();
    say(&mut recording, &[&call(3)]).unwrap();
    recording.sync().unwrap();
    index.catch_up(|_| ()).await.unwrap();
    assert_eq!((found(&index, "t1").await, found(&index, "t2").await, found(&index, "t3").await), (1, 0, 1));
    recording.finish(&end()).unwrap();
    index.catch_up(|_| ()).await.unwrap();
    assert_eq!((found(&index, "t1").await, found(&index, "t2").await, found(&index, "t3").await), (1, 0, 1));
}
