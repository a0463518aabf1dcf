//! Why a task became no call, for people and for programs.

use scrubjay_core::retrieval::Shortlist;
use scrubjay_llm::LlmError;

use crate::BadAnswer;

/// Why there is no call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// No tool has anything to do with it.
    #[error("no tool seems to serve this task")]
    NothingFits,
    /// Some tools come near, but not near enough to act.
    #[error("no tool fits well enough to act on it")]
    Unsure,
    /// The model could not be asked.
    #[error(transparent)]
    Model(#[from] LlmError),
    /// The model gave no usable call.
    #[error(transparent)]
    Answer(#[from] BadAnswer),
}

impl Undecided {
    /// Says why a shortlist is not acted on.
    pub(crate) fn of(shortlist: &Shortlist) -> Self {
        if shortlist.hits.is_empty() { Self::NothingFits } else { Self::Unsure }
    }

    /// Returns a word that programs can tell it by.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NothingFits => "nothing_fits",
            Self::Unsure => "unsure",
            Self::Model(LlmError::NoKey) => "no_model",
            Self::Model(LlmError::Unauthorized) => "model_unauthorized",
            Self::Model(LlmError::RateLimited { .. }) => "model_rate_limited",
            Self::Model(LlmError::TimedOut) => "model_timed_out",
            Self::Model(LlmError::Server(_) | LlmError::Malformed(_)) => "model_failed",
            Self::Model(LlmError::Refused { .. }) => "model_refused",
            Self::Model(LlmError::Unreachable(_)) => "model_unreachable",
            Self::Model(LlmError::Busy) => "model_busy",
            Self::Answer(BadAnswer::NoCall { .. }) => "no_tool_call",
            Self::Answer(BadAnswer::Several(_)) => "several_tool_calls",
            Self::Answer(BadAnswer::Unknown) => "unknown_tool",
            Self::Answer(BadAnswer::Arguments { .. }) => "bad_arguments",
        }
    }

    /// Says what would help, where that can be told.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        match self {
            Self::Model(LlmError::NoKey) => {
                Some("a model that chooses: set OPENAI_API_KEY or llm.api_key".to_owned())
            }
            Self::Unsure => Some("what exactly is to be done, and to what".to_owned()),
            Self::Answer(BadAnswer::NoCall { said }) if !said.is_empty() => Some(said.clone()),
            Self::Answer(BadAnswer::Arguments { problems }) => Some(problems.join("; ")),
            _ => None,
        }
    }
}
