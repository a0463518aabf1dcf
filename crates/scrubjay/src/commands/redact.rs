//! `scrubjay redact`: the redaction engine as a filter.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use scrubjay_core::inert::inert;
use scrubjay_core::redact::{Finding, Lines};
use serde_json::json;

use crate::cli::Global;
use crate::config;

/// A line must fit into memory.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// Take the secrets out of lines: messages or plain text in, the same without secrets out
///
/// Goes by the same rules as recording: the built-in formats and names, and `recorder.privacy` of the
/// configuration.
#[derive(Debug, Args)]
pub(crate) struct RedactArgs {
    /// The file to read [default: standard input]
    file: Option<PathBuf>,
    /// Say on standard error which rule took out what; with --json, as a JSON object a line
    #[arg(long)]
    explain: bool,
}

pub(crate) fn run(global: &Global, args: &RedactArgs) -> anyhow::Result<ExitCode> {
    let loaded = config::load(global)?;
    let redactor = loaded.redactor(Some(&loaded.home()?))?;
    let input: Box<dyn Read> = match &args.file {
        Some(path) => {
            Box::new(std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?)
        }
        None => Box::new(std::io::stdin().lock()),
    };
    let mut input = BufReader::with_capacity(1 << 20, input);
    let mut output = std::io::BufWriter::new(std::io::stdout().lock());
    let (mut line, mut lines) = (Vec::new(), Lines::default());
    for number in 1u64.. {
        line.clear();
        let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).context("cannot read")?;
        if read == 0 {
            break;
        }
        anyhow::ensure!(read as u64 != LINE_BYTES_MAX, "line {number} is longer than {LINE_BYTES_MAX} bytes");
        let end = line.len() - line.iter().rev().take_while(|b| matches!(b, b'\n' | b'\r')).count();
        let redacted = lines.redact(&redactor, &line[..end]);
        if args.explain {
            let (_, mut findings) = redactor.explain(&line[..end]);
            if findings.is_empty() && redacted.is_changed() {
                // A line that is secret only because of those before it.
                findings.push(Finding {
                    rule: "private-key".to_owned(),
                    place: "byte 0".to_owned(),
                    bytes: end,
                });
            }
            explain(global, number, &findings)?;
        }
        output.write_all(redacted.as_bytes())?;
        output.write_all(&line[end..])?;
        // Somebody may be waiting for this line; more input means that nobody is yet.
        if input.buffer().is_empty() {
            output.flush()?;
        }
    }
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn explain(global: &Global, line: u64, findings: &[Finding]) -> std::io::Result<()> {
    let mut out = anstream::stderr().lock();
    for found in findings {
        if global.json {
            let told =
                json!({ "line": line, "rule": found.rule, "place": found.place, "bytes": found.bytes });
            writeln!(out, "{told}")?;
        } else {
            let place = inert(&found.place);
            writeln!(out, "line {line}: {} took out {} bytes at {place}", inert(&found.rule), found.bytes)?;
        }
    }
    Ok(())
}
