//! Each step, with exact results.

use serde_json::json;

use crate::pipeline::bench::{BOW_TIE, Bench, SQUARE, point, polygon};

/// Runs steps over features into `out.geojsonl`.
fn through(input: &str, steps: &str, code: i32) -> (Bench, serde_json::Value) {
    let bench = Bench::new();
    bench.write("in.geojsonl", input);
    bench.manifest(&format!(
        "source: {{ file: in.geojsonl }}\nsteps:\n{steps}\nsink: {{ file: out.geojsonl }}"
    ));
    let result = bench.runs(code);
    assert_eq!(result["balanced"], true);
    (bench, result)
}

#[test]
fn rename_drop_keep_and_their_order() {
    let input = point(1.5, 2.5, r#"{"A":1,"B":"x","C":true}"#);
    let (bench, _) = through(&input, "  - rename: { A: a, B: b }\n  - drop: [C]", 0);
    assert_eq!(bench.properties("out.geojsonl"), [json!({"a":1,"b":"x"})]);
    let (bench, _) = through(&input, "  - keep: [C, A]", 0);
    assert_eq!(bench.properties("out.geojsonl")[0].to_string(), r#"{"C":true,"A":1}"#);
}

#[test]
fn a_field_that_is_not_there_is_refused_before_anything_is_read() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &point(1.0, 2.0, r#"{"NAME":1}"#));
    bench.manifest(
        "source: { file: in.geojsonl }\nsteps:\n  - rename: { NAMEE: name }\nsink: { file: out.geojsonl }",
    );
    bench.refused("steps[0] rename: the records have no field `NAMEE`; did you mean `NAME`?");
    bench.manifest(
        "source: { file: in.geojsonl }\nsteps:\n  - filter: area > 1\nsink: { file: out.geojsonl }",
    );
    bench.refused("the records have no field `area`; they have `NAME`");
}

#[test]
fn coerce_reads_local_numbers_dates_and_null_tokens_or_rejects() {
    let rows = [
        r#"{"n":"1.234,5","i":"7","d":"15.11.2026","b":"yes"}"#,
        r#"{"n":"N/A","i":"8","d":"1.2.2026","b":"no"}"#,
        r#"{"n":"12.5","i":"9","d":"1.2.2026","b":"no"}"#,
        r#"{"n":"1,5","i":"9.5","d":"31.2.2026","b":"perhaps"}"#,
    ];
    let input: String = rows.iter().map(|row| point(1.5, 2.5, row)).collect();
    let steps = "  - coerce: { fields: { n: float, i: int, d: date, b: bool }, null_values: [N/A], format: '%d.%m.%Y', decimal: ',', thousands: '.' }";
    let (bench, result) = through(&input, steps, 4);
    assert_eq!(
        bench.properties("out.geojsonl"),
        [
            json!({"n":1234.5,"i":7,"d":"2026-11-15","b":true}),
            json!({"n":null,"i":8,"d":"2026-02-01","b":false})
        ]
    );
    assert_eq!((&result["read"], &result["written"], &result["rejected"]), (&json!(4), &json!(2), &json!(2)));
    let stage = |record: u64, field: &str| {
        (record, "steps[0] coerce".to_owned(), "SCHEMA_MISMATCH".to_owned(), field.to_owned())
    };
    assert_eq!(bench.rejects(), [stage(2, "n"), stage(3, "i")]);
    let text = bench.read(".tidegate/test/rejects.ndjson");
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let fields: Vec<_> =
        last["problems"].as_array().unwrap().iter().map(|p| p["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["i", "d", "b"], "all problems of a record are told");
    assert_eq!(last["feature"]["properties"]["i"], "9.5", "as it was when it failed");
    assert!(last["raw"].as_str().unwrap().contains("perhaps"), "and as it came");
}

#[test]
fn flatten_finds_names_and_types_and_explodes_lists() {
    let input = point(1.5, 2.5, r#"{"id":1,"t":{"a":{"b":1,"c":[1,2]},"d":"x"}}"#)
        + &point(1.5, 2.5, r#"{"id":2,"t":{"a":{"b":2.5}}}"#);
    let (bench, _) = through(&input, "  - flatten: { field: t, separator: _ }", 0);
    assert_eq!(
        bench.properties("out.geojsonl"),
        [
            json!({"id":1,"t_a_b":1,"t_a_c":[1,2],"t_d":"x"}),
            json!({"id":2,"t_a_b":2.5,"t_a_c":null,"t_d":null})
        ]
    );
    let (bench, _) = through(&input, "  - flatten: { field: t, depth: 1 }", 0);
    assert_eq!(bench.properties("out.geojsonl")[0], json!({"id":1,"t.a":{"b":1,"c":[1,2]},"t.d":"x"}));
    let (bench, _) = through(&input, "  - flatten: { field: t, arrays: index }", 0);
    assert_eq!(
        bench.properties("out.geojsonl")[0],
        json!({"id":1,"t.a.b":1,"t.a.c.0":1,"t.a.c.1":2,"t.d":"x"})
    );
    let (bench, _) = through(&input, "  - flatten: { field: t, fields: { t.d: string } }", 0);
    assert_eq!(bench.properties("out.geojsonl")[0], json!({"id":1,"t.d":"x"}));
    let lists =
        point(1.5, 2.5, r#"{"id":1,"l":[{"n":1},{"n":2},{"n":3}]}"#) + &point(1.5, 2.5, r#"{"id":2,"l":[]}"#);
    let (bench, result) =
        through(&lists, "  - flatten: { field: l, arrays: explode, fields: { l.n: int } }", 0);
    assert_eq!(bench.properties("out.geojsonl").len(), 4);
    assert_eq!((&result["read"], &result["added"], &result["written"]), (&json!(2), &json!(2), &json!(4)));
}

#[test]
fn default_and_constant() {
    let input = point(1.5, 2.5, r#"{"s":null,"n":1}"#) + &point(1.5, 2.5, r#"{"s":"y","n":null}"#);
    let (bench, _) = through(
        &input,
        "  - default: { s: unknown, n: 7 }\n  - constant: { origin: cadastre, year: 2026 }",
        0,
    );
    assert_eq!(
        bench.properties("out.geojsonl"),
        [
            json!({"s":"unknown","n":1,"origin":"cadastre","year":2026}),
            json!({"s":"y","n":7,"origin":"cadastre","year":2026})
        ]
    );
}

#[test]
fn filter_counts_what_it_lets_go_and_rejects_what_makes_no_sense() {
    let input: String = (0..10).map(|n| point(1.5, 2.5, &format!(r#"{{"n":{n},"s":"a{n}"}}"#))).collect();
    let (bench, result) = through(&input, "  - filter: \"n >= 3 and n not in (5, 6) or s = 'a0'\"", 0);
    let kept: Vec<_> = bench.properties("out.geojsonl").iter().map(|p| p["n"].as_u64().unwrap()).collect();
    assert_eq!(kept, [0, 3, 4, 7, 8, 9]);
    assert_eq!((&result["filtered"], &result["written"]), (&json!(4), &json!(6)));
    let (bench, result) = through(&input, "  - filter: s > 1", 4);
    assert_eq!((&result["rejected"], bench.rejects().len()), (&json!(10), 10));
}

#[test]
fn lookup_takes_fields_or_rejects() {
    let bench = Bench::new();
    bench.write("owners.csv", "id,name,city\n1,Anna,Wien\n2,Bert,Graz\n");
    let input: String = [1, 2, 3].iter().map(|n| point(1.5, 2.5, &format!(r#"{{"owner":{n}}}"#))).collect();
    bench.write("in.geojsonl", &input);
    let with = |missing: &str| {
        format!(
            "source: {{ file: in.geojsonl }}\nsteps:\n  - lookup: {{ file: owners.csv, on: owner, key: id, take: [name, city], missing: {missing} }}\nsink: {{ file: out.geojsonl }}"
        )
    };
    bench.manifest(&with("reject"));
    bench.runs(4);
    assert_eq!(
        bench.properties("out.geojsonl"),
        [json!({"owner":1,"name":"Anna","city":"Wien"}), json!({"owner":2,"name":"Bert","city":"Graz"})]
    );
    assert_eq!(bench.rejects(), [(2, "steps[0] lookup".into(), "NOT_FOUND".into(), "owner".into())]);
    bench.manifest(&with("keep"));
    let result = bench.runs(0);
    assert_eq!((&result["written"], &result["no_match"]), (&json!(3), &json!(1)));
    // What a gate rejects afterwards is dead and not without a match too.
    bench.manifest(&(with("keep") + "\ngates: [{ check: range, fields: [owner], max: 2 }]"));
    let result = bench.runs(4);
    assert_eq!((&result["written"], &result["no_match"]), (&json!(2), &json!(0)));
    bench.write("owners.csv", "id,name,city\n1,Anna,Wien\n1,Bert,Graz\n");
    bench.refused("duplicate key \"1\"");
}

#[test]
fn geometry_steps() {
    let geometry = |bench: &Bench| bench.features("out.geojsonl")[0]["geometry"].clone();
    let (bench, _) = through(&point(1.123456789, 2.987654321, "{}"), "  - round: 3", 0);
    assert_eq!(geometry(&bench)["coordinates"], json!([1.123, 2.988]));
    let (bench, _) = through(&point(1.5, 2.5, "{}"), "  - promote_to_multi: true", 0);
    assert_eq!(geometry(&bench), json!({"type":"MultiPoint","coordinates":[[1.5,2.5]]}));
    let high = r#"{"type":"Feature","properties":{},"geometry":{"type":"LineString","coordinates":[[1,2,3],[4,5,6]]}}"#;
    let (bench, _) = through(&format!("{high}\n"), "  - force_2d: true", 0);
    assert_eq!(geometry(&bench)["coordinates"], json!([[1, 2], [4, 5]]));
    let (bench, result) = through(&polygon(BOW_TIE, "{}"), "  - make_valid: true", 0);
    assert_eq!((geometry(&bench)["type"].clone(), &result["repaired"]), (json!("MultiPolygon"), &json!(1)));
    let input = polygon(SQUARE, r#"{"n":1}"#) + &polygon("[9,9],[10,9],[10,10],[9,9]", r#"{"n":2}"#);
    let (bench, result) = through(&input, "  - clip: [2, 2, 6, 6]", 0);
    assert_eq!(bench.features("out.geojsonl").len(), 1);
    assert_eq!(&result["filtered"], &json!(1));
    let ring = geometry(&bench)["coordinates"][0].as_array().unwrap().len();
    assert_eq!(ring, 5, "a square again");
}

#[test]
fn reproject_and_set_crs() {
    let bench = Bench::new();
    bench.write("in.csv", "id,wkt\n1,POINT (1000000 6000000)\n");
    bench.manifest("source: { file: in.csv }\nsteps:\n  - set_crs: EPSG:3857\n  - reproject: EPSG:4326\n  - round: 4\nsink: { file: out.geojsonl }");
    bench.runs(0);
    assert_eq!(bench.features("out.geojsonl")[0]["geometry"]["coordinates"], json!([8.9832, 47.3537]));
    bench
        .manifest("source: { file: in.csv }\nsteps:\n  - reproject: EPSG:4326\nsink: { file: out.geojsonl }");
    bench.refused("the source declares no coordinate reference system");
    bench.manifest("source: { file: in.csv, crs: EPSG:3857 }\nsink: { file: out.geojsonl }");
    bench.refused("add a step `reproject: EPSG:4326`");
}

#[test]
fn dedupe_keeps_the_first() {
    let input: String = [1, 2, 1, 3, 2, 1]
        .iter()
        .enumerate()
        .map(|(at, n)| point(at as f64 + 0.5, 2.5, &format!(r#"{{"n":{n}}}"#)))
        .collect();
    let (bench, result) = through(&input, "  - dedupe: [n]", 0);
    let xs: Vec<_> = bench
        .features("out.geojsonl")
        .iter()
        .map(|f| f["geometry"]["coordinates"][0].as_f64().unwrap())
        .collect();
    assert_eq!(xs, [0.5, 1.5, 3.5]);
    assert_eq!(&result["deduped"], &json!(3));
    let (_, result) = through(&input, "  - dedupe: []", 0);
    assert_eq!(&result["deduped"], &json!(0), "the geometries differ");
}

#[test]
fn a_grid_of_the_manifest_is_used_and_told() {
    let bench = Bench::new();
    bench.write("in.csv", "n,lon,lat\n1,-0.1276,51.5072\n2,-3.2,55.95\n3,10,51\n");
    let manifest = |grids: &str| {
        bench.manifest(&format!(
            "source: {{ file: in.csv }}\nsteps:\n  - reproject: EPSG:27700\nsink: {{ file: out.csv }}\n{grids}"
        ));
    };
    manifest("");
    let result = bench.runs(0);
    let operation = &result["operations"][0];
    assert_eq!((&operation["to"], &operation["accuracy_m"]), (&json!("EPSG:27700"), &json!(2.0)));
    assert_eq!(operation["missing_grids"][0]["files"][0], "OSTN15_NTv2_OSGBtoETRS.gsb");
    let by_parameters = bench.read("out.csv");
    assert!(by_parameters.starts_with("n,x,y\n1,53"), "{by_parameters}");

    let folder = format!("{}/../geo/tests/data/grids", env!("CARGO_MANIFEST_DIR"));
    manifest(&format!("grids: [\"{folder}\"]"));
    let result = bench.runs(4);
    let operation = &result["operations"][0];
    assert_eq!((&operation["accuracy_m"], &operation["missing_grids"]), (&json!(1.0), &json!([])));
    assert!(operation["grids"][0].as_str().unwrap().ends_with("OSTN15_NTv2_OSGBtoETRS.gsb"));
    // The third place lies outside the grid.
    assert_eq!((&result["written"], &result["rejected"]), (&json!(2), &json!(1)));
    assert_ne!(by_parameters.lines().nth(1), bench.read("out.csv").lines().nth(1));
    let words = bench.tidegate(&["run", "m.yaml"]);
    assert!(
        words.stderr.contains("accurate to 1 m") || words.stdout.contains("accurate to 1 m"),
        "{}",
        words.stderr
    );

    manifest("grids: [nowhere]");
    bench.refused("grids: directory");
}

#[test]
fn what_would_take_too_long_to_repair_is_rejected_under_a_code_of_its_own() {
    // A star whose edges all cross.
    let corners: u32 = 10_001;
    let place = |i: u32| {
        let turn = f64::from(i * (corners / 2) % corners) / f64::from(corners) * std::f64::consts::TAU;
        format!("[{},{}]", turn.cos() * 10.0, turn.sin() * 10.0)
    };
    let ring: Vec<String> = (0..corners).chain([0]).map(place).collect();
    let bench = Bench::new();
    bench.write("in.geojsonl", &(polygon(&ring.join(","), r#"{"id":1}"#) + &point(1.0, 2.0, r#"{"id":2}"#)));
    bench.manifest(
        "source: { file: in.geojsonl }\nsteps: [{ make_valid: true }]\nsink: { file: out.geojsonl }\ndead_letters: { store: letters.db }",
    );
    let report = bench.runs(4);
    assert_eq!(
        (&report["written"], &report["rejected_by_code"]),
        (&json!(1), &json!({ "REPAIR_TOO_COSTLY": 1 }))
    );
    let list = bench.tidegate(&["dlq", "ls", "--store", "letters.db", "--code", "REPAIR_TOO_COSTLY"]);
    assert!(list.code == 0 && list.stdout.contains("cannot make the geometry valid"), "{}", list.stdout);
}
