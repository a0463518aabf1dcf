//! The results of a run: a table for people with figures and goals, and JSON with every round.

use std::fmt::Write;

use crate::json::Json;
use crate::plan::Plan;
use crate::series::{Series, median, ratios};
use crate::table::Table;

/// The names in the report of the three targets that every run has.
pub const DIRECT: &str = "direct";
/// See [`DIRECT`].
pub const RAW: &str = "raw relay";
/// See [`DIRECT`].
pub const SCRUBJAY: &str = "scrubjay wrap";

// A halted CPU takes tens of µs to wake up, the same for every relay. On a CPU that other processes keep awake that
// time is missing, and a relay's own work makes up several times more of the total.
const BUSY: &str = ": wake-ups cost less than on a quiet machine and work more,
so the ratios of seq and flight64 come out worse; repeat it when it is quiet";

/// Everything measured in one run.
pub struct Results {
    /// How much was measured.
    pub plan: Plan,
    /// The share of the CPUs that others used before each workload and at the end.
    pub busy_shares: Vec<f64>,
    /// How long the run took.
    pub took_s: f64,
    /// The program measured as Scrubjay.
    pub scrubjay: String,
    /// The workloads by name, with one series for each target.
    pub workloads: Vec<(&'static str, Vec<Series>)>,
    /// Peers that could not be measured, or not in full, and why.
    pub notes: Vec<String>,
}

/// A goal and the figure that is compared with it.
struct Goal {
    what: &'static str,
    wanted: &'static str,
    measured: Option<f64>,
    shown: fn(f64) -> String,
    met: fn(f64) -> bool,
}

impl Results {
    /// Returns the table.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "wrap bench: {} rounds, targets interleaved, medians of rounds; {:.0} s\n",
            self.plan.rounds, self.took_s,
        );
        let busy = self.busy_shares.iter().copied().fold(0.0, f64::max) * 100.0;
        let _ = writeln!(
            text,
            "others used up to {busy:.0} % of the CPUs{}",
            if busy > 15.0 { BUSY } else { "" }
        );
        let _ = writeln!(text, "scrubjay is {}\n", self.scrubjay);
        self.push_seq(&mut text);
        self.push_flight(&mut text);
        self.push_large(&mut text, "1MiB");
        self.push_large(&mut text, "10MiB");
        self.push_start(&mut text);
        self.push_idle(&mut text);
        self.push_goals(&mut text);
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }

    /// Returns the results file.
    pub fn to_json(&self) -> Json {
        let by_target = |series: &[Series]| {
            let measured = series.iter().filter(|series| series.names().next().is_some());
            Json::Object(measured.map(|series| (series.target.clone(), series.to_json())).collect())
        };
        let workloads = self.workloads.iter().map(|(name, series)| ((*name).to_owned(), by_target(series)));
        let goals = self.goals().into_iter().map(|goal| {
            let measured = goal.measured.map_or(Json::Null, Json::Number);
            let met = goal.measured.is_some_and(goal.met);
            let wanted = Json::text(goal.wanted);
            let fields = [("wanted", wanted), ("measured", measured), ("met", Json::Bool(met))];
            (goal.what.to_owned(), Json::object(fields))
        });
        Json::object([
            ("scrubjay", Json::text(&self.scrubjay)),
            ("rounds", Json::Number(self.plan.rounds as f64)),
            ("took_s", Json::Number(self.took_s)),
            ("others_busy", Json::List(self.busy_shares.iter().copied().map(Json::Number).collect())),
            ("goals", Json::Object(goals.collect())),
            ("workloads", Json::Object(workloads.collect())),
            ("notes", Json::List(self.notes.iter().map(Json::text).collect())),
        ])
    }

    fn push_seq(&self, text: &mut String) {
        let head = ["median µs", "p99 µs", "added µs", "added p99", "× raw's added", "CPU µs/call"];
        let mut table = Table::new("seq: 200 B, one at a time", &head);
        for series in self.measured("seq") {
            let added = self.added("seq", series, "median_us");
            let cells = [
                figure(series.median("median_us"), 1),
                figure(series.median("p99_us"), 1),
                figure(median(&added), 1),
                figure(median(&self.added("seq", series, "p99_us")), 1),
                figure(self.added_ratio(series), 2),
                figure(series.median("cpu_us_per_call"), 1),
            ];
            table.push(&series.target, cells);
        }
        table.push_to(text);
    }

    fn push_flight(&self, text: &mut String) {
        let head = ["calls/s", "% of raw", "CPU µs/call", "(by ticks)", "peak RSS MiB", "recorded MiB"];
        let mut table = Table::new("flight64: 200 B, 64 in flight", &head);
        for series in self.measured("flight64") {
            let cells = [
                figure(series.median("calls_per_s"), 0),
                figure(self.share_of_raw("flight64", series, "calls_per_s"), 0),
                figure(series.median("cpu_us_per_call"), 2),
                figure(series.median("cpu_ticked_us_per_call"), 2),
                figure(series.median("peak_rss_mib"), 1),
                recorded(series),
            ];
            table.push(&series.target, cells);
        }
        table.push_to(text);
    }

    fn push_large(&self, text: &mut String, workload: &str) {
        let head = ["MB/s", "% of raw", "CPU ms/call", "peak RSS MiB", "recorded MiB", "close ms"];
        let mut table = Table::new(&format!("{workload} results, one at a time"), &head);
        for series in self.measured(workload) {
            let cells = [
                figure(series.median("mb_per_s"), 0),
                figure(self.share_of_raw(workload, series, "mb_per_s"), 0),
                figure(series.median("cpu_us_per_call").map(|us| us / 1e3), 2),
                figure(series.median("peak_rss_mib"), 1),
                recorded(series),
                figure(series.median("close_ms"), 1),
            ];
            table.push(&series.target, cells);
        }
        table.push_to(text);
    }

    fn push_start(&self, text: &mut String) {
        let mut table =
            Table::new("start: spawn to first reply", &["median ms", "over direct ms", "close ms"]);
        for series in self.measured("start") {
            let over = median(&self.added("start", series, "start_ms"));
            let cells =
                [series.median("start_ms"), over, series.median("close_ms")].map(|value| figure(value, 2));
            table.push(&series.target, cells);
        }
        table.push_to(text);
    }

    fn push_idle(&self, text: &mut String) {
        let head = ["Pss MiB", "RSS MiB", "RSS of each process"];
        let mut table = Table::new("idle: memory after one call", &head);
        for series in self.measured("idle") {
            let processes = series.names().filter_map(|name| Some((name, name.strip_prefix("rss_mib of ")?)));
            let each = processes.map(|(name, process)| {
                format!(
                    "{} {}",
                    process.rsplit_once(' ').map_or(process, |(name, _)| name),
                    figure(series.median(name), 1)
                )
            });
            let each = each.collect::<Vec<_>>().join(", ");
            let sums = [series.median("pss_mib"), series.median("rss_mib")].map(|value| figure(value, 1));
            let [pss, rss] = sums;
            table.push(&series.target, [pss, rss, each]);
        }
        table.push_to(text);
    }

    fn push_goals(&self, text: &mut String) {
        let mut table = Table::new("goals of scrubjay wrap", &["wanted", "measured", ""]);
        for goal in self.goals() {
            let verdict = match goal.measured {
                None => "not measured",
                Some(value) if (goal.met)(value) => "met",
                Some(_) => "MISSED",
            };
            let measured = goal.measured.map_or_else(String::new, goal.shown);
            table.push(goal.what, [goal.wanted.to_owned(), measured, verdict.to_owned()]);
        }
        table.push_to(text);
    }

    fn goals(&self) -> Vec<Goal> {
        let of = |workload, figure| self.find(workload, SCRUBJAY)?.median(figure);
        let share = |workload, figure| {
            self.find(workload, SCRUBJAY).and_then(|series| self.share_of_raw(workload, series, figure))
        };
        let over = self.find("start", SCRUBJAY).map(|series| self.added("start", series, "start_ms"));
        vec![
            Goal {
                what: "seq: added median latency, × raw's",
                wanted: "≤ 1.25",
                measured: self.find("seq", SCRUBJAY).and_then(|series| self.added_ratio(series)),
                shown: |value| format!("{value:.2}"),
                met: |value| value <= 1.25,
            },
            Goal {
                what: "flight64: calls/s, % of raw's",
                wanted: "≥ 60",
                measured: share("flight64", "calls_per_s"),
                shown: |value| format!("{value:.0}"),
                met: |value| value >= 60.0,
            },
            Goal {
                what: "flight64: CPU µs per call",
                wanted: "≤ 6",
                measured: of("flight64", "cpu_us_per_call"),
                shown: |value| format!("{value:.2}"),
                met: |value| value <= 6.0,
            },
            Goal {
                what: "10MiB: MB/s, % of raw's",
                wanted: "≥ 40",
                measured: share("10MiB", "mb_per_s"),
                shown: |value| format!("{value:.0}"),
                met: |value| value >= 40.0,
            },
            Goal {
                what: "start: ms over direct",
                wanted: "< 20",
                measured: over.and_then(|over| median(&over)),
                shown: |value| format!("{value:.1}"),
                met: |value| value < 20.0,
            },
            Goal {
                what: "idle: MiB (Pss of all its processes)",
                wanted: "< 15",
                measured: of("idle", "pss_mib"),
                shown: |value| format!("{value:.1}"),
                met: |value| value < 15.0,
            },
            // Without this, the fastest recorder would be one that records nothing.
            Goal {
                what: "flight64: MiB on disk per round",
                wanted: "> 0",
                measured: of("flight64", "recorded_mib"),
                shown: |value| format!("{value:.1}"),
                met: |value| value > 0.0,
            },
        ]
    }

    fn measured(&self, workload: &str) -> impl Iterator<Item = &Series> {
        let found = self.workloads.iter().find(|(name, _)| *name == workload);
        let series = found.map_or(&[][..], |(_, series)| series.as_slice());
        series.iter().filter(|series| series.names().next().is_some())
    }

    fn find(&self, workload: &str, target: &str) -> Option<&Series> {
        self.measured(workload).find(|series| series.target == target)
    }

    // What the relay adds to the direct connection, round by round.
    fn added(&self, workload: &str, series: &Series, figure: &str) -> Vec<f64> {
        match self.find(workload, DIRECT) {
            Some(direct) if series.target != DIRECT => series.above(direct, figure),
            _ => Vec::new(),
        }
    }

    fn added_ratio(&self, series: &Series) -> Option<f64> {
        let raw = self.added("seq", self.find("seq", RAW)?, "median_us");
        median(&ratios(&self.added("seq", series, "median_us"), &raw))
    }

    fn share_of_raw(&self, workload: &str, series: &Series, figure: &str) -> Option<f64> {
        let raw = self.find(workload, RAW)?;
        median(&ratios(series.rounds(figure), raw.rounds(figure))).map(|ratio| ratio * 100.0)
    }
}

fn figure(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.decimals$}"))
}

fn recorded(series: &Series) -> String {
    figure(series.median("recorded_mib").filter(|&mib| mib > 0.0), 1)
}
