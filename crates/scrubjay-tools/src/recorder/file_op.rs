//! `file_op`: changes files; the change is recorded first, then made.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use schemars::JsonSchema;
use scrubjay_core::units::counted;
use scrubjay_store::files::{Action, AppliedChange, Change, NewContent, TextEdit};
use scrubjay_store::ledger::blob::{from_hex, hex};
use serde::{Deserialize, Serialize};

use super::Recorder;
use crate::reply::{Failure, Reply, reply};

#[derive(Deserialize, JsonSchema)]
pub(super) struct FileOpArgs {
    /// The session. Left out: this connection's own.
    session_id: Option<String>,
    /// The file: relative to the workspace, or absolute within it.
    path: String,
    /// What to do.
    action: FileAction,
    /// The whole new content, for create and edit.
    content: Option<String>,
    /// For edit, instead of content: passages to replace, one after the other.
    edits: Option<Vec<EditArgs>>,
    /// How content is written: utf-8 (the default) or base64.
    encoding: Option<Encoding>,
    /// The hash that the file must have now (BLAKE3, as this tool returns it); any other is a conflict.
    expected_hash: Option<String>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FileAction {
    Create,
    Edit,
    Delete,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
enum Encoding {
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

#[derive(Deserialize, JsonSchema)]
struct EditArgs {
    /// The passage exactly as it is in the file; it must occur exactly once.
    old_text: String,
    /// The new text.
    new_text: String,
    /// Replace every occurrence instead.
    #[serde(default)]
    replace_all: bool,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct FileReply {
    /// The session.
    session_id: String,
    /// The event's number on the timeline.
    event_id: i64,
    /// The path in the workspace.
    path: String,
    /// What was done.
    action: String,
    /// The hash of the content before (BLAKE3).
    before_hash: Option<String>,
    /// The hash of the content now.
    after_hash: Option<String>,
    /// How many bytes the file has now.
    size: i64,
    /// How many lines were added.
    added: i64,
    /// How many lines were removed.
    removed: i64,
    /// Whether the content was the same already.
    unchanged: bool,
    /// Whether someone else had changed the file since it was last recorded; that is recorded too.
    changed_by_others: bool,
}

impl FileReply {
    pub(super) fn new(made: &AppliedChange, action: &str) -> Self {
        let revision = made.revision.as_ref();
        Self {
            session_id: made.session_id.clone(),
            event_id: made.event_id,
            path: made.path.clone(),
            action: action.to_owned(),
            before_hash: revision.map_or(made.hash, |r| r.before).as_ref().map(hex),
            after_hash: made.hash.as_ref().map(hex),
            size: made.size,
            added: revision.map_or(0, |r| r.added),
            removed: revision.map_or(0, |r| r.removed),
            unchanged: revision.is_none(),
            changed_by_others: made.observed,
        }
    }

    pub(super) fn text(&self) -> String {
        let done = match (self.unchanged, self.action.as_str()) {
            (true, _) => format!("{} was the same already; nothing was written.", self.path),
            (false, "create") => format!("Created {} ({}).", self.path, counted(self.added, "line")),
            (false, "delete") => format!("Deleted {} ({}).", self.path, counted(self.removed, "line")),
            (false, _) => format!("Edited {} (+{} -{}).", self.path, self.added, self.removed),
        };
        let others = match self.changed_by_others {
            true => " Someone else had changed it since it was last seen; their version is recorded.",
            false => "",
        };
        format!("{done}{others} Event {}.", self.event_id)
    }
}

#[tool_router(router = file_op_tools, vis = "pub(super)")]
impl Recorder {
    /// Create, edit or delete a file. The content before and after is recorded first, then the file is changed.
    #[tool(title = "Change a file", output_schema = crate::reply::schema::<FileReply>(), annotations(destructive_hint = true, open_world_hint = false))]
    async fn file_op(
        &self,
        Parameters(args): Parameters<FileOpArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let caller = self.shared.caller(&context);
        let expected =
            args.expected_hash.as_deref().map(|text| from_hex(text).ok_or_else(bad_hash)).transpose()?;
        let body = |args: FileOpArgs| body(args.content, args.edits, args.encoding);
        let (session, path) = (args.session_id.clone(), args.path.clone());
        let action = match args.action {
            FileAction::Create => Action::Create(body(args)?),
            FileAction::Edit => Action::Edit(body(args)?),
            FileAction::Delete => Action::Delete,
        };
        let name = action.name();
        let change = Change { session, path, action, expected, mode: None, rewinds_to: None };
        let made = self.shared.files().await?.change(&caller, change).await?;
        let answer = FileReply::new(&made, name);
        self.shared.tell_news();
        reply(answer.text(), &answer)
    }
}

fn bad_hash() -> Failure {
    Failure::new(
        "INVALID_HASH",
        "expected_hash is not 64 hexadecimal digits",
        "Give the after_hash that file_op returned, or leave it out.",
    )
}

fn body(
    content: Option<String>,
    edits: Option<Vec<EditArgs>>,
    encoding: Option<Encoding>,
) -> Result<NewContent, Failure> {
    match (content, edits) {
        (Some(content), None) => match encoding {
            Some(Encoding::Base64) => STANDARD.decode(content.trim()).map(NewContent::Bytes).map_err(|e| {
                Failure::new("INVALID_CONTENT", format!("content is not base64: {e}"), "Encode it again.")
            }),
            _ => Ok(NewContent::Text(content)),
        },
        (None, Some(edits)) => Ok(NewContent::Edits(
            edits
                .into_iter()
                .map(|e| TextEdit { old_text: e.old_text, new_text: e.new_text, replace_all: e.replace_all })
                .collect(),
        )),
        (None, None) => Err(Failure::new(
            "CONTENT_REQUIRED",
            "create and edit need content",
            "Give the whole content, or for edit a list of edits.",
        )),
        (Some(_), Some(_)) => {
            Err(Failure::new("INVALID_CONTENT", "both content and edits are given", "Give one of them."))
        }
    }
}
