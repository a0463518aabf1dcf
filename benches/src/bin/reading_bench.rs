//! Measures how long a person waits for views of recordings: `tape ls` of many tapes, `tape show` of a long one.
//!
//! `reading-bench SCRUBJAY [--quick] [DIR]`: makes 10,000 small tapes and one of 100,000 entries (a tenth with
//! `--quick`) in a directory of its own, which is removed at the end, runs the program on them with its output in a
//! file, and prints the median and the slowest of eleven runs.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use scrubjay_bench::clock::now;
use scrubjay_core::entry::{Direction, Entry, EntryKind, RuleMarks, Terminator, Transport};
use scrubjay_core::id::TapeId;
use scrubjay_core::redact::{RedactionConfig, Redactor};
use scrubjay_tape::format::header::{Compression, Header, Origin, SessionRef, TapeKind};
use scrubjay_tape::format::seal::seal;
use scrubjay_tape::format::writer::Writer;
use scrubjay_tape::home::Home;

type Outcome<T> = Result<T, Box<dyn Error>>;

const START_NS: u64 = 1_790_000_000_000_000_000;
const RUNS: usize = 11;

fn main() -> Outcome<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let is_quick = words.iter().any(|word| word == "--quick");
    words.retain(|word| word != "--quick");
    let mut words = words.into_iter();
    let program =
        PathBuf::from(words.next().ok_or("which scrubjay? reading-bench SCRUBJAY [--quick] [DIR]")?);
    let parent = words.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let scratch = parent.join(format!("scrubjay-reading-bench-{}", std::process::id()));
    let scale = if is_quick { 10 } else { 1 };
    let measured = measure(&program, &scratch, 10_000 / scale, 100_000 / scale);
    std::fs::remove_dir_all(&scratch)?;
    measured
}

fn measure(program: &Path, scratch: &Path, tapes: u64, entries: u64) -> Outcome<()> {
    let (many, long) = (Home::new(scratch.join("many")), Home::new(scratch.join("long")));
    for home in [&many, &long] {
        home.create()?;
    }
    for number in 0..tapes {
        make_tape(&many, number, 20)?;
    }
    make_tape(&long, 0, entries)?;
    let out = scratch.join("out");
    run(program, &many, &["tape", "ls"], &out, &format!("tape ls of {tapes} tapes"))?;
    run(
        program,
        &many,
        &["tape", "ls", "--json", "--limit", "1000000"],
        &out,
        "the same, all of them as JSON",
    )?;
    run(program, &long, &["tape", "show"], &out, &format!("tape show of {entries} entries"))?;
    run(program, &long, &["tape", "show", "--json"], &out, "the same as JSON")?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "figures are what this is for")]
fn run(program: &Path, home: &Home, words: &[&str], out: &Path, what: &str) -> Outcome<()> {
    let mut took_us = Vec::new();
    for _ in 0..RUNS {
        let begun = now();
        let mut command = Command::new(program);
        command.arg("--data").arg(home.root()).args(words).stdout(Stdio::from(File::create(out)?));
        let status = command.status()?;
        took_us.push(begun.elapsed().as_micros());
        if !status.success() {
            return Err(format!("{words:?} ended with {status}").into());
        }
    }
    took_us.sort_unstable();
    let bytes = std::fs::metadata(out)?.len();
    println!("{what}: median {} us, slowest {} us, {bytes} bytes", took_us[RUNS / 2], took_us[RUNS - 1]);
    Ok(())
}

/// Makes a sealed tape; of four in a row, one is a backend's own.
fn make_tape(home: &Home, number: u64, entries: u64) -> Outcome<()> {
    let off = Redactor::new(&RedactionConfig { redact_sensitive: false, ..RedactionConfig::default() });
    let off = off.map_err(|_| "no redaction is always possible")?;
    let mut random = [0; 10];
    random[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    let (id, is_backend) = (TapeId::from_random(random), number % 4 == 3);
    let header = Header {
        id,
        noted_kind: Some(if is_backend { TapeKind::Backend } else { TapeKind::Conversation }),
        gateway: Some(format!("run{}", number / 4)),
        name: if is_backend { "backend files" } else { "serve" }.to_owned(),
        transport: Transport::Stdio,
        started_wall_ns: START_NS + number * 60_000_000_000,
        program: None,
        workspace: Some("/home/somebody/projects/something".to_owned()),
        session: SessionRef::of_connection(id.as_str()),
        origin: Origin::default(),
        continues: None,
        part: 1,
        recorder: "bench".to_owned(),
        compression: Compression::default(),
        links: Default::default(),
        clock_behind_ns: None,
    };
    let (path, started) = (home.live_path(id, header.started_wall_ns), header.started_wall_ns);
    let mut writer = Writer::create(path.clone(), header, now())?;
    for at in 0..entries {
        let line = line(at);
        let entry = Entry {
            kind: EntryKind::Message,
            direction: if at % 2 == 0 { Direction::ClientToServer } else { Direction::ServerToClient },
            transport: Transport::Stdio,
            terminator: Terminator::Lf,
            wall_ns: started + at * 1_000_000,
            since_start_ns: at * 1_000_000,
            processing_ns: 1000,
            via: is_backend.then_some("files"),
            connection: u32::from(is_backend),
            operation: None,
            rule_marks: RuleMarks::default(),
            payload: line.as_bytes(),
        };
        let redacted = off.redact(line.as_bytes());
        writer.append(std::iter::once(entry.with_payload(redacted.payload())))?;
    }
    drop(writer);
    seal(&path)?;
    Ok(())
}

/// Writes a greeting, then calls of a dozen tools with their answers, of which one in twenty fails.
fn line(at: u64) -> String {
    let (id, tool) =
        (at / 2, ["read_file", "write_file", "search", "run_query", "fetch", "diff"][(at / 2 % 6) as usize]);
    match at {
        0 => r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#.to_owned(),
        1 => r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"files","version":"1"}}}"#.to_owned(),
        _ if at.is_multiple_of(2) => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"path":"/home/somebody/projects/something/src/file_{id}.rs","limit":{at},"query":"what was said about the thing"}},"_meta":{{"progressToken":{id}}}}}}}"#
        ),
        _ if id % 20 == 0 => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"connection refused by host {id}"}}],"isError":true}}}}"#
        ),
        _ => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"line {at}: {}"}}]}}}}"#,
            "some text as a file may hold it, ".repeat(8)
        ),
    }
}
