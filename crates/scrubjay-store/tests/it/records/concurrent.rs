//! Many writers at once: numbers without gaps, no update lost, no error.

use std::sync::Arc;

use scrubjay_store::ledger::records::{
    self, OnConflict, RecordChanges, RecordId, UpdateOutcome, activation, collection, history,
};
use scrubjay_store::ledger::{CommitDurability, Ledger};

use super::{new, scope};
use crate::database::{Database, on_both};

on_both![writers_lose_no_update];

const WRITERS: usize = 8;
const ROUNDS: usize = 12;

/// Each writer opens the ledger itself, as a process does; all append lines to R001 and create records.
async fn writers_lose_no_update(database: Database) {
    let first = database.open().await;
    let mut write = first.write(CommitDurability::Power).await.unwrap();
    let mut own = scope(&mut write, "first").await;
    records::create(&mut write, &mut own, new(None, "shared", "")).await.unwrap();
    write.commit().await.unwrap();
    let storage = Arc::new(database.storage.clone());
    let writers: Vec<_> = (0..WRITERS).map(|n| tokio::spawn(work(Arc::clone(&storage), n))).collect();
    let mut created = vec![];
    for writer in writers {
        created.extend(writer.await.unwrap());
    }
    created.sort_unstable();
    assert_eq!(created, (2..2 + (WRITERS * ROUNDS) as i64).collect::<Vec<_>>(), "no gap, no number twice");

    let mut read = first.read().await.unwrap();
    let collection = collection::open(&mut read, "birds").await.unwrap();
    let shared = records::full(&mut read, &collection, RecordId(1), None).await.unwrap();
    let mut lines: Vec<_> = shared.content.body.lines().map(str::to_owned).collect();
    lines.sort();
    let mut expected: Vec<_> =
        (0..WRITERS).flat_map(|n| (0..ROUNDS).map(move |i| format!("{n}/{i}"))).collect();
    expected.sort();
    assert_eq!(lines, expected, "no update is lost");
    let versions = history::versions(&mut read, &collection, RecordId(1), 0, i64::MAX, 1000).await.unwrap();
    assert_eq!(versions.len(), 1 + WRITERS * ROUNDS);
    assert!(versions.windows(2).all(|two| two[0].tick > two[1].tick), "ticks follow the order of writes");
}

async fn work(storage: Arc<scrubjay_store::ledger::Storage>, n: usize) -> Vec<i64> {
    let ledger = Ledger::open(&storage, crate::database::redactor()).await.unwrap();
    let key = format!("writer {n}");
    let mut created = vec![];
    for i in 0..ROUNDS {
        append(&ledger, &key, &format!("{n}/{i}")).await;
        let mut write = ledger.write(CommitDurability::Process).await.unwrap();
        let mut own = scope(&mut write, &key).await;
        let record = records::create(&mut write, &mut own, new(Some(1), "child", "")).await.unwrap();
        write.commit().await.unwrap();
        created.push(record.now.id.0);
    }
    created
}

/// Reads, changes and writes in three mutations, so that others come in between; begins again if one did.
async fn append(ledger: &Ledger, key: &str, line: &str) {
    for _ in 0..10_000 {
        let mut write = ledger.write(CommitDurability::Process).await.unwrap();
        let own = scope(&mut write, key).await;
        activation::activate(&mut write, &own, RecordId(1), true).await.unwrap();
        let seen = records::full(&mut write, &own.collection, RecordId(1), None).await.unwrap();
        write.commit().await.unwrap();
        tokio::task::yield_now().await;

        let body = format!("{}{line}\n", seen.content.body);
        let mut write = ledger.write(CommitDurability::Process).await.unwrap();
        let mut own = scope(&mut write, key).await;
        let changes = RecordChanges { body: Some(body), ..RecordChanges::default() };
        let updated =
            records::update(&mut write, &mut own, RecordId(1), changes, OnConflict::Refuse).await.unwrap();
        write.commit().await.unwrap();
        if updated.outcome == UpdateOutcome::Written {
            return;
        }
    }
    panic!("{line} never had its turn");
}
