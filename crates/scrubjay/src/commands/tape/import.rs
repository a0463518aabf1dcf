//! `scrubjay tape import`.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use scrubjay_core::entry::{Entry, EntryKind};
use scrubjay_core::export::ImportedEntry;
use scrubjay_core::redact::{LineContext, Redacted, Redactor};
use scrubjay_tape::clock;
use scrubjay_tape::format::header::{Header, Imported, Links, MAGIC};
use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::format::seal::{seal, write_sealed_as};
use scrubjay_tape::format::verify::verify;
use scrubjay_tape::format::writer::Writer;
use scrubjay_tape::home::Home;
use serde::Deserialize;

use crate::cli::Global;
use crate::render::{Table, print_json};

/// Add an exported recording to this data directory
///
/// Takes either format of `tape export`; a native file is verified first. The tape is marked as imported, with the time
/// and the format.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The exported file
    file: PathBuf,
}

#[derive(Deserialize)]
struct FirstLine {
    tape: Header,
}

pub(crate) fn run(global: &Global, args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let (loaded, home) = global.load_with_home()?;
    home.create()?;
    let mut file =
        std::fs::File::open(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let mut start = Vec::new();
    file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut start)?;
    let redactor = loaded.redactor(Some(&home))?;
    let id = if start == MAGIC {
        import_native(&home, args, &redactor)?
    } else {
        // Opened again, because the beginning was read above.
        let file = BufReader::new(std::fs::File::open(&args.file)?);
        import_lines(&home, file, &args.file.display().to_string(), &redactor)?
    };
    if global.json {
        print_json(&serde_json::json!({ "id": id }))?;
    } else {
        Table::note().line(&format!("imported tape {id}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn import_native(home: &Home, args: &ImportArgs, redactor: &Redactor) -> anyhow::Result<String> {
    let tape = Tape::open(&args.file)?;
    let report = verify(&tape)?;
    if let Some(damage) = report.damage.first() {
        anyhow::bail!(
            "{} is damaged ({}): nothing was imported; `tape export --format jsonl` on the machine it came from \
             writes the part that can be read",
            args.file.display(),
            damage.what
        );
    }
    let header = tape.header().context("the tape's header is damaged")?;
    let target = vacant(home, header)?;
    let marked = marked(header.clone(), "native");
    // A tape without secrets keeps its entries and so its digest, which other tapes name. One with secrets gets another.
    if is_clean(&tape, header, redactor)? {
        write_sealed_as(&tape, &marked, &target.with_extension("tape"))?;
    } else {
        rewrite(&tape, &marked, target, redactor)?;
    }
    Ok(header.id.to_string())
}

/// Returns the header of an imported tape, marked as imported now.
fn marked(header: Header, format: &str) -> Header {
    let imported = Imported {
        wall_ns: clock::now().wall_ns,
        format: format.to_owned(),
        by: format!("scrubjay {} tape import", env!("CARGO_PKG_VERSION")),
    };
    Header { links: Links { imported: Some(imported), ..header.links }, ..header }
}

/// Tells whether redaction would change nothing on a tape.
fn is_clean(tape: &Tape, header: &Header, redactor: &Redactor) -> anyhow::Result<bool> {
    let (mut entries, mut lines) = (tape.entries()?, LineContext::default());
    while let Some((_, entry)) = entries.next()? {
        if redacted(redactor, &mut lines, &entry).is_changed() {
            return Ok(false);
        }
    }
    Ok(header.clone().redacted(redactor) == *header)
}

/// Writes a redacted copy of a tape.
fn rewrite(tape: &Tape, header: &Header, live: PathBuf, redactor: &Redactor) -> anyhow::Result<()> {
    let mut writer = Writer::create(live.clone(), header.clone().redacted(redactor), clock::now().instant)?;
    let (mut entries, mut lines) = (tape.entries()?, LineContext::default());
    while let Some((_, entry)) = entries.next()? {
        let redacted = redacted(redactor, &mut lines, &entry);
        writer.append(std::iter::once(entry.with_payload(redacted.payload())))?;
    }
    seal(&live)?;
    Ok(())
}

fn redacted<'a>(redactor: &Redactor, lines: &mut LineContext, entry: &Entry<'a>) -> Redacted<'a> {
    match entry.kind {
        // A private key on standard error has many lines, and only its first one says what they are.
        EntryKind::Stderr => lines.redact(redactor, entry.payload),
        _ => redactor.redact(entry.payload),
    }
}

/// Writes a tape from a JSON Lines export, and returns its id.
pub(super) fn import_lines(
    home: &Home,
    lines: impl BufRead,
    name: &str,
    redactor: &Redactor,
) -> anyhow::Result<String> {
    let place = |number: usize| format!("{name}, line {number}");
    let mut lines = lines.lines();
    let first = lines.next().with_context(|| format!("{name} is empty"))?.with_context(|| place(1))?;
    let FirstLine { tape: header } = serde_json::from_str(&first)
        .with_context(|| format!("{}: neither a tape nor a JSON Lines export of one", place(1)))?;
    let live = vacant(home, &header)?;
    let id = header.id.to_string();
    let header = marked(header, "jsonl").redacted(redactor);
    let mut writer = Writer::create(live.clone(), header, clock::now().instant)?;
    let mut stderr = LineContext::default();
    let copied = (2..).zip(lines).try_for_each(|(number, line)| -> anyhow::Result<()> {
        let imported: ImportedEntry = serde_json::from_str(&line?)
            .with_context(|| format!("{}: not an exported entry", place(number)))?;
        let payload = imported.payload().with_context(|| place(number))?;
        let entry = imported.entry(&payload);
        let redacted = redacted(redactor, &mut stderr, &entry);
        Ok(writer.append(std::iter::once(entry.with_payload(redacted.payload())))?)
    });
    if let Err(e) = copied {
        // After an error nothing is imported, because half a tape would look like a complete one.
        std::fs::remove_file(&live)?;
        return Err(e);
    }
    seal(&live)?;
    Ok(id)
}

/// Returns the path of a new tape; one with this id must not exist.
fn vacant(home: &Home, header: &Header) -> anyhow::Result<PathBuf> {
    if home.list()?.iter().any(|file| file.id == header.id) {
        anyhow::bail!(
            "tape {} is already in this data directory: remove it first with `scrubjay tape rm {}`",
            header.id,
            header.id
        );
    }
    Ok(home.live_path(header.id, header.started_wall_ns))
}
