//! Three-way merging of a text, paragraph by paragraph.
//!
//! Two writers began with the same text. Where they changed separate paragraphs both changes stand; where they
//! changed the same one, or wrote at the same place, there is nothing to decide here: whoever asked must choose.

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Puts two changes of one text together; nothing where they touch.
#[must_use]
pub fn merge(base: &str, ours: &str, theirs: &str) -> Option<String> {
    if ours == theirs || theirs == base {
        return Some(ours.to_owned());
    }
    if ours == base {
        return Some(theirs.to_owned());
    }
    let (base, ours, theirs) = (paragraphs(base), paragraphs(ours), paragraphs(theirs));
    let (mine, other) = (changes(&base, &ours), changes(&base, &theirs));
    let mut all: Vec<&ParagraphChange<'_>> = mine.iter().collect();
    for change in &other {
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
    // Each left something and meant it to stay; together their deletions would leave nothing.
    (!merged.is_empty()).then(|| merged.join("\n\n"))
}

fn paragraphs(text: &str) -> Vec<&str> {
    text.split("\n\n").collect()
}

/// Some paragraphs of the base, and what stands in their place.
#[derive(PartialEq)]
struct ParagraphChange<'a> {
    start: usize,
    end: usize,
    with: &'a [&'a str],
}

impl ParagraphChange<'_> {
    /// Tells whether two changes are about the same place; two that only meet at an edge are not, unless one
    /// of them inserts there and the order of the two would be a guess.
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
    fn two_additions_at_one_place_are_not_put_in_an_order() {
        check("a", "a\n\nx", "a\n\ny", None);
        check("a\n\nb", "a\n\nx\n\nb", "a\n\nb\n\ny", Some("a\n\nx\n\nb\n\ny"));
        check("a\n\nb", "a\n\nx\n\nb", "a\n\nB", None);
    }

    #[test]
    fn two_deletions_do_not_leave_nothing() {
        check("a\n\ne\n\na", "e\n\na", "a", None);
        check("a\n\nb", "a", "b", None);
        check("a\n\nb\n\nc", "a\n\nb", "b\n\nc", Some("b"));
    }

    #[test]
    fn one_writer_alone_is_right() {
        check("a", "b", "a", Some("b"));
        check("", "b", "", Some("b"));
    }
}
