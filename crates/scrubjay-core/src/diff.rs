//! What changed between two texts: how many lines, and which, as a unified diff.
//!
//! A comparison that takes too long gives a coarser answer, never a wrong one.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

/// How long a comparison looks for the smallest difference.
const SEARCH_MAX: Duration = Duration::from_millis(250);
/// How many unchanged lines stand around a change.
const CONTEXT_LINES: usize = 3;

/// How many lines came and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCount {
    /// New lines.
    pub added: u64,
    /// Lines that are gone.
    pub removed: u64,
}

/// Returns whether a content is shown as text.
#[must_use]
pub fn as_text(bytes: &[u8]) -> Option<&str> {
    // A NUL is valid UTF-8, but no text that people write has one.
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// Returns how many lines a content has; none where it is not text.
#[must_use]
pub fn lines(bytes: &[u8]) -> u64 {
    as_text(bytes).map_or(0, |text| text.lines().count() as u64)
}

/// Counts the lines that differ; what is not text has no lines.
#[must_use]
pub fn count(old: &[u8], new: &[u8]) -> LineCount {
    let (Some(old), Some(new)) = (as_text(old), as_text(new)) else { return LineCount::default() };
    if old.is_empty() || new.is_empty() {
        return LineCount { added: new.lines().count() as u64, removed: old.lines().count() as u64 };
    }
    let mut counted = LineCount::default();
    for change in compare(old, new).iter_all_changes() {
        match change.tag() {
            ChangeTag::Insert => counted.added += 1,
            ChangeTag::Delete => counted.removed += 1,
            ChangeTag::Equal => {}
        }
    }
    counted
}

/// Returns the unified diff of two contents; empty where they are the same.
#[must_use]
pub fn unified(old: &[u8], new: &[u8], old_name: &str, new_name: &str) -> String {
    if old == new {
        return String::new();
    }
    let (Some(old_text), Some(new_text)) = (as_text(old), as_text(new)) else {
        return format!(
            "Binary files {old_name} ({} B) and {new_name} ({} B) differ\n",
            old.len(),
            new.len()
        );
    };
    let diff = compare(old_text, new_text);
    diff.unified_diff().context_radius(CONTEXT_LINES).header(old_name, new_name).to_string()
}

fn compare<'a>(old: &'a str, new: &'a str) -> TextDiff<'a, 'a, str> {
    TextDiff::configure().timeout(SEARCH_MAX).diff_lines(old, new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_came_and_went_are_counted() {
        let check = |old: &str, new: &str, added, removed| {
            assert_eq!(
                count(old.as_bytes(), new.as_bytes()),
                LineCount { added, removed },
                "{old:?} {new:?}"
            );
        };
        check("", "a\nb\n", 2, 0);
        check("a\nb\n", "", 0, 2);
        check("a\nb\nc\n", "a\nB\nc\nd\n", 2, 1);
        check("a", "a\n", 1, 1);
        assert_eq!(count(b"a\0", b"b\0"), LineCount::default());
    }

    #[test]
    fn a_diff_names_both_sides() {
        let diff = unified(b"a\nb\n", b"a\nc\n", "a/x", "b/x");
        assert_eq!(diff, "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
        assert_eq!(unified(b"x", b"x", "a", "b"), "");
        assert!(unified(b"\0", b"x", "a", "b").starts_with("Binary files"));
    }
}
