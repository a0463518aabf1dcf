//! `scrubjay redact`: the redaction engine as a filter.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use scrubjay_config::Loaded;
use scrubjay_core::inert::inert;
use scrubjay_core::redact::{LineContext, RedactionFinding, RedactionKey, UnreadableReason, decrypt};
use serde_json::json;

use crate::cli::{Global, tell};

/// 256 MiB: the longest line. It is held in memory as a whole.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// Remove secrets from messages or plain text, line by line
///
/// Removes what recordings would not contain: secrets of the built-in formats and names, and those of
/// `recorder.privacy` in the configuration.
#[derive(Debug, Args)]
pub(crate) struct RedactArgs {
    /// The file to read [default: standard input]
    file: Option<PathBuf>,
    /// Report on standard error what each rule removed; with --json, one JSON object in each line
    #[arg(long)]
    explain: bool,
    /// Decrypt values that the action `encrypt` made, in place; a value that cannot be decrypted stays
    #[arg(long, conflicts_with = "explain")]
    decrypt: bool,
    /// Decrypt with this key of recorder.privacy.keys, or of this variable, instead of the one that a value names
    #[arg(long, value_name = "NAME", requires = "decrypt")]
    key: Option<String>,
}

pub(crate) fn run(global: &Global, args: &RedactArgs) -> anyhow::Result<ExitCode> {
    let loaded = global.load()?;
    let input: Box<dyn Read> = match &args.file {
        Some(path) => {
            Box::new(std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?)
        }
        None => Box::new(std::io::stdin().lock()),
    };
    if args.decrypt {
        return decrypt_lines(&loaded, args.key.as_deref(), input);
    }
    let redactor = loaded.redactor(Some(&loaded.home()?))?;
    let mut lines = LineContext::default();
    each_line(input, |number, line| {
        let redacted = lines.redact(&redactor, line);
        if args.explain {
            let (_, mut findings) = redactor.explain(line);
            if findings.is_empty() && redacted.is_changed() {
                // The line is a part of a private key. It is secret only because of the lines before it, which `explain` does
                // not see.
                findings.push(RedactionFinding {
                    rule: "private-key".to_owned(),
                    place: "byte 0".to_owned(),
                    bytes: line.len(),
                    range: 0..line.len(),
                });
            }
            explain(global, number, &findings)?;
        }
        Ok(redacted.as_bytes().to_vec())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Decrypts values in place; reports those that cannot be decrypted, and leaves them as they are.
fn decrypt_lines(loaded: &Loaded, named: Option<&str>, input: Box<dyn Read>) -> anyhow::Result<ExitCode> {
    let mut keys: HashMap<String, Result<RedactionKey, _>> = HashMap::new();
    if let Some(name) = named {
        // Before any output: a missing key concerns all of it.
        let found = loaded.redaction_key(name).map_err(|why| anyhow::anyhow!("--key {name} {why}"))?;
        keys.insert(name.to_owned(), Ok(found));
    }
    let mut unread = 0u64;
    each_line(input, |number, line| {
        let mut key = |id: &str| {
            let id = named.unwrap_or(id);
            // A key is read once: it may be in a file, and each line may have values.
            keys.entry(id.to_owned()).or_insert_with(|| loaded.redaction_key(id)).as_ref().ok().cloned()
        };
        let decrypted = decrypt(line, &mut key);
        for failed in &decrypted.failed {
            unread += 1;
            let id = inert(&failed.key_id);
            tell(&match &failed.why {
                UnreadableReason::NoKey => {
                    let why = keys.get(&failed.key_id).and_then(|found| found.as_ref().err());
                    let why = why.expect("decryption asked for this key");
                    format!("line {number}: the key {id} {why}; use another with --key")
                }
                UnreadableReason::Damaged => {
                    format!("line {number}: a value of the key {id} is cut or damaged")
                }
                UnreadableReason::WrongKey => {
                    let key = named.unwrap_or(&id);
                    format!(
                        "line {number}: a value of the key {id} was not encrypted with {key}, or was changed"
                    )
                }
            });
        }
        Ok(decrypted.line)
    })?;
    anyhow::ensure!(unread == 0, "{unread} encrypted values could not be decrypted and were left unchanged");
    Ok(ExitCode::SUCCESS)
}

/// Writes each line as `make` returns it; line endings stay.
fn each_line(
    input: Box<dyn Read>,
    mut make: impl FnMut(u64, &[u8]) -> anyhow::Result<Vec<u8>>,
) -> anyhow::Result<()> {
    let mut input = BufReader::with_capacity(1 << 20, input);
    let mut output = std::io::BufWriter::new(std::io::stdout().lock());
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).context("cannot read")?;
        if read == 0 {
            break;
        }
        // `take` stops at the limit, so a line of exactly that length may be only the beginning of one.
        anyhow::ensure!(read as u64 != LINE_BYTES_MAX, "line {number} is longer than {LINE_BYTES_MAX} bytes");
        // Without its line end, as recorders pass lines to redaction; the end is written back unchanged.
        let end = line.len() - line.iter().rev().take_while(|b| matches!(b, b'\n' | b'\r')).count();
        output.write_all(&make(number, &line[..end])?)?;
        output.write_all(&line[end..])?;
        // Someone may wait for this line, so it is written at once; with more input at hand, that can wait for a full buffer.
        if input.buffer().is_empty() {
            output.flush()?;
        }
    }
    output.flush()?;
    Ok(())
}

fn explain(global: &Global, line: u64, findings: &[RedactionFinding]) -> std::io::Result<()> {
    let mut out = anstream::stderr().lock();
    for found in findings {
        if global.json {
            let report =
                json!({ "line": line, "rule": found.rule, "place": found.place, "bytes": found.bytes });
            writeln!(out, "{report}")?;
        } else {
            let place = inert(&found.place);
            writeln!(out, "line {line}: {} removed {} bytes at {place}", inert(&found.rule), found.bytes)?;
        }
    }
    Ok(())
}
