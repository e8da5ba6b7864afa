//! `raster rasterize`, `warp`, `clip`, `mosaic` and `calc`: one journey, and what they refuse.

use serde_json::{Value, json};

use crate::common::{Ran, tidegate};

const PARCELS: &str = r#"{"type":"FeatureCollection","features":[
{"type":"Feature","properties":{"zone":3,"name":"a"},"geometry":{"type":"Polygon","coordinates":[[[10,45],[10.5,45],[10.5,46],[10,46],[10,45]]]}},
{"type":"Feature","properties":{"zone":7,"name":"b"},"geometry":{"type":"Polygon","coordinates":[[[10.5,45.5],[11,45.5],[11,46],[10.5,46],[10.5,45.5]]]}}
]}"#;

struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Desk {
        let desk = Desk(tempfile::tempdir().unwrap());
        std::fs::write(desk.0.path().join("parcels.geojson"), PARCELS).unwrap();
        desk
    }

    /// Runs a raster command; words of the form `@name` are files on the desk.
    fn run(&self, args: &[&str]) -> Ran {
        let full = |arg: &&str| match arg.split_once('@') {
            Some((before, name)) => format!("{before}{}", self.0.path().join(name).display()),
            None => (*arg).to_owned(),
        };
        let args: Vec<String> = std::iter::once("raster".to_owned()).chain(args.iter().map(full)).collect();
        tidegate(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn done(&self, args: &[&str]) {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
    }

    fn info(&self, name: &str) -> Value {
        let ran = self.run(&["info", name, "--format", "json"]);
        serde_json::from_str::<Value>(&ran.stdout).unwrap()[0].clone()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.path().join(name)).unwrap()
    }

    fn zones(&self) {
        self.done(&[
            "rasterize",
            "@parcels.geojson",
            "@zones.tif",
            "--attribute",
            "zone",
            "--type",
            "uint8",
            "--nodata",
            "0",
            "--extent",
            "10,45,11,46",
            "--resolution",
            "0.01",
            "--block",
            "64",
        ]);
    }
}

#[test]
fn features_become_pixels_and_go_through_every_command() {
    let desk = Desk::new();
    desk.zones();
    let said = desk.info("@zones.tif");
    assert_eq!((&said["width"], &said["height"]), (&json!(100), &json!(100)), "{said}");
    for command in [
        &["warp", "@zones.tif", "@out.tif", "--to-crs", "EPSG:3857", "--method", "nearest"][..],
        &[
            "warp",
            "@zones.tif",
            "@cubic.tif",
            "--to-crs",
            "EPSG:32632",
            "--method",
            "cubic",
            "--tolerance",
            "0",
        ],
        &["clip", "@zones.tif", "@box.tif", "--box", "10.2,45.2,10.4,45.4"],
        &["clip", "@zones.tif", "@b.tif", "--features", "@parcels.geojson", "--where", "name = 'b'"],
        &["clip", "@zones.tif", "@tiles.tif", "--features", "@parcels.geojson", "--extent", "tiles"],
        &["mosaic", "@mosaic.tif", "@b.tif", "@box.tif"],
        &[
            "calc",
            "@zones.tif",
            "@calc.tif",
            "-e",
            "(b1 - other) / (b1 + other)",
            "--band",
            "other=@zones.tif",
        ],
        &["rasterize", "@parcels.geojson", "@count.tif", "--count", "--like", "@zones.tif", "--all-touched"],
    ] {
        desk.done(command);
        let out = command.iter().find(|word| word.ends_with(".tif") && **word != "@zones.tif").unwrap();
        let ran = desk.run(&["validate", out, "--full"]);
        assert_eq!(ran.code, 0, "{out}: {}{}", ran.stdout, ran.stderr);
    }
    let size = |name: &str| {
        let said = desk.info(name);
        (said["width"].as_u64().unwrap(), said["height"].as_u64().unwrap())
    };
    assert_eq!(size("@box.tif"), (20, 20));
    assert_eq!(size("@b.tif"), (50, 50));
    assert_eq!(size("@mosaic.tif"), (80, 80));
}

#[test]
fn threads_and_repetition_give_the_same_bytes() {
    let desk = Desk::new();
    desk.zones();
    for (out, threads) in [("@one.tif", "1"), ("@two.tif", "2"), ("@four.tif", "4")] {
        let args =
            ["warp", "@zones.tif", out, "--to-crs", "EPSG:3857", "--method", "bilinear", "--block", "16"];
        desk.done(&[&args[..], &["--threads", threads]].concat());
    }
    assert_eq!(desk.bytes("one.tif"), desk.bytes("two.tif"));
    assert_eq!(desk.bytes("one.tif"), desk.bytes("four.tif"));
}

#[test]
fn what_makes_no_sense_is_refused_and_leaves_nothing() {
    let desk = Desk::new();
    desk.zones();
    for (args, words) in [
        (&["warp", "@zones.tif", "@no.tif", "--to-crs", "EPSG:1"][..], "EPSG:1"),
        (&["warp", "@zones.tif", "@no.tif", "--method", "fancy"], "bilinear"),
        (&["warp", "@zones.tif", "@zones.tif"], "same file"),
        (&["clip", "@zones.tif", "@no.tif", "--box", "50,50,51,51"], "nothing of the raster"),
        (&["clip", "@zones.tif", "@no.tif"], "--box"),
        (&["calc", "@zones.tif", "@no.tif", "-e", "b2 + 1"], "expected one of b1"),
        (
            &["rasterize", "@parcels.geojson", "@no.tif", "--attribute", "nix", "--like", "@zones.tif"],
            "zone, name",
        ),
        (&["rasterize", "@parcels.geojson", "@no.tif", "--like", "@zones.tif"], "--burn"),
        (
            &[
                "rasterize",
                "@parcels.geojson",
                "@no.tif",
                "--burn",
                "1",
                "--extent",
                "50,50,51,51",
                "--resolution",
                "0.1",
            ],
            "no feature lies on the grid",
        ),
        (
            &[
                "rasterize",
                "@parcels.geojson",
                "@no.tif",
                "--burn",
                "300",
                "--type",
                "uint8",
                "--like",
                "@zones.tif",
            ],
            "uint8",
        ),
    ] {
        let ran = desk.run(args);
        assert!(ran.code == 2 || ran.code == 1, "{args:?}: {} {}", ran.code, ran.stderr);
        assert!(ran.stderr.contains(words), "{args:?}: {}", ran.stderr);
        assert!(!desk.0.path().join("no.tif").exists(), "{args:?}");
    }
    // A field without a number: the feature is not used.
    let ran = desk.run(&[
        "rasterize",
        "@parcels.geojson",
        "@names.tif",
        "--attribute",
        "name",
        "--like",
        "@zones.tif",
    ]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
}
