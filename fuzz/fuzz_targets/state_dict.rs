//! State dicts: `.safetensors` as `fold` reads it, and the layers' own in JSON.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| isonorm_cli::fuzz::state_dict(data));
