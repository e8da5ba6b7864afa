//! Paths that a stranger wrote into tasks, records and letters: no file is opened outside of the folder that a
//! person allowed, none is written outside of the output, and no message quotes one.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::strangers::{Bench, feature, raster};

const REFUSED: &str = "OBJECT_NOT_ALLOWED";
const SECRET: &str = "the secret of the house";

/// A bench with a folder `scenes` that may be opened, and what lies outside of it.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.write("scenes/good.geojsonl", &feature(1));
    bench.write("scenes/deep/good.geojsonl", &feature(2));
    bench.write("own.geojsonl", &feature(3));
    let private = bench.outside("private.geojsonl");
    let text = feature(9).replace("\"id\":9", &format!("\"id\":9,\"name\":\"{SECRET}\""));
    fs::write(&private, text).unwrap();
    fs::create_dir(bench.outside("private")).unwrap();
    fs::write(bench.outside("private/p.geojsonl"), feature(9)).unwrap();
    fs::write(bench.outside("private/p.prj"), SECRET).unwrap();
    symlink(&private, bench.path("scenes/link.geojsonl")).unwrap();
    symlink("../../private.geojsonl", bench.path("scenes/relative.geojsonl")).unwrap();
    symlink(bench.outside("private"), bench.path("scenes/folder")).unwrap();
    symlink(bench.outside("private/none"), bench.path("scenes/dangling.geojsonl")).unwrap();
    symlink(bench.path("scenes/deep/good.geojsonl"), bench.path("scenes/inner.geojsonl")).unwrap();
    symlink(bench.outside("private/p.prj"), bench.path("scenes/table.prj")).unwrap();
    bench.write("scenes/table.csv", "id\n5\n");
    assert!(Command::new("mkfifo").arg(bench.path("scenes/pipe.geojsonl")).status().unwrap().success());
    bench
}

#[test]
fn the_object_of_a_task_stays_in_its_folder() {
    let bench = bench();
    let text = |path: std::path::PathBuf| path.display().to_string();
    let own = text(bench.path("scenes/good.geojsonl"));
    let (private, none) = (text(bench.outside("private.geojsonl")), text(bench.outside("none.geojsonl")));
    let url = format!("file://{own}");
    let good =
        ["scenes/good.geojsonl", "./scenes//deep/good.geojsonl", "scenes/inner.geojsonl", own.as_str()];
    let bad = [
        private.as_str(),
        none.as_str(),
        "own.geojsonl",
        "../private.geojsonl",
        "scenes/../own.geojsonl",
        "scenes/deep/../../own.geojsonl",
        "scenes/link.geojsonl",
        "scenes/relative.geojsonl",
        "scenes/folder/p.geojsonl",
        "scenes/folder/none.geojsonl",
        "scenes/dangling.geojsonl",
        "scenes/table.csv",
        "scenes/deep",
        "scenes/pipe.geojsonl",
        "scenes\\good.geojsonl",
        "..\\private.geojsonl",
        url.as_str(),
        "file:scenes/good.geojsonl",
        "/etc/passwd",
        "/dev/stdin",
        "/proc/self/environ",
        "~/private.geojsonl",
    ];
    // Nothing at all, then the folder, then the folder under another name.
    bench.queue("", "");
    let letters = bench.work(&good);
    assert!(
        letters.iter().all(|letter| letter.as_ref().is_some_and(|letter| letter.code == REFUSED)),
        "{letters:?}"
    );
    let said = &letters[0].as_ref().unwrap().message;
    assert!(said.contains("`objects: { folder: scenes }` in `source.tasks`"), "{said}");
    assert_eq!(bench.rows(), 0);
    symlink(bench.path("scenes"), bench.path("alias")).unwrap();
    for folder in ["scenes", "alias"] {
        bench.anew();
        bench.queue(&format!("{{ folder: {folder} }}"), "");
        let all: Vec<&str> = good.iter().chain(&bad).copied().collect();
        let letters = bench.work(&all);
        for (object, letter) in all.iter().zip(&letters) {
            let code = letter.as_ref().map(|letter| letter.code.as_str());
            let wanted = if good.contains(object) { None } else { Some(REFUSED) };
            assert_eq!(code, wanted, "{folder}: {object}: {letter:?}");
        }
        assert_eq!(bench.rows(), good.len() as i64);
        // Whether a file outside exists is not told.
        let words = |at: usize, name: &str| letters[at].as_ref().unwrap().message.replace(name, "");
        assert_eq!(words(good.len(), &private), words(good.len() + 1, &none));
        assert_eq!(bench.holds(SECRET.as_bytes()), None);
    }
    // One that is missing inside is missing.
    let bench = self::bench();
    bench.queue("{ folder: scenes }", "");
    let letters = bench.work(&["scenes/none.geojsonl"]);
    assert_eq!(letters[0].as_ref().unwrap().code, "NOT_FOUND");
}

/// `submit` says early what a worker would refuse, and files that are allowed go through.
#[test]
fn submitted_files_are_worked_on_if_the_manifest_allows_them() {
    let bench = bench();
    bench.queue("", "");
    let args = ["submit", "m.yaml", "--objects", "scenes/good.geojsonl", "scenes/deep/good.geojsonl"];
    let ended = bench.run(&args);
    assert!(
        ended.code == 0 && ended.said.contains("2 tasks name objects that this manifest does not allow"),
        "{}",
        ended.said
    );
    assert!(ended.said.contains("objects: { folder: "), "{}", ended.said);
    let bench = self::bench();
    bench.queue("{ folder: scenes }", "");
    let ended = bench.run(&args);
    assert!(ended.code == 0 && !ended.said.contains("warning"), "{}", ended.said);
    let ended = bench.run(&["worker", "m.yaml", "--once"]);
    assert_eq!((ended.code, bench.rows()), (0, 2), "{}", ended.said);
}

/// Records with these paths, one each.
fn records(bench: &Bench, paths: &[&str]) {
    let lines = paths.iter().enumerate().map(|(id, path)| {
        let properties = serde_json::json!({ "id": id, "path": path });
        format!("{}\n", serde_json::json!({ "type": "Feature", "geometry": null, "properties": properties }))
    });
    bench.write("records.geojsonl", &lines.collect::<String>());
}

const RECORDS: &str = "source: { file: records.geojsonl }";
const SINK: &str = "sink: { file: out.gpkg, key: [id] }";

#[test]
fn a_foreign_raster_is_not_copied_and_a_foreign_file_not_quoted() {
    let bench = Bench::new();
    raster(&bench.path("scenes/own.tif"));
    raster(&bench.outside("private.tif"));
    let private = bench.outside("private.tif").display().to_string();
    fs::write(bench.outside("private.tfw"), "1\n0\n0\n-1\n77\n88\n").unwrap();
    symlink(&private, bench.path("scenes/link.tif")).unwrap();
    raster(&bench.path("scenes/beside.tif"));
    symlink(bench.outside("private.tfw"), bench.path("scenes/beside.tfw")).unwrap();
    bench.write("scenes/secret.tif", SECRET);
    bench.write("scenes/secret.json", &format!("{{\"secret\": \"{SECRET}\"}}"));
    let paths = [
        "scenes/own.tif",
        &private,
        "../private.tif",
        "scenes/../../private.tif",
        "scenes/link.tif",
        "scenes/beside.tif",
        "/etc/passwd",
        "scenes/own.tif\0.txt",
        "scenes\\own.tif",
        "[\"/etc/passwd\"]",
        // In the folder, and no rasters.
        "scenes/secret.tif",
        "scenes/secret.json",
    ];
    for step in [
        "{ cog: true, output: out",
        "{ repair: {}, output: out",
        "{ survey: true",
        "{ clip: { bbox: [0, 0, 1e7, 1e7] }, output: out",
    ] {
        bench.anew();
        records(&bench, &paths);
        let steps = format!("steps: [{{ raster: {step}, objects: {{ folder: scenes }} }} }}]");
        bench.manifest(&[RECORDS, &steps, SINK]);
        let ended = bench.run(&["run", "m.yaml"]);
        assert_eq!(ended.code, 4, "{step}: {}", ended.said);
        let letters = bench.letters();
        assert_eq!((bench.rows(), letters.len()), (1, paths.len() - 1), "{step}: {letters:?}");
        let refused = letters.iter().filter(|(_, letter)| letter.code == REFUSED).count();
        assert_eq!(refused, paths.len() - 3, "{step}: {letters:?}");
        for (_, letter) in &letters {
            let quotes = ["root", SECRET, "the secr", "77"].iter().any(|word| letter.message.contains(word));
            assert!(!quotes, "{step}: {}", letter.message);
        }
        if bench.path("out").exists() {
            assert_eq!(fs::read_dir(bench.path("out")).unwrap().count(), 1, "{step}");
        }
    }
    // Without the line, nothing of it is opened.
    bench.anew();
    records(&bench, &paths);
    bench.manifest(&[RECORDS, "steps: [{ raster: { survey: true } }]", SINK]);
    assert_eq!(bench.run(&["run", "m.yaml"]).code, 4);
    let letters = bench.letters();
    assert!(
        letters.len() == paths.len() && letters.iter().all(|(_, letter)| letter.code == REFUSED),
        "{letters:?}"
    );
    assert!(
        letters.iter().any(|(_, l)| l.message.contains("`objects: { folder: scenes }` in `steps[0].raster`"))
    );
}

/// What the manifest itself names needs no other word.
#[test]
fn what_the_manifest_names_is_opened() {
    let bench = Bench::new();
    raster(&bench.path("scene.tif"));
    records(&bench, &["/etc/passwd"]);
    let steps = "steps: [{ constant: { path: scene.tif } }, { raster: { cog: true, output: one } }, { raster: { cog: true, output: two } }]";
    bench.manifest(&[RECORDS, steps, SINK]);
    let ended = bench.run(&["run", "m.yaml"]);
    assert_eq!(ended.code, 0, "{}", ended.said);
    assert!(bench.path("two/scene.tif").exists());
    // Also if it is named by a way up, and the manifest too.
    raster(&bench.outside("up/a.tif"));
    raster(&bench.outside("up/b.tif"));
    fs::create_dir(bench.outside("up/deep")).unwrap();
    for rasters in ["../up", "../up/deep/..", "../up/*.tif", "../up/a.tif\", \"../up/b.tif"] {
        bench.anew();
        let source = format!("source: {{ rasters: [\"{rasters}\"] }}");
        let step = "steps: [{ raster: { cog: true, output: out } }]";
        bench.manifest(&[&source, step, "sink: { file: out.gpkg, key: [name] }"]);
        for manifest in ["m.yaml", "../work/m.yaml"] {
            let ended = bench.run(&["run", manifest, "--report", "report.html"]);
            assert_eq!((ended.code, bench.rows()), (0, 2), "{rasters} {manifest}: {}", ended.said);
            let report = fs::read_to_string(bench.path("report.html")).unwrap();
            assert_eq!(report.matches("data:image/png;base64,").count(), 2, "{rasters} {manifest}");
        }
    }
}

/// A link in a directory of rasters that leads out of it is a letter; its position is not looked at either.
#[test]
fn a_directory_of_rasters_has_no_way_out() {
    for rasters in ["scenes", "scenes/*.tif"] {
        let bench = Bench::new();
        raster(&bench.path("scenes/own.tif"));
        raster(&bench.outside("private.tif"));
        symlink(bench.outside("private.tif"), bench.path("scenes/link.tif")).unwrap();
        let source = format!("source: {{ rasters: [\"{rasters}\"] }}");
        bench.manifest(&[
            &source,
            "steps: [{ raster: { cog: true, output: out } }]",
            "sink: { file: out.gpkg, key: [name] }",
        ]);
        let ended = bench.run(&["run", "m.yaml"]);
        assert_eq!((ended.code, bench.rows()), (4, 1), "{}", ended.said);
        assert!(!bench.path("out/link.tif").exists());
        let letters = bench.letters();
        assert_eq!(letters[0].1.code, REFUSED, "{letters:?}");
        let shown = bench.run(&["dlq", "ls", "--store", "letters.db", "--format", "ndjson"]);
        assert!(!shown.said.contains("bbox"), "{}", shown.said);
    }
}

#[test]
fn the_name_of_a_result_stays_in_the_output() {
    let bench = Bench::new();
    raster(&bench.path("scene.tif"));
    let names = [
        "../../escaped",
        "/tmp/escaped",
        "..",
        "a/../../b",
        "..\\c",
        "\0d",
        ".hidden",
        "ok",
        "x.tif/../../y",
    ];
    let lines = names.iter().enumerate().map(|(id, name)| {
        let properties = serde_json::json!({ "id": id, "name": name });
        format!("{}\n", serde_json::json!({ "type": "Feature", "geometry": null, "properties": properties }))
    });
    bench.write("records.geojsonl", &lines.collect::<String>());
    let steps = "steps: [{ constant: { path: scene.tif } }, { raster: { cog: true, output: deep/out, name: \"{name}.tif\" } }]";
    bench.manifest(&[RECORDS, steps, SINK]);
    let before = fs::read_dir(bench.outside("")).unwrap().count();
    let ended = bench.run(&["run", "m.yaml"]);
    assert!([0, 4].contains(&ended.code), "{}", ended.said);
    assert_eq!(fs::read_dir(bench.outside("")).unwrap().count(), before, "written outside");
    assert_eq!(fs::read_dir(bench.path("deep")).unwrap().count(), 1, "written beside the output");
    let made = fs::read_dir(bench.path("deep/out")).unwrap().flatten();
    assert!(made.filter(|entry| entry.path().is_file()).count() as i64 == bench.rows());
}

/// A letter says what a record said: its path is data when it is repaired, and when it is shown.
#[test]
fn the_path_in_a_letter_is_not_opened() {
    let bench = Bench::new();
    raster(&bench.outside("private.tif"));
    let private = bench.outside("private.tif");
    let mut bytes = fs::read(&private).unwrap();
    bytes[..4].fill(0);
    fs::write(&private, &bytes).unwrap();
    raster(&bench.path("scenes/broken.tif"));
    fs::copy(&private, bench.path("scenes/broken.tif")).unwrap();
    // The records come through a pipeline that may open both, once.
    let path = private.display().to_string();
    records(&bench, &["scenes/broken.tif", &path]);
    let manifest = |objects: &str| {
        let steps = format!("steps: [{{ raster: {{ survey: true, objects: {objects} }} }}]");
        bench.manifest(&[RECORDS, &steps, SINK]);
    };
    manifest("{ folder: .. }");
    assert_eq!(bench.run(&["run", "m.yaml"]).code, 4);
    let letters = bench.letters();
    assert!(letters.iter().all(|(_, letter)| letter.code == "CORRUPTED_HEADER"), "{letters:?}");

    let fix = |more: &[&str]| {
        let args =
            ["dlq", "--store", "letters.db", "fix", "--rule", "repair_raster", "--all", "--format", "json"];
        let ended = bench.run(&[&args[..], more].concat());
        assert_eq!(ended.code, 0, "{}", ended.said);
        let said: serde_json::Value = serde_json::from_str(&ended.said).unwrap();
        (said[0]["count"]["validated"].as_u64().unwrap(), said[0]["count"]["review"].as_u64().unwrap())
    };
    assert_eq!(fix(&["--dry-run"]), (0, 2), "no folder is named");
    assert_eq!(fix(&["--folder", "scenes"]), (1, 1));
    assert!(bench.path("scenes/broken.repaired.tif").exists());
    assert!(!bench.outside("private.repaired.tif").exists(), "a file was made beside a foreign one");

    fs::write(&private, fs::read(bench.path("scenes/broken.repaired.tif")).unwrap()).unwrap();
    for (more, pictures) in [(&[][..], 0), (&["--rasters", "scenes"], 1), (&["--rasters", ".."], 2)] {
        let args = ["dlq", "--store", "letters.db", "map", "-o", "map.html", "--reveal", "a test"];
        let ended = bench.run(&[&args[..], more].concat());
        assert_eq!(ended.code, 0, "{}", ended.said);
        let page = fs::read_to_string(bench.path("map.html")).unwrap();
        assert_eq!(page.matches("data:image/png;base64,").count(), pictures, "{more:?}");
    }
}
