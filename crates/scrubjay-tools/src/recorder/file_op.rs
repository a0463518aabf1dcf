//! `file_op`: changes files; the change is recorded first, then applied.

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
    /// For edit, instead of content: passages to replace, in this order.
    edits: Option<Vec<EditArgs>>,
    /// How content is written: utf-8 (the default) or base64.
    encoding: Option<Encoding>,
    /// The hash that the file must have now: after_hash of your last change (BLAKE3). If it has another, nothing is
    /// written, and the call fails with CONFLICT.
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
    /// Replace every occurrence; old_text may then occur several times.
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
    /// Whether the file already had this content, so that nothing was written.
    unchanged: bool,
    /// Whether someone else had changed the file since it was last recorded. Their version is recorded too.
    changed_by_others: bool,
}

impl FileReply {
    pub(super) fn new(applied: &AppliedChange, action: &str) -> Self {
        let revision = applied.revision.as_ref();
        Self {
            session_id: applied.session_id.clone(),
            event_id: applied.event_id,
            path: applied.path.clone(),
            action: action.to_owned(),
            // Without a revision nothing changed, so the content before is the content now.
            before_hash: revision.map_or(applied.hash, |r| r.before).as_ref().map(hex),
            after_hash: applied.hash.as_ref().map(hex),
            size: applied.size,
            added: revision.map_or(0, |r| r.added),
            removed: revision.map_or(0, |r| r.removed),
            unchanged: revision.is_none(),
            changed_by_others: applied.observed,
        }
    }

    pub(super) fn text(&self) -> String {
        let done = match (self.unchanged, self.action.as_str()) {
            (true, _) => format!("{} already has this content; nothing was written.", self.path),
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
    /// Create, edit or delete a file in the workspace. The content before and after is recorded first, so any revision can
    /// be read or restored later. Returns the new content's hash.
    #[tool(title = "Change a file", output_schema = crate::reply::schema::<FileReply>(), annotations(destructive_hint = true, open_world_hint = false))]
    async fn file_op(
        &self,
        Parameters(args): Parameters<FileOpArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let caller = self.shared.caller(&context);
        let expected =
            args.expected_hash.as_deref().map(|text| from_hex(text).ok_or_else(bad_hash)).transpose()?;
        let content = |args: FileOpArgs| new_content(args.content, args.edits, args.encoding);
        let (session, path) = (args.session_id.clone(), args.path.clone());
        let action = match args.action {
            FileAction::Create => Action::Create(content(args)?),
            FileAction::Edit => Action::Edit(content(args)?),
            FileAction::Delete => Action::Delete,
        };
        let name = action.name();
        // No mode: an edited file keeps its permissions, and a new one gets the default.
        let change = Change { session, path, action, expected, mode: None, rewinds_to: None };
        let applied = self.shared.files().await?.change(&caller, change).await?;
        let answer = FileReply::new(&applied, name);
        self.shared.notify_written();
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

fn new_content(
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
            "Give the whole content; for edit, content or edits.",
        )),
        (Some(_), Some(_)) => {
            Err(Failure::new("INVALID_CONTENT", "both content and edits are given", "Give one of them."))
        }
    }
}
