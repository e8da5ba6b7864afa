//! GeoJSON in, in every framing, with everything that can be wrong with it.

use std::io::Read;
use std::sync::Arc;

use proptest::prelude::*;
use tidegate_core::Code;
use tidegate_geo::format::Rejected;
use tidegate_geo::format::geojson::{GeoJsonReader, ReadOptions, Rules, infer};
use tidegate_geo::limits::RecordLimits;
use tidegate_geo::{Batch, Error, Kind, Schema, Value, wkt};

/// A source that gives a few bytes at a time, so that every cut of the window happens.
struct Drip<'a>(&'a [u8], usize);

impl Read for Drip<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let len = self.1.min(out.len()).min(self.0.len());
        out[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        Ok(len)
    }
}

fn read_all(text: &[u8], options: &ReadOptions) -> Result<(Vec<Batch>, Vec<Rejected>), Error> {
    let inferred = infer(text, options.limits.record_bytes_max)?;
    let mut reader = GeoJsonReader::new(text, inferred.schema, options.clone());
    let (mut batches, mut rejected) = (Vec::new(), Vec::new());
    while let Some(batch) = reader.next_batch(&mut rejected)? {
        batches.push(batch);
    }
    Ok((batches, rejected))
}

fn shapes(text: &str) -> Vec<String> {
    let (batches, rejected) = read_all(text.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!(rejected, [], "{text}");
    batches
        .iter()
        .flat_map(|batch| {
            (0..batch.len())
                .map(|row| batch.geometry(row).map_or("null".into(), wkt::to_string))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn problems(text: &str) -> Vec<(Code, String, u64, String)> {
    let (_, rejected) = read_all(text.as_bytes(), &ReadOptions::default()).unwrap();
    let all = rejected.into_iter().flat_map(|r| r.problems);
    all.map(|p| (p.code, p.path, p.offset.unwrap(), p.message)).collect()
}

fn feature(geometry: &str) -> String {
    format!(r#"{{"type":"Feature","properties":{{}},"geometry":{geometry}}}"#)
}

#[test]
fn every_framing_is_understood() {
    let one = feature(r#"{"type":"Point","coordinates":[1,2]}"#);
    let two = feature("null");
    let want = vec!["POINT (1 2)".to_string(), "null".to_string()];
    for text in [
        format!(r#"{{"type":"FeatureCollection","features":[{one},{two}]}}"#),
        format!("\u{feff}{{\"features\" : [ {one} , {two} ], \"type\":\"FeatureCollection\"}}\n\n"),
        format!(
            r#"{{"name":"x","bbox":[0,0,1,1],"type":"FeatureCollection","features":[{one},{two}],"foreign":{{"features":[]}}}}"#
        ),
        format!("{one}\n{two}\n"),
        format!("{one}\r\n\r\n{two}"),
        format!("\x1e{one}\n\x1e{two}\n"),
        format!("{{\"type\":\"Point\",\"coordinates\":[1,2]}} {two}"),
        format!(
            "{{\"type\":\"FeatureCollection\",\"features\":[{one}]}}\n{{\"type\":\"FeatureCollection\",\"features\":[{two}]}}"
        ),
    ] {
        assert_eq!(shapes(&text), want, "{text}");
    }
    assert_eq!(shapes(""), [""; 0]);
    assert_eq!(shapes(r#"{"type":"FeatureCollection","features":[]}"#), [""; 0]);
}

#[test]
fn every_shape_is_read_whatever_the_order_of_members() {
    for (json, want) in [
        (r#"{"coordinates":[1.5,-2e0],"type":"Point"}"#, "POINT (1.5 -2)"),
        (r#"{"type":"Point","coordinates":[1,2,3]}"#, "POINT Z (1 2 3)"),
        (r#"{"type":"Point","coordinates":[1,2,3,4]}"#, "POINT ZM (1 2 3 4)"),
        (r#"{"type":"Point","coordinates":[]}"#, "POINT EMPTY"),
        (r#"{"type":"LineString","coordinates":[[1,2],[3,4,5]]}"#, "LINESTRING Z (1 2 0, 3 4 5)"),
        (r#"{"type":"LineString","coordinates":[]}"#, "LINESTRING EMPTY"),
        (r#"{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,0]]]}"#, "POLYGON ((0 0, 1 0, 1 1, 0 0))"),
        (r#"{"type":"MultiPoint","coordinates":[[1,2],[3,4]]}"#, "MULTIPOINT ((1 2), (3 4))"),
        (r#"{"type":"MultiLineString","coordinates":[[[1,2],[3,4]]]}"#, "MULTILINESTRING ((1 2, 3 4))"),
        (
            r#"{"type":"MultiPolygon","coordinates":[[[[0,0],[1,0],[1,1],[0,0]]],[]]}"#,
            "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), EMPTY)",
        ),
        (
            r#"{"geometries":[{"coordinates":[1,2,3],"type":"Point"},{"type":"GeometryCollection","geometries":[]}],"type":"GeometryCollection"}"#,
            "GEOMETRYCOLLECTION Z (POINT Z (1 2 3), GEOMETRYCOLLECTION Z EMPTY)",
        ),
    ] {
        assert_eq!(shapes(json), [want]);
        assert_eq!(shapes(&feature(json)), [want]);
    }
}

#[test]
fn all_problems_of_a_record_are_told_each_with_path_and_byte() {
    let text = feature(
        r#"{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,5]],[[0,0],[1]],[[0,"x"],[1,0],[0,0],[0,0]]]}"#,
    );
    let found =
        problems(&format!(r#"{{"type":"FeatureCollection","features":[{},{text}]}}"#, feature("null")));
    let paths: Vec<_> =
        found.iter().map(|(code, path, _, message)| (*code, path.as_str(), message.as_str())).collect();
    let root = "$.features[1].geometry.coordinates";
    assert_eq!(
        paths,
        [
            (
                Code::INVALID_GEOMETRY,
                format!("{root}[0]").as_str(),
                "the ring is not closed: its first and last positions differ"
            ),
            (Code::INVALID_GEOMETRY, &format!("{root}[1][1]"), "a position has 2 to 4 numbers, not 1"),
            (Code::INVALID_GEOMETRY, &format!("{root}[1]"), "a ring needs at least 4 positions, not 2"),
            (Code::INVALID_GEOMETRY, &format!("{root}[2][0]"), "a coordinate must be a number"),
        ]
    );
    let at = |p: &str| text.find(p).unwrap() as u64;
    let start = found[0].2 - at("[[0,0],[1,0]");
    assert_eq!(found[3].2 - start, at("\"x\""), "the byte is the byte of the source");
}

#[test]
fn what_is_wrong_with_a_feature_is_told() {
    for (text, path, says) in [
        (r#"{"type":"Feature","geometry":null}"#, "$", "needs a member \"properties\""),
        (r#"{"type":"Feature","properties":null}"#, "$", "needs a member \"geometry\""),
        (r#"{"type":"Feat","geometry":null,"properties":{}}"#, "$.type", "not a GeoJSON type"),
        (r#"{"type":"Feature","geometry":5,"properties":{}}"#, "$.geometry", "must be an object"),
        (
            r#"{"type":"Feature","geometry":{"type":"Circle"},"properties":{}}"#,
            "$.geometry",
            "not a type of geometry",
        ),
        (
            r#"{"type":"Feature","geometry":{"type":"Point"},"properties":{}}"#,
            "$.geometry",
            "needs coordinates",
        ),
        (r#"{"type":"Feature","geometry":{},"properties":{}}"#, "$.geometry", "needs a type"),
        (r#"{"type":"Feature","geometry":null,"properties":[]}"#, "$.properties", "object or null"),
        (r#"{"type":"Feature","id":{},"geometry":null,"properties":{}}"#, "$.id", "text or a number"),
        (r#"{"type":"Feature","bbox":[0,5,1,4],"geometry":null,"properties":{}}"#, "$.bbox", "southern"),
        (r#"{"type":"LineString","coordinates":[[0,0]]}"#, "$.coordinates", "at least 2"),
        (r#"{"type":"Point","coordinates":{"x":1}}"#, "$.coordinates", "array"),
    ] {
        let found = problems(text);
        assert_eq!(found.len(), 1, "{text} {found:?}");
        assert_eq!(found[0].1, path);
        assert!(found[0].3.contains(says), "{} for {text}", found[0].3);
    }
    let crossing = r#"{"type":"Feature","bbox":[170,-10,-170,10],"geometry":null,"properties":{}}"#;
    assert_eq!(problems(crossing), [], "west of east is the antimeridian");
}

#[test]
fn a_broken_line_is_one_lost_record_and_a_broken_collection_is_the_end() {
    let good = feature("null");
    let text = format!("{good}\n{{\"type\":\"Feature\",,\n{good}\n{{\"open\n{good}\n{{\"cut\":");
    let (batches, rejected) = read_all(text.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!(batches.iter().map(Batch::len).sum::<usize>(), 3);
    let records = batches.iter().flat_map(|batch| (0..batch.len()).map(|row| batch.record(row)));
    assert_eq!(records.collect::<Vec<_>>(), [0, 2, 4]);
    let codes: Vec<_> = rejected.iter().map(|r| (r.record, r.problems[0].code)).collect();
    assert_eq!(codes, [(1, Code::UNEXPECTED_BODY), (3, Code::UNEXPECTED_BODY), (5, Code::TRUNCATED_BODY)]);

    for (tail, code) in
        [(",]}", Code::UNEXPECTED_BODY), (",", Code::TRUNCATED_BODY), ("", Code::TRUNCATED_BODY)]
    {
        let text = format!(r#"{{"type":"FeatureCollection","features":[{good}{tail}"#);
        assert_eq!(read_all(text.as_bytes(), &ReadOptions::default()).unwrap_err().code(), code, "{tail}");
    }
}

#[test]
fn fields_are_typed_and_mixed_ones_stay_json() {
    let text = concat!(
        r#"{"type":"Feature","id":7,"geometry":null,"properties":{"n":1,"x":1,"s":"a\u00e9\n","d":"2026-11-15","m":1,"e":null}}"#,
        "\n",
        r#"{"type":"Feature","id":"b","geometry":null,"properties":{"s":"b","n":-5,"x":2.5,"d":"2026-11-16","m":"t","late":{"a":[1]}}}"#,
        "\n",
    );
    let (batches, rejected) = read_all(text.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!(rejected, []);
    let batch = &batches[0];
    let fields: Vec<_> = batch.schema().fields().iter().map(|f| (f.name.as_str(), f.kind)).collect();
    assert_eq!(
        fields,
        [
            ("n", Kind::Int),
            ("x", Kind::Real),
            ("s", Kind::Text),
            ("d", Kind::Date),
            ("m", Kind::Json),
            ("e", Kind::Text),
            ("late", Kind::Json)
        ]
    );
    assert_eq!((batch.value(0, 0), batch.value(1, 1)), (Value::Int(1), Value::Real(2.5)));
    assert_eq!((batch.value(0, 2), batch.value(0, 4)), (Value::Text("aé\n"), Value::Json("1")));
    assert_eq!((batch.value(1, 4), batch.value(1, 6)), (Value::Json("\"t\""), Value::Json("{\"a\":[1]}")));
    assert_eq!((batch.id(0), batch.id(1)), (Some("7"), Some("\"b\"")));
    let second = text.find("\n").unwrap() as u64 + 1;
    assert_eq!((batch.origin(0).0.offset, batch.origin(1).0.offset), (0, second));
}

#[test]
fn a_given_schema_holds_or_the_record_is_refused() {
    let schema = Arc::new(Schema::new([("n", Kind::Int)]));
    let text = concat!(
        r#"{"type":"Feature","geometry":null,"properties":{"n":1}}"#,
        "\n",
        r#"{"type":"Feature","geometry":null,"properties":{"n":1.5}}"#,
        "\n",
        r#"{"type":"Feature","geometry":null,"properties":{"n":2,"other":1}}"#,
        "\n",
    );
    let options = ReadOptions { keep_raw: true, ..ReadOptions::default() };
    let mut reader = GeoJsonReader::new(text.as_bytes(), schema, options);
    let mut rejected = Vec::new();
    let batch = reader.next_batch(&mut rejected).unwrap().unwrap();
    assert_eq!((batch.len(), batch.origin(0).1), (1, text.lines().next().unwrap().as_bytes()));
    assert!(reader.next_batch(&mut rejected).unwrap().is_none());
    let told: Vec<_> = rejected.iter().map(|r| (r.record, r.problems[0].path.as_str())).collect();
    assert_eq!(told, [(1, "$.properties.n"), (2, "$.properties.other")]);
    assert_eq!(rejected[0].raw, text.lines().nth(1).unwrap().as_bytes());
}

#[test]
fn a_legacy_crs_is_not_lost() {
    let text = r#"{"type":"FeatureCollection","crs":{"type":"name","properties":{"name":"EPSG:3857"}},"features":[]}"#;
    assert!(infer(text.as_bytes(), 1 << 20).unwrap().legacy_crs.unwrap().contains("EPSG:3857"));
}

fn in_system(name: &str) -> String {
    format!(r#""crs":{{"type":"name","properties":{{"name":"{name}"}}}}"#)
}

/// The member `crs` counts wherever the standard of 2008 lets it stand.
#[test]
fn a_crs_counts_on_a_feature_a_geometry_and_a_line() {
    let crs = in_system("EPSG:3857");
    let point = r#""type":"Point","coordinates":[1,2]"#;
    let feature = format!(r#"{{"type":"Feature","properties":null,"geometry":{{{point}}},{crs}}}"#);
    let inner = format!(r#"{{"type":"Feature","properties":null,"geometry":{{{crs},{point}}}}}"#);
    for text in [
        feature.clone(),
        inner.clone(),
        format!("{{{point},{crs}}}"),
        format!(r#"{{"type":"FeatureCollection","features":[{feature},{inner}]}}"#),
        format!(
            r#"{{"features":[{{"type":"Feature","properties":null,"geometry":{{{point}}}}}],{crs},"type":"FeatureCollection"}}"#
        ),
        format!("{feature}\n{inner}\n"),
    ] {
        let found = infer(text.as_bytes(), 1 << 20).unwrap().legacy_crs;
        assert!(found.is_some_and(|found| found.contains("EPSG:3857")), "{text}");
        read_all(text.as_bytes(), &ReadOptions::default()).unwrap();
    }
}

/// A layer has one system.
#[test]
fn records_of_several_systems_are_refused() {
    let (one, other) = (in_system("EPSG:3857"), in_system("EPSG:25832"));
    let feature = |crs: &str| {
        format!(
            r#"{{"type":"Feature","properties":null,"geometry":{{"type":"Point","coordinates":[1,2]}}{crs}}}"#
        )
    };
    let collection = |crs: &str, features: &[String]| {
        format!(r#"{{"type":"FeatureCollection"{crs},"features":[{}]}}"#, features.join(","))
    };
    let plain = feature("");
    let (one, other) = (format!(",{one}"), format!(",{other}"));
    for text in [
        format!("{}\n{}\n", feature(&one), feature(&other)),
        format!("{plain}\n{}\n", feature(&one)),
        collection("", &[feature(&one), feature(&other)]),
        collection("", &[plain.clone(), feature(&one)]),
        collection(&one, &[plain.clone(), feature(&other)]),
        format!(
            "{}\n{}",
            collection(&one, std::slice::from_ref(&plain)),
            collection(&other, std::slice::from_ref(&plain))
        ),
    ] {
        let refused = infer(text.as_bytes(), 1 << 20).unwrap_err();
        assert_eq!(refused.code(), Code::CRS_MISMATCH, "{text}");
        assert_eq!(
            read_all(text.as_bytes(), &ReadOptions::default()).unwrap_err().code(),
            Code::CRS_MISMATCH
        );
    }
    // A feature without a place is in no system, and WGS 84 has several names.
    let nowhere = r#"{"type":"Feature","properties":null,"geometry":null}"#;
    let text = format!("{nowhere}\n{}\n", feature(&one));
    assert!(infer(text.as_bytes(), 1 << 20).is_ok());
    let text = format!("{plain}\n{}\n", feature(&format!(",{}", in_system("urn:ogc:def:crs:OGC:1.3:CRS84"))));
    assert!(infer(text.as_bytes(), 1 << 20).is_ok());
}

/// A collection says once what it is and once what is in it, in any order.
#[test]
fn a_collection_that_is_none_is_refused() {
    for (text, place) in [
        (r#"{"type":"FeatureCollection"}"#, "$"),
        (r#"{"type":"FeatureCollection","name":"x"}"#, "$"),
        (r#"{"features":[]}"#, "$"),
        (r#"{"type":"Featurecollection","features":[]}"#, "$.type"),
        (r#"{"features":[],"type":7}"#, "$.type"),
        (r#"{"features":[],"type":"Feature"}"#, "$.type"),
        (r#"{"type":"FeatureCollection","features":[],"type":"FeatureCollection"}"#, "$.type"),
        (r#"{"type":"FeatureCollection","features":[],"features":[]}"#, "$.features"),
    ] {
        for error in [
            infer(text.as_bytes(), 1 << 20).map(|_| ()).unwrap_err(),
            read_all(text.as_bytes(), &ReadOptions::default()).map(|_| ()).unwrap_err(),
        ] {
            let Error::Problem(problem) = error else { panic!("{text}: {error}") };
            assert_eq!((problem.code, problem.path.as_str()), (Code::UNEXPECTED_BODY, place), "{text}");
            assert!(problem.offset.is_some(), "{text}");
        }
    }
    let good = r#"{"features":[],"type":"FeatureCollection"}"#;
    assert!(read_all(good.as_bytes(), &ReadOptions::default()).is_ok());
    let twice = r#"{"type":"Feature","properties":null,"geometry":null,"geometry":{"type":"Point","coordinates":[1,2]}}"#;
    let (_, rejected) = read_all(twice.as_bytes(), &ReadOptions::default()).unwrap();
    assert!(rejected[0].problems[0].message.contains("twice"), "{rejected:?}");
}

#[test]
fn rules_can_be_left_to_a_later_repair() {
    let options = ReadOptions { rules: Rules::Pass, ..ReadOptions::default() };
    let text = r#"{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1]]]}"#;
    let (batches, rejected) = read_all(text.as_bytes(), &options).unwrap();
    assert_eq!(rejected, []);
    assert_eq!(wkt::to_string(batches[0].geometry(0).unwrap()), "POLYGON ((0 0, 1 0, 1 1))");
}

#[test]
fn hostile_text_is_refused_quickly() {
    let limits = RecordLimits { record_bytes_max: 1 << 20, ..RecordLimits::default() };
    let options = ReadOptions { limits, ..ReadOptions::default() };
    let deep_arrays = format!(r#"{{"type":"Polygon","coordinates":{}"#, "[".repeat(3_000_000));
    let deep_geometry = r#"{"type":"GeometryCollection","geometries":["#.repeat(20_000);
    let long_text = format!("{{\"a\":\"{}", "x".repeat(3_000_000));
    let not_json = "\u{0}".repeat(1000);
    for text in [&deep_arrays, &deep_geometry, &long_text, &not_json] {
        match read_all(text.as_bytes(), &options) {
            Ok((batches, rejected)) => assert!(batches.is_empty() && !rejected.is_empty(), "{text:.40}"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn json_text() -> impl Strategy<Value = String> {
    "(\\{\"type\":\"(Feature|Point|Polygon|FeatureCollection)\",?)?[\\[\\]{}\",:a-f0-9.eE+\\\\u \n-]{0,60}"
}

proptest! {
    #[test]
    fn any_text_ends_in_an_answer(text in json_text()) {
        let _ = read_all(text.as_bytes(), &ReadOptions::default());
    }

    #[test]
    fn the_size_of_the_pieces_changes_nothing(size in 1usize..40, cut in 0usize..400) {
        let text = concat!(
            r#"{"type":"FeatureCollection","features":[{"type":"Feature","properties":{"a":"x\"y","b":-1.5e3},"#,
            r#""geometry":{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1.25],[0,0]]]}},"#,
            r#"{"type":"Feature","properties":{"a":null,"b":7},"geometry":{"type":"Point","coordinates":[1,2,3]}}]}"#,
        );
        let text = &text.as_bytes()[..cut.min(text.len())];
        let run = |read: &mut dyn Read| {
            let schema = Arc::new(Schema::new([("a", Kind::Text), ("b", Kind::Real)]));
            let mut reader = GeoJsonReader::new(read, schema, ReadOptions::default());
            let mut rows = Vec::new();
            loop {
                match reader.next_batch(&mut Vec::new()) {
                    Ok(Some(batch)) => rows.extend((0..batch.len()).map(|row| format!(
                        "{:?} {:?} {:?}", batch.geometry(row), batch.value(row, 0), batch.value(row, 1)))),
                    Ok(None) => return (rows, String::new()),
                    Err(error) => return (rows, error.to_string()),
                }
            }
        };
        prop_assert_eq!(run(&mut &text[..]), run(&mut Drip(text, size)));
    }
}
