//! The gateway with simulated clients and servers that drop, reorder, repeat and delay messages and crash, on a
//! simulated clock.
//!
//! A seed determines everything: what clients do, how each call ends, and how long each step takes. Time passes only on
//! the clock of the test, so a simulated hour takes seconds. A failure names its seed; `SCRUBJAY_SIM_SEED` runs that
//! seed alone, and `SCRUBJAY_SIM_ACTIONS` sets the number of actions of each client.

mod client;
mod server;
mod tapes;
mod world;

use std::time::Duration;

use scrubjay_gateway::backend::Backend;
use scrubjay_gateway::gateway::NewTape;
use tokio::task::JoinSet;

use self::client::{ClientKind, SimulatedClient};
use self::server::{ServerKind, mount};
use self::world::World;
use super::rig::Rig;

/// The seeds are the same in each run of the tests, so that each run finds the same failures.
const SEEDS: u64 = 4;
const ACTIONS: u64 = 200;
const CLIENTS: u64 = 9;
/// All calls are over by then: a call lasts at most as long as its backend may be silent.
const DRAIN: Duration = Duration::from_secs(3600);

/// The result of a run. It is the same for the same seed.
#[derive(Debug, PartialEq)]
struct Summary {
    steps: u64,
    answered: u64,
    failed: u64,
    outcomes: Vec<String>,
}

fn simulate(seed: u64, actions: u64) -> Summary {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime can be made");
    runtime.block_on(run(seed, actions))
}

async fn run(seed: u64, actions: u64) -> Summary {
    let world = World::new(seed);
    let rig = Rig::with(|events, recording| {
        let tape = |id: &str| recording(NewTape::of_backend(&format!("backend {id}")));
        let backend = |kind: ServerKind| {
            let made = Backend::mounted(kind.id(), mount(&world, kind), tape(kind.id()), events.clone());
            if kind == ServerKind::Own { made } else { made.outside() }
        };
        ServerKind::ALL.into_iter().map(backend).collect()
    });
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let kind = ClientKind::ALL[usize::try_from(number).expect("few clients") % ClientKind::ALL.len()];
        let client = SimulatedClient::new(&world, &rig.gateway, number, kind);
        clients.spawn(client.run(actions));
    }
    let mut sessions = Vec::new();
    let all = async {
        while let Some(done) = clients.join_next().await {
            sessions.extend(done.unwrap_or_else(|e| panic!("a client failed: {e}")));
        }
    };
    if tokio::time::timeout(DRAIN, all).await.is_err() {
        world.violation(format!("these calls did not end: {}", world.open_calls().join(", ")));
    }
    // Servers still send messages for calls that are over. They reach no client.
    tokio::time::sleep(Duration::from_secs(600)).await;
    for backend in rig.gateway.backends().iter() {
        for connection in backend.open_connections() {
            world.check(connection.open_calls() == 0, || {
                format!("{} has open calls without a client", backend.id)
            });
        }
    }
    for session in &sessions {
        world.check(session.idle() > Duration::ZERO, || format!("session {} has an open call", session.id));
    }
    world.check(rig.gateway.session_count() == 0, || {
        "a session is open although its client has left".to_owned()
    });
    rig.gateway.shut_down("the simulation is over");
    tokio::time::sleep(Duration::from_secs(1)).await;
    tapes::check(&world, rig.data.path());
    world.summary()
}

fn checked(seed: u64, actions: u64) -> Summary {
    let outcome = std::panic::catch_unwind(|| simulate(seed, actions));
    match outcome {
        Ok(summary) => summary,
        Err(panic) => {
            let message = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
            panic!("seed {seed}: {message}\nrun it alone with SCRUBJAY_SIM_SEED={seed}");
        }
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "shown if the test fails, and with --nocapture")]
fn no_message_is_lost_or_misrouted_and_no_session_is_left_open() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let actions = number("SCRUBJAY_SIM_ACTIONS").unwrap_or(ACTIONS);
    let seeds = number("SCRUBJAY_SIM_SEED").map_or(1..=SEEDS, |seed| seed..=seed);
    let mut steps = 0;
    for seed in seeds {
        let summary = checked(seed, actions);
        steps += summary.steps;
        let Summary { steps, answered, failed, .. } = &summary;
        println!("seed {seed}: {steps} steps, {answered} answered, {failed} failed");
        assert!(summary.answered * 2 > summary.failed, "seed {seed}: too many calls failed: {summary:?}");
    }
    assert!(steps > 10_000 || actions != ACTIONS, "only {steps} steps");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (one, two) = (checked(99, 120), checked(99, 120));
    assert_eq!(one, two);
    assert_ne!(one.outcomes, checked(100, 120).outcomes);
}
