//! Reads conversations and checks the exchanges.

use super::*;
use crate::entry::{Direction, Terminator, Transport};
use crate::reading::EntryReader;
use Direction::{ClientToServer as C, ServerToClient as S};

const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"path":"/a"}}}"#;
const FAILED: &str =
    r#"{"jsonrpc":"2.0","id":1,"result":{"isError":true,"content":[{"type":"text","text":"no file '/a'"}]}}"#;

fn entry(kind: EntryKind, direction: Direction, at: u64, payload: &str) -> Entry<'_> {
    Entry {
        kind,
        direction,
        transport: Transport::Stdio,
        terminator: Terminator::Lf,
        wall_ns: 1000 + at,
        since_start_ns: at,
        processing_ns: 0,
        via: None,
        connection: 0,
        operation: None,
        rule_marks: crate::entry::RuleMarks::default(),
        payload: payload.as_bytes(),
    }
}

fn fold(script: &[(Direction, &str)]) -> Exchanges {
    let (mut reader, mut exchanges) = (EntryReader::default(), Exchanges::default());
    for (number, (direction, line)) in (0..).zip(script) {
        let entry = entry(EntryKind::Message, *direction, number * 10, line);
        let reading = reader.read(&entry);
        exchanges.observe(number, &entry, &reading);
    }
    exchanges
}

#[test]
fn a_call_whose_backend_ended_is_settled_as_failed() {
    let ended = crate::entry::BackendEnded {
        backend: "b".to_owned(),
        connection: 1,
        status: Some(1),
        stderr: vec!["out of memory at 0x1234".to_owned()],
        ..Default::default()
    };
    let note = String::from_utf8(ended.note()).unwrap();
    let leg = |entry, connection| Entry { via: Some("b"), connection, operation: Some(0), ..entry };
    let script = [
        leg(entry(EntryKind::Message, C, 0, CALL), 1),
        entry(EntryKind::Note, S, 10, &note),
        leg(entry(EntryKind::Message, C, 20, CALL), 2),
        leg(entry(EntryKind::Message, S, 30, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), 2),
    ];
    let (mut reader, mut exchanges) = (EntryReader::default(), Exchanges::default());
    for (number, entry) in (0..).zip(&script) {
        let reading = reader.read(entry);
        exchanges.observe(number, entry, &reading);
    }
    assert_eq!(exchanges.waiting().count(), 0);
    let settled: Vec<Exchange> = exchanges.take_settled().into_iter().map(|one| one.exchange).collect();
    let [_, dead, alive] = settled.as_slice() else { panic!("{settled:?}") };
    assert_eq!((dead.entry, dead.answer, dead.failed), (0, Some(1), true));
    assert_eq!(dead.answered_with, Some(ExchangeKind::Note));
    assert_eq!(dead.error_shape.as_deref(), Some("backend b ended: exit status 1"));
    assert_eq!((alive.entry, alive.answer, alive.failed), (2, Some(3), false));
}

#[test]
fn a_request_and_its_answer_are_one_exchange() {
    let mut exchanges = fold(&[
        (C, CALL),
        (S, r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"busy"}}"#),
        (S, FAILED),
        (C, r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#),
        (S, FAILED),
    ]);
    let settled = exchanges.take_settled();
    let [notice, call, alone] = settled.as_slice() else { panic!("{settled:?}") };
    assert_eq!((notice.exchange.place, notice.exchange.what), (1, ExchangeKind::Notification));
    let call = &call.exchange;
    assert_eq!((call.place, call.entry, call.answer, call.took_ns), (0, 0, Some(2), Some(20)));
    assert_eq!((call.method.as_deref(), call.name.as_deref()), (Some("tools/call"), Some("t")));
    assert_eq!((call.failed, call.error_shape.as_deref()), (true, Some("no file '…'")));
    assert_eq!(call.text, "tools/call\nt\n/a\n\ntext\nno file '/a'\n");
    assert_eq!((call.asked_bytes, call.answered_bytes), (CALL.len() as u64, FAILED.len() as u64));
    assert_eq!((alone.exchange.what, alone.exchange.entry), (ExchangeKind::Response, 4));
    let waiting: Vec<u64> = exchanges.waiting().map(|(e, _)| e.entry).collect();
    assert_eq!(waiting, [3]);
    assert_eq!(exchanges.waiting().count(), 0);
}

#[test]
fn an_exchange_that_was_returned_while_waiting_is_flagged() {
    let (mut reader, mut exchanges) = (EntryReader::default(), Exchanges::default());
    let asked = entry(EntryKind::Message, C, 0, CALL);
    exchanges.observe(0, &asked, &reader.read(&asked));
    assert_eq!(exchanges.waiting().count(), 1);
    let answer = entry(EntryKind::Message, S, 5, FAILED);
    exchanges.observe(1, &answer, &reader.read(&answer));
    let settled = exchanges.take_settled();
    assert!(settled.len() == 1 && settled[0].was_given, "{settled:?}");
}

#[test]
fn each_message_of_a_batch_is_an_exchange() {
    let mut exchanges = fold(&[
        (C, r#"[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b"}]"#),
        (S, r#"[{"jsonrpc":"2.0","id":2,"result":{"said":"two"}},{"jsonrpc":"2.0","id":1,"result":{}}]"#),
    ]);
    let settled = exchanges.take_settled();
    let seen: Vec<_> = settled
        .iter()
        .map(|s| (s.exchange.place, s.exchange.method.as_deref(), s.exchange.text.as_str()))
        .collect();
    assert_eq!(seen, [(1, Some("b"), "b\n\ntwo\n"), (0, Some("a"), "a\n\n")]);
}

#[test]
fn different_definitions_have_different_hashes() {
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let answer = |text: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{{"name":"t","description":"{text}"}},{{"name":"u"}}]}}}}"#
        )
    };
    let (one, other) = (answer("one"), answer("other"));
    let mut exchanges = fold(&[(C, list), (S, &one), (C, list), (S, &one), (C, list), (S, &other)]);
    let seen: Vec<_> = exchanges.take_definitions().into_iter().map(|d| (d.tool, d.entry)).collect();
    assert_eq!(seen, [("t".to_owned(), 1), ("u".to_owned(), 1), ("t".to_owned(), 5)]);
}

#[test]
fn every_kind_has_a_name_and_a_number() {
    for (at, (what, name)) in (0..).zip(ExchangeKind::ALL) {
        assert_eq!((what.code(), what.as_str()), (at, name));
        assert_eq!((ExchangeKind::of_code(at), ExchangeKind::parse(name)), (Some(what), Some(what)));
        assert!(ExchangeKind::NAMES.contains(name));
    }
    assert_eq!(ExchangeKind::of_code(12), None);
}

#[test]
fn long_ids_are_paired_and_names_stay_whole() {
    let long = "x".repeat(3000);
    let call = format!(r#"{{"jsonrpc":"2.0","id":"{long}","method":"{long}","params":{{"name":"{long}"}}}}"#);
    let answer = format!(r#"{{"jsonrpc":"2.0","id":"{long}","result":{{}}}}"#);
    let mut exchanges = fold(&[(C, &call), (S, &answer)]);
    let settled = exchanges.take_settled();
    assert_eq!(settled.len(), 1);
    let exchange = &settled[0].exchange;
    assert_eq!((exchange.answer, exchange.method.as_deref()), (Some(1), Some(long.as_str())));

    let ended = crate::entry::BackendEnded { backend: "b".to_owned(), connection: 1, ..Default::default() };
    let note = String::from_utf8(ended.note()).unwrap();
    let asked = Entry { via: Some("b"), connection: 1, ..entry(EntryKind::Message, C, 0, &call) };
    let (mut reader, mut exchanges) = (EntryReader::default(), Exchanges::default());
    for (number, entry) in (0..).zip([asked, entry(EntryKind::Note, S, 10, &note)]) {
        let reading = reader.read(&entry);
        exchanges.observe(number, &entry, &reading);
    }
    assert_eq!(exchanges.waiting().count(), 0, "a call whose backend ended waits for nothing");
}
