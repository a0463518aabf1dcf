//! Changes a JSON text in place: every byte outside a change stays.

use std::ops::Range;

use super::tree::Tree;

/// Replaces ranges of a text. They must be in order and may not overlap.
pub(crate) fn apply<'e>(raw: &[u8], edits: impl Iterator<Item = (Range<usize>, &'e [u8])>) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut from = 0;
    for (range, with) in edits {
        out.extend_from_slice(&raw[from..range.start]);
        out.extend_from_slice(with);
        from = range.end;
    }
    out.extend_from_slice(&raw[from..]);
    out
}

/// Returns the ranges to remove for some members or elements of a container: each with one comma, so that the rest
/// stays JSON.
pub(crate) fn take_out(
    tree: &Tree,
    container: usize,
    goes: impl Fn(usize) -> bool,
) -> Vec<(usize, Range<usize>)> {
    let children: Vec<usize> = tree.children(container).collect();
    let (mut kept, mut taken) = (false, Vec::new());
    for (i, child) in children.iter().enumerate() {
        if !goes(*child) {
            kept = true;
            continue;
        }
        let node = &tree.nodes[*child];
        // After a kept sibling the comma before the child goes, otherwise the comma after it; an only child has none.
        let range = match (kept, children.get(i + 1)) {
            (true, _) => tree.nodes[children[i - 1]].range.end..node.range.end,
            (false, Some(next)) => node.start()..tree.nodes[*next].start(),
            (false, None) => node.start()..node.range.end,
        };
        taken.push((*child, range));
    }
    taken
}
