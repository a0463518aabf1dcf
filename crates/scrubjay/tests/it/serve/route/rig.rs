//! A gateway with a router, whose model gives the answers that a test chooses.

use std::path::Path;
use std::sync::{Arc, mpsc};

use scrubjay_llm::scripted::{ReceivedRequest, ScriptedAnswer, ScriptedEndpoint};
use serde_json::{Value, json};

use super::super::rig::{DEADLINE, Piped, logged, scratch};

/// A model; it answers until the tests end.
pub(super) struct Model(Arc<ScriptedEndpoint>);

impl Model {
    pub(super) fn answering(answers: &[ScriptedAnswer]) -> Self {
        let (model, made) = mpsc::channel();
        let answers = answers.to_vec();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                model.send(Arc::new(ScriptedEndpoint::answering(answers).await)).expect("the test waits");
                std::future::pending::<()>().await;
            });
        });
        Self(made.recv_timeout(DEADLINE).expect("the endpoint starts"))
    }

    pub(super) fn url(&self) -> String {
        self.0.url()
    }

    pub(super) fn asked(&self) -> Vec<ReceivedRequest> {
        self.0.asked()
    }
}

/// A gateway on standard streams with its data and its log.
pub(super) struct Routing {
    pub(super) piped: Piped,
    pub(super) directory: tempfile::TempDir,
    next: u64,
}

impl Routing {
    /// Starts a gateway in front of the sample server, with these variables.
    pub(super) fn start(model: Option<&Model>, variables: &[(&str, &str)]) -> Self {
        Self::before(&json!([sample()]), model, variables)
    }

    /// Starts a gateway in front of the sample server, with the data of an earlier one.
    pub(super) fn in_directory(
        directory: tempfile::TempDir,
        model: Option<&Model>,
        variables: &[(&str, &str)],
    ) -> Self {
        Self::serving(directory, "none", &over(&json!([sample()])), model, variables)
    }

    /// Starts a gateway in front of the sample server, with a toolset of our own in addition.
    pub(super) fn with_toolsets(toolsets: &str, model: Option<&Model>, variables: &[(&str, &str)]) -> Self {
        Self::serving(scratch(), toolsets, &over(&json!([sample()])), model, variables)
    }

    /// Starts a gateway in front of these backends.
    pub(super) fn before(backends: &Value, model: Option<&Model>, variables: &[(&str, &str)]) -> Self {
        Self::serving(scratch(), "none", &over(backends), model, variables)
    }

    /// Starts a gateway with this configuration.
    pub(super) fn configured(settings: &Value, model: Option<&Model>, variables: &[(&str, &str)]) -> Self {
        Self::serving(scratch(), "none", settings, model, variables)
    }

    fn serving(
        directory: tempfile::TempDir,
        toolsets: &str,
        settings: &Value,
        model: Option<&Model>,
        variables: &[(&str, &str)],
    ) -> Self {
        let mut command = logged(directory.path(), settings);
        command.args(["serve", "--toolsets", &format!("{toolsets},router")]);
        command.env_remove("OPENAI_API_KEY").envs(variables.iter().copied());
        if let Some(model) = model {
            command.env("OPENAI_BASE_URL", model.url());
        }
        Self { piped: Piped::started(command), directory, next: 100 }
    }

    pub(super) fn data(&self) -> std::path::PathBuf {
        self.directory.path().join("data")
    }

    /// Opens the conversation as a client with these capabilities and options.
    pub(super) fn open(&mut self, capabilities: &Value, options: &Value) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "1" }, "initializationOptions": options,
        });
        let greeted = self.ask("initialize", &params);
        self.piped.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        greeted
    }

    /// Opens it as a client that does not support forms.
    pub(super) fn opened(mut self) -> Self {
        let greeted = self.open(&json!({}), &Value::Null);
        assert!(greeted["result"].is_object(), "{greeted}");
        self
    }

    /// Opens it as a client that supports forms.
    pub(super) fn opened_with_forms(mut self) -> Self {
        let greeted = self.open(&json!({ "elicitation": {} }), &Value::Null);
        assert!(greeted["result"].is_object(), "{greeted}");
        self
    }

    pub(super) fn send(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        self.piped.send(&json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }));
        json!(self.next)
    }

    pub(super) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        self.piped.receive_answer(&id).pop().expect("an answer")
    }

    pub(super) fn task(&mut self, query: &str) -> Value {
        self.ask("agentify/orchestrateTask", &json!({ "query": query }))
    }

    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Sends a task, answers its one form, and returns the form and the answer.
    pub(super) fn task_with_form(&mut self, query: &str, answer: &Value) -> (Value, Value) {
        let (id, form) = self.begin_task(query, answer);
        (form, self.piped.receive_answer(&id).pop().expect("an answer"))
    }

    /// Sends a task and answers its one form; returns the id of the request.
    pub(super) fn begin_with_form(&mut self, query: &str, answer: &Value) -> Value {
        self.begin_task(query, answer).0
    }

    fn begin_task(&mut self, query: &str, answer: &Value) -> (Value, Value) {
        let id = self.send("agentify/orchestrateTask", &json!({ "query": query }));
        let form = self.receive_form();
        self.piped.send(&json!({ "jsonrpc": "2.0", "id": form["id"], "result": answer }));
        (id, form["params"].clone())
    }

    fn receive_form(&mut self) -> Value {
        loop {
            let received = self.piped.receive();
            if received["method"] == "elicitation/create" {
                return received;
            }
            assert!(
                received.get("result").is_none() && received.get("error").is_none(),
                "no form comes: {received}"
            );
        }
    }

    /// Ends it; returns its log and its directory.
    pub(super) fn finish(self) -> (String, tempfile::TempDir) {
        self.piped.finish();
        let log = std::fs::read(self.directory.path().join("log")).expect("there is a log");
        (String::from_utf8_lossy(&log).into_owned(), self.directory)
    }
}

/// The configuration of a gateway over these backends.
fn over(backends: &Value) -> Value {
    if backends.is_null() { json!({}) } else { json!({ "backends": backends }) }
}

pub(super) fn sample() -> Value {
    json!({ "id": "sample", "type": "stdio", "command": env!("CARGO_BIN_EXE_scrubjay"), "args": ["sample-server"] })
}

/// Tells whether any file below a directory holds this text.
pub(in crate::serve) fn holds(directory: &Path, text: &str) -> Option<std::path::PathBuf> {
    for entry in std::fs::read_dir(directory)
        .expect("the test can read its files")
        .map(|entry| entry.expect("it is there"))
    {
        let path = entry.path();
        let found = if path.is_dir() {
            holds(&path, text)
        } else {
            let bytes = std::fs::read(&path).unwrap_or_default();
            bytes.windows(text.len()).any(|window| window == text.as_bytes()).then_some(path)
        };
        if found.is_some() {
            return found;
        }
    }
    None
}
