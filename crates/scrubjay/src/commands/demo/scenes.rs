//! The conversations of the demo, message by message.

/// A client of the legacy era: a handshake, then calls.
const LEGACY: [&str; 9] = [
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"scrubjay-demo","version":"1"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"what, where and when"}}}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"count","arguments":{"to":3,"delay_ms":20},"_meta":{"progressToken":"count-1"}}}"#,
    r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"slow","arguments":{"ms":250}}}"#,
    r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"fail","arguments":{"message":"the disk is on fire"}}}"#,
    r#"{"jsonrpc":"2.0","id":6,"method":"resources/read","params":{"uri":"sample://readme"}}"#,
    r#"{"jsonrpc":"2.0","id":7,"method":"prompts/get","params":{"name":"summarize","arguments":{"topic":"flight recorders"}}}"#,
];

/// A client of the modern era: every request carries its version.
const MODERN: [&str; 3] = [
    r#"{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"scrubjay-demo","version":"2"}}}}"#,
    r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"large","arguments":{"bytes":1048576},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#,
    r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"no_such_tool","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#,
];

/// The configuration of the scene with rules.
const RULES: &str = r#"recorder:
  rules:
    - name: not-the-diary
      match: { direction: client_to_server, tools: [echo], where: [{ path: $.arguments.text, matches: diary }] }
      action: block
      message: the diary is nobody's business
    - name: three-at-most
      match: { direction: client_to_server, tools: [count], where: [{ path: $.arguments.to, greater: 3 }] }
      action: modify
      set: { $.arguments.to: 3 }
"#;

/// A client whose messages rules judge: one passes, one is changed, one is blocked, one is refused.
const RULED: [&str; 6] = [
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"scrubjay-demo","version":"5"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"the weather"}}}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"count","arguments":{"to":9000}}}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo","arguments":{"text":"my diary"}}}"#,
    // A parser that ends a line at a carriage return reads three lines, one of which is a second call.
    "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"text\":[\r{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"text\":\"my diary\"}}}\r]}}}",
];

/// A client of the gateway. Two backends have tools of the same names, so those of one get a prefix.
const GATEWAY: [&str; 6] = [
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"scrubjay-demo","version":"3"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"to the toolset"}}}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"scrubjay__slow","arguments":{"ms":40}}}"#,
    r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"scrubjay__fail","arguments":{}}}"#,
];

/// A client that looks for tools in plain words.
const PLAIN_WORDS: [&str; 3] = [
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"scrubjay-demo","version":"5"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"find_tools","arguments":{"query":"count to three, but slowly"}}}"#,
];

/// An agent that makes a plan, changes files through the recorder, records decisions and reads an old revision.
const AGENT_WORK: [&str; 14] = [
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"scrubjay-demo","version":"4"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"record_session_start","arguments":{"id":"demo","title":"Count the jays","user_message":"How many jays came to the feeder?"}}}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"record_plan","arguments":{"steps":["Write down what was seen","Add it up"]}}}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"file_op","arguments":{"path":"feeder/monday.txt","action":"create","content":"08:10 two jays\n09:30 a sparrow\n"}}}"#,
    r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"file_op","arguments":{"path":"feeder/monday.txt","action":"edit","edits":[{"old_text":"09:30 a sparrow","new_text":"09:30 three jays"}]}}}"#,
    r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"file_op","arguments":{"path":"../diary.txt","action":"create","content":"not yours"}}}"#,
    r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"record_plan_step","arguments":{"status":"done"}}}"#,
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"create_record","arguments":{"parent_id":null,"type":"question","title":"Does a sparrow count?","summary":"Only jays count.","body":"The user asked for jays. A sparrow is not one."}}}"#,
    r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"audit_event","arguments":{"type":"decision","description":"Only jays count; the sparrow was a jay seen badly."}}}"#,
    r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"file_op","arguments":{"path":"total.txt","action":"create","content":"5 jays\n"}}}"#,
    r#"{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"log_progress","arguments":{"projectId":"default","title":"Counted the jays","content":"Five, from feeder/monday.txt; the sum is in total.txt.","tags":["jays"]}}}"#,
    r#"{"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"get_evolution","arguments":{"path":"feeder/monday.txt","revision":1}}}"#,
    r#"{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"record_session_end","arguments":{"summary":"Five jays came to the feeder on Monday."}}}"#,
];

/// An agent that searches the recordings of the other scenes for a failure, and analyses its own.
const SEARCH: [&str; 4] = [
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"scrubjay-demo","version":"5"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search_tapes","arguments":{"query":"error:true \"on fire\""}}}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"analyze_tape","arguments":{}}}"#,
];

/// One conversation of the demo.
pub(super) struct Scene {
    pub(super) title: &'static str,
    pub(super) name: &'static str,
    /// The command, in which `{workspace}` is replaced by the directory that the demo made for the agent.
    pub(super) command: &'static [&'static str],
    /// Whether the command gets the sample server as its own command.
    pub(super) has_server: bool,
    pub(super) script: &'static [&'static str],
    /// The configuration, if the scene needs one.
    pub(super) config: Option<&'static str>,
    /// The view that is printed.
    pub(super) shown: SceneView,
}

/// The view of a conversation that is printed.
#[derive(Clone, Copy)]
pub(super) enum SceneView {
    /// The tape.
    Tape,
    /// The tape, and the tools that were found.
    FoundTools,
    /// The story of this session.
    Story(&'static str),
}

pub(super) const SCENES: [Scene; 8] = [
    Scene {
        title: "An agent that opens with a handshake (2025-11-25)",
        name: "demo-legacy",
        command: &["wrap", "--name", "demo-legacy"],
        has_server: true,
        script: &LEGACY,
        config: None,
        shown: SceneView::Tape,
    },
    Scene {
        title: "An agent without a handshake: every request names its protocol version (2026-07-28)",
        name: "demo-modern",
        command: &["wrap", "--name", "demo-modern"],
        has_server: true,
        script: &MODERN,
        config: None,
        shown: SceneView::Tape,
    },
    Scene {
        title: "The first agent again, with only failures and the calls around them recorded; the tape says what it left out",
        name: "demo-errors",
        command: &["wrap", "--name", "demo-errors"],
        has_server: true,
        script: &LEGACY,
        config: Some("recorder: { strategy: { kind: error_focused, before: 1, after: 1 } }\n"),
        shown: SceneView::Tape,
    },
    Scene {
        title: "With rules: one message is changed, one is blocked, and one that hides a second call is refused",
        name: "demo-rules",
        command: &["wrap", "--name", "demo-rules"],
        has_server: true,
        script: &RULED,
        config: Some(RULES),
        shown: SceneView::Tape,
    },
    Scene {
        title: "One gateway in front of several servers; VIA separates the gateway's time from the backend's",
        name: "serve",
        command: &["serve", "--log-level", "warn", "--toolsets", "sample"],
        has_server: true,
        script: &GATEWAY,
        config: None,
        shown: SceneView::Tape,
    },
    Scene {
        title: "A task in plain words: \"count to three, but slowly\" finds its tools, without a model",
        name: "serve",
        command: &["serve", "--log-level", "warn", "--toolsets", "router"],
        has_server: true,
        script: &PLAIN_WORDS,
        config: None,
        shown: SceneView::FoundTools,
    },
    Scene {
        title: "An agent that uses Scrubjay's own tools: each change is recorded first, then made",
        name: "serve",
        command: &["serve", "--log-level", "warn", "--project", "default", "--workspace", "{workspace}"],
        has_server: false,
        script: &AGENT_WORK,
        config: None,
        shown: SceneView::Story("demo"),
    },
    Scene {
        title: "An agent that searches all recordings for a failure, and analyses its own",
        name: "serve",
        command: &["serve", "--log-level", "warn", "--toolsets", "tapes"],
        has_server: false,
        script: &SEARCH,
        config: None,
        shown: SceneView::Tape,
    },
];
