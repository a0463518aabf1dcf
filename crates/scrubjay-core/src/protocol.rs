//! Facts of the protocols Scrubjay speaks, MCP and JSON-RPC: versions, method names, `_meta` keys and error codes.
//!
//! Only names and numbers that several files need; what a message means is in [`crate::envelope`], and what Scrubjay
//! does about it in the gateway.

/// Protocol versions. "Modern" is the era without sessions, "legacy" the one that opens with `initialize`.
pub mod version {
    /// The modern version.
    pub const MODERN: &str = "2026-07-28";
    /// The legacy version that is offered to a server.
    pub const LEGACY_NEWEST: &str = "2025-11-25";
    /// The legacy versions, newest first.
    pub const LEGACY: [&str; 4] = [LEGACY_NEWEST, "2025-06-18", "2025-03-26", "2024-11-05"];
    /// Every version a client may ask for, newest first.
    pub const SUPPORTED: [&str; 5] = [MODERN, LEGACY[0], LEGACY[1], LEGACY[2], LEGACY[3]];
}

/// Keys of `_meta`.
pub mod meta {
    /// The version of a modern request.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// The name and version of a modern request's client.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// What a modern request's client can do.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// The name and version of the server, in a modern result.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// The least severe log messages a modern request wants.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// The task a message belongs to.
    pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
    /// The `subscriptions/listen` request a notification belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// The token under which progress of a request is reported.
    pub(crate) const PROGRESS_TOKEN: &str = "progressToken";

    /// Scrubjay's own: who calls a toolset of this process. Only the gateway can set it.
    pub const CALLER: &str = "scrubjay/caller";
    /// Scrubjay's own: the backends that are missing from a list.
    pub const INCOMPLETE: &str = "scrubjay/incomplete";
    /// Scrubjay's own: which call a task in plain words became.
    pub const ROUTE: &str = "scrubjay/route";
}

/// The capability of modern peers to answer a call with a task.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Error codes of JSON-RPC and MCP, and Scrubjay's own.
pub mod code {
    /// Not JSON.
    pub const PARSE: i64 = -32700;
    /// Not a message.
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// Wrong parameters.
    pub const INVALID_PARAMS: i64 = -32602;
    /// A failure that is not the caller's.
    pub const INTERNAL: i64 = -32603;
    /// No such resource, for legacy clients. Modern ones get [`INVALID_PARAMS`].
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// An HTTP header contradicts the body.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client did not declare a capability the request needs.
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// A version that is not supported.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// A URL has to be visited first.
    pub(crate) const URL_ELICITATION_REQUIRED: i64 = -32042;

    /// Scrubjay's own: a rule blocked the message and gives no code.
    pub const BLOCKED: i64 = -32001;
    /// Scrubjay's own: no call was found for a task in plain words.
    pub const NO_ACTION: i64 = -32000;
    /// Scrubjay's own: a task in plain words came before the backends were ready.
    pub const NOT_INITIALIZED: i64 = -32001;
}

/// Names of requests and notifications.
#[expect(missing_docs, reason = "the values are the specification's own words")]
pub mod method {
    pub const INITIALIZE: &str = "initialize";
    pub const PING: &str = "ping";
    pub const SERVER_DISCOVER: &str = "server/discover";
    pub const NOTIFICATIONS_INITIALIZED: &str = "notifications/initialized";
    pub const NOTIFICATIONS_CANCELLED: &str = "notifications/cancelled";
    pub const NOTIFICATIONS_PROGRESS: &str = "notifications/progress";
    pub const NOTIFICATIONS_MESSAGE: &str = "notifications/message";
    pub const LOGGING_SET_LEVEL: &str = "logging/setLevel";
    pub const COMPLETION_COMPLETE: &str = "completion/complete";
    pub const TOOLS_LIST: &str = "tools/list";
    pub const TOOLS_CALL: &str = "tools/call";
    pub const NOTIFICATIONS_TOOLS_LIST_CHANGED: &str = "notifications/tools/list_changed";
    pub const PROMPTS_LIST: &str = "prompts/list";
    pub const PROMPTS_GET: &str = "prompts/get";
    pub const NOTIFICATIONS_PROMPTS_LIST_CHANGED: &str = "notifications/prompts/list_changed";
    pub const RESOURCES_LIST: &str = "resources/list";
    pub const RESOURCES_TEMPLATES_LIST: &str = "resources/templates/list";
    pub const RESOURCES_READ: &str = "resources/read";
    pub const RESOURCES_SUBSCRIBE: &str = "resources/subscribe";
    pub const RESOURCES_UNSUBSCRIBE: &str = "resources/unsubscribe";
    pub const NOTIFICATIONS_RESOURCES_LIST_CHANGED: &str = "notifications/resources/list_changed";
    pub const NOTIFICATIONS_RESOURCES_UPDATED: &str = "notifications/resources/updated";
    pub const SUBSCRIPTIONS_LISTEN: &str = "subscriptions/listen";
    pub const NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
    pub const SAMPLING_CREATE_MESSAGE: &str = "sampling/createMessage";
    pub const ELICITATION_CREATE: &str = "elicitation/create";
    pub const ROOTS_LIST: &str = "roots/list";
    pub const TASKS_LIST: &str = "tasks/list";
    pub const TASKS_GET: &str = "tasks/get";
    pub const TASKS_UPDATE: &str = "tasks/update";
    pub const TASKS_CANCEL: &str = "tasks/cancel";
}
