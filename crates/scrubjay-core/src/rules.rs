//! Rules: what is done to messages between a client and a server.
//!
//! Rules are an ordered list. `allow`, `block` and `mock` decide: the first of them that applies is the last rule to
//! apply. `modify`, `delay` and `tag` add up, and a later rule sees the message as the earlier ones left it. Bytes in,
//! a [`Judgement`] out: the relay waits, records and sends. Only messages that every reader reads alike are judged
//! (`strict`); the rest is refused. A message to which no rule applies keeps its bytes.

mod apply;
mod change;
mod condition;
mod document;
mod json_in_text;
mod judge;
mod judgement;
mod lenient;
mod matching;
mod portable;
mod refusal;
mod salvage;
mod strict;

use std::borrow::Cow;
use std::time::Duration;

use crate::entry::Direction;
use crate::glob::Glob;
use crate::protocol::{code, method};

pub use self::change::RuleChange;
pub use self::condition::{Condition, ValueCheck};
pub use self::document::{JsonPath, JsonPathError};
pub use self::judge::{Judge, refuse_unreadable};
pub use self::judgement::{Forwarded, Judgement, OwnedRuleMarks};
pub use self::matching::RULES_MAX;
pub use self::refusal::STRICT_PREFIX;
pub use crate::expression::ExpressionError;

use self::document::Document;
use self::matching::{MatchingRules, RuleSet};

/// The longest delay of a message, all rules together. In `wrap` it also holds up every message behind it.
pub const DELAY_MAX: Duration = Duration::from_secs(60);

/// The requests that a modern server may make of its client inside a result.
const INPUT_METHODS: [&str; 3] =
    [method::SAMPLING_CREATE_MESSAGE, method::ELICITATION_CREATE, method::ROOTS_LIST];

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name on tapes and in errors.
    pub name: String,
    /// The messages it is about.
    pub when: RuleMatch,
    /// What is done to them.
    pub action: RuleAction,
}

impl Rule {
    /// Lists the paths of the values that it reads or changes.
    fn paths(&self) -> impl Iterator<Item = &JsonPath> {
        let changes = match &self.action {
            RuleAction::Modify(changes) => changes.as_slice(),
            _ => &[],
        };
        self.when.conditions.iter().map(|one| &one.path).chain(changes.iter().map(RuleChange::path))
    }
}

/// The messages that a rule is about; an empty or absent member matches all.
#[derive(Clone, Debug, Default)]
pub struct RuleMatch {
    /// Messages in this direction.
    pub direction: Option<Direction>,
    /// Messages of one of these methods; an answer has the method of its request.
    pub methods: Vec<Glob>,
    /// Messages to or from one of these backends.
    pub backends: Vec<Glob>,
    /// Calls of one of these tools, and their answers.
    pub tools: Vec<Glob>,
    /// Messages whose parameters, result or error meet all of these conditions.
    pub conditions: Vec<Condition>,
}

/// What a rule does.
#[derive(Clone, Debug)]
pub enum RuleAction {
    /// Lets the message pass; later rules do not apply.
    Allow,
    /// Does not forward the message; the peer that waits for an answer gets an error.
    Block {
        /// The error's code.
        code: i64,
        /// The error's message.
        message: String,
    },
    /// Changes the message.
    Modify(Vec<RuleChange>),
    /// Delays the message.
    Delay(Duration),
    /// Answers the request in place of the server, or replaces the answer.
    Mock {
        /// The result, as JSON.
        result: String,
    },
    /// Adds tags to its entry on the tape.
    Tag(Vec<String>),
}

/// The rules in force.
#[derive(Clone, Debug)]
pub struct Rules {
    list: Vec<Rule>,
}

impl Rules {
    /// Takes the rules in their order.
    ///
    /// # Panics
    /// There are more than [`RULES_MAX`]: a [`RuleSet`] has no bit for the others, so they would never apply.
    #[must_use]
    pub fn new(list: Vec<Rule>) -> Self {
        assert!(list.len() <= RULES_MAX, "too many rules");
        Self { list }
    }

    /// Tells whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the rules for answers to requests whose own rules are no longer kept.
    fn blocking_everything() -> Self {
        let message = "the rules changed while this request was open, and its own rules are no longer known: send it again";
        let action = RuleAction::Block { code: code::BLOCKED, message: message.to_owned() };
        let name = format!("{STRICT_PREFIX}rules-changed");
        Self::new(vec![Rule { name, when: RuleMatch::default(), action }])
    }

    /// Returns the names of the rules that are about none of these backends.
    pub fn about_none_of<'r>(&'r self, backends: &'r [&str]) -> impl Iterator<Item = &'r str> {
        let is_idle = |rule: &&Rule| !backends.iter().any(|backend| rule.when.is_about(backend));
        self.list.iter().filter(is_idle).map(|rule| rule.name.as_str())
    }

    /// Tells whether one of the rules is about a backend.
    fn concern_backend(&self, backend: &str) -> bool {
        self.list.iter().any(|rule| rule.when.is_about(backend))
    }

    /// Returns the rules that match the method and the tool of a request or notification.
    fn matching(&self, document: &Document<'_>) -> RuleSet {
        let (method, tool) = (document.method(), document.tool());
        let matches_one = |globs: &[Glob], name: &Option<Cow<'_, [u8]>>| {
            globs.is_empty()
                || name.as_ref().is_some_and(|name| globs.iter().any(|glob| glob.matches_bytes(name)))
        };
        RuleSet::of(&self.list, |rule| {
            matches_one(&rule.when.methods, &method) && matches_one(&rule.when.tools, &tool)
        })
    }

    /// Returns the rules that match an answer whose request is unknown: any may, only those about all methods certainly
    /// do.
    fn for_unknown_request(&self) -> MatchingRules {
        let certain = self.for_any_method();
        let any = RuleSet::of(&self.list, |_| true);
        MatchingRules { any, all: certain, own: certain, is_about_task: false }
    }

    /// Returns the rules that match an answer to an unknown request for input, which has one of [`INPUT_METHODS`].
    fn for_unknown_input(&self) -> MatchingRules {
        let may_match = |rule: &Rule| {
            let methods = &rule.when.methods;
            let is_one = INPUT_METHODS.iter().any(|method| methods.iter().any(|glob| glob.matches(method)));
            // A request for input calls no tool.
            rule.when.tools.is_empty() && (methods.is_empty() || is_one)
        };
        MatchingRules { any: RuleSet::of(&self.list, may_match), ..self.for_unknown_request() }
    }

    /// Returns the rules that match every method.
    fn for_any_method(&self) -> RuleSet {
        RuleSet::of(&self.list, |rule| rule.when.methods.is_empty() && rule.when.tools.is_empty())
    }
}

impl RuleMatch {
    fn concerns(&self, direction: Direction, backend: &str) -> bool {
        self.direction.is_none_or(|wanted| wanted == direction) && self.is_about(backend)
    }

    fn is_about(&self, backend: &str) -> bool {
        self.backends.is_empty() || self.backends.iter().any(|glob| glob.matches(backend))
    }
}

#[cfg(test)]
mod tests;
