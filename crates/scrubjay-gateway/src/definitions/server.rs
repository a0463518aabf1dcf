//! What one server said, what of it is approved, and what follows. Pure.

use std::collections::{BTreeMap, BTreeSet};

use scrubjay_core::envelope::Era;
use serde::{Deserialize, Serialize};

use crate::config::Quarantine;

/// How many definitions of one server are remembered. Where definitions can be held back, the others are.
const ENTRIES_MAX: usize = 4096;
/// One with a longer name is not remembered either.
const NAME_BYTES_MAX: usize = 1024;
/// A longer definition is not kept as text: then a person sees that it changed, and not how.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// Nor are those that all texts of a server together have no room for.
const TEXTS_BYTES_MAX: usize = 8 << 20;

const ALL: [DefinitionKind; 3] = [DefinitionKind::Tool, DefinitionKind::Prompt, DefinitionKind::Instructions];

/// What is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DefinitionKind {
    /// A tool.
    Tool,
    /// A prompt.
    Prompt,
    /// What the server tells every client to do.
    Instructions,
}

impl DefinitionKind {
    /// Returns the word that people and files know it by.
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

/// What is kept of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServerDefinitions {
    /// The id it goes by.
    pub backend: String,
    /// What is started or reached, for people.
    pub described: String,
    /// What the last gateway that saw it held back: `scrubjay trust` may be run with another configuration.
    #[serde(default)]
    pub quarantine: Quarantine,
    /// Which of its lists were looked at, as words of [`DefinitionKind`]: an empty one, too, and one that it does not offer.
    /// A file from before this was kept is of a server that is known.
    #[serde(default = "all_words")]
    looked_at: BTreeSet<String>,
    /// Of which lists it is settled what counts as approved without a person.
    #[serde(default)]
    pinned: BTreeSet<String>,
    /// Each definition, by what it is and its name.
    entries: BTreeMap<String, DefinitionHistory>,
    /// Definitions by their hash, redacted.
    texts: BTreeMap<String, String>,
    /// What redaction took out of them, by their hash: a line for each stretch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    removed: BTreeMap<String, Vec<String>>,
}

/// What is known of one definition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DefinitionHistory {
    /// The newest, by the era it was said in: a server may say the same in other words in another era.
    seen: BTreeMap<String, String>,
    /// Those that may be used where some are held back.
    approved: BTreeMap<String, Approver>,
    /// How often it changed.
    #[serde(default)]
    changes: u64,
}

/// Who approved a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Approver {
    /// Nobody: it was there when the server was first seen.
    FirstSight,
    /// A person.
    Person,
}

/// A definition as a server said it.
#[derive(Clone, Debug)]
pub struct ObservedDefinition {
    /// Its name.
    pub name: String,
    /// What stands for it: made of what it says with its secrets.
    pub hash: String,
    /// What it says, redacted.
    pub text: String,
    /// What redaction took out of it: a line for each stretch.
    pub removed: Vec<String>,
}

impl ObservedDefinition {
    fn bytes(&self) -> usize {
        self.text.len() + self.removed.iter().map(String::len).sum::<usize>()
    }
}

/// Something that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionChange {
    /// Its name.
    pub name: String,
    /// What stood for it before; none where it is new at a server that is known.
    pub before: Option<String>,
    /// What stands for it now.
    pub after: String,
}

/// Why a definition is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldReason {
    /// It is not what was approved.
    Changed,
    /// It was not there before.
    New,
    /// Nobody has approved anything of this server.
    Unapproved,
    /// There are too many to remember, or what was remembered cannot be read.
    Unknown,
}

impl HeldReason {
    /// Says it, to follow what it is about.
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
    /// What it is.
    pub what: DefinitionKind,
    /// Its name.
    pub name: String,
    /// What was approved last, where anything was and is known.
    pub old: Option<DefinitionText>,
    /// What it says now, in as many ways as there are eras in which it differs.
    pub new: Vec<DefinitionText>,
    /// Whether it was approved before.
    pub is_change: bool,
}

/// A definition as a person sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefinitionText {
    /// What stands for it, and is approved if the person says so.
    pub hash: String,
    /// What it says, redacted; nothing where it was too long to be kept.
    pub text: String,
    /// What redaction took out of it: a line for each stretch.
    pub removed: Vec<String>,
}

impl ServerDefinitions {
    /// Takes a list as a server gave it; returns what is not as it was.
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
            if is_new && (self.entries.len() >= ENTRIES_MAX || key.len() > NAME_BYTES_MAX) {
                continue;
            }
            let entry = self.entries.entry(key).or_default();
            let before = entry.seen.insert(spoken(era).to_owned(), item.hash.clone());
            if is_first && mode == Quarantine::Changed {
                entry.approved.entry(item.hash.clone()).or_insert(Approver::FirstSight);
            }
            let is_change = before.as_ref().is_some_and(|before| *before != item.hash);
            entry.changes += u64::from(is_change);
            self.keep_text(item, &mut texts_bytes, &mut is_tidy);
            if is_change || (is_new && !is_first) {
                changes.push(DefinitionChange { name: item.name.clone(), before, after: item.hash.clone() });
            }
        }
        changes
    }

    /// Tells whether a list says nothing that was not said before, and nothing is to be noted for the setting.
    pub(crate) fn has_seen<'a>(
        &self,
        era: Era,
        what: DefinitionKind,
        mut said: impl Iterator<Item = (&'a str, &'a str)>,
        mode: Quarantine,
    ) -> bool {
        let is_same = |(name, hash): (&str, &str)| {
            let entry = self.entries.get(&what.key(name));
            entry.is_some_and(|entry| entry.seen.get(spoken(era)).is_some_and(|seen| seen == hash))
        };
        said.all(is_same)
            && self.quarantine == mode
            && self.looked_at.contains(what.word())
            && (mode != Quarantine::Changed || self.pinned.contains(what.word()))
    }

    /// Takes what was last seen of a server as approved, where nothing was yet: it was trusted so far. Only once: what
    /// comes later, be it the first of its kind, waits for a person.
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

    /// Keeps what a definition says, where there is room for it among the texts, which take so many bytes.
    fn keep_text(&mut self, item: &ObservedDefinition, texts_bytes: &mut usize, is_tidy: &mut bool) {
        let bytes = item.bytes();
        if item.text.len() > TEXT_BYTES_MAX || self.texts.contains_key(&item.hash) {
            return;
        }
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

    /// Returns what stands for the definition of which this is a redacted copy, as far as it is known: the newest or,
    /// where that says something else, one that was approved.
    pub(crate) fn hash_of_copy(&self, what: DefinitionKind, name: &str, copy: &str) -> Option<&str> {
        let entry = self.entries.get(&what.key(name))?;
        let is_same = |hash: &&String| self.texts.get(*hash).is_some_and(|text| text == copy);
        entry.seen.values().chain(entry.approved.keys()).find(is_same).map(String::as_str)
    }

    /// Says why a definition is held back that says what stands for it, where it is.
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

    /// Lists what waits for a person.
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
            // What a person approved counts before what was merely there.
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

    /// Approves a definition that says what a person was shown; returns whether that, and nothing else, is what it says
    /// now. What was approved before, and is not said any more, is not approved any more.
    pub fn approve(&mut self, what: DefinitionKind, name: &str, shown: &[DefinitionText]) -> bool {
        let Some(entry) = self.entries.get_mut(&what.key(name)) else { return false };
        let was_shown = |hash: &String| shown.iter().any(|shown| shown.hash == *hash);
        let is_said = |shown: &DefinitionText| entry.seen.values().any(|hash| *hash == shown.hash);
        let is_known = |hash: &String| entry.approved.contains_key(hash) || was_shown(hash);
        if !shown.iter().all(is_said) || !entry.seen.values().all(is_known) {
            return false;
        }
        entry.approved = entry.seen.values().map(|hash| (hash.clone(), Approver::Person)).collect();
        true
    }

    /// Returns how many definitions are known, and how many changes of them were seen.
    #[must_use]
    pub fn counts(&self) -> (usize, u64) {
        (self.entries.len(), self.entries.values().map(|entry| entry.changes).sum())
    }

    /// Tells whether anything of it was approved, by a person or at first sight.
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

    /// Forgets texts that nothing refers to any more.
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

fn spoken(era: Era) -> &'static str {
    if era == Era::Modern { "modern" } else { "legacy" }
}
