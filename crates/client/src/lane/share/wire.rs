//! What owner and members tell each other: one JSON document per line.
//!
//! Times of the monotonic clock are sent as durations from now, because each process has its own clock;
//! times of the wall clock are sent as they are.

use super::super::states::LaneStateRecord;
use super::SILENT_MAX;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidegate_core::hint::{Hints, Quota};
use tidegate_core::lane::LimitFindings;
use tidegate_core::limit::{BelievedKind, LimitBelief};
use tidegate_core::{Code, Mono, Verdict, VerdictKind};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// The first line of the owner.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Hello {
    /// The version of what they tell each other.
    pub(super) tidegate_lane: u32,
    /// The calls per second to which the owner's user limits all.
    pub(super) rate_max: Option<f64>,
}

impl Hello {
    pub(super) const VERSION: u32 = 1;
}

/// What a member says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum ToOwner {
    /// So many calls wait for a permit.
    Want(u32),
    /// A call came back.
    Settle {
        grant: u64,
        /// The time since the permit came, in microseconds.
        #[serde(default)]
        held_us: u64,
        verdict: VerdictRecord,
        hints: HintRecord,
    },
    /// A permit was not used, or its call was abandoned.
    Release(u64),
    /// What the server asked this process for before it joined, or for a call of an owner before.
    Asked(Box<LaneStateRecord>),
    Alive,
}

/// What the owner says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToMember {
    /// A permit.
    Grant(u64),
    /// A wanted permit is not granted, because the quota is spent for so long.
    Deny {
        quota_ms: u64,
    },
    /// What the lane knows; sent when it has changed.
    Know(Box<LaneKnowledge>),
    Alive,
}

/// What an owner's lane knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in super::super) struct LaneKnowledge {
    promises: LaneStateRecord,
    findings: [bool; 4],
    pub(super) kind: String,
    pub(in super::super) rate: Option<f64>,
    burst: Option<f64>,
    window_seconds: Option<f64>,
    in_flight: Option<u32>,
    by_failures: bool,
    changes: u32,
    pub(super) cap: u32,
    /// Those who share the lane.
    #[serde(default)]
    pub(super) processes: u32,
}

/// What an owner leaves to the next one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LaneCheckpoint {
    /// When it was written, in milliseconds since 1970.
    pub(super) saved_ms: i64,
    pub(super) knowledge: LaneKnowledge,
}

impl LaneKnowledge {
    pub(super) fn of(
        promises: LaneStateRecord,
        findings: LimitFindings,
        belief: &LimitBelief,
        cap: u32,
        processes: u32,
    ) -> Self {
        LaneKnowledge {
            promises,
            findings: [
                findings.failures_are_limit,
                findings.failures_are_health,
                findings.probes_failures,
                findings.explains_refusal,
            ],
            kind: belief.kind.as_str().to_owned(),
            rate: belief.rate,
            burst: belief.burst,
            window_seconds: belief.window.map(|window| window.as_secs_f64()),
            in_flight: belief.in_flight,
            by_failures: belief.by_failures,
            changes: belief.changes,
            cap,
            processes,
        }
    }

    /// The host of the lane; empty if it was not told.
    pub(in super::super) fn host(&self) -> &str {
        &self.promises.host
    }

    /// The learned number of calls at once.
    pub(in super::super) const fn in_flight(&self) -> Option<u32> {
        self.in_flight
    }

    /// What the server asked for.
    pub(in super::super) fn promises(&self) -> tidegate_core::lane::LaneState {
        self.promises.state()
    }

    pub(super) fn findings(&self) -> LimitFindings {
        let [failures_are_limit, failures_are_health, probes_failures, explains_refusal] = self.findings;
        LimitFindings { failures_are_limit, failures_are_health, probes_failures, explains_refusal }
    }

    pub(super) fn belief(&self, now: Mono) -> LimitBelief {
        let kind = BelievedKind::ALL.into_iter().find(|kind| kind.as_str() == self.kind).unwrap_or_default();
        LimitBelief {
            kind,
            rate: self.rate,
            burst: self.burst,
            window: self.window_seconds.and_then(|window| Duration::try_from_secs_f64(window).ok()),
            in_flight: self.in_flight,
            by_failures: self.by_failures,
            reason: if self.changes == 0 { "" } else { kind.reason() },
            since: now,
            changes: self.changes,
        }
    }
}

/// A verdict.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct VerdictRecord {
    kind: VerdictName,
    /// The wait that the server asked for, from now on.
    wait_ms: Option<u64>,
    code: String,
    status: Option<u16>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum VerdictName {
    Done,
    NoMatch,
    Throttled,
    Transient,
    Permanent,
    QuotaSpent,
}

impl VerdictRecord {
    pub(in super::super) fn of(verdict: &Verdict, now: Mono) -> VerdictRecord {
        let kind = match verdict.kind {
            VerdictKind::Done => VerdictName::Done,
            VerdictKind::NoMatch => VerdictName::NoMatch,
            VerdictKind::Throttled { .. } => VerdictName::Throttled,
            VerdictKind::Transient { .. } => VerdictName::Transient,
            VerdictKind::Permanent => VerdictName::Permanent,
            VerdictKind::QuotaSpent { .. } => VerdictName::QuotaSpent,
        };
        // Rounded up: never earlier than asked.
        let wait_ms = verdict.until().map(|until| ceil_ms(until.since(now)));
        VerdictRecord { kind, wait_ms, code: verdict.code.to_string(), status: verdict.status }
    }

    pub(super) fn verdict(&self, now: Mono) -> Verdict {
        let until = self.wait_ms.map(|wait| now + Duration::from_millis(wait));
        let kind = match self.kind {
            VerdictName::Done => VerdictKind::Done,
            VerdictName::NoMatch => VerdictKind::NoMatch,
            VerdictName::Throttled => VerdictKind::Throttled { until },
            VerdictName::Transient => VerdictKind::Transient { until },
            VerdictName::Permanent => VerdictKind::Permanent,
            VerdictName::QuotaSpent => VerdictKind::QuotaSpent { until },
        };
        Verdict { kind, code: Code::new(&self.code).unwrap_or(Code::UNKNOWN), status: self.status }
    }
}

/// The hints of an answer.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in super::super) struct HintRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// The wait as the server sent it, if it was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    quotas: Vec<QuotaRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct QuotaRecord {
    limit: Option<u64>,
    window_ms: Option<u64>,
    remaining: Option<u64>,
    reset_ms: Option<u64>,
    step_ms: u64,
}

impl HintRecord {
    pub(in super::super) fn of(hints: &Hints) -> HintRecord {
        let quota = |quota: &Quota| QuotaRecord {
            limit: quota.limit,
            window_ms: quota.window.map(ceil_ms),
            remaining: quota.remaining,
            reset_ms: quota.reset.map(ceil_ms),
            step_ms: ceil_ms(quota.reset_step),
        };
        HintRecord {
            retry_after_ms: hints.retry_after.map(ceil_ms),
            asked_ms: hints.asked.map(ceil_ms),
            quotas: hints.quotas.iter().flatten().map(quota).collect(),
        }
    }

    pub(super) fn hints(&self) -> Hints {
        let ms = Duration::from_millis;
        let (retry_after, asked) = (self.retry_after_ms.map(ms), self.asked_ms.map(ms));
        let mut hints = Hints { retry_after, asked, ..Hints::default() };
        for (place, quota) in hints.quotas.iter_mut().zip(&self.quotas) {
            *place = Some(Quota {
                limit: quota.limit,
                window: quota.window_ms.map(ms),
                remaining: quota.remaining,
                reset: quota.reset_ms.map(ms),
                reset_step: ms(quota.step_ms),
            });
        }
        hints
    }
}

pub(super) fn ceil_ms(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Appends a message to what is to be written.
pub(super) fn push<T: Serialize>(out: &mut Vec<u8>, message: &T) {
    // Numbers and strings can always be written.
    if serde_json::to_writer(&mut *out, message).is_ok() {
        out.push(b'\n');
    }
}

/// Writes what there is. False if the other side is gone.
pub(super) async fn write(to: &mut (impl AsyncWrite + Unpin), out: &mut Vec<u8>) -> bool {
    if out.is_empty() {
        return true;
    }
    // Whoever reads nothing for so long does not answer either.
    let written = matches!(timeout(SILENT_MAX, to.write_all(out)).await, Ok(Ok(())));
    out.clear();
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_member_reports_arrives_as_it_was() {
        let now = Mono::from_millis(1_000);
        let until = Some(now + Duration::from_millis(1500));
        let verdict =
            Verdict { kind: VerdictKind::Throttled { until }, code: Code::RATE_LIMITED, status: Some(429) };
        let quota = Quota {
            limit: Some(100),
            window: Some(Duration::from_secs(60)),
            remaining: Some(0),
            reset: Some(Duration::from_millis(2500)),
            reset_step: Duration::from_secs(1),
        };
        let mut hints = Hints { retry_after: Some(Duration::from_millis(1500)), ..Hints::default() };
        hints.quotas[0] = Some(quota);
        let message = ToOwner::Settle {
            grant: 7,
            held_us: 1500,
            verdict: VerdictRecord::of(&verdict, now),
            hints: HintRecord::of(&hints),
        };
        let line = serde_json::to_string(&message).unwrap();
        let ToOwner::Settle { grant, held_us, verdict: told, hints: hinted } =
            serde_json::from_str(&line).unwrap()
        else {
            panic!("{line}")
        };
        let later = Mono::from_millis(90_000);
        assert_eq!((grant, held_us, hinted.hints()), (7, 1500, hints));
        let until = Some(later + Duration::from_millis(1500));
        assert_eq!(told.verdict(later), Verdict { kind: VerdictKind::Throttled { until }, ..verdict });
    }

    #[test]
    fn what_an_owner_knows_arrives_as_it_was() {
        let belief = LimitBelief {
            kind: BelievedKind::Window,
            rate: Some(99.5),
            window: Some(Duration::from_secs(10)),
            by_failures: true,
            changes: 2,
            reason: BelievedKind::Window.reason(),
            ..LimitBelief::default()
        };
        let findings = LimitFindings {
            failures_are_limit: true,
            failures_are_health: false,
            probes_failures: true,
            explains_refusal: false,
        };
        let sent = LaneKnowledge::of(LaneStateRecord::default(), findings, &belief, 9, 3);
        let line = serde_json::to_string(&ToMember::Know(Box::new(sent.clone()))).unwrap();
        let ToMember::Know(got) = serde_json::from_str(&line).unwrap() else { panic!("{line}") };
        assert_eq!(*got, sent);
        assert_eq!((got.findings(), got.belief(Mono::ZERO)), (findings, belief));
    }
}
