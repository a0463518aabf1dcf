//! Facts of the protocols Scrubjay speaks, MCP and JSON-RPC: versions, method names, `_meta` keys, HTTP headers and
//! error codes.
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
    /// The token under which progress of a request is reported; also a parameter of the notification that reports it.
    pub const PROGRESS_TOKEN: &str = "progressToken";

    /// Scrubjay's own: who calls a toolset of this process. Only the gateway can set it.
    pub const CALLER: &str = "scrubjay/caller";
    /// Scrubjay's own: the backends that are missing from a list.
    pub const INCOMPLETE: &str = "scrubjay/incomplete";
    /// Scrubjay's own: which call a task in plain words became.
    pub const ROUTE: &str = "scrubjay/route";
}

/// Names of HTTP headers, in lower case, and the key of a schema that asks for one.
pub mod header {
    /// The id of a legacy session.
    pub const SESSION_ID: &str = "mcp-session-id";
    /// The version of a message.
    pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
    /// Repeats the method of a modern message.
    pub const METHOD: &str = "mcp-method";
    /// Repeats the name, the URI or the task's id in a modern request.
    pub const NAME: &str = "mcp-name";
    /// Begins the name of each header that repeats an argument of a tool.
    pub const PARAM_PREFIX: &str = "mcp-param-";
    /// The event after which a broken stream is resumed; from the standard of server-sent events.
    pub const LAST_EVENT_ID: &str = "last-event-id";
    /// Not a header itself: the key of an argument's schema that asks for a header and names it.
    pub const SCHEMA_KEY: &str = "x-mcp-header";
}

/// Members of modern results, their values, and the parameters that answer them.
pub mod result {
    /// What a result is.
    pub const RESULT_TYPE: &str = "resultType";
    /// A type of result: the final one.
    pub const COMPLETE: &str = "complete";
    /// A type of result: the server asks for input.
    pub const INPUT_REQUIRED: &str = "input_required";
    /// The requests for input, by key.
    pub const INPUT_REQUESTS: &str = "inputRequests";
    /// A parameter of the next request: the answers, by the same keys.
    pub const INPUT_RESPONSES: &str = "inputResponses";
    /// What the server wants to see again in the next request.
    pub const REQUEST_STATE: &str = "requestState";
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

    /// Scrubjay's own: a rule blocked the message and gives no code. The error's `data.rule` tells it from
    /// [`NOT_INITIALIZED`], which has the same number.
    pub const BLOCKED: i64 = -32001;
    /// Scrubjay's own: no call was found for a task in plain words.
    pub const NO_ACTION: i64 = -32000;
    /// A task in plain words came before `initialize`: the number that `agentify/orchestrateTask` has for this in
    /// mcp-agentify, where the method is from. The error's `data.code` tells it from [`BLOCKED`].
    pub const NOT_INITIALIZED: i64 = -32001;
}

/// Names of requests and notifications.
#[expect(missing_docs, reason = "the values are the specification's own words")]
pub mod method {
    /// What the method of every notification begins with.
    pub const NOTIFICATIONS_PREFIX: &str = "notifications/";
    /// What the method of every notification about a task begins with.
    pub const NOTIFICATIONS_TASKS_PREFIX: &str = "notifications/tasks";
    /// What the method of every request about tasks begins with.
    pub const TASKS_PREFIX: &str = "tasks/";

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
