//! Which session a call belongs to, and when a session ends, the same on both databases.

use std::sync::{Arc, Mutex};

use scrubjay_store::ledger::event::{self, EventKind, EventPage};
use scrubjay_store::ledger::plan::{self, StepStatus};
use scrubjay_store::ledger::session::{self, Caller, Session, SessionError, SessionStart, StartOutcome};
use scrubjay_store::ledger::{CommitDurability, Ledger};
use scrubjay_store::views;
use scrubjay_tape::claim::ClaimHolder;

use crate::database::{Database, caller, on_both};

on_both![
    connections_of_one_host_share_a_session_until_they_name_one,
    different_agents_have_different_sessions,
    an_ended_session_refuses_work,
    a_session_ends_with_its_last_connection,
    sessions_of_gone_processes_are_ended,
    a_moved_connection_is_announced,
    steps_end_only_as_the_agent_says,
    a_session_is_found_by_any_of_its_names
];

/// A connection of a host conversation that only the host's process identifies.
fn child(connection: &str, agent: &str) -> Caller {
    Caller {
        conversation: "parent-process".to_owned(),
        told_by: "host_process".to_owned(),
        agent: Some(agent.to_owned()),
        process: Some(connection.to_owned()),
        ..caller(connection)
    }
}

fn titled(title: &str) -> SessionStart {
    SessionStart { title: Some(title.to_owned()), ..SessionStart::default() }
}

async fn work(ledger: &Ledger, caller: &Caller) -> Session {
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    let session = session::current(&mut write, caller, None).await.unwrap();
    write.commit().await.unwrap();
    session
}

async fn start(ledger: &Ledger, caller: &Caller, beginning: SessionStart) -> (Session, StartOutcome) {
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    let started = session::start(&mut write, caller, beginning).await.unwrap();
    write.commit().await.unwrap();
    started
}

async fn leave(ledger: &Ledger, connection: &str) {
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    session::leave(&mut write, connection, "the host closed its stream").await.unwrap();
    write.commit().await.unwrap();
}

async fn get(ledger: &Ledger, id: &str) -> Session {
    session::get(&mut ledger.read().await.unwrap(), id).await.unwrap().unwrap()
}

async fn kinds(ledger: &Ledger, session: &str) -> Vec<EventKind> {
    let page = EventPage { session, after: 0, limit: 100 };
    let events = event::page(&mut ledger.read().await.unwrap(), page).await.unwrap();
    events.iter().map(|event| event.kind).collect()
}

/// Two connections of one host are in one session; once each names one, each has its own, and no other connection joins those.
async fn connections_of_one_host_share_a_session_until_they_name_one(database: Database) {
    let ledger = database.open().await;
    let (a, b) = (child("a", "agent"), child("b", "agent"));
    let shared = work(&ledger, &a).await;
    assert_eq!(shared.id, "parent-process", "the id that its tapes carry");
    assert_eq!(work(&ledger, &b).await.id, shared.id);

    let (of_a, started) = start(&ledger, &a, titled("A's work")).await;
    assert_eq!(started, StartOutcome::New, "another connection is in the session too: it is not A's to name");
    assert_eq!(work(&ledger, &b).await.id, shared.id);
    let (of_b, started) = start(&ledger, &b, titled("B's work")).await;
    assert_eq!((started, &of_b.id), (StartOutcome::Named, &shared.id), "B is alone in it by now");
    assert_ne!(of_a.id, of_b.id);
    assert_eq!(work(&ledger, &a).await.id, of_a.id);
    assert_eq!(work(&ledger, &b).await.id, of_b.id);
    let third = work(&ledger, &child("c", "agent")).await;
    assert!(third.id != of_a.id && third.id != of_b.id, "an unrelated caller must not join a named session");

    // If the host itself names the conversation, its connections stay together.
    let host = |connection| Caller { told_by: "host_session".to_owned(), ..child(connection, "agent") };
    let host = |connection| Caller { conversation: "chat".to_owned(), ..host(connection) };
    let (named, _) = start(&ledger, &host("d"), titled("one chat")).await;
    assert_eq!(work(&ledger, &host("e")).await.id, named.id);
}

/// Agents with different names are in different conversations, even with the same host process.
async fn different_agents_have_different_sessions(database: Database) {
    let ledger = database.open().await;
    let one = work(&ledger, &child("a", "planner")).await;
    let two = work(&ledger, &child("b", "coder")).await;
    assert_ne!(one.id, two.id);
}

/// A session that ended refuses work under its name, and its connection begins another one.
async fn an_ended_session_refuses_work(database: Database) {
    let ledger = database.open().await;
    let agent = caller("a");
    let first = work(&ledger, &agent).await;
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    session::end(&mut write, &agent, first.clone(), None).await.unwrap();
    let refused = session::current(&mut write, &agent, Some(&first.id)).await;
    assert!(matches!(refused, Err(SessionError::Ended(id)) if id == first.id));
    let person = Caller::command("scrubjay session rewind", "birds");
    assert!(
        session::current(&mut write, &person, Some(&first.id)).await.is_ok(),
        "a person's doing is noted"
    );
    write.commit().await.unwrap();
    assert_ne!(work(&ledger, &agent).await.id, first.id);

    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    for bad in ["", "two\nlines", "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB", &"x".repeat(101)] {
        let beginning = SessionStart { id: Some(bad.to_owned()), ..SessionStart::default() };
        let refused = session::start(&mut write, &agent, beginning).await;
        assert!(matches!(refused, Err(SessionError::BadId)), "{bad:?}");
    }
    drop(write);

    let again = SessionStart { id: Some(first.id.clone()), ..SessionStart::default() };
    let (resumed, started) = start(&ledger, &agent, again).await;
    assert_eq!((started, resumed.ended_ns), (StartOutcome::Resumed, None));
    assert_eq!(kinds(&ledger, &first.id).await.last(), Some(&EventKind::SessionResumed));
}

/// A session ends with its last connection. A conversation that its host names resumes it, and an event says so.
async fn a_session_ends_with_its_last_connection(database: Database) {
    let ledger = database.open().await;
    let (a, b) = (child("a", "agent"), child("b", "agent"));
    let session = work(&ledger, &a).await;
    work(&ledger, &b).await;
    leave(&ledger, "a").await;
    assert_eq!(get(&ledger, &session.id).await.ended_ns, None, "b is still there");
    leave(&ledger, "b").await;
    assert!(get(&ledger, &session.id).await.ended_ns.is_some());
    assert_eq!(kinds(&ledger, &session.id).await.last(), Some(&EventKind::SessionClosed));
    assert_ne!(
        work(&ledger, &child("c", "agent")).await.id,
        session.id,
        "a parent process alone names nothing"
    );
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    let named = session::current(&mut write, &caller("x"), Some(&session.id)).await.unwrap();
    assert_eq!(named.ended_ns, None, "a session that nobody ended must be resumed by its name");
    write.commit().await.unwrap();
    assert_eq!(kinds(&ledger, &session.id).await.last(), Some(&EventKind::SessionResumed));
    leave(&ledger, "x").await;
    assert!(get(&ledger, &session.id).await.ended_ns.is_some());

    let host = |connection: &str| Caller {
        conversation: "chat".to_owned(),
        told_by: "host_session".to_owned(),
        host_session: Some("2f0e-chat".to_owned()),
        ..caller(connection)
    };
    let chat = work(&ledger, &host("d")).await;
    leave(&ledger, "d").await;
    let back = work(&ledger, &host("e")).await;
    assert_eq!((back.id.as_str(), back.ended_ns), (chat.id.as_str(), None));
    assert_eq!(
        kinds(&ledger, &chat.id).await,
        [EventKind::SessionStarted, EventKind::SessionClosed, EventKind::SessionResumed]
    );
}

/// Sessions of a process that is gone are ended; those of one that is alive, or uses another data directory, stay open.
async fn sessions_of_gone_processes_are_ended(database: Database) {
    let ledger = database.open().await;
    let of = |name: &str| Caller { process: Some(name.to_owned()), ..caller(name) };
    let mut ids = Vec::new();
    for name in ["killed", "alive", "elsewhere"] {
        ids.push(work(&ledger, &of(name)).await.id);
    }
    // A session in a second project ends with the same connection.
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    scrubjay_store::ledger::project::ensure(&mut write, "other").await.unwrap();
    let scope = scrubjay_store::ledger::records::enter(&mut write, &of("killed"), Some("other"), None).await;
    ids.push(scope.unwrap().session.id);
    write.commit().await.unwrap();
    let holder = |process: &str| match process {
        "killed" => ClaimHolder::Gone,
        "alive" => ClaimHolder::Alive,
        _ => ClaimHolder::Unknown,
    };
    assert_eq!(session::end_departed(&ledger, holder).await.unwrap(), 2);
    let mut ended = Vec::new();
    for id in &ids {
        ended.push(get(&ledger, id).await.ended_ns.is_some());
    }
    assert_eq!(ended, [true, false, false, true]);
    assert_eq!(session::end_departed(&ledger, holder).await.unwrap(), 0);
}

/// The owner of the tapes is notified when a connection is in another session than the one on its tape.
async fn a_moved_connection_is_announced(database: Database) {
    let ledger = database.open().await;
    let notified: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let collected = notified.clone();
    ledger.on_move(move |connection, session| {
        collected.lock().unwrap().push((connection.to_owned(), session.to_owned()));
    });
    let agent = caller("a");
    work(&ledger, &agent).await;
    assert_eq!(*notified.lock().unwrap(), []);
    let chosen = SessionStart { id: Some("my-session".to_owned()), ..SessionStart::default() };
    start(&ledger, &agent, chosen.clone()).await;
    assert_eq!(*notified.lock().unwrap(), [("a".to_owned(), "my-session".to_owned())]);
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    session::start(&mut write, &caller("b"), chosen).await.unwrap();
    drop(write);
    assert_eq!(notified.lock().unwrap().len(), 1, "a session that was not committed is not reported");
}

/// Steps are done or failed only if an agent says so.
async fn steps_end_only_as_the_agent_says(database: Database) {
    let ledger = database.open().await;
    let agent = caller("a");
    let mut session = work(&ledger, &agent).await;
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    let texts = ["look", "count", "tell"].map(str::to_owned);
    let steps = plan::set(&mut write, &agent, &mut session, &texts).await.unwrap();
    plan::mark(&mut write, &agent, &mut session, &steps[0], StepStatus::Failed).await.unwrap();
    assert_eq!(
        session.current_step,
        Some(steps[0].id),
        "a failed step stays the current one, because the next work may repair it"
    );
    plan::mark(&mut write, &agent, &mut session, &steps[1], StepStatus::Current).await.unwrap();
    plan::mark(&mut write, &agent, &mut session, &steps[2], StepStatus::Current).await.unwrap();
    let now = plan::steps(&mut write, &session.id).await.unwrap();
    let statuses: Vec<StepStatus> = now.iter().map(|step| step.status).collect();
    assert_eq!(statuses, [StepStatus::Failed, StepStatus::Left, StepStatus::Current]);
    plan::mark(&mut write, &agent, &mut session, &steps[2], StepStatus::Done).await.unwrap();
    let ended = session::end(&mut write, &agent, session, None).await.unwrap();
    let now = plan::steps(&mut write, &ended.id).await.unwrap();
    assert_eq!(now[2].status, StepStatus::Done);
}

/// A session is found by its id, the beginning of it, the host's own id, and as the latest.
async fn a_session_is_found_by_any_of_its_names(database: Database) {
    let ledger = database.open().await;
    let host = Caller { host_session: Some("5d2e-host".to_owned()), ..caller("abcdefgh") };
    work(&ledger, &host).await;
    work(&ledger, &caller("zzz")).await;
    let mut read = ledger.read().await.unwrap();
    for name in ["abcdefgh", "abc", "5d2e-host"] {
        assert_eq!(views::find_session(&mut read, name).await.unwrap().id, "abcdefgh", "{name}");
    }
    assert_eq!(views::find_session(&mut read, "latest").await.unwrap().id, "zzz");
    assert!(views::find_session(&mut read, "nobody").await.is_err());
}
