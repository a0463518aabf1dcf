//! Messages within messages. A modern server asks its client inside a result (`inputRequests`) and is answered inside a
//! request (`inputResponses`); a task's outcome stands inside what is said about the task.
//!
//! Each is judged as if it came by itself. What is blocked there ends the message around it.

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
use crate::protocol::code;

/// Messages may stand within messages this deep: a demand within a task's outcome within a notification.
const WITHIN_MAX: usize = 3;
/// The code of an error that demands an elicitation, in the eras before results could.
const ELICITATION_REQUIRED: f64 = code::URL_ELICITATION_REQUIRED as f64;

/// A message within another.
struct NestedMessage {
    node: usize,
    sort: NestedKind,
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
    /// Returns what to write before and after it to make a message of it, and the member that it is then.
    fn around(self) -> (&'static str, &'static str, &'static [u8]) {
        match self {
            Self::Request => ("", "", b""),
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

    /// Tells whether a result may stand in its place.
    fn is_result(self) -> bool {
        matches!(self, Self::Response | Self::Result)
    }

    /// Returns what a rule made of it, as it stands within the other.
    fn inside<'d>(self, document: &'d Document<'_>) -> &'d [u8] {
        let (_, _, member) = self.around();
        document.member(0, member).map_or(&document.text, |node| document.raw(node))
    }
}

impl Judge {
    /// Judges a message with everything that stands within it.
    pub(super) fn judge<'a>(
        &self,
        direction: Direction,
        mut case: RuleSubject<'a>,
        (bytes_max, depth): (usize, usize),
        notes: &mut Notes,
    ) -> Result<RuleOutcome<'a>, Refused> {
        let mut judgement = Judgement::default();
        let parts = parts(&case.document, case.nature, case.fitting.is_about_task)?;
        if !parts.is_empty() {
            if depth == WITHIN_MAX {
                let why = RefusalReason::NotAMessage("it holds messages within messages within messages");
                return Err(Refused { why, at: 0 });
            }
            let mut edits = Edits::new();
            for part in parts {
                let ruled = self.judge_part(direction, &case, &part, (bytes_max, depth), notes)?;
                judgement.marks.add(&ruled.judgement.marks);
                judgement.delay = judgement.delay.max(ruled.judgement.delay);
                let instead = match ruled.ending {
                    None if !ruled.judgement.marks.as_marks().effects.has(RuleEffects::CHANGED) => continue,
                    None => part.sort.inside(&ruled.document).to_vec(),
                    Some(RuleReply { rule, reply: ReplyBody::Result(result) }) if part.sort.is_result() => {
                        judgement.marks.note(&rule, RuleEffects::CHANGED);
                        result.into_bytes()
                    }
                    Some(ending) => {
                        let RuleSubject { document, fitting, .. } = case;
                        let ending = Some(as_error(ending));
                        return Ok(RuleOutcome { document, fitting, judgement, ending });
                    }
                };
                edits.push((case.document.tree.nodes[part.node].range.clone(), instead));
            }
            if !edits.is_empty() {
                case.document = spliced(&case.document, edits, bytes_max)?;
            }
        }
        case.apply(judgement, (direction, &self.backend), bytes_max)
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
        let (before, after, _) = part.sort.around();
        let raw = outer.raw(part.node);
        let text = match before {
            "" => Cow::Borrowed(raw),
            _ => Cow::Owned([before.as_bytes(), raw, after.as_bytes()].concat()),
        };
        let start = outer.tree.nodes[part.node].range.start;
        let within =
            |refused: Refused| Refused { at: start + refused.at.saturating_sub(before.len()), ..refused };
        let no_request =
            || within(Refused { why: RefusalReason::NotAMessage("it demands input by no request"), at: 0 });
        let document = Document::new(text).ok_or_else(no_request)?;
        check(&document).map_err(within)?;
        let nature = part.sort.nature();
        let ours = &self.in_force.rules;
        let (rules, fitting) = match part.sort {
            _ if nature == MessageNature::Request && document.method().is_none() => return Err(no_request()),
            NestedKind::Request | NestedKind::Elicitation => {
                (ours, MatchingRules::exactly(ours.fitting(&document)))
            }
            NestedKind::Response => (ours, self.demanded(&input(direction, outer, part.node))),
            NestedKind::Result | NestedKind::Error if around.nature == MessageNature::Answer => {
                (&around.rules, around.fitting)
            }
            NestedKind::Result | NestedKind::Error => {
                (ours, self.task(direction, outer).unwrap_or(ours.of_unknown()))
            }
        };
        let case = RuleSubject { document, nature, rules: rules.clone(), fitting };
        let ruled = self.judge(direction, case, (bytes_max, depth + 1), notes).map_err(within)?;
        if part.sort == NestedKind::Request && ruled.ending.is_none() {
            notes.know(input(direction.reversed(), outer, part.node), ruled.fitting);
        }
        Ok(ruled)
    }

    /// Returns which rules a demand fits that was made before.
    fn demanded(&self, input: &ReferenceKey) -> MatchingRules {
        self.in_force.memory.find(input).unwrap_or_else(|| self.in_force.rules.of_unknown_input())
    }

    /// Returns which rules the call fits that began the task which a message is about; none where it is about none.
    /// The task's outcome goes this way.
    pub(super) fn task(&self, direction: Direction, document: &Document<'_>) -> Option<MatchingRules> {
        let id = document.body().and_then(|body| task_id(document, body))?;
        let known = self.in_force.memory.find(&ReferenceKey::task(direction, &id));
        Some(known.unwrap_or_else(|| self.in_force.rules.of_unknown()))
    }
}

/// Makes an error of what a rule says in the place of a message that nobody here can answer by itself.
fn as_error(ending: RuleReply) -> RuleReply {
    match ending.reply {
        ReplyBody::Error(_) => ending,
        ReplyBody::Result(_) => {
            let why = "a message within another cannot be answered from here";
            RuleReply::blocked(&ending.rule, code::BLOCKED, why)
        }
    }
}

/// Puts other messages in the places of those within one.
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

/// Returns the ids of the tasks that an answer says were begun.
pub(super) fn begun(document: &Document<'_>) -> impl Iterator<Item = Vec<u8>> {
    let body = document.body().filter(|body| document.kind(*body) == NodeKind::Object);
    let holders = [body, body.and_then(|body| document.member(body, b"task"))];
    holders.into_iter().flatten().filter_map(|holder| task_id(document, holder))
}

fn task_id(document: &Document<'_>, holder: usize) -> Option<Vec<u8>> {
    let holder = Some(holder).filter(|holder| document.kind(*holder) == NodeKind::Object)?;
    document.member(holder, b"taskId").map(|id| plain_id(document.raw(id)))
}

/// Returns how a demand, or the answer to it, is known: by its key, and by the state or the task it is part of.
fn input(direction: Direction, document: &Document<'_>, node: usize) -> ReferenceKey {
    let parent = |node: usize| document.tree.nodes[node].parent.unwrap_or(0);
    let holder = parent(parent(node));
    let state = document.member(holder, b"requestState").or_else(|| document.member(holder, b"taskId"));
    let state = state.map(|state| plain_id(document.raw(state))).unwrap_or_default();
    ReferenceKey::input(direction, &state, &document.key(node))
}

/// Lists the messages that stand within one.
fn parts(
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
    look(document, body, (nature, is_about_task), &mut found, &mut task)?;
    if let Some(task) = task.filter(is_object) {
        look(document, task, (nature, false), &mut found, &mut None)?;
    }
    Ok(found)
}

fn look(
    document: &Document<'_>,
    holder: usize,
    (nature, mut is_about_task): (MessageNature, bool),
    found: &mut Vec<NestedMessage>,
    task: &mut Option<usize>,
) -> Result<(), Refused> {
    let (mut result, mut error) = (None, None);
    for child in document.tree.children(holder) {
        match &*document.key(child) {
            b"inputRequests" => members(document, child, NestedKind::Request, found)?,
            b"inputResponses" => members(document, child, NestedKind::Response, found)?,
            b"task" => *task = Some(child),
            b"taskId" => is_about_task = true,
            b"result" => result = Some(child),
            b"error" => error = Some(child),
            _ => {}
        }
    }
    if is_about_task && nature != MessageNature::Request {
        found.extend(result.map(|node| NestedMessage { node, sort: NestedKind::Result }));
        let error = error.filter(|error| document.raw(*error) != b"null");
        found.extend(error.map(|node| NestedMessage { node, sort: NestedKind::Error }));
    }
    Ok(())
}

fn members(
    document: &Document<'_>,
    object: usize,
    sort: NestedKind,
    found: &mut Vec<NestedMessage>,
) -> Result<(), Refused> {
    if document.kind(object) == NodeKind::Object {
        found.extend(document.tree.children(object).map(|node| NestedMessage { node, sort }));
    } else if document.raw(object) != b"null" {
        let why = RefusalReason::NotAMessage("its inputRequests or inputResponses are not an object");
        return Err(Refused { why, at: document.tree.nodes[object].start() });
    }
    Ok(())
}

/// Finds what an error demands that says so by its code.
fn elicitations(document: &Document<'_>, error: usize, found: &mut Vec<NestedMessage>) {
    let code = document.member(error, b"code").map(|code| document.raw(code));
    let code = code.and_then(|code| std::str::from_utf8(code).ok()?.parse::<f64>().ok());
    if code != Some(ELICITATION_REQUIRED) {
        return;
    }
    let data = document.member(error, b"data");
    if let Some(list) = data.and_then(|data| document.member(data, b"elicitations")) {
        found.extend(
            document.tree.children(list).map(|node| NestedMessage { node, sort: NestedKind::Elicitation }),
        );
    }
}
