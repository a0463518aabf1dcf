//! A workspace that moved is one workspace: its files have one history, and are rewound where they are now.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use scrubjay_store::files::moved::{MoveError, workspace_of};
use scrubjay_store::files::{Action, Change, FILE_BYTES_MAX, Files};
use scrubjay_store::ledger::event::{self, EventKind, EventPage};
use scrubjay_store::ledger::revision::RevisionSource;
use scrubjay_store::views::address::Side;
use scrubjay_store::views::content::StatePoint;
use scrubjay_store::views::evolution;
use scrubjay_store::workspace::Workspace;

use super::all;
use crate::database::{Database, caller, on_both};
use crate::files::{TestWorkspace, text};

on_both![
    a_file_has_one_history_across_a_move,
    only_a_moved_workspace_is_accepted,
    a_gone_workspace_is_recognised,
];

fn files(workspace: &TestWorkspace, root: &Path) -> Arc<Files> {
    let locks = workspace.root.parent().unwrap().join("locks");
    Arc::new(Files::new(workspace.ledger.clone(), Workspace::open(root).unwrap(), locks, FILE_BYTES_MAX))
}

fn edit(path: &str, content: &str) -> Change {
    let (action, path) = (Action::Edit(text(content)), path.to_owned());
    Change { session: None, path, action, expected: None, mode: None, rewinds_to: None }
}

/// Moves the workspace; returns its new root.
fn moved(workspace: &TestWorkspace, name: &str) -> PathBuf {
    let new = workspace.root.parent().unwrap().join(name);
    std::fs::rename(&workspace.root, &new).unwrap();
    new
}

async fn a_file_has_one_history_across_a_move(database: Database) {
    let workspace = TestWorkspace::new(database).await;
    let created = workspace.change("a.txt", Action::Create(text("one\n"))).await.unwrap();
    workspace.change("a.txt", Action::Edit(text("two\n"))).await.unwrap();
    let old = workspace.files.root();
    let new = moved(&workspace, "elsewhere");
    let there = files(&workspace, &new);
    let session = workspace.session().await;
    assert_eq!(there.adopt_move(&caller("cli"), &session.id).await.unwrap().as_deref(), Some(old.as_str()));
    assert_eq!(there.adopt_move(&caller("cli"), &session.id).await.unwrap(), None, "it is known by now");
    // The next change there continues the history: no file is first seen or changed by others.
    let made = there.change(&caller("agent"), edit("a.txt", "three\n")).await.unwrap();
    assert!(!made.observed);

    let evolution = workspace.evolution(&session, "a.txt", all()).await;
    let found: Vec<_> =
        evolution.revisions.iter().map(|r| (r.source, r.workspace.as_deref(), r.added, r.removed)).collect();
    let expected = [
        (RevisionSource::Enforced, Some(old.as_str()), 1, 0),
        (RevisionSource::Enforced, Some(old.as_str()), 1, 1),
        (RevisionSource::Enforced, None, 1, 1),
    ];
    assert_eq!(found, expected);
    assert_eq!((&evolution.workspace, &evolution.moved_from), (&there.root(), &vec![old.clone()]));
    let mut read = workspace.ledger.read().await.unwrap();
    let touched = evolution::files(&mut read, &session, None).await.unwrap();
    assert_eq!(
        touched.files.iter().map(|f| (f.path.as_str(), f.revisions)).collect::<Vec<_>>(),
        [("a.txt", 3)]
    );
    assert_eq!(workspace_of(&mut read, &session.id).await.unwrap(), Some(there.root()));
    let page = EventPage { session: &session.id, after: 0, limit: 100 };
    let events = event::page(&mut read, page).await.unwrap();
    assert_eq!(events.iter().filter(|e| e.kind == EventKind::WorkspaceMoved).count(), 1);
    drop(read);
    let first = created.revision.unwrap().id;
    assert_eq!(workspace.content("a.txt", StatePoint::Revision(first), Side::After).await.unwrap(), b"one\n");

    let plan = there.plan_rewind(&session.id, created.event_id, None).await.unwrap();
    there.rewind(&caller("cli"), &session.id, created.event_id, plan, false).await.unwrap();
    assert_eq!(std::fs::read_to_string(new.join("a.txt")).unwrap(), "one\n");

    // A directory that is created at the old path later is another workspace.
    std::fs::create_dir(&workspace.root).unwrap();
    std::fs::write(workspace.root.join("a.txt"), "someone else's\n").unwrap();
    let other = files(&workspace, &workspace.root);
    let theirs = other.change(&caller("other"), edit("a.txt", "theirs\n")).await.unwrap();
    assert_eq!(workspace.evolution(&session, "a.txt", all()).await.total, 4);
    assert!(theirs.revision.unwrap().id > first);

    // After two more moves it is still the same workspace.
    std::fs::remove_dir_all(&workspace.root).unwrap();
    std::fs::rename(&new, &workspace.root).unwrap();
    let back = files(&workspace, &workspace.root);
    back.adopt_move(&caller("cli"), &session.id).await.unwrap().unwrap();
    assert_eq!(
        workspace_of(&mut workspace.ledger.read().await.unwrap(), &session.id).await.unwrap(),
        Some(old)
    );
}

async fn only_a_moved_workspace_is_accepted(database: Database) {
    let workspace = TestWorkspace::new(database).await;
    let nothing = workspace.session().await;
    let empty = workspace.root.parent().unwrap().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let refused = files(&workspace, &empty).adopt_move(&caller("cli"), &nothing.id).await;
    assert!(matches!(refused, Err(MoveError::NothingRecorded(_))), "{refused:?}");
    workspace.change("a.txt", Action::Create(text("one\n"))).await.unwrap();
    workspace.change("b.txt", Action::Create(text("b\n"))).await.unwrap();
    workspace.change("a.txt", Action::Edit(text("two\n"))).await.unwrap();
    let refused = files(&workspace, &empty).adopt_move(&caller("cli"), &nothing.id).await;
    assert!(matches!(refused, Err(MoveError::StillThere { .. })), "a copy is no move: {refused:?}");
    let new = moved(&workspace, "elsewhere");
    std::fs::write(empty.join("a.txt"), "nobody's\n").unwrap();
    let refused = files(&workspace, &empty).adopt_move(&caller("cli"), &nothing.id).await.unwrap_err();
    assert!(refused.to_string().contains("none of 2 files"), "{refused}");
    // For a directory that the user named, an earlier state of a file is enough.
    std::fs::write(new.join("a.txt"), "one\n").unwrap();
    std::fs::remove_file(new.join("b.txt")).unwrap();
    files(&workspace, &new).adopt_move(&caller("cli"), &nothing.id).await.unwrap().unwrap();
}

async fn a_gone_workspace_is_recognised(database: Database) {
    let workspace = TestWorkspace::new(database).await;
    for n in 0..4 {
        workspace.change(&format!("{n}"), Action::Create(text(&format!("{n}\n")))).await.unwrap();
    }
    let other = |project: &str| scrubjay_store::ledger::session::Caller {
        project: project.to_owned(),
        ..caller("server")
    };
    let copy = workspace.root.parent().unwrap().join("copy");
    std::fs::create_dir(&copy).unwrap();
    for n in 0..2 {
        std::fs::write(copy.join(format!("{n}")), format!("{n}\n")).unwrap();
    }
    assert_eq!(
        files(&workspace, &copy).detect_move(&other("birds")).await.unwrap(),
        None,
        "it is still there"
    );
    let old = workspace.files.root();
    let new = moved(&workspace, "elsewhere");
    assert_eq!(
        files(&workspace, &copy).detect_move(&other("birds")).await.unwrap(),
        None,
        "half is not most"
    );
    assert_eq!(files(&workspace, &new).detect_move(&other("fish")).await.unwrap(), None, "another project's");
    assert_eq!(files(&workspace, &new).detect_move(&other("birds")).await.unwrap(), Some(old));
    assert_eq!(files(&workspace, &new).detect_move(&other("birds")).await.unwrap(), None, "once");
    let session = workspace.session().await;
    assert_eq!(workspace.evolution(&session, "1", all()).await.workspace, files(&workspace, &new).root());
}
