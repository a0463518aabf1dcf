//! The progress toolset in the real binary: called by agents, used on the command line, in many processes at once.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use scrubjay_llm::scripted::{ScriptedAnswer, ScriptedEndpoint};
use serde_json::{Value, json};

const KEY: &str = "sk-canary-0123456789";

/// Prepares `scrubjay` in a home of its own, with umask 0, so that only its own modes protect files.
fn scrubjay(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "60", "sh", "-c", "umask 000; exec \"$@\"", "sh"]);
    command.arg(env!("CARGO_BIN_EXE_scrubjay")).arg("--data").arg(home.join("data")).args(args);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home);
    command.current_dir(home).stdin(Stdio::null());
    command
}

fn run(mut command: Command) -> Output {
    command.output().unwrap()
}

fn data(output: &Output) -> Value {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {complaint}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a conversation with `serve`: sends each request when the one before was answered.
fn converse(mut command: Command, calls: &[(&str, Value)]) -> (Vec<Value>, String) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = |id: usize, method: &str, params: Value| -> Value {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(input, "{message}").unwrap();
        serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap()
    };
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}});
    ask(0, "initialize", hello);
    let answers = calls
        .iter()
        .enumerate()
        .map(|(n, (tool, arguments))| ask(n + 1, "tools/call", json!({"name": tool, "arguments": arguments})))
        .collect();
    drop(input);
    let output = child.wait_with_output().unwrap();
    (answers, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Checks that only their owner can read the files below, and that none has the key; returns how many there are.
fn check_files(directory: &Path) -> usize {
    let mut files = 0;
    let mut waiting = vec![directory.to_owned()];
    while let Some(path) = waiting.pop() {
        // The background process of the index may remove files meanwhile.
        let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
        let mode = metadata.permissions().mode() & 0o7777;
        if metadata.is_dir() {
            assert_eq!(mode, 0o700, "{}", path.display());
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            assert_eq!(mode, 0o600, "{}", path.display());
            let Ok(bytes) = std::fs::read(&path) else { continue };
            assert!(!bytes.windows(KEY.len()).any(|w| w == KEY.as_bytes()), "{}", path.display());
            files += 1;
        }
    }
    files
}

#[test]
fn sixteen_processes_log_at_once() {
    let home = tempfile::tempdir().unwrap();
    let logging: Vec<_> = (0..16)
        .map(|n| {
            let title = format!("entry {n}");
            let args = ["progress", "log", "--project", "p", "--tag", "all", &title, "done by many"];
            scrubjay(home.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in logging {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    for how in [&["entry"][..], &["--full-text", "many"], &["--tag", "all"]] {
        let args = [&["--json", "progress", "search", "--project", "p", "--limit", "100"], how].concat();
        let found = data(&run(scrubjay(home.path(), &args)));
        assert_eq!((found["total"].as_u64(), found["entries"].as_array().unwrap().len()), (Some(16), 16));
    }
    assert!(check_files(&home.path().join("data")) >= 2);
}

#[test]
fn people_and_agents_share_progress_entries() {
    let home = tempfile::tempdir().unwrap();
    let logged = json!({"projectId": "p", "title": "By an agent\u{1b}[31m", "content": "It said so."});
    let (answers, _) = converse(
        scrubjay(home.path(), &["serve", "--toolsets", "progress"]),
        &[("log_progress", logged), ("log_progress", json!({"projectId": "p"}))],
    );
    let id = answers[0]["result"]["structuredContent"]["id"].as_str().unwrap();
    assert_eq!(answers[1]["error"]["code"], -32602);
    assert_eq!(answers[1]["error"]["message"], "title is required; content is required and cannot be empty");
    let shown = run(scrubjay(home.path(), &["progress", "show", "--project", "p", id, "--full"]));
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(shown, "It said so.\n\nIt said so.\n");
    let listed = run(scrubjay(home.path(), &["progress", "search", "--project", "p"]));
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(id) && listed.contains("By an agent") && !listed.contains('\u{1b}'), "{listed}");
    let refused = run(scrubjay(home.path(), &["progress", "show", "--project", "p", "nothing"]));
    let complaint = String::from_utf8(refused.stderr).unwrap();
    assert!(complaint.contains("Entry not found: nothing in project p"), "{complaint}");
    assert_eq!(refused.status.code(), Some(1));
}

/// A model that answers, one that rejects the key and repeats it in the error, and one that cannot be reached.
#[test]
fn the_api_key_is_in_no_file_or_log() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let echoing_key = ScriptedAnswer::status(400, format!(r#"{{"error":{{"message":"bad key {KEY}"}}}}"#));
    let model =
        runtime.block_on(ScriptedEndpoint::answering([echoing_key, ScriptedAnswer::text("Summed up.")]));
    for (url, sources) in
        [(model.url(), ["fallback", "model"]), ("http://127.0.0.1:9".to_owned(), ["fallback"; 2])]
    {
        let home = tempfile::tempdir().unwrap();
        let logged = json!({"projectId": "p", "title": "t", "content": "It was done."});
        let with_key = |args: &[&str]| {
            let mut command = scrubjay(home.path(), args);
            command
                .env("OPENAI_API_KEY", KEY)
                .env("OPENAI_BASE_URL", &url)
                .env("AGENT_PROGRESS_LOG_LEVEL", "debug");
            command
        };
        let serve = ["serve", "--toolsets", "progress"];
        let (answers, _) = converse(with_key(&serve), &[("log_progress", logged)]);
        let id = &answers[0]["result"]["structuredContent"]["id"];
        let wanted = json!({"projectId": "p", "id": id});
        for source in sources {
            let (answers, log) = converse(with_key(&serve), &[("get_context", wanted.clone())]);
            assert_eq!(answers[0]["result"]["structuredContent"]["summarySource"], source, "{answers:?}");
            assert!(!answers[0].to_string().contains(KEY) && !log.contains(KEY), "{log}");
            assert_eq!(log.contains("the model does not answer"), source == "fallback", "{log}");
        }
        assert!(check_files(&home.path().join("data")) >= 3);
    }
}

/// The configuration of the older package still works: its variables name the file and the model.
#[test]
fn the_variables_of_the_older_package_work() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("old/place/data.db");
    let mut command = scrubjay(home.path(), &["progress", "log", "--project", "p", "t", "c"]);
    command.env("AGENT_PROGRESS_DB_PATH", &file);
    assert!(run(command).status.success());
    assert!(file.exists());
    check_files(&home.path().join("old"));
}

/// So does its file in the working directory, once it is trusted; the environment has precedence over it.
#[test]
fn the_file_of_the_older_package_works_and_the_environment_wins() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let model = runtime.block_on(ScriptedEndpoint::start(|_| ScriptedAnswer::text("Summed up.")));
    let home = tempfile::tempdir().unwrap();
    let file = json!({"dbPath": "./old/progress.db", "logging": {"level": "warn"},
        "openai": {"apiKey": KEY, "baseUrl": model.url(), "model": "from-the-file"}});
    std::fs::write(home.path().join("agent-progress.config.json"), file.to_string()).unwrap();
    let serve = ["serve", "--toolsets", "progress"];
    let summed_up = |variables: &[(&str, &str)]| {
        let entry = json!({"projectId": "p", "title": "t", "content": "It was done."});
        let mut command = scrubjay(home.path(), &serve);
        command.envs(variables.iter().copied());
        let (answers, _) = converse(command, &[("log_progress", entry)]);
        let wanted = json!({"projectId": "p", "id": answers[0]["result"]["structuredContent"]["id"]});
        let mut command = scrubjay(home.path(), &serve);
        command.envs(variables.iter().copied());
        let (answers, _) = converse(command, &[("get_context", wanted)]);
        answers[0]["result"]["structuredContent"]["summarySource"].clone()
    };
    let asked = || model.asked().last().map(|asked| asked.body["model"].clone());
    let (in_file, in_variable) = (home.path().join("old/progress.db"), home.path().join("new/progress.db"));

    assert_eq!(
        (summed_up(&[]), in_file.exists()),
        (json!("fallback"), false),
        "an untrusted file has no effect"
    );
    assert!(run(scrubjay(home.path(), &["trust", "agent-progress.config.json", "--yes"])).status.success());
    assert_eq!((summed_up(&[]), in_file.exists()), (json!("model"), true));
    assert_eq!(asked(), Some(json!("from-the-file")));

    let over =
        [("AGENT_PROGRESS_MODEL", "from-outside"), ("AGENT_PROGRESS_DB_PATH", in_variable.to_str().unwrap())];
    assert_eq!((summed_up(&over), in_variable.exists()), (json!("model"), true));
    assert_eq!(asked(), Some(json!("from-outside")));
}
