//! Runs the target that LOLIGO_FUZZ_TARGET names.
#![no_main]

use std::sync::OnceLock;

static TARGET: OnceLock<fuzz::Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("LOLIGO_FUZZ_TARGET").unwrap_or_else(|_| "message".to_owned());
        *fuzz::TARGETS.iter().find(|t| t.name == name).expect("LOLIGO_FUZZ_TARGET names a target")
    });
    (target.run)(data);
});
