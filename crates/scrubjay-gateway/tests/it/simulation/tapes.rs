//! The tapes against what everybody saw: nothing is missing, and nothing is made up.

use std::collections::BTreeMap;
use std::path::Path;

use scrubjay_core::entry::{Direction, EntryKind};
use scrubjay_tape::format::verify::verify;
use scrubjay_tape::home::Home;

use super::server::Nature;
use super::world::{Lines, World, count};

/// What all tapes together hold, by whose leg and which way.
#[derive(Default)]
struct Taped {
    said: Lines,
    heard: Lines,
    to_servers: BTreeMap<String, Lines>,
    from_servers: BTreeMap<String, Lines>,
}

pub(super) fn check(world: &World, data: &Path) {
    let taped = read(world, data);
    let log = world.log();
    let (said, heard) = (&log.clients_said, &log.clients_heard);
    let mut wrong = Vec::new();
    wrong.extend(missing("what a client said", said, &taped.said));
    wrong.extend(missing("on tape as said by a client", &taped.said, said));
    // What a client left before it could hear is on its tape all the same.
    wrong.extend(missing("what a client heard", heard, &taped.heard));
    for nature in Nature::ALL {
        let (none, id) = (Lines::new(), nature.id());
        let heard = log.servers_heard.get(id).unwrap_or(&none);
        let said = log.servers_said.get(id).unwrap_or(&none);
        let (to, from) =
            (taped.to_servers.get(id).unwrap_or(&none), taped.from_servers.get(id).unwrap_or(&none));
        wrong.extend(missing(&format!("what {id} heard"), heard, to));
        wrong.extend(missing(&format!("on tape as said by {id}"), from, said));
        if nature == Nature::Own {
            // It neither dies nor is closed before the end: whatever it said was heard.
            wrong.extend(missing(&format!("what {id} said"), said, from));
            wrong.extend(missing(&format!("on tape as heard by {id}"), to, heard));
        }
    }
    drop(log);
    wrong.into_iter().for_each(|what| world.violation(what));
}

/// Tells the first line that there is more often in one than in the other.
fn missing(what: &str, of: &Lines, within: &Lines) -> Option<String> {
    let lacking = |(line, times): &(&String, &u64)| within.get(*line).is_none_or(|there| there < *times);
    let first = of.iter().find(lacking)?;
    let (all, there) = (first.1, within.get(first.0).copied().unwrap_or_default());
    Some(format!(
        "{what}: {} of {} lines lack; {there} times instead of {all}: {}",
        of.iter().filter(lacking).count(),
        of.len(),
        first.0
    ))
}

fn read(world: &World, data: &Path) -> Taped {
    let home = Home::new(data.to_owned());
    let mut taped = Taped::default();
    for file in home.list().expect("the tapes can be listed") {
        let tape = home.open(&file).expect("a tape opens");
        let sound = verify(&tape).expect("a tape can be read").is_sound();
        world.check(sound, || format!("a tape is damaged: {file:?}"));
        let mut entries = tape.entries().expect("a tape can be read");
        while let Some((_, entry)) = entries.next().expect("an entry can be read") {
            if entry.kind != EntryKind::Message {
                continue;
            }
            let line = String::from_utf8_lossy(entry.payload);
            let lines = match (entry.via, entry.direction) {
                (None, Direction::ClientToServer) => &mut taped.said,
                (None, Direction::ServerToClient) => &mut taped.heard,
                (Some(id), Direction::ClientToServer) => taped.to_servers.entry(id.to_owned()).or_default(),
                (Some(id), Direction::ServerToClient) => taped.from_servers.entry(id.to_owned()).or_default(),
            };
            count(lines, &line);
        }
    }
    taped
}
