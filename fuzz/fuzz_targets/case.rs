//! Cases of the conformance runner: parse, print, parse, and run when small.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| isonorm_cli::fuzz::case(data));
