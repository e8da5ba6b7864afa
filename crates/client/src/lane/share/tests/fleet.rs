//! What only machines of a fleet can meet with: a server that is gone, an owner that is killed, two owners.

use super::*;
use crate::lane::share::ShareMode;
use crate::lane::share::fleet::testing;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_core::breaker::BreakerState;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

macro_rules! fleet_conformance {
    ($($test:ident),* $(,)?) => {
        #[cfg(feature = "redis")]
        mod at_redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(super::Meeting::redis(), 6379).await;
            })*
        }
        #[cfg(feature = "postgres")]
        mod at_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(super::Meeting::postgres(), 5432).await;
            })*
        }
        #[cfg(feature = "nats")]
        mod at_nats {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(super::Meeting::nats(), 4222).await;
            })*
        }
    };
}

fleet_conformance! {
    a_member_takes_over_below_the_last_rate_when_the_owner_is_killed,
    what_is_left_at_the_server_is_bounded_and_can_be_forgotten,
    what_a_killed_owner_was_asked_for_is_known_to_the_next_one_on_another_machine,
    an_owner_whose_lane_was_taken_is_fenced_and_becomes_a_member,
    a_process_that_leaves_gives_its_lane_to_another_at_once,
    calls_wait_while_the_server_is_gone_and_go_on_when_it_is_back,
    a_process_goes_on_at_its_share_while_the_server_is_gone,
}

/// A process that can be killed.
struct Killable {
    runtime: Option<Runtime>,
    lane: LaneHandle,
}

impl Killable {
    async fn new(meeting: &Meeting, limit: LimitConfig) -> Killable {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (path, scope) = (meeting.dir.path().to_owned(), meeting.scope());
        let joined = runtime.spawn(async move {
            let lane = lanes(&path, scope, limit).get(&key(&path));
            done(lane.acquire(None).await.unwrap());
            lane
        });
        Killable { lane: joined.await.unwrap(), runtime: Some(runtime) }
    }

    /// Ends it without a last word. Its lane is leaked, as if the process were gone.
    fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        std::mem::forget(self.lane.clone());
    }
}

async fn a_member_takes_over_below_the_last_rate_when_the_owner_is_killed(meeting: Meeting, _: u16) {
    let limit = LimitConfig { rate_max: Some(200.0), burst: Some(20.0), ..LimitConfig::default() };
    let owner = Killable::new(&meeting, limit).await;
    let member = meeting.lane(limit);
    done(member.acquire(None).await.unwrap());
    becomes(&member, LaneRole::Member).await;
    owner.kill();
    becomes(&member, LaneRole::Owner { members: 0 }).await;
    // It has no burst: the owner before has perhaps just used it.
    let start = Instant::now();
    for _ in 0..20 {
        done(member.acquire(None).await.unwrap());
    }
    assert!(start.elapsed() >= Duration::from_millis(80), "{:?}", start.elapsed());
    assert_eq!(member.snapshot().counts.owner_changes, 1);
}

/// Whether an owner has left at the server that a quota is spent.
fn has_saved_quota(lane: &LaneHandle) -> bool {
    let ShareMode::Owner(owner) = &lane.lock().mode else { return false };
    let saved = owner.lease.as_ref().and_then(|lease| lease.saved());
    saved.is_some_and(|saved| saved.promises().quota_until.is_some())
}

async fn what_a_killed_owner_was_asked_for_is_known_to_the_next_one_on_another_machine(
    meeting: Meeting,
    _: u16,
) {
    let owner = Killable::new(&meeting, LimitConfig::default()).await;
    let asked = owner.lane.clone();
    let runtime = owner.runtime.as_ref().unwrap();
    let written = runtime.spawn(async move {
        let permit = asked.acquire(None).await.unwrap();
        let until = Some(asked.clock().mono() + Duration::from_secs(3600));
        let kind = VerdictKind::QuotaSpent { until };
        let spent = Verdict { kind, code: Code::QUOTA_EXHAUSTED, status: Some(429) };
        permit.settle(&spent, &Hints::default(), |_, _| ());
        // Until the server has it.
        let saved = async {
            while !has_saved_quota(&asked) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(20), saved).await.unwrap();
    });
    written.await.unwrap();
    owner.kill();
    // Another machine: no file tells it.
    let scope = meeting.scope();
    let other = tempfile::tempdir().unwrap();
    let next = lanes(other.path(), scope, LimitConfig::default()).get(&key(meeting.dir.path()));
    let refused = timeout(Duration::from_secs(20), next.acquire(None)).await.unwrap();
    assert!(refused.is_err(), "{:?}", next.snapshot());
    assert_eq!(next.snapshot().role, LaneRole::Owner { members: 0 });
}

async fn what_is_left_at_the_server_is_bounded_and_can_be_forgotten(meeting: Meeting, _: u16) {
    let LaneScope::Fleet(fleet) = meeting.scope() else { panic!() };
    let host = key(meeting.dir.path()).host();
    let owner = Killable::new(&meeting, LimitConfig::default()).await;
    let asked = owner.lane.clone();
    let written = owner.runtime.as_ref().unwrap().spawn(async move {
        let permit = asked.acquire(None).await.unwrap();
        // A classifier that bounds nothing, as that of an older version.
        let retry_after = Some(Duration::from_secs(999_999_999));
        let until = retry_after.map(|wait| asked.clock().mono() + wait);
        let kind = VerdictKind::QuotaSpent { until };
        let spent = Verdict { kind, code: Code::QUOTA_EXHAUSTED, status: Some(429) };
        permit.settle(&spent, &Hints { retry_after, ..Hints::default() }, |_, _| ());
        let saved = async {
            while !has_saved_quota(&asked) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(20), saved).await.unwrap();
    });
    written.await.unwrap();
    let ours = async || {
        let mut all = fleet.stored().await.unwrap();
        all.retain(|lane| lane.is_of(&host));
        all
    };
    let [lane] = &ours().await[..] else { panic!("{:?}", ours().await) };
    let last = Clock::system().wall().millis() + 86_400_000;
    assert!(lane.state.not_before().is_some_and(|until| until.millis() <= last), "{lane:?}");
    assert_eq!((lane.state.hint.unwrap().asked_seconds, lane.is_owned), (999_999_999, Some(true)));
    owner.kill();
    let cleared = fleet.clear_stored(Some(&host)).await.unwrap();
    assert_eq!(cleared.len(), 1, "{cleared:?}");
    assert!(ours().await.iter().all(|lane| lane.state.not_before().is_none()), "{:?}", ours().await);
    // Another machine knows nothing of it.
    let other = tempfile::tempdir().unwrap();
    let next = lanes(other.path(), meeting.scope(), LimitConfig::default()).get(&key(meeting.dir.path()));
    done(timeout(Duration::from_secs(20), next.acquire(None)).await.unwrap().unwrap());
}

async fn an_owner_whose_lane_was_taken_is_fenced_and_becomes_a_member(meeting: Meeting, _: u16) {
    let LaneScope::Fleet(fleet) = meeting.scope() else { panic!() };
    let first = meeting.lane(LimitConfig::default());
    done(first.acquire(None).await.unwrap());
    becomes(&first, LaneRole::Owner { members: 0 }).await;
    // Somebody takes the lane although it is held, as after a server has lost its data.
    let id =
        LaneStates::open(&meeting.dir.path().join("state"), Clock::system()).id(&key(meeting.dir.path())).id;
    let taken = testing::take(&fleet, &id).await.unwrap();
    assert!(taken.epoch > taken.epoch_before, "{taken:?}");
    assert!(!taken.renewed_before, "the old epoch is refused");
    assert!(taken.renewed, "the new one is not");
    // The first owner finds out, and the lane is free again when its new owner does not renew.
    let changed = async {
        while first.snapshot().counts.owner_changes == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), changed).await.unwrap();
    done(timeout(Duration::from_secs(20), first.acquire(None)).await.unwrap().unwrap());
}

async fn a_process_that_leaves_gives_its_lane_to_another_at_once(meeting: Meeting, _: u16) {
    let lanes = meeting.lanes(LimitConfig::default());
    let owner = lanes.get(&key(meeting.dir.path()));
    done(owner.acquire(None).await.unwrap());
    let member = meeting.lane(LimitConfig::default());
    done(member.acquire(None).await.unwrap());
    becomes(&member, LaneRole::Member).await;
    lanes.leave().await;
    let LaneScope::Fleet(fleet) = meeting.scope() else { panic!() };
    let id =
        LaneStates::open(&meeting.dir.path().join("state"), Clock::system()).id(&key(meeting.dir.path())).id;
    // The lane was given up before `leave` returned: the next owner is the member, or whoever asks first.
    let next = testing::owner(&fleet, &id).await.unwrap();
    assert_ne!(Some(next), testing::inbox(&lanes).await);
}

/// A way to the server that can be cut.
struct Cable {
    cut: Arc<(AtomicBool, Notify)>,
    port: u16,
}

impl Cable {
    async fn to(port: u16) -> Cable {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cut: Arc<(AtomicBool, Notify)> = Arc::default();
        let cable = Cable { cut: cut.clone(), port: listener.local_addr().unwrap().port() };
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let cut = cut.clone();
                tokio::spawn(async move {
                    let lost = cut.1.notified();
                    if cut.0.load(Ordering::Acquire) {
                        return;
                    }
                    let Ok(mut far) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        () = lost => {}
                    }
                });
            }
        });
        cable
    }

    fn cut(&self) {
        self.cut.0.store(true, Ordering::Release);
        self.cut.1.notify_waiters();
    }

    fn mend(&self) {
        self.cut.0.store(false, Ordering::Release);
    }
}

/// The meeting, through a cable.
async fn through_cable(meeting: &Meeting, usual: u16, when: WhenUnreachable) -> (Meeting, Cable) {
    let mut url: url::Url = meeting.server.as_deref().unwrap().parse().unwrap();
    let cable = Cable::to(url.port().unwrap_or(usual)).await;
    url.set_port(Some(cable.port)).unwrap();
    (Meeting { when_unreachable: when, ..Meeting::at(url.into()) }, cable)
}

async fn reaches(lane: &LaneHandle, unreachable: bool) {
    let reached = async {
        while lane.snapshot().unreachable != unreachable {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), reached).await.unwrap_or_else(|_| panic!("{:?}", lane.snapshot()));
}

async fn calls_wait_while_the_server_is_gone_and_go_on_when_it_is_back(meeting: Meeting, usual: u16) {
    let (meeting, cable) = through_cable(&meeting, usual, WhenUnreachable::Stop).await;
    let (owner, member) = meeting.pair(LimitConfig::default()).await;
    cable.cut();
    for lane in [&owner, &member] {
        reaches(lane, true).await;
        assert!(lane.unreachable().is_some_and(|server| !server.contains('@')));
    }
    let waiting = [&owner, &member].map(|lane| {
        let lane = lane.clone();
        tokio::spawn(async move { lane.acquire(None).await.map(done) })
    });
    sleep(Duration::from_millis(300)).await;
    assert!(waiting.iter().all(|call| !call.is_finished()));
    cable.mend();
    for call in waiting {
        timeout(Duration::from_secs(30), call).await.unwrap().unwrap().unwrap();
    }
    for lane in [&owner, &member] {
        reaches(lane, false).await;
    }
    let roles = [owner.snapshot().role, member.snapshot().role];
    assert!(roles.contains(&LaneRole::Member), "{roles:?}");
}

async fn a_process_goes_on_at_its_share_while_the_server_is_gone(meeting: Meeting, usual: u16) {
    let (meeting, cable) = through_cable(&meeting, usual, WhenUnreachable::Share).await;
    let limit = LimitConfig { rate_max: Some(100.0), burst: Some(10.0), ..LimitConfig::default() };
    let (owner, member) = meeting.pair(limit).await;
    // Until the owner has told how many they are.
    let told = async {
        while [&owner, &member].iter().any(|lane| lane.lock().processes != 2) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), told).await.unwrap();
    cable.cut();
    for lane in [&owner, &member] {
        reaches(lane, true).await;
    }
    let begin = Instant::now();
    for lane in [&owner, &member] {
        // Half of 100 calls a second, and no burst.
        let start = Instant::now();
        for _ in 0..11 {
            done(timeout(Duration::from_secs(20), lane.acquire(None)).await.unwrap().unwrap());
        }
        assert!(start.elapsed() >= Duration::from_millis(180), "{:?}", start.elapsed());
        assert_eq!(lane.snapshot().role, LaneRole::Alone);
        assert_eq!(lane.unreachable(), None, "its calls do not wait for the server");
    }
    assert!(begin.elapsed() < Duration::from_secs(20));
    cable.mend();
    for lane in [&owner, &member] {
        reaches(lane, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_never_met_the_others_waits() {
    // Nobody listens there.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let url = format!("redis://:hunter2@127.0.0.1:{closed}");
    let meeting = Meeting { when_unreachable: WhenUnreachable::Share, ..Meeting::at(url) };
    let lane = meeting.lane(LimitConfig::default());
    let waiting = tokio::spawn({
        let lane = lane.clone();
        async move { lane.acquire(None).await.map(done) }
    });
    reaches(&lane, true).await;
    assert!(!waiting.is_finished());
    let (reading, _) = lane.reading();
    assert_ne!(reading.breaker, BreakerState::Closed, "patience ends");
    let later = crate::call::given_up(&lane, Duration::from_millis(200)).await;
    assert!(later.said.contains("cannot be reached") && !later.said.contains("hunter2"), "{later}");
    lane.close();
    assert!(waiting.await.unwrap().is_err());
}
