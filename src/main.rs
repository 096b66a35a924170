//! `nodelet`: see `README.md`, or `nodelet --help`.

use std::process::ExitCode;

/// musl's own maps pages and unmaps them again for each renewal of the Lease: twelve system
/// calls where six will do.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    nodelet::cli::main(std::env::args_os().skip(1))
}
