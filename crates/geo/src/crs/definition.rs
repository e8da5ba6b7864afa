//! Identification of the system that well-known text defines.
//!
//! A code in the text decides. Without one, as in every `.prj` file of ESRI, the name is looked up, and
//! the parameters must agree with those of the system of that name: a file may call anything
//! "British_National_Grid". A system with another name is found by its method, parameters, datum,
//! ellipsoid and unit. The reference is the ESRI WKT of each system ([`super::text`]), which has no codes.

use std::sync::OnceLock;

use super::{Crs, parse, table, text};

const DEPTH_MAX: usize = 64;

/// Nodes around a system, of which the first child is used.
const WRAPPERS: [&str; 4] = ["COMPD_CS", "COMPOUNDCRS", "BOUNDCRS", "SOURCECRS"];

/// One `KEYWORD[value, …, NODE[…]]`.
#[derive(Debug, Default)]
struct WktNode {
    keyword: String,
    values: Vec<String>,
    nodes: Vec<WktNode>,
}

impl WktNode {
    /// The first complete node of a text.
    fn parse(text: &str) -> Option<WktNode> {
        let mut open: Vec<WktNode> = Vec::new();
        let mut word = String::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '[' | '(' => {
                    let keyword = std::mem::take(&mut word).trim().to_ascii_uppercase();
                    if open.len() >= DEPTH_MAX {
                        return None;
                    }
                    open.push(WktNode { keyword, ..WktNode::default() });
                }
                ']' | ')' => {
                    let mut node = open.pop()?;
                    node.close_value(&mut word);
                    match open.last_mut() {
                        Some(outer) => outer.nodes.push(node),
                        None => return Some(node),
                    }
                }
                '"' => word.extend(chars.by_ref().take_while(|c| *c != '"')),
                ',' => open.last_mut()?.close_value(&mut word),
                c => word.push(c),
            }
        }
        None
    }

    fn close_value(&mut self, word: &mut String) {
        let value = std::mem::take(word).trim().to_owned();
        if !value.is_empty() {
            self.values.push(value);
        }
    }

    fn node(&self, keywords: &[&str]) -> Option<&WktNode> {
        self.nodes.iter().find(|node| keywords.contains(&node.keyword.as_str()))
    }

    fn name(&self) -> &str {
        self.values.first().map_or("", String::as_str)
    }

    fn number(&self, at: usize) -> Option<f64> {
        self.values.get(at)?.parse().ok().filter(|number: &f64| number.is_finite())
    }
}

/// The system of the table that a text defines.
pub(super) fn identify(text: &str) -> Option<Crs> {
    let root = WktNode::parse(text)?;
    let mut system = &root;
    while WRAPPERS.contains(&system.keyword.as_str()) {
        system = system.nodes.first()?;
    }
    let code = system.node(&["AUTHORITY", "ID"]).and_then(|id| {
        let [authority, code, ..] = id.values.as_slice() else { return None };
        parse::known(authority, code).filter(|crs| crs.entry().is_some() || is_given_out(authority, code))
    });
    if let Some(crs) = code {
        // A code outside of the table must not match another system of the same name.
        return Some(crs).filter(|crs| crs.entry().is_some());
    }
    let given = Numbers::of(system);
    if let Some(number) = table::code_of_name(system.name()) {
        let known = text::esri(number).and_then(|text| Some(Numbers::of(&WktNode::parse(&text)?)));
        if known.as_ref().is_none_or(|known| !given.contradicts(known)) {
            // The same name with another datum: perhaps there is a system with that datum.
            let other = known.filter(|known| known.datum != given.datum).and_then(|_| given.find());
            return Some(parse::numbered(other.unwrap_or(number)));
        }
    }
    given.find().map(parse::numbered)
}

/// Whether a code is in a range that EPSG or ESRI assigns, and not made up.
fn is_given_out(authority: &str, code: &str) -> bool {
    match authority.trim().to_ascii_uppercase().as_str() {
        "ESRI" => true,
        "EPSG" => code.trim().parse().is_ok_and(|code: u32| (1024..32768).contains(&code)),
        _ => false,
    }
}

/// The parameters of a definition, as far as it gives them.
#[derive(Debug, Default)]
struct Numbers {
    projected: bool,
    /// Projection method, normalised.
    method: String,
    /// Name of the datum, normalised.
    datum: String,
    /// Projection parameters by normalised name, in degrees or in the unit of the system.
    parameters: Vec<(String, f64)>,
    /// Semi-major axis, in metres.
    axis: Option<f64>,
    /// Inverse flattening.
    flattening: Option<f64>,
    /// Longitude of the prime meridian, in degrees.
    meridian: f64,
    /// Length of the unit in metres, or its angle in radians.
    unit: Option<f64>,
}

impl Numbers {
    /// From WKT 1; of WKT 2 only the ellipsoid is read.
    fn of(system: &WktNode) -> Numbers {
        let projected = matches!(system.keyword.as_str(), "PROJCS" | "PROJCRS" | "PROJECTEDCRS");
        let geographic =
            if projected { system.node(&["GEOGCS", "BASEGEOGCRS", "BASEGEODCRS"]) } else { Some(system) };
        let datum = geographic.and_then(|geographic| geographic.node(&["DATUM", "ENSEMBLE"]));
        let ellipsoid = datum.and_then(|datum| datum.node(&["SPHEROID", "ELLIPSOID"]));
        let meridian = geographic.and_then(|geographic| geographic.node(&["PRIMEM"]));
        let parameters = system.nodes.iter().filter(|node| node.keyword == "PARAMETER");
        let mut parameters: Vec<(String, f64)> =
            parameters.filter_map(|node| Some((parameter(node.name()), node.number(1)?))).collect();
        let method = system.node(&["PROJECTION"]).map_or_else(String::new, |node| method(node.name()));
        if ["lambertconformalconic", "albers", "equidistantconic"].contains(&method.as_str()) {
            order_parallels(&mut parameters);
        }
        Numbers {
            projected,
            method,
            datum: datum.map_or_else(String::new, |datum| datum_name(datum.name())),
            parameters,
            axis: ellipsoid.and_then(|ellipsoid| ellipsoid.number(1)),
            flattening: ellipsoid.and_then(|ellipsoid| ellipsoid.number(2)),
            meridian: meridian.and_then(|meridian| meridian.number(1)).unwrap_or(0.0),
            unit: system.node(&["UNIT"]).and_then(|unit| unit.number(1)),
        }
    }

    fn parameter(&self, name: &str) -> Option<f64> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Whether both give a parameter, with different values.
    fn contradicts(&self, known: &Numbers) -> bool {
        let other =
            |a: Option<f64>, b: Option<f64>, slack: f64| a.zip(b).is_some_and(|(a, b)| (a - b).abs() > slack);
        let other_method = !self.method.is_empty() && !known.method.is_empty() && self.method != known.method;
        self.projected != known.projected
            || other_method
            || other(self.axis, known.axis, 0.01)
            || other(self.flattening, known.flattening, flattening_slack(self.flattening))
            || other(self.unit, known.unit, 1e-9)
            || (self.meridian - known.meridian).abs() > 1e-6
            || self.parameters.iter().any(|(name, value)| {
                // A millimetre in lengths, a centimetre on the ground in angles.
                let slack = if name.contains("false") { 1e-3 } else { 1e-7 };
                other(Some(*value), known.parameter(name), slack)
            })
    }

    /// Whether both define the same system, whatever its name. A parameter that one of them leaves out
    /// must have its default value.
    fn equals(&self, known: &Numbers) -> bool {
        let plain = |name: &str, value: f64| {
            let usual = if name.contains("scale") { 1.0 } else { 0.0 };
            // With one standard parallel, it is the latitude of origin.
            value == usual
                || (name == "standardparallel1" && self.parameter("latitudeoforigin") == Some(value))
        };
        let covers = |a: &Numbers, b: &Numbers| {
            a.parameters.iter().all(|(name, value)| b.parameter(name).is_some() || plain(name, *value))
        };
        self.method == known.method
            && self.datum == known.datum
            && self.axis.is_some()
            && self.unit.is_some()
            && !self.contradicts(known)
            && covers(self, known)
            && covers(known, self)
    }

    /// The code of the system of the table with these parameters, current ones first.
    fn find(&self) -> Option<u32> {
        if self.datum.is_empty() || (self.projected && self.method.is_empty()) {
            return None;
        }
        let same = systems().iter().filter(|system| self.equals(&system.numbers));
        same.min_by_key(|system| system.outdated).map(|system| system.number)
    }
}

/// A system of the table.
struct System {
    number: u32,
    outdated: bool,
    numbers: Numbers,
}

/// Every system with ESRI WKT, in the order of codes. Decompressing and parsing them takes longer than
/// comparing with all of them, so it is done once, when first needed.
fn systems() -> &'static [System] {
    static SYSTEMS: OnceLock<Vec<System>> = OnceLock::new();
    SYSTEMS.get_or_init(|| {
        let mut all = Vec::new();
        text::each_esri(|number, text| {
            // The ESRI WKT of the shared code is that of ESRI's system.
            if number == table::SHARED {
                return;
            }
            let entry = table::entry(number);
            // A 3D system has the parameters of the 2D one.
            if entry.as_ref().is_some_and(|entry| entry.has_height) {
                return;
            }
            if let Some(node) = WktNode::parse(text) {
                let outdated = entry.is_none_or(|entry| entry.deprecated);
                all.push(System { number, outdated, numbers: Numbers::of(&node) });
            }
        });
        all
    })
}

/// Orders the two standard parallels of a conic projection, whose order has no meaning.
fn order_parallels(parameters: &mut [(String, f64)]) {
    let place = |name: &str| parameters.iter().position(|(known, _)| known == name);
    let (Some(first), Some(second)) = (place("standardparallel1"), place("standardparallel2")) else {
        return;
    };
    let value = |at: usize| parameters.get(at).map_or(0.0, |(_, value)| *value);
    let (a, b) = (value(first), value(second));
    for (at, value) in [(first, a.max(b)), (second, a.min(b))] {
        if let Some((_, slot)) = parameters.get_mut(at) {
            *slot = value;
        }
    }
}

/// Tolerance for the inverse flattening: files round it, but GRS 80 and WGS 84 differ when written in full.
fn flattening_slack(inverse: Option<f64>) -> f64 {
    let full = |inverse: f64| [298.257_222_101, 298.257_223_563].iter().any(|f| (inverse - f).abs() < 2e-8);
    if inverse.is_some_and(full) { 1e-6 } else { 1e-4 }
}

fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// The normalised name of a method; ESRI's name where GDAL has its own.
fn method(name: &str) -> String {
    let name = plain(name);
    let known = match name.as_str() {
        "lambertconformalconic1sp" | "lambertconformalconic2sp" => "lambertconformalconic",
        "albersconicequalarea" => "albers",
        "obliquestereographic" => "doublestereographic",
        "mercator1sp" | "mercator2sp" => "mercator",
        "cassinisoldner" => "cassini",
        "gausskruger" => "transversemercator",
        "equirectangular" => "equidistantcylindrical",
        "hotineobliquemercator" => "hotineobliquemercatorazimuthnaturalorigin",
        _ => return name,
    };
    known.to_owned()
}

/// The normalised name of a parameter. Centre and origin are synonyms.
fn parameter(name: &str) -> String {
    let name = plain(name);
    let known = match name.as_str() {
        "latitudeofcenter" => "latitudeoforigin",
        "longitudeofcenter" | "longitudeoforigin" => "centralmeridian",
        _ => return name,
    };
    known.to_owned()
}

/// The normalised name of a datum, without ESRI's prefix `D_` and without "Datum".
fn datum_name(name: &str) -> String {
    let name = plain(name.strip_prefix("D_").unwrap_or(name)).replace("datum", "");
    let known = match name.as_str() {
        "europeanterrestrialreferencesystem1989" => "etrs1989",
        "worldgeodeticsystem1984" => "wgs1984",
        _ => return name,
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BRITISH: &str = r#"PROJCS["NAME",GEOGCS["GCS_OSGB_1936",DATUM["D_OSGB_1936",SPHEROID["Airy_1830",6377563.396,299.3249646]],PRIMEM["Greenwich",0.0],UNIT["Degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],PARAMETER["False_Easting",400000.0],PARAMETER["False_Northing",-100000.0],PARAMETER["Central_Meridian",-2.0],PARAMETER["Scale_Factor",0.9996012717],PARAMETER["Latitude_Of_Origin",49.0],UNIT["Meter",1.0]]"#;

    #[test]
    fn a_name_counts_only_with_its_numbers_and_numbers_count_without_a_name() {
        let named = BRITISH.replace("NAME", "British_National_Grid");
        assert_eq!(identify(&named), Some(Crs::epsg(27700)));
        assert_eq!(identify(BRITISH), Some(Crs::epsg(27700)), "by its numbers");
        for (from, to) in [
            ("-2.0", "-3.0"),
            ("400000.0", "400100.0"),
            ("6377563.396", "6378137.0"),
            ("\"Meter\",1.0", "\"Foot\",0.3048"),
        ] {
            assert_eq!(identify(&named.replace(from, to)), None, "{to}");
        }
        assert_eq!(identify(&BRITISH.replace("D_OSGB_1936", "D_Atlantis")), None);
    }

    #[test]
    fn a_code_of_nobody_known_is_passed_over() {
        let text = BRITISH.replace("\"Meter\",1.0]]", "\"Meter\",1.0],AUTHORITY[\"ACME\",\"7\"]]");
        assert_eq!(identify(&text), Some(Crs::epsg(27700)));
    }

    #[test]
    fn a_code_settles_it_even_if_its_system_is_not_in_the_table() {
        // Cape_Lo15 of ESRI has other axes than EPSG's system of that name.
        let text = r#"PROJCRS["Cape_Lo15",BASEGEOGCRS["Cape",ID["EPSG",4222]],ID["ESRI",102470]]"#;
        assert_eq!(identify(text), None);
        assert_eq!(identify(&text.replace(",ID[\"ESRI\",102470]", "")), Some(Crs::epsg(22275)));
        let made_up = BRITISH.replace("\"Meter\",1.0]]", "\"Meter\",1.0],AUTHORITY[\"EPSG\",\"99999\"]]");
        assert_eq!(identify(&made_up), Some(Crs::epsg(27700)), "a number that EPSG does not give out");
    }

    #[test]
    fn another_method_is_another_system_whatever_its_name() {
        let named = BRITISH.replace("NAME", "British_National_Grid");
        assert_eq!(identify(&named.replace("Transverse_Mercator", "Cassini")), None);
        assert_eq!(identify(&named.replace("Transverse_Mercator", "Gauss_Kruger")), Some(Crs::epsg(27700)));
    }

    #[test]
    fn nearly_the_same_ellipsoid_is_another_one_where_it_is_written_in_full() {
        let utm = r#"PROJCS["NAD83 / UTM zone 10N",GEOGCS["GCS",DATUM["D_North_American_1983",SPHEROID["S",6378137.0,FLAT]],PRIMEM["Greenwich",0.0],UNIT["Degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],PARAMETER["False_Easting",500000.0],PARAMETER["Central_Meridian",-123.0],PARAMETER["Scale_Factor",0.9996],UNIT["Meter",1.0]]"#;
        for (flattening, found) in [
            ("298.257222101", Some(Crs::epsg(26910))),
            ("298.25722", Some(Crs::epsg(26910))),
            ("298.257223563", None),
        ] {
            assert_eq!(identify(&utm.replace("FLAT", flattening)), found, "{flattening}");
        }
    }

    /// As ESRI writes it: the standard parallels in the other order than EPSG's, and with all digits.
    #[test]
    fn the_parallels_of_a_cone_have_no_order() {
        let michigan = r#"PROJCS["NAD_1983_StatePlane_Michigan_South_FIPS_2113_Feet_Intl",GEOGCS["GCS_North_American_1983",DATUM["D_North_American_1983",SPHEROID["GRS_1980",6378137.0,298.257222101]],PRIMEM["Greenwich",0.0],UNIT["Degree",0.0174532925199433]],PROJECTION["Lambert_Conformal_Conic"],PARAMETER["False_Easting",13123359.58005249],PARAMETER["False_Northing",0.0],PARAMETER["Central_Meridian",-84.36666666666666],PARAMETER["Standard_Parallel_1",42.1],PARAMETER["Standard_Parallel_2",43.66666666666666],PARAMETER["Latitude_Of_Origin",41.5],UNIT["Foot",0.3048]]"#;
        assert_eq!(identify(michigan), Some(Crs::epsg(2253)));
        let unnamed = michigan.replace("NAD_1983_StatePlane_Michigan_South_FIPS_2113_Feet_Intl", "Custom");
        assert_eq!(identify(&unnamed), Some(Crs::epsg(2253)));
        assert_eq!(identify(&michigan.replace("42.1", "42.2")), None);
    }

    #[test]
    fn cut_and_deep_text_is_no_system() {
        assert_eq!(identify(&BRITISH[..BRITISH.len() - 2]), None);
        assert_eq!(identify(&"GEOGCS[".repeat(100_000)), None);
    }
}
