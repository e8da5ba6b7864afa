//! A written GeoPackage, seen through SQLite.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};
use tidegate_geo::wkb::Shape;
use tidegate_geo::{Batch, Crs, Kind, Schema, Value, format, wkt};

fn open(path: &Path) -> Connection {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

fn one<T: rusqlite::types::FromSql>(db: &Connection, sql: &str) -> T {
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// A grid of points, `side` by `side`, at whole degrees' tenths.
fn grid(path: &Path, side: u32) {
    let schema = Arc::new(Schema::new([("n", Kind::Int)]).of_shape(Shape::Point));
    let mut writer = format::create(path, &schema, &Crs::wgs84(), &format::Options::default()).unwrap();
    for x in 0..side {
        let mut batch = Batch::new(schema.clone());
        for y in 0..side {
            let n = Value::Int(i64::from(x * side + y));
            batch.push_point(f64::from(x) / 10.0, f64::from(y) / 10.0, [n]).unwrap();
        }
        writer.write(&batch).unwrap();
    }
    assert_eq!(writer.finish().unwrap().features, u64::from(side) * u64::from(side));
}

#[test]
fn the_index_is_sound_at_every_height_and_finds_what_a_scan_finds() {
    let dir = tempfile::tempdir().unwrap();
    for side in [0, 1, 7, 8, 52, 200] {
        let path = dir.path().join(format!("grid{side}.gpkg"));
        grid(&path, side);
        let db = open(&path);
        assert_eq!(one::<String>(&db, "PRAGMA integrity_check"), "ok");
        let index = format!("rtree_grid{side}_geom");
        assert_eq!(one::<String>(&db, &format!("SELECT rtreecheck('{index}')")), "ok");
        let found: i64 = one(
            &db,
            &format!(
                "SELECT count(*) FROM {index} WHERE maxx >= 0.35 AND minx <= 0.75 AND maxy >= 0.15 AND miny <= 2.05"
            ),
        );
        let (across, up) =
            ((0..side).filter(|x| (4..=7).contains(x)), (0..side).filter(|y| (2..=20).contains(y)));
        assert_eq!(found, (across.count() * up.count()) as i64, "side {side}");
    }
}

#[test]
fn the_header_and_the_tables_say_what_the_standard_asks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a \"b\".gpkg");
    let schema = Schema::new([
        ("fid", Kind::Text),
        ("FID", Kind::Real),
        ("geom", Kind::Bool),
        ("when", Kind::DateTime),
        ("blob", Kind::Bytes),
    ]);
    let schema = Arc::new(schema);
    let options =
        format::Options { last_change: Some("2026-01-02T03:04:05.000Z".into()), ..Default::default() };
    let mut writer = format::create(&path, &schema, &Crs::epsg(3857), &options).unwrap();
    let mut batch = Batch::new(schema);
    for text in ["POLYGON Z ((0 0 1, 4 0 1, 4 4 1, 0 0 1))", "POINT (1 2)", "GEOMETRYCOLLECTION EMPTY"] {
        let mut wkb = Vec::new();
        wkt::read(text, &mut wkb).unwrap();
        let values = [
            Value::Text("x"),
            Value::Real(0.5),
            Value::Bool(true),
            Value::Text("2026-11-15T04:00:00Z"),
            Value::Bytes(&[0, 1]),
        ];
        batch.push(Some(&wkb), values).unwrap();
    }
    batch.push(None, [Value::Null; 5]).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();

    let db = open(&path);
    assert_eq!(one::<i64>(&db, "PRAGMA application_id"), 0x4750_4B47);
    assert_eq!(one::<i64>(&db, "PRAGMA user_version"), 10_300);
    assert_eq!(one::<String>(&db, "PRAGMA integrity_check"), "ok");
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    let columns: String = one(&db, "SELECT group_concat(name, ' ') FROM pragma_table_info('a \"b\"')");
    assert_eq!(columns, "fid_2 geom_1 fid FID_1 geom when blob");
    let described: (String, f64, f64, i64) = db
        .query_row("SELECT last_change, min_x, max_y, srs_id FROM gpkg_contents", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .unwrap();
    assert_eq!(described, ("2026-01-02T03:04:05.000Z".into(), 0.0, 4.0, 3857));
    let (kind, z): (String, i64) = db
        .query_row("SELECT geometry_type_name, z FROM gpkg_geometry_columns", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!((kind.as_str(), z), ("GEOMETRY", 2));
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM \"rtree_a \"\"b\"\"_geom_1\""), 2);
    let blob: Vec<u8> = one(&db, "SELECT geom_1 FROM \"a \"\"b\"\"\" WHERE fid_2 = 2");
    assert_eq!(&blob[..8], &[b'G', b'P', 0, 1, 0x11, 0x0F, 0, 0], "points carry no envelope");
    let flags: Vec<u8> = one(&db, "SELECT substr(geom_1, 4, 1) FROM \"a \"\"b\"\"\" WHERE fid_2 = 3");
    assert_eq!(flags, [0b1_0001], "empty");
}

#[test]
fn a_layer_of_points_refuses_a_line_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.gpkg");
    let schema = Arc::new(Schema::default().of_shape(Shape::Point));
    let mut writer = format::create(&path, &schema, &Crs::wgs84(), &format::Options::default()).unwrap();
    let mut batch = Batch::new(schema).from_record(41);
    let mut wkb = Vec::new();
    wkt::read("LINESTRING (0 0, 1 1)", &mut wkb).unwrap();
    batch.push_point(0.0, 0.0, []).unwrap();
    batch.push(Some(&wkb), []).unwrap();
    let refused = writer.write(&batch).unwrap_err();
    assert!(refused.to_string().contains("record 42"), "{refused}");
    drop(writer);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

type Back = (Vec<String>, Vec<format::Rejected>, Option<Crs>);

fn read(path: &Path, layer: Option<&str>) -> Result<Back, String> {
    let options = format::geojson::ReadOptions { layer: layer.map(str::to_owned), ..Default::default() };
    let mut reader = format::open(path, &options).map_err(|e| e.to_string())?;
    let (mut rows, mut rejected) = (Vec::new(), Vec::new());
    while let Some(batch) = reader.next_batch(&mut rejected).map_err(|e| e.to_string())? {
        for row in 0..batch.len() {
            let geometry = batch.geometry(row).map_or("null".into(), wkt::to_string);
            let values: Vec<_> =
                batch.columns().iter().map(|column| format!("{:?}", column.get(row))).collect();
            rows.push(format!("{} {geometry} {}", batch.id(row).unwrap_or("?"), values.join(" ")));
        }
    }
    Ok((rows, rejected, reader.layer().crs.clone()))
}

#[test]
fn what_is_written_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gpkg");
    let schema =
        Arc::new(Schema::new([("t", Kind::Text), ("b", Kind::Bool), ("d", Kind::Date), ("x", Kind::Bytes)]));
    let mut writer = format::create(&path, &schema, &Crs::epsg(27700), &format::Options::default()).unwrap();
    let mut batch = Batch::new(schema);
    batch
        .push_point(
            1.0,
            2.0,
            [Value::Text("é"), Value::Bool(true), Value::Text("2026-11-15"), Value::Bytes(&[7])],
        )
        .unwrap();
    batch.push(None, [Value::Null; 4]).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let (rows, rejected, crs) = read(&path, None).unwrap();
    assert_eq!(
        rows,
        [
            "1 POINT (1 2) Text(\"é\") Bool(true) Text(\"2026-11-15\") Bytes([7])",
            "2 null Null Null Null Null",
        ]
    );
    assert_eq!((rejected, crs), (vec![], Some(Crs::epsg(27700))));
    assert!(read(&path, Some("nope")).unwrap_err().contains("no such layer"));
}

#[test]
fn pages_follow_each_other_without_gap_or_overlap() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("grid.gpkg");
    grid(&path, 91);
    let (rows, _, _) = read(&path, None).unwrap();
    assert_eq!(rows.len(), 91 * 91);
    assert!(rows[8280].starts_with("8281 POINT (9 9) Int(8280)"), "{}", rows[8280]);
}

#[test]
fn a_file_of_somebody_else_is_not_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text.gpkg");
    std::fs::write(&text, "not a database, but long enough to be read as one".repeat(100)).unwrap();
    assert!(read(&text, None).unwrap_err().contains("CORRUPTED_HEADER"));

    let path = dir.path().join("evil.gpkg");
    grid(&path, 3);
    let db = Connection::open(&path).unwrap();
    db.execute_batch(
        "DROP TRIGGER rtree_evil_geom_update6; DROP TRIGGER rtree_evil_geom_update7;
         DROP TRIGGER rtree_evil_geom_update2; DROP TRIGGER rtree_evil_geom_update5; DROP TRIGGER rtree_evil_geom_update4;
         UPDATE evil SET geom = x'4750000100000000010100' WHERE fid = 2;
         UPDATE evil SET geom = 'text' WHERE fid = 3;
         UPDATE evil SET n = 'word' WHERE fid = 4;",
    )
    .unwrap();
    let (rows, rejected, _) = read(&path, None).unwrap();
    assert_eq!(rows.len(), 6);
    let told: Vec<_> = rejected.iter().map(|r| (r.record, r.problems[0].code.as_str())).collect();
    assert_eq!(told, [(1, "INVALID_GEOMETRY"), (2, "INVALID_GEOMETRY"), (3, "SCHEMA_MISMATCH")]);

    db.execute_batch(
        "DROP TABLE evil;
         CREATE VIEW evil AS WITH RECURSIVE c(fid) AS (SELECT 1 UNION ALL SELECT fid + 1 FROM c)
         SELECT max(fid) AS fid, NULL AS geom, 1 AS n FROM c;",
    )
    .unwrap();
    assert!(read(&path, None).is_err(), "an endless view is interrupted");
}

/// Writes rows of (key, x) into a layer.
fn add(
    path: &Path,
    layer: &str,
    mode: format::Mode,
    rows: &[(&str, f64)],
) -> Result<(), tidegate_geo::Error> {
    let schema = Arc::new(Schema::new([("key", Kind::Text)]).of_shape(Shape::Point));
    let options = format::Options { mode, layer: Some(layer.into()), ..format::Options::default() };
    let mut writer = format::create(path, &schema, &Crs::wgs84(), &options)?;
    let mut batch = Batch::new(schema);
    for (key, x) in rows {
        let key = if key.is_empty() { Value::Null } else { Value::Text(key) };
        batch.push_point(*x, 1.0, [key]).unwrap();
    }
    writer.write(&batch)?;
    writer.finish().map(|_| ())
}

#[test]
fn rows_are_added_and_replaced_by_key_and_the_index_follows() {
    use format::Mode::{Append, New, Upsert};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gpkg");
    let upsert = || Upsert("key".into());
    add(&path, "a", New, &[("x", 1.0), ("y", 2.0)]).unwrap();
    add(&path, "b", Append, &[("z", 50.0)]).unwrap();
    add(&path, "a", upsert(), &[("y", 20.0), ("w", 3.0), ("w", 4.0)]).unwrap();
    add(&path, "a", Append, &[("q", -7.0)]).unwrap();
    add(&path, "c", upsert(), &[("k", 8.0), ("k", 9.0)]).unwrap();
    assert_eq!(format::gpkg::layers(&path).unwrap(), ["a", "b", "c"]);
    let db = open(&path);
    assert_eq!(one::<String>(&db, "SELECT group_concat(key, '' ORDER BY fid) FROM a"), "xywq");
    assert_eq!(one::<f64>(&db, "SELECT minx FROM rtree_a_geom WHERE id = 2"), 20.0);
    for layer in ["a", "b", "c"] {
        assert_eq!(one::<String>(&db, &format!("SELECT rtreecheck('rtree_{layer}_geom')")), "ok");
        let rows: i64 = one(&db, &format!("SELECT count(*) FROM {layer}"));
        assert_eq!(one::<i64>(&db, &format!("SELECT count(*) FROM rtree_{layer}_geom")), rows);
    }
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM c"), 1);
    assert_eq!(one::<f64>(&db, "SELECT min_x FROM gpkg_contents WHERE table_name = 'a'"), -7.0);
    assert_eq!(one::<f64>(&db, "SELECT max_x FROM gpkg_contents WHERE table_name = 'a'"), 20.0);
    assert_eq!(one::<String>(&db, "PRAGMA integrity_check"), "ok");
}

#[test]
fn what_does_not_fit_an_existing_layer_is_refused_and_changes_nothing() {
    use format::Mode::{Append, New, Upsert};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gpkg");
    add(&path, "a", New, &[("x", 1.0), ("x", 2.0)]).unwrap();
    let before = std::fs::read(&path).unwrap();
    let refused = |schema: Schema, crs: Crs| {
        let options = format::Options { mode: Append, layer: Some("a".into()), ..format::Options::default() };
        format::create(&path, &Arc::new(schema), &crs, &options).err().unwrap().to_string()
    };
    assert!(
        refused(Schema::new([("other", Kind::Int)]), Crs::wgs84())
            .contains("has no field \"other\"; it has fid, geom, key")
    );
    assert!(refused(Schema::new([("key", Kind::Text)]), Crs::epsg(27700)).contains("--to-crs EPSG:4326"));
    let doubled = add(&path, "a", Upsert("key".into()), &[("y", 1.0)]).unwrap_err().to_string();
    assert!(doubled.contains("cannot be the key"), "{doubled}");
    let unknown = add(&path, "a", Upsert("nokey".into()), &[]).unwrap_err().to_string();
    assert!(unknown.contains("the key field \"nokey\" does not exist"), "{unknown}");
    let null = add(&path, "b", Upsert("key".into()), &[("", 1.0)]).unwrap_err().to_string();
    assert!(null.contains("no value in the key field"), "{null}");
    assert!(add(&dir.path().join("no.gpkg"), "a", New, &[]).is_ok());
    std::fs::write(dir.path().join("text.gpkg"), "hello").unwrap();
    assert!(add(&dir.path().join("text.gpkg"), "a", Append, &[]).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "hidden files are left");
}

#[test]
fn a_file_in_use_is_left_alone_and_one_with_an_old_log_is_copied_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gpkg");
    add(&path, "a", format::Mode::New, &[("x", 1.0)]).unwrap();
    let db = Connection::open(&path).unwrap();
    db.execute_batch("PRAGMA journal_mode = WAL; UPDATE gpkg_contents SET description = 'in the log';")
        .unwrap();
    for mode in [format::Mode::Append, format::Mode::New] {
        let busy = add(&path, "b", mode, &[("z", 50.0)]).unwrap_err().to_string();
        assert!(busy.contains("another program"), "{busy}");
    }
    // As a program that was killed leaves it.
    let crashed = dir.path().join("crashed.gpkg");
    for end in ["", "-wal"] {
        std::fs::copy(format!("{}{end}", path.display()), format!("{}{end}", crashed.display())).unwrap();
    }
    add(&crashed, "b", format::Mode::Append, &[("z", 50.0)]).unwrap();
    let copy = open(&crashed);
    assert_eq!(
        one::<String>(&copy, "SELECT description FROM gpkg_contents WHERE table_name = 'a'"),
        "in the log"
    );
    assert_eq!(one::<i64>(&copy, "SELECT count(*) FROM b"), 1);
}
