//! A copy of every log line for somebody in this process, with the same care as the lines on standard error.

use std::sync::{Arc, OnceLock};

use scrubjay_core::redact::Redactor;

use super::TakesLines;
use super::hidden::Hidden;
use super::pen::{Format, clean};

type To = Box<dyn Fn(&str) + Send + Sync>;

/// Whoever gets the copies.
pub(super) struct Mirror {
    hidden: Hidden,
    redactor: Arc<Redactor>,
    to: OnceLock<To>,
}

impl Mirror {
    pub(super) fn new(hidden: Hidden, redactor: Arc<Redactor>) -> Self {
        Self { hidden, redactor, to: OnceLock::new() }
    }

    /// Gives lines to somebody; returns whether nobody had them before.
    pub(super) fn begin(&self, to: To) -> bool {
        self.to.set(to).is_ok()
    }

    pub(super) fn is_on(&self) -> bool {
        self.to.get().is_some()
    }
}

impl TakesLines for Mirror {
    fn take(&self, line: &str) {
        if let Some(to) = self.to.get() {
            to(&clean(&self.redactor.redact_text(line), Format::Json, &self.hidden));
        }
    }
}
