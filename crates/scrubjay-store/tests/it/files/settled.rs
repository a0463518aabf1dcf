//! Changes with an intent and no outcome are settled by looking at the file.

use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use scrubjay_store::files::{Action, FILE_BYTES_MAX, FileError};
use scrubjay_store::ledger::event::{self, EventKind, NewEvent};
use scrubjay_store::ledger::revision::{self, Revision, RevisionSource, RevisionState};
use scrubjay_store::ledger::{CommitDurability, blob, session};

use super::{TestWorkspace, text};
use crate::database::{Database, caller, on_both};

on_both![a_change_is_settled_by_what_is_there_now, an_event_reports_what_was_found];

/// Records the intent to edit a file, and no outcome, as a process does that is killed in between.
async fn record_intent(workspace: &TestWorkspace, path: &str, before: &str, after: &str) {
    let mut write = workspace.ledger.write(CommitDurability::Power).await.unwrap();
    let agent = caller("agent");
    let session = session::current(&mut write, &agent, None).await.unwrap();
    let event = NewEvent::new(EventKind::FileEdit, format!("edit {path}")).about(path);
    let event_id = event::append(&mut write, &session, &agent, event).await.unwrap();
    let meant = Revision {
        id: 0,
        workspace: workspace.files.root(),
        path: path.to_owned(),
        event_id,
        source: RevisionSource::Enforced,
        state: RevisionState::Pending,
        before: Some(blob::put(&mut write, before.as_bytes()).await.unwrap()),
        after: Some(blob::put(&mut write, after.as_bytes()).await.unwrap()),
        size: after.len() as i64,
        lines: 1,
        added: 1,
        removed: 1,
        mode: None,
    };
    revision::insert(&mut write, &meant).await.unwrap();
    write.commit().await.unwrap();
}

async fn a_change_is_settled_by_what_is_there_now(database: Database) {
    let workspace = TestWorkspace::new(database).await;
    let cases = [
        ("after", RevisionState::Done, 1),
        ("before", RevisionState::Failed, 1),
        ("other", RevisionState::Changed, 2),
        ("nothing", RevisionState::Changed, 1),
        ("directory", RevisionState::Changed, 1),
        ("link", RevisionState::Changed, 1),
        ("pipe", RevisionState::Changed, 1),
        ("large", RevisionState::Changed, 1),
        ("file/below", RevisionState::Changed, 1),
    ];
    for (path, ..) in cases {
        record_intent(&workspace, path, "before", "after").await;
    }
    for same in ["after", "before", "other", "file"] {
        std::fs::write(workspace.root.join(same), same).unwrap();
    }
    std::fs::create_dir(workspace.root.join("directory")).unwrap();
    symlink("after", workspace.root.join("link")).unwrap();
    mknodat(CWD, workspace.root.join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    std::fs::File::create(workspace.root.join("large")).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();

    assert_eq!(workspace.files.settle(&caller("next")).await.unwrap(), cases.len());
    for (path, state, revisions) in cases {
        let mut read = workspace.ledger.read().await.unwrap();
        let evolution = revision::page(&mut read, &workspace.files.root(), path, 0, 10).await.unwrap();
        assert_eq!((evolution[0].state, evolution.len()), (state, revisions), "{path}");
    }
    // A change of a path that cannot be settled is refused, and recorded like any refusal.
    record_intent(&workspace, "pipe", "before", "after").await;
    let refused = workspace.change("pipe", Action::Edit(text("x"))).await;
    assert!(
        matches!(refused, Err(FileError::Refused { code: "not_a_regular_file", event_id: Some(_), .. })),
        "{refused:?}"
    );
    workspace.change("after", Action::Edit(text("later"))).await.unwrap();
}

/// An event in the session of each change says what was found, at the step in which the change was intended.
async fn an_event_reports_what_was_found(database: Database) {
    let workspace = TestWorkspace::new(database).await;
    for path in ["after", "before", "other", "gone", "directory"] {
        record_intent(&workspace, path, "before", "after").await;
    }
    for same in ["after", "before", "other"] {
        std::fs::write(workspace.root.join(same), same).unwrap();
    }
    std::fs::create_dir(workspace.root.join("directory")).unwrap();
    workspace.files.settle(&caller("next")).await.unwrap();
    let session = {
        let mut write = workspace.ledger.write(CommitDurability::Power).await.unwrap();
        session::current(&mut write, &caller("agent"), None).await.unwrap()
    };
    let events = workspace.events(&session.id).await;
    let found: Vec<_> = events
        .iter()
        .filter(|event| event.kind == EventKind::FileSettled)
        .map(|event| (event.summary.as_str(), event.details["outcome"].as_str().unwrap()))
        .collect();
    let expected = [
        ("settled after a crash: edit after: it was made", "done"),
        ("settled after a crash: edit before: it was not made", "failed"),
        ("settled after a crash: edit directory: something that is not a readable file is there", "changed"),
        ("settled after a crash: edit gone: the file is gone", "changed"),
        ("settled after a crash: edit other: the file was changed by someone else", "changed"),
    ];
    assert_eq!(found, expected);
    let meant = events.iter().find(|event| event.subject.as_deref() == Some("after")).unwrap();
    let settled = events.iter().find(|event| event.kind == EventKind::FileSettled).unwrap();
    assert_eq!(settled.details["settles"], meant.id);
    assert_eq!(workspace.files.settle(&caller("next")).await.unwrap(), 0, "once");
}
