//! `scrubjay tape verify`.

use std::process::ExitCode;

use clap::Args;
use scrubjay_core::units::counted;
use scrubjay_store::home::{Home, TapeFile};
use scrubjay_store::tape::reader::State;
use scrubjay_store::tape::verify::{Report, verify};
use serde::Serialize;

use crate::cli::Global;
use crate::render::{Table, print_json};

/// Check that recordings are whole and unaltered
///
/// Names the first entry that cannot be trusted. For a sealed tape it prints the end of its hash chain: note
/// it down elsewhere, and no later alteration goes unseen.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Which tape: its id, the beginning of it, or `latest` [default: all]
    id: Option<String>,
}

#[derive(Serialize)]
struct Checked {
    id: String,
    sound: bool,
    state: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_bad_entry: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    report: Option<Report>,
}

pub(crate) fn run(global: &Global, home: &Home, args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let tapes = match &args.id {
        Some(name) => vec![home.find(name)?],
        None => home.list()?,
    };
    let checked: Vec<Checked> = tapes.iter().map(|file| check(home, file)).collect();
    if global.json {
        print_json(&checked)?;
    } else {
        let mut note = Table::note();
        for one in &checked {
            note.line(&describe(one))?;
        }
        if checked.is_empty() {
            note.line(&format!("no tapes in {}", home.root().display()))?;
        }
    }
    let all_sound = checked.iter().all(|one| one.sound);
    Ok(if all_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check(home: &Home, file: &TapeFile) -> Checked {
    let opened = home.open(file).map_err(anyhow::Error::from);
    let checked = opened.and_then(|tape| Ok((tape.state(), verify(&tape)?)));
    match checked {
        Ok((state, report)) => Checked {
            id: file.id.to_string(),
            sound: report.is_sound(),
            state: Some(state),
            first_bad_entry: report.first_bad_entry(),
            error: None,
            report: Some(report),
        },
        Err(e) => Checked {
            id: file.id.to_string(),
            sound: false,
            state: None,
            first_bad_entry: None,
            error: Some(format!("{e:#}")),
            report: None,
        },
    }
}

fn describe(one: &Checked) -> String {
    let Some(report) = &one.report else {
        return format!("{}  DAMAGED  {}", one.id, one.error.as_deref().unwrap_or_default());
    };
    if let Some(damage) = report.damage.first() {
        let first = one.first_bad_entry.map(|n| format!("first bad entry {n}; ")).unwrap_or_default();
        return format!(
            "{}  DAMAGED  {first}{}; {} can be read",
            one.id,
            damage.what,
            counted(report.entries, "entry")
        );
    }
    let tail = match (&report.head, report.unfinished_bytes) {
        (Some(head), _) => format!("chain {head}"),
        (None, 0) => "not sealed".to_owned(),
        (None, bytes) => {
            format!("not sealed, {} of an unfinished entry at its end", counted(bytes, "byte"))
        }
    };
    format!("{}  ok  {}, {tail}", one.id, counted(report.entries, "entry"))
}
