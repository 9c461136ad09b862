//! The reader of benchmark records, and what is made of them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| isonorm_cli::fuzz::record(data));
