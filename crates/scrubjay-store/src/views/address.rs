//! The URIs of views and contents: resources of the recorder toolset.

use std::fmt::Write as _;

/// The URI of the list of sessions; all others begin with it.
pub const SESSIONS: &str = "scrubjay://sessions";

/// Which of a revision's two contents is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// The content after the revision.
    #[default]
    After,
    /// The content before the revision.
    Before,
}

/// Returns the URI of a view of a session.
#[must_use]
pub fn view(session: &str, view: &str) -> String {
    format!("{SESSIONS}/{}/{view}", encode(session, ""))
}

/// Returns the URI of the content of a revision.
#[must_use]
pub fn content(session: &str, path: &str, revision: i64, side: Side) -> String {
    let side = if side == Side::Before { "&side=before" } else { "" };
    format!("{}/{}?revision={revision}{side}", view(session, "evolution"), encode(path, "/"))
}

/// Percent-encodes a text, except for unreserved characters and those in `plain`.
fn encode(text: &str, plain: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || "-_.~".contains(c) || plain.contains(c) {
            out.push(c);
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written() {
        assert_eq!(view("a b/c", "story"), "scrubjay://sessions/a%20b%2Fc/story");
        assert_eq!(
            content("s", "src/m n?.rs", 7, Side::Before),
            "scrubjay://sessions/s/evolution/src/m%20n%3F.rs?revision=7&side=before"
        );
        assert_eq!(content("s", "ä", 1, Side::After), "scrubjay://sessions/s/evolution/%C3%A4?revision=1");
    }
}
