//! GeoPackage: a database that was made to keep its reader busy.

use rusqlite::Connection;

use crate::texts::{deep_wkb, huge_wkb, infinite_wkb};
use crate::{Case, bad};

const TABLES: &str = "
    PRAGMA application_id = 1196444487;
    CREATE TABLE gpkg_spatial_ref_sys (srs_name TEXT, srs_id INTEGER PRIMARY KEY, organization TEXT,
        organization_coordsys_id INTEGER, definition TEXT, description TEXT);
    INSERT INTO gpkg_spatial_ref_sys VALUES ('w', 4326, 'EPSG', 4326, 'x', '');
    CREATE TABLE gpkg_contents (table_name TEXT PRIMARY KEY, data_type TEXT, identifier TEXT, srs_id INTEGER);
    INSERT INTO gpkg_contents VALUES ('t', 'features', 't', 4326);
    CREATE TABLE gpkg_geometry_columns (table_name TEXT, column_name TEXT, geometry_type_name TEXT,
        srs_id INTEGER, z INTEGER, m INTEGER);
    INSERT INTO gpkg_geometry_columns VALUES ('t', 'g', 'GEOMETRY', 4326, 0, 0);";

const TABLE: &str = "CREATE TABLE t (fid INTEGER PRIMARY KEY, g BLOB, a TEXT);";

/// The bytes of a database made by these statements and this function.
fn made(sql: &str, more: impl Fn(&Connection)) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gpkg");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(&format!("{TABLES}{sql}")).unwrap();
    more(&db);
    drop(db);
    std::fs::read(&path).unwrap()
}

fn of_sql(name: &str, sql: &str) -> Case {
    bad(name, made(sql, |_| {}))
}

/// A table of one feature of this geometry.
fn of_wkb(name: &str, wkb: &[u8]) -> Case {
    let blob = [b"GP\0\x01\xe6\x10\0\0", wkb].concat();
    bad(name, made(TABLE, |db| _ = db.execute("INSERT INTO t VALUES (1, ?1, 'a')", [&blob]).unwrap()))
}

/// The header of a database, with one byte range changed.
fn bent(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut out = made(TABLE, |_| {});
    out[at..at + bytes.len()].copy_from_slice(bytes);
    out
}

const FOREVER: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";

pub(crate) fn geopackages() -> Vec<Case> {
    let good = made(TABLE, |_| {});
    let mut cases = vec![
        bad("magic.gpkg", format!("SQLite format 3\0{}", "\u{7f}".repeat(4096))),
        bad("zip.gpkg", "PK\u{3}\u{4}\u{14}\0\0\0\u{8}\0"),
        bad("empty.gpkg", ""),
        bad("plain.gpkg", &good[..100]),
        bad("page_size.gpkg", bent(16, &[0xff, 0xff])),
        bad("schema.gpkg", bent(100, &[0xff; 64])),
        of_sql("forever.gpkg", &format!("CREATE VIEW t AS {FOREVER} SELECT i AS rowid, NULL AS g FROM n;")),
        of_sql("forever_contents.gpkg", &format!(
            "DROP TABLE gpkg_contents;
             CREATE VIEW gpkg_contents AS {FOREVER} SELECT 't' AS table_name, 'features' AS data_type, 1 AS rowid FROM n;"
        )),
        of_sql("product.gpkg", &format!(
            "CREATE TABLE s (i); INSERT INTO s {FOREVER} SELECT i FROM n LIMIT 2000;
             CREATE VIEW t AS SELECT max(a.i) AS rowid, NULL AS g FROM s a, s b, s c;"
        )),
        of_sql("large.gpkg", &format!("{TABLE} CREATE VIEW v AS SELECT 1; DROP TABLE t;
             CREATE VIEW t AS SELECT 1 AS rowid, zeroblob(2000000000) AS g;")),
        // Each value alone is within the limits.
        of_sql("texts.gpkg", &format!("CREATE VIEW t AS SELECT 1 AS rowid, NULL AS g{};", (0..8)
            .map(|n| format!(", printf('%.60000000c', 'x') AS a{n}")).collect::<String>())),
        of_sql("texts_made.gpkg", &format!("CREATE VIEW t AS SELECT 1 AS rowid, NULL AS g{};", (0..8)
            .map(|n| format!(", replace(hex(zeroblob(500000)), '0', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx') AS a{n}"))
            .collect::<String>())),
        of_sql("names.gpkg", &format!(
            "DROP TABLE gpkg_contents; CREATE VIEW gpkg_contents AS {FOREVER} SELECT 't' || i AS table_name,
             'features' AS data_type, printf('%.60000000c', 'x') AS identifier, 1 AS rowid FROM n;
             DROP TABLE gpkg_geometry_columns; CREATE VIEW gpkg_geometry_columns AS {FOREVER} SELECT 't' || i AS table_name,
             'g' AS column_name, 'GEOMETRY' AS geometry_type_name, 4326 AS srs_id FROM n;"
        )),
        of_sql("names_long.gpkg", &format!(
            "DROP TABLE gpkg_contents; CREATE VIEW gpkg_contents AS {FOREVER} SELECT 't' AS table_name,
             'features' AS data_type, 1 AS rowid FROM n;
             DROP TABLE gpkg_geometry_columns; CREATE VIEW gpkg_geometry_columns AS
             SELECT 't' AS table_name, printf('%.60000000c', 'x') AS column_name, printf('%.60000000c', 'x') AS geometry_type_name, 4326 AS srs_id;"
        )),
        of_sql("itself.gpkg", "CREATE TABLE u (g); CREATE VIEW t AS SELECT 1 AS rowid, g FROM u;
             DROP TABLE u; CREATE VIEW u AS SELECT * FROM t;"),
        of_sql("no_table.gpkg", ""),
        of_sql("no_system.gpkg", &format!("{TABLE} DELETE FROM gpkg_spatial_ref_sys;")),
        of_sql("words.gpkg", &format!("{TABLE} INSERT INTO t VALUES (1, 'not a blob', 'a');")),
        of_sql("header.gpkg", &format!("{TABLE} INSERT INTO t VALUES (1, x'4750000F', 'a');")),
        of_sql("not_utf8.gpkg", &format!("{TABLE} INSERT INTO t VALUES (1, NULL, CAST(x'FFFE' AS TEXT));")),
        of_wkb("deep.gpkg", &deep_wkb(200_000)),
        of_wkb("infinite.gpkg", &infinite_wkb()),
    ];
    cases.extend(huge_wkb().iter().enumerate().map(|(n, wkb)| of_wkb(&format!("huge_{n}.gpkg"), wkb)));
    cases
}
