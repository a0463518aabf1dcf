//! Inspects a database before it is opened, and finds out quickly whether it can be reached.
//!
//! A path or a URL comes from the user's configuration and may name another program's database. A file is inspected
//! (owner, header, tables) without locking or changing it; only then do `ledger.rs` and `index.rs` open it. Messages
//! about a PostgreSQL database never contain its password.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Access, AtFlags, CWD};
use sqlx::any::AnyPoolOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AnyConnection, Connection};
use thiserror::Error;

use scrubjay_tape::clock;
use scrubjay_tape::private::{NotPrivate, check_above};

/// How long a database may take to answer the first connection: with it, an error reaches a user at a terminal within
/// two seconds.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_millis(1500);

/// How often, and at what interval, a database without tables is inspected: a second in all. A process that is creating
/// ours writes its first table to the log in much less.
const INSPECTIONS_MAX: u32 = 11;
const INSPECTION_INTERVAL: Duration = Duration::from_millis(100);

/// The first bytes of every SQLite database.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// The offset of the application id in the header; big endian.
const APPLICATION_ID: std::ops::Range<usize> = 68..72;
/// The size of the header.
const HEADER_BYTES: u64 = 100;
/// How much of a write-ahead log is searched for our first statement, which is at its beginning.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// How many tables of another program's database an error names.
const TABLES_NAMED: usize = 3;

/// The kind of database that a file is opened as.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatabaseKind {
    /// The application id in its header: four ASCII letters.
    pub(crate) application_id: u32,
    /// Tables that together mark it as ours: databases of older versions have no application id.
    tables: &'static [&'static str],
    /// The first statement in the log of a new database, while its file is still empty.
    first_statement: &'static [u8],
}

pub(crate) const LEDGER: DatabaseKind = DatabaseKind {
    application_id: u32::from_be_bytes(*b"SJLG"),
    tables: &["schema_version", "projects", "sessions", "events"],
    first_statement: b"CREATE TABLE schema_version (version BIGINT NOT NULL)",
};

pub(crate) const INDEX: DatabaseKind = DatabaseKind {
    application_id: u32::from_be_bytes(*b"SJIX"),
    tables: &["version", "tapes"],
    // Without its columns: `index/schema.sql` has one a line, with comments, and SQLite stores it so.
    first_statement: b"CREATE TABLE version (",
};

/// What an inspected path contains, if it can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileInspection {
    /// No file, or an empty one.
    Empty,
    /// A database of ours, or one without tables.
    Ours,
}

/// Why a file is refused as a database. It was not changed.
#[derive(Debug, Error)]
pub enum NotUsable {
    /// The path is not a regular file.
    #[error("it is {0}, not a file")]
    NotAFile(&'static str),
    /// It belongs to another user.
    #[error("it belongs to another user (uid {0})")]
    OtherOwner(u32),
    /// It is not a SQLite file.
    #[error("it is not a SQLite database")]
    NotADatabase,
    /// It is another program's database.
    #[error("it is the database of another program{0}")]
    OtherProgram(String),
    /// It is another program's database, or one of ours that another process is creating at this moment.
    #[error("it is the database of another program (which has not moved its tables out of its log yet)")]
    InLog,
    /// Other users could replace it.
    #[error("{0}")]
    NotPrivate(#[from] NotPrivate),
    /// No file can be created in its directory.
    #[error("its directory {path} cannot be written: {source}", path = .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It is a database that SQLite cannot read.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Finds out whether a path can be used for a database of ours. Changes nothing and leaves nothing behind.
pub(crate) async fn inspect(path: &Path, kind: DatabaseKind) -> Result<FileInspection, NotUsable> {
    // Only `InLog` is worth waiting for: a database of ours looks like that while another process creates it.
    for _ in 1..INSPECTIONS_MAX {
        match inspect_once(path, kind).await {
            Err(NotUsable::InLog) => tokio::time::sleep(INSPECTION_INTERVAL).await,
            inspected => return inspected,
        }
    }
    inspect_once(path, kind).await
}

async fn inspect_once(path: &Path, kind: DatabaseKind) -> Result<FileInspection, NotUsable> {
    let header = {
        let path = path.to_owned();
        let read = tokio::task::spawn_blocking(move || read_header(&path)).await;
        match read.map_err(io::Error::other)?? {
            Some(header) => header,
            None => return Ok(FileInspection::Empty),
        }
    };
    if !header.starts_with(MAGIC) || header.len() < HEADER_BYTES as usize {
        return Err(NotUsable::NotADatabase);
    }
    let id = u32::from_be_bytes(header[APPLICATION_ID].try_into().expect("it is a range of four"));
    if id == kind.application_id {
        return Ok(FileInspection::Ours);
    }
    // Named in the error, because `storage` may point at the index by mistake.
    if id == LEDGER.application_id || id == INDEX.application_id {
        let what = if id == LEDGER.application_id { "ledger" } else { "index of tapes" };
        return Err(NotUsable::OtherProgram(format!(": Scrubjay's {what}")));
    }
    if id != 0 {
        return Err(NotUsable::OtherProgram(format!(" (application id {id:#x})")));
    }
    // No application id: ours of an older version, or another program's, since most set none.
    let tables = tables_of(path).await?;
    if kind.tables.iter().all(|table| tables.iter().any(|found| found == table)) {
        return Ok(FileInspection::Ours);
    }
    if !tables.is_empty() {
        let more = if tables.len() > TABLES_NAMED { ", …" } else { "" };
        let named: Vec<&str> = tables.iter().take(TABLES_NAMED).map(String::as_str).collect();
        return Err(NotUsable::OtherProgram(format!(" (it has the tables {}{more})", named.join(", "))));
    }
    // Tables that were just created are only in the log, until SQLite moves them into the file. If the process that
    // created them was killed, they stay there.
    // Read as bytes, because SQLite would have to lock the file and create the index of the log to read it.
    match read_log_start(path)? {
        log if log.is_empty() => Ok(FileInspection::Ours),
        log if memchr::memmem::find(&log, kind.first_statement).is_some() => Ok(FileInspection::Ours),
        _ => Err(NotUsable::InLog),
    }
}

/// Returns a file's first bytes; `None` if it is empty, or does not exist and can be created.
fn read_header(path: &Path) -> Result<Option<Vec<u8>>, NotUsable> {
    // First: somebody who can replace a directory above the file can replace the file after any check.
    check_above(path)?;
    let facts = match std::fs::metadata(path) {
        Ok(facts) => facts,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return check_directory(path).map(|()| None);
        }
        Err(e) => return Err(e.into()),
    };
    let kind = facts.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() {
            "a directory"
        } else if kind.is_fifo() {
            "a named pipe"
        } else if kind.is_socket() {
            "a socket"
        } else {
            "a device"
        };
        return Err(NotUsable::NotAFile(what));
    }
    // Before its content: a file of another user is not even read.
    if facts.uid() != rustix::process::geteuid().as_raw() {
        return Err(NotUsable::OtherOwner(facts.uid()));
    }
    // SQLite takes an empty file for a new database, and so do we: it has nothing to lose.
    if facts.len() == 0 {
        return Ok(None);
    }
    let mut header = Vec::new();
    File::open(path)?.take(HEADER_BYTES).read_to_end(&mut header)?;
    Ok(Some(header))
}

/// Checks that a file can be created: its directory is writable, or can itself be created.
fn check_directory(path: &Path) -> Result<(), NotUsable> {
    let parents = path.ancestors().skip(1).filter(|directory| !directory.as_os_str().is_empty());
    for directory in parents {
        let checked = match std::fs::metadata(directory) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => Err(e),
            Ok(facts) if !facts.is_dir() => Err(io::Error::from(io::ErrorKind::NotADirectory)),
            Ok(_) => {
                // EACCESS checks the effective user, as the later open does; plain access(2) checks the real one.
                rustix::fs::accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
                    .map_err(io::Error::from)
            }
        };
        return checked.map_err(|source| NotUsable::Directory { path: directory.to_owned(), source });
    }
    Ok(())
}

/// Reads the names of the tables in a file. `immutable=1` ignores locks, and creates no file beside it.
async fn tables_of(path: &Path) -> Result<Vec<String>, NotUsable> {
    let damaged = |e: sqlx::Error| NotUsable::Damaged(cause(&e));
    sqlx::any::install_default_drivers();
    let url = format!("{}?mode=ro&immutable=1", sqlite_address(path));
    let mut connection = AnyConnection::connect(&url).await.map_err(damaged)?;
    let names = sqlx::query_scalar("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        .fetch_all(&mut connection)
        .await;
    connection.close().await.map_err(damaged)?;
    names.map_err(damaged)
}

/// Returns the beginning of the write-ahead log.
fn read_log_start(path: &Path) -> Result<Vec<u8>, NotUsable> {
    let mut log = Vec::new();
    match File::open(beside(path, "-wal")) {
        Ok(file) => drop(file.take(LOG_BYTES_MAX).read_to_end(&mut log)?),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e.into()),
    }
    Ok(log)
}

/// Returns the path of a file that belongs to a database, by its suffix.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns the URL of an existing SQLite file.
pub(crate) fn sqlite_url(path: &Path) -> String {
    sqlite_address(path) + "?mode=rw"
}

fn sqlite_address(path: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt;
    let mut url = "sqlite://".to_owned();
    // Escaped, because `?`, `#` and `%` have a meaning in a URL, and a path need not be UTF-8.
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => url.push(*byte as char),
            other => write!(url, "%{other:02X}").expect("a string takes any text"),
        }
    }
    url
}

/// Connects once, within a time limit. A pool would retry for as long as its caller waits.
pub(crate) async fn connect(url: &str) -> Result<AnyConnection, sqlx::Error> {
    match tokio::time::timeout(CONNECT_TIMEOUT, AnyConnection::connect(url)).await {
        Ok(connected) => connected,
        Err(_) => {
            let why = format!("no answer within {CONNECT_TIMEOUT:?}");
            Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, why)))
        }
    }
}

/// The time since which a pool reuses connections: older ones are closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Renewal(Arc<Mutex<Option<Instant>>>);

impl Renewal {
    /// Closes all current connections of the pool when they are next taken from it.
    pub(crate) fn renew(&self) {
        *self.since() = Some(clock::now().instant);
    }

    /// Tells whether a connection of this age was opened since.
    fn is_new(&self, age: Duration) -> bool {
        self.since().is_none_or(|since| age < clock::now().instant.saturating_duration_since(since))
    }

    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Prepares a pool that does not reuse a connection whose transaction could not be ended, or that is older than its
/// renewal.
///
/// When a disk is full or fails, SQLite rolls the transaction back by itself. The driver's rollback then fails, and the
/// driver counts the transaction as open for ever, so it would refuse every later one on that connection.
pub(crate) fn pool(connections_max: u32, acquire_timeout: Duration, renewal: &Renewal) -> AnyPoolOptions {
    let renewal = renewal.clone();
    AnyPoolOptions::new()
        .max_connections(connections_max)
        .acquire_timeout(acquire_timeout)
        // `false` makes sqlx close the connection and take or open another one.
        .before_acquire(move |_, facts| {
            let is_new = renewal.is_new(facts.age);
            Box::pin(async move { Ok(is_new) })
        })
        .after_release(|connection, _| Box::pin(is_clean(connection)))
}

/// Tells whether a returned connection can be reused; an error means that it is broken.
async fn is_clean(connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
    // The ping waits for queued work: the rollback of a dropped transaction.
    connection.ping().await?;
    Ok(!connection.is_in_transaction())
}

/// Tells whether SQLite reports a read-only database. Our files are writable, so it could not be opened for writing for
/// a moment, and SQLite silently opened it read-only. Only a new connection can write.
pub(crate) fn is_read_only(error: &sqlx::Error) -> bool {
    const READ_ONLY: u32 = 8;
    matches!(error, sqlx::Error::Database(error) if sqlite_code(&**error) == Some(READ_ONLY))
}

/// Returns SQLite's primary error code; `None` for errors of PostgreSQL, whose codes have five characters.
pub(crate) fn sqlite_code(error: &dyn sqlx::error::DatabaseError) -> Option<u32> {
    let code = error.code()?;
    // An extended code holds the primary one in its low byte.
    if code.len() < 5 { code.parse::<u32>().ok().map(|code| code & 0xff) } else { None }
}

/// Describes where a PostgreSQL database is, without user name and password.
#[must_use]
pub(crate) fn postgres_location(url: &str) -> String {
    let Ok(options) = url.parse::<PgConnectOptions>() else {
        return "PostgreSQL, at an address that cannot be read".to_owned();
    };
    let host = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    match options.get_database() {
        Some(name) => format!("PostgreSQL at {host}, database {name}"),
        None => format!("PostgreSQL at {host}"),
    }
}

/// Returns a database error's own message, without sqlx's prefix.
pub(crate) fn cause(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Io(e) => e.to_string(),
        sqlx::Error::Database(e) => e.message().to_owned(),
        sqlx::Error::PoolTimedOut => "no connection was free in time".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use sqlx::Executor;

    use super::*;

    /// A database that another process is creating is inspected again until its first table shows what it is.
    #[tokio::test]
    async fn a_database_that_is_being_created_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("index.db");
        File::create(&path).unwrap();
        sqlx::any::install_default_drivers();
        let mut maker = AnyConnection::connect(&sqlite_url(&path)).await.unwrap();
        maker.execute("PRAGMA journal_mode=WAL; PRAGMA user_version=1").await.unwrap();
        assert!(matches!(inspect_once(&path, INDEX).await, Err(NotUsable::InLog)));
        let inspecting = tokio::spawn({
            let path = path.clone();
            async move { inspect(&path, INDEX).await }
        });
        maker.execute("CREATE TABLE version (version BIGINT NOT NULL)").await.unwrap();
        assert_eq!(inspecting.await.unwrap().unwrap(), FileInspection::Ours);
    }

    #[test]
    fn a_location_has_no_password() {
        let place = |url: &str| postgres_location(url);
        assert_eq!(
            place("postgres://ann:s3cret@db.example:6000/birds?sslmode=disable"),
            "PostgreSQL at db.example:6000, database birds"
        );
        assert_eq!(
            place("postgres://ann:s3cret@db.example:port/birds"),
            "PostgreSQL, at an address that cannot be read"
        );
    }
}
