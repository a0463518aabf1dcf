//! `idle`: the memory of a relay after one call.

use std::io;
use std::thread;
use std::time::Duration;

use super::{Bench, mib};
use crate::series::Series;

// Time for the relay to finish what it does after a call, so that only idle memory is measured.
const REST: Duration = Duration::from_millis(300);

/// Runs the workload.
pub fn run(bench: &Bench) -> io::Result<Vec<Series>> {
    let plan = &bench.plan;
    let mut series = bench.series();
    for round in 0..plan.idles {
        for target in bench.taking_part(round, false, plan.peer_rounds) {
            let session = bench.open(target)?;
            thread::sleep(REST);
            let memory = session.memory()?;
            let series = &mut series[target];
            if !memory.is_empty() {
                series.push("rss_mib", memory.iter().map(|process| mib(process.rss_kib)).sum());
                series.push("pss_mib", memory.iter().map(|process| mib(process.pss_kib)).sum());
            }
            for (at, process) in memory.iter().enumerate() {
                series.push(&format!("rss_mib of {} {}", process.name, at + 1), mib(process.rss_kib));
            }
            session.close()?;
        }
    }
    Ok(series)
}
