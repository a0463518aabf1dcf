//! Checks whether the configuration can be used.

use scrubjay_config::ConfigError;

use super::{Findings, Installation};

pub(super) fn check(installation: &Installation, findings: &mut Findings) {
    let loaded = match &installation.loaded {
        Ok(loaded) => loaded,
        Err(error) => return tell(error, findings),
    };
    // `serve` checks more than loading does.
    if let Err(error) = loaded.serve_config() {
        tell(&error, findings);
    }
    for notice in &loaded.notices {
        findings.note(notice.clone(), "see docs/CONFIG.md");
    }
    if findings.is_empty() {
        findings.ok("can be used");
    }
}

fn tell(error: &anyhow::Error, findings: &mut Findings) {
    let fix = "correct the file that is named; `scrubjay config show` shows where each value comes from";
    let problems = error.downcast_ref::<ConfigError>().map(|error| &error.problems[..]).unwrap_or_default();
    if problems.is_empty() {
        findings.wrong(format!("{error:#}"), fix);
    }
    problems.iter().for_each(|problem| findings.wrong(problem.to_string(), fix));
}
