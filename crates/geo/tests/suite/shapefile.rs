//! A written Shapefile, read back.

use std::sync::Arc;

use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::{Batch, Crs, Error, Kind, Schema, Value, format, wkt};

fn there_and_back(schema: &Schema, rows: &[(&str, Vec<Value<'_>>)]) -> Result<Vec<String>, Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.shp");
    let schema = Arc::new(schema.clone());
    let mut writer = format::create(&path, &schema, &Crs::epsg(27700), &format::Options::default())?;
    let mut batch = Batch::new(schema);
    for (text, values) in rows {
        let mut wkb = Vec::new();
        if !text.is_empty() {
            wkt::read(text, &mut wkb).unwrap();
        }
        batch.push((!text.is_empty()).then_some(wkb.as_slice()), values.iter().copied()).unwrap();
    }
    let written = writer.write(&batch).and_then(|()| writer.finish());
    if written.is_err() {
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files are left");
    }
    written?;
    let mut reader = format::open(&path, &ReadOptions::default())?;
    assert_eq!(reader.layer().crs, Some(Crs::epsg(27700)));
    let mut out =
        vec![reader.layer().schema.fields().iter().map(|f| f.name.clone()).collect::<Vec<_>>().join(" ")];
    let mut rejected = Vec::new();
    while let Some(batch) = reader.next_batch(&mut rejected)? {
        for row in 0..batch.len() {
            let values: Vec<String> = batch.columns().iter().map(|c| format!("{:?}", c.get(row))).collect();
            out.push(format!(
                "{} {}",
                batch.geometry(row).map_or("none".into(), wkt::to_string),
                values.join(" ")
            ));
        }
    }
    assert!(rejected.is_empty(), "{rejected:?}");
    Ok(out)
}

#[test]
fn shapes_and_values_come_back() {
    let schema = Schema::new([
        ("a_long_name_1", Kind::Text),
        ("a_long_name_2", Kind::Int),
        ("x", Kind::Real),
        ("yes", Kind::Bool),
        ("day", Kind::Date),
    ]);
    let values = vec![
        Value::Text("é"),
        Value::Int(-12),
        Value::Real(0.1),
        Value::Bool(true),
        Value::Text("2026-11-15"),
    ];
    let out = there_and_back(
        &schema,
        &[
            ("POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0), (1 1, 1 2, 2 2, 1 1))", values.clone()),
            ("MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))", vec![Value::Null; 5]),
            ("", vec![Value::Null; 5]),
            ("POLYGON EMPTY", vec![Value::Null; 5]),
        ],
    );
    assert_eq!(
        out.unwrap(),
        [
            "a_long_nam a_long_n_1 x yes day",
            "MULTIPOLYGON (((0 0, 0 9, 9 9, 9 0, 0 0), (1 1, 2 2, 1 2, 1 1))) Text(\"é\") Int(-12) Real(0.1) Bool(true) Text(\"2026-11-15\")",
            "MULTIPOLYGON (((0 0, 1 1, 1 0, 0 0)), ((5 5, 6 6, 6 5, 5 5))) Null Null Null Null Null",
            "none Null Null Null Null Null",
            "none Null Null Null Null Null",
        ]
    );
    let heights = Schema::new([("n", Kind::Int)]).of_dim(tidegate_geo::wkb::Dim::Xyz);
    for (text, back) in [
        ("POINT Z (1 2 3)", "POINT Z (1 2 3)"),
        ("LINESTRING Z (1 2 3, 4 5 6)", "MULTILINESTRING Z ((1 2 3, 4 5 6))"),
        ("MULTIPOINT Z ((1 2 3), (4 5 6))", "MULTIPOINT Z ((1 2 3), (4 5 6))"),
    ] {
        assert_eq!(
            there_and_back(&heights, &[(text, vec![Value::Int(1)])]).unwrap()[1],
            format!("{back} Int(1)")
        );
    }
}

#[test]
fn what_it_cannot_hold_is_refused_and_leaves_nothing() {
    let text = Schema::new([("t", Kind::Text)]);
    let long = "x".repeat(255);
    for (schema, rows, word) in [
        (
            &text,
            vec![("POINT (0 0)", vec![Value::Text(&long)])],
            "holds 254 bytes in this field, and the value has 255, record 0, at t",
        ),
        (
            &text,
            vec![("POINT (0 0)", vec![Value::Null]), ("LINESTRING (0 0, 1 1)", vec![Value::Null])],
            "one family of shapes",
        ),
        (&text, vec![("GEOMETRYCOLLECTION (POINT (0 0))", vec![Value::Null])], "GeometryCollection"),
        (&Schema::new([("i", Kind::Int)]), vec![("POINT (0 0)", vec![Value::Int(i64::MAX)])], "18 bytes"),
        (&Schema::new([("b", Kind::Bytes)]), vec![], "cannot hold bytes"),
    ] {
        let error = there_and_back(schema, &rows).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}
