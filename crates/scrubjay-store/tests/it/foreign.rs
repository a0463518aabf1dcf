//! A path or URL of the ledger that leads to a foreign or missing file or server is refused at once, without changes.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use scrubjay_store::ledger::{CommitDurability, Ledger, LedgerError, Storage};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use crate::database::{Database, redactor};

/// Much longer than an answer takes, and much shorter than a wait for a lock.
const HANGS: Duration = Duration::from_secs(10);

async fn open(storage: &Storage) -> Result<Ledger, LedgerError> {
    tokio::time::timeout(HANGS, Ledger::open(storage, redactor()))
        .await
        .expect("the ledger did not answer in time")
}

/// The state of a directory: names, bytes, modes, times.
fn contents(directory: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32, SystemTime)> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            let facts = path.symlink_metadata().unwrap();
            let bytes = if facts.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            (path, (bytes, facts.mode(), facts.modified().unwrap()))
        })
        .collect()
}

/// Opens a ledger at a path in a directory; nothing there may change, and the error says these words.
async fn check_refused(directory: &Path, name: &str, words: &str) {
    let before = contents(directory);
    let path = directory.join(name);
    let error = open(&Storage::File(path.clone())).await.expect_err(name);
    let message = error.to_string();
    assert!(message.contains(path.to_str().unwrap()) && message.contains(words), "{message}");
    assert!(!error.hint().is_empty());
    assert!(Ledger::inspect(&Storage::File(path)).await.is_err(), "{name}");
    assert_eq!(contents(directory), before, "{name} was touched");
}

/// Makes a SQLite file, which stays open as long as the returned connection.
async fn sqlite(path: &Path, statements: &str) -> sqlx::AnyConnection {
    sqlx::any::install_default_drivers();
    let url = format!("sqlite://{}?mode=rwc", path.display());
    let mut connection = sqlx::AnyConnection::connect(&url).await.unwrap();
    connection.execute(AssertSqlSafe(statements.to_owned())).await.unwrap();
    connection
}

#[tokio::test]
async fn a_file_that_is_no_database_is_not_changed() {
    let home = tempfile::tempdir().unwrap();
    let notes = home.path().join("notes.txt");
    std::fs::write(&notes, "Buy seeds for the jays.\n".repeat(20)).unwrap();
    std::fs::set_permissions(&notes, std::fs::Permissions::from_mode(0o644)).unwrap();
    check_refused(home.path(), "notes.txt", "it is not a SQLite database").await;
    std::fs::write(&notes, "x").unwrap();
    check_refused(home.path(), "notes.txt", "it is not a SQLite database").await;
    // The first bytes alone do not make it a database.
    std::fs::write(&notes, b"SQLite format 3\0").unwrap();
    check_refused(home.path(), "notes.txt", "it is not a SQLite database").await;
}

#[tokio::test]
async fn another_programs_database_is_not_changed() {
    let home = tempfile::tempdir().unwrap();
    let tables =
        "CREATE TABLE users (name TEXT); CREATE TABLE orders (n INT); INSERT INTO users VALUES ('ann')";
    sqlite(&home.path().join("app.db"), tables).await.close().await.unwrap();
    check_refused(home.path(), "app.db", "another program (it has the tables orders, users)").await;
    // Having one of our tables does not make it ours.
    sqlite(&home.path().join("flyway.db"), "CREATE TABLE schema_version (version TEXT, script TEXT)")
        .await
        .close()
        .await
        .unwrap();
    check_refused(home.path(), "flyway.db", "another program (it has the tables schema_version)").await;
    sqlite(&home.path().join("geo.db"), "PRAGMA application_id=1196444487; CREATE TABLE t (n INT)")
        .await
        .close()
        .await
        .unwrap();
    check_refused(home.path(), "geo.db", "another program (application id 0x47504b47)").await;
}

#[tokio::test]
async fn a_foreign_database_with_tables_only_in_its_log_is_not_changed() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("live.db");
    let open = sqlite(&path, "PRAGMA journal_mode=WAL; CREATE TABLE users (name TEXT)").await;
    check_refused(home.path(), "live.db", "another program").await;
    open.close().await.unwrap();
}

#[tokio::test]
async fn a_path_that_is_not_a_regular_file_is_refused() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("directory")).unwrap();
    check_refused(home.path(), "directory", "it is a directory, not a file").await;
    let made = std::process::Command::new("mkfifo").arg(home.path().join("pipe")).status().unwrap();
    assert!(made.success());
    check_refused(home.path(), "pipe", "it is a named pipe, not a file").await;
}

#[tokio::test]
#[ignore = "needs root"]
async fn another_users_file_is_refused() {
    crate::needs::root();
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    open(&Storage::File(path.clone())).await.unwrap().close().await;
    std::os::unix::fs::chown(&path, Some(4242), None).unwrap();
    check_refused(home.path(), "ledger.db", "it belongs to another user (uid 4242)").await;
}

#[tokio::test]
async fn an_unwritable_directory_is_named() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("file"), "").unwrap();
    check_refused(home.path(), "file/ledger.db", "Not a directory").await;
    // Nobody can create files there, not even root.
    let error = open(&Storage::File("/proc/self/fdinfo/ledger.db".into())).await.unwrap_err();
    assert!(error.to_string().contains("cannot use /proc/self/fdinfo/ledger.db as the ledger: "), "{error}");
}

#[tokio::test]
async fn a_new_file_and_an_empty_one_become_the_ledger() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("empty.db"), "").unwrap();
    for name in ["empty.db", "new.db", "deep/er/new.db"] {
        let path = home.path().join(name);
        let ledger = open(&Storage::File(path.clone())).await.unwrap();
        // The header has our application id before anything is moved out of the log.
        let header = std::fs::read(&path).unwrap();
        assert_eq!(&header[68..72], b"SJLG", "{name}");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600, "{name}");
        ledger.close().await;
        open(&Storage::File(path)).await.unwrap().close().await;
    }
}

#[tokio::test]
async fn a_ledger_without_an_application_id_is_accepted() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    open(&Storage::File(path.clone())).await.unwrap().close().await;
    sqlite(&path, "PRAGMA application_id=0").await.close().await.unwrap();
    assert_eq!(&std::fs::read(&path).unwrap()[68..72], [0; 4]);
    open(&Storage::File(path.clone())).await.unwrap().close().await;
    assert_eq!(&std::fs::read(&path).unwrap()[68..72], b"SJLG");
    // If its first process was killed, everything is in its log.
    let killed = home.path().join("killed.db");
    let words = "PRAGMA journal_mode=WAL; CREATE TABLE schema_version (version BIGINT NOT NULL)";
    let open_still = sqlite(&home.path().join("alive.db"), words).await;
    for suffix in ["", "-wal"] {
        let from = home.path().join(format!("alive.db{suffix}"));
        std::fs::copy(from, home.path().join(format!("killed.db{suffix}"))).unwrap();
    }
    open(&Storage::File(killed)).await.unwrap().close().await;
    open_still.close().await.unwrap();
}

#[tokio::test]
async fn a_damaged_ledger_is_reported_at_once() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    open(&Storage::File(path.clone())).await.unwrap().close().await;
    let whole = std::fs::read(&path).unwrap();
    let torn = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let storage = Storage::File(path.clone());
        async move { open(&storage).await.expect_err("it is damaged") }
    };
    let mut scribbled = whole.clone();
    scribbled[100..16_384].fill(0x5a);
    for bytes in [&scribbled[..], &whole[..whole.len() / 2]] {
        let error = torn(bytes).await;
        let message = error.to_string();
        assert!(message.contains(path.to_str().unwrap()) && message.contains("malformed"), "{message}");
        assert!(error.hint().contains("Restore"), "{}", error.hint());
    }
}

/// An address of PostgreSQL at a port of this machine.
fn postgres_at(port: u16) -> Storage {
    Storage::Postgres(format!("postgres://ann:s3cret@127.0.0.1:{port}/birds"))
}

#[tokio::test]
async fn an_unreachable_server_is_named_at_once() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // It accepts connections and sends nothing.
    let silent = open(&postgres_at(port)).await.unwrap_err();
    drop(listener);
    let gone = open(&postgres_at(port)).await.unwrap_err();
    for (error, words) in [(silent, "no answer within 1.5s"), (gone, "Connection refused")] {
        let message = error.to_string();
        assert!(message.contains(words), "{message}");
        assert!(message.contains(&format!("PostgreSQL at 127.0.0.1:{port}, database birds")), "{message}");
        assert!(!format!("{message} {error:?}").contains("s3cret"), "{error:?}");
    }
}

/// Passes connections on to the PostgreSQL of the tests, until it is dropped.
struct Between {
    port: u16,
    passing: tokio::task::JoinHandle<()>,
}

impl Between {
    async fn start(server: &str, port: u16) -> Self {
        // A port that was just given up can be taken again.
        let listener = loop {
            match tokio::net::TcpListener::bind(("127.0.0.1", port)).await {
                Ok(listener) => break listener,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let (port, server) = (listener.local_addr().unwrap().port(), server.to_owned());
        let passing = tokio::spawn(async move {
            let mut all = tokio::task::JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let mut far = tokio::net::TcpStream::connect(&server).await.unwrap();
                all.spawn(async move {
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                    let _ = near.shutdown().await;
                });
            }
        });
        Self { port, passing }
    }

    async fn stop(self) {
        self.passing.abort();
        let _ = self.passing.await;
    }
}

#[tokio::test]
#[ignore = "needs postgres"]
async fn a_server_that_returns_is_used_again() {
    let database = Database::postgres().await;
    let Storage::Postgres(url) = &database.storage else { unreachable!() };
    let (start, name) = url.rsplit_once('/').unwrap();
    let (user, server) = start.rsplit_once('@').unwrap();
    let between = Between::start(server, 0).await;
    let port = between.port;
    let ledger = open(&Storage::Postgres(format!("{user}@127.0.0.1:{port}/{name}"))).await.unwrap();
    ledger.write(CommitDurability::Power).await.unwrap().commit().await.unwrap();
    between.stop().await;
    for _ in 0..2 {
        let write = tokio::time::timeout(HANGS, ledger.write(CommitDurability::Power)).await;
        let Err(error) = write.expect("the ledger did not answer in time") else {
            panic!("there is no server, but the write succeeded")
        };
        assert!(error.to_string().contains("Connection refused"), "{error}");
        assert!(matches!(error, LedgerError::Unreachable { .. }), "{error:?}");
    }
    let between = Between::start(server, port).await;
    ledger.write(CommitDurability::Power).await.unwrap().commit().await.unwrap();
    ledger.close().await;
    between.stop().await;
}

/// Inspecting a path creates nothing in its directory.
#[tokio::test]
async fn inspecting_a_path_creates_no_file() {
    let home = TempDir::new().unwrap();
    Ledger::inspect(&Storage::File(home.path().join("a/b/ledger.db"))).await.unwrap();
    assert!(contents(home.path()).is_empty());
}

/// The index is disposable, but another program's database at its path is not.
#[tokio::test]
async fn another_programs_database_in_place_of_the_index_is_not_changed() {
    let home = tempfile::tempdir().unwrap();
    sqlite(&home.path().join("index.db"), "CREATE TABLE users (name TEXT)").await.close().await.unwrap();
    let before = contents(home.path());
    let place = scrubjay_tape::home::Home::new(home.path().to_owned());
    let storage = Storage::File(place.ledger());
    let error = scrubjay_store::index::Index::open(&place, &storage).await.unwrap_err();
    assert!(error.to_string().contains("another program (it has the tables users)"), "{error}");
    assert!(scrubjay_store::index::Index::rebuild(&place, &storage, |_| ()).await.is_err());
    assert_eq!(contents(home.path()), before);
}
