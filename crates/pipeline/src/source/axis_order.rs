//! Which coordinate comes first in GML.
//!
//! For a system that puts north first, `urn:ogc:def:crs:EPSG::4326` means north first. The short name
//! `EPSG:4326` means north first to MapServer and QGIS Server and east first to GeoServer, and nothing
//! on a page says which. So a page with a short name is held against the extent that the service
//! declares. If that does not decide it, the page is refused: half of all guesses would be wrong.

use super::extent::{extend, fits};
use std::sync::OnceLock;
use tidegate_geo::xml::Node;
use tidegate_geo::{Bounds, Crs};

/// The order of the two coordinates of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisOrder {
    /// East first.
    Xy,
    /// North first.
    Yx,
}

/// How the order of a layer is found.
#[derive(Debug, Default)]
pub(super) struct AxisRule {
    /// What was said, which settles it.
    pub(super) said: Option<AxisOrder>,
    /// Where the layer is.
    pub(super) extent: Option<Bounds>,
    /// What an earlier page has shown.
    pub(super) found: OnceLock<AxisOrder>,
}

impl AxisRule {
    /// Brings the names of systems on a page into a form that says the order.
    ///
    /// # Errors
    /// When the order cannot be found.
    pub(super) fn settle(&self, root: &mut Node) -> Result<(), String> {
        let mut names = Vec::new();
        root.walk(&mut |node| {
            if let Some(name) = node.attribute("srsName").filter(|name| !names.contains(name)) {
                names.push(name);
            }
        });
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        for name in names {
            let Ok(crs) = name.parse::<Crs>() else { continue };
            let Some(code) = crs.epsg_code().filter(|_| crs.is_north_first()) else { continue };
            let order = match self.said {
                Some(said) => said,
                None if is_short(&name) => self.order(&crs, &name, root)?,
                None => continue,
            };
            let clear = match order {
                AxisOrder::Xy => format!("EPSG:{code}"),
                AxisOrder::Yx => format!("urn:ogc:def:crs:EPSG::{code}"),
            };
            if clear != name {
                rename(root, &name, &clear);
            }
        }
        Ok(())
    }

    fn order(&self, crs: &Crs, name: &str, root: &Node) -> Result<AxisOrder, String> {
        let Some(written) = bounds(root) else { return Ok(AxisOrder::Xy) };
        let turned =
            Bounds { min_x: written.min_y, min_y: written.min_x, max_x: written.max_y, max_y: written.max_x };
        let fit = |bounds| self.extent.map(|declared| fits(crs, bounds, declared));
        let shown = match (fit(written), fit(turned)) {
            (Some(true), Some(false)) => Some(AxisOrder::Xy),
            (Some(false), Some(true)) => Some(AxisOrder::Yx),
            _ => None,
        };
        match (shown, self.found.get()) {
            (Some(shown), None) => Ok(*self.found.get_or_init(|| shown)),
            (Some(shown), Some(found)) if shown == *found => Ok(shown),
            (None, Some(found)) => Ok(*found),
            (Some(_), Some(_)) => Err(format!(
                "a page names {name} and has its coordinates in another order than the one before"
            )),
            (None, None) => {
                let why = match self.extent {
                    None => "the service declares no extent that would tell",
                    Some(_) => "the declared extent of the layer does not tell",
                };
                Err(format!(
                    "the service names {name} without saying whether north or east comes first \
                     (a position is {} {}), and {why}; say --axis-order xy (east first) or yx",
                    written.min_x, written.min_y
                ))
            }
        }
    }
}

/// Whether a name leaves the order open.
fn is_short(name: &str) -> bool {
    name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("EPSG:"))
}

fn rename(node: &mut Node, from: &str, to: &str) {
    for (name, value) in &mut node.attributes {
        if name == "srsName" && value == from {
            to.clone_into(value);
        }
    }
    node.children.iter_mut().for_each(|child| rename(child, from, to));
}

/// The bounds of the positions of all geometries, as they are written.
fn bounds(root: &Node) -> Option<Bounds> {
    let mut found = None;
    visit(root, 2, &mut found);
    found
}

fn visit(node: &Node, dimension: usize, found: &mut Option<Bounds>) {
    if node.name == "boundedBy" {
        return;
    }
    let dimension = node
        .attribute("srsDimension")
        .and_then(|text| text.parse().ok())
        .filter(|n| (2..=4).contains(n))
        .unwrap_or(dimension);
    match node.name.as_str() {
        "pos" => {
            let numbers = numbers(&node.text);
            if let [x, y, ..] = numbers.as_slice() {
                extend(found, *x, *y);
            }
        }
        "posList" => {
            for position in numbers(&node.text).chunks(dimension) {
                if let [x, y, ..] = position {
                    extend(found, *x, *y);
                }
            }
        }
        _ => node.children.iter().for_each(|child| visit(child, dimension, found)),
    }
}

fn numbers(text: &str) -> Vec<f64> {
    text.split_ascii_whitespace().map_while(|n| n.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::extent::degrees;
    use super::*;
    use tidegate_geo::xml;

    fn page(name: &str, positions: &str) -> Node {
        let text = format!(
            "<c><boundedBy><Envelope srsName='{name}'><lowerCorner>0 0</lowerCorner></Envelope></boundedBy>\
             <m><g><LineString srsName='{name}'><posList>{positions}</posList></LineString></g></m></c>"
        );
        xml::parse(text.as_bytes()).unwrap()
    }

    fn named(root: &Node) -> &str {
        root.all("LineString")[0].attribute("srsName").unwrap()
    }

    #[test]
    fn a_short_name_is_held_against_the_extent() {
        let rule = AxisRule { extent: degrees(5.9, 45.2, 15.1, 55.0), ..AxisRule::default() };
        let mut root = page("EPSG:4326", "47.2 6.7 48.4 14.1");
        rule.settle(&mut root).unwrap();
        assert_eq!(named(&root), "urn:ogc:def:crs:EPSG::4326");
        // What was found holds for a page that does not tell, and is not given up.
        assert_eq!(rule.found.get(), Some(&AxisOrder::Yx));
        let why = rule.settle(&mut page("EPSG:4326", "6.7 47.2")).unwrap_err();
        assert!(why.contains("another order"), "{why}");
        let rule = AxisRule { extent: degrees(5.9, 45.2, 15.1, 55.0), ..AxisRule::default() };
        let mut root = page("EPSG:4326", "6.7 47.2 14.1 48.4");
        rule.settle(&mut root).unwrap();
        assert_eq!((named(&root), rule.found.get()), ("EPSG:4326", Some(&AxisOrder::Xy)));
    }

    #[test]
    fn what_cannot_be_told_is_refused_and_what_was_said_settles_it() {
        for extent in [None, degrees(-20.0, -20.0, 60.0, 60.0)] {
            let rule = AxisRule { extent, ..AxisRule::default() };
            let why = rule.settle(&mut page("EPSG:4326", "47.2 6.7")).unwrap_err();
            assert!(why.contains("--axis-order xy"), "{why}");
            let rule = AxisRule { extent, said: Some(AxisOrder::Yx), ..AxisRule::default() };
            let mut root = page("EPSG:4326", "47.2 6.7");
            rule.settle(&mut root).unwrap();
            assert_eq!(named(&root), "urn:ogc:def:crs:EPSG::4326");
        }
        // A URN and a system that puts east first leave nothing open.
        for name in ["urn:ogc:def:crs:EPSG::4326", "EPSG:25832"] {
            let mut root = page(name, "47.2 6.7");
            AxisRule::default().settle(&mut root).unwrap();
            assert_eq!(named(&root), name);
        }
    }
}
