//! `start`: from the spawn to the answer of `initialize`. The time that the relay adds to the start of a server.

use std::io;

use super::Bench;
use crate::series::Series;

/// Runs the workload.
pub fn run(bench: &Bench) -> io::Result<Vec<Series>> {
    let plan = &bench.plan;
    let mut series = bench.series();
    for round in 0..plan.starts {
        // One after the other, because a start must not compete with our other targets.
        for target in bench.taking_part(round, false, plan.peer_starts) {
            let session = bench.open(target)?;
            let series = &mut series[target];
            series.push("start_ms", session.started_in.as_secs_f64() * 1e3);
            let (closed_in, _) = session.close()?;
            series.push("close_ms", closed_in.as_secs_f64() * 1e3);
        }
    }
    Ok(series)
}
