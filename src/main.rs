//! `nodelet`: see `README.md`, or `nodelet --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    nodelet::cli::main(std::env::args_os().skip(1))
}
