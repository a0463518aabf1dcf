//! The stand-in for the model APIs of all hosts, as a process: `tests/peers/model_api.py`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::super::rig::repository;
use super::{Route, TOOL};

/// A running stand-in; it ends when this is dropped.
pub(super) struct Model {
    child: Child,
    pub(super) url: String,
    log: PathBuf,
}

impl Model {
    /// Starts a model that calls the tool on each of these routes, one after the other.
    pub(super) fn start(directory: &Path, routes: &[Route]) -> Self {
        let step = |route: &Route| json!({ "server": route.name, "tool": TOOL, "arguments": { "message": route.message() } });
        let plan = Value::Array(routes.iter().map(step).collect());
        let log = directory.join("model.log");
        let mut command = Command::new("python3");
        command.arg("-B").arg(repository().join("tests/peers/model_api.py")).arg(plan.to_string()).arg(&log);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut model = Self { child: child.expect("Python is installed"), url: String::new(), log };
        let mut line = String::new();
        let stdout = model.child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("the stand-in says where it listens");
        line.trim().trim_start_matches("listening on ").clone_into(&mut model.url);
        assert!(model.url.starts_with("http://127.0.0.1:"), "{line}");
        model
    }

    /// Returns the host's requests: their paths, and how many tools each had.
    pub(super) fn requests(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let line = |line: &str| {
            let request: Value = serde_json::from_str(line).expect("a line of JSON");
            let tools = request["tools"].as_array().map_or(0, Vec::len);
            format!("{} {} with {tools} tools\n", request["method"], request["path"])
        };
        log.lines().map(line).collect()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // It fails if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
