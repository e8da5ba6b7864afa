//! Files inside archives: read where they are what they say, refused where they are not.

use std::io::Write;
use std::path::Path;

use tidegate_core::Code;
use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::{Crs, Error, format};

const POINT: &str =
    r#"{"type":"Feature","properties":{"n":1},"geometry":{"type":"Point","coordinates":[1,2]}}"#;

struct Packed {
    name: String,
    method: u16,
    flags: u16,
    crc: u32,
    size: u64,
    bytes: Vec<u8>,
}

fn packed(name: &str, plain: &[u8], deflate: bool) -> Packed {
    let mut crc = flate2::Crc::new();
    crc.update(plain);
    let bytes = if deflate {
        let mut out = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        out.write_all(plain).unwrap();
        out.finish().unwrap()
    } else {
        plain.to_vec()
    };
    let method = if deflate { 8 } else { 0 };
    Packed { name: name.into(), method, flags: 0, crc: crc.sum(), size: plain.len() as u64, bytes }
}

/// An archive of these files.
fn archive(files: &[Packed]) -> Vec<u8> {
    let (mut out, mut list) = (Vec::new(), Vec::new());
    for file in files {
        let at = out.len() as u32;
        let common = |to: &mut Vec<u8>| {
            to.extend(20u16.to_le_bytes());
            to.extend(file.flags.to_le_bytes());
            to.extend(file.method.to_le_bytes());
            to.extend([0; 4]);
            to.extend(file.crc.to_le_bytes());
            to.extend((file.bytes.len() as u32).to_le_bytes());
            to.extend((file.size as u32).to_le_bytes());
            to.extend((file.name.len() as u16).to_le_bytes());
            to.extend([0; 2]);
        };
        out.extend(b"PK\x03\x04");
        common(&mut out);
        out.extend(file.name.as_bytes());
        out.extend(&file.bytes);
        list.extend(b"PK\x01\x02\x14\0");
        common(&mut list);
        list.extend([0; 10]);
        list.extend(at.to_le_bytes());
        list.extend(file.name.as_bytes());
    }
    let at = out.len() as u32;
    out.extend(&list);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend((files.len() as u16).to_le_bytes());
    out.extend((files.len() as u16).to_le_bytes());
    out.extend((list.len() as u32).to_le_bytes());
    out.extend(at.to_le_bytes());
    out.extend([0; 2]);
    out
}

fn open(dir: &Path, bytes: &[u8], layer: Option<&str>) -> Result<(format::Layer, usize), Error> {
    let path = dir.join("a.zip");
    std::fs::write(&path, bytes).unwrap();
    let options = ReadOptions { layer: layer.map(str::to_owned), ..ReadOptions::default() };
    let mut reader = format::open(&path, &options)?;
    let mut rows = 0;
    while let Some(batch) = reader.next_batch(&mut Vec::new())? {
        rows += batch.len();
    }
    Ok((reader.layer().clone(), rows))
}

#[test]
fn a_file_in_an_archive_is_read_like_the_file() {
    let dir = tempfile::tempdir().unwrap();
    for deflate in [false, true] {
        let bytes = archive(&[
            packed("__MACOSX/._places.geojson", b"x", false),
            packed("folder/places.geojson", POINT.as_bytes(), deflate),
            packed("folder/readme.txt", b"hello", deflate),
        ]);
        let (layer, rows) = open(dir.path(), &bytes, None).unwrap();
        assert_eq!((layer.name.as_str(), rows), ("places", 1));
    }
}

#[test]
fn a_shapefile_comes_with_its_companions() {
    let dir = tempfile::tempdir().unwrap();
    let shp = dir.path().join("grid.shp");
    let schema = std::sync::Arc::new(
        tidegate_geo::Schema::new([("n", tidegate_geo::Kind::Int)]).of_shape(tidegate_geo::wkb::Shape::Point),
    );
    let mut writer = format::create(&shp, &schema, &Crs::epsg(27700), &format::Options::default()).unwrap();
    let mut batch = tidegate_geo::Batch::new(schema);
    batch.push_point(530_000.0, 180_000.0, [tidegate_geo::Value::Int(7)]).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let files: Vec<Packed> = ["shp", "dbf", "prj", "cpg", "shx"]
        .into_iter()
        .map(|extension| {
            let bytes = std::fs::read(shp.with_extension(extension)).unwrap();
            packed(&format!("GRID.{}", extension.to_uppercase()), &bytes, true)
        })
        .collect();
    let (layer, rows) = open(dir.path(), &archive(&files), None).unwrap();
    assert_eq!((layer.crs, layer.schema.fields().len(), rows), (Some(Crs::epsg(27700)), 1, 1));
    assert_eq!(layer.name, "GRID");
}

#[test]
fn of_several_files_one_must_be_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = archive(&[
        packed("a.geojson", POINT.as_bytes(), true),
        packed("b.geojson", format!("{POINT}\n{POINT}").as_bytes(), true),
    ]);
    let error = open(dir.path(), &bytes, None).unwrap_err().to_string();
    assert!(error.contains(r#"["a", "b"]"#), "{error}");
    assert_eq!(open(dir.path(), &bytes, Some("b")).unwrap().1, 2);
    assert_eq!(format::layers(&dir.path().join("a.zip"), &ReadOptions::default()).unwrap(), ["a", "b"]);
    assert_eq!(open(dir.path(), &bytes, Some("c")).unwrap_err().code(), Code::NOT_FOUND);
}

#[test]
fn bombs_lies_and_cuts_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let code = |bytes: &[u8]| open(dir.path(), bytes, None).map(|_| ()).unwrap_err().code();
    // 256 MB of spaces in 256 KB.
    let bomb = packed("a.geojson", &vec![b' '; 256 << 20], true);
    assert_eq!(code(&archive(&[bomb])), Code::PAYLOAD_TOO_LARGE);
    // The same, said to be small; and something small, said to be large.
    let mut liar = packed("a.geojson", &vec![b' '; 8 << 20], true);
    liar.size = 100;
    assert_eq!(code(&archive(&[liar])), Code::CORRUPTED_HEADER);
    let mut liar = packed("a.geojson", POINT.as_bytes(), false);
    liar.size += 1;
    assert_eq!(code(&archive(&[liar])), Code::CORRUPTED_HEADER);
    let mut bent = packed("a.geojson", POINT.as_bytes(), false);
    bent.crc ^= 1;
    assert_eq!(code(&archive(&[bent])), Code::CORRUPTED_HEADER);
    let mut locked = packed("a.geojson", POINT.as_bytes(), false);
    locked.flags = 1;
    assert_eq!(code(&archive(&[locked])), Code::UNPROCESSABLE);
    let mut strange = packed("a.geojson", POINT.as_bytes(), false);
    strange.method = 99;
    assert_eq!(code(&archive(&[strange])), Code::UNPROCESSABLE);
    assert_eq!(code(&archive(&[packed("a.txt", b"x", false)])), Code::CORRUPTED_HEADER);
    assert_eq!(code(&archive(&[])), Code::CORRUPTED_HEADER);
    let good = archive(&[packed("../../../a.geojson", POINT.as_bytes(), true)]);
    assert_eq!(open(dir.path(), &good, None).unwrap().0.name, "a", "paths mean nothing");
    for cut in 4..good.len() - 2 {
        assert!(open(dir.path(), &good[..cut], None).is_err(), "{cut}");
    }
    for at in 0..good.len() {
        let mut bent = good.clone();
        bent[at] ^= 0xff;
        let _ = open(dir.path(), &bent, None);
    }
}
