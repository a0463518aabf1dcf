//! Adds a few sentences by a model to each step of a story. They are cached, and requested again only when the facts
//! change. Without a model, or if it does not answer, the story has none.

use scrubjay_llm::ChatRequest;
use scrubjay_store::ledger::{CommitDurability, Ledger, LedgerError, blob, narrative};
use scrubjay_store::views::story::{Chapter, Story};
use tokio::time::Instant;

use crate::shared::Shared;

/// How many narratives are requested when a story is read, so that its reader does not wait long. The next reading
/// requests others.
const REQUESTS_MAX: usize = 8;
/// The most tokens of a narrative: two sentences.
const TOKENS_MAX: u32 = 120;
/// The most characters of a narrative: what a model writes beyond its token limit is cut off.
const CHARS_MAX: usize = 600;
/// How many facts of one step are sent to the model: more do not change two sentences, but cost tokens.
const FACTS_MAX: usize = 60;

const SYSTEM_PROMPT: &str = "You tell what a software agent did in one step of its plan, from a list of recorded \
    facts. Write exactly two plain sentences in the past tense: what was changed and why, as far as the facts say. \
    Add nothing that is not in them.";

/// Adds narratives from the cache or from the model.
pub(super) async fn add(shared: &Shared, story: &mut Story) -> Result<(), LedgerError> {
    let Some(client) = shared.llm().filter(|client| client.config().is_usable()) else { return Ok(()) };
    let ledger = shared.ledger().await?;
    // One deadline for all requests: together they may take no longer than one may.
    let deadline = Instant::now() + client.config().timeout;
    let mut requests = 0;
    for chapter in story.chapters.iter_mut().filter(|c| c.step.is_some() && !c.facts().is_empty()) {
        let question = question(chapter);
        // A narrative is valid as long as the facts and the model are the same, so their hash is its key.
        let inputs = blob::hash(format!("{}\n{question}", client.config().model).as_bytes());
        chapter.narrative = narrative::get(&mut ledger.read().await?, &inputs).await?;
        if chapter.narrative.is_some() || requests == REQUESTS_MAX {
            continue;
        }
        requests += 1;
        let request = ChatRequest {
            max_tokens: Some(TOKENS_MAX),
            temperature: Some(0.3),
            ..ChatRequest::new(SYSTEM_PROMPT, question)
        };
        match client.chat(&request, deadline).await {
            Ok(reply) => chapter.narrative = store(ledger, &inputs, &reply.text).await?,
            Err(e) => {
                // After one failure the other narratives are not requested: the story is shown now, without them.
                tracing::warn!(error = %e, "the story has no narratives: the model does not answer");
                return Ok(());
            }
        }
    }
    Ok(())
}

fn question(chapter: &Chapter) -> String {
    let facts: Vec<String> =
        chapter.facts().into_iter().take(FACTS_MAX).map(|fact| format!("- {fact}")).collect();
    format!("Step: {}\n\nFacts:\n{}", chapter.step.as_deref().unwrap_or_default(), facts.join("\n"))
}

async fn store(ledger: &Ledger, inputs: &blob::Hash, text: &str) -> Result<Option<String>, LedgerError> {
    let text: String = text.trim().chars().take(CHARS_MAX).collect();
    if text.is_empty() {
        return Ok(None);
    }
    // It can be requested again, so it need not survive a loss of power.
    let mut write = ledger.write(CommitDurability::Process).await?;
    narrative::put(&mut write, inputs, &text).await?;
    write.commit().await?;
    // Read back, because redaction may have changed it, and another process may have stored its own first.
    narrative::get(&mut ledger.read().await?, inputs).await
}
