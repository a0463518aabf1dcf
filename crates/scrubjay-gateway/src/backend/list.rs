//! A list of a backend's tools, prompts, resources or resource templates, as the backend sent it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use scrubjay_core::message;
use scrubjay_core::protocol::method;
use serde_json::value::RawValue;
use thiserror::Error;

use super::CallError;
use crate::budget::{Charge, OverBudget};

/// The memory of an element besides its text: two `String`s in a vector, and what the allocator adds.
const ITEM_BYTES: usize = 96;
/// The memory of a definition's hash besides the name: the hash as text, a node of the map, and what the allocator
/// adds.
const HASH_BYTES: usize = 160;

/// The kind of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ListKind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl ListKind {
    /// The number of kinds.
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

    /// Returns the member of the result that holds the list.
    pub(crate) fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// Returns the member of an element that identifies it.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    /// Returns the word for an element in texts for people.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources | Self::Templates => "resource",
        }
    }

    /// Returns whether the list describes the server, not data of a client: then one client's list is good for another.
    pub(crate) fn is_definition(self) -> bool {
        matches!(self, Self::Tools | Self::Prompts)
    }
}

/// One of a backend's lists.
#[derive(Debug, Default)]
pub(crate) struct BackendList {
    pub(crate) items: Vec<ListItem>,
    /// Its digest, set by `whole`.
    digest: ListDigest,
    /// Whether it was stored by an earlier run, and so is redacted.
    is_copy: bool,
    /// The hash of each definition in it, by name, computed at first use.
    hashes: OnceLock<Hashes>,
    /// Its memory, charged for as long as it is in use.
    charge: Option<Charge>,
}

/// Why a backend's list could not be read.
#[derive(Clone, Debug, Error)]
pub(crate) enum ListError {
    /// The backend gave no answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It answered with an error.
    #[error("it refuses {method}: {error}")]
    Refused {
        /// The request.
        method: &'static str,
        /// The error, as JSON.
        error: String,
    },
    /// Its pages are too long together.
    #[error("its {method} has more than {bytes_max} bytes in all (limits.max_message_size)")]
    TooLong {
        /// The request.
        method: &'static str,
        /// The limit.
        bytes_max: usize,
    },
    /// There is no memory for its pages.
    #[error(transparent)]
    Full(#[from] OverBudget),
    /// The task that read it ended early, by a panic or with the runtime.
    #[error("reading the list failed")]
    Aborted,
}

/// The hash of each definition of a list, by its name at its backend.
pub(crate) type Hashes = BTreeMap<String, DefinitionHash>;

/// The hash of a definition.
#[derive(Debug, Clone)]
pub(crate) struct DefinitionHash {
    /// The hash of its original text.
    pub(crate) hash: String,
    /// Its text, if it is only a redacted copy: then the hash is not that of the original.
    pub(crate) copy: Option<String>,
}

/// The digest of a list; equal lists have equal digests.
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
    /// Makes a list of these elements.
    pub(crate) fn of(items: Vec<ListItem>) -> Self {
        Self { items, ..Self::default() }
    }

    /// Makes a list that an earlier run stored.
    pub(super) fn copied(items: Vec<ListItem>) -> Self {
        Self { is_copy: true, ..Self::of(items) }
    }

    /// Returns whether an earlier run stored it.
    pub(crate) fn is_copy(&self) -> bool {
        self.is_copy
    }

    /// Returns the hash of each definition in it, computed once.
    pub(crate) fn hashes(&self, find_out: impl FnOnce() -> Hashes) -> &Hashes {
        self.hashes.get_or_init(find_out)
    }

    /// Adds the elements of one page. Elements without a name are left out: no client could use them.
    pub(crate) fn add_page(&mut self, kind: ListKind, result: &RawValue) {
        for item in message::elements(message::member(Some(result), kind.member())) {
            self.add(kind, item);
        }
    }

    /// Returns how many bytes of memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        // The name twice: it is also the key of the hash.
        let item = |item: &ListItem| ITEM_BYTES + HASH_BYTES + 2 * item.name.len() + item.raw.len();
        self.items.iter().map(item).sum()
    }

    /// Returns its digest.
    pub(crate) fn digest(&self) -> ListDigest {
        self.digest
    }

    /// Completes the list and computes its digest; nothing may be added afterwards.
    pub(super) fn whole(mut self) -> Self {
        // All empty lists have the default digest, and no memory is charged for them.
        if self.items.is_empty() {
            return self;
        }
        let mut hasher = blake3::Hasher::new();
        for item in &self.items {
            // The length goes first: without it, two lists that are cut at different places would have one digest.
            hasher.update(&item.raw.len().to_le_bytes()).update(item.raw.as_bytes());
        }
        self.digest = hasher.finalize().into();
        self.items.shrink_to_fit();
        self
    }

    /// Attaches the charge for its memory.
    pub(super) fn with_charge(self, charge: Option<Charge>) -> Self {
        Self { charge, ..self }
    }

    /// Returns whether it may be stored: only if its memory is charged.
    pub(crate) fn may_be_kept(&self) -> bool {
        self.items.is_empty() || self.charge.is_some()
    }

    fn add(&mut self, kind: ListKind, item: &RawValue) {
        if let Some(name) = message::string(message::member(Some(item), kind.key())) {
            self.items.push(ListItem { name, raw: item.get().to_owned() });
        }
    }
}
