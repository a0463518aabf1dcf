//! Scores each tool for a task by the words of the catalog and, within limits, by words learned from earlier tasks.

use super::confidence::confidence;
use super::index::ToolIndex;
use super::learned::{SURE_TIMES, TIMES_MAX};
use super::query::TermGroup;
use super::{ACT_MIN, ScoreShape, ToolField};

/// If the catalog's own words are good enough to act on, learned words move a tool by at most this part of the best
/// score, so that recordings cannot overrule a clear match.
const LEARNED_SHARE_MAX: f32 = 0.1;

/// The scores of all tools for one task, and their shape.
pub(super) struct Scored {
    pub(super) scores: Vec<f32>,
    pub(super) signs: ScoreShape,
}

impl ToolIndex {
    /// Scores every tool by the catalog and, within limits, by learned words.
    pub(super) fn score_with_learned(&self, groups: &[TermGroup<'_>]) -> Scored {
        let plain = self.score(groups, usize::MAX);
        if groups.iter().all(|group| self.asked.of(&group.term, 1).next().is_none()) {
            return plain;
        }
        let (suggested, sure) = (self.score(groups, 1), self.score(groups, SURE_TIMES));
        let best = plain.scores.iter().copied().fold(0.0, f32::max);
        let is_clear = confidence(&plain.signs) >= ACT_MIN;
        let moved = |(plain, suggested): (&f32, &f32)| {
            let by = (suggested - plain).max(0.0);
            plain + if is_clear { by.min(LEARNED_SHARE_MAX * best) } else { by }
        };
        let scores = plain.scores.iter().zip(&suggested.scores).map(moved).collect();
        // Only words of several conversations raise the confidence: one tape alone must not make the router act.
        let signs = if confidence(&sure.signs) > confidence(&plain.signs) { sure.signs } else { plain.signs };
        Scored { scores, signs }
    }

    /// Scores every tool; a learned word counts if at least `least` conversations used it.
    fn score(&self, groups: &[TermGroup<'_>], least: usize) -> Scored {
        let sum: f32 = groups.iter().map(|group| group.importance).sum();
        let (mut scores, mut covered) = (vec![0.0_f32; self.tools], vec![0.0_f32; self.tools]);
        let mut best = vec![(0.0_f32, 0.0_f32); self.tools];
        let mut known = 0.0;
        for group in groups {
            // Only the best variant of a word counts, so that a tool gains nothing by listing synonyms.
            best.fill((0.0, 0.0));
            for (term, likeness) in &group.variants {
                let idf = self.idf(*term).min(group.idf_max) * likeness * group.emphasis;
                for posting in &self.postings[*term as usize] {
                    let score = idf * posting.weight / (posting.weight + self.settings.saturation);
                    let best = &mut best[posting.tool as usize];
                    *best = (best.0.max(score), best.1.max(*likeness));
                }
            }
            let mut is_known = !group.variants.is_empty();
            let idf = self.idf_asked(group);
            for (tool, times) in self.asked.of(&group.term, least) {
                let weight =
                    self.settings.weights[ToolField::AskedAs as usize] * times as f32 / TIMES_MAX as f32;
                let score = idf * group.emphasis * weight / (weight + self.settings.saturation);
                best[tool] = (best[tool].0.max(score), 1.0);
                is_known = true;
            }
            known += if is_known { group.importance } else { 0.0 };
            for (tool, (score, likeness)) in best.iter().enumerate() {
                scores[tool] += score;
                covered[tool] += likeness * group.importance;
            }
        }
        for (score, covered) in scores.iter_mut().zip(&mut covered) {
            *covered /= sum.max(f32::MIN_POSITIVE);
            *score *= 1.0 - self.settings.coverage + self.settings.coverage * *covered;
        }
        let signs = self.signs(&scores, &covered, sum, known);
        Scored { scores, signs }
    }

    /// Returns the inverse document frequency of a learned word.
    fn idf_asked(&self, group: &TermGroup<'_>) -> f32 {
        match self.id(&group.term) {
            Some(id) => self.idf(id),
            None => self.idf_of(self.asked.of(&group.term, 1).count() as f32),
        }
    }

    fn signs(&self, scores: &[f32], covered: &[f32], sum: f32, known: f32) -> ScoreShape {
        let (mut first, mut second, mut best) = (0.0_f32, 0.0_f32, None);
        for (tool, score) in scores.iter().enumerate() {
            if *score > first {
                (second, first, best) = (first, *score, Some(tool));
            } else {
                second = second.max(*score);
            }
        }
        let part = |of: f32, whole: f32| if whole > 0.0 { (of / whole).clamp(0.0, 1.0) } else { 0.0 };
        let name = self.settings.weights[ToolField::Name as usize];
        ScoreShape {
            fit: part(first, sum * name / (name + self.settings.saturation)),
            covered: best.map_or(0.0, |tool| covered[tool]),
            margin: part(first - second, first),
            known: part(known, sum),
        }
    }
}
