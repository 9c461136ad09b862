//! The `isonorm` command; everything is in the library, so that its readers can be fuzzed.

use std::process::ExitCode;

use isonorm_cli::LineAllocator;

#[global_allocator]
static ALLOCATOR: LineAllocator = LineAllocator;

fn main() -> ExitCode {
    isonorm_cli::main(std::env::args_os())
}
