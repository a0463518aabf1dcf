//! Secrets in messages through `wrap`: forwarded unchanged, recorded without the secrets.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::CanaryRun;
use crate::harness::Lab;

/// The form in which a message contains a text.
type Template = (&'static str, fn(&str) -> Value);

fn request(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

fn result(result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "result": result })
}

fn call(arguments: Value) -> Value {
    request("tools/call", json!({ "name": "x", "arguments": arguments }))
}

fn notification(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

fn content(text: &str) -> Value {
    json!([{ "type": "text", "text": text }])
}

const TEMPLATES: [Template; 42] = [
    ("arguments of a call", |t| call(json!({ "x": t, "deep": [{ "y": [t] }] }))),
    ("key of an argument", |t| call(json!({ t: 1 }))),
    ("result text", |t| result(json!({ "content": content(t) }))),
    ("structured result", |t| result(json!({ "structuredContent": { "x": { "y": t } } }))),
    ("error message", |t| json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -1, "message": t } })),
    (
        "error data",
        |t| json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -1, "message": "no", "data": [t] } }),
    ),
    ("tool name", |t| request("tools/call", json!({ "name": t }))),
    ("tool description", |t| result(json!({ "tools": [{ "name": "a", "title": t, "description": t }] }))),
    ("tool schema", |t| {
        result(
            json!({ "tools": [{ "name": "a", "inputSchema": { "properties": { "x": { "default": t } } } }] }),
        )
    }),
    ("prompt name", |t| request("prompts/get", json!({ "name": t }))),
    ("prompt arguments", |t| request("prompts/get", json!({ "name": "a", "arguments": { "x": t } }))),
    ("prompt result", |t| {
        result(json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": t } }] }))
    }),
    ("resource name", |t| result(json!({ "resources": [{ "uri": "a://b", "name": t, "description": t }] }))),
    ("resource URI", |t| request("resources/read", json!({ "uri": format!("file:///x/{t}") }))),
    ("resource contents", |t| result(json!({ "contents": [{ "uri": "a://b", "text": t }] }))),
    ("resource blob", |t| {
        result(
            json!({ "contents": [{ "uri": "a://b", "blob": BASE64_STANDARD.encode(format!("x\n{t}\ny")) }] }),
        )
    }),
    ("server instructions", |t| result(json!({ "protocolVersion": "2025-11-25", "instructions": t }))),
    ("server info", |t| result(json!({ "serverInfo": { "name": t, "version": t } }))),
    ("server capabilities", |t| result(json!({ "capabilities": { "experimental": { "x": t } } }))),
    ("client info", |t| request("initialize", json!({ "clientInfo": { "name": t, "version": t } }))),
    ("client capabilities", |t| {
        request("initialize", json!({ "capabilities": { "experimental": { "x": t } } }))
    }),
    ("_meta of a request", |t| request("tools/call", json!({ "name": "x", "_meta": { "a/b": t } }))),
    ("_meta of a result", |t| result(json!({ "content": [], "_meta": { "a/b": { "c": t } } }))),
    ("progress message", |t| {
        notification("notifications/progress", json!({ "progressToken": 1, "progress": 1, "message": t }))
    }),
    ("progress token", |t| {
        notification("notifications/progress", json!({ "progressToken": t, "progress": 1 }))
    }),
    ("log notification", |t| {
        notification("notifications/message", json!({ "level": "info", "logger": t, "data": { "x": t } }))
    }),
    ("elicitation question", |t| {
        request("elicitation/create", json!({ "message": t, "requestedSchema": { "title": t } }))
    }),
    ("elicitation answer", |t| result(json!({ "action": "accept", "content": { "x": t } }))),
    ("sampling request", |t| {
        request(
            "sampling/createMessage",
            json!({ "systemPrompt": t, "messages": [{ "role": "user", "content": { "type": "text", "text": t } }] }),
        )
    }),
    ("sampling result", |t| {
        result(json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": t } }))
    }),
    ("roots", |t| result(json!({ "roots": [{ "uri": format!("file:///{t}"), "name": t }] }))),
    ("completion argument", |t| {
        request("completion/complete", json!({ "argument": { "name": "x", "value": t } }))
    }),
    ("completion values", |t| result(json!({ "completion": { "values": [t] } }))),
    ("cancellation reason", |t| {
        notification("notifications/cancelled", json!({ "requestId": 1, "reason": t }))
    }),
    ("unknown method", |t| request("odd", json!([t, { "x": t }]))),
    ("request id", |t| json!({ "jsonrpc": "2.0", "id": t, "method": "ping" })),
    ("JSON within a string", |t| {
        call(json!({ "x": json!({ "y": json!({ "z": t }).to_string() }).to_string() }))
    }),
    ("base64", |t| call(json!({ "x": BASE64_STANDARD.encode(format!("text {t} text")) }))),
    ("split by colours", |t| result(json!({ "content": content(&coloured(t)) }))),
    ("terminal hyperlink", |t| {
        result(json!({ "content": content(&format!("\x1b]8;;https://x.example\x1b\\{t}\x1b]8;;\x1b\\")) }))
    }),
    ("batch", |t| {
        json!([call(json!({ "x": t })), notification("notifications/message", json!({ "data": t }))])
    }),
    ("rule of the user", |t| call(json!({ "codename": t, "x": t }))),
];

/// Writes a text as `grep --color` shows a match in the middle of it.
fn coloured(text: &str) -> String {
    let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
    format!("found\x1b[m\x1b[K:\x1b[01;31m\x1b[K{}\x1b[32m{}\x1b[m\x1b[K", &text[..middle], &text[middle..])
}

pub(super) fn pass(run: &mut CanaryRun) {
    let config = run.path("inputs").join("wrap.json");
    std::fs::write(&config, run.settings(&json!({})).to_string())
        .expect("the test can write in its directory");
    let config = config.to_str().expect("a path in UTF-8").to_owned();
    let (texts, words) = (run.texts(), run.words());
    let lab = Lab::new().with_data(run.data());
    let mut wrapped =
        lab.wrap(&["cat"]).with(&["--config", &config, "--name", &format!("server {}", words[0])]).start();
    let mut exchange = |line: &str| {
        wrapped.send_line(line);
        assert_eq!(wrapped.line().as_deref(), Some(line), "the forwarded line is unchanged");
    };
    for (place, template) in TEMPLATES {
        for text in &texts {
            exchange(&template(text).to_string());
        }
        run.cover(place, texts.len());
    }
    for text in &texts {
        let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        exchange(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"x":"{escaped}"}}}}"#));
        // One line is one message.
        exchange(&format!("broken {{ {}", text.replace('\n', "\\n")));
    }
    run.cover("unicode escapes", texts.len());
    run.cover("line that is not JSON", texts.len());
    for canary in run.canaries.clone() {
        let value = format!("{}7", canary.needle);
        for name in ["password", "apiKey", "client_secret", "X-Api-Key", "refresh_token", "Authorization"] {
            exchange(&call(json!({ name: value, "headers": [[name, value]], "list": [{ "name": name, "value": value }] })).to_string());
        }
    }
    run.cover("field with a telling name", texts.len() * 6);
    assert_eq!(wrapped.leave(), 0);
    run.cover("tape name", 1);
    too_long(run, &lab, &config, &texts);
    standard_error(run, &lab, &config);
}

fn too_long(run: &mut CanaryRun, lab: &Lab, config: &str, texts: &[String]) {
    let options = ["--config", config, "--max-message-size", "64KiB"];
    let mut wrapped = lab.wrap(&["cat"]).with(&options).start();
    for text in texts {
        let long = call(json!({ "x": text, "y": "long ".repeat(14_000) })).to_string();
        wrapped.send_line(&long);
        assert!(wrapped.line().expect("a refusal").contains("limit"));
    }
    assert_eq!(wrapped.leave(), 0);
    run.cover("message that is too long", texts.len());
}

fn standard_error(run: &mut CanaryRun, lab: &Lab, config: &str) {
    let (texts, words) = (run.texts(), run.words());
    let script = "printf '%s\\n' \"$@\" >&2; env >&2; printf '\\033[31m%s\\033[0m\\n' \"$@\" >&2; echo done";
    let mut command = vec!["sh", "-c", script, "sh"];
    command.extend(texts.iter().map(String::as_str));
    let exports: Vec<String> =
        words.iter().enumerate().map(|(n, word)| format!("export CANARY_{n}='{word}'")).collect();
    let wrapped = lab.wrap(&command).with(&["--config", config]).after(&exports.join("\n")).start();
    // The host gets the standard error unchanged.
    wrapped.leave();
    run.cover("command line of a wrapped server", texts.len());
    run.cover("environment of a wrapped server", words.len());
    run.cover("standard error of a wrapped server", texts.len() * 2);
}
