//! Problems that one tape shows without comparison with earlier ones.

use serde::Serialize;

use super::{Call, TapeCalls};
use super::{failing, loops, outliers, retries, tools};
use crate::protocol::method;

/// The most findings of one kind that are reported.
pub(super) const FINDINGS_MAX: usize = 20;

/// A problem that a tape shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// The tool, method or sequence that it is about. It may contain recorded text.
    pub subject: String,
    /// A sentence about it. It may contain recorded text, made inert.
    pub summary: String,
    /// How often, or how many.
    pub count: u64,
    /// The steps of a loop, the changes of a definition, the outcomes of retries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// The entries that show it.
    pub entries: Vec<u64>,
}

/// The kind of a problem, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A tool's definition changed in the middle of the conversation.
    ChangedTool,
    /// A tool is missing that was listed before.
    VanishedTool,
    /// A tool was called that the server does not know.
    UnknownTool,
    /// Every call of a tool failed.
    AlwaysFails,
    /// Failures one after the other.
    FailureRun,
    /// The same calls in the same order, again and again.
    Loop,
    /// The same call several times in a row.
    Retry,
    /// Single calls that took far longer than the others.
    SlowOutlier,
}

impl FindingKind {
    /// Returns its name for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::ChangedTool => "tool changed",
            Self::VanishedTool => "tool vanished",
            Self::UnknownTool => "unknown tool",
            Self::AlwaysFails => "always fails",
            Self::FailureRun => "failures in a row",
            Self::Loop => "loop",
            Self::Retry => "identical retries",
            Self::SlowOutlier => "slow outlier",
        }
    }
}

pub(super) fn findings(now: &TapeCalls) -> Vec<Finding> {
    let mut found = tools::findings(now);
    found.extend(failing::findings(&now.calls));
    found.extend(loops::findings(&now.calls));
    found.extend(retries::findings(&now.calls));
    found.extend(outliers::findings(&now.calls));
    // The sort is stable, so each kind keeps its own order.
    found.sort_by_key(|finding| finding.kind);
    let mut of_kind = 0;
    let mut last = None;
    found.retain(|finding| {
        of_kind = if last.replace(finding.kind) == Some(finding.kind) { of_kind + 1 } else { 1 };
        of_kind <= FINDINGS_MAX
    });
    found
}

/// Methods that a healthy client sends again and again.
const POLLS: [&str; 7] = [
    method::PING,
    method::INITIALIZE,
    method::SERVER_DISCOVER,
    method::LOGGING_SET_LEVEL,
    method::COMPLETION_COMPLETE,
    method::RESOURCES_SUBSCRIBE,
    method::RESOURCES_UNSUBSCRIBE,
];
/// Words in the names of tools that are meant to be called repeatedly.
const WAITING_WORDS: [&str; 10] =
    ["status", "poll", "wait", "progress", "watch", "tail", "sleep", "heartbeat", "ping", "output"];

impl Call {
    /// Returns the tool that it calls, if it calls one.
    pub(super) fn tool(&self) -> Option<&str> {
        self.subject.strip_prefix(method::TOOLS_CALL)?.strip_prefix(' ')
    }

    /// Returns whether the client asked for work, rather than for the state of something.
    pub(super) fn is_work(&self) -> bool {
        // Lists, tasks and subscriptions are meant to be asked for repeatedly.
        let is_poll = || {
            let method = &*self.subject;
            POLLS.contains(&method)
                || method.ends_with("/list")
                || method.starts_with(method::TASKS_PREFIX)
                || method.starts_with("subscriptions/")
        };
        self.is_client_request() && (self.tool().is_some() || !is_poll())
    }

    /// Returns whether it calls a tool that is meant to be called until something has happened.
    pub(super) fn is_waiting(&self) -> bool {
        let is_word = |word: &str| WAITING_WORDS.iter().any(|known| word.eq_ignore_ascii_case(known));
        self.tool().is_some_and(|tool| tool.split(|c: char| !c.is_ascii_alphabetic()).any(is_word))
    }

    /// Returns whether it failed or has no answer.
    pub(super) fn is_lost(&self) -> bool {
        self.failed || self.answer.is_none()
    }

    /// Returns its outcome for people.
    pub(super) fn outcome(&self) -> &'static str {
        match (self.failed, self.answer) {
            (true, _) => "failed",
            (false, Some(_)) => "ok",
            (false, None) => "no answer",
        }
    }

    /// Returns whether two calls ended with the same answer, or with the same kind of failure.
    pub(super) fn ended_like(&self, other: &Self) -> bool {
        match (self.failed, other.failed) {
            (true, true) => self.code == other.code && self.shape == other.shape,
            (false, false) => self.says.is_some() && self.says == other.says,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
