//! The audit: a million entries entered, durable and signed, and then verified.
//!
//! Run it with `cargo run --release -p tidegate-benches --bin bench-audit`; a number after it
//! chooses how many entries.

use std::error::Error;
use std::io::Write;
use std::time::Instant;
use tidegate_ledger::audit::{AuditEvent, AuditLog, Copies, Signer, TrustAnchors};

fn main() -> Result<(), Box<dyn Error>> {
    let entries: i64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let dir = std::env::temp_dir().join(format!("tidegate-bench-audit-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let (path, copies) = (dir.join("audit.db"), dir.join("copies"));
    let signer = Signer::generate()?;
    let trust_key = signer.public();
    let mut book = AuditLog::open(&path, "bench", Some(signer), &copies)?;
    let began = Instant::now();
    let mut n = 0;
    while n < entries {
        let acts = (0..1000.min(entries - n))
            .map(|i| {
                let detail = serde_json::json!({
                    "stage": "steps[1] coerce", "problems": [{ "code": "SCHEMA_MISMATCH", "field": "area" }],
                    "message": { "commitment": "7f".repeat(48) },
                });
                let key = format!("record {}", n + i);
                AuditEvent::new(n + i, "route", detail)
                    .key(key)
                    .code("SCHEMA_MISMATCH")
                    .to(".tidegate/x/rejects.ndjson")
            })
            .collect();
        book.enter(acts)?;
        n += 1000;
    }
    book.close(entries)?;
    let entered = began.elapsed();
    drop(book);
    let trust =
        TrustAnchors { keys: vec![trust_key], copies: Copies::new(&copies, "bench").read()?.checkpoints };
    let began = Instant::now();
    let whole = AuditLog::look(&path, "bench")?.verify(&trust)?.map_err(|finding| finding.to_string())?;
    let verified = began.elapsed();
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{} entries in {} checkpoints: entered in {:.2} s, verified in {:.2} s",
        whole.entries,
        whole.checkpoints,
        entered.as_secs_f64(),
        verified.as_secs_f64()
    )?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
