//! Takes one message through the rules: the first that decides ends the matter, what the others do adds up.
//!
//! Knows nothing of connections: which rules may fit the message is found out before.

use std::sync::Arc;

use serde_json::json;

use super::change::TooLong;
use super::condition::Need;
use super::document::{Document, Nature};
use super::fits::Fitting;
use super::judgement::{Judgement, Onward};
use super::packed::reach_into_text;
use super::refusal::{Refused, Why};
use super::strict::{check, check_places};
use super::{Action, Change, DELAY_MAX, Rule, Rules};
use crate::entry::{Acts, Direction};
use crate::message;
use crate::protocol::code;

/// A message, alone or within another, before the rules.
pub(super) struct Case<'a> {
    pub(super) document: Document<'a>,
    pub(super) nature: Nature,
    pub(super) rules: Arc<Rules>,
    pub(super) fitting: Fitting,
}

/// What rules made of a message.
pub(super) struct Ruled<'a> {
    /// As they left it.
    pub(super) document: Document<'a>,
    /// Which rules it fits, as it came or as it is now.
    pub(super) fitting: Fitting,
    /// How long it waits, and what its entry tells.
    pub(super) judgement: Judgement,
    /// Set where it does not go on.
    pub(super) ending: Option<Ending>,
}

/// What a rule says in the place of a message.
pub(super) struct Ending {
    pub(super) rule: String,
    pub(super) reply: Reply,
}

/// An answer made here.
pub(super) enum Reply {
    /// An error, as JSON.
    Error(String),
    /// A result, as JSON.
    Result(String),
}

impl Reply {
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

impl Ending {
    pub(super) fn blocked(rule: &str, code: i64, message: &str) -> Self {
        let error = message::error(code, message, Some(&json!({ "rule": rule })));
        Self { rule: rule.to_owned(), reply: Reply::Error(error) }
    }
}

impl Judgement {
    /// Ends the matter: the message does not go on, and whoever waits for an answer gets this one.
    pub(super) fn end(mut self, document: &Document<'_>, nature: Nature, ending: &Ending) -> Self {
        // What earlier rules changed went nowhere.
        self.marks.keep(Acts::DELAYED);
        self.marks.note(&ending.rule, ending.reply.acts());
        let line = ending.reply.to(&document.id());
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

impl<'a> Case<'a> {
    /// Takes the message through the rules that are about what goes this way to or from this backend.
    pub(super) fn apply(
        self,
        mut judgement: Judgement,
        (direction, backend): (Direction, &str),
        bytes_max: usize,
    ) -> Result<Ruled<'a>, Refused> {
        let Self { mut document, nature, rules, mut fitting } = self;
        let concerned = rules.list.iter().enumerate();
        let concerned = concerned.filter(|(_, rule)| rule.when.concerns(direction, backend));
        let look = |document: &Document<'_>, fitting: Fitting| {
            let fitting = concerned.clone().filter(|(number, _)| fitting.any.has(*number));
            check_places(document, fitting.map(|(_, rule)| rule))
        };
        look(&document, fitting)?;
        let as_it_came = fitting;
        let mut ending = None;
        for (number, rule) in concerned.clone() {
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
                Action::Modify(changes) => match changed(&document, changes, bytes_max)? {
                    Ok(None) => {}
                    Ok(Some(other)) => {
                        judgement.marks.apply(rule, Acts::CHANGED);
                        document = other;
                        // What a rule writes is held to the same as what peers write.
                        check(&document)?;
                        if nature != Nature::Answer {
                            fitting = Fitting::exactly(rules.fitting(&document));
                        }
                        look(&document, fitting)?;
                    }
                    Err(TooLong) => {
                        let why = "this message would become longer than messages may be";
                        ending = Some(Ending::blocked(&rule.name, code::BLOCKED, why));
                    }
                },
                Action::Block { code, message } => {
                    ending = Some(Ending::blocked(&rule.name, *code, message));
                }
                Action::Mock { .. } if nature == Nature::Notification => {}
                Action::Mock { result } => {
                    let reply = Reply::Result(result.clone());
                    ending = Some(Ending { rule: rule.name.clone(), reply });
                }
            }
            if ending.is_some() {
                break;
            }
        }
        Ok(Ruled { document, fitting: fitting.or(as_it_came), judgement, ending })
    }
}

impl Fitting {
    /// Tells whether a rule applies: to an allow it must be certain, and a note beside needs something to be beside.
    fn applies(&self, number: usize, rule: &Rule, document: &Document<'_>) -> bool {
        let (fits, need) = match rule.action {
            Action::Allow => (self.all, Need::Certain),
            Action::Tag(_) | Action::Delay(_) => (self.own, Need::Possible),
            _ => (self.any, Need::Possible),
        };
        fits.has(number) && rule.when.conditions.iter().all(|condition| condition.holds(document, need))
    }
}

/// Makes all changes of a rule, each on what the one before left.
fn changed(
    document: &Document<'_>,
    changes: &[Change],
    bytes_max: usize,
) -> Result<Result<Option<Document<'static>>, TooLong>, Refused> {
    let mut latest: Option<Document<'static>> = None;
    for change in changes {
        let made = match &latest {
            Some(latest) => change.apply(latest, bytes_max),
            None => change.apply(document, bytes_max),
        };
        match made {
            Err(TooLong) => return Ok(Err(TooLong)),
            Ok(None) => {}
            // A value that was set may nest deeper than can be looked into.
            Ok(Some(text)) => match Document::new(text.into()) {
                Some(other) => latest = Some(other),
                None => return Ok(Err(TooLong)),
            },
        }
    }
    if reach_into_text(changes, latest.as_ref().unwrap_or(document)) {
        return Err(Refused { why: Why::Packed, at: 0 });
    }
    Ok(Ok(latest))
}
