//! Files that want to break the reader: each ends in an answer and never in a panic.

use super::Desk;

/// Nests something deeper than any stack.
fn deep(open: &str, inner: &str, close: &str) -> String {
    format!("{}{inner}{}", open.repeat(200_000), close.repeat(200_000))
}

#[test]
fn hostile_files_end_in_an_answer() {
    let desk = Desk::new();
    let collection = deep(r#"{"type":"GeometryCollection","geometries":["#, "", "]}");
    let zip = "PK\u{3}\u{4}\u{14}\0\0\0\u{8}\0".to_owned();
    let files: Vec<(&str, String)> = vec![
        ("deep_array.geojson", deep("[", "1", "]")),
        ("deep_object.geojson", deep(r#"{"a":"#, "1", "}")),
        ("deep_collection.geojson", collection.clone()),
        (
            "deep_property.geojson",
            format!(r#"{{"type":"Feature","geometry":null,"properties":{{"a":{}}}}}"#, deep("[", "", "]")),
        ),
        ("open.geojson", "[".repeat(1_000_000)),
        ("nan.geojson", r#"{"type":"Point","coordinates":[NaN,Infinity]}"#.into()),
        ("huge_number.geojson", r#"{"type":"Point","coordinates":[1e999,-1e999]}"#.into()),
        ("deep_wkt.csv", format!("a,wkt\n1,\"{}\"\n", deep("GEOMETRYCOLLECTION (", "POINT (1 1)", ")"))),
        ("quote.csv", format!("a,lon,lat\n\"{}", "x".repeat(1_000_000))),
        ("deep.gml", deep("<a>", "", "</a>")),
        (
            "bomb.gml",
            r#"<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><a>&b;</a>"#
                .into(),
        ),
        ("deep.esrijson", format!(r#"{{"features":[{{"attributes":{{"a":{}}}}}]}}"#, deep("[", "", "]"))),
        ("zip.geojson", zip.clone()),
        ("zip.gpkg", zip.clone()),
        ("zip.shp", zip.clone()),
        ("zip.fgb", zip.clone()),
        ("zip.parquet", zip),
        ("empty.gpkg", String::new()),
        ("empty.fgb", String::new()),
        ("empty.parquet", String::new()),
        ("empty.shp", String::new()),
        ("empty.gml", String::new()),
        ("magic.fgb", format!("fgb\u{3}fgb\0{}", "\u{7f}".repeat(64))),
        ("magic.parquet", format!("PAR1{}\u{7f}\u{7f}\u{7f}\u{7f}PAR1", "\u{7f}".repeat(64))),
        ("magic.gpkg", format!("SQLite format 3\0{}", "\u{7f}".repeat(4096))),
    ];
    for (name, text) in &files {
        desk.write(name, text);
        for verb in ["check", "inspect"] {
            let ran = desk.run(&[verb, &format!("@{name}")]);
            let told = format!("{name} {verb}: {} {} {}", ran.code, cut(&ran.stdout), cut(&ran.stderr));
            assert!((0..=2).contains(&ran.code), "{told}");
            assert!(!ran.stderr.contains("fault of its own"), "{told}");
            if verb == "check" {
                assert_ne!(ran.code, 0, "{told}");
            }
        }
    }
}

#[test]
fn cut_and_bent_files_end_in_an_answer() {
    let desk = Desk::new();
    let (code, _) = desk.json(&["convert", "@four.geojson", "@a.gpkg", "--make-valid", "--format", "json"]);
    assert_eq!(code, 0);
    for name in ["b.fgb", "b.parquet", "b.shp", "b.gpkg"] {
        let ran = desk.run(&["convert", "@places.csv", &format!("@{name}")]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let good = std::fs::read(desk.path(name)).unwrap();
        let extension = name.split('.').next_back().unwrap();
        for step in 0..12 {
            let mut bent = good.clone();
            let at = good.len() * step / 12;
            bent.iter_mut().skip(at).take(8).for_each(|byte| *byte = 0xff);
            std::fs::write(desk.path(&format!("bent.{extension}")), &bent).unwrap();
            std::fs::write(desk.path(&format!("cut.{extension}")), &good[..at]).unwrap();
            for kind in ["bent", "cut"] {
                let ran = desk.run(&["check", &format!("@{kind}.{extension}")]);
                assert!((0..=2).contains(&ran.code), "{kind} {name} at {at}: {}", ran.stderr);
            }
        }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(300).collect()
}
