//! `scrubjay wrap --url --listen`: HTTP on both sides, and nothing added, checked or answered in between.

use std::path::Path;

use serde_json::{Value, json};

use super::rig::{Served, initialize, modern, scratch, scrubjay, text};
use super::upstream::{Upstream, UpstreamRequest, events, json as answer, whole};

fn wrap(directory: &Path, upstream: &Upstream, options: &[&str]) -> Served {
    let options = [&["--url", upstream.url.as_str()], options].concat();
    Served::wrap(&directory.join("data"), &options, &[])
}

/// Returns everything in the data directory: the bytes of the files, and the output of commands.
fn recorded(directory: &Path) -> String {
    let data = directory.join("data");
    let listed: Value =
        serde_json::from_str(&scrubjay(&data, &["--json", "tape", "ls", "--all"])).expect("JSON");
    let mut all = String::new();
    for tape in listed.as_array().expect("a list") {
        let id = tape["id"].as_str().expect("an id");
        all += &scrubjay(&data, &["--json", "tape", "export", id, "--format", "jsonl"]);
    }
    all
}

#[test]
fn headers_of_the_host_and_refusals_of_the_server_pass() {
    let directory = scratch();
    let challenge = "Bearer error=\"invalid_token\", resource_metadata=\"https://auth.example/x?y=z\"";
    let upstream = Upstream::start(move |_| {
        let headers =
            format!("WWW-Authenticate: {challenge}\r\nContent-Type: application/json\r\nX-Odd: 1\r\n");
        whole("401 Unauthorized", &headers, r#"{"error":"invalid_token"}"#)
    });
    let served = wrap(directory.path(), &upstream, &["--header", "X-Key: configured"]);
    let host = served.target().with("Authorization", "Bearer canary-host").with("X-Key", "of the host");
    let host =
        host.with("Cookie", "canary=cookie").with("X-Own", "canary-own").with("Mcp-Param-Region", "eu");
    let reply = host.post(&initialize(1).to_string());
    assert_eq!(reply.status, 401);
    assert_eq!(reply.header("www-authenticate"), Some(challenge));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("x-odd"), Some("1"));
    assert_eq!(reply.text(), r#"{"error":"invalid_token"}"#);
    let asked = upstream.asked();
    let [asked] = asked.as_slice() else { panic!("{asked:?}") };
    for (name, value) in [
        ("authorization", Some("Bearer canary-host")),
        ("x-own", Some("canary-own")),
        ("mcp-param-region", Some("eu")),
        ("x-key", Some("configured")),
        ("cookie", None),
        ("host", upstream.url.strip_prefix("http://").and_then(|url| url.strip_suffix("/mcp"))),
    ] {
        assert_eq!(asked.header(name), value, "{name}");
    }
    drop(served);
    let recorded = recorded(directory.path());
    assert!(recorded.contains("invalid_token") && recorded.contains("http_status"), "{recorded}");
    assert!(!recorded.contains("canary") && !recorded.contains("configured"), "{recorded}");
}

#[test]
fn our_own_token_is_not_forwarded() {
    let directory = scratch();
    let file = directory.path().join("token");
    super::rig::write_private(&file, "canary-of-ours\n");
    let upstream = Upstream::start(|_| answer("", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
    let served = wrap(directory.path(), &upstream, &["--auth-token-file", &text(&file)]);
    let hello = initialize(1).to_string();
    assert_eq!(served.target().post(&hello).status, 401);
    assert!(upstream.asked().is_empty(), "a refused client's request does not reach the server");
    let host = served.target().with("Authorization", "bearer canary-of-ours");
    assert_eq!(host.post(&hello).status, 200);
    drop(served);
    let own = ["--auth-token-file", &text(&file), "--header", "Authorization: Bearer theirs"];
    let served = wrap(directory.path(), &upstream, &own);
    assert_eq!(served.target().with("Authorization", "Bearer canary-of-ours").post(&hello).status, 200);
    let shown: Vec<Option<String>> =
        upstream.asked().iter().map(|asked| asked.header("authorization").map(str::to_owned)).collect();
    assert_eq!(shown, [None, Some("Bearer theirs".to_owned())]);
    drop(served);
    assert!(!recorded(directory.path()).contains("canary"));
}

#[test]
fn a_session_belongs_to_the_token_that_opened_it() {
    let directory = scratch();
    let file = directory.path().join("tokens");
    super::rig::write_private(&file, "anna: the-token-of-anna-1\nbob: the-token-of-bob-2\n");
    let upstream = Upstream::start(|asked| {
        // On this request the server gives out a session id that it gave out before.
        let session = if asked.header("x-again").is_some() { "s-anna" } else { "s-bob" };
        let session = asked.header("x-give").unwrap_or(session);
        answer(&format!("Mcp-Session-Id: {session}\r\n"), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)
    });
    let served = wrap(directory.path(), &upstream, &["--auth-token-file", &text(&file)]);
    let anna = served.target().with("Authorization", "Bearer the-token-of-anna-1");
    let bob = served.target().with("Authorization", "Bearer the-token-of-bob-2");
    let hello = initialize(1).to_string();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    assert_eq!(anna.clone().with("X-Give", "s-anna").post(&hello).status, 200);
    assert_eq!(bob.post(&hello).status, 200);
    assert_eq!(bob.clone().with("Mcp-Session-Id", "s-bob").post(&list).status, 200);
    let asked = upstream.asked().len();
    for thief in [
        bob.clone().with("Mcp-Session-Id", "s-anna"),
        bob.clone().with("Mcp-Session-Id", "made-up"),
        bob.clone().with("Mcp-Session-Id", "s-bob").also("Mcp-Session-Id", "s-anna"),
        bob.clone().with("Mcp_Session_Id", "s-anna"),
    ] {
        for reply in [thief.post(&list), thief.post(&hello), thief.get(), thief.delete()] {
            assert_eq!(reply.status, 404, "{thief:?}");
        }
    }
    assert_eq!(upstream.asked().len(), asked, "the request does not reach the server");
    assert_eq!(
        bob.clone().with("X-Again", "1").post(&hello).status,
        502,
        "the session belongs to another token"
    );
    let anna = anna.with("Mcp-Session-Id", "s-anna");
    assert_eq!(anna.post(&list).status, 200);
    assert_eq!(anna.delete().status, 200);
    assert_eq!(anna.post(&list).status, 404, "the session has ended");
    drop(served);
    let recorded = recorded(directory.path());
    assert!(recorded.contains("session_principal") && recorded.contains("unknown session"), "{recorded}");
}

#[test]
fn with_a_single_token_an_unknown_session_is_passed_on() {
    let directory = scratch();
    let file = directory.path().join("token");
    super::rig::write_private(&file, "the-one-token-of-all\n");
    let upstream = Upstream::start(|_| answer("", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
    let served = wrap(directory.path(), &upstream, &["--auth-token-file", &text(&file)]);
    let target = served.target().with("Authorization", "Bearer the-one-token-of-all");
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    assert_eq!(target.with("Mcp-Session-Id", "of-before").post(&list).status, 200);
}

#[test]
fn mirrored_headers_follow_changes_by_rules() {
    let directory = scratch();
    let rules = json!({ "recorder": { "rules": [
        { "name": "home", "match": { "tools": ["get"], "direction": "client_to_server" },
          "action": "modify", "set": { "$.arguments.region": "us" } },
        { "name": "other", "match": { "tools": ["evil"], "direction": "client_to_server" },
          "action": "modify", "set": { "$.name": "good" } },
    ] } });
    let config = directory.path().join("config.json");
    std::fs::write(&config, rules.to_string()).expect("the test can write in its directory");
    let upstream = Upstream::start(|_| answer("", r#"{"jsonrpc":"2.0","id":2,"result":{}}"#));
    let data = directory.path().join("data");
    let served = Served::wrap_configured(&config, &data, &["--url", &upstream.url]);
    let call = |name: &str, arguments: Value, region: &str| {
        let target = served.target().with("Mcp-Method", "tools/call").with("Mcp-Name", name);
        let call = modern(2, "tools/call", &json!({ "name": name, "arguments": arguments }));
        target.with("Mcp-Param-Region", region).post(&call.to_string()).status
    };
    assert_eq!(call("get", json!({ "region": "eu" }), "eu"), 200);
    assert_eq!(call("evil", json!({ "region": "eu" }), "eu"), 200);
    // It is unknown which of the two arguments the header repeats.
    assert_eq!(call("get", json!({ "region": "eu", "lang": "eu" }), "eu"), 400);
    assert_eq!(call("put", json!({ "region": "us" }), "eu"), 400);
    let mirrored = |asked: &UpstreamRequest| {
        ["mcp-method", "mcp-name", "mcp-param-region"].map(|name| asked.header(name).map(str::to_owned))
    };
    let mirrored: Vec<_> = upstream.asked().iter().map(mirrored).collect();
    let expected = [["tools/call", "get", "us"], ["tools/call", "good", "eu"]];
    assert_eq!(mirrored, expected.map(|all| all.map(|value| Some(value.to_owned()))));
}

#[test]
fn requests_and_responses_pass_unchecked() {
    let directory = scratch();
    let upstream = Upstream::start(|asked| whole("418 I'm a teapot", "X-Odd: 1\r\n", &asked.text()));
    let served = wrap(directory.path(), &upstream, &[]);
    let target = served.target().with("MCP-Protocol-Version", "1999-01-01").with("Mcp-Name", "other");
    let call = modern(2, "tools/call", &json!({ "name": "x" })).to_string();
    let bodies = [
        call.as_str(),
        r#"[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b"}]"#,
        "{ \"jsonrpc\" : \"2.0\",\r\n\"id\":1.0,  \"method\":\"odd/method\" }\n",
        r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#,
        "no JSON",
        "",
    ];
    for body in bodies {
        let reply = target.clone().with("Content-Type", "text/odd").with("Accept", "text/odd").post(body);
        assert_eq!((reply.status, reply.header("x-odd")), (418, Some("1")), "{body}");
        assert_eq!(reply.text(), body);
    }
    assert_eq!(target.get().status, 418);
    assert_eq!(target.clone().with("Mcp-Session-Id", "made-up").delete().status, 418);
    let asked = upstream.asked();
    let sent: Vec<String> = asked.iter().take(bodies.len()).map(UpstreamRequest::text).collect();
    assert_eq!(sent, bodies);
    assert!(asked.iter().all(|asked| asked.header("mcp-protocol-version") == Some("1999-01-01")));
    assert_eq!(asked[bodies.len() + 1].method, "DELETE");
    // An unreachable server gets another status than one that answers.
    drop(served);
    let data = directory.path().join("gone");
    let served = Served::wrap(&data, &["--url", "http://127.0.0.1:1/mcp"], &[]);
    let reply = served.target().post(&call);
    assert_eq!(reply.status, 502);
    assert_eq!(reply.json()["id"], 2);
}

#[test]
fn streams_pass_unchanged_and_each_session_has_a_tape() {
    const STREAM: &str = ": odd\n\nid: 7\nretry: 5\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"notifications/x\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n\ndata: half";
    let directory = scratch();
    let opened = std::sync::atomic::AtomicUsize::new(0);
    let upstream = Upstream::start(move |asked| {
        if !asked.text().contains("initialize\"") {
            return events(STREAM);
        }
        let number = opened.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        answer(&format!("Mcp-Session-Id: s-{number}\r\n"), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)
    });
    let served = wrap(directory.path(), &upstream, &[]);
    let sessions: Vec<_> = ["s-0", "s-1"]
        .map(|session| {
            let reply = served.target().post(&initialize(1).to_string());
            assert_eq!(reply.header("mcp-session-id"), Some(session), "the server's own session");
            served.target().with("Mcp-Session-Id", session)
        })
        .into();
    for session in &sessions {
        let listed = session.post(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }).to_string());
        assert!(listed.is_stream());
        assert_eq!(listed.text(), STREAM);
    }
    drop(served);
    let data = directory.path().join("data");
    let listed: Value =
        serde_json::from_str(&scrubjay(&data, &["--json", "tape", "ls", "--all"])).expect("JSON");
    let tapes: Vec<&Value> =
        listed.as_array().expect("a list").iter().filter(|t| t["name"] == "odd").collect();
    assert_eq!(tapes.len(), 2, "{listed}");
    for tape in tapes {
        let id = tape["id"].as_str().expect("an id");
        let exported = scrubjay(&data, &["--json", "tape", "export", id, "--format", "jsonl"]);
        let methods = exported.matches("tools/list").count();
        assert!(methods > 0 && exported.contains("notifications/x"), "{exported}");
        assert!(!exported.contains("half"), "{exported}");
    }
}

#[test]
fn rules_apply_to_proxied_messages() {
    let directory = scratch();
    let rules = json!({ "recorder": { "rules": [
        { "name": "no-rm", "match": { "tools": ["rm"] }, "action": "block", "message": "no" },
    ] } });
    let config = directory.path().join("config.json");
    std::fs::write(&config, rules.to_string()).expect("the test can write in its directory");
    let upstream = Upstream::start(|_| answer("", r#"{"jsonrpc":"2.0","id":2,"result":{}}"#));
    let data = directory.path().join("data");
    let served = Served::wrap_configured(&config, &data, &["--url", &upstream.url]);
    let call =
        |tool: &str| served.target().post(&modern(2, "tools/call", &json!({ "name": tool })).to_string());
    let blocked = call("rm").json();
    assert!(blocked["error"]["message"].is_string() && blocked["id"] == 2, "{blocked}");
    // Messages that rules cannot read, and a server might, do not pass.
    let packed = served.target().with("Content-Encoding", "gzip").post("{}");
    assert_eq!(packed.status, 415);
    for (first, second) in [("identity", "deflate"), ("identity, gzip", "identity"), ("Identity", "x\u{e9}")]
    {
        let target = served.target().with("Content-Encoding", first).also("Content-Encoding", second);
        assert_eq!(target.post("{}").status, 415, "{first} {second}");
    }
    assert_eq!(
        served.target().also("Content-Type", "application/json; charset=utf-16").post("{}").status,
        415
    );
    let wide: Vec<u8> = "{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(served.target().post_bytes(&wide).status, 400);
    assert!(upstream.asked().is_empty());
    assert_eq!(call("ls").json()["result"], json!({}));
    drop(served);
    let recorded = recorded(directory.path());
    assert_eq!(recorded.matches("\"role\":\"request\"").count(), 2, "{recorded}");
}

#[test]
fn the_message_limit_applies_in_both_directions() {
    let directory = scratch();
    let upstream = Upstream::start(|_| answer("", &format!("\"{}\"", "y".repeat(5000))));
    let served = wrap(directory.path(), &upstream, &["--max-message-size", "4KiB"]);
    assert_eq!(served.target().post(&"x".repeat(5000)).status, 413);
    assert!(upstream.asked().is_empty());
    let reply = served.target().post(&initialize(1).to_string());
    assert_eq!(reply.status, 502);
    assert!(reply.json()["error"]["message"].as_str().is_some_and(|m| m.contains("4096")));
}
