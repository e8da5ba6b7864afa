//! Where the directories are, and in which byte order.
//!
//! The header of a TIFF is eight bytes, and all of them can be known from the rest: the directory is
//! readable in one byte order only, and it can be found by search. A directory begins at an even
//! place, has a plausible count of entries, ascending tags, known types, and values inside the file.

use std::collections::HashSet;
use std::io;

use super::directory::{RawDirectory, TiffForm, VALUES_LEN_MAX};
use super::input::RepairInput;
use super::report::{FieldChange, RepairError, broken, too_large};

const DIRECTORIES_MAX: usize = 1024;
const CANDIDATES_MAX: usize = 4096;
const SEARCH_STEP: u64 = 1 << 20;
/// No directory that a search finds has fewer tags.
const ENTRIES_MIN: u64 = 6;
/// No directory that a search finds has more tags.
const ENTRIES_MAX: u64 = 256;

/// The directories of a file, in the order of its chain.
pub(super) struct FoundDirectories {
    pub(super) form: TiffForm,
    pub(super) all: Vec<RawDirectory>,
    /// The chain ended in something that is no directory.
    pub(super) cut: bool,
}

/// The form that the first bytes declare.
fn declared(head: &[u8]) -> Option<TiffForm> {
    TiffForm::ALL.into_iter().find(|form| head.starts_with(&form.mark()))
}

/// Where the first bytes say that the first directory is, read in a form.
fn first_place(head: &[u8], form: TiffForm) -> u64 {
    let at = if form.big { head.get(8..16) } else { head.get(4..8) };
    at.map_or(0, |bytes| form.number(bytes))
}

pub(super) fn directories(
    input: &RepairInput,
    changes: &mut Vec<FieldChange>,
) -> Result<FoundDirectories, RepairError> {
    let head = input.up_to(0, 16)?;
    let told = declared(&head);
    let first = match told {
        Some(form) => RawDirectory::read(input, form, first_place(&head, form))?,
        None => None,
    };
    let first = match first {
        Some(first) => first,
        None => match at_first_place(input, &head)? {
            Some(first) => first,
            None => by_search(input, told, changes, &head)?,
        },
    };
    let form = first.form;
    if told != Some(form) {
        changes.push(FieldChange::new(
            "byte order and version",
            hex(head.get(..4).unwrap_or_default()),
            hex(&form.mark()),
            "the directory can be read in this form only",
        ));
    }
    if let Some(count) = first.false_count {
        changes.push(FieldChange::new(
            "count of entries",
            count,
            first.tags.len(),
            "the entries that are ascending, known and inside the file",
        ));
    }
    if !first.sorted {
        changes.push(FieldChange::new("order of tags", "unsorted", "ascending", "the tags themselves"));
    }
    chain(input, first, changes)
}

/// The directory at the place that the header gives, in whatever form reads it.
fn at_first_place(input: &RepairInput, head: &[u8]) -> io::Result<Option<RawDirectory>> {
    let mut found = Vec::new();
    for form in TiffForm::ALL {
        found.extend(
            RawDirectory::read(input, form, first_place(head, form))?.filter(|d| d.false_count.is_none()),
        );
    }
    Ok(if found.len() == 1 { found.pop() } else { None })
}

/// The first directory of the only chain in the file.
fn by_search(
    input: &RepairInput,
    told: Option<TiffForm>,
    changes: &mut Vec<FieldChange>,
    head: &[u8],
) -> Result<RawDirectory, RepairError> {
    let mut all = search(input)?;
    if all.iter().any(|d| Some(d.form) == told) {
        all.retain(|d| Some(d.form) == told);
    }
    let followed: HashSet<u64> = all.iter().map(|d| d.next).collect();
    let mut roots: Vec<RawDirectory> = all
        .iter()
        .filter(|d| !followed.contains(&d.at) && !d.is_reduced() && !d.is_mask())
        .cloned()
        .collect();
    if roots.len() > 1 {
        let places: Vec<String> = roots.iter().take(8).map(|d| d.at.to_string()).collect();
        return Err(broken(format!(
            "the header does not say where the directory is, and there are {} that could be the first (at bytes {})",
            roots.len(),
            places.join(", ")
        )));
    }
    let Some(root) = roots.pop() else {
        let why =
            if told.is_some() { "no directory of tags was found in it" } else { "the file is not a TIFF" };
        return Err(broken(format!("{why}: its first bytes are {}", hex(head.get(..8).unwrap_or(head)))));
    };
    changes.push(FieldChange::new(
        "place of the first directory",
        told.map_or_else(|| "unreadable".to_owned(), |form| first_place(head, form).to_string()),
        root.at,
        "the only directory that is no overview and that no other points to",
    ));
    Ok(root)
}

/// All directories at even places.
fn search(input: &RepairInput) -> io::Result<Vec<RawDirectory>> {
    let mut found: Vec<RawDirectory> = Vec::new();
    let mut from = 0;
    // What may be read and held for candidates, so that a file made of beginnings costs no more.
    let mut budget = 2 * VALUES_LEN_MAX;
    while from < input.len() && found.len() < CANDIDATES_MAX && budget > 0 {
        // The longest beginning that is looked at: the count and the first entry of a BigTIFF.
        let bytes = input.up_to(from, SEARCH_STEP + 32)?;
        for at in (0..(SEARCH_STEP as usize).min(bytes.len())).step_by(2) {
            let Some(start) = bytes.get(at..) else { break };
            for form in TiffForm::ALL {
                if budget > 0 && begins(start, form) {
                    let place = from + at as u64;
                    let read = RawDirectory::read(input, form, place)?;
                    let weight = read.as_ref().map_or(0, RawDirectory::weight);
                    budget = budget.saturating_sub(weight + (4 << 10));
                    found.extend(read.filter(|d| d.false_count.is_none() && d.sorted && d.lost.is_empty()));
                }
            }
        }
        from += SEARCH_STEP;
    }
    Ok(found)
}

/// Whether the bytes look like the beginning of a directory: a count, then the type or the width of
/// the picture, as one whole number.
fn begins(bytes: &[u8], form: TiffForm) -> bool {
    let count_len = form.count_len();
    let (Some(count), Some(entry)) = (bytes.get(..count_len), bytes.get(count_len..count_len + 12)) else {
        return false;
    };
    let part = |range: std::ops::Range<usize>| form.number(entry.get(range).unwrap_or_default());
    matches!(part(0..2), 254..=256)
        && matches!(part(2..4), 3 | 4 | 16)
        && part(4..4 + form.place_len()) == 1
        && (ENTRIES_MIN..=ENTRIES_MAX).contains(&form.number(count))
}

/// Follows the chain of directories; one that loops or leads nowhere is cut.
fn chain(
    input: &RepairInput,
    first: RawDirectory,
    changes: &mut Vec<FieldChange>,
) -> Result<FoundDirectories, RepairError> {
    let form = first.form;
    let mut seen = HashSet::from([first.at]);
    let mut all = vec![first];
    let mut cut = false;
    let mut budget = 2 * VALUES_LEN_MAX;
    while let Some(next) = all.last().map(|d| d.next).filter(|next| *next != 0) {
        if all.len() >= DIRECTORIES_MAX {
            return Err(broken(format!("the file has more than {DIRECTORIES_MAX} directories")));
        }
        if !seen.insert(next) {
            changes.push(FieldChange::new(
                "chain of directories",
                format!("loops back to byte {next}"),
                format!("ends after {}", all.len()),
                "a directory that was there before",
            ));
            break;
        }
        match RawDirectory::read(input, form, next)?.filter(|d| d.false_count.is_none()) {
            Some(directory) => {
                let Some(left) = budget.checked_sub(directory.weight()) else {
                    return Err(too_large("the tags of all directories take more than 128 MiB"));
                };
                budget = left;
                all.push(directory);
            }
            None => {
                changes.push(FieldChange::new(
                    "chain of directories",
                    format!("goes on at byte {next}, where no directory is"),
                    format!("ends after {}", all.len()),
                    "what is there cannot be read; overviews or a mask may be lost",
                ));
                cut = true;
                break;
            }
        }
    }
    Ok(FoundDirectories { form, all, cut })
}

fn hex(bytes: &[u8]) -> String {
    let all: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    all.join(" ")
}
