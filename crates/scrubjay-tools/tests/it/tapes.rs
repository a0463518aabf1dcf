//! The `tapes` toolset as a client uses it: tapes in its data directory, and questions about them.

use std::path::Path;
use std::sync::Arc;

use scrubjay_core::entry::{Direction, Entry, EntryKind, RuleMarks, Terminator, Transport};
use scrubjay_core::id::TapeId;
use scrubjay_core::redact::Redactor;
use scrubjay_store::ledger::Storage;
use scrubjay_tape::clock;
use scrubjay_tape::format::header::{Compression, Header, Origin, SessionRef};
use scrubjay_tape::format::writer::Writer;
use scrubjay_tape::home::Home;
use scrubjay_tools::{Setup, Shared, serve_tapes};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Client, Era};

const NOW_NS: u64 = 1_800_000_000_000_000_000;

/// A data directory with tapes, and a client that may ask about them.
struct Lab {
    _scratch: TempDir,
    home: Home,
    client: Client,
}

impl Lab {
    async fn new(era: Era) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::new(scratch.path().join("data"));
        home.create().unwrap();
        let shared = shared(scratch.path(), &home);
        let mut client = Client::connect_to(era, |reader, writer| serve_tapes(shared, reader, writer));
        client.greet().await;
        Self { _scratch: scratch, home, client }
    }

    /// Records a tape of a session; each message comes a second after the one before.
    fn record(&self, number: u8, session: &str, lines: &[(Direction, String)]) -> String {
        let id = TapeId::from_random([number; 10]);
        let header = Header {
            id,
            name: "files".to_owned(),
            noted_kind: None,
            gateway: None,
            transport: Transport::Stdio,
            started_wall_ns: NOW_NS + u64::from(number) * 1_000_000_000_000,
            clock_behind_ns: None,
            program: None,
            workspace: None,
            session: SessionRef { id: session.to_owned(), ..SessionRef::default() },
            origin: Origin::default(),
            continues: None,
            part: 1,
            recorder: "test".to_owned(),
            compression: Compression::default(),
            links: Default::default(),
        };
        let started = header.started_wall_ns;
        let mut writer =
            Writer::create(self.home.live_path(id, started), header, clock::now().instant).unwrap();
        let redactor = Redactor::standard();
        for (at, (direction, line)) in lines.iter().enumerate() {
            let since_start_ns = at as u64 * 1_000_000_000;
            let entry = Entry {
                kind: EntryKind::Message,
                direction: *direction,
                transport: Transport::Stdio,
                terminator: Terminator::Lf,
                wall_ns: started + since_start_ns,
                since_start_ns,
                processing_ns: 0,
                via: None,
                connection: 0,
                operation: None,
                rule_marks: RuleMarks::default(),
                payload: line.as_bytes(),
            };
            let redacted = redactor.redact(line.as_bytes());
            writer.append(std::iter::once(entry.with_payload(redacted.payload()))).unwrap();
        }
        id.to_string()
    }

    async fn ask(&mut self, tool: &str, arguments: Value, tape: Option<&str>) -> Value {
        let caller = json!({ "session": "mine", "toldBy": "connection", "tape": tape });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "scrubjay/caller": caller } });
        self.client.ask("tools/call", params).await["result"].take()
    }

    /// Makes a call that must succeed; returns the data.
    async fn done(&mut self, tool: &str, arguments: Value) -> Value {
        let mut result = self.ask(tool, arguments.clone(), None).await;
        assert_ne!(result["isError"], json!(true), "{arguments}: {result}");
        assert!(!result["content"][0]["text"].as_str().unwrap().is_empty());
        result["structuredContent"].take()
    }

    /// Makes a call that must be refused; returns the error.
    async fn refused(&mut self, tool: &str, arguments: Value) -> Value {
        let mut result = self.ask(tool, arguments.clone(), None).await;
        assert_eq!(result["isError"], json!(true), "{arguments}: {result}");
        let error = result["structuredContent"]["error"].take();
        assert!(!error["recovery_hint"].as_str().unwrap().is_empty(), "{error}");
        error
    }
}

fn shared(scratch: &Path, home: &Home) -> Arc<Shared> {
    Arc::new(Shared::new(Setup {
        storage: Storage::File(home.ledger()),
        redactor: Arc::new(Redactor::standard()),
        project: "birds".to_owned(),
        workspace: scratch.to_owned(),
        allow_vcs: false,
        file_bytes_max: 1 << 20,
        home: home.clone(),
        locks: home.locks(),
        llm: None,
        stale_after_ticks: 20,
    }))
}

fn asked(id: u64, tool: &str, arguments: Value) -> (Direction, String) {
    let params = json!({ "name": tool, "arguments": arguments });
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    (Direction::ClientToServer, message.to_string())
}

fn answered(id: u64, text: &str) -> (Direction, String) {
    let result = json!({ "content": [{ "type": "text", "text": text }] });
    (Direction::ServerToClient, json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string())
}

fn failed(id: u64, message: &str) -> (Direction, String) {
    let error = json!({ "code": -32000, "message": message });
    (Direction::ServerToClient, json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string())
}

fn conversation() -> Vec<(Direction, String)> {
    vec![
        asked(1, "read_file", json!({ "path": "/etc/hosts", "depth": 3 })),
        answered(1, "127.0.0.1 localhost \u{202e}\u{1b}[31mred"),
        asked(2, "read_file", json!({ "path": "/nope" })),
        failed(2, "connection refused by host"),
        asked(3, "list", json!({})),
        asked(4, "search_tapes", json!({ "query": "refused" })),
        answered(4, "connection refused, as found before"),
    ]
}

#[tokio::test]
async fn recorded_messages_are_found() {
    for era in Era::BOTH {
        let mut lab = Lab::new(era).await;
        let tape = lab.record(1, "s1", &conversation());
        let found = lab
            .done(
                "search_tapes",
                json!({ "query": "tool:read_file error:true >500ms \"connection refused\"" }),
            )
            .await;
        assert_eq!((&found["total"], &found["total_is_exact"]), (&json!(1), &json!(true)));
        let hit = &found["hits"][0];
        assert_eq!((&hit["tape"], &hit["entry"], &hit["answer"]), (&json!(tape), &json!(2), &json!(3)));
        assert_eq!((&hit["error_code"], &hit["response_time_ms"]), (&json!(-32000), &json!(1000.0)));
        assert!(hit["snippet"].as_str().unwrap().contains("«connection refused»"), "{hit}");
        assert_eq!(found["facets"]["tools"][0], json!({ "value": "read_file", "count": 1 }));
        // The same with all arguments given.
        let at_length = json!({
            "tools": ["read_*"], "has_errors": true, "min_response_time_ms": 500, "text": ["connection refused"],
            "param_filters": [{ "field": "arguments.path", "test": "contains", "value": "NOPE" }],
            "error_codes": [-32000], "message_types": ["error"], "servers": ["files"], "session_ids": ["s1"],
        });
        assert_eq!(lab.done("search_tapes", at_length).await["hits"], found["hits"]);
        // What is recorded meanwhile is found by the next call.
        lab.record(2, "s2", &conversation());
        assert_eq!(lab.done("search_tapes", json!({ "query": "refused" })).await["total"], 2);
        // Searches are on tape too, and are left out unless they are asked for.
        let searches =
            lab.done("search_tapes", json!({ "query": "refused", "tools": ["search_tapes"] })).await;
        assert_eq!(searches["total"], 2);
    }
}

#[tokio::test]
async fn answers_are_inert_and_have_a_limit() {
    let mut lab = Lab::new(Era::Legacy).await;
    let mut lines = conversation();
    lines
        .extend((10..60).flat_map(|id| {
            [asked(id, "t", json!({ "x": "many" })), answered(id, &"many words ".repeat(40))]
        }));
    lab.record(1, "s1", &lines);
    let result = lab.ask("search_tapes", json!({ "query": "localhost" }), None).await;
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("\\u{202e}") && !text.contains(['\u{202e}', '\u{1b}']), "{text:?}");
    assert!(!result["structuredContent"].to_string().contains('\u{202e}'));
    let first = lab.done("search_tapes", json!({ "query": "many", "limit": 50, "max_tokens": 2000 })).await;
    let shown = first["hits"].as_array().unwrap().len() as u64;
    assert!((1..50).contains(&shown) && first["tokens"].as_u64().unwrap() <= 2000, "{first}");
    assert_eq!((&first["total"], &first["next_offset"]), (&json!(50), &json!(shown)));
    let offset = first["next_offset"].clone();
    let next = lab.done("search_tapes", json!({ "query": "many", "limit": 1, "offset": offset })).await;
    assert_eq!(next["next_offset"], json!(shown + 1));
    assert_ne!(next["hits"][0]["entry"], first["hits"][shown as usize - 1]["entry"]);
}

#[tokio::test]
async fn an_analysis_describes_its_tape() {
    let mut lab = Lab::new(Era::Modern).await;
    let first = lab.record(1, "s1", &conversation());
    let second = lab.record(2, "mine", &conversation());
    let shown = lab.done("analyze_tape", json!({ "tape": "latest" })).await;
    assert_eq!((&shown["tape"], &shown["compared_with"]), (&json!(second), &json!(1)));
    assert_eq!(shown["message_flow"]["client_requests"], 4);
    assert_eq!(shown["common_errors"][0]["shape"], "connection refused by host");
    assert!(shown["performance_profile"][0]["max_ms"].as_f64().unwrap() >= 1000.0, "{shown}");
    assert_eq!(lab.done("analyze_tape", json!({ "tape": &first[..5] })).await["tape"], json!(first));
    assert_eq!(lab.done("analyze_tape", json!({ "session_id": "s1" })).await["tape"], json!(first));
    // The default is the caller's own tape, or the newest of its session if the gateway names no tape.
    assert_eq!(lab.done("analyze_tape", json!({})).await["tape"], json!(second));
    let own = lab.ask("analyze_tape", json!({}), Some(&first)).await;
    assert_eq!(own["structuredContent"]["tape"], json!(first));
    let short = lab.done("analyze_tape", json!({ "limit": 1 })).await;
    assert_eq!(short["performance_profile"].as_array().unwrap().len(), 1);
    assert!(short["left_out"].as_u64().unwrap() >= 1, "{short}");
}

#[tokio::test]
async fn an_analysis_has_a_limit() {
    let mut lab = Lab::new(Era::Legacy).await;
    let lines: Vec<_> = (0..60)
        .flat_map(|id| {
            let tool = format!("tool_{id}");
            [asked(id, &tool, json!({})), failed(id, &format!("{tool} cannot do what it should"))]
        })
        .collect();
    lab.record(1, "mine", &lines);
    let whole = lab.done("analyze_tape", json!({ "limit": 50, "max_tokens": 50_000 })).await;
    assert_eq!(whole["performance_profile"].as_array().unwrap().len(), 50);
    let short = lab.done("analyze_tape", json!({ "limit": 50, "max_tokens": 1500 })).await;
    assert!(short["tokens"].as_u64().unwrap() <= 1500, "{short}");
    let rows = short["performance_profile"].as_array().unwrap().len();
    assert!((1..50).contains(&rows) && short["left_out"].as_u64() > whole["left_out"].as_u64(), "{short}");
}

#[tokio::test]
async fn calls_that_cannot_be_answered_are_refused_with_a_code() {
    let mut lab = Lab::new(Era::Legacy).await;
    for (tool, arguments, code, message) in [
        ("search_tapes", json!({ "query": "x tol:y" }), "INVALID_QUERY", "tol:"),
        ("search_tapes", json!({ "from": "never" }), "INVALID_TIME", "never"),
        ("search_tapes", json!({ "message_types": ["x"] }), "INVALID_ARGUMENT", "x"),
        ("analyze_tape", json!({ "tape": "latest" }), "TAPE_NOT_FOUND", "no tapes"),
        ("analyze_tape", json!({ "tape": "nothing" }), "TAPE_NOT_FOUND", "nothing"),
        ("analyze_tape", json!({ "session_id": "nobody" }), "TAPE_NOT_FOUND", "nobody"),
        ("analyze_tape", json!({ "tape": "abc", "session_id": "x" }), "INVALID_ARGUMENT", "both"),
    ] {
        let error = lab.refused(tool, arguments).await;
        assert_eq!(error["code"], code, "{error}");
        assert!(error["message"].as_str().unwrap().contains(message), "{error}");
    }
    let error = lab.refused("search_tapes", json!({ "query": "größe tol:y z" })).await;
    assert_eq!(error["details"], json!({ "part": "tol:y", "from": 8, "to": 13 }));
}

#[tokio::test]
async fn the_tools_have_schemas_of_arguments_and_answers() {
    let mut lab = Lab::new(Era::Legacy).await;
    let listed = lab.client.ask("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["analyze_tape", "search_tapes"]);
    for tool in tools {
        assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool}");
        assert!(tool["outputSchema"]["properties"]["error"].is_object(), "{tool}");
    }
    let properties = &tools[1]["inputSchema"]["properties"];
    for name in
        ["query", "from", "to", "methods", "message_types", "param_filters", "result_filters", "max_tokens"]
    {
        assert!(properties[name].is_object(), "{name}: {properties}");
    }
}
