//! `scrubjay sample-server`: the small server that the demo and the tests talk to.

use std::process::ExitCode;

use clap::Args;

/// Serve a few sample tools on standard input and output
#[derive(Debug, Args)]
pub(crate) struct SampleServerArgs {}

pub(crate) fn run(_: &SampleServerArgs) -> anyhow::Result<ExitCode> {
    let served =
        super::runtime()?.block_on(scrubjay_tools::serve_sample(tokio::io::stdin(), tokio::io::stdout()));
    served?;
    // Without waiting: the thread that reads standard input may block for ever.
    std::process::exit(0)
}
