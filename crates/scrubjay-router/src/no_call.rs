//! Why a task became no call, for people and for programs.

use scrubjay_core::retrieval::Shortlist;
use scrubjay_llm::LlmError;

use crate::AnswerError;

/// Why there is no call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCall {
    /// No tool matches the task.
    #[error("no tool seems to serve this task")]
    NothingFits,
    /// Some tools match, but not well enough to act.
    #[error("no tool fits well enough to act on it")]
    Unsure,
    /// The model could not be asked.
    #[error(transparent)]
    Model(#[from] LlmError),
    /// The model gave no usable call.
    #[error(transparent)]
    Answer(#[from] AnswerError),
}

impl NoCall {
    /// Returns why nothing on a shortlist is called.
    pub(crate) fn of(shortlist: &Shortlist) -> Self {
        if shortlist.hits.is_empty() { Self::NothingFits } else { Self::Unsure }
    }

    /// Returns the reason as a word for programs.
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
            Self::Answer(AnswerError::NoCall { .. }) => "no_tool_call",
            Self::Answer(AnswerError::Several(_)) => "several_tool_calls",
            Self::Answer(AnswerError::Unknown) => "unknown_tool",
            Self::Answer(AnswerError::Arguments { .. }) => "bad_arguments",
        }
    }

    /// Returns what is missing for a call, if that is known.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        match self {
            Self::Model(LlmError::NoKey) => {
                Some("a model that chooses: set OPENAI_API_KEY or llm.api_key".to_owned())
            }
            Self::Unsure => Some("what exactly is to be done, and to what".to_owned()),
            Self::Answer(AnswerError::NoCall { text }) if !text.is_empty() => Some(text.clone()),
            Self::Answer(AnswerError::Arguments { problems }) => Some(problems.join("; ")),
            _ => None,
        }
    }
}
