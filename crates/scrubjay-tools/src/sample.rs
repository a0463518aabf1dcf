//! The sample server: a small MCP server with one tool per kind of traffic worth recording.
//!
//! `scrubjay demo` drives it and tests use it as a well-behaved peer: quick, slow, failing, large and
//! progress-reporting calls, a resource, a resource template and a prompt. It keeps no state and
//! answers the same call with the same bytes every time, so it reads neither clock nor disk.

mod prose;

use std::time::Duration;

use rmcp::handler::server::tool::IntoCallToolResult;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, GetPromptResult, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, PaginatedRequestParams, ProgressNotificationParam,
    PromptMessage, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate, Role, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{
    ErrorData, Json, RoleServer, ServerHandler, prompt, prompt_handler, prompt_router, tool, tool_handler,
    tool_router,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::serve::{ServeError, serve_until_eof};

// Limits, so that a mistaken or hostile call cannot occupy the server or its client for long.
const SLOW_MS_MAX: u32 = 60_000;
/// 12 MiB: with its JSON around it, still below the 16 MiB that a message may have by default.
const LARGE_BYTES_MAX: u32 = 12 * 1024 * 1024;
const COUNT_TO_MAX: u32 = 10_000;
const COUNT_DELAY_MS_MAX: u32 = 10_000;
const NOTE_NAME_CHARS_MAX: usize = 64;

const README_URI: &str = "sample://readme";
const README: &str = include_str!("sample/readme.md");
const NOTE_URI_PREFIX: &str = "sample://note/";
const NOTE_URI_TEMPLATE: &str = "sample://note/{name}";
const MARKDOWN: &str = "text/markdown";

/// Serves the sample server to one client until `reader` ends.
///
/// # Errors
///
/// The conversation cannot be opened, or its task panics. A client that hangs up is not an error.
pub async fn serve_sample<R, W>(reader: R, writer: W) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    serve_until_eof(SampleServer, reader, writer).await
}

/// The sample MCP server.
#[derive(Debug, Clone, Copy, Default)]
struct SampleServer;

#[derive(Debug, Deserialize, JsonSchema)]
struct EchoArgs {
    /// The text to send back.
    text: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct SlowArgs {
    /// How long to wait, in milliseconds.
    #[schemars(range(max = SLOW_MS_MAX))]
    ms: u32,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Waited {
    /// How long the call waited, in milliseconds.
    waited_ms: u32,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct FailArgs {
    /// The message of the error.
    message: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct LargeArgs {
    /// The size of the text, in bytes.
    #[schemars(range(max = LARGE_BYTES_MAX))]
    bytes: u32,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct CountArgs {
    /// The number to count to.
    #[schemars(range(max = COUNT_TO_MAX))]
    to: u32,
    /// The pause before each number, in milliseconds.
    #[serde(default)]
    #[schemars(range(max = COUNT_DELAY_MS_MAX))]
    delay_ms: u32,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Counted {
    /// The last number reached.
    counted_to: u32,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct SummarizeArgs {
    /// What to summarize.
    topic: String,
}

// An argument out of range is answered as a tool error, not a protocol error: the model that chose the
// argument can read the former and correct itself.
#[tool_router]
impl SampleServer {
    /// Send the given text back unchanged.
    #[tool(title = "Echo", annotations(read_only_hint = true, open_world_hint = false))]
    fn echo(&self, Parameters(args): Parameters<EchoArgs>) -> String {
        args.text
    }

    /// Return the id of the server's process. Two clients that get the same id share one server.
    #[tool(title = "Process", annotations(read_only_hint = true, open_world_hint = false))]
    fn process(&self) -> String {
        format!("process {}", std::process::id())
    }

    /// Wait for the given time, then return how long it was. Can be cancelled.
    #[tool(title = "Slow answer", annotations(read_only_hint = true, open_world_hint = false))]
    async fn slow(
        &self,
        Parameters(args): Parameters<SlowArgs>,
        context: RequestContext<RoleServer>,
    ) -> Result<Json<Waited>, SampleError> {
        check_at_most("ms", args.ms, SLOW_MS_MAX)?;
        pause(args.ms, &context).await?;
        Ok(Json(Waited { waited_ms: args.ms }))
    }

    /// Fail with a tool error that carries the given message.
    #[tool(title = "Failing tool", annotations(read_only_hint = true, open_world_hint = false))]
    fn fail(&self, Parameters(args): Parameters<FailArgs>) -> CallToolResult {
        let message = args.message.unwrap_or_else(|| "this tool always fails".to_owned());
        CallToolResult::error(vec![ContentBlock::text(message)])
    }

    /// Return a text of exactly the given size.
    #[tool(title = "Large answer", annotations(read_only_hint = true, open_world_hint = false))]
    fn large(&self, Parameters(args): Parameters<LargeArgs>) -> Result<String, SampleError> {
        check_at_most("bytes", args.bytes, LARGE_BYTES_MAX)?;
        Ok(prose::write(args.bytes as usize))
    }

    /// Count from 1 to the given number, reporting progress at each step to a caller that asked for it.
    #[tool(title = "Count", annotations(read_only_hint = true, open_world_hint = false))]
    async fn count(
        &self,
        Parameters(args): Parameters<CountArgs>,
        context: RequestContext<RoleServer>,
    ) -> Result<Json<Counted>, SampleError> {
        check_at_most("to", args.to, COUNT_TO_MAX)?;
        check_at_most("delay_ms", args.delay_ms, COUNT_DELAY_MS_MAX)?;
        for step in 1..=args.to {
            pause(args.delay_ms, &context).await?;
            report_progress(step, args.to, &context).await?;
        }
        Ok(Json(Counted { counted_to: args.to }))
    }
}

/// Why a tool of the sample server failed.
#[derive(Debug, Error)]
enum SampleError {
    /// An argument is out of its range.
    #[error("`{name}` is {value}; it may be {max} at most")]
    TooLarge { name: &'static str, value: u32, max: u32 },
    /// The client cancelled the request.
    #[error("cancelled")]
    Cancelled,
    /// A progress notification could not be sent.
    #[error("progress not sent: {0}")]
    Progress(#[from] rmcp::ServiceError),
}

impl IntoCallToolResult for SampleError {
    fn into_call_tool_result(self) -> Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::error(vec![ContentBlock::text(self.to_string())]).into())
    }
}

fn check_at_most(name: &'static str, value: u32, max: u32) -> Result<(), SampleError> {
    if value <= max { Ok(()) } else { Err(SampleError::TooLarge { name, value, max }) }
}

/// Waits unless the request is cancelled first.
async fn pause(delay_ms: u32, context: &RequestContext<RoleServer>) -> Result<(), SampleError> {
    // A timer takes a millisecond even for a delay of zero, which a count of thousands would feel.
    if delay_ms == 0 && !context.ct.is_cancelled() {
        return Ok(());
    }
    tokio::select! {
        () = context.ct.cancelled() => Err(SampleError::Cancelled),
        () = tokio::time::sleep(Duration::from_millis(delay_ms.into())) => Ok(()),
    }
}

async fn report_progress(
    step: u32,
    total: u32,
    context: &RequestContext<RoleServer>,
) -> Result<(), SampleError> {
    let Some(token) = context.meta.get_progress_token() else { return Ok(()) };
    let progress = ProgressNotificationParam::new(token, step.into())
        .with_total(total.into())
        .with_message(format!("{step} of {total}"));
    Ok(context.peer.notify_progress(progress).await?)
}

#[prompt_router]
impl SampleServer {
    /// Ask for a summary of a topic.
    #[prompt(title = "Summarize a topic")]
    fn summarize(&self, Parameters(args): Parameters<SummarizeArgs>) -> GetPromptResult {
        let text = format!("Summarize {} in three sentences a newcomer can follow.", args.topic);
        GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)])
            .with_description(format!("A request to summarize {}", args.topic))
    }
}

#[prompt_handler]
#[tool_handler(router = crate::schema::portable(Self::tool_router(), crate::schema::ArgumentChecks::Rmcp, None))]
impl ServerHandler for SampleServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts().build();
        ServerConfig::new(capabilities)
            .with_server_info(
                Implementation::new("scrubjay-sample", env!("CARGO_PKG_VERSION"))
                    .with_title("Scrubjay sample server"),
            )
            .with_instructions("Harmless tools to try a recorder with. Read sample://readme first.")
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let readme = Resource::new(README_URI, "readme")
            .with_title("Read me")
            .with_description("What the sample server offers.")
            .with_mime_type(MARKDOWN)
            .with_size(README.len() as u64);
        Ok(ListResourcesResult::with_all_items(vec![readme]))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let note = ResourceTemplate::new(NOTE_URI_TEMPLATE, "note")
            .with_title("Note")
            .with_description("A short note, written on demand for any name of letters, digits, - and _.")
            .with_mime_type(MARKDOWN);
        Ok(ListResourceTemplatesResult::with_all_items(vec![note]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let text = read_text(&request.uri).ok_or_else(|| {
            ErrorData::resource_not_found(format!("there is no resource {}", request.uri), None)
        })?;
        let contents = ResourceContents::text(text, request.uri).with_mime_type(MARKDOWN);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }
}

/// Returns the text behind a resource URI, if it names a resource.
fn read_text(uri: &str) -> Option<String> {
    if uri == README_URI {
        return Some(README.to_owned());
    }
    let name = uri.strip_prefix(NOTE_URI_PREFIX)?;
    let is_name = (1..=NOTE_NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    is_name.then(|| format!("# {name}\n\nA note about {name}, from the sample server.\n"))
}
