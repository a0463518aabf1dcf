//! The length that a message may have (`limits.max_message_size`), and the one comparison with it.
//!
//! All code that reads messages asks [`MessageLimit::is_exceeded_by`], so a search for it finds every place that enforces
//! the limit. Only rules, which may not make a message longer than that, count down from the number itself.

use std::fmt;

/// The length of the longest message, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimit(usize);

impl MessageLimit {
    /// The limit, unless the configuration sets another. 16 MiB: the default memory of a process, 128 MiB, is for eight
    /// messages of this length.
    pub const DEFAULT: Self = Self(16 << 20);

    /// Returns how many bytes the longest message has.
    #[must_use]
    pub const fn bytes_max(self) -> usize {
        self.0
    }

    /// Returns whether a message of this length is too long.
    #[must_use]
    pub const fn is_exceeded_by(self, bytes: usize) -> bool {
        bytes > self.0
    }

    /// Returns the limit for a message with this much around it.
    #[must_use]
    pub const fn plus(self, bytes: usize) -> Self {
        Self(self.0.saturating_add(bytes))
    }
}

impl From<usize> for MessageLimit {
    fn from(bytes_max: usize) -> Self {
        Self(bytes_max)
    }
}

impl fmt::Display for MessageLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}
