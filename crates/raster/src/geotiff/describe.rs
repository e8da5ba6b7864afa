//! From the directories of a file, and the files beside it, to the head of a raster.

use tidegate_geo::raster::{GeoKeys, Tags, transform_of};
use tidegate_geo::{Bounds, xml};

use super::directory::{Directory, DirectoryChain, HeadBytes};
use super::picture::Picture;
use super::sidecar::{self, AuxXml};
use crate::error::RasterError;
use crate::grid::{Affine, RasterGrid};
use crate::head::{BandInfo, MaskKind, NoData, PlacedBy, RasterHead, promises_cog};
use crate::limits::RasterLimits;
use crate::sample::{Pixel, SampleType};
use crate::with_pixel;

/// The tags that say where pixels lie, and what they are.
const TOLD: [u16; 9] = [33550, 33922, 34264, 34735, 34736, 34737, 42112, 42113, 338];
const REDUCED: u64 = 1;
const MASK: u64 = 4;

/// The pictures of a file, by what they are for.
pub(super) struct Pictures {
    /// The full one, then overviews, then masks in the same order.
    pub(super) all: Vec<Picture>,
    /// How many of them are not masks.
    pub(super) levels: usize,
}

/// Sorts the directories: the picture, its overviews from large to small, its masks.
pub(super) fn pictures(
    head: &HeadBytes,
    chain: &DirectoryChain,
    limits: &RasterLimits,
    warnings: &mut Vec<String>,
) -> Result<Pictures, RasterError> {
    let Some((first, rest)) = chain.all.split_first() else {
        return Err(RasterError::header("the file names no directory"));
    };
    let full = Picture::read(head, first, limits)?;
    let (mut levels, mut masks, mut others) = (Vec::new(), Vec::new(), 0);
    for directory in rest {
        let kind = match directory.numbers(head, limits, 254)?.get(0) {
            Some(kind) => kind,
            None if directory.numbers(head, limits, 255)?.get(0) == Some(2) => REDUCED,
            None => 0,
        };
        if kind & (REDUCED | MASK) == 0 {
            others += 1;
            continue;
        }
        let picture = match Picture::read(head, directory, limits) {
            Ok(picture) => picture,
            Err(error) if kind & MASK == 0 && !error.is_transient() => {
                warnings.push(format!("an overview cannot be read: {error}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        if kind & MASK != 0 {
            masks.push(picture);
        } else if (picture.bands, picture.sample) == (full.bands, full.sample)
            && picture.level.width <= full.level.width
            && picture.level.height <= full.level.height
        {
            levels.push(picture);
        } else {
            warnings.push("an overview has other bands than the picture; it is left out".to_owned());
        }
    }
    if others > 0 {
        warnings.push(format!("the file holds {others} further pictures, which are not read"));
    }
    levels.sort_by_key(|picture| std::cmp::Reverse((picture.level.width, picture.level.height)));
    levels.insert(0, full);
    // A mask belongs to the resolution of its own size.
    let mut all = levels;
    let count = all.len();
    for at in 0..count {
        let size = (all[at].level.width, all[at].level.height);
        let found = masks.iter().position(|mask| (mask.level.width, mask.level.height) == size);
        match found {
            Some(found) => all.push(masks.swap_remove(found)),
            None if at == 0 => break,
            None => {
                // Without its mask an overview would show what is masked.
                warnings.push(format!(
                    "the overview of {} x {} pixels has no mask; it and smaller ones are left out",
                    size.0, size.1
                ));
                break;
            }
        }
    }
    let missing = count - (all.len() - count).min(count);
    if all.len() > count && missing > 0 {
        let keep = count - missing;
        let masks = all.split_off(count);
        all.truncate(keep);
        all.extend(masks);
        return Ok(Pictures { all, levels: keep });
    }
    Ok(Pictures { all, levels: count })
}

fn nodata_fits<T: Pixel>(nodata: &NoData) -> bool {
    nodata.of::<T>().is_some()
}

/// Reads the head.
pub(super) fn head(
    head: &HeadBytes,
    chain: &DirectoryChain,
    pictures: &Pictures,
    limits: &RasterLimits,
    mut warnings: Vec<String>,
) -> Result<RasterHead, RasterError> {
    let (Some(first), Some(full)) = (chain.all.first(), pictures.all.first()) else {
        return Err(RasterError::header("the file names no directory"));
    };
    let (width, height, bands, sample) = (full.level.width, full.level.height, full.bands, full.sample);
    let tags = told(head, first, limits)?;
    let keys = GeoKeys::read(&tags);
    let mut transform = transform_of(&tags).map(Affine);
    if transform.is_some_and(|affine| affine.inverse().is_none()) {
        warnings.push("the pixels of the GeoTIFF tags have no area; the tags are not believed".to_owned());
        transform = None;
    }
    let mut placed_by = transform.map(|_| PlacedBy::Tags);
    let ghost = ghost(head, chain)?;
    let bounds_of = |transform: Option<Affine>| -> Option<Bounds> {
        transform.and_then(|transform| RasterGrid { width, height, transform, crs: None }.bounds())
    };
    let is_complete = promises_cog(ghost.as_deref())
        && keys.as_ref().and_then(|keys| keys.crs(bounds_of(transform))).is_some_and(|crs| crs.is_ok())
        && transform.is_some();
    let aux = match is_complete && !head.source.looks_beside_cogs() {
        true => AuxXml::default(),
        false => sidecar::aux_xml(head.source.as_ref())?.unwrap_or_default(),
    };
    if let Some(found) = aux.transform {
        (transform, placed_by) = (Some(found), Some(PlacedBy::AuxXml));
    }
    if transform.is_none() {
        transform = sidecar::world_file(head.source.as_ref())?;
        placed_by = transform.map(|_| PlacedBy::WorldFile);
    }
    let is_point = keys.as_ref().is_some_and(GeoKeys::is_point);
    let crs = aux.crs.or_else(|| keys.and_then(|keys| keys.crs(bounds_of(transform))));

    let mut band_info = vec![BandInfo::default(); bands as usize];
    let mut metadata = Vec::new();
    if let Some(text) = tags.text(42112) {
        match xml::parse(text.as_bytes()) {
            Ok(root) => gdal_metadata(&root, &mut band_info, &mut metadata),
            Err(problem) => warnings.push(format!("GDAL's metadata cannot be read: {}", problem.message)),
        }
    }
    metadata.extend(aux.metadata);
    let mut nodata = tags.text(42113).and_then(|text| told_nodata(&text, &mut warnings));
    for (band, info, of_band) in aux.bands {
        nodata = nodata.or(of_band);
        let Some(known) = band_info.get_mut(band as usize) else { continue };
        known.name = info.name.or(known.name.take());
        known.unit = info.unit.or(known.unit.take());
        if (info.scale, info.offset) != (1.0, 0.0) {
            (known.scale, known.offset) = (info.scale, info.offset);
        }
        known.metadata.extend(info.metadata);
    }
    if let Some(value) = nodata.filter(|nodata| !with_pixel!(sample, T => nodata_fits::<T>(nodata))) {
        warnings.push(format!("no {sample} value can be the nodata value {value}; it is left out"));
        nodata = None;
    }
    let extra = tags.numbers(338);
    let alpha_at = extra.iter().position(|kind| matches!(kind, 1 | 2));
    let alpha = alpha_at.and_then(|at| (bands as usize).checked_sub(extra.len() - at)).map(|at| at as u32);
    let mask_levels: Vec<_> =
        pictures.all.iter().skip(pictures.levels).map(|picture| picture.level.clone()).collect();
    Ok(RasterHead {
        width,
        height,
        bands,
        sample,
        transform,
        placed_by,
        crs,
        is_point,
        nodata,
        mask: (!mask_levels.is_empty()).then_some(MaskKind::Inside),
        alpha,
        is_premultiplied: alpha_at.is_some_and(|at| extra.get(at) == Some(&1)),
        palette: palette(head, first, limits, sample, full.level.photometric)?,
        band_info,
        metadata,
        levels: pictures.all.iter().take(pictures.levels).map(|picture| picture.level.clone()).collect(),
        mask_levels,
        is_big: chain.form.big,
        is_big_endian: chain.form.big_endian,
        ghost,
        warnings,
    })
}

fn told(head: &HeadBytes, directory: &Directory, limits: &RasterLimits) -> Result<Tags, RasterError> {
    let mut all = Vec::new();
    for tag in TOLD {
        if let Some((kind, bytes)) = directory.bytes(head, limits, tag)? {
            all.push((tag, kind, bytes.to_vec()));
        }
    }
    Ok(Tags::new(all, directory.form.big_endian))
}

/// The nodata value; of a list of equal values or one that begins with a number, that number.
fn told_nodata(text: &str, warnings: &mut Vec<String>) -> Option<NoData> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    if text.is_empty() {
        return None;
    }
    if let Ok(nodata) = text.parse() {
        return Some(nodata);
    }
    let first = text.split([',', ' ', ';']).next().unwrap_or_default();
    let found = first.parse().ok();
    let ending =
        found.map_or_else(|| "it is left out".to_owned(), |found: NoData| format!("{found} is used"));
    warnings.push(format!("the nodata value is {text:?}, which is no number; {ending}"));
    found
}

/// GDAL escapes the texts of its metadata twice.
fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

fn gdal_metadata(root: &xml::Node, bands: &mut [BandInfo], metadata: &mut Vec<(String, String, String)>) {
    for item in root.children.iter().filter(|node| node.name == "Item") {
        let name = item.attribute("name").unwrap_or_default();
        let value = &unescaped(item.text.trim());
        let Some(band) = item.attribute("sample").and_then(|text| text.parse::<usize>().ok()) else {
            let domain = item.attribute("domain").unwrap_or_default();
            metadata.push((domain.to_owned(), name.to_owned(), value.to_owned()));
            continue;
        };
        let Some(info) = bands.get_mut(band) else { continue };
        match item.attribute("role") {
            Some("scale") => info.scale = value.parse().unwrap_or(1.0),
            Some("offset") => info.offset = value.parse().unwrap_or(0.0),
            Some("description") => info.name = Some(value.to_owned()),
            Some("unittype") => info.unit = Some(value.to_owned()),
            _ => info.metadata.push((name.to_owned(), value.to_owned())),
        }
    }
}

fn palette(
    head: &HeadBytes,
    directory: &Directory,
    limits: &RasterLimits,
    sample: SampleType,
    photometric: u16,
) -> Result<Option<Vec<[u16; 3]>>, RasterError> {
    if photometric != 3 || !matches!(sample, SampleType::U8 | SampleType::U16) {
        return Ok(None);
    }
    let all: Vec<u16> = directory.numbers(head, limits, 320)?.iter().map(|n| n as u16).collect();
    let count = all.len() / 3;
    let colours = (0..count).map(|at| [all[at], all[count + at], all[2 * count + at]]).collect();
    Ok((count > 0).then_some(colours))
}

/// GDAL's promise of how a COG is laid out, which stands behind the header.
fn ghost(head: &HeadBytes, chain: &DirectoryChain) -> Result<Option<String>, RasterError> {
    let start = if chain.form.big { 16 } else { 8 };
    let bytes = head.read(start, head.size().saturating_sub(start).min(4096))?;
    let text =
        |range: std::ops::Range<usize>| bytes.get(range).and_then(|part| std::str::from_utf8(part).ok());
    if !bytes.starts_with(b"GDAL_STRUCTURAL_METADATA_SIZE=") {
        return Ok(None);
    }
    let len = text(30..36).and_then(|digits| digits.parse::<usize>().ok()).unwrap_or(0);
    Ok(text(43..43 + len.min(4000)).map(str::to_owned))
}
