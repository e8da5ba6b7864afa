//! Systems: ESRI's numbers, grids, and what a GeoTIFF says.

use super::Desk;

fn data(name: &str) -> String {
    format!("{}/../geo/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_system_of_esri_goes_through_every_format() {
    let desk = Desk::new();
    for name in ["a.gpkg", "a.fgb", "a.parquet", "a.shp", "a.gml", "a.esrijson"] {
        let file = format!("@{name}");
        let (code, _) =
            desk.json(&["convert", "@places.csv", &file, "--to-crs", "ESRI:54030", "--format", "json"]);
        assert_eq!(code, 0, "{name}");
        let (_, said) = desk.json(&["inspect", &file, "--format", "json"]);
        let layer = &said["layers"][0];
        assert_eq!(layer["crs"], "ESRI:54030", "{name}");
        assert_eq!(layer["crs_name"], "World_Robinson", "{name}");
        assert!(
            (layer["bbox"][2].as_f64().unwrap() - 1_360_000.0).abs() < 10_000.0,
            "{name} {}",
            layer["bbox"]
        );
    }
    let (_, said) =
        desk.json(&["convert", "@places.csv", "@b.gpkg", "--to-crs", "ESRI:102100", "--format", "json"]);
    assert_eq!(said["layers"][0]["crs"], "EPSG:3857");
}

#[test]
fn a_grid_is_used_where_it_is_and_named_where_it_is_not() {
    let desk = Desk::new();
    desk.write("british.csv", "n,lon,lat\n1,-0.1276,51.5072\n2,-3.2,55.95\n3,10,51\n");
    let job =
        ["convert", "@british.csv", "@a.csv", "--to-crs", "EPSG:27700", "--overwrite", "--format", "json"];
    let (code, said) = desk.json(&job);
    let operation = &said["layers"][0]["operation"];
    assert_eq!(
        (code, &operation["accuracy_m"], &operation["grids"]),
        (0, &2.0.into(), &serde_json::json!([]))
    );
    let missing = &operation["missing_grids"][0];
    assert_eq!((&missing["crs"], &missing["accuracy_m"]), (&"EPSG:27700".into(), &1.0.into()));
    assert_eq!(missing["files"][0], "OSTN15_NTv2_OSGBtoETRS.gsb");
    let by_parameters = desk.read("a.csv");

    let folder = data("grids");
    let (code, said) = desk.json(&[&job[..], &["--grids", &folder]].concat());
    let layer = &said["layers"][0];
    assert_eq!((code, &layer["written"], &layer["rejected"]), (4, &2.into(), &1.into()));
    assert!(layer["problems"][0]["message"].as_str().unwrap().contains("outside the grid OSTN15"), "{layer}");
    let operation = &layer["operation"];
    assert_eq!(
        (&operation["accuracy_m"], &operation["missing_grids"]),
        (&1.0.into(), &serde_json::json!([]))
    );
    assert!(operation["grids"][0].as_str().unwrap().ends_with("grids/OSTN15_NTv2_OSGBtoETRS.gsb"));
    assert!(operation["definition"][1].as_str().unwrap().ends_with("+nadgrids=OSTN15_NTv2_OSGBtoETRS.gsb"));
    let by_grid = desk.read("a.csv");
    assert_ne!(by_parameters.lines().nth(1), by_grid.lines().nth(1));

    // The same grid as PROJ's packages hold it.
    let (_, said) = desk.json(&[&job[..], &["--grids", &data("tiff_grids")]].concat());
    let operation = &said["layers"][0]["operation"];
    assert!(operation["grids"][0].as_str().unwrap().ends_with("uk_os_OSTN15_NTv2_OSGBtoETRS.tif"));
    assert_eq!(desk.read("a.csv"), by_grid);

    let words = desk.run(&["convert", "@british.csv", "@b.csv", "--to-crs", "EPSG:27700"]);
    assert!(
        words.stderr.contains("grid OSTN15_NTv2_OSGBtoETRS.gsb for EPSG:27700 not found"),
        "{}",
        words.stderr
    );
    let here = desk.path("").display().to_string();
    desk.write("OSTN15_NTv2_OSGBtoETRS.gsb", "NUM_OREC and no more");
    let broken = desk.run(&["convert", "@british.csv", "@c.csv", "--to-crs", "EPSG:27700", "--grids", &here]);
    assert_eq!((broken.code, desk.path("c.csv").exists()), (2, false), "{}", broken.stderr);
    assert_eq!(desk.run(&["convert", "@british.csv", "@c.csv", "--grids", "@none"]).code, 2);
}

#[test]
fn a_geotiff_tells_its_system_and_place() {
    let desk = Desk::new();
    let (code, said) = desk.json(&["inspect", &data("british.tif"), "--format", "json"]);
    let raster = &said["raster"];
    assert_eq!((code, &said["format"], &raster["crs"]), (0, &"GeoTIFF".into(), &"EPSG:27700".into()));
    assert_eq!(raster["bbox"], serde_json::json!([530_000.0, 179_980.0, 530_040.0, 180_000.0]));
    assert_eq!((&raster["sample"], &raster["nodata"]), (&"uint8".into(), &"0".into()));
    let ran = desk.run(&["inspect", &data("robinson.tif")]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("crs          ESRI:54030, World_Robinson"), "{}", ran.stdout);
    assert!(ran.stdout.contains("4 x 2 pixels, 3 x float32"), "{}", ran.stdout);
}

#[test]
fn an_option_against_the_file_is_usage_and_a_file_against_itself_is_not() {
    let desk = Desk::new();
    let named = |code: u32, x: u32| {
        format!(
            r#"{{"type":"Feature","crs":{{"type":"name","properties":{{"name":"EPSG:{code}"}}}},"properties":{{}},"geometry":{{"type":"Point","coordinates":[{x},5300000]}}}}"#
        ) + "\n"
    };
    desk.write("one.geojsonl", &named(25832, 500_000));
    let ran = desk.run(&["convert", "@one.geojsonl", "@out.gpkg", "--from-crs", "EPSG:25833"]);
    assert!(ran.code == 2 && ran.stderr.contains("CRS_MISMATCH"), "{} {}", ran.code, ran.stderr);
    desk.write("two.geojsonl", &(named(25832, 500_000) + &named(25833, 500_000)));
    let ran = desk.run(&["convert", "@two.geojsonl", "@out.gpkg"]);
    assert!(ran.code == 1 && ran.stderr.contains("CRS_MISMATCH"), "{} {}", ran.code, ran.stderr);
}
