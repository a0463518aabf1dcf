//! Finds tools that changed, vanished or never existed, by the lists on one tape and the answers to calls.

use std::collections::{BTreeMap, BTreeSet};

use super::changes::changes;
use super::{Call, Finding, FindingKind, SHOWN_MAX, TapeCalls};
use crate::exchange::{DefinitionHash, ToolList};
use crate::protocol::code;

/// The most changes of one definition that its summary names.
pub(super) const CHANGES_SHOWN: usize = 6;
/// The most tools that are named if several vanish together.
const NAMES_SHOWN: usize = 5;

pub(super) fn findings(now: &TapeCalls) -> Vec<Finding> {
    let lists = complete_lists(now);
    let mut found = changed(now, &lists);
    let vanished = vanished(&lists);
    found.extend(vanished.iter().map(Vanished::finding));
    found.extend(unknown(&now.calls, &lists));
    found
}

/// Returns the complete lists: the client's own or, if it has none, those of each backend.
fn complete_lists(now: &TapeCalls) -> Vec<&ToolList> {
    let lists = now.tool_lists.lists.iter().filter(|list| list.is_complete);
    let (own, of_backends): (Vec<&ToolList>, Vec<&ToolList>) = lists.partition(|list| list.via.is_none());
    if own.is_empty() { of_backends } else { own }
}

/// Names a tool, with its backend if the list is from one.
fn named(tool: &str, list: &ToolList) -> String {
    list.via.as_ref().map_or(tool.to_owned(), |via| format!("{tool} of {via}"))
}

/// A tool of a backend, or of the client's own list.
type ToolKey<'a> = (Option<&'a str>, &'a str);

fn changed(now: &TapeCalls, lists: &[&ToolList]) -> Vec<Finding> {
    let mut last: BTreeMap<ToolKey<'_>, (&ToolList, DefinitionHash)> = BTreeMap::new();
    let mut reported: BTreeSet<(&str, DefinitionHash, DefinitionHash)> = BTreeSet::new();
    let mut found = Vec::new();
    for list in lists {
        for (tool, listed) in &list.tools {
            let before = last.insert((list.via.as_deref(), tool), (list, listed.hash));
            let Some((earlier, hash)) = before.filter(|(_, hash)| *hash != listed.hash) else { continue };
            let texts = &now.tool_lists.texts;
            let (Some(old), Some(new)) = (texts.get(&hash), texts.get(&listed.hash)) else { continue };
            let details = changes(old, new);
            // A definition that changes to and fro is reported once for each direction.
            if details.is_empty() || !reported.insert((tool, hash, listed.hash)) {
                continue;
            }
            found.push(Finding {
                kind: FindingKind::ChangedTool,
                subject: named(tool, list),
                summary: summarised(&details),
                count: details.len() as u64,
                details,
                entries: vec![earlier.entry, list.entry],
            });
        }
    }
    found
}

/// Joins changes into one line.
pub(super) fn summarised(changes: &[String]) -> String {
    let shown = changes.iter().take(CHANGES_SHOWN).map(String::as_str).collect::<Vec<_>>().join("; ");
    match changes.len().saturating_sub(CHANGES_SHOWN) {
        0 => shown,
        more => format!("{shown}; and {more} more changes"),
    }
}

/// Tools that vanished together.
struct Vanished<'a> {
    tools: Vec<String>,
    listed: u64,
    missing: u64,
    /// The list in which they are back.
    back: Option<u64>,
    list: &'a ToolList,
}

fn vanished<'a>(lists: &[&'a ToolList]) -> Vec<Vanished<'a>> {
    let mut before: BTreeMap<Option<&str>, &ToolList> = BTreeMap::new();
    let mut found: Vec<Vanished<'a>> = Vec::new();
    for (at, list) in lists.iter().enumerate() {
        let Some(earlier) = before.insert(list.via.as_deref(), list) else { continue };
        let mut gone: BTreeMap<Option<u64>, Vec<String>> = BTreeMap::new();
        for tool in earlier.tools.keys().filter(|tool| !list.tools.contains_key(*tool)) {
            let later = lists[at + 1..].iter().filter(|later| later.via == list.via);
            let back =
                later.into_iter().find(|later| later.tools.contains_key(tool)).map(|later| later.entry);
            gone.entry(back).or_default().push(tool.clone());
        }
        found.extend(gone.into_iter().map(|(back, tools)| Vanished {
            tools,
            listed: earlier.entry,
            missing: list.entry,
            back,
            list,
        }));
        if found.len() >= super::finding::FINDINGS_MAX {
            break;
        }
    }
    found
}

impl Vanished<'_> {
    fn finding(&self) -> Finding {
        let shown: Vec<String> = self.tools.iter().take(NAMES_SHOWN).map(|t| named(t, self.list)).collect();
        let mut subject = shown.join(", ");
        if self.tools.len() > NAMES_SHOWN {
            subject += &format!(" and {} more", self.tools.len() - NAMES_SHOWN);
        }
        let back = self.back.map(|back| format!(", back in #{back}")).unwrap_or_default();
        let details = if self.tools.len() > 1 { self.tools.clone() } else { Vec::new() };
        Finding {
            kind: FindingKind::VanishedTool,
            subject,
            summary: format!("listed in #{}, missing from #{}{back}", self.listed, self.missing),
            count: self.tools.len() as u64,
            details,
            entries: [Some(self.listed), Some(self.missing), self.back].into_iter().flatten().collect(),
        }
    }
}

/// Finds calls of tools that the server does not know.
fn unknown(calls: &[Call], lists: &[&ToolList]) -> Vec<Finding> {
    let own: Vec<&&ToolList> = lists.iter().filter(|list| list.via.is_none()).collect();
    let mut found: BTreeMap<(FindingKind, &str), Finding> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.is_client_request() && call.failed) {
        let Some(tool) = call.tool() else { continue };
        let newest = own.iter().rev().find(|list| list.entry < call.entry);
        let listed = newest.is_some_and(|list| list.tools.contains_key(tool));
        // Servers answer a call of an unknown tool with either code.
        let is_wrong_name = !listed
            && newest.is_some()
            && matches!(call.code, Some(code::METHOD_NOT_FOUND | code::INVALID_PARAMS));
        if !is_wrong_name && !says_unknown(call) {
            continue;
        }
        let (kind, summary) = match newest {
            Some(list) if listed => {
                (FindingKind::VanishedTool, format!("listed in #{}, and unknown when called", list.entry))
            }
            Some(list) => {
                (FindingKind::UnknownTool, format!("called, and not in the list of #{}", list.entry))
            }
            None => (FindingKind::UnknownTool, "called, and the server does not know it".to_owned()),
        };
        let finding = found.entry((kind, tool)).or_insert_with(|| Finding {
            kind,
            subject: tool.to_owned(),
            summary,
            count: 0,
            details: Vec::new(),
            entries: Vec::new(),
        });
        finding.count += 1;
        if finding.entries.len() < SHOWN_MAX {
            finding.entries.push(call.entry);
        }
    }
    found.into_values().collect()
}

/// Returns whether a failure says that there is no such tool.
fn says_unknown(call: &Call) -> bool {
    let text = call.shape.as_deref().unwrap_or_default().to_ascii_lowercase();
    // Only the beginning: further on the text may be about something that the tool searched for.
    let text: String = text.chars().take(80).collect();
    let phrases = ["unknown tool", "no such tool", "tool not found", "no tool named", "no tool with"];
    phrases.iter().any(|phrase| text.contains(phrase))
        || text.starts_with("tool ") && text.ends_with(" not found")
}
