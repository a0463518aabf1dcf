//! Secrets over HTTP: in addresses, headers and bodies, to backends, to the model, and from clients.

use std::sync::{Arc, mpsc};

use scrubjay_llm::scripted::{ScriptedAnswer, ScriptedEndpoint};
use serde_json::{Value, json};

use super::super::http::Target;
use super::super::rig::{DEADLINE, Piped, Served, initialize, open_session, text};
use super::super::upstream::{Upstream, whole};
use super::CanaryRun;

pub(super) fn pass(run: &mut CanaryRun) {
    behind(run);
    before(run);
    routed(run);
}

/// Puts secrets into the address of an HTTP backend, the requests to it, and its answers.
fn behind(run: &mut CanaryRun) {
    let (words, everything) = (run.words(), run.all_in_one());
    let answer = {
        let (words, everything) = (words.clone(), everything.clone());
        move |asked: &super::super::upstream::UpstreamRequest| {
            let headers: String = words
                .iter()
                .enumerate()
                .map(|(n, word)| format!("X-Canary-{n}: {word}\r\nSet-Cookie: sid={word}\r\n"))
                .collect();
            let message: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
            let result = match message["method"].as_str() {
                Some("initialize") => {
                    json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "far", "version": "1" } })
                }
                Some("tools/list") => {
                    json!({ "tools": [{ "name": "far", "inputSchema": { "type": "object" } }] })
                }
                Some("tools/call") => return whole("500 Broken", &headers, &everything),
                Some("notifications/initialized") => return whole("202 Accepted", &headers, ""),
                _ => return whole("404 Not Found", &headers, &everything),
            };
            let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
            whole("200 OK", &format!("{headers}Content-Type: application/json\r\n"), &body)
        }
    };
    let upstream = Upstream::start(answer);
    let password = &run.canaries[5].needle.clone();
    let url = upstream.url.replace("http://", &format!("http://user:{password}@"));
    let url = format!("{url}?token={}&x=1", run.canaries[6].needle);
    let headers: serde_json::Map<String, Value> = words
        .iter()
        .enumerate()
        .map(|(n, word)| (format!("X-Out-{n}"), json!(word)))
        .chain([("Authorization".to_owned(), json!(format!("Bearer {}", run.canaries[7].needle)))])
        .collect();
    let dead = format!("http://user:{password}@127.0.0.1:9/mcp?api_key={password}");
    let settings = json!({ "backends": [
        { "id": "far", "type": "http", "url": url, "headers": headers },
        { "id": "dead", "type": "http", "url": dead },
    ] });
    let mut command = run.command("remote", &settings);
    command.args(["serve", "--toolsets", "none"]);
    let mut piped = Piped::started(command);
    piped.ask(&initialize(1));
    let listed =
        piped.ask(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" })).pop().expect("an answer");
    run.outputs.push(("the list of an HTTP backend".to_owned(), listed.to_string().into_bytes()));
    piped.ask(&json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": { "name": "far", "arguments": {} } }));
    piped.finish();
    run.cover("address of an HTTP backend", 3);
    run.cover("headers to an HTTP backend", words.len() + 1);
    run.cover("headers from an HTTP backend", words.len() * 2);
    run.cover("error body of an HTTP backend", run.canaries.len());
}

/// Puts secrets into all that clients send over HTTP: headers, sessions, bodies that are refused.
fn before(run: &mut CanaryRun) {
    let (texts, words) = (run.texts(), run.words());
    let config = run.path("inputs").join("front.yaml");
    std::fs::write(&config, run.settings(&json!({})).to_string())
        .expect("the test can write in its directory");
    let data = run.data();
    let sample = ["sample-server".to_owned()];
    let backend = [&[env!("CARGO_BIN_EXE_scrubjay").to_owned()], &sample[..]].concat();
    let served = Served::start(&data, &["--config", &text(&config)], &backend);
    let target = served.target();
    let session = open_session(&target);
    for text in &texts {
        let one_line = text.replace('\n', "\\n");
        let _ = target.post(&format!("{{ {one_line}")).status;
        let _ = session.post(&format!("[\"{}\"]", one_line.replace('"', "'"))).status;
        let _ = target.clone().with("Content-Type", "text/plain").post(&one_line).status;
    }
    for word in &words {
        let _ = target
            .clone()
            .with("Mcp-Session-Id", word)
            .post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)
            .status;
        for header in
            ["Authorization", "Cookie", "X-Api-Key", "Origin", "Last-Event-ID", "User-Agent", "traceparent"]
        {
            let _ = post_with(&session, header, word);
        }
    }
    run.cover("request headers of a client", words.len() * 7);
    run.cover("refused HTTP body", texts.len() * 3);
    run.cover("unknown session id", words.len());
}

fn post_with(target: &Target, header: &str, value: &str) -> u16 {
    let call = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": { "name": "echo", "arguments": { "message": "hi", "text": "hi" } } });
    target.clone().with(header, value).post(&call.to_string()).status
}

/// Puts secrets into a task, into a model's answers, and into its errors.
fn routed(run: &mut CanaryRun) {
    let everything = run.all_in_one();
    let answers = [
        ScriptedAnswer::text(&everything),
        ScriptedAnswer::tool_call("echo", &json!({ "message": everything, "text": everything })),
        ScriptedAnswer::status(500, everything.clone()),
        ScriptedAnswer::status(401, json!({ "error": { "message": everything } }).to_string()),
    ];
    let url = model(answers.iter().cycle().take(48).cloned().collect());
    let sample = json!({ "id": "sample", "type": "stdio", "command": env!("CARGO_BIN_EXE_scrubjay"), "args": ["sample-server"] });
    let mut command = run.command("routed", &json!({ "backends": [sample] }));
    command.args(["serve", "--toolsets", "router"]);
    command.env("OPENAI_BASE_URL", url).env("OPENAI_API_KEY", &run.canaries[30].text);
    let mut piped = Piped::started(command);
    // A model that cannot be reached.
    let mut greeting = initialize(1);
    greeting["params"]["capabilities"] = json!({});
    piped.ask(&greeting);
    piped.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    for id in 2..8 {
        // A long task is refused before a model gets it, a short one is not.
        let task = if id % 2 == 0 {
            format!("say this: {everything}")
        } else {
            format!("echo {}", run.canaries[id].text)
        };
        let params = json!({ "name": "orchestrate_task", "arguments": { "query": task } });
        piped.ask(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }));
    }
    piped.finish();
    run.cover("task for the router", run.canaries.len());
    run.cover("answer of the model", run.canaries.len());
    run.cover("error body of the model", run.canaries.len());
}

/// Starts a model that gives these answers, and then always the last one.
fn model(answers: Vec<ScriptedAnswer>) -> String {
    let (made, url) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let model = Arc::new(ScriptedEndpoint::answering(answers).await);
            made.send(model.url()).expect("the test waits");
            std::future::pending::<()>().await;
            drop(model);
        });
    });
    url.recv_timeout(DEADLINE).expect("the endpoint starts")
}
