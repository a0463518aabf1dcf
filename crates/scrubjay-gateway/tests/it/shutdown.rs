//! Shutting down takes limited time for any number of sessions: a tape that is not sealed in time is complete, and is
//! sealed at the next start.

use std::time::Duration;

use super::rig::{Client, Rig};

const SESSIONS: usize = 3;

#[tokio::test]
async fn tapes_not_sealed_in_time_are_complete_and_sealed_at_the_next_start() {
    let rig = Rig::new(&[], Vec::new());
    for _ in 0..SESSIONS {
        Client::legacy(&rig.gateway).await;
    }
    rig.gateway.shut_down_sealing("there is no time", Duration::ZERO);
    let ends = || String::from_utf8_lossy(&rig.payloads("client")).matches("there is no time").count();
    assert_eq!(ends(), SESSIONS);
    let sealed = rig.home().seal_abandoned().expect("the tapes can be listed");
    assert_eq!(sealed.iter().filter(|outcome| outcome.is_ok()).count(), SESSIONS);
    assert_eq!(ends(), SESSIONS);
    assert!(rig.home().seal_abandoned().expect("the tapes can be listed").is_empty());
}
