//! Waits that a test skips. A program of its own, because they are skipped for a whole process.

use std::time::Duration;

use tidegate_client::lane::{LaneHandle, LaneKey, skip_waits, skipped};
use tidegate_core::lane::LaneConfig;
use tidegate_core::limit::LimitConfig;

const HOUR: Duration = Duration::from_secs(3600);

/// A call is on the wire, and another one waits for its place. Nothing is to be skipped then: the deadline of the
/// one that waits is no wait that ends.
#[tokio::test]
async fn a_deadline_is_not_what_is_waited_for() {
    skip_waits(true);
    let limit = LimitConfig { in_flight_max: 1, learn: false, ..LimitConfig::default() };
    let config = LaneConfig { limit, ..LaneConfig::default() };
    let clock = tidegate_client::lane::Clock::system();
    let lane = LaneHandle::new(LaneKey::of_prefix("mem:", ""), &config, clock);
    let first = lane.acquire(None).await.unwrap();
    let by = clock.mono() + HOUR;
    let waiting = tokio::spawn({
        let lane = lane.clone();
        async move { lane.acquire(Some(by)).await.map(drop) }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(first);
    assert_eq!(waiting.await.unwrap(), Ok(()));
    assert!(skipped() < Duration::from_secs(1), "{:?}", skipped());

    // A wait is skipped, and then the deadline has passed.
    let taken = lane.acquire(None).await.unwrap();
    let (late, ()) = tokio::join!(lane.acquire(Some(by)), clock.sleep_until(by));
    assert!(late.is_err() && clock.mono() >= by && skipped() < 2 * HOUR);
    drop(taken);
}
