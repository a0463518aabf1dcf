//! The `records` toolset: design reasoning that outlives the conversation it came from.
//!
//! One file for each group of tools. What records are, and how they may change, is in `scrubjay-store`; here are the
//! arguments and the answers.

mod activation;
mod activity;
mod budget;
mod failure;
mod history;
mod lifecycle;
mod mutation;
mod orientation;
mod project;
mod sync;
mod time;
mod transition;
mod view;

use std::sync::Arc;

use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::model::{Implementation, ServerCapabilities, ServerConfig};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, tool_handler};
use scrubjay_store::ledger::project::Project;
use scrubjay_store::ledger::records::collection::{self, RecordCollection};
use scrubjay_store::ledger::records::{self, RecordError, Scope};
use scrubjay_store::ledger::session::Caller;
use scrubjay_store::ledger::{CommitDurability, Read, Write};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::reply::Failure;
use crate::schema::{ArgumentChecks, portable};
use crate::serve::{ServeError, serve_until_eof};
use crate::shared::Shared;

/// After how many writes to its project since its last sync a session is stale, by default.
pub const STALE_AFTER_TICKS: i64 = 20;

/// Serves the toolset to one client until `reader` ends.
///
/// # Errors
///
/// The conversation cannot be opened, or its task panics. A client that hangs up is not an error.
pub async fn serve_records<R, W>(shared: Arc<Shared>, reader: R, writer: W) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    serve_until_eof(Records::new(shared), reader, writer).await
}

/// The toolset as rmcp serves it to one client.
#[derive(Clone)]
struct Records {
    shared: Arc<Shared>,
    tool_router: ToolRouter<Self>,
}

/// The scope of a tool that only reads.
struct ReadScope {
    read: Read,
    caller: Caller,
    project: Project,
    collection: RecordCollection,
}

impl Records {
    fn new(shared: Arc<Shared>) -> Self {
        let tool_router = Self::project_tools()
            + Self::orientation_tools()
            + Self::activation_tools()
            + Self::sync_tools()
            + Self::mutation_tools()
            + Self::transition_tools()
            + Self::lifecycle_tools()
            + Self::history_tools()
            + Self::activity_tools();
        let tool_router = portable(tool_router, ArgumentChecks::Schema, Some(&shared.setup().redactor));
        Self { shared, tool_router }
    }

    /// Returns the scope of a read: the named project, or the caller's own, which is created if needed.
    async fn read_scope(
        &self,
        context: &RequestContext<RoleServer>,
        named: Option<&str>,
    ) -> Result<ReadScope, Failure> {
        let caller = self.shared.caller(context);
        let ledger = self.shared.ledger().await?;
        let mut read = ledger.read().await?;
        let mut found = records::project(&mut read, &caller, named).await?;
        if found.is_none() {
            // A new project's overview is empty, not an error. The read ends first: it would not see the new project.
            drop(read);
            // `Process`: an empty project that is lost with the power is created again by the next read.
            let mut write = ledger.write(CommitDurability::Process).await?;
            scrubjay_store::ledger::project::ensure(&mut write, &caller.project).await?;
            write.commit().await?;
            read = ledger.read().await?;
            found = records::project(&mut read, &caller, named).await?;
        }
        let project = found.ok_or_else(|| RecordError::NoProject(caller.project.clone()))?;
        let collection = collection::open(&mut read, &project.id).await?;
        Ok(ReadScope { read, caller, project, collection })
    }

    /// Begins a mutation in the named session, or in the caller's own of that project.
    async fn write_scope(
        &self,
        context: &RequestContext<RoleServer>,
        durability: CommitDurability,
        project: Option<&str>,
        session: Option<&str>,
    ) -> Result<(Write, Scope), Failure> {
        let caller = self.shared.caller(context);
        let mut write = self.shared.ledger().await?.write(durability).await?;
        let scope = records::enter(&mut write, &caller, project, session).await?;
        Ok((write, scope))
    }

    /// Tells whether a session that last synced at one tick is stale at another.
    fn is_stale(&self, tick: i64, seen: i64) -> bool {
        tick - seen > self.shared.setup().stale_after_ticks
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Records {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(
                Implementation::new("scrubjay-records", env!("CARGO_PKG_VERSION"))
                    .with_title("Scrubjay records"),
            )
            .with_instructions(
                "Records keep design reasoning beyond this chat. Begin with get_project_overview. Activate a record \
                 before you reason with it or change it. Create records for questions, decisions and \
                 conclusions, with bodies that can be understood without this chat; change their state with \
                 transition. Call save_session at milestones, sync_session when you resume work, close_session at \
                 the end. project_id and session_id are optional everywhere.",
            )
    }
}
