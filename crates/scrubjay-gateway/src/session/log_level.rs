//! The levels of log messages, and which of two is the higher.

/// The level that lets every log message pass.
pub(crate) const LEAST_LOG_LEVEL: &str = "debug";

/// The levels of log messages, the least first.
pub(super) const LOG_LEVELS: [&str; 8] =
    [LEAST_LOG_LEVEL, "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Returns a level of log messages by its name; `None` for what is no level.
pub(crate) fn log_level(name: &str) -> Option<&'static str> {
    LOG_LEVELS.into_iter().find(|level| *level == name)
}
