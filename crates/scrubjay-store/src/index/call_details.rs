//! Reads from the tapes what analysis needs and the index does not store: which calls are identical, and what lists of
//! tools contain. One pass over the analysed tape is enough.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use scrubjay_core::analysis::{Call, TapeCalls, definitions_to_compare};
use scrubjay_core::exchange::{
    Definition, DefinitionHash, ExchangeKind, ToolLists, answer_identity, request_identity,
};
use scrubjay_core::protocol::method;

use super::entry_lookup::{TapeKey, visit_entries};
use scrubjay_tape::home::Home;

/// The longest request for a list of tools that is parsed: real ones contain only a cursor.
const LIST_REQUEST_BYTES_MAX: usize = 4096;

/// Adds to the calls of a tape what their messages contain.
pub(super) async fn of_calls(home: &Home, key: TapeKey, tape: TapeCalls) -> Option<TapeCalls> {
    // Tapes are files, and reading them blocks.
    let home = home.clone();
    tokio::task::spawn_blocking(move || read_call_details(&home, key, tape)).await.ok()
}

fn read_call_details(home: &Home, key: TapeKey, mut tape: TapeCalls) -> TapeCalls {
    let is_list = |call: &Call| call.what == ExchangeKind::Request && &*call.subject == method::TOOLS_LIST;
    // Entry numbers, each with the index of its call. An entry may be a batch of calls, of which the last is taken.
    let mut requests_at: HashMap<u64, usize> = HashMap::new();
    let mut answers_at: HashMap<u64, usize> = HashMap::new();
    for (at, call) in tape.calls.iter().enumerate() {
        if call.what == ExchangeKind::Request && (call.by_client || is_list(call)) {
            requests_at.insert(call.entry, at);
            answers_at.extend(call.answer.map(|answer| (answer, at)));
        }
    }
    // In ascending order, because `visit_entries` reads a tape forwards only.
    let mut entries: Vec<u64> = requests_at.keys().chain(answers_at.keys()).copied().collect();
    entries.sort_unstable();
    entries.dedup();
    let mut requests: HashMap<usize, Vec<u8>> = HashMap::new();
    let (calls, tool_lists) = (&mut tape.calls, &mut tape.tool_lists);
    visit_entries(home, &BTreeMap::from([(key, entries)]), |_, number, entry| {
        if let Some(at) = requests_at.get(&number) {
            calls[*at].asks = request_identity(entry.payload);
            if is_list(&calls[*at]) && entry.payload.len() <= LIST_REQUEST_BYTES_MAX {
                requests.insert(*at, entry.payload.to_vec());
            }
        }
        if let Some(at) = answers_at.get(&number) {
            calls[*at].says = answer_identity(entry.payload);
            if let Some(request) = requests.remove(at).filter(|_| !calls[*at].failed) {
                tool_lists.observe(&request, entry.payload, number, entry.via);
            }
        }
    });
    tape
}

/// Adds to earlier tapes the tool definitions that those of `now` are compared with.
pub(super) async fn of_definitions(
    home: &Home,
    keys: Vec<TapeKey>,
    now: Vec<Definition>,
    past: Vec<TapeCalls>,
) -> Vec<TapeCalls> {
    let home = home.clone();
    tokio::task::spawn_blocking(move || read_definitions(&home, &keys, &now, past)).await.unwrap_or_default()
}

fn read_definitions(
    home: &Home,
    keys: &[TapeKey],
    now: &[Definition],
    mut past: Vec<TapeCalls>,
) -> Vec<TapeCalls> {
    let mut wanted: BTreeMap<TapeKey, Vec<u64>> = BTreeMap::new();
    let mut hashes: BTreeMap<(i64, u64), BTreeSet<DefinitionHash>> = BTreeMap::new();
    for (at, definition) in definitions_to_compare(now, &past) {
        wanted.entry(keys[at].clone()).or_default().push(definition.entry);
        hashes.entry((keys[at].number, definition.entry)).or_default().insert(definition.hash);
    }
    for entries in wanted.values_mut() {
        entries.sort_unstable();
        entries.dedup();
    }
    let mut found: HashMap<i64, ToolLists> = HashMap::new();
    visit_entries(home, &wanted, |key, number, entry| {
        if let Some(hashes) = hashes.get(&(key.number, number)) {
            found.entry(key.number).or_default().observe_definitions(entry.payload, hashes);
        }
    });
    for (tape, key) in past.iter_mut().zip(keys) {
        tape.tool_lists = found.remove(&key.number).unwrap_or_default();
    }
    past
}
