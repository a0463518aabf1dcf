//! The official conformance suite, against the gateway with the suite's own fixture behind it.

use std::process::Command;

use super::peers::peers;
use super::rig::{Served, fixture, repository, scratch};

#[test]
#[ignore = "needs peers"]
fn both_requirement_sets_pass() {
    let peers = peers();
    let scratch = scratch();
    let served = Served::start(&scratch.path().join("data"), &[], &fixture(&[]));
    let mut suite = Command::new("timeout");
    suite.args(["--kill-after=5", "150"]).arg(repository().join("scripts/run-conformance"));
    suite.arg(format!("http://{}/mcp", served.address)).arg(scratch.path().join("out"));
    let output = suite.env("MCP_PEERS", peers).output().expect("coreutils' timeout is installed");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{report}", output.status);
    for revision in ["2025-11-25", "2026-07-28"] {
        assert!(report.contains(&format!("{revision}: all required scenarios pass")), "{report}");
    }
    // All checks, not only the required ones, because this fixture supports all of them.
    assert!(!report.contains("  FAILURE "), "{report}");
}
