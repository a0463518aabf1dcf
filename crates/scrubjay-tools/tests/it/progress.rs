//! The `progress` toolset as a client uses it, with a scripted model.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use scrubjay_llm::scripted::{ScriptedAnswer, ScriptedEndpoint};
use scrubjay_llm::{LlmConfig, Secret};
use scrubjay_store::ledger::Storage;
use scrubjay_tools::{Setup, Shared, serve_progress};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

use crate::schemas::Answers;

const KEY: &str = "sk-canary-0123456789";

fn shared(home: &Path, llm: Option<LlmConfig>) -> Arc<Shared> {
    Arc::new(Shared::new(Setup {
        stale_after_ticks: 20,
        redactor: std::sync::Arc::new(scrubjay_core::redact::Redactor::standard()),
        storage: Storage::File(home.join("data/ledger.db")),
        project: "default".to_owned(),
        workspace: home.to_owned(),
        allow_vcs: false,
        file_bytes_max: 1 << 20,
        home: scrubjay_tape::home::Home::new(home.join("data")),
        locks: home.join("locks"),
        llm,
    }))
}

fn asking(model: &ScriptedEndpoint) -> Option<LlmConfig> {
    Some(LlmConfig { api_key: Some(Secret::new(KEY)), base_url: model.url(), ..LlmConfig::default() })
}

/// One connection.
struct Client {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    last_id: u64,
    answers: Answers,
}

impl Client {
    async fn open(shared: &Arc<Shared>) -> Self {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(near);
        let (server_reader, server_writer) = tokio::io::split(far);
        tokio::spawn(serve_progress(Arc::clone(shared), server_reader, server_writer));
        let mut client =
            Self { lines: BufReader::new(reader).lines(), writer, last_id: 0, answers: Answers::default() };
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}});
        client.ask("initialize", params).await;
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        client.answers = Answers::of(&client.ask("tools/list", json!({})).await);
        client
    }

    async fn send(&mut self, message: &Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params})).await;
        let line = tokio::time::timeout(Duration::from_secs(60), self.lines.next_line()).await;
        serde_json::from_str(&line.unwrap().unwrap().unwrap()).unwrap()
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        let answer = self.ask("tools/call", params.clone()).await;
        self.answers.check(&params, &answer);
        answer
    }

    /// Calls a tool that must succeed; returns its text and its data.
    async fn done(&mut self, tool: &str, arguments: Value) -> (String, Value) {
        let mut answer = self.call(tool, arguments).await;
        assert!(answer["error"].is_null() && answer["result"]["isError"] != json!(true), "{answer}");
        let text = answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        (text, answer["result"]["structuredContent"].take())
    }

    /// Calls a tool that must refuse; returns the message.
    async fn refused(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        answer["error"]["message"].as_str().unwrap().to_owned()
    }

    async fn log(&mut self, project: &str, title: &str, content: &str) -> String {
        let arguments = json!({"projectId": project, "title": title, "content": content});
        self.done("log_progress", arguments).await.1["id"].as_str().unwrap().to_owned()
    }
}

async fn begin(llm: Option<LlmConfig>) -> (TempDir, Arc<Shared>, Client) {
    let home = tempfile::tempdir().unwrap();
    let shared = shared(home.path(), llm);
    let client = Client::open(&shared).await;
    (home, shared, client)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[tokio::test]
async fn an_entry_is_logged_found_and_summarised() {
    let model =
        ScriptedEndpoint::answering([ScriptedAnswer::text("Created POST /api/users. Tests pass.")]).await;
    let (_home, _shared, mut client) = begin(asking(&model)).await;
    let title = "Implemented user registration endpoint";
    let content = "Created POST /api/users endpoint with validation. Added bcrypt for password hashing.";
    let arguments = json!({"projectId": "mobile-app", "title": title, "content": content,
        "tags": ["api", "users"]});
    let (answer_text, logged) = client.done("log_progress", arguments).await;
    let id = text(&logged["id"]);
    assert_eq!(answer_text, format!("Logged: {title} (ID: {id}) in project mobile-app"));
    let keys: Vec<&String> = logged.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["createdAt", "id", "projectId", "title"]);

    let search = json!({"projectId": "mobile-app", "query": "REGIST", "startDate": "2025-06-01T00:00:00Z",
        "limit": 5});
    let (answer_text, found) = client.done("search_logs", search).await;
    let created = text(&logged["createdAt"]);
    let session = text(&found["entries"][0]["sessionId"]).to_owned();
    let entry = json!({"id": id, "title": title, "createdAt": created, "tags": ["api", "users"],
        "sessionId": session});
    assert_eq!(found, json!({"entries": [entry], "total": 1}));
    for name in [session.as_str(), &session[..5], "latest"] {
        let of_session = json!({"projectId": "mobile-app", "sessionId": name});
        assert_eq!(client.done("search_logs", of_session).await.1["total"], 1, "{name}");
    }
    let day = &created[..10];
    assert_eq!(
        answer_text,
        format!("Found 1 entry matching 'REGIST' in mobile-app:\n1. {id} - {title} ({day})")
    );

    let wanted = json!({"projectId": "mobile-app", "id": id});
    for source in ["model", "cache", "cache"] {
        let (answer_text, data) = client.done("get_context", wanted.clone()).await;
        assert_eq!(
            data,
            json!({"id": id, "projectId": "mobile-app", "title": title, "createdAt": created,
                "summary": "Created POST /api/users. Tests pass.", "summarySource": source,
                "tags": ["api", "users"]})
        );
        assert_eq!(answer_text, "Created POST /api/users. Tests pass.");
    }
    let full = json!({"projectId": "mobile-app", "id": id, "includeFull": true});
    assert_eq!(client.done("get_context", full).await.1["content"], content);
    let asked = model.asked();
    assert_eq!(asked.len(), 1);
    let body = &asked[0].body;
    assert_eq!((&body["max_tokens"], &body["model"]), (&json!(150), &json!("gpt-4o-mini")));
    assert_eq!(body["temperature"].to_string(), "0.3");
    assert!(
        text(&body["messages"][0]["content"]).starts_with("You are a technical summariser. Summarise the")
    );
    assert_eq!(asked[0].last_text(), format!("Title: {title}\n\nContent:\n{content}"));
}

#[tokio::test]
async fn the_tools_match_their_contract() {
    let (_home, _shared, mut client) = begin(None).await;
    let answer = client.ask("tools/list", json!({})).await;
    let tools = answer["result"]["tools"].as_array().unwrap();
    let named = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap();
    assert_eq!(tools.len(), 3);
    let required = |name: &str, schema: &str| named(name)[schema]["required"].clone();
    assert_eq!(required("log_progress", "inputSchema"), json!(["projectId", "title", "content"]));
    assert_eq!(required("get_context", "inputSchema"), json!(["projectId", "id"]));
    assert_eq!(required("search_logs", "inputSchema"), json!(["projectId"]));
    assert_eq!(required("log_progress", "outputSchema"), json!(["id", "projectId", "title", "createdAt"]));
    assert_eq!(
        required("get_context", "outputSchema"),
        json!(["id", "projectId", "title", "summary", "createdAt"])
    );
    assert_eq!(required("search_logs", "outputSchema"), json!(["entries", "total"]));
    let limits = &named("log_progress")["inputSchema"]["properties"];
    assert_eq!(
        (&limits["title"]["maxLength"], &limits["tags"]["items"]["maxLength"]),
        (&json!(100), &json!(50))
    );
}

#[tokio::test]
async fn all_problems_are_reported_at_once() {
    let (_home, _shared, mut client) = begin(None).await;
    let log = "log_progress";
    for (arguments, expected) in [
        (json!({}), "projectId is required; title is required; content is required and cannot be empty"),
        (
            json!({"projectId": "p", "title": "t", "content": " \n"}),
            "content is required and cannot be empty",
        ),
        (
            json!({"projectId": "🐦".repeat(101), "title": "é".repeat(101), "content": "x".repeat(10_001)}),
            "projectId exceeds maximum length of 100 characters; title exceeds maximum length of 100 characters; \
             content exceeds maximum length of 10000 characters",
        ),
        (
            json!({"projectId": 7, "title": null, "content": "c", "tags": "[\"a\"]", "agentId": []}),
            "projectId must be a string; title is required; tags must be an array of strings; agentId must be a \
             string",
        ),
        (
            json!({"projectId": "p", "title": "t\0", "content": "c", "tags": ["ok", 1, "x".repeat(51)]}),
            "title must not contain NUL characters; tags[1] must be a string; tags[2] exceeds maximum length of \
             50 characters",
        ),
        (
            json!({"projectId": "p", "title": "t", "content": "c", "tags": vec!["a"; 11], "agentId": "x".repeat(101)}),
            "tags exceeds maximum of 10 items; agentId exceeds maximum length of 100 characters",
        ),
    ] {
        assert_eq!(client.refused(log, arguments).await, expected);
    }
    let answer = client.call(log, json!({"title": "t"})).await;
    let data = &answer["error"]["data"];
    assert_eq!(
        data["problems"],
        json!([
            { "path": "projectId", "message": "is required" },
            { "path": "content", "message": "is required and cannot be empty" },
        ])
    );
    assert_eq!((&data["code"], &data["hint"]), (&json!("INVALID_ARGUMENT"), &data["recovery_hint"]));
    assert_eq!(
        client.refused(log, json!({"projectId": "p", "titel": "t", "content": "c"})).await,
        "titel is no argument of this tool: did you mean title?"
    );
    client.log("p", "t", "c").await;
    for (arguments, expected) in [
        (json!({}), "projectId is required"),
        (json!({"projectId": "nowhere"}), "Project not found: nowhere"),
        (
            json!({"projectId": "p", "startDate": "soon", "endDate": 5, "limit": 101, "match": "magic"}),
            "match must be \"title\" or \"fulltext\"; Invalid date format for startDate: expected ISO 8601; \
             Invalid date format for endDate: expected ISO 8601; limit exceeds maximum of 100",
        ),
        (
            json!({"projectId": "p", "match": "fulltext", "query": "%"}),
            "query has no words to search for: only match \"title\" finds punctuation",
        ),
    ] {
        assert_eq!(client.refused("search_logs", arguments).await, expected);
    }
    for (arguments, expected) in [
        (json!({}), "projectId is required; id is required"),
        (json!({"projectId": "p", "id": "x7k9m2p4q1w3"}), "Entry not found: x7k9m2p4q1w3 in project p"),
        (json!({"projectId": "q", "id": "x7k9m2p4q1w3"}), "Entry not found: x7k9m2p4q1w3 in project q"),
        (json!({"projectId": "p", "ids": ["a", "b"]}), "Entry not found: a, b in project p"),
        (json!({"projectId": "p", "ids": []}), "ids must name an entry"),
        (
            json!({"projectId": "p", "id": "", "endDate": "2001-01-01"}),
            "Entry not found: none between these dates in project p",
        ),
    ] {
        assert_eq!(client.refused("get_context", arguments).await, expected);
    }
}

#[tokio::test]
async fn texts_of_the_greatest_length_are_stored_verbatim() {
    let (_home, _shared, mut client) = begin(None).await;
    let sql = "'; DROP TABLE projects; -- % _ \"quoted\" \\ ";
    let pad = |start: &str, chars: usize| -> String {
        start.chars().chain("🚀שלום".chars().cycle()).take(chars).collect()
    };
    let (name, content) = (pad(sql, 100), pad(sql, 10_000));
    let tags: Vec<String> = (0..10).map(|n| pad(&format!("{n} {sql}"), 50)).collect();
    let arguments =
        json!({"projectId": name, "title": name, "content": content, "tags": tags, "agentId": name});
    let (_, logged) = client.done("log_progress", arguments).await;
    let wanted = json!({"projectId": name, "id": logged["id"], "includeFull": true});
    let (_, data) = client.done("get_context", wanted).await;
    assert_eq!(
        (&data["title"], &data["content"], &data["tags"]),
        (&json!(name), &json!(content), &json!(tags))
    );
    for query in [name.as_str(), "% _ \"", "🚀ש", "\\ "] {
        let search = json!({"projectId": name, "query": query, "tags": tags});
        assert_eq!(client.done("search_logs", search).await.1["total"], 1, "{query}");
    }
    let search = json!({"projectId": name, "query": "שלום drop", "match": "fulltext"});
    let (answer_text, found) = client.done("search_logs", search).await;
    assert!(text(&found["entries"][0]["snippet"]).contains("**DROP** TABLE"), "{answer_text}");
}

#[tokio::test]
async fn dates_are_inclusive() {
    let (_home, _shared, mut client) = begin(None).await;
    client.log("p", "t", "c").await;
    let (_, found) = client.done("search_logs", json!({"projectId": "p"})).await;
    let created = text(&found["entries"][0]["createdAt"]).to_owned();
    for (start, end, total) in [
        (created.as_str(), created.as_str(), 1),
        (&created[..10], &created[..10], 1),
        ("2001-01-01", "2001-01-02", 0),
        ("2999-01-01", "2999-01-02", 0),
    ] {
        let search = json!({"projectId": "p", "startDate": start, "endDate": end});
        assert_eq!(client.done("search_logs", search).await.1["total"], total, "{start} {end}");
    }
}

#[tokio::test]
async fn without_a_usable_answer_the_summary_is_the_content_and_is_not_stored() {
    let content = format!("{}the end", "sentence. ".repeat(60));
    let never = Duration::from_millis(50);
    for (answer, timeout) in [
        (ScriptedAnswer::status(500, "broken"), Duration::from_secs(2)),
        (ScriptedAnswer::status(401, format!("bad key {KEY}")), Duration::from_secs(30)),
        (ScriptedAnswer::status(429, "slow down").header("retry-after", "60"), Duration::from_secs(30)),
        (ScriptedAnswer::text("  "), Duration::from_secs(30)),
        (ScriptedAnswer::never(), never),
    ] {
        let well = ScriptedAnswer::text("All is well.");
        let answers: Vec<ScriptedAnswer> = if timeout == never { vec![answer] } else { vec![answer, well] };
        let model = ScriptedEndpoint::answering(answers).await;
        let config = LlmConfig { timeout, retries: 0, ..asking(&model).unwrap() };
        let (home, _shared, mut client) = begin(Some(config)).await;
        let id = client.log("p", "t", &content).await;
        let wanted = json!({"projectId": "p", "id": id});
        let (_, data) = client.done("get_context", wanted.clone()).await;
        assert_eq!((&data["summarySource"], &data["summary"]), (&json!("fallback"), &json!(content[..500])));
        if timeout != never {
            let (_, data) = client.done("get_context", wanted).await;
            assert_eq!((&data["summarySource"], &data["summary"]), (&json!("model"), &json!("All is well.")));
        }
        keyless(home.path());
    }
    let (_home, _shared, mut client) = begin(Some(LlmConfig::default())).await;
    let id = client.log("p", "t", &content).await;
    let (_, data) = client.done("get_context", json!({"projectId": "p", "id": id})).await;
    assert_eq!(data["summarySource"], "fallback");
}

/// The key of the model's API is written to no file.
fn keyless(home: &Path) {
    let mut files = 0;
    for file in std::fs::read_dir(home.join("data")).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let bytes = std::fs::read(path).unwrap();
        assert!(!bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes()));
        files += 1;
    }
    assert!(files > 0);
}

#[tokio::test]
async fn a_rate_limited_summary_is_retried() {
    let soon = ScriptedAnswer::status(429, "slow down").header("retry-after-ms", "5");
    let model = ScriptedEndpoint::answering([soon, ScriptedAnswer::text("Now.")]).await;
    let (_home, _shared, mut client) = begin(asking(&model)).await;
    let id = client.log("p", "t", "c").await;
    let (_, data) = client.done("get_context", json!({"projectId": "p", "id": id})).await;
    assert_eq!((&data["summarySource"], model.asked().len()), (&json!("model"), 2));
}

/// Many callers at once, in two processes, cause one request to the model.
#[tokio::test]
async fn callers_at_the_same_time_share_one_request() {
    let model = ScriptedEndpoint::held(|_| ScriptedAnswer::text("Once.")).await;
    let (home, first, mut client) = begin(asking(&model)).await;
    let id = client.log("p", "t", "c").await;
    let second = shared(home.path(), asking(&model));
    let mut calls = Vec::new();
    for n in 0..12 {
        let mut client = Client::open(if n % 2 == 0 { &first } else { &second }).await;
        let wanted = json!({"projectId": "p", "id": id});
        calls.push(tokio::spawn(async move { client.done("get_context", wanted).await.1 }));
    }
    model.arrived(1).await;
    // By now the others have called, too; they wait instead of asking the model.
    let asked_again = tokio::time::timeout(Duration::from_millis(500), model.arrived(2)).await;
    assert!(asked_again.is_err());
    model.release(100);
    for call in calls {
        assert_eq!(call.await.unwrap()["summary"], "Once.");
    }
    assert_eq!(model.asked().len(), 1);
}

#[tokio::test]
async fn several_entries_come_as_a_digest_with_citations() {
    let model = ScriptedEndpoint::start(|asked| {
        let ids: Vec<&str> = asked.last_text().split('[').skip(1).map(|part| &part[..12]).collect();
        ScriptedAnswer::text(&format!("Did it all [{}][{}] [zzzzzzzzzzzz]. Then rested [x].", ids[0], ids[1]))
    })
    .await;
    let (_home, _shared, mut client) = begin(asking(&model)).await;
    let one = client.log("p", "First thing", &"long content. ".repeat(100)).await;
    let two = client.log("p", "Second thing", "short content").await;
    let wanted = json!({"projectId": "p", "id": "", "startDate": "2001-01-01"});
    let (answer_text, data) = client.done("get_context", wanted.clone()).await;
    let digest = format!("Did it all [{two}][{one}]. Then rested [x].");
    assert_eq!((text(&data["summary"]), &data["citations"]), (digest.as_str(), &json!([two, one])));
    assert_eq!((&data["summarySource"], &data["title"]), (&json!("model"), &json!("Digest of 2 entries")));
    assert_eq!(
        (&data["entries"][0]["detail"], &data["entries"][1]["detail"]),
        (&json!("full"), &json!("full"))
    );
    assert!(answer_text.starts_with(&digest) && answer_text.contains("First thing"), "{answer_text}");
    assert_eq!(client.done("get_context", wanted.clone()).await.1["summarySource"], "cache");
    assert_eq!(model.asked().len(), 1);

    // One more entry makes another digest.
    let three = client.log("p", "Third thing", "c").await;
    let (_, data) = client.done("get_context", wanted).await;
    assert_eq!((&data["citations"], model.asked().len()), (&json!([three, two]), 2));

    let some = json!({"projectId": "p", "ids": [one, two], "maxTokens": 180});
    let (_, data) = client.done("get_context", some).await;
    assert_eq!(
        (&data["entries"][0]["detail"], &data["entries"][1]["detail"]),
        (&json!("summary"), &json!("full")),
        "{data}"
    );
    let few = json!({"projectId": "p", "ids": [one, two], "maxTokens": 20});
    let (_, data) = client.done("get_context", few).await;
    assert_eq!((&data["omitted"], &data["entries"][0]["detail"]), (&json!(1), &json!("title")));
}

#[tokio::test]
async fn a_digest_without_a_model_lists_titles() {
    for answer in [ScriptedAnswer::text("No citation here."), ScriptedAnswer::status(400, "no")] {
        let model = ScriptedEndpoint::answering([answer]).await;
        let (_home, _shared, mut client) = begin(asking(&model)).await;
        let one = client.log("p", "First", "c").await;
        let two = client.log("p", "Second", "c").await;
        for _ in 0..2 {
            let wanted = json!({"projectId": "p", "ids": [one, two, one]});
            let (_, data) = client.done("get_context", wanted).await;
            let listed = format!("- First [{one}]\n- Second [{two}]");
            assert_eq!(
                (&data["summarySource"], text(&data["summary"])),
                (&json!("fallback"), listed.as_str())
            );
        }
        assert_eq!(model.asked().len(), 2, "a fallback summary must not be stored");
    }
}
