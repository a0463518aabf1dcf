//! One file for each command; this one only dispatches.

pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod index;
mod ledger;
pub(crate) mod progress;
pub(crate) mod record;
pub(crate) mod redact;
pub(crate) mod route;
pub(crate) mod sample_server;
pub(crate) mod serve;
pub(crate) mod session;
pub(crate) mod tape;
pub(crate) mod trust;
pub(crate) mod wrap;

use std::process::ExitCode;

use crate::cli::{Cli, Command};

pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let global = &cli.global;
    if global.utc {
        crate::render::show_utc();
    }
    match cli.command {
        Command::Demo(args) => demo::run(global, &args),
        Command::Serve(args) => serve::run(global, &args),
        Command::Wrap(args) => wrap::run(global, &args),
        Command::Tape(command) => tape::run(global, &command),
        Command::Record(command) => record::run(global, &command),
        Command::Index(command) => index::run(global, &command),
        Command::Route(command) => route::run(global, &command),
        Command::Session(command) => session::run(global, &command),
        Command::Progress(command) => progress::run(global, command),
        Command::Config(command) => config::run(global, &command),
        Command::Redact(args) => redact::run(global, &args),
        Command::Trust(args) => trust::run(global, &args),
        Command::Doctor(args) => doctor::run(global, &args),
        Command::Completions(args) => completions::run(&args),
        Command::SampleServer(args) => sample_server::run(&args),
    }
}

/// Makes the runtime of a command. It has one thread, because the relay is faster without passing work between threads.
pub(crate) fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
