//! What ArcGIS servers answer, read.

use tidegate_core::Code;
use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::{Crs, Error, Kind, Value, format, wkt};

/// The layer, its rows, what was rejected, and the identifiers.
type Told = (format::Layer, Vec<String>, Vec<format::Rejected>, Vec<String>);

fn read(text: &str) -> Result<Told, Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.json");
    std::fs::write(&path, text).unwrap();
    let mut reader = format::open(&path, &ReadOptions::default())?;
    let (mut rows, mut rejected, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(batch) = reader.next_batch(&mut rejected)? {
        for row in 0..batch.len() {
            let values: Vec<String> = batch
                .columns()
                .iter()
                .map(|c| match c.get(row) {
                    Value::Text(t) => t.to_owned(),
                    other => format!("{other:?}"),
                })
                .collect();
            let geometry = batch.geometry(row).map_or("none".into(), wkt::to_string);
            rows.push(format!("{geometry} {}", values.join(" ")));
            ids.extend(batch.id(row).map(str::to_owned));
        }
    }
    Ok((reader.layer().clone(), rows, rejected, ids))
}

#[test]
fn a_feature_set_with_holes_dates_and_a_bad_feature() {
    let text = r#"{"objectIdFieldName":"OBJECTID","geometryType":"esriGeometryPolygon","spatialReference":{"wkid":102100,"latestWkid":3857},
      "fields":[{"name":"OBJECTID","type":"esriFieldTypeOID"},{"name":"when","type":"esriFieldTypeDate"},{"name":"x","type":"esriFieldTypeDouble"},{"name":"n","type":"esriFieldTypeString"}],
      "features":[
       {"attributes":{"OBJECTID":1,"when":1763179506789,"x":1.5,"n":"a"},"geometry":{"rings":[[[0,0],[0,9],[9,9],[9,0],[0,0]],[[1,1],[2,1],[2,2],[1,1]],[[20,0],[20,1],[21,1],[20,0]]]}},
       {"attributes":{"OBJECTID":2,"when":null,"x":"NaN","n":null},"geometry":null},
       {"attributes":{"OBJECTID":3,"when":0,"x":0,"n":"c"},"geometry":{"curveRings":[]}},
       {"attributes":{"OBJECTID":"x","when":0,"x":0,"n":"c"}}]}"#;
    let (layer, rows, rejected, ids) = read(text).unwrap();
    assert_eq!(layer.crs, Some(Crs::epsg(3857)));
    let kinds: Vec<_> = layer.schema.fields().iter().map(|f| f.kind).collect();
    assert_eq!(kinds, [Kind::Int, Kind::DateTime, Kind::Real, Kind::Text]);
    assert_eq!(
        rows,
        [
            "MULTIPOLYGON (((0 0, 0 9, 9 9, 9 0, 0 0), (1 1, 2 1, 2 2, 1 1)), ((20 0, 20 1, 21 1, 20 0))) Int(1) 2025-11-15T04:05:06.789Z Real(1.5) a",
            "none Int(2) Null Null Null",
        ]
    );
    assert_eq!(ids, ["1", "2"]);
    assert_eq!(rejected.iter().map(|r| r.record).collect::<Vec<_>>(), [2, 3]);
    assert!(rejected[0].problems[0].message.contains("returnTrueCurves"));
    assert_eq!(rejected[1].problems[0].path, "OBJECTID");
}

#[test]
fn every_shape_and_fields_that_nobody_declares() {
    let set = |features: &str| {
        format!(r#"{{"hasZ":true,"features":[{features}],"spatialReference":{{"wkid":4326}}}}"#)
    };
    let text = set(
        r#"{"geometry":{"x":1,"y":2,"z":3},"attributes":{"a":1}},{"geometry":{"points":[[1,2,3]]},"attributes":{"a":2.5}},
           {"geometry":{"paths":[[[1,2,3],[4,5]]]},"attributes":{"b":"t"}},{"geometry":{"x":"NaN","y":"NaN"},"attributes":{}},
           {"geometry":{"xmin":0,"ymin":0,"xmax":1,"ymax":1},"attributes":{}}"#,
    );
    let (layer, rows, rejected, _) = read(&text).unwrap();
    assert_eq!((layer.crs, rejected.len()), (Some(Crs::epsg(4326)), 0));
    assert_eq!(rows[0], "POINT Z (1 2 3) Real(1.0) Null");
    assert_eq!(rows[1], "MULTIPOINT Z ((1 2 3)) Real(2.5) Null");
    assert!(rows[2].starts_with("MULTILINESTRING Z ((1 2 3, 4 5 NaN)) Null t"), "{}", rows[2]);
    assert_eq!(rows[3], "POINT EMPTY Null Null");
    assert_eq!(rows[4], "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 1, 0 0))) Null Null");
}

#[test]
fn a_servers_error_is_told_as_such() {
    let error = read(
        r#"{"error":{"code":499,"message":"Token Required","details":[]},"spatialReference":{"wkid":1}}"#,
    )
    .unwrap_err();
    assert_eq!(error.code(), Code::SERVICE_EXCEPTION);
    assert!(error.to_string().contains("Token Required"));
    assert_eq!(
        read(r#"{"spatialReference":{"wkid":1},"features":[]}"#).unwrap_err().code(),
        Code::CRS_NOT_FOUND
    );
    assert!(read(r#"{"wkid":1,"features":[{"attributes":"#).is_err());
}
