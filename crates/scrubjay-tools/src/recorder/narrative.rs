//! Adds a few sentences by a model to each step of a story. They are cached, and requested again only when the facts
//! change. Without a model, or if it does not answer, the story has none.

use scrubjay_llm::ChatRequest;
use scrubjay_store::ledger::{Ledger, LedgerError, Survives, blob, narrative};
use scrubjay_store::views::story::{Chapter, Story};
use tokio::time::Instant;

use crate::shared::Shared;

/// How many steps one reading requests narratives for; it should not wait long. The next reading adds others.
const ASKED_MAX: usize = 8;
/// The most tokens of a narrative.
const TOKENS_MAX: u32 = 120;
/// The most characters of a narrative.
const CHARS_MAX: usize = 600;
/// How many facts of one step are sent to the model.
const FACTS_MAX: usize = 60;

const SYSTEM_PROMPT: &str = "You tell what a software agent did in one step of its plan, from a list of recorded \
    facts. Write exactly two plain sentences in the past tense: what was changed and why, as far as the facts say. \
    Add nothing that is not in them.";

/// Adds narratives from the cache or from the model.
pub(super) async fn add(shared: &Shared, story: &mut Story) -> Result<(), LedgerError> {
    let Some(client) = shared.llm().filter(|client| client.config().is_usable()) else { return Ok(()) };
    let ledger = shared.ledger().await?;
    let deadline = Instant::now() + client.config().timeout;
    let mut asked = 0;
    for chapter in story.chapters.iter_mut().filter(|c| c.step.is_some() && !c.facts().is_empty()) {
        let question = question(chapter);
        let inputs = blob::hash(format!("{}\n{question}", client.config().model).as_bytes());
        chapter.narrative = narrative::get(&mut ledger.read().await?, &inputs).await?;
        if chapter.narrative.is_some() || asked == ASKED_MAX {
            continue;
        }
        asked += 1;
        let request = ChatRequest {
            max_tokens: Some(TOKENS_MAX),
            temperature: Some(0.3),
            ..ChatRequest::new(SYSTEM_PROMPT, question)
        };
        match client.chat(&request, deadline).await {
            Ok(reply) => chapter.narrative = keep(ledger, &inputs, &reply.text).await?,
            Err(e) => {
                tracing::warn!(error = %e, "the model does not tell the story");
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

async fn keep(ledger: &Ledger, inputs: &blob::Hash, told: &str) -> Result<Option<String>, LedgerError> {
    let told: String = told.trim().chars().take(CHARS_MAX).collect();
    if told.is_empty() {
        return Ok(None);
    }
    let mut write = ledger.write(Survives::Process).await?;
    narrative::put(&mut write, inputs, &told).await?;
    write.commit().await?;
    narrative::get(&mut ledger.read().await?, inputs).await
}
