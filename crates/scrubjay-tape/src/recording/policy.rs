//! What a user may want of a recording besides all of it at once.

use std::time::Duration;

use scrubjay_core::selection::Settings;

use crate::format::header::Compression;

/// What the user wants of a recording besides all of it at once.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Whether anything is recorded at all.
    pub enabled: bool,
    /// Which entries are kept.
    pub selection: Settings,
    /// How many entries may be passed on before they are written; `None` is none.
    pub buffer_max: Option<usize>,
    /// No entry that is to be written waits longer than this.
    pub flush_interval: Duration,
    /// How sealed tapes are packed.
    pub compression: Compression,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            enabled: true,
            selection: Settings::default(),
            buffer_max: None,
            flush_interval: Duration::from_secs(5),
            compression: Compression::default(),
        }
    }
}
