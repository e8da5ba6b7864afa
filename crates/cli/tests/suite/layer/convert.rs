use super::Desk;

#[test]
fn what_cannot_be_read_is_set_aside_with_its_reason_and_bytes() {
    let desk = Desk::new();
    let (code, said) =
        desk.json(&["convert", "@four.geojson", "@out.gpkg", "--rejects", "@r.ndjson", "--format", "json"]);
    let layer = &said["layers"][0];
    assert_eq!((code, &layer["written"], &layer["rejected"]), (4, &3.into(), &1.into()));
    assert_eq!(layer["problems"][0]["path"], "$.features[2].geometry.coordinates[0]");
    let reject: serde_json::Value = serde_json::from_str(desk.read("r.ndjson").trim()).unwrap();
    assert_eq!((&reject["record"], &reject["problems"][0]["code"]), (&2.into(), &"INVALID_GEOMETRY".into()));
    assert!(reject["raw"].as_str().unwrap().contains(r#""name":"open""#));
    let ran = desk.run(&["convert", "@four.geojson", "@other.gpkg"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""));
    assert!(
        ran.stderr.contains("1 record rejected:\n    INVALID_GEOMETRY: the ring is not closed"),
        "{}",
        ran.stderr
    );
}

#[test]
fn repairs_are_named_and_measured() {
    let desk = Desk::new();
    for (option, method) in [("--make-valid", "linework"), ("--make-valid=structure", "structure")] {
        let (code, said) = desk.json(&[
            "convert",
            "@four.geojson",
            "@out.geojsonl",
            option,
            "--overwrite",
            "--format",
            "json",
        ]);
        assert_eq!(code, 0);
        let repair = &said["layers"][0]["repair"];
        assert_eq!(repair["method"], method);
        assert_eq!(
            (&repair["geometries"], &repair["rings_closed"], &repair["shape_changed"]),
            (&2.into(), &1.into(), &1.into())
        );
        assert_eq!((&repair["area_before"], &repair["area_after"]), (&4.0.into(), &6.0.into()));
    }
    assert!(desk.read("out.geojsonl").contains("MultiPolygon"));
}

#[test]
fn a_condition_chooses_and_fields_are_mapped() {
    let desk = Desk::new();
    let ran = desk.run(&[
        "convert",
        "@places.csv",
        "-",
        "--to",
        "geojsonl",
        "--where",
        "pop > 1000000",
        "--select",
        "inhabitants=pop:int,name",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(
        ran.stdout,
        "{\"type\":\"Feature\",\"properties\":{\"inhabitants\":2000000,\"name\":\"Wien\"},\"geometry\":{\"type\":\"Point\",\"coordinates\":[16.37,48.21]}}\n"
    );
    assert!(ran.stderr.contains("1 excluded by the condition"), "{}", ran.stderr);
}

#[test]
fn a_reprojection_is_told_with_its_accuracy() {
    let desk = Desk::new();
    let (code, said) =
        desk.json(&["convert", "@places.csv", "@out.csv", "--to-crs", "EPSG:31287", "--format", "json"]);
    assert_eq!(code, 0);
    let operation = &said["layers"][0]["operation"];
    assert_eq!((&operation["to"], &operation["ballpark"]), (&"EPSG:31287".into(), &false.into()));
    assert!(operation["accuracy_m"].as_f64().unwrap() <= 2.0);
    // Vienna in the grid of Lambert, within a metre.
    let row = desk.read("out.csv").lines().nth(1).unwrap().to_owned();
    let cells: Vec<&str> = row.split(',').collect();
    let (x, y): (f64, f64) = (cells[2].parse().unwrap(), cells[3].parse().unwrap());
    assert!((x - 625_000.0).abs() < 5_000.0 && (y - 483_000.0).abs() < 5_000.0, "{x} {y}");
    let (_, said) =
        desk.json(&["convert", "@places.csv", "@out.gpkg", "--to-crs", "EPSG:27700", "--format", "json"]);
    assert_eq!(said["layers"][0]["outside_area_of_use"], 2);
    let ran = desk.run(&["convert", "@places.csv", "@no.gpkg", "--to-crs", "EPSG:27700", "--accuracy", "1"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("accurate to 2 m") && !desk.path("no.gpkg").exists(), "{}", ran.stderr);
}

#[test]
fn layers_are_added_replaced_by_key_and_converted_together() {
    let desk = Desk::new();
    assert_eq!(desk.run(&["convert", "@places.csv", "@all.gpkg", "--layer-name", "places"]).code, 0);
    let fix = ["--make-valid", "--append", "--layer-name", "shapes"];
    assert_eq!(desk.run(&[&["convert", "@four.geojson", "@all.gpkg"][..], &fix].concat()).code, 0);
    desk.write("news.csv", "name,pop,lon,lat\nGraz,310000,15.44,47.07\nLinz,210000,14.29,48.31\n");
    let ran = desk.run(&["convert", "@news.csv", "@all.gpkg", "--layer-name", "places", "--upsert", "pop"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let ran = desk.run(&["convert", "@news.csv", "@all.gpkg", "--layer-name", "places", "--upsert", "name"]);
    assert_eq!(ran.code, 2, "Graz is there twice: {}", ran.stderr);
    let (_, said) = desk.json(&["inspect", "@all.gpkg", "--format", "json"]);
    let counts: Vec<_> = said["layers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| (l["layer"].clone(), l["features"].clone()))
        .collect();
    assert_eq!(counts, [("places".into(), 4.into()), ("shapes".into(), 4.into())]);
    // All layers go along, or one must be chosen.
    assert_eq!(desk.run(&["convert", "@all.gpkg", "@copy.gpkg"]).code, 0);
    let (_, copied) = desk.json(&["inspect", "@copy.gpkg", "--format", "json"]);
    assert_eq!(copied["layers"].as_array().unwrap().len(), 2);
    let ran = desk.run(&["convert", "@all.gpkg", "@one.fgb"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains(r#"select one of ["places", "shapes"]"#), "{}", ran.stderr);
    assert_eq!(desk.run(&["convert", "@all.gpkg", "@one.fgb", "--layer", "places"]).code, 0);
}

#[test]
fn a_job_that_cannot_work_is_refused_before_it_begins() {
    let desk = Desk::new();
    desk.write("there.gpkg", "something of value");
    for (args, word) in [
        (&["@places.csv", "@there.gpkg"][..], "--overwrite"),
        (&["@places.csv", "@places.csv", "--append"], "same file"),
        (&["@none.csv", "@out.gpkg"], "No such file"),
        (&["@places.csv", "@out.xyz"], "unknown file format"),
        (&["@places.csv", "@out.gpkg", "--to-crs", "EPSG:99999"], "not a known system"),
        (
            &["@places.csv", "@out.gpkg", "--where", "popp > 1"],
            "no field \"popp\"; expected one of name, pop",
        ),
        (&["@places.csv", "@out.gpkg", "--where", "pop >"], "byte 5"),
        (&["@places.csv", "@out.gpkg", "--select", "nope"], "no such field"),
        (&["@places.csv", "@out.gpkg", "--select", "pop:money"], "unknown type"),
        (&["@places.csv", "@out.gpkg", "--densify", "0"], "greater than 0"),
        (&["@places.csv", "@out.csv", "--append"], "only a GeoPackage"),
        (&["@places.csv", "-"], "--to FORMAT"),
        (&["@places.csv", "@out.gpkg", "--upsert", "key"], "key field \"key\" does not exist"),
    ] {
        let ran = desk.run(&[&["convert"][..], args].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(word), "{args:?}: {}", ran.stderr);
        assert!(!desk.path("out.gpkg").exists(), "{args:?}");
    }
    assert_eq!(desk.read("there.gpkg"), "something of value");
}

#[test]
fn what_is_not_what_its_name_says_is_a_failure_and_leaves_nothing() {
    let desk = Desk::new();
    for name in ["a.gpkg", "a.fgb", "a.shp"] {
        desk.write(name, "hello");
        let ran = desk.run(&["convert", &format!("@{name}"), "@out.csv"]);
        assert_eq!(ran.code, 1, "{name}: {}", ran.stderr);
        assert!(!desk.path("out.csv").exists());
    }
}

#[test]
fn foreign_members_are_kept_or_dropped_by_choice() {
    let desk = Desk::new();
    desk.write(
        "foreign.geojson",
        r#"{"type":"FeatureCollection","features":[
{"type":"Feature","id":1,"title":"é \"x\"","properties":{"n":1},"geometry":{"type":"Point","coordinates":[1,2]},"links":[
  {"rel":"self"}],"typ\u0065":"Other"},
{"type":"Feature","properties":{"n":{"a":
 1}},"geometry":null}]}"#,
    );
    for (name, choice) in [("a.geojsonl", None), ("b.geojson", Some("keep")), ("c.geojsons", Some("keep"))] {
        let file = format!("@{name}");
        let mut job =
            vec!["convert", "@foreign.geojson", &file, "--where", "$record >= 0", "--promote-to-multi"];
        job.extend(choice.iter().flat_map(|choice| ["--foreign", choice]));
        let ran = desk.run(&job);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let text = desk.read(name);
        assert!(text.contains(r#","title":"é \"x\"","links":[   {"rel":"self"}]}"#), "{text}");
        assert!(text.contains(r#"{"n":{"a":  1}}"#), "a record is one line: {text}");
        assert!(!text.contains("Other"), "{text}");
        assert_eq!(desk.run(&["check", &file]).code, 0);
    }
    assert_eq!(desk.run(&["convert", "@foreign.geojson", "@d.geojsonl", "--foreign", "drop"]).code, 0);
    assert!(!desk.read("d.geojsonl").contains("title"));
    let ran = desk.run(&["convert", "@foreign.geojson", "@e.gpkg", "--foreign", "keep"]);
    assert_eq!((ran.code, desk.path("e.gpkg").exists()), (2, false), "{}", ran.stderr);
}

#[test]
fn esri_json_and_gml_come_back_as_they_were() {
    let desk = Desk::new();
    desk.write(
        "in.geojsonl",
        concat!(
            r#"{"type":"Feature","properties":{"a b":"x < & é","n":-9007199254740993,"x":0.1,"yes":true,"day":"2026-11-15","at":"2026-11-15T04:05:06.789Z"},"geometry":{"type":"Polygon","coordinates":[[[0,0,1],[9,0,2],[9,9,3],[0,0,1]],[[5,1,1],[6,3,1],[7,2,1],[5,1,1]]]}}"#,
            "\n",
            r#"{"type":"Feature","properties":{"a b":null,"n":2,"x":null,"yes":false,"day":null,"at":null},"geometry":null}"#,
            "\n",
            r#"{"type":"Feature","properties":{"a b":"z","n":3,"x":1e300,"yes":null,"day":"2026-01-01","at":null},"geometry":{"type":"MultiPolygon","coordinates":[[[[0,0,0],[1,0,0],[1,1,0],[0,0,0]]],[[[5,5,0],[6,5,0],[6,6,0],[5,5,0]]]]}}"#,
            "\n",
        ),
    );
    for (name, crs) in [("a.esrijson", "EPSG:4326"), ("a.gml", "EPSG:4326"), ("b.gml", "OGC:CRS84")] {
        let (file, back) = (format!("@{name}"), format!("@{name}.geojsonl"));
        let ran = desk.run(&["convert", "@in.geojsonl", &file, "--to-crs", crs]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        let ran = desk.run(&["convert", &file, &back]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        let rows: Vec<serde_json::Value> = desk
            .read(&format!("{name}.geojsonl"))
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(rows.len(), 3, "{name}");
        let text = if name.ends_with("gml") { "a_b" } else { "a b" };
        let (first, last) = (&rows[0]["properties"], &rows[2]["properties"]);
        assert_eq!(
            (&first[text], &first["x"], &first["n"]),
            (&"x < & é".into(), &0.1.into(), &(-9_007_199_254_740_993i64).into())
        );
        assert_eq!(
            (&first["day"], &first["at"]),
            (&"2026-11-15".into(), &"2026-11-15T04:05:06.789Z".into()),
            "{name}"
        );
        assert_eq!((&last["x"], &last["at"]), (&1e300.into(), &serde_json::Value::Null));
        let holes = rows[0]["geometry"]["coordinates"].to_string();
        assert!(holes.contains("[9.0,0.0,2.0]") || holes.contains("[9,0,2]"), "{name} {holes}");
        assert!(holes.contains("[5,1,1]") || holes.contains("[5.0,1.0,1.0]"), "{name} {holes}");
        assert!(rows[1]["geometry"].is_null(), "{name}");
        assert_eq!(rows[2]["geometry"]["coordinates"].as_array().map(Vec::len), Some(2), "{name}");
    }
    assert!(desk.read("a.gml").contains("<gml:posList>0 0 1 0 9 2"), "north first: {}", desk.read("a.gml"));
    let mixed = desk.run(&["convert", "@four.geojson", "@m.esrijson", "--make-valid"]);
    assert_eq!((mixed.code, desk.path("m.esrijson").exists()), (2, false));
    assert!(mixed.stderr.contains("one family of shapes"), "{}", mixed.stderr);
}

#[test]
fn a_name_that_says_another_format_is_overruled() {
    let desk = Desk::new();
    let four = desk.read("four.geojson");
    desk.write("four.dat", &four);
    desk.write("four.csv", &four);
    for name in ["@four.dat", "@four.csv"] {
        let ran = desk.run(&["convert", name, "@out.gpkg", "--overwrite", "--input-format", "geojson"]);
        assert_eq!(ran.code, 4, "{name}: {}", ran.stderr);
        let (code, told) = desk.json(&["check", name, "--input-format", "geojson", "--format", "json"]);
        assert!(code == 1 && told.to_string().contains("Self-intersection"), "{told}");
        let (code, told) = desk.json(&["inspect", name, "--input-format", "geojson", "--format", "json"]);
        assert_eq!((code, told["format"].as_str()), (0, Some("GeoJSON")), "{told}");
    }
}

#[test]
fn a_geometry_of_which_a_repair_leaves_nothing_is_rejected() {
    let desk = Desk::new();
    desk.write(
        "flat.geojson",
        r#"{"type":"FeatureCollection","features":[
{"type":"Feature","properties":{"n":1},"geometry":{"type":"Polygon","coordinates":[[[0,0],[4,0],[4,4],[0,0]]]}},
{"type":"Feature","properties":{"n":2},"geometry":{"type":"Polygon","coordinates":[[[0,0],[4,0],[0,0],[0,0]]]}}]}"#,
    );
    let args = ["convert", "@flat.geojson", "@out.geojson", "--make-valid", "--format", "json"];
    let (code, done) = desk.json(&args);
    assert_eq!(code, 4, "{done}");
    let layer = &done["layers"][0];
    assert_eq!((&layer["written"], &layer["rejected"]), (&1.into(), &1.into()), "{done}");
    assert!(done.to_string().contains("nothing is left"), "{done}");
}
