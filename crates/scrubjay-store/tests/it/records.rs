//! What records promise, the same on both databases.

mod concurrent;
mod model;

use scrubjay_store::ledger::records::activity::{self, ActivityFilter};
use scrubjay_store::ledger::records::diff::{self, VersionPoint};
use scrubjay_store::ledger::records::listing::{self, RecordFilter, TreePlace};
use scrubjay_store::ledger::records::search::{self, RecordSearch};
use scrubjay_store::ledger::records::{
    self, DEPTH_MAX, NewRecord, OnConflict, Record, RecordChanges, RecordError, RecordId, RecordState, Scope,
    Transition, UpdateOutcome, activation, bundle, citation, collection, history, saving, sync,
};
use scrubjay_store::ledger::session::{self, SessionError, SessionStart};
use scrubjay_store::ledger::{CommitDurability, Ledger, LedgerConnection, Write, blob};

use crate::database::{Database, caller, on_both};

on_both![
    children_are_counted_and_listed,
    the_depth_is_limited,
    conflicting_updates_are_refused_merged_or_forced,
    records_are_found_by_words_and_filters,
    projects_are_independent,
    versions_are_found_by_number_tick_and_time,
    a_resumed_session_continues_where_it_was,
    a_changed_citation_is_suspect,
];

pub(crate) fn new(parent: Option<i64>, title: &str, body: &str) -> NewRecord {
    NewRecord {
        parent: parent.map(RecordId),
        kind: "question".to_owned(),
        title: title.to_owned(),
        summary: format!("about {title}"),
        body: body.to_owned(),
        state: RecordState::Open,
        related: vec![],
        metadata: Default::default(),
        citations: vec![],
    }
}

pub(crate) async fn scope(write: &mut Write, key: &str) -> Scope {
    records::enter(write, &caller(key), None, None).await.unwrap()
}

async fn create(ledger: &Ledger, key: &str, record: NewRecord) -> Result<Record, RecordError> {
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    let mut scope = scope(&mut write, key).await;
    let created = records::create(&mut write, &mut scope, record).await?;
    write.commit().await.unwrap();
    Ok(created)
}

async fn activate(ledger: &Ledger, key: &str, id: i64) -> activation::Activation {
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    let scope = scope(&mut write, key).await;
    let activated = activation::activate(&mut write, &scope, RecordId(id), false).await.unwrap();
    write.commit().await.unwrap();
    activated
}

async fn update(
    ledger: &Ledger,
    key: &str,
    id: i64,
    changes: RecordChanges,
    clash: OnConflict,
) -> records::UpdateResult {
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    let mut scope = scope(&mut write, key).await;
    let updated = records::update(&mut write, &mut scope, RecordId(id), changes, clash).await.unwrap();
    write.commit().await.unwrap();
    updated
}

async fn go(ledger: &Ledger, key: &str, id: i64, to: RecordState) -> records::TransitionResult {
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    let mut scope = scope(&mut write, key).await;
    let transition = Transition { to, reason: Some("because".to_owned()), resolved_by: Some(RecordId(1)) };
    let moved = records::transition(&mut write, &mut scope, RecordId(id), transition).await.unwrap();
    write.commit().await.unwrap();
    moved
}

fn body(text: &str) -> RecordChanges {
    RecordChanges { body: Some(text.to_owned()), ..RecordChanges::default() }
}

fn ids(refs: &[records::RecordRef]) -> Vec<i64> {
    refs.iter().map(|r| r.id.0).collect()
}

/// Children are counted, listed and bundled; a list is of one level, or of the whole tree in its order.
async fn children_are_counted_and_listed(database: Database) {
    let ledger = database.open().await;
    // 1 ── 2 ── 4, 5 ── 7     1 ── 3 (later)     6
    for (parent, title) in [(None, "a"), (Some(1), "b"), (Some(1), "c"), (Some(2), "d"), (Some(2), "e")] {
        create(&ledger, "s", new(parent, title, "text")).await.unwrap();
    }
    create(&ledger, "s", new(None, "f", "text")).await.unwrap();
    create(&ledger, "s", new(Some(5), "g", "text")).await.unwrap();
    go(&ledger, "s", 3, RecordState::Later).await;
    let cascade = go(&ledger, "s", 2, RecordState::Resolved).await;
    assert_eq!(
        (ids(&cascade.open_children), cascade.record.content.resolved_by),
        (vec![4, 5], Some(RecordId(1)))
    );

    let mut read = ledger.read().await.unwrap();
    let collection = collection::open(&mut read, "birds").await.unwrap();
    let totals = (
        collection.totals.records,
        collection.totals.roots,
        collection.totals.open,
        collection.totals.later,
        collection.totals.resolved,
    );
    assert_eq!(totals, (7, 2, 5, 1, 1));
    let bundle = bundle::load(&mut read, &collection, RecordId(1)).await.unwrap();
    assert_eq!((bundle.target.now.children, bundle.target.now.open_children), (2, 0));
    assert_eq!(
        (bundle.open.len(), ids(&bundle.other), ids(&bundle.grandchildren)),
        (0, vec![2, 3], vec![4, 5])
    );
    let bundle = bundle::load(&mut read, &collection, RecordId(2)).await.unwrap();
    assert_eq!(bundle.parent.unwrap().now.id.0, 1);
    assert_eq!(bundle.open.iter().map(|r| r.now.id.0).collect::<Vec<_>>(), [4, 5]);
    assert_eq!((bundle.grandchildren_total, ids(&bundle.grandchildren)), (1, vec![7]));
    let (beside, count) = bundle::siblings(&mut read, &collection, &bundle.target.now).await.unwrap();
    assert_eq!((ids(&beside), count), (vec![3], 1));

    let mut check =
        async |place, states: &[RecordState], after: Option<i64>, limit, expected: &[i64], total| {
            let filter = RecordFilter {
                states: states.to_vec(),
                place,
                after: after.map(RecordId),
                limit,
                ..RecordFilter::default()
            };
            let (page, count) = listing::list(&mut read, &collection, &filter).await.unwrap();
            assert_eq!((ids(&page).as_slice(), count), (expected, total), "{filter:?}");
        };
    check(TreePlace::Anywhere, &[], None, 10, &[1, 2, 3, 4, 5, 6, 7], 7).await;
    check(TreePlace::Anywhere, &[RecordState::Open], Some(1), 2, &[4, 5], 5).await;
    check(TreePlace::Roots(1), &[], None, 10, &[1, 6], 2).await;
    check(TreePlace::Roots(2), &[], None, 10, &[1, 2, 3, 6], 4).await;
    check(TreePlace::Roots(2), &[], Some(2), 10, &[3, 6], 4).await;
    check(TreePlace::Below(RecordId(1), 1), &[], None, 10, &[2, 3], 2).await;
    check(TreePlace::Below(RecordId(1), 2), &[], None, 10, &[2, 4, 5, 3], 4).await;
    check(TreePlace::Below(RecordId(1), 9), &[RecordState::Open], None, 10, &[4, 5, 7], 3).await;
    let filter = RecordFilter {
        types: vec!["o'clock".to_owned(), "question".to_owned()],
        limit: 1,
        ..RecordFilter::default()
    };
    assert_eq!(listing::list(&mut read, &collection, &filter).await.unwrap().1, 7);
}

/// The depth of the tree is limited, and a record cannot be created below one that is not activated.
async fn the_depth_is_limited(database: Database) {
    let ledger = database.open().await;
    for level in 0..DEPTH_MAX {
        create(&ledger, "s", new((level > 0).then_some(level), "level", "")).await.unwrap();
    }
    let deeper = create(&ledger, "s", new(Some(DEPTH_MAX), "level", "")).await;
    assert!(matches!(deeper, Err(RecordError::TooDeep { depth: 33, .. })), "{deeper:?}");
    let other = create(&ledger, "t", new(Some(1), "other", "")).await;
    assert!(matches!(other, Err(RecordError::ParentNotActivated(RecordId(1)))), "{other:?}");
    let nowhere = create(&ledger, "t", new(Some(99), "other", "")).await;
    assert!(matches!(nowhere, Err(RecordError::NotFound(id)) if id == "R099"));
    let collection = collection::open(&mut ledger.read().await.unwrap(), "birds").await.unwrap();
    assert_eq!(collection.totals.records, DEPTH_MAX, "a failed creation must leave nothing behind");
}

/// Changes of two sessions: refused, merged if they touch different parts, forced if they do not.
async fn conflicting_updates_are_refused_merged_or_forced(database: Database) {
    let ledger = database.open().await;
    create(&ledger, "one", new(None, "a", "first\n\nsecond\n\nthird")).await.unwrap();
    let seen = activate(&ledger, "two", 1).await;
    assert_eq!((seen.before, seen.others.len()), (None, 1));
    let written = update(&ledger, "one", 1, body("FIRST\n\nsecond\n\nthird"), OnConflict::Refuse).await;
    assert_eq!((written.outcome, written.record.version), (UpdateOutcome::Written, 2));

    let theirs = body("first\n\nsecond\n\nTHIRD");
    let refused = update(&ledger, "two", 1, theirs.clone(), OnConflict::Refuse).await;
    assert!(matches!(refused.outcome, UpdateOutcome::Conflict { activated: 1, .. }), "{:?}", refused.outcome);
    assert_eq!(
        (refused.record.version, refused.record.content.body.as_str()),
        (2, "FIRST\n\nsecond\n\nthird")
    );
    let merged = update(&ledger, "two", 1, theirs, OnConflict::Merge).await;
    assert_eq!(merged.outcome, UpdateOutcome::Merged(vec!["body"]));
    assert_eq!((merged.record.version, merged.record.content.body.as_str()), (3, "FIRST\n\nsecond\n\nTHIRD"));

    let touching =
        update(&ledger, "one", 1, body("first, again\n\nsecond\n\nthird!"), OnConflict::Merge).await;
    assert!(matches!(&touching.outcome, UpdateOutcome::Conflict { fields, .. } if fields == &["body"]));
    let title = RecordChanges { title: Some("A".to_owned()), ..RecordChanges::default() };
    let fields = update(&ledger, "one", 1, title, OnConflict::Merge).await;
    assert_eq!(fields.outcome, UpdateOutcome::Merged(vec!["body"]));
    assert_eq!(
        (fields.record.content.title.as_str(), fields.record.content.body.as_str()),
        ("A", "FIRST\n\nsecond\n\nTHIRD")
    );
    let forced = update(&ledger, "two", 1, body("mine"), OnConflict::Force).await;
    assert!(matches!(forced.outcome, UpdateOutcome::Forced { .. }));
    assert_eq!((forced.record.content.title.as_str(), forced.record.content.body.as_str()), ("A", "mine"));

    let wanted = ActivityFilter { record: Some(RecordId(1)), limit: 50, ..ActivityFilter::default() };
    let recent = activity::recent(&mut ledger.read().await.unwrap(), "birds", &wanted).await.unwrap();
    let names: Vec<_> = recent.iter().rev().map(|event| event.kind.name()).collect();
    assert_eq!(
        names,
        [
            "record_created",
            "activation",
            "record_updated",
            "conflict_detected",
            "record_updated",
            "conflict_detected",
            "record_updated",
            "conflict_resolved",
            "record_updated"
        ]
    );
}

async fn records_are_found_by_words_and_filters(database: Database) {
    let ledger = database.open().await;
    create(&ledger, "s", new(None, "Nesting of jays", "Blue jays nest in March. Café visits follow."))
        .await
        .unwrap();
    create(&ledger, "s", new(Some(1), "Food", "What does the blue jay eat? Acorns.")).await.unwrap();
    create(&ledger, "s", new(Some(2), "Acorns", "An acorn is hidden in autumn; 東京 has none."))
        .await
        .unwrap();
    create(&ledger, "s", new(None, "Crows", "Crows count acorns.")).await.unwrap();
    go(&ledger, "s", 4, RecordState::Later).await;
    let mut read = ledger.read().await.unwrap();
    let collection = collection::open(&mut read, "birds").await.unwrap();
    let mut check = async |search: RecordSearch, expected: &[i64], all_words: bool| {
        let found = search::search(&mut read, &collection, &search).await.unwrap();
        let mut hits: Vec<_> = found.hits.iter().map(|hit| hit.now.id.0).collect();
        assert!(found.hits.windows(2).all(|two| two[0].relevance >= two[1].relevance));
        assert!(found.hits.iter().all(|hit| (0.0..=1.0).contains(&hit.relevance)));
        assert!(found.hits.first().is_none_or(|hit| hit.relevance == 1.0));
        hits.sort_unstable();
        assert_eq!(
            (hits.as_slice(), found.total, found.all_words),
            (expected, expected.len() as i64, all_words),
            "{search:?}"
        );
        found.hits
    };
    let query = |query: &str| RecordSearch { query: query.to_owned(), limit: 10, ..RecordSearch::default() };
    check(query("blue"), &[1, 2], true).await;
    let hits = check(query("ACORNS"), &[2, 3, 4], true).await;
    assert_eq!(hits[0].now.id.0, 3, "a title counts more than a body");
    assert_eq!(
        check(query("cafe"), &[1], true).await[0].snippet,
        "Blue jays nest in March. **Café** visits follow."
    );
    check(query("acorn*"), &[2, 3, 4], true).await;
    check(query("\"blue jay\""), &[2], true).await;
    check(query("東京"), &[3], true).await;
    check(query("crows march"), &[1, 4], false).await;
    check(query("penguin"), &[], true).await;
    check(query("question"), &[1, 2, 3, 4], true).await;
    check(RecordSearch { below: Some(RecordId(1)), ..query("acorns") }, &[2, 3], true).await;
    check(RecordSearch { below: Some(RecordId(3)), ..query("acorns") }, &[], true).await;
    check(
        RecordSearch { states: vec![RecordState::Later, RecordState::Resolved], ..query("acorns") },
        &[4],
        true,
    )
    .await;
    check(RecordSearch { types: vec!["question".to_owned()], ..query("crows") }, &[4], true).await;
    check(RecordSearch { types: vec!["note".to_owned()], ..query("crows") }, &[], true).await;
    check(query("a') OR 1=1 -- NEAR( * jays"), &[1], false).await;
    let nothing = search::search(&mut read, &collection, &query("* ' -")).await;
    assert!(matches!(nothing, Err(RecordError::Invalid(_))));
    drop(read);

    update(&ledger, "s", 4, body("They count pebbles."), OnConflict::Refuse).await;
    let mut read = ledger.read().await.unwrap();
    for (text, expected) in [("acorns", 2), ("pebbles", 1)] {
        let found = search::search(&mut read, &collection, &query(text)).await.unwrap();
        assert_eq!(found.total, expected, "{text}: only the newest version is found");
    }
}

/// A caller has a session in each project it works on, and projects are independent.
async fn projects_are_independent(database: Database) {
    let ledger = database.open().await;
    create(&ledger, "s", new(None, "bird", "shared word")).await.unwrap();
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    let missing = records::enter(&mut write, &caller("s"), Some("fish"), None).await;
    assert!(matches!(missing, Err(RecordError::NoProject(id)) if id == "fish"));
    scrubjay_store::ledger::project::insert(&mut write, "fish", "Fish", None).await.unwrap();
    let mut fish = records::enter(&mut write, &caller("s"), Some("fish"), None).await.unwrap();
    let created = records::create(&mut write, &mut fish, new(None, "fish", "shared word")).await.unwrap();
    assert_eq!((created.now.id, created.now.tick), (RecordId(1), 1), "each project counts for itself");
    let birds = scope(&mut write, "s").await;
    assert_ne!(birds.session.id, fish.session.id);
    let again = records::enter(&mut write, &caller("s"), Some("fish"), None).await.unwrap();
    assert_eq!(again.session.id, fish.session.id);
    let shared = RecordSearch { query: "shared".to_owned(), limit: 9, ..RecordSearch::default() };
    let found = search::search(&mut write, &fish.collection, &shared).await.unwrap();
    assert_eq!(found.total, 1);
    let wrong = records::enter(&mut write, &caller("s"), Some("birds"), Some(&fish.session.id)).await;
    assert!(matches!(wrong, Err(RecordError::Session(_))), "{wrong:?}");
    let named = records::enter(&mut write, &caller("t"), None, Some(&fish.session.id)).await.unwrap();
    assert_eq!(named.collection.project, "fish");
    write.commit().await.unwrap();
}

async fn versions_are_found_by_number_tick_and_time(database: Database) {
    let ledger = database.open().await;
    create(&ledger, "s", new(None, "a", "one\n")).await.unwrap();
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    let mut own = scope(&mut write, "s").await;
    let saved = saving::save(&mut write, &mut own, None).await.unwrap();
    assert_eq!((saved.records.as_slice(), saved.tick), (&[RecordId(1)][..], 2));
    write.commit().await.unwrap();
    update(&ledger, "s", 1, body("two\n"), OnConflict::Refuse).await;
    go(&ledger, "s", 1, RecordState::Discarded).await;

    let mut read = ledger.read().await.unwrap();
    let collection = collection::open(&mut read, "birds").await.unwrap();
    let versions = history::versions(&mut read, &collection, RecordId(1), 0, i64::MAX, 10).await.unwrap();
    let changes: Vec<_> = versions.iter().map(|v| (v.version, v.tick, v.change.name())).collect();
    assert_eq!(changes, [(3, 4, "state_changed"), (2, 3, "modified"), (1, 1, "created")]);
    assert_eq!(versions[0].reason.as_deref(), Some("because"));
    let session = Some(own.session.id.clone());
    let mut check = async |point: VersionPoint, expected: Option<i64>| {
        let found = diff::at(&mut read, &collection, RecordId(1), &point).await.ok().map(|r| r.version);
        assert_eq!(found, expected, "{point:?}");
    };
    check(VersionPoint::Current, Some(3)).await;
    check(VersionPoint::Version(2), Some(2)).await;
    check(VersionPoint::Version(4), None).await;
    check(VersionPoint::Version(0), None).await;
    check(VersionPoint::Tick(3), Some(2)).await;
    check(VersionPoint::Tick(2), Some(1)).await;
    check(VersionPoint::Tick(0), None).await;
    check(VersionPoint::LastSave { session }, Some(1)).await;
    check(VersionPoint::LastSave { session: None }, None).await;
    check(VersionPoint::Time(versions[1].at_ns), Some(2)).await;
    check(VersionPoint::Time(versions[2].at_ns - 1), None).await;
}

/// A resumed session continues where it was; one that was closed has no active records and nothing to sync.
async fn a_resumed_session_continues_where_it_was(database: Database) {
    let ledger = database.open().await;
    create(&ledger, "s", new(None, "a", "one")).await.unwrap();
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    let own = scope(&mut write, "s").await;
    let id = own.session.id.clone();
    let beginning = SessionStart { id: Some(id.clone()), ..SessionStart::default() };
    session::start(&mut write, &caller("another host"), beginning.clone()).await.unwrap();
    let same = scope(&mut write, "another host").await;
    assert_eq!(same.session.id, id);
    assert_eq!(activation::active(&mut write, &id, 9).await.unwrap().0, [RecordId(1)]);
    let closed = saving::close(&mut write, same, None).await.unwrap();
    assert_eq!((closed.deactivated, closed.unsaved_count), (vec![RecordId(1)], 1));
    let gone = records::enter(&mut write, &caller("s"), None, Some(&id)).await;
    assert!(matches!(gone, Err(RecordError::Session(SessionError::Ended(ended))) if ended == id));
    write.commit().await.unwrap();

    create(&ledger, "t", new(None, "b", "two")).await.unwrap();
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    session::start(&mut write, &caller("s"), beginning).await.unwrap();
    let mut fresh = scope(&mut write, "s").await;
    assert_eq!((fresh.session.id.as_str(), fresh.session.last_sync_tick), (id.as_str(), 2));
    let synced = sync::sync(&mut write, &mut fresh).await.unwrap();
    assert_eq!((synced.before, synced.changes.len()), (2, 0));
    assert_eq!(activation::active(&mut write, &id, 9).await.unwrap().1, 0);

    let branch = SessionStart { parent_session: Some(id.clone()), ..SessionStart::default() };
    let (branched, _) = session::start(&mut write, &caller("u"), branch).await.unwrap();
    assert_eq!(scope(&mut write, "u").await.session.parent_session, Some(id));
    let wanted = ActivityFilter { limit: 1, ..ActivityFilter::default() };
    let recent = activity::recent(&mut write, "birds", &wanted).await.unwrap();
    assert_eq!((recent[0].kind.name().as_str(), &recent[0].session_id), ("session_branched", &branched.id));
}

#[expect(clippy::disallowed_methods, reason = "a revision is put in as files.rs would")]
async fn revise(ledger: &Ledger, before: Option<&str>, after: Option<&str>) {
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    let scope = scope(&mut write, "s").await;
    let note = scrubjay_store::ledger::event::NewEvent::new(
        scrubjay_store::ledger::event::EventKind::FileEdit,
        "edited",
    );
    let event =
        scrubjay_store::ledger::event::append(&mut write, &scope.session, &scope.caller, note).await.unwrap();
    let mut hashes = Vec::new();
    for text in [before, after] {
        hashes.push(match text {
            Some(text) => Some(blob::put(&mut write, text.as_bytes()).await.unwrap().to_vec()),
            None => None,
        });
    }
    sqlx::query(
        "INSERT INTO revisions (workspace, path, event_id, source, state, before_hash, after_hash, size, lines,
             added, removed) VALUES ('/w', 'a.rs', $1, 'enforced', 'done', $2, $3, 0, 0, 0, 0)",
    )
    .bind(event)
    .bind(hashes[0].clone())
    .bind(hashes[1].clone())
    .execute(write.conn())
    .await
    .unwrap();
    write.commit().await.unwrap();
}

/// A record that cites code is suspect while the newest revision has other text on those lines.
async fn a_changed_citation_is_suspect(database: Database) {
    let ledger = database.open().await;
    let mut at_work = caller("s");
    at_work.workspace = Some("/w".to_owned());
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    records::enter(&mut write, &at_work, None, None).await.unwrap();
    write.commit().await.unwrap();
    let citing =
        |lines: &str| NewRecord { citations: vec![format!("a.rs#{lines}")], ..new(None, "cites", "") };

    // R001 is created before the ledger knows the file, R002 after its first revision.
    create(&ledger, "s", citing("L2-L3")).await.unwrap();
    let suspects = async |id: i64| {
        let mut read = ledger.read().await.unwrap();
        let collection = collection::open(&mut read, "birds").await.unwrap();
        citation::suspects(&mut read, &collection, RecordId(id)).await.unwrap()
    };
    assert_eq!(suspects(1).await, []);
    revise(&ledger, Some("a\nb\nc\nd\n"), Some("A\nb\nc\nd\n")).await;
    create(&ledger, "s", citing("L1-L3")).await.unwrap();
    assert_eq!(suspects(1).await, [], "line 1 is not cited");
    revise(&ledger, Some("A\nb\nc\nd\n"), Some("A\nb\nC\nd\n")).await;
    for id in [1, 2] {
        let found = suspects(id).await;
        assert_eq!(found.len(), 1, "R{id:03}");
        assert!(found[0].diff.as_ref().unwrap().contains("-c\n+C\n"), "{found:?}");
    }
    revise(&ledger, Some("A\nb\nC\nd\n"), Some("A\nb\nc\nd\n")).await;
    assert_eq!(suspects(2).await, [], "the cited text is there again");
    revise(&ledger, Some("A\nb\nc\nd\n"), None).await;
    assert_eq!(suspects(2).await[0].diff, None, "the file is gone");
    // Citing the lines again stores them as they are now.
    let cites = RecordChanges { citations: Some(vec!["b.rs#L1".to_owned()]), ..RecordChanges::default() };
    update(&ledger, "s", 2, cites, OnConflict::Refuse).await;
    assert_eq!(suspects(2).await, []);
    let wrong = create(&ledger, "s", citing("3")).await;
    assert!(matches!(wrong, Err(RecordError::Invalid(why)) if why.contains("src/main.rs#L10-L20")));
}
