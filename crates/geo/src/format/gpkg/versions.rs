//! What becomes of a row when its record changes or disappears.
//!
//! A store that writes by key can mark rows, or keep every version of a record, in columns of its own.
//! To find the records that a source no longer has, it remembers the keys of a run in a table of its own,
//! which is written in the transactions of the rows.

use super::{Store, quote};
use crate::error::Error;

/// Columns that the store writes itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ManagedColumns {
    /// None.
    #[default]
    None,
    /// `deleted_at`: since when the source no longer has the record.
    DeletedAt,
    /// `valid_from` and `valid_to`: every version of a record is a row.
    Validity,
}

impl ManagedColumns {
    /// The names of the columns.
    #[must_use]
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            ManagedColumns::None => &[],
            ManagedColumns::DeletedAt => &["deleted_at"],
            ManagedColumns::Validity => &["valid_from", "valid_to"],
        }
    }

    /// The SQL condition that a row of the table `alias` is current.
    #[must_use]
    pub fn current(self, alias: &str) -> String {
        match self {
            ManagedColumns::None => "true".to_owned(),
            ManagedColumns::DeletedAt => format!("{alias}.deleted_at IS NULL"),
            ManagedColumns::Validity => format!("{alias}.valid_to IS NULL"),
        }
    }
}

/// How rows are written by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upsert {
    /// The fields of the key.
    pub key: Vec<String>,
    /// The columns that the store writes itself.
    pub managed: ManagedColumns,
    /// The time that is written into them, as GeoPackage stores it: `2026-11-17T06:00:00.000Z`.
    pub at: String,
    /// The table that remembers the keys of written rows, if any does.
    pub keys_table: Option<String>,
}

/// The number of current rows, and of those whose keys were not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AbsentRows {
    /// Current rows: neither marked as deleted nor replaced by another version.
    pub current: u64,
    /// Those of them that the source no longer has.
    pub absent: u64,
}

impl Store {
    /// Adds the managed columns that the layer lacks, and the unique index over the key.
    pub(super) fn make_versions(&self, upsert: &Upsert, columns: &str) -> Result<(), Error> {
        let table = &self.names.table;
        let mut there = self.db.prepare("SELECT name FROM pragma_table_info(?1)")?;
        let there: Vec<String> =
            there.query_map([table], |row| row.get(0))?.collect::<Result<_, rusqlite::Error>>()?;
        for name in upsert.managed.names() {
            if !there.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                self.db
                    .execute_batch(&format!("ALTER TABLE {} ADD COLUMN {name} DATETIME", quote(table)?))?;
            }
        }
        let (plain, current) =
            (quote(&format!("tidegate_key_{table}"))?, quote(&format!("tidegate_current_{table}"))?);
        let (old, new, when) = match upsert.managed {
            ManagedColumns::Validity => (plain, current, " WHERE valid_to IS NULL"),
            ManagedColumns::None | ManagedColumns::DeletedAt => (current, plain, ""),
        };
        Ok(self.db.execute_batch(&format!(
            "DROP INDEX IF EXISTS {old}; CREATE UNIQUE INDEX IF NOT EXISTS {new} ON {} ({columns}){when}",
            quote(table)?
        ))?)
    }

    /// The table of keys, its columns, and the condition that a row `t` has the key `k`.
    fn keys(&self) -> Result<Option<(String, String, String)>, Error> {
        let super::Writing::Upsert(Upsert { key, keys_table: Some(keys), .. }) = &self.writing else {
            return Ok(None);
        };
        let columns = self.quoted(key)?;
        let same = columns.split(", ").map(|name| format!("t.{name} = k.{name}"));
        Ok(Some((quote(keys)?, columns.clone(), same.collect::<Vec<_>>().join(" AND "))))
    }

    /// Begins with no keys, within the transaction.
    ///
    /// # Errors
    /// On an I/O error.
    pub fn track_keys(&self) -> Result<(), Error> {
        let Some((keys, columns, _)) = self.keys()? else { return Ok(()) };
        let table = quote(&self.names.table)?;
        Ok(self.db.execute_batch(&format!(
            "DROP TABLE IF EXISTS {keys}; CREATE TABLE {keys} AS SELECT {columns} FROM {table} WHERE 0;
             CREATE UNIQUE INDEX {} ON {keys} ({columns})",
            quote(&format!("{}_key", keys.trim_matches('"')))?
        ))?)
    }

    /// Remembers keys, each as the texts of its values, within the transaction.
    ///
    /// # Errors
    /// If the keys of this run are gone, or on an I/O error.
    pub fn spare(&self, all: &[Vec<String>]) -> Result<(), Error> {
        let Some((keys, columns, _)) = self.keys()? else { return Ok(()) };
        for key in all {
            let marks = (1..=key.len()).map(|at| format!("?{at}")).collect::<Vec<_>>().join(", ");
            let sql = format!("INSERT OR IGNORE INTO {keys} ({columns}) VALUES ({marks})");
            self.db.prepare_cached(&sql)?.execute(rusqlite::params_from_iter(key))?;
        }
        Ok(())
    }

    /// The number of rows that the source no longer has, within the transaction.
    ///
    /// # Errors
    /// If the keys of this run are gone, or on an I/O error.
    pub fn absent(&self) -> Result<AbsentRows, Error> {
        let Some((condition, table, managed)) = self.absent_condition()? else {
            return Ok(AbsentRows::default());
        };
        let sql = format!(
            "SELECT count(*), count(*) FILTER (WHERE {condition}) FROM {table} t WHERE {}",
            managed.current("t")
        );
        let number =
            |row: &rusqlite::Row<'_>, at| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)?.unsigned_abs());
        let count =
            |row: &rusqlite::Row<'_>| Ok(AbsentRows { current: number(row, 0)?, absent: number(row, 1)? });
        Ok(self.db.query_row(&sql, [], count)?)
    }

    fn absent_condition(&self) -> Result<Option<(String, String, ManagedColumns)>, Error> {
        let super::Writing::Upsert(upsert) = &self.writing else { return Ok(None) };
        let Some((keys, _, same)) = self.keys()? else { return Ok(None) };
        let current = upsert.managed.current("t");
        let condition = format!("{current} AND NOT EXISTS (SELECT 1 FROM {keys} k WHERE {same})");
        Ok(Some((condition, quote(&self.names.table)?, upsert.managed)))
    }

    /// Deletes, marks or ends the rows that the source no longer has, if `rows`, and forgets the keys. Gives
    /// the number of rows.
    ///
    /// # Errors
    /// If the keys of this run are gone, or on an I/O error.
    pub fn retire(&self, rows: bool) -> Result<u64, Error> {
        let (super::Writing::Upsert(Upsert { at, .. }), Some((condition, table, managed)), Some((keys, ..))) =
            (&self.writing, self.absent_condition()?, self.keys()?)
        else {
            return Ok(0);
        };
        let retired = if rows {
            let sql = match managed {
                ManagedColumns::None => format!("DELETE FROM {table} AS t WHERE {condition}"),
                ManagedColumns::DeletedAt => {
                    format!("UPDATE {table} AS t SET deleted_at = '{at}' WHERE {condition}")
                }
                ManagedColumns::Validity => {
                    format!("UPDATE {table} AS t SET valid_to = '{at}' WHERE {condition}")
                }
            };
            self.db.execute(&sql, [])? as u64
        } else {
            0
        };
        self.db.execute_batch(&format!("DROP TABLE IF EXISTS {keys}"))?;
        Ok(retired)
    }
}
