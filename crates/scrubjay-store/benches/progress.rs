//! What the progress entries of a large project cost on SQLite, alone and with nine others as large.
//!
//! `cargo bench -p scrubjay-store --bench progress`; `-- --quick` for a tenth of it. Entries are put in by
//! statements of its own, in large transactions; everything measured goes through the ledger as tools use it.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark that fails may stop and say so")]
#![expect(clippy::disallowed_methods, reason = "it fills the ledger by statements of its own")]

use std::time::Duration;

use scrubjay_store::ledger::progress::search::{self, EntrySearch, TextFilter};
use scrubjay_store::ledger::progress::{self, FOLDING, NewProgressEntry};
use scrubjay_store::ledger::session::{self, Caller};
use scrubjay_store::ledger::words::terms;
use scrubjay_store::ledger::{CommitDurability, Ledger, LedgerConnection, Storage};
use scrubjay_tape::clock;
use sqlx::{AssertSqlSafe, Row};

/// How many entries a statement puts in, and how many a transaction.
const ROWS: usize = 100;
const BATCH: usize = 20_000;
const VOCABULARY: usize = 20_000;

/// A generator of random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    /// A word: few are frequent, most are rare.
    fn word(&mut self) -> String {
        let bound = 1 + self.below(VOCABULARY);
        let mut n = self.below(bound);
        let mut word = String::new();
        for _ in 0..4 {
            word.push(char::from(b"bdfgklmnprstvz"[n % 14]));
            word.push(char::from(b"aeiou"[n % 5]));
            n = n / 7 + 3 * (n % 7);
        }
        word
    }

    fn words(&mut self, count: usize) -> String {
        let words: Vec<String> = (0..count).map(|_| self.word()).collect();
        words.join(" ")
    }
}

fn caller() -> Caller {
    Caller::alone("bench", "large")
}

async fn log(ledger: &Ledger, project: &str, title: &str, content: &str) -> String {
    let mut write = ledger.write(CommitDurability::Power).await.unwrap();
    let session = session::current(&mut write, &caller(), None).await.unwrap();
    let tags = ["bench".to_owned(), "logged".to_owned()];
    let new = NewProgressEntry { project, title, content, tags: &tags, agent_id: None };
    let entry = progress::log(&mut write, &caller(), &session, new).await.unwrap();
    write.commit().await.unwrap();
    entry.id
}

/// Fills a project; its first entry is logged as usual, and lends the others its session and event.
///
/// The other projects' entries are shorter: they shall be many, not large.
async fn fill(ledger: &Ledger, random: &mut Random, project: &str, number: usize, count: usize) {
    let (title_words, content_words) = if number == 0 { (5, 14) } else { (3, 5) };
    let first = log(ledger, project, "the first", "of them").await;
    // No two projects share a moment.
    let mut at_us = 1_600_000_000_000_000 + number as i64;
    for batch in 0..count.div_ceil(BATCH) {
        let mut write = ledger.write(CommitDurability::Process).await.unwrap();
        let row = sqlx::query("SELECT scope, session_id, event_id FROM progress_entries WHERE id = $1")
            .bind(&first)
            .fetch_one(write.conn())
            .await
            .unwrap();
        let (scope, session, event): (i64, String, i64) = (row.get(0), row.get(1), row.get(2));
        let tag_word = format!("{scope}t{}", &blake3::hash(b"bench").to_hex()[..32]);
        for part in 0..BATCH / ROWS {
            let (mut entries, mut texts, mut tags) = (Vec::new(), Vec::new(), Vec::new());
            for n in 0..ROWS {
                at_us += 16 * (60 + random.below(700_000) as i64);
                let (title, content) =
                    (format!("fixed {}", random.words(title_words)), random.words(content_words));
                let scoped = |text: &str| {
                    text.split(' ').map(|word| format!("{scope}x{word}")).collect::<Vec<_>>().join(" ")
                };
                let id = format!("{number:02}{:010}", (batch * BATCH) + part * ROWS + n);
                entries.push(format!(
                    "({at_us},{scope},'{id}','{session}',{event},'{title}','{title}','[\"bench\"]','{content}')"
                ));
                texts.push(format!("({at_us},'{}','{}','{tag_word}')", scoped(&title), scoped(&content)));
                tags.push(format!("({scope},'bench',{at_us},'{title}')"));
            }
            for (into, rows) in [
                (
                    "progress_entries (at_us, scope, id, session_id, event_id, title, title_folded, tags, content)",
                    entries,
                ),
                ("progress_text (rowid, title, content, tags)", texts),
                ("progress_tags (scope, tag, at_us, title_folded)", tags),
            ] {
                let statement = format!("INSERT INTO {into} VALUES {}", rows.join(","));
                sqlx::query(AssertSqlSafe(statement)).persistent(false).execute(write.conn()).await.unwrap();
            }
        }
        write.commit().await.unwrap();
    }
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    sqlx::query("INSERT INTO progress_text (progress_text, rank) VALUES ('merge', 20000)")
        .execute(write.conn())
        .await
        .unwrap();
    write.commit().await.unwrap();
}

/// What one thing took each time it was done: time, and this process's share of the processors.
#[derive(Default)]
struct Took(Vec<Duration>, Vec<Duration>);

impl Took {
    async fn time<T>(&mut self, what: impl Future<Output = T>) -> T {
        let (start, start_cpu) = (clock::now().instant, processor());
        let result = what.await;
        self.0.push(start.elapsed());
        self.1.push(processor() - start_cpu);
        result
    }

    fn tell(mut self, what: &str) {
        self.0.sort_unstable();
        self.1.sort_unstable();
        let at = |times: &[Duration], part: usize| {
            times[(times.len() * part / 1000).min(times.len() - 1)].as_secs_f64() * 1e3
        };
        println!(
            "{what:<22} p50 {:7.2}  p99 {:7.2}  max {:7.2} ms   processor p50 {:6.2}  p99 {:6.2} ms   of {}",
            at(&self.0, 500),
            at(&self.0, 990),
            at(&self.0, 1000),
            at(&self.1, 500),
            at(&self.1, 990),
            self.0.len()
        );
    }
}

/// What the processors did for this process: it tells more than time on a machine that does other things too.
fn processor() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

async fn find(ledger: &Ledger, says: TextFilter<'_>, tags: &[String]) -> i64 {
    let mut read = ledger.read().await.unwrap();
    let search = EntrySearch {
        project: "large",
        text: says,
        tags,
        session: None,
        from_us: 0,
        until_us: i64::MAX,
        limit: 20,
    };
    search::find(&mut read, &search).await.unwrap().total
}

async fn measure(ledger: &Ledger, random: &mut Random, times: usize) {
    let mut ids = Vec::new();
    let mut took = Took::default();
    for _ in 0..times {
        let (title, content) = (format!("fixed {}", random.words(5)), random.words(60));
        ids.push(took.time(log(ledger, "large", &title, &content)).await);
    }
    took.tell("log");
    let mut took = Took::default();
    for id in &ids {
        let get = async { progress::get(&mut ledger.read().await.unwrap(), "large", id).await };
        took.time(get).await.unwrap().unwrap();
    }
    took.tell("get");
    let mut took: [Took; 6] = Default::default();
    let tags = ["bench".to_owned()];
    for n in 0..times / 5 {
        let word = random.word();
        let part = match n % 5 {
            0 => "fixed".to_owned(),
            1 => word[..2].to_owned(),
            2 => format!("{word} {}", random.word()),
            _ => word.clone(),
        };
        let words = match n % 4 {
            0 => terms("fixed", FOLDING),
            1 => terms(&format!("fixed {word}"), FOLDING),
            2 => terms(&format!("{word} {}", random.word()), FOLDING),
            _ => terms(&word, FOLDING),
        };
        for (which, (says, tags)) in [
            (TextFilter::InTitle(&part), &[][..]),
            (TextFilter::Words(&words), &[]),
            (TextFilter::Anything, &[]),
            (TextFilter::Anything, &tags),
            (TextFilter::InTitle(&part), &tags),
            (TextFilter::Words(&words), &tags),
        ]
        .into_iter()
        .enumerate()
        {
            took[which].time(find(ledger, says, tags)).await;
        }
    }
    let names = [
        "search titles",
        "search words",
        "list",
        "list by tag",
        "search titles by tag",
        "search words by tag",
    ];
    for (name, took) in names.into_iter().zip(took) {
        took.tell(name);
    }
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let (count, others, times) = if quick { (10_000, 9, 200) } else { (100_000, 9, 2_000) };
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = home.path().join("ledger.db");
    let storage = Storage::File(file.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut random = Random(7);
        let open = async || {
            Ledger::open(&storage, std::sync::Arc::new(scrubjay_core::redact::Redactor::standard()))
                .await
                .unwrap()
        };
        let ledger = open().await;
        fill(&ledger, &mut random, "large", 0, count).await;
        ledger.close().await;
        let ledger = open().await;
        println!("{count} entries");
        measure(&ledger, &mut random, times).await;
        for number in 1..=others {
            fill(&ledger, &mut random, &format!("other {number}"), number, count).await;
        }
        ledger.close().await;
        let ledger = open().await;
        println!(
            "{} entries, {} MB",
            count * (others + 1),
            std::fs::metadata(&file).unwrap().len() / 1_000_000
        );
        measure(&ledger, &mut random, times).await;
        ledger.close().await;
    });
}
