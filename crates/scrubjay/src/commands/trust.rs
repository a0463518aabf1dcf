//! `scrubjay trust`: approve project files, and tools that changed.

mod effects;
mod tools;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use scrubjay_config::project::{self, ProjectFile, Refused};
use scrubjay_config::{ConfigError, FileTree};
use scrubjay_core::inert::inert;

use crate::cli::Global;
use crate::render::{self, Align, Table};

/// Trust the project file of this directory, or approve a tool that changed
///
/// Shows what the file would do, and asks. Trust holds for this path and this content: if either changes, the file is
/// used without the keys that need trust until it is trusted again. Also lists the tools that wait for approval.
#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    #[command(subcommand)]
    command: Option<TrustCommand>,
    /// The project file [default: the one in the working directory]
    file: Option<PathBuf>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// Withdraw the trust in the file
    #[arg(long, conflicts_with = "yes")]
    revoke: bool,
}

#[derive(Debug, Subcommand)]
enum TrustCommand {
    Tool(tools::ToolArgs),
    Ls(LsArgs),
}

/// List the tools that wait for approval, and all servers seen so far
#[derive(Debug, Args)]
struct LsArgs {}

pub(crate) fn run(global: &Global, args: &TrustArgs) -> anyhow::Result<ExitCode> {
    // The commands have a --yes of their own; clap would accept this one before them, and it would have no effect.
    let is_about_file = args.file.is_some() || args.yes || args.revoke;
    anyhow::ensure!(
        args.command.is_none() || !is_about_file,
        "FILE, --yes and --revoke cannot come before a command: put --yes after it"
    );
    match &args.command {
        Some(TrustCommand::Tool(args)) => return tools::run(global, args),
        Some(TrustCommand::Ls(LsArgs {})) => return ls(global),
        None => {}
    }
    let store = global.trust_store()?;
    if args.revoke {
        let path = args.file.as_deref().unwrap_or(Path::new(project::FILE_NAME));
        let path = project::full_path(path).with_context(|| format!("no file {}", path.display()))?;
        let was = store.revoke(&path)?;
        let outcome = if was { "is no longer trusted" } else { "was not trusted" };
        return finish(global, &path, false, &format!("{} {outcome}", path.display()));
    }
    // Without a project file there is nothing to trust, so this lists the tools that wait.
    if args.file.is_none() && !args.yes && matches!(project::find(Path::new(".")), Err((_, Refused::Absent)))
    {
        return ls(global);
    }
    let file = find(args.file.as_deref())?;
    let tree = checked(&file, global)?;
    let effects = effects::of(&tree);
    if effects.is_empty() {
        let outcome = format!("{} sets nothing that needs trust", file.path.display());
        return finish(global, &file.path, store.trusts(&file)?, &outcome);
    }
    show(&file, &effects)?;
    if !args.yes && !confirmed("Trust this file?")? {
        bail!("{} is not trusted: nothing was changed", file.path.display());
    }
    // The file is not read again, so the content that was shown is the content that is trusted, even if it changed meanwhile.
    store.trust(&file)?;
    finish(global, &file.path, true, &format!("{} is trusted as it is now", file.path.display()))
}

fn find(path: Option<&Path>) -> anyhow::Result<ProjectFile> {
    let found = match path {
        Some(path) => project::open(path).map_err(|refused| (path.to_owned(), refused)),
        None => project::find(Path::new(".")),
    };
    match found {
        // Trust in a file of another name would have no effect, because no command reads it as a project file.
        Ok(file) if file.has_known_name() => Ok(file),
        Ok(_) => {
            bail!(
                "only files named {} need trust; a file that you name with --config does not",
                project::FILE_NAME
            )
        }
        Err((_, Refused::Absent)) if path.is_none() => {
            bail!("there is no {} here: name the file, or change to its directory", project::FILE_NAME)
        }
        Err((path, Refused::Absent)) => bail!("there is no {}", path.display()),
        Err((path, Refused::Because(why))) => bail!("{} cannot be trusted: {why}", path.display()),
    }
}

/// Parses the file; fails if it could not be loaded, because trust in it would have no effect.
fn checked(file: &ProjectFile, global: &Global) -> anyhow::Result<FileTree> {
    let mut problems = Vec::new();
    let tree = file.parse(&mut problems);
    if let Some(tree) = &tree {
        problems.extend(tree.problems(&global.sources(Vec::new())?.environment));
    }
    ConfigError::unless_empty(problems)?;
    tree.context("the file has no content")
}

/// Shows what the file would do, on standard error, because standard output is for the outcome.
fn show(file: &ProjectFile, effects: &[String]) -> io::Result<()> {
    let mut out = io::stderr().lock();
    writeln!(out, "{} would", inert(&file.path.to_string_lossy()))?;
    for effect in effects {
        writeln!(out, "  {}", inert(effect))?;
    }
    out.flush()
}

fn confirmed(question: &str) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        bail!("cannot ask without a terminal: check the above, then run this again with --yes");
    }
    write!(io::stderr(), "{question} [y/N] ")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn finish(global: &Global, path: &Path, trusted: bool, outcome: &str) -> anyhow::Result<ExitCode> {
    // The outcome of trusting a file must not depend on whether this list can be read.
    let waiting = waiting(global).unwrap_or_default();
    if global.json {
        render::print_json(&serde_json::json!({ "path": path, "trusted": trusted, "waiting": waiting }))?;
    } else {
        render::Table::note().line(outcome)?;
        if !waiting.is_empty() {
            tools::print(&waiting)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn waiting(global: &Global) -> anyhow::Result<Vec<serde_json::Value>> {
    let loaded = global.load()?;
    tools::list(&loaded, &loaded.definitions()?)
}

/// Lists the definitions that wait, and every server seen so far.
fn ls(global: &Global) -> anyhow::Result<ExitCode> {
    let loaded = global.load()?;
    let definitions = loaded.definitions()?;
    let waiting = tools::list(&loaded, &definitions)?;
    let servers = definitions.list()?;
    let mut seen = Vec::new();
    for (file, server) in servers {
        let server = server?;
        let (definitions, changes) = server.counts();
        seen.push(serde_json::json!({
            "backend": server.backend, "server": server.described, "file": file,
            "definitions": definitions, "changes": changes,
        }));
    }
    if global.json {
        render::print_json(&serde_json::json!({ "waiting": waiting, "servers": seen }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&[
        ("BACKEND", Align::Left),
        ("DEFINITIONS", Align::Right),
        ("CHANGES SEEN", Align::Right),
        ("SERVER", Align::Left),
    ]);
    for server in &seen {
        let text = |key: &str| server[key].as_str().map_or_else(|| server[key].to_string(), str::to_owned);
        let has_changed = server["changes"] != 0;
        table.row(has_changed, &[&text("backend"), &text("definitions"), &text("changes"), &text("server")]);
    }
    if !seen.is_empty() {
        table.print()?;
    }
    if waiting.is_empty() {
        render::Table::note().line("nothing waits for approval")?;
    } else {
        tools::print(&waiting)?;
    }
    Ok(ExitCode::SUCCESS)
}
