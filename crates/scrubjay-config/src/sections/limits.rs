//! `limits`: sizes and durations at which something is refused, or a new tape begins.

use scrubjay_gateway::budget::MemoryLimits;
use scrubjay_gateway::relay;
use scrubjay_tape::recording;

use crate::loaded::Loaded;
use crate::section::section;
use crate::setting::{Size, Span};

const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;
/// The largest size of a key without an upper bound.
pub(crate) const ANY: u64 = u64::MAX;

section! {
    /// `limits`.
    struct Limits {
        max_message_size: Size<1024, GIB, usize> = "16MiB";
        max_tape_size: Size<1024, ANY> = "100MB";
        max_tape_duration: Span<1000> = "1h";
        max_memory: Option<Size<MIB, ANY, usize>>;
        max_session_memory: Option<Size<MIB, ANY, usize>>;
    }
}

impl Loaded {
    /// Returns how a relay behaves: its limits, and what it does when it cannot record.
    pub fn relay(&self) -> relay::Options {
        let limits = &self.settings.limits;
        let (message_max, usual) = (limits.max_message_size, MemoryLimits::default());
        // At least some messages of the largest size fit; with less room, none of them could ever pass.
        let room = |given: Option<usize>, usual: usize, messages: usize| {
            given.unwrap_or(usual).max(message_max.saturating_mul(messages))
        };
        let (process, session) = (MemoryLimits::MESSAGES_MIN, MemoryLimits::SESSION_MESSAGES_MIN);
        relay::Options {
            on_record_failure: self.settings.on_record_failure,
            durability: self.settings.durability,
            message_bytes_max: message_max,
            memory: MemoryLimits {
                process_bytes_max: room(limits.max_memory, usual.process_bytes_max, process),
                session_bytes_max: room(limits.max_session_memory, usual.session_bytes_max, session),
            },
        }
    }

    /// Returns the size and age at which a new tape begins.
    pub fn limits(&self) -> recording::RotationLimits {
        let limits = &self.settings.limits;
        recording::RotationLimits {
            tape_bytes_max: limits.max_tape_size,
            tape_duration_max: limits.max_tape_duration,
        }
    }

    /// Returns a notice for each limit that has no effect, because the limit for messages overrides it.
    pub(crate) fn limit_notices(&self) -> Vec<String> {
        let limits = &self.settings.limits;
        let message_max = limits.max_message_size;
        let mut notices = Vec::new();
        if self.settings.serve.max_body_size.is_some_and(|size| size > message_max) {
            notices.push(
                "serve.max_body_size is larger than limits.max_message_size, which holds for every message: raise that \
                 one instead"
                    .to_owned(),
            );
        }
        for (key, given, times) in [
            ("limits.max_memory", limits.max_memory, MemoryLimits::MESSAGES_MIN),
            ("limits.max_session_memory", limits.max_session_memory, MemoryLimits::SESSION_MESSAGES_MIN),
        ] {
            if given.is_some_and(|size| size < message_max.saturating_mul(times)) {
                notices.push(format!(
                    "{key} is less than {times} times limits.max_message_size, which is used instead: lower that one"
                ));
            }
        }
        notices
    }
}
