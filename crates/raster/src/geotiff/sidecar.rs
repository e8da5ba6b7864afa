//! What files beside a raster say of it: world files (`.tfw`) and GDAL's `.aux.xml`.
//!
//! Such a file is there and read, or is not there; one that fails to be read fails the raster.

use tidegate_geo::{Crs, Problem, xml};

use crate::error::RasterError;
use crate::grid::Affine;
use crate::head::{BandInfo, NoData};
use crate::source::{ByteSource, SidecarName};

/// More than any such file has.
const LEN_MAX: u64 = 16 << 20;

fn read(source: &dyn ByteSource, name: SidecarName<'_>) -> Result<Option<Vec<u8>>, RasterError> {
    let Some(beside) = source.beside(name)? else { return Ok(None) };
    let len = beside.size()?;
    if len > LEN_MAX {
        return Err(
            RasterError::too_large(format!("it has {len} bytes; the limit is {LEN_MAX}")).of(beside.name())
        );
    }
    let bytes = beside.read_at(0, len as usize)?;
    beside.unchanged()?;
    Ok(Some(bytes.to_vec()))
}

/// The transform of a world file: six numbers, of which the last two are the middle of the first pixel.
pub(super) fn world_file(source: &dyn ByteSource) -> Result<Option<Affine>, RasterError> {
    for extension in ["tfw", "tifw", "wld"] {
        let Some(bytes) = read(source, SidecarName::Instead(extension))? else { continue };
        let text = String::from_utf8_lossy(&bytes).replace(',', ".");
        let numbers: Vec<f64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let &[xc, yc, xr, yr, x, y] =
            numbers.get(..6).and_then(|six| six.first_chunk::<6>()).ok_or_else(|| {
                RasterError::header(format!("the world file beside it (.{extension}) is not six numbers"))
            })?;
        let affine = Affine([x - (xc + xr) / 2.0, xc, xr, y - (yc + yr) / 2.0, yc, yr]);
        if affine.inverse().is_none() {
            return Err(RasterError::header(format!(
                "the pixels of the world file (.{extension}) have no area"
            )));
        }
        return Ok(Some(affine));
    }
    Ok(None)
}

/// What GDAL wrote beside a raster.
#[derive(Default)]
pub(super) struct AuxXml {
    pub(super) transform: Option<Affine>,
    pub(super) crs: Option<Result<Crs, Problem>>,
    pub(super) metadata: Vec<(String, String, String)>,
    /// By band, counted from 0.
    pub(super) bands: Vec<(u32, BandInfo, Option<NoData>)>,
}

pub(super) fn aux_xml(source: &dyn ByteSource) -> Result<Option<AuxXml>, RasterError> {
    let Some(bytes) = read(source, SidecarName::Added("aux.xml"))? else { return Ok(None) };
    let broken = |why: &str| RasterError::header(format!("the .aux.xml beside it: {why}"));
    let root = xml::parse(&bytes).map_err(|problem| broken(&problem.message))?;
    let mut found = AuxXml::default();
    if let Some(node) = root.child("GeoTransform") {
        let numbers: Option<Vec<f64>> = node.text.split(',').map(|word| word.trim().parse().ok()).collect();
        let six = numbers.and_then(|all| <[f64; 6]>::try_from(all).ok());
        found.transform = Some(Affine(six.ok_or_else(|| broken("its GeoTransform is not six numbers"))?));
    }
    if let Some(node) = root.child("SRS").filter(|node| !node.text.trim().is_empty()) {
        found.crs = Some(node.text.trim().parse());
    }
    metadata(&root, |domain, name, value| {
        found.metadata.push((domain.to_owned(), name.to_owned(), value.to_owned()));
    });
    for node in root.children.iter().filter(|node| node.name == "PAMRasterBand") {
        let number = node.attribute("band").and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
        let Some(band) = number.checked_sub(1) else { return Err(broken("a band has no number")) };
        let text = |name: &str| node.child(name).map(|child| child.text.trim().to_owned());
        let number = |name: &str, or: f64| match text(name) {
            None => Ok(or),
            Some(text) => text.parse().map_err(|_| broken(&format!("{name} is {text:?}"))),
        };
        let mut info = BandInfo {
            name: text("Description"),
            scale: number("Scale", 1.0)?,
            offset: number("Offset", 0.0)?,
            unit: text("UnitType"),
            metadata: Vec::new(),
        };
        metadata(node, |_, name, value| info.metadata.push((name.to_owned(), value.to_owned())));
        let nodata = text("NoDataValue").map(|text| text.parse()).transpose()?;
        found.bands.push((band, info, nodata));
    }
    Ok(Some(found))
}

fn metadata(node: &xml::Node, mut take: impl FnMut(&str, &str, &str)) {
    for list in node.children.iter().filter(|child| child.name == "Metadata") {
        let domain = list.attribute("domain").unwrap_or_default();
        for item in list.children.iter().filter(|child| child.name == "MDI") {
            take(domain, item.attribute("key").unwrap_or_default(), item.text.trim());
        }
    }
}
