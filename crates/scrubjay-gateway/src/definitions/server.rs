//! The definitions of one server: what was seen, what is approved, and what is held back. Pure.

use std::collections::{BTreeMap, BTreeSet};

use scrubjay_core::envelope::Era;
use serde::{Deserialize, Serialize};

use crate::config::Quarantine;

/// The most definitions of a server that are remembered. With quarantine, all others are held back.
const ENTRIES_MAX: usize = 4096;
/// The longest name of a definition that is remembered, in bytes.
const NAME_BYTES_MAX: usize = 1024;
/// The longest definition whose text is stored, in bytes. Of a longer one a person sees that it changed, but not how.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// The most bytes of all texts of a server; further texts are not stored.
const TEXTS_BYTES_MAX: usize = 8 << 20;

const ALL: [DefinitionKind; 3] = [DefinitionKind::Tool, DefinitionKind::Prompt, DefinitionKind::Instructions];

/// The kind of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DefinitionKind {
    /// A tool.
    Tool,
    /// A prompt.
    Prompt,
    /// The server's instructions to every client.
    Instructions,
}

impl DefinitionKind {
    /// Returns its name in files and for people.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Instructions => "instructions",
        }
    }

    fn of(word: &str) -> Option<Self> {
        ALL.into_iter().find(|what| what.word() == word)
    }

    fn key(self, name: &str) -> String {
        format!("{}/{name}", self.word())
    }
}

/// The definitions of one server, as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServerDefinitions {
    /// The id of the backend.
    pub backend: String,
    /// Its command or address, redacted, for people.
    pub described: String,
    /// The quarantine setting of the last gateway that saw it: `scrubjay trust` may be run with another configuration.
    #[serde(default)]
    pub quarantine: Quarantine,
    /// The kinds, as words of [`DefinitionKind`], whose list was seen, even if it was empty or is not offered. Files
    /// from before this member existed count all kinds as seen.
    #[serde(default = "all_words")]
    looked_at: BTreeSet<String>,
    /// The kinds for which it is settled which definitions count as approved without a person.
    #[serde(default)]
    pinned: BTreeSet<String>,
    /// The definitions, by kind and name.
    entries: BTreeMap<String, DefinitionHistory>,
    /// The redacted texts, by hash.
    texts: BTreeMap<String, String>,
    /// What was redacted, by hash: a line for each stretch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    removed: BTreeMap<String, Vec<String>>,
}

/// What was seen and approved of one definition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DefinitionHistory {
    /// The newest hash, by era: a server may word the same definition differently in each era.
    seen: BTreeMap<String, String>,
    /// The hashes that are not held back.
    approved: BTreeMap<String, Approver>,
    /// The number of changes.
    #[serde(default)]
    changes: u64,
}

/// Who approved a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Approver {
    /// Nobody: it was part of the first list that was seen.
    FirstSight,
    /// A person.
    Person,
}

/// A definition in a list that a server sent.
#[derive(Clone, Debug)]
pub struct ObservedDefinition {
    /// Its name.
    pub name: String,
    /// The hash of its original text, secrets included.
    pub hash: String,
    /// Its text, redacted.
    pub text: String,
    /// What was redacted: a line for each stretch.
    pub removed: Vec<String>,
}

impl ObservedDefinition {
    fn bytes(&self) -> usize {
        self.text.len() + self.removed.iter().map(String::len).sum::<usize>()
    }
}

/// A definition that is new or has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionChange {
    /// Its name.
    pub name: String,
    /// Its hash before; `None` if it is new at a known server.
    pub before: Option<String>,
    /// Its hash now.
    pub after: String,
}

/// Why a definition is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldReason {
    /// It differs from what was approved.
    Changed,
    /// It was not there before.
    New,
    /// Nobody has approved anything of this server.
    Unapproved,
    /// There are too many to remember, or what was remembered cannot be read.
    Unknown,
}

impl HeldReason {
    /// Returns it as the end of a sentence that names the definition.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Changed => "its definition is not the one that was approved",
            Self::New => "it is new at a server that was approved without it",
            Self::Unapproved => "nobody has approved this server yet",
            Self::Unknown => "nothing is known of its definition",
        }
    }
}

/// A definition that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingDefinition {
    /// Its kind.
    pub what: DefinitionKind,
    /// Its name.
    pub name: String,
    /// What was approved, if its text is stored.
    pub old: Option<DefinitionText>,
    /// Its texts now that are not approved: one, or one for each era.
    pub new: Vec<DefinitionText>,
    /// Whether it was approved before.
    pub is_change: bool,
}

/// A definition as it is shown to a person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefinitionText {
    /// Its hash, which is what the person approves.
    pub hash: String,
    /// Its text, redacted; empty if it was too long to be stored.
    pub text: String,
    /// What was redacted: a line for each stretch.
    pub removed: Vec<String>,
}

impl ServerDefinitions {
    /// Takes the newest list of a server; returns what has changed.
    pub fn observe(
        &mut self,
        era: Era,
        what: DefinitionKind,
        items: &[ObservedDefinition],
        mode: Quarantine,
    ) -> Vec<DefinitionChange> {
        let is_first = self.looked_at.insert(what.word().to_owned());
        if mode == Quarantine::Changed {
            self.pin(what);
        }
        let mut changes = Vec::new();
        let (mut texts_bytes, mut is_tidy) = (self.texts_bytes(), false);
        for item in items {
            let key = what.key(&item.name);
            let is_new = !self.entries.contains_key(&key);
            // What is not remembered is `Unknown`, and held back wherever anything is.
            if is_new && (self.entries.len() >= ENTRIES_MAX || key.len() > NAME_BYTES_MAX) {
                continue;
            }
            let entry = self.entries.entry(key).or_default();
            let before = entry.seen.insert(era_word(era).to_owned(), item.hash.clone());
            if is_first && mode == Quarantine::Changed {
                // A person's approval is not replaced by a weaker one.
                entry.approved.entry(item.hash.clone()).or_insert(Approver::FirstSight);
            }
            let is_change = before.as_ref().is_some_and(|before| *before != item.hash);
            entry.changes += u64::from(is_change);
            self.keep_text(item, &mut texts_bytes, &mut is_tidy);
            // Everything in a first list is new, which is no change to report.
            if is_change || (is_new && !is_first) {
                changes.push(DefinitionChange { name: item.name.clone(), before, after: item.hash.clone() });
            }
        }
        changes
    }

    /// Returns whether `observe` would change nothing, so that the file need not be locked and written.
    pub(crate) fn has_seen<'a>(
        &self,
        era: Era,
        what: DefinitionKind,
        mut said: impl Iterator<Item = (&'a str, &'a str)>,
        mode: Quarantine,
    ) -> bool {
        let is_same = |(name, hash): (&str, &str)| {
            let entry = self.entries.get(&what.key(name));
            entry.is_some_and(|entry| entry.seen.get(era_word(era)).is_some_and(|seen| seen == hash))
        };
        said.all(is_same)
            && self.quarantine == mode
            && self.looked_at.contains(what.word())
            && (mode != Quarantine::Changed || self.pinned.contains(what.word()))
    }

    /// Approves what was last seen of a kind, unless something of it is approved: without quarantine it was trusted so
    /// far. Only once for each kind: a definition that comes later waits for a person, even if it is the first of its
    /// kind.
    fn pin(&mut self, what: DefinitionKind) {
        if !self.pinned.insert(what.word().to_owned()) {
            return;
        }
        let beginning = what.key("");
        let ours = |key: &String| key.starts_with(&beginning);
        if self.entries.iter().any(|(key, entry)| ours(key) && !entry.approved.is_empty()) {
            return;
        }
        for (_, entry) in self.entries.iter_mut().filter(|(key, _)| ours(key)) {
            entry.approved = entry.seen.values().map(|hash| (hash.clone(), Approver::FirstSight)).collect();
        }
    }

    /// Stores the text of a definition if there is room. `texts_bytes` is the size of all texts, and `is_tidy` whether
    /// unused ones were removed, which happens once for each list.
    fn keep_text(&mut self, item: &ObservedDefinition, texts_bytes: &mut usize, is_tidy: &mut bool) {
        let bytes = item.bytes();
        if item.text.len() > TEXT_BYTES_MAX || self.texts.contains_key(&item.hash) {
            return;
        }
        // Once for each list, because it walks all entries.
        if *texts_bytes + bytes > TEXTS_BYTES_MAX && !*is_tidy {
            self.forget_unused_texts();
            (*is_tidy, *texts_bytes) = (true, self.texts_bytes());
        }
        if *texts_bytes + bytes <= TEXTS_BYTES_MAX {
            *texts_bytes += bytes;
            self.texts.insert(item.hash.clone(), item.text.clone());
            if !item.removed.is_empty() {
                self.removed.insert(item.hash.clone(), item.removed.clone());
            }
        }
    }

    /// Returns the hash of the definition of which `copy` is the redacted text, if it is stored: the newest or, if
    /// that differs, one that was approved.
    pub(crate) fn hash_of_copy(&self, what: DefinitionKind, name: &str, copy: &str) -> Option<&str> {
        let entry = self.entries.get(&what.key(name))?;
        let is_same = |hash: &&String| self.texts.get(*hash).is_some_and(|text| text == copy);
        entry.seen.values().chain(entry.approved.keys()).find(is_same).map(String::as_str)
    }

    /// Returns why the definition with this hash is held back, if it is.
    #[must_use]
    pub(crate) fn why_held(
        &self,
        what: DefinitionKind,
        name: &str,
        hash: &str,
        mode: Quarantine,
    ) -> Option<HeldReason> {
        if mode == Quarantine::Off {
            return None;
        }
        let Some(entry) = self.entries.get(&what.key(name)) else { return Some(HeldReason::Unknown) };
        if entry.accepts(hash, mode) {
            return None;
        }
        Some(match (entry.approved.values().any(|by| *by == Approver::Person), mode) {
            (false, Quarantine::New) if !self.is_approved() => HeldReason::Unapproved,
            (false, _) if entry.approved.is_empty() || mode == Quarantine::New => HeldReason::New,
            _ => HeldReason::Changed,
        })
    }

    /// Lists the definitions that wait for a person.
    #[must_use]
    pub fn pending(&self, mode: Quarantine) -> Vec<PendingDefinition> {
        let mut all = Vec::new();
        for (key, entry) in &self.entries {
            let Some((what, name)) =
                key.split_once('/').and_then(|(word, name)| Some((DefinitionKind::of(word)?, name)))
            else {
                continue;
            };
            let new: BTreeSet<&String> =
                entry.seen.values().filter(|hash| !entry.accepts(hash, mode)).collect();
            if new.is_empty() {
                continue;
            }
            // What a person approved is shown rather than what was approved at first sight.
            let person = entry.approved.iter().find(|(_, by)| **by == Approver::Person);
            let old = person.or_else(|| entry.approved.iter().next()).map(|(hash, _)| hash);
            all.push(PendingDefinition {
                what,
                name: name.to_owned(),
                old: old.filter(|hash| self.texts.contains_key(*hash)).map(|hash| self.shown(hash)),
                is_change: old.is_some(),
                new: new.into_iter().map(|hash| self.shown(hash)).collect(),
            });
        }
        all
    }

    fn shown(&self, hash: &String) -> DefinitionText {
        DefinitionText {
            hash: hash.clone(),
            text: self.texts.get(hash).cloned().unwrap_or_default(),
            removed: self.removed.get(hash).cloned().unwrap_or_default(),
        }
    }

    /// Approves what a person was shown. Does nothing and returns false if the server sends something else by now.
    /// Afterwards only the current texts are approved: an older text that comes back waits for a person again.
    pub fn approve(&mut self, what: DefinitionKind, name: &str, shown: &[DefinitionText]) -> bool {
        let Some(entry) = self.entries.get_mut(&what.key(name)) else { return false };
        let was_shown = |hash: &String| shown.iter().any(|shown| shown.hash == *hash);
        let is_said = |shown: &DefinitionText| entry.seen.values().any(|hash| *hash == shown.hash);
        let is_known = |hash: &String| entry.approved.contains_key(hash) || was_shown(hash);
        // The server may have sent another list while the person was reading.
        if !shown.iter().all(is_said) || !entry.seen.values().all(is_known) {
            return false;
        }
        // Replaces earlier approvals: a server must not return to a text that was approved once and then changed.
        entry.approved = entry.seen.values().map(|hash| (hash.clone(), Approver::Person)).collect();
        true
    }

    /// Returns the number of definitions, and of their changes.
    #[must_use]
    pub fn counts(&self) -> (usize, u64) {
        (self.entries.len(), self.entries.values().map(|entry| entry.changes).sum())
    }

    /// Returns whether anything is approved, by a person or at first sight.
    #[must_use]
    pub fn has_approvals(&self) -> bool {
        self.entries.values().any(|entry| !entry.approved.is_empty())
    }

    fn is_approved(&self) -> bool {
        self.entries.values().any(|entry| entry.approved.values().any(|by| *by == Approver::Person))
    }

    fn texts_bytes(&self) -> usize {
        let removed = self.removed.values().flatten();
        self.texts.values().chain(removed).map(String::len).sum()
    }

    /// Removes texts whose hash is neither current nor approved.
    pub(super) fn forget_unused_texts(&mut self) {
        let used: BTreeSet<&String> = self
            .entries
            .values()
            .flat_map(|entry| entry.seen.values().chain(entry.approved.keys()))
            .collect();
        self.texts.retain(|hash, _| used.contains(hash));
        self.removed.retain(|hash, _| used.contains(hash));
    }
}

impl DefinitionHistory {
    fn accepts(&self, hash: &str, mode: Quarantine) -> bool {
        match self.approved.get(hash) {
            Some(Approver::Person) => true,
            Some(Approver::FirstSight) => mode != Quarantine::New,
            None => mode == Quarantine::Off,
        }
    }
}

fn all_words() -> BTreeSet<String> {
    ALL.into_iter().map(|what| what.word().to_owned()).collect()
}

fn era_word(era: Era) -> &'static str {
    if era == Era::Modern { "modern" } else { "legacy" }
}
