//! How a backend is, told without waiting for it.

use super::{Backend, BackendLink, Link};

/// How a backend is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendState {
    /// Whether somebody could be answered by it now.
    pub is_ready: bool,
    /// What stands behind it: `stdio`, `http` or `toolset`.
    pub kind: &'static str,
    /// Why it is not ready, where that is known. These are its own words too, and not redacted.
    pub why: Option<String>,
    /// How many connections to it are open.
    pub connections: usize,
}

impl Backend {
    /// Tells how it is.
    #[must_use]
    pub fn state(&self) -> BackendState {
        let connections = self.open_connections().len();
        let is_ready = connections > 0;
        let kind = match self.link() {
            Link::Configured(BackendLink::Stdio { .. }) => "stdio",
            Link::Configured(BackendLink::Http { .. }) => "http",
            Link::Mounted(_) => "toolset",
        };
        let why = if is_ready { None } else { self.slots.why_none() };
        BackendState { is_ready, kind, why, connections }
    }
}
