//! `log_progress`.

use rmcp::model::JsonObject;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use scrubjay_store::ledger::CommitDurability;
use scrubjay_store::ledger::progress::{self, NewProgressEntry};
use scrubjay_store::ledger::session::{self, Caller};
use serde_json::{Value, json};

use super::arguments::{Arguments, iso};
use super::{Answer, Progress, ProgressFailure, schema};
use crate::shared::Shared;

/// The longest project id, title or agent id. This limit and the following ones are the specification's.
pub(super) const NAME_CHARS_MAX: usize = 100;
/// The longest content.
const CONTENT_CHARS_MAX: usize = 10_000;
/// The most tags of an entry.
const TAGS_MAX: usize = 10;
/// The longest tag.
pub(super) const TAG_CHARS_MAX: usize = 50;

#[tool_router(router = log_tools, vis = "pub(super)")]
impl Progress {
    /// Logs a completed action with title and detailed content under a project.
    #[tool(title = "Log progress", input_schema = schema(input()), output_schema = schema(output()), annotations(destructive_hint = false, open_world_hint = false))]
    async fn log_progress(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> Result<Answer, ProgressFailure> {
        log_progress(&self.shared, &self.shared.caller(&context), arguments).await
    }
}

/// Logs an entry. Once this returns, the entry survives a loss of power.
///
/// # Errors
/// The arguments are wrong, or the ledger failed.
pub async fn log_progress(
    shared: &Shared,
    caller: &Caller,
    arguments: JsonObject,
) -> Result<Answer, ProgressFailure> {
    let mut arguments = Arguments::new(arguments);
    let project = arguments.required("projectId", NAME_CHARS_MAX, "is required");
    let title = arguments.required("title", NAME_CHARS_MAX, "is required");
    let content = arguments.required("content", CONTENT_CHARS_MAX, "is required and cannot be empty");
    let tags = arguments.texts("tags", TAGS_MAX, TAG_CHARS_MAX);
    let agent_id = arguments.text("agentId", NAME_CHARS_MAX);
    arguments.finish()?;
    let mut write = shared.ledger().await?.write(CommitDurability::Power).await?;
    // The session is that of the connection: the tool has no argument for another.
    let session = session::current(&mut write, caller, None).await?;
    let new = NewProgressEntry {
        project: &project,
        title: &title,
        content: &content,
        tags: &tags,
        agent_id: agent_id.as_deref(),
    };
    let entry = progress::log(&mut write, caller, &session, new).await?;
    write.commit().await?;
    Ok(Answer {
        text: format!("Logged: {title} (ID: {}) in project {project}", entry.id),
        data: json!({
            "id": entry.id, "projectId": project, "title": title, "createdAt": iso(entry.at_us),
        }),
    })
}

fn input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "projectId": {
                "type": "string",
                "description": "Project identifier (typically repo name). Auto-creates project if not exists.",
                "maxLength": 100
            },
            "title": {
                "type": "string",
                "description": "Short title describing what was done (max 100 chars)",
                "maxLength": 100
            },
            "content": {
                "type": "string",
                "description": "Detailed description of the work completed and how it was done",
                "maxLength": 10000
            },
            "tags": {
                "type": "array",
                "items": { "type": "string", "maxLength": 50 },
                "maxItems": 10,
                "description": "Optional tags for categorisation"
            },
            "agentId": {
                "type": "string",
                "description": "Optional identifier for the agent logging this entry",
                "maxLength": 100
            }
        },
        "required": ["projectId", "title", "content"]
    })
}

fn output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "id": { "type": "string", "description": "Unique ID assigned to this log entry" },
            "projectId": { "type": "string" },
            "title": { "type": "string" },
            "createdAt": { "type": "string", "description": "ISO 8601 timestamp" }
        },
        "required": ["id", "projectId", "title", "createdAt"]
    })
}
