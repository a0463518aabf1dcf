//! Computes the totals of a tape: counts, methods, response times, volumes, errors.
//!
//! Gets one entry at a time, in order; does not know how entries are stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::delivery::UndeliveredSum;
use crate::entry::{Direction, EntryKind, Undelivered};
use crate::envelope::{Envelope, MessageKind};
use crate::operation::{OperationLink, OperationRole};
use crate::protocol::method;
use crate::selection::LeftOut;

/// The totals of a tape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TapeMetadata {
    /// Entries of every kind.
    pub total_entries: u64,
    /// Messages; each message of a batch counts.
    pub total_messages: u64,
    /// Requests of either side.
    pub total_requests: u64,
    /// Answers with a result.
    pub total_responses: u64,
    /// Notifications.
    pub total_notifications: u64,
    /// Failures: errors, and results with `isError`.
    pub total_errors: u64,
    /// Messages that are not JSON-RPC.
    pub total_opaque: u64,
    /// Lines of standard error.
    pub stderr_lines: u64,
    /// Messages between the gateway and its backends, which the other totals do not include.
    #[serde(default)]
    pub backend_messages: u64,
    /// How often a backend ended.
    #[serde(default)]
    pub backends_ended: u64,
    /// Messages of either leg that rules changed, delayed, blocked or answered.
    #[serde(default)]
    pub intercepted: u64,
    /// Messages known to be missing.
    pub gap_messages: u64,
    /// Requests with no answer on this tape.
    pub unanswered: u64,
    /// By method.
    pub methods: BTreeMap<String, MethodStats>,
    /// By tool.
    pub tools: BTreeMap<String, MethodStats>,
    /// How often the client called one method right after another.
    pub method_pairs: Vec<MethodPair>,
    /// Mean time to an answer.
    pub avg_response_time_ns: u64,
    /// Median time to an answer.
    pub p50_response_time_ns: u64,
    /// 95th percentile.
    pub p95_response_time_ns: u64,
    /// 99th percentile.
    pub p99_response_time_ns: u64,
    /// The client's `clientInfo`.
    pub client_info: Option<serde_json::Value>,
    /// The server's `serverInfo`.
    pub server_info: Option<serde_json::Value>,
    /// The protocol version in use: the server's, or the client's if the server states none.
    pub protocol_version: Option<String>,
    /// Bytes from client to server.
    pub total_bytes_sent: u64,
    /// Bytes from server to client.
    pub total_bytes_received: u64,
    /// Failures among answers, 0 to 1.
    pub error_rate: f64,
    /// How often each error code occurred.
    pub error_codes: BTreeMap<i64, u64>,
    /// Whether the client only probed or greeted the server: not a conversation.
    pub probe: bool,
    /// What the selection left out.
    #[serde(default, skip_serializing_if = "LeftOut::is_nothing")]
    pub left_out: LeftOut,
    /// Messages that did not reach their receiver.
    #[serde(default, skip_serializing_if = "UndeliveredSum::is_nothing")]
    pub undelivered: UndeliveredSum,
    /// The session to which the connection moved; the header names the one in which it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<String>,
}

/// The totals of one method or tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MethodStats {
    /// Requests and notifications.
    pub count: u64,
    /// Answers without a failure.
    pub success_count: u64,
    /// Answers with a failure.
    pub error_count: u64,
    /// Mean time to an answer.
    pub avg_response_time_ns: u64,
    /// Mean size of the parameters.
    pub avg_params_bytes: u64,
    /// Mean size of the result.
    pub avg_result_bytes: u64,
}

/// Two methods that the client called one right after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MethodPair {
    /// The first method.
    pub first: String,
    /// The next method.
    pub second: String,
    /// How often.
    pub count: u64,
}

#[derive(Debug, Default)]
struct RunningTotals {
    count: u64,
    success: u64,
    error: u64,
    /// 128 bits, because an imported tape may contain any times, and their sum must not overflow.
    response_ns: u128,
    params_bytes: u64,
    result_bytes: u64,
}

/// Computes the totals as entries are read.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    totals: TapeMetadata,
    methods: BTreeMap<String, RunningTotals>,
    tools: BTreeMap<String, RunningTotals>,
    pairs: BTreeMap<(String, String), u64>,
    previous_method: Option<String>,
    response_times_ns: Vec<u64>,
    answers: u64,
    /// Whether the client sent more than greetings.
    substantial: bool,
    version_is_the_servers: bool,
}

impl Collector {
    /// Takes an entry that is not a message.
    pub(crate) fn observe_fact(&mut self, kind: EntryKind, direction: Direction, gap_messages: u64) {
        self.totals.total_entries += 1;
        // A client that was refused, or sent a line that is too long, did more than probe.
        self.substantial |=
            direction == Direction::ClientToServer && matches!(kind, EntryKind::Note | EntryKind::Oversize);
        self.totals.stderr_lines += u64::from(kind == EntryKind::Stderr);
        // An imported tape may contain any number.
        self.totals.gap_messages = self.totals.gap_messages.saturating_add(gap_messages);
    }

    /// Counts the next message as changed by rules.
    pub(crate) fn observe_interception(&mut self) {
        self.totals.intercepted += 1;
    }

    /// Adds a note of what the selection left out.
    pub(crate) fn observe_left_out(&mut self, left_out: &LeftOut) {
        self.totals.left_out.add(left_out);
        // Something was left out, so there was a conversation, even if little of it is on the tape.
        self.substantial = true;
    }

    /// Sets the session to which the connection moved.
    pub(crate) fn observe_session(&mut self, session: String) {
        self.totals.moved_to = Some(session);
    }

    /// Adds a note of undelivered messages.
    pub(crate) fn observe_undelivered(&mut self, undelivered: &Undelivered) {
        self.totals.undelivered.add(undelivered);
    }

    /// Counts the entry just read as the end of a backend.
    pub(crate) fn observe_backend_ended(&mut self) {
        self.totals.backends_ended += 1;
    }

    /// Counts a message between the gateway and a backend.
    pub(crate) fn observe_backend_message(&mut self) {
        self.totals.total_entries += 1;
        self.totals.backend_messages += 1;
    }

    /// Takes a message entry with its links.
    pub(crate) fn observe_message(
        &mut self,
        direction: Direction,
        bytes: u64,
        envelope: &Envelope,
        links: &[OperationLink],
    ) {
        self.totals.total_entries += 1;
        match direction {
            Direction::ClientToServer => self.totals.total_bytes_sent += bytes,
            Direction::ServerToClient => self.totals.total_bytes_received += bytes,
        }
        let alone = std::slice::from_ref(envelope);
        let messages = if envelope.kind == MessageKind::Batch { &envelope.batch } else { alone };
        for (message, link) in messages.iter().zip(links) {
            self.observe_one(direction, message, link);
        }
    }

    fn observe_one(&mut self, direction: Direction, message: &Envelope, link: &OperationLink) {
        self.totals.total_messages += 1;
        if direction == Direction::ClientToServer {
            // An answer counts by what it answers: one to a server's ping is no conversation.
            self.substantial |= !link.method.as_deref().is_some_and(is_greeting);
        }
        self.learn_peers(direction, message);
        match message.kind {
            MessageKind::Request => {
                self.totals.total_requests += 1;
                self.add_request(direction, message, link);
            }
            MessageKind::Notification => {
                self.totals.total_notifications += 1;
                self.for_each_total(link, |totals| totals.count += 1);
            }
            MessageKind::Response | MessageKind::Error => self.add_answer(message, link),
            MessageKind::Batch | MessageKind::Opaque => self.totals.total_opaque += 1,
        }
    }

    fn add_request(&mut self, direction: Direction, message: &Envelope, link: &OperationLink) {
        let body_bytes = message.body_bytes as u64;
        self.for_each_total(link, |totals| {
            totals.count += 1;
            totals.params_bytes += body_bytes;
        });
        if direction == Direction::ClientToServer
            && let Some(method) = &link.method
            && let Some(first) = self.previous_method.replace(method.clone())
        {
            *self.pairs.entry((first, method.clone())).or_default() += 1;
        }
    }

    fn add_answer(&mut self, message: &Envelope, link: &OperationLink) {
        self.totals.total_responses += u64::from(message.kind == MessageKind::Response);
        self.answers += 1;
        let failed = message.is_failure();
        self.totals.total_errors += u64::from(failed);
        if let Some(code) = message.error_code {
            *self.totals.error_codes.entry(code).or_default() += 1;
        }
        let body_bytes = message.body_bytes as u64;
        // An answer whose request is not on the tape counts, but has no method and no response time.
        if link.role == OperationRole::Answer {
            let response_ns = link.response_ns.unwrap_or(0);
            self.response_times_ns.push(response_ns);
            self.for_each_total(link, |totals| {
                totals.success += u64::from(!failed);
                totals.error += u64::from(failed);
                totals.response_ns += u128::from(response_ns);
                totals.result_bytes += body_bytes;
            });
        }
    }

    fn for_each_total(&mut self, link: &OperationLink, add: impl Fn(&mut RunningTotals)) {
        let Some(method) = &link.method else { return };
        add(self.methods.entry(method.clone()).or_default());
        if method == method::TOOLS_CALL
            && let Some(tool) = &link.name
        {
            add(self.tools.entry(tool.clone()).or_default());
        }
    }

    fn learn_peers(&mut self, direction: Direction, message: &Envelope) {
        let is_server = direction == Direction::ServerToClient;
        if let Some(version) = &message.protocol_version
            && (is_server || !self.version_is_the_servers)
        {
            self.totals.protocol_version = Some(version.clone());
            self.version_is_the_servers = is_server;
        }
        let info = if is_server { &mut self.totals.server_info } else { &mut self.totals.client_info };
        if info.is_none()
            && let Some(raw) = &message.peer_info
        {
            *info = readable_in_a_footer(raw);
        }
    }

    /// Returns the totals.
    pub(crate) fn finish(mut self, unanswered: u64) -> TapeMetadata {
        self.response_times_ns.sort_unstable();
        let times = &self.response_times_ns;
        let mut totals = self.totals;
        totals.unanswered = unanswered;
        totals.avg_response_time_ns = mean(times.iter().copied().map(u128::from).sum(), times.len() as u64);
        totals.p50_response_time_ns = percentile(times, 50);
        totals.p95_response_time_ns = percentile(times, 95);
        totals.p99_response_time_ns = percentile(times, 99);
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
        if self.answers > 0 {
            totals.error_rate = totals.total_errors as f64 / self.answers as f64;
        }
        totals.methods = self.methods.into_iter().map(|(name, s)| (name, s.finish())).collect();
        totals.tools = self.tools.into_iter().map(|(name, s)| (name, s.finish())).collect();
        totals.method_pairs = self
            .pairs
            .into_iter()
            .map(|((first, second), count)| MethodPair { first, second, count })
            .collect();
        // A stable sort: pairs with equal counts keep their alphabetical order.
        totals.method_pairs.sort_by_key(|pair| std::cmp::Reverse(pair.count));
        // A server that refuses the greeting or only writes to standard error is what a person looks for, so such a
        // tape must not be hidden as a probe.
        let was_greeted = totals.unanswered == 0
            && totals.methods.get(method::INITIALIZE).is_none_or(|m| m.error_count == 0);
        let nobody_spoke = totals.total_messages == 0;
        let is_silent = totals.stderr_lines == 0 && totals.backend_messages == 0;
        totals.probe =
            !self.substantial && totals.gap_messages == 0 && was_greeted && (!nobody_spoke || is_silent);
        totals
    }
}

impl RunningTotals {
    fn finish(self) -> MethodStats {
        let answers = self.success + self.error;
        MethodStats {
            count: self.count,
            success_count: self.success,
            error_count: self.error,
            avg_response_time_ns: mean(self.response_ns, answers),
            avg_params_bytes: mean(self.params_bytes.into(), self.count),
            avg_result_bytes: mean(self.result_bytes.into(), answers),
        }
    }
}

/// Parses a peer's info, wrapped in two levels as in a footer: `serde_json` limits the depth, and an info that is
/// nested too deep to be read there would make the whole footer unreadable.
fn readable_in_a_footer(raw: &str) -> Option<serde_json::Value> {
    let [[info]] = serde_json::from_str::<[[serde_json::Value; 1]; 1]>(&format!("[[{raw}]]")).ok()?;
    Some(info)
}

/// Returns whether a method only opens a conversation or probes the peer.
fn is_greeting(method: &str) -> bool {
    matches!(
        method,
        method::SERVER_DISCOVER | method::INITIALIZE | method::NOTIFICATIONS_INITIALIZED | method::PING
    )
}

fn mean(sum: u128, count: u64) -> u64 {
    let mean = sum.checked_div(count.into()).unwrap_or(0);
    u64::try_from(mean).unwrap_or(u64::MAX)
}

/// Returns the nearest-rank percentile of sorted values.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_of_very_large_times_does_not_overflow() {
        let totals = Collector { response_times_ns: vec![u64::MAX; 3], ..Collector::default() };
        assert_eq!(totals.finish(0).avg_response_time_ns, u64::MAX);
    }

    #[test]
    fn deeply_nested_peer_info_does_not_make_the_totals_unreadable() {
        #[derive(Serialize, Deserialize)]
        struct Footer {
            metadata: TapeMetadata,
        }
        let check = |depth: usize, is_kept: bool| {
            let client_info = readable_in_a_footer(&format!("{}1{}", "[".repeat(depth), "]".repeat(depth)));
            assert_eq!(client_info.is_some(), is_kept, "{depth}");
            let metadata = TapeMetadata { client_info, ..TapeMetadata::default() };
            let written = serde_json::to_vec(&Footer { metadata }).unwrap();
            assert!(serde_json::from_slice::<Footer>(&written).is_ok(), "{depth}");
        };
        (0..=125).for_each(|depth| check(depth, true));
        (126..=130).for_each(|depth| check(depth, false));
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&hundred, 50), 50);
        assert_eq!(percentile(&hundred, 99), 99);
        assert_eq!(percentile(&[7], 50), 7);
        assert_eq!(percentile(&[], 50), 0);
    }
}
