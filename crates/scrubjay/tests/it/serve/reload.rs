//! Reloading the configuration while clients are served: on SIGHUP, and when a file changes.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::http::Target;
use super::rig::{
    Piped, Served, answer_text, bad_server, entries, initialize, logged, open_session, scratch, scrubjay,
    until,
};

const LIST_CHANGED: &str = "notifications/tools/list_changed";

/// A backend whose tools begin with a prefix.
fn backend(id: &str, prefix: &str) -> Value {
    let command = bad_server(prefix);
    json!({ "id": id, "type": "stdio", "command": command[0], "args": command[1..] })
}

/// Blocks a tool.
fn no(tool: &str) -> Value {
    json!({ "name": "no", "match": { "tools": [tool] }, "action": "block", "code": -32050, "message": "no" })
}

fn before() -> Value {
    json!({ "backends": [backend("same", "s"), backend("other", "o"), backend("gone", "g")] })
}

fn after() -> Value {
    json!({ "backends": [backend("same", "s"), backend("other", "p"), backend("new", "n")],
        "recorder": { "rules": [no("s_echo")] } })
}

fn write(directory: &Path, settings: &Value) {
    std::fs::write(directory.join("scrubjay-config.json"), settings.to_string()).unwrap();
}

fn log(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("log")).unwrap_or_default()
}

/// A gateway on standard streams whose log is kept, greeted.
fn start(directory: &Path, settings: &Value, args: &[&str]) -> Piped {
    let mut command = logged(directory, settings);
    command.args(["serve", "--toolsets", "none"]).args(args);
    greeted(Piped::started(command))
}

fn greeted(mut piped: Piped) -> Piped {
    piped.ask(&initialize(1));
    piped.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    piped
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn call(id: u64, tool: &str, arguments: &Value) -> Value {
    request(id, "tools/call", &json!({ "name": tool, "arguments": arguments }))
}

fn names(list: &Value) -> Vec<&str> {
    let mut prefixes: Vec<&str> = list["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str()?.strip_suffix("_pid"))
        .collect();
    prefixes.sort_unstable();
    prefixes
}

fn receive_until(piped: &mut Piped, is_it: impl Fn(&Value) -> bool) -> Value {
    loop {
        let received = piped.receive();
        if is_it(&received) {
            return received;
        }
    }
}

fn notes(data: &Path, name: &str, event: &str) -> Vec<Value> {
    let notes = entries(data, name);
    let notes = notes.iter().filter_map(|entry| serde_json::from_str::<Value>(entry["raw"].as_str()?).ok());
    notes.filter(|note| note["event"] == event).collect()
}

#[test]
fn sighup_reloads_the_configuration_and_keeps_the_session() {
    let scratch = scratch();
    let mut piped = start(scratch.path(), &before(), &[]);
    assert_eq!(names(piped.ask(&request(2, "tools/list", &json!({}))).last().unwrap()), ["g", "o", "s"]);
    let pid = answer_text(piped.ask(&call(3, "s_pid", &json!({}))).last().unwrap()).to_owned();
    assert_eq!(answer_text(piped.ask(&call(4, "s_echo", &json!({ "text": "x" }))).last().unwrap()), "x");
    // On each backend a call is under way while the configuration changes.
    let waits = json!({ "how": "never_answer" });
    for (id, tool) in [(5, "g_misbehave"), (6, "o_misbehave"), (7, "s_misbehave")] {
        piped.send(&call(id, tool, &waits));
    }
    until("the calls are under way", || {
        let backends = scrubjay(&scratch.path().join("data"), &["tape", "search", "never_answer"]);
        backends.matches("never_answer").count() >= 3
    });
    write(scratch.path(), &after());
    piped.signal(Signal::HUP);
    let mut received: Vec<Value> = (0..5).map(|_| piped.receive()).collect();
    received.retain(|message| message.get("id").is_some());
    received.sort_by_key(|message| message["id"].as_u64());
    let errors: Vec<&str> =
        received.iter().map(|answer| answer["error"]["message"].as_str().unwrap()).collect();
    assert!(errors[0].contains("removed from the configuration"), "{errors:?}");
    assert!(errors[1].contains("configuration was changed") && errors.len() == 2, "{errors:?}");

    assert_eq!(names(piped.ask(&request(8, "tools/list", &json!({}))).last().unwrap()), ["n", "p", "s"]);
    assert_eq!(
        answer_text(piped.ask(&call(9, "s_pid", &json!({}))).last().unwrap()),
        pid,
        "it was not restarted"
    );
    assert_eq!(piped.ask(&call(10, "s_echo", &json!({}))).last().unwrap()["error"]["code"], -32050);
    for tool in ["n_echo", "p_echo"] {
        assert_eq!(answer_text(piped.ask(&call(11, tool, &json!({ "text": "y" }))).last().unwrap()), "y");
    }
    for tool in ["g_echo", "o_echo"] {
        assert!(piped.ask(&call(12, tool, &json!({}))).last().unwrap()["error"].is_object(), "{tool}");
    }
    // The first configuration again: a removed backend returns, a rule is removed.
    write(scratch.path(), &before());
    piped.signal(Signal::HUP);
    receive_until(&mut piped, |received| received["method"] == LIST_CHANGED);
    assert_eq!(names(piped.ask(&request(13, "tools/list", &json!({}))).last().unwrap()), ["g", "o", "s"]);
    for tool in ["g_echo", "o_echo", "s_echo"] {
        assert_eq!(answer_text(piped.ask(&call(14, tool, &json!({ "text": "z" }))).last().unwrap()), "z");
    }
    piped.finish();
    let data = scratch.path().join("data");
    let notes = notes(&data, "serve", "configuration_reloaded");
    let expected = json!({ "event": "configuration_reloaded", "added": ["new"], "changed": ["other"],
        "removed": ["gone"], "stays": [] });
    assert_eq!((notes.len(), &notes[0]), (2, &expected), "{notes:?}");
    scrubjay(&data, &["tape", "verify"]);
}

#[test]
fn a_reload_keeps_every_session_on_http() {
    let scratch = scratch();
    let mut served = Served::configured(scratch.path(), &before().to_string(), None);
    let (one, two) = (open_session(&served.target()), open_session(&served.target()));
    let ask = |target: &Target, message: &Value| target.post(&message.to_string()).json();
    let list = request(2, "tools/list", &json!({}));
    assert_eq!(names(&ask(&one, &list)), ["g", "o", "s"]);
    let pids = [&one, &two].map(|target| ask(target, &call(3, "s_pid", &json!({}))));
    std::fs::write(scratch.path().join("scrubjay.yaml"), after().to_string()).unwrap();
    served.signal(Signal::HUP);
    until("it is reloaded", || names(&ask(&one, &list)) == ["n", "p", "s"]);
    for (target, pid) in [&one, &two].into_iter().zip(&pids) {
        assert_eq!(names(&ask(target, &list)), ["n", "p", "s"]);
        assert_eq!(answer_text(&ask(target, &call(3, "s_pid", &json!({})))), answer_text(pid));
        assert_eq!(ask(target, &call(4, "s_echo", &json!({})))["error"]["code"], -32050);
        assert_eq!(answer_text(&ask(target, &call(5, "n_echo", &json!({ "text": "y" })))), "y");
    }
}

#[test]
fn a_broken_file_changes_nothing() {
    let scratch = scratch();
    let mut piped = start(scratch.path(), &before(), &[]);
    let broken = json!({ "backends": [backend("new", "n"), { "id": "half" }], "recorder": { "rules": 3 } });
    for (text, problem) in
        [(broken.to_string(), "backends[1].type"), ("backends: [".to_owned(), "scrubjay-config.json")]
    {
        let before = log(scratch.path()).matches("is not reloaded").count();
        std::fs::write(scratch.path().join("scrubjay-config.json"), text).unwrap();
        piped.signal(Signal::HUP);
        until("it is refused", || log(scratch.path()).matches("is not reloaded").count() > before);
        assert!(log(scratch.path()).contains(problem), "{}", log(scratch.path()));
        assert_eq!(names(piped.ask(&request(2, "tools/list", &json!({}))).last().unwrap()), ["g", "o", "s"]);
    }
    write(scratch.path(), &after());
    piped.signal(Signal::HUP);
    receive_until(&mut piped, |received| received["method"] == LIST_CHANGED);
    assert_eq!(names(piped.ask(&request(3, "tools/list", &json!({}))).last().unwrap()), ["n", "p", "s"]);
    piped.finish();
    let refused = notes(&scratch.path().join("data"), "serve", "configuration_refused");
    assert_eq!(refused.len(), 2);
    assert!(refused[0]["problems"].as_array().unwrap().len() >= 2, "{refused:?}");
}

#[test]
fn settings_that_need_a_restart_are_named_and_kept() {
    let scratch = scratch();
    let mut piped = start(scratch.path(), &before(), &[]);
    let mut settings = after();
    settings["storage"] = json!(scratch.path().join("other.db"));
    settings["serve"] = json!({ "max_sessions": 3, "auth_token": "a-secret-token", "naming": "always" });
    settings["limits"] = json!({ "max_tape_size": "1MB" });
    write(scratch.path(), &settings);
    piped.signal(Signal::HUP);
    receive_until(&mut piped, |received| received["method"] == LIST_CHANGED);
    let listed = piped.ask(&request(2, "tools/list", &json!({}))).pop().unwrap();
    assert_eq!(names(&listed), ["new__n", "other__p", "same__s"], "serve.naming can change");
    let keys = ["limits.max_tape_size", "serve.auth_token", "serve.max_sessions", "storage"];
    until("they are named", || log(scratch.path()).contains(&keys.join(", ")));
    assert!(!log(scratch.path()).contains("a-secret-token"));
    piped.finish();
    let notes = notes(&scratch.path().join("data"), "serve", "configuration_reloaded");
    assert_eq!(notes[0]["stays"], json!(keys));
}

#[test]
fn a_reload_applies_to_the_router() {
    let scratch = scratch();
    let mut settings = before();
    let mut command = logged(scratch.path(), &settings);
    command.args(["serve", "--toolsets", "router"]);
    let mut piped = greeted(Piped::started(command));
    let (list, task) = (
        request(2, "tools/list", &json!({})),
        request(3, "agentify/orchestrateTask", &json!({ "query": "echo x" })),
    );
    for (mode, is_there) in [("off", false), ("catalog", true)] {
        settings["router"] = json!({ "mode": mode });
        write(scratch.path(), &settings);
        piped.signal(Signal::HUP);
        receive_until(&mut piped, |received| received["method"] == "notifications/resources/list_changed");
        let listed = piped.ask(&list).pop().unwrap();
        assert_eq!(
            (listed.to_string().contains("find_tools"), names(&listed)),
            (is_there, vec!["g", "o", "s"])
        );
        let code = &piped.ask(&task).pop().unwrap()["error"]["code"];
        assert_eq!(code, if is_there { -32000 } else { -32601 }, "{mode}");
    }
}

#[test]
fn a_changed_file_is_reloaded_with_the_reload_option() {
    let scratch = scratch();
    let mut piped = start(scratch.path(), &before(), &["--reload"]);
    write(scratch.path(), &after());
    receive_until(&mut piped, |received| received["method"] == LIST_CHANGED);
    assert_eq!(names(piped.ask(&request(2, "tools/list", &json!({}))).last().unwrap()), ["n", "p", "s"]);
}

#[test]
fn a_reload_keeps_the_backends_of_clients() {
    let scratch = scratch();
    let mut command = logged(scratch.path(), &before());
    command.args(["serve", "--toolsets", "none"]);
    let mut piped = Piped::started(command);
    let mut hello = initialize(1);
    hello["params"]["initializationOptions"] = json!({ "backends": [backend("mine", "m")] });
    piped.ask(&hello);
    write(scratch.path(), &after());
    piped.signal(Signal::HUP);
    receive_until(&mut piped, |received| received["method"] == LIST_CHANGED);
    assert_eq!(names(piped.ask(&request(2, "tools/list", &json!({}))).last().unwrap()), ["m", "n", "p", "s"]);
}

#[test]
fn a_changed_project_file_is_reloaded_only_once_trusted() {
    let scratch = scratch();
    let (project, data) = (scratch.path().join("project"), scratch.path().join("data"));
    std::fs::create_dir(&project).unwrap();
    let file = project.join("scrubjay.yaml");
    let scrubjay = |args: &[&str]| {
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$@\" 2>\"$LOG\"", "sh", env!("CARGO_BIN_EXE_scrubjay"), "--data"])
            .arg(&data);
        command
            .args(args)
            .current_dir(&project)
            .env("HOME", scratch.path())
            .env("LOG", scratch.path().join("log"));
        command
    };
    let trust = || assert!(scrubjay(&["trust", "--yes"]).env("LOG", "/dev/null").status().unwrap().success());
    std::fs::write(&file, before().to_string()).unwrap();
    trust();
    let mut piped = greeted(Piped::started(scrubjay(&["serve", "--toolsets", "none", "--reload"])));
    let list = request(2, "tools/list", &json!({}));
    assert_eq!(names(piped.ask(&list).last().unwrap()), ["g", "o", "s"]);
    // Somebody else may have changed the file: nothing of it is used, and no backend ends.
    std::fs::write(&file, after().to_string()).unwrap();
    until("it is refused", || log(scratch.path()).contains("is not trusted as it is now"));
    assert_eq!(names(piped.ask(&list).last().unwrap()), ["g", "o", "s"]);
    trust();
    receive_until(&mut piped, |received| received["method"] == LIST_CHANGED);
    assert_eq!(names(piped.ask(&list).last().unwrap()), ["n", "p", "s"]);
}

/// Runs a command on a terminal of its own, closes the terminal once it serves, and prints how it ended.
const ON_TERMINAL: &str = "
import os, pty, signal, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
signal.alarm(20)
def hear(what):
    received = b''
    while what not in received:
        received += os.read(terminal, 4096) or sys.exit(1)
hear(b'serving on')
os.kill(pid, signal.SIGHUP)
hear(b'was reloaded')
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

#[test]
fn closing_the_terminal_ends_the_gateway() {
    let scratch = scratch();
    write(scratch.path(), &before());
    let mut command = Command::new("python3");
    command.args(["-c", ON_TERMINAL, env!("CARGO_BIN_EXE_scrubjay"), "--config"]);
    command.arg(scratch.path().join("scrubjay-config.json")).arg("--data").arg(scratch.path().join("data"));
    command.args(["serve", "--toolsets", "none", "--http", "127.0.0.1:0"]).env("HOME", scratch.path());
    let output = command.output().expect("python starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(stdout.trim(), "129", "{}", String::from_utf8_lossy(&output.stderr));
}
