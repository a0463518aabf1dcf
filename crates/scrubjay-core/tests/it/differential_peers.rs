//! Compares rules with real parsers: every reader must read a passed message as the call that was judged.
//!
//! Calls of harmless tools are mutated to smuggle others past three sets of rules. Of everything that passes, real
//! readers (Python's json and the official SDK, Node's JSON and the official SDK, Go's encoding/json, serde) say which
//! calls they find in it. One that was not judged is a failure. Needs `scripts/install-peers` and `SCRUBJAY_PEERS`.
//! `SCRUBJAY_DIFFERENTIAL_CASES` sets the number of cases, `SCRUBJAY_TEST_SEED` repeats a run.

mod attack;
mod ordinary;
mod readers;

use std::collections::BTreeSet;
use std::sync::Arc;

use scrubjay_core::entry::Direction;
use scrubjay_core::glob::Glob;
use scrubjay_core::rules::{
    Condition, Forwarded, JsonPath, Judge, Judgement, Rule, RuleAction, RuleMatch, Rules, ValueCheck,
};

use self::readers::{Call, Reader};
use crate::random::Random;

/// How many cases a run makes by default.
const CASES: u64 = 20_000;
/// How many cases go to a parser at once.
const CHUNK: usize = 500;

/// Three ways to keep calls from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// No tool whose name begins with `delete_`.
    NoDeletes,
    /// No path below `/etc`.
    NoEtc,
    /// Nothing but `echo` below `/tmp`.
    OnlyEcho,
}

const POLICIES: [Policy; 3] = [Policy::NoDeletes, Policy::NoEtc, Policy::OnlyEcho];
const TOOLS: [&str; 4] = ["echo", "read", "delete_all", "delete_file"];

fn path_like(expression: &str) -> Vec<Condition> {
    let path = JsonPath::parse("$.arguments.path").unwrap();
    vec![Condition { path, check: ValueCheck::matches(expression).unwrap() }]
}

fn calls(tool: &str) -> RuleMatch {
    RuleMatch { tools: vec![Glob::parse(tool).unwrap()], ..RuleMatch::default() }
}

fn rule(name: &str, when: RuleMatch, action: RuleAction) -> Rule {
    Rule { name: name.to_owned(), when, action }
}

impl Policy {
    /// Makes a judge whose tags show which call it judged.
    fn judge(self) -> Judge {
        let block = || RuleAction::Block { code: -1, message: "no".to_owned() };
        let tag = |tag: &str| RuleAction::Tag(vec![tag.to_owned()]);
        let etc = || RuleMatch { conditions: path_like("^/etc"), ..calls("*") };
        let mut rules: Vec<Rule> = TOOLS.map(|tool| rule(tool, calls(tool), tag(tool))).into();
        rules.push(rule("etc", etc(), tag("etc")));
        match self {
            Self::NoDeletes => rules.push(rule("no", calls("delete_*"), block())),
            Self::NoEtc => rules.push(rule("no", etc(), block())),
            Self::OnlyEcho => {
                let fine = RuleMatch { conditions: path_like("^/tmp"), ..calls("echo") };
                rules.push(rule("fine", fine, RuleAction::Allow));
                rules.push(rule("no", calls("*"), block()));
            }
        }
        Judge::new(Arc::new(Rules::new(rules)), "server", 1 << 20)
    }

    fn permits(self, call: &Call) -> bool {
        if call.method.as_deref() != Some("tools/call") {
            return true;
        }
        let (name, path) =
            (call.name.as_deref().unwrap_or_default(), call.path.as_deref().unwrap_or_default());
        match self {
            Self::NoDeletes => !name.starts_with("delete_"),
            Self::NoEtc => !path.starts_with("/etc"),
            Self::OnlyEcho => name == "echo" && path.starts_with("/tmp"),
        }
    }
}

/// A line that passed, and the call that was judged.
struct Passed {
    policy: Policy,
    made: Vec<u8>,
    stream: Vec<u8>,
    tags: BTreeSet<String>,
    calls: Vec<Call>,
}

/// Returns what is forwarded, with its line end.
fn onward(judgement: &Judgement, line: &[u8]) -> Option<Vec<u8>> {
    match &judgement.forwarded {
        Forwarded::Unchanged => Some([line, b"\n"].concat()),
        Forwarded::Changed(other) => Some([other.as_slice(), b"\n"].concat()),
        Forwarded::Nothing => None,
    }
}

fn judged(policy: Policy, made: Vec<u8>) -> Option<Passed> {
    let judgement = policy.judge().line(Direction::ClientToServer, &made);
    let stream = onward(&judgement, &made)?;
    let tags = judgement.marks.as_marks().tag_names().into_iter().map(str::to_owned).collect();
    let calls = readers::widest(&stream);
    Some(Passed { policy, made, stream, tags, calls })
}

impl Passed {
    /// Returns the problem with what a reader found, if there is one.
    fn objection(&self, found: &[Call]) -> Option<String> {
        let mut left = self.calls.clone();
        for call in found {
            if !self.policy.permits(call) {
                return Some(format!("{call:?} is not permitted"));
            }
            let Some(at) = left.iter().position(|judged| judged.covers(call)) else {
                return Some(format!("{call:?} was not judged, but {:?}", self.calls));
            };
            left.remove(at);
            let is_call = call.method.as_deref() == Some("tools/call");
            let name = call.name.as_deref().filter(|name| is_call && TOOLS.contains(name));
            let is_etc = is_call && call.path.as_deref().is_some_and(|path| path.starts_with("/etc"));
            if let Some(missing) =
                name.into_iter().chain(is_etc.then_some("etc")).find(|tag| !self.tags.contains(*tag))
            {
                return Some(format!("{call:?} was not taken for {missing}, but for {:?}", self.tags));
            }
        }
        None
    }
}

#[expect(clippy::print_stderr, reason = "what was tested, and what was not, must be seen")]
fn say(text: &str) {
    eprintln!("{text}");
}

/// Passes lines to every reader; panics if one finds a call that was not judged.
fn ask_all(readers: &mut [Reader], chunk: &[Passed], seed: u64) -> usize {
    let streams: Vec<&[u8]> = chunk.iter().map(|passed| passed.stream.as_slice()).collect();
    let mut asked = 0;
    for reader in readers {
        for (passed, readings) in chunk.iter().zip(reader.read(&streams)) {
            for (name, found) in readings {
                asked += 1;
                if let Some(objection) = passed.objection(&found) {
                    panic!(
                        "SCRUBJAY_TEST_SEED={seed}, {:?}, {name}: {objection}\nmade: {}\nwent on: {}",
                        passed.policy,
                        passed.made.escape_ascii(),
                        passed.stream.escape_ascii()
                    );
                }
            }
        }
    }
    asked
}

#[test]
#[ignore = "needs peers and go"]
fn every_reader_reads_a_passed_message_as_it_was_judged() {
    let mut readers = readers::start_all();
    let cases =
        std::env::var("SCRUBJAY_DIFFERENTIAL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(CASES);
    let mut random = Random::from_environment();
    let (mut passed, mut asked, mut chunk) = (0, 0, Vec::new());
    for case in 0..cases {
        let made = attack::make(&mut random);
        let policy = POLICIES[usize::try_from(case % 3).unwrap()];
        chunk.extend(judged(policy, made));
        if chunk.len() == CHUNK || case + 1 == cases {
            passed += chunk.len();
            asked += ask_all(&mut readers, &chunk, random.seed());
            chunk.clear();
        }
    }
    say(&format!("{cases} cases, {passed} passed, {asked} readings, 0 differ"));
    assert!(passed as u64 > cases / 20, "{passed} of {cases} pass: too few to say anything");
}

/// Every known attack misleads the given reader, so the test above would detect it.
#[test]
#[ignore = "needs peers and go"]
fn refused_messages_mislead_some_reader() {
    let mut readers = readers::start_all();
    let evil = attack::EVIL;
    let echo = |x: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"x":{x}}}}}}}"#
        )
    };
    for (line, victim) in [
        (echo(&format!("[\r{evil}\r]")), "python sdk"),
        (echo(&format!("[\r{evil}\r]")), "node readline"),
        (echo(&format!("[\u{c}{evil}\u{c}]")), "python splitlines"),
        (evil.replace("\"arguments\"", "\"x\":NaN,\"arguments\""), "python sdk"),
        (evil.replace("\"name\"", "\"name\":\"echo\",\"name\""), "serde value"),
        (evil.replace("\"name\"", "\"name\":\"echo\",\"Name\""), "go structs"),
        (evil.replace("\"params\"", "\"param\u{17f}\""), "go structs"),
        (evil.replace("\"delete_all\"", "[\"delete_all\"]"), "node careless"),
        (format!("\u{feff}{evil}"), "node without bom"),
        (format!("{}{evil}", echo("0")), "go decoder"),
        (format!("{}{evil}", echo("0")), "serde stream"),
    ] {
        let reader = readers.iter_mut().find(|reader| victim.starts_with(reader.language)).unwrap();
        let stream = format!("{line}\n");
        let readings = reader.read(&[stream.as_bytes()]).remove(0);
        let found = readings.into_iter().find(|(name, _)| name == victim).unwrap().1;
        let fell = found.iter().any(|call| !Policy::NoDeletes.permits(call));
        assert!(fell, "{victim} reads {found:?} in {line:?}");
        let judgement = Policy::NoDeletes.judge().line(Direction::ClientToServer, line.as_bytes());
        assert_eq!(onward(&judgement, line.as_bytes()), None, "{line:?} passes");
    }
}
