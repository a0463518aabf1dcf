//! Rules: what is done to messages on their way between a client and a server.
//!
//! An ordered list. Allow, block and mock decide, and the first that applies ends the matter; modify, delay and
//! tag add up, and a later rule sees the message as the earlier ones left it. Bytes in, a [`Judgement`] out: who
//! waits, records and sends is the relay's business. Only what every reader reads alike is judged (`strict`); the
//! rest is refused. Where nothing applies, the message is the bytes that came.

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
pub use self::judgement::{Judgement, Onward, OwnedRuleMarks};
pub use self::matching::RULES_MAX;
pub use self::refusal::STRICT_PREFIX;
pub use crate::expression::ExpressionError;

use self::document::Document;
use self::matching::{MatchingRules, RuleSet};

/// No message waits longer than this, however many rules delay it.
pub const DELAY_MAX: Duration = Duration::from_secs(60);

/// What a modern server may demand of its client within a result.
const INPUT_METHODS: [&str; 3] =
    [method::SAMPLING_CREATE_MESSAGE, method::ELICITATION_CREATE, method::ROOTS_LIST];

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What it is called on tapes and in errors.
    pub name: String,
    /// What it is about.
    pub when: RuleMatch,
    /// What is done to that.
    pub action: RuleAction,
}

impl Rule {
    /// Lists where it looks.
    fn places(&self) -> impl Iterator<Item = &JsonPath> {
        let changes = match &self.action {
            RuleAction::Modify(changes) => changes.as_slice(),
            _ => &[],
        };
        self.when.conditions.iter().map(|one| &one.path).chain(changes.iter().map(RuleChange::path))
    }
}

/// What a rule is about; what is empty or absent does not narrow it.
#[derive(Clone, Debug, Default)]
pub struct RuleMatch {
    /// What goes this way.
    pub direction: Option<Direction>,
    /// Of one of these methods; an answer is of the method it answers.
    pub methods: Vec<Glob>,
    /// To or from one of these backends.
    pub backends: Vec<Glob>,
    /// A call of one of these tools, or its answer.
    pub tools: Vec<Glob>,
    /// With parameters, or a result or error, that are all like this.
    pub conditions: Vec<Condition>,
}

/// What a rule does.
#[derive(Clone, Debug)]
pub enum RuleAction {
    /// Lets it pass, whatever rules come later.
    Allow,
    /// Does not let it pass: whoever waits for an answer gets an error.
    Block {
        /// The error's code.
        code: i64,
        /// What the error says.
        message: String,
    },
    /// Changes it.
    Modify(Vec<RuleChange>),
    /// Lets it wait.
    Delay(Duration),
    /// Answers it from here.
    Mock {
        /// The result, as JSON.
        result: String,
    },
    /// Notes something beside it.
    Tag(Vec<String>),
}

/// The rules in force.
#[derive(Clone, Debug)]
pub struct Rules {
    list: Vec<Rule>,
}

impl Rules {
    /// Takes the rules in their order; those beyond [`RULES_MAX`] would not be looked at, so there may be none.
    ///
    /// # Panics
    /// There are more.
    #[must_use]
    pub fn new(list: Vec<Rule>) -> Self {
        assert!(list.len() <= RULES_MAX, "too many rules");
        Self { list }
    }

    /// Tells whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns what answers are judged by whose request was made under rules that are not kept.
    fn that_block_everything() -> Self {
        let message =
            "the rules changed while this was under way, and nobody knows any more which apply: ask again";
        let action = RuleAction::Block { code: code::BLOCKED, message: message.to_owned() };
        let name = format!("{STRICT_PREFIX}rules-changed");
        Self::new(vec![Rule { name, when: RuleMatch::default(), action }])
    }

    /// Returns the names of those that are about none of these backends.
    pub fn about_none_of<'r>(&'r self, backends: &'r [&str]) -> impl Iterator<Item = &'r str> {
        let is_idle = |rule: &&Rule| !backends.iter().any(|backend| rule.when.is_about(backend));
        self.list.iter().filter(is_idle).map(|rule| rule.name.as_str())
    }

    /// Tells whether one of them is about a backend.
    fn concern(&self, backend: &str) -> bool {
        self.list.iter().any(|rule| rule.when.is_about(backend))
    }

    /// Finds the rules that the method and the tool of a request or notification fit.
    fn fitting(&self, document: &Document<'_>) -> RuleSet {
        let (method, tool) = (document.method(), document.tool());
        let fits = |globs: &[Glob], name: &Option<Cow<'_, [u8]>>| {
            globs.is_empty()
                || name.as_ref().is_some_and(|name| globs.iter().any(|glob| glob.matches_bytes(name)))
        };
        RuleSet::of(&self.list, |rule| fits(&rule.when.methods, &method) && fits(&rule.when.tools, &tool))
    }

    /// Returns what is known of an answer to a request that is not known.
    fn of_unknown(&self) -> MatchingRules {
        let certain = self.of_any_method();
        let any = RuleSet::of(&self.list, |_| true);
        MatchingRules { any, all: certain, own: certain, is_about_task: false }
    }

    /// Returns what is known of an answer to a demand for input that is not known: it can be one of a few.
    fn of_unknown_input(&self) -> MatchingRules {
        let fits = |rule: &Rule| {
            let methods = &rule.when.methods;
            let is_one = INPUT_METHODS.iter().any(|method| methods.iter().any(|glob| glob.matches(method)));
            rule.when.tools.is_empty() && (methods.is_empty() || is_one)
        };
        MatchingRules { any: RuleSet::of(&self.list, fits), ..self.of_unknown() }
    }

    /// Finds the rules that fit whatever the method is.
    fn of_any_method(&self) -> RuleSet {
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
