//! `scrubjay trust tool`: shows definitions of tools that changed or are not approved yet, and approves them.
//!
//! Definitions are shown in full, as text, with invisible characters escaped: a person must see what a model would read.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use scrubjay_config::Loaded;
use scrubjay_core::analysis::changes;
use scrubjay_core::diff::unified;
use scrubjay_core::inert::{unseen, visible};
use scrubjay_gateway::config::{Quarantine, QuarantineModes};
use scrubjay_gateway::definitions::{
    DefinitionKind, DefinitionText, Definitions, PendingDefinition, ServerDefinitions, spelled,
};
use serde_json::{Value, json};

use crate::cli::Global;
use crate::render;

/// The beginning of a line about a part of a definition that was redacted, because it looked like a secret.
const REMOVED: &str = "not shown, because it looks like a secret: ";

/// Approve a tool that changed, or that is new
///
/// Shows what changed in its definition, and asks. An approved tool can be listed and called at once; no restart is
/// needed. `scrubjay trust ls` lists the tools that wait.
#[derive(Debug, Args)]
pub(super) struct ToolArgs {
    /// The tool or prompt as BACKEND/NAME; BACKEND/instructions for the instructions that the server gives clients
    #[arg(value_name = "BACKEND/TOOL", required_unless_present = "all")]
    tool: Option<String>,
    /// Approve everything of this backend that waits
    #[arg(long, value_name = "BACKEND", conflicts_with = "tool")]
    all: Option<String>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

/// A definition that waits for approval, with its server.
pub(super) struct WaitingDefinition {
    file: String,
    server: ServerDefinitions,
    pending: PendingDefinition,
}

pub(super) fn run(global: &Global, args: &ToolArgs) -> anyhow::Result<ExitCode> {
    let loaded = global.load()?;
    let store = loaded.definitions()?;
    let (backend, name) = match (&args.all, &args.tool) {
        (Some(backend), _) => (backend.as_str(), None),
        (None, Some(tool)) => {
            let (backend, name) = tool.split_once('/').context("name a tool as BACKEND/TOOL")?;
            (backend, Some(name))
        }
        (None, None) => bail!("name a tool as BACKEND/TOOL"),
    };
    let is_meant = |waiting: &WaitingDefinition| {
        waiting.server.backend == backend && name.is_none_or(|name| waiting.pending.name == name)
    };
    let meant: Vec<WaitingDefinition> = waiting(&loaded, &store)?.into_iter().filter(is_meant).collect();
    if meant.is_empty() {
        let what = name.map_or_else(|| backend.to_owned(), |name| format!("{backend}/{name}"));
        bail!("nothing called {what} waits for approval: `scrubjay trust ls` lists what waits");
    }
    // All are shown before any is approved, so that if the user refuses one of them, nothing changes.
    let mut approved = Vec::new();
    for waiting in &meant {
        show(waiting)?;
        if !args.yes && !super::confirmed("Approve this?")? {
            bail!("{} is not approved: nothing was changed", waiting.title());
        }
        approved.push(waiting);
    }
    for waiting in &approved {
        let PendingDefinition { what, name, new, .. } = &waiting.pending;
        // Only the definition that was shown is approved. If it changed meanwhile, it still waits.
        let same = store.update(&waiting.file, |server| server.approve(*what, name, new))?;
        anyhow::ensure!(same, "{} changed while it was shown: run this again", waiting.title());
    }
    let titles: Vec<String> = approved.iter().map(|waiting| waiting.title()).collect();
    if global.json {
        render::print_json(&json!({ "approved": titles }))?;
    } else {
        render::Table::note().line(&format!("{} may be used as it is now", titles.join(", ")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the definitions that wait, of all servers seen so far.
pub(super) fn waiting(loaded: &Loaded, store: &Definitions) -> anyhow::Result<Vec<WaitingDefinition>> {
    let modes = loaded.quarantine();
    let mut all = Vec::new();
    for (file, server) in store.list()? {
        let server = server?;
        let pending = server.pending(mode_of(&modes, &server));
        all.extend(pending.into_iter().map(|pending| WaitingDefinition {
            file: file.clone(),
            server: server.clone(),
            pending,
        }));
    }
    Ok(all)
}

/// Returns the strictest quarantine that may hold back a server's definitions. A gateway with another configuration may hold
/// back what this configuration does not, and its user must find it here, too.
fn mode_of(modes: &QuarantineModes, server: &ServerDefinitions) -> Quarantine {
    let elsewhere = if server.has_approvals() { Quarantine::Changed } else { Quarantine::Off };
    modes.of(&server.backend).max(server.quarantine).max(elsewhere)
}

/// Describes the definitions that wait, as JSON.
pub(super) fn list(loaded: &Loaded, store: &Definitions) -> anyhow::Result<Vec<Value>> {
    let told = |waiting: WaitingDefinition| {
        let PendingDefinition { what, name, old, new, .. } = &waiting.pending;
        json!({
            "backend": waiting.server.backend,
            "server": waiting.server.described,
            "kind": what.word(),
            "name": name,
            "why": waiting.why(),
            "changes": waiting.changes(),
            "unseen_characters": new.iter().map(|new| unseen(&unescaped(&new.text))).sum::<usize>(),
            "old": old.as_ref().map(|old| parsed(&old.text)),
            "new": new.iter().map(|new| parsed(&new.text)).collect::<Vec<_>>(),
            "removed": new.iter().flat_map(|new| new.removed.clone()).collect::<Vec<_>>(),
            "approve": format!("scrubjay trust tool {}", waiting.title()),
        })
    };
    Ok(waiting(loaded, store)?.into_iter().map(told).collect())
}

/// Prints a few lines for each definition that waits.
pub(super) fn print(waiting: &[Value]) -> anyhow::Result<()> {
    let mut out = render::Table::note();
    out.line("waiting for approval:")?;
    for one in waiting {
        let text = |key: &str| visible(one[key].as_str().unwrap_or_default()).into_owned();
        let [kind, backend, name, server, why] = ["kind", "backend", "name", "server", "why"].map(text);
        out.line(&format!("  {kind} {backend}/{name} ({server}): {why}"))?;
        for change in one["changes"].as_array().into_iter().flatten() {
            out.line(&format!("    {}", visible(change.as_str().unwrap_or_default())))?;
        }
        out.line(&format!("    see all of it, and approve it, with `{}`", text("approve")))?;
    }
    Ok(())
}

impl WaitingDefinition {
    fn title(&self) -> String {
        format!("{}/{}", self.server.backend, self.pending.name)
    }

    fn why(&self) -> &'static str {
        if self.pending.is_change { "its definition changed" } else { "it is not approved yet" }
    }

    fn changes(&self) -> Vec<String> {
        let Some(old) = &self.pending.old else { return Vec::new() };
        let definition = parsed(&old.text);
        let mut all = Vec::new();
        for new in &self.pending.new {
            all.extend(changes(&definition, &parsed(&new.text)));
            let others = new.removed.iter().filter(|stretch| !old.removed.contains(stretch));
            all.extend(others.map(|stretch| format!("{REMOVED}{stretch}")));
        }
        all
    }
}

/// Shows one definition, as a diff to the approved one if there is any, on standard error, because standard output is for the
/// outcome.
fn show(waiting: &WaitingDefinition) -> io::Result<()> {
    let mut out = io::stderr().lock();
    let PendingDefinition { what, old, new, .. } = &waiting.pending;
    let (title, server) = (waiting.title(), &waiting.server.described);
    writeln!(out, "{} {} ({}): {}", what.word(), visible(&title), visible(server), waiting.why())?;
    for change in waiting.changes() {
        writeln!(out, "  {}", visible(&change))?;
    }
    for new in new {
        if new.text.is_empty() {
            writeln!(out, "  its definition is too long to be stored, so it cannot be shown")?;
        }
        let unseen = unseen(&unescaped(&new.text));
        if unseen > 0 {
            writeln!(
                out,
                "  WARNING: it has {unseen} characters that cannot be seen; they are written as \\u{{…}} below"
            )?;
        }
        let old = old.as_ref().map(|old| lines(*what, old)).unwrap_or_default();
        write!(out, "{}", unified(old.as_bytes(), lines(*what, new).as_bytes(), "approved", "now"))?;
    }
    out.flush()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

/// Returns all keys and texts of a definition, unescaped.
fn unescaped(text: &str) -> String {
    fn collect(value: &Value, out: &mut String) {
        match value {
            Value::String(text) => out.push_str(text),
            Value::Array(items) => items.iter().for_each(|item| collect(item, out)),
            Value::Object(members) => members.iter().for_each(|(key, value)| {
                out.push_str(key);
                collect(value, out);
            }),
            _ => {}
        }
    }
    let mut out = String::new();
    collect(&parsed(text), &mut out);
    out
}

/// Writes a definition for people: a line for each member, texts unescaped, all characters visible, then what was redacted.
fn lines(what: DefinitionKind, shown: &DefinitionText) -> String {
    let mut out = String::new();
    let text = &*shown.text;
    let definition = parsed(text);
    match definition.as_object().filter(|_| what != DefinitionKind::Instructions) {
        Some(members) => {
            for (key, value) in members {
                write_value(&visible(key), value, "", &mut out);
            }
            // With a duplicate member, this shows one of the two, but another parser may read the other one. So the raw text
            // is shown as well.
            if spelled(&definition.to_string()) != text {
                out.push_str("raw: ");
                out.push_str(&visible(text));
                out.push('\n');
            }
        }
        None => write_value("text", &definition, "", &mut out),
    }
    for stretch in &shown.removed {
        out.push_str(REMOVED);
        out.push_str(&visible(stretch));
        out.push('\n');
    }
    out
}

fn write_value(key: &str, value: &Value, indent: &str, out: &mut String) {
    let mut line = |text: &str| {
        out.push_str(indent);
        out.push_str(text);
        out.push('\n');
    };
    match value {
        Value::String(text) if text.contains('\n') => {
            line(&format!("{key}:"));
            text.split('\n').for_each(|part| line(&format!("  {}", visible(part))));
        }
        Value::String(text) => line(&format!("{key}: {}", visible(text))),
        Value::Object(members) if !members.is_empty() => {
            line(&format!("{key}:"));
            for (key, value) in members {
                write_value(&visible(key), value, &format!("{indent}  "), out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            line(&format!("{key}:"));
            for item in items {
                write_value("-", item, &format!("{indent}  "), out);
            }
        }
        plain => line(&format!("{key}: {plain}")),
    }
}
