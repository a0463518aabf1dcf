//! `scrubjay tape verify`.

mod vouched_checkpoint;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use scrubjay_core::units::counted;
use scrubjay_tape::chain::{Chain, CheckedTape};
use scrubjay_tape::home::{Home, TapeFile};
use serde::Serialize;

use super::checkpoint::PublicKey;
use crate::cli::Global;
use crate::render::{Table, local_time, print_json};

/// Check that recordings are whole and unaltered
///
/// Names the first entry that cannot be trusted, recomputes the summary of sealed tapes, and follows the links between
/// tapes: one that is missing, truncated, changed or swapped is named as long as a tape that links to it exists. For a
/// sealed tape it prints the end of its hash chain. A tape that no other links to can only be checked against a
/// checkpoint that was kept elsewhere.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The tape: its id, a prefix of it, or `latest` [default: all]
    id: Option<String>,
    /// Check that nothing changed since this checkpoint, too (`scrubjay tape checkpoint --output FILE`)
    #[arg(long, value_name = "FILE", conflicts_with = "id")]
    checkpoint: Option<PathBuf>,
    /// The key that must have signed the checkpoint: in hex, or a file that holds it
    #[arg(long, value_name = "KEY", requires = "checkpoint", value_parser = PublicKey::parse)]
    public_key: Option<PublicKey>,
    /// The root that the checkpoint must have
    #[arg(long, value_name = "HEX", requires = "checkpoint")]
    root: Option<String>,
}

#[derive(Serialize)]
struct Verified {
    id: String,
    sound: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_bad_entry: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    checked: Option<CheckedTape>,
}

pub(crate) fn run(global: &Global, home: &Home, args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    // First, so that a checkpoint that is not genuine is refused before all tapes are read.
    let checkpoint =
        args.checkpoint.as_deref().map(|path| vouched_checkpoint::read(path, args)).transpose()?;
    let tapes = match &args.id {
        Some(name) => vec![home.find(name)?],
        None => home.list()?,
    };
    // Of all tapes, even if one is named: only other tapes show that it was cut or exchanged.
    let chain = Chain::read(home)?;
    let verified: Vec<Verified> = tapes.iter().map(|file| verify(home, &chain, file)).collect();
    let compared = checkpoint.as_ref().map(|checkpoint| checkpoint.compare(home)).transpose()?;
    if global.json {
        match &compared {
            Some(compared) => {
                print_json(&serde_json::json!({ "tapes": verified, "checkpoint": compared }))?;
            }
            None => print_json(&verified)?,
        }
    } else {
        let mut note = Table::note();
        for line in verified.iter().flat_map(describe) {
            note.line(&line)?;
        }
        if verified.is_empty() {
            note.line(&format!("no tapes in {}", home.root().display()))?;
        }
        for line in compared.iter().flat_map(vouched_checkpoint::CheckpointReport::lines) {
            note.line(&line)?;
        }
    }
    let is_sound = verified.iter().all(|one| one.sound) && compared.is_none_or(|compared| compared.is_fine);
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn verify(home: &Home, chain: &Chain, file: &TapeFile) -> Verified {
    let id = file.id.to_string();
    match chain.check(home, file) {
        Ok(checked) => Verified {
            id,
            sound: checked.is_sound(),
            first_bad_entry: checked.report.first_bad_entry(),
            error: None,
            checked: Some(checked),
        },
        Err(e) => {
            let error = Some(format!("{:#}", anyhow::Error::from(e)));
            Verified { id, sound: false, first_bad_entry: None, error, checked: None }
        }
    }
}

/// Describes a tape's state in a line, with remarks below it.
fn describe(one: &Verified) -> Vec<String> {
    let Some(checked) = &one.checked else {
        return vec![format!("{}  DAMAGED  {}", one.id, one.error.as_deref().unwrap_or_default())];
    };
    let mut lines = vec![format!("{}  {}", one.id, state(one, checked))];
    // The first finding is in the line above.
    lines.extend(checked.links.iter().skip(1).map(|finding| format!("  also: {}", finding.what)));
    if let Some(imported) = &checked.imported {
        let when = local_time(imported.wall_ns);
        lines.push(format!("  note: imported {when} from {} by {}", imported.format, imported.by));
    }
    lines.extend(checked.notes.iter().map(|note| format!("  note: {note}")));
    lines
}

fn state(one: &Verified, checked: &CheckedTape) -> String {
    let report = &checked.report;
    if let Some(damage) = report.damage.first() {
        let first = one.first_bad_entry.map(|n| format!("first bad entry {n}; ")).unwrap_or_default();
        return format!("DAMAGED  {first}{}; {} can be read", damage.what, counted(report.entries, "entry"));
    }
    if let Some(finding) = checked.links.first() {
        return format!("BROKEN LINK  {}", finding.what);
    }
    let tail = match (&report.head, report.unfinished_bytes) {
        (Some(head), _) => format!("chain {head}"),
        (None, 0) => "not sealed".to_owned(),
        (None, bytes) => {
            format!("not sealed, {} of an unfinished entry at its end", counted(bytes, "byte"))
        }
    };
    format!("ok  {}, {tail}", counted(report.entries, "entry"))
}
