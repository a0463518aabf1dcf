//! Three-way merge of a text, paragraph by paragraph.
//!
//! Changes of two writers to different paragraphs of the same base are both kept. If they changed the same paragraph,
//! or inserted at the same place, there is no merge, and the caller must choose.

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Merges two changes of one text; none if they conflict.
#[must_use]
pub fn merge(base: &str, ours: &str, theirs: &str) -> Option<String> {
    if ours == theirs || theirs == base {
        return Some(ours.to_owned());
    }
    if ours == base {
        return Some(theirs.to_owned());
    }
    let (base, ours, theirs) = (paragraphs(base), paragraphs(ours), paragraphs(theirs));
    // Both changes are relative to the base, so they can be compared by their place in it.
    let (mine, other) = (changes(&base, &ours), changes(&base, &theirs));
    let mut all: Vec<&ParagraphChange<'_>> = mine.iter().collect();
    for change in &other {
        // A change that both writers made is no conflict, and is made once.
        if !mine.contains(change) {
            if mine.iter().any(|own| own.touches(change)) {
                return None;
            }
            all.push(change);
        }
    }
    all.sort_by_key(|change| (change.start, change.end));
    let mut merged: Vec<&str> = Vec::new();
    let mut at = 0;
    for change in all {
        merged.extend(&base[at..change.start]);
        merged.extend(change.with);
        at = change.end;
    }
    merged.extend(&base[at..]);
    // Both writers left some text; if their deletions together leave none, that is a conflict.
    (!merged.is_empty()).then(|| merged.join("\n\n"))
}

fn paragraphs(text: &str) -> Vec<&str> {
    text.split("\n\n").collect()
}

/// A range of paragraphs of the base, and what replaces them.
#[derive(PartialEq)]
struct ParagraphChange<'a> {
    start: usize,
    end: usize,
    with: &'a [&'a str],
}

impl ParagraphChange<'_> {
    /// Returns whether two changes conflict. Changes that only meet at an edge do not, unless one of them is an
    /// insertion: then the order of the two would be a guess.
    fn touches(&self, other: &Self) -> bool {
        if self.start == self.end || other.start == other.end {
            return self.start <= other.end && other.start <= self.end;
        }
        self.start < other.end && other.start < self.end
    }
}

fn changes<'a>(base: &[&str], new: &'a [&'a str]) -> Vec<ParagraphChange<'a>> {
    let change = |op: DiffOp| {
        let (old, with) = (op.old_range(), op.new_range());
        (op.tag() != similar::DiffTag::Equal).then(|| ParagraphChange {
            start: old.start,
            end: old.end,
            with: &new[with],
        })
    };
    capture_diff_slices(Algorithm::Myers, base, new).into_iter().filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(base: &str, ours: &str, theirs: &str, merged: Option<&str>) {
        assert_eq!(merge(base, ours, theirs).as_deref(), merged, "{base:?} {ours:?} {theirs:?}");
        if merged.is_some() {
            assert_eq!(merge(base, theirs, ours).as_deref(), merged, "the other way round");
        }
    }

    #[test]
    fn separate_paragraphs_merge_and_the_same_one_does_not() {
        check("a\n\nb\n\nc", "A\n\nb\n\nc", "a\n\nb\n\nC", Some("A\n\nb\n\nC"));
        check("a\n\nb\n\nc", "A\n\nb\n\nc", "a\n\nB\n\nc", Some("A\n\nB\n\nc"));
        check("a\n\nb", "A\n\nb", "Ä\n\nb", None);
        check("a\n\nb", "A\n\nb", "A\n\nb", Some("A\n\nb"));
        check("a\n\nb\n\nc", "b\n\nc", "a\n\nb\n\nc\n\nd", Some("b\n\nc\n\nd"));
    }

    #[test]
    fn two_insertions_at_one_place_conflict() {
        check("a", "a\n\nx", "a\n\ny", None);
        check("a\n\nb", "a\n\nx\n\nb", "a\n\nb\n\ny", Some("a\n\nx\n\nb\n\ny"));
        check("a\n\nb", "a\n\nx\n\nb", "a\n\nB", None);
    }

    #[test]
    fn two_deletions_that_leave_no_text_conflict() {
        check("a\n\ne\n\na", "e\n\na", "a", None);
        check("a\n\nb", "a", "b", None);
        check("a\n\nb\n\nc", "a\n\nb", "b\n\nc", Some("b"));
    }

    #[test]
    fn a_change_by_one_writer_is_taken() {
        check("a", "b", "a", Some("b"));
        check("", "b", "", Some("b"));
    }
}
