//! Reads audit entries.

use tidegate_core::letter::LetterId;

use super::{AuditError, AuditRow, COLUMNS};
use crate::sql::{Sql, Val};
use tidegate_core::hex::hex;

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// Its number, from 1.
    pub n: i64,
    /// Time in milliseconds since 1970.
    pub at_ms: i64,
    /// The user who acted.
    pub who: String,
    /// The action.
    pub act: String,
    /// The id of the letter.
    pub letter: Option<LetterId>,
    /// The key of the record or batch.
    pub key: Option<String>,
    /// The code of the taxonomy.
    pub code: Option<String>,
    /// The destination.
    pub dest: Option<String>,
    /// Further fields, as JSON.
    pub detail: String,
    /// The hash over this entry and the previous hash, in hex.
    pub hash: String,
}

impl From<AuditRow> for AuditEntry {
    fn from(row: AuditRow) -> AuditEntry {
        AuditEntry {
            n: row.n,
            at_ms: row.at_ms,
            who: row.who,
            act: row.act,
            letter: row.letter.and_then(|bytes| LetterId::from_bytes(&bytes)),
            key: row.key,
            code: row.code,
            dest: row.dest,
            detail: row.detail,
            hash: hex(&row.hash),
        }
    }
}

/// A filter of audit entries. Empty means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// The number of one entry.
    pub n: Option<i64>,
    /// Actions.
    pub acts: Vec<String>,
    /// The user who acted.
    pub who: Option<String>,
    /// The id of a letter.
    pub letter: Option<LetterId>,
    /// A substring of the key.
    pub key: Option<String>,
    /// A code of the taxonomy.
    pub code: Option<String>,
    /// A substring of the destination.
    pub dest: Option<String>,
    /// The start of the time range, in milliseconds since 1970, inclusive.
    pub since_ms: Option<i64>,
    /// The end of the time range, in milliseconds since 1970, exclusive.
    pub until_ms: Option<i64>,
    /// The most entries to return; the newest are chosen.
    pub limit: u32,
}

/// The entries that match a filter, oldest first.
pub(crate) fn read<S: Sql + ?Sized>(
    sql: &mut S,
    filter: &AuditFilter,
) -> Result<Vec<AuditEntry>, AuditError> {
    let mut args: Vec<Val> = Vec::new();
    let mut terms = Vec::new();
    let mut term = |text: &str, value: Val| {
        args.push(value);
        terms.push(text.replace('@', &format!("?{}", args.len())));
    };
    let part = |text: &str| {
        let escaped = text.replace('!', "!!").replace('%', "!%").replace('_', "!_");
        Val::Text(format!("%{escaped}%"))
    };
    if let Some(n) = filter.n {
        term("n = @", n.into());
    }
    if let Some(who) = &filter.who {
        term("who = @", who.as_str().into());
    }
    if let Some(letter) = filter.letter {
        term("letter = @", letter.to_bytes().as_slice().into());
    }
    if let Some(key) = &filter.key {
        term("key LIKE @ ESCAPE '!'", part(key));
    }
    if let Some(code) = &filter.code {
        term("code = @", code.as_str().into());
    }
    if let Some(dest) = &filter.dest {
        term("dest LIKE @ ESCAPE '!'", part(dest));
    }
    if let Some(since) = filter.since_ms {
        term("at_ms >= @", since.into());
    }
    if let Some(until) = filter.until_ms {
        term("at_ms < @", until.into());
    }
    if !filter.acts.is_empty() {
        let mut places = Vec::new();
        for act in &filter.acts {
            args.push(act.as_str().into());
            places.push(format!("?{}", args.len()));
        }
        terms.push(format!("act IN ({})", places.join(", ")));
    }
    let which = if terms.is_empty() { String::new() } else { format!("WHERE {}", terms.join(" AND ")) };
    args.push(i64::from(filter.limit).into());
    let question = format!("SELECT {COLUMNS} FROM audit {which} ORDER BY n DESC LIMIT ?{}", args.len());
    let mut entries: Vec<AuditEntry> =
        sql.query(&question, &args)?.into_iter().map(|row| AuditRow::from(row).into()).collect();
    entries.reverse();
    Ok(entries)
}
