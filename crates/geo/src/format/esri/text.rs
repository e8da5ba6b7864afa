//! A feature's text, taken apart.

use serde_json::Value;
use tidegate_core::Code;

use super::super::geojson::scan::{Scan, Stop};
use crate::error::Problem;

/// A feature: its attributes read, its geometry as text.
#[derive(Default)]
pub(super) struct Feature<'a> {
    pub(super) attributes: Value,
    pub(super) geometry: &'a [u8],
    /// What a server says instead of features.
    pub(super) error: Option<Value>,
}

/// Takes a feature apart.
pub(super) fn feature(text: &[u8]) -> Result<Feature<'_>, Problem> {
    let mut found = Feature::default();
    let mut scan = Scan::new(text, 0);
    let read = members(&mut scan, |scan, name| {
        match name {
            b"attributes" => found.attributes = value(scan)?,
            b"error" => found.error = Some(value(scan)?),
            b"geometry" => {
                let at = scan.at;
                scan.skip()?;
                found.geometry = scan.bytes.get(at..scan.at).unwrap_or_default();
            }
            _ => scan.skip()?,
        }
        Ok(())
    });
    let broken = |why: &str| Problem::new(Code::UNEXPECTED_BODY, format!("the feature is not JSON: {why}"));
    read.map(|()| found).map_err(|stop| match stop {
        Stop::Bad(_, why) => broken(why),
        Stop::More => broken("it is cut"),
    })
}

/// Visits the members of an object by name, standing at their values.
pub(super) fn members<'a>(
    scan: &mut Scan<'a>,
    mut visit: impl FnMut(&mut Scan<'a>, &[u8]) -> Result<(), Stop>,
) -> Result<(), Stop> {
    scan.expect(b'{', "expected an object")?;
    let mut more = !scan.eat(b'}')?;
    while more {
        let key = scan.key()?;
        scan.peek()?;
        let name = scan.bytes.get(key.start..key.end).unwrap_or_default();
        visit(scan, name)?;
        more = scan.comma_or(b'}')?;
    }
    Ok(())
}

/// The value that stands here.
pub(super) fn value(scan: &mut Scan<'_>) -> Result<Value, Stop> {
    let at = scan.at;
    scan.skip()?;
    let text = scan.bytes.get(at..scan.at).unwrap_or_default();
    serde_json::from_slice(text).map_err(|_| Stop::Bad(at, "a value is not JSON"))
}
