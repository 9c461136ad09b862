//! The `.safetensors` reader.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| isonorm_cli::fuzz::safetensors(data));
