//! `scrubjay doctor`: finds what is wrong with this installation, and says how to fix it.
//!
//! It only reads: nothing is repaired or created. A check is a function in the list [`CHECKS`].

mod clock;
mod configuration;
mod files;
mod storage;
mod tapes;

use std::process::ExitCode;

use clap::Args;
use scrubjay_config::Loaded;
use scrubjay_tape::home::Home;
use serde::Serialize;

use crate::cli::Global;
use crate::render::{Table, print_json};

/// Check configuration, data directory, ledger, index, recordings and clock
///
/// Changes nothing. Each finding says what to do about it. The exit code is 1 if something is wrong.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    /// Not wrong, but worth knowing.
    Note,
    Wrong,
}

/// One result of a check, with the name of the check.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    level: Level,
    what: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

/// What the checks examine.
struct Installation {
    home: Home,
    /// The configuration, or why there is none.
    loaded: Result<Loaded, anyhow::Error>,
}

/// The findings of one check: level, description and remedy of each.
#[derive(Default)]
struct Findings(Vec<(Level, String, Option<String>)>);

impl Findings {
    fn ok(&mut self, what: impl Into<String>) {
        self.0.push((Level::Ok, what.into(), None));
    }

    fn note(&mut self, what: impl Into<String>, fix: impl Into<String>) {
        self.0.push((Level::Note, what.into(), Some(fix.into())));
    }

    fn wrong(&mut self, what: impl Into<String>, fix: impl Into<String>) {
        self.0.push((Level::Wrong, what.into(), Some(fix.into())));
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

type Check = fn(&Installation, &mut Findings);

/// Every check, in the order of the output.
const CHECKS: &[(&str, Check)] = &[
    ("configuration", configuration::check),
    ("data directory", files::check_modes),
    ("tokens and keys", files::check_tokens),
    ("disk space", files::check_room),
    ("ledger", storage::check_ledger),
    ("index", storage::check_index),
    ("tapes", tapes::check),
    ("clock", clock::check),
];

pub(crate) fn run(global: &Global, _: &DoctorArgs) -> anyhow::Result<ExitCode> {
    // A configuration that cannot be loaded is a finding, not an error, so that the other checks still run.
    let loaded = global.load();
    let installation = Installation { home: global.home_of(&loaded)?, loaded };
    let mut findings = Vec::new();
    for (name, check) in CHECKS {
        let mut found = Findings::default();
        check(&installation, &mut found);
        let finding = |(level, what, fix)| Finding { check: name, level, what, fix };
        findings.extend(found.0.into_iter().map(finding));
    }
    let is_well = findings.iter().all(|finding| finding.level != Level::Wrong);
    if global.json {
        print_json(&serde_json::json!({ "well": is_well, "findings": findings }))?;
    } else {
        findings.iter().try_for_each(print)?;
    }
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(finding: &Finding) -> anyhow::Result<()> {
    let level = match finding.level {
        Level::Ok => "ok   ",
        Level::Note => "note ",
        Level::Wrong => "WRONG",
    };
    let mut note = Table::note();
    note.line(&format!("{level}  {}: {}", finding.check, finding.what))?;
    finding.fix.iter().try_for_each(|fix| note.line(&format!("       {fix}")))
}
