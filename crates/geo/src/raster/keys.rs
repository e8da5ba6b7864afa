//! The keys of GeoTIFF, and the system that they name.
//!
//! A code settles it. A system of the user's own is told by text beside the keys (ESRI writes its
//! well-known text there, others a name), or by method and parameters; these are written out as
//! well-known text and found by their numbers like any other definition.

use std::fmt::Write;

use tidegate_core::Code;

use super::tags::Tags;
use crate::bounds::Bounds;
use crate::crs::Crs;
use crate::error::Problem;

const MODEL: u64 = 1024;
const RASTER: u64 = 1025;
const CITATIONS: [u64; 3] = [3073, 1026, 2049];
const GEOGRAPHIC: u64 = 2048;
const GEOGRAPHIC_CITATION: u64 = 2049;
const PROJECTED: u64 = 3072;
const CITATION: u64 = 1026;
const PROJECTED_CITATION: u64 = 3073;
const ZONE: u64 = 3074;
const METHOD: u64 = 3075;
const UNIT: u64 = 3076;
/// A picture of the whole globe may begin anywhere, and the grids of some reach beyond it.
const LONGITUDE_MAX: f64 = 540.5;
const LATITUDE_MAX: f64 = 95.0;
/// What stands where there is no code.
const OWN: u64 = 32767;

/// The texts in a citation, without what each is called.
fn parts(citation: &str) -> impl Iterator<Item = &str> {
    citation.split('|').map(|part| part.split_once(" = ").map_or(part, |(_, text)| text).trim())
}

/// The value of a GeoKey.
enum GeoKeyValue {
    Short(u64),
    Double(f64),
    Text(String),
}

/// The GeoKeys of a GeoTIFF: key ids with their values.
pub struct GeoKeys(Vec<(u64, GeoKeyValue)>);

impl GeoKeys {
    /// The keys that the tags of a picture hold; nothing if there are none.
    #[must_use]
    pub fn read(tags: &Tags) -> Option<GeoKeys> {
        let directory = tags.numbers(34735);
        let (doubles, text) = (tags.doubles(34736), tags.text(34737).unwrap_or_default());
        let entries = directory.chunks_exact(4).skip(1);
        let keys: Vec<(u64, GeoKeyValue)> = entries
            .filter_map(|entry| {
                let [key, place, count, at] = entry else { return None };
                let from = usize::try_from(*at).ok()?;
                let value = match place {
                    0 => GeoKeyValue::Short(*at),
                    34736 => GeoKeyValue::Double(*doubles.get(from)?),
                    34737 => {
                        let to = from.checked_add(usize::try_from(*count).ok()?)?;
                        GeoKeyValue::Text(
                            text.get(from..to.min(text.len()))?.trim_end_matches('|').to_owned(),
                        )
                    }
                    _ => return None,
                };
                Some((*key, value))
            })
            .collect();
        (!keys.is_empty()).then_some(GeoKeys(keys))
    }

    fn short(&self, wanted: u64) -> Option<u64> {
        self.0.iter().find_map(|(key, value)| match value {
            GeoKeyValue::Short(n) if *key == wanted => Some(*n),
            _ => None,
        })
    }

    fn text(&self, wanted: u64) -> Option<&str> {
        self.0.iter().find_map(|(key, value)| match value {
            GeoKeyValue::Text(text) if *key == wanted => Some(text.as_str()),
            _ => None,
        })
    }

    /// The geographic system under a projected one: by its code, else by the name told of it.
    fn base(&self) -> Option<Crs> {
        let code =
            self.short(GEOGRAPHIC).filter(|code| *code != OWN).and_then(|code| u32::try_from(code).ok());
        let named = || {
            let mut all = parts(self.text(GEOGRAPHIC_CITATION)?);
            all.find_map(|part| part.parse::<Crs>().ok())
        };
        let found = code.map(Crs::epsg).or_else(named);
        found.filter(|crs| crs.entry().is_some_and(|entry| entry.geographic))
    }

    /// The first of these that holds a number.
    fn double(&self, wanted: &[u64]) -> Option<f64> {
        wanted.iter().find_map(|wanted| {
            self.0.iter().find_map(|(key, value)| match value {
                GeoKeyValue::Double(x) if key == wanted => Some(*x),
                _ => None,
            })
        })
    }

    /// Whether a position names the middle of a pixel, not its corner.
    #[must_use]
    pub fn is_point(&self) -> bool {
        self.short(RASTER) == Some(2)
    }

    /// Whether the keys speak of a projected system. One may be told by nothing but its name beside the code of
    /// the geographic system under it, which must not pass for the whole.
    fn is_projected(&self) -> bool {
        match self.short(MODEL) {
            Some(1) => true,
            Some(2 | 3) => false,
            _ => {
                let has = |wanted: u64| self.0.iter().any(|(key, _)| *key == wanted);
                [PROJECTED, PROJECTED_CITATION, ZONE, METHOD, UNIT].into_iter().any(has)
                    || self.names_projected()
            }
        }
    }

    /// Whether the text for the whole names a projected system.
    fn names_projected(&self) -> bool {
        let named = |part: &str| part.parse::<Crs>().ok().and_then(|crs| crs.entry());
        let mut all = self.text(CITATION).into_iter().flat_map(parts).filter(|part| part.len() > 6);
        all.any(|part| part.starts_with("PROJC") || named(part).is_some_and(|entry| !entry.geographic))
    }

    /// The system; nothing if the keys say nothing of one. The bounds are those of the pixels: no degrees are
    /// millions.
    #[must_use]
    pub fn crs(&self, bounds: Option<Bounds>) -> Option<Result<Crs, Problem>> {
        let degrees = bounds.is_none_or(|b| {
            [b.min_x, b.max_x].iter().all(|x| x.abs() <= LONGITUDE_MAX)
                && [b.min_y, b.max_y].iter().all(|y| y.abs() <= LATITUDE_MAX)
        });
        let found = self.told(self.is_projected());
        let Some(Ok(crs)) = &found else { return found };
        if degrees || !crs.entry().is_some_and(|entry| entry.geographic) {
            return found;
        }
        // What else the keys say may be of the system that these are the bounds of.
        if let Some(Ok(other)) = self.told(true) {
            return Some(Ok(other));
        }
        let Bounds { min_x, min_y, max_x, max_y } = bounds?;
        let message = format!(
            "the GeoTIFF keys name {crs}, which is in degrees, and the pixels lie between {min_x} {min_y} and {max_x} {max_y}"
        );
        Some(Err(Problem::new(Code::CRS_MISMATCH, message)))
    }

    fn told(&self, is_projected: bool) -> Option<Result<Crs, Problem>> {
        let key = if is_projected { PROJECTED } else { GEOGRAPHIC };
        let code = self.short(key).filter(|code| *code != 0);
        if let Some(code) = code.filter(|code| *code != OWN) {
            return Some(format!("EPSG:{code}").parse());
        }
        let told: Vec<&str> = CITATIONS.iter().filter_map(|wanted| self.text(*wanted)).collect();
        let parts: Vec<&str> = told.iter().flat_map(|text| parts(text)).collect();
        // Text for another kind of system than the one asked for means something else.
        let read = |part: &&str| {
            let found = part.parse::<Crs>().ok()?;
            found.entry().is_some_and(|entry| entry.geographic != is_projected).then_some(found)
        };
        let defined = parts.iter().filter(|part| part.contains('[')).find_map(read);
        // A name counts only where no numbers speak for themselves.
        let numbered = self.short(METHOD).or(self.short(ZONE)).is_some_and(|n| n != 0 && n != OWN);
        let named = || parts.iter().filter(|part| !numbered && part.len() > 6).find_map(read);
        if let Some(found) = defined.or_else(|| self.by_numbers()).or_else(named) {
            return Some(Ok(found));
        }
        if code.is_none() && told.is_empty() {
            return None;
        }
        let tried = "its code, its citations, its method and parameters";
        let said: String = told.join("; ").chars().take(80).collect();
        let message = format!("no system found in the GeoTIFF keys ({said:?}); tried {tried}");
        Some(Err(Problem::new(Code::CRS_NOT_FOUND, message)))
    }

    /// By method and parameters.
    fn by_numbers(&self) -> Option<Crs> {
        let unit = match self.short(UNIT)? {
            9001 => "UNIT[\"Meter\",1.0]",
            9002 => "UNIT[\"Foot\",0.3048]",
            9003 => "UNIT[\"Foot_US\",0.304800609601219]",
            _ => return None,
        };
        let mut text = format!("PROJCS[\"\",{}", self.base()?.esri_wkt()?);
        let zone = self.short(ZONE).filter(|zone| matches!(zone, 16001..=16060 | 16101..=16160));
        if let Some(zone) = zone {
            let (meridian, north) =
                ((zone % 100) as f64 * 6.0 - 183.0, if zone > 16100 { 10_000_000.0 } else { 0.0 });
            let _ = write!(
                text,
                ",PROJECTION[\"Transverse_Mercator\"],PARAMETER[\"False_Easting\",500000],\
                 PARAMETER[\"False_Northing\",{north}],PARAMETER[\"Central_Meridian\",{meridian}],\
                 PARAMETER[\"Scale_Factor\",0.9996],PARAMETER[\"Latitude_Of_Origin\",0],{unit}]"
            );
            return text.parse().ok();
        }
        let method = match self.short(METHOD)? {
            1 => "Transverse_Mercator",
            7 => "Mercator",
            8 | 9 => "Lambert_Conformal_Conic",
            10 => "Lambert_Azimuthal_Equal_Area",
            11 => "Albers",
            12 => "Azimuthal_Equidistant",
            13 => "Equidistant_Conic",
            16 => "Double_Stereographic",
            17 => "Equidistant_Cylindrical",
            18 => "Cassini",
            20 => "Miller_Cylindrical",
            22 => "Polyconic",
            23 => "Robinson",
            24 => "Sinusoidal",
            _ => return None,
        };
        let _ = write!(text, ",PROJECTION[\"{method}\"]");
        for (name, keys) in [
            ("Standard_Parallel_1", &[3078][..]),
            ("Standard_Parallel_2", &[3079]),
            ("Central_Meridian", &[3084, 3080, 3088]),
            ("Latitude_Of_Origin", &[3085, 3081, 3089]),
            ("False_Easting", &[3086, 3082, 3090]),
            ("False_Northing", &[3087, 3083, 3091]),
            ("Scale_Factor", &[3092, 3093]),
        ] {
            if let Some(value) = self.double(keys) {
                let _ = write!(text, ",PARAMETER[\"{name}\",{value:?}]");
            }
        }
        let _ = write!(text, ",{unit}]");
        text.parse().ok()
    }
}
