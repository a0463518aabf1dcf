//! The end of a backend that the configuration names no more, or names otherwise.

use std::sync::Arc;

use super::{Backend, CallError};
use crate::config::BackendConfig;
use crate::session::lock;

impl Backend {
    /// Tells whether it is what a configuration describes.
    pub(crate) fn is_as(&self, config: &BackendConfig) -> bool {
        self.config.as_ref() == Some(config)
    }

    /// Tells whether it is used no more.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.get().is_some()
    }

    /// Ends it for good: calls under way and those that come late are told why.
    pub(crate) fn retire(self: &Arc<Self>, why: &str) {
        // Whoever retires it first is right.
        let _ = self.retired.set(why.to_owned());
        for connection in self.open_connections() {
            connection.close_because(why);
        }
        let backend = self.clone();
        // A start under way holds its place until it is done, and nobody starts it after that.
        tokio::spawn(async move {
            for slot in &backend.slots {
                if let Some(connection) = slot.lock().await.connection.take() {
                    connection.close_because(backend.retired.get().map_or("", String::as_str));
                }
            }
            *lock(&backend.speaks) = Default::default();
        });
    }

    /// Refuses to start what is used no more.
    pub(super) fn refuse_if_retired(&self) -> Result<(), CallError> {
        match self.retired.get() {
            Some(why) => Err(CallError::Unavailable(self.id.clone(), why.clone())),
            None => Ok(()),
        }
    }
}
