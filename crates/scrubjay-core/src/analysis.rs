//! Analyses a tape: message flow, sequences of calls, errors, latency, findings, token costs, and anomalies compared
//! with earlier tapes of the same server.
//!
//! Pure: the calls of a tape and of earlier ones go in, findings come out, each with the entries that show it. Compares
//! medians and their deviations, which a few odd values do not bend, and reports nothing on too few cases.

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
pub use context::{ContextCost, ToolCost};
pub use errors::ErrorGroup;
pub use finding::{Finding, FindingKind};
pub use flow::{Flow, FlowInterval, Silence};
pub use performance::{Bottleneck, LatencyBin, LatencyProfile, Remedy};
pub use sequences::Sequence;

/// The most entries that one finding lists.
const SHOWN_MAX: usize = 5;

/// What analysis needs of one exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The entry that began it.
    pub entry: u64,
    /// The entry that answered it.
    pub answer: Option<u64>,
    /// When it began, nanoseconds since the tape did.
    pub since_start_ns: u64,
    /// Its type.
    pub what: ExchangeKind,
    /// Whether the client began it.
    pub by_client: bool,
    /// Whether the gateway began it for the client, as a router does.
    pub by_gateway: bool,
    /// The method, followed by the tool if it calls one: `tools/call read_file`.
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
    /// The hash of method and parameters, as [`crate::exchange::request_identity`] returns it; none if it was not
    /// computed.
    pub asks: Option<u64>,
    /// The hash of the answer, as [`crate::exchange::answer_identity`] returns it; none if it was not computed.
    pub says: Option<u64>,
}

impl Call {
    /// Returns the time of the answer.
    fn end_ns(&self) -> Option<u64> {
        self.took_ns.map(|took| self.since_start_ns.saturating_add(took))
    }

    /// Returns whether it is a request.
    fn is_request(&self) -> bool {
        self.what == ExchangeKind::Request
    }

    /// Returns whether it is a request of the client.
    fn is_client_request(&self) -> bool {
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
    /// All exchanges, each once: those of the client's leg, and those that are only on another leg.
    pub calls: Vec<Call>,
    /// The tools, as the server defined them.
    pub definitions: Vec<Definition>,
    /// The lists of tools with their definitions: all of the tape that is analysed; of an earlier one only the
    /// definitions that are compared.
    pub tool_lists: ToolLists,
}

/// The result of an analysis.
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
    /// Calls that followed each other, the most frequent first.
    pub method_sequences: Vec<Sequence>,
    /// Failures by kind, the most frequent first.
    pub common_errors: Vec<ErrorGroup>,
    /// Latency by method and tool, the largest total first.
    pub performance_profile: Vec<LatencyProfile>,
    /// What to speed up first.
    pub bottlenecks: Vec<Bottleneck>,
    /// Problems that the tape shows without comparison, the most important first.
    pub findings: Vec<Finding>,
    /// The tokens that tools cost in a model's context.
    pub context: ContextCost,
    /// Differences from earlier tapes.
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
