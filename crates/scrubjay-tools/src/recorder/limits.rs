//! Limits on the texts of plans and sessions; a longer text is refused with the limit in the message.

use scrubjay_core::units::counted;

use crate::reply::Failure;

/// Refuses a text that is longer than the limit.
pub(super) fn check(what: &str, text: Option<&str>, chars_max: usize) -> Result<(), Failure> {
    let chars = text.map_or(0, |text| text.chars().count());
    if chars <= chars_max {
        return Ok(());
    }
    Err(Failure::new(
        "TOO_LONG",
        format!("{what} has {} and may have at most {chars_max}", counted(chars, "character")),
        "Shorten it. Record the long part with audit_event, or write it to a file with file_op.",
    ))
}
