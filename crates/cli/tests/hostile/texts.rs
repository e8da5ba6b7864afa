//! Text formats.

use crate::{Case, bad, deep, legal};

const FEATURE: &str = r#"{"type":"Feature","properties":{},"geometry":"#;

fn collection(features: &str) -> String {
    format!(r#"{{"type":"FeatureCollection","features":[{features}]}}"#)
}

fn nested_collection() -> String {
    deep(r#"{"type":"GeometryCollection","geometries":["#, r#"{"type":"Point","coordinates":[1,2]}"#, "]}")
}

fn deep_property() -> String {
    format!(r#"{{"type":"Feature","geometry":null,"properties":{{"a":{}}}}}"#, deep("[", "", "]"))
}

/// Features of which each has a field that no other has.
fn many_fields(count: usize) -> String {
    let one = |n: usize| format!(r#"{{"type":"Feature","geometry":null,"properties":{{"f{n}":1}}}}"#);
    (0..count).map(one).collect::<Vec<_>>().join(",\n")
}

pub(crate) fn geojson() -> Vec<Case> {
    let point = |coordinates: &str| format!(r#"{{"type":"Point","coordinates":{coordinates}}}"#);
    vec![
        bad("deep_array.geojson", deep("[", "1", "]")),
        bad("deep_object.geojson", deep(r#"{"a":"#, "1", "}")),
        bad("deep_collection.geojson", nested_collection()),
        bad("deep_geometry.geojson", collection(&format!("{FEATURE}{}}}", nested_collection()))),
        bad("deep_coordinates.geojson", collection(&format!("{FEATURE}{}}}", point(&deep("[", "1,2", "]"))))),
        bad("deep_property.geojson", deep_property()),
        bad(
            "deep_foreign.geojson",
            format!(r#"{{"type":"FeatureCollection","x":{},"features":[]}}"#, deep("[", "", "]")),
        ),
        bad("open_arrays.geojson", "[".repeat(2_000_000)),
        bad("open_objects.geojson", r#"{"features":["#.repeat(200_000)),
        bad("open_text.geojson", format!(r#"{{"type":"{}"#, "x".repeat(2_000_000))),
        bad("nan.geojson", point("[NaN,Infinity]")),
        bad("beyond.geojson", point("[1e999,-1e999]")),
        bad("digits.geojson", point(&format!("[1,2{}", "7".repeat(1_000_000)))),
        bad("many_dimensions.geojson", point(&format!("[{}1]", "1,".repeat(500_000)))),
        bad("many_fields.geojson", collection(&many_fields(40_000))),
        bad(
            "many_problems.geojson",
            collection(&format!(
                "{FEATURE}{}}}",
                r#"{"type":"MultiPoint","coordinates":["#.to_owned() + &"[],".repeat(300_000) + "[]]}"
            )),
        ),
        legal(
            "escapes.geojson",
            format!(
                r#"{{"type":"Feature","geometry":null,"properties":{{"{}":1}}}}"#,
                r"\ud800".repeat(100_000)
            ),
        ),
        bad(
            "not_utf8.geojson",
            [&b"{\"type\":\"Feature\",\"geometry\":null,\"properties\":{\"a\":\""[..], &[0xff; 9], b"\"}}"]
                .concat(),
        ),
        bad("nuls.geojson", vec![0; 1 << 20]),
        bad("sqlite.geojson", "SQLite format 3\0"),
        bad("zip.geojson", "PK\u{3}\u{4}\u{14}\0\0\0\u{8}\0"),
        bad("empty.geojson", ""),
        legal("spaces.geojson", format!("{}{}", " ".repeat(1 << 20), collection(""))),
        legal(
            "long_line.geojson",
            format!(
                r#"{FEATURE}{{"type":"LineString","coordinates":[{}[0,0]]}}}}"#,
                (1..200_000).rev().map(|n| format!("[{n},{n}],")).collect::<String>()
            ),
        ),
    ]
}

pub(crate) fn lines() -> Vec<Case> {
    let mut cases = Vec::new();
    for (extension, before) in [("geojsonl", ""), ("geojsons", "\u{1e}")] {
        let name = |word: &str| format!("{word}.{extension}");
        let good = format!("{before}{FEATURE}null}}\n");
        let row = |text: &str| format!("{good}{before}{text}\n{good}");
        cases.extend([
            bad(&name("deep_collection"), row(&nested_collection())),
            bad(&name("deep_property"), row(&deep_property())),
            bad(&name("deep_array"), row(&deep("[", "", "]"))),
            bad(&name("cut"), row(r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[1,"#)),
            bad(&name("nan"), row(r#"{"type":"Point","coordinates":[NaN,1]}"#)),
            bad(&name("many_fields"), many_fields(40_000).replace(",\n", &format!("\n{before}"))),
            bad(&name("separators"), format!("{}x", "\u{1e}\n".repeat(500_000))),
            bad(&name("broken_rows"), format!("{before}{{]\n").repeat(100_000)),
            bad(&name("nuls"), vec![0; 1 << 20]),
            bad(&name("wrong_magic"), "fgb\u{3}fgb\0"),
            legal(&name("good"), good.repeat(20_000)),
        ]);
    }
    cases
}

/// Well-known binary in hexadecimal, as databases write it.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Collections within collections, in well-known binary.
pub(crate) fn deep_wkb(depth: usize) -> Vec<u8> {
    let mut out = [1, 7, 0, 0, 0, 1, 0, 0, 0].repeat(depth);
    out.extend([1, 7, 0, 0, 0, 0, 0, 0, 0]);
    out
}

/// Geometries whose counts are beyond everything.
pub(crate) fn huge_wkb() -> Vec<Vec<u8>> {
    (2..=7u8).map(|shape| [&[1, shape, 0, 0, 0], &[0xff; 4][..], &[1; 64]].concat()).collect()
}

/// A point without numbers for coordinates.
pub(crate) fn infinite_wkb() -> Vec<u8> {
    [&[1, 1, 0, 0, 0][..], &f64::INFINITY.to_le_bytes(), &f64::NAN.to_le_bytes()].concat()
}

pub(crate) fn csv() -> Vec<Case> {
    let wkt = |text: &str| format!("a,wkt\n1,\"{text}\"\n");
    let mut cases = vec![
        bad("deep.csv", wkt(&deep("GEOMETRYCOLLECTION (", "POINT (1 1)", ")"))),
        bad("open.csv", wkt(&"GEOMETRYCOLLECTION (".repeat(200_000))),
        bad("brackets.csv", wkt(&format!("POLYGON {}", "(".repeat(1_000_000)))),
        bad("wkt_nan.csv", wkt("POINT (NaN inf)")),
        bad("wkt_beyond.csv", wkt("POINT (1e999 1)")),
        bad("wkt_cut.csv", wkt("LINESTRING (0 0, 1")),
        bad("nan.csv", "lon,lat\nNaN,1\n1,inf\n"),
        bad("quote.csv", format!("a,lon,lat\n\"{}", "x".repeat(2_000_000))),
        bad("quotes.csv", format!("a,lon,lat\n{}", "\"\"\"".repeat(500_001))),
        bad("many_cells.csv", format!("a,b\n{}\n", ",".repeat(1_000_000))),
        bad("many_columns.csv", format!("{}a\n", "a,".repeat(40_000))),
        bad("broken_rows.csv", format!("a,b\n{}", "1\n".repeat(100_000))),
        bad("not_utf8.csv", b"a,b\n\xff\xfe,1\n"),
        bad("not_utf8_header.csv", b"a\xff,b\n1,1\n"),
        bad("empty.csv", ""),
        bad("wkb_deep.csv", wkt(&hex(&deep_wkb(200_000)))),
        bad("wkb_infinite.csv", wkt(&hex(&infinite_wkb()))),
        bad("wkb_odd.csv", wkt("010100000")),
        legal(
            "wkb.csv",
            wkt(&hex(&[&[1, 1, 0, 0, 0][..], &1f64.to_le_bytes(), &2f64.to_le_bytes()].concat())),
        ),
        legal("header.csv", "a,b\n"),
    ];
    for (n, wkb) in huge_wkb().iter().enumerate() {
        cases.push(bad(&format!("wkb_huge_{n}.csv"), wkt(&hex(wkb))));
        cases.push(bad(&format!("wkb_cut_{n}.csv"), wkt(&hex(&wkb[..7]))));
    }
    cases
}

fn features(members: &str) -> String {
    format!(
        "<w:FeatureCollection xmlns:w='w' xmlns:gml='g'><w:member>{members}</w:member></w:FeatureCollection>"
    )
}

fn shape(geometry: &str) -> String {
    features(&format!("<t gml:id='t.1'><g>{geometry}</g></t>"))
}

pub(crate) fn gml() -> Vec<Case> {
    let laughs: String =
        (1..10).map(|n| format!("<!ENTITY l{n} \"{}\">", format!("&l{};", n - 1).repeat(10))).collect();
    let laughs = format!("<!DOCTYPE a [<!ENTITY l0 \"lol\">{laughs}]>{}", features("<t><a>&l9;</a></t>"));
    let outside = "<!DOCTYPE a [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><a>&x;</a>";
    let nested =
        deep("<gml:MultiGeometry><gml:geometryMember>", "", "</gml:geometryMember></gml:MultiGeometry>");
    let surfaces =
        deep("<gml:CompositeSurface><gml:surfaceMember>", "", "</gml:surfaceMember></gml:CompositeSurface>");
    let point = |pos: &str| shape(&format!("<gml:Point><gml:pos>{pos}</gml:pos></gml:Point>"));
    let attributes: String = (0..100_000).map(|n| format!(" a{n}='1'")).collect();
    let properties: String = (0..60_000).map(|n| format!("<p{n}/>")).collect();
    vec![
        bad("deep.gml", deep("<a>", "", "</a>")),
        bad("deep_feature.gml", features(&deep("<a>", "", "</a>"))),
        bad("deep_geometry.gml", shape(&nested)),
        bad("deep_surface.gml", shape(&surfaces)),
        bad("open.gml", "<a>".repeat(500_000)),
        bad("laughs.gml", laughs),
        bad("outside.gml", outside),
        bad("entity.gml", features("<t><a>&evil;</a></t>")),
        bad("reference.gml", features("<t><a>&#x110000;&#0;</a></t>")),
        bad("nan.gml", point("NaN INF")),
        bad("beyond.gml", point("1e999 1")),
        bad("odd_numbers.gml", point("1 2 3 4 5")),
        bad(
            "dimension.gml",
            shape(
                "<gml:LineString srsDimension='4000000000'><gml:posList>1 2 3 4</gml:posList></gml:LineString>",
            ),
        ),
        bad(
            "system.gml",
            shape(
                "<gml:Point srsName='urn:ogc:def:crs:EPSG::99999999999'><gml:pos>1 2</gml:pos></gml:Point>",
            ),
        ),
        bad("attributes.gml", format!("<a{attributes}/>")),
        bad("properties.gml", features(&format!("<t>{properties}</t>"))),
        bad("elements.gml", features(&format!("<t>{}</t>", "<p/>".repeat(600_000)))),
        bad("tag.gml", format!("<a {}", "x".repeat(2_000_000))),
        bad("comment.gml", format!("<a><!-- {}", "x".repeat(2_000_000))),
        bad("cdata.gml", format!("<a><![CDATA[{}", "x".repeat(2_000_000))),
        bad("cut.gml", "<w:FeatureCollection xmlns:w='w'><w:member><t><n>1</n>"),
        bad("ends.gml", "<a></b>"),
        bad("exception.gml", "<ExceptionReport><Exception>no</Exception></ExceptionReport>"),
        bad("wrong_magic.gml", "PAR1"),
        bad("empty.gml", ""),
        legal(
            "list.gml",
            shape(&format!(
                "<gml:LineString><gml:posList>{}0 0</gml:posList></gml:LineString>",
                (1..100_000).rev().map(|n| format!("{n} {n} ")).collect::<String>()
            )),
        ),
    ]
}

pub(crate) fn esri() -> Vec<Case> {
    let set = |features: &str| format!(r#"{{"geometryType":"esriGeometryPolygon","features":[{features}]}}"#);
    let of = |geometry: &str| set(&format!(r#"{{"attributes":{{"a":1}},"geometry":{geometry}}}"#));
    vec![
        bad("deep_attribute.esrijson", set(&format!(r#"{{"attributes":{{"a":{}}}}}"#, deep("[", "", "]")))),
        bad("deep_rings.esrijson", of(&format!(r#"{{"rings":{}}}"#, deep("[", "1,2", "]")))),
        bad("deep_member.esrijson", format!(r#"{{"fields":{},"features":[]}}"#, deep("[", "", "]"))),
        bad("open.esrijson", r#"{"features":["#.repeat(200_000)),
        bad("cut.esrijson", r#"{"features":[{"attributes":{"a":1},"geometry":{"x":1,"#),
        bad("nan.esrijson", of(r#"{"x":NaN,"y":1}"#)),
        bad("beyond.esrijson", of(r#"{"x":1e999,"y":1}"#)),
        bad("words.esrijson", of(r#"{"x":"a","y":"b"}"#)),
        bad("short.esrijson", of(r#"{"rings":[[[1]]]}"#)),
        bad("curves.esrijson", of(r#"{"curveRings":[]}"#)),
        bad("system.esrijson", r#"{"spatialReference":{"wkid":4294967296},"features":[]}"#),
        bad("error.esrijson", r#"{"error":{"code":500,"message":"no"},"features":[]}"#),
        bad(
            "many_rings.esrijson",
            of(&format!(
                r#"{{"rings":[{}[[0,0],[0,1],[1,1],[0,0]]]}}"#,
                "[[0,0],[1,0],[0,0]],".repeat(50_000)
            )),
        ),
        bad("wrong_magic.esrijson", "fgb\u{3}"),
        bad("empty.esrijson", ""),
        legal("many_points.esrijson", of(&format!(r#"{{"points":[{}[0,0]]}}"#, "[1,1],".repeat(300_000)))),
    ]
}
