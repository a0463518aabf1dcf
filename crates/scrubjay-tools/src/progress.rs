//! The `progress` toolset: `log_progress`, `get_context`, `search_logs`.
//!
//! One file for each tool. A tool is a function from a JSON object to a text and data, so that the command line runs
//! the same code as agents. Arguments are checked by hand, because the specification words their problems.

mod arguments;
mod budget;
mod context;
mod digest;
mod log;
mod search;
mod snippet;
mod summary;

use std::sync::Arc;

use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::tool::IntoCallToolResult;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, ErrorCode, Implementation, JsonObject,
    ServerCapabilities, ServerConfig,
};
use rmcp::{ErrorData, ServerHandler, tool_handler};
use scrubjay_store::ledger::LedgerError;
use scrubjay_store::ledger::session::SessionError;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

pub use context::get_context;
pub use log::log_progress;
pub use search::search_logs;
pub(crate) use summary::InFlightSummaries;

use crate::arguments::{ArgumentProblem, describe, refusal};
use crate::reply::Failure;
use crate::schema::{ArgumentChecks, portable};
use crate::serve::{ServeError, serve_until_eof};
use crate::shared::Shared;

/// Serves the toolset to one client until `reader` ends.
///
/// # Errors
///
/// The conversation cannot be opened, or its task panics. A client that hangs up is not an error.
pub async fn serve_progress<R, W>(shared: Arc<Shared>, reader: R, writer: W) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    serve_until_eof(Progress::new(shared), reader, writer).await
}

/// The toolset as rmcp serves it to one client.
#[derive(Clone)]
struct Progress {
    shared: Arc<Shared>,
    tool_router: ToolRouter<Self>,
}

impl Progress {
    fn new(shared: Arc<Shared>) -> Self {
        let tool_router = Self::log_tools() + Self::context_tools() + Self::search_tools();
        let tool_router = portable(tool_router, ArgumentChecks::Tool, Some(&shared.setup().redactor));
        Self { shared, tool_router }
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Progress {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(
                Implementation::new("scrubjay-progress", env!("CARGO_PKG_VERSION"))
                    .with_title("Scrubjay progress"),
            )
            .with_instructions(
                "Log each finished piece of work with log_progress. Before you begin, search earlier work with \
                 search_logs, and read entries with get_context. projectId is usually the repository's name.",
            )
    }
}

/// The answer of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The text for people.
    pub text: String,
    /// The data for programs.
    pub data: Value,
}

impl IntoCallToolResult for Answer {
    fn into_call_tool_result(self) -> Result<CallToolResponse, ErrorData> {
        let mut result = CallToolResult::structured(self.data);
        result.content = vec![ContentBlock::text(self.text)];
        Ok(result.into())
    }
}

/// Why a tool failed.
#[derive(Debug, thiserror::Error)]
pub enum ProgressFailure {
    /// Arguments are wrong.
    #[error("{}", describe(.0))]
    Problems(Vec<ArgumentProblem>),
    /// A project, session or entry does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl From<SessionError> for ProgressFailure {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Ledger(error) => Self::Ledger(error),
            other => Self::Problems(vec![ArgumentProblem::new("", other.to_string())]),
        }
    }
}

impl ProgressFailure {
    /// Returns what to do next.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Problems(_) => "Nothing was done. Correct the arguments and call again.",
            Self::NotFound(_) => "Check projectId and id; search_logs lists the entries of a project.",
            Self::Ledger(error) => error.hint(),
        }
    }
}

impl IntoCallToolResult for ProgressFailure {
    /// The specification requires JSON-RPC errors instead of tool errors.
    fn into_call_tool_result(self) -> Result<CallToolResponse, ErrorData> {
        let (message, hint) = (self.to_string(), self.hint());
        let (code, failure) = match self {
            Self::Problems(problems) => {
                // The specification wants errors logged with their category.
                tracing::warn!(category = "invalid params", "{message}");
                (ErrorCode::INVALID_PARAMS, refusal(&problems))
            }
            Self::NotFound(_) => {
                tracing::warn!(category = "not found", "{message}");
                (ErrorCode::INVALID_PARAMS, Failure::new("NOT_FOUND", message, hint))
            }
            Self::Ledger(error) => {
                tracing::error!(category = "internal error", error = ?error, "{message}");
                (ErrorCode::INTERNAL_ERROR, Failure::new("STORAGE", message, hint))
            }
        };
        Err(failure.into_error(code))
    }
}

/// Converts a schema written as a literal to the type of rmcp.
fn schema(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        _ => unreachable!("a schema is an object"),
    }
}
