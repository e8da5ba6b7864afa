//! `dlq fix` and `dlq edit`: repair letters by rule or manually.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use tidegate_client::child;
use tidegate_client::objects::{AllowedObjects, ObjectsKey};
use tidegate_ledger::audit::AuditEvent;
use tidegate_ledger::letter::remedy::{Fixer, NAMES, RemedyCounts, RepairRule};
use tidegate_ledger::letter::replay::Rerun;
use tidegate_ledger::letter::store::By;
use tidegate_ledger::letter::{Letter, LetterError, LetterFilter};
use tidegate_pipeline::manifest::{Pipeline, objects};
use tidegate_pipeline::run::{DefinitionKind, StoredDefinition};

use super::filter::{FilterArgs, bbox};
use super::named::{NamedArgs, NamedManifests, unnamed};
use super::{CommandFailure, Done, LetterFormat, OpenLetterStore, usage};
use crate::execute::counted;
use crate::exit::Exit;
use crate::out;
use crate::progress::thousands;
use crate::verb::plan;

/// Repair letters by a rule
///
/// The rules and the codes they apply to: crs_lookup (CRS_NOT_FOUND), make_valid
/// (INVALID_GEOMETRY), wait (RATE_LIMITED, QUOTA_EXHAUSTED), clip (OUT_OF_BOUNDS), swap_axes
/// (AXIS_ORDER_SWAPPED, OUT_OF_BOUNDS), close_rings (UNCLOSED_RING, INVALID_GEOMETRY), wind
/// (WRONG_WINDING), flag and repair_raster (CORRUPTED_HEADER), remap (SCHEMA_MISMATCH), command (any). The
/// result of a rule must pass the gates before it can be replayed. If a rule changes the type of a geometry, the
/// sink of the pipeline is asked whether it holds the result; --manifest names it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate dlq fix --rule make_valid --tolerance 0.1 --code INVALID_GEOMETRY --dry-run
  tidegate dlq fix --rule crs_lookup --default-crs EPSG:31256 --pipeline parcels
  tidegate dlq fix --rule swap_axes --area 9,46,17,49 --all
  tidegate dlq fix --rule remap --map strasse=street --all
  tidegate dlq fix --rule repair_raster --folder archive --all
  tidegate dlq fix --rule command --command 'python3 mend.py' --fingerprint a8f3206228323e22
  tidegate dlq fix --rules rules.json --all
  tidegate dlq fix --rule make_valid --all --manifest parcels.yaml
  tidegate dlq fix --manifest parcels.yaml")]
pub(super) struct Fix {
    #[command(flatten)]
    named: NamedArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Rule to apply; by default `dead_letters.remedies` of the manifest, to the letters of its pipeline
    #[arg(long, value_name = "NAME", required_unless_present_any = ["rules", "manifest"], conflicts_with = "rules")]
    rule: Option<String>,
    /// JSON file with a list of rules and their settings
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// For crs_lookup: coordinate reference system of records that declare none
    #[arg(long, value_name = "CRS")]
    default_crs: Option<String>,
    /// For make_valid: maximum relative change of the area
    #[arg(long, value_name = "SHARE")]
    tolerance: Option<f64>,
    /// For clip and swap_axes: area in which records are valid
    #[arg(long, value_name = "BOX", value_parser = bbox, allow_hyphen_values = true)]
    area: Option<[f64; 4]>,
    /// For remap: FROM=TO, can be repeated
    #[arg(long, value_name = "FROM=TO")]
    map: Vec<String>,
    /// For command: program and arguments
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,
    /// For command: variable of the environment that the program gets, can be repeated; others than PATH, HOME
    /// and the like are kept from it
    #[arg(long, value_name = "NAME", requires = "command")]
    pass_env: Vec<String>,
    /// For repair_raster: directory in which the rasters may be opened that letters name
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// For wait: seconds, if the server gave none
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Only print what would be done
    #[arg(long)]
    dry_run: bool,
    /// Select every letter that the rule applies to
    #[arg(long)]
    all: bool,
}

/// Edit the payload of a letter
///
/// Open it in $EDITOR, or read it from a file or standard input. It must pass the gates. If it has
/// another type of geometry than before, the sink of the pipeline is asked whether it holds it;
/// --manifest names it.
#[derive(clap::Args)]
pub(super) struct Edit {
    #[command(flatten)]
    named: NamedArgs,
    /// Id of the letter, or a unique suffix
    id: String,
    /// File with the new payload; - for standard input
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

/// A rule, and the pipeline if it is from a manifest.
type RuleOf = (RepairRule, Option<String>);

fn rules(args: &Fix, named: &NamedManifests) -> Result<Vec<RuleOf>, String> {
    if let Some(path) = &args.rules {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let rules: Vec<RepairRule> =
            serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        return Ok(rules.into_iter().map(|rule| (opening(args, rule), None)).collect());
    }
    if args.rule.is_none() {
        let mut rules = Vec::new();
        for (file, manifest) in named.manifests() {
            let Pipeline { id, dead_letters, .. } = &manifest.pipeline;
            let remedies = dead_letters.as_ref().map(|form| form.remedies.as_slice()).unwrap_or_default();
            if remedies.is_empty() {
                return Err(format!("{} has no `dead_letters.remedies`", file.display()));
            }
            let folder = plan::folder(file);
            let objects = objects::of_rasters(&manifest.pipeline, &folder).map_err(|e| e.to_string())?;
            for remedy in remedies {
                let rule = RepairRule::of(remedy).map_err(|e| e.to_string())?;
                rules.push((rule.opening(&objects, &folder), Some(id.clone())));
            }
        }
        return Ok(rules);
    }
    let name = args.rule.as_deref().unwrap_or_default();
    let rule = match name {
        "crs_lookup" => RepairRule::CrsLookup { default: args.default_crs.clone() },
        "make_valid" => RepairRule::MakeValid { tolerance: args.tolerance },
        "wait" => RepairRule::Wait { seconds: args.seconds },
        "clip" => RepairRule::Clip { bbox: args.area },
        "swap_axes" => RepairRule::SwapAxes { area: args.area },
        "remap" => {
            let pair = |text: &String| text.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned()));
            let fields: Option<_> = args.map.iter().map(pair).collect();
            match fields {
                Some(fields) if !args.map.is_empty() => RepairRule::Remap { fields },
                _ => return Err("rule remap requires --map FROM=TO".into()),
            }
        }
        "command" => {
            let command = args.command.as_deref().ok_or("rule command requires --command")?;
            RepairRule::Command {
                command: command.split_whitespace().map(str::to_owned).collect(),
                env: args.pass_env.clone(),
            }
        }
        name => RepairRule::named(name).map_err(|e| e.to_string())?,
    };
    debug_assert!(NAMES.iter().any(|name| rule.id().starts_with(name)));
    Ok(vec![(opening(args, rule), None)])
}

/// A rule that may open the rasters in the directory that the command names.
fn opening(args: &Fix, rule: RepairRule) -> RepairRule {
    let mut objects = AllowedObjects::nothing(ObjectsKey::Option("--folder"), Path::new(""));
    if let Some(folder) = &args.folder {
        objects.folder(&folder.display().to_string());
    }
    rule.opening(&objects, Path::new(""))
}

pub(super) fn fix(args: &Fix, desk: &mut OpenLetterStore) -> Done {
    let named = args.named.load()?;
    let rules = rules(args, &named).map_err(usage)?;
    let of_manifest = rules.iter().all(|(_, pipeline)| pipeline.is_some());
    let bounded = args.filter.bounded(desk, args.all || of_manifest)?;
    let mut told = Vec::new();
    let mut sinks = Sinks::of(desk, &named)?;
    for (rule, pipeline) in &rules {
        let pipeline = bounded.pipeline.as_ref().or(pipeline.as_ref()).cloned();
        let filter = LetterFilter { pipeline, ..bounded.clone() };
        let mut fixer = Fixer { store: &mut desk.store, keys: &desk.keys, dry_run: args.dry_run };
        let fixed =
            fixer.fix_for(rule, &filter, desk.now_ms, &mut |letter, payload| sinks.refusal(letter, payload));
        let count: RemedyCounts = fixed.map_err(|e| sinks.failure(e))?;
        told.push((rule.id(), count));
    }
    if desk.format != LetterFormat::Table {
        let all: Vec<_> = told
            .iter()
            .map(|(rule, count)| json!({ "rule": rule, "dry_run": args.dry_run, "count": count }))
            .collect();
        out::data(&format!("{:#}\n", json!(all)))?;
        return Ok(Exit::Done);
    }
    for (rule, c) in told {
        out::say(&format!(
            "{rule}{}: {}: {} validated, {} scheduled, {} for review, {} unrecoverable, {} unchanged",
            if args.dry_run { " (dry run)" } else { "" },
            counted(c.seen, "letter", "letters"),
            thousands(c.validated),
            thousands(c.scheduled),
            thousands(c.review),
            thousands(c.unrecoverable),
            thousands(c.untouched)
        ));
    }
    Ok(Exit::Done)
}

/// The sinks of the named pipelines, asked whether they can hold what a remedy made.
struct Sinks {
    /// What the store says of each pipeline.
    stored: BTreeMap<String, StoredDefinition>,
    open: BTreeMap<String, Box<dyn Rerun>>,
    /// Why one of them could not be asked.
    silent: Option<(Exit, String)>,
}

impl Sinks {
    fn of(desk: &mut OpenLetterStore, named: &NamedManifests) -> Result<Sinks, CommandFailure> {
        let (mut stored, mut open) = (BTreeMap::new(), BTreeMap::new());
        for group in desk.store.stats(&LetterFilter::default(), By::Pipeline, desk.now_ms)? {
            let Some(found) = StoredDefinition::read(&mut desk.store, &group.name)? else { continue };
            if found.kind() == DefinitionKind::Manifest && named.has(&group.name, Some(&found)) {
                open.insert(group.name.clone(), named.replay(desk, &group.name, &found, None)?);
            }
            stored.insert(group.name, found);
        }
        Ok(Sinks { stored, open, silent: None })
    }

    fn refusal(&mut self, letter: &Letter, payload: &[u8]) -> Result<Option<String>, LetterError> {
        let asked = match (self.open.get_mut(&letter.pipeline), self.stored.get(&letter.pipeline)) {
            (Some(sink), _) => sink.refusal(letter, payload).map_err(|why| (Exit::TryLater, why.to_string())),
            (None, Some(stored)) if stored.kind() != DefinitionKind::Features => {
                let CommandFailure(exit, why) = unnamed(&letter.pipeline, Some(stored));
                Err((exit, why))
            }
            // A capture goes into a file of any type. The sink of a pipeline without a definition is
            // unknown, and so is a replay.
            (None, _) => return Ok(None),
        };
        asked.map_err(|(exit, why)| {
            let why = format!(
                "cannot ask the sink of {} whether it can hold the result: {why}; the letter was not changed",
                letter.pipeline
            );
            self.silent = Some((exit, why.clone()));
            LetterError::Refused(why)
        })
    }

    /// A sink that cannot be asked now may be asked later.
    fn failure(&self, error: LetterError) -> CommandFailure {
        match &self.silent {
            Some((exit, why)) => CommandFailure(*exit, why.clone()),
            None => error.into(),
        }
    }
}

pub(super) fn edit(args: &Edit, desk: &mut OpenLetterStore) -> Done {
    let id = desk.id(&args.id)?;
    let mut row = desk.store.get(id)?.ok_or_else(|| usage(format!("no letter {id}")))?;
    if !row.letter.state.is_mendable() {
        return Err(usage(format!("letter {id} is {} and can no longer be edited", row.letter.state)));
    }
    let mut sinks = Sinks::of(desk, &args.named.load()?)?;
    let mut fixer = Fixer { store: &mut desk.store, keys: &desk.keys, dry_run: false };
    fixer.reveal(&mut row)?;
    let payload = match &args.from {
        Some(path) if path.as_os_str() == "-" => {
            let mut bytes = Vec::new();
            out::input().read_to_end(&mut bytes)?;
            bytes
        }
        Some(path) => std::fs::read(path).map_err(|e| usage(format!("{}: {e}", path.display())))?,
        None => {
            let detail = json!({ "verb": "edit" });
            fixer.store.enter(AuditEvent::new(desk.now_ms, "reveal", detail).letter(id))?;
            edit_in_editor(row.letter.payload.current())?
        }
    };
    let trimmed = payload.trim_ascii_end().to_vec();
    if trimmed == row.letter.payload.current() {
        out::say("no changes");
        return Ok(Exit::Done);
    }
    let edited = fixer.edit(row, trimmed, desk.now_ms, &mut |letter, payload| sinks.refusal(letter, payload));
    edited.map_err(|e| sinks.failure(e))?;
    out::say(&format!("letter {id} is valid and can be replayed"));
    Ok(Exit::Done)
}

/// Opens bytes in the user's editor and returns the result.
fn edit_in_editor(bytes: &[u8]) -> Result<Vec<u8>, CommandFailure> {
    if !std::io::stdin().is_terminal() {
        return Err(usage("no terminal for an editor; pass --from FILE"));
    }
    let editor =
        ["VISUAL", "EDITOR"].iter().find_map(|name| std::env::var(name).ok()).unwrap_or_else(|| "vi".into());
    let path = std::env::temp_dir().join(format!("tidegate-edit-{}.json", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(&path)?.write_all(bytes)?;
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or("vi");
    let status = child::of_person(program).args(words).arg(&path).status();
    let edited = std::fs::read(&path);
    // Do not leave the payload in a temporary file.
    let _ = std::fs::remove_file(&path);
    match status {
        Ok(status) if status.success() => Ok(edited?),
        Ok(status) => Err(usage(format!("{program} failed ({status}); nothing was changed"))),
        Err(e) => Err(usage(format!("cannot start the editor {program}: {e}; set EDITOR"))),
    }
}
