//! What a client said of itself: its era, version, capabilities and name.

use scrubjay_core::envelope::Era;
use scrubjay_core::protocol::version;

/// Stands for the name and version of a client that gives none.
const UNNAMED: &str = r#"{"name":"unknown","version":"0"}"#;

/// What a client said of itself.
#[derive(Clone, Debug)]
pub struct ClientFacts {
    /// The era it speaks.
    pub era: Era,
    /// The protocol version agreed on.
    pub version: String,
    /// Its capabilities, as JSON.
    pub capabilities: String,
    /// Its name and version, as JSON.
    pub info: String,
}

impl Default for ClientFacts {
    fn default() -> Self {
        Self {
            era: Era::Legacy,
            version: version::LEGACY_NEWEST.to_owned(),
            capabilities: "{}".to_owned(),
            info: UNNAMED.to_owned(),
        }
    }
}

impl ClientFacts {
    /// Returns its name and version as JSON, where it gave them.
    #[must_use]
    pub(crate) fn named(&self) -> Option<&str> {
        (self.info != UNNAMED).then_some(self.info.as_str())
    }

    /// Returns how many bytes it takes to keep them.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        self.version.len() + self.capabilities.len() + self.info.len()
    }

    /// Returns those of a modern client's capabilities that a legacy server can make use of, as JSON.
    #[must_use]
    pub(crate) fn legacy_capabilities(&self) -> String {
        let all = serde_json::from_str::<serde_json::Value>(&self.capabilities).unwrap_or_default();
        let known = ["sampling", "elicitation", "roots", "experimental"];
        let kept = known.iter().filter_map(|key| Some(((*key).to_owned(), all.get(key)?.clone())));
        serde_json::Value::Object(kept.collect()).to_string()
    }

    /// Returns whether the client declared an extension.
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        serde_json::from_str::<serde_json::Value>(&self.capabilities)
            .is_ok_and(|all| all["extensions"].get(extension).is_some_and(|declared| !declared.is_null()))
    }

    /// Returns whether the client declared a capability.
    #[must_use]
    pub(crate) fn can(&self, capability: &str) -> bool {
        serde_json::from_str::<serde_json::Value>(&self.capabilities)
            .is_ok_and(|all| all.get(capability).is_some_and(|c| !c.is_null()))
    }
}

#[cfg(test)]
mod tests;
