//! Copies of the checkpoints that are damaged, while the audit is whole.

use std::fs;

use crate::audit::trail;
use crate::pipeline::bench::Bench;

const COPIES: &str = ".tidegate/test/audit.checkpoints";

/// Three runs, so that there are three checkpoints at least.
fn three_runs() -> (Bench, Vec<u8>) {
    let bench = trail::bench("file: out.gpkg, key: [id]");
    for _ in 0..3 {
        bench.runs(4);
    }
    let copies = fs::read(bench.path(COPIES)).unwrap();
    (bench, copies)
}

#[test]
fn a_hole_in_a_copy_is_named_and_the_copy_is_written_anew() {
    let (bench, whole) = three_runs();
    let lines: Vec<&[u8]> = whole.split_inclusive(|b| *b == b'\n').collect();
    assert!(lines.len() >= 3, "{} checkpoints", lines.len());
    let mut holed = whole.clone();
    let from = lines[0].len() + 10;
    holed[from..from + 40].fill(0);
    fs::write(bench.path(COPIES), &holed).unwrap();

    let ran = bench.tidegate(&["audit", "verify"]);
    assert_eq!(ran.code, 1, "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("test: intact: 72 entries"), "{}", ran.stdout);
    let said = format!(
        "test: COPY DAMAGED: the copy {COPIES} is damaged at line 2; write it anew with `tidegate audit repair-copies`"
    );
    assert!(ran.stdout.contains(&said), "{}", ran.stdout);
    // The next run is not kept from writing.
    bench.runs(4);

    let ran = bench.tidegate(&["audit", "repair-copies"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains(&format!("the damaged file is {COPIES}.damaged")), "{}", ran.stdout);
    let anew = fs::read(bench.path(COPIES)).unwrap();
    assert!(anew.starts_with(&whole), "byte for byte what it was");
    assert_eq!(fs::read(bench.path(&format!("{COPIES}.damaged"))).unwrap()[..holed.len()], holed);
    assert_eq!(bench.tidegate(&["audit", "verify"]).code, 0);
    assert!(bench.tidegate(&["audit", "repair-copies"]).stdout.contains("test: its copies are whole"));
}

#[test]
fn a_damaged_copy_of_an_audit_that_was_set_to_an_older_state_is_not_written_anew() {
    let bench = trail::bench("file: out.gpkg, key: [id]");
    bench.runs(4);
    let book = bench.path(".tidegate/test/audit.db");
    let (old, known) = (fs::read(&book).unwrap(), fs::read(bench.path(COPIES)).unwrap().len());
    bench.runs(4);
    // The book is the older one, and what the copies say of the rest is wiped out.
    fs::write(&book, old).unwrap();
    let mut wiped = fs::read(bench.path(COPIES)).unwrap();
    assert!(wiped.len() > known);
    for byte in wiped[known..].iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b'x';
    }
    fs::write(bench.path(COPIES), &wiped).unwrap();
    assert_eq!(bench.tidegate(&["audit", "verify"]).code, 1);
    let ran = bench.tidegate(&["audit", "repair-copies"]);
    assert_eq!(ran.code, 1, "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("it is longer than all checkpoints of the database"), "{}", ran.stderr);
    assert_eq!(fs::read(bench.path(COPIES)).unwrap(), wiped);
}
