//! Rules: what is done to messages on their way between a client and a server.
//!
//! An ordered list. Allow, block and mock decide, and the first that applies ends the matter; modify, delay and
//! tag add up, and a later rule sees the message as the earlier ones left it. Bytes in, a [`Judgement`] out: who
//! waits, records and sends is the relay's business. Where nothing applies, the message is the bytes that came.

mod change;
mod condition;
mod document;
mod fits;
mod judge;

use std::time::Duration;

use crate::entry::Direction;
use crate::glob::Glob;

pub use self::change::Change;
pub use self::condition::{Check, Condition};
pub use self::document::JsonPath;
pub use self::fits::RULES_MAX;
pub use self::judge::{Judge, Judgement, Marks, Onward};

use self::document::Document;
use self::fits::Fits;

/// No message waits longer than this, however many rules delay it.
pub const DELAY_MAX: Duration = Duration::from_secs(60);
/// The code of the error that a blocked request gets where its rule names none.
pub const BLOCKED_CODE: i64 = -32001;

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What it is called on tapes and in errors.
    pub name: String,
    /// What it is about.
    pub when: Match,
    /// What is done to that.
    pub action: Action,
}

/// What a rule is about; what is empty or absent does not narrow it.
#[derive(Clone, Debug, Default)]
pub struct Match {
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
pub enum Action {
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
    Modify(Vec<Change>),
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

    /// Finds the rules that the method and the tool of a request or notification fit.
    fn fitting(&self, document: &Document<'_>) -> Fits {
        let methods = document.methods();
        let tools = if methods.iter().any(|m| **m == *b"tools/call") { document.tools() } else { Vec::new() };
        Fits::of(&self.list, |rule| {
            let of_method = |glob: &Glob| methods.iter().any(|method| glob.matches_bytes(method));
            let of_tool = |glob: &Glob| tools.iter().any(|tool| glob.matches_bytes(tool));
            let (methods, tools) = (&rule.when.methods, &rule.when.tools);
            (methods.is_empty() || methods.iter().any(of_method))
                && (tools.is_empty() || tools.iter().any(of_tool))
        })
    }

    /// Finds the rules that fit whatever the method is.
    fn of_any_method(&self) -> Fits {
        Fits::of(&self.list, |rule| rule.when.methods.is_empty() && rule.when.tools.is_empty())
    }
}

impl Match {
    fn concerns(&self, direction: Direction, backend: &str) -> bool {
        self.direction.is_none_or(|wanted| wanted == direction)
            && (self.backends.is_empty() || self.backends.iter().any(|glob| glob.matches(backend)))
    }
}

#[cfg(test)]
mod tests;
