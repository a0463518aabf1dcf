//! A ring buffer of the newest lines, with its followers. It is bounded in number and bytes, and never waits.
//!
//! A follower that falls too far behind is dropped: it would only fall further behind.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, mpsc};

use crate::session::lock;

/// How many lines are kept.
pub(super) const LINES_MAX: usize = 1000;
/// How many bytes the lines may have in all.
const BYTES_MAX: usize = 8 << 20;
/// How many followers there may be at once.
const FOLLOWERS_MAX: usize = 16;
/// How many lines a follower may be behind before it is dropped.
const BEHIND_MAX: usize = 256;

/// The newest lines.
#[derive(Default)]
pub(super) struct Ring(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    lines: VecDeque<Arc<str>>,
    bytes: usize,
    followers: Vec<Follower>,
}

struct Follower {
    lines: mpsc::Sender<Arc<str>>,
    dropped: Arc<Notify>,
}

/// The lines from now on.
pub(super) struct FollowedLines {
    pub(super) lines: mpsc::Receiver<Arc<str>>,
    /// Notified when the follower was dropped.
    pub(super) dropped: Arc<Notify>,
}

impl Ring {
    /// Adds a line and sends it to the followers.
    pub(super) fn push(&self, line: &str) {
        let line: Arc<str> = line.into();
        let mut inner = lock(&self.0);
        // `try_send` never waits: one slow follower must not hold up the others or the log.
        inner.followers.retain(|follower| match follower.lines.try_send(line.clone()) {
            Ok(()) => true,
            Err(_) => {
                follower.dropped.notify_one();
                false
            }
        });
        inner.bytes += line.len();
        inner.lines.push_back(line);
        while inner.lines.len() > LINES_MAX || inner.bytes > BYTES_MAX {
            let Some(oldest) = inner.lines.pop_front() else { break };
            inner.bytes -= oldest.len();
        }
    }

    /// Returns the newest lines, the oldest of them first.
    pub(super) fn recent(&self, limit: usize) -> Vec<Arc<str>> {
        let inner = lock(&self.0);
        inner.lines.iter().skip(inner.lines.len().saturating_sub(limit)).cloned().collect()
    }

    /// Begins to follow; `None` if too many do.
    pub(super) fn follow(&self) -> Option<FollowedLines> {
        let mut inner = lock(&self.0);
        inner.followers.retain(|follower| !follower.lines.is_closed());
        if inner.followers.len() >= FOLLOWERS_MAX {
            return None;
        }
        let (sender, lines) = mpsc::channel(BEHIND_MAX);
        let dropped = Arc::new(Notify::new());
        inner.followers.push(Follower { lines: sender, dropped: dropped.clone() });
        Some(FollowedLines { lines, dropped })
    }

    /// Returns how many lines are kept, and how many follow.
    pub(super) fn counts(&self) -> (usize, usize) {
        let inner = lock(&self.0);
        let following = inner.followers.iter().filter(|follower| !follower.lines.is_closed());
        (inner.lines.len(), following.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_lines_are_kept() {
        let ring = Ring::default();
        for i in 0..3 * LINES_MAX {
            ring.push(&i.to_string());
        }
        let all = ring.recent(usize::MAX);
        assert_eq!((all.len(), &*all[0], &**all.last().unwrap()), (LINES_MAX, "2000", "2999"));
        assert_eq!(ring.recent(2).iter().map(|l| &**l).collect::<Vec<_>>(), ["2998", "2999"]);
        let long = "x".repeat(BYTES_MAX / 4);
        for _ in 0..10 {
            ring.push(&long);
        }
        assert_eq!((ring.recent(LINES_MAX).len(), lock(&ring.0).bytes), (4, BYTES_MAX));
        ring.push(&"x".repeat(BYTES_MAX + 1));
        assert_eq!((ring.counts(), lock(&ring.0).bytes), ((0, 0), 0), "too long for it at all");
    }

    #[tokio::test]
    async fn who_is_too_slow_is_let_go_and_nobody_else() {
        let ring = Ring::default();
        let (slow, mut quick) = (ring.follow().unwrap(), ring.follow().unwrap());
        for i in 0..=BEHIND_MAX {
            ring.push(&i.to_string());
            assert_eq!(quick.lines.recv().await.as_deref(), Some(i.to_string().as_str()));
        }
        slow.dropped.notified().await;
        assert_eq!(ring.counts().1, 1);
    }

    #[test]
    fn only_so_many_follow() {
        let ring = Ring::default();
        let all: Vec<_> = (0..FOLLOWERS_MAX).map(|_| ring.follow().unwrap()).collect();
        assert!(ring.follow().is_none());
        drop(all);
        assert!(ring.follow().is_some(), "those who left make room");
    }
}
