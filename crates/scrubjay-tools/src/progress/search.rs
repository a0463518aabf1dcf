//! `search_logs`.

use std::fmt::Write as _;

use rmcp::model::JsonObject;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use scrubjay_core::query::DayEdge;
use scrubjay_core::units::counted;
use scrubjay_store::ledger::progress::FOLDING;
use scrubjay_store::ledger::progress::search::{self, EntryHit, EntrySearch, EntrySearchResults, TextFilter};
use scrubjay_store::ledger::project;
use scrubjay_store::ledger::words::{Term, terms};
use scrubjay_store::views::{self, ViewError};
use serde_json::{Value, json};

use super::arguments::{Arguments, day, iso};
use super::log::{NAME_CHARS_MAX, TAG_CHARS_MAX};
use super::{Answer, Progress, ProgressFailure, schema, snippet};
use crate::shared::Shared;

/// The longest query, in characters.
const QUERY_CHARS_MAX: usize = 1_000;
/// The most words of a query: each is looked up in the text index.
const TERMS_MAX: usize = 32;
/// The most tags of a search. More than an entry can have are no error: such a search matches nothing.
const TAGS_MAX: usize = 100;
/// The default number of entries, as the specification says.
const LIMIT: i64 = 20;
/// The largest number of entries, as the specification says.
const LIMIT_MAX: i64 = 100;

#[tool_router(router = search_tools, vis = "pub(super)")]
impl Progress {
    /// Searches for log entries within a project by title, date range, or tags.
    #[tool(title = "Search logs", input_schema = schema(input()), output_schema = schema(output()), annotations(read_only_hint = true, open_world_hint = false))]
    async fn search_logs(
        &self,
        arguments: JsonObject,
        _context: RequestContext<RoleServer>,
    ) -> Result<Answer, ProgressFailure> {
        search_logs(&self.shared, arguments).await
    }
}

/// The arguments of a search.
struct SearchRequest {
    project: String,
    query: Option<String>,
    terms: Option<Vec<Term>>,
    tags: Vec<String>,
    session: Option<String>,
    from_us: Option<i64>,
    until_us: Option<i64>,
    limit: i64,
}

/// Finds entries.
///
/// # Errors
/// The arguments are wrong, the project is not known, or the ledger failed.
pub async fn search_logs(shared: &Shared, arguments: JsonObject) -> Result<Answer, ProgressFailure> {
    let request = SearchRequest::read(arguments)?;
    let mut read = shared.ledger().await?.read().await?;
    if project::get(&mut read, &request.project).await?.is_none() {
        // The specification distinguishes an unknown project from a search without matches.
        return Err(ProgressFailure::NotFound(format!("Project not found: {}", request.project)));
    }
    let says = match (&request.terms, &request.query) {
        (Some(terms), _) => TextFilter::Words(terms),
        (None, Some(part)) => TextFilter::InTitle(part),
        (None, None) => TextFilter::Anything,
    };
    let session = match &request.session {
        Some(name) => match views::find_session(&mut read, name).await {
            Ok(session) => Some(session.id),
            Err(ViewError::Ledger(error)) => return Err(error.into()),
            Err(error) => return Err(ProgressFailure::NotFound(error.to_string())),
        },
        None => None,
    };
    let search = EntrySearch {
        project: &request.project,
        text: says,
        tags: &request.tags,
        session: session.as_deref(),
        from_us: request.from_us.unwrap_or(i64::MIN),
        until_us: request.until_us.unwrap_or(i64::MAX),
        limit: request.limit,
    };
    let found = search::find(&mut read, &search).await?;
    Ok(answer(&request, &found))
}

impl SearchRequest {
    fn read(arguments: JsonObject) -> Result<Self, ProgressFailure> {
        let mut arguments = Arguments::new(arguments);
        let project = arguments.required("projectId", NAME_CHARS_MAX, "is required");
        // An empty text would match everything, which is what leaving it out means.
        let query = arguments.text("query", QUERY_CHARS_MAX).filter(|query| !query.is_empty());
        let terms = match arguments.text("match", NAME_CHARS_MAX).as_deref() {
            None | Some("title") => None,
            Some("fulltext") => query.as_deref().map(|query| terms(query, FOLDING)),
            Some(_) => {
                arguments.problem_choice("match", &["title", "fulltext"]);
                None
            }
        };
        if terms.as_ref().is_some_and(Vec::is_empty) {
            arguments.problem("query", "has no words to search for: only match \"title\" finds punctuation");
        }
        if terms.as_ref().is_some_and(|terms| terms.len() > TERMS_MAX) {
            arguments.problem("query", format!("exceeds maximum of {TERMS_MAX} words"));
        }
        let request = Self {
            project,
            query,
            terms,
            tags: arguments.texts("tags", TAGS_MAX, TAG_CHARS_MAX),
            session: arguments.text("sessionId", NAME_CHARS_MAX).filter(|session| !session.is_empty()),
            from_us: arguments.date("startDate", DayEdge::Start),
            until_us: arguments.date("endDate", DayEdge::End),
            limit: arguments.number("limit", 1, LIMIT_MAX).unwrap_or(LIMIT),
        };
        arguments.finish()?;
        Ok(request)
    }
}

fn answer(request: &SearchRequest, found: &EntrySearchResults) -> Answer {
    let mut text = format!("Found {}", counted(found.total, "entry"));
    if let Some(query) = &request.query {
        write!(text, " matching '{query}'").expect("a string takes any text");
    }
    write!(text, " in {}", request.project).expect("a string takes any text");
    if (found.hits.len() as i64) < found.total {
        write!(text, " (showing {})", found.hits.len()).expect("a string takes any text");
    }
    let mut entries = Vec::new();
    for (n, hit) in found.hits.iter().enumerate() {
        let snippet = snippet_of(hit, request.terms.as_deref());
        text.push_str(if n == 0 { ":\n" } else { "\n" });
        write!(text, "{}. {} - {} ({})", n + 1, hit.id, hit.title, day(hit.at_us))
            .expect("a string takes any text");
        let mut entry = json!({
            "id": hit.id, "title": hit.title, "createdAt": iso(hit.at_us), "tags": hit.tags,
            "sessionId": hit.session_id,
        });
        if let Some(host_session) = &hit.host_session {
            entry["hostSessionId"] = host_session.as_str().into();
        }
        if let Some(snippet) = snippet {
            write!(text, "\n   {snippet}").expect("a string takes any text");
            entry["snippet"] = snippet.into();
        }
        entries.push(entry);
    }
    Answer { text, data: json!({ "entries": entries, "total": found.total }) }
}

fn snippet_of(hit: &EntryHit, terms: Option<&[Term]>) -> Option<String> {
    Some(snippet::of(&hit.title, hit.content.as_deref()?, terms?))
}

fn input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "projectId": { "type": "string", "description": "Project identifier to search within" },
            "query": {
                "type": "string",
                "description": "Text to search in titles (case-insensitive substring match)"
            },
            "tags": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Filter by tags (entries must have ALL specified tags)"
            },
            "sessionId": {
                "type": "string",
                "description": "Return entries logged in this session: its id, a prefix of it, the host's own id of the \
                                conversation, or latest"
            },
            "startDate": {
                "type": "string",
                "description": "ISO 8601 date. Return entries created on or after this date"
            },
            "endDate": {
                "type": "string",
                "description": "ISO 8601 date. Return entries created on or before this date"
            },
            "limit": {
                "type": "integer",
                "description": "Maximum number of results to return",
                "default": 20,
                "maximum": 100
            },
            "match": {
                "type": "string",
                "enum": ["title", "fulltext"],
                "description": "How query is matched: title (as a part of the title) or fulltext (words in titles and \
                                contents, best match first, with snippets; \"words in quotes\" must follow each \
                                other, auth* is a prefix)",
                "default": "title"
            }
        },
        "required": ["projectId"]
    })
}

fn output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "entries": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "id": { "type": "string" },
                        "title": { "type": "string" },
                        "createdAt": { "type": "string" },
                        "tags": { "type": "array", "items": { "type": "string" } },
                        "sessionId": { "type": "string", "description": "The session it was logged in" },
                        "hostSessionId": {
                            "type": "string",
                            "description": "The host's own id of that conversation"
                        },
                        "snippet": {
                            "type": "string",
                            "description": "The passage with the words, each between ** (only if match=fulltext)"
                        }
                    }
                }
            },
            "total": { "type": "integer", "description": "Total matching entries (before limit)" }
        },
        "required": ["entries", "total"]
    })
}
