//! Tasks through the router, with a model that says what a test tells it to.

use std::time::Duration;

use scrubjay_llm::scripted::{Answer, Scripted};
use scrubjay_llm::{Client, LlmConfig, LlmError};
use scrubjay_router::{BadAnswer, Mode, Plan, Routed, Router, Task, Tool, Undecided};
use serde_json::{Value, json};
use tokio::time::Instant;

fn router(mode: Mode) -> Router {
    let tool = |backend: &str, name: &str, description: &str| {
        let schema =
            json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        let definition = json!({"name": name, "description": description, "inputSchema": schema});
        Tool { backend: backend.to_owned(), definition }
    };
    let tools = vec![
        tool("files", "read_file", "Returns the contents of a file."),
        tool("files", "delete_file", "Deletes a file."),
        tool("web", "take_screenshot", "Captures the page."),
    ];
    Router::new(mode, tools)
}

/// Routes a task with a model that gives these answers; returns what it was asked, too.
async fn route(mode: Mode, query: &str, answers: &[Answer]) -> (Routed, Vec<Value>) {
    let server = Scripted::answering(answers.to_vec()).await;
    let config = LlmConfig { base_url: server.url(), retries: 0, ..LlmConfig::default() };
    let client = Client::new(config).expect("the scripted endpoint is local");
    let context = Some(json!({"currentWorkingDirectory": "/w"}));
    let task = Task { query: query.to_owned(), context };
    let routed = router(mode).route(Some(&client), &task, later()).await;
    (routed, server.asked().into_iter().map(|asked| asked.body).collect())
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn read(path: &str) -> Routed {
    Routed::Call(Plan {
        backend_id: "files".to_owned(),
        mcp_method: "tools/call".to_owned(),
        mcp_params: json!({"name": "read_file", "arguments": {"path": path}}),
    })
}

fn why(routed: &Routed) -> &Undecided {
    let Routed::Candidates { why, .. } = routed else { panic!("{routed:?}") };
    why
}

const TASK: &str = "read the file a.txt";

#[tokio::test]
async fn a_task_becomes_a_call() {
    let answer = Answer::tool_call("files__read_file", &json!({"path": "/w/a.txt"}));
    let (routed, asked) = route(Mode::Catalog, TASK, &[answer]).await;
    assert_eq!((routed, asked.len()), (read("/w/a.txt"), 1));
    let functions: Vec<&Value> =
        asked[0]["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(functions[0], "files__read_file", "the best comes first");
    let user = asked[0]["messages"][1]["content"].as_str().unwrap();
    assert!(user.contains(TASK) && user.contains("currentWorkingDirectory"), "{user}");
}

#[tokio::test]
async fn a_task_becomes_a_method_of_a_backend() {
    let call = |params: Value| {
        Answer::tool_call("files", &json!({"mcp_method": "tools/call", "mcp_params": params}))
    };
    let good = call(json!({"name": "read_file", "arguments": {"path": "/w/a.txt"}}));
    let (routed, asked) = route(Mode::Backends, TASK, std::slice::from_ref(&good)).await;
    assert_eq!(routed, read("/w/a.txt"));
    assert_eq!(asked[0]["tools"].as_array().unwrap().len(), 2);
    // Any method may be meant; a tool must be one.
    let other = json!({"mcp_method": "fs/readFile", "mcp_params": {"path": "/w/a.txt"}});
    let (routed, _) = route(Mode::Backends, TASK, &[Answer::tool_call("files", &other)]).await;
    assert!(matches!(routed, Routed::Call(plan) if plan.mcp_method == "fs/readFile"));
    let (routed, asked) = route(Mode::Backends, TASK, &[call(json!({"name": "fly"})), good]).await;
    assert_eq!((routed, asked.len()), (read("/w/a.txt"), 2));
}

#[tokio::test]
async fn wrong_arguments_are_mended_once() {
    let wrong = Answer::tool_call("files__read_file", &json!({"path": 7}));
    let right = Answer::tool_call("files__read_file", &json!({"path": "/w/a.txt"}));
    let (routed, asked) = route(Mode::Catalog, TASK, &[wrong.clone(), right]).await;
    assert_eq!((routed, asked.len()), (read("/w/a.txt"), 2));
    let messages = asked[1]["messages"].as_array().unwrap();
    assert_eq!(messages[2]["tool_calls"][0]["id"], messages[3]["tool_call_id"]);
    assert!(messages[3]["content"].as_str().unwrap().contains("/path: "), "{}", messages[3]);
    let (routed, asked) = route(Mode::Catalog, TASK, &[wrong]).await;
    assert!(matches!(why(&routed), Undecided::Answer(BadAnswer::Arguments { .. })), "{routed:?}");
    assert_eq!(asked.len(), 2);
    let garbled = Answer::tool_calls(&[("files__read_file", "{\"path\":".to_owned())]);
    let (routed, _) = route(Mode::Catalog, TASK, &[garbled]).await;
    assert_eq!(why(&routed).to_string(), "the arguments do not fit: they are not JSON");
}

#[tokio::test]
async fn exactly_one_call_counts() {
    let two = [("files__read_file", "{}".to_owned()), ("files__delete_file", "{}".to_owned())];
    let checks = [
        (Answer::text("I would rather not."), BadAnswer::NoCall),
        (Answer::tool_calls(&two), BadAnswer::Several(2)),
        (Answer::tool_call("files__fly", &json!({})), BadAnswer::Unknown),
    ];
    for (answer, expected) in checks {
        let (routed, asked) = route(Mode::Catalog, TASK, &[answer]).await;
        assert_eq!((why(&routed), asked.len()), (&Undecided::Answer(expected), 1));
    }
}

#[tokio::test]
async fn what_nothing_serves_costs_nothing() {
    let (routed, asked) =
        route(Mode::Catalog, "order a large pizza with mushrooms", &[Answer::text("")]).await;
    assert_eq!((why(&routed), asked.len()), (&Undecided::NothingFits, 0));
}

#[tokio::test]
async fn without_a_model_there_are_candidates() {
    let task = Task { query: TASK.to_owned(), context: None };
    let routed = router(Mode::Catalog).route(None, &task, later()).await;
    let Routed::Candidates { why, candidates } = &routed else { panic!("{routed:?}") };
    assert_eq!(*why, Undecided::Model(LlmError::NoKey));
    assert_eq!((candidates[0].backend.as_str(), candidates[0].tool.as_str()), ("files", "read_file"));
    assert!(!candidates[0].why.is_empty());
    let (routed, _) = route(Mode::Catalog, TASK, &[Answer::status(500, "")]).await;
    let Routed::Candidates { why, candidates } = &routed else { panic!("{routed:?}") };
    assert_eq!((why, candidates.len() > 1), (&Undecided::Model(LlmError::Server(500)), true));
}

#[tokio::test]
async fn it_learns() {
    let mut router = router(Mode::Catalog);
    router.learn("snapshot the dashboard", "web", "take_screenshot");
    router.learn("anything", "web", "nothing");
    let task = Task { query: "dashboard".to_owned(), context: None };
    let routed = router.route(None, &task, later()).await;
    assert!(
        matches!(routed, Routed::Candidates { candidates, .. } if candidates[0].tool == "take_screenshot")
    );
}
