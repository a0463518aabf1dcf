//! `recorder.enabled`, `storage` and `performance`: whether, where and when recordings are written.

use std::time::Duration;

use scrubjay_gateway::relay::Durability;
use scrubjay_store::ledger::Storage;
use scrubjay_tape::format::header::Compression;
use scrubjay_tape::recording::Policy;

use super::problem::{ConfigError, Problem};
use super::raw::{Given, RawConfig};
use super::resolve::taken;
use super::setting::Choice;

/// What the ledger is kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageBackend {
    Sqlite,
    Postgres,
}

impl Choice for StorageBackend {
    const NAMES: &'static [(&'static str, Self)] = &[("sqlite", Self::Sqlite), ("postgres", Self::Postgres)];
}

impl Choice for Compression {
    const NAMES: &'static [(&'static str, Self)] = &[("zstd", Self::Zstd), ("none", Self::None)];
}

/// Returns what is recorded, and when it is written.
///
/// # Errors
/// What was asked for cannot be had together.
pub(crate) fn policy(raw: &RawConfig) -> Result<Policy, ConfigError> {
    let recorder = &raw.recorder;
    let performance = &recorder.performance;
    let buffer_size = usize::try_from(taken(performance.buffer_size.as_ref()).0).unwrap_or(usize::MAX);
    let is_async = taken(performance.async_storage.as_ref());
    if is_async
        && taken(raw.durability.as_ref()) == Durability::Power
        && let Some(given) = &performance.async_storage
    {
        return Err(problem(
            given,
            "recorder.performance.async_storage",
            "passes messages on before they are written, and cannot stand beside durability: power",
        ));
    }
    Ok(Policy {
        enabled: taken(recorder.enabled.as_ref()),
        selection: recorder.selection(),
        buffer_max: is_async.then_some(buffer_size),
        flush_interval: taken(performance.flush_interval.as_ref()).0,
        compression: taken(recorder.storage.compression.as_ref()),
    })
}

/// Returns how long tapes are kept after their end; `None` is for ever.
pub(crate) fn retention(raw: &RawConfig) -> Option<Duration> {
    raw.recorder.storage.retention.as_ref().map(|given| given.value.0)
}

/// Checks that the ledger is what `recorder.storage.backend` says it is.
pub(crate) fn check_backend(raw: &RawConfig, storage: &Storage) -> Result<(), ConfigError> {
    let Some(given) = &raw.recorder.storage.backend else { return Ok(()) };
    let key = "recorder.storage.backend";
    match (given.value, storage) {
        (StorageBackend::Sqlite, Storage::File(_)) | (StorageBackend::Postgres, Storage::Postgres(_)) => {
            Ok(())
        }
        (StorageBackend::Sqlite, _) => {
            Err(problem(given, key, "says sqlite, but storage names a PostgreSQL database"))
        }
        (StorageBackend::Postgres, _) => Err(problem(
            given,
            key,
            "says postgres, but storage names none: set it to an address like postgres://user@host/name",
        )),
    }
}

fn problem<T>(given: &Given<T>, key: &str, message: &str) -> ConfigError {
    ConfigError { problems: vec![Problem::new(&given.origin, key, message)] }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{loaded, problems};
    use super::*;

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
        assert_eq!(given.limits.tape_bytes_max, 5_000_000);
        assert_eq!(given.limits.tape_duration_max, Duration::from_secs(7200));
        given.storage().unwrap();
    }

    #[test]
    fn what_cannot_be_had_together_is_told() {
        let told = |text: &str| {
            let error: ConfigError = loaded(text).policy().unwrap_err().downcast().unwrap();
            error.problems[0].to_string()
        };
        let both = "durability: power\nrecorder:\n  performance: { async_storage: true }\n";
        assert!(
            told(both).contains(":3: recorder.performance.async_storage passes messages on"),
            "{}",
            told(both)
        );
        let other = "storage: postgres://a/b\nrecorder: { storage: { backend: sqlite } }";
        assert!(
            told(other).ends_with(
                ":2: recorder.storage.backend says sqlite, but storage names a PostgreSQL database"
            )
        );
        assert!(told("recorder: { storage: { backend: postgres } }").contains("says postgres"));
    }

    #[test]
    fn a_key_with_two_names_has_one_value() {
        let told = problems(
            "limits: { max_tape_size: 1MB }\ndata: a\nrecorder:\n  storage:\n    max_tape_size: 2MB\n    path: b\n",
        );
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0]
                .ends_with(":6: recorder.storage.path is another name of data, which is given too: keep one"),
            "{told:?}"
        );
        assert!(
            told[1].contains(":5: recorder.storage.max_tape_size is another name of limits.max_tape_size"),
            "{told:?}"
        );
    }
}
