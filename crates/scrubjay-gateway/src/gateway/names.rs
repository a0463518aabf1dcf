//! Assigns names to tools, prompts and resources, from the lists just received. Pure.
//!
//! A tool or prompt keeps its name unless two backends use it: then each is called `<backend>__<name>`. A name stays
//! with its owner for as long as the gateway runs, even if backends come and go, so that it never means another
//! backend's tool. The prefixed form always works in a call. URIs of resources are not changed: if two backends list
//! one, the first in the configuration owns it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use scrubjay_core::message::{self, Splice};
use scrubjay_core::protocol::header;
use serde_json::value::RawValue;

use crate::backend::list::{BackendList, ListKind};
use crate::budget::{Budget, Charge, MemoryUse};
use crate::config::Naming;
use crate::mirrored_headers::{MirroredArgument, mirrored_arguments};

/// How many bytes of names are remembered of one backend. Beyond that, the names that it does not list any more are
/// forgotten, or all of its names if that is not enough. Each backend has its own limit, so that none makes another
/// lose its names.
const GIVEN_BYTES_MAX: usize = 4 << 20;
/// The memory a name takes in a map besides its text: the entry, and the allocator's overhead.
const NAME_BYTES: usize = 160;

/// What one backend lists.
#[derive(Clone, Debug)]
pub(super) struct ListedBackend {
    pub(super) backend: Arc<str>,
    /// Whether it is a toolset of this process, whose tools keep their names.
    pub(super) is_own: bool,
    pub(super) offer: Arc<BackendList>,
}

/// The backend that owns a name, and what it calls it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnedName {
    pub(crate) backend: Arc<str>,
    pub(crate) own: String,
}

/// The owners of names, as of one list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NameTable {
    by_name: HashMap<String, OwnedName>,
    /// The arguments that are repeated in headers, by the tool's name as clients see it.
    mirrored: HashMap<String, Vec<MirroredArgument>>,
    /// The charge for its memory, for as long as it is in use.
    charge: TableCharge,
}

/// The charge for a table's memory; tables with different charges are still equal.
#[derive(Debug, Default)]
struct TableCharge(Option<Charge>);

impl PartialEq for TableCharge {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for TableCharge {}

impl NameTable {
    /// Charges its memory; returns whether there was enough. If not, it may not be kept.
    pub(super) fn charge_memory(&mut self, budget: &Budget) -> bool {
        self.charge = TableCharge(budget.charge(MemoryUse::BackendList, self.bytes()).ok());
        self.charge.0.is_some()
    }

    /// Returns how many bytes of memory it takes.
    fn bytes(&self) -> usize {
        let names = self.by_name.iter().map(|(name, owned)| NAME_BYTES + name.len() + owned.own.len());
        let path = |path: &[String]| path.iter().map(|name| NAME_BYTES + name.len()).sum::<usize>();
        let argument = |one: &MirroredArgument| NAME_BYTES + one.header.len() + path(&one.path);
        let mirrored = self
            .mirrored
            .iter()
            .map(|(name, all)| NAME_BYTES + name.len() + all.iter().map(argument).sum::<usize>());
        names.sum::<usize>() + mirrored.sum::<usize>()
    }

    pub(super) fn owner(&self, name: &str) -> Option<&OwnedName> {
        self.by_name.get(name)
    }

    /// Removes the names of these owners.
    pub(super) fn leave_out(&mut self, owned: &HashSet<OwnedName>) {
        let by_name = &mut self.by_name;
        self.mirrored.retain(|name, _| !by_name.get(name).is_some_and(|owner| owned.contains(owner)));
        by_name.retain(|_, owner| !owned.contains(owner));
    }

    pub(super) fn names(&self) -> impl Iterator<Item = (&str, &OwnedName)> {
        self.by_name.iter().map(|(name, owned)| (name.as_str(), owned))
    }

    pub(super) fn mirrored(&self, tool: &str) -> Vec<MirroredArgument> {
        self.mirrored.get(tool).cloned().unwrap_or_default()
    }
}

/// One element as clients see it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NamedItem {
    pub(super) name: String,
    pub(super) owned: OwnedName,
    pub(super) raw: String,
}

/// The names of one kind that were given so far.
#[derive(Debug, Default)]
pub(super) struct AssignedNames {
    by_owner: HashMap<OwnedName, String>,
    by_name: HashMap<String, OwnedName>,
    /// How many bytes the names of each backend take.
    bytes: HashMap<Arc<str>, usize>,
}

impl AssignedNames {
    /// Returns the owner that a name was assigned to, now or earlier.
    pub(super) fn owner(&self, name: &str) -> Option<&OwnedName> {
        self.by_name.get(name)
    }

    fn give(&mut self, owned: &OwnedName, name: String) {
        *self.bytes.entry(owned.backend.clone()).or_default() += given_bytes(owned, &name);
        self.by_owner.insert(owned.clone(), name.clone());
        self.by_name.insert(name, owned.clone());
        // Clients may call it by the prefixed form as well, so no other tool gets that name.
        self.by_name.entry(prefixed(owned)).or_insert_with(|| owned.clone());
    }

    fn is_free(&self, name: &str) -> bool {
        !self.by_name.contains_key(name)
    }

    /// Forgets names of backends with more than `GIVEN_BYTES_MAX`: first those that are in none of these lists, then
    /// all.
    fn stay_bounded(&mut self, listed: &[ListedBackend]) {
        let large: Vec<Arc<str>> = self.large().collect();
        for backend in large {
            let current: HashSet<&str> = listed
                .iter()
                .filter(|list| list.backend == backend)
                .flat_map(|list| list.offer.items.iter().map(|item| item.name.as_str()))
                .collect();
            self.forget(&backend, |owned| current.contains(owned.own.as_str()));
        }
        let large: Vec<Arc<str>> = self.large().collect();
        for backend in large {
            self.forget(&backend, |_| false);
        }
    }

    fn large(&self) -> impl Iterator<Item = Arc<str>> {
        self.bytes.iter().filter(|(_, bytes)| **bytes > GIVEN_BYTES_MAX).map(|(backend, _)| backend.clone())
    }

    /// Forgets the names of a backend, except those for which `stays` returns true.
    fn forget(&mut self, backend: &str, stays: impl Fn(&OwnedName) -> bool) {
        let stays = |owned: &OwnedName| &*owned.backend != backend || stays(owned);
        self.by_owner.retain(|owned, _| stays(owned));
        self.by_name.retain(|_, owned| stays(owned));
        self.by_owner.shrink_to_fit();
        self.by_name.shrink_to_fit();
        let left = self.by_owner.iter().filter(|(owned, _)| &*owned.backend == backend);
        let bytes = left.map(|(owned, name)| given_bytes(owned, name)).sum();
        self.bytes.insert(backend.into(), bytes);
    }
}

/// Returns how many bytes it takes to remember a name: by its owner, by itself, and in its prefixed form.
fn given_bytes(owned: &OwnedName, name: &str) -> usize {
    3 * (NAME_BYTES + owned.own.len()) + 2 * name.len() + owned.backend.len() + owned.own.len()
}

/// Names what all backends list; `is_reserved` tells which names are the gateway's own.
pub(super) fn name_all(
    kind: ListKind,
    listed: &[ListedBackend],
    naming: Naming,
    is_reserved: impl Fn(&str) -> bool,
    given: &mut AssignedNames,
) -> (NameTable, Vec<NamedItem>) {
    let items = distinct(listed);
    let mut table = NameTable::default();
    let named = if kind.is_definition() {
        let named = name_definitions(kind, &items, naming, is_reserved, given);
        // The prefixed form works too, unless it is the name of something else.
        for named in &named {
            let prefixed = prefixed(&named.owned);
            if given.owner(&prefixed) == Some(&named.owned) {
                table.by_name.insert(prefixed, named.owned.clone());
            }
        }
        named
    } else {
        let mut seen = HashSet::new();
        let first = items.into_iter().filter(|(_, owned, _)| seen.insert(owned.own.clone()));
        first
            .map(|(_, owned, raw)| NamedItem { name: owned.own.clone(), owned, raw: raw.to_owned() })
            .collect()
    };
    for named in &named {
        if kind == ListKind::Tools {
            let mirrored = mirrored_in(&named.raw);
            if !mirrored.is_empty() {
                table.mirrored.insert(named.name.clone(), mirrored);
            }
        }
        table.by_name.insert(named.name.clone(), named.owned.clone());
    }
    given.stay_bounded(listed);
    (table, named)
}

/// Returns every element with its owner and its text; what a backend lists twice counts once.
fn distinct(listed: &[ListedBackend]) -> Vec<(&ListedBackend, OwnedName, &str)> {
    let mut seen: HashSet<(&str, &str)> = HashSet::new();
    let all = listed.iter().flat_map(|list| list.offer.items.iter().map(move |item| (list, item)));
    all.filter(|(list, item)| seen.insert((&list.backend, &item.name)))
        .map(|(list, item)| {
            (list, OwnedName { backend: list.backend.clone(), own: item.name.clone() }, item.raw.as_str())
        })
        .collect()
}

fn name_definitions(
    kind: ListKind,
    items: &[(&ListedBackend, OwnedName, &str)],
    naming: Naming,
    is_reserved: impl Fn(&str) -> bool,
    given: &mut AssignedNames,
) -> Vec<NamedItem> {
    let mut users: HashMap<&str, usize> = HashMap::new();
    for (_, owned, _) in items {
        *users.entry(&owned.own).or_default() += 1;
    }
    // Toolsets first: their names are documented, and the same everywhere.
    let (toolsets, others): (Vec<_>, Vec<_>) = items.iter().partition(|(list, _, _)| list.is_own);
    for (list, owned, _) in toolsets.into_iter().chain(others) {
        // It keeps the name it has, even if that collides by now: a client may still call it by that.
        if given.by_owner.contains_key(owned) {
            continue;
        }
        let collides = is_reserved(&owned.own) || (!list.is_own && users[owned.own.as_str()] > 1);
        let must_be_prefixed = collides || (naming == Naming::Always && !list.is_own);
        let name = if !must_be_prefixed && given.is_free(&owned.own) {
            owned.own.clone()
        } else {
            unused(owned, given)
        };
        given.give(owned, name);
    }
    items
        .iter()
        .filter_map(|(_, owned, raw)| {
            let name = given.by_owner.get(owned)?.clone();
            let raw = if name == owned.own { (*raw).to_owned() } else { renamed(raw, kind, &name) };
            Some(NamedItem { name, owned: owned.clone(), raw })
        })
        .collect()
}

fn prefixed(owned: &OwnedName) -> String {
    format!("{}__{}", owned.backend, owned.own)
}

/// Returns the prefixed form of a name; with a number if another tool is called exactly that.
fn unused(owned: &OwnedName, given: &AssignedNames) -> String {
    let prefixed = prefixed(owned);
    if given.is_free(&prefixed) {
        return prefixed;
    }
    let numbered = (2..).map(|n| format!("{prefixed}_{n}")).find(|name| given.is_free(name));
    numbered.expect("not all numbers are taken")
}

fn renamed(raw: &str, kind: ListKind, name: &str) -> String {
    let Ok(object) = serde_json::from_str::<&RawValue>(raw) else { return raw.to_owned() };
    let old = message::member(Some(object), kind.key());
    Splice::new(object.get()).replace(old, &serde_json::Value::from(name).to_string()).finish()
}

/// Reads which arguments a tool's definition wants repeated in headers.
fn mirrored_in(definition: &str) -> Vec<MirroredArgument> {
    // Few tools want that; a search for the text is cheaper than parsing each.
    if !definition.contains(header::SCHEMA_KEY) {
        return Vec::new();
    }
    let definition: serde_json::Value = serde_json::from_str(definition).unwrap_or_default();
    mirrored_arguments(&definition["inputSchema"]).into_iter().map(|(argument, _)| argument).collect()
}

#[cfg(test)]
mod tests;
