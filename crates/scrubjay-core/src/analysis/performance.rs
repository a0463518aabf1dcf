//! Latency of methods and tools, and how much waiting a faster one would save.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::numbers::{median, percentile};
use super::{Call, SHOWN_MAX};

/// The fewest answered calls of a bottleneck: fewer may be slow by chance.
const CALLS_MIN: usize = 5;
/// The smallest saving that is reported.
const SAVES_NS_MIN: u64 = 10_000_000;
const BOTTLENECKS_MAX: usize = 5;

/// How long the calls of one method or tool took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyProfile {
    /// The method or tool.
    pub subject: String,
    /// How often.
    pub count: u64,
    /// How many failed.
    pub failed: u64,
    /// How many have no answer.
    pub unanswered: u64,
    /// Half of the answers took no longer.
    pub p50_ns: u64,
    /// Nine in ten took no longer.
    pub p90_ns: u64,
    /// Ninety-nine in a hundred took no longer.
    pub p99_ns: u64,
    /// None took longer.
    pub max_ns: u64,
    /// The entry of the slowest.
    pub slowest_entry: Option<u64>,
    /// The sum of all times.
    pub total_ns: u64,
    /// Their share of the time of all calls, 0 to 1.
    pub share: f64,
    /// The median size of the requests.
    pub asked_bytes: u64,
    /// The median size of the answers.
    pub answered_bytes: u64,
    /// How many took how long. Each bin's bound is twice the one before.
    pub histogram: Vec<LatencyBin>,
}

/// The calls that took about the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LatencyBin {
    /// They took less than this.
    pub below_ns: u64,
    /// How many.
    pub count: u64,
}

/// Something to speed up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bottleneck {
    /// The method or tool.
    pub subject: String,
    /// What would help.
    pub remedy: Remedy,
    /// How much waiting that would save on a tape like this.
    pub saves_ns: u64,
    /// For how long at least one of its calls was open.
    pub waiting_ns: u64,
    /// The slowest calls.
    pub entries: Vec<u64>,
}

/// What would help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// Most calls are fast and some slow: no call longer than the median.
    CutTail,
    /// All calls take about as long: each in half the time.
    Halve,
}

impl Remedy {
    /// Describes the assumption under which it saves time.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::CutTail => "none took longer than the median",
            Self::Halve => "each took half as long",
        }
    }
}

fn by_subject(calls: &[Call]) -> HashMap<&Arc<str>, Vec<&Call>> {
    let mut groups: HashMap<&Arc<str>, Vec<&Call>> = HashMap::new();
    for call in calls.iter().filter(|call| call.is_request()) {
        groups.entry(&call.subject).or_default().push(call);
    }
    groups
}

pub(super) fn profile(calls: &[Call]) -> Vec<LatencyProfile> {
    let mut profiles: Vec<LatencyProfile> =
        by_subject(calls).into_iter().map(|(subject, calls)| profile_of(subject, &calls)).collect();
    let total: u64 = profiles.iter().fold(0, |sum, profile| sum.saturating_add(profile.total_ns));
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 52 bits")]
    for profile in &mut profiles {
        profile.share = if total > 0 { profile.total_ns as f64 / total as f64 } else { 0.0 };
    }
    profiles.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.subject.cmp(&b.subject)));
    profiles
}

fn profile_of(subject: &Arc<str>, calls: &[&Call]) -> LatencyProfile {
    let mut took: Vec<u64> = calls.iter().filter_map(|call| call.took_ns).collect();
    took.sort_unstable();
    let mut asked: Vec<u64> = calls.iter().map(|call| call.asked_bytes).collect();
    let mut answered: Vec<u64> =
        calls.iter().filter(|c| c.answer.is_some()).map(|call| call.answered_bytes).collect();
    let slowest =
        calls.iter().filter(|c| c.took_ns.is_some()).max_by_key(|c| (c.took_ns, std::cmp::Reverse(c.entry)));
    let mut histogram: Vec<LatencyBin> = Vec::new();
    for ns in &took {
        // The first bin reaches to about a microsecond.
        let below_ns = (ns + 1).checked_next_power_of_two().unwrap_or(u64::MAX).max(1024);
        match histogram.last_mut() {
            Some(bin) if bin.below_ns == below_ns => bin.count += 1,
            _ => histogram.push(LatencyBin { below_ns, count: 1 }),
        }
    }
    LatencyProfile {
        subject: subject.to_string(),
        count: calls.len() as u64,
        failed: calls.iter().filter(|call| call.failed).count() as u64,
        unanswered: calls.iter().filter(|call| call.answer.is_none()).count() as u64,
        p50_ns: percentile(&took, 50),
        p90_ns: percentile(&took, 90),
        p99_ns: percentile(&took, 99),
        max_ns: took.last().copied().unwrap_or(0),
        slowest_entry: slowest.map(|call| call.entry),
        total_ns: took.iter().fold(0, |sum, ns| sum.saturating_add(*ns)),
        share: 0.0,
        asked_bytes: median(&mut asked),
        answered_bytes: median(&mut answered),
        histogram,
    }
}

pub(super) fn bottlenecks(calls: &[Call]) -> Vec<Bottleneck> {
    let mut found: Vec<Bottleneck> =
        by_subject(calls).into_iter().filter_map(|(subject, calls)| bottleneck(subject, &calls)).collect();
    found.sort_by(|a, b| b.saves_ns.cmp(&a.saves_ns).then_with(|| a.subject.cmp(&b.subject)));
    found.truncate(BOTTLENECKS_MAX);
    found
}

fn bottleneck(subject: &Arc<str>, calls: &[&Call]) -> Option<Bottleneck> {
    let mut took: Vec<u64> = calls.iter().filter_map(|call| call.took_ns).collect();
    if took.len() < CALLS_MIN {
        return None;
    }
    let usual = median(&mut took);
    let waiting_ns = waiting(calls, |took| took);
    let cut = waiting_ns.saturating_sub(waiting(calls, |took| took.min(usual)));
    let halved = waiting_ns.saturating_sub(waiting(calls, |took| took / 2));
    let (remedy, saves_ns) = if cut > halved { (Remedy::CutTail, cut) } else { (Remedy::Halve, halved) };
    if saves_ns < SAVES_NS_MIN {
        return None;
    }
    let mut slowest: Vec<&&Call> = calls.iter().filter(|call| call.took_ns.is_some()).collect();
    slowest.sort_by_key(|call| (std::cmp::Reverse(call.took_ns), call.entry));
    let entries = slowest.iter().take(SHOWN_MAX).map(|call| call.entry).collect();
    Some(Bottleneck { subject: subject.to_string(), remedy, saves_ns, waiting_ns, entries })
}

/// Returns for how long at least one of the calls would be open if `length` gave their times.
///
/// Calls side by side are waited for once: halving ten that run together saves as much as halving one.
fn waiting(calls: &[&Call], length: impl Fn(u64) -> u64) -> u64 {
    let mut spans: Vec<(u64, u64)> = calls
        .iter()
        .filter_map(|call| {
            Some((call.since_start_ns, call.since_start_ns.saturating_add(length(call.took_ns?))))
        })
        .collect();
    spans.sort_unstable();
    let (mut sum, mut covered) = (0u64, 0u64);
    for (begin, end) in spans {
        sum = sum.saturating_add(end.saturating_sub(begin.max(covered)));
        covered = covered.max(end);
    }
    sum
}
