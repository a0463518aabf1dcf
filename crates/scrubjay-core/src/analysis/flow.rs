//! The flow of messages over time: how many there were, how many at once, and the longest silence.

use serde::Serialize;

use super::Call;
use crate::exchange::ExchangeKind;

/// The number of intervals into which a tape is divided.
const STRETCHES: u64 = 24;

/// The flow of messages over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Flow {
    /// From the first message to the last.
    pub duration_ns: u64,
    /// Requests of the client.
    pub client_requests: u64,
    /// Requests of the gateway for the client, as a router makes them.
    pub gateway_requests: u64,
    /// Requests of the server.
    pub server_requests: u64,
    /// Notifications of either side.
    pub notifications: u64,
    /// Lines of standard error.
    pub stderr_lines: u64,
    /// Messages that are not JSON-RPC, and answers to no request.
    pub odd: u64,
    /// Requests without an answer.
    pub unanswered: u64,
    /// The most requests that were open at once.
    pub in_flight_max: u64,
    /// The entry at which that number was reached.
    pub in_flight_max_entry: Option<u64>,
    /// The longest time without an open request.
    pub longest_silence: Option<Silence>,
    /// Requests and failures in intervals of equal length.
    pub stretches: Vec<FlowInterval>,
}

/// A time without open requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Silence {
    /// When it began, since the tape did.
    pub from_ns: u64,
    /// How long it was.
    pub duration_ns: u64,
    /// The entry that ended it.
    pub before_entry: u64,
}

/// An interval of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowInterval {
    /// When it begins, since the tape did.
    pub from_ns: u64,
    /// Requests that began in it.
    pub requests: u64,
    /// How many of those failed.
    pub failures: u64,
}

pub(super) fn flow(calls: &[Call]) -> Flow {
    let mut flow = Flow::default();
    for call in calls {
        match call.what {
            ExchangeKind::Request if call.by_client => flow.client_requests += 1,
            ExchangeKind::Request if call.by_gateway => flow.gateway_requests += 1,
            ExchangeKind::Request => flow.server_requests += 1,
            ExchangeKind::Notification => flow.notifications += 1,
            ExchangeKind::Stderr => flow.stderr_lines += 1,
            ExchangeKind::Opaque | ExchangeKind::Batch | ExchangeKind::Response | ExchangeKind::Error => {
                flow.odd += 1
            }
            ExchangeKind::TooLong
            | ExchangeKind::Gap
            | ExchangeKind::End
            | ExchangeKind::Note
            | ExchangeKind::Original => {}
        }
        flow.unanswered += u64::from(call.is_request() && call.answer.is_none());
        flow.duration_ns = flow.duration_ns.max(call.end_ns().unwrap_or(call.since_start_ns));
    }
    add_stretches(&mut flow, calls);
    add_concurrency(&mut flow, calls);
    flow
}

fn add_stretches(flow: &mut Flow, calls: &[Call]) {
    let length = (flow.duration_ns / STRETCHES).saturating_add(1);
    if flow.client_requests + flow.gateway_requests + flow.server_requests == 0 {
        return;
    }
    flow.stretches = (0..STRETCHES)
        .map(|n| FlowInterval { from_ns: n.saturating_mul(length), ..FlowInterval::default() })
        .collect();
    for call in calls.iter().filter(|call| call.is_request()) {
        let place = usize::try_from(call.since_start_ns / length).unwrap_or(usize::MAX);
        if let Some(stretch) = flow.stretches.get_mut(place) {
            stretch.requests += 1;
            stretch.failures += u64::from(call.failed);
        }
    }
}

/// Finds the most open requests and the longest silence, in one pass over the starts and ends of requests.
fn add_concurrency(flow: &mut Flow, calls: &[Call]) {
    let mut starts_and_ends: Vec<(u64, bool, u64)> = Vec::new();
    for call in calls.iter().filter(|call| call.is_request()) {
        starts_and_ends.push((call.since_start_ns, true, call.entry));
        starts_and_ends.extend(call.end_ns().map(|end| (end, false, call.entry)));
    }
    // At the same time ends sort before starts (`false` < `true`), so that calls in a row do not count as concurrent.
    starts_and_ends.sort_unstable();
    let (mut open, mut idle_since) = (0u64, None);
    // A request that is never answered does not count as open: it would hide every later silence.
    let answered: std::collections::HashSet<u64> =
        calls.iter().filter(|c| c.took_ns.is_some()).map(|c| c.entry).collect();
    for (at, begins, entry) in starts_and_ends {
        if begins {
            let silence = idle_since.take().map(|from: u64| (from, at.saturating_sub(from)));
            if let Some((from_ns, duration_ns)) = silence
                && flow.longest_silence.as_ref().is_none_or(|longest| longest.duration_ns < duration_ns)
            {
                flow.longest_silence = Some(Silence { from_ns, duration_ns, before_entry: entry });
            }
            if !answered.contains(&entry) {
                idle_since = (open == 0).then_some(at);
                continue;
            }
            open += 1;
            if open > flow.in_flight_max {
                (flow.in_flight_max, flow.in_flight_max_entry) = (open, Some(entry));
            }
        } else {
            open = open.saturating_sub(1);
            idle_since = (open == 0).then_some(at);
        }
    }
}
