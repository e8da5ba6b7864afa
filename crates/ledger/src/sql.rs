//! Values and statements that SQLite and PostgreSQL both accept.
//!
//! The logic on rows is written once, in SQL that both understand; the owner of a connection runs
//! it.

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, params_from_iter};

use crate::audit::AuditError;

/// The SQL types that the two databases spell differently, for `CREATE TABLE`.
pub(crate) struct Spelling {
    /// `BYTES`: a byte string.
    pub(crate) bytes: &'static str,
    /// `NUMBER`: an integer key. SQLite would keep a second index for a BIGINT.
    pub(crate) number: &'static str,
    /// `SERIAL`: an integer key that the database assigns.
    pub(crate) serial: &'static str,
}

/// The types of SQLite.
pub(crate) const SQLITE: Spelling =
    Spelling { bytes: "BLOB", number: "INTEGER", serial: "INTEGER PRIMARY KEY AUTOINCREMENT" };
/// The types of PostgreSQL.
#[cfg(feature = "postgres")]
pub(crate) const POSTGRES: Spelling =
    Spelling { bytes: "BYTEA", number: "BIGINT", serial: "BIGSERIAL PRIMARY KEY" };

impl Spelling {
    /// Replaces the placeholders in the statements.
    pub(crate) fn spell(&self, tables: &str) -> String {
        tables.replace("BYTES", self.bytes).replace("NUMBER", self.number).replace("SERIAL", self.serial)
    }
}

/// A value in a statement or row.
#[derive(Clone, Debug, PartialEq)]
pub enum Val {
    /// NULL.
    Null,
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl From<&str> for Val {
    fn from(text: &str) -> Val {
        Val::Text(text.to_owned())
    }
}

impl From<i64> for Val {
    fn from(n: i64) -> Val {
        Val::Int(n)
    }
}

impl From<Option<i64>> for Val {
    fn from(n: Option<i64>) -> Val {
        n.map_or(Val::Null, Val::Int)
    }
}

impl From<Option<&str>> for Val {
    fn from(text: Option<&str>) -> Val {
        text.map_or(Val::Null, Val::from)
    }
}

impl From<&[u8]> for Val {
    fn from(bytes: &[u8]) -> Val {
        Val::Blob(bytes.to_vec())
    }
}

/// A row of values, read by index. A missing value or one of another type reads as empty, because
/// all statements are our own.
#[derive(Clone, Debug, Default)]
pub struct Vals(pub Vec<Val>);

impl Vals {
    pub(crate) fn int(&self, at: usize) -> i64 {
        self.maybe_int(at).unwrap_or_default()
    }

    pub(crate) fn maybe_int(&self, at: usize) -> Option<i64> {
        match self.0.get(at) {
            Some(Val::Int(n)) => Some(*n),
            _ => None,
        }
    }

    pub(crate) fn text(&self, at: usize) -> String {
        self.maybe_text(at).unwrap_or_default()
    }

    pub(crate) fn maybe_text(&self, at: usize) -> Option<String> {
        match self.0.get(at) {
            Some(Val::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    pub(crate) fn maybe_blob(&self, at: usize) -> Option<Vec<u8>> {
        match self.0.get(at) {
            Some(Val::Blob(bytes)) => Some(bytes.clone()),
            _ => None,
        }
    }

    pub(crate) fn blob(&self, at: usize) -> Vec<u8> {
        self.maybe_blob(at).unwrap_or_default()
    }

    /// Takes the text at `at`.
    pub(crate) fn take_text(&mut self, at: usize) -> Option<String> {
        match self.0.get_mut(at) {
            Some(Val::Text(text)) => Some(std::mem::take(text)),
            _ => None,
        }
    }

    /// Takes the bytes at `at`.
    pub(crate) fn take_blob(&mut self, at: usize) -> Option<Vec<u8>> {
        match self.0.get_mut(at) {
            Some(Val::Blob(bytes)) => Some(std::mem::take(bytes)),
            _ => None,
        }
    }
}

/// A database connection, as far as the audit needs one.
pub(crate) trait Sql {
    /// Runs a statement with the arguments `?1`, `?2` …; returns the number of changed rows.
    fn exec(&mut self, sql: &str, args: &[Val]) -> Result<u64, AuditError>;
    /// Runs a query.
    fn query(&mut self, sql: &str, args: &[Val]) -> Result<Vec<Vals>, AuditError>;
    /// Locks out other writers of audit entries until the transaction ends.
    fn hold(&mut self) -> Result<(), AuditError>;
}

impl rusqlite::ToSql for Val {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Val::Null => ToSqlOutput::Owned(Value::Null),
            Val::Int(n) => ToSqlOutput::Owned(Value::Integer(*n)),
            Val::Real(x) => ToSqlOutput::Owned(Value::Real(*x)),
            Val::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Val::Blob(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

fn val(value: ValueRef<'_>) -> Val {
    match value {
        ValueRef::Null => Val::Null,
        ValueRef::Integer(n) => Val::Int(n),
        ValueRef::Real(x) => Val::Real(x),
        ValueRef::Text(text) => Val::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Val::Blob(bytes.to_vec()),
    }
}

impl Sql for Connection {
    fn exec(&mut self, sql: &str, args: &[Val]) -> Result<u64, AuditError> {
        let mut statement = self.prepare_cached(sql).map_err(AuditError::database)?;
        statement.execute(params_from_iter(args)).map(|n| n as u64).map_err(AuditError::database)
    }

    fn query(&mut self, sql: &str, args: &[Val]) -> Result<Vec<Vals>, AuditError> {
        let mut statement = self.prepare_cached(sql).map_err(AuditError::database)?;
        let columns = statement.column_count();
        let mut rows = statement.query(params_from_iter(args)).map_err(AuditError::database)?;
        let mut out = Vec::new();
        while let Some(row) = rows.next().map_err(AuditError::database)? {
            let vals = (0..columns).map(|i| row.get_ref(i).map(val)).collect::<rusqlite::Result<_>>();
            out.push(Vals(vals.map_err(AuditError::database)?));
        }
        Ok(out)
    }

    fn hold(&mut self) -> Result<(), AuditError> {
        // The SQLite transaction already locks out other writers.
        Ok(())
    }
}
