//! What a recorded file change costs compared with the same syncs without recording, how fast the views of long
//! sessions are, and what contents take in the ledger.
//!
//! Works on the disk of the target directory: a file system in memory has no syncs to compare with. Writes
//! `bench-results/file-op.json`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use scrubjay_bench::clock;
use scrubjay_bench::json::Json;
use scrubjay_bench::series::{Series, median, ratios};
use scrubjay_bench::table::Table;
use scrubjay_core::redact::Redactor;
use scrubjay_store::files::{Action, Change, FILE_BYTES_MAX, Files, NewContent, TextEdit};
use scrubjay_store::ledger::event::{self, EventKind, NewEvent};
use scrubjay_store::ledger::revision::{self, Revision, RevisionSource, RevisionState};
use scrubjay_store::ledger::session::{self, Caller, Session};
use scrubjay_store::ledger::{CommitDurability, Ledger, LedgerError, Storage, Write as Mutation, blob};
use scrubjay_store::views::budget::Window;
use scrubjay_store::views::{evolution, timeline};
use scrubjay_store::workspace::Workspace;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const FILE_BYTES: usize = 10 * 1024;
/// The bytes that an intent adds to a log: the change itself and its event.
const LOG_BYTES: usize = 12 * 1024;
const EVENTS: i64 = 100_000;
const REVISIONS: usize = 10_000;
/// How many are written in one transaction when a long session is prepared.
const BATCH: usize = 1000;
/// The most events and revisions that a page has by default.
const PAGE: i64 = 200;

fn main() -> Outcome<()> {
    let quick = std::env::args().any(|a| a == "--quick");
    let program_directory = std::env::current_exe()?.parent().map(Path::to_owned).unwrap_or_default();
    let data = program_directory.join("file-op-bench-data");
    if data.exists() {
        std::fs::remove_dir_all(&data)?;
    }
    std::fs::create_dir_all(data.join("workspace"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut raw = Series::of("the same syncs, raw");
    let mut own = Series::of("file_op");
    let mut views = Series::of("views");
    let mut size = Series::of("contents");
    runtime.block_on(async {
        changes(&data, if quick { 100 } else { 500 }, &mut raw, &mut own).await?;
        pages(&data, if quick { 5 } else { 20 }, &mut views).await?;
        for bytes in [FILE_BYTES, 2500] {
            contents(&data, bytes, &mut size).await?;
        }
        Outcome::Ok(())
    })?;
    std::fs::remove_dir_all(&data)?;
    report(&raw, &own, &views, &size)
}

fn caller() -> Caller {
    Caller::alone("bench", "bench")
}

async fn open(path: &Path) -> Result<Ledger, LedgerError> {
    Ledger::open(&Storage::File(path.to_owned()), Arc::new(Redactor::standard())).await
}

/// Returns the sources of this repository, one after the other: text as agents write it.
fn sources() -> io::Result<String> {
    let mut all = String::new();
    let mut open = vec![PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crates")];
    while let Some(directory) = open.pop() {
        let mut entries: Vec<PathBuf> =
            std::fs::read_dir(directory)?.map(|e| e.map(|e| e.path())).collect::<io::Result<_>>()?;
        entries.sort();
        for path in entries {
            match path.extension().is_some_and(|extension| extension == "rs") {
                true => all += &std::fs::read_to_string(path)?,
                false if path.is_dir() => open.push(path),
                false => {}
            }
        }
    }
    Ok(all.chars().filter(char::is_ascii).collect())
}

/// Edits a file of 10 KB through the ledger and without it, in turns.
async fn changes(data: &Path, rounds: usize, raw: &mut Series, own: &mut Series) -> Outcome<()> {
    let ledger = open(&data.join("ledger.db")).await?;
    let workspace = Workspace::open(&data.join("workspace"))?;
    let files = Arc::new(Files::new(ledger.clone(), workspace, data.join("locks"), FILE_BYTES_MAX));
    let mut text = "round 0\n".to_owned() + &sources()?;
    text.truncate(FILE_BYTES);
    let change = |path: &str, action| {
        let path = path.to_owned();
        Change { session: None, path, action, expected: None, mode: None, rewinds_to: None }
    };
    files.change(&caller(), change("file", Action::Create(NewContent::Text(text.clone())))).await?;
    let mut log = OpenOptions::new().create(true).append(true).open(data.join("log"))?;
    for round in 0..rounds {
        let edit = TextEdit {
            old_text: format!("round {round}\n"),
            new_text: format!("round {}\n", round + 1),
            replace_all: false,
        };
        let edit = change("file", Action::Edit(NewContent::Edits(vec![edit])));
        let started = clock::now();
        files.change(&caller(), edit).await?;
        own.push("us", started.elapsed().as_secs_f64() * 1e6);
        let started = clock::now();
        by_hand(data, &mut log, text.as_bytes())?;
        raw.push("us", started.elapsed().as_secs_f64() * 1e6);
    }
    ledger.close().await;
    Ok(())
}

/// Writes only what must be on disk for a change that survives a loss of power.
fn by_hand(data: &Path, log: &mut File, text: &[u8]) -> io::Result<()> {
    log.write_all(&[b'x'; LOG_BYTES])?;
    log.sync_all()?;
    let (temporary, target) = (data.join("workspace/temporary"), data.join("workspace/raw"));
    let mut file = File::create(&temporary)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(temporary, target)?;
    File::open(data.join("workspace"))?.sync_all()
}

/// Reads pages of a session with many events, and of a file with many revisions.
async fn pages(data: &Path, rounds: usize, views: &mut Series) -> Outcome<()> {
    let ledger = open(&data.join("long.db")).await?;
    let session = long_session(&ledger).await?;
    let mut read = ledger.read().await?;
    for round in 0..rounds {
        let after = EVENTS * round as i64 / rounds as i64;
        let started = clock::now();
        let page = timeline::read(&mut read, &session, Window::items(after, PAGE)).await?;
        views.push("timeline ms", started.elapsed().as_secs_f64() * 1e3);
        assert!(page.events.len() as i64 == PAGE && page.total >= EVENTS, "a full page");
        let after = (REVISIONS * round / rounds) as i64;
        let started = clock::now();
        let page = evolution::read(&mut read, &session, "file", Window::items(after, PAGE)).await?;
        views.push("evolution ms", started.elapsed().as_secs_f64() * 1e3);
        assert_eq!((page.revisions.len() as i64, page.total), (PAGE, REVISIONS as i64), "a full page");
    }
    drop(read);
    ledger.close().await;
    Ok(())
}

/// Prepares a session of 100,000 events, a tenth of which are changes of one file of 10 KB.
async fn long_session(ledger: &Ledger) -> Outcome<Session> {
    let mut text = sources()?;
    text.truncate(FILE_BYTES);
    let mut before = None;
    let mut write = ledger.write(CommitDurability::Process).await?;
    let session = session::current(&mut write, &caller(), None).await?;
    for number in 0..EVENTS as usize {
        if number % BATCH == 0 {
            write.commit().await?;
            write = ledger.write(CommitDurability::Process).await?;
        }
        let is_change = number % (EVENTS as usize / REVISIONS) == 0;
        let kind = if is_change { EventKind::FileEdit } else { EventKind::Deliverable };
        let details = serde_json::json!({ "path": "file", "action": "edit", "added": 1, "removed": 1 });
        let event = NewEvent::new(kind, format!("event {number}")).about("file").with(details);
        let event_id = event::append(&mut write, &session, &caller(), event).await?;
        if is_change {
            let after = blob::put(&mut write, format!("{text}{number}\n").as_bytes()).await?;
            add_revision(&mut write, event_id, before, after).await?;
            before = Some(after);
        }
    }
    write.commit().await?;
    Ok(session)
}

async fn add_revision(
    write: &mut Mutation,
    event_id: i64,
    before: Option<blob::Hash>,
    after: blob::Hash,
) -> Outcome<()> {
    let revision = Revision {
        id: 0,
        workspace: "/bench".to_owned(),
        path: "file".to_owned(),
        event_id,
        source: RevisionSource::Enforced,
        state: RevisionState::Done,
        before,
        after: Some(after),
        size: FILE_BYTES as i64,
        lines: 300,
        added: 1,
        removed: 1,
        mode: None,
    };
    revision::insert(write, &revision).await?;
    Ok(())
}

/// Keeps distinct contents of about a length, and compares what they take with zstd alone.
async fn contents(data: &Path, bytes: usize, size: &mut Series) -> Outcome<()> {
    let path = data.join(format!("contents-{bytes}.db"));
    let text = sources()?;
    open(&path).await?.close().await;
    let empty = std::fs::metadata(&path)?.len();
    let ledger = open(&path).await?;
    let mut write = ledger.write(CommitDurability::Process).await?;
    let mut alone = 0;
    let step = bytes / 3 + 1;
    for (number, start) in (0..text.len() - 2 * bytes).step_by(step).enumerate() {
        // From three quarters to five quarters of it.
        let length = bytes * 3 / 4 + number * 7919 % (bytes / 2);
        let content = &text.as_bytes()[start..start + length];
        alone += zstd::bulk::compress(content, 3)?.len();
        blob::put(&mut write, content).await?;
    }
    write.commit().await?;
    ledger.close().await;
    let taken = std::fs::metadata(&path)?.len() - empty;
    size.push(&format!("{bytes}"), taken as f64 / alone as f64);
    Ok(())
}

fn report(raw: &Series, own: &Series, views: &Series, size: &Series) -> Outcome<()> {
    let mut text = String::new();
    let figure = |series: &Series, name: &str, digits: usize| {
        series.median(name).map(|value| format!("{value:.digits$}")).unwrap_or_default()
    };
    let times = median(&ratios(own.rounds("us"), raw.rounds("us"))).unwrap_or(0.0);
    let mut table = Table::new("an edit of a 10 KB file, durable", &["µs", "× raw"]);
    table.push(&raw.target, [figure(raw, "us", 0), "1.00".to_owned()]);
    table.push(&own.target, [figure(own, "us", 0), format!("{times:.2}")]);
    table.push_to(&mut text);
    let mut table = Table::new("pages of 200", &["median ms", "slowest ms"]);
    for (name, what) in
        [("timeline ms", "timeline of 100,000 events"), ("evolution ms", "evolution of 10,000 revisions")]
    {
        let slowest = views.rounds(name).iter().copied().fold(0.0, f64::max);
        table.push(what, [figure(views, name, 1), format!("{slowest:.1}")]);
    }
    table.push_to(&mut text);
    let mut table = Table::new("contents in the ledger", &["× zstd -3 alone"]);
    for bytes in size.names() {
        table.push(&format!("source files of about {bytes} bytes"), [figure(size, bytes, 2)]);
    }
    table.push_to(&mut text);
    io::stdout().write_all(text.as_bytes())?;
    std::fs::create_dir_all("bench-results")?;
    let json = Json::List([raw, own, views, size].map(Series::to_json).into());
    Ok(std::fs::write("bench-results/file-op.json", format!("{json}\n"))?)
}
