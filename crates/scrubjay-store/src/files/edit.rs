//! Works out the new content of a file: whole, or by replacing passages. Line endings stay as they are.

use serde::Deserialize;
use thiserror::Error;

use super::NewContent;

/// A passage to replace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TextEdit {
    /// The passage, exactly as it stands in the file.
    pub old_text: String,
    /// The replacement.
    pub new_text: String,
    /// Whether to replace all occurrences; otherwise more than one is an error.
    #[serde(default)]
    pub replace_all: bool,
}

/// Why an edit does not apply.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum EditError {
    /// The passage is empty.
    #[error("edit {0} has an empty old_text")]
    Empty(usize),
    /// The passage does not occur.
    #[error("the old_text of edit {0} is not in the file")]
    NotFound(usize),
    /// It occurs several times, and not all are to be replaced.
    #[error("the old_text of edit {0} is in the file {1} times")]
    Ambiguous(usize, usize),
    /// The file is not text.
    #[error("the file is not UTF-8 text")]
    NotText,
    /// There are no edits.
    #[error("edits is empty")]
    None,
}

impl EditError {
    /// Returns what to do instead.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Empty(_) => "Give the passage to replace, or the whole content.",
            Self::NotFound(_) => "Read the file again, and copy the passage exactly.",
            Self::Ambiguous(..) => "Give more of its surroundings, or set replace_all.",
            Self::NotText => "Give its whole new content with encoding base64.",
            Self::None => "Give at least one edit, or the whole content.",
        }
    }
}

/// Returns the new content.
pub(super) fn apply(old: Option<&[u8]>, body: NewContent) -> Result<Vec<u8>, EditError> {
    match body {
        NewContent::Bytes(bytes) => Ok(bytes),
        NewContent::Text(text) => Ok(match old {
            // A text that contains a CR states its line endings itself.
            Some(old) if has_crlf_only(old) && !text.contains('\r') => {
                text.replace('\n', "\r\n").into_bytes()
            }
            _ => text.into_bytes(),
        }),
        NewContent::Edits(edits) if edits.is_empty() => Err(EditError::None),
        NewContent::Edits(edits) => {
            let old = std::str::from_utf8(old.unwrap_or_default()).map_err(|_| EditError::NotText)?;
            let crlf = has_crlf_only(old.as_bytes());
            let mut text = old.to_owned();
            // Each edit applies to the result of the one before it.
            for (index, edit) in edits.into_iter().enumerate() {
                text = replace(&text, edit, crlf, index)?;
            }
            Ok(text.into_bytes())
        }
    }
}

fn replace(text: &str, edit: TextEdit, crlf: bool, index: usize) -> Result<String, EditError> {
    // Both passages: an old one with other line endings would not be found.
    let ended = |passage: String| match crlf && !passage.contains('\r') {
        true => passage.replace('\n', "\r\n"),
        false => passage,
    };
    let (old, new) = (ended(edit.old_text), ended(edit.new_text));
    if old.is_empty() {
        return Err(EditError::Empty(index));
    }
    match text.matches(&old).count() {
        0 => Err(EditError::NotFound(index)),
        1 => Ok(text.replacen(&old, &new, 1)),
        _ if edit.replace_all => Ok(text.replace(&old, &new)),
        several => Err(EditError::Ambiguous(index, several)),
    }
}

/// Returns whether a content has line endings, and all of them are CR LF.
fn has_crlf_only(bytes: &[u8]) -> bool {
    let mut ends = memchr::memchr_iter(b'\n', bytes).peekable();
    ends.peek().is_some() && ends.all(|end| end > 0 && bytes[end - 1] == b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(old: &str, new: &str, replace_all: bool) -> TextEdit {
        TextEdit { old_text: old.to_owned(), new_text: new.to_owned(), replace_all }
    }

    #[test]
    fn passages_are_replaced_one_after_the_other() {
        let edits = vec![edit("a", "b", false), edit("b", "c", true)];
        assert_eq!(apply(Some(b"a b\n"), NewContent::Edits(edits)).unwrap(), b"c c\n");
        let check =
            |edits, expected| assert_eq!(apply(Some(b"x x"), NewContent::Edits(edits)), Err(expected));
        check(vec![edit("x", "y", false)], EditError::Ambiguous(0, 2));
        check(vec![edit("x x", "y", false), edit("x", "z", false)], EditError::NotFound(1));
        check(vec![edit("", "y", false)], EditError::Empty(0));
        check(vec![], EditError::None);
        assert_eq!(
            apply(Some(&[255]), NewContent::Edits(vec![edit("x", "y", false)])),
            Err(EditError::NotText)
        );
    }

    #[test]
    fn line_endings_are_kept() {
        let text = |old: &[u8], new: &str| apply(Some(old), NewContent::Text(new.to_owned())).unwrap();
        assert_eq!(text(b"a\r\nb\r\n", "a\nc\n"), b"a\r\nc\r\n");
        assert_eq!(text(b"a\r\nb\n", "a\nc\n"), b"a\nc\n", "mixed endings are the agent's to choose");
        assert_eq!(text(b"a\r\n", "a\r\nb\n"), b"a\r\nb\n");
        assert_eq!(text(b"", "a\n"), b"a\n");
        let edited =
            apply(Some(b"a\r\nb\r\nc\r\n"), NewContent::Edits(vec![edit("a\nb", "x\ny", false)])).unwrap();
        assert_eq!(edited, b"x\r\ny\r\nc\r\n");
    }
}
