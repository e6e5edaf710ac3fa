#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| uvmsim_fuzz::accelsim(bytes));
