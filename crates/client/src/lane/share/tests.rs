use crate::lane::{Clock, LaneHandle, LaneKey, LanePermit, LaneRole, LaneScope, LaneStates, Lanes};
use std::path::Path;
use std::time::Duration;
use tidegate_core::hint::Hints;
use tidegate_core::lane::LaneConfig;
use tidegate_core::limit::LimitConfig;
use tidegate_core::{Code, Verdict, VerdictKind};
use tokio::time::{Instant, sleep, timeout};

/// The lane of one process, as far as others can tell.
fn lane(dir: &Path, limit: LimitConfig) -> LaneHandle {
    let config = LaneConfig { limit, ..LaneConfig::default() };
    let clock = Clock::system();
    let lanes = Lanes::new(&config, clock)
        .keeping(LaneStates::open(&dir.join("state"), clock))
        .sharing(LaneScope::Machine(Some(dir.join("meet"))));
    lanes.get(&LaneKey::of_url(&"https://a.test/".parse().unwrap(), ""))
}

fn done(permit: LanePermit) {
    permit.settle(&Verdict::DONE, &Hints::default(), |_, _| ());
}

async fn becomes(lane: &LaneHandle, role: LaneRole) {
    let reached = async {
        while lane.snapshot().role != role {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(20), reached).await.unwrap_or_else(|_| panic!("{:?}", lane.snapshot()));
}

/// An owner and a member that have made a call each.
async fn pair(dir: &Path, limit: LimitConfig) -> (LaneHandle, LaneHandle) {
    let (owner, member) = (lane(dir, limit), lane(dir, limit));
    done(owner.acquire(None).await.unwrap());
    done(member.acquire(None).await.unwrap());
    becomes(&owner, LaneRole::Owner { members: 1 }).await;
    becomes(&member, LaneRole::Member).await;
    (owner, member)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_one_pace_and_count_their_own_calls() {
    let dir = tempfile::tempdir().unwrap();
    let limit = LimitConfig { rate_max: Some(500.0), burst: Some(1.0), ..LimitConfig::default() };
    let (owner, member) = pair(dir.path(), limit).await;
    let start = Instant::now();
    let calls = |lane: LaneHandle| async move {
        for _ in 0..100 {
            done(lane.acquire(None).await.unwrap());
        }
    };
    tokio::join!(calls(owner.clone()), calls(member.clone()));
    // 200 calls at 500 a second; each alone would need half of that.
    assert!(start.elapsed() >= Duration::from_millis(380), "{:?}", start.elapsed());
    for lane in [&owner, &member] {
        let snapshot = lane.snapshot();
        assert_eq!((snapshot.counts.started, snapshot.counts.sent, snapshot.counts.settled), (101, 101, 101));
        assert_eq!((snapshot.in_flight, snapshot.waiting), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_asks_one_process_for_all_do() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, member) = pair(dir.path(), LimitConfig::default()).await;
    for (asked, other) in [(&member, &owner), (&owner, &member)] {
        let permit = asked.acquire(None).await.unwrap();
        let until = asked.clock().mono() + Duration::from_millis(300);
        let told = Instant::now();
        let verdict = Verdict {
            kind: VerdictKind::Throttled { until: Some(until) },
            code: Code::RATE_LIMITED,
            status: Some(429),
        };
        let hints = Hints { retry_after: Some(Duration::from_millis(300)), ..Hints::default() };
        permit.settle(&verdict, &hints, |_, _| ());
        // One report later the other knows.
        timeout(Duration::from_secs(10), async {
            while other.snapshot().gate <= other.clock().mono() && told.elapsed().as_millis() < 300 {
                sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .unwrap();
        done(other.acquire(None).await.unwrap());
        assert!(told.elapsed() >= Duration::from_millis(300), "{:?}", told.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spent_quota_refuses_the_calls_of_all() {
    for wait in [Some(Duration::from_secs(3600)), None] {
        let dir = tempfile::tempdir().unwrap();
        let (owner, member) = pair(dir.path(), LimitConfig::default()).await;
        let permit = owner.acquire(None).await.unwrap();
        let until = wait.map(|wait| owner.clock().mono() + wait);
        let spent = Verdict {
            kind: VerdictKind::QuotaSpent { until },
            code: Code::QUOTA_EXHAUSTED,
            status: Some(429),
        };
        permit.settle(&spent, &Hints::default(), |_, _| ());
        assert!(owner.acquire(None).await.is_err());
        let refused = timeout(Duration::from_secs(20), async {
            while let Ok(permit) = member.acquire(None).await {
                done(permit);
            }
        });
        refused.await.unwrap();
        // Who takes over does not forget it.
        owner.close();
        becomes(&member, LaneRole::Owner { members: 0 }).await;
        assert!(member.acquire(None).await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_comes_for_a_call_of_the_owner_before_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, member) = pair(dir.path(), LimitConfig::default()).await;
    let permit = member.acquire(None).await.unwrap();
    owner.close();
    becomes(&member, LaneRole::Owner { members: 0 }).await;
    let until = member.clock().mono() + Duration::from_secs(60);
    let kind = VerdictKind::Throttled { until: Some(until) };
    let verdict = Verdict { kind, code: Code::RATE_LIMITED, status: Some(429) };
    permit.settle(&verdict, &Hints::default(), |_, _| ());
    assert!(member.snapshot().gate >= until);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_with_fewer_calls_at_once_keeps_to_them_and_burns_no_permits() {
    let dir = tempfile::tempdir().unwrap();
    let owner = lane(dir.path(), LimitConfig::default());
    done(owner.acquire(None).await.unwrap());
    let member = lane(dir.path(), LimitConfig { in_flight_max: 2, ..LimitConfig::default() });
    let (first, second) = (member.acquire(None).await.unwrap(), member.acquire(None).await.unwrap());
    becomes(&member, LaneRole::Member).await;
    let waiting = tokio::spawn({
        let member = member.clone();
        async move { member.acquire(None).await.map(done) }
    });
    while member.snapshot().waiting == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    // Nothing is asked for that could not be used.
    let before = owner.with_core(|core, _| core.limiter().in_flight());
    sleep(Duration::from_millis(200)).await;
    assert_eq!((before, owner.with_core(|core, _| core.limiter().in_flight())), (2, 2));
    assert!(!waiting.is_finished());
    done(first);
    waiting.await.unwrap().unwrap();
    done(second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_takes_over_when_the_owner_ends_and_no_call_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let limit = LimitConfig { in_flight_max: 2, ..LimitConfig::default() };
    let (owner, member) = pair(dir.path(), limit).await;
    // The owner has all permits, so the member's call waits for it.
    let (first, second) = (owner.acquire(None).await.unwrap(), owner.acquire(None).await.unwrap());
    let waiting = tokio::spawn({
        let member = member.clone();
        async move { member.acquire(None).await.map(done) }
    });
    while member.snapshot().waiting == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    owner.close();
    drop((first, second));
    becomes(&member, LaneRole::Owner { members: 0 }).await;
    waiting.await.unwrap().unwrap();
    let third = lane(dir.path(), limit);
    done(third.acquire(None).await.unwrap());
    becomes(&third, LaneRole::Member).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_of_a_member_that_ends_are_free() {
    let dir = tempfile::tempdir().unwrap();
    let limit = LimitConfig { in_flight_max: 2, ..LimitConfig::default() };
    let owner = lane(dir.path(), limit);
    done(owner.acquire(None).await.unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let path = dir.path().to_owned();
    let held = runtime.spawn(async move {
        let member = lane(&path, limit);
        let permits = [member.acquire(None).await.unwrap(), member.acquire(None).await.unwrap()];
        becomes(&member, LaneRole::Member).await;
        permits.into_iter().for_each(std::mem::forget);
        std::mem::forget(member);
    });
    held.await.unwrap();
    // The process ends with both permits.
    runtime.shutdown_background();
    let permit = timeout(Duration::from_secs(20), owner.acquire(None)).await.unwrap().unwrap();
    done(permit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_they_cannot_meet_each_goes_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("meet"), "a file").unwrap();
    let alone = lane(dir.path(), LimitConfig::default());
    done(alone.acquire(None).await.unwrap());
    assert_eq!(alone.snapshot().role, LaneRole::Alone);
}
