//! Judges the lines of one connection, in both directions: what goes on, what goes back, how long it waits.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::json;

use super::change::{Edits, TooLong};
use super::condition::Need;
use super::document::{Document, Nature};
use super::fits::{Fitting, Open};
use super::judgement::{Judgement, Onward};
use super::plain::plain_id;
use super::refusal::{Refused, SEPARATORS_ESCAPED, Why};
use super::strict::{check, check_places};
use super::{Action, BLOCKED_CODE, DELAY_MAX, Rule, Rules};
use crate::entry::{Acts, Direction};
use crate::envelope::BATCH_MAX;
use crate::json::edit;
use crate::json::strict::{Flaw, escape_separators, scan};
use crate::json::tree::Tree;
use crate::message;

/// Requests that are open through more changes of the rules than this are forgotten.
const EARLIER_MAX: usize = 4;

/// The rules at work on one connection.
#[derive(Debug)]
pub struct Judge {
    in_force: InForce,
    /// The backend, or the connection's name.
    backend: String,
    /// Rules that were in force before.
    earlier: Vec<InForce>,
    bytes_max: usize,
    trust: Trust,
}

/// Which answers to nothing that is known need no suspicion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    None,
    /// Those of the client.
    OfClient,
    All,
}

/// Rules with the requests made under them.
#[derive(Debug)]
struct InForce {
    rules: Arc<Rules>,
    open: Open,
    /// Whether one of them is about this connection.
    concerns: bool,
}

impl Judge {
    /// Puts rules to work on the connection to a backend; no message may become longer than `bytes_max`.
    #[must_use]
    pub fn new(rules: Arc<Rules>, backend: &str, bytes_max: usize) -> Self {
        let concerns = rules.concern(backend);
        Self {
            in_force: InForce { rules, open: Open::default(), concerns },
            backend: backend.to_owned(),
            earlier: Vec::new(),
            bytes_max,
            trust: Trust::None,
        }
    }

    /// Says that an answer to nothing that was asked reaches nobody, so that such an answer needs no suspicion.
    #[must_use]
    pub fn with_checked_ids(self) -> Self {
        Self { trust: Trust::All, ..self }
    }

    /// Says that it sees one request and what comes of it: what a client answers was asked elsewhere.
    #[must_use]
    pub fn of_one_exchange(self) -> Self {
        Self { trust: Trust::OfClient, ..self }
    }

    /// Puts other rules in force. The answer to a request is still judged by the rules it was made under.
    pub fn replace_rules(&mut self, rules: Arc<Rules>) {
        let concerns = rules.concern(&self.backend);
        let new = InForce { rules, open: Open::default(), concerns };
        self.earlier.push(std::mem::replace(&mut self.in_force, new));
        self.earlier.retain(|earlier| !earlier.open.is_empty());
        if self.earlier.len() > EARLIER_MAX {
            self.earlier.remove(0);
        }
    }

    /// Tells whether a rule is about this connection, so that only what every reader reads alike passes.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.in_force.concerns || self.earlier.iter().any(|one| one.concerns && !one.open.is_empty())
    }

    /// Returns the rules that an answer is judged by, and which of them its request fits.
    fn asked(&mut self, direction: Direction, id: &[u8]) -> (Arc<Rules>, Fitting) {
        for in_force in std::iter::once(&mut self.in_force).chain(self.earlier.iter_mut().rev()) {
            if let Some(fitting) = in_force.open.take(direction, id) {
                return (in_force.rules.clone(), fitting);
            }
        }
        let rules = &self.in_force.rules;
        // An error without an id answers nobody's request.
        let is_harmless = match self.trust {
            _ if id == b"null" => true,
            Trust::None => false,
            Trust::OfClient => direction == Direction::ServerToClient,
            Trust::All => true,
        };
        let fitting = if is_harmless { Fitting::exactly(rules.of_any_method()) } else { rules.of_unknown() };
        (rules.clone(), fitting)
    }

    /// Judges a line: a message, or each message of a batch by itself. What readers may read in different ways is
    /// refused; a line of nothing but space says nothing, and passes.
    pub fn line(&mut self, direction: Direction, line: &[u8]) -> Judgement {
        if !self.is_strict() || line.iter().all(|b| matches!(b, b' ' | b'\t')) {
            return Judgement::default();
        }
        self.strictly(direction, line).unwrap_or_else(|refused| {
            refused.judgement(direction, line, |id| {
                self.asked(direction.reversed(), &plain_id(id.as_bytes()));
            })
        })
    }

    fn strictly(&mut self, direction: Direction, line: &[u8]) -> Result<Judgement, Refused> {
        let mut separators = scan(line)?;
        let mut judgement = match line.trim_ascii_start().first() {
            Some(b'{') => self.message(direction, line, self.bytes_max)?,
            Some(b'[') => self.batch(direction, line)?,
            _ => return Err(Refused { why: Why::NotAMessage("it is neither an object nor a batch"), at: 0 }),
        };
        // An id comes back as it was spelled.
        if let Some(back) = &mut judgement.back {
            *back = escape_separators(back, &scan(back)?);
        }
        let text = match &judgement.onward {
            Onward::Nothing => return Ok(judgement),
            Onward::Same => line,
            Onward::Other(other) => {
                separators = scan(other)?;
                other
            }
        };
        if !separators.is_empty() {
            let escaped = escape_separators(text, &separators);
            if escaped.len() > self.bytes_max {
                return Err(Refused { why: Why::TooLong, at: separators[0] });
            }
            judgement.onward = Onward::Other(escaped);
            judgement.marks.note(SEPARATORS_ESCAPED, Acts::CHANGED);
        }
        Ok(judgement)
    }

    fn batch(&mut self, direction: Direction, text: &[u8]) -> Result<Judgement, Refused> {
        let tree = Tree::parse(text).ok_or(Refused { why: Why::Text(Flaw::NotJson), at: 0 })?;
        let mut whole = Judgement::default();
        let (mut edits, mut gone, mut back) = (Edits::new(), Vec::new(), Vec::new());
        let mut put = 0;
        let members: Vec<usize> = tree.children(0).collect();
        if !(1..=BATCH_MAX).contains(&members.len()) {
            let why = Why::NotAMessage("it is a batch of no messages, or of more than 1024");
            return Err(Refused { why, at: 0 });
        }
        for member in &members {
            let range = tree.nodes[*member].range.clone();
            let one = self.message(direction, &text[range.clone()], self.bytes_max.saturating_sub(put));
            let one = one.map_err(|refused| Refused { at: refused.at + range.start, ..refused })?;
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
            whole.marks.act(Acts::CHANGED);
            let taken = edit::take_out(&tree, 0, |member| gone.binary_search(&member).is_ok());
            edits.extend(taken.into_iter().map(|(_, range)| (range, Vec::new())));
            edits.sort_by_key(|(range, _)| range.start);
            let edits = edits.iter().map(|(range, with)| (range.clone(), &**with));
            whole.onward = Onward::Other(edit::apply(text, edits));
        }
        Ok(whole)
    }

    fn message(&mut self, direction: Direction, text: &[u8], bytes_max: usize) -> Result<Judgement, Refused> {
        let no_object = Refused { why: Why::NotAMessage("it is not an object"), at: 0 };
        let mut document = Document::new(Cow::Borrowed(text)).ok_or(no_object)?;
        check(&document)?;
        let nature = document.nature();
        let id = plain_id(document.id().as_bytes());
        let (rules, mut fitting) = match nature {
            Nature::Request | Nature::Notification => {
                let rules = self.in_force.rules.clone();
                let fits = rules.fitting(&document);
                (rules, Fitting::exactly(fits))
            }
            Nature::Answer => self.asked(direction.reversed(), &id),
        };
        let concerned = rules.list.iter().enumerate();
        let concerned = concerned.filter(|(_, rule)| rule.when.concerns(direction, &self.backend));
        check_places(
            &document,
            concerned.clone().filter(|(n, _)| fitting.any.has(*n)).map(|(_, rule)| rule),
        )?;
        let as_it_came = fitting;
        let mut judgement = Judgement::default();
        for (number, rule) in concerned {
            if !fitting.applies(number, rule, &document) {
                continue;
            }
            match &rule.action {
                Action::Allow => {
                    judgement.marks.apply(rule, Acts::default());
                    break;
                }
                Action::Tag(tags) => {
                    judgement.marks.apply(rule, Acts::default());
                    tags.iter().for_each(|tag| judgement.marks.tag(tag));
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
                            fitting = Fitting::exactly(rules.fitting(&document));
                        }
                    }
                    Err(TooLong) => {
                        let why = "this message would become longer than messages may be";
                        let reply = blocked(rule, BLOCKED_CODE, why);
                        return Ok(judgement.end(&document, nature, rule, &reply));
                    }
                },
                Action::Block { code, message } => {
                    return Ok(judgement.end(&document, nature, rule, &blocked(rule, *code, message)));
                }
                Action::Mock { .. } if nature == Nature::Notification => {}
                Action::Mock { result } => {
                    return Ok(judgement.end(&document, nature, rule, &Reply::Result(result)));
                }
            }
        }
        if nature == Nature::Request {
            self.in_force.open.note(direction, &id, fitting.or(as_it_came));
        }
        if let Cow::Owned(other) = document.text {
            judgement.onward = Onward::Other(other);
        }
        Ok(judgement)
    }
}

impl Fitting {
    /// Tells whether a rule applies: to an allow it must be certain, and a note beside needs something to be beside.
    fn applies(&self, number: usize, rule: &Rule, document: &Document<'_>) -> bool {
        let (fits, need) = match rule.action {
            Action::Allow => (self.all, Need::Certain),
            Action::Tag(_) | Action::Delay(_) if !self.is_known => (self.all, Need::Possible),
            _ => (self.any, Need::Possible),
        };
        fits.has(number) && rule.when.conditions.iter().all(|condition| condition.holds(document, need))
    }
}

/// Judges what a client says to a gateway, which takes it apart before rules see what becomes of it: none where every
/// reader reads it alike.
#[must_use]
pub fn refuse_unreadable(direction: Direction, line: &[u8]) -> Option<Judgement> {
    let read = || -> Result<(), Refused> {
        scan(line)?;
        let no_object = Refused { why: Why::NotAMessage("it is not an object"), at: 0 };
        check(&Document::new(Cow::Borrowed(line)).ok_or(no_object)?)
    };
    read().err().map(|refused| refused.judgement(direction, line, |_| ()))
}

impl Judgement {
    /// Ends the matter: the message does not go on, and whoever waits for an answer gets this one.
    fn end(mut self, document: &Document<'_>, nature: Nature, rule: &Rule, reply: &Reply<'_>) -> Self {
        // What earlier rules changed went nowhere.
        self.marks.keep(Acts::DELAYED);
        self.marks.apply(rule, reply.acts());
        let line = reply.to(&document.id());
        match nature {
            Nature::Request => {
                self.onward = Onward::Nothing;
                self.back = Some(line);
            }
            Nature::Answer => self.onward = Onward::Other(line),
            Nature::Notification => self.onward = Onward::Nothing,
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
