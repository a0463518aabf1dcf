//! Compares a tape with earlier tapes of the same server: slower or larger answers, new or more errors, changed tools,
//! and calls in a new order.
//!
//! A difference is reported only if it is well past chance and large enough to matter: a false alarm costs more than a
//! late one. Without earlier tapes there are no anomalies.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::units::counted;
use serde::Serialize;

use super::changes::changes;
use super::errors::{FailureKind, kind};
use super::numbers::{median, median_and_spread};
use super::tools::summarised;
use super::{Call, SHOWN_MAX, TapeCalls};
use crate::exchange::{Definition, DefinitionHash};
use crate::units;

/// The fewest calls now, and the fewest before, that are compared.
const NOW_MIN: usize = 8;
const BEFORE_MIN: usize = 20;
/// The fewest calls of one tape whose median counts.
const TAPE_MIN: usize = 5;
/// The smallest distance from the median that is reported, in usual deviations.
const DEVIATIONS: f64 = 5.0;
/// The smallest differences that matter.
const SLOWER_NS_MIN: u64 = 5_000_000;
const LARGER_BYTES_MIN: u64 = 1024;
/// The fewest failures that are reported: fewer happen anyway.
const FAILURES_MIN: usize = 3;
/// How often two calls must follow each other to count as an order.
const ORDER_MIN: usize = 3;
/// The greatest probability that chance explains a new order.
const CHANCE_MAX: f64 = 0.001;

/// A difference from earlier tapes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Anomaly {
    /// Its kind.
    pub kind: AnomalyKind,
    /// The tool, method or order of calls.
    pub subject: String,
    /// A sentence about it.
    pub summary: String,
    /// The value now: nanoseconds, bytes, or a count.
    pub now: u64,
    /// The value before.
    pub before: u64,
    /// The entries that show it.
    pub entries: Vec<u64>,
}

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnomalyKind {
    /// A tool's definition changed.
    ChangedTool,
    /// A tool is new.
    NewTool,
    /// It fails in a new way.
    NewError,
    /// It fails more often.
    MoreErrors,
    /// It takes longer.
    Slower,
    /// Its answers are larger.
    Larger,
    /// Two calls follow each other that never did before.
    NewSequence,
}

impl AnomalyKind {
    /// Returns its name for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::ChangedTool => "changed tool",
            Self::NewTool => "new tool",
            Self::NewError => "new error",
            Self::MoreErrors => "more errors",
            Self::Slower => "slower",
            Self::Larger => "larger",
            Self::NewSequence => "new order",
        }
    }
}

pub(super) fn anomalies(now: &TapeCalls, past: &[TapeCalls]) -> Vec<Anomaly> {
    if past.is_empty() {
        return Vec::new();
    }
    let groups = group(&now.calls);
    let before: Vec<Groups<'_>> = past.iter().map(|tape| group(&tape.calls)).collect();
    let mut found = tools(now, past);
    for (subject, calls) in &groups {
        let earlier: Vec<&[&Call]> =
            before.iter().filter_map(|tape| tape.get(*subject)).map(Vec::as_slice).collect();
        let failing = failures(subject, calls, &earlier);
        found.extend(failing);
        found.extend(slower(subject, calls, &earlier));
        found.extend(larger(subject, calls, &earlier));
    }
    found.extend(orders(now, past));
    found.sort_by(|a, b| a.kind.cmp(&b.kind).then_with(|| a.subject.cmp(&b.subject)));
    found
}

type Groups<'a> = BTreeMap<&'a Arc<str>, Vec<&'a Call>>;

fn group(calls: &[Call]) -> Groups<'_> {
    let mut groups: Groups<'_> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.is_request()) {
        groups.entry(&call.subject).or_default().push(call);
    }
    groups
}

/// Returns which definitions of earlier tapes must be read to describe changes: the tape's index in `past`, and the
/// definition.
#[must_use]
pub fn definitions_to_compare<'a>(now: &[Definition], past: &'a [TapeCalls]) -> Vec<(usize, &'a Definition)> {
    let known = known(past);
    let changed = now.iter().filter(|d| d.via.is_none()).filter_map(|definition| {
        let known = known.get(definition.tool.as_str())?;
        let is_same = known.iter().any(|(_, before)| before.hash == definition.hash);
        known.last().filter(|_| !is_same).copied()
    });
    changed.collect()
}

/// Returns how each tool was defined on the newest tape that has it.
fn known(past: &[TapeCalls]) -> HashMap<&str, Vec<(usize, &Definition)>> {
    let mut known: HashMap<&str, Vec<(usize, &Definition)>> = HashMap::new();
    for (at, tape) in past.iter().enumerate().rev() {
        let mut of_tape: HashMap<&str, Vec<(usize, &Definition)>> = HashMap::new();
        for definition in tape.definitions.iter().filter(|d| d.via.is_none()) {
            of_tape.entry(&definition.tool).or_default().push((at, definition));
        }
        known.extend(of_tape);
    }
    known
}

fn tools(now: &TapeCalls, past: &[TapeCalls]) -> Vec<Anomaly> {
    let mut found: BTreeMap<&str, Anomaly> = BTreeMap::new();
    // The newest first, so the first that has a list, or a tool, knew it last.
    let Some(last_list) = past.iter().find(|tape| !tape.definitions.is_empty()) else { return Vec::new() };
    let known = known(past);
    let text = |hash: &DefinitionHash, at: usize| {
        past[at].tool_lists.texts.get(hash).or_else(|| now.tool_lists.texts.get(hash))
    };
    for definition in now.definitions.iter().filter(|d| d.via.is_none()) {
        let (kind, summary) = match known.get(definition.tool.as_str()).map(Vec::as_slice) {
            Some(before) if before.iter().any(|(_, d)| d.hash == definition.hash) => continue,
            Some([.., (at, before)]) => {
                let texts = text(&before.hash, *at).zip(now.tool_lists.texts.get(&definition.hash));
                let changes = texts.map(|(old, new)| changes(old, new));
                let summary = match changes {
                    // Only members changed that say nothing about the tool, such as icons.
                    Some(changes) if changes.is_empty() => continue,
                    Some(changes) => summarised(&changes),
                    None => "its definition is not what it was".to_owned(),
                };
                (AnomalyKind::ChangedTool, summary)
            }
            _ => (AnomalyKind::NewTool, format!("it was in no list up to tape {}", last_list.tape)),
        };
        let anomaly = found.entry(&definition.tool).or_insert_with(|| Anomaly {
            kind,
            subject: definition.tool.clone(),
            summary,
            now: 0,
            before: 0,
            entries: Vec::new(),
        });
        anomaly.now += 1;
        anomaly.entries.push(definition.entry);
        anomaly.entries.truncate(SHOWN_MAX);
    }
    found.into_values().collect()
}

fn slower(subject: &str, calls: &[&Call], earlier: &[&[&Call]]) -> Option<Anomaly> {
    let took = |calls: &[&Call]| -> Vec<u64> {
        calls.iter().filter(|c| !c.failed).filter_map(|c| c.took_ns).collect()
    };
    let (now, before) =
        risen(&took(calls), &earlier.iter().map(|c| took(c)).collect::<Vec<_>>(), SLOWER_NS_MIN)?;
    Some(Anomaly {
        kind: AnomalyKind::Slower,
        subject: subject.to_owned(),
        summary: format!("it takes {}, and took {}", units::duration(now), units::duration(before)),
        now,
        before,
        entries: extreme(calls, |call| call.took_ns.unwrap_or(0)),
    })
}

fn larger(subject: &str, calls: &[&Call], earlier: &[&[&Call]]) -> Option<Anomaly> {
    let sizes = |calls: &[&Call]| -> Vec<u64> {
        calls.iter().filter(|c| !c.failed && c.answer.is_some()).map(|c| c.answered_bytes).collect()
    };
    let (now, before) =
        risen(&sizes(calls), &earlier.iter().map(|c| sizes(c)).collect::<Vec<_>>(), LARGER_BYTES_MIN)?;
    Some(Anomaly {
        kind: AnomalyKind::Larger,
        subject: subject.to_owned(),
        summary: format!("its answers have {}, and had {}", units::size(now), units::size(before)),
        now,
        before,
        entries: extreme(calls, |call| call.answered_bytes),
    })
}

/// Compares medians; returns both if the current one is certainly higher.
#[expect(clippy::cast_precision_loss, reason = "a comparison needs no more than 52 bits")]
fn risen(now: &[u64], tapes: &[Vec<u64>], matters: u64) -> Option<(u64, u64)> {
    let mut before: Vec<u64> = tapes.concat();
    if now.len() < NOW_MIN || before.len() < BEFORE_MIN {
        return None;
    }
    let middle = median(&mut now.to_vec());
    let (usual, spread) = median_and_spread(&mut before);
    let is_far = middle as f64 > usual as f64 + DEVIATIONS * spread;
    let is_much = middle >= usual.saturating_mul(2) && middle - usual >= matters;
    // If a single earlier tape was about as slow, the server is merely slow at times.
    let was_so =
        tapes.iter().filter(|t| t.len() >= TAPE_MIN).any(|t| median(&mut t.clone()) >= middle / 4 * 3);
    (is_far && is_much && !was_so).then_some((middle, usual))
}

fn extreme(calls: &[&Call], value: impl Fn(&Call) -> u64) -> Vec<u64> {
    let mut calls = calls.to_vec();
    calls.sort_by_key(|call| (std::cmp::Reverse(value(call)), call.entry));
    calls.iter().take(SHOWN_MAX).map(|call| call.entry).collect()
}

/// Finds failures of a new kind and, among the known kinds, a higher rate.
fn failures(subject: &str, calls: &[&Call], earlier: &[&[&Call]]) -> Vec<Anomaly> {
    let before: usize = earlier.iter().map(|calls| calls.len()).sum();
    if before < BEFORE_MIN {
        return Vec::new();
    }
    let known: HashSet<FailureKind<'_>> =
        earlier.iter().flat_map(|calls| calls.iter()).filter(|c| c.failed).map(|c| kind(c)).collect();
    let mut kinds: BTreeMap<FailureKind<'_>, Vec<&Call>> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.failed) {
        kinds.entry(kind(call)).or_default().push(call);
    }
    let mut found = Vec::new();
    for (kind, failed) in
        kinds.iter().filter(|(kind, failed)| failed.len() >= FAILURES_MIN && !known.contains(*kind))
    {
        let code = kind.1.map(|code| format!("{code} ")).unwrap_or_default();
        found.push(Anomaly {
            kind: AnomalyKind::NewError,
            subject: subject.to_owned(),
            summary: format!("{} of {} fail as none did before: {code}{}", failed.len(), calls.len(), kind.2),
            now: failed.len() as u64,
            before: 0,
            entries: shown(failed),
        });
    }
    let failed: Vec<&Call> =
        calls.iter().copied().filter(|call| call.failed && known.contains(&kind(call))).collect();
    let failed_before = earlier.iter().flat_map(|calls| calls.iter()).filter(|call| call.failed).count();
    if failed.len() >= FAILURES_MIN && is_more(failed.len(), calls.len(), failed_before, before) {
        found.push(Anomaly {
            kind: AnomalyKind::MoreErrors,
            subject: subject.to_owned(),
            summary: format!("{} of {} fail, and {failed_before} of {before} did", failed.len(), calls.len()),
            now: failed.len() as u64,
            before: failed_before as u64,
            entries: shown(&failed),
        });
    }
    found
}

fn shown(calls: &[&Call]) -> Vec<u64> {
    calls.iter().take(SHOWN_MAX).map(|call| call.answer.unwrap_or(call.entry)).collect()
}

/// Returns whether a rate is at least three times what it was, and further off than chance explains.
#[expect(clippy::cast_precision_loss, reason = "counts of calls are small")]
fn is_more(now: usize, of: usize, before: usize, of_before: usize) -> bool {
    // Laplace's rule of succession: no failure so far does not mean a rate of zero.
    let usual = (before as f64 + 1.0) / (of_before as f64 + 2.0);
    let expected = of as f64 * usual;
    let deviation = (expected * (1.0 - usual)).sqrt().max(0.5);
    now as f64 >= 3.0 * expected && (now as f64 - expected) / deviation > DEVIATIONS
}

/// Finds calls that follow each other now and never did before, although earlier tapes had enough occasions.
#[expect(clippy::cast_precision_loss, reason = "counts of calls are small")]
fn orders(now: &TapeCalls, past: &[TapeCalls]) -> Vec<Anomaly> {
    let mut known: HashSet<(&str, &str)> = HashSet::new();
    let mut left: HashMap<&str, usize> = HashMap::new();
    let mut came: HashMap<&str, usize> = HashMap::new();
    for tape in past {
        for (first, second) in steps(&tape.calls) {
            known.insert((&first.subject, &second.subject));
            *left.entry(&first.subject).or_default() += 1;
            *came.entry(&second.subject).or_default() += 1;
        }
    }
    let mut fresh: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    let mut leaves: HashMap<&str, usize> = HashMap::new();
    for (first, second) in steps(&now.calls) {
        *leaves.entry(&first.subject).or_default() += 1;
        if !known.contains(&(&first.subject, &second.subject)) {
            fresh.entry((&first.subject, &second.subject)).or_default().push(first.entry);
        }
    }
    let is_beyond_chance = |((first, second), entries): &(&(&str, &str), &Vec<u64>)| {
        let (chances, seen) = (left.get(first).copied().unwrap_or(0), came.get(second).copied().unwrap_or(0));
        let rate = entries.len() as f64 / leaves.get(first).copied().unwrap_or(1) as f64;
        let never = (1.0 - rate).powi(i32::try_from(chances).unwrap_or(i32::MAX));
        entries.len() >= ORDER_MIN && chances >= BEFORE_MIN && seen >= BEFORE_MIN && never < CHANCE_MAX
    };
    fresh
        .iter()
        .filter(is_beyond_chance)
        .map(|((first, second), entries)| Anomaly {
            kind: AnomalyKind::NewSequence,
            subject: format!("{first} → {second}"),
            summary: format!(
                "{} now; never in {} before",
                counted(entries.len(), "time"),
                counted(*left.get(first).unwrap_or(&0), "chance")
            ),
            now: entries.len() as u64,
            before: 0,
            entries: entries.iter().copied().take(SHOWN_MAX).collect(),
        })
        .collect()
}

fn steps(calls: &[Call]) -> impl Iterator<Item = (&Call, &Call)> {
    let asked = || calls.iter().filter(|call| call.is_client_request());
    asked().zip(asked().skip(1))
}
