//! What a tape shows: how messages flowed, what followed what, what failed, what was slow, what went wrong and what
//! it cost a model's context by itself, and what is unlike this server's tapes before.
//!
//! Pure: the calls of a tape and of earlier ones in, findings out, each with the entries that show it. Medians
//! and their deviations rather than means, and nothing is said on a handful of cases.

mod anomalies;
mod changes;
mod context;
mod cycles;
mod errors;
mod failing;
mod finding;
mod flow;
mod loops;
mod numbers;
mod outliers;
mod performance;
mod retries;
mod sequences;
mod tools;

use std::sync::Arc;

use serde::Serialize;

use crate::exchange::{Definition, ExchangeKind, ToolLists};

pub use anomalies::{Anomaly, AnomalyKind, definitions_to_compare};
pub use changes::changes;
pub use context::{ContextCost, TOKENS_LIKE, ToolCost};
pub use errors::ErrorGroup;
pub use finding::{Finding, FindingKind};
pub use flow::{Flow, FlowInterval, Silence};
pub use performance::{Bottleneck, LatencyBin, LatencyProfile, Remedy};
pub use sequences::Sequence;

/// So many entries are shown for one finding.
const SHOWN_MAX: usize = 5;

/// One exchange, as far as analysis goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The entry that began it.
    pub entry: u64,
    /// The entry that answered it.
    pub answer: Option<u64>,
    /// When it began, nanoseconds since the tape did.
    pub since_start_ns: u64,
    /// What it is.
    pub what: ExchangeKind,
    /// Whether the client asked or said it.
    pub by_client: bool,
    /// Whether the gateway asked it for the client, as a router does.
    pub by_gateway: bool,
    /// What it is about: the method, with the tool where it calls one.
    pub subject: Arc<str>,
    /// How long the answer took.
    pub took_ns: Option<u64>,
    /// Whether it failed.
    pub failed: bool,
    /// The code of the error.
    pub code: Option<i64>,
    /// The shape of the error.
    pub shape: Option<Arc<str>>,
    /// The size of the request.
    pub asked_bytes: u64,
    /// The size of the answer.
    pub answered_bytes: u64,
    /// About how many tokens the answer costs a model.
    pub answered_tokens: u64,
    /// What it asks for, as a number that the same requests share; none where nobody looked.
    pub asks: Option<u64>,
    /// What the answer says, likewise.
    pub says: Option<u64>,
}

impl Call {
    /// Returns when it was over.
    fn end_ns(&self) -> Option<u64> {
        self.took_ns.map(|took| self.since_start_ns.saturating_add(took))
    }

    /// Tells whether it asked for an answer.
    fn is_request(&self) -> bool {
        self.what == ExchangeKind::Request
    }

    /// Tells whether the client asked for something.
    fn is_clients(&self) -> bool {
        self.is_request() && self.by_client
    }
}

/// The calls of one tape, in order, and the tools it defines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TapeCalls {
    /// The tape's id.
    pub tape: String,
    /// The connection's name.
    pub server: String,
    /// All exchanges, each once: those of the client's leg, and what only another leg shows.
    pub calls: Vec<Call>,
    /// The tools, as the server defined them.
    pub definitions: Vec<Definition>,
    /// The lists of tools and what they say, as far as somebody looked: of the tape that is analysed all, of an
    /// earlier one the definitions that are compared.
    pub tool_lists: ToolLists,
}

/// What a tape shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// The tape.
    pub tape: String,
    /// The connection's name.
    pub server: String,
    /// How many earlier tapes of that name it was compared with.
    pub compared_with: usize,
    /// How messages flowed.
    pub message_flow: Flow,
    /// What followed what, the most frequent first.
    pub method_sequences: Vec<Sequence>,
    /// What failed, the most frequent first.
    pub common_errors: Vec<ErrorGroup>,
    /// How long things took, what took most in all first.
    pub performance_profile: Vec<LatencyProfile>,
    /// What to speed up first.
    pub bottlenecks: Vec<Bottleneck>,
    /// What the tape shows by itself to be wrong, what matters most first.
    pub findings: Vec<Finding>,
    /// What tools cost a model's context.
    pub context: ContextCost,
    /// What is unlike the tapes before.
    pub anomalies: Vec<Anomaly>,
}

/// Analyses a tape against earlier ones of the same server, the newest first.
#[must_use]
pub fn analyse(now: &TapeCalls, past: &[TapeCalls]) -> Analysis {
    let performance_profile = performance::profile(&now.calls);
    Analysis {
        tape: now.tape.clone(),
        server: now.server.clone(),
        compared_with: past.len(),
        message_flow: flow::flow(&now.calls),
        method_sequences: sequences::sequences(&now.calls),
        common_errors: errors::errors(&now.calls),
        bottlenecks: performance::bottlenecks(&now.calls),
        performance_profile,
        findings: finding::findings(now),
        context: context::cost(now),
        anomalies: anomalies::anomalies(now, past),
    }
}

#[cfg(test)]
mod tests;
