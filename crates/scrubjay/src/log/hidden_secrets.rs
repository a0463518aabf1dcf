//! The secrets of the configuration, which must not appear in logs or on the debug endpoints. A client's options may add
//! more while the process runs.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use scrubjay_config::Loaded;
use scrubjay_config::mask::MASK;

/// The current secrets; all clones share them.
#[derive(Clone, Default)]
pub(crate) struct HiddenSecrets(Arc<RwLock<Arc<[String]>>>);

impl HiddenSecrets {
    /// Hides the secrets of a configuration.
    pub(super) fn of(config: &Loaded) -> Self {
        let hidden = Self::default();
        hidden.adopt(config);
        hidden
    }

    /// Hides the secrets of another configuration from now on.
    pub(super) fn adopt(&self, config: &Loaded) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = secrets(config).into();
    }

    /// Returns a text with the secrets masked.
    pub(crate) fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        // Cloned, so that no line is searched while the lock is held.
        let secrets = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        hide(text, &secrets)
    }
}

fn hide<'t>(text: &'t str, secrets: &[String]) -> Cow<'t, str> {
    let mut text = Cow::Borrowed(text);
    for secret in secrets {
        if text.contains(secret.as_str()) {
            text = Cow::Owned(text.replace(secret.as_str(), MASK));
        }
    }
    text
}

/// Lists the secrets in every spelling.
fn secrets(config: &Loaded) -> Vec<String> {
    let mut secrets: Vec<String> = Vec::new();
    for secret in config.secrets() {
        // A line of a log may contain it as JSON or as `Debug` writes it, with escapes.
        let escaped = serde_json::Value::from(secret.as_str()).to_string();
        let debug = format!("{secret:?}");
        secrets.extend([
            secret,
            escaped[1..escaped.len() - 1].to_owned(),
            debug[1..debug.len() - 1].to_owned(),
        ]);
    }
    // The longest first: replacing a secret inside a longer one would leave the rest of that one.
    secrets.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    secrets.dedup();
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_secret_is_hidden_first() {
        let secrets = ["secret-and-more".to_owned(), "secret-and".to_owned()];
        assert_eq!(hide("a secret-and-more b", &secrets), "a *** b");
        assert!(matches!(hide("plain", &secrets), Cow::Borrowed("plain")));
    }
}
