//! GeoParquet, there and back.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::wkb::Shape;
use tidegate_geo::{Batch, Crs, Kind, Schema, Value, format, wkt};

fn write(path: &Path, crs: &Crs, rows: usize) {
    let schema = Arc::new(
        Schema::new([
            ("t", Kind::Text),
            ("i", Kind::Int),
            ("x", Kind::Real),
            ("b", Kind::Bool),
            ("d", Kind::Date),
            ("m", Kind::DateTime),
            ("j", Kind::Json),
            ("raw", Kind::Bytes),
            ("bbox", Kind::Int),
        ])
        .of_shape(Shape::LineString),
    );
    let mut writer = format::create(path, &schema, crs, &format::Options::default()).unwrap();
    for start in (0..rows).step_by(1000) {
        let mut batch = Batch::new(schema.clone());
        for row in start..rows.min(start + 1000) {
            let n = row as f64;
            let mut wkb = Vec::new();
            wkt::read(&format!("LINESTRING ({n} 0.1, {n}.5 7)"), &mut wkb).unwrap();
            let text = format!("é {row}");
            let values = if row % 3 == 2 {
                [Value::Null; 9]
            } else {
                [
                    Value::Text(&text),
                    Value::Int(row as i64 - 5),
                    Value::Real(n / 3.0),
                    Value::Bool(row % 2 == 0),
                    Value::Text("2026-11-15"),
                    Value::Text("2026-11-15T04:05:06.789Z"),
                    Value::Json("{\"a\":[1,null]}"),
                    Value::Bytes(&[0, 255]),
                    Value::Int(1),
                ]
            };
            batch.push((row % 3 != 2).then_some(wkb.as_slice()), values).unwrap();
        }
        writer.write(&batch).unwrap();
    }
    assert_eq!(writer.finish().unwrap().features, rows as u64);
}

#[test]
fn every_kind_comes_back_over_several_groups() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    for rows in [0, 1, 70_001] {
        write(&path, &Crs::epsg(27700), rows);
        let mut reader = format::open(&path, &ReadOptions::default()).unwrap();
        let layer = reader.layer().clone();
        assert_eq!((layer.crs, layer.records), (Some(Crs::epsg(27700)), Some(rows as u64)));
        let kinds: Vec<_> = layer.schema.fields().iter().map(|f| (f.name.as_str(), f.kind)).collect();
        let moment = if rows == 0 { Kind::Text } else { Kind::DateTime };
        assert_eq!(
            kinds,
            [
                ("t", Kind::Text),
                ("i", Kind::Int),
                ("x", Kind::Real),
                ("b", Kind::Bool),
                ("d", Kind::Date),
                ("m", moment),
                ("j", Kind::Json),
                ("raw", Kind::Bytes),
                ("bbox", Kind::Int)
            ]
        );
        let mut seen = 0usize;
        let mut rejected = Vec::new();
        while let Some(batch) = reader.next_batch(&mut rejected).unwrap() {
            for row in 0..batch.len() {
                assert_eq!(batch.record(row), seen as u64);
                if seen % 3 == 2 {
                    assert_eq!((batch.geometry(row), batch.value(row, 0)), (None, Value::Null));
                } else {
                    let text = wkt::to_string(batch.geometry(row).unwrap());
                    assert_eq!(text, format!("LINESTRING ({seen} 0.1, {seen}.5 7)"));
                    assert_eq!(batch.value(row, 0), Value::Text(&format!("é {seen}")));
                    assert_eq!(batch.value(row, 1), Value::Int(seen as i64 - 5));
                    assert_eq!(batch.value(row, 2), Value::Real(seen as f64 / 3.0));
                    assert_eq!(batch.value(row, 4), Value::Text("2026-11-15"));
                    assert_eq!(batch.value(row, 5), Value::Text("2026-11-15T04:05:06.789Z"));
                    assert_eq!(batch.value(row, 6), Value::Json("{\"a\":[1,null]}"));
                    assert_eq!(batch.value(row, 7), Value::Bytes(&[0, 255]));
                }
                seen += 1;
            }
        }
        assert_eq!((seen, rejected.len()), (rows, 0));
    }
}

#[test]
fn moments_without_offset_stay_so_and_mixed_ones_stay_text() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    for (moments, kind, back) in [
        (["2026-11-15T04:05:06", "1969-01-01T00:00:00.000001"], Kind::DateTime, "1969-01-01T00:00:00.000001"),
        (["2026-11-15T04:05:06Z", "2026-11-15T04:05:06"], Kind::Text, "2026-11-15T04:05:06"),
        (
            ["2026-11-15T04:05:06Z", "2026-11-15T04:05:06.1234567Z"],
            Kind::Text,
            "2026-11-15T04:05:06.1234567Z",
        ),
        (["2026-11-15T04:05:06Z", "2026-11-15T04:05:06+02:00"], Kind::DateTime, "2026-11-15T02:05:06Z"),
    ] {
        let schema = Arc::new(Schema::new([("m", Kind::DateTime)]));
        let mut writer = format::create(&path, &schema, &Crs::wgs84(), &format::Options::default()).unwrap();
        let mut batch = Batch::new(schema);
        for moment in moments {
            batch.push(None, [Value::Text(moment)]).unwrap();
        }
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let mut reader = format::open(&path, &ReadOptions::default()).unwrap();
        assert_eq!(reader.layer().crs, Some(Crs::wgs84()));
        assert_eq!(reader.layer().schema.fields()[0].kind, kind);
        let batch = reader.next_batch(&mut Vec::new()).unwrap().unwrap();
        assert_eq!(batch.value(1, 0), Value::Text(back));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_damaged_file_ends_in_an_answer(at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        write(&path, &Crs::wgs84(), 9);
        let good = std::fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[at.index(good.len())] = to;
        for bytes in [&bad[..], &good[..cut.index(good.len())]] {
            std::fs::write(&path, bytes).unwrap();
            if let Ok(mut reader) = format::open(&path, &ReadOptions::default()) {
                let mut rejected = Vec::new();
                while let Ok(Some(_)) = reader.next_batch(&mut rejected) {}
            }
        }
    }
}
