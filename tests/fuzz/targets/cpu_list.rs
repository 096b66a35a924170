//! `sys/devices/system/cpu/online`.
#![no_main]

use nodelet::host::cpu;

libfuzzer_sys::fuzz_target!(|text: &str| {
    for cpu in [0, 1, 7, 4095, u64::MAX] {
        let _ = cpu::is_listed(text, cpu);
    }
});
