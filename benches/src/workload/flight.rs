//! `flight64`: 64 small calls under way at once. How many calls a relay can carry, and what
//! each costs it in CPU time.

use std::io;

use super::Bench;
use crate::series::Series;

const WARM_UP_CALLS: u64 = 2000;

/// Runs the workload.
pub fn run(bench: &Bench) -> io::Result<Vec<Series>> {
    let plan = &bench.plan;
    let mut series = bench.series();
    for round in 0..plan.rounds {
        let mut lanes = bench.open_lanes(&bench.taking_part(round, false, plan.peer_rounds))?;
        for lane in &mut lanes {
            lane.session.call_pipelined(WARM_UP_CALLS, plan.block_limit)?;
            lane.begin()?;
        }
        for _ in 0..plan.blocks {
            for lane in &mut lanes {
                let block = lane.session.call_pipelined(plan.flight_calls, plan.block_limit)?;
                lane.add(block)?;
            }
        }
        for lane in lanes {
            let series = &mut series[lane.target];
            series.push("calls_per_s", lane.total.calls as f64 / lane.total.took.as_secs_f64());
            lane.finish(series)?;
        }
    }
    Ok(series)
}
