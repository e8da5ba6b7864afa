//! Checks the queue of a manifest: whether it answers, what it promises, which of its settings lose
//! messages, and whether the sink can hold the states of its tasks.
//!
//! Nothing is received or published. A SQLite file that is missing is not created; a queue that is
//! missing on a server is created where a worker would create it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_queue::{Promises, QueueAddress, QueueDepth, QueueError, QueueOptions, Transport, open};
use tokio::runtime::{Builder, Runtime};

use super::{Diagnosis, local};
use crate::manifest::Manifest;
use crate::run::build;
use crate::worker::{address_of, worker_name};

/// Checks the queues of a manifest, if its source is one.
pub(super) fn queue(manifest: &Manifest, folder: &Path) -> Vec<Diagnosis> {
    let form = &manifest.pipeline;
    let Some((source, text)) = form.source.as_ref().and_then(|s| Some((s, s.queue.as_deref()?))) else {
        return Vec::new();
    };
    let group = source.group.as_deref().unwrap_or(&form.id);
    let mut found = examine("queue", text, group, folder);
    if let Some(also) = form.dead_letters.as_ref().and_then(|letters| letters.also.as_deref()) {
        found.extend(examine("dead queue", also, group, folder));
    }
    found.extend(tasks(manifest, folder));
    found
}

/// Whether the sink can hold the states of tasks. A pipeline that cannot be built is reported elsewhere.
fn tasks(manifest: &Manifest, folder: &Path) -> Option<Diagnosis> {
    let parts = build(manifest, folder, None, Arc::default()).ok()?;
    Some(match parts.sink.can_hold_tasks() {
        Ok(()) => {
            let who = if parts.sink.is_shared() { "" } else { ", for workers on this machine" };
            Diagnosis::ok("tasks", format!("{} can hold the states of tasks{who}", parts.sink.describe()))
        }
        Err(e) => {
            let said = e.to_string();
            let (what, next) = said.split_once("; ").unwrap_or((&said, "use a .gpkg file or `postgis`"));
            Diagnosis::fail("tasks", what, next)
        }
    })
}

fn examine(check: &str, text: &str, group: &str, folder: &Path) -> Vec<Diagnosis> {
    let address = match address_of(text, folder) {
        Ok(address) => address,
        Err(e) => return vec![Diagnosis::fail(check, e, "correct the address of the queue")],
    };
    if let QueueAddress::Sqlite(path, _) = &address
        && !path.exists()
    {
        let dir = path.parent().unwrap_or(Path::new("."));
        return vec![local::writable(check, dir, "fix the permissions, or choose another file")];
    }
    let runtime = match Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return vec![Diagnosis::fail(check, e.to_string(), "free some memory, then try again")],
    };
    let found = ask(check, &address, group, &runtime);
    // A connection that hangs does not hold up the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    found
}

fn ask(check: &str, address: &QueueAddress, group: &str, runtime: &Runtime) -> Vec<Diagnosis> {
    let options = QueueOptions::new(group, &worker_name());
    let transport = match runtime.block_on(open(address, &options)) {
        Ok(transport) => transport,
        Err(e) => return vec![failed(check, address, &e)],
    };
    let mut found =
        vec![Diagnosis::ok(check, format!("{address} answers; {}", promised(&transport.promises())))];
    found.extend(runtime.block_on(state(check, address, transport.as_ref())));
    found
}

/// The depth, and the settings that lose messages.
async fn state(check: &str, address: &QueueAddress, transport: &dyn Transport) -> Vec<Diagnosis> {
    let depth = format!("{check}: depth");
    let mut found = vec![match transport.depth().await {
        Ok(counts) => Diagnosis::ok(depth, counted(&counts)),
        Err(QueueError::Unsupported(what)) => Diagnosis::ok(depth, format!("not supported: {what}")),
        Err(e) => failed(&depth, address, &e),
    }];
    let settings = format!("{check}: settings");
    match transport.warnings().await {
        Ok(warnings) if warnings.is_empty() => {
            found.push(Diagnosis::ok(settings, "none is known to lose messages"));
        }
        Ok(warnings) => found.extend(warnings.iter().map(|warning| {
            let (what, next) = warning
                .split_once(". ")
                .or_else(|| warning.split_once("; "))
                .unwrap_or((warning, "change the setting on the server"));
            Diagnosis::warn(settings.clone(), what, next)
        })),
        Err(e) => found.push(failed(&settings, address, &e)),
    }
    found
}

fn failed(check: &str, address: &QueueAddress, error: &QueueError) -> Diagnosis {
    let next = if error.is_transient() {
        "check that the server is running and can be reached from here"
    } else {
        "check the address, the user and the password, and what the user may do"
    };
    let finding = Diagnosis::fail(check, format!("{address}: {error}"), next);
    if error.is_transient() { finding.theirs() } else { finding }
}

/// What a transport promises, in words.
fn promised(promises: &Promises) -> String {
    let all = [
        (promises.ordering, "order by key"),
        (promises.priority, "priority"),
        (promises.unique, "a key is queued once"),
        (promises.counts_deliveries, "deliveries are counted"),
        (promises.groups, "several groups"),
    ];
    let words = |wanted: bool| {
        let words: Vec<&str> = all.iter().filter(|(has, _)| *has == wanted).map(|(_, word)| *word).collect();
        if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
    };
    format!(
        "{} promises: {}; not: {}; messages up to {} KiB",
        promises.name,
        words(true),
        words(false),
        promises.body_max / 1024
    )
}

fn counted(depth: &QueueDepth) -> String {
    let number = |n: Option<u64>| n.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
    let oldest = depth.oldest_ms.map(|ms| format!(", the oldest {} s old", ms / 1000));
    format!(
        "{} ready, {} leased, {} waiting{}",
        depth.ready,
        number(depth.leased),
        number(depth.waiting),
        oldest.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_and_depths_are_sentences() {
        let promises = Promises {
            name: "Redis Streams",
            ordering: false,
            priority: false,
            unique: true,
            counts_deliveries: true,
            leases: true,
            groups: false,
            delay_max: None,
            body_max: 16 << 20,
        };
        assert_eq!(
            promised(&promises),
            "Redis Streams promises: a key is queued once, deliveries are counted; not: order by key, priority, several groups; messages up to 16384 KiB"
        );
        let depth = QueueDepth { ready: 3, leased: Some(1), waiting: None, oldest_ms: Some(61_500) };
        assert_eq!(counted(&depth), "3 ready, 1 leased, unknown waiting, the oldest 61 s old");
        assert_eq!(counted(&QueueDepth::default()), "0 ready, unknown leased, unknown waiting");
    }
}
