//! Groups failures by method or tool, code and shape of the message.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::{Call, SHOWN_MAX};

/// The most groups that are reported.
const GROUPS_MAX: usize = 20;

/// Failures of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ErrorGroup {
    /// The method or tool.
    pub subject: String,
    /// The code of the error.
    pub code: Option<i64>,
    /// The message without what differs from case to case.
    pub shape: String,
    /// How many.
    pub count: u64,
    /// The number of all calls of the same method or tool.
    pub of_calls: u64,
    /// Some of them: the answers, or the requests without one.
    pub entries: Vec<u64>,
}

/// What failures of one group have in common.
pub(super) type FailureKind<'a> = (&'a Arc<str>, Option<i64>, &'a str);

pub(super) fn kind(call: &Call) -> FailureKind<'_> {
    (&call.subject, call.code, call.shape.as_deref().unwrap_or_default())
}

pub(super) fn errors(calls: &[Call]) -> Vec<ErrorGroup> {
    let mut groups: HashMap<FailureKind<'_>, ErrorGroup> = HashMap::new();
    let mut counts: HashMap<&Arc<str>, u64> = HashMap::new();
    for call in calls {
        *counts.entry(&call.subject).or_default() += 1;
        if !call.failed {
            continue;
        }
        let group = groups.entry(kind(call)).or_insert_with(|| ErrorGroup {
            subject: call.subject.to_string(),
            code: call.code,
            shape: call.shape.as_deref().unwrap_or_default().to_owned(),
            count: 0,
            of_calls: 0,
            entries: Vec::new(),
        });
        group.count += 1;
        if group.entries.len() < SHOWN_MAX {
            group.entries.push(call.answer.unwrap_or(call.entry));
        }
    }
    let mut groups: Vec<ErrorGroup> = groups
        .into_iter()
        .map(|((subject, ..), group)| ErrorGroup {
            of_calls: counts.get(subject).copied().unwrap_or(0),
            ..group
        })
        .collect();
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.entries.cmp(&b.entries)));
    groups.truncate(GROUPS_MAX);
    groups
}
