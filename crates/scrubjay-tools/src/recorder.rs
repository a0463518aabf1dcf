//! The `recorder` toolset: sessions, plans, file changes and notes. Changes are recorded first, then made.
//!
//! One file for each group of tools. The views of what was recorded are resources, and also tools for hosts without
//! resources. `scrubjay-store` does the recording.

mod audit;
mod file_op;
mod limits;
mod narrative;
mod plan;
mod reported;
mod resources;
mod session;
mod views;

use std::sync::Arc;

use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::model::{
    Implementation, ListResourceTemplatesResult, ListResourcesResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig,
    SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler, tool_handler};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::schema::{ArgumentChecks, portable};
use crate::serve::{ServeError, serve_until_eof};
use crate::shared::Shared;

/// Serves the toolset to one client until `reader` ends.
///
/// # Errors
///
/// The conversation cannot be opened, or its task panics. A client that hangs up is not an error.
pub async fn serve_recorder<R, W>(shared: Arc<Shared>, reader: R, writer: W) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    serve_until_eof(Recorder::new(shared), reader, writer).await
}

/// The toolset as rmcp serves it to one client.
#[derive(Clone)]
struct Recorder {
    shared: Arc<Shared>,
    tool_router: ToolRouter<Self>,
    subscriptions: Arc<resources::Subscriptions>,
}

impl Recorder {
    fn new(shared: Arc<Shared>) -> Self {
        let tool_router = Self::session_tools()
            + Self::plan_tools()
            + Self::file_op_tools()
            + Self::reported_tools()
            + Self::audit_tools()
            + Self::view_tools();
        let tool_router = portable(tool_router, ArgumentChecks::Schema, Some(&shared.setup().redactor));
        Self { shared, tool_router, subscriptions: Arc::default() }
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Recorder {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(
                Implementation::new("scrubjay-recorder", env!("CARGO_PKG_VERSION"))
                    .with_title("Scrubjay recorder"),
            )
            .with_instructions(
                "Change files through file_op: it records the old and the new content before it writes. Submit your \
                 plan with record_plan and mark its steps with record_plan_step; record decisions with audit_event. \
                 session_id is optional everywhere. To see what was done, read \
                 scrubjay://sessions/{id}/timeline, story and evolution, or call get_timeline, get_story and \
                 get_evolution; evolution/{path}?revision=N is the content of a file at a revision.",
            )
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        // A client that has seen the list is notified when it changes, without a subscription. One that neither lists
        // nor subscribes causes no queries.
        self.notify_subscriber(&context);
        resources::list(&self.shared, request.and_then(|r| r.cursor)).await
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        resources::read(&self.shared, &request.uri).await
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscribe_to(request.uri, &context).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscriptions.forget(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        // All of it: `notify_while_subscribed` leaves out what is no resource of ours.
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.notify_while_subscribed(context).await;
        Ok(())
    }
}
