//! The binary: the allocator, and the command of the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Records are read, called, and written by different threads, which would contend for the locks of
/// the system allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(tidegate_cli::main_with(std::env::args_os().collect(), std::env::current_exe().ok()))
}
