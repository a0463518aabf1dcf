//! The debug endpoints of a running gateway: what they show, who has access, and what they never show.

mod rig;

use serde_json::{Value, json};

use super::rig::{DEADLINE, until};
use rig::{FollowerSocket, start, start_with_backends, with_options};

const KEY: &str = "sk-canary-0123456789abcdefghij";
const SECRET: &str = "c4n4ry-53cr3t";

fn names<'v>(entries: &'v [Value], key: &str) -> Vec<&'v str> {
    entries.iter().map(|entry| entry[key].as_str().unwrap_or_default()).collect()
}

/// Returns the traced messages of calls.
fn calls(trace: Value) -> Vec<Value> {
    let Value::Array(trace) = trace else { panic!("no list: {trace}") };
    trace.into_iter().filter(|entry| entry["method"] == "tools/call").collect()
}

#[test]
fn every_endpoint_returns_its_documented_fields() {
    let mut gateway = start(&[]);
    gateway.open();
    gateway.call("echo", &json!({ "text": "hello" }));
    let status = gateway.get("/api/status");
    assert_eq!((&status["status"], &status["name"]), (&json!("running"), &json!("scrubjay")));
    assert_eq!((&status["sessions"], &status["backends"]), (&json!(1), &json!({ "total": 1, "ready": 1 })));
    assert!(status["uptimeMs"].is_u64() && status["startedAt"].as_u64() <= status["timestamp"].as_u64());
    let backends = gateway.get("/api/backends");
    assert_eq!(
        backends,
        json!([{ "id": "sample", "displayName": "The sample", "isReady": true, "type": "stdio", "connections": 1 }])
    );
    let config = gateway.get("/api/config");
    assert_eq!((&config["logLevel"], &config["DEBUG_PORT"]), (&json!("debug"), &json!(0)));
    assert_eq!((&config["OPENAI_API_KEY"], &config["backends"][0]["id"]), (&json!("***"), &json!("sample")));
    assert_eq!(config["backends"][0]["env"], json!({ "API_TOKEN": "***", "PLAIN": "seen" }));
    let logs = gateway.get("/api/logs");
    let logs = logs.as_array().unwrap();
    assert!(names(logs, "message").contains(&"backend ready"), "{logs:?}");
    let ready = logs.iter().find(|entry| entry["message"] == "backend ready").unwrap();
    assert_eq!((&ready["level"], &ready["details"]["backend"]), (&json!("INFO"), &json!("sample")));
    assert!(ready["timestamp"].is_u64());
    // Messages are traced on another thread, so they appear a moment later.
    let mut trace = Vec::new();
    until("the call is traced", || {
        trace = calls(gateway.get("/api/mcptrace?limit=1000"));
        trace.len() == 4
    });
    let directions =
        ["INCOMING_TO_GATEWAY", "OUTGOING_FROM_GATEWAY", "INCOMING_TO_GATEWAY", "OUTGOING_FROM_GATEWAY"];
    assert_eq!(names(&trace, "direction"), directions, "{trace:?}");
    assert_eq!(names(&trace, "backendId"), ["", "sample", "sample", ""]);
    assert_eq!(trace[0]["paramsOrResult"]["arguments"]["text"], "hello");
    assert_eq!(trace[3]["paramsOrResult"]["content"][0]["text"], "hello");
    assert!(trace[0]["id"] == trace[3]["id"] && trace[1]["id"] == trace[2]["id"]);
    gateway.call("no_such_tool", &json!({}));
    until("the error is traced", || {
        calls(gateway.get("/api/mcptrace")).last().is_some_and(|last| last["error"]["code"] == -32602)
    });
    assert_eq!(gateway.get("/api/mcptrace?limit=3").as_array().map(Vec::len), Some(3));
    for wrong in ["0", "1001", "many", ""] {
        assert_eq!(gateway.status(&format!("/api/logs?limit={wrong}")), 400, "{wrong}");
    }
    assert_eq!(gateway.status("/api/nothing"), 404);
}

#[test]
fn recordings_can_be_searched_while_the_gateway_runs() {
    let mut gateway = start(&[]);
    gateway.open();
    gateway.call("echo", &json!({ "text": "a needle \u{1b}[31m" }));
    gateway.call("fail", &json!({ "message": "no" }));
    let found = gateway.get("/api/search?q=tool%3Aecho+needle+-tool%3Anobody");
    assert_eq!(found["hits"][0]["name"], "echo", "{found}");
    assert!(found["total"].as_u64() >= Some(1) && found["total_is_exact"] == true, "{found}");
    assert!(found["hits"][0]["snippet"]["text"].as_str().unwrap().contains("needle"));
    assert!(found["facets"]["tools"].is_array() && found["query"].is_object(), "{found}");
    assert_eq!(gateway.get("/api/search?q=tool:echo%20error:true")["total"], 0);
    for wrong in ["/api/search", "/api/search?q=code:x", "/api/search?query=echo", "/api/search?q=%ff"] {
        assert_eq!(gateway.status(wrong), 400, "{wrong}");
    }
}

#[test]
fn both_sockets_report_events_as_they_happen() {
    let mut gateway = start(&[]);
    gateway.open();
    let (mut logs, mut trace) = (gateway.follow("/ws/logs"), gateway.follow("/ws/mcptrace"));
    assert_eq!(gateway.get("/api/status")["mcptrace"]["followers"], 1);
    gateway.call("echo", &json!({ "text": "while it happens" }));
    let received: Vec<Value> = (0..4).map(|_| trace.receive_call()).collect();
    assert_eq!(names(&received, "backendId"), ["", "sample", "sample", ""], "{received:?}");
    assert_eq!(received[0]["paramsOrResult"]["arguments"]["text"], "while it happens");
    gateway.task("echo the text hello back to me");
    loop {
        let line = logs.receive().unwrap();
        assert!(line["level"].is_string() && line["timestamp"].is_u64(), "{line}");
        if line["message"] == "a task was not routed" {
            break;
        }
    }
    drop((logs, trace));
    // A follower that left does not affect the others.
    gateway.call("echo", &json!({ "text": "again" }));
    until("the followers are removed", || gateway.get("/api/status")["mcptrace"]["followers"] == 0);
}

const PATHS: [&str; 8] = [
    "/api/status",
    "/api/backends",
    "/api/config",
    "/api/logs",
    "/api/mcptrace",
    "/api/search?q=x",
    "/ws/logs",
    "/ws/mcptrace",
];

/// Returns the other headers that a request to this path needs to be accepted, and the status of the answer.
fn accepted(path: &str) -> (&'static [(&'static str, &'static str)], u16) {
    if path.starts_with("/ws/") {
        let upgrade = &[
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        (upgrade, 101)
    } else {
        (&[], 200)
    }
}

#[test]
fn a_foreign_host_is_refused() {
    let gateway = start(&[]);
    let bearer = format!("Bearer {}", gateway.token);
    let port = gateway.address.rsplit_once(':').unwrap().1;
    for path in PATHS {
        let (upgrade, status) = accepted(path);
        let asked = |host: &str| {
            gateway
                .ask("GET", path, &[upgrade, &[("Host", host), ("Authorization", &bearer)]].concat())
                .status
        };
        assert_eq!(
            (asked(&gateway.address), asked(&format!("localhost:{port}"))),
            (status, status),
            "{path}"
        );
        for foreign in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", ""] {
            assert!([400, 403].contains(&asked(foreign)), "{path} for {foreign}");
        }
    }
}

#[test]
fn a_page_of_another_origin_is_refused() {
    let gateway = start(&[]);
    let bearer = format!("Bearer {}", gateway.token);
    let own = format!("http://{}", gateway.address);
    for path in PATHS {
        let (upgrade, status) = accepted(path);
        let asked = |name: &str, value: &str| {
            let headers = [("Host", gateway.address.as_str()), ("Authorization", &bearer), (name, value)];
            gateway.ask("GET", path, &[upgrade, &headers].concat())
        };
        assert_eq!(asked("Origin", &own).status, status, "{path}");
        for foreign in ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1"] {
            let answer = asked("Origin", foreign);
            assert_eq!(answer.status, 403, "{path} from {foreign}");
            assert!(answer.header("access-control-allow-origin").is_none());
        }
        assert_eq!(asked("Sec-Fetch-Site", "cross-site").status, 403, "{path}");
        assert_eq!(asked("Sec-Fetch-Site", "none").status, status, "{path}");
    }
}

#[test]
fn requests_without_the_token_are_refused() {
    let mut gateway = start(&[]);
    gateway.open();
    let (host, token) = (("Host", gateway.address.as_str()), gateway.token.as_str());
    let wrong = format!("Bearer {token}x");
    for path in PATHS {
        let (upgrade, _) = accepted(path);
        for headers in [&[host][..], &[host, ("Authorization", &wrong)], &[host, ("Authorization", token)]] {
            let answer = gateway.ask("GET", path, &[upgrade, headers].concat());
            assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")), "{path}");
        }
        let bearer = format!("Bearer {token}");
        assert_eq!(gateway.ask("POST", path, &[host, ("Authorization", &bearer)]).status, 405, "{path}");
    }
    assert_eq!(gateway.ask("GET", &format!("/api/config?token={token}"), &[host]).status, 401);
    let mut browser = gateway.follow_without_header(&format!("/ws/mcptrace?token={token}"));
    gateway.call("echo", &json!({ "text": "for a browser" }));
    assert_eq!(browser.receive_call()["paramsOrResult"]["arguments"]["text"], "for a browser");
}

#[test]
fn no_endpoint_shows_a_secret() {
    // One more server, which prints its secrets before it ends.
    let dying = json!({ "id": "dying", "type": "stdio", "command": "sh",
        "args": ["-c", format!("echo password={SECRET} {KEY} >&2; exit 3")] });
    let mut gateway =
        start_with_backends(&[dying], &[("OPENAI_API_KEY", KEY), ("SCRUBJAY_LOG_LEVEL", "trace")]);
    let mut trace = gateway.follow("/ws/mcptrace");
    gateway.open_with(&json!({ "OPENAI_API_KEY": KEY, "logLevel": "trace" }));
    gateway.call(
        "echo",
        &json!({ "text": "seen", "password": SECRET, "authorization": format!("Bearer {KEY}") }),
    );
    gateway.call("fail", &json!({ "message": format!("token={SECRET} {KEY}") }));
    gateway.task(&format!("echo {KEY} back to me"));
    let mut received = String::new();
    while !received.contains("could not determine") {
        received += &trace.receive().unwrap().to_string();
    }
    assert!(received.contains("\"seen\""), "{received}");
    let shown: Vec<String> = ["status", "backends", "config", "logs?limit=1000", "mcptrace?limit=1000"]
        .iter()
        .map(|path| gateway.get(&format!("/api/{path}")).to_string())
        .chain([received])
        .collect();
    for text in &shown {
        assert!(!text.contains("canary") && !text.contains(SECRET), "{text}");
    }
    assert!(shown[1].contains("it said: ") && shown[1].contains("[redacted:"), "{}", shown[1]);
    assert!(shown[2].contains("\"seen\"") && shown[4].contains("[redacted:"), "{shown:?}");
}

#[test]
fn a_slow_follower_is_disconnected_and_delays_no_call() {
    let mut gateway = start(&[]);
    gateway.open();
    let paused = gateway.follow("/ws/mcptrace");
    let text = "x".repeat(30_000);
    // More than fits into the queue and the sockets; every call is still answered.
    until("the slow follower is disconnected", || {
        assert_eq!(gateway.call("echo", &json!({ "text": text }))["result"]["isError"], false);
        gateway.get("/api/status")["mcptrace"]["followers"] == 0
    });
    drop(paused);
    let kept = gateway.get("/api/mcptrace?limit=1000").to_string();
    assert!(kept.len() <= 9 << 20, "{} bytes are kept", kept.len());
    let talking = gateway.follow("/ws/logs");
    talking.send_until_closed();
    assert_eq!(gateway.call("echo", &json!({ "text": "fine" }))["result"]["isError"], false);
}

#[test]
fn followers_and_connections_are_limited() {
    let mut gateway = start(&[]);
    gateway.open();
    let sockets: Vec<FollowerSocket> = (0..16).map(|_| gateway.follow("/ws/logs")).collect();
    assert_eq!(gateway.follow_refused("/ws/logs"), 503);
    drop(sockets);
    let idle: Vec<_> = (0..200).map(|_| std::net::TcpStream::connect(&gateway.address).unwrap()).collect();
    // A connection beyond the limit is closed at once and not read; otherwise it would wait for a request.
    let mut last = idle.last().unwrap();
    last.set_read_timeout(Some(DEADLINE)).unwrap();
    assert!(matches!(std::io::Read::read(&mut last, &mut [0]), Ok(0)), "the connection is closed");
    assert_eq!(gateway.call("echo", &json!({ "text": "fine" }))["result"]["isError"], false);
    drop(idle);
    let status = || gateway.try_status("/api/status");
    until("there is room again", || status() == Some(200));
}

#[test]
fn too_many_requests_get_429() {
    let gateway = start(&[]);
    let status = || gateway.try_status("/api/status");
    until("requests are refused with 429", || (0..500).any(|_| status() == Some(429)));
}

#[test]
fn a_client_can_enable_the_endpoints_with_its_options() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut gateway = with_options(&json!({ "DEBUG_PORT": port }));
    assert!(gateway.has_logged("cannot start the debug endpoints on 127.0.0.1"), "a port in use is reported");
    assert_eq!(gateway.call("echo", &json!({ "text": "still works" }))["result"]["isError"], false);
    drop(taken);
    let mut gateway = with_options(&json!({ "DEBUG_PORT": port }));
    gateway.find();
    assert!(gateway.address.ends_with(&format!(":{port}")));
    assert_eq!(gateway.get("/api/config")["DEBUG_PORT"], port);
    // Messages from before the endpoints were enabled are only on tape.
    gateway.call("echo", &json!({ "text": "traced" }));
    until("it is traced", || gateway.get("/api/mcptrace").to_string().contains("traced"));
    let token = gateway.token_file.clone();
    assert!(token.exists());
    gateway.finish();
    assert!(!token.exists(), "the token's file is removed with the gateway");
}

#[test]
fn the_endpoints_are_off_by_default() {
    let mut gateway = with_options(&Value::Null);
    gateway.call("echo", &json!({ "text": "x" }));
    assert!(!gateway.has_logged("debug endpoints"));
    assert!(!gateway.data().join("debug").exists());
}
