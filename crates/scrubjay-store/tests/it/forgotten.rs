//! No file of the data directory contains text of a removed tape, in any state of the index.

use std::path::Path;

use scrubjay_core::entry::Direction;
use scrubjay_core::query::parse;
use scrubjay_store::index::Index;
use scrubjay_store::ledger::Storage;
use scrubjay_tape::format::seal::seal;
use scrubjay_tape::home::Home;
use scrubjay_tape::removed::RemovedBy;
use sqlx::{AssertSqlSafe, Connection, Executor};

use crate::database::{Database, on_both};
use crate::fixture::{Owned, begin, home};

const NOW: u64 = 1_800_000_000_000_000_000;
/// Words that occur nowhere else: one in each kind of text that the index stores.
const SAID: &str = "qzxjvkwpyhbf";
const TOOL: &str = "wkvqjzgxmpdt";
const METHOD: &str = "xvbkzqjwtnhp";
const FAILED: &str = "jqkxzwvbgmrd";
const RULE: &str = "zjxqwkvphnbt";
const ALL: [&str; 5] = [SAID, TOOL, METHOD, FAILED, RULE];
/// Full-text search omits what a word has in common with the one before it, so the test searches for parts of words,
/// too.
const PIECE: usize = 6;

fn message(ms: u64, direction: Direction, payload: String) -> Owned {
    let (wall_ns, since_start_ns) = (NOW + ms * 1_000_000, ms * 1_000_000);
    Owned { direction, wall_ns, since_start_ns, ..Owned::message(payload) }
}

/// Makes a tape with all of these words among many others.
fn secret_tape() -> Vec<Owned> {
    let (client, server) = (Direction::ClientToServer, Direction::ServerToClient);
    let call = |id: u64, tool: &str, text: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"text":"{text}"}}}}}}"#
        )
    };
    let error =
        format!(r#"{{"jsonrpc":"2.0","id":2,"error":{{"code":-1,"message":"{FAILED} by the host"}}}}"#);
    let list = format!(
        r#"{{"jsonrpc":"2.0","id":3,"result":{{"tools":[{{"name":"{TOOL}","inputSchema":{{"type":"object"}}}}]}}}}"#
    );
    let mut all = vec![
        Owned { rules: RULE.to_owned(), ..message(0, client, call(1, TOOL, SAID)) },
        message(1, server, format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"text":"again {SAID}"}}}}"#)),
        message(2, client, call(2, "read_file", "shared words")),
        message(3, server, error),
        message(4, client, r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#.to_owned()),
        message(5, server, list),
        message(6, client, format!(r#"{{"jsonrpc":"2.0","id":4,"method":"{METHOD}/list"}}"#)),
    ];
    // Enough text that the words are on pages of their own.
    all.extend(
        (0..300).map(|n| message(10 + n, client, call(10 + n, "read_file", &format!("{SAID} {n}word{n}")))),
    );
    all
}

fn other_tape() -> Vec<Owned> {
    let line = |n: u64| {
        let text = format!("shared words stay {n}");
        message(
            n,
            Direction::ClientToServer,
            format!(
                r#"{{"jsonrpc":"2.0","id":{n},"method":"tools/call","params":{{"name":"read_file","arguments":{{"text":"{text}"}}}}}}"#
            ),
        )
    };
    (0..300).map(line).collect()
}

fn record(home: &Home, number: u64, entries: &[Owned]) {
    let mut writer = begin(home, number);
    for some in entries.chunks(100) {
        writer.append(some.iter().map(Owned::written)).unwrap();
    }
    seal(writer.path()).unwrap();
}

/// Two tapes, the first of them secret.
fn record_both(home: &Home) {
    record(home, 1, &secret_tape());
    record(home, 2, &other_tape());
}

fn remove_secret(home: &Home) {
    let oldest = home.list().unwrap().pop().unwrap();
    home.remove(&oldest, RemovedBy::Person).unwrap();
}

/// The files that contain a part of any of the words.
fn holding(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let holds = |piece: &[u8]| bytes.windows(PIECE).any(|window| window == piece);
        let pieces = ALL.iter().flat_map(|word| word.as_bytes().windows(PIECE));
        if pieces.into_iter().any(holds) {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found
}

async fn total(index: &Index, text: &str) -> u64 {
    index.search(&parse(text, NOW, &jiff::tz::TimeZone::UTC).unwrap()).await.unwrap().total
}

async fn filled(home: &Home, storage: &Storage) -> Index {
    let index = Index::open(home, storage).await.unwrap();
    index.catch_up(|_| ()).await.unwrap();
    index
}

async fn a_removed_tape_is_not_found_any_more(database: Database) {
    let (home, storage) = (home(&database.home), &database.storage);
    record_both(&home);
    let index = filled(&home, storage).await;
    for word in ALL {
        assert_ne!(total(&index, word).await, 0, "{word}");
    }
    remove_secret(&home);
    assert_eq!(Index::forget_removed(&home, storage).await.unwrap(), 1);
    for word in ALL {
        assert_eq!(total(&index, word).await, 0, "{word}");
        assert_eq!(
            total(&index, &format!("tool:{word} OR method:{word}* OR rule:{word}")).await,
            0,
            "{word}"
        );
    }
    assert_eq!(total(&index, "shared").await, 300);
    assert_eq!(Index::forget_removed(&home, storage).await.unwrap(), 0);
}

async fn forgetting_creates_no_index(database: Database) {
    let (home, storage) = (home(&database.home), &Storage::File(home(&database.home).ledger()));
    record_both(&home);
    remove_secret(&home);
    assert_eq!(Index::forget_removed(&home, storage).await.unwrap(), 0);
    assert!(!home.index().exists());
}

on_both!(a_removed_tape_is_not_found_any_more, forgetting_creates_no_index);

/// A data directory in which both tapes are indexed, with the index open, as `serve` has it.
struct Indexed {
    database: Database,
    home: Home,
    index: Index,
}

impl Indexed {
    async fn new() -> Self {
        let database = Database::sqlite();
        let home = home(&database.home);
        record_both(&home);
        let index = filled(&home, &database.storage).await;
        assert_ne!(total(&index, SAID).await, 0);
        assert!(
            holding(home.root()).iter().any(|file| file.starts_with("index.db")),
            "the check must find the words in the files before they are forgotten"
        );
        Self { database, home, index }
    }

    fn check_nothing_is_left(&self) {
        assert_eq!(holding(self.home.root()), [""; 0]);
    }

    /// Changes the index directly.
    async fn execute(&self, statements: &str) {
        let url = format!("sqlite://{}", self.home.index().display());
        let mut connection = sqlx::AnyConnection::connect(&url).await.unwrap();
        connection.execute(AssertSqlSafe(statements)).await.unwrap();
        connection.close().await.unwrap();
    }
}

#[tokio::test]
async fn no_file_holds_a_word_of_a_removed_tape() {
    let indexed = Indexed::new().await;
    remove_secret(&indexed.home);
    assert_eq!(Index::forget_removed(&indexed.home, &indexed.database.storage).await.unwrap(), 1);
    indexed.check_nothing_is_left();
    assert_eq!(total(&indexed.index, "shared").await, 300);
}

#[tokio::test]
async fn catching_up_leaves_no_text_of_a_removed_tape() {
    let indexed = Indexed::new().await;
    remove_secret(&indexed.home);
    assert_eq!(indexed.index.catch_up(|_| ()).await.unwrap().removed, 1);
    indexed.check_nothing_is_left();
}

#[tokio::test]
async fn a_rebuilt_index_contains_no_text_of_the_old_one() {
    let indexed = Indexed::new().await;
    remove_secret(&indexed.home);
    let (rebuilt, _) = Index::rebuild(&indexed.home, &indexed.database.storage, |_| ()).await.unwrap();
    assert_eq!(total(&rebuilt, "shared").await, 300);
    indexed.check_nothing_is_left();
}

#[tokio::test]
async fn an_index_of_another_version_is_emptied() {
    let indexed = Indexed::new().await;
    indexed.execute("UPDATE version SET version = 3").await;
    remove_secret(&indexed.home);
    Index::forget_removed(&indexed.home, &indexed.database.storage).await.unwrap();
    indexed.check_nothing_is_left();
    assert_eq!(total(&filled(&indexed.home, &indexed.database.storage).await, "shared").await, 300);
}

#[tokio::test]
async fn a_cleaning_that_a_crash_interrupted_is_completed_later() {
    let indexed = Indexed::new().await;
    remove_secret(&indexed.home);
    // The process was killed after it had deleted the rows.
    let of_tape = "(SELECT id FROM exchanges WHERE tape = 1)";
    let crash = format!(
        "DELETE FROM texts WHERE rowid IN {of_tape}; DELETE FROM judged WHERE exchange IN {of_tape};
         DELETE FROM exchanges WHERE tape = 1; DELETE FROM definitions WHERE tape = 1;
         DELETE FROM tapes WHERE number = 1; UPDATE version SET unclean = 2"
    );
    indexed.execute(&crash).await;
    assert_ne!(holding(indexed.home.root()), [""; 0]);
    indexed.index.catch_up(|_| ()).await.unwrap();
    indexed.check_nothing_is_left();
}

#[tokio::test]
async fn a_slow_reader_delays_only_the_cleaning_of_the_log() {
    let indexed = Indexed::new().await;
    let url = format!("sqlite://{}", indexed.home.index().display());
    let mut reader = sqlx::AnyConnection::connect(&url).await.unwrap();
    let mut reading = reader.begin().await.unwrap();
    let count = "SELECT count(*) FROM exchanges";
    let before: i64 = sqlx::query_scalar(count).fetch_one(&mut *reading).await.unwrap();
    remove_secret(&indexed.home);
    Index::forget_removed(&indexed.home, &indexed.database.storage).await.unwrap();
    assert_eq!(total(&indexed.index, SAID).await, 0);
    let still: i64 = sqlx::query_scalar(count).fetch_one(&mut *reading).await.unwrap();
    assert_eq!(still, before, "an open read transaction still sees its snapshot");
    reading.commit().await.unwrap();
    indexed.index.catch_up(|_| ()).await.unwrap();
    indexed.check_nothing_is_left();
}

#[tokio::test]
async fn a_tape_removed_while_it_is_indexed_leaves_no_text() {
    let database = Database::sqlite();
    let home = home(&database.home);
    record_both(&home);
    let index = Index::open(&home, &database.storage).await.unwrap();
    let mut is_removed = false;
    let caught_up = index.catch_up(|progress| {
        if progress.entries > 0 && !std::mem::replace(&mut is_removed, true) {
            remove_secret(&home);
        }
    });
    assert_eq!(caught_up.await.unwrap().removed, 1);
    assert_eq!(holding(home.root()), [""; 0]);
    assert_eq!(total(&index, "shared").await, 300);
}

#[tokio::test]
async fn tapes_removed_by_retention_leave_no_text() {
    let indexed = Indexed::new().await;
    // Both tapes ended long ago.
    assert_eq!(indexed.home.remove_ended_before(u64::MAX).unwrap(), 2);
    assert_eq!(indexed.index.catch_up(|_| ()).await.unwrap().removed, 2);
    indexed.check_nothing_is_left();
}

#[tokio::test]
async fn catching_up_reports_progress_to_the_end() {
    let database = Database::sqlite();
    let home = home(&database.home);
    record_both(&home);
    let index = Index::open(&home, &database.storage).await.unwrap();
    let mut reports = Vec::new();
    index.catch_up(|progress| reports.push(progress)).await.unwrap();
    let files = home.list().unwrap();
    let bytes: u64 = files.iter().map(|file| std::fs::metadata(&file.path).unwrap().len()).sum();
    assert!(reports.iter().all(|progress| progress.bytes_total == bytes), "{reports:?}");
    assert_eq!(reports.first().map(|progress| progress.bytes), Some(0));
    assert_eq!(reports.last().map(|progress| progress.bytes), Some(bytes));
}
