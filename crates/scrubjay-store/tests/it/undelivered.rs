//! A search marks messages that were recorded and not delivered.

use scrubjay_core::entry::WhyUndelivered;
use scrubjay_store::index::Index;
use scrubjay_store::ledger::Storage;

use crate::fixture::{end, home, recording, say, scratch};

/// The messages are on many tapes, and the notes about them on the last one.
#[tokio::test]
async fn a_search_marks_undelivered_messages() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, 1500);
    let call =
        |n: u32| format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"tools/call","params":{{"name":"t"}}}}"#);
    let numbers: Vec<u64> = (0..40).map(|n| say(&mut recording, &[&call(n)]).unwrap()).collect();
    for number in &numbers[3..] {
        recording.mark_undelivered(*number..number + 1, WhyUndelivered::ServerLeft);
    }
    recording.finish(&end()).unwrap();
    home.seal_abandoned().unwrap();
    assert!(home.list().unwrap().len() > 3);
    let index = Index::open(&home, &Storage::File(home.ledger())).await.unwrap();
    index.catch_up(|_| ()).await.unwrap();
    let query = scrubjay_core::query::parse("tool:t limit:100", 0, &jiff::tz::TimeZone::UTC).unwrap();
    let hits = index.search(&query).await.unwrap().hits;
    let marked = hits.iter().filter(|hit| hit.undelivered.as_deref() == Some("server left")).count();
    assert_eq!((hits.len(), marked), (40, 37));
}
