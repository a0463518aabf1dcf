//! A background process adds what `wrap` and `serve` record to the index; words of removed tapes leave it.

use std::path::Path;

use scrubjay_core::query::parse;
use scrubjay_store::index::{Index, KeeperLock};
use scrubjay_store::ledger::Storage;
use scrubjay_tape::home::Home;
use serde_json::json;

use crate::harness::{BACKGROUND_VARIABLE, Lab, Running, standing_alone, wait_for};

const CANARY: &str = "qzxjvkwpyhbf";

/// Starts a server that echoes everything, recorded with the index in the background.
fn record_in_background(lab: &Lab) -> Running {
    let (mut command, _) = lab.wrap(&["cat"]).command();
    command.env(BACKGROUND_VARIABLE, "true");
    Running::start(&mut command)
}

fn leave(mut running: Running) {
    running.close_stdin();
    assert_eq!(running.exit_code(), 0);
}

/// Counts a word in the index without filling the index first.
fn indexed(lab: &Lab, word: &str) -> u64 {
    let home = Home::new(lab.data().to_owned());
    if !home.index().exists() {
        return 0;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let index = Index::open(&home, &Storage::File(home.ledger())).await.unwrap();
        let query = parse(word, 0, &jiff::tz::TimeZone::UTC).unwrap();
        let total = index.search(&query).await.unwrap().total;
        index.close().await;
        total
    })
}

/// Waits until the background process has ended, so that nothing outlives the test.
fn wait_for_the_keeper(lab: &Lab) {
    let home = Home::new(lab.data().to_owned());
    wait_for("the end of the process in the background", || KeeperLock::take(&home).unwrap());
}

#[test]
fn a_recording_is_indexed_after_the_recorder_exits() {
    let lab = Lab::new();
    let mut wrapped = record_in_background(&lab);
    wrapped.send(format!("the {CANARY} is said\n").as_bytes());
    leave(wrapped);
    wait_for("the index", || (indexed(&lab, CANARY) == 2).then_some(()));
    wait_for_the_keeper(&lab);
    // So a search has nothing left to index.
    assert_eq!(lab.json(&["index", "catch-up", "--json"])["entries"], 0);
}

#[test]
fn a_large_recording_is_indexed_while_it_runs() {
    let lab = Lab::new();
    let mut wrapped = record_in_background(&lab);
    let much = format!("the {CANARY} {}\n", "is said ".repeat(10_000));
    for _ in 0..16 {
        wrapped.send(much.as_bytes());
        assert_eq!(wrapped.line().as_deref(), much.strip_suffix('\n'));
    }
    wait_for("the index", || (indexed(&lab, CANARY) > 0).then_some(()));
    // The recorder does not wait for the process that fills the index, and the last words are indexed too.
    leave(wrapped);
    wait_for("the rest", || (indexed(&lab, CANARY) == 32).then_some(()));
    wait_for_the_keeper(&lab);
}

#[test]
fn background_indexing_can_be_switched_off() {
    let lab = Lab::new();
    lab.record("echo", b"said\n");
    assert!(!lab.data().join("index.keeper").exists() && !lab.data().join("index.db").exists());
    assert_eq!(lab.json(&["index", "catch-up", "--json"])["tapes"], 1);
}

#[test]
fn simultaneous_recorders_share_one_keeper() {
    let lab = Lab::new();
    let mut all: Vec<Running> = (0..8).map(|_| record_in_background(&lab)).collect();
    for wrapped in &mut all {
        wrapped.send(format!("the {CANARY} is said\n").as_bytes());
    }
    for wrapped in all {
        leave(wrapped);
    }
    wait_for("the index", || (indexed(&lab, CANARY) == 16).then_some(()));
    wait_for_the_keeper(&lab);
}

/// The files below a directory that contain a piece of the canary.
fn holding(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            let is_piece = |window: &[u8]| CANARY.as_bytes().windows(6).any(|piece| piece == window);
            if bytes.windows(6).any(is_piece) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[test]
fn a_removed_tape_leaves_no_text_in_any_file() {
    let lab = Lab::new();
    let id = lab.record("secret", format!("the {CANARY} is said\n").as_bytes());
    lab.record("other", b"something else is said\n");
    let search = |word: &str| lab.json(&["tape", "search", word, "--json"])["total"].clone();
    assert_eq!(search(CANARY), 2);
    assert!(holding(lab.data()).iter().any(|file| file.contains("index.db")));
    // A gateway has the index open meanwhile.
    let mut serve = lab.start(&["serve", "--toolsets", "tapes"]);
    let answer =
        serve.ask(1, "tools/call", &standing_alone("search_tapes", &json!({ "query": "else server:other" })));
    assert_eq!(answer["result"]["structuredContent"]["total"], 2, "{answer}");
    lab.run_ok(&["--quiet", "tape", "rm", &id, "--yes"]);
    assert_eq!(holding(lab.data()), [""; 0]);
    let answer = serve.ask(
        2,
        "tools/call",
        &standing_alone("search_tapes", &json!({ "query": "something server:other" })),
    );
    assert_eq!(answer["result"]["structuredContent"]["total"], 2, "{answer}");
    leave(serve);
    assert_eq!(holding(lab.data()), [""; 0]);
    assert_eq!(lab.json(&["tape", "search", "something", "server:other", "--json"])["total"], 2);
}
