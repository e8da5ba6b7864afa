//! PostgreSQL: one store for many machines.
//!
//! Bounding boxes are `box` with a GiST index, words are `tsvector` with a GIN index. Both are
//! built in, so no extension is needed. A batch is inserted with one statement per table, as
//! arrays.

use super::schema::{self, VERSION};
use super::{Db, Packed, Result, SqlDialect, Val, Vals};
use crate::bounded::{self, BoundedClient, BoundedConfig};
use crate::letter::LetterError;
use crate::sql::POSTGRES;
use postgres::types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked};
use std::collections::{HashMap, HashSet};
use std::error::Error;
use tidegate_client::postgres_tls::take_pairs;
use tidegate_client::secret::mask;
use tidegate_core::classify;

/// Opens a store and creates it if it does not exist.
pub(super) fn open(url: &str) -> Result<Box<dyn Db>> {
    Ok(Box::new(Postgres::open(url)?))
}

/// Opens an existing store read-only.
pub(super) fn look(url: &str) -> Result<Option<Box<dyn Db>>> {
    Ok(Postgres::look(url)?.map(|store| Box::new(store) as Box<dyn Db>))
}

struct Postgres {
    client: BoundedClient,
    statements: HashMap<String, postgres::Statement>,
}

/// The advisory lock held while tables are created.
const LOCK: i64 = 0x7469_6465_6761_7465;

impl Postgres {
    fn open(url: &str) -> Result<Postgres> {
        let (url, schema) = schema_of(url)?;
        let mut client = connect(&url)?;
        let begin = format!(
            "BEGIN; SET client_min_messages = warning; SELECT pg_advisory_xact_lock({LOCK});
             CREATE SCHEMA IF NOT EXISTS \"{schema}\"; SET search_path TO \"{schema}\";"
        );
        client.batch_execute(&begin).map_err(|e| failed(&e))?;
        // Older tables are migrated first: an index may need a column that they do not have.
        let upgrade = match version(&mut client, &schema)? {
            Some(found) => schema::upgrade(&found, &POSTGRES).ok_or_else(|| schema::unknown(&found))?,
            None => String::new(),
        };
        let tables = schema::tables(&POSTGRES, ", place BOX, said TSVECTOR");
        let sql = format!(
            "{upgrade} {tables}
             CREATE INDEX IF NOT EXISTS letter_place ON letter USING gist (place);
             CREATE INDEX IF NOT EXISTS letter_said ON letter USING gin (said);
             INSERT INTO meta VALUES ('version', '{VERSION}') ON CONFLICT DO NOTHING; COMMIT;
             SET synchronous_commit = on;"
        );
        client.batch_execute(&sql).map_err(|e| failed(&e))?;
        Ok(Postgres { client, statements: HashMap::new() })
    }

    /// Connects read-only. `None` if there is no store.
    fn look(url: &str) -> Result<Option<Postgres>> {
        let (url, schema) = schema_of(url)?;
        let mut client = connect(&url)?;
        let sql = format!("SET default_transaction_read_only = on; SET search_path TO \"{schema}\"");
        client.batch_execute(&sql).map_err(|e| failed(&e))?;
        let meta = format!("\"{schema}\".meta");
        let there = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&meta]);
        let there: bool = there.map_err(|e| failed(&e))?.get(0);
        Ok(there.then(|| Postgres { client, statements: HashMap::new() }))
    }

    fn statement(&mut self, sql: &str) -> Result<postgres::Statement> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&sql.replace('?', "$")).map_err(|e| failed(&e))?;
        if self.statements.len() < 256 {
            self.statements.insert(sql.to_owned(), statement.clone());
        }
        Ok(statement)
    }
}

fn connect(url: &str) -> Result<BoundedClient> {
    let config = BoundedConfig::parse(url).map_err(LetterError::Store)?;
    config.connect().map_err(|e| match failed(&e) {
        LetterError::Store(what) => LetterError::Store(format!("{what}{}", config.advice(&e))),
        other => other,
    })
}

/// The version of the tables in a schema, if there are any.
fn version(client: &mut BoundedClient, schema: &str) -> Result<Option<String>> {
    let meta = format!("\"{schema}\".meta");
    let there = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&meta]);
    if !there.and_then(|row| row.try_get::<_, bool>(0)).map_err(|e| failed(&e))? {
        return Ok(None);
    }
    let found = client.query_opt("SELECT value FROM meta WHERE name = 'version'", &[]);
    let found = found.map_err(|e| failed(&e))?;
    found.map(|row| row.try_get(0)).transpose().map_err(|e| failed(&e))
}

/// Removes `schema=NAME` from the URL; returns the URL and the schema.
fn schema_of(url: &str) -> Result<(String, String)> {
    let (url, own) = take_pairs(url, |name| name == "schema");
    let schema = own.into_iter().next().map_or_else(|| "tidegate".into(), |(_, name)| name);
    let plain = schema.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !schema.is_empty();
    if !plain {
        return Err(LetterError::Refused(format!(
            "invalid schema name {schema:?}; use letters, digits and _"
        )));
    }
    Ok((url, schema))
}

/// The error of the database: whether it is down, or something is wrong with the store.
fn failed(error: &postgres::Error) -> LetterError {
    if let Some(why) = bounded::tls_failure(error) {
        return LetterError::Store(why);
    }
    let down = match error.as_db_error() {
        Some(db) => {
            let verdict = classify::sqlstate(db.code().code());
            verdict.code == tidegate_core::Code::DATABASE_UNAVAILABLE
        }
        None => {
            error.is_closed()
                || bounded::no_reply(error)
                || error.source().is_some_and(<dyn Error>::is::<std::io::Error>)
        }
    };
    let what = said(error);
    if down { LetterError::Unreachable(what) } else { LetterError::Store(what) }
}

/// The message of the server, which the `Display` of the error omits.
fn said(error: &postgres::Error) -> String {
    match error.as_db_error() {
        // It may quote the password that it was sent.
        Some(db) => format!("{} ({})", mask(db.message()), db.code().code()),
        None => error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")),
    }
}

impl ToSql for Val {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Val::Null => Ok(IsNull::Yes),
            Val::Int(n) => n.to_sql(ty, out),
            Val::Real(x) => x.to_sql(ty, out),
            Val::Text(text) => text.to_sql(ty, out),
            Val::Blob(bytes) => bytes.to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Val {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> std::result::Result<Val, Box<dyn Error + Sync + Send>> {
        Ok(match *ty {
            Type::INT8 => Val::Int(i64::from_sql(ty, raw)?),
            Type::INT4 => Val::Int(i32::from_sql(ty, raw)?.into()),
            Type::FLOAT8 => Val::Real(f64::from_sql(ty, raw)?),
            Type::BYTEA => Val::Blob(raw.to_vec()),
            _ => Val::Text(String::from_sql(&Type::TEXT, raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> std::result::Result<Val, Box<dyn Error + Sync + Send>> {
        Ok(Val::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl Db for Postgres {
    fn dialect(&self) -> SqlDialect {
        SqlDialect::Postgres
    }

    fn begin(&mut self) -> Result<()> {
        self.client.batch_execute("BEGIN").map_err(|e| failed(&e))
    }

    fn commit(&mut self) -> Result<()> {
        self.client.batch_execute("COMMIT").map_err(|e| failed(&e))
    }

    fn rollback(&mut self) {
        // If the connection is lost, the server has rolled back.
        let _ = self.client.batch_execute("ROLLBACK");
    }

    fn exec(&mut self, sql: &str, args: &[Val]) -> Result<u64> {
        let statement = self.statement(sql)?;
        let args: Vec<&(dyn ToSql + Sync)> = args.iter().map(|a| a as &(dyn ToSql + Sync)).collect();
        self.client.execute(&statement, &args).map_err(|e| failed(&e))
    }

    fn query(&mut self, sql: &str, args: &[Val]) -> Result<Vec<Vals>> {
        let statement = self.statement(sql)?;
        let args: Vec<&(dyn ToSql + Sync)> = args.iter().map(|a| a as &(dyn ToSql + Sync)).collect();
        let rows = self.client.query(&statement, &args).map_err(|e| failed(&e))?;
        let vals = |row: &postgres::Row| {
            (0..row.len()).map(|i| row.try_get(i)).collect::<std::result::Result<_, _>>()
        };
        rows.iter().map(|row| vals(row).map(Vals).map_err(|e| failed(&e))).collect()
    }

    fn add(&mut self, rows: &[&Packed], groups: &[i64]) -> Result<Vec<bool>> {
        let statement = self.statement(
            "INSERT INTO letter (id, once, root, parent, generation, grp, state, first_ms, failed_ms,
                 not_before_ms, retain_ms, hold, crs, last_ms, run, place, said)
             SELECT id, once, root, parent, generation, grp, state, first_ms, failed_ms, not_before_ms,
                 retain_ms, hold, crs, failed_ms, run, CASE WHEN x0 IS NULL THEN NULL ELSE box(point(x0, y0), point(x1, y1)) END,
                 to_tsvector('simple', words)
             FROM unnest(?1::bytea[], ?2::bytea[], ?3::bytea[], ?4::bytea[], ?5::bigint[], ?6::bigint[],
                 ?7::bigint[], ?8::bigint[], ?9::bigint[], ?10::bigint[], ?11::bigint[], ?12::text[],
                 ?13::text[], ?14::float8[], ?15::float8[], ?16::float8[], ?17::float8[], ?18::text[],
                 ?19::text[])
             AS t (id, once, root, parent, generation, grp, state, first_ms, failed_ms, not_before_ms,
                 retain_ms, hold, crs, x0, y0, x1, y1, words, run)
             ON CONFLICT DO NOTHING RETURNING id, seq",
        )?;
        macro_rules! column {
            ($row:ident => $value:expr) => {
                rows.iter().map(|$row| $value).collect::<Vec<_>>()
            };
        }
        let corner = |i: usize| column!(r => r.bbox.and_then(|b| b.get(i).copied()));
        let added = self
            .client
            .query(
                &statement,
                &[
                    &column!(r => r.id.to_bytes().to_vec()),
                    &column!(r => r.once.to_vec()),
                    &column!(r => r.root.to_bytes().to_vec()),
                    &column!(r => r.parent.map(|p| p.to_bytes().to_vec())),
                    &column!(r => i64::from(r.generation)),
                    &groups,
                    &column!(r => r.state as i64),
                    &column!(r => r.first_ms),
                    &column!(r => r.failed_ms),
                    &column!(r => r.not_before_ms),
                    &column!(r => r.retain_ms),
                    &column!(r => r.hold.as_deref()),
                    &column!(r => r.crs.as_deref()),
                    &corner(0),
                    &corner(1),
                    &corner(2),
                    &corner(3),
                    &column!(r => r.words.as_str()),
                    &column!(r => r.run.as_str()),
                ],
            )
            .map_err(|e| failed(&e))?;
        let mut seqs: HashMap<Vec<u8>, i64> = HashMap::with_capacity(added.len());
        for row in &added {
            let id: Vec<u8> = row.try_get(0).map_err(|e| failed(&e))?;
            seqs.insert(id, row.try_get(1).map_err(|e| failed(&e))?);
        }
        let new: Vec<(&&Packed, i64)> = rows
            .iter()
            .filter_map(|row| seqs.get(row.id.to_bytes().as_slice()).map(|seq| (row, *seq)))
            .collect();
        self.add_bodies(&new)?;
        Ok(rows.iter().map(|row| seqs.contains_key(row.id.to_bytes().as_slice())).collect())
    }

    fn index(&mut self, seq: i64, bbox: Option<[f64; 4]>, words: Option<&str>) -> Result<()> {
        match bbox {
            Some(b) => self.exec(
                "UPDATE letter SET place = box(point(?2, ?3), point(?4, ?5)) WHERE seq = ?1",
                &[Val::Int(seq), Val::Real(b[0]), Val::Real(b[1]), Val::Real(b[2]), Val::Real(b[3])],
            )?,
            None => self.exec("UPDATE letter SET place = NULL WHERE seq = ?1", &[seq.into()])?,
        };
        let sql = "UPDATE letter SET said = to_tsvector('simple', coalesce(?2::text, '')) WHERE seq = ?1";
        self.exec(sql, &[seq.into(), words.into()])?;
        Ok(())
    }

    fn bytes(&mut self) -> Result<i64> {
        let rows = self.query(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
             JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname = current_schema() AND c.relkind = 'r'",
            &[],
        )?;
        Ok(rows.first().map_or(0, |row| row.int(0)))
    }

    fn lock_audit(&mut self) -> Result<()> {
        // The lock is per schema: it is numbered by the table's oid.
        let sql = "SELECT pg_advisory_xact_lock('audit'::regclass::oid::bigint)::text";
        self.query(sql, &[]).map(|_| ())
    }
}

impl Postgres {
    fn add_bodies(&mut self, new: &[(&&Packed, i64)]) -> Result<()> {
        let body = self.statement(
            "INSERT INTO body (seq, envelope, received, received_blob, current, current_blob, wrap, key_id)
             SELECT * FROM unnest(?1::bigint[], ?2::text[], ?3::bytea[], ?4::bytea[], ?5::bytea[], ?6::bytea[],
                 ?7::bytea[], ?8::text[])",
        )?;
        let blob = self.statement(
            "INSERT INTO blob (sha, bytes) SELECT * FROM unnest(?1::bytea[], ?2::bytea[]) ON CONFLICT DO NOTHING",
        )?;
        macro_rules! column {
            ($row:ident => $value:expr) => {
                new.iter().map(|($row, _)| $value).collect::<Vec<_>>()
            };
        }
        let seqs: Vec<i64> = new.iter().map(|(_, seq)| *seq).collect();
        self.client
            .execute(
                &body,
                &[
                    &seqs,
                    &column!(r => r.envelope.as_str()),
                    &column!(r => r.received.inline()),
                    &column!(r => r.received.sha()),
                    &column!(r => r.current.as_ref().and_then(|c| c.inline())),
                    &column!(r => r.current.as_ref().and_then(|c| c.sha())),
                    &column!(r => r.wrap.as_deref()),
                    &column!(r => r.key_id.as_deref()),
                ],
            )
            .map_err(|e| failed(&e))?;
        let mut seen = HashSet::new();
        let blobs: Vec<(&[u8], &[u8])> = new
            .iter()
            .flat_map(|(row, _)| [Some(&row.received), row.current.as_ref()])
            .flatten()
            .filter_map(|part| Some((part.sha()?, part.bytes.as_slice())))
            .filter(|(sha, _)| seen.insert(*sha))
            .collect();
        if !blobs.is_empty() {
            let (shas, bytes): (Vec<&[u8]>, Vec<&[u8]>) = blobs.into_iter().unzip();
            self.client.execute(&blob, &[&shas, &bytes]).map_err(|e| failed(&e))?;
        }
        Ok(())
    }
}
