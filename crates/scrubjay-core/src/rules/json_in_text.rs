//! String arguments that contain JSON. The official Python SDK takes such a string for the list or object in it if the
//! tool's parameter is one, so rules are applied to the content as well.

use std::borrow::Cow;

use super::RuleChange;
use super::document::Document;
use crate::json::edit;
use crate::json::strict::{JsonProblem, VALUES_MAX};
use crate::json::tree::{NodeKind, Tree};

/// Returns a message with its string arguments that contain JSON unpacked; `None` if there are none.
///
/// # Errors
/// The JSON in an argument is too large or nests too deeply.
pub(super) fn unpack(document: &Document<'_>) -> Result<Option<Document<'static>>, JsonProblem> {
    let mut edits = Vec::new();
    for argument in arguments(document).filter(|argument| may_hold_json(document, *argument)) {
        let text = document.inside(argument).text;
        if !matches!(text.trim_ascii_start().first(), Some(b'[' | b'{')) {
            continue;
        }
        match Tree::parse_loosely(&text, VALUES_MAX) {
            Ok(_) => edits.push((document.tree.nodes[argument].range.clone(), text)),
            // No reader takes it for JSON, so it is a string for all of them.
            Err(JsonProblem::NotJson) => {}
            Err(flaw) => return Err(flaw),
        }
    }
    if edits.is_empty() {
        return Ok(None);
    }
    let edits = edits.iter().map(|(range, with)| (range.clone(), &**with));
    let text = edit::apply(&document.text, edits);
    // All unpacked arguments together must stay within the limits, too.
    let tree = Tree::parse_loosely(&text, VALUES_MAX)?;
    Ok(Some(Document::of_tree(Cow::Owned(text), tree)))
}

/// Tells whether one of these changes would still change something inside a string argument.
pub(super) fn reach_into_text(changes: &[RuleChange], changed: &Document<'_>) -> bool {
    let changes_it = |unpacked: &Document<'_>| {
        changes.iter().any(|change| !matches!(change.apply(unpacked, usize::MAX), Ok(None)))
    };
    changed.unpacked().is_ok_and(|unpacked| unpacked.is_some_and(changes_it))
}

fn arguments<'d>(document: &'d Document<'_>) -> impl Iterator<Item = usize> + 'd {
    let params = document.member(0, b"params");
    let arguments = params.and_then(|params| document.member(params, b"arguments"));
    let arguments = arguments.filter(|arguments| document.kind(*arguments) == NodeKind::Object);
    arguments.into_iter().flat_map(|arguments| document.tree.children(arguments))
}

/// Tells from its first byte whether a value may be a string that contains JSON. Most are not, and this check is cheap;
/// a space or an escape may precede the bracket.
fn may_hold_json(document: &Document<'_>, node: usize) -> bool {
    document.kind(node) == NodeKind::String && matches!(document.raw(node)[1], b'[' | b'{' | b' ' | b'\\')
}
