//! Takes one message through the rules: the first that decides ends the matter, what the others do adds up.
//!
//! Knows nothing of connections: which rules may fit the message is found out before.

use std::sync::Arc;

use serde_json::json;

use super::change::TooLong;
use super::condition::Certainty;
use super::document::{Document, MessageNature};
use super::json_in_text::reach_into_text;
use super::judgement::{Judgement, Onward};
use super::matching::MatchingRules;
use super::refusal::{RefusalReason, Refused};
use super::strict::{check, check_places};
use super::{DELAY_MAX, Rule, RuleAction, RuleChange, Rules};
use crate::entry::{Direction, RuleEffects};
use crate::message;
use crate::protocol::code;

/// A message, alone or within another, before the rules.
pub(super) struct RuleSubject<'a> {
    pub(super) document: Document<'a>,
    pub(super) nature: MessageNature,
    pub(super) rules: Arc<Rules>,
    pub(super) fitting: MatchingRules,
}

/// What rules made of a message.
pub(super) struct RuleOutcome<'a> {
    /// As they left it.
    pub(super) document: Document<'a>,
    /// Which rules it fits, as it came or as it is now.
    pub(super) fitting: MatchingRules,
    /// How long it waits, and what its entry tells.
    pub(super) judgement: Judgement,
    /// Set where it does not go on.
    pub(super) ending: Option<RuleReply>,
}

/// What a rule says in the place of a message.
pub(super) struct RuleReply {
    pub(super) rule: String,
    pub(super) reply: ReplyBody,
}

/// An answer made here.
pub(super) enum ReplyBody {
    /// An error, as JSON.
    Error(String),
    /// A result, as JSON.
    Result(String),
}

impl ReplyBody {
    fn effects(&self) -> RuleEffects {
        match self {
            Self::Error(_) => RuleEffects::BLOCKED,
            Self::Result(_) => RuleEffects::MOCKED,
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

impl RuleReply {
    pub(super) fn blocked(rule: &str, code: i64, message: &str) -> Self {
        let error = message::error(code, message, Some(&json!({ "rule": rule })));
        Self { rule: rule.to_owned(), reply: ReplyBody::Error(error) }
    }
}

impl Judgement {
    /// Ends the matter: the message does not go on, and whoever waits for an answer gets this one.
    pub(super) fn end(mut self, document: &Document<'_>, nature: MessageNature, ending: &RuleReply) -> Self {
        // What earlier rules changed went nowhere.
        self.marks.keep(RuleEffects::DELAYED);
        self.marks.note(&ending.rule, ending.reply.effects());
        let line = ending.reply.to(&document.id());
        match nature {
            MessageNature::Request => {
                self.onward = Onward::Nothing;
                self.back = Some(line);
            }
            MessageNature::Answer => self.onward = Onward::Other(line),
            MessageNature::Notification => self.onward = Onward::Nothing,
        }
        self
    }
}

impl<'a> RuleSubject<'a> {
    /// Takes the message through the rules that are about what goes this way to or from this backend.
    pub(super) fn apply(
        self,
        mut judgement: Judgement,
        (direction, backend): (Direction, &str),
        bytes_max: usize,
    ) -> Result<RuleOutcome<'a>, Refused> {
        let Self { mut document, nature, rules, mut fitting } = self;
        let concerned = rules.list.iter().enumerate();
        let concerned = concerned.filter(|(_, rule)| rule.when.concerns(direction, backend));
        let look = |document: &Document<'_>, fitting: MatchingRules| {
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
                RuleAction::Allow => {
                    judgement.marks.apply(rule, RuleEffects::default());
                    break;
                }
                RuleAction::Tag(tags) => {
                    judgement.marks.apply(rule, RuleEffects::default());
                    tags.iter().for_each(|tag| judgement.marks.tag(tag));
                }
                RuleAction::Delay(delay) => {
                    judgement.marks.apply(rule, RuleEffects::DELAYED);
                    judgement.delay = judgement.delay.saturating_add(*delay).min(DELAY_MAX);
                }
                RuleAction::Modify(changes) => match changed(&document, changes, bytes_max)? {
                    Ok(None) => {}
                    Ok(Some(other)) => {
                        judgement.marks.apply(rule, RuleEffects::CHANGED);
                        document = other;
                        // What a rule writes is held to the same as what peers write.
                        check(&document)?;
                        if nature != MessageNature::Answer {
                            fitting = MatchingRules::exactly(rules.fitting(&document));
                        }
                        look(&document, fitting)?;
                    }
                    Err(TooLong) => {
                        let why = "this message would become longer than messages may be";
                        ending = Some(RuleReply::blocked(&rule.name, code::BLOCKED, why));
                    }
                },
                RuleAction::Block { code, message } => {
                    ending = Some(RuleReply::blocked(&rule.name, *code, message));
                }
                RuleAction::Mock { .. } if nature == MessageNature::Notification => {}
                RuleAction::Mock { result } => {
                    let reply = ReplyBody::Result(result.clone());
                    ending = Some(RuleReply { rule: rule.name.clone(), reply });
                }
            }
            if ending.is_some() {
                break;
            }
        }
        Ok(RuleOutcome { document, fitting: fitting.or(as_it_came), judgement, ending })
    }
}

impl MatchingRules {
    /// Tells whether a rule applies: to an allow it must be certain, and a note beside needs something to be beside.
    fn applies(&self, number: usize, rule: &Rule, document: &Document<'_>) -> bool {
        let (fits, need) = match rule.action {
            RuleAction::Allow => (self.all, Certainty::Certain),
            RuleAction::Tag(_) | RuleAction::Delay(_) => (self.own, Certainty::Possible),
            _ => (self.any, Certainty::Possible),
        };
        fits.has(number) && rule.when.conditions.iter().all(|condition| condition.holds(document, need))
    }
}

/// Makes all changes of a rule, each on what the one before left.
fn changed(
    document: &Document<'_>,
    changes: &[RuleChange],
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
        return Err(Refused { why: RefusalReason::Packed, at: 0 });
    }
    Ok(Ok(latest))
}
