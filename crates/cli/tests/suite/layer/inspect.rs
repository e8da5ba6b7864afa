use super::Desk;

#[test]
fn a_layer_is_shown_with_a_map() {
    let desk = Desk::new();
    let ran = desk.run(&["inspect", "@four.geojson", "--width", "20"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let said = ran.stdout.split_once("\nlayer four\n").unwrap().1;
    assert_eq!(
        said,
        "  crs          OGC:CRS84, WGS 84
  features     3
  geometry     1 LineString, 2 Polygon
  bounds       0.00000 0.00000 to 31.00000 5.00000
  validity     1 invalid, 1 unreadable
               1 Self-intersection
  field kind present example
  n     int        3 1
  name  text       2 good
  ⠀⢀⢴⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⡸
  ⠴⠮⠼⠀⠀⠀⠸⠺⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠇
"
    );
    assert!(!desk.run(&["inspect", "@four.geojson", "--no-map"]).stdout.contains('⠴'));
}

#[test]
fn json_and_a_page_say_the_same() {
    let desk = Desk::new();
    let (code, said) = desk.json(&["inspect", "@four.geojson", "--format", "json", "--html", "@page.html"]);
    let layer = &said["layers"][0];
    assert_eq!((code, &said["format"], &layer["crs"]), (0, &"GeoJSON".into(), &"OGC:CRS84".into()));
    assert_eq!(layer["bbox"], serde_json::json!([0.0, 0.0, 31.0, 5.0]));
    assert_eq!(
        layer["fields"][1],
        serde_json::json!({ "name": "name", "kind": "text", "present": 2, "example": "good" })
    );
    let page = desk.read("page.html");
    assert!(page.contains("<svg") && page.contains("Self-intersection") && page.ends_with("</html>\n"));
    assert!(!page.contains("http://") && !page.contains("https://"), "nothing comes from outside");
}

#[test]
fn control_codes_of_a_file_do_not_reach_the_terminal() {
    let desk = Desk::new();
    desk.write(
        "evil.geojson",
        r#"{"type":"Feature","properties":{"\u001b[31mname":"\u001b]0;x\u0007"},"geometry":{"type":"Point","coordinates":[0,0]}}"#,
    );
    for verb in ["inspect", "check"] {
        let ran = desk.run(&[verb, "@evil.geojson"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(!ran.stdout.contains(['\u{1b}', '\u{7}']), "{}", ran.stdout);
    }
    assert_eq!(desk.run(&["inspect", "@none.gpkg"]).code, 2);
    assert_eq!(
        desk.run(&["inspect", "@four.geojson", "--layer", "x"]).code,
        0,
        "a format of one layer has no names"
    );
}
