//! One suite for all meeting places: a socket, Redis, PostgreSQL and NATS.
//!
//! The servers are those on the standard ports, or those that `TIDEGATE_TEST_REDIS`, `TIDEGATE_TEST_DATABASE`
//! and `TIDEGATE_TEST_NATS` name.

use crate::lane::{
    Clock, Fleet, LaneHandle, LaneKey, LanePermit, LaneRole, LaneScope, LaneStates, Lanes, WhenUnreachable,
};
use crate::secret::Secret;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tidegate_core::hint::Hints;
use tidegate_core::lane::LaneConfig;
use tidegate_core::limit::LimitConfig;
use tidegate_core::{Code, Verdict, VerdictKind};
use tokio::time::{Instant, sleep, timeout};

mod fleet;
mod tls;

/// Where the lanes of one test meet.
struct Meeting {
    dir: TempDir,
    /// The URL of a server; `None` for a socket in the directory.
    server: Option<String>,
    when_unreachable: WhenUnreachable,
}

/// A server for tests.
fn server(variable: &str, usual: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| usual.to_owned())
}

impl Meeting {
    fn socket() -> Meeting {
        let dir = tempfile::tempdir().unwrap();
        Meeting { dir, server: None, when_unreachable: WhenUnreachable::Stop }
    }

    fn at(server: String) -> Meeting {
        Meeting { server: Some(server), ..Meeting::socket() }
    }

    fn redis() -> Meeting {
        Meeting::at(server("TIDEGATE_TEST_REDIS", "redis://127.0.0.1:6379"))
    }

    fn postgres() -> Meeting {
        Meeting::at(server("TIDEGATE_TEST_DATABASE", "postgres://postgres@127.0.0.1/test"))
    }

    fn nats() -> Meeting {
        Meeting::at(server("TIDEGATE_TEST_NATS", "nats://127.0.0.1:4222"))
    }

    /// The same server, and another lane.
    fn anew(&self) -> Meeting {
        Meeting { server: self.server.clone(), ..Meeting::socket() }
    }

    fn scope(&self) -> LaneScope {
        match &self.server {
            None => LaneScope::Machine(Some(self.dir.path().join("meet"))),
            Some(url) => {
                LaneScope::Fleet(Fleet::new(&Secret::new(url.clone()), self.when_unreachable).unwrap())
            }
        }
    }

    /// The lanes of one process, as far as others can tell.
    fn lanes(&self, limit: LimitConfig) -> Lanes {
        lanes(self.dir.path(), self.scope(), limit)
    }

    fn lane(&self, limit: LimitConfig) -> LaneHandle {
        self.lanes(limit).get(&key(self.dir.path()))
    }

    /// An owner and a member that have made a call each.
    async fn pair(&self, limit: LimitConfig) -> (LaneHandle, LaneHandle) {
        let (owner, member) = (self.lane(limit), self.lane(limit));
        done(owner.acquire(None).await.unwrap());
        done(member.acquire(None).await.unwrap());
        becomes(&owner, LaneRole::Owner { members: 1 }).await;
        becomes(&member, LaneRole::Member).await;
        (owner, member)
    }
}

fn lanes(dir: &Path, scope: LaneScope, limit: LimitConfig) -> Lanes {
    let config = LaneConfig { limit, ..LaneConfig::default() };
    let clock = Clock::system();
    Lanes::new(&config, clock).keeping(LaneStates::open(&dir.join("state"), clock)).sharing(scope)
}

/// A service of its own for each test, because they run at the same time.
fn key(dir: &Path) -> LaneKey {
    let name = dir.file_name().unwrap().to_str().unwrap().replace('.', "");
    LaneKey::of_url(&format!("https://{name}.test/").parse().unwrap(), "")
}

macro_rules! conformance {
    ($($test:ident),* $(,)?) => {
        mod at_a_socket {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(super::Meeting::socket()).await;
            })*
        }
        #[cfg(feature = "redis")]
        mod at_redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(super::Meeting::redis()).await;
            })*
        }
        #[cfg(feature = "postgres")]
        mod at_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(super::Meeting::postgres()).await;
            })*
        }
        #[cfg(feature = "nats")]
        mod at_nats {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(super::Meeting::nats()).await;
            })*
        }
    };
}

conformance! {
    two_processes_share_one_pace_and_count_their_own_calls,
    what_the_server_asks_one_process_for_all_do,
    a_spent_quota_refuses_the_calls_of_all,
    a_wait_that_comes_for_a_call_of_the_owner_before_is_kept,
    a_member_with_fewer_calls_at_once_keeps_to_them_and_burns_no_permits,
    a_member_takes_over_when_the_owner_ends_and_no_call_is_lost,
    permits_of_a_member_that_ends_are_free,
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

async fn two_processes_share_one_pace_and_count_their_own_calls(meeting: Meeting) {
    let limit = LimitConfig { rate_max: Some(500.0), burst: Some(1.0), ..LimitConfig::default() };
    let (owner, member) = meeting.pair(limit).await;
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

async fn what_the_server_asks_one_process_for_all_do(meeting: Meeting) {
    let (owner, member) = meeting.pair(LimitConfig::default()).await;
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

async fn a_spent_quota_refuses_the_calls_of_all(meeting: Meeting) {
    for wait in [Some(Duration::from_secs(3600)), None] {
        let meeting = meeting.anew();
        let (owner, member) = meeting.pair(LimitConfig::default()).await;
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

async fn a_wait_that_comes_for_a_call_of_the_owner_before_is_kept(meeting: Meeting) {
    let (owner, member) = meeting.pair(LimitConfig::default()).await;
    let permit = member.acquire(None).await.unwrap();
    owner.close();
    becomes(&member, LaneRole::Owner { members: 0 }).await;
    let until = member.clock().mono() + Duration::from_secs(60);
    let kind = VerdictKind::Throttled { until: Some(until) };
    let verdict = Verdict { kind, code: Code::RATE_LIMITED, status: Some(429) };
    permit.settle(&verdict, &Hints::default(), |_, _| ());
    assert!(member.snapshot().gate >= until);
}

async fn a_member_with_fewer_calls_at_once_keeps_to_them_and_burns_no_permits(meeting: Meeting) {
    let owner = meeting.lane(LimitConfig::default());
    done(owner.acquire(None).await.unwrap());
    let member = meeting.lane(LimitConfig { in_flight_max: 2, ..LimitConfig::default() });
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

async fn a_member_takes_over_when_the_owner_ends_and_no_call_is_lost(meeting: Meeting) {
    let limit = LimitConfig { in_flight_max: 2, ..LimitConfig::default() };
    let (owner, member) = meeting.pair(limit).await;
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
    let third = meeting.lane(limit);
    done(third.acquire(None).await.unwrap());
    becomes(&third, LaneRole::Member).await;
}

async fn permits_of_a_member_that_ends_are_free(meeting: Meeting) {
    let limit = LimitConfig { in_flight_max: 2, ..LimitConfig::default() };
    let owner = meeting.lane(limit);
    done(owner.acquire(None).await.unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (path, scope) = (meeting.dir.path().to_owned(), meeting.scope());
    let held = runtime.spawn(async move {
        let member = lanes(&path, scope, limit).get(&key(&path));
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
    let meeting = Meeting::socket();
    std::fs::write(meeting.dir.path().join("meet"), "a file").unwrap();
    let alone = meeting.lane(LimitConfig::default());
    done(alone.acquire(None).await.unwrap());
    assert_eq!(alone.snapshot().role, LaneRole::Alone);
}
