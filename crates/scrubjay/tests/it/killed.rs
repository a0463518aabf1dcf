//! `kill -9` at any instant: every message that reached either side is on the tape, and the tape is complete.
//!
//! The server is `tee`: all that it received is in a file, even if it was killed afterwards.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::harness::{DOWN, ExportedTape, Lab, UP, Wrapped, kill};
use crate::random::Random;

/// How many recorders are killed on one data directory. A kill may also interrupt the sealing of earlier tapes.
const ROUNDS: u64 = 10;
const DIRECTORIES: u64 = 11;
const WARDEN_ROUNDS: u64 = 12;
/// The longest time that a worker runs under load before it is killed.
const LIFE_US_MAX: usize = 15_000;

/// Far more than is sent in that time. A limit is needed, because a load that never ends would fill the disk.
const LOAD_BYTES_MAX: usize = 256 << 20;

/// The bytes that were seen outside the recorder.
struct Evidence {
    name: String,
    server_received: Vec<u8>,
    client_received: Vec<u8>,
}

/// Sends without a pause until nothing reads any more; meanwhile a process is killed at a random instant.
fn send_until_killed(wrapped: &mut Wrapped, target: Pid, random: &mut Random) -> Vec<u8> {
    let life = Duration::from_micros(random.below(LIFE_US_MAX) as u64);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A random moment, because the kill may come at any instant; this waits for nothing.
            std::thread::sleep(life);
            kill(target, Signal::KILL);
        });
        let (mut number, mut sent_bytes) = (0, 0);
        while wrapped.reads_stdin() {
            let lines = some_lines(&mut number, random);
            sent_bytes += lines.len();
            assert!(sent_bytes < LOAD_BYTES_MAX, "the process was not killed");
            wrapped.send(&lines);
        }
    });
    wrapped.rest()
}

/// Makes a few lines, each with a number of its own, and now and then a large one.
fn some_lines(number: &mut u64, random: &mut Random) -> Vec<u8> {
    let mut lines = Vec::new();
    for _ in 0..=random.below(12) {
        *number += 1;
        let length = if random.below(60) == 0 { random.below(80_000) } else { random.below(600) };
        let padding = "p".repeat(length);
        lines.extend(format!("{{\"jsonrpc\":\"2.0\",\"id\":{number},\"method\":\"{padding}\"}}\n").bytes());
    }
    lines
}

/// Reads the tapes of one connection.
fn read_in_order(lab: &Lab, ids: &BTreeSet<String>) -> Vec<ExportedTape> {
    let mut tapes: Vec<ExportedTape> = ids.iter().map(|id| lab.export(id)).collect();
    tapes.sort_by_key(|tape| tape.header["part"].as_u64());
    tapes
}

/// Asserts that everything that was seen is on the tapes, in the same order.
fn assert_on_tape(evidence: &Evidence, tapes: &[ExportedTape]) {
    for (direction, seen) in [(UP, &evidence.server_received), (DOWN, &evidence.client_received)] {
        let taped: Vec<u8> = tapes.iter().flat_map(|tape| tape.wire(direction)).collect();
        let (name, seen_bytes, taped_bytes) = (&evidence.name, seen.len(), taped.len());
        assert!(
            taped.starts_with(seen),
            "{name}: {seen_bytes} bytes {direction} were seen, and {taped_bytes} are on tape"
        );
    }
}

/// Kills one worker, proves that nothing was lost, and returns its tapes.
fn kill_a_worker(lab: &Lab, round: u64, random: &mut Random) -> (Evidence, Vec<ExportedTape>) {
    let name = format!("round-{round}");
    let mut wrap = lab.wrap(&["tee", &lab.file(&name)]).with(&["--name", &name]);
    if round % 3 == 1 {
        wrap = wrap.with(&["--max-tape-size", "100kB"]);
    }
    if round % 5 == 2 {
        wrap = wrap.with(&["--durability", "power"]);
    }
    let earlier = lab.tape_ids();
    let mut wrapped = wrap.start();
    let worker = wrapped.worker();
    let mut client_received = Vec::new();
    if round.is_multiple_of(2) {
        // This one is killed while it works; some of the others are killed while they start.
        wrapped.send_line("first");
        assert_eq!(wrapped.line().as_deref(), Some("first"));
        client_received.extend(b"first\n");
    }
    client_received.extend(send_until_killed(&mut wrapped, worker, random));
    assert_eq!(wrapped.exit_code(), 128 + 9, "{name}");
    wrapped.mark().await_gone();
    let evidence = Evidence { server_received: lab.read(&name), client_received, name };
    let tapes = read_in_order(lab, &(&lab.tape_ids() - &earlier));
    assert_on_tape(&evidence, &tapes);
    (evidence, tapes)
}

#[test]
fn a_worker_killed_under_load_loses_nothing() {
    let mut random = Random::from_environment();
    let mut seen_bytes = 0;
    for _ in 0..DIRECTORIES {
        let lab = Lab::new();
        let rounds: Vec<_> = (0..ROUNDS).map(|round| kill_a_worker(&lab, round, &mut random)).collect();
        lab.verify();
        lab.start_again();
        let states: Vec<_> = lab.tapes().into_iter().map(|tape| tape["state"].clone()).collect();
        assert!(states.iter().all(|state| state == "sealed"), "{states:?}");
        assert_eq!(lab.verify().len(), rounds.iter().map(|(_, tapes)| tapes.len()).sum::<usize>());
        for (evidence, before) in rounds {
            let ids = before.iter().map(ExportedTape::id).collect();
            assert!(read_in_order(&lab, &ids) == before, "{} reads otherwise once sealed", evidence.name);
            seen_bytes += evidence.client_received.len();
        }
    }
    assert!(seen_bytes > 1 << 20, "there was no load: {seen_bytes} bytes came back");
}

#[test]
fn a_warden_killed_under_load_loses_nothing() {
    let mut random = Random::from_environment();
    for round in 0..WARDEN_ROUNDS {
        let lab = Lab::new();
        let name = format!("round-{round}");
        let mut wrapped = lab.wrap(&["tee", &lab.file("log")]).with(&["--name", &name]).start();
        wrapped.send_line("first");
        assert_eq!(wrapped.line().as_deref(), Some("first"));
        let warden = wrapped.pid();
        let received = send_until_killed(&mut wrapped, warden, &mut random);
        wrapped.mark().await_gone();
        let client_received = [b"first\n", received.as_slice()].concat();
        let evidence = Evidence { name, server_received: lab.read("log"), client_received };
        let tapes = read_in_order(&lab, &lab.tape_ids());
        assert_on_tape(&evidence, &tapes);
        // No process was started since, so the worker itself closed its tape.
        assert!(lab.tapes().iter().all(|tape| tape["state"] == "sealed"), "{:?}", lab.tapes());
        let end = tapes[0].of_kind("end").next().expect("the end is recorded").facts();
        assert_eq!(end["reason"], "the host killed the recorder");
        lab.verify();
    }
}
