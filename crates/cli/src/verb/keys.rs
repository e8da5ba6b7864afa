//! `tidegate keys`: the keys that seal dead letters and sign the audit.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use tidegate_client::durable;
use tidegate_core::quote::shell;
use tidegate_ledger::audit::Signer;
use tidegate_ledger::letter::seal::{Keyring, Recipient, RewrappedKey, SecretKey};
use tidegate_ledger::letter::{LetterError, LetterStore, LetterStoreLocation, now_ms};

use crate::execute::counted;
use crate::exit::Exit;
use crate::given::{GivenAddress, KeyFile};
use crate::out;

/// Generate and rotate the keys that seal dead letters and sign the audit
///
/// The public key is in the store: pipelines that write letters can seal them, but not read them. The
/// secret key is in your file; `tidegate dlq --key FILE` opens payloads with it. Keep old keys in the
/// file until a rotation has re-encrypted all letters.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate keys generate --key letters.key --store .tidegate/letters.db
  tidegate keys rotate --key letters.key --store .tidegate/letters.db
  tidegate keys audit --key audit.key > audit.pub
  tidegate keys rotate-audit --state /var/lib/tidegate

Exit codes: 0 success; 1 failure; 2 usage error, such as a store that already has a key, or has none; 75
the server of the store is down, try again later.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Generate a key and seal letters that are stored from now on
    Generate(Both),
    /// Generate a new key and re-encrypt the key of every letter with it; payloads are not touched
    Rotate(Both),
    /// Generate a key that signs the audit, and print its public key
    Audit(One),
    /// Replace the key that signs the audits of a state directory; the old key signs the new one
    RotateAudit(StateKey),
}

#[derive(clap::Args)]
struct StateKey {
    /// State directory
    #[arg(long, value_name = "DIR", default_value = ".tidegate", value_parser = super::calls::state_dir())]
    state: PathBuf,
}

#[derive(clap::Args)]
struct One {
    /// Key file to create; it must not exist
    #[arg(long, value_name = "FILE")]
    key: KeyFile,
}

#[derive(clap::Args)]
struct Both {
    /// File with secret keys; the new key is appended
    #[arg(long, value_name = "FILE")]
    key: KeyFile,
    /// Dead letter store: a file, postgres://…, or env:NAME and file:PATH that contain either
    #[arg(long, value_name = "STORE", default_value = ".tidegate/letters.db")]
    store: GivenAddress,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let done = match &args.what {
        Command::Generate(both) => generate(both),
        Command::Rotate(both) => rotate(both),
        Command::Audit(one) => return sign(one),
        Command::RotateAudit(at) => match Signer::rotate(&at.state) {
            Ok((old, new)) => {
                Ok(format!("the audits are signed with key {} instead of {}", new.key_id, old.key_id))
            }
            Err(why) => Err(LetterError::Refused(why.to_string())),
        },
    };
    match done {
        Ok(said) => {
            out::say(&said);
            Ok(Exit::Done)
        }
        Err(why) => {
            out::say(&format!("tidegate keys: {why}"));
            Ok(Exit::from(&why))
        }
    }
}

/// Generates a key for `audit.key` in a manifest.
fn sign(args: &One) -> io::Result<Exit> {
    let made = || -> Result<Signer, String> {
        if args.key.exists() {
            return Err(format!("{} already exists", args.key.display()));
        }
        let signer = Signer::generate().map_err(|e| e.to_string())?;
        signer.keep(&args.key).map_err(|e| e.to_string())?;
        Ok(signer)
    };
    match made() {
        Ok(signer) => {
            out::data(&format!("{}\n", signer.public().to_text()))?;
            out::say(&format!("wrote key {} to {}", signer.key_id, args.key.display()));
            Ok(Exit::Done)
        }
        Err(why) => {
            out::say(&format!("tidegate keys: {why}"));
            Ok(Exit::Usage)
        }
    }
}

fn read(path: &Path) -> Result<Vec<SecretKey>, LetterError> {
    match std::fs::read_to_string(path) {
        Ok(text) => SecretKey::all_from_text(&text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(LetterError::Refused(format!("{}: {e}", path.display()))),
    }
}

/// Appends a key to the file durably: it must not be lost once something is sealed to it.
fn add(path: &Path, key: &SecretKey) -> Result<(), LetterError> {
    let at = |e: io::Error| LetterError::Refused(format!("{}: {e}", path.display()));
    let mut file = durable::append(path).map_err(at)?;
    writeln!(file, "{}", *key.to_text()).map_err(at)?;
    file.sync_all().map_err(at)
}

impl Both {
    /// A command on the same store and file, to be pasted.
    fn command(&self, verb: &str, store: &LetterStoreLocation) -> String {
        let key = self.key.display().to_string();
        format!("tidegate keys {verb} --key {} --store {}", shell(&key), shell(&store.to_string()))
    }
}

fn generate(args: &Both) -> Result<String, LetterError> {
    let place = LetterStoreLocation::of(&args.store)?;
    let mut store = LetterStore::open(&place)?;
    if store.setting("recipient")?.is_some() {
        return Err(LetterError::Refused(format!(
            "the store already has a key; to replace it: {}",
            args.command("rotate", &place)
        )));
    }
    let key = SecretKey::generate()?;
    add(&args.key, &key)?;
    store.set("recipient", &key.recipient().to_text(), now_ms())?;
    Ok(format!(
        "new payloads are sealed with key {}; its secret key is in {}",
        key.key_id,
        args.key.display()
    ))
}

/// The new key is in the file before the store uses it, and the store uses it before any key is
/// wrapped to it. So an interrupted rotation can be repeated.
fn rotate(args: &Both) -> Result<String, LetterError> {
    let place = LetterStoreLocation::of(&args.store)?;
    let mut store = LetterStore::open(&place)?;
    let mut keys = read(&args.key)?;
    let now = store.setting("recipient")?.map(|text| Recipient::from_text(&text)).transpose()?;
    let now = now.ok_or_else(|| {
        LetterError::Refused(format!(
            "the store has no key; to create one: {}",
            args.command("generate", &place)
        ))
    })?;
    // After an interrupted rotation some letters still have other keys: finish it with the same
    // key.
    let unfinished = !store.wrapped_to_others(&now.key_id, -1)?.is_empty();
    let recipient = if unfinished && keys.iter().any(|key| key.key_id == now.key_id) {
        now
    } else {
        let key = SecretKey::generate()?;
        add(&args.key, &key)?;
        store.set("recipient", &key.recipient().to_text(), now_ms())?;
        let recipient = key.recipient();
        keys.push(key);
        recipient
    };
    let keys = Keyring(keys);
    let (mut after, mut count) = (-1, 0);
    loop {
        let rows = store.wrapped_to_others(&recipient.key_id, after)?;
        let Some(last) = rows.last() else { break };
        after = last.seq;
        let wrapped = rows
            .iter()
            .map(|row| keys.rewrap(row, &recipient))
            .collect::<Result<Vec<RewrappedKey>, LetterError>>()?;
        let detail = json!({ "to": recipient.key_id, "letters": wrapped.len() });
        count += store.rewrap(&wrapped, detail, now_ms())?;
    }
    Ok(format!(
        "re-encrypted {} with key {}; older keys are no longer needed",
        counted(count, "letter", "letters"),
        recipient.key_id
    ))
}
