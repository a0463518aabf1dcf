//! The client against a scripted endpoint.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use scrubjay_llm::scripted::{ScriptedAnswer, ScriptedEndpoint};
use scrubjay_llm::{ChatReply, ChatRequest, Client, LlmConfig, LlmError, MalformedReply, Secret, Tool};
use serde_json::json;
use tokio::time::Instant;

const KEY: &str = "sk-canary-0123456789";

fn config(server: &ScriptedEndpoint) -> LlmConfig {
    subscribe_everywhere();
    LlmConfig { api_key: Some(Secret::new(KEY)), base_url: server.url(), ..LlmConfig::default() }
}

/// Late enough for the slowest machine; no test waits this long.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

async fn ask(config: LlmConfig, deadline: Instant) -> Result<ChatReply, LlmError> {
    let client = Client::new(config).expect("the scripted endpoint is local");
    let result = client.chat(&ChatRequest::new("be brief", "what is up?"), deadline).await;
    // Neither a reply nor an error shows the key.
    let shown = result.as_ref().map_or_else(|e| format!("{e} {e:?}"), |reply| format!("{reply:?}"));
    assert!(!format!("{shown} {client:?}").contains("canary"), "{shown}");
    result
}

/// Asks once; returns the outcome and how many requests the endpoint received.
async fn answered(answers: impl IntoIterator<Item = ScriptedAnswer>) -> (Result<ChatReply, LlmError>, usize) {
    let server = ScriptedEndpoint::answering(answers).await;
    let result = ask(config(&server), later()).await;
    (result, server.asked().len())
}

#[tokio::test]
async fn a_question_is_answered() {
    let server = ScriptedEndpoint::answering([ScriptedAnswer::text("all is well")]).await;
    let reply = ask(config(&server), later()).await.unwrap();
    assert_eq!(reply.text, "all is well");
    let asked = &server.asked()[0];
    assert_eq!(asked.path, "/v1/chat/completions");
    assert_eq!(asked.authorization.as_deref(), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!((&asked.body["model"], asked.last_text()), (&json!("gpt-4o-mini"), "what is up?"));
}

#[tokio::test]
async fn a_tool_call_is_returned() {
    let server =
        ScriptedEndpoint::answering([ScriptedAnswer::tool_call("read", &json!({"path": "/a"}))]).await;
    let tool = Tool { name: "read".to_owned(), description: "reads".to_owned(), parameters: json!({}) };
    let request = ChatRequest { tools: vec![tool], ..ChatRequest::new("s", "u") };
    let reply = Client::new(config(&server)).unwrap().chat(&request, later()).await.unwrap();
    assert_eq!(reply.tool_calls.len(), 1);
    assert_eq!(
        (reply.tool_calls[0].name.as_str(), reply.tool_calls[0].arguments.as_str()),
        ("read", r#"{"path":"/a"}"#)
    );
    assert_eq!(server.asked()[0].body["tools"][0]["function"]["name"], "read");
}

#[tokio::test]
async fn a_wrong_key_is_not_retried() {
    let body = format!(r#"{{"error":{{"message":"Incorrect API key: {KEY}"}}}}"#);
    assert_eq!(answered([ScriptedAnswer::status(401, body.clone())]).await, (Err(LlmError::Unauthorized), 1));
    let refused = LlmError::Refused { status: 400, message: "Incorrect API key: ***".to_owned() };
    assert_eq!(answered([ScriptedAnswer::status(400, body)]).await, (Err(refused), 1));
}

#[tokio::test]
async fn the_retry_after_header_is_respected() {
    let soon = ScriptedAnswer::status(429, "{}").header("retry-after-ms", "5");
    let (result, asked) = answered([soon.clone(), ScriptedAnswer::text("now")]).await;
    assert_eq!((result.unwrap().text.as_str(), asked), ("now", 2));
    // At most as often as configured.
    let limited = LlmError::RateLimited { retry_after: Some(Duration::from_millis(5)) };
    assert_eq!(answered([soon]).await, (Err(limited), 3));
    // A wait beyond the deadline is not begun.
    let tomorrow = ScriptedAnswer::status(429, "{}").header("retry-after", "86400");
    let limited = LlmError::RateLimited { retry_after: Some(Duration::from_secs(86_400)) };
    assert_eq!(answered([tomorrow, ScriptedAnswer::text("never")]).await, (Err(limited), 1));
}

#[tokio::test]
async fn a_temporary_failure_is_retried() {
    let (result, asked) =
        answered([ScriptedAnswer::status(500, "oops"), ScriptedAnswer::text("again")]).await;
    assert_eq!((result.unwrap().text.as_str(), asked), ("again", 2));
    assert_eq!(answered([ScriptedAnswer::status(503, KEY)]).await, (Err(LlmError::Server(503)), 3));
}

#[tokio::test]
async fn a_slow_model_times_out() {
    let server = ScriptedEndpoint::answering([ScriptedAnswer::never()]).await;
    let short_timeout = LlmConfig { timeout: Duration::from_millis(50), ..config(&server) };
    assert_eq!(ask(short_timeout, later()).await, Err(LlmError::TimedOut));
    assert!(server.asked().len() <= 1, "it is not tried again");
    // The caller's deadline applies even if the client's timeout is longer.
    let long_timeout = LlmConfig { timeout: Duration::from_secs(3600), ..config(&server) };
    let asking = ask(long_timeout, Instant::now() + Duration::from_millis(50));
    let result = tokio::time::timeout(Duration::from_secs(20), asking).await.unwrap();
    assert_eq!(result, Err(LlmError::TimedOut));
}

#[tokio::test]
async fn malformed_replies_are_errors() {
    let malformed = |what| (Err(LlmError::Malformed(what)), 1);
    assert_eq!(answered([ScriptedAnswer::text("cut").cut()]).await, malformed(MalformedReply::BrokeOff));
    assert_eq!(
        answered([ScriptedAnswer::status(200, format!("<p>{KEY}"))]).await,
        malformed(MalformedReply::NotJson)
    );
    assert_eq!(
        answered([ScriptedAnswer::status(200, r#"{"choices":[]}"#)]).await,
        malformed(MalformedReply::NoChoices)
    );
    let long = format!(r#"{{"choices":[],"x":"{}"}}"#, "y".repeat(1 << 20));
    assert_eq!(answered([ScriptedAnswer::status(200, long)]).await, malformed(MalformedReply::TooLong));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = ScriptedEndpoint::answering([ScriptedAnswer::text("caught")]).await;
    let redirect = ScriptedAnswer::status(307, "").header("location", &elsewhere.url());
    let (result, asked) = answered([redirect]).await;
    assert!(matches!(result, Err(LlmError::Refused { status: 307, .. })), "{result:?}");
    assert_eq!((asked, elsewhere.asked().len()), (1, 0));
}

#[tokio::test]
async fn an_unreachable_endpoint_is_retried_and_reported() {
    let server = ScriptedEndpoint::answering([ScriptedAnswer::text("")]).await;
    let gone = LlmConfig { retries: 1, ..config(&server) };
    drop(server);
    let (log, _while) = Logged::begin();
    let result = ask(gone, later()).await;
    assert!(matches!(&result, Err(LlmError::Unreachable(what)) if what.contains("127.0.0.1")), "{result:?}");
    assert_eq!(log.text().matches("asking the model").count(), 2, "it is tried again");
}

#[tokio::test]
async fn a_local_endpoint_needs_no_key() {
    let server = ScriptedEndpoint::answering([ScriptedAnswer::text("local")]).await;
    let result = ask(LlmConfig { api_key: None, ..config(&server) }, later()).await;
    assert_eq!(result.unwrap().text, "local");
    assert_eq!(server.asked()[0].authorization, None);
    assert_eq!(ask(LlmConfig::default(), later()).await, Err(LlmError::NoKey));
}

#[tokio::test]
async fn simultaneous_calls_are_limited() {
    let server = ScriptedEndpoint::held(|asked| ScriptedAnswer::text(asked.last_text())).await;
    let client = Arc::new(Client::new(LlmConfig { concurrency: 2, ..config(&server) }).unwrap());
    let call = |i: usize| {
        let client = Arc::clone(&client);
        tokio::spawn(async move { client.chat(&ChatRequest::new("", i.to_string()), later()).await })
    };
    let calls: Vec<_> = (0..6).map(call).collect();
    server.arrived(2).await;
    server.release(6);
    for (i, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().unwrap().text, i.to_string());
    }
    assert_eq!((server.open_max(), server.asked().len()), (2, 6));
}

#[tokio::test]
async fn too_many_waiting_calls_are_refused() {
    let server = ScriptedEndpoint::held(|_| ScriptedAnswer::text("")).await;
    let client = Client::new(LlmConfig { concurrency: 1, ..config(&server) }).unwrap();
    let request = ChatRequest::new("", "");
    let mut calls: Vec<_> = (0..258).map(|_| Box::pin(client.chat(&request, later()))).collect();
    let refused_calls = std::future::poll_fn(|cx| {
        let answers = calls.iter_mut().map(|call| call.as_mut().poll(cx));
        Poll::Ready(answers.filter(|answer| *answer == Poll::Ready(Err(LlmError::Busy))).count())
    })
    .await;
    // One call is under way, and 256 wait.
    assert_eq!(refused_calls, 1);
}

/// Subscribes all threads to every event. Without this, the first thread that reaches an event may have no subscriber;
/// then `tracing` disables the event for all threads, and a test that collects the log misses it.
fn subscribe_everywhere() {
    static SUBSCRIBED: std::sync::Once = std::sync::Once::new();
    SUBSCRIBED.call_once(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(std::io::sink)
            .finish();
        tracing::subscriber::set_global_default(subscriber).expect("no other subscriber is set");
    });
}

/// A log of everything at every level.
#[derive(Clone, Default)]
struct Logged(Arc<std::sync::Mutex<Vec<u8>>>);

impl Logged {
    /// Collects the log of this thread while the guard lives.
    fn begin() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("nobody panics here").clone()).expect("a log is text")
    }
}

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics here").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn logged(answers: impl IntoIterator<Item = ScriptedAnswer>, question: &str) -> String {
    let (log, _while) = Logged::begin();
    let server = ScriptedEndpoint::answering(answers).await;
    let client =
        Client::new(LlmConfig { retries: 0, ..config(&server) }).expect("the scripted endpoint is local");
    // The test looks at the log only.
    let _ = client.chat(&ChatRequest::new("be brief", question), later()).await;
    log.text()
}

#[tokio::test]
async fn a_failure_is_logged_as_an_error_with_its_status() {
    for (status, words) in
        [(500, "failed with status 500"), (401, "does not accept the key"), (404, "(status 404)")]
    {
        let log = logged([ScriptedAnswer::status(status, "{}")], "hello").await;
        let error = log.lines().find(|line| line.contains("ERROR")).expect("an error is logged");
        assert!(error.contains(words) && error.contains(&format!("status={status}")), "{error}");
        assert!(error.contains("gpt-4o-mini") && !log.contains("canary"), "{log}");
    }
}

#[tokio::test]
async fn a_trace_shows_request_and_answer_without_secrets() {
    let secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let answer = format!("it was {KEY}, and {secret}");
    let log = logged([ScriptedAnswer::text(&answer)], &format!("what is {secret}?")).await;
    let traces: Vec<&str> = log.lines().filter(|line| line.contains("TRACE")).collect();
    let has = |words: &str| traces.iter().any(|line| line.contains(words));
    assert!(has("be brief") && has("what is [redacted:"), "{log}");
    assert!(has("it was ***") && has("status=200"), "{log}");
    assert!(!log.contains("canary") && !log.contains(secret), "{log}");
}
