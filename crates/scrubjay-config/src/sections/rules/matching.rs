//! `match` of a rule: direction, methods, backends, tools, and conditions on the message's content.

use scrubjay_core::entry::Direction;
use scrubjay_core::glob::Glob;
use scrubjay_core::rules::{Condition, RuleMatch, ValueCheck};

use super::changing::json_text;
use super::{read_path, required};
use crate::cursor::Cursor;
use crate::setting::{List, Setting, choice};

choice!(Direction: "client_to_server" = ClientToServer, "server_to_client" = ServerToClient);

/// Reads which messages a rule applies to.
pub(super) fn read_match(at: &Cursor<'_>) -> RuleMatch {
    let mut when = RuleMatch::default();
    for (key, at) in at.entries(&["direction", "methods", "backends", "tools", "where"]) {
        match key {
            "direction" => when.direction = Direction::read(&at),
            "methods" => when.methods = read_globs(&at),
            "backends" => when.backends = read_globs(&at),
            "tools" => when.tools = read_globs(&at),
            _ => {
                let items = at.list_of(" of conditions").unwrap_or_default();
                when.conditions = items.iter().filter_map(read_condition).collect();
            }
        }
    }
    when
}

fn read_globs(at: &Cursor<'_>) -> Vec<Glob> {
    let Some(globs) = List::<Glob>::read(at) else { return Vec::new() };
    if globs.is_empty() {
        at.wrong::<()>("must name at least one: leave it out to match all");
    }
    globs
}

const CONDITION_KEYS: [&str; 7] = ["path", "exists", "equals", "contains", "matches", "greater", "less"];

fn read_condition(at: &Cursor<'_>) -> Option<Condition> {
    let given = at.entries(&CONDITION_KEYS);
    let path = required(at, "path").and_then(|at| read_path(&at));
    let checks: Vec<_> = given.into_iter().filter(|(key, _)| *key != "path").collect();
    let check = match checks.as_slice() {
        [(key, at)] => read_check(key, at),
        _ => at.wrong(format!("must have one of {}", CONDITION_KEYS[1..].join(", "))),
    };
    Some(Condition { path: path?, check: check? })
}

fn read_check(key: &str, at: &Cursor<'_>) -> Option<ValueCheck> {
    let number = || at.parse("a number", |text| text.parse::<f64>().ok().filter(|n| n.is_finite()));
    match key {
        "exists" => bool::read(at).map(ValueCheck::exists),
        "equals" => {
            let value = serde_json::from_str(&json_text(at)?);
            at.reported(value.map(ValueCheck::equals).map_err(|_| "holds a number too large to be compared"))
        }
        "contains" => at.text().map(|part| ValueCheck::contains(part.to_owned())),
        "matches" => at.reported(ValueCheck::matches(at.text()?)),
        "greater" => number().map(ValueCheck::greater),
        _ => number().map(ValueCheck::less),
    }
}
