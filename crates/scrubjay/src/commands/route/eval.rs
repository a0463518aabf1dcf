//! `scrubjay route eval`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use scrubjay_core::retrieval::measure::{DEPTHS, GradedAnswer, GradedCase, RetrievalMeasures, measure};
use scrubjay_core::retrieval::{RetrievalSettings, ToolIndex};
use scrubjay_core::units::counted;
use scrubjay_tape::clock;
use serde::Serialize;

use super::catalog::Catalog;
use super::tapes::CaseSource;
use super::{cases, tapes};
use crate::cli::Global;
use crate::render::{Align, Table, print_json};

const EXAMPLES: &str = "\
Examples:
  scrubjay route eval --from-tapes
  scrubjay route eval --from-tapes --compare bm25
  scrubjay route eval --catalog catalog.json --cases cases.jsonl --limit 5";

/// Measure how well the right tools are found for tasks, without a model
///
/// The catalog is `[{"backend": …, "tools": [{"name", "description", "inputSchema"}]}]`, with tools as servers list
/// them. A case is a line `{"query": …, "expected": ["backend/tool", …]}`; an empty list means that no tool fits the
/// task, so that none should be chosen. --from-tapes takes both from this installation's recordings: the tasks, and the
/// calls that carried them out.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EvalArgs {
    /// The catalog file: the tools to choose from
    #[arg(long, value_name = "FILE", required_unless_present = "from_tapes")]
    catalog: Option<PathBuf>,
    /// The file of cases: tasks with the expected tools
    #[arg(long, value_name = "FILE", required_unless_present = "from_tapes", conflicts_with = "from_tapes")]
    cases: Option<PathBuf>,
    /// Take the tasks, and without --catalog the tools, from recordings
    #[arg(long)]
    from_tapes: bool,
    /// The method to find tools with
    #[arg(long, value_enum, default_value_t = Setting::Full)]
    setting: Setting,
    /// A second method, to compare with
    #[arg(long, value_enum, value_name = "SETTING")]
    compare: Option<Setting>,
    /// The length of the shortlist that a model would get
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
}

/// A way to find tools.
#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Setting {
    /// As `serve` does it: weighted fields, stems, synonyms, similar spellings
    Full,
    /// Plain BM25 over name and description
    Bm25,
}

impl Setting {
    fn settings(self) -> RetrievalSettings {
        match self {
            Self::Full => RetrievalSettings::full(),
            Self::Bm25 => RetrievalSettings::bm25(),
        }
    }
}

#[derive(Serialize)]
struct Report {
    backends: usize,
    tools: usize,
    limit: u16,
    /// The tapes that the cases come from, with --from-tapes.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_tapes: Option<CaseSource>,
    /// Tokens of the whole catalog, by estimate.
    tokens_all: usize,
    settings: Vec<Graded>,
}

#[derive(Serialize)]
struct Graded {
    setting: Setting,
    #[serde(flatten)]
    measures: RetrievalMeasures,
    build_us: u64,
    query_us_p50: u64,
    query_us_p99: u64,
    /// Tokens of a shortlist, by estimate, on average.
    tokens_shortlist: usize,
}

pub(crate) fn run(global: &Global, args: &EvalArgs) -> anyhow::Result<ExitCode> {
    let (catalog, cases, source) = read(global, args)?;
    let settings = std::iter::once(args.setting).chain(args.compare);
    let report = Report {
        backends: catalog.backends,
        tools: catalog.tools.len(),
        limit: args.limit,
        from_tapes: source,
        tokens_all: catalog.tokens.iter().sum(),
        settings: settings.map(|setting| grade(&catalog, &cases, setting, args.limit.into())).collect(),
    };
    if global.json {
        print_json(&report)?
    } else {
        print(&report)?
    }
    Ok(ExitCode::SUCCESS)
}

fn read(global: &Global, args: &EvalArgs) -> anyhow::Result<(Catalog, Vec<GradedCase>, Option<CaseSource>)> {
    let catalog = args.catalog.as_deref().map(Catalog::read).transpose()?;
    match (catalog, &args.cases) {
        (Some(catalog), Some(path)) => {
            let cases = cases::read(path, &catalog)?;
            Ok((catalog, cases, None))
        }
        (catalog, _) => {
            let home = global.data(&mut Vec::new())?;
            let (catalog, cases, source) = tapes::read(&home, catalog)?;
            Ok((catalog, cases, Some(source)))
        }
    }
}

fn grade(catalog: &Catalog, cases: &[GradedCase], setting: Setting, limit: usize) -> Graded {
    let begun = clock::now().instant;
    let index = ToolIndex::new(&catalog.tools, setting.settings());
    let build_us = micros(begun.elapsed());
    let mut times = Vec::with_capacity(cases.len());
    let mut answers = Vec::with_capacity(cases.len());
    let mut tokens = 0;
    // The measures are taken at fixed depths, even if the shortlist is shorter.
    let depth = limit.max(DEPTHS.into_iter().max().unwrap_or_default());
    for case in cases {
        let begun = clock::now().instant;
        // One search serves the measures at all depths and the shortlist.
        let shortlist = index.search(&case.query, depth);
        times.push(micros(begun.elapsed()));
        tokens += shortlist.hits.iter().take(limit).map(|hit| catalog.tokens[hit.tool]).sum::<usize>();
        answers.push(GradedAnswer::new(&shortlist, case, |tool| &catalog.names[tool]));
    }
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    Graded {
        setting,
        measures: measure(&answers),
        build_us,
        query_us_p50: at(50),
        query_us_p99: at(99),
        tokens_shortlist: tokens / cases.len(),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn print(report: &Report) -> anyhow::Result<()> {
    let first = &report.settings[0].measures;
    let mut note = Table::note();
    if let Some(source) = &report.from_tapes {
        let rest = if source.is_all { "" } else { "; older ones were left out" };
        note.line(&format!(
            "from {} on {}{rest}",
            counted(source.tasks, "task"),
            counted(source.tapes, "tape")
        ))?;
    }
    note.line(&format!(
        "{} of {}; {} with a tool that fits, {} without",
        counted(report.tools, "tool"),
        counted(report.backends, "backend"),
        counted(first.served, "case"),
        first.unserved
    ))?;
    let names: Vec<String> =
        report.settings.iter().map(|s| format!("{:?}", s.setting).to_lowercase()).collect();
    let columns = names.iter().map(|name| (name.as_str(), Align::Right));
    let columns: Vec<(&str, Align)> = std::iter::once(("MEASURE", Align::Left)).chain(columns).collect();
    let mut table = Table::new(&columns);
    let mut row = |name: &str, value: &dyn Fn(&Graded) -> String| {
        let values: Vec<String> = report.settings.iter().map(value).collect();
        let cells: Vec<&str> = std::iter::once(name).chain(values.iter().map(String::as_str)).collect();
        table.row(false, &cells);
    };
    for (i, depth) in DEPTHS.iter().enumerate() {
        row(&format!("recall@{depth}"), &|graded| format!("{:.3}", graded.measures.recall[i]));
    }
    row("MRR", &|graded| format!("{:.3}", graded.measures.mrr));
    row("NDCG@10", &|graded| format!("{:.3}", graded.measures.ndcg10));
    row("acts if a tool fits", &|graded| share(graded.measures.acts, graded.measures.served));
    row("abstains if none fits", &|graded| share(graded.measures.abstains, graded.measures.unserved));
    row("time of a query, p50", &|graded| format!("{} µs", graded.query_us_p50));
    row("time of a query, p99", &|graded| format!("{} µs", graded.query_us_p99));
    row("time to read the catalog", &|graded| format!("{} µs", graded.build_us));
    row("tokens, all tools", &|_| format!("~{}", report.tokens_all));
    row(&format!("tokens, best {}", report.limit), &|graded| format!("~{}", graded.tokens_shortlist));
    table.print()
}

/// Writes a share, or - if there are no cases.
fn share(part: f64, of: usize) -> String {
    if of == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part) }
}
