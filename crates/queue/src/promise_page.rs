//! Compares what a transport promises with the table of `docs/queues.md`.
//!
//! A cell is compared if it is as plain as the promise: a cell that names a condition, such as a parameter
//! of the URL, is for people.

use crate::conformance::{Broker, CaseResult, LEASE};
use crate::transport::Promises;

const PAGE: &str = include_str!("../../../docs/queues.md");
/// The header of the table, up to the columns that are not promises.
const HEADER: &str = "| queue | order per key | priority | a key is queued once | counts deliveries | held by | groups | delay at once | largest message |";

/// The documentation says what the transport promises. A transport that is not on the page is not compared.
///
/// # Errors
/// The cells that differ.
pub async fn promises_what_is_documented(broker: &dyn Broker) -> CaseResult {
    let worker = broker.worker("a", LEASE).await.map_err(|e| e.to_string())?;
    let promises = worker.promises();
    row(promises.name).map_or(Ok(()), |cells| compare(&cells, &promises))
}

/// The cells of a row behind its name.
fn row(name: &str) -> Option<Vec<&'static str>> {
    let table = PAGE.lines().skip_while(|line| !line.starts_with(HEADER));
    let rows = table.skip(2).take_while(|line| line.starts_with('|'));
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    rows.map(cells)
        .find(|cells| cells.first() == Some(&name))
        .map(|cells| cells.into_iter().skip(1).collect())
}

fn compare(cells: &[&str], promises: &Promises) -> CaseResult {
    let flag = |value: bool| if value { "yes" } else { "no" }.to_owned();
    let delay = match promises.delay_max.map(|delay| delay.as_secs()) {
        None => "any".to_owned(),
        Some(0) => "none".to_owned(),
        Some(seconds) => format!("{} min", seconds / 60),
    };
    let held = if promises.leases { "lease" } else { "connection" };
    let all = [
        flag(promises.ordering),
        flag(promises.priority),
        flag(promises.unique),
        flag(promises.counts_deliveries),
        held.to_owned(),
        flag(promises.groups),
        delay,
        size(promises.body_max),
    ];
    let is_condition = |cell: &str| cell.contains('`') || cell.contains("of the server");
    let differs = |(cell, promised): &(&&str, &String)| !is_condition(cell) && **cell != promised.as_str();
    let wrong: Vec<String> = cells
        .iter()
        .zip(&all)
        .filter(differs)
        .map(|(cell, promised)| {
            format!("docs/queues.md says {cell:?} of {}, it is {promised:?}", promises.name)
        })
        .collect();
    if cells.len() < all.len() {
        return Err(format!("docs/queues.md: the row of {} has too few cells", promises.name));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

fn size(bytes: usize) -> String {
    match (bytes % (1 << 20), bytes % (1 << 10)) {
        (0, _) => format!("{} MiB", bytes >> 20),
        (_, 0) => format!("{} KiB", bytes >> 10),
        _ => {
            let digits = bytes.to_string();
            let grouped: Vec<String> =
                digits.as_bytes().rchunks(3).rev().map(|part| String::from_utf8_lossy(part).into()).collect();
            format!("{} bytes", grouped.join(","))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQLITE: Promises = Promises {
        name: "SQLite",
        ordering: true,
        priority: true,
        unique: true,
        counts_deliveries: true,
        leases: true,
        groups: false,
        delay_max: None,
        body_max: 64 << 20,
    };

    #[test]
    fn every_transport_has_a_row() {
        for name in [
            "SQLite",
            "PostgreSQL",
            "Redis Streams",
            "RabbitMQ",
            "NATS JetStream",
            "AWS SQS",
            "AWS SQS FIFO",
            "Google Pub/Sub",
            "Kafka",
        ] {
            assert!(row(name).is_some_and(|cells| cells.len() == 10), "{name}");
        }
        assert_eq!(row("another"), None);
    }

    #[test]
    fn a_cell_that_differs_is_named() {
        let cells = row("SQLite").unwrap_or_default();
        assert_eq!(compare(&cells, &SQLITE), Ok(()));
        let less = Promises { priority: false, body_max: 1_000_000, ..SQLITE };
        let found = compare(&cells, &less).unwrap_err();
        assert_eq!(
            found,
            "docs/queues.md says \"yes\" of SQLite, it is \"no\"\ndocs/queues.md says \"64 MiB\" of SQLite, it is \"1,000,000 bytes\""
        );
    }
}
