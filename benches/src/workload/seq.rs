//! `seq`: small calls, one at a time. The latency that the relay adds to a call.

use std::io;

use super::Bench;
use crate::series::{Series, median, quantile};

const WARM_UP_CALLS: u64 = 200;

/// Runs the workload.
pub fn run(bench: &Bench) -> io::Result<Vec<Series>> {
    let plan = &bench.plan;
    let mut series = bench.series();
    for round in 0..plan.rounds {
        let mut lanes = bench.open_lanes(&bench.taking_part(round, false, plan.peer_rounds))?;
        let mut samples_us: Vec<Vec<f64>> = vec![Vec::new(); bench.targets.len()];
        for lane in &mut lanes {
            lane.session.call_in_turn(WARM_UP_CALLS, plan.block_limit, &mut Vec::new())?;
            lane.begin()?;
        }
        for _ in 0..plan.blocks {
            for lane in &mut lanes {
                let samples_us = &mut samples_us[lane.target];
                let block = lane.session.call_in_turn(plan.seq_calls, plan.block_limit, samples_us)?;
                lane.add(block)?;
            }
        }
        for lane in lanes {
            let (series, samples_us) = (&mut series[lane.target], &samples_us[lane.target]);
            series.push("median_us", median(samples_us).unwrap_or(f64::NAN));
            series.push("p99_us", quantile(samples_us, 0.99).unwrap_or(f64::NAN));
            lane.finish(series)?;
        }
    }
    Ok(series)
}
