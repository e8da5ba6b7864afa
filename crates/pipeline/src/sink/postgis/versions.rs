//! The statements that write rows, and what becomes of the rows of earlier runs.
//!
//! With `mode: sync` a table of the pipeline's own holds the keys that the run has seen. It is
//! written in the transaction of the rows, so it is as complete as the checkpoint says. When the
//! source has ended, the rows without a key in it are those that the source no longer has.

use postgres::error::SqlState;
use sha2::{Digest, Sha256};
use tidegate_core::hex::hex;
use tidegate_geo::{Batch, Value};

use super::{AbsentRows, ManagedColumns, PostgisTable, SinkError, escape, judge, quote};
use crate::manifest::WriteMode;

/// The statements of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Statements {
    /// Ends the versions that the staged rows replace; empty without a history.
    pub(super) close: String,
    /// Moves the staged rows into the table; returns the number of new rows, and of new or changed ones.
    pub(super) insert: String,
    /// Creates the table of keys; empty unless the mode is `sync`.
    pub(super) track: String,
}

impl PostgisTable {
    pub(super) fn statements(&self) -> Result<Statements, String> {
        let name = self.name()?;
        let all = self.columns()?;
        let list = all.join(", ");
        if !self.mode.is_keyed() {
            let insert = format!(
                "WITH done AS (INSERT INTO {name} ({list}) SELECT {list} FROM tidegate_stage ORDER BY tidegate_row RETURNING 1) SELECT count(*), count(*) FROM done"
            );
            return Ok(Statements { insert, ..Statements::default() });
        }
        let key = self.wanted().key_columns()?;
        let set = all.iter().map(|name| format!("{name} = EXCLUDED.{name}")).collect::<Vec<_>>().join(", ");
        let differs = |other: &str| {
            let each = all.iter().map(|name| format!("t.{name} IS DISTINCT FROM {other}.{name}"));
            each.collect::<Vec<_>>().join(" OR ")
        };
        let same = self.same("t", "l")?;
        let at = self.at.sql();
        // Of rows with the same key in a batch the last one wins, as it would across batches.
        let last = format!(
            "WITH last AS (SELECT DISTINCT ON ({key}) * FROM tidegate_stage ORDER BY {key}, tidegate_row DESC)"
        );
        // The columns that we write ourselves: their names and values in a new row, the assignment in
        // an existing one, and when that is needed although the record is the same.
        let (own, values, reset, stale, target) = match self.managed {
            ManagedColumns::None => ("", String::new(), "", "", ""),
            ManagedColumns::DeletedAt => {
                ("", String::new(), ", deleted_at = NULL", " OR t.deleted_at IS NOT NULL", "")
            }
            ManagedColumns::Validity => {
                (", valid_from", format!(", {at}::timestamptz"), "", "", " WHERE valid_to IS NULL")
            }
        };
        let insert = format!(
            "{last}, done AS (INSERT INTO {name} AS t ({list}{own}) SELECT {list}{values} FROM last ORDER BY tidegate_row
             ON CONFLICT ({key}){target} DO UPDATE SET {set}{reset} WHERE {}{stale} RETURNING (t.xmax = 0) AS fresh)
             SELECT count(*) FILTER (WHERE fresh), count(*) FROM done",
            differs("EXCLUDED")
        );
        let close = match self.managed {
            // A version that this run wrote is corrected, not ended.
            ManagedColumns::Validity => format!(
                "{last} UPDATE {name} t SET valid_to = {at} FROM last l WHERE {same} AND t.valid_to IS NULL AND t.valid_from < {at} AND ({})",
                differs("l")
            ),
            ManagedColumns::None | ManagedColumns::DeletedAt => String::new(),
        };
        let track = match self.mode {
            WriteMode::Sync => {
                let keys = self.keys_table()?;
                format!(
                    "DROP TABLE IF EXISTS {keys}; CREATE TABLE {keys} AS SELECT {key} FROM {name} WITH NO DATA; ALTER TABLE {keys} ADD PRIMARY KEY ({key});"
                )
            }
            WriteMode::Upsert | WriteMode::Append | WriteMode::Replace => String::new(),
        };
        Ok(Statements { close, insert, track })
    }

    /// The condition that two rows have the same key.
    fn same(&self, a: &str, b: &str) -> Result<String, String> {
        let each = self.key.iter().map(|name| Ok(format!("{a}.{0} = {b}.{0}", quote(name)?)));
        Ok(each.collect::<Result<Vec<_>, String>>()?.join(" AND "))
    }

    /// The table of the keys that this pipeline has seen.
    fn keys_table(&self) -> Result<String, String> {
        let of = format!("{}:{}", self.pipeline, self.form.table);
        let hash: [u8; 32] = Sha256::digest(of.as_bytes()).into();
        self.own(&format!("tidegate_keys_{}", hex(&hash[..8])))
    }

    /// Remembers the keys of these rows, whether the table takes them or not.
    pub(super) fn track(&mut self, batch: &Batch, rows: &[usize]) -> Result<(), SinkError> {
        let at: Vec<usize> = self.key.iter().filter_map(|name| self.schema.position(name)).collect();
        let mut text = String::new();
        for row in rows {
            for (n, at) in at.iter().enumerate() {
                if n > 0 {
                    text.push('\t');
                }
                match batch.value(*row, *at) {
                    Value::Bool(b) => text.push(if b { 't' } else { 'f' }),
                    Value::Int(i) => text.push_str(&i.to_string()),
                    Value::Real(x) => text.push_str(&format!("{x:?}")),
                    Value::Text(value) | Value::Json(value) => escape(value, &mut text),
                    Value::Bytes(bytes) => text.push_str(&format!("\\\\x{}", hex(bytes))),
                    // Such a row was refused.
                    Value::Null => text.push_str("\\N"),
                }
            }
            text.push('\n');
        }
        self.copy_keys(&text)
    }

    /// Copies keys, in the text format of COPY, into the table of keys.
    fn copy_keys(&mut self, text: &str) -> Result<(), SinkError> {
        let (keys, key) = (self.keys_table()?, self.wanted().key_columns()?);
        let client = self.connect()?;
        let copied = (|| -> Result<(), postgres::Error> {
            client.batch_execute(&format!(
                "CREATE TEMPORARY TABLE IF NOT EXISTS tidegate_stage_keys ON COMMIT DELETE ROWS AS SELECT {key} FROM {keys} WITH NO DATA; SAVEPOINT keys"
            ))?;
            client.copy_in(&format!("COPY tidegate_stage_keys ({key}) FROM STDIN"), text)?;
            client.batch_execute(&format!(
                "INSERT INTO {keys} ({key}) SELECT DISTINCT {key} FROM tidegate_stage_keys ON CONFLICT DO NOTHING;
                 DELETE FROM tidegate_stage_keys; RELEASE SAVEPOINT keys"
            ))
        })();
        let Err(e) = copied else { return Ok(()) };
        // A key that does not fit the column, such as a number out of range, has no row.
        if super::blame(&e).is_none() {
            return Err(keys_error(&e));
        }
        self.connect()?.batch_execute("ROLLBACK TO SAVEPOINT keys").map_err(|e| judge(&e))?;
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() < 2 {
            return Ok(());
        }
        for half in lines.chunks(lines.len().div_ceil(2)) {
            self.copy_keys(&(half.join("\n") + "\n"))?;
        }
        Ok(())
    }

    /// Remembers the keys of records that were rejected: their rows stay as they are.
    pub(super) fn spare_keys(&mut self, keys: &[Vec<String>]) -> Result<(), SinkError> {
        if keys.is_empty() {
            return Ok(());
        }
        self.begin()?;
        let mut text = String::new();
        for key in keys {
            for (n, value) in key.iter().enumerate() {
                if n > 0 {
                    text.push('\t');
                }
                escape(value, &mut text);
            }
            text.push('\n');
        }
        self.copy_keys(&text)
    }

    /// Which of these keys a current row has. They are compared as text, because a column may have
    /// another type than its field.
    pub(super) fn has_rows(&mut self, keys: &[Vec<String>]) -> Result<Vec<bool>, SinkError> {
        if keys.is_empty() || !self.mode.is_keyed() {
            return Ok(vec![false; keys.len()]);
        }
        self.begin()?;
        let texts = self.key.iter().map(|name| Ok(format!("t.{}::text", quote(name)?)));
        let texts = texts.collect::<Result<Vec<_>, String>>()?;
        let lists: Vec<Vec<&str>> = (0..texts.len())
            .map(|at| keys.iter().map(|key| key.get(at).map_or("", String::as_str)).collect())
            .collect();
        let places = (1..=texts.len()).map(|at| format!("${at}::text[]")).collect::<Vec<_>>().join(", ");
        let (name, list) = (self.name()?, texts.join(", "));
        let sql = format!(
            "SELECT {list} FROM {name} t WHERE ({list}) IN (SELECT * FROM unnest({places})) AND {}",
            self.managed.current("t")
        );
        let args: Vec<&(dyn postgres::types::ToSql + Sync)> =
            lists.iter().map(|list| list as &(dyn postgres::types::ToSql + Sync)).collect();
        let rows = self.connect()?.query(&sql, &args).map_err(|e| judge(&e))?;
        let width = texts.len();
        let found: std::collections::HashSet<Vec<String>> =
            rows.iter().map(|row| (0..width).map(|at| row.get(at)).collect()).collect();
        Ok(keys.iter().map(|key| found.contains(key)).collect())
    }

    /// The rows that a deletion concerns: current ones whose key was not seen.
    fn absent_condition(&self) -> Result<String, String> {
        let (keys, same) = (self.keys_table()?, self.same("t", "k")?);
        Ok(format!("{} AND NOT EXISTS (SELECT 1 FROM {keys} k WHERE {same})", self.managed.current("t")))
    }

    pub(super) fn count_absent(&mut self) -> Result<AbsentRows, SinkError> {
        self.begin()?;
        let (name, absent) = (self.name()?, self.absent_condition()?);
        let sql = format!(
            "SELECT count(*), count(*) FILTER (WHERE {absent}) FROM {name} t WHERE {}",
            self.managed.current("t")
        );
        let row = self.connect()?.query_one(&sql, &[]).map_err(|e| keys_error(&e))?;
        let number = |at| row.get::<_, i64>(at).unsigned_abs();
        Ok(AbsentRows { current: number(0), absent: number(1) })
    }

    pub(super) fn retire_absent(&mut self, rows: bool) -> Result<u64, SinkError> {
        self.begin()?;
        let (name, absent, at, keys) =
            (self.name()?, self.absent_condition()?, self.at.sql(), self.keys_table()?);
        let sql = match self.managed {
            ManagedColumns::None => format!("DELETE FROM {name} t WHERE {absent}"),
            ManagedColumns::DeletedAt => format!("UPDATE {name} t SET deleted_at = {at} WHERE {absent}"),
            ManagedColumns::Validity => format!("UPDATE {name} t SET valid_to = {at} WHERE {absent}"),
        };
        let client = self.connect()?;
        let retired = if rows { client.execute(&sql, &[]).map_err(|e| judge(&e))? } else { 0 };
        client.batch_execute(&format!("DROP TABLE IF EXISTS {keys}")).map_err(|e| judge(&e))?;
        Ok(retired)
    }
}

/// An error of a statement that uses the table of keys.
fn keys_error(e: &postgres::Error) -> SinkError {
    if e.code() == Some(&SqlState::UNDEFINED_TABLE) {
        return SinkError::Fatal(
            "the table with the keys of this run was dropped, so rows that the source no longer has cannot be found; run again without --resume".into(),
        );
    }
    judge(e)
}
