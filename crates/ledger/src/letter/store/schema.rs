//! The schema of the letter store. [`Spelling`] translates the column types; `also` is what only
//! one of the databases has.

use crate::audit;
use crate::letter::LetterError;
use crate::sql::Spelling;

/// The tables that both databases have, without those of the audit.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS grp (
    grp SERIAL, fingerprint_key BIGINT NOT NULL UNIQUE, fp BIGINT NOT NULL, pipeline TEXT NOT NULL, stage TEXT NOT NULL,
    service TEXT NOT NULL, driver TEXT NOT NULL, code TEXT NOT NULL, class TEXT NOT NULL, normal TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS letter (
    seq SERIAL, id BYTES NOT NULL, once BYTES NOT NULL, root BYTES NOT NULL, parent BYTES,
    generation BIGINT NOT NULL, grp BIGINT NOT NULL, state BIGINT NOT NULL,
    first_ms BIGINT NOT NULL, failed_ms BIGINT NOT NULL, not_before_ms BIGINT, retain_ms BIGINT NOT NULL,
    hold TEXT, archive TEXT, crs TEXT, plan BIGINT, lease BIGINT NOT NULL DEFAULT 0,
    lease_until_ms BIGINT NOT NULL DEFAULT 0, times BIGINT NOT NULL DEFAULT 1, last_ms BIGINT NOT NULL DEFAULT 0,
    run TEXT NOT NULL DEFAULT '' ALSO
);
CREATE UNIQUE INDEX IF NOT EXISTS letter_id ON letter (id);
CREATE UNIQUE INDEX IF NOT EXISTS letter_once ON letter (once) WHERE state <= 6;
CREATE INDEX IF NOT EXISTS letter_seen ON letter (grp, state, last_ms, first_ms);
CREATE INDEX IF NOT EXISTS letter_retain ON letter (retain_ms) WHERE hold IS NULL;
CREATE INDEX IF NOT EXISTS letter_plan ON letter (plan) WHERE plan IS NOT NULL;
CREATE INDEX IF NOT EXISTS letter_parent ON letter (parent) WHERE parent IS NOT NULL;
CREATE TABLE IF NOT EXISTS body (
    seq NUMBER PRIMARY KEY, envelope TEXT NOT NULL, received BYTES, received_blob BYTES,
    current BYTES, current_blob BYTES, wrap BYTES, key_id TEXT
);
CREATE INDEX IF NOT EXISTS body_received ON body (received_blob) WHERE received_blob IS NOT NULL;
CREATE INDEX IF NOT EXISTS body_current ON body (current_blob) WHERE current_blob IS NOT NULL;
CREATE TABLE IF NOT EXISTS blob (sha BYTES PRIMARY KEY, bytes BYTES NOT NULL);
CREATE TABLE IF NOT EXISTS tombstone (
    id BYTES PRIMARY KEY, pipeline TEXT NOT NULL, code TEXT NOT NULL, state BIGINT NOT NULL, first_ms BIGINT NOT NULL,
    purged_ms BIGINT NOT NULL, why TEXT NOT NULL, archive TEXT, payload_sha BYTES NOT NULL
);
CREATE TABLE IF NOT EXISTS plan (
    plan SERIAL, made_ms BIGINT NOT NULL, who TEXT NOT NULL, pipeline TEXT NOT NULL, state TEXT NOT NULL, spec TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS member (
    plan BIGINT NOT NULL, seq BIGINT NOT NULL, was BIGINT NOT NULL, ended TEXT, PRIMARY KEY (plan, seq)
);
CREATE TABLE IF NOT EXISTS incident (
    incident SERIAL, pipeline TEXT NOT NULL, fp BIGINT NOT NULL, code TEXT NOT NULL, message TEXT NOT NULL,
    failed BIGINT NOT NULL, batch BIGINT NOT NULL, opened_ms BIGINT NOT NULL, closed_ms BIGINT, closed_by TEXT
);
CREATE TABLE IF NOT EXISTS pipeline (pipeline TEXT PRIMARY KEY, spec TEXT NOT NULL);
";

/// The schema version; a newer one is refused.
pub(super) const VERSION: &str = "3";

/// The statements that create all tables.
pub(super) fn tables(spelling: &Spelling, also: &str) -> String {
    spelling.spell(&format!("{TABLES}{}", audit::TABLES)).replace(" ALSO", also)
}

/// The error for tables of a version that this program does not know.
pub(super) fn unknown(version: &str) -> LetterError {
    LetterError::Store(format!("its tables have version {version}, expected {VERSION}"))
}

/// The statements that migrate tables of an older version; `None` if the version is unknown.
pub(super) fn upgrade(version: &str, spelling: &Spelling) -> Option<String> {
    match version {
        "1" => Some(format!("{} {SINCE_2}", since_1(spelling))),
        "2" => Some(SINCE_2.into()),
        VERSION => Some(String::new()),
        _ => None,
    }
}

/// Migrates version 2, which did not count how often an open letter failed.
const SINCE_2: &str = "
ALTER TABLE letter ADD COLUMN times BIGINT NOT NULL DEFAULT 1;
ALTER TABLE letter ADD COLUMN last_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE letter ADD COLUMN run TEXT NOT NULL DEFAULT '';
UPDATE letter SET last_ms = failed_ms;
DROP INDEX IF EXISTS letter_group;
CREATE INDEX letter_seen ON letter (grp, state, last_ms, first_ms);
INSERT INTO meta VALUES ('once', 'by generation') ON CONFLICT DO NOTHING;
UPDATE meta SET value = '3' WHERE name = 'version';
";

/// Migrates version 1, whose audit had no key, code, destination or signatures. The next program
/// that opens it for writing signs it.
fn since_1(spelling: &Spelling) -> String {
    let columns = audit::COLUMNS_SINCE_2.map(|name| format!("ALTER TABLE audit ADD COLUMN {name} TEXT;"));
    let tables = spelling.spell(audit::TABLES);
    format!(
        "{} {tables} UPDATE meta SET value = '2' WHERE name = 'version';
         INSERT INTO meta VALUES ('audit', 'unsigned') ON CONFLICT DO NOTHING;",
        columns.join(" ")
    )
}
