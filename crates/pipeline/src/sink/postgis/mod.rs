//! A table in PostgreSQL: rows, checkpoint and seen keys in one schema and one transaction.
//!
//! A batch is copied into a temporary table with COPY, the fastest way, and moved into the table in
//! one statement, with `ON CONFLICT` on the key. A row that the database refuses does not affect
//! the others: the batch is halved until the offending rows are found. After a lost connection the
//! checkpoint tells whether the last commit succeeded.
//!
//! With the PostGIS extension the geometry is a `geometry` with type and SRID and a spatial index.
//! Without it the geometry is well-known binary in a `bytea`, and the run says so: the rows are
//! safe, and `ST_GeomFromWKB` converts them once the extension is installed.

pub(crate) mod layout;
mod versions;

use std::fmt::Write as _;
use std::sync::Arc;

use postgres::error::SqlState;
use sha2::{Digest, Sha256};
use tidegate_client::secret::mask;
use tidegate_core::Code;
use tidegate_core::hex::push_hex;
use tidegate_geo::wkb::{self, Dim, Shape};
use tidegate_geo::{Batch, Problem, Schema, Value};
use tidegate_ledger::bounded::{BoundedClient, BoundedConfig, no_reply, tls_failure};

use super::{
    AbsentRows, ManagedColumns, RowCounts, RunTime, Saved, SavedWatermark, Sink, SinkError, Spec, Standing,
    TaskEnd, TaskTable, WORKER_MARK, tasks,
};
use crate::manifest::{SinkTable, WriteMode};
use crate::secret::fetch_given;
use crate::step::SeenKey;
use layout::{TableLayout, TableNeeds, sql_type};

/// The number of tries for a lock that another session holds, ten per second.
const LOCK_TRIES: u32 = 100;

struct PostgisTable {
    client: Option<BoundedClient>,
    config: BoundedConfig,
    form: SinkTable,
    schema: Arc<Schema>,
    pipeline: String,
    mode: WriteMode,
    managed: ManagedColumns,
    at: RunTime,
    key: Vec<String>,
    srid: u32,
    postgis: bool,
    atomic: bool,
    forget: bool,
    /// Whether other workers write to the table at the same time.
    by_tasks: bool,
    /// The pipeline whose tasks these are.
    task_pipeline: String,
    /// Whether a missing table is an error instead of being created.
    must_exist: bool,
    /// Whether a transaction is open.
    open: bool,
    statements: versions::Statements,
}

/// A quoted identifier, the only way in which external names enter a statement.
pub(crate) fn quote(name: &str) -> Result<String, String> {
    if name.contains('\0') || name.is_empty() || name.len() > 63 {
        return Err(format!("invalid PostgreSQL name {name:?}; expected 1 to 63 bytes without a zero byte"));
    }
    Ok(format!("\"{}\"", name.replace('"', "\"\"")))
}

/// The connection settings of a reference or a URL without a password.
pub(crate) fn config(url: &str) -> Result<BoundedConfig, String> {
    config_of(fetch_given(url)?.reveal())
}

/// The same of a URL that was fetched.
pub(crate) fn config_of(url: &str) -> Result<BoundedConfig, String> {
    let mut bounded = BoundedConfig::parse(url)?;
    // A session whose client is gone ends, and its locks with it.
    let options = format!(
        "-c TimeZone=UTC -c client_min_messages=warning -c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3 {}",
        bounded.config.get_options().unwrap_or_default()
    );
    bounded.config.application_name("tidegate").options(options.trim_end());
    Ok(bounded)
}

/// Classifies an error of the database.
pub(crate) fn judge(e: &postgres::Error) -> SinkError {
    // A server may quote the password that it was sent.
    let message = e
        .as_db_error()
        .map_or_else(|| e.to_string(), |db| format!("{} ({})", mask(db.message()), db.code().code()));
    let Some(state) = e.code() else {
        let message =
            if no_reply(e) { "no reply from the database within reply_timeout".to_owned() } else { message };
        return SinkError::Transient { code: Code::DATABASE_UNAVAILABLE, message };
    };
    match state.code().get(..2) {
        Some("40") => SinkError::Transient { code: Code::SERIALIZATION_FAILURE, message },
        Some("08" | "53" | "57" | "58") => SinkError::Transient { code: Code::DATABASE_UNAVAILABLE, message },
        Some("55") if *state == SqlState::LOCK_NOT_AVAILABLE => {
            SinkError::Transient { code: Code::DATABASE_UNAVAILABLE, message }
        }
        _ => SinkError::Fatal(format!("database error: {message}")),
    }
}

/// Why there is no connection: the message of the database, or the addresses that were tried.
pub(crate) fn could_not_connect(bounded: &BoundedConfig, e: &postgres::Error) -> SinkError {
    use postgres::config::Host;
    if e.as_db_error().is_some() {
        return match judge(e).at("cannot use the database") {
            SinkError::Fatal(message) => SinkError::Fatal(format!("{message}{}", bounded.advice(e))),
            transient @ SinkError::Transient { .. } => transient,
        };
    }
    let config = &bounded.config;
    let ports = config.get_ports();
    let places: Vec<String> = (config.get_hosts().iter().enumerate())
        .map(|(at, host)| {
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                Host::Unix(dir) => format!("{}/.s.PGSQL.{port}", dir.display()),
            }
        })
        .collect();
    if let Some(why) = tls_failure(e) {
        return SinkError::Fatal(format!("cannot connect to {}: {why}", places.join(", ")));
    }
    let cause = std::error::Error::source(e).map_or_else(|| e.to_string(), ToString::to_string);
    SinkError::Transient {
        code: Code::DATABASE_UNAVAILABLE,
        message: format!("cannot connect to {}: {cause} (is the database running?)", places.join(", ")),
    }
}

/// The problem, if an error is caused by a row.
fn blame(e: &postgres::Error) -> Option<Problem> {
    let db = e.as_db_error()?;
    let code = match db.code().code().get(..2)? {
        "22" => Code::DATA_EXCEPTION,
        "23" => Code::CONSTRAINT_VIOLATION,
        // PostGIS reports a geometry of the wrong type or SRID as an internal error.
        "XX" if db.message().to_ascii_lowercase().contains("geometry") => Code::DATA_EXCEPTION,
        _ => return None,
    };
    let problem = Problem::new(code, format!("{} ({})", db.message(), db.code().code()));
    Some(match db.column() {
        Some(column) => problem.under(column),
        None => problem,
    })
}

pub(super) fn open(spec: &Spec, form: &SinkTable) -> Result<Box<dyn Sink>, SinkError> {
    let srid = TableNeeds::of(spec, form)?.srid;
    let mut table = PostgisTable {
        client: None,
        config: config(&form.url)?,
        form: form.clone(),
        schema: spec.schema.clone(),
        pipeline: spec.pipeline.clone(),
        mode: spec.mode,
        managed: spec.managed,
        at: spec.at,
        key: spec.key.clone(),
        srid,
        postgis: false,
        atomic: spec.atomic,
        forget: !spec.resume,
        by_tasks: spec.by_tasks,
        task_pipeline: spec.task_pipeline().to_owned(),
        must_exist: spec.must_exist,
        open: false,
        statements: versions::Statements::default(),
    };
    table.connect()?;
    if table.by_tasks {
        table.prepare_alone()?;
    } else {
        table.prepare()?;
    }
    Ok(Box::new(table))
}

/// Whether tables can be used at all.
pub(super) fn is_there() -> Result<(), SinkError> {
    Ok(())
}

/// Opens the table of tasks beside a table.
pub(super) fn open_tasks(table: &SinkTable, pipeline: &str) -> Result<Box<dyn TaskTable>, SinkError> {
    tasks::postgres::open(table, pipeline)
}

/// See [`super::watermark`].
pub(super) fn watermark(table: &SinkTable, pipeline: &str) -> Result<Option<SavedWatermark>, SinkError> {
    let config = config(&table.url)?;
    let mut client = config.connect().map_err(|e| could_not_connect(&config, &e))?;
    let name = format!("{}.{}", quote(&table.schema)?, quote(&table.table)?);
    let own = format!("{}.tidegate_watermark", quote(&table.schema)?);
    let sql = "SELECT to_regclass($1) IS NOT NULL AND to_regclass($2) IS NOT NULL";
    if !client.query_one(sql, &[&name, &own]).map_err(|e| judge(&e))?.get::<_, bool>(0) {
        return Ok(None);
    }
    let sql = format!("SELECT watermark FROM {own} WHERE pipeline = $1 AND sink = $2");
    let row = client.query_opt(&sql, &[&pipeline, &table.table]).map_err(|e| judge(&e))?;
    let Some(row) = row else { return Ok(None) };
    let standing = standing(&mut client, &name)?;
    Ok(Some(SavedWatermark { watermark: row.get(0), standing }))
}

/// The identity of a table and its number of rows.
fn standing(client: &mut BoundedClient, name: &str) -> Result<Standing, SinkError> {
    // The oid of the table is new for every table, and that of the database for every database
    // that is created or restored from a dump.
    let row = client
        .query_one(
            &format!(
                "SELECT (SELECT oid FROM pg_database WHERE datname = current_database())::text, $1::text::regclass::oid::text, (SELECT count(*) FROM {name})"
            ),
            &[&name],
        )
        .map_err(|e| judge(&e))?;
    let (database, table): (String, String) = (row.get(0), row.get(1));
    let identity = format!("database {database}, table {table}");
    Ok(Standing { identity, rows: Some(row.get::<_, i64>(2).unsigned_abs()) })
}

/// See [`Spec::held_shape`].
pub(super) fn held_shape(table: &SinkTable) -> Result<super::HeldShape, SinkError> {
    let config = config(&table.url)?;
    let mut client = config.connect().map_err(|e| could_not_connect(&config, &e))?;
    let Some(layout) = TableLayout::read(&mut client, table)? else { return Ok(super::HeldShape::default()) };
    Ok(layout.held_shape(table)?)
}

/// See [`Spec::differences`].
pub(super) fn differences(spec: &Spec, table: &SinkTable) -> Result<Vec<String>, SinkError> {
    let wanted = TableNeeds::of(spec, table)?;
    let config = config(&table.url)?;
    let mut client = match config.connect() {
        Ok(client) => client,
        Err(e) if e.code() == Some(&SqlState::INVALID_CATALOG_NAME) => {
            let name = quote(config.config.get_dbname().or(config.config.get_user()).unwrap_or("postgres"))?;
            return Ok(vec![format!("the database does not exist; CREATE DATABASE {name};")]);
        }
        Err(e) => return Err(could_not_connect(&config, &e)),
    };
    let sql = "SELECT to_regnamespace(quote_ident($1)) IS NOT NULL";
    if !client.query_one(sql, &[&table.schema]).map_err(|e| judge(&e))?.get::<_, bool>(0) {
        let name = quote(&table.schema)?;
        return Ok(vec![format!("the schema {} does not exist; CREATE SCHEMA {name};", table.schema)]);
    }
    let Some(layout) = TableLayout::read(&mut client, table)? else { return Ok(Vec::new()) };
    Ok(layout.differences(&wanted)?.iter().map(ToString::to_string).collect())
}

impl PostgisTable {
    fn connect(&mut self) -> Result<&mut BoundedClient, SinkError> {
        if self.client.as_ref().is_none_or(BoundedClient::is_closed) {
            self.open = false;
            let mut client = self.config.connect().map_err(|e| could_not_connect(&self.config, &e))?;
            self.lock(&mut client, &self.pipeline)?;
            self.client = Some(client);
        }
        self.client.as_mut().ok_or_else(|| SinkError::Fatal("no connection".into()))
    }

    /// Creates or checks the tables while no other worker does.
    fn prepare_alone(&mut self) -> Result<(), SinkError> {
        let config = self.config.clone();
        let mut gate = config.connect().map_err(|e| could_not_connect(&config, &e))?;
        // It ends with its connection.
        self.lock(&mut gate, "")?;
        self.prepare()?;
        self.forget_workers()
    }

    /// Removes the checkpoints of workers that have not committed for a day: those that were killed left
    /// them. A worker that lives has one again with its next commit, and needs it only for some seconds.
    fn forget_workers(&mut self) -> Result<(), SinkError> {
        let (checkpoint, seen) = (self.own("tidegate_checkpoint")?, self.own("tidegate_seen")?);
        let prefix = format!("{}{WORKER_MARK}", self.task_pipeline);
        let replay = format!("{prefix}replay");
        let sql = format!(
            "WITH gone AS (DELETE FROM {checkpoint} WHERE left(pipeline, length($1)) = $1
               AND pipeline NOT IN ($2, $3) AND changed < now() - interval '1 day' RETURNING pipeline)
             DELETE FROM {seen} WHERE pipeline IN (SELECT pipeline FROM gone)"
        );
        let own = self.pipeline.clone();
        self.connect()?.execute(&sql, &[&prefix, &own, &replay]).map(drop).map_err(|e| judge(&e))
    }

    /// Takes the lock of this pipeline and table until the connection ends. A killed process may
    /// leave a session that is still committing; once we have the lock it has ended, and the
    /// checkpoint is final.
    fn lock(&self, client: &mut BoundedClient, pipeline: &str) -> Result<(), SinkError> {
        let name = format!("tidegate:{pipeline}:{}.{}", self.form.schema, self.form.table);
        let hash: [u8; 32] = Sha256::digest(name).into();
        let key = hash.first_chunk::<8>().map_or(0, |b| i64::from_le_bytes(*b));
        for _ in 0..LOCK_TRIES {
            let row = client.query_one("SELECT pg_try_advisory_lock($1)", &[&key]).map_err(|e| judge(&e))?;
            if row.get::<_, bool>(0) {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let message = format!("another run of {} is writing to this table", self.pipeline);
        Err(SinkError::Transient { code: Code::CONFLICT, message })
    }

    fn name(&self) -> Result<String, String> {
        Ok(format!("{}.{}", quote(&self.form.schema)?, quote(&self.form.table)?))
    }

    fn own(&self, table: &str) -> Result<String, String> {
        Ok(format!("{}.{}", quote(&self.form.schema)?, quote(table)?))
    }

    /// Creates or checks the tables.
    fn prepare(&mut self) -> Result<(), SinkError> {
        let say = |e: postgres::Error| judge(&e);
        let (name, checkpoint, seen) =
            (self.name()?, self.own("tidegate_checkpoint")?, self.own("tidegate_seen")?);
        let (schema, table) = (self.form.schema.clone(), self.form.table.clone());
        let client = self.connect()?;
        let postgis = client
            .query_opt("SELECT 1 FROM pg_extension WHERE extname = 'postgis'", &[])
            .map_err(say)?
            .is_some();
        let form = self.form.clone();
        let found = TableLayout::read(self.connect()?, &form)?;
        if found.is_none() && self.must_exist {
            return Err(SinkError::Fatal(format!("table {schema}.{table} no longer exists")));
        }
        self.postgis = postgis;
        let sql = match found {
            None => self.create(&name)?,
            Some(layout) => {
                let differences = layout.differences(&self.wanted())?;
                if !differences.is_empty() {
                    let all: Vec<String> = differences.iter().map(ToString::to_string).collect();
                    return Err(SinkError::Fatal(all.join("\n")));
                }
                self.postgis &= !layout.holds_wkb(&form.geometry_column);
                String::new()
            }
        };
        let client = self.connect()?;
        client
            .batch_execute(&format!(
                "BEGIN; {sql}
                 CREATE TABLE IF NOT EXISTS {checkpoint} (pipeline text PRIMARY KEY, checkpoint text NOT NULL, changed timestamptz NOT NULL DEFAULT now());
                 CREATE TABLE IF NOT EXISTS {seen} (pipeline text, scope int, hash bytea, PRIMARY KEY (pipeline, scope, hash)); COMMIT"
            ))
            .map_err(say)?;
        self.statements = self.statements()?;
        Ok(())
    }

    fn wanted(&self) -> TableNeeds<'_> {
        TableNeeds {
            table: &self.form,
            schema: &self.schema,
            key: &self.key,
            mode: self.mode,
            managed: self.managed,
            srid: self.srid,
        }
    }

    fn create(&self, name: &str) -> Result<String, String> {
        let geometry = quote(&self.form.geometry_column)?;
        let mut columns = Vec::new();
        for field in self.schema.fields() {
            if field.name == self.form.geometry_column {
                return Err(format!(
                    "the field `{}` has the name of the geometry column; set `geometry_column`",
                    field.name
                ));
            }
            let must = if self.key.contains(&field.name) { " NOT NULL" } else { "" };
            columns.push(format!("{} {}{must}", quote(&field.name)?, sql_type(field.kind)));
        }
        let kind = if self.postgis {
            let z = match self.schema.dim {
                Dim::Xy => "",
                Dim::Xyz => "Z",
                Dim::Xym => "M",
                Dim::Xyzm => "ZM",
            };
            format!("geometry({}{z}, {})", self.schema.shape.map_or("GEOMETRY", Shape::upper_name), self.srid)
        } else {
            "bytea".to_owned()
        };
        columns.push(format!("{geometry} {kind}"));
        for managed in self.managed.names() {
            let must = if *managed == "valid_from" { " NOT NULL" } else { "" };
            columns.push(format!("{managed} timestamptz{must}"));
        }
        let mut sql = format!("CREATE TABLE {name} ({});", columns.join(", "));
        if self.mode.is_keyed() {
            sql.push_str(&self.wanted().key_index(name)?);
        }
        if self.postgis {
            let _ = write!(sql, " CREATE INDEX ON {name} USING gist ({geometry});");
        }
        Ok(sql)
    }

    fn columns(&self) -> Result<Vec<String>, String> {
        let mut all =
            self.schema.fields().iter().map(|field| quote(&field.name)).collect::<Result<Vec<_>, _>>()?;
        all.push(quote(&self.form.geometry_column)?);
        Ok(all)
    }

    fn begin(&mut self) -> Result<(), SinkError> {
        if self.open {
            // On a new connection the rest of the transaction would be committed without its beginning.
            if self.client.as_ref().is_none_or(BoundedClient::is_closed) {
                (self.client, self.open) = (None, false);
                let message = "the connection was lost during a transaction".into();
                return Err(SinkError::Transient { code: Code::DATABASE_UNAVAILABLE, message });
            }
            return Ok(());
        }
        let fatal = SinkError::Fatal;
        let name = self.name().map_err(fatal)?;
        let columns = self.columns().map_err(fatal)?.join(", ");
        let empty = self.forget && self.mode == WriteMode::Replace;
        let delete = if empty { format!("DELETE FROM {name};") } else { String::new() };
        let track = if self.forget { self.statements.track.clone() } else { String::new() };
        self.connect()?;
        // Whatever fails after BEGIN leaves a transaction that is to be rolled back.
        self.open = true;
        self.connect()?
            .batch_execute(&format!(
                "BEGIN; {delete} {track} CREATE TEMPORARY TABLE IF NOT EXISTS tidegate_stage ON COMMIT DELETE ROWS
                 AS SELECT 0::bigint AS tidegate_row, {columns} FROM {name} WITH NO DATA"
            ))
            .map_err(|e| judge(&e))
    }

    /// Writes rows; if they are refused, finds the offending ones by halving.
    fn rows(&mut self, batch: &Batch, rows: &[usize], put: &mut RowCounts) -> Result<(), SinkError> {
        if rows.is_empty() {
            return Ok(());
        }
        let text = self.copy(batch, rows);
        let statements = self.statements.clone();
        let columns = self.columns().map_err(SinkError::Fatal)?.join(", ");
        let client = self.connect()?;
        let mut tried = || -> Result<(u64, i64, i64), postgres::Error> {
            client.batch_execute("SAVEPOINT part")?;
            client.copy_in(&format!("COPY tidegate_stage (tidegate_row, {columns}) FROM STDIN"), &text)?;
            let closed =
                if statements.close.is_empty() { 0 } else { client.execute(&statements.close, &[])? };
            let row = client.query_one(&statements.insert, &[])?;
            Ok((closed, row.get(0), row.get(1)))
        };
        match tried() {
            Ok((closed, fresh, done)) => {
                let (fresh, done) = (fresh.unsigned_abs(), done.unsigned_abs());
                // A new version of a record is a new row, but not a new record.
                let fresh = fresh.saturating_sub(closed);
                put.versions += closed;
                let before = put.refused.len();
                if done < rows.len() as u64 {
                    self.find_dropped(rows.len() as u64 - done, put)?;
                }
                self.clear_stage()?;
                let dropped = (put.refused.len() - before) as u64;
                put.inserted += fresh;
                put.updated += done - fresh;
                put.unchanged += (rows.len() as u64).saturating_sub(done + dropped);
                Ok(())
            }
            Err(e) => {
                let Some(problem) = blame(&e) else { return Err(judge(&e)) };
                client.batch_execute("ROLLBACK TO SAVEPOINT part").map_err(|e| judge(&e))?;
                if let [row] = rows {
                    put.refused.push((*row, problem));
                    return Ok(());
                }
                let (left, right) = rows.split_at(rows.len() / 2);
                self.rows(batch, left, put)?;
                self.rows(batch, right, put)
            }
        }
    }

    fn clear_stage(&mut self) -> Result<(), SinkError> {
        let sql = "DELETE FROM tidegate_stage; RELEASE SAVEPOINT part";
        self.connect()?.batch_execute(sql).map_err(|e| judge(&e))
    }

    /// Finds rows that were sent but not written: either the table already holds them, which is
    /// queried, or a trigger, a rule or a policy dropped them.
    fn find_dropped(&mut self, missing: u64, put: &mut RowCounts) -> Result<(), SinkError> {
        if !self.mode.is_keyed() {
            return Err(SinkError::Fatal(format!(
                "a trigger, rule or policy of the table dropped {missing} appended rows, which cannot be identified; set `key`, or remove the trigger, rule or policy"
            )));
        }
        let name = self.name().map_err(SinkError::Fatal)?;
        // A conflict locks the row that is there, so in a plain table nothing else can drop a row.
        let plain = self
            .connect()?
            .query_opt(
                "SELECT relkind = 'r' AND NOT (relhastriggers OR relhasrules OR relrowsecurity)
                 FROM pg_class WHERE oid = to_regclass($1)",
                &[&name],
            )
            .map_err(|e| judge(&e))?
            .is_some_and(|row| row.get(0));
        if plain {
            return Ok(());
        }
        let key = self.key.iter().map(|name| quote(name)).collect::<Result<Vec<_>, _>>();
        let same = key
            .map_err(SinkError::Fatal)?
            .iter()
            .map(|name| format!("t.{name} = s.{name}"))
            .chain((self.managed == ManagedColumns::Validity).then(|| "t.valid_to IS NULL".to_owned()))
            .collect::<Vec<_>>()
            .join(" AND ");
        // A scalar subquery is a lookup in the index of the key. For NOT EXISTS the planner, which has
        // no statistics of the stage, reads the whole table in every batch.
        let sql = format!(
            "SELECT s.tidegate_row FROM tidegate_stage s WHERE (SELECT true FROM {name} t WHERE {same} LIMIT 1) IS NULL ORDER BY 1"
        );
        for row in self.connect()?.query(&sql, &[]).map_err(|e| judge(&e))? {
            let problem = Problem::new(
                Code::CONSTRAINT_VIOLATION,
                "the row is missing after the write: a trigger, rule or policy of the table dropped it",
            );
            put.refused.push((usize::try_from(row.get::<_, i64>(0)).unwrap_or(usize::MAX), problem));
        }
        Ok(())
    }

    /// The rows in the text format of COPY.
    fn copy(&self, batch: &Batch, rows: &[usize]) -> String {
        let mut out = String::new();
        for row in rows {
            let _ = write!(out, "{row}");
            for at in 0..self.schema.fields().len() {
                out.push('\t');
                match batch.value(*row, at) {
                    Value::Null => out.push_str("\\N"),
                    Value::Bool(b) => out.push(if b { 't' } else { 'f' }),
                    Value::Int(i) => drop(write!(out, "{i}")),
                    Value::Real(x) => drop(write!(out, "{x:?}")),
                    Value::Text(text) | Value::Json(text) => escape(text, &mut out),
                    Value::Bytes(bytes) => {
                        out.push_str("\\\\x");
                        push_hex(bytes, &mut out);
                    }
                }
            }
            out.push('\t');
            match batch.geometry(*row) {
                None => out.push_str("\\N"),
                Some(wkb) if self.postgis => push_hex(&extended(wkb, self.srid), &mut out),
                Some(wkb) => {
                    out.push_str("\\\\x");
                    push_hex(wkb, &mut out);
                }
            }
            out.push('\n');
        }
        out
    }
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c => out.push(c),
        }
    }
}

/// Extended WKB for PostGIS, with the SRID.
fn extended(wkb: &[u8], srid: u32) -> Vec<u8> {
    let Some((shape, dim)) = wkb::head(wkb) else { return wkb.to_vec() };
    // The flags of the outermost geometry; its members may stay in ISO WKB, which PostGIS reads
    // too.
    let kind = shape as u32
        | 0x2000_0000
        | if dim.has_z() { 0x8000_0000 } else { 0 }
        | if dim.has_m() { 0x4000_0000 } else { 0 };
    let mut out = Vec::with_capacity(wkb.len() + 4);
    out.push(1);
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&srid.to_le_bytes());
    out.extend_from_slice(wkb.get(5..).unwrap_or_default());
    out
}

impl Sink for PostgisTable {
    fn saved(&mut self) -> Result<Option<Saved>, SinkError> {
        let fatal = SinkError::Fatal;
        let (checkpoint, seen) =
            (self.own("tidegate_checkpoint").map_err(fatal)?, self.own("tidegate_seen").map_err(fatal)?);
        let pipeline = self.pipeline.clone();
        let client = self.connect()?;
        let row = client
            .query_opt(&format!("SELECT checkpoint FROM {checkpoint} WHERE pipeline = $1"), &[&pipeline])
            .map_err(|e| judge(&e))?;
        let Some(row) = row else { return Ok(None) };
        let rows = client
            .query(&format!("SELECT scope, hash FROM {seen} WHERE pipeline = $1"), &[&pipeline])
            .map_err(|e| judge(&e))?;
        let seen = rows
            .iter()
            .filter_map(|row| {
                let (scope, hash): (i32, Vec<u8>) = (row.get(0), row.get(1));
                Some(SeenKey { scope: u16::try_from(scope).ok()?, hash: hash.try_into().ok()? })
            })
            .collect();
        Ok(Some(Saved { checkpoint: row.get(0), seen }))
    }

    fn standing(&mut self) -> Result<Standing, SinkError> {
        let name = self.name().map_err(SinkError::Fatal)?;
        standing(self.connect()?, &name)
    }

    fn put(&mut self, batch: &Batch) -> Result<RowCounts, SinkError> {
        self.begin()?;
        let mut put = RowCounts::default();
        let mut rows = Vec::with_capacity(batch.len());
        for row in 0..batch.len() {
            let null = self
                .key
                .iter()
                .find(|name| self.schema.position(name).is_none_or(|at| batch.value(row, at) == Value::Null));
            match null.filter(|_| self.mode.is_keyed()) {
                Some(name) => put.refused.push((
                    row,
                    Problem::new(Code::CONSTRAINT_VIOLATION, "the sink key is null").under(name),
                )),
                None => rows.push(row),
            }
        }
        if self.mode == WriteMode::Sync {
            self.track(batch, &rows)?;
        }
        self.rows(batch, &rows, &mut put)?;
        put.refused.sort_by_key(|(row, _)| *row);
        Ok(put)
    }

    fn commit(&mut self, checkpoint: &str, seen: &[SeenKey]) -> Result<(), SinkError> {
        self.begin()?;
        let fatal = SinkError::Fatal;
        let (table, keys) =
            (self.own("tidegate_checkpoint").map_err(fatal)?, self.own("tidegate_seen").map_err(fatal)?);
        let (pipeline, forget, atomic) = (self.pipeline.clone(), self.forget, self.atomic);
        let client = self.connect()?;
        let done = (|| -> Result<(), postgres::Error> {
            if forget {
                client.execute(&format!("DELETE FROM {keys} WHERE pipeline = $1"), &[&pipeline])?;
            }
            if !seen.is_empty() {
                let (scopes, hashes): (Vec<i32>, Vec<&[u8]>) =
                    seen.iter().map(|key| (i32::from(key.scope), key.hash.as_slice())).unzip();
                client.execute(
                    &format!("INSERT INTO {keys} SELECT $1, * FROM unnest($2::int[], $3::bytea[]) ON CONFLICT DO NOTHING"),
                    &[&pipeline, &scopes, &hashes],
                )?;
            }
            client.execute(
                &format!("INSERT INTO {table} AS t VALUES ($1, $2) ON CONFLICT (pipeline) DO UPDATE SET checkpoint = EXCLUDED.checkpoint, changed = now()"),
                &[&pipeline, &checkpoint],
            )?;
            // An atomic run is one transaction, which ends with the run.
            if atomic { Ok(()) } else { client.batch_execute("COMMIT") }
        })();
        // After a failure the transaction is still to be rolled back.
        self.open = atomic || done.is_err();
        done.map_err(|e| judge(&e))?;
        self.forget = false;
        Ok(())
    }

    fn spare(&mut self, keys: &[Vec<String>]) -> Result<(), SinkError> {
        self.spare_keys(keys)
    }

    fn has(&mut self, keys: &[Vec<String>]) -> Result<Vec<bool>, SinkError> {
        self.has_rows(keys)
    }

    fn absent(&mut self) -> Result<AbsentRows, SinkError> {
        self.count_absent()
    }

    fn retire(&mut self, rows: bool) -> Result<u64, SinkError> {
        self.retire_absent(rows)
    }

    fn set_watermark(&mut self, watermark: &str) -> Result<(), SinkError> {
        self.begin()?;
        let (own, pipeline, sink) =
            (self.own("tidegate_watermark")?, self.pipeline.clone(), self.form.table.clone());
        let client = self.connect()?;
        let written = client
            .batch_execute(&format!("CREATE TABLE IF NOT EXISTS {own} (pipeline text, sink text, watermark text NOT NULL, PRIMARY KEY (pipeline, sink))"))
            .and_then(|()| {
                let sql = format!("INSERT INTO {own} VALUES ($1, $2, $3) ON CONFLICT (pipeline, sink) DO UPDATE SET watermark = EXCLUDED.watermark");
                client.execute(&sql, &[&pipeline, &sink, &watermark])
            });
        written.map(drop).map_err(|e| judge(&e))
    }

    fn finish_tasks(&mut self, ends: &[TaskEnd]) -> Result<Vec<String>, SinkError> {
        self.begin()?;
        let (own, pipeline) = (tasks::postgres::name(&self.form)?, self.task_pipeline.clone());
        tasks::postgres::finish(self.connect()?, &own, &pipeline, ends)
    }

    fn resolve_tasks(&mut self, keys: &[String]) -> Result<(), SinkError> {
        self.begin()?;
        let (own, pipeline) = (tasks::postgres::name(&self.form)?, self.task_pipeline.clone());
        tasks::postgres::resolve(self.connect()?, &own, &pipeline, keys)
    }

    fn notes(&self) -> Vec<String> {
        if self.postgis {
            return Vec::new();
        }
        vec![format!("column {} holds WKB, not PostGIS geometries", self.form.geometry_column)]
    }

    fn rollback(&mut self) {
        if let Some(client) = self.client.as_mut().filter(|_| self.open)
            && client.batch_execute("ROLLBACK").is_err()
        {
            self.client = None;
        }
        self.open = false;
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        if self.atomic && self.open {
            self.open = false;
            return self.connect()?.batch_execute("COMMIT").map_err(|e| judge(&e));
        }
        if self.by_tasks {
            // The name of a worker is not used again.
            let (table, pipeline) = (self.own("tidegate_checkpoint")?, self.pipeline.clone());
            let sql = format!("DELETE FROM {table} WHERE pipeline = $1");
            self.connect()?.execute(&sql, &[&pipeline]).map_err(|e| judge(&e))?;
        }
        Ok(())
    }
}
