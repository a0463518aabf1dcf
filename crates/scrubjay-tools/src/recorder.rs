//! The `recorder` toolset: sessions, plans, file changes and notes, recorded first and then done.
//!
//! One file for each group of tools; the views of what was recorded are resources, and tools for hosts
//! without resources. What is written where is the store's business.

mod audit;
mod file_op;
mod plan;
mod reported;
mod session;

use std::sync::Arc;

use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::model::{Implementation, ServerCapabilities, ServerConfig};
use rmcp::{ServerHandler, tool_handler};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::serve::{ServeError, serve_until_eof};
use crate::shared::Shared;

/// Serves the toolset to one client until `reader` ends.
///
/// # Errors
///
/// Fails when the conversation cannot be opened or its task dies; a client that hangs up is no error.
pub async fn serve_recorder<R, W>(shared: Arc<Shared>, reader: R, writer: W) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    serve_until_eof(Recorder::new(shared), reader, writer).await
}

/// The toolset.
#[derive(Clone)]
struct Recorder {
    shared: Arc<Shared>,
    tool_router: ToolRouter<Self>,
}

impl Recorder {
    fn new(shared: Arc<Shared>) -> Self {
        let tool_router = Self::session_tools()
            + Self::plan_tools()
            + Self::file_op_tools()
            + Self::reported_tools()
            + Self::audit_tools();
        Self { shared, tool_router }
    }

    /// Tells whoever follows a session that it has something new.
    fn tell_changed(&self, _session: &str) {}
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Recorder {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(
                Implementation::new("scrubjay-recorder", env!("CARGO_PKG_VERSION"))
                    .with_title("Scrubjay recorder"),
            )
            .with_instructions(
                "Change files through file_op: it records what was there and what you write, then writes it. \
                 Submit your plan with record_plan and mark steps with record_plan_step; tell decisions with \
                 audit_event. session_id may be left out everywhere.",
            )
    }
}
