//! Links between the pages, and from the pages to files of the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::docs::root;

/// Every Markdown page that a reader may start from.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
            .iter()
            .map(|name| root().join(name))
            .collect();
    for directory in ["docs", "docs/decisions", "docs/queues"] {
        let entries = fs::read_dir(root().join(directory)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|e| e == "md")));
    }
    pages
}

/// The page without its fenced blocks.
fn prose(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let parts = text.split("\n```").enumerate();
    parts.filter(|(n, _)| n % 2 == 0).map(|(_, part)| part).collect::<Vec<_>>().join("\n")
}

/// The anchors of a page's headings, as Markdown renderers make them.
fn anchors(path: &Path) -> BTreeSet<String> {
    let page = prose(path);
    let headings = page.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// The targets of a page's links.
fn targets(page: &str) -> Vec<String> {
    let after = page.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut dead = Vec::new();
    for page in pages() {
        for target in targets(&prose(&page)) {
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let to = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let there = to.exists() && (anchor.is_empty() || anchors(&to).contains(anchor));
            if !there {
                dead.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "links that lead nowhere:\n{}", dead.join("\n"));
}
