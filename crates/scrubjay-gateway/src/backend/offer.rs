//! What a backend offers: one of its lists, as it gave it.

use serde_json::value::RawValue;

use scrubjay_core::message;

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl Kind {
    /// How many there are.
    pub(crate) const COUNT: usize = 4;

    pub(crate) fn of_list(method: &str) -> Self {
        match method {
            "prompts/list" => Self::Prompts,
            "resources/list" => Self::Resources,
            "resources/templates/list" => Self::Templates,
            _ => Self::Tools,
        }
    }

    /// Returns the kinds whose lists a notification says have changed.
    pub(crate) fn of_change(method: &str) -> &'static [Self] {
        match method {
            "notifications/tools/list_changed" => &[Self::Tools],
            "notifications/prompts/list_changed" => &[Self::Prompts],
            "notifications/resources/list_changed" => &[Self::Resources, Self::Templates],
            _ => &[],
        }
    }

    /// Returns the notification that says this list has changed.
    pub(crate) fn changed(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources | Self::Templates => "notifications/resources/list_changed",
        }
    }

    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
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
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) items: Vec<Item>,
}

/// An element of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// Its name at its backend.
    pub(crate) name: String,
    /// The element as the backend gave it.
    pub(crate) raw: String,
}

impl Offer {
    /// Adds the elements of one page; what has no name cannot be asked for and is left out.
    pub(crate) fn add_page(&mut self, kind: Kind, result: &RawValue) {
        for item in message::elements(message::member(Some(result), kind.member())) {
            self.add(kind, item);
        }
    }

    /// Returns how many bytes it takes to keep it.
    pub(crate) fn bytes(&self) -> usize {
        self.items.iter().map(|item| item.name.len() + item.raw.len()).sum()
    }

    fn add(&mut self, kind: Kind, item: &RawValue) {
        if let Some(name) = message::string(message::member(Some(item), kind.key())) {
            self.items.push(Item { name, raw: item.get().to_owned() });
        }
    }
}
