//! Secrets in everything that a backend of the gateway sends, receives and is started with.

use serde_json::{Value, json};

use super::super::rig::{Piped, text, until};
use super::CanaryRun;

/// A server that puts the secrets of a file into every text that it sends.
const SERVER: &str = r#"
import json, os, sys
texts = open(sys.argv[1]).read().split("\x1e")
words = open(sys.argv[2]).read().split("\x1e")
everything = "\n\n".join(texts)
def complain(text):
    sys.stderr.write(text + "\n"); sys.stderr.flush()
def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n"); sys.stdout.flush()
complain(everything)
for key, value in os.environ.items():
    complain(key + "=" + value)
for line in sys.stdin:
    message = json.loads(line)
    method, params, id = message.get("method"), message.get("params") or {}, message.get("id")
    if id is None:
        continue
    if method == "initialize":
        say(id=id, result={"protocolVersion": "2025-11-25", "instructions": everything,
            "serverInfo": {"name": everything, "version": "1"},
            "capabilities": {"tools": {}, "prompts": {}, "resources": {}, "logging": {}, "experimental": {"x": {"y": everything}}}})
    elif method == "tools/list":
        tools = [{"name": w, "description": t, "inputSchema": {"type": "object", "description": t}} for w, t in zip(words, texts)]
        tools += [{"name": n, "inputSchema": {"type": "object"}} for n in ("die", "fail")]
        say(id=id, result={"tools": tools})
    elif method == "prompts/list":
        say(id=id, result={"prompts": [{"name": w, "description": everything} for w in words]})
    elif method == "resources/list":
        say(id=id, result={"resources": [{"uri": "canary://" + w, "name": w} for w in words]})
    elif method == "resources/templates/list":
        say(id=id, result={"resourceTemplates": []})
    elif method == "tools/call" and params.get("name") == "die":
        for text in texts:
            complain("\x1b[31m" + text + "\x1b[0m")
        os._exit(3)
    elif method == "tools/call" and params.get("name") == "fail":
        say(id=id, error={"code": -32000, "message": everything, "data": {"x": texts}})
    elif method == "tools/call":
        say(method="notifications/message", params={"level": "info", "data": everything})
        say(id=id, result={"content": [{"type": "text", "text": everything}], "structuredContent": params})
    else:
        say(id=id, result={"contents": [{"uri": "a://b", "text": everything}], "messages": [], "completion": {"values": []}})
"#;

struct Client {
    piped: Piped,
    next: u64,
}

impl Client {
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.piped.ask(&request).pop().expect("an answer")
    }
}

pub(super) fn pass(run: &mut CanaryRun) {
    let inputs = run.path("inputs");
    let (texts, words) = (run.texts(), run.words());
    std::fs::write(inputs.join("server.py"), SERVER).expect("the test can write in its directory");
    std::fs::write(inputs.join("texts"), texts.join("\x1e")).expect("the test can write in its directory");
    std::fs::write(inputs.join("words"), words.join("\x1e")).expect("the test can write in its directory");
    // Ids are short and plain.
    let id = words.iter().find(|word| word.starts_with("ghp_")).expect("a token without odd characters");
    let mut args = ["server.py", "texts", "words"].map(|name| text(&inputs.join(name))).to_vec();
    args.extend(texts.clone());
    let environment: serde_json::Map<String, Value> =
        words.iter().enumerate().map(|(n, word)| (format!("CANARY_{n}"), json!(word))).collect();
    let backend = json!({ "id": id, "displayName": texts[0], "type": "stdio", "command": "python3", "args": args, "env": environment });
    let settings = json!({ "backends": [backend], "llm": { "base_url": "http://127.0.0.1:9/" } });
    // The second run begins with the lists that the first one stored.
    for round in 0..2 {
        let mut command = run.command("backends", &settings);
        command.args(["serve", "--toolsets", "none", "--debug-port", "0"]);
        let mut client = Client { piped: Piped::started(command), next: 0 };
        converse(run, &mut client, &words, id);
        if round == 1 {
            look_at_debug(run);
        }
        client.piped.finish();
    }
    for place in
        ["standard error of a backend", "standard error of a dying backend", "command line of a backend"]
    {
        run.cover(place, texts.len());
    }
    run.cover("error about a dying backend", texts.len());
    run.cover("environment of a backend", words.len());
    run.cover("id of a backend", 1);
    run.cover("remembered greeting", texts.len());
    run.cover("log lines at trace level", texts.len());
    run.cover("debug endpoints", texts.len());
}

/// Two backends have tools and prompts of the same names, so the gateway puts the id before each: `files__ghp_…`.
pub(super) fn pass_with_prefixes(run: &mut CanaryRun) {
    let inputs = run.path("inputs");
    let args = ["server.py", "texts", "words"].map(|name| text(&inputs.join(name)));
    let backend = |id: &str| json!({ "id": id, "type": "stdio", "command": "python3", "args": args });
    let settings = json!({ "backends": [backend("files"), backend("copies")] });
    let mut command = run.command("prefixes", &settings);
    command.args(["serve", "--toolsets", "none"]);
    let mut client = Client { piped: Piped::started(command), next: 0 };
    let info = json!({ "name": "prefixes", "version": "1" });
    client.ask(
        "initialize",
        &json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info }),
    );
    client.piped.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let mut uses = 0;
    for (list, members, ask) in
        [("tools/list", "tools", "tools/call"), ("prompts/list", "prompts", "prompts/get")]
    {
        let listed = client.ask(list, &json!({}));
        let names = listed["result"][members].as_array().into_iter().flatten();
        let names: Vec<&str> = names.filter_map(|member| member["name"].as_str()).collect();
        for name in names.iter().filter(|name| name.contains("__") && !name.ends_with("__die")) {
            uses += 1;
            client.ask(ask, &json!({ "name": name, "arguments": {} }));
        }
    }
    assert!(uses > run.words().len(), "names had a prefix: {uses}");
    run.cover("tool or prompt name with the prefix of its backend", uses);
    client.piped.finish();
}

fn converse(run: &mut CanaryRun, client: &mut Client, words: &[String], id: &str) {
    let everything = run.all_in_one();
    let info = json!({ "name": everything, "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": { "experimental": { "x": { "y": everything } } }, "clientInfo": info });
    client.ask("initialize", &params);
    client.piped.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    for list in ["tools/list", "prompts/list", "resources/list"] {
        let listed = client.ask(list, &json!({}));
        assert!(listed["result"].is_object(), "{list}: {listed}");
    }
    for word in words {
        client
            .ask("tools/call", &json!({ "name": word, "arguments": { "x": everything, "password": word } }));
    }
    client.ask("tools/call", &json!({ "name": "no such tool", "arguments": { "x": everything } }));
    client.ask("resources/read", &json!({ "uri": format!("canary://{}", words[0]) }));
    client.ask("prompts/get", &json!({ "name": words[0], "arguments": { "x": everything } }));
    let failed = client.ask("tools/call", &json!({ "name": "fail" }));
    assert!(failed["error"]["data"].is_object(), "an error passes as it is: {failed}");
    let died = client.ask("tools/call", &json!({ "name": "die" }));
    assert!(died["error"]["message"].as_str().is_some_and(|why| why.contains("it said")), "{died}");
    let again = client.ask("tools/call", &json!({ "name": "die" }));
    for (what, answer) in [("dying", died), ("dead", again)] {
        // A client addresses it by its id.
        let answer = answer.to_string().replace(id, "it");
        run.outputs.push((format!("error about a {what} backend"), answer.into_bytes()));
    }
}

/// Reads everything that the debug endpoints show.
fn look_at_debug(run: &mut CanaryRun) {
    let log = run.path("backends.log");
    let mut found = None;
    until("the address of the debug endpoints is logged", || {
        let logged = String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
        found = logged.rsplit_once("debug endpoints on http://").and_then(|(_, rest)| {
            let (address, rest) = rest.split_once(", token in ")?;
            let file = rest.split(['\n', '"']).next()?;
            Some((address.to_owned(), file.to_owned()))
        });
        found.is_some()
    });
    let (address, file) = found.expect("it was found");
    let token = std::fs::read_to_string(file).expect("the test can read its files");
    for path in ["/api/status", "/api/backends", "/api/config", "/api/logs", "/api/mcptrace"] {
        let shown = get(&address, path, token.trim());
        assert!(shown.contains("200 OK"), "{path}: {shown:.200}");
        run.outputs.push((format!("debug endpoint {path}"), shown.into_bytes()));
    }
}

fn get(address: &str, path: &str, token: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(super::super::rig::DEADLINE)).expect("a timeout can be set");
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    String::from_utf8_lossy(&answer).into_owned()
}
