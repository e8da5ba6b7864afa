//! What must hold for a manifest of any bytes at all.
//!
//! The fuzzer and the property tests of the engine call the same function.

use tidegate_pipeline::manifest::{Policy, from_bytes};

/// Reads `data` as a manifest. What comes out is a policy in its bounds, or a report with a
/// message, a help and a place for each problem, fit to be shown on a terminal.
pub fn check(data: &[u8]) {
    match from_bytes("fuzz", data) {
        Ok(manifest) => {
            let call = Policy::from(&manifest).call;
            assert!(call.attempts_max >= 1);
            assert!(call.backoff.base() <= call.backoff.cap());
            assert!(manifest.pipeline.retry_policy.deadline_seconds > 0.0);
        }
        Err(rejection) => {
            let lines = data.split(|byte| *byte == b'\n').count();
            assert!(rejection.count() > 0);
            for problem in rejection.diagnostics() {
                assert!(!problem.message.is_empty() && !problem.help.is_empty(), "{problem:?}");
                assert!(problem.line <= lines, "{problem:?}");
            }
            let report = rejection.render(false);
            assert!(!report.contains(|c: char| c.is_control() && c != '\n'), "{report:?}");
        }
    }
}
