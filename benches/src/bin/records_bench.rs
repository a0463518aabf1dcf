//! How long the records toolset takes in a large project: activate, overview, search, create.
//!
//! A project of 100,000 records, 12 levels deep, on SQLite, and a smaller project in the same ledger; every call goes
//! through the toolset as an agent's does. `--quick` has a tenth of the records. Writes `bench-results/records.json`.

use std::io::{self, Write as _};
use std::sync::Arc;

use scrubjay_bench::clock;
use scrubjay_bench::json::Json;
use scrubjay_bench::series::quantile;
use scrubjay_bench::table::Table;
use scrubjay_store::ledger::records::{self, NewRecord, RecordId, RecordState, activation};
use scrubjay_store::ledger::session::Caller;
use scrubjay_store::ledger::{CommitDurability, Ledger, Storage};
use scrubjay_tools::{STALE_AFTER_TICKS, Setup, Shared, serve_records};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

const LEVELS: usize = 12;
const VOCABULARY: u64 = 20_000;
const BODY_WORDS: usize = 90;
/// How many records each session leaves activated.
const SESSION_RECORDS: usize = 2_000;
/// How many records are written in one transaction.
const BATCH: usize = 1_000;
const CALLS: usize = 1_000;

fn main() -> io::Result<()> {
    let quick = std::env::args().any(|a| a == "--quick");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(if quick { 10_000 } else { 100_000 }))
}

/// A generator of random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// A word; those with small numbers are common, as in any language.
    fn word(&mut self) -> String {
        let (a, b) = (self.below(VOCABULARY) + 1, self.below(VOCABULARY) + 1);
        format!("w{}", a * b / VOCABULARY)
    }

    fn words(&mut self, count: usize) -> String {
        (0..count).map(|_| self.word()).collect::<Vec<_>>().join(" ")
    }
}

async fn run(count: usize) -> io::Result<()> {
    let home = tempfile::tempdir()?;
    let storage = Storage::File(home.path().join("ledger.db"));
    let begun = clock::now();
    let ledger = Ledger::open(&storage, std::sync::Arc::new(scrubjay_core::redact::Redactor::standard()))
        .await
        .map_err(io::Error::other)?;
    fill(&ledger, "large", count).await?;
    fill(&ledger, "other", count / 5).await?;
    ledger.close().await;
    let bytes = std::fs::metadata(home.path().join("ledger.db"))?.len();
    let mut text = format!(
        "{count} records, {LEVELS} levels, and {} of another project: written in {:.1} s, {} MB\n",
        count / 5,
        begun.elapsed().as_secs_f64(),
        bytes / 1_000_000
    );
    let mut peer = Peer::connect(home.path().to_owned(), storage).await?;
    let mut table = Table::new("calls of one agent", &["p50 ms", "p99 ms", "max ms"]);
    let mut figures = Vec::new();
    let mut random = Random(7);
    for tool in ["activate", "get_project_overview", "search_records", "common words", "create_record"] {
        let mut taken_ms = Vec::new();
        let calls = if tool == "create_record" { CALLS / 2 } else { CALLS };
        for _ in 0..calls {
            let (name, arguments) = call(tool, &mut random, count as u64);
            let begun = clock::now();
            peer.call(name, arguments).await?;
            taken_ms.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
        let figure = |share: f64| quantile(&taken_ms, share).unwrap_or(0.0);
        table.push(tool, [0.5, 0.99, 1.0].map(|share| format!("{:.2}", figure(share))));
        let shares = [("p50_ms", 0.5), ("p99_ms", 0.99), ("max_ms", 1.0)];
        let values = shares.map(|(name, share)| (name, Json::Number(figure(share))));
        figures.push((tool.to_owned(), Json::object(values)));
    }
    table.push_to(&mut text);
    io::stdout().write_all(text.as_bytes())?;
    std::fs::create_dir_all("bench-results")?;
    std::fs::write("bench-results/records.json", format!("{}\n", Json::Object(figures.into_iter().collect())))
}

fn call(tool: &str, random: &mut Random, count: u64) -> (&'static str, Value) {
    match tool {
        "activate" => ("activate", json!({ "id": format!("R{:03}", random.below(count) + 1) })),
        "get_project_overview" => ("get_project_overview", json!({})),
        "search_records" => {
            let words = random.below(3) as usize + 1;
            ("search_records", json!({ "query": random.words(words), "states": ["OPEN", "LATER"] }))
        }
        "common words" => {
            let query = format!("w{} w{}", random.below(3), random.below(3));
            ("search_records", json!({ "query": query }))
        }
        _ => (
            "create_record",
            json!({ "type": "note", "title": random.words(5), "summary": random.words(12),
                "body": random.words(BODY_WORDS) }),
        ),
    }
}

/// Fills a project through the store, many records at a time.
async fn fill(ledger: &Ledger, project: &str, count: usize) -> io::Result<()> {
    let mut random = Random(count as u64);
    let mut depths: Vec<usize> = Vec::with_capacity(count);
    while depths.len() < count {
        let mut write = ledger.write(CommitDurability::Process).await.map_err(io::Error::other)?;
        let caller = Caller::alone(&format!("{project}/{}", depths.len() / SESSION_RECORDS), project);
        let entered = records::enter(&mut write, &caller, None, None).await;
        let mut scope = entered.map_err(io::Error::other)?;
        for _ in 0..BATCH.min(count - depths.len()) {
            let parent = parent(&mut random, &depths);
            if let Some(parent) = parent {
                let activated = activation::activate(&mut write, &scope, RecordId(parent as i64), true).await;
                activated.map_err(io::Error::other)?;
            }
            let states =
                [RecordState::Open, RecordState::Later, RecordState::Resolved, RecordState::Discarded];
            let new = NewRecord {
                parent: parent.map(|parent| RecordId(parent as i64)),
                kind: ["question", "conclusion", "note"][random.below(3) as usize].to_owned(),
                title: random.words(5),
                summary: random.words(12),
                body: random.words(BODY_WORDS),
                state: states[random.below(4) as usize],
                related: vec![],
                metadata: Default::default(),
                citations: vec![],
            };
            records::create(&mut write, &mut scope, new).await.map_err(io::Error::other)?;
            depths.push(parent.map_or(1, |parent| depths[parent - 1] + 1));
        }
        write.commit().await.map_err(io::Error::other)?;
    }
    Ok(())
}

/// Chooses the parent of a new record: one in fifty is a root, and none is deeper than allowed.
fn parent(random: &mut Random, depths: &[usize]) -> Option<usize> {
    if depths.is_empty() || random.below(50) == 0 {
        return None;
    }
    let recent = depths.len().saturating_sub(2_000) as u64;
    (0..20)
        .map(|_| (recent + random.below(depths.len() as u64 - recent)) as usize)
        .find_map(|n| (depths[n] < LEVELS).then_some(n + 1))
}

/// An agent that uses the toolset.
struct Peer {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    last_id: u64,
}

impl Peer {
    async fn connect(home: std::path::PathBuf, storage: Storage) -> io::Result<Self> {
        let setup = Setup {
            llm: None,
            redactor: std::sync::Arc::new(scrubjay_core::redact::Redactor::standard()),
            storage,
            project: "large".to_owned(),
            home: scrubjay_tape::home::Home::new(home.join("data")),
            locks: home.join("locks"),
            workspace: home,
            allow_vcs: false,
            file_bytes_max: 1,
            stale_after_ticks: STALE_AFTER_TICKS,
        };
        let (near, far) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(near);
        let (server_reader, server_writer) = tokio::io::split(far);
        tokio::spawn(serve_records(Arc::new(Shared::new(setup)), server_reader, server_writer));
        let mut peer = Self { lines: BufReader::new(reader).lines(), writer, last_id: 0 };
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "bench", "version": "1" } });
        peer.ask("initialize", hello).await?;
        peer.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
        Ok(peer)
    }

    async fn send(&mut self, message: &Value) -> io::Result<()> {
        self.writer.write_all(format!("{message}\n").as_bytes()).await
    }

    async fn ask(&mut self, method: &str, params: Value) -> io::Result<Value> {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await?;
        let line =
            self.lines.next_line().await?.ok_or_else(|| io::Error::other("the toolset closed the stream"))?;
        Ok(serde_json::from_str(&line)?)
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> io::Result<()> {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await?;
        match answer["result"]["isError"] == true || answer["result"].is_null() {
            true => Err(io::Error::other(format!("{tool} failed: {answer}"))),
            false => Ok(()),
        }
    }
}
