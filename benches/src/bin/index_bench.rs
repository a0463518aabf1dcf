//! Measures the index: how fast it catches up, how large it is, how fast it answers.
//!
//! `index-bench [--quick] [--prose] [ENTRIES] [DIR]`: makes that many entries (a million by default, 20,000 with
//! `--quick`) of made-up conversations on tapes in a directory of its own, which is removed at the end. With `--prose`
//! their answers are real text from files on this machine (570,000 entries, 300 MB by default). Prints a figure a
//! line, and writes `bench-results/index.json`. With `SCRUBJAY_BENCH_POSTGRES` the index is there instead of in a
//! file. With `SCRUBJAY_BENCH_HOME` the data directory is that one: its tapes are used as they are, and it is kept.
//! `SCRUBJAY_BENCH_TAPE` is how many entries the largest tape has; the others have a tenth.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use scrubjay_bench::clock::now;
use scrubjay_bench::json::Json;
use scrubjay_bench::prose::{Prose, json_string};
use scrubjay_core::analysis::analyse;
use scrubjay_core::entry::{Direction, Entry, EntryKind, Terminator, Transport};
use scrubjay_core::id::TapeId;
use scrubjay_core::query::parse;
use scrubjay_core::redact::{RedactionConfig, Redactor};
use scrubjay_store::index::Index;
use scrubjay_store::ledger::Storage;
use scrubjay_tape::format::header::{Compression, Header, Origin, SessionRef};
use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::format::seal::seal;
use scrubjay_tape::format::writer::Writer;
use scrubjay_tape::home::Home;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The entries of the largest tape, by which figures for a single tape are measured; the others have a tenth.
const LARGE_TAPE: u64 = 100_000;
const START_NS: u64 = 1_790_000_000_000_000_000;
const TOOLS: [&str; 12] = [
    "read_file",
    "write_file",
    "list_directory",
    "search",
    "run_query",
    "fetch",
    "create_issue",
    "get_issue",
    "commit",
    "diff",
    "run_tests",
    "summarise",
];
/// How often each kind of query is made.
const ROUNDS: usize = 20;

/// A generator of random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Makes a word; few words are frequent and most are rare, as in any language.
    fn word(&mut self) -> String {
        let bits = 1 + self.below(16);
        let mut number = self.below(1 << bits);
        let mut word = String::new();
        loop {
            word.push_str(
                [
                    "ba", "ce", "di", "fo", "gu", "ha", "ki", "lo", "mu", "ne", "pi", "ro", "su", "te", "vi",
                    "za",
                ][(number & 15) as usize],
            );
            number >>= 4;
            if number == 0 {
                return word;
            }
        }
    }

    /// Makes a word that is rare enough to search for.
    fn rare_word(&mut self) -> String {
        loop {
            let word = self.word();
            if word.len() > 4 {
                return word;
            }
        }
    }

    fn words(&mut self, count: u64) -> String {
        (0..count).map(|_| self.word()).collect::<Vec<_>>().join(" ")
    }
}

/// Makes up a query.
type Ask = fn(&mut Random) -> String;

/// What the tapes contain.
struct TapeSizes {
    tapes: u64,
    entries: u64,
    message_bytes: u64,
    file_bytes: u64,
}

fn main() -> Outcome<()> {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let is_prose = std::env::args().any(|argument| argument == "--prose");
    let arguments: Vec<String> = std::env::args().skip(1).filter(|text| !text.starts_with("--")).collect();
    let usual = match (is_quick, is_prose) {
        (true, _) => 20_000,
        (false, true) => 570_000,
        (false, false) => 1_000_000,
    };
    let entries: u64 = arguments.first().map_or(Ok(usual), |text| text.parse())?;
    let parent = arguments.get(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = parent.join(format!("scrubjay-index-bench-{}", std::process::id()));
    let given_home = std::env::var_os("SCRUBJAY_BENCH_HOME").map(PathBuf::from);
    let home = Home::new(given_home.clone().unwrap_or_else(|| directory.join("data")));
    home.create()?;
    let mut figures = Figures::default();
    let mut prose = is_prose.then(|| Prose::find().ok_or("no text was found on this machine")).transpose()?;
    let made = make(&home, entries, prose.as_mut());
    let outcome = made.and_then(|made| measure(&home, &made, &mut figures));
    if given_home.is_none() {
        std::fs::remove_dir_all(&directory)?;
    }
    outcome?;
    std::fs::create_dir_all("bench-results")?;
    Ok(std::fs::write("bench-results/index.json", format!("{}\n", Json::Object(figures.0)))?)
}

/// What was measured, in order.
#[derive(Default)]
struct Figures(Vec<(String, Json)>);

impl Figures {
    fn say(&mut self, what: &str, figure: u64, unit: &str) {
        #[expect(clippy::print_stdout, reason = "this is what it is for")]
        {
            println!("{what:48} {figure:>10} {unit}");
        }
        let key = if unit.is_empty() { what.to_owned() } else { format!("{what} ({unit})") };
        self.0.push((key, Json::Number(figure as f64)));
    }
}

fn measure(home: &Home, made: &TapeSizes, figures: &mut Figures) -> Outcome<()> {
    figures.say("tapes", made.tapes, "");
    figures.say("entries", made.entries, "");
    figures.say("messages", made.message_bytes / 1_000_000, "MB");
    figures.say("tapes on disk", made.file_bytes / 1_000_000, "MB");
    let storage = match std::env::var("SCRUBJAY_BENCH_POSTGRES") {
        Ok(url) => Storage::Postgres(url),
        Err(_) => Storage::File(home.ledger()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let begun = now();
        let (index, done) = Index::rebuild(home, &storage, |_| ()).await?;
        let took = begun.elapsed();
        figures.say("catch-up", (done.entries as f64 / took.as_secs_f64()) as u64, "entries/s");
        index.close().await;
        figures.say("catch-up took", took.as_millis() as u64, "ms");
        if let Some(bytes) = index.file_bytes() {
            figures.say("index", bytes / 1_000_000, "MB");
            figures.say("index, of the messages", bytes * 100 / made.message_bytes.max(1), "%");
        }
        let index = Index::open(home, &storage).await?;
        timed(figures, "nothing to catch up with", ROUNDS, async || {
            Ok(index.catch_up(|_| ()).await.map(|_| ())?)
        })
        .await?;
        search(&index, figures).await?;
        statistics(home, &index, figures).await?;
        index.close().await;
        Outcome::Ok(())
    })?;
    list(home, figures)
}

/// Runs something repeatedly and prints the median and the 95th percentile.
async fn timed(
    figures: &mut Figures,
    what: &str,
    rounds: usize,
    mut work: impl AsyncFnMut() -> Outcome<()>,
) -> Outcome<()> {
    let mut took = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let begun: Instant = now();
        work().await?;
        took.push(begun.elapsed().as_micros() as u64);
    }
    took.sort_unstable();
    figures.say(&format!("{what}, p50"), took[took.len() / 2], "us");
    figures.say(&format!("{what}, p95"), took[(took.len() * 95).div_ceil(100) - 1], "us");
    Ok(())
}

async fn search(index: &Index, figures: &mut Figures) -> Outcome<()> {
    let mut random = Random(77);
    let kinds: [(&str, Ask); 8] = [
        ("rare word", |random| random.rare_word() + "zz"),
        ("word", Random::rare_word),
        ("word and tool", |random| {
            format!("{} tool:{}", random.rare_word(), TOOLS[random.below(12) as usize])
        }),
        ("word, failed and slow", |random| format!("{} error:true >20ms", random.rare_word())),
        ("phrase and method", |random| {
            format!("\"{} {}\" method:tools/call", random.rare_word(), random.word())
        }),
        ("refused, failed, since", |_| "\"connection refused\" error:true since:1d".to_owned()),
        ("field equals, and tool", |random| {
            format!("arg.path=/src/{}.rs tool:read_file", random.rare_word())
        }),
        ("failed", |_| "error:true".to_owned()),
    ];
    let at = START_NS + 86_400_000_000_000;
    let mut all = Vec::new();
    for (kind, query) in kinds {
        let mut found = 0;
        let begun_with = all.len();
        for _ in 0..ROUNDS {
            let query = parse(&query(&mut random), at, &jiff::tz::TimeZone::UTC)?;
            let begun = now();
            found += index.search(&query).await?.total;
            all.push(begun.elapsed().as_micros() as u64);
        }
        let mut these = all[begun_with..].to_vec();
        these.sort_unstable();
        figures.say(&format!("search: {kind}, found"), found / ROUNDS as u64, "");
        figures.say(&format!("search: {kind}, p50"), these[ROUNDS / 2], "us");
        figures.say(&format!("search: {kind}, max"), these[ROUNDS - 1], "us");
    }
    let everywhere = parse("ba", at, &jiff::tz::TimeZone::UTC)?;
    timed(figures, "search: a word of every other message", ROUNDS, async || {
        Ok(index.search(&everywhere).await.map(|_| ())?)
    })
    .await?;
    let narrowed = parse("ba tool:fetch error:true", at, &jiff::tz::TimeZone::UTC)?;
    timed(figures, "search: such a word, a tool, failed", ROUNDS, async || {
        Ok(index.search(&narrowed).await.map(|_| ())?)
    })
    .await?;
    all.sort_unstable();
    figures.say("search: all, p50", all[all.len() / 2], "us");
    figures.say("search: all, p95", all[(all.len() * 95).div_ceil(100) - 1], "us");
    Ok(())
}

async fn statistics(home: &Home, index: &Index, figures: &mut Figures) -> Outcome<()> {
    let large = home.list()?.first().ok_or("no tape")?.id;
    timed(figures, "stats of the largest tape", 10, async || {
        let now = index.calls(large).await?.ok_or("no calls")?;
        let past = index.earlier_calls(large).await?;
        std::hint::black_box(analyse(&now, &past));
        Ok(())
    })
    .await
}

/// What `tape ls` reads.
fn list(home: &Home, figures: &mut Figures) -> Outcome<()> {
    let begun = now();
    for file in home.list()?.iter().take(50) {
        let tape = home.open(file)?;
        std::hint::black_box((tape.state(), tape.footer().map(|footer| footer.metadata.clone())));
    }
    figures.say("tape ls of 50", begun.elapsed().as_micros() as u64, "us");
    Ok(())
}

/// Counts the entries on existing tapes.
fn count(home: &Home) -> Outcome<TapeSizes> {
    let mut made = TapeSizes { tapes: 0, entries: 0, message_bytes: 0, file_bytes: 0 };
    for file in home.list()? {
        let tape = home.open(&file)?;
        made.tapes += 1;
        made.file_bytes += tape.file_bytes()?;
        let mut entries = tape.entries()?;
        while let Some((_, entry)) = entries.next()? {
            made.entries += 1;
            made.message_bytes += entry.payload.len() as u64;
        }
    }
    Ok(made)
}

fn make(home: &Home, entries: u64, mut prose: Option<&mut Prose>) -> Outcome<TapeSizes> {
    if !home.list()?.is_empty() {
        return count(home);
    }
    let off = Redactor::new(&RedactionConfig { redact_sensitive: false, ..RedactionConfig::default() });
    let off = off.map_err(|_| "no redaction is always possible")?;
    let mut made = TapeSizes { tapes: 0, entries: 0, message_bytes: 0, file_bytes: 0 };
    let large =
        std::env::var("SCRUBJAY_BENCH_TAPE").map_or(Ok(LARGE_TAPE), |text| text.parse())?.min(entries);
    while made.entries < entries {
        // The large one comes last, so that it has all others before it.
        let left = entries - made.entries;
        let count = if left <= large { left } else { (large / 10).min(left - large) };
        made.tapes += 1;
        let sealed = make_tape(home, &off, made.tapes, count, &mut made.message_bytes, prose.as_deref_mut())?;
        made.file_bytes += Tape::open(&sealed)?.file_bytes()?;
        made.entries += count;
    }
    Ok(made)
}

fn make_tape(
    home: &Home,
    off: &Redactor,
    number: u64,
    entries: u64,
    bytes: &mut u64,
    mut prose: Option<&mut Prose>,
) -> Outcome<PathBuf> {
    let mut random = Random(number);
    let mut id_bytes = [0; 10];
    id_bytes[..8].copy_from_slice(&random.next().to_be_bytes());
    let started_wall_ns = START_NS + number * 600_000_000_000;
    let id = TapeId::from_random(id_bytes);
    let header = Header {
        id,
        noted_kind: None,
        gateway: None,
        name: ["files", "issues", "database"][(number % 3) as usize].to_owned(),
        transport: Transport::Stdio,
        started_wall_ns,
        program: None,
        workspace: None,
        session: SessionRef::of_connection(id.as_str()),
        origin: Origin::default(),
        continues: None,
        part: 1,
        recorder: "bench".to_owned(),
        compression: Compression::default(),
        links: Default::default(),
        clock_behind_ns: None,
    };
    let path = home.live_path(id, started_wall_ns);
    let mut writer = Writer::create(path.clone(), header, now())?;
    let mut since_start_ns = 0;
    for pair in 0..entries / 2 {
        let (asked, answered) = match prose.as_deref_mut() {
            Some(prose) => reading(&mut random, prose, pair),
            None => exchange(&mut random, pair),
        };
        *bytes += (asked.len() + answered.len()) as u64;
        for (direction, line) in [(Direction::ClientToServer, &asked), (Direction::ServerToClient, &answered)]
        {
            since_start_ns += random.below(30_000_000);
            let entry = Entry {
                kind: EntryKind::Message,
                direction,
                transport: Transport::Stdio,
                terminator: Terminator::Lf,
                wall_ns: started_wall_ns + since_start_ns,
                since_start_ns,
                processing_ns: 1000,
                via: None,
                connection: 0,
                operation: None,
                rule_marks: scrubjay_core::entry::RuleMarks::default(),
                payload: line.as_bytes(),
            };
            let redacted = off.redact(line.as_bytes());
            writer.append(std::iter::once(entry.with_payload(redacted.payload())))?;
        }
    }
    drop(writer);
    Ok(seal(Path::new(&path))?)
}

/// A call of about 200 bytes and an answer of about 400.
fn exchange(random: &mut Random, id: u64) -> (String, String) {
    let tool = TOOLS[random.below(12) as usize];
    let asked = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"path":"/src/{}.rs","limit":{},"query":"{}"}},"_meta":{{"progressToken":{id}}}}}}}"#,
        random.word(),
        random.below(1000),
        random.words(6),
    );
    let answered = match random.below(50) {
        0 => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"connection refused by {}"}}}}"#,
            random.word()
        ),
        1 => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"isError":true,"content":[{{"type":"text","text":"no such file: {}"}}]}}}}"#,
            random.words(2)
        ),
        _ => {
            let length = 20 + random.below(80);
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{}"}}],"structuredContent":{{"lines":{},"took":{}}}}}}}"#,
                random.words(length),
                random.below(5000),
                random.below(100_000),
            )
        }
    };
    (asked, answered)
}

/// A call that reads, and real text as its answer: mostly some lines, sometimes a file.
fn reading(random: &mut Random, prose: &mut Prose, id: u64) -> (String, String) {
    let tool = ["read_file", "search", "run_tests", "fetch"][random.below(4) as usize];
    let length = match random.below(100) {
        0..70 => 60 + random.below(400),
        70..93 => 400 + random.below(1200),
        93..99 => 1600 + random.below(4400),
        _ => 6000 + random.below(24_000),
    };
    let (path, text) = prose.piece(length as usize);
    let asked = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"path":{},"offset":{},"limit":{}}},"_meta":{{"progressToken":{id}}}}}}}"#,
        json_string(&path.to_string_lossy()),
        random.below(100_000),
        random.below(2000),
    );
    let answered = match random.below(50) {
        0 => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"isError":true,"content":[{{"type":"text","text":{}}}]}}}}"#,
            json_string(&text[..text.char_indices().nth(80).map_or(text.len(), |(at, _)| at)])
        ),
        _ => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":{}}}]}}}}"#,
            json_string(text)
        ),
    };
    (asked, answered)
}
