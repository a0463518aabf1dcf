//! Passes a copy of every log line to the debug endpoints, redacted like the lines on standard error.

use std::sync::{Arc, OnceLock};

use scrubjay_core::redact::Redactor;

use super::LineSink;
use super::hidden_secrets::HiddenSecrets;
use super::log_writer::{Format, clean};

type LineReceiver = Box<dyn Fn(&str) + Send + Sync>;

/// Passes on copies of log lines once a receiver is set.
pub(super) struct Mirror {
    hidden: HiddenSecrets,
    redactor: Arc<Redactor>,
    to: OnceLock<LineReceiver>,
}

impl Mirror {
    pub(super) fn new(hidden: HiddenSecrets, redactor: Arc<Redactor>) -> Self {
        Self { hidden, redactor, to: OnceLock::new() }
    }

    /// Sets the receiver, unless there is one; returns whether it was set.
    pub(super) fn begin(&self, to: LineReceiver) -> bool {
        self.to.set(to).is_ok()
    }

    pub(super) fn is_on(&self) -> bool {
        self.to.get().is_some()
    }
}

impl LineSink for Mirror {
    fn take(&self, line: &str) {
        if let Some(to) = self.to.get() {
            to(&clean(&self.redactor.redact_text(line), Format::Json, &self.hidden));
        }
    }
}
