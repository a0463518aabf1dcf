//! Teaches the router the tasks of earlier conversations. They are read from the newest tapes on a thread, within limits.

use std::sync::{Arc, Weak};
use std::time::Duration;

use scrubjay_gateway::gateway::Gateway;
use scrubjay_router::Lesson;
use scrubjay_tape::home::Home;
use scrubjay_tape::tasks_on_tape::{self, ReadLimits};

/// How much is read at the start. More is not needed, because the newest tapes say the most about the next tasks.
const LIMITS: ReadLimits =
    ReadLimits { tapes: 500, bytes: 64 << 20, time: Duration::from_secs(3), found: 2000 };

/// Reads tapes on a thread, and passes what they teach to the gateway.
pub(super) fn learn_in_background(gateway: &Arc<Gateway>, home: Home) {
    let (gateway, runtime) = (Arc::downgrade(gateway), tokio::runtime::Handle::current());
    let read = move || {
        let lessons = lessons(&home);
        if !lessons.is_empty() {
            runtime.spawn(async move { teach(&gateway, lessons) });
        }
    };
    if let Err(e) = std::thread::Builder::new().name("learn".to_owned()).spawn(read) {
        tracing::warn!(error = %e, "nothing is learned from earlier conversations");
    }
}

fn teach(gateway: &Weak<Gateway>, lessons: Vec<Lesson>) {
    let Some(gateway) = gateway.upgrade() else { return };
    tracing::debug!(tasks = lessons.len(), "learned from earlier conversations");
    gateway.learn(lessons);
}

fn lessons(home: &Home) -> Vec<Lesson> {
    scrubjay_tape::recording::lower_thread_priority();
    let found = match tasks_on_tape::read(home, LIMITS, false) {
        Ok(found) => found,
        Err(e) => {
            tracing::warn!(error = %e, "nothing is learned from earlier conversations");
            return Vec::new();
        }
    };
    let one =
        |(session, task): &(String, scrubjay_core::tasks_on_tape::TaskOnTape)| match task.calls.as_slice() {
            // With several calls it is unknown which words meant which tool.
            [(backend, tool)] => Some(Lesson::new(&task.query, backend, tool, session)),
            _ => None,
        };
    // The oldest first, because the router forgets the lessons that it got first if there are too many.
    found.tasks.iter().rev().filter_map(one).collect()
}
