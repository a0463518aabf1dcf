//! Summaries of entries: requested from a model once, then stored. Without a model, the summary is the beginning of the
//! content.
//!
//! Callers that want the same answer at the same time share one request, within this process and across processes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use scrubjay_core::shorten::shortened;
use scrubjay_llm::{ChatReply, ChatRequest};
use scrubjay_store::ledger::progress::{self, ProgressEntry, claim};
use scrubjay_store::ledger::{CommitDurability, Ledger, LedgerError, narrative};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};

use crate::shared::Shared;

/// The most characters of a summary, as the specification says.
pub(super) const CHARS_MAX: usize = 500;
/// The most tokens of a summary, as the specification says.
const TOKENS_MAX: u32 = 150;
/// Low, for consistent, factual output.
pub(super) const TEMPERATURE: f64 = 0.3;
/// How often to check whether another process has the answer.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How much longer than the request's time-out its claim is valid, so that the answer can be stored before another process
/// asks again.
const CLAIM_SLACK: Duration = Duration::from_secs(5);

const SYSTEM_PROMPT: &str = "You are a technical summariser. Summarise the following agent work log in 2-3 \
    sentences. Focus on: what was done, key files/components changed, and outcome. Be concise and factual. Do \
    not use phrases like \"The agent\" - write in past tense as if reporting completed work.";

/// Where a summary comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SummarySource {
    Model,
    Cache,
    Fallback,
}

impl SummarySource {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Cache => "cache",
            Self::Fallback => "fallback",
        }
    }
}

/// Returns an entry's summary.
pub(super) async fn of(
    shared: &Shared,
    entry: &ProgressEntry,
) -> Result<(String, SummarySource), LedgerError> {
    if let Some(summary) = &entry.summary {
        return Ok((summary.clone(), SummarySource::Cache));
    }
    let user = format!("Title: {}\n\nContent:\n{}", entry.title, entry.content);
    let chat = ChatRequest {
        max_tokens: Some(TOKENS_MAX),
        temperature: Some(TEMPERATURE),
        ..ChatRequest::new(SYSTEM_PROMPT, user)
    };
    let request = SummaryRequest { subject: &SummarySubject::Summary(entry), chat, extract: &extract };
    Ok(match ask(shared, request).await? {
        Some(summary) => (summary, SummarySource::Model),
        // Not stored, so that a model summarises the entry once there is one.
        None => (entry.content.chars().take(CHARS_MAX).collect(), SummarySource::Fallback),
    })
}

fn extract(reply: &ChatReply) -> Option<String> {
    let text = reply.text.trim();
    (!text.is_empty()).then(|| cut(text, reply.cut_short))
}

/// Cuts a text that is too long, or was broken off, at the end of a sentence.
pub(super) fn cut(text: &str, broken_off: bool) -> String {
    let fits = text.chars().count() <= CHARS_MAX;
    if fits && !broken_off {
        return text.to_owned();
    }
    let kept: String = text.chars().take(CHARS_MAX).collect();
    let mut end = None;
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let after = at + c.len_utf8();
        if after > kept.len() {
            break;
        }
        let ends = match c {
            // In Chinese and Japanese no space follows a sentence.
            '。' | '！' | '？' => true,
            // Not the points in `v1.2` or `jwt.ts`.
            '.' | '!' | '?' => rest.peek().is_none_or(|(_, next)| next.is_whitespace()),
            _ => false,
        };
        if ends {
            end = Some(after);
        }
    }
    match end {
        Some(end) => kept[..end].to_owned(),
        None if fits => kept,
        None => shortened(text, CHARS_MAX).into_owned(),
    }
}

/// What is requested from the model.
pub(super) enum SummarySubject<'a> {
    /// An entry's summary.
    Summary(&'a ProgressEntry),
    /// Several entries' digest, by its inputs.
    Digest([u8; 32]),
}

impl SummarySubject<'_> {
    fn key(&self) -> String {
        match self {
            Self::Summary(entry) => entry.id.clone(),
            Self::Digest(inputs) => scrubjay_store::ledger::blob::hex(inputs),
        }
    }

    async fn known(
        &self,
        on: &mut impl scrubjay_store::ledger::LedgerConnection,
    ) -> Result<Option<String>, LedgerError> {
        match self {
            Self::Summary(entry) => {
                Ok(progress::get(on, &entry.project_id, &entry.id).await?.and_then(|entry| entry.summary))
            }
            Self::Digest(inputs) => narrative::get(on, inputs).await,
        }
    }
}

/// A request to the model, and the function that extracts the answer from its reply.
pub(super) struct SummaryRequest<'a> {
    pub(super) subject: &'a SummarySubject<'a>,
    pub(super) chat: ChatRequest,
    pub(super) extract: &'a (dyn Fn(&ChatReply) -> Option<String> + Sync),
}

/// Requests an answer from the model, together with other callers that want the same; none if there is no answer.
pub(super) async fn ask(shared: &Shared, request: SummaryRequest<'_>) -> Result<Option<String>, LedgerError> {
    let Some(client) = shared.llm() else {
        tracing::warn!("there is no model to summarise with: set OPENAI_API_KEY or llm.api_key");
        return Ok(None);
    };
    if !client.config().is_usable() {
        tracing::warn!("{}", scrubjay_llm::LlmError::NoKey);
        return Ok(None);
    }
    let ledger = shared.ledger().await?;
    let slot = shared.summaries_in_flight().slot(request.subject.key());
    let answer = slot.cell.get_or_init(|| async {
        let answer = ask_model(ledger, client, shared.process_key(), &request).await;
        // The callers that share the request cannot share an error, which is not `Clone`; each gets the fallback.
        answer.unwrap_or_else(|e| {
            tracing::error!(error = %e, "the ledger failed");
            None
        })
    });
    Ok(answer.await.clone())
}

/// Requests the answer, unless another process does.
async fn ask_model(
    ledger: &Ledger,
    client: &scrubjay_llm::Client,
    owner: &str,
    request: &SummaryRequest<'_>,
) -> Result<Option<String>, LedgerError> {
    let timeout = client.config().timeout;
    let deadline = Instant::now() + timeout;
    let key = request.subject.key();
    loop {
        let mut write = ledger.write(CommitDurability::Process).await?;
        // Within the transaction that takes the claim: another process stores its answer and gives up its claim in one.
        if let Some(known) = request.subject.known(&mut write).await? {
            return Ok(Some(known));
        }
        if claim::take(&mut write, &key, owner, timeout + CLAIM_SLACK).await? {
            write.commit().await?;
            break;
        }
        // Another process asks the model. The transaction ends before the pause, or that process could not store its answer.
        drop(write);
        if Instant::now() + POLL_INTERVAL > deadline {
            return Ok(None);
        }
        sleep(POLL_INTERVAL).await;
    }
    // No transaction is open while the model works: writers of all processes take turns.
    let reply = client.chat(&request.chat, deadline).await;
    let answer = match reply {
        Ok(reply) => {
            let answer = (request.extract)(&reply);
            if answer.is_none() {
                tracing::warn!(subject = key, "the model's answer cannot be used");
            }
            answer
        }
        Err(e) => {
            tracing::warn!(subject = key, error = %e, "the model does not answer");
            None
        }
    };
    let mut write = ledger.write(CommitDurability::Power).await?;
    // The claim is given up even without an answer, so that the next caller can try at once.
    claim::release(&mut write, &key, owner).await?;
    let stored = match (&answer, request.subject) {
        (None, _) => None,
        (Some(text), SummarySubject::Summary(entry)) => {
            Some(progress::store_summary(&mut write, &entry.id, text, &client.config().model).await?)
        }
        (Some(text), SummarySubject::Digest(inputs)) => {
            narrative::put(&mut write, inputs, text).await?;
            Some(text.clone())
        }
    };
    write.commit().await?;
    Ok(stored)
}

type SharedAnswer = Arc<OnceCell<Option<String>>>;

/// The requests of this process that are in flight.
#[derive(Debug, Default)]
pub(crate) struct InFlightSummaries(Mutex<HashMap<String, SharedAnswer>>);

impl InFlightSummaries {
    fn slot(&self, key: String) -> InFlightSlot<'_> {
        let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = Arc::clone(cells.entry(key.clone()).or_default());
        InFlightSlot { summaries_in_flight: self, key, cell }
    }
}

/// A caller's share in a request that is in flight. The entry is removed with the answer: later callers find that in the
/// ledger, and after a failure they ask again.
struct InFlightSlot<'a> {
    summaries_in_flight: &'a InFlightSummaries,
    key: String,
    cell: SharedAnswer,
}

impl Drop for InFlightSlot<'_> {
    fn drop(&mut self) {
        let mut cells = self.summaries_in_flight.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = cells.get(&self.key).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell));
        // Two references are the map's and this caller's, so no other caller waits for the answer.
        if ours && (self.cell.initialized() || Arc::strong_count(&self.cell) <= 2) {
            cells.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_ends_with_a_sentence() {
        let long = format!("First. Second is v1.2 of it! {}", "x".repeat(600));
        for (text, broken_off, expected) in [
            ("Short and whole", false, "Short and whole"),
            ("One. Two is not fin", true, "One."),
            ("No end at all", true, "No end at all"),
            ("認証。直した", true, "認証。"),
            (&long, false, "First. Second is v1.2 of it!"),
        ] {
            assert_eq!(cut(text, broken_off), expected);
        }
        let endless = cut(&"🐦".repeat(501), false);
        assert!(endless.chars().count() == CHARS_MAX && endless.ends_with('…'));
        let exact = format!("{}. b", "a".repeat(499));
        assert_eq!(cut(&exact, false).chars().count(), CHARS_MAX);
    }
}
