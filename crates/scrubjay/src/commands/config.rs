//! `scrubjay config show`.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use scrubjay_config::{FileState, Loaded, ShownSetting, SourceFile};
use scrubjay_core::inert::inert;
use serde_json::{Value, json};

use crate::cli::Global;
use crate::{log, render};

/// Show the configuration
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    Show(ShowArgs),
}

/// Print every value and where it came from, secrets masked
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {}

pub(crate) fn run(global: &Global, command: &ConfigCommand) -> anyhow::Result<ExitCode> {
    let ConfigCommand::Show(ShowArgs {}) = command;
    let loaded = global.load()?;
    log::init(&loaded)?;
    // For its errors: what `serve` would refuse is reported here, too.
    loaded.serve_config()?;
    if global.json {
        let values = loaded.shown();
        render::print_json(&json!({ "values": values, "files": loaded.files, "notices": loaded.notices }))?;
    } else {
        print(&loaded)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(loaded: &Loaded) -> io::Result<()> {
    let rows: Vec<(String, String, String)> = loaded.shown().iter().map(row).collect();
    let width = |cell: fn(&(String, String, String)) -> &String, most: usize| {
        rows.iter().map(|row| cell(row).chars().count()).filter(|w| *w <= most).max().unwrap_or(0)
    };
    // Values of more than 40 characters do not count for the width: they shift only their own line.
    let (keys, values) = (width(|row| &row.0, usize::MAX), width(|row| &row.1, 40));
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    for (key, value, origin) in &rows {
        writeln!(out, "{key:keys$}  {value:values$}  {origin}")?;
    }
    writeln!(out)?;
    for file in &loaded.files {
        writeln!(out, "{}", inert(&describe(file)))?;
    }
    out.flush()
}

fn row(shown: &ShownSetting) -> (String, String, String) {
    let value = match &shown.value {
        Value::Null => "(none)".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    (inert(&shown.key).into_owned(), inert(&value).into_owned(), inert(&shown.origin).into_owned())
}

fn describe(file: &SourceFile) -> String {
    let path = file.path.display();
    match &file.state {
        FileState::Absent => format!("{path} does not exist"),
        FileState::Read => format!("{path} is read"),
        FileState::Untrusted { left_out } => {
            format!("{path} is read without {}: it is not trusted", left_out.join(", "))
        }
        FileState::Refused { why } => format!("{path} is not used: {why}"),
    }
}
