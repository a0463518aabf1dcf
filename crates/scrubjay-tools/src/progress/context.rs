//! `get_context`.

use rmcp::model::JsonObject;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use scrubjay_core::query::DayEdge;
use scrubjay_core::tokens::estimate_tokens;
use scrubjay_store::ledger::Read;
use scrubjay_store::ledger::progress::search::{self, EntrySearch, TextFilter};
use scrubjay_store::ledger::progress::{self, ProgressEntry};
use scrubjay_store::ledger::project;
use serde_json::{Value, json};

use super::arguments::{Arguments, iso};
use super::budget::choose_details;
use super::log::NAME_CHARS_MAX;
use super::{Answer, Progress, ProgressFailure, digest, schema, summary};
use crate::shared::Shared;

/// The longest id.
const ID_CHARS_MAX: usize = 100;
/// The most entries of a digest: all of them are sent to the model in one request.
const ENTRIES_MAX: usize = 100;
/// The default token limit of several entries.
const TOKENS: i64 = 4_000;
/// The largest token limit.
const TOKENS_MAX: i64 = 200_000;

#[tool_router(router = context_tools, vis = "pub(super)")]
impl Progress {
    /// Retrieves a summarised version of a log entry by ID within a project. Several entries, given by ids or by a range
    /// of dates, are summarised in one digest that cites them.
    #[tool(title = "Get context", input_schema = schema(input()), output_schema = schema(output()), annotations(read_only_hint = true, open_world_hint = true))]
    async fn get_context(
        &self,
        arguments: JsonObject,
        _context: RequestContext<RoleServer>,
    ) -> Result<Answer, ProgressFailure> {
        get_context(&self.shared, arguments).await
    }
}

/// The arguments of `get_context`.
struct ContextRequest {
    project: String,
    which: RequestedEntries,
    include_full: bool,
    max_tokens: Option<usize>,
}

enum RequestedEntries {
    One(String),
    Several(Vec<String>),
    Between(i64, i64),
}

/// Returns an entry's summary, or several entries' digest.
///
/// # Errors
/// The arguments are wrong, an entry does not exist, or the ledger failed.
pub async fn get_context(shared: &Shared, arguments: JsonObject) -> Result<Answer, ProgressFailure> {
    let request = ContextRequest::read(arguments)?;
    let mut read = shared.ledger().await?.read().await?;
    let (entries, more) = match &request.which {
        RequestedEntries::One(id) => {
            // `several` fails if the entry does not exist, so there is one.
            let entry = several(&mut read, &request.project, std::slice::from_ref(id)).await?.remove(0);
            // Before a model is asked: its answer may take a while, and an open read keeps the database's log from
            // shrinking.
            drop(read);
            return one(shared, &request, entry).await;
        }
        RequestedEntries::Several(ids) => (several(&mut read, &request.project, ids).await?, 0),
        RequestedEntries::Between(from_us, until_us) => {
            between(&mut read, &request.project, *from_us, *until_us).await?
        }
    };
    // As above: no read stays open while a model is asked.
    drop(read);
    let (chosen, omitted) = choose_details(entries, request.max_tokens.unwrap_or(TOKENS as usize));
    digest::of(shared, &request.project, &chosen, omitted + more).await
}

impl ContextRequest {
    fn read(arguments: JsonObject) -> Result<Self, ProgressFailure> {
        let mut arguments = Arguments::new(arguments);
        let project = arguments.required("projectId", NAME_CHARS_MAX, "is required");
        // The schema requires `id` by the specification, but a digest has none: an empty one is taken for none.
        let several = arguments.has("ids");
        let dated = arguments.has("startDate") || arguments.has("endDate");
        let id = if several || dated {
            arguments.text("id", ID_CHARS_MAX).filter(|id| !id.is_empty())
        } else {
            Some(arguments.required("id", ID_CHARS_MAX, "is required"))
        };
        let mut ids = arguments.texts("ids", ENTRIES_MAX, ID_CHARS_MAX);
        let from_us = arguments.date("startDate", DayEdge::Start);
        let until_us = arguments.date("endDate", DayEdge::End);
        if several && dated {
            arguments.problem("ids", "and a range of dates exclude each other");
        }
        if dated && id.is_some() {
            arguments.problem("id", "and a range of dates exclude each other");
        }
        let which = if dated {
            RequestedEntries::Between(from_us.unwrap_or(i64::MIN), until_us.unwrap_or(i64::MAX))
        } else if several {
            ids.extend(id.filter(|id| !ids.contains(id)));
            if ids.is_empty() {
                arguments.problem("ids", "must name an entry");
            }
            RequestedEntries::Several(ids)
        } else {
            RequestedEntries::One(id.unwrap_or_default())
        };
        let include_full = arguments.flag("includeFull");
        let max_tokens = arguments.number("maxTokens", 1, TOKENS_MAX).map(|tokens| tokens as usize);
        arguments.finish()?;
        Ok(Self { project, which, include_full, max_tokens })
    }
}

/// Returns the entries with these ids. If any does not exist, the failure names all that do not.
async fn several(
    read: &mut Read,
    project: &str,
    ids: &[String],
) -> Result<Vec<ProgressEntry>, ProgressFailure> {
    let mut entries: Vec<ProgressEntry> = Vec::new();
    let mut missing = Vec::new();
    for id in ids {
        match progress::get(read, project, id).await? {
            Some(entry) if entries.iter().any(|known| known.id == entry.id) => {}
            Some(entry) => entries.push(entry),
            None => missing.push(id.as_str()),
        }
    }
    if missing.is_empty() {
        return Ok(entries);
    }
    Err(ProgressFailure::NotFound(format!("Entry not found: {} in project {project}", missing.join(", "))))
}

/// Returns the newest entries of a time range, and how many more there are.
async fn between(
    read: &mut Read,
    project: &str,
    from_us: i64,
    until_us: i64,
) -> Result<(Vec<ProgressEntry>, usize), ProgressFailure> {
    if project::get(read, project).await?.is_none() {
        return Err(ProgressFailure::NotFound(format!("Project not found: {project}")));
    }
    let entries = progress::between(read, project, from_us, until_us, ENTRIES_MAX as i64).await?;
    if entries.is_empty() {
        return Err(ProgressFailure::NotFound(format!(
            "Entry not found: none between these dates in project {project}"
        )));
    }
    let search = EntrySearch {
        project,
        text: TextFilter::Anything,
        tags: &[],
        session: None,
        from_us,
        until_us,
        limit: 1,
    };
    // The search counts all matches, however few it returns.
    let total = search::find(read, &search).await?.total as usize;
    let more = total.saturating_sub(entries.len());
    Ok((entries, more))
}

async fn one(
    shared: &Shared,
    request: &ContextRequest,
    entry: ProgressEntry,
) -> Result<Answer, ProgressFailure> {
    let (summary, source) = summary::of(shared, &entry).await?;
    let mut data = json!({
        "id": entry.id,
        "projectId": entry.project_id,
        "title": entry.title,
        "summary": summary,
        "summarySource": source.name(),
        "createdAt": iso(entry.at_us),
        "tags": entry.tags,
    });
    let mut text = summary;
    // The content is given whole or not at all: a part of it would look like all of it.
    let fits =
        request.max_tokens.is_none_or(|max| estimate_tokens(&text) + estimate_tokens(&entry.content) <= max);
    if request.include_full && fits {
        text = format!("{text}\n\n{}", entry.content);
        data["content"] = entry.content.into();
    }
    Ok(Answer { text, data })
}

fn input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "projectId": { "type": "string", "description": "Project identifier to search within" },
            "id": { "type": "string", "description": "The unique ID of the log entry to retrieve" },
            "includeFull": {
                "type": "boolean",
                "description": "If true, include full content in addition to summary",
                "default": false
            },
            "ids": {
                "type": "array",
                "items": { "type": "string" },
                "maxItems": 100,
                "description": "The entries of a digest with citations; id may then be empty"
            },
            "startDate": {
                "type": "string",
                "description": "ISO 8601 date. Makes a digest of the entries created on or after this date; id must \
                                then be empty"
            },
            "endDate": {
                "type": "string",
                "description": "ISO 8601 date. Makes a digest of the entries created on or before this date; id must \
                                then be empty"
            },
            "maxTokens": {
                "type": "integer",
                "minimum": 1,
                "maximum": 200_000,
                "description": "About how many tokens the entries may have together: as many as fit come in full, others \
                                as summaries or titles (default 4000)"
            }
        },
        "required": ["projectId", "id"]
    })
}

fn output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "id": { "type": "string" },
            "projectId": { "type": "string" },
            "title": { "type": "string" },
            "summary": { "type": "string", "description": "LLM-generated summary of the work" },
            "content": { "type": "string", "description": "Full content (only if includeFull=true)" },
            "createdAt": { "type": "string" },
            "tags": { "type": "array", "items": { "type": "string" } },
            "summarySource": {
                "type": "string",
                "enum": ["model", "cache", "fallback"],
                "description": "Where the summary is from: model (just now), cache (the model, before) or fallback (no \
                                model; the beginning of the content)"
            },
            "citations": {
                "type": "array",
                "items": { "type": "string" },
                "description": "The ids that a digest cites, in order (only for several entries)"
            },
            "entries": {
                "type": "array",
                "items": { "type": "object" },
                "description": "The entries of a digest, in as much detail as maxTokens allows"
            },
            "omitted": { "type": "integer", "description": "How many entries were left out of a digest for lack of tokens" }
        },
        "required": ["id", "projectId", "title", "summary", "createdAt"]
    })
}
