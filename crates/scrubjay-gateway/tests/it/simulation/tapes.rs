//! Compares the tapes with the lines that clients and servers sent and received: no line is missing and none was added.

use std::collections::BTreeMap;
use std::path::Path;

use scrubjay_core::entry::{Direction, EntryKind};
use scrubjay_tape::format::verify::verify;
use scrubjay_tape::home::Home;

use super::server::ServerKind;
use super::world::{Lines, World, count};

/// The lines on all tapes, by leg and direction.
#[derive(Default)]
struct TapedLines {
    from_clients: Lines,
    to_clients: Lines,
    to_servers: BTreeMap<String, Lines>,
    from_servers: BTreeMap<String, Lines>,
}

pub(super) fn check(world: &World, data: &Path) {
    let taped = read(world, data);
    let log = world.log();
    let (sent, received) = (&log.sent_by_clients, &log.received_by_clients);
    let mut wrong = Vec::new();
    wrong.extend(missing("sent by clients, not on tape", sent, &taped.from_clients));
    wrong.extend(missing("on tape, not sent by clients", &taped.from_clients, sent));
    // The reverse does not hold: lines that a client did not read before it left are on its tape.
    wrong.extend(missing("received by clients, not on tape", received, &taped.to_clients));
    for kind in ServerKind::ALL {
        let (none, id) = (Lines::new(), kind.id());
        let received = log.received_by_servers.get(id).unwrap_or(&none);
        let sent = log.sent_by_servers.get(id).unwrap_or(&none);
        let (to, from) =
            (taped.to_servers.get(id).unwrap_or(&none), taped.from_servers.get(id).unwrap_or(&none));
        wrong.extend(missing(&format!("received by {id}, not on tape"), received, to));
        wrong.extend(missing(&format!("on tape, not sent by {id}"), from, sent));
        if kind == ServerKind::Own {
            // It neither crashes nor is closed before the end, so all its lines are received.
            wrong.extend(missing(&format!("sent by {id}, not on tape"), sent, from));
            wrong.extend(missing(&format!("on tape, not received by {id}"), to, received));
        }
    }
    drop(log);
    wrong.into_iter().for_each(|what| world.violation(what));
}

/// Returns a description of the first line that occurs in `expected` more often than in `found`.
fn missing(what: &str, expected: &Lines, found: &Lines) -> Option<String> {
    let lacking = |(line, times): &(&String, &u64)| found.get(*line).is_none_or(|count| count < *times);
    let (line, times) = expected.iter().find(lacking)?;
    let count = found.get(line).copied().unwrap_or_default();
    Some(format!(
        "{what}: {} of {} lines; the first is there {count} times instead of {times}: {line}",
        expected.iter().filter(lacking).count(),
        expected.len()
    ))
}

fn read(world: &World, data: &Path) -> TapedLines {
    let home = Home::new(data.to_owned());
    let mut taped = TapedLines::default();
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
                (None, Direction::ClientToServer) => &mut taped.from_clients,
                (None, Direction::ServerToClient) => &mut taped.to_clients,
                (Some(id), Direction::ClientToServer) => taped.to_servers.entry(id.to_owned()).or_default(),
                (Some(id), Direction::ServerToClient) => taped.from_servers.entry(id.to_owned()).or_default(),
            };
            count(lines, &line);
        }
    }
    taped
}
