//! The client's configuration: resolved values only. Where they come from is not known here.

use std::time::Duration;

use hyper::Uri;
use hyper::http::uri::Scheme;
use scrubjay_http::Secret;

/// The base URL of OpenAI's API.
const OPENAI: &str = "https://api.openai.com/v1";

/// How to reach a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LlmConfig {
    /// The API key; a model on this machine needs none.
    pub api_key: Option<Secret>,
    /// The base URL; `/chat/completions` is appended to it.
    pub base_url: String,
    /// The model's name.
    pub model: String,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// How often a call is retried after a failure that may pass.
    pub retries: u32,
    /// How many calls run at once.
    pub concurrency: usize,
    /// Whether Scrubjay refuses to start without a key.
    pub required: bool,
    /// Whether the key may go to another machine without TLS.
    pub allow_insecure: bool,
}

impl Default for LlmConfig {
    fn default() -> Self {
        Self {
            api_key: None,
            base_url: OPENAI.to_owned(),
            model: "gpt-4o-mini".to_owned(),
            timeout: Duration::from_secs(30),
            retries: 2,
            concurrency: 4,
            required: false,
            allow_insecure: false,
        }
    }
}

/// Why no client can be made. Each text continues "`llm.base_url` …".
#[derive(Debug, thiserror::Error)]
pub enum LlmConfigError {
    /// The endpoint's address is no usable URL.
    #[error("must be a URL like {OPENAI}, without user, query or fragment")]
    NotAUrl,
    /// The key would be sent unencrypted.
    #[error("is on another machine and not https: use https, or set llm.allow_insecure")]
    Insecure,
    /// The key does not fit into a header.
    #[error("takes only a key of visible ASCII characters, without spaces")]
    BadKey,
    /// The system's certificates cannot be read.
    #[error("needs the certificates of this system, which cannot be read")]
    Roots(#[source] std::io::Error),
}

impl LlmConfig {
    /// Tells whether a call can be made at all: there is a key, or the model is on this machine.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.key().is_some() || self.endpoint().is_ok_and(|url| is_loopback(&url))
    }

    /// Checks the endpoint's address.
    ///
    /// # Errors
    /// It is no usable URL, or the key would be sent unencrypted.
    pub fn check(&self) -> Result<(), LlmConfigError> {
        self.endpoint().map(drop)
    }

    /// Returns the key, if it is not empty.
    pub(crate) fn key(&self) -> Option<&Secret> {
        self.api_key.as_ref().filter(|key| !key.reveal().is_empty())
    }

    /// Returns the URL that requests go to.
    pub(crate) fn endpoint(&self) -> Result<Uri, LlmConfigError> {
        let base = self.base_url.trim_end_matches('/');
        // A path behind a query would not be one, and a password in a URL ends up in logs.
        if base.contains(['?', '#', '@']) {
            return Err(LlmConfigError::NotAUrl);
        }
        let url: Uri = format!("{base}/chat/completions").parse().map_err(|_| LlmConfigError::NotAUrl)?;
        let (Some(scheme), Some(_)) = (url.scheme(), url.host()) else { return Err(LlmConfigError::NotAUrl) };
        if *scheme == Scheme::HTTP {
            // Without TLS everybody on the way can read the key and the prompts.
            if is_loopback(&url) || self.allow_insecure { Ok(url) } else { Err(LlmConfigError::Insecure) }
        } else if *scheme == Scheme::HTTPS {
            Ok(url)
        } else {
            Err(LlmConfigError::NotAUrl)
        }
    }

    /// Tells whether the endpoint is OpenAI's own.
    ///
    /// OpenAI's newer models accept only `max_completion_tokens`; other endpoints know only `max_tokens`.
    pub(crate) fn is_openai(&self) -> bool {
        self.endpoint().is_ok_and(|url| url.host() == Some("api.openai.com"))
    }
}

/// Tells whether an address is on this machine.
fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(base_url: &str) -> LlmConfig {
        LlmConfig { base_url: base_url.to_owned(), ..LlmConfig::default() }
    }

    #[test]
    fn the_path_is_appended_to_the_base_url() {
        let url = |base: &str| at(base).endpoint().unwrap().to_string();
        assert_eq!(url(OPENAI), "https://api.openai.com/v1/chat/completions");
        assert_eq!(url("http://localhost:11434/v1/"), "http://localhost:11434/v1/chat/completions");
        assert_eq!(url("http://[::1]:80"), "http://[::1]:80/chat/completions");
    }

    #[test]
    fn a_key_is_sent_to_other_machines_only_over_tls() {
        for far in ["http://example.com/v1", "http://127.0.0.1.example.com", "http://10.0.0.1"] {
            assert!(matches!(at(far).endpoint(), Err(LlmConfigError::Insecure)), "{far}");
            assert!(LlmConfig { allow_insecure: true, ..at(far) }.endpoint().is_ok(), "{far}");
        }
        for wrong in ["", "api.openai.com", "ftp://a", "https://u:p@a", "https://a?x=1", "https://", "/v1"] {
            assert!(matches!(at(wrong).endpoint(), Err(LlmConfigError::NotAUrl)), "{wrong}");
        }
    }

    #[test]
    fn a_model_on_this_machine_needs_no_key() {
        assert!(at("http://127.0.0.1:8080/v1").is_usable());
        assert!(!at(OPENAI).is_usable());
        let with = |key: &str| LlmConfig { api_key: Some(Secret::new(key)), ..at(OPENAI) };
        assert!(with("sk-1").is_usable() && !with("").is_usable());
    }

    #[test]
    fn debug_output_hides_the_key() {
        let config = LlmConfig { api_key: Some(Secret::new("sk-canary-1")), ..LlmConfig::default() };
        assert!(!format!("{config:?}").contains("canary"));
    }
}
