//! Secrets in everything that agents store with our own tools.

use serde_json::{Value, json};

use super::super::rig::{Piped, initialize};
use super::CanaryRun;

struct Agent {
    piped: Piped,
    next: u64,
}

impl Agent {
    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.next += 1;
        let params = json!({ "name": tool, "arguments": arguments });
        let request = json!({ "jsonrpc": "2.0", "id": self.next, "method": "tools/call", "params": params });
        let answer = self.piped.ask(&request).pop().expect("an answer");
        answer["result"].clone()
    }
}

pub(super) fn pass(run: &mut CanaryRun) {
    let mut command = run.command("ledger", &json!({}));
    command
        .args(["serve", "--toolsets", "recorder,progress,records,tapes", "--workspace"])
        .arg(run.path("workspace"));
    command.env("CLAUDE_CODE_SESSION_ID", &run.canaries[17].text);
    let mut agent = Agent { piped: Piped::started(command), next: 100 };
    agent.piped.ask(&initialize(1));
    let (texts, words) = (run.texts(), run.words());
    projects(&mut agent, &texts, &words);
    run.cover("project", texts.len() * 2 + words.len());
    sessions(&mut agent, &texts, &words);
    run.cover("session, plan, audit and progress", texts.len() * 11);
    records(&mut agent, &texts);
    run.cover("records", texts.len() * 8);
    files(&mut agent, &words);
    run.cover("file paths", words.len() * 5);
    for tool in [
        "list_sessions",
        "get_timeline",
        "get_story",
        "list_projects",
        "get_recent_activity",
        "get_project_overview",
    ] {
        let answer = agent.call(tool, &json!({}));
        run.outputs.push((format!("answer of {tool}"), answer.to_string().into_bytes()));
    }
    agent.piped.finish();
}

fn projects(agent: &mut Agent, texts: &[String], words: &[String]) {
    for (n, text) in texts.iter().enumerate() {
        let name = text.replace('\n', " ");
        let made = agent
            .call("create_project", &json!({ "id": format!("p{n}"), "name": name, "description": text }));
        assert!(made["isError"] != true || text.len() > 150, "{made}");
    }
    for word in words {
        let made = agent.call("create_project", &json!({ "id": word, "name": "a project" }));
        assert_eq!(made["isError"], true, "an id that holds a secret is refused: {word}: {made}");
        // Other sessions begin with their first call.
        agent.call("log_progress", &json!({ "projectId": word, "title": "t", "content": "c" }));
        agent.call(
            "create_record",
            &json!({ "project_id": word, "type": "note", "title": "t", "summary": "s", "body": "b" }),
        );
    }
}

fn sessions(agent: &mut Agent, texts: &[String], words: &[String]) {
    for word in words {
        let started = agent.call("record_session_start", &json!({ "id": word }));
        assert_eq!(started["isError"], true, "{started}");
        agent.call("record_plan", &json!({ "session_id": word, "steps": ["a"] }));
    }
    for text in texts {
        agent.call("record_session_start", &json!({ "title": text, "user_message": text }));
        agent.call("record_plan", &json!({ "steps": [text, format!("then {text}")] }));
        agent.call("record_plan_step", &json!({ "step": text }));
        agent.call("audit_event", &json!({ "label": text, "description": text }));
        agent.call(
            "log_progress",
            &json!({ "projectId": "default", "title": text, "content": format!("did {text}"), "tags": [text], "agentId": text }),
        );
        let plain = json!({ "projectId": "default", "title": "a title", "content": text });
        let done = agent.call("log_progress", &plain);
        assert!(done.is_object(), "{done}");
        agent.call("save_session", &json!({ "summary": text }));
        agent.call("record_session_end", &json!({ "summary": text }));
    }
}

fn records(agent: &mut Agent, texts: &[String]) {
    for (n, text) in texts.iter().enumerate() {
        let words: String = text.replace(['\n', '#'], " ");
        let record = json!({
            "type": if words.len() < 80 { words.as_str() } else { "note" }, "title": words, "summary": text, "body": text,
            "metadata": { "x": text, "codename": "canary-4829136650" }, "citations": [format!("src/{words}.rs#L1-L2")],
        });
        let made = agent.call("create_record", &record);
        assert_ne!(made["isError"], true, "{n}: {made}");
        let id = made["structuredContent"]["record"]["id"].clone();
        agent.call("update_record", &json!({ "id": id, "title": words, "body": format!("again {text}") }));
        agent.call("transition", &json!({ "id": id, "to_state": "LATER", "reason": text }));
        agent.call("search_records", &json!({ "query": text }));
        agent.call("search_logs", &json!({ "projectId": "default", "query": text }));
    }
}

fn files(agent: &mut Agent, words: &[String]) {
    for word in words {
        let path = format!("notes/{word}.txt");
        let made = agent.call("file_op", &json!({ "action": "create", "path": path, "content": "x" }));
        assert!(
            made.is_null() || made["isError"] == true,
            "a path that holds a secret is refused: {word}: {made}"
        );
        agent.call("record_file_create", &json!({ "path": path, "content": "x" }));
        agent.call("record_file_edit", &json!({ "path": path, "old_content": "x", "new_content": "y" }));
        agent.call("record_file_delete", &json!({ "path": path }));
        agent.call("file_op", &json!({ "action": "create", "path": format!("../{path}"), "content": "x" }));
    }
}
