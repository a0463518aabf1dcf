//! Refusals of messages that readers may read in different ways: the message is not forwarded, its entry names the
//! reason, and the peer that waits for it gets an error.

use serde_json::json;

use super::judgement::{Forwarded, Judgement};
use super::salvage::{PartialKind, PartialMessage, salvage};
use crate::entry::{Direction, RuleEffects};
use crate::json::strict::{self, JsonProblem, VALUES_MAX};
use crate::protocol::code;
use crate::{envelope, message};

/// The prefix of the reasons, which are stored on tapes like names of rules; a user's rule may not have it.
pub const STRICT_PREFIX: &str = "strict/";
/// The mark of a message whose line separators were escaped.
pub(super) const SEPARATORS_ESCAPED: &str = "strict/line-separator";

/// Why a message was refused, and the position of the reason in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) why: RefusalReason,
    pub(super) at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalReason {
    /// Not strict JSON.
    Text(JsonProblem),
    /// Not a JSON-RPC message, for this reason.
    NotAMessage(&'static str),
    DuplicateKey,
    Spelling,
    Prototype,
    Name,
    Nul,
    Packed,
    TooLong,
}

impl From<strict::ProblemAt> for Refused {
    fn from((flaw, at): strict::ProblemAt) -> Self {
        Self { why: RefusalReason::Text(flaw), at }
    }
}

impl RefusalReason {
    /// Returns the name of the reason on tapes.
    fn name(self) -> &'static str {
        match self {
            Self::Text(JsonProblem::NotUtf8) => "strict/utf-8",
            Self::Text(JsonProblem::ByteOrderMark) => "strict/byte-order-mark",
            Self::Text(JsonProblem::LineEnd) => "strict/line-end",
            Self::Text(JsonProblem::Control) => "strict/control-character",
            Self::Text(JsonProblem::Surrogate) => "strict/surrogate",
            Self::Text(JsonProblem::NotJson) => "strict/json",
            Self::Text(JsonProblem::TooDeep) => "strict/depth",
            Self::Text(JsonProblem::TooManyValues) => "strict/values",
            Self::NotAMessage(_) => "strict/message",
            Self::DuplicateKey => "strict/duplicate-key",
            Self::Spelling => "strict/spelling",
            Self::Prototype => "strict/prototype-key",
            Self::Name => "strict/name",
            Self::Nul => "strict/nul",
            Self::Packed => "strict/packed",
            Self::TooLong => "strict/length",
        }
    }

    fn code(self) -> i64 {
        match self {
            // Valid JSON that is only beyond our limits.
            Self::Text(JsonProblem::TooDeep | JsonProblem::TooManyValues) => code::INVALID_REQUEST,
            Self::Text(_) => code::PARSE,
            _ => code::INVALID_REQUEST,
        }
    }

    fn sentence(self) -> String {
        let text = match self {
            Self::Text(JsonProblem::NotUtf8) => "it is not UTF-8",
            Self::Text(JsonProblem::ByteOrderMark) => "it begins with a byte order mark",
            Self::Text(JsonProblem::LineEnd) => {
                "it holds a raw character at which some readers begin another line"
            }
            Self::Text(JsonProblem::Control) => "a string holds a raw control character",
            Self::Text(JsonProblem::Surrogate) => "a string holds half of a surrogate pair",
            Self::Text(JsonProblem::NotJson) => "it is not one JSON value (RFC 8259)",
            Self::Text(JsonProblem::TooDeep) => {
                return format!("it nests deeper than {} levels", envelope::DEPTH_MAX);
            }
            Self::Text(JsonProblem::TooManyValues) => {
                return format!("it holds more than {VALUES_MAX} values");
            }
            Self::NotAMessage(what) => what,
            Self::DuplicateKey => "a key occurs twice in an object, or twice for readers that ignore case",
            Self::Spelling => "a key differs only by its case from one of the protocol",
            Self::Prototype => "an object has the key __proto__",
            Self::Name => "its method, or the name of what it calls, is missing or is not a plain name",
            Self::Nul => "a key holds NUL",
            Self::Packed => "an argument is a string with JSON in it, in which a rule would change something",
            Self::TooLong => "it would exceed the maximum length",
        };
        text.to_owned()
    }
}

impl Refused {
    /// Returns the error for the peer, as JSON.
    fn error(&self) -> String {
        let Self { why, at } = self;
        let text = format!(
            "Scrubjay did not pass this message on: rules are in force, and {} (at byte {at}). \
             Only messages that every reader reads alike can be judged.",
            why.sentence()
        );
        message::error(why.code(), &text, Some(&json!({ "rule": why.name() })))
    }

    /// Makes the judgement of a refused line; `is_answered` is called with the ids of the answers that are replaced by
    /// errors.
    pub(super) fn judgement(
        &self,
        direction: Direction,
        line: &[u8],
        mut is_answered: impl FnMut(&str),
    ) -> Judgement {
        // A batch with too many values is not parsed here either, since its size is why it was refused.
        let whole = self.why != RefusalReason::Text(JsonProblem::TooManyValues);
        let messages = salvage(line, whole);
        let error = self.error();
        let (mut back, mut forwarded) = (Vec::new(), Vec::new());
        for PartialMessage { kind, id } in &messages {
            match (kind, id) {
                (PartialKind::Request, Some(id)) => back.push(message::raw_error(id, &error)),
                (PartialKind::Answer, Some(id)) => {
                    is_answered(id);
                    forwarded.push(message::raw_error(id, &error));
                }
                _ => {}
            }
        }
        let has_recipient = !back.is_empty() || !forwarded.is_empty();
        let waits = messages.iter().any(|message| message.kind != PartialKind::Notification);
        // A server's stray output expects no answer; a client's unreadable line may be a request.
        if !has_recipient && waits && direction == Direction::ClientToServer {
            back.push(message::raw_error("null", &error));
        }
        // A batch is answered by a batch, even if only one of its messages gets an answer.
        let is_batch = line.trim_ascii_start().first() == Some(&b'[');
        let joined = |lines: Vec<String>| match lines.as_slice() {
            [] => None,
            [one] if !is_batch => Some(one.clone().into_bytes()),
            many => Some(format!("[{}]", many.join(",")).into_bytes()),
        };
        let mut judgement = Judgement {
            forwarded: joined(forwarded).map_or(Forwarded::Nothing, Forwarded::Changed),
            back: joined(back),
            ..Judgement::default()
        };
        judgement.marks.note(self.why.name(), RuleEffects::REFUSED);
        judgement
    }
}
