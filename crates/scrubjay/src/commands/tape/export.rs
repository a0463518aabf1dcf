//! `scrubjay tape export`.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use scrubjay_core::export::entry_json;
use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::format::seal::write_sealed;
use scrubjay_tape::home::Home;
use serde_json::json;

use crate::cli::{Global, tell};
use crate::render::write_json;

/// Write a recording to a file or to standard output
///
/// Damaged parts are left out and named on standard error; the exit code is then 1.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The tape: its id, a prefix of it, or `latest`
    #[arg(default_value = "latest")]
    id: String,
    /// The format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Write to this file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    /// One JSON object in each line: the tape, then its entries
    #[default]
    Jsonl,
    /// The tape file itself, sealed
    Native,
}

pub(crate) fn run(_: &Global, home: &Home, args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let tape = super::open(home, &args.id)?;
    let damage = match args.format {
        Format::Jsonl => match &args.output {
            Some(path) => {
                let file = create(path)?;
                write_jsonl(home, &tape, BufWriter::new(file))
                    .with_context(|| format!("cannot write {}", path.display()))?
            }
            None => write_jsonl(home, &tape, BufWriter::new(std::io::stdout().lock()))?,
        },
        Format::Native => write_native(&tape, args.output.as_deref())?,
    };
    for what in &damage {
        tell(&format!("left out: {what}"));
    }
    Ok(if damage.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Creates a file for its owner alone: a recording may hold anything.
pub(super) fn create(path: &Path) -> anyhow::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))
}

fn write_jsonl(home: &Home, tape: &Tape, mut out: impl Write) -> anyhow::Result<Vec<String>> {
    write_json(&mut out, &json!({ "tape": tape.header() }))?;
    writeln!(out)?;
    let mut reader = home.reader(tape)?;
    let mut entries = tape.entries()?;
    while let Some((number, entry)) = entries.next()? {
        let reading = reader.read_numbered(number, &entry);
        write_json(&mut out, &entry_json(number, &entry, &reading))?;
        writeln!(out)?;
    }
    out.flush()?;
    Ok(entries.damage().iter().map(|d| d.what.clone()).collect())
}

fn write_native(tape: &Tape, output: Option<&Path>) -> anyhow::Result<Vec<String>> {
    // A live tape is sealed into a copy first, so that the export is complete in itself.
    let scratch = tempfile::tempdir()?;
    let sealed = scratch.path().join("export.tape");
    let damaged = write_sealed(tape, &sealed).context("cannot seal the tape for export")?;
    // Copied, not moved: the output may be on another file system, or standard output.
    let mut from = std::fs::File::open(&sealed)?;
    match output {
        Some(path) => std::io::copy(&mut from, &mut create(path)?)?,
        None => std::io::copy(&mut from, &mut std::io::stdout().lock())?,
    };
    Ok(if damaged { vec!["the parts that `scrubjay tape verify` names".to_owned()] } else { Vec::new() })
}
