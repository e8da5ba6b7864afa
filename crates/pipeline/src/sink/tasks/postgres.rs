//! The table of tasks in PostgreSQL, in the schema of the sink.
//!
//! Workers that claim the same tasks at once wait for each other at the rows. Every statement locks
//! its rows in the order of the keys, so that two of them never wait for each other in a circle. Times
//! are those of the server, one clock for all workers.
//!
//! Rows are found by a lateral subquery for each key, and changed by their place (`ctid`) once they are
//! locked. A plain join on the key would be a scan of the whole table as long as the table has no
//! statistics, which is when a million tasks are submitted.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use postgres::{Error, Row};
use tidegate_ledger::bounded::{BoundedClient, BoundedConfig};

use super::{
    Claim, SinkError, TaskEnd, TaskRow, TaskState, TaskTable, distinct, distinct_ends, in_order, read_state,
    stored, stored_key,
};
use crate::manifest::SinkTable;
use crate::sink::postgis::{config, could_not_connect, judge, quote};

/// The time of the statement in milliseconds since 1970.
const NOW: &str = "(extract(epoch FROM statement_timestamp()) * 1000)::bigint";

const COLUMNS: &str = "key, state, token, attempts, worker, reason, changed_ms";

/// The lock under which the table is created: two workers may start at once.
const CREATION: i64 = 0x7469_6465_7461_736b;

impl From<Error> for SinkError {
    fn from(e: Error) -> SinkError {
        judge(&e)
    }
}

/// The table of tasks of a pipeline in a schema.
struct PostgresTasks {
    client: Option<BoundedClient>,
    config: BoundedConfig,
    /// The quoted name of the table.
    table: String,
    pipeline: String,
}

/// The quoted name of the table of tasks beside a sink.
pub(crate) fn name(form: &SinkTable) -> Result<String, String> {
    Ok(format!("{}.tidegate_task", quote(&form.schema)?))
}

/// Opens the table, and creates it if it is missing.
pub(crate) fn open(form: &SinkTable, pipeline: &str) -> Result<Box<dyn TaskTable>, SinkError> {
    let mut tasks = PostgresTasks {
        client: None,
        config: config(&form.url)?,
        table: name(form)?,
        pipeline: pipeline.to_owned(),
    };
    let table = tasks.table.clone();
    if !has_dead_records(tasks.connect()?, &table).map_err(|e| judge(&e))? {
        tasks.transact(|client, _, table| {
            client.execute("SELECT pg_advisory_xact_lock($1)", &[&CREATION])?;
            client.batch_execute(&format!(
                "CREATE TABLE IF NOT EXISTS {table} (
                   pipeline text COLLATE \"C\", key text COLLATE \"C\", state text NOT NULL, token bigint NOT NULL,
                   attempts integer NOT NULL, worker text NOT NULL, reason text, changed_ms bigint NOT NULL,
                   PRIMARY KEY (pipeline, key)) WITH (fillfactor = 70);
                 ALTER TABLE {table} ADD COLUMN IF NOT EXISTS dead_records integer NOT NULL DEFAULT 0"
            ))
        })?;
    }
    Ok(Box::new(tasks))
}

/// Whether the table is there and counts the dead records of a task.
fn has_dead_records(client: &mut BoundedClient, table: &str) -> Result<bool, Error> {
    let sql = "SELECT EXISTS (SELECT 1 FROM pg_attribute
               WHERE attrelid = to_regclass($1) AND attname = 'dead_records' AND NOT attisdropped)";
    Ok(client.query_one(sql, &[&table])?.get(0))
}

/// Counts dead records as replayed, in the open transaction: one for each time that a key of a task is
/// given. A task without any left is done.
pub(crate) fn resolve(
    client: &mut BoundedClient,
    table: &str,
    pipeline: &str,
    keys: &[String],
) -> Result<(), SinkError> {
    let mut counts: BTreeMap<String, i32> = BTreeMap::new();
    for key in keys {
        *counts.entry(stored_key(key).into_owned()).or_default() += 1;
    }
    let (keys, counts): (Vec<&str>, Vec<i32>) = counts.iter().map(|(key, n)| (key.as_str(), *n)).unzip();
    let mut resolve = || -> Result<(), Error> {
        if !has_dead_records(client, table)? {
            return Ok(());
        }
        lock(client, table, pipeline, &keys)?;
        let sql = format!(
            "UPDATE {table} AS t SET dead_records = greatest(t.dead_records - r.n, 0), changed_ms = {NOW},
               reason = CASE WHEN t.dead_records > r.n THEN t.reason END,
               state = CASE WHEN t.dead_records > r.n THEN t.state ELSE 'done' END
             FROM unnest($2::text[], $3::integer[]) AS r (key, n)
             CROSS JOIN LATERAL (SELECT ctid AS place FROM {table} WHERE pipeline = $1 AND key = r.key
               AND state = 'dead' OFFSET 0) AS found
             WHERE t.ctid = found.place"
        );
        client.execute(&sql, &[&pipeline, &keys, &counts]).map(drop)
    };
    resolve().map_err(|e| judge(&e))
}

/// Ends tasks in the open transaction; returns the keys whose tokens are not current.
pub(crate) fn finish(
    client: &mut BoundedClient,
    table: &str,
    pipeline: &str,
    ends: &[TaskEnd],
) -> Result<Vec<String>, SinkError> {
    let ends = distinct_ends(ends)?;
    let keys: Vec<Cow<'_, str>> = ends.iter().map(|end| stored_key(&end.key)).collect();
    let keys: Vec<&str> = keys.iter().map(AsRef::as_ref).collect();
    let tokens: Vec<i64> = ends.iter().map(|end| end.token).collect();
    let states: Vec<&str> = ends.iter().map(|end| end.state.word()).collect();
    let dead: Vec<i32> = ends.iter().map(|end| i32::try_from(end.dead_records).unwrap_or(i32::MAX)).collect();
    // PostgreSQL holds no zero byte.
    let reasons: Vec<Option<String>> =
        ends.iter().map(|end| end.reason.as_ref().map(|reason| reason.replace('\0', "\u{fffd}"))).collect();
    let mut finish = || -> Result<BTreeSet<(String, i64)>, Error> {
        lock(client, table, pipeline, &keys)?;
        let sql = format!(
            "UPDATE {table} AS t SET state = e.state, reason = e.reason, changed_ms = {NOW}, dead_records = e.dead
             FROM unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::integer[])
               AS e (key, token, state, reason, dead)
             CROSS JOIN LATERAL (SELECT ctid AS place FROM {table} WHERE pipeline = $1 AND key = e.key
               AND token = e.token AND state = 'running' OFFSET 0) AS found
             WHERE t.ctid = found.place RETURNING t.key, t.token"
        );
        let rows = client.query(&sql, &[&pipeline, &keys, &tokens, &states, &reasons, &dead])?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    };
    let finished = finish().map_err(|e| judge(&e))?;
    let is_lost = |end: &&&TaskEnd| !finished.contains(&(stored_key(&end.key).into_owned(), end.token));
    Ok(ends.iter().filter(is_lost).map(|end| end.key.clone()).collect())
}

/// Locks rows in the order of their keys until the transaction ends.
fn lock(client: &mut BoundedClient, table: &str, pipeline: &str, keys: &[&str]) -> Result<(), Error> {
    let keys: BTreeSet<&str> = keys.iter().copied().collect();
    let keys: Vec<&str> = keys.into_iter().collect();
    let sql = format!(
        "SELECT FROM unnest($2::text[]) AS k CROSS JOIN LATERAL
           (SELECT FROM {table} WHERE pipeline = $1 AND key = k FOR UPDATE) AS found"
    );
    client.query(&sql, &[&pipeline, &keys]).map(drop)
}

/// Changes rows that are locked and in one of these states; returns how many.
fn change_rows(
    client: &mut BoundedClient,
    (table, pipeline): (&str, &str),
    change: &str,
    states: &str,
    keys: &[&str],
) -> Result<u64, Error> {
    let sql = format!(
        "UPDATE {table} AS t SET {change}, changed_ms = {NOW} FROM unnest($2::text[]) AS k
         CROSS JOIN LATERAL (SELECT ctid AS place FROM {table} WHERE pipeline = $1 AND key = k
           AND state IN ({states}) OFFSET 0) AS found
         WHERE t.ctid = found.place"
    );
    client.execute(&sql, &[&pipeline, &keys])
}

/// The states of these keys.
fn states(
    client: &mut BoundedClient,
    table: &str,
    pipeline: &str,
    keys: &[&str],
) -> Result<Vec<(String, String)>, Error> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT k, state FROM unnest($2::text[]) AS k CROSS JOIN LATERAL
           (SELECT state FROM {table} WHERE pipeline = $1 AND key = k OFFSET 0) AS found"
    );
    let rows = client.query(&sql, &[&pipeline, &keys])?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

fn read(row: &Row) -> Result<TaskRow, SinkError> {
    Ok(TaskRow {
        key: row.get(0),
        state: read_state(row.get(1))?,
        token: row.get(2),
        attempts: row.get::<_, i32>(3).unsigned_abs(),
        worker: row.get(4),
        reason: row.get(5),
        changed_ms: row.get(6),
    })
}

impl PostgresTasks {
    fn connect(&mut self) -> Result<&mut BoundedClient, SinkError> {
        if self.client.as_ref().is_none_or(BoundedClient::is_closed) {
            let client = self.config.connect().map_err(|e| could_not_connect(&self.config, &e))?;
            self.client = Some(client);
        }
        self.client.as_mut().ok_or_else(|| SinkError::Fatal("no connection".into()))
    }

    /// Runs statements in a transaction, with the pipeline and the name of the table.
    fn transact<T, E>(
        &mut self,
        work: impl FnOnce(&mut BoundedClient, &str, &str) -> Result<T, E>,
    ) -> Result<T, SinkError>
    where
        SinkError: From<E>,
    {
        let (pipeline, table) = (self.pipeline.clone(), self.table.clone());
        let client = self.connect()?;
        client.batch_execute("BEGIN").map_err(|e| judge(&e))?;
        let done = work(client, &pipeline, &table).map_err(SinkError::from);
        let ended = match done {
            Ok(_) => client.batch_execute("COMMIT"),
            Err(_) => client.batch_execute("ROLLBACK"),
        };
        if ended.is_err() {
            self.client = None;
        }
        let done = done?;
        ended.map_err(|e| judge(&e))?;
        Ok(done)
    }

    /// Runs a query outside a transaction.
    fn query(
        &mut self,
        sql: &str,
        params: &[&(dyn postgres::types::ToSql + Sync)],
    ) -> Result<Vec<Row>, SinkError> {
        self.connect()?.query(sql, params).map_err(|e| judge(&e))
    }

    /// Adds tasks that have no row, in this state, and locks those that have one. Then runs `change`,
    /// if any, for these. Returns the states before.
    fn add(
        &mut self,
        keys: &[String],
        fresh: TaskState,
        change: Option<&str>,
    ) -> Result<Vec<Option<TaskState>>, SinkError> {
        let keys = &stored(keys);
        let unique = distinct(keys);
        let before = self.transact(|client, pipeline, table| -> Result<_, Error> {
            let sql = format!(
                "INSERT INTO {table} AS t SELECT $1, k, $3, 0, 0, '', NULL, {NOW} FROM unnest($2::text[]) AS k
                 ON CONFLICT (pipeline, key) DO UPDATE SET state = t.state WHERE false RETURNING key"
            );
            let added = client.query(&sql, &[&pipeline, &unique, &fresh.word()])?;
            let added: BTreeSet<String> = added.iter().map(|row| row.get(0)).collect();
            let others: Vec<&str> = unique.into_iter().filter(|key| !added.contains(*key)).collect();
            let before = states(client, table, pipeline, &others)?;
            if let Some(change) = change.filter(|_| !others.is_empty()) {
                change_rows(client, (table, pipeline), change, "'queued', 'running'", &others)?;
            }
            Ok(before)
        })?;
        let before: BTreeMap<String, TaskState> = before
            .into_iter()
            .map(|(key, word)| Ok((key, read_state(&word)?)))
            .collect::<Result<_, SinkError>>()?;
        Ok(keys.iter().map(|key| before.get(key).copied()).collect())
    }
}

impl TaskTable for PostgresTasks {
    fn submit(&mut self, keys: &[String]) -> Result<Vec<Option<TaskState>>, SinkError> {
        self.add(keys, TaskState::Queued, None)
    }

    fn claim(&mut self, keys: &[String], worker: &str) -> Result<Vec<Claim>, SinkError> {
        let keys = &stored(keys);
        let unique = distinct(keys);
        let (granted, ended) = self.transact(|client, pipeline, table| -> Result<_, Error> {
            // A row that does not fulfil the condition is locked all the same.
            let sql = format!(
                "INSERT INTO {table} AS t SELECT $1, k, 'running', {NOW}, 1, $3, NULL, {NOW} FROM unnest($2::text[]) AS k
                 ON CONFLICT (pipeline, key) DO UPDATE SET state = 'running',
                   token = greatest(t.token + 1, EXCLUDED.token),
                   attempts = t.attempts + CASE WHEN t.state = 'running' AND t.worker = EXCLUDED.worker THEN 0 ELSE 1 END,
                   worker = EXCLUDED.worker, changed_ms = EXCLUDED.changed_ms
                 WHERE t.state IN ('queued', 'running')
                 RETURNING key, token, attempts"
            );
            let rows = client.query(&sql, &[&pipeline, &unique, &worker])?;
            let granted: BTreeMap<String, Claim> = rows
                .iter()
                .map(|row| {
                    let attempts = row.get::<_, i32>(2).unsigned_abs();
                    (row.get(0), Claim::Granted { token: row.get(1), attempts })
                })
                .collect();
            let others: Vec<&str> = unique.into_iter().filter(|key| !granted.contains_key(*key)).collect();
            Ok((granted, states(client, table, pipeline, &others)?))
        })?;
        let mut claims = granted;
        for (key, word) in ended {
            claims.insert(key, Claim::Ended(read_state(&word)?));
        }
        in_order(keys, claims)
    }

    fn release(&mut self, claims: &[(String, i64)]) -> Result<(), SinkError> {
        let (keys, tokens): (Vec<Cow<'_, str>>, Vec<i64>) =
            claims.iter().map(|(key, token)| (stored_key(key), *token)).unzip();
        let keys: Vec<&str> = keys.iter().map(AsRef::as_ref).collect();
        self.transact(|client, pipeline, table| -> Result<_, Error> {
            lock(client, table, pipeline, &keys)?;
            let sql = format!(
                "UPDATE {table} AS t SET attempts = greatest(attempts - 1, 0), changed_ms = {NOW},
                   state = CASE WHEN found.token = c.token THEN 'queued' ELSE t.state END
                 FROM unnest($2::text[], $3::bigint[]) AS c (key, token)
                 CROSS JOIN LATERAL (SELECT ctid AS place, token FROM {table} WHERE pipeline = $1 AND key = c.key
                   AND token >= c.token AND state IN ('queued', 'running') OFFSET 0) AS found
                 WHERE t.ctid = found.place"
            );
            client.execute(&sql, &[&pipeline, &keys, &tokens]).map(drop)
        })
    }

    fn finish(&mut self, ends: &[TaskEnd]) -> Result<Vec<String>, SinkError> {
        self.transact(|client, pipeline, table| finish(client, table, pipeline, ends))
    }

    fn cancel(&mut self, keys: &[String]) -> Result<Vec<Option<TaskState>>, SinkError> {
        self.add(keys, TaskState::Cancelled, Some("state = 'cancelled'"))
    }

    fn reopen(&mut self, keys: &[String]) -> Result<u64, SinkError> {
        let keys = &stored(keys);
        let unique = distinct(keys);
        self.transact(|client, pipeline, table| -> Result<_, Error> {
            lock(client, table, pipeline, &unique)?;
            let change = "state = 'queued', attempts = 0, reason = NULL";
            change_rows(client, (table, pipeline), change, "'done', 'dead', 'cancelled'", &unique)
        })
    }

    fn rows(&mut self, keys: &[String]) -> Result<Vec<Option<TaskRow>>, SinkError> {
        let sql = format!(
            "SELECT found.* FROM unnest($2::text[]) AS k CROSS JOIN LATERAL
               (SELECT {COLUMNS} FROM {} WHERE pipeline = $1 AND key = k OFFSET 0) AS found",
            self.table
        );
        let pipeline = self.pipeline.clone();
        let rows = self.query(&sql, &[&pipeline, &distinct(&stored(keys))])?;
        let rows: Vec<TaskRow> = rows.iter().map(read).collect::<Result<_, _>>()?;
        let rows: BTreeMap<&str, &TaskRow> = rows.iter().map(|row| (row.key.as_str(), row)).collect();
        let named = |key: &String| {
            rows.get(&*stored_key(key)).map(|row| TaskRow { key: key.clone(), ..(*row).clone() })
        };
        Ok(keys.iter().map(named).collect())
    }

    fn counts(&mut self) -> Result<[u64; 5], SinkError> {
        let sql = format!("SELECT state, count(*) FROM {} WHERE pipeline = $1 GROUP BY state", self.table);
        let pipeline = self.pipeline.clone();
        let mut counts = [0; 5];
        for row in self.query(&sql, &[&pipeline])? {
            counts[read_state(row.get(0))? as usize] = row.get::<_, i64>(1).unsigned_abs();
        }
        Ok(counts)
    }

    fn list(
        &mut self,
        state: Option<TaskState>,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<TaskRow>, SinkError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM {} WHERE pipeline = $1 AND key > $2 AND ($3::text IS NULL OR state = $3)
             ORDER BY key LIMIT $4",
            self.table
        );
        let (pipeline, most) = (self.pipeline.clone(), i64::try_from(most).unwrap_or(i64::MAX));
        let (after, state) = (after.unwrap_or_default(), state.map(TaskState::word));
        self.query(&sql, &[&pipeline, &after, &state, &most])?.iter().map(read).collect()
    }

    fn forget(&mut self, before_ms: i64) -> Result<u64, SinkError> {
        // A row that somebody holds is forgotten another time.
        let table = &self.table;
        let sql = format!(
            "DELETE FROM {table} WHERE pipeline = $1 AND key IN (SELECT key FROM {table}
               WHERE pipeline = $1 AND state IN ('done', 'dead', 'cancelled') AND changed_ms < $2
               FOR UPDATE SKIP LOCKED)"
        );
        let pipeline = self.pipeline.clone();
        self.connect()?.execute(&sql, &[&pipeline, &before_ms]).map_err(|e| judge(&e))
    }
}
