use super::Desk;

#[test]
fn every_defect_is_told_and_written() {
    let desk = Desk::new();
    let ran = desk.run(&[
        "check",
        "@four.geojson",
        "--valid",
        "@v.gpkg",
        "--invalid",
        "@i.geojsonl",
        "--defects",
        "@d.geojson",
    ]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""));
    for line in [
        ": four: 4 records\n",
        "2 valid\n",
        "1 unreadable\n",
        "1 invalid: Self-intersection\n",
        "1 warning: Repeated position\n",
        "error record 1: Self-intersection at 11 1\n",
        "warning record 3: Repeated position at 30 0\n",
        "error record 2: the ring is not closed: its first and last positions differ at $.features[2].geometry.coordinates[0], byte 409\n",
    ] {
        assert!(ran.stdout.contains(line), "no {line:?} in\n{}", ran.stdout);
    }
    assert_eq!(desk.read("i.geojsonl").lines().count(), 2);
    assert!(
        desk.read("d.geojson").contains(r#""record":2,"severity":"error","reason":"Ring is not closed""#)
    );
    let (code, said) = desk.json(&["inspect", "@v.gpkg", "--format", "json"]);
    assert_eq!((code, &said["layers"][0]["features"]), (0, &2.into()));
}

#[test]
fn findings_are_json_at_once_or_line_by_line() {
    let desk = Desk::new();
    let (code, said) = desk.json(&["check", "@four.geojson", "--format", "json"]);
    assert_eq!((code, &said["valid"]), (1, &false.into()));
    let layer = &said["layers"][0];
    assert_eq!(
        (&layer["invalid"], &layer["unreadable"], &layer["findings_total"]),
        (&1.into(), &1.into(), &3.into())
    );
    let ran = desk.run(&["check", "@four.geojson", "--format", "ndjson", "--no-warnings"]);
    let lines: Vec<serde_json::Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((ran.code, lines.len()), (1, 2));
    assert_eq!((&lines[0]["reason"], &lines[0]["x"]), (&"Self-intersection".into(), &11.0.into()));
}

#[test]
fn warnings_alone_are_no_failure_and_thresholds_can_be_set() {
    let desk = Desk::new();
    let ran = desk.run(&["check", "@places.csv", "--decimals", "3"]);
    assert_eq!(ran.code, 0);
    assert!(ran.stdout.contains("2 warning: Coarse position"), "{}", ran.stdout);
    let ran = desk.run(&["check", "@places.csv"]);
    assert!(!ran.stdout.contains("warning"), "{}", ran.stdout);
    assert_eq!(desk.run(&["check", "@none.csv"]).code, 2);
    desk.write("cut.geojson", r#"{"type":"FeatureCollection","features":[{"type":"Fea"#);
    assert_eq!(desk.run(&["check", "@cut.geojson"]).code, 1);
}
