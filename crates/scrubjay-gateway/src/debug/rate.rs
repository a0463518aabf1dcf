//! A rate limiter: a token bucket.

use std::sync::Mutex;
use std::time::Instant;

use scrubjay_tape::clock;

use crate::session::lock;

/// How many at once, and how many each second.
#[derive(Clone, Copy)]
pub(super) struct RateLimit {
    burst: f64,
    each_second: f64,
}

/// For all clients together: a page that polls all endpoints each second stays far below it.
pub(super) const REQUESTS: RateLimit = RateLimit { burst: 200.0, each_second: 50.0 };
/// For messages of one follower: it has nothing to send but pongs.
pub(super) const FOLLOWER_MESSAGES: RateLimit = RateLimit { burst: 20.0, each_second: 5.0 };

/// A limit with what is left of it.
pub(super) struct RateLimiter {
    allowed: RateLimit,
    left: Mutex<(f64, Instant)>,
}

impl RateLimiter {
    pub(super) fn new(allowed: RateLimit) -> Self {
        Self { allowed, left: Mutex::new((allowed.burst, clock::now().instant)) }
    }

    /// Takes one; returns whether one was left.
    pub(super) fn take(&self) -> bool {
        self.take_at(clock::now().instant)
    }

    fn take_at(&self, now: Instant) -> bool {
        let mut left = lock(&self.left);
        let since = now.saturating_duration_since(left.1).as_secs_f64();
        // Filled when it is used: no task has to run for that.
        let filled = (left.0 + since * self.allowed.each_second).min(self.allowed.burst);
        *left = (if filled < 1.0 { filled } else { filled - 1.0 }, now);
        filled >= 1.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_runs_dry_and_fills_again() {
        let rate = RateLimiter::new(RateLimit { burst: 3.0, each_second: 2.0 });
        let start = lock(&rate.left).1;
        assert_eq!((0..5).filter(|_| rate.take_at(start)).count(), 3);
        assert!(!rate.take_at(start + Duration::from_millis(400)));
        assert!(rate.take_at(start + Duration::from_millis(500)));
        let later = start + Duration::from_secs(3600);
        assert_eq!((0..9).filter(|_| rate.take_at(later)).count(), 3, "no more than at once");
    }
}
