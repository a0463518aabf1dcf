//! Retires a backend that was removed from the configuration, or described in another way.

use super::{Backend, CallError};
use crate::config::BackendConfig;

impl Backend {
    /// Returns whether its configuration is the same.
    pub(crate) fn has_config(&self, config: &BackendConfig) -> bool {
        self.config.as_ref() == Some(config)
    }

    /// Closes it for good: calls under way and later ones fail with the reason.
    pub(crate) fn retire(&self, why: &str) {
        // Set before the connections are listed: a start that is not among them checks `retired` when it is done. The
        // first reason stays.
        let _ = self.retired.set(why.to_owned());
        for connection in self.open_connections() {
            connection.revoke(why);
        }
    }

    /// Fails with the reason once it is retired.
    pub(super) fn refuse_if_retired(&self) -> Result<(), CallError> {
        match self.retired.get() {
            Some(why) => Err(CallError::Unavailable(self.id.clone(), why.clone())),
            None => Ok(()),
        }
    }
}
