//! The end of a backend that the configuration names no more, or names otherwise.

use super::{Backend, CallError};
use crate::config::BackendConfig;

impl Backend {
    /// Tells whether it is what a configuration describes.
    pub(crate) fn is_as(&self, config: &BackendConfig) -> bool {
        self.config.as_ref() == Some(config)
    }

    /// Ends it for good: calls under way and later ones fail with the reason.
    pub(crate) fn retire(&self, why: &str) {
        // Who retires it first is right. A start under way sees it when it is done.
        let _ = self.retired.set(why.to_owned());
        for connection in self.open_connections() {
            connection.revoke(why);
        }
    }

    /// Refuses to start what is used no more.
    pub(super) fn refuse_if_retired(&self) -> Result<(), CallError> {
        match self.retired.get() {
            Some(why) => Err(CallError::Unavailable(self.id.clone(), why.clone())),
            None => Ok(()),
        }
    }
}
