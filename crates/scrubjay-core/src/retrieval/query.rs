//! What a task asks for: its words, each with the ways to say it, and how much each tells.

use super::index::Index;
use super::words::{self, Kind};

/// A word that no tool knows counts against a shortlist, but less than one they know: it may be a value.
const UNKNOWN: f32 = 0.6;
/// Names and values belong to the arguments.
const UNKNOWN_VALUE: f32 = 0.1;
const VALUE: f32 = 0.3;

/// A word of a task.
#[derive(Debug)]
pub(super) struct Group<'t> {
    pub(super) typed: &'t str,
    /// Terms that may stand for it, each with a likeness in 0..=1.
    pub(super) variants: Vec<(u32, f32)>,
    /// How much its presence counts in a score.
    pub(super) emphasis: f32,
    /// How much it says about what is wanted.
    pub(super) importance: f32,
}

/// Takes a task apart.
pub(super) fn groups<'t>(index: &Index, task: &'t str) -> Vec<Group<'t>> {
    let mut seen = Vec::new();
    let mut groups = Vec::new();
    for word in words::asked(task) {
        let whole = word.typed.to_lowercase();
        let parts = words::parts(word.typed);
        let known = index.reader.term(&whole).is_some_and(|term| index.id(&term).is_some());
        let pieces = if known || parts.len() == 1 { vec![word.typed] } else { parts };
        for typed in pieces {
            let lower = typed.to_lowercase();
            let Some(term) = index.reader.term(&lower) else { continue };
            if !seen.contains(&term.as_ref().to_owned()) {
                seen.push(term.as_ref().to_owned());
                groups.push(group(index, typed, &term, word.kind));
            }
        }
    }
    groups
}

/// Returns the terms of a task that a tool may be remembered by.
pub(super) fn informative(index: &Index, task: &str) -> Vec<String> {
    let words = words::asked(task).into_iter().filter(|word| word.kind != Kind::Value);
    let mut terms: Vec<String> =
        words.filter_map(|word| index.reader.term(&word.typed.to_lowercase()).map(Into::into)).collect();
    terms.sort_unstable();
    terms.dedup();
    terms
}

fn group<'t>(index: &Index, typed: &'t str, term: &str, kind: Kind) -> Group<'t> {
    let mut variants = Vec::new();
    let settings = &index.settings;
    variants.extend(index.id(term).map(|id| (id, 1.0)));
    add_synonyms(index, term, settings.synonyms, &mut variants);
    if variants.is_empty() && settings.near > 0.0 && kind == Kind::Word {
        for (id, likeness) in index.near.find(term, |id| index.term(id).to_owned()) {
            variants.push((id, settings.near * likeness));
            add_synonyms(index, index.term(id), settings.near * settings.synonyms * likeness, &mut variants);
        }
    }
    let telling = variants.iter().map(|(id, likeness)| index.idf(*id) * likeness).fold(0.0, f32::max);
    let (emphasis, importance) = match (kind, variants.is_empty()) {
        (Kind::Value, false) => (VALUE, VALUE * telling),
        (_, false) => (1.0, telling),
        (Kind::Word, true) => (1.0, UNKNOWN * index.idf_of(0.0)),
        (_, true) => (1.0, UNKNOWN_VALUE * index.idf_of(0.0)),
    };
    Group { typed, variants, emphasis, importance }
}

fn add_synonyms(index: &Index, term: &str, likeness: f32, variants: &mut Vec<(u32, f32)>) {
    if likeness == 0.0 {
        return;
    }
    for id in index.synonyms.of(term).iter().filter_map(|other| index.id(other)) {
        if !variants.iter().any(|(known, _)| *known == id) {
            variants.push((id, likeness));
        }
    }
}
