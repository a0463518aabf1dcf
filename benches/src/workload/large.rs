//! `1MiB` and `10MiB`: large results, one at a time. The throughput, and the memory of the relay. `tee` takes part as
//! the simplest recorder.

use std::io;

use super::Bench;
use crate::series::Series;

/// Runs the workload with results of `text_bytes`, `calls` per block.
pub fn run(bench: &Bench, text_bytes: usize, calls: u64, with_tee: bool) -> io::Result<Vec<Series>> {
    let plan = &bench.plan;
    let mut series = bench.series();
    for round in 0..plan.rounds {
        // Peers are left out: they rewrite answers, so the expected size is unknown.
        let mut lanes = bench.open_lanes(&bench.taking_part(round, with_tee, 0))?;
        for lane in &mut lanes {
            lane.session.check_large(text_bytes)?;
            lane.session.call_large(text_bytes, 2, plan.block_limit)?;
            lane.begin()?;
        }
        for _ in 0..plan.blocks {
            for lane in &mut lanes {
                let block = lane.session.call_large(text_bytes, calls, plan.block_limit)?;
                lane.add(block)?;
            }
        }
        for lane in lanes {
            let series = &mut series[lane.target];
            let megabytes = lane.total.calls as f64 * text_bytes as f64 / 1e6;
            series.push("mb_per_s", megabytes / lane.total.took.as_secs_f64());
            lane.finish(series)?;
        }
    }
    Ok(series)
}
