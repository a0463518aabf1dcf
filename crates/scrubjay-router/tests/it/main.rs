//! Tasks through the router, with a scripted model.

use scrubjay_llm::scripted::{ScriptedAnswer, ScriptedEndpoint};
use scrubjay_llm::{LlmConfig, LlmError};
use scrubjay_router::{
    AnswerError, Catalog, Lesson, Lessons, NoCall, PlannedCall, RouteResult, RouteTask, Router, Tool,
    ToolPresentation,
};
use serde_json::{Value, json};

const THRESHOLD: f32 = 0.5;

fn catalog() -> Catalog {
    let tool = |backend: &str, name: &str, description: &str| {
        let schema =
            json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        let definition = json!({"name": name, "description": description, "inputSchema": schema});
        Tool { backend: backend.to_owned(), listed_as: name.to_owned(), definition }
    };
    let tools = vec![
        tool("files", "read_file", "Returns the contents of a file."),
        tool("files", "delete_file", "Deletes a file."),
        tool("web", "take_screenshot", "Captures the page."),
    ];
    Catalog::new(vec!["files".to_owned(), "web".to_owned()], tools)
}

/// Routes a task with a model that gives these answers; returns the requests to the model, too.
async fn route(mode: ToolPresentation, query: &str, answers: &[ScriptedAnswer]) -> (RouteResult, Vec<Value>) {
    let server = ScriptedEndpoint::answering(answers.to_vec()).await;
    let router = asking(mode, &server);
    let result = router.route(&catalog(), &task(query)).await;
    (result, server.asked().into_iter().map(|request| request.body).collect())
}

fn asking(mode: ToolPresentation, server: &ScriptedEndpoint) -> Router {
    let router = Router::new(mode, THRESHOLD);
    router.use_model(LlmConfig { base_url: server.url(), retries: 0, ..LlmConfig::default() });
    router
}

fn task(query: &str) -> RouteTask {
    let context = Some(json!({"currentWorkingDirectory": "/w"}));
    RouteTask { query: query.to_owned(), context, clarification: None }
}

fn read(path: &str) -> Result<PlannedCall, NoCall> {
    Ok(PlannedCall {
        backend_id: "files".to_owned(),
        mcp_method: "tools/call".to_owned(),
        mcp_params: json!({"name": "read_file", "arguments": {"path": path}}),
    })
}

fn why(result: &RouteResult) -> &NoCall {
    result.decided.as_ref().expect_err("there is no call")
}

const TASK: &str = "read the file a.txt";

#[tokio::test]
async fn a_task_becomes_a_call() {
    let answer = ScriptedAnswer::tool_call("files__read_file", &json!({"path": "/w/a.txt"}));
    let (result, requests) = route(ToolPresentation::Catalog, TASK, &[answer]).await;
    assert_eq!((result.decided, requests.len()), (read("/w/a.txt"), 1));
    let functions: Vec<&Value> =
        requests[0]["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(functions[0], "files__read_file", "the best comes first");
    let user = requests[0]["messages"][1]["content"].as_str().unwrap();
    assert!(user.contains(TASK) && user.contains("currentWorkingDirectory"), "{user}");
}

#[tokio::test]
async fn a_task_becomes_a_method_call_of_a_backend() {
    let call = |params: Value| {
        ScriptedAnswer::tool_call("files", &json!({"mcp_method": "tools/call", "mcp_params": params}))
    };
    let good = call(json!({"name": "read_file", "arguments": {"path": "/w/a.txt"}}));
    let (result, requests) = route(ToolPresentation::Backends, TASK, std::slice::from_ref(&good)).await;
    assert_eq!(result.decided, read("/w/a.txt"));
    assert_eq!(requests[0]["tools"].as_array().unwrap().len(), 2);
    // Any method may be called; a tool must exist.
    let other = json!({"mcp_method": "fs/readFile", "mcp_params": {"path": "/w/a.txt"}});
    let (result, _) =
        route(ToolPresentation::Backends, TASK, &[ScriptedAnswer::tool_call("files", &other)]).await;
    assert!(matches!(result.decided, Ok(plan) if plan.mcp_method == "fs/readFile"));
    // Methods that would change the shared connection are refused.
    for method in ["initialize", "notifications/cancelled", ""] {
        let answer = ScriptedAnswer::tool_call("files", &json!({"mcp_method": method, "mcp_params": {}}));
        let (result, _) = route(ToolPresentation::Backends, TASK, &[answer]).await;
        assert_eq!(why(&result).reason(), "bad_arguments", "{method}");
    }
    let (result, requests) =
        route(ToolPresentation::Backends, TASK, &[call(json!({"name": "fly"})), good]).await;
    assert_eq!((result.decided, requests.len()), (read("/w/a.txt"), 2));
}

#[tokio::test]
async fn wrong_arguments_are_corrected_once() {
    let wrong = ScriptedAnswer::tool_call("files__read_file", &json!({"path": 7}));
    let right = ScriptedAnswer::tool_call("files__read_file", &json!({"path": "/w/a.txt"}));
    let (result, requests) = route(ToolPresentation::Catalog, TASK, &[wrong.clone(), right]).await;
    assert_eq!((result.decided, requests.len()), (read("/w/a.txt"), 2));
    let messages = requests[1]["messages"].as_array().unwrap();
    assert_eq!(messages[2]["tool_calls"][0]["id"], messages[3]["tool_call_id"]);
    assert!(messages[3]["content"].as_str().unwrap().contains("/path: "), "{}", messages[3]);
    let (result, requests) = route(ToolPresentation::Catalog, TASK, &[wrong]).await;
    assert!(matches!(why(&result), NoCall::Answer(AnswerError::Arguments { .. })), "{result:?}");
    assert_eq!(requests.len(), 2);
    let garbled = ScriptedAnswer::tool_calls(&[("files__read_file", "{\"path\":".to_owned())]);
    let (result, _) = route(ToolPresentation::Catalog, TASK, &[garbled]).await;
    assert_eq!(why(&result).to_string(), "the arguments do not fit: they are not JSON");
}

#[tokio::test]
async fn exactly_one_tool_call_is_accepted() {
    let two = [("files__read_file", "{}".to_owned()), ("files__delete_file", "{}".to_owned())];
    let checks = [
        (ScriptedAnswer::text("Which\n file?"), AnswerError::NoCall { text: "Which file?".to_owned() }),
        (ScriptedAnswer::tool_calls(&two), AnswerError::Several(2)),
        (ScriptedAnswer::tool_call("files__fly", &json!({})), AnswerError::Unknown),
    ];
    for (answer, expected) in checks {
        let (result, requests) = route(ToolPresentation::Catalog, TASK, &[answer]).await;
        assert_eq!((why(&result), requests.len()), (&NoCall::Answer(expected), 1));
    }
}

#[tokio::test]
async fn several_steps_are_planned_only_if_allowed() {
    let step = |path: &str| json!({"function": "files__read_file", "arguments": {"path": path}});
    let planned = |steps: Value| ScriptedAnswer::tool_call("plan_steps", &json!({ "steps": steps }));
    let route = async |steps_max: usize, answer: ScriptedAnswer| {
        let server = ScriptedEndpoint::answering([answer]).await;
        let router = asking(ToolPresentation::Catalog, &server).with_steps(steps_max);
        let result = router.route(&catalog(), &task(TASK)).await;
        (result, server.asked()[0].body["tools"].as_array().unwrap().len())
    };
    let (result, offered) = route(3, planned(json!([step("/a"), step("/b")]))).await;
    assert_eq!((result.decided, result.then), (read("/a"), vec![read("/b").unwrap()]));
    let (result, fewer) = route(1, planned(json!([step("/a")]))).await;
    assert_eq!((why(&result).reason(), fewer), ("unknown_tool", offered - 1));
    let wrong = json!({"function": "files__read_file", "arguments": {}});
    let inner = json!({"function": "plan_steps", "arguments": {"steps": []}});
    for (steps, expected) in [
        (json!([]), "bad_arguments"),
        (json!([step("/a"), step("/b"), step("/c"), step("/d")]), "bad_arguments"),
        (json!([step("/a"), wrong]), "bad_arguments"),
        (json!([inner]), "unknown_tool"),
        (json!("read"), "bad_arguments"),
    ] {
        let (result, _) = route(3, planned(steps)).await;
        assert_eq!((why(&result).reason(), result.then.len()), (expected, 0));
    }
}

#[tokio::test]
async fn a_task_that_no_tool_serves_is_not_sent_to_the_model() {
    for (query, expected) in [
        ("order a large pizza with mushrooms", NoCall::NothingFits),
        ("return my library books and order a page of stamps", NoCall::Unsure),
    ] {
        let (result, requests) = route(ToolPresentation::Catalog, query, &[ScriptedAnswer::text("")]).await;
        assert_eq!((why(&result), requests.len()), (&expected, 0), "{result:?}");
    }
}

#[tokio::test]
async fn without_a_model_there_are_candidates() {
    let result = Router::new(ToolPresentation::Catalog, THRESHOLD).route(&catalog(), &task(TASK)).await;
    assert_eq!(why(&result), &NoCall::Model(LlmError::NoKey));
    let best = &result.candidates[0];
    assert_eq!((best.backend.as_str(), best.tool.as_str()), ("files", "read_file"));
    assert!(!best.why.is_empty() && best.needs == ["path"] && result.confidence >= THRESHOLD);
    let (result, _) = route(ToolPresentation::Catalog, TASK, &[ScriptedAnswer::status(500, "")]).await;
    assert_eq!((why(&result), result.candidates.len() > 1), (&NoCall::Model(LlmError::Server(500)), true));
}

#[tokio::test]
async fn fill_asks_only_for_the_arguments_of_the_chosen_tool() {
    let answer = ScriptedAnswer::tool_call("files__read_file", &json!({"path": "/w/a.txt"}));
    let server = ScriptedEndpoint::answering([answer]).await;
    let router = asking(ToolPresentation::Catalog, &server);
    let (catalog, task) = (catalog(), task("order a pizza and put it on file"));
    let mut chosen = catalog.find(TASK, 10).0.remove(0);
    let result = router.fill(&catalog, &task, &chosen).await.expect("there is a model");
    assert_eq!(result.decided, read("/w/a.txt"));
    assert_eq!(server.asked()[0].body["tools"].as_array().unwrap().len(), 1);
    chosen.tool = "fly".to_owned();
    assert!(router.fill(&catalog, &task, &chosen).await.is_none());
}

#[tokio::test]
async fn a_lesson_makes_its_tool_findable() {
    let catalog = catalog();
    let mut lessons = Lessons::default();
    lessons.add(Lesson::new("snapshot the dashboard", "web", "take_screenshot", "a"));
    lessons.add(Lesson::new("anything", "web", "nothing", "a"));
    lessons.teach(&catalog);
    assert_eq!(catalog.find("dashboard", 10).0[0].tool, "take_screenshot");
}

#[tokio::test]
async fn a_model_never_sees_more_than_fifteen_tools() {
    let tool = |i: usize| Tool {
        backend: "files".to_owned(),
        listed_as: format!("read_{i}"),
        definition: json!({"name": format!("read_file_{i}"), "description": "Reads a file.", "inputSchema": {}}),
    };
    let catalog = Catalog::new(vec!["files".to_owned()], (0..40).map(tool).collect());
    for (shortlist, steps, seen) in
        [(None, 1, 10), (Some(3), 1, 3), (Some(15), 1, 15), (Some(999), 1, 15), (Some(15), 3, 15)]
    {
        let server = ScriptedEndpoint::answering([ScriptedAnswer::text("no")]).await;
        let router = asking(ToolPresentation::Catalog, &server).with_steps(steps);
        let router = shortlist.map_or(router, |n| {
            asking(ToolPresentation::Catalog, &server).with_steps(steps).with_shortlist(n)
        });
        let result = router.route(&catalog, &task("read the file")).await;
        let functions = server.asked()[0].body["tools"].as_array().unwrap().len();
        assert_eq!(functions, seen, "{shortlist:?} {steps}");
        assert_eq!(result.candidates.len(), seen - usize::from(steps > 1));
    }
}
