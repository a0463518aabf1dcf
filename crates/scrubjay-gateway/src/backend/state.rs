//! The state of a backend, read without waiting for it.

use super::{Backend, BackendLink, Link};

/// The state of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackendState {
    /// Whether a connection to it is open.
    pub(crate) is_ready: bool,
    /// How it is reached: `stdio`, `http` or `toolset`.
    pub(crate) kind: &'static str,
    /// Why it is not ready, if that is known. It may quote the server, and is not redacted.
    pub(crate) why: Option<String>,
    /// How many connections to it are open.
    pub(crate) connections: usize,
}

impl Backend {
    /// Returns its state.
    #[must_use]
    pub(crate) fn state(&self) -> BackendState {
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
