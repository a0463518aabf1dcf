//! The index agrees with the tapes on both databases, no matter how often it is caught up, and after a rebuild.

use jiff::tz::TimeZone;
use proptest::prelude::*;
use scrubjay_core::analysis::{AnomalyKind, FindingKind, analyse};
use scrubjay_core::entry::{Direction, EntryKind};
use scrubjay_core::query::{SearchQuery, parse};
use scrubjay_store::index::{CaughtUp, Index, SearchResults, WhyBounded};
use scrubjay_store::ledger::Storage;
use scrubjay_tape::format::seal::seal;
use scrubjay_tape::format::writer::Writer;
use scrubjay_tape::home::Home;

use crate::database::{Database, on_both};
use crate::fixture::{Owned, any_entry, begin, home, scratch};

const NOW: u64 = 1_800_000_000_000_000_000;

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn query(text: &str) -> SearchQuery {
    parse(text, NOW, &TimeZone::UTC).unwrap()
}

/// A message; its time is in milliseconds since the tape began.
fn at(ms: u64, direction: Direction, payload: &str) -> Owned {
    Owned {
        direction,
        wall_ns: NOW + ms * 1_000_000,
        since_start_ns: ms * 1_000_000,
        ..Owned::message(payload)
    }
}

fn asked(ms: u64, id: u64, tool: &str, path: &str) -> Owned {
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"path":"{path}","depth":{id}}}}}}}"#
    );
    at(ms, Direction::ClientToServer, &line)
}

fn answered(ms: u64, id: u64, text: &str) -> Owned {
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{text}"}}],"count":{id}}}}}"#
    );
    at(ms, Direction::ServerToClient, &line)
}

fn failed(ms: u64, id: u64, code: i64, message: &str) -> Owned {
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#);
    at(ms, Direction::ServerToClient, &line)
}

fn append(writer: &mut Writer, entries: &[Owned]) {
    writer.append(entries.iter().map(Owned::written)).unwrap();
}

/// Opens the index as it is, and catches up.
async fn current(home: &Home, storage: &Storage) -> Index {
    let index = Index::open(home, storage).await.unwrap();
    index.catch_up(|_| ()).await.unwrap();
    index
}

/// Opens the index as a command does, and searches.
async fn search(home: &Home, storage: &Storage, text: &str) -> SearchResults {
    let index = current(home, storage).await;
    let found = index.search(&query(text)).await.unwrap();
    index.close().await;
    found
}

/// Returns the entries that a query finds.
fn entries(found: &SearchResults) -> Vec<u64> {
    found.hits.iter().map(|hit| hit.entry).collect()
}

fn a_tape() -> Vec<Owned> {
    vec![
        asked(0, 1, "read_file", "/etc/hosts"),
        answered(30, 1, "127.0.0.1 localhost"),
        asked(40, 2, "read_file", "/nope"),
        failed(940, 2, -32000, "connection refused by host"),
        asked(1000, 3, "search", "/src"),
        Owned { kind: EntryKind::Stderr, ..at(1100, Direction::ServerToClient, "Refused to say WHY") },
        answered(3000, 3, "nothing \\\"found\\\" in größe"),
        asked(4000, 4, "search", "/slow"),
    ]
}

async fn every_filter_selects_its_messages(database: Database) {
    let (home, storage) = (home(&database.home), &database.storage);
    let mut writer = begin(&home, 1);
    append(&mut writer, &a_tape());
    seal(writer.path()).unwrap();
    for (text, expected) in [
        ("", vec![7, 5, 4, 2, 0]),
        ("tool:read_file", vec![2, 0]),
        ("tool:read*", vec![2, 0]),
        ("tool:nothing", vec![]),
        ("tool:READ*", vec![]),
        ("-tool:read*", vec![7, 5, 4]),
        ("-tool:search type:request", vec![2, 0]),
        ("method:tools/call error:true", vec![2]),
        ("error:false", vec![7, 5, 4, 0]),
        ("code:-32000", vec![2]),
        ("code:-1", vec![]),
        ("tool:read_file error:true >500ms since:2d \"connection refused\"", vec![2]),
        (">500ms", vec![4, 2]),
        (">500ms <1s", vec![2]),
        ("refused", vec![5, 2]),
        ("\"refused connection\"", vec![]),
        ("refus*", vec![5, 2]),
        ("refused type:stderr", vec![5]),
        ("type:error", vec![2]),
        ("type:response", vec![4, 0]),
        ("type:request", vec![7, 4, 2, 0]),
        ("größe", vec![4]),
        ("\"nothing found\"", vec![4]),
        ("/etc/hosts localhost", vec![0]),
        ("arg.path=/nope", vec![2]),
        ("arg.path~ETC", vec![0]),
        ("arg.depth>2", vec![7, 4]),
        ("arg.depth<2", vec![0]),
        ("arg.nothing", vec![]),
        ("result.count>2", vec![4]),
        ("result.content.*.text~localhost arg.path", vec![0]),
        ("arg.path result.count=1", vec![0]),
        ("sort:took", vec![4, 2, 0, 7, 5]),
        ("sort:-took tool:*", vec![0, 2, 4, 7]),
        ("sort:-time limit:2", vec![0, 2]),
        ("sort:-time limit:2 offset:2", vec![4, 5]),
        ("arg.path offset:1 limit:1", vec![4]),
        ("server:test", vec![7, 5, 4, 2, 0]),
        ("server:other", vec![]),
        ("tape:zzz", vec![]),
    ] {
        assert_eq!(entries(&search(&home, storage, text).await), expected, "{text}");
    }
}

async fn filters_are_combined_and_negated(database: Database) {
    let (home, storage) = (home(&database.home), &database.storage);
    let mut writer = begin(&home, 1);
    append(&mut writer, &a_tape());
    seal(writer.path()).unwrap();
    for (text, expected) in [
        ("tape:latest tool:read_file", vec![2, 0]),
        ("-refused", vec![7, 4, 0]),
        ("-\"connection refused\"", vec![7, 5, 4, 0]),
        ("refused -host", vec![5]),
        ("refus* -\"refused connection\" -why", vec![2]),
        ("-refused -tool:search", vec![0]),
        ("-error:true tool:*", vec![7, 4, 0]),
        ("->500ms type:request", vec![7, 0]),
        ("-type:request", vec![5]),
        ("-name:*", vec![5]),
        ("-method:tools/call", vec![5]),
        ("-arg.path=/nope", vec![7, 5, 4, 0]),
        ("-arg.path=/nope tool:*", vec![7, 4, 0]),
        ("-arg.path=/nope -arg.depth>2 tool:*", vec![0]),
        ("refused -arg.path=/nope", vec![5]),
        ("localhost OR why", vec![5, 0]),
        ("localhost OR größe OR \"connection refused\"", vec![4, 2, 0]),
        ("tool:read_file localhost OR refused", vec![2, 0]),
        ("tool:search OR refused", vec![7, 5, 4, 2]),
        ("(tool:read_file refused) OR type:stderr", vec![5, 2]),
        ("(tool:read_file error:false) OR (tool:search >1s)", vec![4, 0]),
        ("refused -(tool:read_file OR code:7)", vec![5]),
        ("-(tool:read_file OR type:stderr)", vec![7, 4]),
        ("refused OR -tool:*", vec![5, 2]),
        ("arg.path=/nope OR type:stderr", vec![5, 2]),
        ("arg.path=/nope OR localhost", vec![2, 0]),
        ("(arg.depth>2 tool:search) OR result.count=1", vec![7, 4, 0]),
        ("-(tool:search arg.path=/slow) type:request", vec![4, 2, 0]),
        ("tool:* -(arg.path=/nope OR arg.depth>2)", vec![0]),
        ("error.message~REFUSED", vec![2]),
        ("error.code=-32000", vec![2]),
        ("error.code<-32000", vec![]),
        ("-error.message~refused tool:*", vec![7, 4, 0]),
        ("result.content[0].text~localhost", vec![0]),
        ("result.content[1].text", vec![]),
        (">30ms <900.5ms", vec![2, 0]),
        (">30.5ms <900.5ms", vec![2]),
        ("since:yesterday until:today tool:read_file", vec![2, 0]),
        ("until:yesterday", vec![]),
        ("since:2027-01-15 until:2027-01-15 tool:read_file", vec![2, 0]),
        ("rule:*", vec![]),
        ("via:files", vec![]),
    ] {
        assert_eq!(entries(&search(&home, storage, text).await), expected, "{text}");
    }
}

async fn an_answer_has_facets_and_snippets(database: Database) {
    let (home, storage) = (home(&database.home), &database.storage);
    let mut writer = begin(&home, 1);
    append(&mut writer, &a_tape());
    let found = search(&home, storage, "tool:* limit:1").await;
    let facet = |facets: &[scrubjay_store::index::Facet]| -> Vec<(String, u64)> {
        facets.iter().map(|f| (f.value.clone(), f.count)).collect()
    };
    assert_eq!((found.total, found.hits.len()), (4, 1));
    assert_eq!(facet(&found.facets.tools), [("read_file".to_owned(), 2), ("search".to_owned(), 2)]);
    assert_eq!(facet(&found.facets.methods), [("tools/call".to_owned(), 4)]);
    assert_eq!(facet(&found.facets.error_codes), [("-32000".to_owned(), 1)]);
    assert_eq!(facet(&found.facets.days), [("2027-01-15".to_owned(), 4)]);
    assert_eq!(found.facets, search(&home, storage, "arg.path").await.facets);
    let refused = search(&home, storage, "\"connection refused\"").await;
    let hit = &refused.hits[0];
    let (begin, end) = hit.snippet.marks[0];
    assert_eq!(&hit.snippet.text[begin..end], "connection refused", "{hit:?}");
    assert_eq!(
        (hit.answer, hit.error_code, hit.response_time_ns),
        (Some(3), Some(-32000), Some(900_000_000))
    );
    assert_eq!((hit.server.as_str(), hit.name.as_deref()), ("test", Some("read_file")));
}

async fn a_tape_is_followed_until_it_is_removed(database: Database) {
    let (home, storage) = (home(&database.home), &database.storage);
    let all = a_tape();
    let mut writer = begin(&home, 1);
    append(&mut writer, &all[..3]);
    assert_eq!(entries(&search(&home, storage, "tool:*").await), [2, 0]);
    assert_eq!(entries(&search(&home, storage, "refused").await), [0u64; 0]);
    append(&mut writer, &all[3..6]);
    assert_eq!(entries(&search(&home, storage, "refused").await), [5, 2]);
    append(&mut writer, &all[6..]);
    let live = search(&home, storage, "").await;
    let sealed = seal(writer.path()).unwrap();
    assert_eq!(search(&home, storage, "").await, live);
    std::fs::remove_file(sealed).unwrap();
    assert_eq!(search(&home, storage, "").await.total, 0);
    assert_eq!(search(&home, storage, "refused").await.total, 0);
    // The next tape gets the number of the removed one, and none of its text.
    append(&mut begin(&home, 2), &[all[0].clone(), all[1].clone(), all[4].clone()]);
    assert_eq!(search(&home, storage, "refused").await.total, 0);
    assert_eq!(entries(&search(&home, storage, "localhost").await), [0]);
}

async fn both_legs_of_an_operation_are_found_once(database: Database) {
    let (home, storage) = (home(&database.home), &database.storage);
    let leg = |entry: Owned| Owned { via: Some("files".to_owned()), operation: Some(0), ..entry };
    let alone = Owned { operation: None, ..leg(asked(50, 9, "ping", "/")) };
    let all = [
        asked(0, 1, "t", "/"),
        leg(asked(1, 7, "t", "/")),
        leg(answered(2, 7, "x")),
        answered(3, 1, "x"),
        alone,
    ];
    append(&mut begin(&home, 1), &all);
    assert_eq!(entries(&search(&home, storage, "").await), [4, 0]);
    assert_eq!(entries(&search(&home, storage, "via:files").await), [4, 1]);
    assert_eq!(search(&home, storage, "via:files").await.hits[1].answer, Some(2));
    assert_eq!(entries(&search(&home, storage, "via:other").await), [0u64; 0]);
}

/// Checks searches on a tape that is indexed at once, and on one that is caught up with after each entry.
async fn searches(database: &Database, all: &[Owned], checks: &[(&str, Vec<u64>)]) {
    let (home, storage) = (home(&database.home), &database.storage);
    let mut writer = begin(&home, 1);
    let index = Index::open(&home, storage).await.unwrap();
    for entry in all {
        append(&mut writer, std::slice::from_ref(entry));
        index.catch_up(|_| ()).await.unwrap();
    }
    let (rebuilt, _) = Index::rebuild(&home, storage, |_| ()).await.unwrap();
    for (text, expected) in checks {
        let (one, other) =
            (index.search(&query(text)).await.unwrap(), rebuilt.search(&query(text)).await.unwrap());
        assert_eq!((&entries(&one), one == other), (expected, true), "{text}: {one:?} {other:?}");
    }
    rebuilt.close().await;
    index.close().await;
}

async fn messages_only_on_a_backends_leg_are_found_once(database: Database) {
    use scrubjay_core::entry::RuleEffects;
    let leg = |of: u64, entry: Owned| Owned {
        via: Some("files".to_owned()),
        connection: 1,
        operation: Some(of),
        ..entry
    };
    let judged =
        |rules: &str, tags: &str, entry: Owned| Owned { rules: rules.into(), tags: tags.into(), ..entry };
    let changed = |entry: Owned| Owned { effects: RuleEffects::CHANGED, ..entry };
    let task = r#"{"jsonrpc":"2.0","id":1,"method":"agentify/orchestrateTask","params":{"query":"read it"}}"#;
    let sampling = |ms, id| {
        at(
            ms,
            Direction::ServerToClient,
            &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"sampling/createMessage","params":{{}}}}"#),
        )
    };
    let sampled = |ms, id| {
        at(ms, Direction::ClientToServer, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#))
    };
    let all = [
        // A router's call, which is on no other leg.
        at(0, Direction::ClientToServer, task),
        leg(0, judged("note", "seen", asked(1, 7, "read_file", "/etc/hosts"))),
        leg(0, judged("note", "seen", answered(2, 7, "localhost"))),
        answered(3, 1, "done"),
        // A call under its long name, which rules changed on its way.
        asked(10, 2, "files__echo", "foo"),
        leg(4, Owned { kind: EntryKind::Original, ..asked(11, 8, "echo", "foo") }),
        leg(4, changed(judged("calm", "", asked(11, 8, "echo", "quux")))),
        leg(4, judged("", "late", answered(12, 8, "ok"))),
        answered(13, 2, "ok"),
        // Two requests of a backend: the gateway answers one itself, the client the other.
        asked(20, 3, "files__ask", "/"),
        leg(9, asked(21, 9, "ask", "/")),
        leg(9, sampling(22, 1)),
        leg(9, sampled(23, 1)),
        leg(9, sampling(24, 2)),
        sampling(25, 100),
        sampled(26, 100),
        leg(9, sampled(27, 2)),
    ];
    let checks = [
        ("", vec![14, 11, 9, 4, 1, 0]),
        ("tool:read_file", vec![1]),
        ("tool:*echo", vec![4]),
        ("method:sampling/createMessage", vec![14, 11]),
        ("via:files", vec![13, 11, 10, 6, 1]),
        ("via:files OR tool:files__echo", vec![13, 11, 10, 6, 4, 1]),
        ("type:original", vec![4]),
        ("type:original -foo", vec![]),
        ("quux", vec![4]),
        ("rule:calm", vec![4]),
        ("rule:n*", vec![1]),
        ("rule:calm OR rule:note", vec![4, 1]),
        ("tag:late", vec![4]),
        ("tag:seen tool:read_file", vec![1]),
        ("-tag:seen tool:*", vec![9, 4]),
        ("tag:calm", vec![]),
        ("rule:seen", vec![]),
    ];
    searches(&database, &all, &checks).await;
    let (home, storage) = (home(&database.home), &database.storage);
    let found = search(&home, storage, "rule:calm").await;
    let hit = &found.hits[0];
    assert!(hit.intercepted && hit.has_original && hit.via.is_none(), "{hit:?}");
    assert_eq!((&hit.applied_rules, &hit.tags), (&["calm".to_owned()].into(), &["late".to_owned()].into()));
    let index = current(&home, storage).await;
    let calls = index.calls(home.list().unwrap()[0].id).await.unwrap().unwrap();
    let analysis = analyse(&calls, &[]);
    let flow = &analysis.message_flow;
    assert_eq!((flow.client_requests, flow.gateway_requests, flow.server_requests), (3, 1, 2));
    let counted: Vec<(&str, u64)> =
        analysis.performance_profile.iter().map(|p| (p.subject.as_ref(), p.count)).collect();
    assert!(counted.contains(&("tools/call read_file", 1)), "{counted:?}");
    assert!(counted.contains(&("tools/call files__echo", 1)), "{counted:?}");
    assert_eq!(counted.iter().map(|(_, count)| count).sum::<u64>(), 6, "{counted:?}");
    index.close().await;
}

async fn a_restarted_backend_answers_its_own_requests(database: Database) {
    let on = |connection: u32, entry: Owned| Owned { via: Some("files".to_owned()), connection, ..entry };
    let ended = scrubjay_core::entry::BackendEnded {
        backend: "files".to_owned(),
        connection: 1,
        signal: Some(9),
        ..Default::default()
    };
    let note = at(2, Direction::ServerToClient, std::str::from_utf8(&ended.note()).unwrap());
    let all = [
        on(1, asked(0, 1, "crash", "/")),
        Owned { kind: EntryKind::Note, ..note },
        on(2, asked(3, 1, "echo", "/")),
        on(2, answered(4, 1, "hello")),
    ];
    let checks = [
        ("hello", vec![2]),
        ("tool:crash error:true", vec![0]),
        ("tool:echo error:false", vec![2]),
        ("tool:crash result.count", vec![]),
    ];
    searches(&database, &all, &checks).await;
}

#[test]
fn a_file_that_is_not_an_index_is_replaced() {
    let directory = scratch();
    let home = home(&directory);
    let storage = &Storage::File(home.ledger());
    let mut writer = begin(&home, 1);
    append(&mut writer, &a_tape());
    run(async {
        let whole = search(&home, storage, "").await;
        std::fs::write(home.index(), "not a database at all, and long enough to be taken for one").unwrap();
        assert_eq!(search(&home, storage, "").await, whole);
        std::fs::remove_file(home.index()).unwrap();
        assert_eq!(search(&home, storage, "").await, whole);
    });
}

/// Queries that together use every column.
const QUESTIONS: [&str; 13] = [
    "limit:1000",
    "via:* limit:1000",
    "refused",
    "t*",
    "error:true",
    "sort:took limit:1000",
    "type:request type:stderr",
    "arg.path",
    "-refused rule:* OR tag:* limit:1000",
    "type:original limit:1000",
    "-arg.path=a tool:* OR tag:seen limit:1000",
    "-rule:* limit:1000",
    "changed OR note",
];

async fn answers(index: &Index) -> Vec<SearchResults> {
    let mut answers = Vec::new();
    for question in QUESTIONS {
        answers.push(index.search(&query(question)).await.unwrap());
    }
    answers
}

fn any_message() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => (0u64..6, "[a-z]{1,4}").prop_map(|(id, path)| asked(0, id, "tool", &path).payload),
        3 => (0u64..6).prop_map(|id| answered(0, id, "some text").payload),
        2 => (0u64..6).prop_map(|id| failed(0, id, -1, "refused").payload),
        1 => (0u64..6).prop_map(|id| format!(r#"[{{"jsonrpc":"2.0","id":{id},"method":"a"}},{{"jsonrpc":"2.0","id":"x{id}","method":"b"}}]"#).into_bytes()),
        1 => (0u64..6).prop_map(|id| format!(r#"[{{"jsonrpc":"2.0","id":{id},"result":{{}}}},{{"jsonrpc":"2.0","id":"x{id}","result":{{}}}}]"#).into_bytes()),
        1 => Just(br#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t"}]}}"#.to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..60),
    ]
}

#[derive(Clone, Debug)]
enum Act {
    Append(usize, Vec<Owned>),
    Seal(usize),
    Remove(usize),
    CatchUp,
    CatchUpElsewhere,
}

/// An entry of a gateway's tape: both legs, few ids, rules in force, backends that end.
fn any_of_gateway() -> impl Strategy<Value = Owned> {
    let ended =
        scrubjay_core::entry::BackendEnded { backend: "b".to_owned(), connection: 1, ..Default::default() };
    let kind = prop_oneof![
        8 => Just((EntryKind::Message, None)),
        2 => Just((EntryKind::Original, None)),
        1 => Just((EntryKind::Note, Some(ended.note()))),
    ];
    let leg = (any::<bool>(), any::<bool>(), 0u32..3, prop::option::of(0u64..8));
    let judged = (
        0u8..4,
        prop_oneof![3 => Just(""), 1 => Just("note")],
        prop_oneof![3 => Just(""), 1 => Just("seen")],
    );
    (kind, leg, judged, any_message()).prop_map(
        |((kind, note), (up, is_leg, connection, operation), judged, payload)| Owned {
            kind,
            direction: if up { Direction::ClientToServer } else { Direction::ServerToClient },
            via: is_leg.then(|| "b".to_owned()),
            connection,
            operation: operation.filter(|_| is_leg),
            effects: scrubjay_core::entry::RuleEffects::of_bits(judged.0 & 1),
            rules: judged.1.to_owned(),
            tags: judged.2.to_owned(),
            ..Owned::message(note.unwrap_or(payload))
        },
    )
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0usize..3, prop::collection::vec(any_entry(any_message()), 0..6)).prop_map(|(t, e)| Act::Append(t, e)),
        6 => (0usize..3, prop::collection::vec(any_of_gateway(), 0..8)).prop_map(|(t, e)| Act::Append(t, e)),
        1 => (0usize..3).prop_map(Act::Seal),
        1 => (0usize..3).prop_map(Act::Remove),
        4 => Just(Act::CatchUp),
        1 => Just(Act::CatchUpElsewhere),
    ]
}

/// No matter how often the index is caught up in between, it answers like a rebuilt one.
fn check(storage: &Storage, acts: Vec<Act>) {
    let directory = scratch();
    let home = home(&directory);
    let mut writers: [Option<Writer>; 3] = Default::default();
    let mut made = 0;
    run(async {
        let index = Index::open(&home, storage).await.unwrap();
        for act in acts {
            match act {
                Act::Append(tape, entries) => {
                    let writer = writers[tape].get_or_insert_with(|| {
                        made += 1;
                        begin(&home, made)
                    });
                    append(writer, &entries);
                }
                Act::Seal(tape) => {
                    if let Some(writer) = writers[tape].take() {
                        seal(writer.path()).unwrap();
                    }
                }
                Act::Remove(tape) => {
                    if let Some(writer) = writers[tape].take() {
                        std::fs::remove_file(writer.path()).unwrap();
                    }
                }
                Act::CatchUp => drop(index.catch_up(|_| ()).await.unwrap()),
                // Another process, which has none of the tapes open.
                Act::CatchUpElsewhere => current(&home, storage).await.close().await,
            }
        }
        index.catch_up(|_| ()).await.unwrap();
        let step_by_step = answers(&index).await;
        let (rebuilt, _) = Index::rebuild(&home, storage, |_| ()).await.unwrap();
        assert_eq!(answers(&rebuilt).await, step_by_step);
        assert_eq!(rebuilt.catch_up(|_| ()).await.unwrap(), CaughtUp::default());
        // A process that had the old index open continues with the new one.
        assert_eq!(answers(&index).await, step_by_step);
        assert_eq!(index.catch_up(|_| ()).await.unwrap(), CaughtUp::default());
        rebuilt.close().await;
        index.close().await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn caught_up_step_by_step_equals_rebuilt(acts in prop::collection::vec(any_act(), 0..16)) {
        // With a ledger in a file, the index is beside the tapes, so this path does not matter.
        check(&Storage::File(std::path::PathBuf::new()), acts);
    }
}

/// Each data directory has a schema of its own, so one database is enough for all cases.
#[test]
#[ignore = "needs postgres"]
fn caught_up_step_by_step_equals_rebuilt_in_postgres() {
    let database = run(Database::postgres());
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let acts = prop::collection::vec(any_act(), 0..16);
    let outcome = runner.run(&acts, |acts| {
        check(&database.storage, acts);
        Ok(())
    });
    outcome.unwrap();
}

async fn concurrent_searches_get_the_whole_answer(database: Database) {
    let (home, storage) = (home(&database.home), &database.storage);
    let mut writer = begin(&home, 1);
    append(&mut writer, &a_tape());
    let asking: Vec<_> = (0..4)
        .map(|_| {
            let (home, storage) = (home.clone(), storage.clone());
            std::thread::spawn(move || run(search(&home, &storage, "tool:*")))
        })
        .collect();
    for asked in asking {
        let asked = tokio::task::spawn_blocking(|| asked.join().unwrap()).await.unwrap();
        assert_eq!(entries(&asked), [7, 4, 2, 0]);
    }
}

/// Records a session of reads and writes on a tape; a read takes about `read_ms`, and a write fails if its round is
/// down.
fn session(
    home: &Home,
    number: u64,
    rounds: u64,
    read_ms: u64,
    is_down: impl Fn(u64) -> bool,
    described: &str,
) -> String {
    let list = r#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#;
    let tools = format!(
        r#"{{"jsonrpc":"2.0","id":"l","result":{{"tools":[{{"name":"read","description":"reads"}},{{"name":"write","description":"{described}"}}]}}}}"#
    );
    let mut entries = vec![at(0, Direction::ClientToServer, list), at(1, Direction::ServerToClient, &tools)];
    let mut ms = 10;
    for round in 0..rounds {
        entries.push(asked(ms, round * 2, "read", "/a"));
        ms += read_ms + round % 3;
        entries.push(answered(ms, round * 2, "contents"));
        entries.push(asked(ms + 1, round * 2 + 1, "write", "/b"));
        ms += 10 + round % 2;
        entries.push(if is_down(round) {
            failed(ms, round * 2 + 1, -32000, &format!("connect 10.0.0.{round} refused"))
        } else {
            answered(ms, round * 2 + 1, "written")
        });
        ms += 5;
    }
    let mut writer = begin(home, number);
    append(&mut writer, &entries);
    let id = writer.header().id.to_string();
    seal(writer.path()).unwrap();
    id
}

async fn only_differences_from_earlier_tapes_are_anomalies(database: Database) {
    let (home, storage) = (home(&database.home), &database.storage);
    for number in 1..=3 {
        session(&home, number, 40, 20, |_| false, "writes");
    }
    let same = session(&home, 4, 40, 20, |_| false, "writes");
    let odd = session(&home, 5, 40, 220, |round| (10..20).contains(&round), "writes, and sends a copy to me");
    let index = Index::open(&home, storage).await.unwrap();
    index.catch_up(|_| ()).await.unwrap();
    let mut analysed = Vec::new();
    for id in [same, odd] {
        let id = id.parse().unwrap();
        let analysis =
            analyse(&index.calls(id).await.unwrap().unwrap(), &index.earlier_calls(id).await.unwrap());
        analysed.push((analysis.compared_with, analysis.anomalies));
    }
    index.close().await;
    assert_eq!(analysed[0], (3, Vec::new()));
    let named: Vec<_> = analysed[1].1.iter().map(|a| (a.kind, a.subject.as_str())).collect();
    assert_eq!(
        named,
        [
            (AnomalyKind::ChangedTool, "write"),
            (AnomalyKind::NewError, "tools/call write"),
            (AnomalyKind::Slower, "tools/call read"),
        ]
    );
    assert_eq!(analysed[1].1[0].entries, [1]);
    let changed = &analysed[1].1[0].summary;
    assert_eq!(changed, "description: \"writes\" became \"writes, and sends a copy to me\"");
    // Two entries for the list, four for each round, then the answer of the second call: ten rounds from the tenth on.
    assert_eq!(analysed[1].1[1].entries, [45, 49, 53, 57, 61]);
    assert!(analysed[1].1[1].summary.contains("connect <n>.<n>.<n>.<n> refused"), "{:?}", analysed[1].1[1]);
}

/// Tokens are a column and a filter; what analysis finds in a single tape is read from its messages.
async fn token_costs_and_loops_are_found(database: Database) {
    let (home, storage) = (home(&database.home), &database.storage);
    let list = |ms: u64, tools: &str| {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{ms},"result":{{"tools":[{tools}]}}}}"#);
        let ask = format!(r#"{{"jsonrpc":"2.0","id":{ms},"method":"tools/list"}}"#);
        [at(ms, Direction::ClientToServer, &ask), at(ms + 1, Direction::ServerToClient, &line)]
    };
    let call = |ms: u64, tool: &str, failure: Option<&str>, text: &str| {
        let ask = format!(
            r#"{{"jsonrpc":"2.0","id":{ms},"method":"tools/call","params":{{"name":"{tool}","arguments":{{}},"_meta":{{"progressToken":{ms}}}}}}}"#
        );
        let answer =
            failure.map_or_else(|| answered(ms + 1, ms, text), |why| failed(ms + 1, ms, -32000, why));
        // The same answer each time, except for its id.
        let payload =
            String::from_utf8(answer.payload.clone()).unwrap().replace(&format!(r#","count":{ms}"#), "");
        [at(ms, Direction::ClientToServer, &ask), Owned { payload: payload.into_bytes(), ..answer }]
    };
    let mut writer = begin(&home, 1);
    append(&mut writer, &list(10, r#"{"name":"read","description":"reads"},{"name":"write"}"#));
    append(&mut writer, &call(100, "read", None, &"word ".repeat(3000)));
    for round in 0..4 {
        append(&mut writer, &call(200 + round * 10, "search", None, "nothing"));
        append(&mut writer, &call(205 + round * 10, "write", Some("disk is full"), ""));
    }
    append(&mut writer, &list(900, r#"{"name":"read","description":"reads and sends"}"#));
    let id = writer.header().id.to_string().parse().unwrap();
    seal(writer.path()).unwrap();
    let index = Index::open(&home, storage).await.unwrap();
    index.catch_up(|_| ()).await.unwrap();
    let found = index.search(&query("tokens:>2000")).await.unwrap();
    assert_eq!((found.total, found.hits[0].name.as_deref()), (1, Some("read")));
    assert!((2900..3200).contains(&found.hits[0].tokens), "{:?}", found.hits[0]);
    assert_eq!(index.search(&query("tool:* tokens:<2000")).await.unwrap().total, 8);
    assert_eq!(index.search(&query("tool:* -tokens:>2000")).await.unwrap().total, 8);
    assert_eq!(index.search(&query("tool:* (tokens:>2000 OR tool:write)")).await.unwrap().total, 5);
    let sorted = index.search(&query("tool:* sort:tokens limit:1")).await.unwrap();
    assert_eq!(sorted.hits[0].name.as_deref(), Some("read"));
    let analysis = analyse(&index.calls(id).await.unwrap().unwrap(), &index.earlier_calls(id).await.unwrap());
    index.close().await;
    let found: Vec<_> = analysis.findings.iter().map(|f| (f.kind, f.subject.as_str())).collect();
    assert_eq!(
        found,
        [
            (FindingKind::ChangedTool, "read"),
            (FindingKind::VanishedTool, "write"),
            (FindingKind::AlwaysFails, "write"),
            (FindingKind::Loop, "search → write"),
        ]
    );
    assert_eq!(analysis.findings[0].details, ["description: added behind \"reads\" \"and sends\""]);
    let costs: Vec<_> = analysis.context.tools.iter().map(|t| (t.tool.as_str(), t.calls)).collect();
    assert_eq!(costs[0], ("read", 1));
    assert!(costs.contains(&("search", 4)) && costs.contains(&("write", 4)), "{costs:?}");
}

async fn a_live_tape_is_read_from_its_first_new_entry(database: Database) {
    let (home, storage) = (home(&database.home), &database.storage);
    let mut writer = begin(&home, 1);
    let all: Vec<Owned> = (0..100)
        .flat_map(|n| [asked(n * 10, n, "read", "/a"), answered(n * 10 + 5, n, "so it is")])
        .collect();
    let index = Index::open(&home, storage).await.unwrap();
    let mut read = Vec::new();
    // The answer comes with the next catch-up.
    for piece in [&all[..51], &all[51..101], &all[101..103], &all[103..]] {
        append(&mut writer, piece);
        let caught_up = index.catch_up(|_| ()).await.unwrap();
        read.push((caught_up.entries, caught_up.read));
    }
    assert_eq!(read, [(51, 51), (50, 50), (2, 2), (97, 97)]);
    // The tape is sealed meanwhile: the rest is read from the sealed file.
    append(&mut writer, &[asked(2000, 1000, "last", "/b")]);
    seal(writer.path()).unwrap();
    let caught_up = index.catch_up(|_| ()).await.unwrap();
    assert_eq!((caught_up.tapes, caught_up.entries, caught_up.read), (1, 1, 1));
    assert_eq!(index.catch_up(|_| ()).await.unwrap(), CaughtUp::default());
    let mine = index.search(&query("limit:1000")).await.unwrap();
    assert_eq!((mine.total, mine.hits[0].name.as_deref()), (101, Some("last")));
    // Another process reads the tape from its beginning, once.
    let mut writer = begin(&home, 2);
    append(&mut writer, &all[..10]);
    index.catch_up(|_| ()).await.unwrap();
    append(&mut writer, &all[10..20]);
    let other = Index::open(&home, storage).await.unwrap();
    let caught_up = other.catch_up(|_| ()).await.unwrap();
    assert_eq!((caught_up.entries, caught_up.read), (10, 20));
    append(&mut writer, &all[20..30]);
    // The state that is open here is older than that, so it is not continued.
    let caught_up = index.catch_up(|_| ()).await.unwrap();
    assert_eq!((caught_up.entries, caught_up.read), (10, 30));
    let (rebuilt, _) = Index::rebuild(&home, storage, |_| ()).await.unwrap();
    let everything = query("limit:1000");
    assert_eq!(rebuilt.search(&everything).await.unwrap(), index.search(&everything).await.unwrap());
    // The index that was open before sees the new rows.
    append(&mut writer, &all[30..32]);
    rebuilt.catch_up(|_| ()).await.unwrap();
    assert_eq!(rebuilt.search(&everything).await.unwrap(), index.search(&everything).await.unwrap());
}

async fn a_frequent_word_is_searched_on_the_newest_tapes_and_the_answer_says_so(database: Database) {
    let (home, storage) = (home(&database.home), &database.storage);
    for tape in 1..=4 {
        let mut writer = begin(&home, tape * 100);
        let all: Vec<Owned> = (0..10)
            .map(|n| {
                let word = if n == 0 { "rare" } else { "plain" };
                asked(tape * 100 + n, n, word, "/everywhere")
            })
            .collect();
        append(&mut writer, &all);
    }
    let index = current(&home, storage).await;
    let exact = index.search(&query("everywhere limit:1000")).await.unwrap();
    assert_eq!((exact.total, exact.total_is_exact, exact.looked_at_only), (40, true, None));
    let index = index.frequent_after(25);
    let found = index.search(&query("everywhere limit:5")).await.unwrap();
    assert_eq!((found.total, found.total_is_exact), (25, false));
    assert_eq!((found.looked_at_only, found.why_bounded), (Some(25), Some(WhyBounded::FrequentWords)));
    // The newest hits are the same, and the facets count what was checked.
    assert_eq!(found.hits, exact.hits[..5]);
    assert_eq!(found.facets.tools.iter().map(|facet| facet.count).sum::<u64>(), 25);
    // For a word that is not frequent, in all tapes or in the wanted ones, the total is exact.
    let rare = index.search(&query("everywhere rare")).await.unwrap();
    assert_eq!((rare.total, rare.total_is_exact), (4, true));
    let tape = &exact.hits[39].tape;
    let one = index.search(&query(&format!("everywhere tape:{tape}"))).await.unwrap();
    assert_eq!((one.total, one.total_is_exact), (10, true));
    // With an earlier end of the time range, older tapes are searched.
    let until = exact.hits[19].wall_ns;
    let mut query = SearchQuery { limit: 1000, ..query("everywhere") };
    query.conditions.to_ns = Some(until);
    let index = index.frequent_after(15);
    let earlier = index.search(&query).await.unwrap();
    assert_eq!(earlier.hits, exact.hits[20..20 + earlier.hits.len()]);
    assert!(!earlier.hits.is_empty() && !earlier.total_is_exact, "{}", earlier.total);
}

async fn two_directories_do_not_disturb_each_other(database: Database) {
    let storage = &database.storage;
    let (one, other) = (scratch(), scratch());
    let (one, other) = (home(&one), home(&other));
    append(&mut begin(&one, 1), &a_tape());
    append(&mut begin(&other, 2), &a_tape()[..2]);
    for _ in 0..2 {
        assert_eq!(search(&one, storage, "").await.total, 5);
        assert_eq!(search(&other, storage, "").await.total, 1);
    }
    Index::rebuild(&other, storage, |_| ()).await.unwrap();
    let index = Index::open(&one, storage).await.unwrap();
    assert_eq!(index.catch_up(|_| ()).await.unwrap(), CaughtUp::default());
}

async fn many_entries_are_caught_up_with_at_once(database: Database) {
    let (home, storage) = (home(&database.home), &database.storage);
    let all: Vec<Owned> =
        (0..600).flat_map(|n| [asked(n * 2, n, "read", "/a"), answered(n * 2 + 1, n, "so it is")]).collect();
    append(&mut begin(&home, 1), &all);
    let index = Index::open(&home, storage).await.unwrap();
    assert_eq!(index.catch_up(|_| ()).await.unwrap().entries, 1200);
    let found = index.search(&query("\"so it is\" tool:read")).await.unwrap();
    assert_eq!((found.total, found.total_is_exact), (600, true));
}

/// Very long and meaningless messages do not stop indexing.
async fn hostile_names_and_texts_are_kept(database: Database) {
    let (home, storage) = (home(&database.home), &database.storage);
    let long: String = (1..2000u64).map(|n| format!("{:x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
    let words: String = (0..200_000).map(|n| format!("{n:x} ")).collect();
    append(
        &mut begin(&home, 1),
        &[
            at(0, Direction::ClientToServer, &format!(r#"{{"jsonrpc":"2.0","method":"{long}"}}"#)),
            at(
                1,
                Direction::ClientToServer,
                r#"{"jsonrpc":"2.0","method":"a\u0000b","params":["yak\u0000zoo"]}"#,
            ),
            at(
                2,
                Direction::ClientToServer,
                &format!(r#"{{"jsonrpc":"2.0","method":"x","params":["{words}"]}}"#),
            ),
            at(
                3,
                Direction::ClientToServer,
                r#"{"jsonrpc":"2.0","method":"y","params":["it's ' \\ \":* & | !"]}"#,
            ),
        ],
    );
    assert_eq!(entries(&search(&home, storage, "").await), [3, 2, 1, 0]);
    let mut by_method = query("");
    by_method.conditions.methods = vec![long];
    let index = current(&home, storage).await;
    assert_eq!(entries(&index.search(&by_method).await.unwrap()), [0]);
    by_method.conditions.methods = vec!["a\0b".to_owned()];
    assert_eq!(entries(&index.search(&by_method).await.unwrap()), [1]);
    assert_eq!(entries(&index.search(&query("yak zoo")).await.unwrap()), [1]);
    assert_eq!(entries(&index.search(&query("1ff")).await.unwrap()), [2]);
    assert_eq!(entries(&index.search(&query("\"it's\"")).await.unwrap()), [3]);
}

on_both!(
    every_filter_selects_its_messages,
    filters_are_combined_and_negated,
    an_answer_has_facets_and_snippets,
    a_tape_is_followed_until_it_is_removed,
    both_legs_of_an_operation_are_found_once,
    messages_only_on_a_backends_leg_are_found_once,
    a_restarted_backend_answers_its_own_requests,
    concurrent_searches_get_the_whole_answer,
    only_differences_from_earlier_tapes_are_anomalies,
    token_costs_and_loops_are_found,
    a_live_tape_is_read_from_its_first_new_entry,
    a_frequent_word_is_searched_on_the_newest_tapes_and_the_answer_says_so,
    two_directories_do_not_disturb_each_other,
    many_entries_are_caught_up_with_at_once,
    hostile_names_and_texts_are_kept,
);
