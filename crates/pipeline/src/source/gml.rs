//! A page of GML, 3.1 or 3.2, as GeoJSON text: the simple features profile. What a feature is, the
//! geo kernel knows; here is what makes a page of them.

use super::axis_order::AxisRule;
use super::page::{FeaturePage, PageFeature, lasting, whole};
use bytes::Bytes;
use serde_json::Value;
use tidegate_geo::Schema;
use tidegate_geo::format::gml;
use tidegate_geo::xml;

/// Reads a page.
///
/// # Errors
/// Why it is none, or that it holds fewer features than it says.
pub(super) fn page(body: &Bytes, schema: &Schema, rule: &AxisRule) -> Result<FeaturePage, String> {
    let mut root = xml::parse(body).map_err(|problem| problem.message)?;
    if root.name != "FeatureCollection" {
        return Err(format!("the page is a {:?}, not a feature collection", root.name));
    }
    if let Err(why) = rule.settle(&mut root) {
        return Ok(FeaturePage { refusal: Some(why), ..FeaturePage::default() });
    }
    let members = gml::features(&root);
    let number = |name| root.attribute(name).and_then(|n| n.parse::<u64>().ok());
    whole(number("numberReturned").or(number("numberOfFeatures")), members.len())?;
    let system = root.child("boundedBy").and_then(gml::system_name);
    let mut text = Vec::with_capacity(body.len() / 2);
    let mut features = Vec::with_capacity(members.len());
    let mut named = None;
    for member in members {
        let start = text.len();
        let crs = gml::to_geojson(member, schema, system, &mut text);
        named = named.or(crs);
        let id = member.attribute("id").map(|id| Value::from(id).to_string());
        features.push(PageFeature { at: start..text.len(), id: id.and_then(|id| lasting(&id)), key: None });
        text.push(b'\n');
    }
    Ok(FeaturePage {
        text: text.into(),
        features,
        matched: number("numberMatched"),
        crs: named,
        ..FeaturePage::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tidegate_geo::Kind;

    #[test]
    fn a_page_keeps_kinds_and_notices_what_is_missing() {
        let page_of = |returned: u32| {
            let text = format!(
                "<wfs:FeatureCollection xmlns:wfs='w' xmlns:gml='g' numberMatched='7' numberReturned='{returned}'>\
                 <wfs:member><t:p xmlns:t='t' gml:id='p.1'><t:n>7</t:n><t:s>a &amp; b</t:s><t:e/><t:m>1</t:m><t:m>2</t:m>\
                 <t:g><gml:Point srsName='urn:ogc:def:crs:EPSG::4326'><gml:pos>48 16</gml:pos></gml:Point></t:g></t:p>\
                 </wfs:member></wfs:FeatureCollection>"
            );
            let schema = Schema::new([("n", Kind::Int), ("s", Kind::Text), ("e", Kind::Real)]);
            page(&Bytes::from(text), &schema, &AxisRule::default())
        };
        let page = page_of(1).unwrap();
        let feature: Value = serde_json::from_slice(page.feature(&page.features[0])).unwrap();
        let geometry = json!({"type": "Point", "coordinates": [16, 48]});
        let properties = json!({"n": 7, "s": "a & b", "e": null, "m": ["1", "2"]});
        assert_eq!(
            feature,
            json!({"type": "Feature", "id": "p.1", "geometry": geometry, "properties": properties})
        );
        assert_eq!((page.matched, page.crs.as_deref()), (Some(7), Some("urn:ogc:def:crs:EPSG::4326")));
        assert!(page_of(2).unwrap_err().contains("contains 1"));
    }

    #[test]
    fn collections_within_a_collection_are_opened() {
        let feature = |n: u32| format!("<wfs:member><t:p gml:id='p.{n}'><t:n>{n}</t:n></t:p></wfs:member>");
        let inner = |a: u32, b: u32| {
            let features = feature(a) + &feature(b);
            format!(
                "<wfs:member><wfs:FeatureCollection numberReturned='2'>{features}</wfs:FeatureCollection></wfs:member>"
            )
        };
        let text = format!(
            "<wfs:FeatureCollection xmlns:wfs='w' xmlns:gml='g' xmlns:t='t' numberReturned='4'>{}{}</wfs:FeatureCollection>",
            inner(1, 2),
            inner(3, 4)
        );
        let page = page(&Bytes::from(text), &Schema::default(), &AxisRule::default()).unwrap();
        let ids: Vec<_> = page.features.iter().filter_map(|f| f.id.as_deref()).collect();
        assert_eq!(ids, ["\"p.1\"", "\"p.2\"", "\"p.3\"", "\"p.4\""]);
    }

    #[test]
    fn a_time_is_text_and_an_empty_one_is_nothing() {
        let text = "<wfs:FeatureCollection xmlns:wfs='w' xmlns:gml='g' xmlns:t='t'><wfs:member><t:p>\
             <t:a gml:id='.a'><gml:timePosition>2021-05-30</gml:timePosition></t:a><t:b></t:b>\
             <t:c><gml:TimeInstant><gml:timePosition>2021-05-30T08:31:09Z</gml:timePosition></gml:TimeInstant></t:c>\
             <t:d></t:d></t:p></wfs:member></wfs:FeatureCollection>";
        let schema = Schema::new(["a", "b", "c"].map(|name| (name, Kind::DateTime)));
        let page = page(&Bytes::from_static(text.as_bytes()), &schema, &AxisRule::default()).unwrap();
        let feature: Value = serde_json::from_slice(page.feature(&page.features[0])).unwrap();
        assert_eq!(
            feature["properties"],
            json!({"a": "2021-05-30", "b": null, "c": "2021-05-30T08:31:09Z", "d": ""})
        );
    }
}
