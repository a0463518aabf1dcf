//! `scrubjay progress`: the tools of the progress toolset as commands, for people and scripts.
//!
//! Each command makes the arguments of a tool, calls the tool and prints its answer, so that the same rules apply to both.

use std::io::Read;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use scrubjay_core::units::counted;
use scrubjay_store::ledger::redacted::noting;
use scrubjay_store::ledger::session::Caller;
use scrubjay_tape::format::header::SessionRef;
use scrubjay_tools::progress::{Answer, get_context, log_progress, search_logs};
use scrubjay_tools::{Setup, Shared, redacted};
use serde_json::{Value, json};

use crate::cli::Global;
use crate::log;
use crate::render::{Align, Table, print_json};

/// 1 MiB: how much of standard input is read. More is far beyond the longest content, which the tool checks.
const CONTENT_BYTES_MAX: u64 = 1 << 20;

/// Log what was done and how, and search the log
#[derive(Debug, Subcommand)]
pub(crate) enum ProgressCommand {
    Log(LogArgs),
    Show(ShowArgs),
    Search(SearchArgs),
}

/// Log a progress entry
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// The project [default: the repository's name]
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// Add this tag; can be repeated, up to ten times
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// The agent that did it
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// What was done, in a few words
    title: String,
    /// What was done and how; - or nothing reads it from standard input
    content: Option<String>,
}

/// Show entries: one with its summary, several as a digest with citations
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The project [default: the repository's name]
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// Show the content too
    #[arg(long)]
    full: bool,
    /// Show a digest of the entries from this date on
    #[arg(long, value_name = "DATE", conflicts_with = "ids")]
    since: Option<String>,
    /// Show a digest of the entries up to this date
    #[arg(long, value_name = "DATE", conflicts_with = "ids")]
    until: Option<String>,
    /// About how many tokens all entries together may have
    #[arg(long, value_name = "TOKENS")]
    max_tokens: Option<u32>,
    /// The entries
    #[arg(value_name = "ENTRY", required_unless_present_any = ["since", "until"])]
    ids: Vec<String>,
}

/// Find entries, newest first
#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// The project [default: the repository's name]
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// Only entries with this tag; can be repeated, for entries that have all of them
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Only entries of this session: its id, a prefix of it, the host's own id, or latest
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Show the host's own id of each conversation
    #[arg(long)]
    host_ids: bool,
    /// Only entries from this date on
    #[arg(long, value_name = "DATE")]
    since: Option<String>,
    /// Only entries up to this date, the whole day
    #[arg(long, value_name = "DATE")]
    until: Option<String>,
    /// Show at most this many
    #[arg(long, default_value_t = 20)]
    limit: u32,
    /// Search for words in titles and contents, the best match first, instead of a part of the title
    #[arg(long)]
    full_text: bool,
    /// The text to search for
    query: Option<String>,
}

pub(crate) fn run(global: &Global, command: ProgressCommand) -> anyhow::Result<ExitCode> {
    let loaded = global.load()?;
    // A digest without a model is no error, but its cause is logged.
    log::init(&loaded)?;
    let runtime = super::runtime()?;
    let workspace = std::env::current_dir().context("cannot find the working directory")?;
    let setup = loaded.toolset_setup(&workspace, project_of(&command))?;
    let project = setup.project.clone();
    let caller = caller(&setup);
    let shared = Shared::new(setup);
    let answer = match command {
        ProgressCommand::Log(args) => {
            let arguments = args.arguments(&project)?;
            let logging = noting(log_progress(&shared, &caller, object(arguments.clone())));
            let (answer, stored) = runtime.block_on(logging);
            let mut answer = answer?;
            let changed = redacted::changed_arguments(&arguments, &stored, &shared.setup().redactor);
            if !changed.is_empty() {
                answer.text = format!("{}\n{}", answer.text, redacted::describe_changed(&changed));
                answer.data["redacted"] = json!(changed);
            }
            answer
        }
        ProgressCommand::Show(args) => {
            runtime.block_on(get_context(&shared, object(args.arguments(&project))))?
        }
        ProgressCommand::Search(args) => {
            let (words, host_ids) = (args.full_text, args.host_ids);
            let answer = runtime.block_on(search_logs(&shared, object(args.arguments(&project))))?;
            // Snippets need more room than a column: the tool's own text is printed.
            if !global.json && !words && answer.data["total"] != 0 {
                return print_found(&answer, host_ids);
            }
            answer
        }
    };
    if global.json {
        print_json(&answer.data)?;
    } else {
        let mut note = Table::note();
        answer.text.lines().try_for_each(|line| note.line(line))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn project_of(command: &ProgressCommand) -> Option<&str> {
    match command {
        ProgressCommand::Log(args) => args.project.as_deref(),
        ProgressCommand::Show(args) => args.project.as_deref(),
        ProgressCommand::Search(args) => args.project.as_deref(),
    }
}

/// Returns who logs: the person at this shell, or the agent that runs it.
fn caller(setup: &Setup) -> Caller {
    let workspace = setup.workspace.to_string_lossy().into_owned();
    let origin = super::wrap::origin(rustix::process::getpid());
    let session = SessionRef::of_host(&origin, Some(&workspace)).unwrap_or_default();
    let told_by = serde_json::to_value(session.told_by).ok();
    Caller {
        connection: session.id.clone(),
        conversation: session.id,
        host_session: origin.host_session,
        // No claim: this process ends before anyone could ask whether it is alive.
        process: None,
        told_by: told_by.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default(),
        agent: Some("scrubjay progress".to_owned()),
        tape: None,
        entry: None,
        project: setup.project.clone(),
        workspace: Some(workspace),
    }
}

impl LogArgs {
    fn arguments(self, project: &str) -> anyhow::Result<Value> {
        let content = match self.content.filter(|content| content != "-") {
            Some(content) => content,
            None => {
                let mut content = String::new();
                let input = std::io::stdin().lock().take(CONTENT_BYTES_MAX);
                { input }
                    .read_to_string(&mut content)
                    .context("cannot read the content from standard input")?;
                content
            }
        };
        Ok(json!({
            "projectId": project, "title": self.title, "content": content, "tags": self.tags,
            "agentId": self.agent,
        }))
    }
}

impl ShowArgs {
    fn arguments(self, project: &str) -> Value {
        let mut arguments = json!({
            "projectId": project, "includeFull": self.full, "startDate": self.since, "endDate": self.until,
            "maxTokens": self.max_tokens,
        });
        match self.ids.as_slice() {
            [] => {}
            [id] => arguments["id"] = id.as_str().into(),
            ids => arguments["ids"] = ids.into(),
        }
        arguments
    }
}

impl SearchArgs {
    fn arguments(self, project: &str) -> Value {
        json!({
            "projectId": project, "query": self.query, "tags": self.tags, "startDate": self.since,
            "endDate": self.until, "limit": self.limit, "match": self.full_text.then_some("fulltext"),
            "sessionId": self.session,
        })
    }
}

fn object(value: Value) -> serde_json::Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => unreachable!("arguments are an object"),
    }
}

fn print_found(answer: &Answer, with_host_ids: bool) -> anyhow::Result<ExitCode> {
    let mut columns = vec![("ID", Align::Left), ("LOGGED", Align::Left), ("SESSION", Align::Left)];
    columns.extend(with_host_ids.then_some(("HOST ID", Align::Left)));
    columns.extend([("TITLE", Align::Left), ("TAGS", Align::Left)]);
    let mut table = Table::new(&columns);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entries = answer.data["entries"].as_array().map_or(&[][..], Vec::as_slice);
    for entry in entries {
        let tags: Vec<String> = entry["tags"].as_array().into_iter().flatten().map(text).collect();
        let mut cells = vec![text(&entry["id"]), text(&entry["createdAt"]), text(&entry["sessionId"])];
        cells.extend(with_host_ids.then(|| text(&entry["hostSessionId"])));
        cells.extend([text(&entry["title"]), tags.join(", ")]);
        table.row(false, &cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    table.print()?;
    if let Some(total) = answer.data["total"].as_u64().filter(|total| *total > entries.len() as u64) {
        Table::note().line(&format!(
            "{} of {}: --limit shows more",
            entries.len(),
            counted(total, "entry")
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
