//! Reads from a tape the tasks in plain words with the calls they became, and the tools that backends listed.
//!
//! A fold over what [`crate::reading`] makes of the entries. A tape may come from anywhere, so everything that is kept
//! is bounded.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::entry::{Direction, Entry, EntryKind};
use crate::envelope::MessageKind;
use crate::message::{self, Parts};
use crate::operation::OperationRole;
use crate::protocol::method;
use crate::reading::EntryReading;

/// The method that takes a task.
pub const TASK_METHOD: &str = "agentify/orchestrateTask";
/// The tool that takes a task.
pub const TASK_TOOL: &str = "orchestrate_task";

/// The tool that only finds tools.
pub const FIND_TOOL: &str = "find_tools";

/// The most tasks that are read from one tape.
const TASKS_MAX: usize = 2000;
/// The most calls that are kept of one task.
const CALLS_MAX: usize = 16;
/// The longest task that is kept: a longer one will hardly be asked again.
const QUERY_BYTES_MAX: usize = 4096;
/// The most offered tools that are remembered for a task.
const OFFERED_MAX: usize = 16;
/// A client that calls an offered tool within this many requests is taken to have meant it.
const REQUESTS_AFTER_OFFER_MAX: usize = 3;
/// The most tools that are kept of one tape.
const TOOLS_MAX: usize = 4096;

/// A task, and the calls that were made for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskOnTape {
    /// The task as it was asked.
    pub query: String,
    /// The backend and the tool of each call that succeeded, in their order.
    pub calls: Vec<(String, String)>,
    /// Whether a call failed.
    pub failed: bool,
}

/// The tasks of one tape.
#[derive(Debug, Default)]
pub struct TaskReader {
    by_entry: BTreeMap<u64, TaskOnTape>,
    /// The last task that was answered with tools to choose from instead of a call.
    offered: Option<OfferedTools>,
}

#[derive(Debug)]
struct OfferedTools {
    query: String,
    tools: Vec<String>,
    requests_left: usize,
}

impl TaskReader {
    /// Takes the next entry with its reading.
    pub fn observe(&mut self, number: u64, entry: &Entry<'_>, reading: &EntryReading) {
        if entry.kind != EntryKind::Message {
            return;
        }
        match (entry.via, entry.direction) {
            (None, Direction::ClientToServer) => self.ask(number, entry.payload, reading),
            (None, Direction::ServerToClient) => self.offer(entry.payload, reading),
            (Some(backend), Direction::ServerToClient) => self.answer(backend, reading),
            _ => {}
        }
    }

    fn ask(&mut self, number: u64, payload: &[u8], reading: &EntryReading) {
        let envelope = &reading.envelope;
        if envelope.kind != MessageKind::Request || self.by_entry.len() >= TASKS_MAX {
            return;
        }
        let is_tool = match (envelope.method.as_deref(), envelope.name.as_deref()) {
            (Some(TASK_METHOD), _) => false,
            (Some(method::TOOLS_CALL), Some(TASK_TOOL | FIND_TOOL)) => true,
            (Some(method::TOOLS_CALL), Some(tool)) => return self.take_offer(number, tool),
            _ => return,
        };
        if let Some(query) = std::str::from_utf8(payload).ok().and_then(|text| query(text, is_tool))
            && query.len() <= QUERY_BYTES_MAX
        {
            self.by_entry.insert(number, TaskOnTape { query, calls: Vec::new(), failed: false });
        }
    }

    /// Remembers the tools that were offered for a task instead of a call.
    fn offer(&mut self, payload: &[u8], reading: &EntryReading) {
        let Some(link) = reading.link().filter(|link| link.role == OperationRole::Answer) else { return };
        let task = link.operation.and_then(|operation| self.by_entry.get(&operation));
        let Some(task) = task.filter(|task| task.calls.is_empty() && !task.failed) else { return };
        let answer: Value = serde_json::from_slice(payload).unwrap_or_default();
        let found = &answer["result"]["structuredContent"];
        // `find_tools` lists tools; a task that was refused lists its candidates, in a tool result or in an error.
        let lists =
            [&found["tools"], &found["error"]["data"]["candidates"], &answer["error"]["data"]["candidates"]];
        let tools = lists.into_iter().filter_map(Value::as_array).flatten();
        let tools: Vec<String> =
            tools.filter_map(|tool| tool["name"].as_str()).take(OFFERED_MAX).map(str::to_owned).collect();
        let query = task.query.clone();
        self.offered = (!tools.is_empty()).then_some(OfferedTools {
            query,
            tools,
            requests_left: REQUESTS_AFTER_OFFER_MAX,
        });
    }

    /// Takes the client's own call of an offered tool as the answer to the last task.
    fn take_offer(&mut self, number: u64, tool: &str) {
        let Some(mut offered) = self.offered.take() else { return };
        if offered.tools.iter().any(|name| name == tool) {
            self.by_entry
                .insert(number, TaskOnTape { query: offered.query, calls: Vec::new(), failed: false });
        } else if offered.requests_left > 1 {
            offered.requests_left -= 1;
            self.offered = Some(offered);
        }
    }

    fn answer(&mut self, backend: &str, reading: &EntryReading) {
        let Some(link) = reading.link().filter(|link| link.role == OperationRole::Answer) else { return };
        let task = link.operation.and_then(|operation| self.by_entry.get_mut(&operation));
        let (Some(task), Some(method::TOOLS_CALL), Some(tool)) = (task, link.method.as_deref(), &link.name)
        else {
            return;
        };
        // An answer that asks for input is not the outcome.
        if reading.envelope.input_required || task.calls.len() >= CALLS_MAX {
            return;
        }
        if reading.is_failure() {
            task.failed = true;
        } else {
            task.calls.push((backend.to_owned(), tool.clone()));
        }
    }

    /// Returns the tasks for which calls were made, all of which succeeded.
    pub fn finish(self) -> impl Iterator<Item = TaskOnTape> {
        self.by_entry.into_values().filter(|task| !task.failed && !task.calls.is_empty())
    }
}

fn query(message: &str, is_tool: bool) -> Option<String> {
    let parts = Parts::of(message).ok()?;
    let holder: Option<&RawValue> = if is_tool { parts.param("arguments") } else { parts.params };
    message::string(message::member(holder, "query")).filter(|query| !query.trim().is_empty())
}

/// The tools that backends listed on one tape.
#[derive(Debug, Default)]
pub struct ToolListReader {
    tools: BTreeMap<(String, String), Value>,
}

impl ToolListReader {
    /// Takes the next entry with its reading.
    pub fn observe(&mut self, entry: &Entry<'_>, reading: &EntryReading) {
        let link = reading.link().filter(|link| link.role == OperationRole::Answer);
        let is_list = link.is_some_and(|link| link.method.as_deref() == Some(method::TOOLS_LIST));
        let Some(backend) = entry.via.filter(|_| is_list && !reading.is_failure()) else { return };
        let mut answer: Value = serde_json::from_slice(entry.payload).unwrap_or_default();
        let Value::Array(tools) = answer["result"]["tools"].take() else { return };
        for tool in tools {
            if let Some(name) = tool["name"].as_str()
                && self.tools.len() < TOOLS_MAX
            {
                // A later list replaces an earlier one.
                self.tools.insert((backend.to_owned(), name.to_owned()), tool);
            }
        }
    }

    /// Returns each tool's definition by its backend and name.
    #[must_use]
    pub fn finish(self) -> BTreeMap<(String, String), Value> {
        self.tools
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::entry::{Terminator, Transport};
    use crate::reading::EntryReader;

    const UP: Direction = Direction::ClientToServer;
    const DOWN: Direction = Direction::ServerToClient;

    type Line<'l> = (Direction, Option<&'l str>, Option<u64>, Value);

    fn read(lines: &[Line<'_>]) -> (Vec<TaskOnTape>, BTreeMap<(String, String), Value>) {
        let (mut reader, mut tasks, mut lists) =
            (EntryReader::default(), TaskReader::default(), ToolListReader::default());
        for (number, (direction, via, operation, message)) in (0..).zip(lines) {
            let payload = message.to_string();
            let entry = Entry {
                kind: EntryKind::Message,
                direction: *direction,
                transport: Transport::Stdio,
                terminator: Terminator::Lf,
                wall_ns: 0,
                since_start_ns: 0,
                processing_ns: 0,
                via: *via,
                connection: 0,
                operation: *operation,
                rule_marks: crate::entry::RuleMarks::default(),
                payload: payload.as_bytes(),
            };
            let reading = reader.read(&entry);
            tasks.observe(number, &entry, &reading);
            lists.observe(&entry, &reading);
        }
        (tasks.finish().collect(), lists.finish())
    }

    fn ask(id: u64, query: &str) -> Line<'_> {
        (
            UP,
            None,
            None,
            json!({ "jsonrpc": "2.0", "id": id, "method": TASK_METHOD, "params": { "query": query } }),
        )
    }

    fn call(id: u64, of: u64, tool: &str) -> Line<'static> {
        let params = json!({ "name": tool, "arguments": {} });
        (
            UP,
            Some("b"),
            Some(of),
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }),
        )
    }

    fn answer(id: u64, of: u64, result: Value) -> Line<'static> {
        (DOWN, Some("b"), Some(of), json!({ "jsonrpc": "2.0", "id": id, "result": result }))
    }

    #[test]
    fn a_task_has_the_calls_that_were_made_for_it() {
        let as_tool = json!({ "name": TASK_TOOL, "arguments": { "query": "two" } });
        let (tasks, _) = read(&[
            ask(1, "one"),
            call(1, 0, "t"),
            (UP, None, None, json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": as_tool })),
            call(2, 3, "other"),
            call(3, 2, "u"),
            answer(3, 2, json!({ "content": [] })),
            answer(1, 0, json!({ "content": [] })),
            call(4, 2, "v"),
            answer(4, 2, json!({})),
        ]);
        let calls =
            |tools: &[&str]| tools.iter().map(|t| ("b".to_owned(), (*t).to_owned())).collect::<Vec<_>>();
        assert_eq!(tasks.len(), 2, "{tasks:?}");
        assert_eq!((tasks[0].query.as_str(), &tasks[0].calls), ("one", &calls(&["t"])));
        assert_eq!((tasks[1].query.as_str(), &tasks[1].calls), ("two", &calls(&["u", "v"])));
    }

    #[test]
    fn a_call_of_an_offered_tool_counts_for_the_task() {
        let as_tool = |id: u64, name: &str, arguments: Value| {
            let params = json!({ "name": name, "arguments": arguments });
            (UP, None, None, json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }))
        };
        let found = |id: u64, tools: &[&str]| {
            let tools: Vec<Value> = tools.iter().map(|name| json!({ "name": name })).collect();
            let result = json!({ "structuredContent": { "tools": tools } });
            (DOWN, None, None, json!({ "jsonrpc": "2.0", "id": id, "result": result }))
        };
        let refused = |id: u64, tool: &str| {
            let error =
                json!({ "code": -32000, "message": "m", "data": { "candidates": [{ "name": tool }] } });
            (DOWN, None, None, json!({ "jsonrpc": "2.0", "id": id, "error": error }))
        };
        let (tasks, _) = read(&[
            as_tool(1, FIND_TOOL, json!({ "query": "one" })),
            found(1, &["b__t", "u"]),
            as_tool(2, "other", json!({})),
            as_tool(3, "b__t", json!({})),
            call(1, 3, "t"),
            answer(1, 3, json!({ "content": [] })),
            as_tool(4, "u", json!({})),
            call(2, 6, "u"),
            answer(2, 6, json!({})),
            ask(5, "two"),
            refused(5, "u"),
            as_tool(6, "u", json!({})),
            call(3, 11, "u"),
            answer(3, 11, json!({})),
            ask(7, "three"),
            refused(7, "t"),
            as_tool(8, "v", json!({})),
            as_tool(9, "v", json!({})),
            as_tool(10, "v", json!({})),
            as_tool(11, "t", json!({})),
            call(4, 19, "t"),
            answer(4, 19, json!({})),
        ]);
        let found: Vec<(&str, &str)> =
            tasks.iter().map(|t| (t.query.as_str(), t.calls[0].1.as_str())).collect();
        assert_eq!(found, [("one", "t"), ("two", "u")], "not what came later, nor too late");
    }

    #[test]
    fn tasks_that_failed_have_no_answer_or_are_too_long_are_left_out() {
        let long = "x".repeat(QUERY_BYTES_MAX + 1);
        let (tasks, _) = read(&[
            ask(1, "failed"),
            call(1, 0, "t"),
            answer(1, 0, json!({ "isError": true })),
            ask(2, "asks back"),
            call(2, 3, "t"),
            answer(2, 3, json!({ "resultType": "input_required" })),
            ask(3, "unanswered"),
            call(3, 6, "t"),
            ask(4, " "),
            call(4, 8, "t"),
            answer(4, 8, json!({})),
            ask(5, &long),
            call(5, 11, "t"),
            answer(5, 11, json!({})),
        ]);
        assert_eq!(tasks, []);
    }

    #[test]
    fn tools_are_read_from_lists_of_backends() {
        let list =
            |id: u64, via| (UP, via, None, json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" }));
        let tools = |id: u64, via, description: &str| {
            let tools = json!([{ "name": "t", "description": description }, { "nameless": 1 }]);
            (DOWN, via, None, json!({ "jsonrpc": "2.0", "id": id, "result": { "tools": tools } }))
        };
        let (_, known) = read(&[
            list(1, Some("b")),
            tools(1, Some("b"), "old"),
            list(2, Some("b")),
            tools(2, Some("b"), "new"),
            list(3, None),
            tools(3, None, "the client's leg"),
        ]);
        let expected = json!({ "name": "t", "description": "new" });
        assert_eq!(known.into_iter().collect::<Vec<_>>(), [(("b".to_owned(), "t".to_owned()), expected)]);
    }
}
