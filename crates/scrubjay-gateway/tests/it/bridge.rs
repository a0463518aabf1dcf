//! The bridge to HTTP servers, with servers that answer correctly, wrongly, late or not at all.

use std::time::Duration;

use scrubjay_gateway::bridge::endpoint::Endpoint;
use scrubjay_gateway::bridge::http::connect;
use scrubjay_gateway::bridge::received::ReceivedLine;
use scrubjay_gateway::budget::{Budget, MemoryLimits};
use serde_json::Value;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::rig::{self, Rig};
use crate::scripted_server::{
    Action, ReceivedRequest, ScriptedServer, event_stream, json_response, response, unfinished_event_stream,
};

/// How long a test waits for one line, and a backend for an answer.
const STEP_DEADLINE: Duration = Duration::from_secs(20);

/// The end of the bridge that the gateway uses: lines in and lines out.
pub(crate) struct Client {
    received: mpsc::Receiver<ReceivedLine>,
    writer: Option<Box<dyn AsyncWrite + Send + Unpin>>,
}

impl Client {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        let budget = Budget::new(MemoryLimits::default());
        let (received, writer) = connect(endpoint, budget).expect("a client can be made");
        Self { received, writer: Some(writer) }
    }

    pub(crate) fn connect_to(url: &str) -> Self {
        Self::new(Endpoint::new(url, [("Authorization", "Bearer canary")]).expect("a valid address"))
    }

    pub(crate) async fn send(&mut self, line: &str) {
        let writer = self.writer.as_mut().expect("still open");
        writer.write_all(format!("{line}\n").as_bytes()).await.expect("the bridge reads");
    }

    pub(crate) async fn receive(&mut self) -> Option<String> {
        self.receive_with_stream().await.map(|(line, _)| line)
    }

    /// Returns the next line, and the id of the request on whose stream it came.
    async fn receive_with_stream(&mut self) -> Option<(String, Option<u64>)> {
        let received = tokio::time::timeout(STEP_DEADLINE, self.received.recv()).await;
        let received = received.expect("a line in time")?;
        Some((String::from_utf8(received.line).expect("text"), received.stream_of))
    }

    /// Sends a request and returns the next line.
    async fn exchange(&mut self, line: &str) -> String {
        self.send(line).await;
        self.receive().await.expect("an answer")
    }

    pub(crate) async fn initialize_legacy(&mut self, version: &str) -> Value {
        let params = format!(
            r#"{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"t","version":"0"}}}}"#
        );
        self.send(&format!(r#"{{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{params}}}"#))
            .await;
        let answer = self.receive().await.expect("an answer");
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        serde_json::from_str(&answer).expect("JSON")
    }

    /// Closes the writing end, and returns all lines that still come.
    pub(crate) async fn close(mut self) -> Vec<String> {
        self.writer.take();
        let mut rest = Vec::new();
        while let Some(line) = self.receive().await {
            rest.push(line);
        }
        rest
    }
}

fn request(id: &str, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#)
}

fn modern(id: &str, method: &str, more: &str) -> String {
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{more}{meta}}}}}"#)
}

fn method_of(request: &ReceivedRequest) -> String {
    serde_json::from_str::<Value>(&request.body)
        .ok()
        .and_then(|m| Some(m["method"].as_str()?.to_owned()))
        .unwrap_or_default()
}

/// A legacy server with a session: it answers the handshake, and `rest` answers everything else.
fn legacy_server(request: &ReceivedRequest, rest: impl Fn(&ReceivedRequest) -> Vec<Action>) -> Vec<Action> {
    match method_of(request).as_str() {
        "initialize" => response(
            "200 OK",
            "Content-Type: application/json\r\nMcp-Session-Id: s-1\r\n",
            r#"{"jsonrpc":"2.0","id":"hello","result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}"#,
        ),
        "notifications/initialized" => response("202 Accepted", "", ""),
        _ => rest(request),
    }
}

/// Sends a request to a server that answers in this way, and checks the line that comes back.
async fn check(answer: Vec<Action>, expected: impl Fn(&str) -> bool) {
    let server = ScriptedServer::start(move |_| answer.clone()).await;
    let mut client = Client::connect_to(&server.url);
    let line = client.exchange(&request("7", "tools/list")).await;
    assert!(expected(&line), "{line}");
    assert!(!line.contains("canary"), "{line}");
    assert_eq!(client.close().await, Vec::<String>::new());
}

fn is_error_for_id_7(line: &str, what: &str) -> bool {
    line.starts_with(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"#) && line.contains(what)
}

#[tokio::test]
async fn answers_pass_verbatim() {
    let unusual = r#"{ "result":{"n":1.0,"b":1e2,"a":"\u00e9"},"jsonrpc":"2.0",  "id":7 }"#;
    check(json_response(unusual), |line| line == unusual).await;
    check(vec![event_stream(&format!("data: {unusual}\n\n"))], |line| line == unusual).await;
    let pretty = unusual.replace(",", ",\r\n");
    check(json_response(&format!("{pretty}\n")), |line| line == unusual.replace(",", ",  ")).await;
    check(vec![event_stream(&format!("data: {}\n\n", pretty.replace("\r\n", "\ndata: ")))], |line| {
        line == unusual.replace(",", ", ")
    })
    .await;
}

#[tokio::test]
async fn http_errors_become_answers_with_the_id_of_the_request() {
    let refused = |status: &str, body: &str| response(status, "Content-Type: application/json\r\n", body);
    let null = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request"},"id":null}"#;
    check(refused("400 Bad Request", null), |line| line == null.replace("null", "7")).await;
    let foreign = r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"no"}}"#;
    check(refused("404 Not Found", foreign), |line| line == foreign.replace("\"server-error\"", "7")).await;
    check(refused("500 Oops", "it\x1b[31m broke"), |line| {
        is_error_for_id_7(line, "HTTP 500") && line.contains("u{1b}")
    })
    .await;
    check(refused("401 Unauthorized", ""), |line| is_error_for_id_7(line, "header") && line.contains("401"))
        .await;
    check(response("202 Accepted", "", ""), |line| is_error_for_id_7(line, "gave no answer")).await;
    check(json_response("<html>"), |line| is_error_for_id_7(line, "no message")).await;
    check(vec![Action::Send(b"garbage\r\n\r\n".to_vec())], |line| is_error_for_id_7(line, "did not answer"))
        .await;
    check(vec![], |line| is_error_for_id_7(line, "did not answer")).await;
    check(vec![event_stream("data: rubbish")], |line| is_error_for_id_7(line, "closed the stream")).await;
}

#[tokio::test]
async fn responses_that_are_not_json_rpc_become_json_rpc_errors() {
    let kind = "Content-Type: application/json\r\n";
    let challenge = "WWW-Authenticate: Bearer error=\"invalid_token\", nonce=\"hidden\"\r\n";
    for (status, headers, body) in [
        ("401 Unauthorized", format!("{kind}{challenge}"), r#"{"error":"invalid_token"}"#),
        ("401 Unauthorized", challenge.to_owned(), ""),
        ("403 Forbidden", kind.to_owned(), r#"{"error":{"code":1,"message":"no version"}}"#),
        ("404 Not Found", String::new(), "<html>nothing</html>"),
        ("500 Oops", kind.to_owned(), r#"{"jsonrpc":"2.0","id":7,"error":"broken"}"#),
        ("502 Bad Gateway", kind.to_owned(), r#"["an","array"]"#),
        ("200 OK", kind.to_owned(), r#"{"error":"invalid_token"}"#),
        ("200 OK", kind.to_owned(), r#"{"id":7,"result":{}}"#),
        ("200 OK", kind.to_owned(), r#"{"status":"ok"}"#),
        ("200 OK", kind.to_owned(), "\"ok\""),
    ] {
        check(response(status, &headers, body), |line| {
            let error: Value = serde_json::from_str(line).expect("JSON");
            let data = &error["error"]["data"];
            assert_eq!(data["httpStatus"].to_string(), status[..3], "{line}");
            assert_eq!(data["body"].as_str().unwrap_or_default(), body, "{line}");
            let expected = headers.contains(challenge).then_some("Bearer error=\"invalid_token\"");
            assert_eq!(data["wwwAuthenticate"].as_str(), expected, "{line}");
            is_error_for_id_7(line, "HTTP") || is_error_for_id_7(line, "no message")
        })
        .await;
    }
    // In a stream that stays open, the error comes at once.
    for event in [r#"{"error":"invalid_token"}"#, r#"{"jsonrpc":"2.0","id":7,"error":"broken"}"#] {
        let server = ScriptedServer::start(move |_| {
            vec![event_stream(&format!("data: {event}\n\n")), Action::AwaitDisconnect]
        })
        .await;
        let mut client = Client::connect_to(&server.url);
        assert!(is_error_for_id_7(&client.exchange(&request("7", "m")).await, "no JSON-RPC"), "{event}");
    }
}

#[tokio::test]
async fn other_events_pass_before_the_error() {
    let stray = r#"{"jsonrpc":"2.0","id":8,"result":{}}"#;
    let server =
        ScriptedServer::start(move |_| vec![event_stream(&format!("data: rubbish\n\ndata: {stray}\n\n"))])
            .await;
    let mut client = Client::connect_to(&server.url);
    assert_eq!(client.exchange(&request("7", "m")).await, "rubbish");
    assert_eq!(client.receive().await.as_deref(), Some(stray));
    assert!(is_error_for_id_7(&client.receive().await.expect("an error"), "closed the stream"));
}

#[tokio::test]
async fn an_unreachable_server_is_an_error() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut client = Client::connect_to(&format!("http://{gone}/mcp"));
    assert!(is_error_for_id_7(&client.exchange(&request("7", "m")).await, "cannot be reached"));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = ScriptedServer::start(|_| json_response("{}")).await;
    let to = other.url.clone();
    let answer = response("307 Temporary Redirect", &format!("Location: {to}?key=hidden\r\n"), "");
    check(answer, |line| is_error_for_id_7(line, "redirects are not followed") && !line.contains("hidden"))
        .await;
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn an_answer_above_the_size_limit_becomes_an_error() {
    let long = format!(r#"{{"jsonrpc":"2.0","id":7,"result":"{}"}}"#, "x".repeat(3000));
    for answer in [json_response(&long), vec![event_stream(&format!("data: {long}\n\n"))]] {
        let server = ScriptedServer::start(move |_| answer.clone()).await;
        let endpoint = Endpoint::new(&server.url, []).unwrap().with_message_bytes_max(2048);
        let mut client = Client::new(endpoint);
        assert!(is_error_for_id_7(&client.exchange(&request("7", "m")).await, "2048 bytes"));
    }
    // And a large one within the limit is passed on completely.
    let large = format!(r#"{{"jsonrpc":"2.0","id":7,"result":"{}"}}"#, "x".repeat(15 << 20));
    let expected = large.clone();
    check(json_response(&large), |line| line == expected).await;
    check(vec![event_stream(&format!("data: {large}\n\n"))], |line| line == expected).await;
}

#[tokio::test]
async fn a_legacy_session_is_opened_used_and_deleted() {
    let server = ScriptedServer::start(|request| {
        legacy_server(request, |request| match request.method.as_str() {
            "GET" => vec![
                event_stream("data: {\"jsonrpc\":\"2.0\",\"method\":\"aside\"}\n\n"),
                Action::AwaitDisconnect,
            ],
            "DELETE" => response("200 OK", "", ""),
            _ => json_response(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        })
    })
    .await;
    let mut client = Client::connect_to(&server.url);
    client.initialize_legacy("2025-11-25").await;
    assert_eq!(client.receive().await.as_deref(), Some(r#"{"jsonrpc":"2.0","method":"aside"}"#));
    let body = r#"{"jsonrpc":"2.0",  "id":1,"method":"tools/call","params":{"name":"x","n":1.0}}"#;
    assert_eq!(client.exchange(body).await, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    client.close().await;
    server.client_disconnected().await;
    let requests = server.requests();
    for (index, request) in requests.iter().enumerate() {
        // The server gives the session its id in the answer to the first request.
        let has_session = index > 0;
        assert_eq!(request.header("mcp-session-id"), has_session.then_some("s-1"), "{request:?}");
        assert_eq!(
            request.header("mcp-protocol-version"),
            has_session.then_some("2025-06-18"),
            "{request:?}"
        );
        assert_eq!(request.header("authorization"), Some("Bearer canary"));
        assert_eq!(request.header("mcp-method"), None);
    }
    assert!(requests.iter().any(|request| request.body == body));
    assert_eq!(requests.last().map(|request| request.method.as_str()), Some("DELETE"));
}

#[tokio::test]
async fn a_broken_stream_is_resumed_after_its_last_event() {
    let server = ScriptedServer::start(|request| {
        legacy_server(request, |request| match (request.method.as_str(), request.header("last-event-id")) {
            ("POST", _) => vec![unfinished_event_stream(
                "retry: 10\nid: a\ndata: \n\nid: b\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"half\"}\n\nid: c\ndata: {\"js",
            )],
            // The stream after `b` ends without a message, and the one after `b2` breaks again.
            ("GET", Some("b")) => vec![event_stream("id: b2\ndata: \n\n")],
            ("GET", Some("b2")) => vec![unfinished_event_stream("id: d\ndata: \n\n")],
            ("GET", Some("d")) => vec![event_stream("id: e\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n")],
            _ => response("405 Method Not Allowed", "", ""),
        })
    })
    .await;
    let mut client = Client::connect_to(&server.url);
    client.initialize_legacy("2025-11-25").await;
    assert_eq!(client.exchange(&request("1", "slow")).await, r#"{"jsonrpc":"2.0","method":"half"}"#);
    assert_eq!(client.receive().await.as_deref(), Some(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
    assert_eq!(client.close().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_lost_session_ends_the_stream() {
    let server = ScriptedServer::start(|request| {
        legacy_server(request, |_| response("404 Not Found", "", "Session not found"))
    })
    .await;
    let mut client = Client::connect_to(&server.url);
    client.initialize_legacy("2025-11-25").await;
    let answer = client.exchange(&request("7", "tools/list")).await;
    assert!(is_error_for_id_7(&answer, "Session not found"), "{answer}");
    assert_eq!(client.receive().await, None);
    assert!(server.requests().iter().all(|request| request.method != "DELETE"));
}

#[tokio::test]
async fn a_modern_request_is_cancelled_by_closing_its_connection() {
    let server = ScriptedServer::start(|_| {
        vec![event_stream("data: {\"jsonrpc\":\"2.0\",\"method\":\"begun\"}\n\n"), Action::AwaitDisconnect]
    })
    .await;
    let mut client = Client::connect_to(&server.url);
    let call = modern("\"c\"", "tools/call", r#""name":"caf\u00e9","#);
    assert_eq!(client.exchange(&call).await, r#"{"jsonrpc":"2.0","method":"begun"}"#);
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}"#).await;
    server.client_disconnected().await;
    assert_eq!(client.close().await, Vec::<String>::new());
    let requests = server.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert_eq!(requests[0].body, call);
    assert_eq!(requests[0].header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(requests[0].header("mcp-method"), Some("tools/call"));
    assert_eq!(requests[0].header("mcp-name"), Some("=?base64?Y2Fmw6k=?="));
    assert_eq!(requests[0].header("accept"), Some("application/json, text/event-stream"));
}

#[tokio::test]
async fn at_most_256_requests_run_concurrently() {
    let server = ScriptedServer::start(|request| match method_of(request).as_str() {
        "quick" => json_response(r#"{"jsonrpc":"2.0","id":"q","result":{}}"#),
        _ => vec![Action::AwaitDisconnect],
    })
    .await;
    let mut client = Client::connect_to(&server.url);
    for id in 0..255 {
        client.send(&modern(&id.to_string(), "slow", "")).await;
    }
    assert_eq!(
        client.exchange(&request("\"q\"", "quick")).await,
        r#"{"jsonrpc":"2.0","id":"q","result":{}}"#
    );
    for id in 255..300 {
        client.send(&modern(&id.to_string(), "slow", "")).await;
    }
    assert!(client.receive().await.expect("a refusal").contains("256 requests are under way"));
}

#[tokio::test]
async fn a_line_carries_the_id_of_the_request_on_whose_stream_it_came() {
    let server = ScriptedServer::start(|request| {
        legacy_server(request, |request| match (request.method.as_str(), method_of(request).as_str()) {
            ("GET", _) => {
                vec![
                    event_stream("data: {\"jsonrpc\":\"2.0\",\"method\":\"aside\"}\n\n"),
                    Action::AwaitDisconnect,
                ]
            }
            (_, "one") => {
                vec![
                    event_stream("data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"roots/list\"}\n\n"),
                    Action::AwaitDisconnect,
                ]
            }
            (_, "two") => json_response(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#),
            _ => response("202 Accepted", "", ""),
        })
    })
    .await;
    let mut client = Client::connect_to(&server.url);
    client.initialize_legacy("2025-11-25").await;
    assert_eq!(
        client.receive_with_stream().await.map(|(_, stream_of)| stream_of),
        Some(None),
        "the stream belongs to no request"
    );
    client.send(&request("1", "one")).await;
    let (question, stream_of) = client.receive_with_stream().await.expect("a question");
    assert!(question.contains("roots/list"), "{question}");
    assert_eq!(stream_of, Some(1));
    client.send(&request("2", "two")).await;
    assert_eq!(client.receive_with_stream().await.and_then(|(_, stream_of)| stream_of), Some(2));
}

/// Starts a server of the first HTTP transport (HTTP with SSE). On its one stream it sends the events that the test
/// puts into the channel.
async fn first_transport(endpoint: &'static str) -> (ScriptedServer, mpsc::Sender<String>) {
    let (sender, receiver) = mpsc::channel::<String>(16);
    let receiver = std::sync::Arc::new(tokio::sync::Mutex::new(receiver));
    let server =
        ScriptedServer::start(move |request| match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/mcp") => {
                vec![
                    event_stream(&format!("event: endpoint\ndata: {endpoint}\n\n")),
                    Action::SendFrom(receiver.clone()),
                ]
            }
            ("POST", "/messages?s=1") => response("202 Accepted", "", "Accepted"),
            _ => response("405 Method Not Allowed", "", "Method Not Allowed"),
        })
        .await;
    (server, sender)
}

#[tokio::test]
async fn a_server_of_the_first_transport_answers_on_its_one_stream() {
    let event = |message: &str| format!("event: message\ndata: {message}\n\n");
    for is_known in [false, true] {
        let (server, events) = first_transport("/messages?s=1").await;
        let endpoint =
            Endpoint::new(&server.url, [("Authorization", "Bearer canary")]).expect("a valid address");
        let mut client = Client::new(endpoint.with_first_transport(is_known));
        client.send(&request("1", "initialize")).await;
        let hello = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05"}}"#;
        server.wait_for_request(|request| request.method == "POST" && request.path == "/messages?s=1").await;
        events.send(event(hello)).await.expect("the stream is open");
        assert_eq!(client.receive().await.as_deref(), Some(hello));
        client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        // Two requests at once, answered in reverse order, with a notification in between.
        client.send(&request("2", "tools/list")).await;
        client.send(&request("3", "tools/list")).await;
        let answers = [
            r#"{"jsonrpc":"2.0","id":3,"result":{"n":1.0}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/x"}"#,
            r#"{"jsonrpc":"2.0","id":2,"result":{}}"#,
        ];
        server.wait_for_request(|request| request.body.contains("\"id\":3")).await;
        server.wait_for_request(|request| request.body.contains("\"id\":2")).await;
        for answer in answers {
            events.send(event(answer)).await.expect("the stream is open");
            assert_eq!(client.receive().await.as_deref(), Some(answer));
        }
        let requests = server.requests();
        assert!(
            requests.iter().all(|request| request.header("authorization") == Some("Bearer canary")),
            "{requests:?}"
        );
        assert_eq!(requests.iter().filter(|request| request.method == "GET").count(), 1, "{requests:?}");
        let refused =
            requests.iter().filter(|request| request.method == "POST" && request.path == "/mcp").count();
        assert_eq!(refused, usize::from(!is_known), "{requests:?}");
        // If the stream ends, so does the session, and open requests get an error.
        client.send(&request("7", "slow")).await;
        server.wait_for_request(|request| request.body.contains("\"id\":7")).await;
        drop(events);
        assert!(is_error_for_id_7(&client.receive().await.expect("an error"), "closed its stream"));
        assert_eq!(client.receive().await, None);
    }
}

#[tokio::test]
async fn messages_are_sent_to_no_other_origin() {
    let (server, _events) = first_transport("http://elsewhere.example/messages").await;
    let mut client = Client::connect_to(&server.url);
    let answer = client.exchange(&request("7", "initialize")).await;
    assert!(is_error_for_id_7(&answer, "HTTP 405"), "{answer}");
    let endpoint = Endpoint::new(&server.url, []).expect("a valid address").with_first_transport(true);
    let answer = Client::new(endpoint).exchange(&request("7", "initialize")).await;
    assert!(is_error_for_id_7(&answer, "another origin"), "{answer}");
}

#[tokio::test]
async fn the_handshake_is_repeated_with_a_version_that_the_backend_names() {
    let server = ScriptedServer::start(|request| {
        let message: Value = serde_json::from_str(&request.body).unwrap_or_default();
        let id = &message["id"];
        match (method_of(request).as_str(), message["params"]["protocolVersion"].as_str()) {
            ("initialize", Some("2025-03-26")) => json_response(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2025-03-26","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"s","version":"0"}}}}}}"#
            )),
            ("initialize", _) => response(
                "400 Bad Request",
                "Content-Type: application/json\r\n",
                &format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32022,"message":"no","data":{{"supported":["1999-01-01","2024-11-05","2025-03-26"]}}}}}}"#
                ),
            ),
            ("tools/list", _) => json_response(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{{"name":"t","inputSchema":{{"type":"object"}}}}]}}}}"#
            )),
            _ => response("202 Accepted", "", ""),
        }
    })
    .await;
    let backend = rig::remote("old", &server.url, STEP_DEADLINE);
    let rig = Rig::new(&[backend], Vec::new());
    rig::Client::legacy(&rig.gateway).await.await_tools(&["t"]).await;
    let requests = server.requests();
    let greetings = requests.iter().filter(|request| method_of(request) == "initialize").count();
    assert_eq!(greetings, 2, "{requests:?}");
    let listed = requests.iter().find(|request| method_of(request) == "tools/list").expect("a list");
    assert_eq!(listed.header("mcp-protocol-version"), Some("2025-03-26"));
}
