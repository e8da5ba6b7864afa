//! The statements of the queue in PostgreSQL.
//!
//! Each is one transaction, so that many calls share a connection without waiting for each other's
//! round trips, and a call that is dropped leaves nothing open. Times are those of the server: one
//! clock for all workers.

/// The time of the statement in milliseconds since 1970.
macro_rules! now {
    () => {
        "(extract(epoch FROM statement_timestamp()) * 1000)::bigint"
    };
}

/// A queue is small and changes fast, so it is vacuumed early.
pub(super) const TABLE: &str = "
CREATE TABLE IF NOT EXISTS tidegate_message (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text NOT NULL, key text NOT NULL, body bytea NOT NULL,
    headers text NOT NULL, priority smallint NOT NULL, ordering_key text, not_before bigint,
    published bigint NOT NULL, is_ready boolean NOT NULL, visible_at bigint NOT NULL,
    token bigint NOT NULL DEFAULT 0, deliveries integer NOT NULL DEFAULT 0)
  WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX IF NOT EXISTS tidegate_message_key ON tidegate_message (queue, key);
CREATE INDEX IF NOT EXISTS tidegate_message_ready ON tidegate_message (queue, priority DESC, id) WHERE is_ready;
CREATE INDEX IF NOT EXISTS tidegate_message_hidden ON tidegate_message (queue, visible_at) INCLUDE (deliveries) WHERE NOT is_ready;
CREATE INDEX IF NOT EXISTS tidegate_message_order ON tidegate_message (queue, ordering_key, id) WHERE ordering_key IS NOT NULL";

macro_rules! insert {
    ($from:literal) => {
        concat!(
            "INSERT INTO tidegate_message (queue, key, body, headers, priority, ordering_key, not_before, published, is_ready, visible_at)
             SELECT $1, m.key, m.body, m.headers, m.priority, m.ordering_key, m.not_before, ", now!(), ",
                    coalesce(m.not_before, 0) <= ", now!(), ", coalesce(m.not_before, 0)
             FROM ", $from, "unnest($2::text[], $3::bytea[], $4::text[], $5::smallint[], $6::text[], $7::bigint[])
                  WITH ORDINALITY AS m (key, body, headers, priority, ordering_key, not_before, n)
             ORDER BY m.n ON CONFLICT (queue, key) DO NOTHING"
        )
    };
}

/// Publishes messages.
pub(super) const PUBLISH: &str = insert!("");

/// Publishes messages with ordering keys. Their numbers must be in the order of their commits, so the
/// publishers of a queue take turns.
pub(super) const PUBLISH_IN_ORDER: &str =
    insert!("(SELECT pg_advisory_xact_lock(hashtextextended('tidegate queue ' || $1, 0))) AS turn, ");

/// Makes messages ready whose lease or waiting time is over.
pub(super) const WAKE: &str = concat!(
    "UPDATE tidegate_message SET is_ready = true WHERE id = ANY (ARRAY(
       SELECT id FROM tidegate_message WHERE queue = $1 AND NOT is_ready AND visible_at <= ",
    now!(),
    " ORDER BY visible_at LIMIT 10000 FOR UPDATE SKIP LOCKED))"
);

/// Delivers messages; of each ordering key only the first one that is not acknowledged.
pub(super) const TAKE: &str = concat!(
    "UPDATE tidegate_message SET is_ready = false, visible_at = ",
    now!(),
    " + $3, token = token + 1, deliveries = deliveries + 1
     WHERE id = ANY (ARRAY(
       SELECT id FROM tidegate_message m WHERE queue = $1 AND is_ready
         AND (ordering_key IS NULL OR NOT EXISTS (SELECT FROM tidegate_message o
              WHERE o.queue = m.queue AND o.ordering_key = m.ordering_key AND o.id < m.id))
       ORDER BY priority DESC, id LIMIT $2 FOR UPDATE OF m SKIP LOCKED))
     RETURNING key, body, not_before, priority, ordering_key, headers, id, token, deliveries, published"
);

/// Extends leases.
pub(super) const EXTEND: &str = concat!(
    "UPDATE tidegate_message m SET visible_at = ",
    now!(),
    " + $3, is_ready = false FROM unnest($1::bigint[], $2::bigint[]) AS r (id, token)
     WHERE m.id = r.id AND m.token = r.token RETURNING m.id"
);

/// Returns messages. Not counted as a delivery: nobody worked on them.
pub(super) const REQUEUE: &str = concat!(
    "UPDATE tidegate_message m SET visible_at = ",
    now!(),
    " + $3, is_ready = false, deliveries = deliveries - 1, token = m.token + 1
     FROM unnest($1::bigint[], $2::bigint[]) AS r (id, token)
     WHERE m.id = r.id AND m.token = r.token RETURNING m.id"
);

/// Acknowledges messages.
pub(super) const ACKNOWLEDGE: &str =
    "DELETE FROM tidegate_message m USING unnest($1::bigint[], $2::bigint[]) AS r (id, token)
     WHERE m.id = r.id AND m.token = r.token";

/// Counts what is ready, leased and waiting, and finds the time of the oldest that is ready.
pub(super) const DEPTH: &str = concat!(
    "WITH hidden AS (SELECT count(*) FILTER (WHERE visible_at <= ",
    now!(),
    ") AS due,
         count(*) FILTER (WHERE visible_at > ",
    now!(),
    " AND deliveries > 0) AS leased,
         count(*) FILTER (WHERE visible_at > ",
    now!(),
    " AND deliveries = 0) AS waiting
       FROM tidegate_message WHERE queue = $1 AND NOT is_ready),
     oldest AS (SELECT published FROM generate_series(0, 9) AS p (priority), LATERAL (
         SELECT published FROM tidegate_message m
         WHERE queue = $1 AND is_ready AND m.priority = p.priority ORDER BY id LIMIT 1) AS first
       UNION ALL (SELECT published FROM tidegate_message
         WHERE queue = $1 AND NOT is_ready AND visible_at <= ",
    now!(),
    " ORDER BY visible_at LIMIT 1))
     SELECT (SELECT count(*) FROM tidegate_message WHERE queue = $1 AND is_ready) + due, leased, waiting,
            (SELECT ",
    now!(),
    " - min(published) FROM oldest) FROM hidden"
);

/// Shows the next messages.
pub(super) const PEEK: &str = concat!(
    "SELECT key, body, not_before, priority, ordering_key, headers FROM (
       (SELECT * FROM tidegate_message WHERE queue = $1 AND is_ready ORDER BY priority DESC, id LIMIT $2)
       UNION ALL (SELECT * FROM tidegate_message WHERE queue = $1 AND NOT is_ready AND visible_at <= ",
    now!(),
    " ORDER BY visible_at LIMIT $2)) AS next ORDER BY priority DESC, id LIMIT $2"
);

/// Deletes all messages.
pub(super) const PURGE: &str = "DELETE FROM tidegate_message WHERE queue = $1";
