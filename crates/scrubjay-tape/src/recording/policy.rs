//! The user's settings for what is recorded, and when it is written.

use std::time::Duration;

use scrubjay_core::selection::SelectionSettings;

use crate::format::header::Compression;

/// The user's settings for what is recorded, and when it is written.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Whether anything is recorded at all.
    pub enabled: bool,
    /// Which entries are kept.
    pub selection: SelectionSettings,
    /// How many entries may be forwarded before they are written; `None`: none.
    pub buffer_max: Option<usize>,
    /// The longest that an entry waits to be written.
    pub flush_interval: Duration,
    /// How sealed tapes are compressed.
    pub compression: Compression,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            enabled: true,
            selection: SelectionSettings::default(),
            buffer_max: None,
            flush_interval: Duration::from_secs(5),
            compression: Compression::default(),
        }
    }
}
