//! Messages nested in messages. A modern server asks its client inside a result (`inputRequests`) and is answered
//! inside a request (`inputResponses`); the result of a task is nested in messages about the task.
//!
//! Each is judged as if it were a message of its own. If a nested message is blocked, the outer one is too.

use std::borrow::Cow;
use std::ops::Range;

use super::super::apply::{ReplyBody, RuleOutcome, RuleReply, RuleSubject};
use super::super::change::Edits;
use super::super::document::{Document, MessageNature};
use super::super::judgement::Judgement;
use super::super::matching::{MatchingRules, ReferenceKey};
use super::super::portable::plain_id;
use super::super::refusal::{RefusalReason, Refused};
use super::super::strict::check;
use super::Judge;
use super::notes::Notes;
use crate::entry::{Direction, RuleEffects};
use crate::json::edit;
use crate::json::tree::NodeKind;
use crate::protocol::{code, result};

/// The depth of nesting: the deepest legal case is a request for input in a task's result in a notification.
const WITHIN_MAX: usize = 3;
/// The code of an error that demands an elicitation; only in later versions can results do so.
const ELICITATION_REQUIRED: f64 = code::URL_ELICITATION_REQUIRED as f64;

const INPUT_REQUESTS: &[u8] = result::INPUT_REQUESTS.as_bytes();
const INPUT_RESPONSES: &[u8] = result::INPUT_RESPONSES.as_bytes();
const REQUEST_STATE: &[u8] = result::REQUEST_STATE.as_bytes();

/// A message nested in another.
struct NestedMessage {
    node: usize,
    kind: NestedKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NestedKind {
    /// A member of `inputRequests`.
    Request,
    /// A member of `inputResponses`.
    Response,
    /// The parameters of an elicitation that an error demands.
    Elicitation,
    /// The `result` of a task.
    Result,
    /// The `error` of a task.
    Error,
}

impl NestedKind {
    /// Returns the text before and after it that makes it a message, and the member of that message that it then is.
    fn wrapper(self) -> (&'static str, &'static str, &'static [u8]) {
        match self {
            Self::Request => ("", "", b""),
            // Any id does here: the wrapper is only judged, and `content` takes the message out of it again.
            Self::Response | Self::Result => (r#"{"id":0,"result":"#, "}", b"result"),
            Self::Error => (r#"{"id":0,"error":"#, "}", b"error"),
            Self::Elicitation => (r#"{"id":0,"method":"elicitation/create","params":"#, "}", b"params"),
        }
    }

    fn nature(self) -> MessageNature {
        match self {
            Self::Request | Self::Elicitation => MessageNature::Request,
            Self::Response | Self::Result | Self::Error => MessageNature::Answer,
        }
    }

    /// Tells whether a result may replace it.
    fn is_result(self) -> bool {
        matches!(self, Self::Response | Self::Result)
    }

    /// Returns its text after the rules, without the wrapper.
    fn content<'d>(self, document: &'d Document<'_>) -> &'d [u8] {
        let (_, _, member) = self.wrapper();
        document.member(0, member).map_or(&document.text, |node| document.raw(node))
    }
}

impl Judge {
    /// Judges a message and the messages nested in it.
    pub(super) fn judge<'a>(
        &self,
        direction: Direction,
        mut subject: RuleSubject<'a>,
        (bytes_max, depth): (usize, usize),
        notes: &mut Notes,
    ) -> Result<RuleOutcome<'a>, Refused> {
        let mut judgement = Judgement::default();
        let parts = nested_messages(&subject.document, subject.nature, subject.matching.is_about_task)?;
        if !parts.is_empty() {
            if depth == WITHIN_MAX {
                let why = RefusalReason::NotAMessage("it nests messages too deeply");
                return Err(Refused { why, at: 0 });
            }
            let mut edits = Edits::new();
            for part in parts {
                let outcome = self.judge_part(direction, &subject, &part, (bytes_max, depth), notes)?;
                judgement.marks.add(&outcome.judgement.marks);
                judgement.delay = judgement.delay.max(outcome.judgement.delay);
                let instead = match outcome.reply {
                    None if !outcome.judgement.marks.as_marks().effects.has(RuleEffects::CHANGED) => continue,
                    None => part.kind.content(&outcome.document).to_vec(),
                    // A mocked response stays where it is; everything else that replaces a nested message ends the
                    // outer one.
                    Some(RuleReply { rule, body: ReplyBody::Result(result) }) if part.kind.is_result() => {
                        judgement.marks.note(&rule, RuleEffects::CHANGED);
                        result.into_bytes()
                    }
                    Some(reply) => {
                        let RuleSubject { document, matching, .. } = subject;
                        let reply = Some(as_error(reply));
                        return Ok(RuleOutcome { document, matching, judgement, reply });
                    }
                };
                edits.push((subject.document.tree.nodes[part.node].range.clone(), instead));
            }
            if !edits.is_empty() {
                subject.document = spliced(&subject.document, edits, bytes_max)?;
            }
        }
        subject.apply(judgement, (direction, &self.backend), bytes_max)
    }

    fn judge_part<'d>(
        &self,
        direction: Direction,
        around: &'d RuleSubject<'_>,
        part: &NestedMessage,
        (bytes_max, depth): (usize, usize),
        notes: &mut Notes,
    ) -> Result<RuleOutcome<'d>, Refused> {
        let outer = &around.document;
        let (before, after, _) = part.kind.wrapper();
        let raw = outer.raw(part.node);
        let text = match before {
            "" => Cow::Borrowed(raw),
            _ => Cow::Owned([before.as_bytes(), raw, after.as_bytes()].concat()),
        };
        let start = outer.tree.nodes[part.node].range.start;
        // Positions in a refusal count from the beginning of the outer message, without the wrapper.
        let within =
            |refused: Refused| Refused { at: start + refused.at.saturating_sub(before.len()), ..refused };
        let no_request = || {
            within(Refused {
                why: RefusalReason::NotAMessage("its inputRequests hold something that is not a request"),
                at: 0,
            })
        };
        let document = Document::new(text).ok_or_else(no_request)?;
        check(&document).map_err(within)?;
        let nature = part.kind.nature();
        let ours = &self.in_force.rules;
        let (rules, matching) = match part.kind {
            _ if nature == MessageNature::Request && document.method().is_none() => return Err(no_request()),
            NestedKind::Request | NestedKind::Elicitation => {
                (ours, MatchingRules::exactly(ours.matching(&document)))
            }
            NestedKind::Response => (ours, self.matching_of_input(&input_key(direction, outer, part.node))),
            NestedKind::Result | NestedKind::Error if around.nature == MessageNature::Answer => {
                (&around.rules, around.matching)
            }
            NestedKind::Result | NestedKind::Error => {
                (ours, self.matching_of_task(direction, outer).unwrap_or(ours.for_unknown_request()))
            }
        };
        let subject = RuleSubject { document, nature, rules: rules.clone(), matching };
        let outcome = self.judge(direction, subject, (bytes_max, depth + 1), notes).map_err(within)?;
        if part.kind == NestedKind::Request && outcome.reply.is_none() {
            notes.remember(input_key(direction.reversed(), outer, part.node), outcome.matching);
        }
        Ok(outcome)
    }

    /// Returns the rules that an earlier request for input matches.
    fn matching_of_input(&self, input: &ReferenceKey) -> MatchingRules {
        self.in_force.memory.find(input).unwrap_or_else(|| self.in_force.rules.for_unknown_input())
    }

    /// Returns the rules that match the call behind the task of a message; `None` if the message is about no task.
    /// `direction` is that of the task's result.
    pub(super) fn matching_of_task(
        &self,
        direction: Direction,
        document: &Document<'_>,
    ) -> Option<MatchingRules> {
        let id = document.body().and_then(|body| task_id(document, body))?;
        let known = self.in_force.memory.find(&ReferenceKey::task(direction, &id));
        Some(known.unwrap_or_else(|| self.in_force.rules.for_unknown_request()))
    }
}

/// Turns a rule's reply to a nested message into an error: a nested message cannot be answered separately.
fn as_error(reply: RuleReply) -> RuleReply {
    match reply.body {
        ReplyBody::Error(_) => reply,
        ReplyBody::Result(_) => {
            let why = "a nested message cannot be answered by a rule";
            RuleReply::blocked(&reply.rule, code::BLOCKED, why)
        }
    }
}

/// Replaces nested messages.
fn spliced(
    document: &Document<'_>,
    mut edits: Edits,
    bytes_max: usize,
) -> Result<Document<'static>, Refused> {
    edits.sort_by_key(|(range, _)| range.start);
    let at = edits.first().map_or(0, |(range, _)| range.start);
    let too_long = || Refused { why: RefusalReason::TooLong, at };
    let edits = edits.iter().map(|(range, with): &(Range<usize>, Vec<u8>)| (range.clone(), &**with));
    let text = edit::apply(&document.text, edits);
    if text.len() > bytes_max {
        return Err(too_long());
    }
    Document::new(Cow::Owned(text)).ok_or_else(too_long)
}

/// Returns the ids of the tasks that an answer reports as begun.
pub(super) fn begun_tasks(document: &Document<'_>) -> impl Iterator<Item = Vec<u8>> {
    let body = document.body().filter(|body| document.kind(*body) == NodeKind::Object);
    let holders = [body, body.and_then(|body| document.member(body, b"task"))];
    holders.into_iter().flatten().filter_map(|holder| task_id(document, holder))
}

fn task_id(document: &Document<'_>, holder: usize) -> Option<Vec<u8>> {
    let holder = Some(holder).filter(|holder| document.kind(*holder) == NodeKind::Object)?;
    document.member(holder, b"taskId").map(|id| plain_id(document.raw(id)))
}

/// Returns the key under which a request for input, or the answer to it, is remembered: its name with its state or
/// task.
fn input_key(direction: Direction, document: &Document<'_>, node: usize) -> ReferenceKey {
    let parent = |node: usize| document.tree.nodes[node].parent.unwrap_or(0);
    let holder = parent(parent(node));
    let state = document.member(holder, REQUEST_STATE).or_else(|| document.member(holder, b"taskId"));
    let state = state.map(|state| plain_id(document.raw(state))).unwrap_or_default();
    ReferenceKey::input(direction, &state, &document.key(node))
}

/// Lists the messages nested in one.
fn nested_messages(
    document: &Document<'_>,
    nature: MessageNature,
    is_about_task: bool,
) -> Result<Vec<NestedMessage>, Refused> {
    let mut found = Vec::new();
    let is_object = |node: &usize| document.kind(*node) == NodeKind::Object;
    let Some(body) = document.body().filter(is_object) else { return Ok(found) };
    if document.member(0, b"error") == Some(body) {
        elicitations(document, body, &mut found);
        return Ok(found);
    }
    let mut task = None;
    find_in(document, body, (nature, is_about_task), &mut found, &mut task)?;
    if let Some(task) = task.filter(is_object) {
        find_in(document, task, (nature, false), &mut found, &mut None)?;
    }
    Ok(found)
}

fn find_in(
    document: &Document<'_>,
    holder: usize,
    (nature, mut is_about_task): (MessageNature, bool),
    found: &mut Vec<NestedMessage>,
    task: &mut Option<usize>,
) -> Result<(), Refused> {
    let (mut result, mut error) = (None, None);
    for child in document.tree.children(holder) {
        match &*document.key(child) {
            INPUT_REQUESTS => members(document, child, NestedKind::Request, found)?,
            INPUT_RESPONSES => members(document, child, NestedKind::Response, found)?,
            b"task" => *task = Some(child),
            b"taskId" => is_about_task = true,
            b"result" => result = Some(child),
            b"error" => error = Some(child),
            _ => {}
        }
    }
    if is_about_task && nature != MessageNature::Request {
        found.extend(result.map(|node| NestedMessage { node, kind: NestedKind::Result }));
        let error = error.filter(|error| document.raw(*error) != b"null");
        found.extend(error.map(|node| NestedMessage { node, kind: NestedKind::Error }));
    }
    Ok(())
}

fn members(
    document: &Document<'_>,
    object: usize,
    kind: NestedKind,
    found: &mut Vec<NestedMessage>,
) -> Result<(), Refused> {
    if document.kind(object) == NodeKind::Object {
        found.extend(document.tree.children(object).map(|node| NestedMessage { node, kind }));
    } else if document.raw(object) != b"null" {
        let why = RefusalReason::NotAMessage("its inputRequests or inputResponses are not an object");
        return Err(Refused { why, at: document.tree.nodes[object].start() });
    }
    Ok(())
}

/// Finds the elicitations that an error with [`ELICITATION_REQUIRED`] demands.
fn elicitations(document: &Document<'_>, error: usize, found: &mut Vec<NestedMessage>) {
    let code = document.member(error, b"code").map(|code| document.raw(code));
    let code = code.and_then(|code| std::str::from_utf8(code).ok()?.parse::<f64>().ok());
    if code != Some(ELICITATION_REQUIRED) {
        return;
    }
    let data = document.member(error, b"data");
    if let Some(list) = data.and_then(|data| document.member(data, b"elicitations")) {
        found.extend(
            document.tree.children(list).map(|node| NestedMessage { node, kind: NestedKind::Elicitation }),
        );
    }
}
