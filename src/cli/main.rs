//! `nodelet`: see `README.md`, or `nodelet --help`.

use std::process::ExitCode;

/// musl's allocator maps and unmaps pages for each renewal of the Lease: twelve system calls
/// instead of six.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    nodelet::cli::main(std::env::args_os().skip(1))
}
