//! Every command of README.md and `docs/*.md` is run, so that no page shows one that fails.
//!
//! A page's commands run in order in one temporary directory, against `tidegate chaos` in place of
//! the example hosts. What is checked is the exit code: 0, or the one that the comment of the line
//! states (`# exit 4`). What a page must follow to be checked is in CONTRIBUTING.md.

mod block;
mod fixtures;
mod links;
mod page;
mod server;

use std::fs;
use std::path::{Path, PathBuf};

use block::Block;

/// The blocks that are not run: page, first words of the first command, and why.
const NOT_RUN: &[(&str, &str, &str)] = &[
    ("docs/audit.md", "tidegate audit match", "the number and the reason of an entry differ in each run"),
    ("docs/audit.md", "tidegate audit verify", "needs a disk that is mounted elsewhere"),
    ("docs/chaos.md", "tidegate chaos --format json", "needs jq and the reader's own pipeline"),
    ("docs/fleet.md", "redis-server", "needs Redis; the other commands of the page use a queue in a file"),
    ("docs/raster.md", "tidegate raster repair", "needs rasters that are broken"),
    ("docs/serve.md", "sudo systemctl", "needs systemd"),
    ("docs/sources.md", "tidegate fetch https://services.sentinel-hub", "needs an account of Sentinel Hub"),
    ("docs/workers.md", "tidegate worker", "runs until it is stopped"),
];

/// One test per page that has commands.
macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(#[test]
        fn $name() {
            page::run($page);
        })*
    };
}

pages! {
    readme: "README.md",
    audit: "docs/audit.md",
    chaos: "docs/chaos.md",
    check: "docs/check.md",
    convert: "docs/convert.md",
    dead_letters: "docs/dead-letters.md",
    doctor: "docs/doctor.md",
    fleet: "docs/fleet.md",
    gates: "docs/gates.md",
    geocode: "docs/geocode.md",
    geotasks: "docs/geotasks.md",
    manifest: "docs/manifest.md",
    nightly: "docs/nightly.md",
    orchestrators: "docs/orchestrators.md",
    pipeline: "docs/pipeline.md",
    profiles: "docs/profiles.md",
    replay: "docs/replay.md",
    report: "docs/report.md",
    raster: "docs/raster.md",
    raster_transform: "docs/raster-transform.md",
    run: "docs/run.md",
    serve: "docs/serve.md",
    simulate: "docs/simulate.md",
    sources: "docs/sources.md",
    store: "docs/store.md",
    telemetry: "docs/telemetry.md",
    workers: "docs/workers.md",
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md and the pages of `docs`, with their blocks.
fn all_pages() -> Vec<(String, Vec<Block>)> {
    let mut names = vec!["README.md".to_owned()];
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            names.push(format!("docs/{name}"));
        }
    }
    names.sort();
    let read = |name: String| {
        let blocks = block::blocks(&fs::read_to_string(root().join(&name)).unwrap());
        (name, blocks)
    };
    names.into_iter().map(read).collect()
}

#[test]
fn no_page_is_left_out() {
    for (page, blocks) in all_pages() {
        let runs = blocks.iter().any(|b| matches!(b, Block::Console { run: true, .. }));
        assert_eq!(runs, PAGES.contains(&page.as_str()), "{page}: is it in the list of pages?");
        for block in &blocks {
            assert!(
                !matches!(block, Block::Other { has_command: true, .. }),
                "{page}:{}: commands belong into a `console` block, each after `$ `",
                block.line()
            );
        }
    }
}

#[test]
fn what_is_not_run_has_a_reason() {
    let mut found = Vec::new();
    for (page, blocks) in all_pages() {
        for block in blocks {
            if let Block::Console { run: false, line, commands } = block {
                let first = &commands.first().unwrap().text;
                let entry = NOT_RUN.iter().position(|(p, words, _)| *p == page && first.starts_with(words));
                found.push(entry.unwrap_or_else(|| panic!("{page}:{line}: no reason for `{first}`")));
            }
        }
    }
    found.sort_unstable();
    assert_eq!(found, (0..NOT_RUN.len()).collect::<Vec<_>>(), "a reason without a block");
}
