//! The binary: reads the command line, connects the crates, and turns errors into messages and exit codes.

mod cli;
mod commands;
mod log;
mod pager;
mod render;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse_from(commands::tape::marked_words(std::env::args_os()));
    match commands::run(cli) {
        Ok(code) => code,
        Err(error) => cli::explain(&error),
    }
}
