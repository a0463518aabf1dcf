//! `recorder`: whether, where and when recordings are written. `selection` has which messages are kept, `privacy` what is
//! removed from them, and `rules` what is done to messages on their way.

use std::path::PathBuf;
use std::time::Duration;

use scrubjay_core::rules::Rules;
use scrubjay_core::selection::{Capture, Filters, SelectionStrategy};
use scrubjay_gateway::relay::Durability;
use scrubjay_tape::format::header::Compression;
use scrubjay_tape::recording::Policy;

use super::limits::ANY;
use super::privacy::Privacy;
use super::selection::SamplingSection;
use crate::loaded::Loaded;
use crate::section::section;
use crate::setting::{Count, Size, Span, choice};

section! {
    /// `recorder`.
    struct Recorder {
        enabled: bool = "true";
        capture: Capture;
        filters: Filters;
        sampling: SamplingSection;
        strategy: SelectionStrategy = "full";
        storage: StorageSection;
        privacy: Privacy;
        rules: Rules = "[]";
        performance: Performance;
    }
}

section! {
    /// `recorder.storage`: where and how recordings are kept. `path`, `max_tape_size` and `max_tape_duration` are other
    /// names of `data` and of two keys of `limits`, because the recorder's specification has them here; checked layers have
    /// the other names only.
    #[expect(dead_code, reason = "the keys with two names are read under the other one")]
    struct StorageSection {
        backend: Option<StorageBackend>;
        path: Option<PathBuf>;
        max_tape_size: Option<Size<1024, ANY>>;
        max_tape_duration: Option<Span<1000>>;
        compression: Compression = "zstd";
        retention: Option<Span<1000>>;
    }
}

section! {
    /// `recorder.performance`: when recordings are written.
    struct Performance {
        buffer_size: Count<1, 1_000_000> = "1000";
        flush_interval: Span<1> = "5s";
        async_storage: bool = "false";
    }
}

// The kind of database that holds the ledger.
choice!(enum StorageBackend: "sqlite" = Sqlite, "postgres" = Postgres);
choice!(Compression: "zstd" = Zstd, "none" = None);

impl Loaded {
    /// Returns what is recorded, and when it is written.
    ///
    /// # Errors
    /// Two settings contradict each other.
    pub fn policy(&self) -> anyhow::Result<Policy> {
        self.storage()?;
        let recorder = &self.settings.recorder;
        let performance = &recorder.performance;
        if performance.async_storage && self.settings.durability == Durability::Power {
            let message =
                "passes messages on before they are written, and cannot be combined with durability: power";
            return Err(self.wrong("recorder.performance.async_storage", message).into());
        }
        Ok(Policy {
            enabled: recorder.enabled,
            selection: recorder.selection(),
            buffer_max: performance.async_storage.then_some(performance.buffer_size),
            flush_interval: performance.flush_interval,
            compression: recorder.storage.compression,
        })
    }

    /// Returns how long tapes are kept after their end; `None` is for ever.
    pub fn retention(&self) -> Option<Duration> {
        self.settings.recorder.storage.retention
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::ConfigError;
    use crate::tests::{check_problems, loaded};

    #[test]
    fn the_section_is_read() {
        let usual = loaded("").policy().unwrap();
        assert!(usual.enabled && usual.buffer_max.is_none());
        assert_eq!(usual.compression, Compression::Zstd);
        assert_eq!(loaded("").retention(), None);
        let text =
            "recorder: { enabled: false, storage: { backend: sqlite, compression: none, retention: 30d,
            max_tape_size: 5MB, max_tape_duration: 2h },
            performance: { buffer_size: 7, flush_interval: 50ms, async_storage: true } }";
        let given = loaded(text);
        let policy = given.policy().unwrap();
        assert!(!policy.enabled);
        assert_eq!((policy.buffer_max, policy.compression), (Some(7), Compression::None));
        assert_eq!(policy.flush_interval, Duration::from_millis(50));
        assert_eq!(given.retention(), Some(Duration::from_secs(30 * 86_400)));
        assert_eq!(given.limits().tape_bytes_max, 5_000_000);
        assert_eq!(given.limits().tape_duration_max, Duration::from_secs(7200));
        given.storage().unwrap();
    }

    #[test]
    fn contradicting_settings_are_reported() {
        let problem = |text: &str| {
            let error: ConfigError = loaded(text).policy().unwrap_err().downcast().unwrap();
            error.problems[0].to_string()
        };
        let both = "durability: power\nrecorder:\n  performance: { async_storage: true }\n";
        assert!(
            problem(both).contains(":3: recorder.performance.async_storage passes messages on"),
            "{}",
            problem(both)
        );
        let other = "storage: postgres://a/b\nrecorder: { storage: { backend: sqlite } }";
        assert!(
            problem(other).ends_with(
                ":2: recorder.storage.backend says sqlite, but storage names a PostgreSQL database"
            )
        );
        assert!(problem("recorder: { storage: { backend: postgres } }").contains("says postgres"));
    }

    #[test]
    fn a_key_given_under_both_its_names_is_reported() {
        check_problems(
            "limits: { max_tape_size: 1MB }\ndata: a\nrecorder:\n  storage:\n    max_tape_size: 2MB\n    path: b\n",
            &[
                ":6: recorder.storage.path is another name of data, which is given too: keep one",
                ":5: recorder.storage.max_tape_size is another name of limits.max_tape_size, which is given too: keep one",
            ],
        );
    }
}
