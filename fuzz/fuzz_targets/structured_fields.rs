#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::checks::structured_fields(data));
