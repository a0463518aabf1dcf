//! Digests: several entries summarised in one text, in which each sentence cites its entries, like `[a1b2c3d4e5f6]`.
//!
//! A digest is cached under a hash of its inputs, so a new entry makes a new digest. Ids that the model invented are
//! removed. Without a model the digest is a list of titles.

use std::fmt::Write as _;

use scrubjay_core::units::counted;
use scrubjay_llm::{ChatReply, ChatRequest};
use scrubjay_store::ledger::blob;
use scrubjay_store::ledger::narrative;
use scrubjay_store::ledger::progress::ID_CHARS;
use serde_json::{Value, json};

use super::arguments::{day, iso};
use super::budget::BudgetedEntry;
use super::summary::{SummaryRequest, SummarySource, SummarySubject, TEMPERATURE, ask};
use super::{Answer, ProgressFailure};
use crate::shared::Shared;

/// The most tokens of a digest: eight sentences with their citations.
const TOKENS_MAX: u32 = 500;

const SYSTEM_PROMPT: &str = "You are a technical summariser. Write one digest of the following agent work logs, \
    which are given newest first, in at most 8 sentences. Focus on: what was done, key files/components changed, \
    and outcomes. Be concise and factual. Do not use phrases like \"The agent\" - write in past tense as if \
    reporting completed work. End each sentence with the ids of the logs it rests on, each in square brackets, \
    exactly as given. Use no other square brackets.";

/// Makes a digest of entries of one project.
pub(super) async fn of(
    shared: &Shared,
    project: &str,
    chosen: &[BudgetedEntry],
    omitted: usize,
) -> Result<Answer, ProgressFailure> {
    let user: Vec<String> = chosen.iter().map(for_model).collect();
    let user = user.join("\n\n");
    let model = shared.llm().map(|client| client.config().model.clone()).unwrap_or_default();
    // The number changes with the form of a digest, so that digests of another form are not taken from the cache.
    let inputs = blob::hash(format!("digest 1\n{model}\n{SYSTEM_PROMPT}\n{user}").as_bytes());
    // Looked up here without a transaction that writes: a cached digest then waits for no other writer.
    let known = narrative::get(&mut shared.ledger().await?.read().await?, &inputs).await?;
    let (text, source) = match known {
        Some(text) => (text, SummarySource::Cache),
        None => {
            let chat = ChatRequest {
                max_tokens: Some(TOKENS_MAX),
                temperature: Some(TEMPERATURE),
                ..ChatRequest::new(SYSTEM_PROMPT, user)
            };
            let extract = |reply: &ChatReply| without_invented_ids(reply.text.trim(), chosen);
            let request =
                SummaryRequest { subject: &SummarySubject::Digest(inputs), chat, extract: &extract };
            match ask(shared, request).await? {
                Some(text) => (text, SummarySource::Model),
                None => (titles(chosen), SummarySource::Fallback),
            }
        }
    };
    Ok(answer(project, chosen, omitted, &inputs, (text, source)))
}

fn answer(
    project: &str,
    chosen: &[BudgetedEntry],
    omitted: usize,
    inputs: &blob::Hash,
    (text, source): (String, SummarySource),
) -> Answer {
    let mut whole = text.clone();
    for one in chosen.iter() {
        let entry = &one.entry;
        write!(whole, "\n\n[{}] {} ({})", entry.id, entry.title, day(entry.at_us))
            .expect("a string takes any text");
        if let Some(text) = one.text() {
            write!(whole, "\n{text}").expect("a string takes any text");
        }
    }
    if omitted > 0 {
        write!(
            whole,
            "\n\n{} left out: give more maxTokens, or fewer days.",
            counted(omitted, "older entry")
        )
        .expect("a string takes any text");
    }
    let entries: Vec<Value> = chosen.iter().map(entry_json).collect();
    let count = chosen.len();
    let mut tags: Vec<&String> = chosen.iter().flat_map(|one| &one.entry.tags).collect();
    tags.sort_unstable();
    tags.dedup();
    Answer {
        text: whole,
        data: json!({
            "id": &blob::hex(inputs)[..ID_CHARS],
            "projectId": project,
            "title": format!("Digest of {}", counted(count, "entry")),
            "summary": text,
            "summarySource": source.name(),
            "createdAt": chosen.iter().map(|one| one.entry.at_us).max().map(iso),
            "tags": tags,
            "citations": citations(&text, chosen),
            "entries": entries,
            "omitted": omitted,
        }),
    }
}

fn entry_json(one: &BudgetedEntry) -> Value {
    let entry = &one.entry;
    let mut value = json!({
        "id": entry.id, "title": entry.title, "createdAt": iso(entry.at_us), "tags": entry.tags,
        "detail": one.detail.name(),
    });
    if let Some(text) = one.text() {
        let name = if one.detail == super::budget::Detail::Full { "content" } else { "summary" };
        value[name] = text.into();
    }
    value
}

/// Formats an entry for the model.
fn for_model(one: &BudgetedEntry) -> String {
    let entry = &one.entry;
    let head = format!("[{}] {}\nTitle: {}", entry.id, iso(entry.at_us), entry.title);
    one.text().map_or_else(|| head.clone(), |text| format!("{head}\n\nContent:\n{text}"))
}

/// Removes ids that the model invented; none if no id is left, because a digest without citations cannot be checked.
fn without_invented_ids(text: &str, chosen: &[BudgetedEntry]) -> Option<String> {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('[') {
        let (before, from) = rest.split_at(at);
        kept.push_str(before);
        // Only brackets that hold what looks like an id are citations: a text may have others.
        match bracketed(from) {
            Some(id) if !chosen.iter().any(|one| one.entry.id == id) => {
                kept.truncate(kept.trim_end().len());
                rest = &from[id.len() + 2..];
            }
            _ => {
                kept.push('[');
                rest = &from[1..];
            }
        }
    }
    kept.push_str(rest);
    (!citations(&kept, chosen).is_empty()).then_some(kept)
}

/// Returns the id in square brackets at the beginning of a text, if there is one.
fn bracketed(text: &str) -> Option<&str> {
    let (id, _) = text.strip_prefix('[')?.split_once(']')?;
    (id.len() == ID_CHARS && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'))
        .then_some(id)
}

/// Returns the entries that a digest cites, in order.
fn citations<'a>(text: &str, chosen: &'a [BudgetedEntry]) -> Vec<&'a str> {
    let mut cited = Vec::new();
    for (at, _) in text.match_indices('[') {
        let named = bracketed(&text[at..]).and_then(|id| chosen.iter().find(|one| one.entry.id == id));
        if let Some(one) = named.filter(|one| !cited.contains(&one.entry.id.as_str())) {
            cited.push(one.entry.id.as_str());
        }
    }
    cited
}

/// Lists the titles: the digest without a model.
fn titles(chosen: &[BudgetedEntry]) -> String {
    let lines: Vec<String> =
        chosen.iter().map(|one| format!("- {} [{}]", one.entry.title, one.entry.id)).collect();
    lines.join("\n")
}
