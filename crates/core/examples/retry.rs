//! One call whose server answers 503 twice, asks for a pause of 2 seconds, and then answers.
//!
//! ```sh
//! cargo run -p tidegate-core --example retry
//! ```
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use tidegate_core::call::{Call, CallPolicy, Next};
use tidegate_core::classify::Classifier;
use tidegate_core::hint::{self, HintProfile};
use tidegate_core::retry::budget::{Budget, BudgetConfig};
use tidegate_core::signal::Signal;
use tidegate_core::{Mono, Rng, Wall};

fn main() {
    let answers: [(u16, &[(&str, &str)]); 3] = [(503, &[]), (503, &[("Retry-After", "2")]), (200, &[])];
    let (classifier, policy) = (Classifier::default(), CallPolicy::default());
    let (mut call, mut budget) = (Call::new(), Budget::new(&BudgetConfig::default()));
    // Time and chance are arguments: this runs in virtual time, and the same seed gives the same waits.
    let (mut now, mut chance) = (Mono::ZERO, Rng::new(7));
    for (status, headers) in answers {
        call.send(&policy, now);
        let headers = headers.iter().map(|(name, value)| (*name, *value));
        let hints = hint::read(headers, Wall::from_secs(1_794_718_800), &HintProfile::default());
        let verdict = classifier.classify(&Signal::Http { status, finding: None }, &hints, now);
        match call.next(&policy, &verdict, now, &mut chance, &mut budget) {
            Next::RetryAt(at) => {
                println!("{status} {}: retry after {:.2?}", verdict.code, at.since(now));
                assert!(verdict.until().is_none_or(|until| at >= until), "earlier than the server asked");
                now = at;
            }
            next => println!("{status} {}: {next:?} after {} attempts", verdict.code, call.attempts()),
        }
    }
    assert_eq!(call.attempts(), 3);
}
