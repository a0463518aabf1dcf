//! The workloads, and what they share: rounds in which all targets run side by side and take turns block by block, so
//! that a busy moment of the machine affects all of them.

pub mod flight;
pub mod idle;
pub mod large;
pub mod seq;
pub mod start;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::plan::Plan;
use crate::procfs::Cpu;
use crate::series::Series;
use crate::session::{Session, Stretch};
use crate::target::{Relay, Target};

/// Everything a workload needs to run.
pub struct Bench {
    /// What is measured, the direct target first.
    pub targets: Vec<Target>,
    /// How much is measured.
    pub plan: Plan,
    /// Where targets may write.
    pub scratch_root: PathBuf,
}

impl Bench {
    /// Returns the targets that take part in a round of a workload.
    fn taking_part(&self, round: usize, with_tee: bool, peer_rounds: usize) -> Vec<usize> {
        let takes_part = |target: &Target| match target.relay {
            Relay::Tee => with_tee,
            _ => !target.is_peer() || round < peer_rounds,
        };
        let mut order: Vec<usize> =
            (0..self.targets.len()).filter(|&at| takes_part(&self.targets[at])).collect();
        // No target is always the first, or always after the same one.
        let turn = round % order.len();
        order.rotate_left(turn);
        order
    }

    fn open(&self, target: usize) -> io::Result<Session> {
        Session::open(&self.targets[target], &self.scratch_root, &self.plan)
    }

    fn open_lanes(&self, order: &[usize]) -> io::Result<Vec<Lane>> {
        let open = |&target: &usize| {
            let session = self.open(target)?;
            Ok(Lane { target, session, cpu: Cpu::default(), settled_in: Duration::ZERO, total: NOTHING })
        };
        order.iter().map(open).collect()
    }

    /// Returns an empty series for each target.
    fn series(&self) -> Vec<Series> {
        self.targets.iter().map(|target| Series::of(&target.name)).collect()
    }
}

const NOTHING: Stretch = Stretch { calls: 0, took: Duration::ZERO };

/// One target within one round.
struct Lane {
    target: usize,
    session: Session,
    cpu: Cpu,
    settled_in: Duration,
    total: Stretch,
}

impl Lane {
    /// Ends the warm-up: the relay's costs count from here on.
    fn begin(&mut self) -> io::Result<()> {
        self.session.settle()?;
        self.cpu = self.session.cpu()?;
        Ok(())
    }

    /// Counts a block, and waits until the relay has done the work that it deferred.
    fn add(&mut self, block: Stretch) -> io::Result<()> {
        self.total.calls += block.calls;
        self.total.took += block.took;
        self.settled_in += self.session.settle()?;
        Ok(())
    }

    /// Ends the round: takes the relay's costs, and closes it.
    fn finish(self, series: &mut Series) -> io::Result<()> {
        let calls = self.total.calls as f64;
        let memory = self.session.memory()?;
        if !memory.is_empty() {
            let cpu = self.session.cpu()?.since(self.cpu);
            series.push("cpu_us_per_call", cpu.scheduled.as_secs_f64() * 1e6 / calls);
            series.push("cpu_ticked_us_per_call", cpu.ticked.as_secs_f64() * 1e6 / calls);
            series.push("peak_rss_mib", memory.iter().map(|process| mib(process.peak_kib)).sum());
            series.push("settle_ms", self.settled_in.as_secs_f64() * 1e3);
        }
        let (closed_in, recorded_bytes) = self.session.close()?;
        series.push("close_ms", closed_in.as_secs_f64() * 1e3);
        series.push("recorded_mib", recorded_bytes as f64 / f64::from(1 << 20));
        Ok(())
    }
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
