//! Reading entries.

use tidegate_core::letter::LetterId;

use super::{COLUMNS, Row};
use crate::sql::{Sql, Val};
use tidegate_core::hex::hex;

/// What was entered.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its number, from 1.
    pub n: i64,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// By whom.
    pub who: String,
    /// What.
    pub act: String,
    /// About which letter.
    pub letter: Option<LetterId>,
    /// About which record or batch.
    pub key: Option<String>,
    /// With which code.
    pub code: Option<String>,
    /// Where it went.
    pub dest: Option<String>,
    /// The rest, as JSON.
    pub detail: String,
    /// The hash over this entry and the one before, in hex.
    pub hash: String,
}

impl From<Row> for Entry {
    fn from(row: Row) -> Entry {
        Entry {
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

/// Which entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// This one.
    pub n: Option<i64>,
    /// Of these acts.
    pub acts: Vec<String>,
    /// By this person.
    pub who: Option<String>,
    /// About this letter.
    pub letter: Option<LetterId>,
    /// Whose key holds this.
    pub key: Option<String>,
    /// With this code.
    pub code: Option<String>,
    /// Whose destination holds this.
    pub dest: Option<String>,
    /// Not before.
    pub since_ms: Option<i64>,
    /// Before.
    pub until_ms: Option<i64>,
    /// So many at most, the last ones.
    pub limit: u32,
}

/// The entries of a filter, oldest first.
pub(crate) fn read<S: Sql + ?Sized>(sql: &mut S, filter: &Filter) -> Result<Vec<Entry>, String> {
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
    let mut entries: Vec<Entry> =
        sql.query(&question, &args)?.into_iter().map(|row| Row::from(row).into()).collect();
    entries.reverse();
    Ok(entries)
}
