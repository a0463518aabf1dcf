//! Which entries of a tape did not reach their receiver: as its footer says, or where it has none as its notes do.

use std::io;

use scrubjay_core::delivery::UndeliveredSum;
use scrubjay_core::entry::{EntryKind, Undelivered};
use scrubjay_core::reading::Reader;

use super::reader::Tape;

impl Tape {
    /// Returns which of its entries are noted as undelivered.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn undelivered(&self) -> io::Result<UndeliveredSum> {
        if let Some(footer) = self.footer()
            && footer.metadata.undelivered.is_whole()
        {
            return Ok(footer.metadata.undelivered.clone());
        }
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

    /// Returns a reader that knows which of its entries are noted as undelivered.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn reader(&self) -> io::Result<Reader> {
        Ok(Reader::knowing(self.undelivered()?))
    }
}
