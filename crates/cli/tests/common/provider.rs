//! A service that misbehaves as told.

use std::thread;
use std::time::{Duration, Instant};

use tidegate_chaos::{Chaos, Config, FaultKind, FaultRule, Handle, spec};

/// A server of one thread, with the same seed every time.
pub(crate) fn chaos(config: Config) -> Handle {
    Chaos::start(Config { threads: 1, seed: 1, ..config }).unwrap()
}

/// One kind of fault.
pub(crate) fn fault(kind: FaultKind, when: &str) -> FaultRule {
    FaultRule { kind, when: spec::when(when).unwrap() }
}

/// Waits until the server has been asked so often.
pub(crate) fn until_asked(server: &Handle, requests: u64) {
    let began = Instant::now();
    while server.stats().requests < requests {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", server.stats());
        thread::sleep(Duration::from_millis(1));
    }
}
