//! The result of the last reading as an HTML page: no scripts, nothing external, light and dark.

use std::fmt::Write;
use std::time::Duration;

use tidegate_core::letter::blur;
use tidegate_core::quote::shell;
use tidegate_core::time::calendar::rfc3339;
use tidegate_ledger::letter::store::LetterGroup;
use tidegate_pipeline::run::{LastRun, RunStatus};
use tidegate_sim::report::{escape, html};

use super::look::{StoreSummary, StoreView};
use crate::execute::counted;
use crate::progress::{span, thousands};
use crate::report::{advice, capital, percent_text};
use crate::verb::dlq::table::ago;

/// Renders the page.
pub(super) fn page(view: &StoreView, now_ms: i64) -> String {
    let mut main = tiles(view, now_ms);
    main.push_str(&alerts(view, now_ms));
    main.push_str(&incidents(view, now_ms));
    main.push_str(&pipelines(view, now_ms));
    main.push_str(&letters(view, now_ms));
    main.push_str(LINKS);
    let footer = format!(
        "Tidegate {}. Updated {}; reload the page to update.",
        env!("CARGO_PKG_VERSION"),
        rfc3339(view.at_ms)
    );
    html::page("Tidegate", &header(view), &main, &footer)
}

const LINKS: &str = "<section><h2>More</h2><ul>\
    <li><a href=\"/dead-letters\">Map of dead letters</a></li>\
    <li><a href=\"/metrics\">Prometheus metrics</a></li>\
    <li><a href=\"/readyz\">Readiness</a></li></ul></section>";

fn header(view: &StoreView) -> String {
    let faults = view.faults();
    let firing: usize = view.stores.iter().map(|seen| seen.firing.len()).sum();
    let suspended: usize = view.stores.iter().map(|seen| seen.incidents.len()).sum();
    let bad_runs = view.runs.iter().filter(|run| outcome(run).0 == "bad").count();
    let (class, said) = match (faults.len(), suspended, bad_runs, firing) {
        (1.., ..) => ("bad", "✗ read error".to_owned()),
        (0, 1.., ..) => {
            ("bad", format!("✗ {}", many(suspended, "pipeline is", "pipelines are", "suspended")))
        }
        (0, 0, 1.., _) => ("bad", format!("✗ {}", many(bad_runs, "pipeline", "pipelines", "did not finish"))),
        (0, 0, 0, 1..) => ("fair", format!("! {}", many(firing, "alert", "alerts", "firing"))),
        _ => ("good", "✓ all healthy".to_owned()),
    };
    let mut out = format!(
        "<p class=\"kind\">serve · {}</p><h1>Pipelines and dead letters</h1>\
         <p class=\"badge {class}\">{}</p>",
        rfc3339(view.at_ms),
        escape(&said)
    );
    if !faults.is_empty() {
        out.push_str("<ul class=\"notes\">");
        for fault in faults {
            let _ = write!(out, "<li>{}</li>", escape(fault.trim_end()));
        }
        out.push_str("</ul>");
    }
    out
}

fn many(n: usize, one: &str, more: &str, what: &str) -> String {
    format!("{n} {} {what}", if n == 1 { one } else { more })
}

fn tiles(view: &StoreView, now_ms: i64) -> String {
    let healths = || view.stores.iter().filter_map(|seen| seen.health.as_ref());
    let open: u64 = healths().map(|health| health.open).sum();
    let hour: u64 = healths().map(|health| health.arrived_hour).sum();
    let drained: u64 = healths().map(|health| health.resolved).sum();
    let oldest = healths().filter_map(|health| health.oldest_ms).min();
    let firing: usize = view.stores.iter().map(|seen| seen.firing.len()).sum();
    let all = [
        (thousands(view.runs.len() as u64), "pipelines", ""),
        (thousands(open), "open dead letters", ""),
        (oldest.map_or_else(|| "none".into(), |ms| ago(ms, now_ms)), "age of the oldest open letter", ""),
        (thousands(hour), "letters in the last hour", ""),
        (thousands(drained), "letters resolved by replays", ""),
        (thousands(firing as u64), "alerts", if firing > 0 { "fair" } else { "" }),
    ];
    let mut out = String::from("<section aria-label=\"Summary\"><dl class=\"tiles\">");
    for (value, name, class) in all {
        let _ = write!(out, "<div><dt>{name}</dt><dd class=\"{class}\">{}</dd></div>", escape(&value));
    }
    out.push_str("</dl></section>");
    out
}

fn alerts(view: &StoreView, now_ms: i64) -> String {
    let firing: Vec<_> =
        view.stores.iter().flat_map(|seen| seen.firing.iter().map(move |f| (seen, f))).collect();
    let mut out = String::from("<section><h2>Active alerts</h2>");
    if firing.is_empty() {
        out.push_str("<p class=\"good\">✓ None.</p></section>");
        return out;
    }
    out.push_str("<ul class=\"alerts\">");
    for (seen, firing) in firing {
        let _ = write!(
            out,
            "<li><b class=\"fair\">! {}</b> <span class=\"soft\">{}, for {}</span><br>{}. {}</li>",
            firing.alert.name(),
            escape(&seen.place),
            ago(firing.since_ms, now_ms),
            escape(&capital(&firing.said)),
            advice(&capital(&firing.advice)),
        );
    }
    out.push_str("</ul></section>");
    out
}

fn incidents(view: &StoreView, now_ms: i64) -> String {
    let mut out = String::new();
    for (seen, incident) in view.stores.iter().flat_map(|s| s.incidents.iter().map(move |i| (s, i))) {
        let _ = write!(
            out,
            "<li><b class=\"bad\">✗ {}</b> <span class=\"soft\">for {}</span><br>\
             {} of {} records failed with {}: {}. Fix the cause, then run \
             <code>tidegate dlq incidents --close {} --store {}</code></li>",
            escape(&incident.pipeline),
            ago(incident.opened_ms, now_ms),
            thousands(incident.failed),
            thousands(incident.batch),
            escape(&incident.code),
            escape(&blur(&incident.message)),
            incident.incident,
            escape(&shell(&seen.place)),
        );
    }
    if out.is_empty() {
        return out;
    }
    format!("<section><h2>Suspended pipelines</h2><ul class=\"alerts\">{out}</ul></section>")
}

/// The CSS class and the text for the outcome of a run.
fn outcome(run: &LastRun) -> (&'static str, String) {
    match run.status {
        RunStatus::Done if run.rejected > 0 => ("fair", "! done, with dead letters".into()),
        RunStatus::Done => ("good", "✓ done".into()),
        RunStatus::Started | RunStatus::Running => ("soft", "running or killed".into()),
        RunStatus::Halted => {
            let by = run.halt.as_ref().map(|halt| format!(" by {}", halt.gate)).unwrap_or_default();
            ("bad", format!("✗ halted{by}"))
        }
        RunStatus::Failed => ("bad", "✗ failed".into()),
        RunStatus::Suspended => ("bad", "✗ suspended".into()),
        RunStatus::Stopped => ("fair", "! stopped".into()),
        RunStatus::Waiting => ("fair", "! waiting for a service".into()),
    }
}

fn pipelines(view: &StoreView, now_ms: i64) -> String {
    let Some(state) = &view.state else { return String::new() };
    let mut out = String::from("<section><h2>Pipelines</h2>");
    if view.runs.is_empty() {
        let _ = write!(
            out,
            "<p class=\"soft\">No runs in {}.</p></section>",
            escape(&state.display().to_string())
        );
        return out;
    }
    out.push_str(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Pipelines\"><table><thead><tr>\
         <th scope=\"col\">pipeline</th><th scope=\"col\" class=\"word\">last run</th>\
         <th scope=\"col\">read</th><th scope=\"col\">committed</th><th scope=\"col\">no match</th>\
         <th scope=\"col\">rejected</th><th scope=\"col\">skipped</th><th scope=\"col\">duration</th>\
         <th scope=\"col\">ended</th></tr></thead><tbody>",
    );
    for run in &view.runs {
        let (class, said) = outcome(run);
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"word {class}\">{}</td>",
            escape(&run.pipeline),
            escape(&said),
        );
        if matches!(run.status, RunStatus::Started | RunStatus::Running) {
            // The counts of records are written when the run ends.
            out.push_str("<td></td><td></td><td></td><td></td><td></td><td></td>");
        } else {
            for n in [run.offered(), run.committed(), run.no_match, run.rejected, run.filtered + run.deduped]
            {
                let _ = write!(out, "<td>{}</td>", thousands(n));
            }
            let took = Duration::try_from_secs_f64(run.elapsed_seconds).unwrap_or_default();
            let _ = write!(out, "<td>{}</td>", span(took));
        }
        let _ = write!(
            out,
            "<td><time datetime=\"{0}\" title=\"{0}\">{1} ago</time></td></tr>",
            rfc3339(run.at_ms),
            ago(run.at_ms, now_ms)
        );
    }
    out.push_str("</tbody></table></div></section>");
    out
}

fn letters(view: &StoreView, now_ms: i64) -> String {
    let mut out = String::from("<section><h2>Dead letters</h2><div class=\"cards\">");
    for seen in &view.stores {
        let _ = write!(out, "<div>{}</div>", store(seen, now_ms));
    }
    out.push_str("</div></section>");
    out
}

fn store(seen: &StoreSummary, now_ms: i64) -> String {
    let mut out = format!("<h3>{}</h3>", escape(&seen.place));
    let health = match (&seen.fault, &seen.health) {
        (Some(why), _) => {
            let _ = write!(out, "<p class=\"bad\">✗ Cannot read the store: {}</p>", escape(why));
            return out;
        }
        (None, None) => {
            out.push_str("<p class=\"soft\">Empty: created with the first letter.</p>");
            return out;
        }
        (None, Some(health)) => health,
    };
    let full = health.letters as f64 / health.capacity.max(1) as f64 * 100.0;
    let replayed = health.resolved + health.died_again;
    let _ = write!(
        out,
        "<p>{}, {} open; {} of the capacity of {} letters; {:.1} MiB.",
        counted(health.letters, "letter", "letters"),
        thousands(health.open),
        percent_text(full),
        thousands(health.capacity),
        health.bytes as f64 / f64::from(1 << 20),
    );
    if replayed > 0 {
        let share = health.resolved as f64 / replayed as f64 * 100.0;
        let _ = write!(out, " {} of {} replayed letters resolved.", percent_text(share), thousands(replayed));
    }
    if seen.purged > 0 {
        let _ = write!(out, " {} purged since the server started.", thousands(seen.purged));
    }
    out.push_str("</p>");
    if !seen.codes.is_empty() {
        out.push_str(&codes(&seen.codes, &seen.place, now_ms));
    }
    for what in &seen.pipelines {
        let _ = write!(out, "<p class=\"soft\">{}.</p>", escape(&capital(what)));
    }
    out
}

fn codes(groups: &[LetterGroup], place: &str, now_ms: i64) -> String {
    let mut out = format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Letters of {} by code\"><table>\
         <thead><tr><th scope=\"col\">code</th><th scope=\"col\">letters</th><th scope=\"col\">open</th>\
         <th scope=\"col\">first</th><th scope=\"col\">last</th></tr></thead><tbody>",
        escape(place)
    );
    for group in groups {
        let _ = write!(
            out,
            "<tr><th scope=\"row\"><code>{}</code></th><td>{}</td><td>{}</td><td>{} ago</td><td>{} ago</td></tr>",
            escape(&group.name),
            thousands(group.count),
            thousands(group.open),
            ago(group.first_ms, now_ms),
            ago(group.last_ms, now_ms),
        );
    }
    out.push_str("</tbody></table></div>");
    out
}
