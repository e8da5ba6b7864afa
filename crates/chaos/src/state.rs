//! The shared state of the server, and the decision on one request.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Wall;
use tidegate_core::time::nanos;
use tidegate_sim::server::ThrottleAnswer;
use tokio::sync::watch;

use super::clock::{Alarm, ChaosClock};
use super::config::{Config, Scope};
use super::fate::{self, BodyDelivery, Mood, RowFate};
use super::hash;
use super::judge::{AdmissionDecision, Judge};
use super::layer::FeatureLayer;
use super::memory::Memory;
use super::quota_headers::{self, Dialect};
use super::reply::ResponseDraft;
use super::route::{self, FeatureContext, Objects, Provider, RefusalReason};
use super::stats::{Counter, Counters, Stats};
use super::wire::ReceivedRequest;

/// The state of the server, shared by its connections.
pub(crate) struct ServerState {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: ChaosClock,
    pub(crate) alarm: Alarm,
    judge: Judge,
    memory: Memory,
    pub(crate) counters: Counters,
    objects: Objects,
    layer: FeatureLayer,
    pub(crate) over: watch::Sender<bool>,
}

/// The request that a hint is sent for, and the time.
struct HintRecipient {
    lane: u64,
    identity: u64,
    number: u64,
    /// The time in nanoseconds since the start.
    now: u64,
}

/// The response to one request, and how it is delivered.
pub(crate) struct ResponsePlan {
    pub(crate) reply: ResponseDraft,
    pub(crate) delivery: BodyDelivery,
    /// The service time.
    pub(crate) service: Duration,
    /// Whether the request was executed before under the same idempotency key.
    pub(crate) replay: bool,
}

/// The status of an idempotency key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IdempotencyStatus {
    /// The key is new, or there is none.
    New,
    /// The request was executed under it.
    Executed,
    /// It was used for another request.
    Reused,
}

impl ServerState {
    pub(crate) fn new(config: Config, clock: ChaosClock) -> io::Result<ServerState> {
        let config = Arc::new(config);
        Ok(ServerState {
            alarm: Alarm::new(clock.clone())?,
            judge: Judge::new(Arc::clone(&config), clock.clone()),
            memory: Memory::new(config.remember),
            counters: Counters::default(),
            objects: Objects::default(),
            layer: FeatureLayer::new(),
            over: watch::Sender::new(false),
            clock,
            config,
        })
    }

    pub(crate) fn stats(&self) -> Stats {
        self.counters.snapshot(self.judge.collapses(), self.judge.earliest())
    }

    pub(crate) fn layer_now(&self) -> serde_json::Value {
        self.layer.describe(&self.config)
    }

    pub(crate) fn reset(&self) {
        self.judge.clear();
        self.memory.clear();
        self.objects.clear();
        self.layer.clear();
        self.counters.clear();
    }

    pub(crate) fn quit(&self) {
        self.over.send_replace(true);
    }

    /// The wall clock of the server, including its skew.
    pub(crate) fn wall(&self) -> Wall {
        Wall::from_millis(self.clock.wall_ms().saturating_add(self.config.skew.saturating_mul(1_000)))
    }

    /// Decides how to respond to one request.
    pub(crate) fn decide(&self, request: &ReceivedRequest, number: u64, in_flight: u64) -> ResponsePlan {
        let config = &self.config;
        let provider = Provider::of(request.path());
        let identity = request.identity();
        let lane = self.lane(provider, request);
        let attempts = u64::from(self.memory.update(identity, |_| {}).attempts);
        let attempt = attempts + 1;
        let tape = fate::tape(config, identity, attempt, number);
        let service = fate::service(config, tape);
        let ruling = self.judge.arrive(lane, identity, nanos(service), in_flight);
        if ruling.early {
            self.counters.count(Counter::Early);
        }
        if ruling.early_same {
            self.counters.count(Counter::EarlySame);
        }
        let who = HintRecipient { lane, identity, number, now: ruling.now };
        let answer = match ruling.verdict {
            AdmissionDecision::Throttle(answer) if answer.accepted => answer,
            AdmissionDecision::Throttle(answer) => {
                self.counters.count(Counter::Throttled);
                let mut reply = route::refusal(provider, config.throttle_status, RefusalReason::Throttled);
                self.hint(&mut reply, config.headers, &answer, &who);
                return ResponsePlan {
                    reply,
                    delivery: BodyDelivery::Whole,
                    service: config.throttle_after,
                    replay: false,
                };
            }
            AdmissionDecision::Down(down) => {
                self.counters.count(Counter::Down);
                if down.status == 0 {
                    let reply = route::refusal(provider, 503, RefusalReason::Failed);
                    return ResponsePlan {
                        reply,
                        delivery: BodyDelivery::ResetAtOnce,
                        service: Duration::ZERO,
                        replay: false,
                    };
                }
                let mut reply = route::refusal(provider, down.status, RefusalReason::Failed);
                if down.hint {
                    let wait = down.until.saturating_sub(ruling.now);
                    let answer = ThrottleAnswer { accepted: false, wait, delay: 0, quota: None };
                    let dialect =
                        if config.headers == Dialect::None { Dialect::RetryAfter } else { config.headers };
                    self.hint(&mut reply, dialect, &answer, &who);
                }
                return ResponsePlan {
                    reply,
                    delivery: BodyDelivery::Whole,
                    service: Duration::ZERO,
                    replay: false,
                };
            }
        };
        self.memory.update(identity, |seen| seen.attempts = seen.attempts.saturating_add(1));
        let (mood, delivery) = fate::fault(config, tape, number, attempt);
        let mut replay = false;
        let mut reply = match mood {
            Mood::Well | Mood::Short | Mood::Range(_) => match self.known(request, identity) {
                IdempotencyStatus::Reused => route::refusal(provider, 422, RefusalReason::Failed),
                known => {
                    replay = known == IdempotencyStatus::Executed;
                    let mut told = FeatureContext::new(config, &self.layer, mood == Mood::Short);
                    if let Mood::Range(fault) = mood {
                        told.range_fault = Some(fault);
                    }
                    route::answer(&told, &self.objects, provider, request)
                }
            },
            Mood::Status(status) => route::refusal(provider, status, RefusalReason::Failed),
            Mood::Error200 => {
                self.counters.count(Counter::Errors200);
                route::refusal(provider, 200, RefusalReason::Failed)
            }
            Mood::Redirect(url) => ResponseDraft {
                headers: vec![("Location", url)],
                ..ResponseDraft::new(302, "text/plain", "moved")
            },
        };
        if reply.work && request.idempotency_key.is_some() {
            // Recorded now and not on delivery: a retry may arrive while the first attempt is being
            // served.
            self.memory.update(identity, |seen| seen.executed = Some(request.print()));
        }
        match reply.row {
            RowFate::Good => {}
            RowFate::Bad => _ = self.counters.count(Counter::BadRows),
            RowFate::NoMatch => _ = self.counters.count(Counter::NoMatch),
        }
        quota_headers::write_quota_headers(config.headers, &answer, self.wall(), &mut reply.headers);
        let service = service + Duration::from_nanos(answer.delay);
        ResponsePlan { reply, delivery, service, replay }
    }

    /// The status of the request's idempotency key. As with real providers, a request that was
    /// executed under a key is answered again but not executed again. Responses are functions of
    /// the request, so none are stored.
    fn known(&self, request: &ReceivedRequest, identity: u64) -> IdempotencyStatus {
        if request.idempotency_key.is_none() {
            return IdempotencyStatus::New;
        }
        match self.memory.update(identity, |_| {}).executed {
            None => IdempotencyStatus::New,
            Some(print) if print == request.print() => IdempotencyStatus::Executed,
            Some(_) => IdempotencyStatus::Reused,
        }
    }

    /// The lane of a request, which selects its throttle.
    fn lane(&self, provider: Provider, request: &ReceivedRequest) -> u64 {
        match self.config.scope {
            Scope::Server => 0,
            Scope::Prefix => provider.lane(request.path()),
            Scope::Key => {
                let names = ["key", "api_key", "apikey", "access_token", "token"];
                let asked = || names.iter().find_map(|name| request.param(name));
                let key = request.api_key.clone().or_else(asked).unwrap_or_default();
                hash::bytes(7, key.as_bytes())
            }
        }
    }

    /// Writes the rate-limit headers of a refusal and records the wait.
    fn hint(
        &self,
        reply: &mut ResponseDraft,
        dialect: Dialect,
        answer: &ThrottleAnswer,
        who: &HintRecipient,
    ) {
        let told = quota_headers::write_quota_headers(dialect, answer, self.wall(), &mut reply.headers);
        let draw = hash::mix(self.config.seed ^ who.number ^ 0x6a4b);
        if hash::unit(draw) < self.config.garbage {
            self.counters.count(Counter::Garbage);
            quota_headers::garble(draw, &mut reply.headers);
        } else if let Some(wait) = told {
            self.judge.told(who.lane, who.identity, who.now, quota_headers::until(who.now, wait));
        }
    }

    /// The administrative endpoints.
    pub(crate) fn admin(&self, request: &ReceivedRequest) -> Option<ResponseDraft> {
        let pretty =
            |value: serde_json::Value| ResponseDraft::new(200, "application/json", format!("{value:#}\n"));
        Some(match request.path() {
            "/__stats" => {
                let mut stats = serde_json::to_value(self.stats()).unwrap_or_default();
                stats["objects"] = self.objects.len().into();
                pretty(stats)
            }
            "/__layer" => pretty(self.layer.describe(&self.config)),
            "/__config" => pretty(self.config.describe()),
            "/__reset" => {
                self.reset();
                pretty(serde_json::json!({"reset": true}))
            }
            "/__quit" => pretty(serde_json::json!({"quit": true})),
            path if path.starts_with("/__") => ResponseDraft::new(404, "text/plain", "no such page\n"),
            _ => return None,
        })
    }

    /// Updates the statistics after a success was delivered or lost.
    pub(crate) fn settle(
        &self,
        request: &ReceivedRequest,
        reply: &ResponseDraft,
        replay: bool,
        delivered: bool,
    ) {
        if !reply.work {
            return;
        }
        if replay {
            self.counters.count(Counter::Replayed);
            return;
        }
        self.counters.count(Counter::Executed);
        let before = self.memory.update(request.identity(), |seen| {
            if delivered {
                seen.delivered = seen.delivered.saturating_add(1);
            } else {
                seen.lost = seen.lost.saturating_add(1);
            }
        });
        if before.delivered > 0 {
            self.counters.count(Counter::Duplicates);
        } else if before.lost > 0 {
            self.counters.count(Counter::Redone);
        }
        if !delivered {
            self.counters.count(Counter::Lost);
        }
    }
}
