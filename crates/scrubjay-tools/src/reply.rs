//! Answers of tools: data with a text for people, or a failure with a hint what to do next.

use std::sync::Arc;

use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, JsonObject};
use scrubjay_store::files::FileError;
use scrubjay_store::ledger::LedgerError;
use scrubjay_store::ledger::session::SessionError;
use scrubjay_store::views::ViewError;
use serde::Serialize;
use serde_json::{Value, json};

/// What a tool returns.
pub(crate) type Reply = Result<CallToolResult, Failure>;

/// Answers with data and a text.
pub(crate) fn reply(text: impl Into<String>, data: &impl Serialize) -> Reply {
    let data = serde_json::to_value(data).map_err(|e| {
        Failure::new(
            "INTERNAL",
            format!("the answer cannot be written: {e}"),
            "This is a bug in Scrubjay: please report it.",
        )
    })?;
    let mut result = CallToolResult::structured(data);
    // Instead of rmcp's, which repeats the data as JSON: hosts without structured content show this to the model.
    result.content = vec![ContentBlock::text(text.into())];
    Ok(result)
}

/// A failure of a tool.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// A stable name for programs.
    pub(crate) code: &'static str,
    /// What happened.
    pub(crate) message: String,
    /// Further facts.
    pub(crate) details: Option<Value>,
    /// What to do next.
    pub(crate) hint: String,
}

impl Failure {
    pub(crate) fn new(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None, hint: hint.into() }
    }

    /// Adds further facts.
    pub(crate) fn with(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Converts it to the `error` object, which is the same for every tool. The specification of the records calls the
    /// hint `recovery_hint`, so it has both names.
    pub(crate) fn to_value(&self) -> Value {
        let mut error = json!({
            "code": self.code, "message": self.message, "hint": self.hint, "recovery_hint": self.hint,
        });
        if let Some(details) = &self.details {
            error["details"] = details.clone();
        }
        error
    }

    /// Converts it to a JSON-RPC error, with its own code and hint as data.
    pub(crate) fn into_error(self, code: rmcp::model::ErrorCode) -> rmcp::ErrorData {
        let mut data = json!({ "code": self.code, "hint": self.hint, "recovery_hint": self.hint });
        if let (Some(Value::Object(details)), Some(data)) = (self.details, data.as_object_mut()) {
            data.extend(details);
        }
        rmcp::ErrorData::new(code, self.message, Some(data))
    }
}

impl rmcp::handler::server::tool::IntoCallToolResult for Failure {
    fn into_call_tool_result(self) -> Result<CallToolResponse, rmcp::ErrorData> {
        let mut result = CallToolResult::structured_error(json!({ "error": self.to_value() }));
        let text = format!("{}: {}. {}", self.code, self.message.trim_end_matches('.'), self.hint);
        result.content = vec![ContentBlock::text(text)];
        Ok(result.into())
    }
}

impl From<LedgerError> for Failure {
    fn from(error: LedgerError) -> Self {
        // Logged here, because the ledger's failures of all tools come this way.
        tracing::error!(error = %error, "the ledger failed");
        Self::new("STORAGE", error.to_string(), error.hint())
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        let (message, hint) = (error.to_string(), error.hint().unwrap_or("Nothing was changed."));
        match error {
            FileError::Refused { code, event_id, found, .. } => {
                // A refusal that is not in the list yet still has a code.
                let code =
                    REFUSALS.iter().find(|(name, _)| *name == code).map_or("REFUSED", |(_, code)| code);
                let found = found.as_ref().map(scrubjay_store::ledger::blob::hex);
                Self::new(code, message, hint).with(json!({ "event_id": event_id, "current_hash": found }))
            }
            FileError::Session(error) => error.into(),
            FileError::Ledger(error) => error.into(),
            FileError::Busy(_) => Self::new("BUSY", message, hint),
            FileError::Workspace(error) => {
                let cause = std::error::Error::source(&error).map(|e| format!(": {e}")).unwrap_or_default();
                Self::new("FILE_SYSTEM", format!("{message}{cause}"), hint)
            }
            FileError::Lock { .. } => Self::new("STORAGE", message, hint),
            FileError::Unsettled { .. } | FileError::Interrupted => Self::new("INTERRUPTED", message, hint),
        }
    }
}

/// The names of refusals in the ledger, and their codes in answers.
const REFUSALS: [(&str, &str); 14] = [
    ("bad_path", "BAD_PATH"),
    ("outside_workspace", "OUTSIDE_WORKSPACE"),
    ("protected_path", "PROTECTED_PATH"),
    ("symlink", "SYMLINK"),
    ("not_a_regular_file", "NOT_A_REGULAR_FILE"),
    ("not_a_directory", "NOT_A_DIRECTORY"),
    ("too_large", "TOO_LARGE"),
    ("exists", "FILE_EXISTS"),
    ("missing", "FILE_NOT_FOUND"),
    ("changed", "CONFLICT"),
    ("busy", "BUSY"),
    ("other_owner", "OTHER_OWNER"),
    ("edit_failed", "EDIT_FAILED"),
    ("secret_path", "SECRET_PATH"),
];

impl From<ViewError> for Failure {
    fn from(error: ViewError) -> Self {
        let code = match error {
            ViewError::Ledger(error) => return error.into(),
            ViewError::NoSession(_) | ViewError::Ambiguous(..) => "SESSION_NOT_FOUND",
            ViewError::NoFile(..) => "FILE_NOT_FOUND",
            ViewError::NoRevision(..) => "REVISION_NOT_FOUND",
            ViewError::NoContent { .. } => "NO_CONTENT",
        };
        Self::new(code, error.to_string(), error.hint())
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let message = error.to_string();
        match error {
            SessionError::NotFound(_) => Self::new(
                "SESSION_NOT_FOUND",
                message,
                "Leave session_id out to use this connection's own session, or start one with record_session_start.",
            ),
            SessionError::Ended(id) => Self::new(
                "SESSION_NOT_FOUND",
                message,
                "Leave session_id out to work in a session of your own, or resume this one with record_session_start.",
            )
            .with(json!({ "session_id": id })),
            SessionError::BadId => {
                Self::new("INVALID_SESSION_ID", message, "Choose another id, or leave it out.")
            }
            SessionError::OtherProject(..) => Self::new(
                "SESSION_IN_OTHER_PROJECT",
                message,
                "Choose another id, or serve with --project of that one.",
            ),
            SessionError::Ledger(error) => error.into(),
        }
    }
}

/// Returns the schema of an answer: the data, or a failure, which has the same shape from every tool.
///
/// Some hosts validate failures against the schema, too, so it must allow them. Its root stays an object, as the protocol
/// requires.
pub(crate) fn schema<T: schemars::JsonSchema + 'static>() -> Arc<JsonObject> {
    let mut schema = JsonObject::clone(&rmcp::handler::server::tool::schema_for_type::<T>());
    let required = schema.remove("required").unwrap_or_else(|| json!([]));
    let text = json!({ "type": "string" });
    let failure = json!({
        "description": "Why the call failed. If present, the other members are absent.",
        "type": "object",
        "properties": { "code": text, "message": text, "hint": text, "recovery_hint": text, "details": {} },
        "required": ["code", "message", "hint", "recovery_hint"],
    });
    schema.insert("anyOf".to_owned(), json!([{ "required": required }, { "required": ["error"] }]));
    if let Some(properties) = schema.entry("properties").or_insert_with(|| json!({})).as_object_mut() {
        properties.insert("error".to_owned(), failure);
    }
    Arc::new(schema)
}
