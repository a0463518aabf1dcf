//! Takes a task apart into words, each with its synonyms and near misses, and how much it says about the task.

use super::hints;
use super::index::ToolIndex;
use super::words::{self, WordKind};

/// The weight of a word that is in no definition: it counts against a shortlist, but less than a known one, because it
/// may be a value.
const UNKNOWN: f32 = 0.6;
/// The weights of a name or value that is in no definition, and of one that is: both nearly always belong to the
/// arguments.
const UNKNOWN_VALUE: f32 = 0.1;
const VALUE: f32 = 0.3;
/// The lower bound of `TermGroup::idf_max`: even for a common word, a rarer synonym may tell this much.
const SYNONYM_IDF_MIN: f32 = 2.0;
/// The weight of words that are only suggested.
const SUGGESTED: f32 = 0.35;

/// A word of a task.
#[derive(Debug)]
pub(super) struct TermGroup<'t> {
    pub(super) typed: &'t str,
    pub(super) term: String,
    /// Whether a tool may learn it: a word of the task, neither a value nor suggested.
    pub(super) is_said: bool,
    /// Terms that may stand for it, each with its similarity in 0..=1.
    pub(super) variants: Vec<(u32, f32)>,
    /// The most that a variant may tell: a rare synonym must not count more than the word itself.
    pub(super) idf_max: f32,
    /// The weight of its presence in a score.
    pub(super) emphasis: f32,
    /// How much it says about what is wanted.
    pub(super) importance: f32,
}

/// Takes a task apart.
pub(super) fn groups<'t>(index: &ToolIndex, task: &'t str) -> Vec<TermGroup<'t>> {
    let words = words::task_words(task);
    let mut groups = TermGroups { index, seen: Vec::new(), groups: Vec::new() };
    for (i, word) in words.iter().enumerate() {
        let whole = word.typed.to_lowercase();
        let parts = words::parts(word.typed);
        let known = index.reader.term(&whole).is_some_and(|term| index.id(&term).is_some());
        // Only the first two words can be a command: `cat a.txt`, `docker ps`. Further on, a cat is a cat.
        let early = index.settings.hints && i < 2 && !known;
        let command = early && hints::command(&whole).next().is_some();
        if command {
            hints::command(&whole).for_each(|word| groups.add(word, WordKind::Word, 1.0));
        } else if known || parts.len() == 1 {
            groups.add(word.typed, word.kind, 1.0);
        } else {
            parts.into_iter().for_each(|part| groups.add(part, word.kind, 1.0));
        }
    }
    if index.settings.hints {
        // After all words of the task, because a word that the task has itself must not count as only suggested.
        for word in &words {
            let whole = word.typed.to_lowercase();
            let suggested = hints::value_form(word.chunk).chain(hints::question(&whole));
            suggested.for_each(|word| groups.add(word, WordKind::Word, SUGGESTED));
        }
    }
    groups.groups
}

struct TermGroups<'i, 't> {
    index: &'i ToolIndex,
    seen: Vec<String>,
    groups: Vec<TermGroup<'t>>,
}

impl<'t> TermGroups<'_, 't> {
    fn add(&mut self, typed: &'t str, kind: WordKind, emphasis: f32) {
        let lower = typed.to_lowercase();
        let Some(term) = self.index.reader.term(&lower) else { return };
        if self.seen.iter().any(|seen| *seen == term) {
            return;
        }
        let mut group = group(self.index, typed, &term, kind);
        self.seen.push(term.into_owned());
        if emphasis < 1.0 {
            group.is_said = false;
            if group.variants.is_empty() {
                return;
            }
            group.emphasis *= emphasis;
            group.importance *= emphasis;
        }
        self.groups.push(group);
    }
}

fn group<'t>(index: &ToolIndex, typed: &'t str, term: &str, kind: WordKind) -> TermGroup<'t> {
    let mut variants = Vec::new();
    let settings = &index.settings;
    variants.extend(index.id(term).map(|id| (id, 1.0)));
    add_synonyms(index, term, settings.synonyms, &mut variants);
    if variants.is_empty() && settings.near > 0.0 && kind == WordKind::Word {
        for (id, likeness) in index.near.find(term, |id| index.term(id).to_owned()) {
            variants.push((id, settings.near * likeness));
            add_synonyms(index, index.term(id), settings.near * settings.synonyms * likeness, &mut variants);
        }
    }
    let commonest = || variants.iter().map(|(id, _)| index.idf(*id)).fold(f32::MAX, f32::min);
    let idf_max = index.id(term).map_or_else(commonest, |id| index.idf(id)).max(SYNONYM_IDF_MIN);
    let telling =
        variants.iter().map(|(id, likeness)| index.idf(*id).min(idf_max) * likeness).fold(0.0, f32::max);
    let (emphasis, importance) = match (kind, variants.is_empty()) {
        (WordKind::Value, false) => (VALUE, VALUE * telling),
        (_, false) => (1.0, telling),
        (WordKind::Word, true) => (1.0, UNKNOWN * index.idf_of(0.0)),
        (_, true) => (1.0, UNKNOWN_VALUE * index.idf_of(0.0)),
    };
    let (term, is_said) = (term.to_owned(), kind == WordKind::Word);
    TermGroup { typed, term, is_said, variants, idf_max, emphasis, importance }
}

fn add_synonyms(index: &ToolIndex, term: &str, likeness: f32, variants: &mut Vec<(u32, f32)>) {
    if likeness == 0.0 {
        return;
    }
    for id in index.synonyms.of(term).iter().filter_map(|other| index.id(other)) {
        if !variants.iter().any(|(known, _)| *known == id) {
            variants.push((id, likeness));
        }
    }
}
