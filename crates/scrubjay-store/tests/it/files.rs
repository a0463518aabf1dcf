//! File changes are recorded first, then made; settled after a crash; rewound byte for byte.

mod concurrent;
mod killed;
mod settled;

use std::path::PathBuf;
use std::sync::Arc;

use scrubjay_store::files::{
    Action, AppliedChange, Change, FILE_BYTES_MAX, FileError, Files, NewContent, TextEdit,
};
use scrubjay_store::ledger::blob;
use scrubjay_store::ledger::event::{self, EventKind, EventPage};
use scrubjay_store::ledger::revision::{self, RevisionSource, RevisionState};
use scrubjay_store::workspace::Workspace;

use crate::database::{Database, caller, on_both};

on_both![
    changes_are_recorded,
    refusals_are_recorded,
    changes_by_others_are_recorded,
    every_earlier_state_can_be_restored,
];

pub(crate) struct TestWorkspace {
    pub(crate) files: Arc<Files>,
    pub(crate) root: PathBuf,
    pub(crate) ledger: scrubjay_store::ledger::Ledger,
    _database: Database,
}

impl TestWorkspace {
    pub(crate) async fn new(database: Database) -> Self {
        let root = database.home.path().join("workspace");
        std::fs::create_dir(&root).unwrap();
        let root = root.canonicalize().unwrap();
        let ledger = database.open().await;
        let locks = database.home.path().join("locks");
        let workspace = Workspace::open(&root).unwrap();
        let files = Arc::new(Files::new(ledger.clone(), workspace, locks, FILE_BYTES_MAX));
        Self { files, root, ledger, _database: database }
    }

    pub(crate) async fn change(&self, path: &str, action: Action) -> Result<AppliedChange, FileError> {
        let change = Change {
            session: None,
            path: path.to_owned(),
            action,
            expected: None,
            mode: None,
            rewinds_to: None,
        };
        self.files.change(&caller("agent"), change).await
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }

    async fn events(&self, session: &str) -> Vec<event::Event> {
        let page = EventPage { session, after: 0, limit: 10_000 };
        event::page(&mut self.ledger.read().await.unwrap(), page).await.unwrap()
    }
}

pub(crate) fn text(text: &str) -> NewContent {
    NewContent::Text(text.to_owned())
}

async fn changes_are_recorded(database: Database) {
    let workspace = TestWorkspace::new(database).await;
    let made = workspace.change("src/a.txt", Action::Create(text("one\ntwo\n"))).await.unwrap();
    assert_eq!(workspace.read("src/a.txt").unwrap(), "one\ntwo\n");
    let edits = vec![TextEdit { old_text: "two".into(), new_text: "zwei".into(), replace_all: false }];
    let edited = workspace.change("src/a.txt", Action::Edit(NewContent::Edits(edits))).await.unwrap();
    assert_eq!(workspace.read("src/a.txt").unwrap(), "one\nzwei\n");
    let same = workspace.change("src/a.txt", Action::Edit(text("one\nzwei\n"))).await.unwrap();
    assert!(same.revision.is_none() && same.event_id > edited.event_id);
    workspace.change("src/a.txt", Action::Delete).await.unwrap();
    assert_eq!(workspace.read("src/a.txt"), None);

    let mut read = workspace.ledger.read().await.unwrap();
    let root = workspace.files.root();
    let revisions = revision::page(&mut read, &root, "src/a.txt", 0, 10).await.unwrap();
    let shape: Vec<_> = revisions
        .iter()
        .map(|r| (r.state, r.source, r.lines, r.added, r.removed, r.after.is_some()))
        .collect();
    assert_eq!(
        shape,
        [
            (RevisionState::Done, RevisionSource::Enforced, 2, 2, 0, true),
            (RevisionState::Done, RevisionSource::Enforced, 2, 1, 1, true),
            (RevisionState::Done, RevisionSource::Enforced, 0, 0, 2, false),
        ]
    );
    assert_eq!(blob::get(&mut read, &revisions[1].before.unwrap()).await.unwrap(), b"one\ntwo\n");
    assert_eq!(blob::get(&mut read, &revisions[1].after.unwrap()).await.unwrap(), b"one\nzwei\n");
    let kinds: Vec<_> = workspace.events(&made.session_id).await.iter().map(|e| e.kind).collect();
    let expected = [
        EventKind::SessionStarted,
        EventKind::FileCreate,
        EventKind::FileEdit,
        EventKind::FileEdit,
        EventKind::FileDelete,
    ];
    assert_eq!(kinds, expected);
}

async fn refusals_are_recorded(database: Database) {
    let workspace = TestWorkspace::new(database).await;
    let session = workspace.change("a", Action::Create(text("a"))).await.unwrap().session_id;
    let cases = [
        ("a", Action::Create(text("b")), "exists"),
        ("b", Action::Edit(text("b")), "missing"),
        ("b", Action::Delete, "missing"),
        ("../b", Action::Create(text("b")), "outside_workspace"),
        (".git/hooks/x", Action::Create(text("b")), "protected_path"),
        ("a\0b", Action::Create(text("b")), "bad_path"),
        ("a", Action::Edit(NewContent::Edits(vec![])), "edit_failed"),
        ("big", Action::Create(NewContent::Bytes(vec![0; FILE_BYTES_MAX as usize + 1])), "too_large"),
    ];
    let before = workspace.events(&session).await.len();
    for (path, action, expected) in cases.clone() {
        match workspace.change(path, action).await {
            Err(FileError::Refused { code, .. }) => assert_eq!(code, expected, "{path}"),
            other => panic!("{path}: {other:?}"),
        }
    }
    let events = workspace.events(&session).await;
    let codes: Vec<_> = events[before..].iter().map(|e| e.details["code"].as_str().unwrap()).collect();
    assert_eq!(codes, cases.map(|(_, _, code)| code));
    assert!(events[before..].iter().all(|e| e.kind == EventKind::FileRefused));
    assert_eq!(workspace.read("a").unwrap(), "a");

    let stale = Change {
        session: None,
        path: "a".to_owned(),
        action: Action::Edit(text("c")),
        expected: Some([1; 32]),
        mode: None,
        rewinds_to: None,
    };
    let refused = workspace.files.change(&caller("agent"), stale).await;
    assert!(matches!(refused, Err(FileError::Refused { code: "changed", found: Some(_), .. })));
}

async fn changes_by_others_are_recorded(database: Database) {
    let workspace = TestWorkspace::new(database).await;
    std::fs::write(workspace.root.join("f"), "theirs\n").unwrap();
    let first = workspace.change("f", Action::Edit(text("ours\n"))).await.unwrap();
    assert!(!first.observed, "what was there at first is no change");
    std::fs::write(workspace.root.join("f"), "theirs again\n").unwrap();
    let second = workspace.change("f", Action::Edit(text("ours again\n"))).await.unwrap();
    assert!(second.observed);
    std::fs::remove_file(workspace.root.join("f")).unwrap();
    workspace.change("f", Action::Create(text("new\n"))).await.unwrap();
    let mut read = workspace.ledger.read().await.unwrap();
    let revisions = revision::page(&mut read, &workspace.files.root(), "f", 0, 10).await.unwrap();
    let mut contents = Vec::new();
    for revision in &revisions {
        let content = match revision.after {
            Some(hash) => String::from_utf8(blob::get(&mut read, &hash).await.unwrap()).unwrap(),
            None => "-".to_owned(),
        };
        contents.push((revision.source, content));
    }
    let expected = [
        (RevisionSource::Observed, "theirs\n"),
        (RevisionSource::Enforced, "ours\n"),
        (RevisionSource::Observed, "theirs again\n"),
        (RevisionSource::Enforced, "ours again\n"),
        (RevisionSource::Observed, "-"),
        (RevisionSource::Enforced, "new\n"),
    ];
    assert_eq!(contents, expected.map(|(source, content)| (source, content.to_owned())));
}

/// Random sessions over a few files, with some changes by others: rewinding to each event in turn restores exactly the
/// files of that time.
async fn every_earlier_state_can_be_restored(database: Database) {
    use proptest::strategy::{Strategy, ValueTree};
    let workspace = TestWorkspace::new(database).await;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let steps = proptest::collection::vec((0..4usize, 0..5u8, "[a-c\n]{0,12}"), 40..60);
    let steps = steps.new_tree(&mut runner).unwrap().current();
    let names = ["one", "two", "dir/three", "dir/sub/four"];
    std::fs::write(workspace.root.join("one"), "was here\n").unwrap();
    // The ledger cannot know the states of a file before it is first seen.
    let session = workspace.change("one", Action::Edit(text("seen\n"))).await.unwrap().session_id;

    let snapshot = |workspace: &TestWorkspace| names.map(|name| workspace.read(name));
    let mut states = Vec::new();
    for (file, what, content) in steps {
        let path = names[file];
        let body = text(&content);
        match (what, workspace.read(path)) {
            (0, Some(_)) => drop(workspace.change(path, Action::Delete).await.unwrap()),
            (1, Some(_)) => {
                std::fs::write(workspace.root.join(path), format!("{content}behind\n")).unwrap();
                drop(workspace.change(path, Action::Edit(body)).await.unwrap());
            }
            (_, Some(_)) => drop(workspace.change(path, Action::Edit(body)).await.unwrap()),
            (_, None) => drop(workspace.change(path, Action::Create(body)).await.unwrap()),
        }
        let event = workspace.events(&session).await.last().unwrap().id;
        states.push((event, snapshot(&workspace)));
    }
    for (event, state) in states.iter().rev().chain(&states) {
        let plan = workspace.files.plan_rewind(&session, *event, None).await.unwrap();
        workspace.files.rewind(&caller("agent"), &session, *event, plan, false).await.unwrap();
        // A file that this session had not touched by then is as it was found.
        assert_eq!(&snapshot(&workspace), state, "event {event}");
    }
    std::fs::write(workspace.root.join("one"), "nobody knows").unwrap();
    let (event, _) = states[0];
    let plan = workspace.files.plan_rewind(&session, event, Some("one")).await.unwrap();
    let refused = workspace.files.rewind(&caller("agent"), &session, event, plan.clone(), false).await;
    assert!(refused.unwrap_err().hint().unwrap().contains("--force"));
    assert_eq!(workspace.read("one").unwrap(), "nobody knows");
    workspace.files.rewind(&caller("agent"), &session, event, plan, true).await.unwrap();
    assert_eq!(workspace.read("one"), states[0].1[0]);
}
