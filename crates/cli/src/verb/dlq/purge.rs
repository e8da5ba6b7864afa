//! `dlq purge`: deletes letters, and asks before it deletes open ones.
//!
//! An open letter is a record that is in no sink: purging it loses the record. So a person confirms it
//! on the terminal, and a script passes --yes.

use std::io::{IsTerminal, Write};

use serde_json::{Map, json};
use tidegate_ledger::letter::store::Purged;

use super::filter::FilterArgs;
use super::keep::each;
use super::{CommandFailure, Done, LetterFormat, OpenLetterStore, usage};
use crate::execute::counted;
use crate::exit::Exit;
use crate::out;
use crate::progress::thousands;

/// Delete letters permanently; tombstones remain
///
/// Letters that are on hold or in a replay are kept. Without --archived, letters that are not in an
/// archive are deleted too. If some of the letters are open, the command asks on a terminal, and
/// elsewhere refuses to go on without --yes.
#[derive(clap::Args)]
pub(super) struct Purge {
    #[command(flatten)]
    filter: FilterArgs,
    /// Delete only archived letters
    #[arg(long)]
    archived: bool,
    /// Only print the number of letters
    #[arg(long)]
    dry_run: bool,
    /// Delete open letters without asking
    #[arg(short, long)]
    yes: bool,
    /// Select every letter
    #[arg(long)]
    all: bool,
}

pub(super) fn run(args: &Purge, desk: &mut OpenLetterStore) -> Done {
    let filter = args.filter.bounded(desk, args.all)?;
    if args.dry_run || !args.yes {
        let mut would = Purged::default();
        each(desk, &filter, |row| {
            would.held += u64::from(row.letter.hold.is_some());
            if Purged::may(&row.letter, args.archived) {
                would.add(row.letter.state);
            }
        })?;
        if args.dry_run {
            return report(desk, &would, true);
        }
        if would.open() > 0 && !confirmed(&would)? {
            out::say("nothing was purged");
            return Ok(Exit::Failure);
        }
    }
    let done = desk.store.purge(&filter, "purged by hand", args.archived, desk.now_ms)?;
    report(desk, &done, false)
}

/// Asks on the terminal whether open letters are to be purged.
fn confirmed(would: &Purged) -> Result<bool, CommandFailure> {
    let open = counted(would.open(), "letter is", "letters are");
    let all = format!("{} ({})", counted(would.purged, "letter", "letters"), states(would));
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return Err(usage(format!(
            "{open} open: their records are in no sink. Nothing was purged; pass --yes to purge {all}"
        )));
    }
    write!(stderr, "{open} open: their records are in no sink. Purge {all} for good? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// The counts by state, such as `4 captured, 1 resolved`.
fn states(purged: &Purged) -> String {
    let each = purged.states.iter().map(|(state, n)| format!("{} {state}", thousands(*n)));
    each.collect::<Vec<_>>().join(", ")
}

fn report(desk: &OpenLetterStore, purged: &Purged, dry_run: bool) -> Done {
    if desk.format == LetterFormat::Table {
        let verb = if dry_run { "would purge" } else { "purged" };
        let count = counted(purged.purged, "letter", "letters");
        let by = if purged.purged > 0 { format!(" ({})", states(purged)) } else { String::new() };
        out::say(&format!("{verb} {count}{by}; {} on hold kept", thousands(purged.held)));
    } else {
        let states: Map<_, _> = purged.states.iter().map(|(s, n)| (s.to_string(), json!(n))).collect();
        let told =
            json!({ "purged": purged.purged, "states": states, "held": purged.held, "dry_run": dry_run });
        out::data(&format!("{told}\n"))?;
    }
    Ok(Exit::Done)
}
