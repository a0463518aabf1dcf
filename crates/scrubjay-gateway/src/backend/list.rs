//! What a backend offers: one of its lists, as it gave it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::value::RawValue;

use scrubjay_core::message;
use scrubjay_core::protocol::method;

use crate::budget::Charge;

/// What an element takes besides its text: its place, and what the allocator adds.
const ITEM_BYTES: usize = 96;
/// What stands for a definition takes this besides the name: a hash, its place, and what the allocator adds.
const HASH_BYTES: usize = 160;

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ListKind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl ListKind {
    /// How many there are.
    pub(crate) const COUNT: usize = 4;

    pub(crate) fn of_list(method: &str) -> Self {
        match method {
            method::PROMPTS_LIST => Self::Prompts,
            method::RESOURCES_LIST => Self::Resources,
            method::RESOURCES_TEMPLATES_LIST => Self::Templates,
            _ => Self::Tools,
        }
    }

    /// Returns the kinds whose lists a notification says have changed.
    pub(crate) fn of_change(method: &str) -> &'static [Self] {
        match method {
            method::NOTIFICATIONS_TOOLS_LIST_CHANGED => &[Self::Tools],
            method::NOTIFICATIONS_PROMPTS_LIST_CHANGED => &[Self::Prompts],
            method::NOTIFICATIONS_RESOURCES_LIST_CHANGED => &[Self::Resources, Self::Templates],
            _ => &[],
        }
    }

    /// Returns the notification that says this list has changed.
    pub(crate) fn changed(self) -> &'static str {
        match self {
            Self::Tools => method::NOTIFICATIONS_TOOLS_LIST_CHANGED,
            Self::Prompts => method::NOTIFICATIONS_PROMPTS_LIST_CHANGED,
            Self::Resources | Self::Templates => method::NOTIFICATIONS_RESOURCES_LIST_CHANGED,
        }
    }

    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Tools => method::TOOLS_LIST,
            Self::Prompts => method::PROMPTS_LIST,
            Self::Resources => method::RESOURCES_LIST,
            Self::Templates => method::RESOURCES_TEMPLATES_LIST,
        }
    }

    pub(crate) fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::Templates => "resources",
        }
    }

    /// The member of the result that holds the list.
    pub(crate) fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The member of an element that names it.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    /// One word for an element, as people read it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources | Self::Templates => "resource",
        }
    }

    /// Whether the list says what a server can do, not what a client has: then one client's serves another.
    pub(crate) fn is_definition(self) -> bool {
        matches!(self, Self::Tools | Self::Prompts)
    }
}

/// One of a backend's lists.
#[derive(Debug, Default)]
pub(crate) struct BackendList {
    pub(crate) items: Vec<ListItem>,
    /// What stands for it, once it is whole.
    digest: ListDigest,
    /// Whether it is what an earlier run kept of a list: without its secrets.
    is_copy: bool,
    /// What stands for each definition in it, by name, once somebody wanted to know.
    hashes: OnceLock<Hashes>,
    /// The room that it takes for as long as anybody has it.
    room: Option<Charge>,
}

/// What stands for each definition of a list, by its name at its backend.
pub(crate) type Hashes = BTreeMap<String, DefinitionHash>;

/// What stands for a definition.
#[derive(Debug, Clone)]
pub(crate) struct DefinitionHash {
    /// The hash of its text as it came.
    pub(crate) hash: String,
    /// Its text, where it is only a redacted copy: then the hash is not that of the original.
    pub(crate) copy: Option<String>,
}

/// Stands for a list: two that are equal have the same.
pub(crate) type ListDigest = [u8; 32];

impl PartialEq for BackendList {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

/// An element of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListItem {
    /// Its name at its backend.
    pub(crate) name: String,
    /// The element as the backend gave it.
    pub(crate) raw: String,
}

impl BackendList {
    /// Makes one of its elements.
    pub(crate) fn of(items: Vec<ListItem>) -> Self {
        Self { items, ..Self::default() }
    }

    /// Makes one of what an earlier run kept of it.
    pub(super) fn copied(items: Vec<ListItem>) -> Self {
        Self { is_copy: true, ..Self::of(items) }
    }

    /// Returns whether it is what an earlier run kept of a list.
    pub(crate) fn is_copy(&self) -> bool {
        self.is_copy
    }

    /// Returns what stands for each definition in it, which is found out once.
    pub(crate) fn hashes(&self, find_out: impl FnOnce() -> Hashes) -> &Hashes {
        self.hashes.get_or_init(find_out)
    }

    /// Adds the elements of one page; what has no name cannot be asked for and is left out.
    pub(crate) fn add_page(&mut self, kind: ListKind, result: &RawValue) {
        for item in message::elements(message::member(Some(result), kind.member())) {
            self.add(kind, item);
        }
    }

    /// Returns how many bytes it takes to keep it.
    pub(crate) fn bytes(&self) -> usize {
        let item = |item: &ListItem| ITEM_BYTES + HASH_BYTES + 2 * item.name.len() + item.raw.len();
        self.items.iter().map(item).sum()
    }

    /// Returns what stands for it.
    pub(crate) fn digest(&self) -> ListDigest {
        self.digest
    }

    /// Completes the list: its digest is taken, and nothing is added any more.
    pub(super) fn whole(mut self) -> Self {
        if self.items.is_empty() {
            return self;
        }
        let mut hasher = blake3::Hasher::new();
        for item in &self.items {
            // The length first: where one ends and the next begins is part of it.
            hasher.update(&item.raw.len().to_le_bytes()).update(item.raw.as_bytes());
        }
        self.digest = hasher.finalize().into();
        self.items.shrink_to_fit();
        self
    }

    /// Takes the room for it along.
    pub(super) fn in_room(self, room: Option<Charge>) -> Self {
        Self { room, ..self }
    }

    /// Returns whether it may be kept beyond the moment: not where there was no room for it.
    pub(crate) fn may_be_kept(&self) -> bool {
        self.items.is_empty() || self.room.is_some()
    }

    fn add(&mut self, kind: ListKind, item: &RawValue) {
        if let Some(name) = message::string(message::member(Some(item), kind.key())) {
            self.items.push(ListItem { name, raw: item.get().to_owned() });
        }
    }
}
