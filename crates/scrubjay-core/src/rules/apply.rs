//! Applies the rules to one message: the first that decides is the last to apply, the effects of the others add up.
//!
//! It knows nothing of connections: the caller has determined which rules may match the message.

use std::sync::Arc;

use serde_json::json;

use super::change::TooLong;
use super::condition::Certainty;
use super::document::{Document, MessageNature};
use super::json_in_text::reach_into_text;
use super::judgement::{Forwarded, Judgement};
use super::matching::MatchingRules;
use super::refusal::{RefusalReason, Refused};
use super::strict::{check, check_paths};
use super::{DELAY_MAX, Rule, RuleAction, RuleChange, Rules};
use crate::entry::{Direction, RuleEffects};
use crate::message;
use crate::protocol::code;

/// A message, alone or nested in another, to which rules are to be applied.
pub(super) struct RuleSubject<'a> {
    pub(super) document: Document<'a>,
    pub(super) nature: MessageNature,
    pub(super) rules: Arc<Rules>,
    pub(super) matching: MatchingRules,
}

/// The result of applying the rules to a message.
pub(super) struct RuleOutcome<'a> {
    /// The message as the rules left it.
    pub(super) document: Document<'a>,
    /// The rules that it matches, in its original form or as it is now.
    pub(super) matching: MatchingRules,
    /// Its delay, and the marks for its entry.
    pub(super) judgement: Judgement,
    /// What is sent instead, if the message is not forwarded.
    pub(super) reply: Option<RuleReply>,
}

/// A rule's reply, which replaces a message.
pub(super) struct RuleReply {
    pub(super) rule: String,
    pub(super) body: ReplyBody,
}

/// The body of a reply.
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
        Self { rule: rule.to_owned(), body: ReplyBody::Error(error) }
    }
}

impl Judgement {
    /// Replaces the message by a reply: it is not forwarded, and the peer that waits for an answer gets the reply.
    pub(super) fn stopped_with(
        mut self,
        document: &Document<'_>,
        nature: MessageNature,
        reply: &RuleReply,
    ) -> Self {
        // Changes by earlier rules were never sent, so the entry must not report them; the reply is delayed all the
        // same.
        self.marks.retain(RuleEffects::DELAYED);
        self.marks.note(&reply.rule, reply.body.effects());
        let line = reply.body.to(&document.id());
        match nature {
            MessageNature::Request => {
                self.forwarded = Forwarded::Nothing;
                self.back = Some(line);
            }
            MessageNature::Answer => self.forwarded = Forwarded::Changed(line),
            MessageNature::Notification => self.forwarded = Forwarded::Nothing,
        }
        self
    }
}

impl<'a> RuleSubject<'a> {
    /// Applies the rules for messages in this direction, to or from this backend.
    pub(super) fn apply(
        self,
        mut judgement: Judgement,
        (direction, backend): (Direction, &str),
        bytes_max: usize,
    ) -> Result<RuleOutcome<'a>, Refused> {
        let Self { mut document, nature, rules, mut matching } = self;
        let concerned = rules.list.iter().enumerate();
        let concerned = concerned.filter(|(_, rule)| rule.when.concerns(direction, backend));
        let check_keys = |document: &Document<'_>, matching: MatchingRules| {
            let matching = concerned.clone().filter(|(number, _)| matching.any.has(*number));
            check_paths(document, matching.map(|(_, rule)| rule))
        };
        // Before any rule applies: otherwise a rule could act on a value that the receiver does not read.
        check_keys(&document, matching)?;
        let original_matching = matching;
        let mut reply = None;
        for (number, rule) in concerned.clone() {
            if !matching.applies(number, rule, &document) {
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
                        // A rule's output must pass the same checks as a peer's message.
                        check(&document)?;
                        // An answer keeps the matches of its request, which a change does not affect.
                        if nature != MessageNature::Answer {
                            matching = MatchingRules::exactly(rules.matching(&document));
                        }
                        check_keys(&document, matching)?;
                    }
                    Err(TooLong) => {
                        let why = "this message would exceed the maximum length";
                        reply = Some(RuleReply::blocked(&rule.name, code::BLOCKED, why));
                    }
                },
                RuleAction::Block { code, message } => {
                    reply = Some(RuleReply::blocked(&rule.name, *code, message));
                }
                // A notification has no answer that could be mocked.
                RuleAction::Mock { .. } if nature == MessageNature::Notification => {}
                RuleAction::Mock { result } => {
                    let body = ReplyBody::Result(result.clone());
                    reply = Some(RuleReply { rule: rule.name.clone(), body });
                }
            }
            if reply.is_some() {
                break;
            }
        }
        // Rules about the call apply to its answer, whether they match the original call or the changed one.
        let matching = matching.or(original_matching);
        Ok(RuleOutcome { document, matching, judgement, reply })
    }
}

impl MatchingRules {
    /// Tells whether a rule applies. An `allow` applies only if the match is certain; tags and delays only if the rule
    /// matches the message itself; all others if a match is possible.
    fn applies(&self, number: usize, rule: &Rule, document: &Document<'_>) -> bool {
        let (fits, need) = match rule.action {
            RuleAction::Allow => (self.all, Certainty::Certain),
            RuleAction::Tag(_) | RuleAction::Delay(_) => (self.own, Certainty::Possible),
            _ => (self.any, Certainty::Possible),
        };
        fits.has(number) && rule.when.conditions.iter().all(|condition| condition.holds(document, need))
    }
}

/// Makes all changes of a rule in turn, each on the result of the one before.
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
            // A value that was set may nest deeper than messages may.
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
