//! Messages that real hosts and servers sent, in `tests/parsers/ordinary.jsonl`, are never refused.

use scrubjay_core::entry::Direction;

use super::{POLICIES, say};

#[test]
fn messages_of_real_peers_are_not_refused() {
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/parsers/ordinary.jsonl");
    let mut files = vec![std::path::PathBuf::from(place)];
    // A file with more messages, one a line.
    files.extend(
        std::env::var("SCRUBJAY_ORDINARY")
            .unwrap_or_default()
            .split(':')
            .filter(|f| !f.is_empty())
            .map(Into::into),
    );
    let mut count = 0;
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            count += 1;
            for policy in POLICIES {
                for direction in [Direction::ClientToServer, Direction::ServerToClient] {
                    let judgement = policy.judge().line(direction, line);
                    assert!(!judgement.marks.is_refused(), "{}: {judgement:?}", line.escape_ascii());
                }
            }
        }
    }
    say(&format!("{count} messages of real peers, 0 refused"));
    assert!(count > 100, "{count}");
}
