//! Which client a backend's task belongs to: no client may request, cancel or be notified of another's.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use scrubjay_core::envelope::Era;
use scrubjay_core::message::{self, Splice};
use scrubjay_core::protocol::{TASKS_EXTENSION, code, meta, method, result};
use serde_json::json;
use serde_json::value::RawValue;

use super::{Request, not_found};
use crate::backend::{Answer, Backend};
use crate::session::{ClientFacts, lock};

/// How many tasks' owners are remembered; the oldest are forgotten first, and are unknown to their clients from then
/// on.
const TASKS_MAX: usize = 16_384;
/// How many bytes their ids may have in all: each is kept three times.
const TASKS_BYTES_MAX: usize = 4 << 20;
/// A task with a longer id is not remembered: asked for, it is unknown.
const TASK_ID_BYTES_MAX: usize = 1024;

/// What a modern client can ask of a task.
const MODERN_METHODS: [&str; 3] = [method::TASKS_GET, method::TASKS_UPDATE, method::TASKS_CANCEL];

/// The tasks of all clients.
#[derive(Default)]
pub(super) struct Tasks {
    known: Mutex<TaskTable>,
}

/// By the client that began it and its id.
type TaskKey = (Arc<str>, String);

#[derive(Default)]
struct TaskTable {
    backends: HashMap<TaskKey, Arc<Backend>>,
    order: VecDeque<TaskKey>,
    /// How many bytes the ids in it have.
    bytes: usize,
    /// The client that began a task first, by its backend and id: on a connection that serves all, the only one.
    owners: HashMap<(String, String), Arc<str>>,
}

impl TaskTable {
    /// Returns whose a task on a connection is that serves all clients.
    fn owner(&self, backend: &str, task: &str) -> Option<&Arc<str>> {
        self.owners.get(&(backend.to_owned(), task.to_owned()))
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.order.pop_front() else { return };
        self.bytes -= oldest.1.len();
        if let Some(backend) = self.backends.remove(&oldest) {
            self.owners.remove(&(backend.id.clone(), oldest.1));
        }
    }
}

impl Tasks {
    /// Remembers the task that an answer says was begun; `is_shared` where the connection serves all clients, on which
    /// an id that is another client's does not become this one's.
    pub(super) fn remember(
        &self,
        client: &Arc<str>,
        backend: &Arc<Backend>,
        is_shared: bool,
        answer: &Answer,
    ) {
        let Some(task) = begun(answer).filter(|task| task.len() <= TASK_ID_BYTES_MAX) else { return };
        let mut known = lock(&self.known);
        // A server that hands out one id twice, or a client that learned an id, must not gain another client's task.
        if is_shared && known.owner(&backend.id, &task).is_some_and(|owner| owner != client) {
            return;
        }
        known.owners.entry((backend.id.clone(), task.clone())).or_insert_with(|| client.clone());
        let key = (client.clone(), task);
        if known.backends.insert(key.clone(), backend.clone()).is_none() {
            known.bytes += key.1.len();
            known.order.push_back(key);
        }
        while known.order.len() > TASKS_MAX || known.bytes > TASKS_BYTES_MAX {
            known.forget_oldest();
        }
    }

    /// Returns the backend of a client's task.
    fn backend(&self, client: &Arc<str>, task: &str) -> Option<Arc<Backend>> {
        lock(&self.known).backends.get(&(client.clone(), task.to_owned())).cloned()
    }

    /// Returns the backend of the task that a request is about, where it is about one; a refusal where that is not
    /// plainly a task of its client.
    pub(super) fn backend_for(&self, request: &Request) -> Result<Option<Arc<Backend>>, Answer> {
        let refused = |why| refuse(&request.method, &request.call.facts, why);
        let named = named(request);
        let backend = named.as_ref().and_then(|task| self.backend(&request.call.session.client, task));
        match (is_about_one(&request.method), named, backend) {
            // Not passed on without a task: a server may read the id that we do not.
            (true, None, _) => Err(refused(UNCLEAR)),
            (true, Some(_), None) => Err(refused(UNKNOWN)),
            (_, _, backend) => Ok(backend),
        }
    }

    /// Returns whose a task on a connection is that serves all clients.
    pub(super) fn owner(&self, backend: &str, task: &str) -> Option<Arc<str>> {
        lock(&self.known).owner(backend, task).cloned()
    }

    /// Makes the answer of a list of tasks, without those of other clients.
    pub(super) fn only_own(&self, client: &Arc<str>, backend: &str, result: &str) -> Answer {
        // In a list that we cannot read, a client may still find the tasks of others.
        let object = serde_json::from_str::<&RawValue>(result).ok();
        let Some(object) = object.filter(|list| list.get().starts_with('{') && message::is_readable(list))
        else {
            return Answer::error(
                code::INTERNAL,
                "the server's list of tasks cannot be read, and is not passed on",
            );
        };
        // All members of that name: a client may read any of several.
        let lists = message::members_named(Some(object), "tasks");
        let is_own = |task: &&&RawValue| {
            let id = message::string(message::member(Some(task), "taskId"));
            id.and_then(|id| self.owner(backend, &id)).is_some_and(|owner| owner == *client)
        };
        let own = lists.into_iter().fold(Splice::new(object.get()), |splice, list| {
            let tasks = message::elements(Some(list));
            let own: Vec<&str> = tasks.iter().filter(is_own).map(|task| task.get()).collect();
            splice.replace(Some(list), &format!("[{}]", own.join(",")))
        });
        Answer::Result(own.finish())
    }
}

/// Said of a task that was never begun, was forgotten or is another client's: a client cannot tell which.
const UNKNOWN: &str = "there is no such task";
/// Said of a request that servers may read in different ways, or in which we read no task.
const UNCLEAR: &str = "params.taskId must be there once, be a text and be spelled so";

/// Tells whether a request is about one task.
fn is_about_one(method: &str) -> bool {
    method.starts_with(method::TASKS_PREFIX) && method != method::TASKS_LIST
}

/// Returns the task that a request names, where every server reads the same one in it.
fn named(request: &Request) -> Option<String> {
    match message::members_like(request.params.as_deref()?, "taskId").as_slice() {
        [(key, id)] if key == "taskId" => message::string(Some(id)),
        _ => None,
    }
}

/// Refuses a request about a task. What the protocol says of the request itself comes first, as a server would say it.
fn refuse(method: &str, facts: &ClientFacts, why: &str) -> Answer {
    if facts.era == Era::Modern && !MODERN_METHODS.contains(&method) {
        return not_found(method);
    }
    if facts.era == Era::Modern && !facts.has_extension(TASKS_EXTENSION) {
        let required = json!({ "requiredCapabilities": { "extensions": { TASKS_EXTENSION: {} } } });
        let why = format!("{method} needs the client capability extensions.{TASKS_EXTENSION}");
        return Answer::Error(message::error(code::MISSING_CAPABILITY, &why, Some(&required)));
    }
    Answer::error(code::INVALID_PARAMS, why)
}

/// Returns the id of the task that an answer says was begun.
fn begun(answer: &Answer) -> Option<String> {
    let Answer::Result(result) = answer else { return None };
    // Most answers begin no task; a search for the text is cheaper than parsing each.
    if !result.contains("\"taskId\"") {
        return None;
    }
    let result = serde_json::from_str::<&RawValue>(result).ok();
    let legacy = message::member(message::member(result, "task"), "taskId");
    let is_modern = message::string(message::member(result, result::RESULT_TYPE)).as_deref() == Some("task");
    message::string(legacy.or_else(|| message::member(result, "taskId").filter(|_| is_modern)))
}

/// Returns the task that the parameters of a message are about.
pub(crate) fn related(params: Option<&RawValue>) -> Option<String> {
    let meta = message::member(params, "_meta");
    let related = message::string(message::member(message::member(meta, meta::RELATED_TASK), "taskId"));
    related.or_else(|| message::string(message::member(params, "taskId")))
}

#[cfg(test)]
mod tests;
