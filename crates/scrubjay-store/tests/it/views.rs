//! Views: any content can be read, no answer is longer than requested, and all views describe steps, lines and ends
//! alike. The same on both databases.

mod moved;

use scrubjay_core::tokens::estimate_tokens;
use scrubjay_store::files::{Action, NewContent};
use scrubjay_store::ledger::event::{self, EventKind, NewEvent};
use scrubjay_store::ledger::plan::{self, StepStatus};
use scrubjay_store::ledger::session::{self, Session};
use scrubjay_store::ledger::{CommitDurability, blob};
use scrubjay_store::views::address::Side;
use scrubjay_store::views::budget::{self, Window};
use scrubjay_store::views::content::{self, StatePoint};
use scrubjay_store::views::steps::StepTotals;
use scrubjay_store::views::{ViewError, evolution, story, timeline};
use serde_json::json;

use crate::database::{Database, caller, on_both};
use crate::files::{TestWorkspace, text};

on_both![
    every_content_can_be_read,
    an_evolution_begins_with_the_earlier_content,
    pages_fit_their_token_limit,
    a_view_that_is_too_long_is_cut_with_a_note,
    a_timeline_shows_action_lines_and_step,
    a_story_is_in_order_and_ends_with_its_summary,
];

impl TestWorkspace {
    async fn session(&self) -> Session {
        let mut write = self.ledger.write(CommitDurability::Power).await.unwrap();
        let session = session::current(&mut write, &caller("agent"), None).await.unwrap();
        write.commit().await.unwrap();
        session
    }

    /// Notes something; returns the event.
    async fn note(&self, label: &str, content: &str) -> i64 {
        let session = self.session().await;
        let mut write = self.ledger.write(CommitDurability::Power).await.unwrap();
        let event = NewEvent::new(EventKind::Deliverable, format!("{label}: {content}"))
            .with(json!({ "title": label, "content": content }));
        let id = event::append(&mut write, &session, &caller("agent"), event).await.unwrap();
        write.commit().await.unwrap();
        id
    }

    async fn plan(&self, steps: &[&str]) {
        let mut session = self.session().await;
        let mut write = self.ledger.write(CommitDurability::Power).await.unwrap();
        let steps: Vec<String> = steps.iter().map(|step| (*step).to_owned()).collect();
        plan::set(&mut write, &caller("agent"), &mut session, &steps).await.unwrap();
        write.commit().await.unwrap();
    }

    /// Marks the current step as done.
    async fn done(&self) {
        let mut session = self.session().await;
        let mut write = self.ledger.write(CommitDurability::Power).await.unwrap();
        let steps = plan::steps(&mut write, &session.id).await.unwrap();
        let step = steps.iter().find(|step| Some(step.id) == session.current_step).unwrap().clone();
        plan::mark(&mut write, &caller("agent"), &mut session, &step, StepStatus::Done).await.unwrap();
        write.commit().await.unwrap();
    }

    async fn end(&self, session: Session, summary: Option<&str>) -> Session {
        let mut write = self.ledger.write(CommitDurability::Power).await.unwrap();
        let ended = session::end(&mut write, &caller("agent"), session, summary).await.unwrap();
        write.commit().await.unwrap();
        ended
    }

    async fn content(&self, path: &str, at: StatePoint, side: Side) -> Result<Vec<u8>, ViewError> {
        let session = self.session().await;
        let mut read = self.ledger.read().await.unwrap();
        content::read(&mut read, &session, path, at, side).await.map(|content| content.bytes)
    }

    async fn timeline(&self, session: &Session, window: Window) -> timeline::Timeline {
        timeline::read(&mut self.ledger.read().await.unwrap(), session, window).await.unwrap()
    }

    async fn evolution(&self, session: &Session, path: &str, window: Window) -> evolution::Evolution {
        evolution::read(&mut self.ledger.read().await.unwrap(), session, path, window).await.unwrap()
    }

    async fn story(&self, session: &Session) -> story::Story {
        story::read(&mut self.ledger.read().await.unwrap(), session).await.unwrap()
    }
}

fn all() -> Window {
    Window::items(0, 1000)
}

async fn every_content_can_be_read(database: Database) {
    let workspace = TestWorkspace::new(database).await;
    let bytes = vec![0, 255, 1];
    let states: [Option<Vec<u8>>; 4] =
        [Some(b"one\n".to_vec()), Some(bytes.clone()), None, Some(b"two\n".to_vec())];
    workspace.change("f", Action::Create(text("one\n"))).await.unwrap();
    workspace.change("f", Action::Edit(NewContent::Bytes(bytes))).await.unwrap();
    workspace.change("f", Action::Delete).await.unwrap();
    let last = workspace.change("f", Action::Create(text("two\n"))).await.unwrap();
    let session = workspace.session().await;
    let revisions = workspace.evolution(&session, "f", all()).await.revisions;
    assert_eq!(revisions.len(), states.len());
    let mut before = None;
    for (revision, state) in revisions.iter().zip(&states) {
        for (side, expected) in [(Side::After, state), (Side::Before, &before)] {
            match (workspace.content("f", StatePoint::Revision(revision.id), side).await, expected) {
                (Ok(content), Some(expected)) => assert_eq!(&content, expected),
                (Err(ViewError::NoContent { revision: id, .. }), None) => assert_eq!(id, revision.id),
                (other, _) => panic!("revision {} {side:?}: {other:?}", revision.id),
            }
        }
        if let Some(expected) = state {
            let by_event =
                workspace.content("f", StatePoint::Event(revision.event_id), Side::After).await.unwrap();
            assert_eq!(&by_event, expected);
        }
        before.clone_from(state);
    }
    let now = workspace.content("f", StatePoint::Newest, Side::After).await.unwrap();
    let by_time = workspace.content("f", StatePoint::Time(i64::MAX), Side::After).await.unwrap();
    assert_eq!((now.as_slice(), by_time.as_slice()), (&b"two\n"[..], &b"two\n"[..]));
    assert!(matches!(
        workspace.content("f", StatePoint::Time(0), Side::After).await,
        Err(ViewError::NoRevision(..))
    ));
    // The revision of another file is not found for this one.
    workspace.change("g", Action::Create(text("g\n"))).await.unwrap();
    let id = last.revision.unwrap().id;
    assert!(matches!(
        workspace.content("g", StatePoint::Revision(id), Side::After).await,
        Err(ViewError::NoRevision(_, StatePoint::Revision(wrong))) if wrong == id
    ));
    assert!(matches!(
        workspace.content("h", StatePoint::Newest, Side::After).await,
        Err(ViewError::NoFile(..))
    ));

    // Each event says where the contents before and after are.
    for event in workspace.timeline(&session, all()).await.events {
        let Some(change) = event.change else { continue };
        for (content, side) in [(change.before, Side::Before), (change.after, Side::After)] {
            let Some(content) = content else { continue };
            let path = event.subject.as_deref().unwrap();
            let bytes = workspace.content(path, StatePoint::Revision(change.revision), side).await.unwrap();
            assert_eq!(blob::hex(&blob::hash(&bytes)), content.hash);
            let tail = if side == Side::Before { "&side=before" } else { "" };
            let uri = format!(
                "scrubjay://sessions/{}/evolution/{path}?revision={}{tail}",
                session.id, change.revision
            );
            assert_eq!(content.uri, uri);
        }
    }
}

async fn an_evolution_begins_with_the_earlier_content(database: Database) {
    let workspace = TestWorkspace::new(database).await;
    std::fs::write(workspace.root.join("old"), "was here\n").unwrap();
    workspace.change("old", Action::Edit(text("is here\n"))).await.unwrap();
    let session = workspace.session().await;
    let evolution = workspace.evolution(&session, "old", all()).await;
    let first = &evolution.revisions[0];
    assert_eq!((first.initial_content.as_deref(), first.lines), (Some("was here\n"), 1));
    assert_eq!(
        evolution.revisions[1].initial_content, None,
        "only content that no revision recorded is shown as initial"
    );
    // A file that an agent created has no content before.
    workspace.change("new", Action::Create(text("new\n"))).await.unwrap();
    assert_eq!(workspace.evolution(&session, "new", all()).await.revisions[0].initial_content, None);
    // An unchanged file still has its size, and its event says where the content can be read.
    let same = workspace.change("old", Action::Edit(text("is here\n"))).await.unwrap();
    assert_eq!((same.revision, same.size), (None, 8));
    let timeline = workspace.timeline(&session, Window::items(same.event_id - 1, 1)).await;
    let change = timeline.events[0].change.clone().unwrap();
    assert_eq!((change.revision, change.added), (evolution.revisions[1].id, 0));
    assert_eq!((&change.before, change.size), (&change.after, 8));
    assert!(timeline.events[0].summary.ends_with("(unchanged)"), "{}", timeline.events[0].summary);
}

async fn pages_fit_their_token_limit(database: Database) {
    let workspace = TestWorkspace::new(database).await;
    workspace.change("f", Action::Create(text("0\n"))).await.unwrap();
    for n in 1..40 {
        workspace.change("f", Action::Edit(text(&format!("{n}\n").repeat(n)))).await.unwrap();
        workspace.note("note", &"words and words ".repeat(n * 10)).await;
    }
    let session = workspace.session().await;
    let events = workspace.timeline(&session, all()).await.events.len();
    let revisions = workspace.evolution(&session, "f", all()).await.revisions.len();
    assert_eq!((events, revisions), (80, 40));
    for tokens_max in [1000, 3000, 100_000] {
        let (mut after, mut seen, mut pages) = (0, 0, 0);
        loop {
            let window = Window { after, limit: 1000, tokens_max: Some(tokens_max) };
            let page = workspace.timeline(&session, window).await;
            assert!(budget::tokens_of(&page.events) <= tokens_max, "{}", budget::tokens_of(&page.events));
            (seen, pages) = (seen + page.events.len(), pages + 1);
            assert_eq!(page.total, 80);
            match page.next_after {
                Some(next) => after = next,
                None => break,
            }
        }
        assert_eq!((seen, pages > 1), (80, tokens_max < 100_000), "{tokens_max}");
        let (mut after, mut seen) = (0, 0);
        loop {
            let window = Window { after, limit: 7, tokens_max: Some(tokens_max) };
            let page = workspace.evolution(&session, "f", window).await;
            assert!(budget::tokens_of(&page.revisions) <= tokens_max);
            seen += page.revisions.len();
            match page.next_after {
                Some(next) => after = next,
                None => break,
            }
        }
        assert_eq!(seen, 40, "{tokens_max}");
    }
    let whole = workspace.story(&session).await;
    assert!(budget::tokens_of(&whole) > 3000 && whole.cut.is_none());
    let short = whole.shorten_to(3000);
    assert!(budget::tokens_of(&short) <= 3000 && short.cut.is_some());
    // A full page that ends with the last item has no next page.
    assert_eq!(workspace.timeline(&session, Window::items(0, 80)).await.next_after, None);
}

async fn a_view_that_is_too_long_is_cut_with_a_note(database: Database) {
    let workspace = TestWorkspace::new(database).await;
    let long: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    std::fs::write(workspace.root.join("f"), &long).unwrap();
    let made = workspace.change("f", Action::Edit(text(&long.replace("line", "Zeile")))).await.unwrap();
    let session = workspace.session().await;
    let window = |after| Window { after, limit: 10, tokens_max: Some(2000) };
    let first = workspace.evolution(&session, "f", window(0)).await;
    assert_eq!(first.revisions.len(), 1);
    let cut = &first.revisions[0];
    assert!(cut.initial_content.as_ref().unwrap().starts_with("line 0\nline 1\n"));
    assert!(cut.cut.as_ref().unwrap().contains(cut.uri.as_ref().unwrap()), "{:?}", cut.cut);
    let second = workspace.evolution(&session, "f", window(first.next_after.unwrap())).await;
    let cut = &second.revisions[0];
    assert_eq!((cut.id, second.next_after), (made.revision.unwrap().id, None));
    assert!(cut.diff.starts_with("--- a/f\n") && cut.diff.len() > 2000, "{}", cut.diff.len());
    for page in [&first, &second] {
        assert!(budget::tokens_of(&page.revisions) <= 2000, "{}", budget::tokens_of(&page.revisions));
    }
    let whole = workspace.content("f", StatePoint::Newest, Side::After).await.unwrap();
    assert_eq!(whole.len(), long.len() + 20_000);

    // The parts of a text together are the whole text.
    let mut read = workspace.ledger.read().await.unwrap();
    let content = content::read(&mut read, &session, "f", StatePoint::Newest, Side::Before).await.unwrap();
    let (mut parts, mut offset) = (String::new(), 0);
    loop {
        let piece = content.piece(offset, 500).unwrap();
        assert!(piece.text.ends_with('\n') && estimate_tokens(piece.text) <= 500);
        parts.push_str(piece.text);
        let Some(next) = piece.next_offset else { break };
        offset = next;
    }
    assert_eq!(parts, long);
    drop(read);

    let id = workspace.note("decision", &"because ".repeat(12_000)).await;
    let page = workspace.timeline(&session, Window { after: id - 1, limit: 1, tokens_max: Some(2000) }).await;
    let event = &page.events[0];
    assert!(budget::tokens_of(&page) <= 2000 && event.cut.as_ref().unwrap().contains("max_tokens"));
    assert!(event.summary.chars().count() <= 400, "a summary must be short");
    let page =
        workspace.timeline(&session, Window { after: id - 1, limit: 1, tokens_max: Some(40_000) }).await;
    assert_eq!(
        page.events[0].details["content"].as_str().unwrap().len(),
        96_000,
        "with enough max_tokens, the content is whole"
    );
}

async fn a_timeline_shows_action_lines_and_step(database: Database) {
    let workspace = TestWorkspace::new(database).await;
    workspace.plan(&["Look", "Tell"]).await;
    workspace.change("a", Action::Create(text("1\n2\n"))).await.unwrap();
    workspace.done().await;
    workspace.change("a", Action::Edit(text("1\n3\n4\n"))).await.unwrap();
    workspace.plan(&["Rest"]).await;
    workspace.change("a", Action::Delete).await.unwrap();
    let _ = workspace.change("../b", Action::Create(text("b"))).await.unwrap_err();
    let session = workspace.session().await;
    let timeline = workspace.timeline(&session, all()).await;
    let described: Vec<_> = timeline
        .events
        .iter()
        .map(|event| {
            let step = event.step.as_ref().map(ToString::to_string).unwrap_or_default();
            (step, event.summary.clone(), event.lines().unwrap_or_default())
        })
        .collect();
    let expected = [
        ("", "session started", ""),
        ("1 Look", "planned: Look", ""),
        ("2 Tell", "planned: Tell", ""),
        ("1 Look", "created a", "+2 -0"),
        ("1 Look", "done: Look", ""),
        ("2 Tell", "edited a", "+2 -1"),
        ("2.1 Rest", "planned: Rest", ""),
        ("2.1 Rest", "deleted a", "+0 -3"),
        ("2.1 Rest", "create ../b refused: outside_workspace", ""),
    ];
    assert_eq!(described, expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())));
    // Every view counts steps alike, and names them alike.
    let story = workspace.story(&session).await;
    let counted = StepTotals::read(&mut workspace.ledger.read().await.unwrap(), &session.id).await.unwrap();
    assert_eq!((&story.steps, &timeline.steps), (&counted, &counted));
    assert_eq!(counted.total, story.chapters.iter().filter(|c| c.step.is_some()).count() as i64);
    let numbers: Vec<_> = story.chapters.iter().filter_map(|c| c.number.as_deref()).collect();
    assert_eq!(numbers, ["1", "2", "2.1"]);
    let evolution = workspace.evolution(&session, "a", all()).await;
    let steps: Vec<_> =
        evolution.revisions.iter().map(|r| r.step.as_ref().unwrap().number.as_str()).collect();
    assert_eq!(steps, ["1", "2", "2.1"]);
}

async fn a_story_is_in_order_and_ends_with_its_summary(database: Database) {
    let workspace = TestWorkspace::new(database).await;
    workspace.note("note", "before any plan").await;
    workspace.plan(&["Look"]).await;
    workspace.note("decision", "only jays").await;
    workspace.change("a", Action::Create(text("1\n"))).await.unwrap();
    let _ = workspace.change("../b", Action::Create(text("b"))).await.unwrap_err();
    workspace.note("milestone", "first one").await;
    workspace.change("c", Action::Create(text("c\n"))).await.unwrap();
    workspace.change("a", Action::Edit(text("2\n"))).await.unwrap();
    workspace.done().await;
    workspace.note("note", "after the plan").await;
    let session = workspace.session().await;
    let ended = workspace.end(session, Some("Seven jays came.")).await;
    let story = workspace.story(&ended).await;
    let facts: Vec<Vec<String>> = story.chapters.iter().map(story::Chapter::facts).collect();
    let expected: [&[&str]; 3] = [
        &["note: before any plan"],
        &[
            "decision: only jays",
            "created a (+2 -1) in 2 edits",
            "create ../b refused: outside_workspace",
            "milestone: first one",
            "created c (+1 -0)",
        ],
        &["note: after the plan"],
    ];
    assert_eq!(
        facts,
        expected.map(|chapter| chapter.iter().map(|fact| (*fact).to_owned()).collect::<Vec<_>>())
    );
    assert_eq!(story.closing_summary.as_ref().unwrap().text, "Seven jays came.");
    let text_shown = story.markdown();
    assert!(text_shown.trim_end().ends_with("## Closing summary\n\nSeven jays came."), "{text_shown}");
    assert!(text_shown.contains("1 step (1 done), 12 events, 2 files"), "{text_shown}");
    assert_eq!(
        story.totals.events,
        workspace.timeline(&ended, all()).await.total,
        "each event is counted once"
    );

    // A resumed session has not ended: its earlier end is an event where it happened.
    let mut write = workspace.ledger.write(CommitDurability::Power).await.unwrap();
    let again = session::SessionStart { id: Some(ended.id.clone()), ..Default::default() };
    let (open, _) = session::start(&mut write, &caller("agent"), again).await.unwrap();
    write.commit().await.unwrap();
    let story = workspace.story(&open).await;
    assert_eq!(story.closing_summary.map(|quote| quote.text), None);
    let facts = story.chapters.iter().flat_map(story::Chapter::facts).collect::<Vec<_>>();
    assert!(facts.contains(&"session ended: Seven jays came.".to_owned()), "{facts:?}");
    let ended = workspace.end(open, None).await;
    assert!(workspace.story(&ended).await.closing_summary.is_none(), "the session ended without a summary");
}
