//! Which entries the notes on a tape name as undelivered: from its footer, or from the notes if it has none.

use std::io;

use scrubjay_core::delivery::UndeliveredSum;
use scrubjay_core::entry::{EntryKind, Undelivered};

use super::reader::Tape;

impl Tape {
    /// Returns which entries its own notes name as undelivered. [`Home::undelivered`] includes notes on later tapes.
    ///
    /// [`Home::undelivered`]: crate::home::Home::undelivered
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn undelivered(&self) -> io::Result<UndeliveredSum> {
        match self.footer().map(|footer| &footer.metadata.undelivered) {
            Some(sum) if sum.is_whole() => Ok(sum.clone()),
            _ => self.add_up_undelivered(),
        }
    }

    /// Returns the same, including entries of other tapes.
    pub(crate) fn noted_of_others(&self) -> io::Result<UndeliveredSum> {
        match self.footer().map(|footer| &footer.metadata.undelivered) {
            Some(sum) if sum.is_whole_of_others() => Ok(sum.clone()),
            _ => self.add_up_undelivered(),
        }
    }

    fn add_up_undelivered(&self) -> io::Result<UndeliveredSum> {
        let mut sum = UndeliveredSum::default();
        let mut entries = self.entries()?;
        while let Some((_, entry)) = entries.next()? {
            if entry.kind == EntryKind::Note
                && let Some(note) = Undelivered::from_note(entry.payload)
            {
                sum.add_whole(&note);
            }
        }
        Ok(sum)
    }
}
