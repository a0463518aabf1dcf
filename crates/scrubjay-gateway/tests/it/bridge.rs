//! The bridge with a server that does odd things.

use std::time::Duration;

use scrubjay_gateway::bridge::endpoint::Endpoint;
use scrubjay_gateway::bridge::http::connect;
use scrubjay_gateway::bridge::received::ReceivedLine;
use scrubjay_gateway::budget::{Budget, MemoryLimits};
use serde_json::Value;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::rig::{self, Rig};
use crate::scripted_server::{Act, Asked, Scripted, broken_events, events, json, whole};

/// How long a test waits for one line, and a backend for an answer.
const STEP_DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Client {
    received: mpsc::Receiver<ReceivedLine>,
    writer: Option<Box<dyn AsyncWrite + Send + Unpin>>,
}

impl Client {
    pub(crate) fn of(endpoint: Endpoint) -> Self {
        let budget = Budget::new(MemoryLimits::default());
        let (received, writer) = connect(endpoint, budget).expect("a client can be made");
        Self { received, writer: Some(writer) }
    }

    pub(crate) fn to(url: &str) -> Self {
        Self::of(Endpoint::new(url, [("Authorization", "Bearer canary")]).expect("a good address"))
    }

    pub(crate) async fn say(&mut self, line: &str) {
        let writer = self.writer.as_mut().expect("still open");
        writer.write_all(format!("{line}\n").as_bytes()).await.expect("the bridge reads");
    }

    pub(crate) async fn hear(&mut self) -> Option<String> {
        self.hear_on().await.map(|(line, _)| line)
    }

    /// Hears a line, and on which request's stream it came.
    async fn hear_on(&mut self) -> Option<(String, Option<u64>)> {
        let heard = tokio::time::timeout(STEP_DEADLINE, self.received.recv()).await;
        let heard = heard.expect("an answer in time")?;
        Some((String::from_utf8(heard.line).expect("text"), heard.stream_of))
    }

    /// Says a request and returns the next line.
    async fn ask(&mut self, line: &str) -> String {
        self.say(line).await;
        self.hear().await.expect("an answer")
    }

    pub(crate) async fn open_legacy(&mut self, version: &str) -> Value {
        let params = format!(
            r#"{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"t","version":"0"}}}}"#
        );
        self.say(&format!(r#"{{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{params}}}"#))
            .await;
        let answer = self.hear().await.expect("an answer");
        self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        serde_json::from_str(&answer).expect("JSON")
    }

    /// Closes the writing end and reads to the end.
    pub(crate) async fn close(mut self) -> Vec<String> {
        self.writer.take();
        let mut rest = Vec::new();
        while let Some(line) = self.hear().await {
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

fn method_of(asked: &Asked) -> String {
    serde_json::from_str::<Value>(&asked.body)
        .ok()
        .and_then(|m| Some(m["method"].as_str()?.to_owned()))
        .unwrap_or_default()
}

/// Greets as a legacy server with a session, and leaves the rest to the script.
fn legacy(asked: &Asked, rest: impl Fn(&Asked) -> Vec<Act>) -> Vec<Act> {
    match method_of(asked).as_str() {
        "initialize" => whole(
            "200 OK",
            "Content-Type: application/json\r\nMcp-Session-Id: s-1\r\n",
            r#"{"jsonrpc":"2.0","id":"hello","result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}"#,
        ),
        "notifications/initialized" => whole("202 Accepted", "", ""),
        _ => rest(asked),
    }
}

/// Asks one request of a server that answers it in this way, and checks the line that comes back.
async fn check(answer: Vec<Act>, expected: impl Fn(&str) -> bool) {
    let server = Scripted::start(move |_| answer.clone()).await;
    let mut client = Client::to(&server.url);
    let line = client.ask(&request("7", "tools/list")).await;
    assert!(expected(&line), "{line}");
    assert!(!line.contains("canary"), "{line}");
    assert_eq!(client.close().await, Vec::<String>::new());
}

fn is_error_7(line: &str, what: &str) -> bool {
    line.starts_with(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"#) && line.contains(what)
}

#[tokio::test]
async fn answers_pass_verbatim() {
    let odd = r#"{ "result":{"n":1.0,"b":1e2,"a":"\u00e9"},"jsonrpc":"2.0",  "id":7 }"#;
    check(json(odd), |line| line == odd).await;
    check(vec![events(&format!("data: {odd}\n\n"))], |line| line == odd).await;
    let pretty = odd.replace(",", ",\r\n");
    check(json(&format!("{pretty}\n")), |line| line == odd.replace(",", ",  ")).await;
    check(vec![events(&format!("data: {}\n\n", pretty.replace("\r\n", "\ndata: ")))], |line| {
        line == odd.replace(",", ", ")
    })
    .await;
}

#[tokio::test]
async fn refusals_come_back_under_the_requests_own_id() {
    let refused = |status: &str, body: &str| whole(status, "Content-Type: application/json\r\n", body);
    let null = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request"},"id":null}"#;
    check(refused("400 Bad Request", null), |line| line == null.replace("null", "7")).await;
    let foreign = r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"no"}}"#;
    check(refused("404 Not Found", foreign), |line| line == foreign.replace("\"server-error\"", "7")).await;
    check(refused("500 Oops", "it\x1b[31m broke"), |line| {
        is_error_7(line, "HTTP 500") && line.contains("u{1b}")
    })
    .await;
    check(refused("401 Unauthorized", ""), |line| is_error_7(line, "header") && line.contains("401")).await;
    check(whole("202 Accepted", "", ""), |line| is_error_7(line, "gave no answer")).await;
    check(json("<html>"), |line| is_error_7(line, "no message")).await;
    check(vec![Act::Send(b"garbage\r\n\r\n".to_vec())], |line| is_error_7(line, "did not answer")).await;
    check(vec![], |line| is_error_7(line, "did not answer")).await;
    check(vec![events("data: rubbish")], |line| is_error_7(line, "closed the stream")).await;
}

#[tokio::test]
async fn what_is_no_json_rpc_becomes_an_error_that_is() {
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
        check(whole(status, &headers, body), |line| {
            let error: Value = serde_json::from_str(line).expect("JSON");
            let data = &error["error"]["data"];
            assert_eq!(data["httpStatus"].to_string(), status[..3], "{line}");
            assert_eq!(data["body"].as_str().unwrap_or_default(), body, "{line}");
            let told = headers.contains(challenge).then_some("Bearer error=\"invalid_token\"");
            assert_eq!(data["wwwAuthenticate"].as_str(), told, "{line}");
            is_error_7(line, "HTTP") || is_error_7(line, "no message")
        })
        .await;
    }
    // In the middle of a stream that goes on, at once.
    for event in [r#"{"error":"invalid_token"}"#, r#"{"jsonrpc":"2.0","id":7,"error":"broken"}"#] {
        let server =
            Scripted::start(move |_| vec![events(&format!("data: {event}\n\n")), Act::AwaitLeave]).await;
        let mut client = Client::to(&server.url);
        assert!(is_error_7(&client.ask(&request("7", "m")).await, "no JSON-RPC"), "{event}");
    }
}

#[tokio::test]
async fn what_is_no_answer_passes_before_the_error() {
    let stray = r#"{"jsonrpc":"2.0","id":8,"result":{}}"#;
    let server = Scripted::start(move |_| vec![events(&format!("data: rubbish\n\ndata: {stray}\n\n"))]).await;
    let mut client = Client::to(&server.url);
    assert_eq!(client.ask(&request("7", "m")).await, "rubbish");
    assert_eq!(client.hear().await.as_deref(), Some(stray));
    assert!(is_error_7(&client.hear().await.expect("an error"), "closed the stream"));
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut client = Client::to(&format!("http://{gone}/mcp"));
    assert!(is_error_7(&client.ask(&request("7", "m")).await, "cannot be reached"));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = Scripted::start(|_| json("{}")).await;
    let to = other.url.clone();
    let answer = whole("307 Temporary Redirect", &format!("Location: {to}?key=hidden\r\n"), "");
    check(answer, |line| is_error_7(line, "redirects are not followed") && !line.contains("hidden")).await;
    assert!(other.asked().is_empty());
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_refused() {
    let long = format!(r#"{{"jsonrpc":"2.0","id":7,"result":"{}"}}"#, "x".repeat(3000));
    for answer in [json(&long), vec![events(&format!("data: {long}\n\n"))]] {
        let server = Scripted::start(move |_| answer.clone()).await;
        let endpoint = Endpoint::new(&server.url, []).unwrap().with_message_bytes_max(2048);
        let mut client = Client::of(endpoint);
        assert!(is_error_7(&client.ask(&request("7", "m")).await, "2048 bytes"));
    }
    // And a large one within the limit is whole.
    let large = format!(r#"{{"jsonrpc":"2.0","id":7,"result":"{}"}}"#, "x".repeat(15 << 20));
    let expected = large.clone();
    check(json(&large), |line| line == expected).await;
    check(vec![events(&format!("data: {large}\n\n"))], |line| line == expected).await;
}

#[tokio::test]
async fn a_legacy_session_is_opened_named_and_ended() {
    let server = Scripted::start(|asked| {
        legacy(asked, |asked| match asked.method.as_str() {
            "GET" => vec![events("data: {\"jsonrpc\":\"2.0\",\"method\":\"aside\"}\n\n"), Act::AwaitLeave],
            "DELETE" => whole("200 OK", "", ""),
            _ => json(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        })
    })
    .await;
    let mut client = Client::to(&server.url);
    client.open_legacy("2025-11-25").await;
    assert_eq!(client.hear().await.as_deref(), Some(r#"{"jsonrpc":"2.0","method":"aside"}"#));
    let body = r#"{"jsonrpc":"2.0",  "id":1,"method":"tools/call","params":{"name":"x","n":1.0}}"#;
    assert_eq!(client.ask(body).await, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    client.close().await;
    server.client_left().await;
    let asked = server.asked();
    for (at, one) in asked.iter().enumerate() {
        let later = at > 0;
        assert_eq!(one.header("mcp-session-id"), later.then_some("s-1"), "{one:?}");
        assert_eq!(one.header("mcp-protocol-version"), later.then_some("2025-06-18"), "{one:?}");
        assert_eq!(one.header("authorization"), Some("Bearer canary"));
        assert_eq!(one.header("mcp-method"), None);
    }
    assert!(asked.iter().any(|one| one.body == body));
    assert_eq!(asked.last().map(|one| one.method.as_str()), Some("DELETE"));
}

#[tokio::test]
async fn a_broken_stream_is_taken_up_where_it_broke() {
    let server = Scripted::start(|asked| {
        legacy(asked, |asked| match (asked.method.as_str(), asked.header("last-event-id")) {
            ("POST", _) => vec![broken_events(
                "retry: 10\nid: a\ndata: \n\nid: b\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"half\"}\n\nid: c\ndata: {\"js",
            )],
            // Once it is polled in vain, once it breaks again.
            ("GET", Some("b")) => vec![events("id: b2\ndata: \n\n")],
            ("GET", Some("b2")) => vec![broken_events("id: d\ndata: \n\n")],
            ("GET", Some("d")) => vec![events("id: e\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n")],
            _ => whole("405 Method Not Allowed", "", ""),
        })
    })
    .await;
    let mut client = Client::to(&server.url);
    client.open_legacy("2025-11-25").await;
    assert_eq!(client.ask(&request("1", "slow")).await, r#"{"jsonrpc":"2.0","method":"half"}"#);
    assert_eq!(client.hear().await.as_deref(), Some(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
    assert_eq!(client.close().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_lost_session_ends_the_stream() {
    let server =
        Scripted::start(|asked| legacy(asked, |_| whole("404 Not Found", "", "Session not found"))).await;
    let mut client = Client::to(&server.url);
    client.open_legacy("2025-11-25").await;
    let answer = client.ask(&request("7", "tools/list")).await;
    assert!(is_error_7(&answer, "Session not found"), "{answer}");
    assert_eq!(client.hear().await, None);
    assert!(server.asked().iter().all(|one| one.method != "DELETE"));
}

#[tokio::test]
async fn a_modern_request_is_called_off_by_leaving() {
    let server = Scripted::start(|_| {
        vec![events("data: {\"jsonrpc\":\"2.0\",\"method\":\"begun\"}\n\n"), Act::AwaitLeave]
    })
    .await;
    let mut client = Client::to(&server.url);
    let call = modern("\"c\"", "tools/call", r#""name":"caf\u00e9","#);
    assert_eq!(client.ask(&call).await, r#"{"jsonrpc":"2.0","method":"begun"}"#);
    client.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}"#).await;
    server.client_left().await;
    assert_eq!(client.close().await, Vec::<String>::new());
    let asked = server.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].body, call);
    assert_eq!(asked[0].header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(asked[0].header("mcp-method"), Some("tools/call"));
    assert_eq!(asked[0].header("mcp-name"), Some("=?base64?Y2Fmw6k=?="));
    assert_eq!(asked[0].header("accept"), Some("application/json, text/event-stream"));
}

#[tokio::test]
async fn requests_run_side_by_side_up_to_a_limit() {
    let server = Scripted::start(|asked| match method_of(asked).as_str() {
        "quick" => json(r#"{"jsonrpc":"2.0","id":"q","result":{}}"#),
        _ => vec![Act::AwaitLeave],
    })
    .await;
    let mut client = Client::to(&server.url);
    for id in 0..255 {
        client.say(&modern(&id.to_string(), "slow", "")).await;
    }
    assert_eq!(client.ask(&request("\"q\"", "quick")).await, r#"{"jsonrpc":"2.0","id":"q","result":{}}"#);
    for id in 255..300 {
        client.say(&modern(&id.to_string(), "slow", "")).await;
    }
    assert!(client.hear().await.expect("a refusal").contains("256 requests are under way"));
}

#[tokio::test]
async fn a_line_says_on_whose_stream_it_came() {
    let server = Scripted::start(|asked| {
        legacy(asked, |asked| match (asked.method.as_str(), method_of(asked).as_str()) {
            ("GET", _) => {
                vec![events("data: {\"jsonrpc\":\"2.0\",\"method\":\"aside\"}\n\n"), Act::AwaitLeave]
            }
            (_, "one") => {
                vec![
                    events("data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"roots/list\"}\n\n"),
                    Act::AwaitLeave,
                ]
            }
            (_, "two") => json(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#),
            _ => whole("202 Accepted", "", ""),
        })
    })
    .await;
    let mut client = Client::to(&server.url);
    client.open_legacy("2025-11-25").await;
    assert_eq!(client.hear_on().await.map(|(_, on)| on), Some(None), "the standing stream is nobody's");
    client.say(&request("1", "one")).await;
    let (asked, on) = client.hear_on().await.expect("a question");
    assert!(asked.contains("roots/list"), "{asked}");
    assert_eq!(on, Some(1));
    client.say(&request("2", "two")).await;
    assert_eq!(client.hear_on().await.and_then(|(_, on)| on), Some(2));
}

/// A server of the first HTTP transport; answers come on its one stream, which the script feeds.
async fn first_transport(endpoint: &'static str) -> (Scripted, mpsc::Sender<String>) {
    let (say, said) = mpsc::channel::<String>(16);
    let said = std::sync::Arc::new(tokio::sync::Mutex::new(said));
    let server = Scripted::start(move |asked| match (asked.method.as_str(), asked.path.as_str()) {
        ("GET", "/mcp") => {
            vec![events(&format!("event: endpoint\ndata: {endpoint}\n\n")), Act::Follow(said.clone())]
        }
        ("POST", "/messages?s=1") => whole("202 Accepted", "", "Accepted"),
        _ => whole("405 Method Not Allowed", "", "Method Not Allowed"),
    })
    .await;
    (server, say)
}

#[tokio::test]
async fn a_server_of_the_first_transport_is_spoken_to_on_its_one_stream() {
    let event = |message: &str| format!("event: message\ndata: {message}\n\n");
    for is_known in [false, true] {
        let (server, say) = first_transport("/messages?s=1").await;
        let endpoint = Endpoint::new(&server.url, [("Authorization", "Bearer canary")]).expect("good");
        let mut client = Client::of(endpoint.with_first_transport(is_known));
        client.say(&request("1", "initialize")).await;
        let hello = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05"}}"#;
        server.asked_for(|one| one.method == "POST" && one.path == "/messages?s=1").await;
        say.send(event(hello)).await.expect("the stream is open");
        assert_eq!(client.hear().await.as_deref(), Some(hello));
        client.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        // Two at once, answered the other way round, with something in between.
        client.say(&request("2", "tools/list")).await;
        client.say(&request("3", "tools/list")).await;
        let answers = [
            r#"{"jsonrpc":"2.0","id":3,"result":{"n":1.0}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/x"}"#,
            r#"{"jsonrpc":"2.0","id":2,"result":{}}"#,
        ];
        server.asked_for(|one| one.body.contains("\"id\":3")).await;
        server.asked_for(|one| one.body.contains("\"id\":2")).await;
        for answer in answers {
            say.send(event(answer)).await.expect("the stream is open");
            assert_eq!(client.hear().await.as_deref(), Some(answer));
        }
        let asked = server.asked();
        assert!(asked.iter().all(|one| one.header("authorization") == Some("Bearer canary")), "{asked:?}");
        assert_eq!(asked.iter().filter(|one| one.method == "GET").count(), 1, "{asked:?}");
        let refused = asked.iter().filter(|one| one.method == "POST" && one.path == "/mcp").count();
        assert_eq!(refused, usize::from(!is_known), "{asked:?}");
        // A stream that ends takes the session along, and nobody waits for ever.
        client.say(&request("7", "slow")).await;
        server.asked_for(|one| one.body.contains("\"id\":7")).await;
        drop(say);
        assert!(is_error_7(&client.hear().await.expect("an error"), "closed its stream"));
        assert_eq!(client.hear().await, None);
    }
}

#[tokio::test]
async fn messages_go_to_no_other_origin() {
    let (server, _say) = first_transport("http://elsewhere.example/messages").await;
    let mut client = Client::to(&server.url);
    let answer = client.ask(&request("7", "initialize")).await;
    assert!(is_error_7(&answer, "HTTP 405"), "{answer}");
    let endpoint = Endpoint::new(&server.url, []).expect("a good address").with_first_transport(true);
    let answer = Client::of(endpoint).ask(&request("7", "initialize")).await;
    assert!(is_error_7(&answer, "another origin"), "{answer}");
}

#[tokio::test]
async fn a_backend_is_greeted_again_in_a_version_it_names() {
    let server = Scripted::start(|asked| {
        let message: Value = serde_json::from_str(&asked.body).unwrap_or_default();
        let id = &message["id"];
        match (method_of(asked).as_str(), message["params"]["protocolVersion"].as_str()) {
            ("initialize", Some("2025-03-26")) => json(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2025-03-26","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"s","version":"0"}}}}}}"#
            )),
            ("initialize", _) => whole(
                "400 Bad Request",
                "Content-Type: application/json\r\n",
                &format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32022,"message":"no","data":{{"supported":["1999-01-01","2024-11-05","2025-03-26"]}}}}}}"#
                ),
            ),
            ("tools/list", _) => json(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{{"name":"t","inputSchema":{{"type":"object"}}}}]}}}}"#
            )),
            _ => whole("202 Accepted", "", ""),
        }
    })
    .await;
    let backend = rig::remote("old", &server.url, STEP_DEADLINE);
    let rig = Rig::new(&[backend], Vec::new());
    rig::Client::legacy(&rig.gateway).await.await_tools(&["t"]).await;
    let asked = server.asked();
    let greetings = asked.iter().filter(|asked| method_of(asked) == "initialize").count();
    assert_eq!(greetings, 2, "{asked:?}");
    let listed = asked.iter().find(|asked| method_of(asked) == "tools/list").expect("a list");
    assert_eq!(listed.header("mcp-protocol-version"), Some("2025-03-26"));
}
