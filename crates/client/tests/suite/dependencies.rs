//! What depending on the crate compiles: the table of docs/client.md, and none of the heavy parts.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Parts of names that must not be among the packages without a feature.
const HEAVY: [&str; 5] = ["sqlite", "postgres", "parquet", "arrow", "object_store"];

/// The packages that a crate with these features compiles on Linux.
fn packages(crate_name: &str, features: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "-p", crate_name, "--features", features])
        .args(["-e", "normal", "--prefix", "none", "--target", "x86_64-unknown-linux-gnu"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

#[test]
fn the_page_tells_what_a_dependency_compiles() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/client.md");
    let page = std::fs::read_to_string(page).unwrap();
    for (crate_name, features, row) in [
        ("tidegate-core", "", "`tidegate-core` alone"),
        ("tidegate-client", "", "none (default)"),
        ("tidegate-client", "tower", "`tower`"),
        ("tidegate-client", "cache", "`cache` (SQLite)"),
        ("tidegate-client", "object-store", "`object-store`"),
        ("tidegate", "", "the whole command, for comparison"),
    ] {
        let row = format!("| {row} | {} |", packages(crate_name, features).len());
        assert!(page.contains(&row), "docs/client.md should have the row {row:?}");
    }
}

#[test]
fn no_database_and_no_object_store_comes_along() {
    for features in ["", "tower"] {
        for package in packages("tidegate-client", features) {
            assert!(!HEAVY.iter().any(|part| package.contains(part)), "{features:?}: {package}");
        }
    }
    assert!(packages("tidegate-client", "cache").iter().any(|package| package.contains("sqlite")));
}
