//! Parsing of identifiers and definitions of coordinate reference systems.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::OnceLock;

use tidegate_core::Code;

use super::{Crs, definition, table};
use crate::error::Problem;

impl FromStr for Crs {
    type Err = Problem;

    /// Understands `EPSG:27700`, `27700`, `OGC:CRS84`, OGC URNs and URIs, WKT 1, WKT 2 and ESRI WKT,
    /// PROJJSON, `+init=epsg:…` and the PROJ strings of the table. Of a compound system, the horizontal
    /// component is used.
    fn from_str(text: &str) -> Result<Crs, Problem> {
        let text = text.trim().trim_start_matches('\u{feff}');
        let found = if text.starts_with('{') {
            projjson(text)
        } else if text.starts_with('+') {
            proj_string(text)
        } else if text.contains('[') || text.contains('(') {
            // Names have parentheses too: NAD83 / Michigan South (ft).
            let named = || table::code_of_name(text).filter(|_| !text.contains('[')).map(numbered);
            definition::identify(text).or_else(named)
        } else {
            short(text)
        };
        let crs = found.ok_or_else(|| {
            let start: String = text.chars().take(60).collect();
            let tried = "an authority's code, a URN or URI, WKT, PROJJSON, a PROJ string and a name";
            let message = format!("unknown coordinate reference system {start:?}; tried {tried}");
            Problem::new(Code::CRS_NOT_FOUND, message)
        })?;
        if crs.entry().is_none() {
            return Err(Problem::new(Code::CRS_NOT_FOUND, format!("{crs} is not a known system")));
        }
        Ok(crs)
    }
}

/// The system of an authority and a code, in any case.
pub(super) fn known(authority: &str, code: &str) -> Option<Crs> {
    let authority = authority.trim().to_ascii_uppercase();
    let code = code.trim();
    match authority.as_str() {
        "ESRI" if code.parse() == Ok(table::SHARED) => Some(Crs::esri(table::SHARED)),
        // Every other code belongs to one authority only, and people write either name before it.
        "EPSG" | "ESRI" => code.parse().ok().map(numbered),
        "OGC" | "CRS" if matches!(code, "CRS84" | "84" | "CRS84h") => Some(Crs::wgs84()),
        _ => None,
    }
}

/// The system of an EPSG or ESRI code.
pub(super) fn numbered(number: u32) -> Crs {
    let is_esri =
        table::same_as_esri(number).is_some() || table::entry(number).is_some_and(|entry| entry.esri);
    if is_esri { Crs::esri(number) } else { Crs::epsg(number) }
}

fn short(text: &str) -> Option<Crs> {
    let lower = text.to_ascii_lowercase();
    if let Some(rest) =
        lower.strip_prefix("urn:ogc:def:crs:").or_else(|| lower.strip_prefix("urn:x-ogc:def:crs:"))
    {
        // authority : version : code, of a compound the first.
        let first = rest.split(',').next().unwrap_or(rest);
        let mut parts = first.split(':');
        let authority = parts.next()?;
        return known(authority, &parts.next_back()?.to_ascii_uppercase());
    }
    if let Some(at) = lower.find("/def/crs/") {
        let mut parts = lower.get(at + 9..)?.trim_end_matches('/').split('/');
        let authority = parts.next()?;
        return known(authority, &parts.next_back()?.to_ascii_uppercase());
    }
    if let Some((_, code)) = lower.split_once("gml/srs/epsg.xml#") {
        return known("EPSG", code);
    }
    if let Some((authority, code)) = text.split_once(':') {
        let horizontal = code.split('+').next().unwrap_or(code);
        return known(authority, horizontal).or_else(|| known(authority, &horizontal.to_ascii_uppercase()));
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return known("EPSG", text);
    }
    if lower == "crs84" {
        return Some(Crs::wgs84());
    }
    table::code_of_name(text).map(numbered)
}

fn proj_string(text: &str) -> Option<Crs> {
    let mut words = text.split_ascii_whitespace();
    if let Some(code) = words.find_map(|word| word.strip_prefix("+init=")) {
        return short(code);
    }
    let wanted = sorted_words(text);
    if wanted == sorted_words("+proj=longlat +ellps=WGS84") {
        return Some(Crs::epsg(4326));
    }
    proj_strings().get(&wanted).copied().map(numbered)
}

/// The parameters of a PROJ string without those that change no coordinates, sorted.
fn sorted_words(text: &str) -> String {
    let mut words: Vec<&str> = text
        .split_ascii_whitespace()
        .filter(|word| !["+no_defs", "+type=crs", "+towgs84=0,0,0", "+wktext", "+over"].contains(word))
        .map(|word| match word.strip_prefix("+datum=") {
            Some("WGS84") => "+ellps=WGS84",
            Some("NAD83") => "+ellps=GRS80",
            _ => word,
        })
        .collect();
    words.sort_unstable();
    words.join(" ")
}

/// The first current system of each PROJ string, built when first needed.
fn proj_strings() -> &'static HashMap<String, u32> {
    static STRINGS: OnceLock<HashMap<String, u32>> = OnceLock::new();
    STRINGS.get_or_init(|| {
        let mut all = HashMap::new();
        for entry in table::codes().into_iter().filter_map(table::entry).filter(|entry| !entry.deprecated) {
            all.entry(sorted_words(&entry.proj)).or_insert(entry.code);
        }
        all
    })
}

/// The `id` of a PROJJSON system; of a compound or bound one, that of its horizontal or source system.
fn projjson(text: &str) -> Option<Crs> {
    let mut depth = 0usize;
    let (mut authority, mut code): (Option<String>, Option<String>) = (None, None);
    let mut named: Option<Crs> = None;
    let mut path: Vec<String> = Vec::new();
    let mut key: Option<String> = None;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let value = match c {
            '{' | '[' => {
                depth += 1;
                if depth > 64 {
                    return None;
                }
                path.push(key.take().unwrap_or_default());
                continue;
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                path.pop();
                continue;
            }
            ',' => {
                key = None;
                continue;
            }
            '"' => {
                let mut end = at + 1;
                let mut escaped = false;
                for (place, c) in chars.by_ref() {
                    end = place;
                    match c {
                        '\\' if !escaped => escaped = true,
                        '"' if !escaped => break,
                        _ => escaped = false,
                    }
                }
                text.get(at + 1..end)?.to_owned()
            }
            c if c.is_ascii_digit() => {
                let mut end = at + 1;
                while let Some((place, _)) = chars.next_if(|(_, c)| c.is_ascii_digit()) {
                    end = place + 1;
                }
                text.get(at..end)?.to_owned()
            }
            _ => continue,
        };
        let Some(name) = key.take() else {
            key = Some(value);
            continue;
        };
        // The system itself, the first component of a compound one, the source of a bound one.
        let here: Vec<&str> = path.iter().map(String::as_str).filter(|step| !step.is_empty()).collect();
        let counts = matches!(here.as_slice(), ["id"] | ["components", "id"] | ["source_crs", "id"]);
        match name.as_str() {
            "authority" if counts && authority.is_none() => authority = Some(value),
            "code" if counts && code.is_none() => code = Some(value),
            "name" if here.is_empty() && named.is_none() => {
                named = table::code_of_name(&value).map(numbered);
            }
            _ => {}
        }
    }
    // Several codes may share a name, so the name is used only without a code.
    authority.zip(code).map_or(named, |(authority, code)| known(&authority, &code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_name_a_system() {
        for (text, want) in [
            ("EPSG:27700", "EPSG:27700"),
            ("epsg:4326", "EPSG:4326"),
            ("3857", "EPSG:3857"),
            ("OGC:CRS84", "OGC:CRS84"),
            ("CRS:84", "OGC:CRS84"),
            ("ESRI:102100", "EPSG:3857"),
            ("ESRI:102113", "EPSG:3857"),
            ("EPSG:102100", "EPSG:3857"),
            ("ESRI:102039", "EPSG:5070"),
            ("ESRI:102718", "EPSG:2263"),
            ("ESRI:54030", "ESRI:54030"),
            ("ESRI:54009", "ESRI:54009"),
            ("ESRI:102003", "ESRI:102003"),
            ("ESRI:102008", "ESRI:102008"),
            ("102003", "ESRI:102003"),
            ("ESRI:4326", "EPSG:4326"),
            ("World_Robinson", "ESRI:54030"),
            ("WGS_1984_Web_Mercator_Auxiliary_Sphere", "EPSG:3857"),
            ("urn:ogc:def:crs:ESRI::54009", "ESRI:54009"),
            ("EPSG:7405", "EPSG:7405 missing"),
            ("EPSG:27700+5701", "EPSG:27700"),
            ("urn:ogc:def:crs:EPSG::25832", "EPSG:25832"),
            ("urn:ogc:def:crs:EPSG:9.9:4258", "EPSG:4258"),
            ("urn:ogc:def:crs:OGC:1.3:CRS84", "OGC:CRS84"),
            ("http://www.opengis.net/def/crs/EPSG/0/4326", "EPSG:4326"),
            ("https://www.opengis.net/def/crs/OGC/1.3/CRS84", "OGC:CRS84"),
            ("http://www.opengis.net/gml/srs/epsg.xml#4326", "EPSG:4326"),
            ("WGS_1984_UTM_Zone_33N", "EPSG:32633"),
            ("NAD83 / Michigan South (ft)", "EPSG:2253"),
            ("EPSG:4978", "EPSG:4978"),
            ("EPSG:4979", "EPSG:4979"),
            ("WGS 84", "EPSG:4326"),
            ("+proj=longlat +datum=WGS84 +no_defs", "EPSG:4326"),
            ("+init=epsg:2056", "EPSG:2056"),
            ("+proj=utm +zone=33 +datum=WGS84 +units=m +no_defs +type=crs", "EPSG:32633"),
            (
                r#"GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563,AUTHORITY["EPSG","7030"]]],PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433],AUTHORITY["EPSG","4326"]]"#,
                "EPSG:4326",
            ),
            (
                r#"PROJCS["WGS_1984_UTM_Zone_33N",GEOGCS["GCS_WGS_1984",DATUM["D_WGS_1984",SPHEROID["WGS_1984",6378137.0,298.257223563]],PRIMEM["Greenwich",0.0],UNIT["Degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],UNIT["Meter",1.0]]"#,
                "EPSG:32633",
            ),
            (
                r#"COMPD_CS["OSGB36 + ODN",PROJCS["OSGB36 / British National Grid",GEOGCS["OSGB36",AUTHORITY["EPSG","4277"]],AUTHORITY["EPSG","27700"]],VERT_CS["ODN",AUTHORITY["EPSG","5701"]],AUTHORITY["EPSG","7405"]]"#,
                "EPSG:27700",
            ),
            (
                r#"PROJCRS["ETRS89 / UTM zone 32N",BASEGEOGCRS["ETRS89",ID["EPSG",4258]],CONVERSION["x",ID["EPSG",16032]],ID["EPSG",25832]]"#,
                "EPSG:25832",
            ),
            (
                r#"BOUNDCRS[SOURCECRS[GEOGCRS["WGS 84",ID["EPSG",4326]]],TARGETCRS[GEOGCRS["x",ID["EPSG",4979]]]]"#,
                "EPSG:4326",
            ),
            (
                r#"{"type":"ProjectedCRS","name":"x \" y","base_crs":{"name":"b","id":{"authority":"EPSG","code":4258}},"id":{"authority":"EPSG","code":25832}}"#,
                "EPSG:25832",
            ),
            (
                r#"{"type":"CompoundCRS","name":"c","components":[{"type":"ProjectedCRS","name":"h","id":{"authority":"EPSG","code":27700}},{"id":{"authority":"EPSG","code":5701}}]}"#,
                "EPSG:27700",
            ),
            ("Atlantis", "missing"),
            ("EPSG:99999999", "missing"),
        ] {
            match text.parse::<Crs>() {
                Ok(crs) => assert_eq!(crs.to_string(), want, "{text}"),
                Err(problem) => {
                    assert!(want.ends_with("missing"), "{text}: {problem}");
                    assert_eq!(problem.code, Code::CRS_NOT_FOUND);
                }
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_ends_in_an_answer(text in "[\\[\\](){}\":,A-Z0-9+= ]{0,60}") {
            let _ = text.parse::<Crs>();
        }
    }
}
