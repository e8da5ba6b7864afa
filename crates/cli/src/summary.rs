//! A summary of a manifest: the effective policy with defaults.

use std::fmt::Write;
use std::path::Path;

use tidegate_client::secret::Redactor;
use tidegate_core::call::LIMITED_FREE;
use tidegate_pipeline::gate::declared;
use tidegate_pipeline::manifest::{
    EmptyBudget, JitterSetting, Manifest, OnLongWait, Policy, SourceSpec, StepSpec, WriteMode, human, objects,
};
use tidegate_pipeline::traffic::ServiceCalls;
use tidegate_queue::QueueAddress;
use url::Url;

use crate::execute::counted;
use crate::progress::thousands;

/// The most backoff delays that are listed individually.
const WAITS_SHOWN: u32 = 6;

/// One line per part of the policy.
/// Relative paths of the manifest start at `folder`.
pub(crate) fn summary(manifest: &Manifest, folder: &Path) -> String {
    let rows = parts(manifest, folder).into_iter().chain([
        ("attempts", attempts(manifest)),
        ("waits", waits(manifest)),
        ("server waits", long_wait(manifest)),
        ("retried", codes(&manifest.pipeline.retry_policy.retryable())),
        ("not retried", codes(&manifest.pipeline.retry_policy.terminal())),
        ("throttles", throttles(manifest)),
        ("outages", outages(manifest)),
        ("breaker", breaker(manifest)),
        ("retry budget", budget(manifest)),
        ("rate", rate(manifest)),
    ]);
    let rows: Vec<_> = rows.chain(gates(manifest)).collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut text = format!("{}: valid\n\n", manifest.pipeline.id);
    for (name, value) in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name:width$}  {value}");
    }
    text
}

/// The parts of a pipeline; empty for a manifest that only has policies.
fn parts(manifest: &Manifest, folder: &Path) -> Vec<(&'static str, String)> {
    let pipeline = &manifest.pipeline;
    let (Some(source), Some(sink)) = (&pipeline.source, &pipeline.sink) else { return Vec::new() };
    let place = |file: &Option<String>, table: Option<String>| file.clone().or(table).unwrap_or_default();
    let table = source.postgis.as_ref().map(|t| format!("table {}.{}", t.schema, t.table));
    let queue = source.queue.as_ref().map(|queue| match QueueAddress::parse(queue) {
        Ok(address) => format!("queue {address}"),
        Err(_) => "queue".to_owned(),
    });
    let rasters = (!source.rasters.is_empty()).then(|| format!("rasters {}", source.rasters.join(", ")));
    let from = place(&source.file, table.or(queue).or(rasters).or_else(|| service(manifest, source)));
    let to = place(&sink.file, sink.postgis.as_ref().map(|t| format!("table {}.{}", t.schema, t.table)));
    let mode = match sink.mode() {
        WriteMode::Upsert => format!("upsert by {}", sink.key.join(", ")),
        WriteMode::Sync => format!("sync by {}", sink.key.join(", ")),
        WriteMode::Append => "append".to_owned(),
        WriteMode::Replace => "replace".to_owned(),
    };
    let named = |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let mut rows = vec![
        ("source", format!("{from}, {} records at a time", source.batch_size)),
        ("steps", named(pipeline.steps.iter().map(StepSpec::name).collect())),
        ("sink", format!("{to}, {mode}")),
    ];
    let opened = objects::told(manifest, folder).into_iter().enumerate();
    rows.extend(opened.map(|(at, line)| (if at == 0 { "objects" } else { "" }, line.to_string())));
    rows
}

/// The address and the layer of a service that is the source.
fn service(manifest: &Manifest, source: &SourceSpec) -> Option<String> {
    let name = source.service.as_ref()?;
    let url = manifest.pipeline.services.get(name).and_then(|service| service.url.as_deref());
    let place = match url.and_then(|url| Url::parse(url).ok()) {
        Some(url) => format!("service {name}, {}", Redactor::new().url(&url)),
        None => format!("service {name}"),
    };
    let layer = source.layer.as_ref().map(|layer| format!(", layer {layer}")).unwrap_or_default();
    Some(format!("{place}{layer}"))
}

fn attempts(manifest: &Manifest) -> String {
    let retry = &manifest.pipeline.retry_policy;
    let each = human(retry.attempt_timeout_seconds.min(retry.deadline_seconds));
    format!("at most {}, each up to {each}, within {}", retry.max_attempts, human(retry.deadline_seconds))
}

/// The longest backoff delays and their sum.
fn waits(manifest: &Manifest) -> String {
    let retry = &manifest.pipeline.retry_policy;
    let backoff = Policy::from(manifest).call.backoff;
    let retries = retry.max_attempts.saturating_sub(1);
    if retries == 0 {
        return "none: no retry".to_owned();
    }
    let mut list = Vec::new();
    let mut total = 0.0;
    let mut fit = 0;
    // Delays never decrease, so those that can begin before the deadline come first. The loop ends
    // at the deadline or, for delays near zero, at a fixed bound.
    for n in 0..retries.min(100_000) {
        let wait = backoff.longest(n).as_secs_f64();
        if total + wait >= retry.deadline_seconds {
            break;
        }
        total += wait;
        fit = n + 1;
        if n < WAITS_SHOWN {
            list.push(human(wait));
        }
    }
    if fit > WAITS_SHOWN {
        list.push("…".to_owned());
    }
    let by = match retry.jitter {
        JitterSetting::None => "no jitter".to_owned(),
        JitterSetting::Full => "full jitter".to_owned(),
        JitterSetting::Equal => "equal jitter".to_owned(),
        JitterSetting::Decorrelated => "decorrelated jitter".to_owned(),
        JitterSetting::Additive => "additive jitter".to_owned(),
        JitterSetting::Proportional(share) => format!("jitter of {} %", share * 100.0),
    };
    let mut text = match fit {
        0 => format!("the first may already exceed the deadline ({by})"),
        _ => format!("at most {} ({by}), {} in total", list.join(", "), human(total)),
    };
    if fit > 0 && fit < retries {
        let _ = write!(text, "; the deadline may cut off the other {}", retries - fit);
    }
    text
}

fn long_wait(manifest: &Manifest) -> String {
    let retry = &manifest.pipeline.retry_policy;
    let then = match retry.on_long_wait {
        OnLongWait::Park => "the record waits until then, within the patience of the run",
        OnLongWait::GiveUp => "the record becomes a dead letter with that time",
    };
    format!("obeyed; beyond {} or the deadline, {then}", human(retry.max_delay_seconds))
}

fn codes(codes: &[u16]) -> String {
    if codes.is_empty() {
        return "none".to_owned();
    }
    codes.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

fn throttles(manifest: &Manifest) -> String {
    let retry = &manifest.pipeline.retry_policy;
    let (wait, explained) = if manifest.pipeline.rate_limit.learn {
        ("a throttled record waits for the learned rate", LIMITED_FREE)
    } else {
        ("a throttled record waits for the backoff", 0)
    };
    let limited = format!("{wait}; the first {explained} that a limit explains do not count as attempts");
    match retry.throttles_free {
        0 if explained == 0 => format!("{wait}; each throttle counts as an attempt"),
        0 => limited,
        free if free < explained => format!("{limited}, nor the first {free} others"),
        free => format!("{wait}; the first {free} throttles do not count as attempts"),
    }
}

fn outages(manifest: &Manifest) -> String {
    match manifest.pipeline.retry_policy.outages_free {
        0 => "each failure counts as an attempt, also while the breaker opens".to_owned(),
        free => format!("the first {free} failures while the breaker opens do not count as attempts"),
    }
}

fn breaker(manifest: &Manifest) -> String {
    let breaker = &manifest.pipeline.circuit_breaker;
    let slow = match breaker.slow_call_seconds {
        Some(slow) => format!(" or {} slower than {}", percent(breaker.slow_call_rate), human(slow)),
        None => String::new(),
    };
    format!(
        "opens at {} failed{slow} of {} calls or more in {}; stays open {} growing to {}; {} to close",
        percent(breaker.failure_rate),
        breaker.minimum_calls,
        human(breaker.window_seconds),
        human(breaker.cooldown_seconds),
        human(breaker.cooldown_max_seconds),
        count(breaker.probes, "probe"),
    )
}

fn budget(manifest: &Manifest) -> String {
    let budget = &manifest.pipeline.retry_budget;
    let then = match budget.on_empty {
        EmptyBudget::Wait => "a retry waits",
        EmptyBudget::GiveUp => "the record is rejected",
    };
    format!(
        "{} of calls plus {} per second, up to {} saved; when empty, {then}",
        percent(budget.ratio),
        budget.floor_per_second,
        budget.size
    )
}

fn rate(manifest: &Manifest) -> String {
    let limit = &manifest.pipeline.rate_limit;
    let rate = match (limit.requests_per_second, limit.learn) {
        (Some(rate), true) => format!("at most {rate} per second, less if the server says so"),
        (Some(rate), false) => format!("{rate} per second"),
        (None, true) => "learned from the server".to_owned(),
        (None, false) => "not limited".to_owned(),
    };
    let burst = match limit.requests_per_second {
        Some(_) if limit.burst > 1 => format!("; bursts of {}", limit.burst),
        _ => String::new(),
    };
    let shared = match &manifest.pipeline.lanes {
        Some(lanes) => format!("; shared with other machines at {}", lanes.url),
        None => String::new(),
    };
    format!("{rate}{burst}; at most {} in flight{shared}", limit.max_in_flight)
}

/// What each gate does, in the words of `plan`.
fn gates(manifest: &Manifest) -> Vec<(&'static str, String)> {
    let rows = declared(manifest, true).into_iter().map(|gate| {
        let then = gate_effect(gate.severity_name(), gate.max_rate);
        let only = if gate.only_in_degrees { " (only for records in degrees)" } else { "" };
        format!("{}: {then}{only}", gate.label)
    });
    rows.enumerate().map(|(at, row)| (if at == 0 { "gates" } else { "" }, row)).collect()
}

/// What a gate does with failures, given the share that it tolerates.
pub(crate) fn gate_effect(severity: &str, max_rate: f64) -> String {
    match (severity, percent(max_rate)) {
        // No more than all can fail.
        ("halt", _) if max_rate >= 1.0 => "never halts: all may fail".to_owned(),
        ("reject", _) if max_rate >= 1.0 => "rejects failures".to_owned(),
        ("reject", share) => format!("rejects failures, halts above {share}"),
        ("halt", _) if max_rate <= 0.0 => "halts at the first failure".to_owned(),
        ("halt", share) => format!("halts above {share}"),
        (_, _) if max_rate <= 0.0 => "warns".to_owned(),
        (_, share) => format!("warns above {share}"),
    }
}

/// A fraction as a percentage.
fn percent(share: f64) -> String {
    format!("{} %", (share * 1e8).round() / 1e6)
}

fn count(number: u32, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A line for each service, if there are several or one has a price.
pub(crate) fn by_service(services: &[ServiceCalls]) -> Vec<String> {
    let used = services.iter().filter(|one| one.calls > 0);
    let priced = services.iter().any(|one| one.cost.is_some());
    let twice = |one: &&ServiceCalls| one.maybe_twice.is_some_and(|n| n > 0);
    if used.clone().count() < 2 && !priced && !services.iter().any(|one| twice(&one)) {
        return Vec::new();
    }
    let line = |one: &ServiceCalls| {
        let mut text = format!(
            "{}: {}, {} answered",
            one.service,
            counted(one.calls, "call", "calls"),
            thousands(one.answered)
        );
        if let Some(cost) = one.cost {
            let _ = write!(text, ", costs {cost:.2}");
        }
        if let Some(n) = one.maybe_twice.filter(|n| *n > 0) {
            let _ = write!(text, ", {} may have been executed twice", thousands(n));
        }
        text
    };
    used.map(line).collect()
}
