//! A call: wait for a turn, ask, try again where that may help, all before the deadline.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use scrubjay_core::redact::Redactor;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};

use crate::config::{LlmConfig, LlmConfigError};
use crate::reply::{ChatReply, complaint};
use crate::request::ChatRequest;
use crate::retry;
use crate::transport::{HttpReply, Transport, TransportError};

/// No more calls wait for their turn.
const WAITING_MAX: usize = 256;
/// No more characters of a request or an answer are logged.
const TRACED_CHARS_MAX: usize = 64 * 1024;

/// The client of one endpoint. Cheap to share behind an `Arc`.
pub struct Client {
    config: LlmConfig,
    transport: Transport,
    turns: Semaphore,
    waiting: AtomicUsize,
    totals: Counters,
}

/// Why a call has no answer. The key is in none of the texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LlmError {
    /// There is no key to call with.
    #[error("there is no key for the model: set OPENAI_API_KEY or llm.api_key")]
    NoKey,
    /// The endpoint does not take the key.
    #[error("the model's endpoint does not accept the key: check OPENAI_API_KEY or llm.api_key")]
    Unauthorized,
    /// Too many calls for the endpoint, or no credit left.
    #[error("the model's endpoint is asked too often, or there is no credit left")]
    RateLimited {
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// No answer in time.
    #[error("the model did not answer in time: llm.timeout gives it more")]
    TimedOut,
    /// The endpoint failed with this status.
    #[error("the model's endpoint failed with status {0}")]
    Server(u16),
    /// The endpoint refuses the question.
    #[error("the model's endpoint refuses the request (status {status}): {message}")]
    Refused {
        /// Its status.
        status: u16,
        /// Its words, shortened.
        message: String,
    },
    /// The answer makes no sense.
    #[error("the model's endpoint sent no usable answer: {0}")]
    Malformed(&'static str),
    /// The endpoint is not there.
    #[error("the model's endpoint {0}")]
    Unreachable(String),
    /// Too many calls wait already.
    #[error("too many calls wait for the model: try again later")]
    Busy,
}

impl LlmError {
    /// Returns the status that the endpoint answered with, where it did.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Unauthorized => Some(401),
            Self::RateLimited { .. } => Some(429),
            Self::Server(status) | Self::Refused { status, .. } => Some(*status),
            Self::NoKey | Self::TimedOut | Self::Malformed(_) | Self::Unreachable(_) | Self::Busy => None,
        }
    }

    /// Tells whether the same call may do better later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::RateLimited { .. } | Self::TimedOut | Self::Server(_) | Self::Unreachable(_) => true,
            Self::Busy => true,
            Self::NoKey | Self::Unauthorized | Self::Refused { .. } | Self::Malformed(_) => false,
        }
    }
}

/// What all calls of a client came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LlmTotals {
    /// Calls.
    pub calls: u64,
    /// Calls without an answer.
    pub failed: u64,
    /// Requests, with those of retries.
    pub attempts: u64,
    /// Tokens of the questions, as the endpoint counts.
    pub tokens_in: u64,
    /// Tokens of the answers, as the endpoint counts.
    pub tokens_out: u64,
}

#[derive(Default)]
struct Counters {
    calls: AtomicU64,
    failed: AtomicU64,
    attempts: AtomicU64,
    tokens_in: AtomicU64,
    tokens_out: AtomicU64,
}

impl Client {
    /// Makes a client. One without a key can be made too: its calls say so.
    ///
    /// # Errors
    /// The endpoint's address or the key is of no use.
    pub fn new(config: LlmConfig) -> Result<Self, LlmConfigError> {
        Ok(Self {
            transport: Transport::new(&config)?,
            turns: Semaphore::new(config.concurrency.max(1)),
            waiting: AtomicUsize::new(0),
            totals: Counters::default(),
            config,
        })
    }

    /// Returns what it was told.
    #[must_use]
    pub fn config(&self) -> &LlmConfig {
        &self.config
    }

    /// Returns what all calls so far came to.
    #[must_use]
    pub fn usage(&self) -> LlmTotals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LlmTotals {
            calls: read(&self.totals.calls),
            failed: read(&self.totals.failed),
            attempts: read(&self.totals.attempts),
            tokens_in: read(&self.totals.tokens_in),
            tokens_out: read(&self.totals.tokens_out),
        }
    }

    /// Asks a model; returns at the deadline at the latest.
    ///
    /// # Errors
    /// There is no answer: see `LlmError`.
    pub async fn chat(&self, request: &ChatRequest, deadline: Instant) -> Result<ChatReply, LlmError> {
        count(&self.totals.calls, 1);
        let result = self.try_chat(request, deadline).await;
        match &result {
            Ok(reply) => {
                count(&self.totals.tokens_in, reply.usage.tokens_in);
                count(&self.totals.tokens_out, reply.usage.tokens_out);
            }
            Err(error) => {
                count(&self.totals.failed, 1);
                self.log(error);
            }
        }
        result
    }

    /// Logs why a call has no answer; whoever has no key to call with knows it already.
    fn log(&self, error: &LlmError) {
        let (model, endpoint) = (&self.config.model, &self.config.base_url);
        match error.status() {
            _ if *error == LlmError::NoKey => {}
            Some(status) => tracing::error!(status, model, endpoint, "{error}"),
            None => tracing::error!(model, endpoint, "{error}"),
        }
    }

    /// Shows what is sent or received to somebody who looks for a fault: without the key and without secrets.
    fn shown(&self, body: &[u8]) -> String {
        static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::standard);
        let text = String::from_utf8_lossy(body);
        let text = REDACTOR.redact_text(&text).into_owned();
        let mut text = self.config.key().map_or(text.clone(), |key| key.scrub(text));
        if let Some((end, _)) = text.char_indices().nth(TRACED_CHARS_MAX) {
            text.truncate(end);
            text.push('…');
        }
        text
    }

    async fn try_chat(&self, request: &ChatRequest, deadline: Instant) -> Result<ChatReply, LlmError> {
        if !self.config.is_usable() {
            return Err(LlmError::NoKey);
        }
        let body = request.body(&self.config);
        let mut attempt = 0;
        loop {
            let error = match self.attempt(&body, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let asked_for = match &error {
                LlmError::RateLimited { retry_after } => *retry_after,
                LlmError::Server(_) | LlmError::Unreachable(_) => None,
                // A slow model is slow the second time too, and each time costs.
                _ => return Err(error),
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(wait) = retry::wait(attempt, self.config.retries, asked_for, left, chance()) else {
                return Err(error);
            };
            sleep(wait).await;
            attempt += 1;
        }
    }

    async fn attempt(&self, body: &[u8], deadline: Instant) -> Result<ChatReply, LlmError> {
        let _turn = {
            let _place = QueuePermit::take(&self.waiting)?;
            let turn = timeout_at(deadline, self.turns.acquire()).await;
            turn.map_err(|_| LlmError::TimedOut)?.expect("the turns are never closed")
        };
        let until = deadline.min(Instant::now() + self.config.timeout);
        count(&self.totals.attempts, 1);
        if tracing::enabled!(tracing::Level::TRACE) {
            tracing::trace!(endpoint = self.config.base_url, body = self.shown(body), "asking the model");
        }
        let answer = timeout_at(until, self.transport.post(body.to_vec())).await;
        match answer.map_err(|_| LlmError::TimedOut)? {
            Ok(answer) => {
                if tracing::enabled!(tracing::Level::TRACE) {
                    let status = answer.status.as_u16();
                    tracing::trace!(status, body = self.shown(&answer.body), "the model's endpoint answered");
                }
                self.read(&answer)
            }
            Err(TransportError::Unreachable(what)) => Err(LlmError::Unreachable(what)),
            Err(TransportError::Broken) => Err(LlmError::Malformed("it broke off")),
            Err(TransportError::TooLong) => Err(LlmError::Malformed("it is longer than 1 MiB")),
        }
    }

    fn read(&self, answer: &HttpReply) -> Result<ChatReply, LlmError> {
        let key = self.config.key();
        match answer.status {
            StatusCode::UNAUTHORIZED => Err(LlmError::Unauthorized),
            StatusCode::TOO_MANY_REQUESTS => {
                let header = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok());
                let retry_after = retry::asked_for(header("retry-after-ms"), header(RETRY_AFTER.as_str()));
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

/// A place among those that wait; given back when dropped.
struct QueuePermit<'a>(&'a AtomicUsize);

impl<'a> QueuePermit<'a> {
    fn take(waiting: &'a AtomicUsize) -> Result<Self, LlmError> {
        let place = Self(waiting);
        if waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX { Ok(place) } else { Err(LlmError::Busy) }
    }
}

impl Drop for QueuePermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Returns something that differs from process to process and call to call; it need not be unguessable.
fn chance() -> u8 {
    RandomState::new().hash_one(0_u8).to_le_bytes()[0]
}
