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
}

impl Backend {
    /// Tells how it is.
    #[must_use]
    pub fn state(&self) -> BackendState {
        let is_ready = !self.open_connections().is_empty();
        let kind = match self.link() {
            Link::Configured(BackendLink::Stdio { .. }) => "stdio",
            Link::Configured(BackendLink::Http { .. }) => "http",
            Link::Mounted(_) => "toolset",
        };
        BackendState { is_ready, kind, why: if is_ready { None } else { self.why_not_ready() } }
    }

    fn why_not_ready(&self) -> Option<String> {
        let told = self.slots.iter().map(|slot| match slot.try_lock() {
            Err(_) => Some("it is being started".to_owned()),
            Ok(slot) => match (&slot.connection, &slot.resting) {
                (Some(connection), _) if !connection.is_open() => Some(connection.why_closed()),
                (_, Some((_, why))) => Some(why.clone()),
                _ => None,
            },
        });
        told.flatten().next()
    }
}
