//! What changed between two texts: how many lines, and which, as a unified diff.
//!
//! The same two texts always give the same answer. What bounds a comparison is their size, not the time it takes: the
//! counts are recorded, and must not depend on how busy the machine was. Past the bound the answer is coarser, never
//! wrong.

use std::convert::Infallible;
use std::fmt::Write;
use std::hash::Hash;
use std::ops::Range;

use similar::algorithms::{Capture, Compact, DiffHook, IdentifyDistinct, Replace, myers};
use similar::udiff::UnifiedHunkHeader;
use similar::{DiffOp, DiffTag, DiffableStr, group_diff_ops};

/// How many unchanged lines a unified diff shows around a change: as many as `diff -u`.
const CONTEXT_LINES: usize = 3;
/// The most steps of one comparison, as [`steps`] estimates them: a quarter to half a second on one core. It is enough
/// for any two texts of 50,000 lines each, and for longer ones that begin and end alike.
const STEPS_MAX: usize = 1 << 25;
/// The least average length of a block in lines: shorter blocks would match by chance.
const BLOCK_LINES_MIN: usize = 4;
/// About how many blocks long texts are cut into: comparing 2^16 takes at most half of the steps.
const BLOCKS: usize = 1 << 16;

/// The number of lines that were added and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCount {
    /// New lines.
    pub added: u64,
    /// Removed lines.
    pub removed: u64,
}

/// Returns a content as text, or nothing if it is binary.
#[must_use]
pub fn as_text(bytes: &[u8]) -> Option<&str> {
    // A NUL is valid UTF-8, but no text that people write has one.
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// Returns how many lines a content has; none if it is binary.
#[must_use]
pub fn lines(bytes: &[u8]) -> u64 {
    as_text(bytes).map_or(0, |text| text.lines().count() as u64)
}

/// Counts the lines that differ; a binary content has none.
#[must_use]
pub fn count(old: &[u8], new: &[u8]) -> LineCount {
    let (Some(old), Some(new)) = (as_text(old), as_text(new)) else { return LineCount::default() };
    if old.is_empty() || new.is_empty() {
        return LineCount { added: new.lines().count() as u64, removed: old.lines().count() as u64 };
    }
    let mut counted = LineCount::default();
    for op in LineDiff::new(old, new).ops.iter().filter(|op| op.tag() != DiffTag::Equal) {
        counted.added += op.new_range().len() as u64;
        counted.removed += op.old_range().len() as u64;
    }
    counted
}

/// Returns the unified diff of two contents; empty if they are the same.
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
    format!("--- {old_name}\n+++ {new_name}\n{}", LineDiff::new(old_text, new_text).hunks())
}

/// Two texts in lines, and what leads from one to the other.
struct LineDiff<'a> {
    old: Vec<&'a str>,
    new: Vec<&'a str>,
    ops: Vec<DiffOp>,
}

impl<'a> LineDiff<'a> {
    fn new(old: &'a str, new: &'a str) -> Self {
        Self::within(STEPS_MAX, old, new)
    }

    fn within(steps_max: usize, old: &'a str, new: &'a str) -> Self {
        let (old, new) = (old.tokenize_lines(), new.tokenize_lines());
        // Trimmed first, so that the bound is on the changed lines and not on the length of the file.
        let prefix = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        let backwards = old[prefix..].iter().rev().zip(new[prefix..].iter().rev());
        let suffix = backwards.take_while(|(old, new)| old == new).count();
        let (old_end, new_end) = (old.len() - suffix, new.len() - suffix);

        let mut found = Capture::new();
        let Ok(()) = found.equal(0, 0, prefix);
        let Ok(()) = compare(&mut found, &old, prefix..old_end, &new, prefix..new_end, steps_max);
        let Ok(()) = found.equal(old_end, new_end, suffix);

        // As `similar` does itself: moves changes to where people expect them, and joins neighbours of one kind.
        // Without it the context of a hunk would end between two pieces of one unchanged range.
        let mut tidied = Compact::new(Replace::new(Capture::new()), &*old, &*new);
        for op in found.ops().iter().filter(|op| op.old_range().len() + op.new_range().len() > 0) {
            let Ok(()) = op.apply_to_hook(&mut tidied);
        }
        let Ok(()) = tidied.finish();
        let ops = tidied.into_inner().into_inner().into_ops();
        Self { old, new, ops }
    }

    /// Renders the changes with the lines around them, as `diff -u` does.
    fn hunks(self) -> String {
        let mut out = String::new();
        for ops in group_diff_ops(self.ops, CONTEXT_LINES) {
            writeln!(out, "{}", UnifiedHunkHeader::new(&ops)).expect("writing to a string cannot fail");
            for change in ops.iter().flat_map(|op| op.iter_changes(&*self.old, &*self.new)) {
                write!(out, "{}{}", change.tag(), change.value()).expect("writing to a string cannot fail");
                if !change.value().ends_with_newline() {
                    out.push_str("\n\\ No newline at end of file\n");
                }
            }
        }
        out
    }
}

/// Reports to `found` what leads from the old lines to the new ones.
///
/// Lines that are too many to be compared one by one are compared in blocks first, and one by one only where blocks
/// differ. Where the steps do not suffice for that either, all lines count as replaced.
fn compare(
    found: &mut Capture,
    old: &[&str],
    old_range: Range<usize>,
    new: &[&str],
    new_range: Range<usize>,
    steps_max: usize,
) -> Result<(), Infallible> {
    let lines = old_range.len() + new_range.len();
    if steps(lines) <= steps_max {
        return compare_items(found, old, old_range, new, new_range);
    }
    let mean = (lines / BLOCKS).max(BLOCK_LINES_MIN) as u64;
    let old_blocks = blocks(&old[old_range.clone()], mean);
    let new_blocks = blocks(&new[new_range.clone()], mean);
    // A line that ends a block can be on every line of the text: then there are about as many blocks as lines.
    if steps(old_blocks.len() + new_blocks.len()) > steps_max {
        return found.replace(old_range.start, old_range.len(), new_range.start, new_range.len());
    }
    let mut differing = Replace::new(Capture::new());
    compare_items(&mut differing, &old_blocks, 0..old_blocks.len(), &new_blocks, 0..new_blocks.len())?;
    let lines_of = |blocks: &[&[&str]]| blocks.iter().map(|block| block.len()).sum::<usize>();
    let (mut old_at, mut new_at, mut steps_left) = (old_range.start, new_range.start, steps_max);
    for op in differing.into_inner().ops() {
        let (old_lines, new_lines) =
            (lines_of(&old_blocks[op.old_range()]), lines_of(&new_blocks[op.new_range()]));
        let cost = steps(old_lines + new_lines);
        if op.tag() == DiffTag::Equal {
            found.equal(old_at, new_at, old_lines)?;
        } else if cost <= steps_left {
            steps_left -= cost;
            compare_items(found, old, old_at..old_at + old_lines, new, new_at..new_at + new_lines)?;
        } else {
            found.replace(old_at, old_lines, new_at, new_lines)?;
        }
        old_at += old_lines;
        new_at += new_lines;
    }
    Ok(())
}

/// Compares items one by one with Myers' algorithm.
fn compare_items<T: Eq + Hash, H: DiffHook>(
    found: &mut H,
    old: &[T],
    old_range: Range<usize>,
    new: &[T],
    new_range: Range<usize>,
) -> Result<(), H::Error> {
    // Numbers in place of texts, because the algorithm compares the same items again and again.
    let items = IdentifyDistinct::<u32>::new(old, old_range, new, new_range);
    myers::diff(found, items.old_lookup(), items.old_range(), items.new_lookup(), items.new_range())
}

/// Estimates the most steps that a comparison of `items` on both sides together takes: `similar` searches for the
/// middle of a change over at most the root of their number, but never less than 256.
fn steps(items: usize) -> usize {
    items.saturating_mul(items.isqrt().max(256))
}

/// Cuts lines into blocks of `mean` lines on average. Only the last line of a block decides that it ends there, so that
/// the blocks after an inserted line are the same as before.
fn blocks<'l, 't>(lines: &'l [&'t str], mean: u64) -> Vec<&'l [&'t str]> {
    // FNV-1a, because it never changes: the standard library's hashes may, and with them the counts.
    let hash = |line: &&str| {
        line.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    };
    lines.split_inclusive(|line| hash(line).is_multiple_of(mean)).collect()
}

#[cfg(test)]
#[path = "../../../tests/random.rs"]
mod random;

#[cfg(test)]
mod tests {
    use super::random::Random;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn added_and_removed_lines_are_counted() {
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
        let open = unified(b"a", b"a\n", "a", "b");
        assert_eq!(open, "--- a\n+++ b\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n");
    }

    /// Makes lines, each with a random number.
    fn scattered(lines: u64, different: usize, seed: u64) -> String {
        let mut random = Random::new(seed);
        (0..lines).map(|_| format!("{}\n", random.below(different))).collect()
    }

    #[test]
    fn texts_beyond_the_step_limit_are_counted() {
        let numbered = |name: &str| (0..200_000).map(|n| format!("{name}{n}\n")).collect::<String>();
        let (old, new) = (numbered("old "), numbered("new "));
        assert_eq!(
            count(old.as_bytes(), new.as_bytes()),
            LineCount { added: 200_000, removed: 200_000 },
            "nothing in common"
        );
        let (old, new) = ("x".repeat(10 << 20), "y".repeat(10 << 20));
        assert_eq!(count(old.as_bytes(), new.as_bytes()), LineCount { added: 1, removed: 1 }, "one line");
        // With few distinct lines, with some, and with mostly distinct ones.
        for different in [2, 50, 1_000_000] {
            let (old, new) = (scattered(60_000, different, 1), scattered(70_000, different, 2));
            let counted = count(old.as_bytes(), new.as_bytes());
            assert_eq!(60_000 + counted.added, 70_000 + counted.removed, "of {different}");
            assert_eq!(count(old.as_bytes(), new.as_bytes()), counted, "of {different}");
        }
    }

    #[test]
    fn few_changes_of_a_long_text_are_found() {
        let old: Vec<String> = (0..300_000).map(|n| format!("line {n}\n")).collect();
        let mut new = old.clone();
        for at in [3, 100_000, 299_990] {
            new[at] = "changed\n".to_owned();
        }
        new.insert(200_000, "inserted\n".to_owned());
        let (old, new) = (old.concat(), new.concat());
        assert_eq!(count(old.as_bytes(), new.as_bytes()), LineCount { added: 4, removed: 3 });
    }

    proptest! {
        #[test]
        fn a_small_diff_is_what_similar_itself_renders(
            old in "([abc\r]{0,2}\n){0,12}[ab]{0,2}",
            new in "([abc\r]{0,2}\n){0,12}[ab]{0,2}",
        ) {
            let expected = similar::TextDiff::from_lines(&old, &new);
            let expected = expected.unified_diff().context_radius(CONTEXT_LINES).header("a", "b").to_string();
            prop_assert_eq!(unified(old.as_bytes(), new.as_bytes(), "a", "b"), expected);
        }

        #[test]
        fn a_coarse_diff_is_still_correct(
            old in proptest::collection::vec(0..40u8, 0..200),
            new in proptest::collection::vec(0..40u8, 0..200),
            steps_max in 0..1usize << 16,
        ) {
            let [old, new] = [old, new].map(|of| of.iter().map(|n| format!("{n}\n")).collect::<String>());
            let diff = LineDiff::within(steps_max, &old, &new);
            let (mut old_at, mut new_at) = (0, 0);
            for op in &diff.ops {
                let (old_range, new_range) = (op.old_range(), op.new_range());
                prop_assert_eq!((old_range.start, new_range.start), (old_at, new_at));
                if op.tag() == DiffTag::Equal {
                    prop_assert_eq!(&diff.old[old_range.clone()], &diff.new[new_range.clone()]);
                }
                (old_at, new_at) = (old_range.end, new_range.end);
            }
            prop_assert_eq!((old_at, new_at), (diff.old.len(), diff.new.len()));
        }
    }
}
