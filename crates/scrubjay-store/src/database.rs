//! Looks at a database before anything touches it, and finds out quickly whether it can be reached.
//!
//! A path or an address comes from a person and may name something that is not ours. A file is judged by its owner,
//! its header and its tables, without a lock and without a change; only then does `ledger.rs` or `index.rs` open it.
//! What is said of a PostgreSQL database never holds its password.

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

/// How long a database may take to answer when it is first spoken to: a person hears of it within two seconds.
pub(crate) const REACHED_WITHIN: Duration = Duration::from_millis(1500);

/// A process that begins a database of ours has its tables in the log within much less than these together.
const LOOKS_MAX: u32 = 11;
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What every SQLite database begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Where the header says whose database it is, big endian.
const APPLICATION_ID: std::ops::Range<usize> = 68..72;
const HEADER_BYTES: u64 = 100;
/// No more of a write-ahead log is looked through: tables are made at its beginning.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// So many tables of another program are named.
const TABLES_NAMED: usize = 3;

/// Which of our databases a file shall be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatabaseKind {
    /// What its header says: four letters.
    pub(crate) application_id: u32,
    /// Tables that it has, and no other program's database together; older ones have nothing in the header.
    tables: &'static [&'static str],
    /// What its log holds from the first moment, where the file holds nothing yet.
    first_words: &'static [u8],
}

/// The ledger.
pub(crate) const LEDGER: DatabaseKind = DatabaseKind {
    application_id: u32::from_be_bytes(*b"SJLG"),
    tables: &["schema_version", "projects", "sessions", "events"],
    first_words: b"CREATE TABLE schema_version (version BIGINT NOT NULL)",
};

/// The index.
pub(crate) const INDEX: DatabaseKind = DatabaseKind {
    application_id: u32::from_be_bytes(*b"SJIX"),
    tables: &["version", "tapes"],
    first_words: b"CREATE TABLE version (version BIGINT NOT NULL)",
};

/// What stands at a path that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileInspection {
    /// Nothing, or a file without any content.
    Empty,
    /// A database of ours, or one that nobody has put anything in.
    Ours,
}

/// Why a file is not used as a database. It was not touched.
#[derive(Debug, Error)]
pub enum NotUsable {
    /// Something else stands there.
    #[error("it is {0}, not a file")]
    NotAFile(&'static str),
    /// It is somebody else's.
    #[error("it belongs to another user (uid {0})")]
    OtherOwner(u32),
    /// It is a file of another kind.
    #[error("it is not a SQLite database")]
    NotADatabase,
    /// It is a database of another kind.
    #[error("it is the database of another program{0}")]
    OtherProgram(String),
    /// It is a database of another kind, or one of ours that another process begins at this moment.
    #[error("it is the database of another program (which has not moved its tables out of its log yet)")]
    InLog,
    /// Others could put another one in its place.
    #[error("{0}")]
    NotPrivate(#[from] NotPrivate),
    /// The directory takes no new file.
    #[error("its directory {path} cannot be written: {source}", path = .path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is a database that SQLite cannot read.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// It cannot be looked at.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Looks whether a path can be used for a database of ours. Nothing is changed or left behind.
pub(crate) async fn inspect(path: &Path, kind: DatabaseKind) -> Result<FileInspection, NotUsable> {
    for _ in 1..LOOKS_MAX {
        match look_once(path, kind).await {
            Err(NotUsable::InLog) => tokio::time::sleep(LOOK_AGAIN).await,
            looked => return looked,
        }
    }
    look_once(path, kind).await
}

async fn look_once(path: &Path, kind: DatabaseKind) -> Result<FileInspection, NotUsable> {
    let header = {
        let path = path.to_owned();
        let looked = tokio::task::spawn_blocking(move || look_at_header(&path)).await;
        match looked.map_err(io::Error::other)?? {
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
    if id == LEDGER.application_id || id == INDEX.application_id {
        let what = if id == LEDGER.application_id { "ledger" } else { "index of tapes" };
        return Err(NotUsable::OtherProgram(format!(": Scrubjay's {what}")));
    }
    if id != 0 {
        return Err(NotUsable::OtherProgram(format!(" (application id {id:#x})")));
    }
    // Ours of before headers said so, or any other program's: most say nothing.
    let tables = tables_of(path).await?;
    if kind.tables.iter().all(|table| tables.iter().any(|found| found == table)) {
        return Ok(FileInspection::Ours);
    }
    if !tables.is_empty() {
        let more = if tables.len() > TABLES_NAMED { ", …" } else { "" };
        let named: Vec<&str> = tables.iter().take(TABLES_NAMED).map(String::as_str).collect();
        return Err(NotUsable::OtherProgram(format!(" (it has the tables {}{more})", named.join(", "))));
    }
    match first_of_log(path)? {
        log if log.is_empty() => Ok(FileInspection::Ours),
        log if memchr::memmem::find(&log, kind.first_words).is_some() => Ok(FileInspection::Ours),
        _ => Err(NotUsable::InLog),
    }
}

/// Returns a file's first bytes; none where there is nothing in it, or where it can still be made.
fn look_at_header(path: &Path) -> Result<Option<Vec<u8>>, NotUsable> {
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
    if facts.uid() != rustix::process::geteuid().as_raw() {
        return Err(NotUsable::OtherOwner(facts.uid()));
    }
    if facts.len() == 0 {
        return Ok(None);
    }
    let mut header = Vec::new();
    File::open(path)?.take(HEADER_BYTES).read_to_end(&mut header)?;
    Ok(Some(header))
}

/// Checks that a file can be made: its directory is there and takes one, or can be made itself.
fn check_directory(path: &Path) -> Result<(), NotUsable> {
    let parents = path.ancestors().skip(1).filter(|directory| !directory.as_os_str().is_empty());
    for directory in parents {
        let checked = match std::fs::metadata(directory) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => Err(e),
            Ok(facts) if !facts.is_dir() => Err(io::Error::from(io::ErrorKind::NotADirectory)),
            Ok(_) => {
                rustix::fs::accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
                    .map_err(io::Error::from)
            }
        };
        return checked.map_err(|source| NotUsable::Directory { path: directory.to_owned(), source });
    }
    Ok(())
}

/// Reads the names of the tables in a file, past all locks: nothing is made beside it.
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

/// Returns the beginning of what SQLite has not moved into the file yet.
fn first_of_log(path: &Path) -> Result<Vec<u8>, NotUsable> {
    let mut log = Vec::new();
    match File::open(beside(path, "-wal")) {
        Ok(file) => drop(file.take(LOG_BYTES_MAX).read_to_end(&mut log)?),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e.into()),
    }
    Ok(log)
}

/// Returns the path of a file beside a database.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns the URL of a SQLite file that is there.
pub(crate) fn sqlite_url(path: &Path) -> String {
    sqlite_address(path) + "?mode=rw"
}

fn sqlite_address(path: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt;
    let mut url = "sqlite://".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => url.push(*byte as char),
            other => write!(url, "%{other:02X}").expect("a string takes any text"),
        }
    }
    url
}

/// Connects once, within a limit. A pool would try again and again, for as long as anyone waits.
pub(crate) async fn connect(url: &str) -> Result<AnyConnection, sqlx::Error> {
    match tokio::time::timeout(REACHED_WITHIN, AnyConnection::connect(url)).await {
        Ok(connected) => connected,
        Err(_) => {
            let why = format!("no answer within {REACHED_WITHIN:?}");
            Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, why)))
        }
    }
}

/// When all connections of a pool were given up: those from before are closed instead of used again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Renewal(Arc<Mutex<Option<Instant>>>);

impl Renewal {
    /// Gives up all connections that there are.
    pub(crate) fn renew(&self) {
        *self.since() = Some(clock::now().instant);
    }

    /// Tells whether a connection of this age was made since.
    fn is_new(&self, age: Duration) -> bool {
        self.since().is_none_or(|since| age < clock::now().instant.saturating_duration_since(since))
    }

    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Prepares a pool that keeps no connection whose transaction could not be ended, and none that was given up.
///
/// SQLite takes a transaction back by itself when a disk is full or fails. The rollback that follows finds none and
/// fails, and the driver counts the transaction as open for ever: every later one on that connection would be refused.
pub(crate) fn pool(connections_max: u32, patience: Duration, renewal: &Renewal) -> AnyPoolOptions {
    let renewal = renewal.clone();
    AnyPoolOptions::new()
        .max_connections(connections_max)
        .acquire_timeout(patience)
        .before_acquire(move |_, facts| {
            let is_new = renewal.is_new(facts.age);
            Box::pin(async move { Ok(is_new) })
        })
        .after_release(|connection, _| Box::pin(is_clean(connection)))
}

/// Tells whether a connection that comes back can be used again; an error says that it is gone.
async fn is_clean(connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
    // What is queued on it goes first: the rollback of a transaction that was dropped.
    connection.ping().await?;
    Ok(!connection.is_in_transaction())
}

/// Tells whether SQLite says that it may only read. A file of ours can be written: it could not be opened so for a
/// moment, and SQLite made do with less. Only another connection can write.
pub(crate) fn is_read_only(error: &sqlx::Error) -> bool {
    const READ_ONLY: u32 = 8;
    matches!(error, sqlx::Error::Database(error) if sqlite_code(&**error) == Some(READ_ONLY))
}

/// Returns SQLite's code of an error, without what narrows it; PostgreSQL's codes have five characters.
pub(crate) fn sqlite_code(error: &dyn sqlx::error::DatabaseError) -> Option<u32> {
    let code = error.code()?;
    if code.len() < 5 { code.parse::<u32>().ok().map(|code| code & 0xff) } else { None }
}

/// Says where a PostgreSQL database is, without who uses it and how they are let in.
#[must_use]
pub(crate) fn postgres_place(url: &str) -> String {
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

/// Says what a database said, without what a library puts in front of it.
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

    /// A database that another process has begun, with nothing in it yet, is looked at until it tells what it is.
    #[tokio::test]
    async fn one_that_is_being_made_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("index.db");
        File::create(&path).unwrap();
        sqlx::any::install_default_drivers();
        let mut maker = AnyConnection::connect(&sqlite_url(&path)).await.unwrap();
        maker.execute("PRAGMA journal_mode=WAL; PRAGMA user_version=1").await.unwrap();
        assert!(matches!(look_once(&path, INDEX).await, Err(NotUsable::InLog)));
        let looking = tokio::spawn({
            let path = path.clone();
            async move { inspect(&path, INDEX).await }
        });
        maker.execute("CREATE TABLE version (version BIGINT NOT NULL)").await.unwrap();
        assert_eq!(looking.await.unwrap().unwrap(), FileInspection::Ours);
    }

    #[test]
    fn a_place_has_no_password() {
        let place = |url: &str| postgres_place(url);
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
