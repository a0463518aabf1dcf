//! Cases from this installation's own tapes: tasks, and the calls that carried them out.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use scrubjay_core::retrieval::measure::GradedCase;
use scrubjay_core::tasks_on_tape::TaskOnTape;
use scrubjay_core::units::counted;
use scrubjay_tape::home::Home;
use scrubjay_tape::tasks_on_tape::{self, ReadLimits};
use serde::Serialize;

use super::catalog::Catalog;

/// How much is read: more than `serve` reads in the background, because here a person waits for the answer.
const LIMITS: ReadLimits =
    ReadLimits { tapes: 100_000, bytes: 4 << 30, time: Duration::from_secs(120), found: 50_000 };

/// The tapes that cases come from.
#[derive(Serialize)]
pub(super) struct CaseSource {
    /// How many tapes were read, the newest first.
    pub(super) tapes: usize,
    /// How many tasks on them were carried out.
    pub(super) tasks: usize,
    /// Whether all tapes were read.
    pub(super) is_all: bool,
}

/// Reads cases from tapes; the tools, too, if no catalog is given.
pub(super) fn read(
    home: &Home,
    given: Option<Catalog>,
) -> anyhow::Result<(Catalog, Vec<GradedCase>, CaseSource)> {
    let found = tasks_on_tape::read(home, LIMITS, given.is_none())?;
    let tapes = home.tapes();
    ensure!(
        !found.tasks.is_empty(),
        "no task was carried out on {} in {}: ask for some with `orchestrate_task` or \
         `agentify/orchestrateTask` through `scrubjay serve`, or give --catalog and --cases",
        counted(found.tapes, "tape"),
        tapes.display()
    );
    let catalog = given.unwrap_or_else(|| Catalog::of_lists(&found.tools));
    let source = CaseSource { tapes: found.tapes, tasks: found.tasks.len(), is_all: found.is_all };
    let cases = cases(found.tasks.into_iter().map(|(_, task)| task), &catalog);
    ensure!(
        !cases.is_empty(),
        "none of {} on the tapes in {} was carried out by a tool of the catalog: give one that has \
         its tools with --catalog",
        counted(source.tasks, "task"),
        tapes.display()
    );
    Ok((catalog, cases, source))
}

/// Makes a case of each task. A task that was given several times is one case, and expects all tools that carried it out.
fn cases(tasks: impl Iterator<Item = TaskOnTape>, catalog: &Catalog) -> Vec<GradedCase> {
    let mut by_query: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for task in tasks {
        let names = task.calls.iter().map(|(backend, tool)| format!("{backend}/{tool}"));
        let known: Vec<String> = names.filter(|name| catalog.names.contains(name)).collect();
        // Its tools are not all in the catalog any more, so the case could not be passed.
        if known.len() < task.calls.len() {
            continue;
        }
        let expected = by_query.entry(task.query).or_default();
        for name in known {
            if !expected.contains(&name) {
                expected.push(name);
            }
        }
    }
    by_query.into_iter().map(|(query, expected)| GradedCase { query, expected }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_with_the_same_query_are_one_case() {
        let catalog = Catalog { names: vec!["a/t".to_owned(), "a/u".to_owned()], ..Catalog::default() };
        let task = |query: &str, tools: &[&str]| TaskOnTape {
            query: query.to_owned(),
            calls: tools.iter().map(|tool| ("a".to_owned(), (*tool).to_owned())).collect(),
            failed: false,
        };
        let tasks =
            [task("q", &["t"]), task("gone", &["x"]), task("q", &["u", "t"]), task("half", &["t", "x"])];
        let expected =
            GradedCase { query: "q".to_owned(), expected: vec!["a/t".to_owned(), "a/u".to_owned()] };
        assert_eq!(cases(tasks.into_iter(), &catalog), [expected]);
    }
}
