//! Adds a tape up: counts, methods, response times, volumes, errors.
//!
//! Fed one read entry at a time, in order; knows nothing of how they are stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::delivery::UndeliveredSum;
use crate::entry::{Direction, EntryKind, Undelivered};
use crate::envelope::{Envelope, MessageKind};
use crate::operation::{OperationLink, OperationRole};
use crate::protocol::method;
use crate::selection::LeftOut;

/// What a tape adds up to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TapeMetadata {
    /// Entries of every kind.
    pub total_entries: u64,
    /// Messages, a batch counting as each of its messages.
    pub total_messages: u64,
    /// Requests of either side.
    pub total_requests: u64,
    /// Answers with a result.
    pub total_responses: u64,
    /// Notifications.
    pub total_notifications: u64,
    /// Failures: error answers, and results that say so of themselves.
    pub total_errors: u64,
    /// Messages that are not JSON-RPC.
    pub total_opaque: u64,
    /// Lines of standard error.
    pub stderr_lines: u64,
    /// Messages between the gateway and its backends, which the other figures leave out.
    #[serde(default)]
    pub backend_messages: u64,
    /// How often a backend ended.
    #[serde(default)]
    pub backends_ended: u64,
    /// Messages of either leg that rules changed, held back, blocked or made.
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
    /// How often the client asked one thing right after another.
    pub method_pairs: Vec<MethodPair>,
    /// Mean time to an answer.
    pub avg_response_time_ns: u64,
    /// Median time to an answer.
    pub p50_response_time_ns: u64,
    /// 95th percentile.
    pub p95_response_time_ns: u64,
    /// 99th percentile.
    pub p99_response_time_ns: u64,
    /// What the client said of itself.
    pub client_info: Option<serde_json::Value>,
    /// What the server said of itself.
    pub server_info: Option<serde_json::Value>,
    /// The protocol version in use: the server's word over the client's.
    pub protocol_version: Option<String>,
    /// Bytes from client to server.
    pub total_bytes_sent: u64,
    /// Bytes from server to client.
    pub total_bytes_received: u64,
    /// Failures among answers, 0 to 1.
    pub error_rate: f64,
    /// How often each error code came.
    pub error_codes: BTreeMap<i64, u64>,
    /// Whether the client only looked who is there, or only greeted: not a conversation.
    pub probe: bool,
    /// What the user did not want on the tape.
    #[serde(default, skip_serializing_if = "LeftOut::is_nothing")]
    pub left_out: LeftOut,
    /// What did not reach its receiver.
    #[serde(default, skip_serializing_if = "UndeliveredSum::is_nothing")]
    pub undelivered: UndeliveredSum,
    /// The session its connection is in since it moved there; the header names the one in which it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<String>,
}

/// What the calls of one method or tool add up to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MethodStats {
    /// Requests and notifications.
    pub count: u64,
    /// Answers that are no failure.
    pub success_count: u64,
    /// Answers that are.
    pub error_count: u64,
    /// Mean time to an answer.
    pub avg_response_time_ns: u64,
    /// Mean size of the parameters.
    pub avg_params_bytes: u64,
    /// Mean size of the result.
    pub avg_result_bytes: u64,
}

/// One thing asked right after another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MethodPair {
    /// What came first.
    pub first: String,
    /// What came next.
    pub second: String,
    /// How often.
    pub count: u64,
}

#[derive(Debug, Default)]
struct Sums {
    count: u64,
    success: u64,
    error: u64,
    /// Wide enough for any number of any times: an imported tape may say anything.
    response_ns: u128,
    params_bytes: u64,
    result_bytes: u64,
}

/// Adds up as entries go by.
#[derive(Debug, Default)]
pub struct Collector {
    sums: TapeMetadata,
    methods: BTreeMap<String, Sums>,
    tools: BTreeMap<String, Sums>,
    pairs: BTreeMap<(String, String), u64>,
    previous_method: Option<String>,
    response_times_ns: Vec<u64>,
    answers: u64,
    /// Whether the client said more than a greeting.
    substantial: bool,
    version_is_the_servers: bool,
}

impl Collector {
    /// Takes an entry that is not a message.
    pub fn observe_fact(&mut self, kind: EntryKind, direction: Direction, gap_messages: u64) {
        self.sums.total_entries += 1;
        // A client that was turned away, or said too much, did more than look who is there.
        self.substantial |=
            direction == Direction::ClientToServer && matches!(kind, EntryKind::Note | EntryKind::Oversize);
        self.sums.stderr_lines += u64::from(kind == EntryKind::Stderr);
        // What an imported tape says of itself may be anything.
        self.sums.gap_messages = self.sums.gap_messages.saturating_add(gap_messages);
    }

    /// Notes that rules had a hand in the message that is taken next.
    pub fn observe_interception(&mut self) {
        self.sums.intercepted += 1;
    }

    /// Takes what the tape says it was spared.
    pub fn observe_left_out(&mut self, left_out: &LeftOut) {
        self.sums.left_out.add(left_out);
        // A conversation was held, though little of it is here.
        self.substantial = true;
    }

    /// Notes that the connection is in another session from here on.
    pub fn observe_session(&mut self, session: String) {
        self.sums.moved_to = Some(session);
    }

    /// Takes what the tape says was not delivered.
    pub fn observe_undelivered(&mut self, undelivered: &Undelivered) {
        self.sums.undelivered.add(undelivered);
    }

    /// Notes that the entry just taken tells of a backend's end.
    pub fn observe_backend_ended(&mut self) {
        self.sums.backends_ended += 1;
    }

    /// Takes a message between the gateway and a backend.
    pub fn observe_backend_message(&mut self) {
        self.sums.total_entries += 1;
        self.sums.backend_messages += 1;
    }

    /// Takes a message entry with its links.
    pub fn observe_message(
        &mut self,
        direction: Direction,
        bytes: u64,
        envelope: &Envelope,
        links: &[OperationLink],
    ) {
        self.sums.total_entries += 1;
        match direction {
            Direction::ClientToServer => self.sums.total_bytes_sent += bytes,
            Direction::ServerToClient => self.sums.total_bytes_received += bytes,
        }
        let alone = std::slice::from_ref(envelope);
        let messages = if envelope.kind == MessageKind::Batch { &envelope.batch } else { alone };
        for (message, link) in messages.iter().zip(links) {
            self.observe_one(direction, message, link);
        }
    }

    fn observe_one(&mut self, direction: Direction, message: &Envelope, link: &OperationLink) {
        self.sums.total_messages += 1;
        if direction == Direction::ClientToServer {
            // An answer is as much as what it answers: a server may ask whether anybody is there.
            self.substantial |= !link.method.as_deref().is_some_and(is_greeting);
        }
        self.learn_peers(direction, message);
        match message.kind {
            MessageKind::Request => {
                self.sums.total_requests += 1;
                self.asked(direction, message, link);
            }
            MessageKind::Notification => {
                self.sums.total_notifications += 1;
                self.for_each_sum(link, |sums| sums.count += 1);
            }
            MessageKind::Response | MessageKind::Error => self.answered(message, link),
            MessageKind::Batch | MessageKind::Opaque => self.sums.total_opaque += 1,
        }
    }

    fn asked(&mut self, direction: Direction, message: &Envelope, link: &OperationLink) {
        let body_bytes = message.body_bytes as u64;
        self.for_each_sum(link, |sums| {
            sums.count += 1;
            sums.params_bytes += body_bytes;
        });
        if direction == Direction::ClientToServer
            && let Some(method) = &link.method
            && let Some(first) = self.previous_method.replace(method.clone())
        {
            *self.pairs.entry((first, method.clone())).or_default() += 1;
        }
    }

    fn answered(&mut self, message: &Envelope, link: &OperationLink) {
        self.sums.total_responses += u64::from(message.kind == MessageKind::Response);
        self.answers += 1;
        let failed = message.is_failure();
        self.sums.total_errors += u64::from(failed);
        if let Some(code) = message.error_code {
            *self.sums.error_codes.entry(code).or_default() += 1;
        }
        let body_bytes = message.body_bytes as u64;
        if link.role == OperationRole::Answer {
            let response_ns = link.response_ns.unwrap_or(0);
            self.response_times_ns.push(response_ns);
            self.for_each_sum(link, |sums| {
                sums.success += u64::from(!failed);
                sums.error += u64::from(failed);
                sums.response_ns += u128::from(response_ns);
                sums.result_bytes += body_bytes;
            });
        }
    }

    fn for_each_sum(&mut self, link: &OperationLink, add: impl Fn(&mut Sums)) {
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
            self.sums.protocol_version = Some(version.clone());
            self.version_is_the_servers = is_server;
        }
        let info = if is_server { &mut self.sums.server_info } else { &mut self.sums.client_info };
        if info.is_none()
            && let Some(raw) = &message.peer_info
        {
            *info = readable_in_a_footer(raw);
        }
    }

    /// Returns the totals.
    #[must_use]
    pub fn finish(mut self, unanswered: u64) -> TapeMetadata {
        self.response_times_ns.sort_unstable();
        let times = &self.response_times_ns;
        let mut sums = self.sums;
        sums.unanswered = unanswered;
        sums.avg_response_time_ns = mean(times.iter().copied().map(u128::from).sum(), times.len() as u64);
        sums.p50_response_time_ns = percentile(times, 50);
        sums.p95_response_time_ns = percentile(times, 95);
        sums.p99_response_time_ns = percentile(times, 99);
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
        if self.answers > 0 {
            sums.error_rate = sums.total_errors as f64 / self.answers as f64;
        }
        sums.methods = self.methods.into_iter().map(|(name, s)| (name, s.finish())).collect();
        sums.tools = self.tools.into_iter().map(|(name, s)| (name, s.finish())).collect();
        sums.method_pairs = self
            .pairs
            .into_iter()
            .map(|((first, second), count)| MethodPair { first, second, count })
            .collect();
        sums.method_pairs.sort_by_key(|pair| std::cmp::Reverse(pair.count));
        // A server that cannot be greeted, or only complains, is what a person looks for.
        let was_greeted =
            sums.unanswered == 0 && sums.methods.get(method::INITIALIZE).is_none_or(|m| m.error_count == 0);
        let nobody_spoke = sums.total_messages == 0;
        let is_silent = sums.stderr_lines == 0 && sums.backend_messages == 0;
        sums.probe =
            !self.substantial && sums.gap_messages == 0 && was_greeted && (!nobody_spoke || is_silent);
        sums
    }
}

impl Sums {
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

/// Parses what a peer says of itself, two levels deep as it lies in a footer: what is nested too deep to be read there
/// would make the whole footer unreadable.
fn readable_in_a_footer(raw: &str) -> Option<serde_json::Value> {
    let [[info]] = serde_json::from_str::<[[serde_json::Value; 1]; 1]>(&format!("[[{raw}]]")).ok()?;
    Some(info)
}

/// Tells whether a method only opens a conversation or looks who is there.
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
    fn times_of_any_size_have_a_mean() {
        let totals = Collector { response_times_ns: vec![u64::MAX; 3], ..Collector::default() };
        assert_eq!(totals.finish(0).avg_response_time_ns, u64::MAX);
    }

    #[test]
    fn what_a_peer_says_of_itself_does_not_make_the_totals_unreadable() {
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
