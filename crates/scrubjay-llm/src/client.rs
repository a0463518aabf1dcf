//! A call: wait for a permit, send the request, retry where that may help, all before the deadline.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use scrubjay_core::redact::Redactor;
use scrubjay_core::shorten::shortened;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};

use crate::config::{LlmConfig, LlmConfigError};
use crate::reply::{ChatReply, MalformedReply, complaint};
use crate::request::ChatRequest;
use crate::retry;
use crate::transport::{HttpReply, Transport, TransportError};

/// How many calls may wait for a permit; further ones fail with [`LlmError::Busy`].
const WAITING_MAX: usize = 256;
/// How many characters of a request or an answer are logged.
const TRACED_CHARS_MAX: usize = 64 * 1024;

/// The client of one endpoint. Cheap to share behind an `Arc`.
pub struct Client {
    config: LlmConfig,
    transport: Transport,
    /// One for each call under way.
    permits: Semaphore,
    waiting: AtomicUsize,
}

/// Why a call has no answer. No text contains the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LlmError {
    /// No key is configured, and the endpoint is on another machine.
    #[error("there is no key for the model: set OPENAI_API_KEY or llm.api_key")]
    NoKey,
    /// The endpoint does not accept the key.
    #[error("the model's endpoint does not accept the key: check OPENAI_API_KEY or llm.api_key")]
    Unauthorized,
    /// Too many calls for the endpoint, or no credit left.
    #[error("the model's endpoint is asked too often, or there is no credit left")]
    RateLimited {
        /// How long the endpoint asks to wait.
        retry_after: Option<Duration>,
    },
    /// No answer in time.
    #[error("the model did not answer in time: llm.timeout gives it more")]
    TimedOut,
    /// The endpoint failed with this status.
    #[error("the model's endpoint failed with status {0}")]
    Server(u16),
    /// The endpoint refuses the request.
    #[error("the model's endpoint refuses the request (status {status}): {message}")]
    Refused {
        /// The status.
        status: u16,
        /// The endpoint's message, shortened.
        message: String,
    },
    /// The answer is no chat completion, or broke off.
    #[error("the model's endpoint sent no usable answer: {0}")]
    Malformed(MalformedReply),
    /// There is no connection to the endpoint.
    #[error("the model's endpoint {0}")]
    Unreachable(String),
    /// Too many calls wait already.
    #[error("too many calls wait for the model: try again later")]
    Busy,
}

impl LlmError {
    /// Returns the HTTP status of the endpoint's answer, if there was one.
    fn status(&self) -> Option<u16> {
        match self {
            Self::Unauthorized => Some(401),
            Self::RateLimited { .. } => Some(429),
            Self::Server(status) | Self::Refused { status, .. } => Some(*status),
            Self::NoKey | Self::TimedOut | Self::Malformed(_) | Self::Unreachable(_) | Self::Busy => None,
        }
    }
}

impl Client {
    /// Makes a client. Without a key it can be made too; its calls then fail with [`LlmError::NoKey`].
    ///
    /// # Errors
    /// The endpoint's address or the key cannot be used.
    pub fn new(config: LlmConfig) -> Result<Self, LlmConfigError> {
        Ok(Self {
            transport: Transport::new(&config)?,
            permits: Semaphore::new(config.concurrency.max(1)),
            waiting: AtomicUsize::new(0),
            config,
        })
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &LlmConfig {
        &self.config
    }

    /// Sends a request to the model; returns at the deadline at the latest.
    ///
    /// # Errors
    /// There is no answer: see [`LlmError`].
    pub async fn chat(&self, request: &ChatRequest, deadline: Instant) -> Result<ChatReply, LlmError> {
        self.try_chat(request, deadline).await.inspect_err(|error| self.log(error))
    }

    /// Logs why a call failed, except for a missing key, which every call would repeat.
    fn log(&self, error: &LlmError) {
        let (model, endpoint) = (&self.config.model, &self.config.base_url);
        match error.status() {
            _ if *error == LlmError::NoKey => {}
            Some(status) => tracing::error!(status, model, endpoint, "{error}"),
            None => tracing::error!(model, endpoint, "{error}"),
        }
    }

    /// Returns a body for the trace log, without the key and without secrets.
    fn redacted(&self, body: &[u8]) -> String {
        static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::standard);
        let text = String::from_utf8_lossy(body);
        // Both: the key of a local endpoint may have no form that the redactor knows.
        let text = REDACTOR.redact_text(&text).into_owned();
        let text = self.config.key().map_or(text.clone(), |key| key.scrub(text));
        shortened(&text, TRACED_CHARS_MAX).into_owned()
    }

    async fn try_chat(&self, request: &ChatRequest, deadline: Instant) -> Result<ChatReply, LlmError> {
        if !self.config.is_usable() {
            return Err(LlmError::NoKey);
        }
        // Written once: every attempt sends the same bytes.
        let body = request.body(&self.config);
        let mut attempt = 0;
        loop {
            let error = match self.attempt(&body, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let retry_after = match &error {
                LlmError::RateLimited { retry_after } => *retry_after,
                LlmError::Server(_) | LlmError::Unreachable(_) => None,
                // Not after a time-out either: a slow model is slow the second time too, and each attempt costs.
                _ => return Err(error),
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(wait) = retry::wait(attempt, self.config.retries, retry_after, left, random_byte())
            else {
                return Err(error);
            };
            sleep(wait).await;
            attempt += 1;
        }
    }

    async fn attempt(&self, body: &[u8], deadline: Instant) -> Result<ChatReply, LlmError> {
        let _permit = {
            let _waiting = WaitingCall::count(&self.waiting)?;
            let permit = timeout_at(deadline, self.permits.acquire()).await;
            permit.map_err(|_| LlmError::TimedOut)?.expect("the semaphore is never closed")
        };
        // From here on: what a call waited for its permit does not count against the endpoint.
        let until = deadline.min(Instant::now() + self.config.timeout);
        // Asked first, because the redaction of a long body takes time.
        if tracing::enabled!(tracing::Level::TRACE) {
            tracing::trace!(endpoint = self.config.base_url, body = self.redacted(body), "asking the model");
        }
        let answer = timeout_at(until, self.transport.post(body.to_vec())).await;
        match answer.map_err(|_| LlmError::TimedOut)? {
            Ok(answer) => {
                if tracing::enabled!(tracing::Level::TRACE) {
                    let status = answer.status.as_u16();
                    tracing::trace!(
                        status,
                        body = self.redacted(&answer.body),
                        "the model's endpoint answered"
                    );
                }
                self.read(&answer)
            }
            Err(TransportError::Unreachable(error)) => Err(LlmError::Unreachable(error.to_string())),
            Err(TransportError::Broken) => Err(LlmError::Malformed(MalformedReply::BrokeOff)),
            Err(TransportError::TooLong) => Err(LlmError::Malformed(MalformedReply::TooLong)),
        }
    }

    fn read(&self, answer: &HttpReply) -> Result<ChatReply, LlmError> {
        let key = self.config.key();
        match answer.status {
            StatusCode::UNAUTHORIZED => Err(LlmError::Unauthorized),
            StatusCode::TOO_MANY_REQUESTS => {
                let header = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok());
                let retry_after = retry::retry_after(header("retry-after-ms"), header(RETRY_AFTER.as_str()));
                Err(LlmError::RateLimited { retry_after })
            }
            status if status.is_success() => ChatReply::parse(&answer.body, key).map_err(LlmError::Malformed),
            status if status.is_server_error() => Err(LlmError::Server(status.as_u16())),
            status if status.is_redirection() => Err(LlmError::Refused {
                status: status.as_u16(),
                message: "it points elsewhere, which is not followed: check llm.base_url".to_owned(),
            }),
            status => {
                Err(LlmError::Refused { status: status.as_u16(), message: complaint(&answer.body, key) })
            }
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Counts a call among those that wait until it is dropped.
struct WaitingCall<'a>(&'a AtomicUsize);

impl<'a> WaitingCall<'a> {
    fn count(waiting: &'a AtomicUsize) -> Result<Self, LlmError> {
        // Made first, so that dropping it takes the count back on both ways.
        let counted = Self(waiting);
        if waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX { Ok(counted) } else { Err(LlmError::Busy) }
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns a random byte for the jitter of retries.
fn random_byte() -> u8 {
    // The standard library seeds its hashers at random. Nobody gains by guessing this, so no generator is needed.
    RandomState::new().hash_one(0_u8).to_le_bytes()[0]
}
