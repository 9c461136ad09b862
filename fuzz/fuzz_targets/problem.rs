//! Problem strings: parse, print, parse, plan and explain.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| isonorm_cli::fuzz::problem(data));
