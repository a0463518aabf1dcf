//! What the ledger promises, the same on both databases.

use scrubjay_store::ledger::event::{self, EventKind, EventPage, NewEvent};
use scrubjay_store::ledger::plan::{self, StepStatus};
use scrubjay_store::ledger::session::{self, SessionError, SessionStart, StartOutcome};
use scrubjay_store::ledger::{CommitDurability, Ledger, LedgerConnection, LedgerError, blob};
use serde_json::json;
use sqlx::Executor;

use crate::database::{Database, caller, on_both, redactor};

on_both![
    a_session_from_its_first_call_to_its_resumption,
    an_uncommitted_mutation_has_no_effect,
    writers_take_turns,
    contents_are_read_back_as_stored,
    a_newer_schema_is_refused,
    no_secret_reaches_the_ledger,
];

async fn kinds(ledger: &Ledger, session: &str) -> Vec<EventKind> {
    let mut read = ledger.read().await.unwrap();
    let page = EventPage { session, after: 0, limit: 1000 };
    event::page(&mut read, page).await.unwrap().iter().map(|e| e.kind).collect()
}

/// A whole session: begun by its first call, named, planned, worked on, ended, resumed.
async fn a_session_from_its_first_call_to_its_resumption(database: Database) {
    let ledger = database.open().await;
    let caller = caller("host-1");

    let mut write = ledger.write(CommitDurability::Power).await.unwrap();
    let implicit = session::current(&mut write, &caller, None).await.unwrap();
    write.commit().await.unwrap();

    let mut write = ledger.write(CommitDurability::Power).await.unwrap();
    let beginning = SessionStart { title: Some("Count birds".to_owned()), ..SessionStart::default() };
    let (mut session, started) = session::start(&mut write, &caller, beginning).await.unwrap();
    assert_eq!((started, &session.id), (StartOutcome::Named, &implicit.id));
    let texts = ["look", "count", "tell"].map(str::to_owned);
    let steps = plan::set(&mut write, &caller, &mut session, &texts).await.unwrap();
    assert_eq!(steps.iter().map(|s| s.index).collect::<Vec<_>>(), [0, 1, 2]);
    plan::mark(&mut write, &caller, &mut session, &steps[0], StepStatus::Done).await.unwrap();
    assert_eq!(session.current_step, Some(steps[1].id));
    let note = NewEvent::new(EventKind::Deliverable, "seven jays").with(json!({ "title": "note" }));
    event::append(&mut write, &session, &caller, note).await.unwrap();
    plan::set(&mut write, &caller, &mut session, &["rest".to_owned()]).await.unwrap();
    session::end(&mut write, &caller, session, Some("done")).await.unwrap();
    write.commit().await.unwrap();

    assert_eq!(
        kinds(&ledger, &implicit.id).await,
        [
            EventKind::SessionStarted,
            EventKind::SessionNamed,
            EventKind::PlanStep,
            EventKind::PlanStep,
            EventKind::PlanStep,
            EventKind::PlanStepStatus,
            EventKind::Deliverable,
            EventKind::PlanStep,
            EventKind::SessionClosed,
        ]
    );
    let mut read = ledger.read().await.unwrap();
    let statuses: Vec<_> =
        plan::steps(&mut read, &implicit.id).await.unwrap().iter().map(|s| (s.plan, s.status)).collect();
    assert_eq!(
        statuses,
        [(1, StepStatus::Done), (1, StepStatus::Left), (1, StepStatus::Replaced), (2, StepStatus::Left)],
        "nobody called the second step done, nor the last"
    );
    drop(read);

    let mut write = ledger.write(CommitDurability::Power).await.unwrap();
    assert!(
        session::of_caller(&mut write, &caller).await.unwrap().is_none(),
        "an ended session has no callers"
    );
    let beginning = SessionStart { id: Some(implicit.id.clone()), ..SessionStart::default() };
    let (resumed, started) = session::start(&mut write, &caller, beginning).await.unwrap();
    assert_eq!(
        (started, resumed.ended_ns, resumed.title.as_deref()),
        (StartOutcome::Resumed, None, Some("Count birds"))
    );
    let unknown = session::current(&mut write, &caller, Some("nobody")).await;
    assert!(matches!(unknown, Err(SessionError::NotFound(id)) if id == "nobody"));
    write.commit().await.unwrap();
    let all = session::list(&mut ledger.read().await.unwrap(), Some("birds"), None, 10).await.unwrap();
    assert_eq!(all.len(), 1);
}

/// A mutation that is not committed has no effect.
async fn an_uncommitted_mutation_has_no_effect(database: Database) {
    let ledger = database.open().await;
    let mut write = ledger.write(CommitDurability::Power).await.unwrap();
    session::current(&mut write, &caller("a"), None).await.unwrap();
    drop(write);
    let all = session::list(&mut ledger.read().await.unwrap(), None, None, 10).await.unwrap();
    assert_eq!(all, []);
}

/// Concurrent writers do not make each other fail, and events are in the order of commits.
async fn writers_take_turns(database: Database) {
    let first = database.open().await;
    let mut write = first.write(CommitDurability::Power).await.unwrap();
    let session = session::current(&mut write, &caller("all"), None).await.unwrap();
    write.commit().await.unwrap();
    let writers: Vec<_> = (0..8)
        .map(|n| {
            let (storage, session) = (database.storage.clone(), session.clone());
            tokio::spawn(async move {
                let ledger = Ledger::open(&storage, redactor()).await.unwrap();
                let mut last = 0;
                for i in 0..20 {
                    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
                    let event = NewEvent::new(EventKind::Deliverable, format!("{n}/{i}"));
                    let id = event::append(&mut write, &session, &caller("all"), event).await.unwrap();
                    write.commit().await.unwrap();
                    assert!(id > last);
                    last = id;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(kinds(&first, &session.id).await.len(), 161);
}

async fn contents_are_read_back_as_stored(database: Database) {
    let ledger = database.open().await;
    let mut write = ledger.write(CommitDurability::Power).await.unwrap();
    let bytes = [&[0, 255, 10][..], &[7; 100_000]].concat();
    for content in [&b""[..], &bytes, &bytes] {
        let hash = blob::put(&mut write, content).await.unwrap();
        assert_eq!(blob::get(&mut write, &hash).await.unwrap(), content);
    }
    let missing = blob::get(&mut write, &[7; 32]).await;
    assert!(matches!(missing, Err(LedgerError::Damaged(_))));
}

async fn a_newer_schema_is_refused(database: Database) {
    let ledger = database.open().await;
    let mut write = ledger.write(CommitDurability::Power).await.unwrap();
    write.conn().execute("INSERT INTO schema_version (version) VALUES (999)").await.unwrap();
    write.commit().await.unwrap();
    ledger.close().await;
    let refused = Ledger::open(&database.storage, redactor()).await.unwrap_err();
    assert!(refused.to_string().contains("schema 999") && refused.hint().contains("newer"), "{refused}");
}

/// Secrets in any text of an agent do not reach the ledger.
async fn no_secret_reaches_the_ledger(database: Database) {
    const SECRET: &str = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let ledger = database.open().await;
    let mut write = ledger.write(CommitDurability::Power).await.unwrap();
    let text = Some(format!("use {SECRET}"));
    let beginning = SessionStart { title: text.clone(), user_message: text, ..SessionStart::default() };
    let (mut session, _) = session::start(&mut write, &caller("a"), beginning).await.unwrap();
    plan::set(&mut write, &caller("a"), &mut session, &[format!("send {SECRET}")]).await.unwrap();
    let event = NewEvent::new(EventKind::Deliverable, SECRET)
        .about(SECRET)
        .with(json!({ "password": "hunter2", "x": SECRET }));
    event::append(&mut write, &session, &caller("a"), event).await.unwrap();
    write.commit().await.unwrap();
    let mut read = ledger.read().await.unwrap();
    let all = format!(
        "{:?} {:?} {:?}",
        event::page(&mut read, EventPage { session: &session.id, after: 0, limit: 100 }).await.unwrap(),
        session::list(&mut read, None, None, 10).await.unwrap(),
        plan::steps(&mut read, &session.id).await.unwrap()
    );
    assert!(all.contains("send ") && !all.contains("abcdefghij") && !all.contains("hunter2"), "{all}");
}

/// Writes about this number of bytes in one commit.
async fn fill(ledger: &Ledger, bytes: usize) {
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    write.conn().execute("CREATE TABLE IF NOT EXISTS filler (content BLOB)").await.unwrap();
    let insert = format!("INSERT INTO filler VALUES (zeroblob({bytes}))");
    write.conn().execute(sqlx::AssertSqlSafe(insert)).await.unwrap();
    write.commit().await.unwrap();
}

fn log_bytes(database: &Database) -> u64 {
    std::fs::metadata(database.home.path().join("data/ledger.db-wal")).map_or(0, |facts| facts.len())
}

/// One process keeps the ledger open, while others open it, write a little and end.
#[tokio::test]
async fn the_log_stays_short_if_many_processes_write_a_little() {
    let database = Database::sqlite();
    let stays = database.open().await;
    fill(&stays, 1000).await;
    for _ in 0..200 {
        let comes = database.open().await;
        fill(&comes, 300_000).await;
        comes.close().await;
    }
    // 16 MB of pages, and what the last process wrote.
    assert!(log_bytes(&database) < 20 << 20, "{}", log_bytes(&database));
    stays.close().await;
}

#[tokio::test]
async fn the_log_stays_short_if_one_process_writes_often() {
    let database = Database::sqlite();
    let ledger = database.open().await;
    for _ in 0..200 {
        fill(&ledger, 300_000).await;
    }
    // 16 MB of pages, and 16 commits more.
    assert!(log_bytes(&database) < 26 << 20, "{}", log_bytes(&database));
    ledger.close().await;
}
