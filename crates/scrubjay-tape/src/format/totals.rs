//! The part of a footer that is computed from the entries.
//!
//! The sealer writes it. A check computes it again, and so finds a footer that was altered together with all checksums
//! and the chain.

use std::collections::BTreeSet;

use scrubjay_core::entry::{End, Entry, EntryKind};
use scrubjay_core::reading::EntryReader;
use serde_json::{Map, Value};

use super::observe::ClockWatch;
use super::sealed::Footer;

/// The version of the rules by which the footer is computed. Raise it whenever the same entries would give another
/// footer: then a difference to an older footer is no sign of tampering.
pub(crate) const TOTALS_VERSION: u32 = 1;

/// Facts that every version computes in the same way.
const ALWAYS_ALIKE: [&str; 3] = ["ended_wall_ns", "duration_ns", "end"];
/// Facts that no version writes without an entry that reports them.
const NEVER_INVENTED: [&str; 2] = ["undelivered", "moved_to"];
/// A fact that every check computes anyway, so it does not matter if an older footer lacks it.
const TOLD_ANYWAY: &str = "clock_jumps";
/// Facts that do not follow from the entries alone, or are checked elsewhere.
const NOT_ADDED_UP: [&str; 4] = ["blocks", "damage", "digest", "totals_version"];

/// Computes the footer from entries in order.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    reader: EntryReader,
    clock: ClockWatch,
    ended_wall_ns: u64,
    duration_ns: u64,
    end: Option<End>,
}

impl Totals {
    /// Takes the next entry.
    pub(crate) fn take(&mut self, number: u64, entry: &Entry<'_>) {
        self.reader.read(entry);
        self.clock.take(number, entry);
        self.ended_wall_ns = entry.wall_ns;
        self.duration_ns = self.duration_ns.max(entry.since_start_ns);
        if entry.kind == EntryKind::End {
            self.end = serde_json::from_slice(entry.payload).ok();
        }
    }

    /// Returns a footer with the computed facts only.
    pub(crate) fn finish(self) -> Footer {
        Footer {
            metadata: self.reader.finish(),
            totals_version: Some(TOTALS_VERSION),
            ended_wall_ns: self.ended_wall_ns,
            duration_ns: self.duration_ns,
            end: self.end,
            clock_jumps: self.clock.jumps,
            damage: Vec::new(),
            digest: None,
            blocks: Vec::new(),
        }
    }
}

/// Names of the facts in which a footer differs from the entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// No version would have written this: the footer was altered.
    pub(super) altered: Vec<String>,
    /// Another version may have computed this differently.
    pub(super) doubtful: Vec<String>,
}

/// Compares a footer with the one computed from the entries.
pub(super) fn compare(said: &Footer, totals: Totals) -> Differences {
    // Written and read once, because fractions may change a little in JSON.
    let written = serde_json::to_vec(&totals.finish()).expect("totals are plain data");
    let (said, is) = match serde_json::from_slice::<Footer>(&written) {
        Ok(is) => (facts(said), facts(&is)),
        Err(_) => return Differences { altered: vec!["metadata".to_owned()], ..Differences::default() },
    };
    let same_rules = said.get("totals_version") == is.get("totals_version");
    let names: BTreeSet<&String> = said.keys().chain(is.keys()).collect();
    let mut differences = Differences::default();
    for name in names.into_iter().filter(|name| !NOT_ADDED_UP.contains(&name.as_str())) {
        let is_older = !same_rules && name == TOLD_ANYWAY;
        if said.get(name) == is.get(name) || is_older {
            continue;
        }
        let is_invented = NEVER_INVENTED.contains(&name.as_str()) && !is.contains_key(name);
        let is_altered = same_rules || ALWAYS_ALIKE.contains(&name.as_str()) || is_invented;
        let list = if is_altered { &mut differences.altered } else { &mut differences.doubtful };
        list.push(name.clone());
    }
    differences
}

/// Returns the facts of a footer by name, including those of its metadata.
fn facts(footer: &Footer) -> Map<String, Value> {
    let Ok(Value::Object(mut facts)) = serde_json::to_value(footer) else { return Map::new() };
    if let Some(Value::Object(metadata)) = facts.remove("metadata") {
        facts.extend(metadata);
    }
    facts
}

#[cfg(test)]
mod tests {
    use scrubjay_core::entry::{Direction, RuleMarks, Terminator, Transport};

    use super::*;

    /// A conversation in which every total is above zero.
    const SCRIPT: [(EntryKind, Direction, &str); 12] = [
        (EntryKind::Message, UP, r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"c"}}}"#),
        (EntryKind::Message, DOWN, r#"{"id":0,"result":{"protocolVersion":"1","serverInfo":{"name":"s"}}}"#),
        (EntryKind::Message, UP, r#"{"method":"notifications/initialized"}"#),
        (EntryKind::Message, UP, r#"{"id":1,"method":"tools/call","params":{"name":"t"}}"#),
        (EntryKind::Message, DOWN, r#"{"id":1,"result":{"isError":true}}"#),
        (EntryKind::Message, UP, r#"{"id":2,"method":"tools/list"}"#),
        (EntryKind::Message, DOWN, r#"{"id":2,"error":{"code":-32601,"message":"no"}}"#),
        (EntryKind::Stderr, DOWN, "oh"),
        (EntryKind::Gap, DOWN, r#"{"messages":2,"bytes":9,"forwarded":false,"reason":"x"}"#),
        (EntryKind::Note, DOWN, r#"{"event":"undelivered","why":"left","messages":1,"entries":[[6,6]]}"#),
        (EntryKind::Note, DOWN, r#"{"event":"session","session":"other"}"#),
        (EntryKind::End, DOWN, r#"{"reason":"done"}"#),
    ];
    const UP: Direction = Direction::ClientToServer;
    const DOWN: Direction = Direction::ServerToClient;

    fn totals() -> Totals {
        let mut totals = Totals::default();
        for (number, (kind, direction, payload)) in (0..).zip(SCRIPT) {
            let entry = Entry {
                kind,
                direction,
                transport: Transport::Stdio,
                terminator: Terminator::Lf,
                wall_ns: 1_000 + number,
                since_start_ns: number * number,
                processing_ns: 0,
                via: None,
                connection: 0,
                operation: None,
                rule_marks: RuleMarks::default(),
                payload: payload.as_bytes(),
            };
            totals.take(number, &entry);
        }
        totals
    }

    #[test]
    fn equal_entries_have_equal_totals() {
        let found = serde_json::to_string(&totals().finish()).unwrap();
        let expected = [
            r#"{"metadata":{"total_entries":12,"total_messages":7,"total_requests":3,"total_responses":2,"#,
            r#""total_notifications":1,"total_errors":2,"total_opaque":0,"stderr_lines":1,"#,
            r#""backend_messages":0,"backends_ended":0,"intercepted":0,"gap_messages":1,"unanswered":0,"#,
            r#""methods":{"initialize":{"count":1,"success_count":1,"error_count":0,"#,
            r#""avg_response_time_ns":1,"avg_params_bytes":27,"avg_result_bytes":49},"#,
            r#""notifications/initialized":{"count":1,"success_count":0,"error_count":0,"#,
            r#""avg_response_time_ns":0,"avg_params_bytes":0,"avg_result_bytes":0},"#,
            r#""tools/call":{"count":1,"success_count":0,"error_count":1,"avg_response_time_ns":7,"#,
            r#""avg_params_bytes":12,"avg_result_bytes":16},"tools/list":{"count":1,"success_count":0,"#,
            r#""error_count":1,"avg_response_time_ns":11,"avg_params_bytes":0,"avg_result_bytes":30}},"#,
            r#""tools":{"t":{"count":1,"success_count":0,"error_count":1,"avg_response_time_ns":7,"#,
            r#""avg_params_bytes":12,"avg_result_bytes":16}},"method_pairs":[{"first":"initialize","#,
            r#""second":"tools/call","count":1},{"first":"tools/call","second":"tools/list","count":1}],"#,
            r#""avg_response_time_ns":6,"p50_response_time_ns":7,"p95_response_time_ns":11,"#,
            r#""p99_response_time_ns":11,"client_info":{"name":"c"},"server_info":{"name":"s"},"#,
            r#""protocol_version":"1","total_bytes_sent":187,"total_bytes_received":148,"#,
            r#""error_rate":0.6666666666666666,"error_codes":{"-32601":1},"probe":false,"#,
            r#""undelivered":{"messages":1,"ranges":[[6,6,"left"]]},"moved_to":"other"},"#,
            r#""totals_version":1,"ended_wall_ns":1011,"duration_ns":121,"end":{"reason":"done"},"#,
            r#""damage":[],"blocks":[]}"#,
        ]
        .concat();
        assert_eq!(found, expected, "if this is meant to be another, raise TOTALS_VERSION");
    }

    #[test]
    fn totals_survive_a_json_round_trip() {
        let written = serde_json::to_vec(&totals().finish()).unwrap();
        let read: Footer = serde_json::from_slice(&written).unwrap();
        assert_eq!(compare(&read, totals()), Differences::default());
    }
}
