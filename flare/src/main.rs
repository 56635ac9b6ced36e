//! The `flare` binary: wiring, signals and exit codes.
//!
//! Standard output carries only what the user asked to see (help, the version); everything else goes to stderr. No socket is
//! open before the engine is ready, and no thread is left when the process ends in order.

mod cli;
mod error;
mod run;
mod signals;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use cli::{Cli, Command, LogFormat};

fn main() -> ExitCode {
    helios::device::host::openmp::bound_spinning();
    let Command::Run(options) = Cli::parse().command;
    start_log(options.log_format);
    match run::run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flare: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn start_log(format: LogFormat) {
    let filter = EnvFilter::try_from_env("FLARE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let is_terminal = std::io::stderr().is_terminal();
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(is_terminal);
    match format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().init(),
    }
}
