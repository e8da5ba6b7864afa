//! The tags of a picture that is written.

use std::fmt::Write;

use tidegate_geo::Crs;

use super::{CogOptions, RasterSpec, TileLevel};
use crate::codec::BlockForm;
use crate::head::{Compression, Predictor};

/// A tag with its values, in little-endian order.
pub(super) struct OutTag {
    pub(super) number: u16,
    pub(super) kind: u16,
    pub(super) count: u64,
    pub(super) bytes: Vec<u8>,
}

pub(super) fn shorts(number: u16, values: &[u16]) -> OutTag {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    OutTag { number, kind: 3, count: values.len() as u64, bytes }
}

pub(super) fn longs(number: u16, values: &[u32]) -> OutTag {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    OutTag { number, kind: 4, count: values.len() as u64, bytes }
}

fn doubles(number: u16, values: &[f64]) -> OutTag {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    OutTag { number, kind: 12, count: values.len() as u64, bytes }
}

fn text(number: u16, text: &str) -> OutTag {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    OutTag { number, kind: 2, count: bytes.len() as u64, bytes }
}

/// The tags of a resolution without the places of its tiles.
pub(super) fn picture(
    spec: &RasterSpec,
    options: &CogOptions,
    form: &BlockForm,
    level: &TileLevel,
    at: usize,
) -> Vec<OutTag> {
    let bands = spec.bands as usize;
    let mut tags = Vec::new();
    if at > 0 {
        tags.push(longs(254, &[1]));
    }
    tags.push(longs(256, &[level.width]));
    tags.push(longs(257, &[level.height]));
    tags.push(shorts(258, &vec![form.bits; bands]));
    tags.push(shorts(259, &[form.compression.tag()]));
    tags.push(shorts(262, &[spec.photometric]));
    tags.push(shorts(277, &[spec.bands as u16]));
    tags.push(shorts(284, &[1]));
    if form.predictor != Predictor::None {
        tags.push(shorts(317, &[form.predictor.tag()]));
    }
    if let Some(palette) = spec.palette.as_ref().filter(|_| spec.photometric == 3) {
        let count = 1usize << form.bits.min(16);
        let colour = |at: usize, part: usize| palette.get(at).map_or(0, |colour| colour[part]);
        let all: Vec<u16> = (0..3).flat_map(|part| (0..count).map(move |at| colour(at, part))).collect();
        tags.push(shorts(320, &all));
    }
    tags.push(longs(322, &[options.block]));
    tags.push(longs(323, &[options.block]));
    let colours = if spec.photometric == 2 { 3 } else { 1 };
    if bands > colours {
        let opacity = if spec.is_premultiplied { 1 } else { 2 };
        let kind = |band: usize| if spec.alpha == Some(band as u32) { opacity } else { 0 };
        tags.push(shorts(338, &(colours..bands).map(kind).collect::<Vec<u16>>()));
    }
    let format = match (spec.sample.is_float(), spec.sample.is_signed()) {
        (true, _) => 3,
        (_, true) => 2,
        _ => 1,
    };
    tags.push(shorts(339, &vec![format; bands]));
    if at == 0 {
        place(spec, &mut tags);
        if let Some(xml) = metadata(spec) {
            tags.push(text(42112, &xml));
        }
    }
    if let Some(nodata) = &spec.nodata {
        tags.push(text(42113, &nodata.to_string()));
    }
    tags
}

/// The tags of the mask of a resolution.
pub(super) fn mask(
    options: &CogOptions,
    compression: Compression,
    level: &TileLevel,
    at: usize,
) -> Vec<OutTag> {
    let compression = if compression == Compression::None { compression } else { Compression::Deflate };
    vec![
        longs(254, &[if at > 0 { 5 } else { 4 }]),
        longs(256, &[level.width]),
        longs(257, &[level.height]),
        shorts(258, &[1]),
        shorts(259, &[compression.tag()]),
        shorts(262, &[4]),
        shorts(277, &[1]),
        shorts(284, &[1]),
        longs(322, &[options.block]),
        longs(323, &[options.block]),
        shorts(339, &[1]),
    ]
}

fn place(spec: &RasterSpec, tags: &mut Vec<OutTag>) {
    if spec.is_placed {
        let [mut x0, xc, xr, mut y0, yc, yr] = spec.grid.transform.0;
        if spec.is_point {
            // Positions name the middle of pixels.
            (x0, y0) = (x0 + (xc + xr) / 2.0, y0 + (yc + yr) / 2.0);
        }
        if xr == 0.0 && yc == 0.0 && xc > 0.0 && yr < 0.0 {
            tags.push(doubles(33550, &[xc, -yr, 0.0]));
            tags.push(doubles(33922, &[0.0, 0.0, 0.0, x0, y0, 0.0]));
        } else {
            let matrix = [xc, xr, 0.0, x0, yc, yr, 0.0, y0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
            tags.push(doubles(34264, &matrix));
        }
    }
    let (keys, words) = keys(spec.grid.crs.as_ref(), spec.is_point);
    if spec.is_placed || spec.grid.crs.is_some() {
        tags.push(shorts(34735, &keys));
        if !words.is_empty() {
            tags.push(text(34737, &words));
        }
    }
}

/// The keys of GeoTIFF for a system, and the text beside them.
fn keys(crs: Option<&Crs>, is_point: bool) -> (Vec<u16>, String) {
    let mut all: Vec<[u16; 4]> = vec![[1025, 0, 1, if is_point { 2 } else { 1 }]];
    let mut words = String::new();
    if let Some(crs) = crs {
        let geographic = crs.entry().is_some_and(|entry| entry.geographic);
        let (model, key, citation) = if geographic { (2, 2048, 2049) } else { (1, 3072, 3073) };
        all.insert(0, [1024, 0, 1, model]);
        let code = crs.epsg_code().and_then(|code| u16::try_from(code).ok()).filter(|code| *code < 32767);
        all.push([key, 0, 1, code.unwrap_or(32767)]);
        if code.is_none() {
            let wkt = crs.esri_wkt().unwrap_or_else(|| crs.to_string());
            let _ = write!(words, "ESRI PE String = {wkt}|");
            all.push([citation, 34737, u16::try_from(words.len()).unwrap_or(u16::MAX), 0]);
        }
    }
    let mut keys = vec![1, 1, 0, all.len() as u16];
    keys.extend(all.into_iter().flatten());
    (keys, words)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// GDAL escapes the texts of its metadata twice, and expects it.
fn twice(text: &str) -> String {
    escaped(&escaped(text))
}

/// GDAL's metadata.
fn metadata(spec: &RasterSpec) -> Option<String> {
    let mut items = String::new();
    for (domain, name, value) in &spec.metadata {
        // What describes the file that was read does not describe this one.
        if name == "AREA_OR_POINT" || matches!(domain.as_str(), "IMAGE_STRUCTURE" | "DERIVED_SUBDATASETS") {
            continue;
        }
        let domain =
            if domain.is_empty() { String::new() } else { format!(" domain=\"{}\"", escaped(domain)) };
        let _ = writeln!(items, "  <Item name=\"{}\"{domain}>{}</Item>", escaped(name), twice(value));
    }
    for (band, info) in spec.band_info.iter().enumerate().take(spec.bands as usize) {
        let mut item = |name: &str, role: &str, value: &str| {
            let role = if role.is_empty() { String::new() } else { format!(" role=\"{role}\"") };
            let _ = writeln!(
                items,
                "  <Item name=\"{}\" sample=\"{band}\"{role}>{}</Item>",
                escaped(name),
                twice(value)
            );
        };
        if let Some(name) = &info.name {
            item("DESCRIPTION", "description", name);
        }
        if info.scale != 1.0 || info.offset != 0.0 {
            item("OFFSET", "offset", &info.offset.to_string());
            item("SCALE", "scale", &info.scale.to_string());
        }
        if let Some(unit) = &info.unit {
            item("UNITTYPE", "unittype", unit);
        }
        for (name, value) in info.metadata.iter().filter(|(name, _)| !name.starts_with("STATISTICS_")) {
            item(name, "", value);
        }
    }
    (!items.is_empty()).then(|| format!("<GDALMetadata>\n{items}</GDALMetadata>\n"))
}
