//! Diffs and merges: a diff turns one text into the other, and a merge does not depend on the order of the writers.

use scrubjay_core::{diff, merge};

/// Checks three texts with 0xFF between them.
pub fn check(data: &[u8]) {
    let mut texts = data.splitn(3, |byte| *byte == 0xff);
    let [base, ours, theirs] = [(); 3].map(|()| texts.next().unwrap_or_default());
    differ(base, ours);
    let [Ok(base), Ok(ours), Ok(theirs)] = [base, ours, theirs].map(std::str::from_utf8) else { return };
    let merged = merge::merge(base, ours, theirs);
    assert_eq!(merged, merge::merge(base, theirs, ours), "the order of the writers does not matter");
    assert_eq!(
        merge::merge(base, base, theirs).as_deref(),
        Some(theirs),
        "a writer that changed nothing has no effect"
    );
    assert_eq!(merge::merge(base, ours, ours).as_deref(), Some(ours), "both wrote the same");
    if let Some(merged) = merged {
        // A merge must not make up text.
        let known: Vec<&str> = [base, ours, theirs].iter().flat_map(|text| text.split("\n\n")).collect();
        assert!(merged.split("\n\n").all(|paragraph| known.contains(&paragraph)), "{merged:?}");
    }
}

fn differ(old: &[u8], new: &[u8]) {
    let count = diff::count(old, new);
    let unified = diff::unified(old, new, "a", "b");
    assert_eq!(unified.is_empty(), old == new);
    let (Some(old), Some(new)) = (diff::as_text(old), diff::as_text(new)) else {
        assert_eq!(count, diff::LineCount::default());
        return;
    };
    let back = diff::count(new.as_bytes(), old.as_bytes());
    if old == new {
        assert_eq!((count.added, count.removed), (0, 0));
    }
    assert_eq!((back.added + count.removed).abs_diff(back.removed + count.added) % 2, 0);
    // A lone carriage return ends a line in a diff too, and a patch cannot say so.
    if old.contains('\r') || new.contains('\r') {
        return;
    }
    if !old.is_empty() && !new.is_empty() {
        let lines = |text: &str| text.split_inclusive('\n').count() as u64;
        assert_eq!(lines(old) + count.added, lines(new) + count.removed, "{old:?} {new:?} {count:?}");
    }
    if old != new {
        assert_eq!(patched(old, &unified).as_deref(), Some(new), "{unified}");
    }
}

/// Applies a unified diff, as `patch` does.
fn patched(old: &str, unified: &str) -> Option<String> {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let (mut out, mut at) = (String::new(), 0);
    let mut lines = unified.split_inclusive('\n').skip(2).peekable();
    while let Some(line) = lines.next() {
        let is_open = lines.peek().is_some_and(|next| next.starts_with("\\ No newline"));
        let content = line.get(1..)?;
        let content = if is_open { content.strip_suffix('\n')? } else { content };
        match line.as_bytes()[0] {
            b'@' => {
                let range = line.split_once('-')?.1.split_once(' ')?.0;
                let (start, count) = range.split_once(',').unwrap_or((range, "1"));
                let (start, count): (usize, usize) = (start.parse().ok()?, count.parse().ok()?);
                let start = if count == 0 { start } else { start - 1 };
                out.extend(old.get(at..start)?.iter().copied());
                at = start;
            }
            b' ' => {
                (*old.get(at)? == content).then_some(())?;
                out.push_str(content);
                at += 1;
            }
            b'-' => {
                (*old.get(at)? == content).then_some(())?;
                at += 1;
            }
            b'+' => out.push_str(content),
            b'\\' => {}
            _ => return None,
        }
    }
    out.extend(old.get(at..)?.iter().copied());
    Some(out)
}
