//! Judges the lines of one connection, in both directions: what goes on, what goes back, how long it waits.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::change::{Edits, TooLong};
use super::document::{Document, Nature};
use super::fits::{Fits, Open};
use super::{Action, BLOCKED_CODE, DELAY_MAX, Rule, Rules};
use crate::entry::{Acts, Direction, Judged, add_line};
use crate::envelope::{Envelope, JsonId, MessageKind, deeper_than};
use crate::json::edit;
use crate::json::tree::{DEPTH_MAX, Kind, Tree};
use crate::message;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Requests that are open through more changes of the rules than this are forgotten.
const EARLIER_MAX: usize = 4;

/// What is to be done with a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// What goes on in its place.
    pub onward: Onward,
    /// What goes back to whoever said it: an answer, or a batch of them.
    pub back: Option<Vec<u8>>,
    /// How long it waits before anything goes either way.
    pub delay: Duration,
    /// What its entry tells.
    pub marks: Marks,
}

/// What goes on in the place of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Onward {
    /// The line, byte for byte.
    #[default]
    Same,
    /// Another.
    Other(Vec<u8>),
    /// Nothing.
    Nothing,
}

/// Which rules applied to a line, and what they did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    acts: Acts,
    rules: String,
    tags: String,
}

impl Marks {
    /// Returns what an entry tells.
    #[must_use]
    pub fn judged(&self) -> Judged<'_> {
        Judged { acts: self.acts, rules: &self.rules, tags: &self.tags }
    }

    fn apply(&mut self, rule: &Rule, acts: Acts) {
        add_line(&mut self.rules, &rule.name);
        self.acts = self.acts.and(acts);
    }

    fn add(&mut self, other: &Self) {
        self.acts = self.acts.and(other.acts);
        other.rules.lines().for_each(|name| add_line(&mut self.rules, name));
        other.tags.lines().for_each(|tag| add_line(&mut self.tags, tag));
    }
}

/// The rules at work on one connection.
#[derive(Debug)]
pub struct Judge {
    rules: Arc<Rules>,
    /// The backend, or the connection's name.
    backend: String,
    open: Open,
    /// Rules that were in force before, with the requests made under them.
    earlier: Vec<(Arc<Rules>, Open)>,
    bytes_max: usize,
}

impl Judge {
    /// Puts rules to work on the connection to a backend; no message may become longer than `bytes_max`.
    #[must_use]
    pub fn new(rules: Arc<Rules>, backend: &str, bytes_max: usize) -> Self {
        Self { rules, backend: backend.to_owned(), open: Open::default(), earlier: Vec::new(), bytes_max }
    }

    /// Puts other rules in force. The answer to a request is still judged by the rules it was made under.
    pub fn replace_rules(&mut self, rules: Arc<Rules>) {
        let rules = std::mem::replace(&mut self.rules, rules);
        self.earlier.push((rules, std::mem::take(&mut self.open)));
        if self.earlier.len() > EARLIER_MAX {
            self.earlier.remove(0);
        }
    }

    /// Returns the rules that an answer is judged by, and which of them its request fits.
    fn asked(&mut self, direction: Direction, id: &[u8]) -> (Arc<Rules>, Fits) {
        if let Some(fits) = self.open.take(direction, id) {
            return (self.rules.clone(), fits);
        }
        for (rules, open) in self.earlier.iter_mut().rev() {
            if let Some(fits) = open.take(direction, id) {
                return (rules.clone(), fits);
            }
        }
        (self.rules.clone(), self.rules.of_any_method())
    }

    /// Judges a line: a message, or each message of a batch by itself. What is none goes on as it is.
    pub fn line(&mut self, direction: Direction, line: &[u8]) -> Judgement {
        let text = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        let mut judgement = match text.trim_ascii_start().first() {
            Some(b'{') if deeper_than(text, DEPTH_MAX) => self.too_deep(direction, text),
            Some(b'{') => self.message(direction, text, self.bytes_max),
            Some(b'[') if deeper_than(text, DEPTH_MAX) => self.too_deep(direction, text),
            Some(b'[') => self.batch(direction, text),
            _ => Judgement::default(),
        };
        if let Onward::Other(other) = &mut judgement.onward
            && text.len() < line.len()
        {
            other.splice(..0, BYTE_ORDER_MARK.iter().copied());
        }
        judgement
    }

    fn batch(&mut self, direction: Direction, text: &[u8]) -> Judgement {
        let Some(tree) = Tree::parse(text).filter(|tree| tree.nodes[0].kind == Kind::Array) else {
            return Judgement::default();
        };
        let mut whole = Judgement::default();
        let (mut edits, mut gone, mut back) = (Edits::new(), Vec::new(), Vec::new());
        let mut put = 0;
        let members: Vec<usize> = tree.children(0).collect();
        for member in &members {
            let range = tree.nodes[*member].range.clone();
            let one = self.message(direction, &text[range.clone()], self.bytes_max.saturating_sub(put));
            whole.marks.add(&one.marks);
            whole.delay = whole.delay.max(one.delay);
            back.extend(one.back);
            match one.onward {
                Onward::Same => {}
                Onward::Other(other) => {
                    put += other.len();
                    edits.push((range, other));
                }
                Onward::Nothing => gone.push(*member),
            }
        }
        if !back.is_empty() {
            whole.back = Some([b"[", &*back.join(&b","[..]), b"]"].concat());
        }
        if !gone.is_empty() && gone.len() == members.len() {
            whole.onward = Onward::Nothing;
        } else if !gone.is_empty() || !edits.is_empty() {
            whole.marks.acts = whole.marks.acts.and(Acts::CHANGED);
            let taken = edit::take_out(&tree, 0, |member| gone.binary_search(&member).is_ok());
            edits.extend(taken.into_iter().map(|(_, range)| (range, Vec::new())));
            edits.sort_by_key(|(range, _)| range.start);
            let edits = edits.iter().map(|(range, with)| (range.clone(), &**with));
            whole.onward = Onward::Other(edit::apply(text, edits));
        }
        whole
    }

    fn message(&mut self, direction: Direction, text: &[u8], bytes_max: usize) -> Judgement {
        let Some(mut document) = Document::new(Cow::Borrowed(text)) else { return Judgement::default() };
        let nature = document.nature();
        let (rules, mut fits) = match nature {
            Nature::Request | Nature::Notification => (self.rules.clone(), self.rules.fitting(&document)),
            Nature::Answer => self.asked(direction.reversed(), &document.plain_id()),
            Nature::Other => return Judgement::default(),
        };
        let as_it_came = fits;
        let mut judgement = Judgement::default();
        for (number, rule) in rules.list.iter().enumerate() {
            let applies = fits.has(number)
                && rule.when.concerns(direction, &self.backend)
                && rule.when.conditions.iter().all(|condition| condition.holds(&document));
            if !applies {
                continue;
            }
            match &rule.action {
                // Nobody knows whether it is this that is allowed.
                Action::Allow if document.is_ambiguous() => continue,
                Action::Allow => {
                    judgement.marks.apply(rule, Acts::default());
                    break;
                }
                Action::Tag(tags) => {
                    judgement.marks.apply(rule, Acts::default());
                    tags.iter().for_each(|tag| add_line(&mut judgement.marks.tags, tag));
                }
                Action::Delay(delay) => {
                    judgement.marks.apply(rule, Acts::DELAYED);
                    judgement.delay = judgement.delay.saturating_add(*delay).min(DELAY_MAX);
                }
                Action::Modify(changes) => match changed(&document, changes, bytes_max) {
                    Ok(None) => {}
                    Ok(Some(other)) => {
                        judgement.marks.apply(rule, Acts::CHANGED);
                        document = other;
                        if nature != Nature::Answer {
                            fits = self.rules.fitting(&document);
                        }
                    }
                    Err(TooLong) => {
                        let why = "this message would become longer than messages may be";
                        return judgement.end(&document, nature, rule, &blocked(rule, BLOCKED_CODE, why));
                    }
                },
                Action::Block { code, message } => {
                    return judgement.end(&document, nature, rule, &blocked(rule, *code, message));
                }
                Action::Mock { .. } if nature == Nature::Notification => {}
                Action::Mock { result } => {
                    return judgement.end(&document, nature, rule, &Reply::Result(result));
                }
            }
        }
        if nature == Nature::Request {
            fits.add(as_it_came);
            self.open.note(direction, &document.plain_id(), fits);
        }
        if let Cow::Owned(other) = document.text {
            judgement.onward = Onward::Other(other);
        }
        judgement
    }

    /// Judges what is nested too deeply to be looked into: where a rule might be meant, it does not pass.
    fn too_deep(&self, direction: Direction, text: &[u8]) -> Judgement {
        let envelope = Envelope::parse(text);
        let alone = std::slice::from_ref(&envelope);
        let messages = if envelope.kind == MessageKind::Batch { envelope.batch.as_slice() } else { alone };
        if envelope.kind == MessageKind::Opaque && !text.trim_ascii_start().starts_with(b"{") {
            // Brackets that are no batch.
            return Judgement::default();
        }
        let mut rules = self.rules.list.iter().filter(|rule| !matches!(rule.action, Action::Tag(_)));
        let Some(rule) = rules.find(|rule| rule.when.concerns(direction, &self.backend)) else {
            return Judgement::default();
        };
        let why = "this message is nested too deeply for the rules to look into it";
        let reply = blocked(rule, BLOCKED_CODE, why);
        let answers = |kinds: &[MessageKind]| -> Vec<Vec<u8>> {
            let owed = messages.iter().filter(|message| kinds.contains(&message.kind));
            owed.map(|message| reply.to(message.id.as_ref().map_or("null", JsonId::as_raw))).collect()
        };
        let (back, onward) =
            (answers(&[MessageKind::Request]), answers(&[MessageKind::Response, MessageKind::Error]));
        let joined = |mut lines: Vec<Vec<u8>>| match lines.len() {
            0 => None,
            1 => lines.pop(),
            _ => Some([b"[", &*lines.join(&b","[..]), b"]"].concat()),
        };
        let mut marks = Marks::default();
        marks.apply(rule, Acts::BLOCKED);
        Judgement {
            onward: joined(onward).map_or(Onward::Nothing, Onward::Other),
            back: joined(back),
            delay: Duration::ZERO,
            marks,
        }
    }
}

impl Judgement {
    /// Ends the matter: the message does not go on, and whoever waits for an answer gets this one.
    fn end(mut self, document: &Document<'_>, nature: Nature, rule: &Rule, reply: &Reply<'_>) -> Self {
        // What earlier rules changed went nowhere.
        let before = if self.marks.acts.has(Acts::DELAYED) { Acts::DELAYED } else { Acts::default() };
        self.marks.acts = before;
        self.marks.apply(rule, reply.acts());
        let line = reply.to(&document.id());
        match nature {
            Nature::Request => {
                self.onward = Onward::Nothing;
                self.back = Some(line);
            }
            Nature::Answer => self.onward = Onward::Other(line),
            Nature::Notification | Nature::Other => self.onward = Onward::Nothing,
        }
        self
    }
}

/// An answer made here.
enum Reply<'a> {
    /// An error, as JSON.
    Error(String),
    /// A result, as JSON.
    Result(&'a str),
}

impl Reply<'_> {
    fn acts(&self) -> Acts {
        match self {
            Self::Error(_) => Acts::BLOCKED,
            Self::Result(_) => Acts::MOCKED,
        }
    }

    fn to(&self, id: &str) -> Vec<u8> {
        let line = match self {
            Self::Error(error) => message::raw_error(id, error),
            Self::Result(result) => message::result(id, result),
        };
        line.into_bytes()
    }
}

fn blocked(rule: &Rule, code: i64, message: &str) -> Reply<'static> {
    Reply::Error(message::error(code, message, Some(&json!({ "rule": rule.name }))))
}

/// Makes all changes of a rule, each on what the one before left.
fn changed(
    document: &Document<'_>,
    changes: &[super::Change],
    bytes_max: usize,
) -> Result<Option<Document<'static>>, TooLong> {
    let mut latest: Option<Document<'static>> = None;
    for change in changes {
        let made = match &latest {
            Some(latest) => change.apply(latest, bytes_max)?,
            None => change.apply(document, bytes_max)?,
        };
        // A value that was set may nest deeper than can be looked into.
        if let Some(text) = made {
            latest = Some(Document::new(Cow::Owned(text)).ok_or(TooLong)?);
        }
    }
    Ok(latest)
}
