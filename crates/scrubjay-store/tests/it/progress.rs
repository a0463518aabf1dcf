//! Progress entries are stored as given and found by all their texts, the same on both databases.

use scrubjay_store::ledger::event::{self, EventKind, EventPage};
use scrubjay_store::ledger::progress::search::{self, EntrySearch, EntrySearchResults, TextFilter};
use scrubjay_store::ledger::progress::{self, FOLDING, NewProgressEntry, ProgressEntry};
use scrubjay_store::ledger::words::terms;
use scrubjay_store::ledger::{CommitDurability, Ledger, narrative, project, session};

use crate::database::{Database, caller, on_both};

on_both![
    entries_are_stored_as_given,
    an_entry_is_an_event_of_its_session,
    entries_are_found_by_a_part_of_the_title,
    entries_are_found_by_tags_and_time,
    entries_are_found_by_words,
    projects_are_apart,
    totals_count_beyond_the_limit,
    clock_set_back,
    a_summary_is_stored_once,
    concurrent_entries_are_all_stored,
];

const EVER: (i64, i64) = (0, i64::MAX);

async fn log(ledger: &Ledger, project: &str, title: &str, content: &str, tags: &[&str]) -> ProgressEntry {
    let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
    let caller = caller("host");
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    let session = session::current(&mut write, &caller, None).await.unwrap();
    let new = NewProgressEntry { project, title, content, tags: &tags, agent_id: Some("a 'quoted' agent") };
    let entry = progress::log(&mut write, &caller, &session, new).await.unwrap();
    write.commit().await.unwrap();
    entry
}

async fn find(
    ledger: &Ledger,
    says: TextFilter<'_>,
    tags: &[&str],
    (from_us, until_us): (i64, i64),
) -> EntrySearchResults {
    let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
    let search = EntrySearch {
        project: "birds",
        text: says,
        tags: &tags,
        session: None,
        from_us,
        until_us,
        limit: 20,
    };
    search::find(&mut ledger.read().await.unwrap(), &search).await.unwrap()
}

async fn ids(ledger: &Ledger, says: TextFilter<'_>) -> Vec<String> {
    let found = find(ledger, says, &[], EVER).await;
    assert_eq!(found.total, found.hits.len() as i64);
    found.hits.into_iter().map(|hit| hit.id).collect()
}

/// Texts that would break a careless statement, pattern or index.
const HARD: [&str; 9] = [
    "'; DROP TABLE progress_entries; --",
    "100% \"done\" \\ under_score",
    "ship 🚀👩‍👩‍👧 it",
    "إصلاح المصادقة שלום",
    "認証モジュールを直した",
    "\u{202e}reversed\u{7}\u{1b}[31m",
    "NEAR(a b) OR * AND - ^ {title}: x",
    "'':A & ! <-> | \\'",
    "ÀÉÎ Straße ΟΔΟΣ",
];

async fn entries_are_stored_as_given(database: Database) {
    let ledger = database.open().await;
    let mut all = Vec::new();
    for hard in HARD {
        all.push(log(&ledger, hard, hard, hard, &[hard, hard]).await);
        all.push(log(&ledger, "birds", hard, &hard.repeat(300), &[hard]).await);
    }
    let mut read = ledger.read().await.unwrap();
    for entry in &all {
        assert_eq!(
            progress::get(&mut read, &entry.project_id, &entry.id).await.unwrap().as_ref(),
            Some(entry)
        );
        assert_eq!(progress::get(&mut read, "elsewhere", &entry.id).await.unwrap(), None);
        assert!(entry.id.len() == 12 && entry.id.bytes().all(|b| b.is_ascii_alphanumeric()), "{}", entry.id);
        let tags = [entry.title.clone()];
        let search = EntrySearch {
            project: &entry.project_id,
            text: TextFilter::InTitle(&entry.title),
            tags: &tags,
            session: None,
            from_us: entry.at_us,
            until_us: entry.at_us,
            limit: 1,
        };
        let found = search::find(&mut read, &search).await.unwrap();
        assert_eq!((found.total, &found.hits[0].id), (1, &entry.id), "{}", entry.title);
    }
    for hard in HARD {
        let wanted = terms(hard, FOLDING);
        assert!(find(&ledger, TextFilter::Words(&wanted), &[], EVER).await.total >= 1, "{hard}");
    }
}

async fn an_entry_is_an_event_of_its_session(database: Database) {
    let ledger = database.open().await;
    let entry = log(&ledger, "other", "Fixed it", "how", &["a"]).await;
    let mut read = ledger.read().await.unwrap();
    let page = EventPage { session: &entry.session_id, after: 0, limit: 10 };
    let events = event::page(&mut read, page).await.unwrap();
    let event = events.last().unwrap();
    assert_eq!(
        (event.id, event.kind, event.subject.as_deref()),
        (entry.event_id, EventKind::Progress, Some(&*entry.id))
    );
    assert_eq!((event.summary.as_str(), &event.details["project_id"]), ("Fixed it", &"other".into()));
    assert_eq!(project::get(&mut read, "other").await.unwrap().unwrap().name, "other");
}

async fn entries_are_found_by_a_part_of_the_title(database: Database) {
    let ledger = database.open().await;
    let auth = log(&ledger, "birds", "Refactored AUTHENTICATION module", "x", &[]).await.id;
    let greek = log(&ledger, "birds", "Έφτιαξα την ΟΔΟΣ", "authentication", &[]).await.id;
    let percent = log(&ledger, "birds", "100% of a_b\\c", "x", &[]).await.id;
    for (part, expected) in [
        ("authenti", vec![&auth]),
        ("H M", vec![]),
        ("n m", vec![&auth]),
        ("οδος", vec![&greek]),
        ("ΈΦΤ", vec![&greek]),
        ("%", vec![&percent]),
        ("a_B", vec![&percent]),
        ("aXb", vec![]),
        ("b\\c", vec![&percent]),
        ("a", vec![&percent, &auth]),
        ("", vec![&percent, &greek, &auth]),
    ] {
        let expected: Vec<&str> = expected.into_iter().map(String::as_str).collect();
        assert_eq!(ids(&ledger, TextFilter::InTitle(part)).await, expected, "{part}");
    }
    assert_eq!(ids(&ledger, TextFilter::InTitle(&"x".repeat(100_000))).await, Vec::<String>::new());
}

async fn entries_are_found_by_tags_and_time(database: Database) {
    let ledger = database.open().await;
    let one = log(&ledger, "birds", "one jay", "c", &["a"]).await;
    let two = log(&ledger, "birds", "two jays", "c", &["a", "b"]).await;
    let three = log(&ledger, "birds", "three jays", "c", &["b", "A", "b"]).await;
    let found = |found: EntrySearchResults| found.hits.into_iter().map(|hit| hit.id).collect::<Vec<_>>();
    let jays = terms("jays", FOLDING);
    for (says, tags, time, expected) in [
        (TextFilter::Anything, &["a"][..], EVER, vec![&two, &one]),
        (TextFilter::Anything, &["b", "a", "b"], EVER, vec![&two]),
        (TextFilter::InTitle("jays"), &["b"], EVER, vec![&three, &two]),
        (TextFilter::InTitle("jays"), &["a", "b"], EVER, vec![&two]),
        (TextFilter::Words(&jays), &["A"], EVER, vec![&three]),
        (TextFilter::Words(&jays), &[], (two.at_us, two.at_us), vec![&two]),
        (TextFilter::Anything, &[], (two.at_us, i64::MAX), vec![&three, &two]),
        (TextFilter::Anything, &[], (0, two.at_us), vec![&two, &one]),
        (TextFilter::Anything, &["a"], (two.at_us + 1, i64::MAX), vec![]),
        (TextFilter::Anything, &["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"], EVER, vec![]),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|entry| entry.id.clone()).collect();
        let what = format!("{says:?} {tags:?} {time:?}");
        assert_eq!(found(find(&ledger, says, tags, time).await), expected, "{what}");
    }
    let mut read = ledger.read().await.unwrap();
    let some = progress::between(&mut read, "birds", one.at_us, two.at_us, 10).await.unwrap();
    assert_eq!(some, [two, one]);
}

async fn entries_are_found_by_words(database: Database) {
    let ledger = database.open().await;
    let title = log(&ledger, "birds", "Login repaired", "something else altogether", &[]).await.id;
    let often =
        log(&ledger, "birds", "Notes", "The login, the LOGIN and again the login page.", &[]).await.id;
    let once = log(&ledger, "birds", "More", &format!("login {}", "other words ".repeat(80)), &[]).await.id;
    let kanji = log(&ledger, "birds", "x", "認証モジュール、src/auth/jwt.ts", &[]).await.id;
    let found = |query: &'static str| {
        let ledger = &ledger;
        async move { ids(ledger, TextFilter::Words(&terms(query, FOLDING))).await }
    };
    assert_eq!(found("login").await, [title.as_str(), &often, &once], "the title first, then the denser");
    assert_eq!(found("LOGIN page").await, [often.as_str()]);
    assert_eq!(found("\"page login\"").await, Vec::<String>::new());
    assert_eq!(found("\"again the login\"").await, [often.as_str()]);
    assert_eq!(found("repair").await, Vec::<String>::new());
    assert_eq!(found("repair*").await, [title.as_str()]);
    assert_eq!(found("認証").await, [kanji.as_str()]);
    assert_eq!(found("証認").await, Vec::<String>::new());
    assert_eq!(found("auth/jwt").await, [kanji.as_str()]);
    // A phrase does not reach from the title into the content.
    assert_eq!(found("\"repaired something\"").await, Vec::<String>::new());
}

async fn projects_are_apart(database: Database) {
    let ledger = database.open().await;
    let mine = log(&ledger, "birds", "shared words", "shared words", &["t"]).await.id;
    for n in 0..12 {
        log(&ledger, &format!("other {n}"), "shared words", "shared words", &["t"]).await;
    }
    let words = terms("shared words", FOLDING);
    for says in [TextFilter::Anything, TextFilter::InTitle("shared"), TextFilter::Words(&words)] {
        assert_eq!(ids(&ledger, says).await, [mine.as_str()]);
    }
    assert_eq!(find(&ledger, TextFilter::Anything, &["t"], EVER).await.total, 1);
}

async fn totals_count_beyond_the_limit(database: Database) {
    let ledger = database.open().await;
    let mut all = Vec::new();
    for n in 0..45 {
        all.insert(0, log(&ledger, "birds", &format!("entry {n}"), "word", &["t"]).await.id);
    }
    let words = terms("word", FOLDING);
    for (says, tags) in [
        (TextFilter::Anything, &[][..]),
        (TextFilter::Anything, &["t"]),
        (TextFilter::InTitle("entry"), &[]),
        (TextFilter::InTitle("entry"), &["t"]),
        (TextFilter::Words(&words), &["t"]),
    ] {
        let found = find(&ledger, says, tags, EVER).await;
        assert_eq!(found.total, 45);
        let hits: Vec<_> = found.hits.into_iter().map(|hit| hit.id).collect();
        assert_eq!(hits, all[..20], "the newest twenty, newest first");
    }
}

/// Two entries of the same microsecond are two entries, in the order in which they were logged.
async fn clock_set_back(database: Database) {
    let ledger = database.open().await;
    let caller = caller("host");
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    let session = session::current(&mut write, &caller, None).await.unwrap();
    let mut moments = Vec::new();
    for _ in 0..5 {
        // All writes of a mutation have the same time.
        let new = NewProgressEntry { project: "birds", title: "t", content: "c", tags: &[], agent_id: None };
        moments.push(progress::log(&mut write, &caller, &session, new).await.unwrap().at_us);
    }
    write.commit().await.unwrap();
    assert_eq!(moments, (moments[0]..moments[0] + 5).collect::<Vec<_>>());
}

async fn a_summary_is_stored_once(database: Database) {
    let ledger = database.open().await;
    let entry = log(&ledger, "birds", "t", "c", &[]).await;
    for (given, kept) in [("first", "first"), ("second", "first")] {
        let mut write = ledger.write(CommitDurability::Power).await.unwrap();
        assert_eq!(progress::store_summary(&mut write, &entry.id, given, "m").await.unwrap(), kept);
        write.commit().await.unwrap();
    }
    let mut write = ledger.write(CommitDurability::Power).await.unwrap();
    assert_eq!(narrative::get(&mut write, &[7; 32]).await.unwrap(), None);
    narrative::put(&mut write, &[7; 32], "d").await.unwrap();
    narrative::put(&mut write, &[7; 32], "e").await.unwrap();
    assert_eq!(narrative::get(&mut write, &[7; 32]).await.unwrap().as_deref(), Some("d"));
}

/// Sixteen concurrent writers, each with a ledger of its own: no entry is lost, and none fails.
async fn concurrent_entries_are_all_stored(database: Database) {
    let writers: Vec<_> = (0..16)
        .map(|n| {
            let storage = database.storage.clone();
            tokio::spawn(async move {
                let ledger = Ledger::open(&storage, crate::database::redactor()).await.unwrap();
                for i in 0..10 {
                    log(&ledger, "birds", &format!("entry {n}/{i}"), "all at once", &["t"]).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let ledger = database.open().await;
    let words = terms("once", FOLDING);
    assert_eq!(find(&ledger, TextFilter::Anything, &["t"], EVER).await.total, 160);
    assert_eq!(find(&ledger, TextFilter::Words(&words), &[], EVER).await.total, 160);
}
