//! `dlq show`: all details of one letter. `dlq audit`: the audit log of the store.

use std::fmt::Write;

use serde_json::json;
use tidegate_core::letter::blur;
use tidegate_core::quote::is_unsafe;
use tidegate_core::time::calendar::rfc3339;
use tidegate_ledger::audit::{AuditEntry, AuditEvent};
use tidegate_ledger::letter::Letter;
use tidegate_ledger::letter::store::PayloadReference;

use super::list::plain;
use super::subject::record;
use super::table::{ago, table};
use super::{Done, LetterFormat, OpenLetterStore, usage};
use crate::exit::Exit;
use crate::out;

/// Show all details of a letter
#[derive(clap::Args)]
pub(super) struct Args {
    /// Id of the letter, or a unique suffix
    id: String,
    /// Show exact coordinates and the payload; the reason is recorded in the audit
    #[arg(long, value_name = "WHY")]
    reveal: Option<String>,
}

/// Show the audit of the store, or verify it
#[derive(clap::Args)]
pub(super) struct LetterAuditArgs {
    /// Verify the hash chain of all entries
    #[arg(long)]
    verify: bool,
    /// Maximum number of entries, the latest
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    limit: u32,
}

pub(super) fn run(args: &Args, desk: &mut OpenLetterStore) -> Done {
    let id = desk.id(&args.id)?;
    let Some(mut row) = desk.store.get(id)? else {
        return Err(usage(match desk.store.tombstone(id)? {
            Some((at, why)) => format!("letter {id} was purged on {}: {why}", rfc3339(at)),
            None => format!("no letter {id}"),
        }));
    };
    if let Some(why) = &args.reveal {
        if let Some(sealed) = &row.sealed {
            row.letter.payload = desk.keys.open(sealed)?;
        }
        let detail = json!({ "verb": "show", "why": why });
        desk.store.enter(AuditEvent::new(desk.now_ms, "reveal", detail).letter(id))?;
    }
    let exact = args.reveal.is_some();
    let audit = desk.store.audit(Some(id), 1000)?;
    let children = desk.store.children(id)?;
    let letter = &row.letter;
    if desk.format != LetterFormat::Table {
        let mut value = plain(letter, exact);
        value["audit"] = json!(audit.iter().map(entry).collect::<Vec<_>>());
        value["children"] = json!(children.iter().map(ToString::to_string).collect::<Vec<_>>());
        value["payload_references"] = json!(row.references);
        value["sealed_with"] = json!(row.sealed.as_ref().map(|s| &s.key_id));
        if exact {
            value["received"] = String::from_utf8_lossy(&letter.payload.received).into();
            value["current"] = String::from_utf8_lossy(letter.payload.current()).into();
        }
        let text =
            if desk.format == LetterFormat::Json { format!("{value:#}\n") } else { format!("{value}\n") };
        out::data(&text)?;
        return Ok(Exit::Done);
    }
    let f = &letter.failure;
    let mut o = String::new();
    let mut say = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(o, "{name:<12} {value}");
        }
    };
    say("letter", letter.id.to_string());
    say(
        "state",
        match (&letter.not_before_ms, &letter.hold) {
            (_, Some(why)) => format!("{}, held: {why}", letter.state),
            (Some(at), _) => format!("{}, not before {}", letter.state, rfc3339(*at)),
            _ => letter.state.to_string(),
        },
    );
    let said = |text: &str| if exact { text.to_owned() } else { blur(text) };
    let message = said(&f.message);
    say("what", format!("{} ({}): {message}", f.code, f.class));
    say("meaning", f.code.meaning().unwrap_or_default().to_owned());
    f.causes.iter().for_each(|cause| say("because", said(cause)));
    say("where", format!("{} / {} {}", letter.pipeline, letter.stage, letter.task));
    say("record", record(letter));
    say("source", format!("{} {}", letter.source.uri, letter.source.position).trim().to_owned());
    say("service", [f.service_name.as_str(), &f.driver].join(" ").trim().to_owned());
    say("host", f.service.clone());
    if let Some(http) = &f.http {
        let status = http.status.map_or_else(|| "no status".into(), |s| s.to_string());
        say("asked", format!("{} {}: {status}", http.method, said(&http.url)));
    }
    say("breaker", f.breaker.clone());
    if let Some(s) = plain(letter, exact).get("spatial") {
        let text = |name: &str| {
            s.get(name).map_or_else(String::new, |v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
        };
        say(
            "geometry",
            format!("{} with {} vertices in {}", text("geometry_type"), text("vertices"), text("source_crs")),
        );
        say("target", text("target_crs"));
        say("box", text("bbox"));
        if let Some(d) = s.get("defect") {
            let get = |name: &str| d.get(name).map(ToString::to_string).unwrap_or_default();
            say("defect", format!("{} at {} {}", get("reason").trim_matches('"'), get("lon"), get("lat")));
        }
    }
    say(
        "first failed",
        format!("{} ({} ago)", rfc3339(letter.first_failed_ms()), ago(letter.first_failed_ms(), desk.now_ms)),
    );
    say("last seen", seen(letter, desk.now_ms));
    for (n, a) in f.attempts.iter().enumerate() {
        let status = a.status.map_or_else(String::new, |s| format!(" {s}"));
        let waited = if a.delay_ms > 0 { format!(", {} ms later", a.delay_ms) } else { String::new() };
        let hint = a.hint_ms.map_or_else(String::new, |ms| format!(", asked for a wait of {ms} ms"));
        let took = format!(", took {} ms", a.took_ms);
        let what = format!("{} {}{status}{took}{hint}{waited}", rfc3339(a.at_ms), a.verdict);
        say(&format!("attempt {}", n + 1), what);
    }
    say("given up", rfc3339(f.failed_ms));
    say("worker", f.worker.clone());
    say("trace", f.trace_id.clone());
    say(
        "deaths",
        match letter.lineage.parent {
            Some(parent) => format!(
                "{} before this one; parent {parent}, root {}",
                letter.lineage.generation, letter.lineage.root
            ),
            None => String::new(),
        },
    );
    children.iter().for_each(|child| say("failed again", child.to_string()));
    say("keys", format!("{} → {}", letter.idempotency_key, letter.effect_key));
    say("group", letter.fingerprint().to_string());
    for r in &letter.remedies {
        say("remedy", format!("{} {} by {}: {}", rfc3339(r.at_ms), r.rule, r.who, said(&r.note)));
    }
    say("kept until", rfc3339(letter.retain_until_ms));
    say("archive", letter.archive.clone().unwrap_or_default());
    for e in &audit {
        say("audit", format!("{} {} by {} {}", rfc3339(e.at_ms), e.act, e.who, e.detail));
    }
    for (name, reference) in [("received", &row.references.received), ("now", &row.references.current)] {
        if let Some(PayloadReference { sha256, bytes }) = reference {
            say("blob", format!("{name} sha256:{sha256}, {bytes} bytes"));
        }
    }
    match (&row.sealed, exact) {
        (_, true) => {
            say("received", String::from_utf8_lossy(&letter.payload.received).into_owned());
            if letter.payload.current.is_some() {
                say("now", String::from_utf8_lossy(letter.payload.current()).into_owned());
            }
        }
        (Some(sealed), false) => say("payload", format!("sealed with key {}", sealed.key_id)),
        (None, false) => {
            say("payload", format!("{}, hidden; use --reveal WHY to show it", letter.content_type));
        }
    }
    let clean: String = o.chars().map(|c| if is_unsafe(c) && c != '\n' { ' ' } else { c }).collect();
    out::data(&clean)?;
    Ok(Exit::Done)
}

/// The last failure and in how many runs the record failed, if it was more than one.
fn seen(letter: &Letter, now_ms: i64) -> String {
    match letter.times {
        0 | 1 => String::new(),
        times => format!(
            "{} ({} ago), failed in {times} runs",
            rfc3339(letter.last_seen_ms),
            ago(letter.last_seen_ms, now_ms)
        ),
    }
}

fn entry(e: &AuditEntry) -> serde_json::Value {
    crate::verb::audit::entry(None, e)
}

pub(super) fn audit(args: &LetterAuditArgs, desk: &mut OpenLetterStore) -> Done {
    if args.verify {
        let (n, hash) = desk.store.audit_verify()?;
        let letters = desk.store.check_letters()?;
        let damaged: Vec<String> = desk.store.damaged().keys().map(ToString::to_string).collect();
        let unsigned = desk.store.check_signed()?;
        let exit = if unsigned.is_empty() { Exit::Done } else { Exit::Failure };
        let (whole, checked) = (true, json!({ "checked": letters, "damaged": damaged }));
        let found = json!({
            "entries": n, "last_hash": hash, "whole": whole, "letters": checked, "not_as_signed": unsigned,
        });
        out::data(&format!("{found}\n"))?;
        return Ok(exit);
    }
    let entries = desk.store.audit(None, args.limit)?;
    match desk.format {
        LetterFormat::Json => {
            out::data(&format!("{:#}\n", json!(entries.iter().map(entry).collect::<Vec<_>>())))?;
        }
        LetterFormat::Ndjson => {
            out::data(&entries.iter().map(|e| format!("{}\n", entry(e))).collect::<String>())?;
        }
        LetterFormat::Table => {
            let rows: Vec<Vec<String>> = entries
                .iter()
                .map(|e| {
                    let letter = e.letter.map(|id| id.to_string()).unwrap_or_default();
                    let short = letter.get(24..).map(|end| format!("…{end}")).unwrap_or_default();
                    vec![
                        e.n.to_string(),
                        rfc3339(e.at_ms),
                        e.who.clone(),
                        e.act.clone(),
                        short,
                        e.detail.clone(),
                    ]
                })
                .collect();
            out::data(&table(&["n", "at", "who", "act", "letter", "detail"], &rows, &[0]))?;
        }
    }
    Ok(Exit::Done)
}
