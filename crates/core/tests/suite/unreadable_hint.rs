//! A refusal that says nothing readable about when to return is followed by the record's own
//! backoff, not by an attempt at once.

use core::time::Duration;

use tidegate_core::call::{Call, CallPolicy, Next, ThrottleWait};
use tidegate_core::classify::Classifier;
use tidegate_core::hint::{self, HintProfile};
use tidegate_core::lane::{Admit, Lane, LaneConfig};
use tidegate_core::retry::{Backoff, Jitter};
use tidegate_core::signal::Signal;
use tidegate_core::{Mono, Rng, Wall};

/// The waits of one record whose every attempt is refused with this header, until it is given up.
fn waits(status: u16, header: Option<&str>) -> Vec<Duration> {
    let backoff = Backoff::new(Duration::from_secs(1), 2.0, Duration::from_secs(60), Jitter::None);
    let policy =
        CallPolicy { attempts_max: 4, backoff, throttle_wait: ThrottleWait::Lane, ..CallPolicy::default() };
    let (mut lane, mut call, mut rng) = (Lane::new(&LaneConfig::default()), Call::new(), Rng::new(1));
    let (mut now, mut waits) = (Mono::ZERO, Vec::new());
    loop {
        let permit = match lane.admit(now) {
            Admit::Go(permit) => permit,
            Admit::Wait(at) => {
                now = at;
                continue;
            }
            other => panic!("{other:?}"),
        };
        call.send(&policy, now);
        let headers = header.map(|value| ("Retry-After", value));
        let hints = hint::read(headers, Wall::from_secs(1_800_000_000), &HintProfile::default());
        let verdict = Classifier::default().classify(&Signal::Http { status, finding: None }, &hints, now);
        lane.settle(permit, &verdict, &hints, now);
        match lane.next(&mut call, &policy, &verdict, now, &mut rng) {
            Next::RetryAt(at) => {
                waits.push(at.since(now));
                now = at;
            }
            Next::GiveUp(_) => return waits,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_cannot_be_read_is_followed_by_the_backoff() {
    let backoff = [1, 2, 4].map(Duration::from_secs);
    for header in [None, Some("+2"), Some("-5"), Some("1e9"), Some("soon"), Some("")] {
        for status in [429, 503] {
            assert_eq!(waits(status, header), backoff, "{status} {header:?}");
        }
    }
}

/// A refusal with a wait costs no attempt: it ends with the deadline of 30 s, as a dead letter and not put aside
/// for ever.
#[test]
fn what_can_be_read_is_obeyed_until_the_deadline() {
    // The lane itself waits a little longer each time.
    assert_eq!(waits(429, Some("2")), [Duration::from_secs(2); 10]);
    assert_eq!(waits(429, Some("1")), [Duration::from_secs(1); 23], "20 are free, 4 count");
    assert_eq!(waits(503, Some("2")), [3, 3, 3].map(Duration::from_secs), "a failure counts");
}
