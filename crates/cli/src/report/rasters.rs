//! The rasters of a run: where they lie, and small pictures of some of them.
//!
//! The files are read when the report is written, so a run without a report costs nothing. Pictures
//! are few and small ([`thumbnail`] reads overviews only), rejected rasters first: they are what
//! somebody opens the report for. Remote rasters are not fetched again.

use std::fmt::Write;
use std::fs;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidegate_client::objects::AllowedObjects;
use tidegate_pipeline::manifest::Manifest;
use tidegate_pipeline::raster::is_remote;
use tidegate_pipeline::telemetry::{PlaceKind, SeenRaster};
use tidegate_raster::{FileBytes, GeoTiff, RasterLimits, outline, thumbnail};
use tidegate_sim::report::escape;

use super::map::MapArea;
use crate::progress::thousands;

/// The most rasters with a picture on one page.
pub(crate) const PICTURES_MAX: usize = 24;
/// The longest side of a picture, in pixels.
const SIDE_MAX: u32 = 256;
/// The most bytes of all pictures on one page.
const PICTURES_LEN_MAX: usize = 2 << 20;

/// The field of the records that holds the address of a raster, if the pipeline has rasters.
pub(crate) fn field(manifest: &Manifest) -> Option<&str> {
    let pipeline = &manifest.pipeline;
    let step = pipeline.steps.iter().rev().find_map(|step| step.raster.as_ref());
    let has_list = pipeline.source.as_ref().is_some_and(|source| !source.rasters.is_empty());
    step.map(|step| step.field.as_str()).or(has_list.then_some("path"))
}

/// Makes pictures until there are too many, or too many bytes.
pub(crate) struct Album {
    pictures_left: usize,
    len_left: usize,
}

impl Default for Album {
    fn default() -> Album {
        Album { pictures_left: PICTURES_MAX, len_left: PICTURES_LEN_MAX }
    }
}

/// What a page shows of a raster.
pub(crate) struct RasterView {
    /// The picture as a `data:` address, or why there is none.
    pub(crate) picture: Result<String, String>,
    /// Its size, values and system.
    pub(crate) facts: Option<String>,
    /// Its outline in degrees.
    pub(crate) outline: Option<Vec<(f64, f64)>>,
}

impl RasterView {
    fn none(why: &str) -> RasterView {
        RasterView { picture: Err(why.to_owned()), facts: None, outline: None }
    }
}

impl Album {
    /// Whether another raster may be looked at.
    pub(crate) fn has_room(&self) -> bool {
        self.pictures_left > 0
    }

    /// Looks at the raster that a record names, if it may be opened.
    pub(crate) fn look(&mut self, named: &str, allowed: &AllowedObjects) -> RasterView {
        self.pictures_left = self.pictures_left.saturating_sub(1);
        if is_remote(named) {
            return RasterView::none("a remote raster is not fetched again");
        }
        // A result is named from where the run was started, other rasters from the manifest.
        let here = || fs::canonicalize(named).map(|path| path.display().to_string()).unwrap_or_default();
        let path = match allowed.file(named).or_else(|refused| allowed.file(&here()).map_err(|_| refused)) {
            Ok(path) => path,
            Err(refused) => return RasterView::none(&refused.to_string()),
        };
        let opened =
            FileBytes::open(&path).and_then(|bytes| GeoTiff::open(Arc::new(bytes), &RasterLimits::default()));
        let raster = match opened {
            Ok(raster) => raster,
            Err(error) => return RasterView::none(&error.message),
        };
        let head = raster.head();
        let crs = head.crs.as_ref().and_then(|crs| crs.as_ref().ok());
        let facts = format!(
            "{} × {} pixels, {} × {}, {}",
            thousands(head.width.into()),
            thousands(head.height.into()),
            head.bands,
            head.sample,
            crs.map_or_else(|| "no CRS".to_owned(), ToString::to_string)
        );
        let picture = thumbnail(&raster, SIDE_MAX).map_err(|error| error.message).and_then(|made| {
            self.len_left =
                self.len_left.checked_sub(made.png.len()).ok_or("left out: the page would grow")?;
            Ok(format!("data:image/png;base64,{}", STANDARD.encode(&made.png)))
        });
        RasterView { picture, facts: Some(facts), outline: outline(head) }
    }
}

/// The last part of an address.
fn name(address: &str) -> &str {
    let bare = address.split(['?', '#']).next().unwrap_or(address);
    bare.rsplit(['/', '\\']).next().unwrap_or(bare)
}

/// The rasters of a report: outlines for the map, and the section with pictures.
pub(super) fn section(
    seen: &[SeenRaster],
    all: u64,
    words: [&str; 3],
    allowed: &AllowedObjects,
) -> (Vec<MapArea>, String) {
    if seen.is_empty() {
        return (Vec::new(), String::new());
    }
    let mut album = Album::default();
    let mut order: Vec<&SeenRaster> = seen.iter().collect();
    order.sort_by_key(|raster| raster.kind != PlaceKind::Dead);
    let (mut areas, mut cards, mut shown) = (Vec::new(), String::new(), 0);
    for raster in order {
        let (word, class) = match raster.kind {
            PlaceKind::Committed => (words[0], "good"),
            PlaceKind::NoMatch => (words[1], "fair"),
            PlaceKind::Dead => (words[2], "bad"),
        };
        let mut ring = raster.outline.clone();
        if album.has_room() {
            let view = album.look(&raster.address, allowed);
            shown += 1;
            cards.push_str(&card(raster, &view, word, class));
            ring = view.outline.unwrap_or(ring);
        }
        areas.push(MapArea { is_dead: raster.kind == PlaceKind::Dead, ring });
    }
    let rest = if all > shown {
        format!(" <span class=\"soft\">{shown} of {}</span>", thousands(all))
    } else {
        String::new()
    };
    (areas, format!("<section><h2>Rasters{rest}</h2><ul class=\"rasters\">{cards}</ul></section>"))
}

fn card(raster: &SeenRaster, view: &RasterView, word: &str, class: &str) -> String {
    let name = escape(name(&raster.address));
    let mut out = String::from("<li>");
    let _ = match &view.picture {
        Ok(picture) => write!(out, "<img alt=\"Thumbnail of {name}\" src=\"{picture}\">"),
        Err(why) => write!(out, "<p class=\"none\">No thumbnail: {}</p>", escape(why)),
    };
    let _ = write!(out, "<b>{name}</b>");
    if let Some(facts) = &view.facts {
        let _ = write!(out, "<span class=\"soft\">{}</span>", escape(facts));
    }
    let code = raster.code.as_deref().map(|code| format!(": {code}")).unwrap_or_default();
    let _ = write!(out, "<span class=\"{class}\">{word}{}</span></li>", escape(&code));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(kind: PlaceKind, address: &str) -> SeenRaster {
        let outline = vec![(15.0, 48.0), (15.0, 47.0), (16.0, 47.0), (15.0, 48.0)];
        SeenRaster { kind, address: address.to_owned(), outline, code: None }
    }

    #[test]
    fn rejected_rasters_come_first_and_pictures_are_few() {
        let mut all: Vec<SeenRaster> =
            (0..40).map(|n| seen(PlaceKind::Committed, &format!("s3://bucket/scenes/{n}.tif"))).collect();
        all.push(SeenRaster {
            code: Some("CORRUPTED_HEADER".into()),
            ..seen(PlaceKind::Dead, "no/such<i>.tif")
        });
        let nothing = AllowedObjects::default();
        let (areas, html) = section(&all, 41, ["written", "no match", "rejected"], &nothing);
        assert_eq!((areas.len(), html.matches("<li>").count()), (41, PICTURES_MAX));
        assert!(areas[0].is_dead && !areas[1].is_dead);
        assert!(html.find("such&lt;i&gt;.tif").unwrap() < html.find(">0.tif<").unwrap(), "{html}");
        assert!(html.contains("rejected: CORRUPTED_HEADER") && html.contains("24 of 41"));
        assert!(html.contains("No thumbnail: a remote raster is not fetched again"));
        assert_eq!(section(&[], 0, ["", "", ""], &nothing).1, "");
    }

    #[test]
    fn a_raster_that_can_be_read_has_a_picture_and_an_outline() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../raster/tests/fixtures/webp.tif");
        let none = Album::default().look(file, &AllowedObjects::default());
        assert!(none.picture.is_err() && none.facts.is_none());
        let mut allowed = AllowedObjects::default();
        allowed.written(file);
        let view = Album::default().look(file, &allowed);
        assert!(view.picture.unwrap().starts_with("data:image/png;base64,iVBORw0KGgo"));
        assert_eq!(view.facts.unwrap(), "37 × 29 pixels, 3 × uint8, EPSG:32633");
        let (lon, lat) = view.outline.unwrap()[0];
        assert!((lon - 15.0).abs() < 1e-9 && (lat - 44.25).abs() < 0.01, "{lon} {lat}");
        let mut album = Album { pictures_left: 1, len_left: 10 };
        assert_eq!(album.look(file, &allowed).picture.unwrap_err(), "left out: the page would grow");
        assert!(!album.has_room());
    }
}
