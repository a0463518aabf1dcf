//! Finds the messages that belong together: a request with its answer, progress, cancellation, further
//! rounds and task polls.
//!
//! A pure state machine: envelopes in, [`OperationLink`]s out. An operation is identified by the number of the entry
//! that began it. Both sides send requests, so ids are looked up together with the direction. Every table is bounded:
//! the oldest request is forgotten first, and its answer is then flagged as unmatched. Long ids and names are kept as
//! hashes (`operation/shortened.rs`).

mod shortened;

use std::collections::VecDeque;

use serde::Serialize;

pub(crate) use self::shortened::short_id;
use self::shortened::shortened;
use crate::bounded_map::BoundedMap;
use crate::entry::Direction;
use crate::envelope::{Envelope, JsonId, MessageKind};
use crate::protocol::method;

/// The most requests without an answer; the oldest is forgotten first. Far above what a conversation has open, and
/// bounded because a peer that never answers would fill the memory.
pub(crate) const OPEN_MAX: usize = 65_536;
/// The most of them under one id: [`OPEN_MAX`] counts ids, not the requests that queue under one.
const SAME_ID_MAX: usize = 1024;
/// The most answered ids, tasks and request states that are remembered.
const REMEMBERED_MAX: usize = 16_384;

/// The role of a message in its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationRole {
    /// Begins it.
    Request,
    /// Continues it with the input that an answer asked for.
    Round,
    /// Asks for the state of its task.
    Poll,
    /// Answers it, or one of its rounds or polls.
    Answer,
    /// Reports its progress.
    Progress,
    /// Cancels it.
    Cancellation,
    /// Notifies about it in another way.
    Notice,
    /// Belongs to no operation.
    Alone,
}

/// Something unexpected about how a message relates to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationFlag {
    /// An answer to no request on this tape.
    UnmatchedAnswer,
    /// A second answer to one request.
    RepeatedAnswer,
    /// A request under an id that still awaits its answer.
    RepeatedId,
    /// Progress or a cancellation for an operation that is not open.
    UnknownOperation,
    /// Too many requests were open; the oldest was forgotten.
    Forgotten,
}

/// How one message relates to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationLink {
    /// The operation, by the number of the entry that began it.
    pub operation: Option<u64>,
    /// The message's role in it.
    pub role: OperationRole,
    /// The entry this message answers.
    pub answers: Option<u64>,
    /// Nanoseconds between that entry and this one.
    pub response_ns: Option<u64>,
    /// The method of the request, also on its answer.
    pub method: Option<String>,
    /// The tool, prompt or resource of the request, also on its answer.
    pub name: Option<String>,
    /// What is unexpected.
    pub flags: Vec<OperationFlag>,
}

/// When and where a message was recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPosition {
    /// The number of its entry.
    pub(crate) entry: u64,
    /// Which way it went.
    pub(crate) direction: Direction,
    /// Nanoseconds since the tape began.
    pub(crate) since_start_ns: u64,
}

#[derive(Clone, Debug)]
struct OpenOperation {
    operation: u64,
    at: EntryPosition,
    method: Option<String>,
    name: Option<String>,
    progress_token: Option<JsonId>,
}

type Key = (Direction, JsonId);

/// The state of all operations of one conversation.
#[derive(Debug)]
pub(crate) struct Operations {
    /// Requests without an answer; a repeated id queues behind the first.
    open: BoundedMap<Key, VecDeque<OpenOperation>>,
    answered: BoundedMap<Key, u64>,
    progress: BoundedMap<Key, u64>,
    states: BoundedMap<(Direction, String), u64>,
    /// The last demand for input by method and name, for rounds that carry no state.
    demands: BoundedMap<(Direction, String, String), u64>,
    tasks: BoundedMap<String, u64>,
}

impl Default for Operations {
    fn default() -> Self {
        Self {
            open: BoundedMap::new(OPEN_MAX),
            answered: BoundedMap::new(REMEMBERED_MAX),
            progress: BoundedMap::new(REMEMBERED_MAX),
            states: BoundedMap::new(REMEMBERED_MAX),
            demands: BoundedMap::new(REMEMBERED_MAX),
            tasks: BoundedMap::new(REMEMBERED_MAX),
        }
    }
}

impl Operations {
    /// Takes the next message. A batch gives one link for each of its messages.
    pub(crate) fn observe(&mut self, at: EntryPosition, envelope: &Envelope) -> Vec<OperationLink> {
        let envelope = &*shortened(envelope);
        if envelope.kind == MessageKind::Batch {
            envelope.batch.iter().map(|one| self.observe_one(at, one)).collect()
        } else {
            vec![self.observe_one(at, envelope)]
        }
    }

    /// Returns the entries of the requests that still await an answer, oldest first.
    pub(crate) fn unanswered(&self) -> Vec<u64> {
        let mut entries: Vec<u64> = self.open.values().flatten().map(|open| open.at.entry).collect();
        entries.sort_unstable();
        entries
    }

    /// Returns the requests that will never be answered, because the connection is over: entry and id.
    pub(crate) fn end(self) -> Vec<(u64, JsonId)> {
        let open = self.open.into_entries();
        let open = open.flat_map(|((_, id), queue)| queue.into_iter().map(move |o| (o.at.entry, id.clone())));
        let mut open: Vec<_> = open.collect();
        // The map has no order, and equal tapes must give equal results.
        open.sort_unstable();
        open
    }

    fn observe_one(&mut self, at: EntryPosition, envelope: &Envelope) -> OperationLink {
        match envelope.kind {
            MessageKind::Request => self.request(at, envelope),
            MessageKind::Response | MessageKind::Error => self.answer(at, envelope),
            MessageKind::Notification => self.notification(at, envelope),
            MessageKind::Batch | MessageKind::Opaque => OperationLink::alone(envelope),
        }
    }

    fn request(&mut self, at: EntryPosition, envelope: &Envelope) -> OperationLink {
        let Some(id) = envelope.id.clone() else { return OperationLink::alone(envelope) };
        let mut link = OperationLink::alone(envelope);
        let (operation, role) = self.belongs_to(at, envelope);
        link.operation = Some(operation);
        link.role = role;
        let references = &envelope.references;
        if let Some(token) = &references.progress_token {
            // A token may be used again later, and then belongs to the newer request.
            self.progress.insert((at.direction, token.clone()), operation);
        }
        let open = OpenOperation {
            operation,
            at,
            method: envelope.method.clone(),
            name: envelope.name.clone(),
            progress_token: references.progress_token.clone(),
        };
        let key = (at.direction, id);
        if let Some(queue) = self.open.get_mut(&key) {
            link.flags.push(OperationFlag::RepeatedId);
            if queue.len() >= SAME_ID_MAX {
                link.flags.push(OperationFlag::Forgotten);
                queue.pop_front();
            }
            queue.push_back(open);
        } else if self.open.insert(key, VecDeque::from([open])) {
            link.flags.push(OperationFlag::Forgotten);
        }
        link
    }

    /// Finds the operation that a request continues, or begins one.
    fn belongs_to(&mut self, at: EntryPosition, envelope: &Envelope) -> (u64, OperationRole) {
        let references = &envelope.references;
        // A round has a new JSON-RPC id, so only the state that it repeats links it to the earlier ones.
        if let Some(state) = &references.request_state
            && let Some(operation) = self.states.get(&(at.direction, state.clone()))
        {
            return (*operation, OperationRole::Round);
        }
        if references.answers_input && references.request_state.is_none() {
            let key = demand_key(at.direction, envelope.method.as_deref(), envelope.name.as_deref());
            // Without a state only the method and the name link a round to its demand, so a demand is used once.
            if let Some(operation) = self.demands.remove(&key) {
                return (operation, OperationRole::Round);
            }
        }
        if let Some(task) = &references.task
            && let Some(operation) = self.tasks.get(task)
        {
            return (*operation, OperationRole::Poll);
        }
        (at.entry, OperationRole::Request)
    }

    fn answer(&mut self, at: EntryPosition, envelope: &Envelope) -> OperationLink {
        let mut link = OperationLink::alone(envelope);
        let Some(id) = envelope.id.clone() else {
            link.flags.push(OperationFlag::UnmatchedAnswer);
            return link;
        };
        let requester = at.direction.reversed();
        let key = (requester, id);
        let Some(open) = self.close(&key) else {
            let earlier = self.answered.get(&key).copied();
            link.operation = earlier;
            link.flags.push(if earlier.is_some() {
                OperationFlag::RepeatedAnswer
            } else {
                OperationFlag::UnmatchedAnswer
            });
            return link;
        };
        // Remembered to tell a second answer from one to a request that is not on this tape.
        self.answered.insert(key, open.operation);
        // After a demand for input or the creation of a task the operation goes on, and so does its progress.
        if let Some(token) = open.progress_token.clone()
            && !envelope.input_required
            && envelope.references.task.is_none()
        {
            self.progress.remove(&(requester, token));
        }
        if envelope.input_required {
            match &envelope.references.request_state {
                Some(state) => self.states.insert((requester, state.clone()), open.operation),
                None => self.demands.insert(
                    demand_key(requester, open.method.as_deref(), open.name.as_deref()),
                    open.operation,
                ),
            };
        }
        if let Some(task) = &envelope.references.task {
            self.tasks.insert(task.clone(), open.operation);
        }
        link.operation = Some(open.operation);
        link.role = OperationRole::Answer;
        link.answers = Some(open.at.entry);
        // An imported tape may have times in any order.
        link.response_ns = Some(at.since_start_ns.saturating_sub(open.at.since_start_ns));
        link.method = open.method;
        link.name = open.name;
        link
    }

    fn close(&mut self, key: &Key) -> Option<OpenOperation> {
        let queue = self.open.get_mut(key)?;
        // Nothing tells requests with the same id apart, so their answers are taken in the order of the requests.
        let open = queue.pop_front();
        if queue.is_empty() {
            self.open.remove(key);
        }
        open
    }

    fn notification(&mut self, at: EntryPosition, envelope: &Envelope) -> OperationLink {
        let mut link = OperationLink::alone(envelope);
        let references = &envelope.references;
        let requester = at.direction.reversed();
        let (role, found) = if let Some(request) = &references.cancels {
            // The side that asked cancels it; a server may also end a subscription it serves.
            let open =
                [at.direction, requester].into_iter().find_map(|d| self.open.get(&(d, request.clone())));
            (OperationRole::Cancellation, open.and_then(|q| q.front()).map(|o| o.operation))
        } else if let (Some(method::NOTIFICATIONS_PROGRESS), Some(token)) =
            (envelope.method.as_deref(), &references.progress_token)
        {
            (OperationRole::Progress, self.progress.get(&(requester, token.clone())).copied())
        } else if let Some(listen) = &references.subscription {
            let open = self.open.get(&(requester, listen.clone()));
            (OperationRole::Notice, open.and_then(|q| q.front()).map(|o| o.operation))
        } else if let Some(task) = &references.task {
            (OperationRole::Notice, self.tasks.get(task).copied())
        } else {
            return link;
        };
        link.role = role;
        link.operation = found;
        if found.is_none() {
            link.flags.push(OperationFlag::UnknownOperation);
        }
        link
    }
}

impl OperationLink {
    fn alone(envelope: &Envelope) -> Self {
        Self {
            operation: None,
            role: OperationRole::Alone,
            answers: None,
            response_ns: None,
            method: envelope.method.clone(),
            name: envelope.name.clone(),
            flags: Vec::new(),
        }
    }
}

fn demand_key(direction: Direction, method: Option<&str>, name: Option<&str>) -> (Direction, String, String) {
    (direction, method.unwrap_or_default().to_owned(), name.unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{ClientToServer as C, ServerToClient as S};

    #[test]
    fn tables_hold_short_keys_for_ids_and_names_of_any_length() {
        let long = "x".repeat(100_000);
        let mut operations = Operations::default();
        for entry in 0..3 {
            let at = EntryPosition { entry, direction: C, since_start_ns: entry };
            let line = format!(
                r#"{{"id":"{long}{entry}","method":"{long}","params":{{"name":"{long}","requestState":"{long}","_meta":{{"progressToken":"{long}{entry}"}}}}}}"#
            );
            operations.observe(at, &Envelope::parse(line.as_bytes()));
        }
        let answer = format!(r#"{{"id":"{long}1","result":{{}}}}"#);
        let at = EntryPosition { entry: 3, direction: S, since_start_ns: 3 };
        let link = operations.observe(at, &Envelope::parse(answer.as_bytes())).remove(0);
        assert_eq!(link.answers, Some(1), "it is found by its hash");
        let kept = format!("{operations:?}");
        assert!(kept.len() < 10_000, "{} bytes", kept.len());
    }

    /// Plays a conversation, one millisecond a message, and describes each link.
    fn play(script: &[(Direction, &str)]) -> Vec<String> {
        let mut operations = Operations::default();
        script
            .iter()
            .enumerate()
            .flat_map(|(entry, (direction, line))| {
                let entry = entry as u64;
                let at = EntryPosition { entry, direction: *direction, since_start_ns: entry * 1_000_000 };
                operations.observe(at, &Envelope::parse(line.as_bytes()))
            })
            .map(|link| {
                let mut text = format!("{:?}", link.role).to_lowercase();
                if let Some(operation) = link.operation {
                    text += &format!(" of {operation}");
                }
                if let Some(ns) = link.response_ns {
                    text += &format!(" after {}ms", ns / 1_000_000);
                }
                for flag in link.flags {
                    text += &format!(" {flag:?}");
                }
                text
            })
            .collect()
    }

    fn request(id: u32, method: &str, params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    }

    fn result(id: u32, result: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
    }

    fn notice(method: &str, params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
    }

    #[test]
    fn answers_progress_and_cancellation_in_both_directions() {
        let seen = play(&[
            (C, &request(1, "tools/call", r#"{"name":"a","_meta":{"progressToken":"p"}}"#)),
            (S, &request(1, "sampling/createMessage", "{}")),
            (S, &notice("notifications/progress", r#"{"progressToken":"p","progress":1}"#)),
            (C, &result(1, "{}")),
            (S, &result(1, "{}")),
            (S, &result(1, "{}")),
            (S, &result(77, "{}")),
            (S, &notice("notifications/progress", r#"{"progressToken":"p","progress":2}"#)),
            (C, &request(2, "tools/call", r#"{"name":"slow"}"#)),
            (C, &notice("notifications/cancelled", r#"{"requestId":2}"#)),
        ]);
        assert_eq!(
            seen,
            [
                "request of 0",
                "request of 1",
                "progress of 0",
                "answer of 1 after 2ms",
                "answer of 0 after 4ms",
                "alone of 0 RepeatedAnswer",
                "alone UnmatchedAnswer",
                "progress UnknownOperation",
                "request of 8",
                "cancellation of 8",
            ]
        );
    }

    #[test]
    fn rounds_with_new_ids_are_one_operation() {
        let seen = play(&[
            (C, &request(1, "tools/call", r#"{"name":"book"}"#)),
            (S, &result(1, r#"{"resultType":"input_required","inputRequests":{},"requestState":"s1"}"#)),
            (C, &request(2, "tools/call", r#"{"name":"book","inputResponses":{},"requestState":"s1"}"#)),
            (S, &result(2, r#"{"resultType":"input_required","inputRequests":{}}"#)),
            (C, &request(3, "tools/call", r#"{"name":"book","inputResponses":{}}"#)),
            (S, &result(3, r#"{"resultType":"complete"}"#)),
        ]);
        assert_eq!(
            seen,
            [
                "request of 0",
                "answer of 0 after 1ms",
                "round of 0",
                "answer of 0 after 1ms",
                "round of 0",
                "answer of 0 after 1ms"
            ]
        );
    }

    #[test]
    fn task_polls_and_notices_belong_to_the_call_that_made_the_task() {
        let seen = play(&[
            (C, &request(1, "tools/call", r#"{"name":"long","task":{}}"#)),
            (S, &result(1, r#"{"task":{"taskId":"t1","status":"working"}}"#)),
            (C, &request(2, "tasks/get", r#"{"taskId":"t1"}"#)),
            (S, &result(2, r#"{"taskId":"t1","status":"working"}"#)),
            (S, &notice("notifications/tasks/status", r#"{"taskId":"t1"}"#)),
            (
                S,
                &notice(
                    "notifications/x",
                    r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}"#,
                ),
            ),
        ]);
        assert_eq!(
            seen,
            [
                "request of 0",
                "answer of 0 after 1ms",
                "poll of 0",
                "answer of 0 after 1ms",
                "notice of 0",
                "notice of 0"
            ]
        );
    }

    #[test]
    fn repeated_ids_are_flagged_and_answered_in_order() {
        let seen = play(&[
            (C, &request(1, "a", "{}")),
            (C, &request(1, "b", "{}")),
            (S, r#"[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":1,"result":{}}]"#),
        ]);
        assert_eq!(
            seen,
            ["request of 0", "request of 1 RepeatedId", "answer of 0 after 2ms", "answer of 1 after 1ms"]
        );
    }

    #[test]
    fn subscriptions_link_to_their_listen_request() {
        let meta = r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":5}}"#;
        let seen = play(&[
            (C, &request(5, "subscriptions/listen", "{}")),
            (S, &notice("notifications/subscriptions/acknowledged", meta)),
            (S, &notice("notifications/tools/list_changed", meta)),
        ]);
        assert_eq!(seen, ["request of 0", "notice of 0", "notice of 0"]);
    }
}
