//! What a WFS answers, read.

use tidegate_core::Code;
use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::wkb::Shape;
use tidegate_geo::{Crs, Error, Kind, format, wkt};

fn read(text: &str) -> Result<(format::Layer, Vec<String>, Vec<format::Rejected>), Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gml");
    std::fs::write(&path, text).unwrap();
    let mut reader = format::open(&path, &ReadOptions::default())?;
    let (mut rows, mut rejected) = (Vec::new(), Vec::new());
    while let Some(batch) = reader.next_batch(&mut rejected)? {
        for row in 0..batch.len() {
            let values: Vec<String> = batch.columns().iter().map(|c| format!("{:?}", c.get(row))).collect();
            let geometry = batch.geometry(row).map_or("none".into(), wkt::to_string);
            rows.push(format!("{} {geometry} {}", batch.id(row).unwrap_or("-"), values.join(" ")));
        }
    }
    Ok((reader.layer().clone(), rows, rejected))
}

fn wfs2(members: &str) -> String {
    format!(
        r#"<?xml version="1.0"?><wfs:FeatureCollection xmlns:wfs="w" xmlns:gml="g" xmlns:p="p" numberMatched="unknown">{members}</wfs:FeatureCollection>"#
    )
}

#[test]
fn wfs_2_with_the_authoritys_axis_order() {
    let text = wfs2(
        r#"<wfs:member><p:parcel gml:id="p.1"><p:name>A &amp; B</p:name><p:code>007</p:code><p:n>12</p:n><p:x>1.5</p:x><p:day>2026-11-15</p:day>
           <p:geom><gml:Polygon srsName="urn:ogc:def:crs:EPSG::4326"><gml:exterior><gml:LinearRing><gml:posList>48 16 48 17 49 17 48 16</gml:posList></gml:LinearRing></gml:exterior></gml:Polygon></p:geom></p:parcel></wfs:member>
           <wfs:member><p:parcel gml:id="p.2"><gml:boundedBy><gml:Null/></gml:boundedBy><p:name/><p:n>7</p:n><p:owner><p:who>x</p:who><p:share>1</p:share></p:owner>
           <p:geom><gml:Polygon srsName="urn:ogc:def:crs:EPSG::4326"><gml:exterior><gml:LinearRing><gml:posList>48 16 bad 17 49 17 48 16</gml:posList></gml:LinearRing></gml:exterior></gml:Polygon></p:geom></p:parcel></wfs:member>"#,
    );
    let (layer, rows, rejected) = read(&text).unwrap();
    assert_eq!(
        (layer.name.as_str(), layer.crs, layer.schema.shape),
        ("parcel", Some(Crs::epsg(4326)), Some(Shape::Polygon))
    );
    let kinds: Vec<_> = layer.schema.fields().iter().map(|f| (f.name.as_str(), f.kind)).collect();
    assert_eq!(
        kinds,
        [
            ("name", Kind::Text),
            ("code", Kind::Text),
            ("n", Kind::Int),
            ("x", Kind::Real),
            ("day", Kind::Date),
            ("owner", Kind::Json)
        ]
    );
    assert_eq!(
        rows,
        [
            r#""p.1" POLYGON ((16 48, 17 48, 17 49, 16 48)) Text("A & B") Text("007") Int(12) Real(1.5) Text("2026-11-15") Null"#
        ]
    );
    assert_eq!(rejected.len(), 1);
    assert!(rejected[0].problems[0].message.contains("\"bad\" is not a coordinate"));
}

#[test]
fn wfs_1_1_with_feature_members_and_x_first() {
    let text = r#"<wfs:FeatureCollection xmlns:wfs="w" xmlns:gml="g"><gml:boundedBy><gml:Envelope srsName="EPSG:4326"><gml:lowerCorner>0 0</gml:lowerCorner><gml:upperCorner>1 1</gml:upperCorner></gml:Envelope></gml:boundedBy>
      <gml:featureMembers>
       <a gml:id="1"><g><gml:Point><gml:pos srsDimension="3">16 48 5</gml:pos></gml:Point></g></a>
       <a gml:id="2"><g><gml:MultiCurve><gml:curveMember><gml:Curve><gml:segments><gml:LineStringSegment><gml:posList>0 0 1 1</gml:posList></gml:LineStringSegment><gml:LineStringSegment><gml:posList>1 1 2 0</gml:posList></gml:LineStringSegment></gml:segments></gml:Curve></gml:curveMember></gml:MultiCurve></g></a>
       <a gml:id="3"><g><gml:MultiSurface><gml:surfaceMember><gml:Polygon><gml:outerBoundaryIs><gml:LinearRing><gml:coordinates>0,0 4,0 4,4 0,0</gml:coordinates></gml:LinearRing></gml:outerBoundaryIs></gml:Polygon></gml:surfaceMember></gml:MultiSurface></g></a>
       <a gml:id="4"><g><gml:MultiGeometry><gml:geometryMember><gml:Point><gml:coordinates>1,2</gml:coordinates></gml:Point></gml:geometryMember></gml:MultiGeometry></g></a>
       <a gml:id="5"><g><gml:Curve><gml:segments><gml:Arc><gml:posList>0 0 1 1 2 0</gml:posList></gml:Arc></gml:segments></gml:Curve></g></a>
      </gml:featureMembers></wfs:FeatureCollection>"#;
    let (layer, rows, rejected) = read(text).unwrap();
    assert_eq!((layer.crs, layer.records), (Some(Crs::epsg(4326)), Some(5)));
    let rows: Vec<&str> = rows.iter().map(|row| row.trim()).collect();
    assert_eq!(
        rows,
        [
            r#""1" POINT Z (16 48 5)"#,
            r#""2" MULTILINESTRING ((0 0, 1 1, 2 0))"#,
            r#""3" MULTIPOLYGON (((0 0, 4 0, 4 4, 0 0)))"#,
            r#""4" GEOMETRYCOLLECTION (POINT (1 2))"#,
        ]
    );
    assert!(rejected[0].problems[0].message.contains("Arc is beyond simple features"));
}

#[test]
fn exceptions_entities_and_cut_files_are_errors() {
    let exception = r#"<ows:ExceptionReport xmlns:ows="o"><ows:Exception exceptionCode="X"><ows:ExceptionText>no such type</ows:ExceptionText></ows:Exception></ows:ExceptionReport>"#;
    let error = read(exception).unwrap_err();
    assert_eq!(error.code(), Code::SERVICE_EXCEPTION);
    assert!(error.to_string().contains("no such type"));
    let bomb = r#"<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "bbbb">]><a>&b;</a>"#;
    assert!(read(bomb).unwrap_err().to_string().contains("document type"));
    assert!(read(&wfs2("<wfs:member><a><b>&nope;</b></a></wfs:member>")).is_err());
    let whole = wfs2("<wfs:member><a><b>1</b></a></wfs:member>");
    assert_eq!(read(&whole[..whole.len() - 30]).unwrap_err().code(), Code::TRUNCATED_BODY);
    assert_eq!(read(&whole[..whole.len() - 60]).unwrap_err().code(), Code::TRUNCATED_BODY);
    let deep = format!("<c><member><a>{}", "<x>".repeat(100_000));
    assert!(read(&deep).unwrap_err().to_string().contains("nest too deep"));
    let deep = "<x>".repeat(100_000);
    assert!(read(&deep).unwrap_err().to_string().contains("nest too deep"));
}

/// As WFS 2.0 answers several queries at once.
#[test]
fn collections_within_a_collection_hold_features() {
    let feature = |id: u32| {
        format!(
            "<member><app:road gml:id='r{id}'><app:n>{id}</app:n>\
             <app:since><gml:TimeInstant><gml:timePosition>2020-01-0{id}T00:00:00Z</gml:timePosition></gml:TimeInstant></app:since>\
             <app:geom><gml:Point srsName='urn:ogc:def:crs:EPSG::25832'><gml:pos>{id} 2</gml:pos></gml:Point></app:geom></app:road></member>"
        )
    };
    let inner = |ids: [u32; 2]| {
        format!(
            "<member><wfs:FeatureCollection><wfs:boundedBy/>{}{}</wfs:FeatureCollection></member>",
            feature(ids[0]),
            feature(ids[1])
        )
    };
    let text = format!(
        "<wfs:FeatureCollection xmlns='http://www.opengis.net/wfs/2.0' xmlns:wfs='http://www.opengis.net/wfs/2.0' \
         xmlns:gml='http://www.opengis.net/gml/3.2' xmlns:app='a'>{}{}{}</wfs:FeatureCollection>",
        inner([1, 2]),
        inner([3, 4]),
        feature(5)
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("roads.gml");
    std::fs::write(&path, text).unwrap();
    let mut reader = format::open(&path, &Default::default()).unwrap();
    let schema = reader.layer().schema.clone();
    let since = schema.position("since").unwrap();
    assert_eq!(schema.fields()[since].kind, Kind::DateTime);
    let batch = reader.next_batch(&mut Vec::new()).unwrap().unwrap();
    assert_eq!(batch.len(), 5);
    assert!((0..5).all(|row| batch.geometry(row).is_some()));
    assert_eq!(batch.value(4, since), tidegate_geo::Value::Text("2020-01-05T00:00:00Z"));
}
