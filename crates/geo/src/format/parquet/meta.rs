//! The member `geo` of a file's metadata.

use serde_json::{Value, json};
use tidegate_core::Code;

use crate::bounds::Bounds;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::wkb::{Dim, Shape};

/// What the metadata says of the geometry.
pub(super) struct Geo {
    /// The column of the geometry.
    pub(super) column: String,
    /// Its system; `None` if it is said to be unknown.
    pub(super) crs: Option<Crs>,
    /// The one shape of all geometries, if it is one.
    pub(super) shape: Option<Shape>,
    pub(super) dim: Dim,
    /// The column that covers the geometry and is no property.
    pub(super) covering: Option<String>,
}

/// The metadata to write.
pub(super) fn write(
    crs: &Crs,
    kinds: &[(Shape, Dim)],
    bounds: Option<Bounds>,
    (geometry, covering): (&str, &str),
) -> Result<String, Error> {
    let mut names: Vec<String> = kinds
        .iter()
        .map(|(shape, dim)| format!("{}{}", shape.name(), if dim.has_z() { " Z" } else { "" }))
        .collect();
    names.sort_unstable();
    names.dedup();
    let side = |name: &str| json!([covering, name]);
    let mut column = json!({
        "encoding": "WKB",
        "geometry_types": names,
        "covering": { "bbox": { "xmin": side("xmin"), "ymin": side("ymin"), "xmax": side("xmax"), "ymax": side("ymax") } },
    });
    if let Some(b) = bounds {
        column["bbox"] = json!([b.min_x, b.min_y, b.max_x, b.max_y]);
    }
    // Without a member `crs` it is OGC:CRS84.
    if !crs.is_wgs84() {
        let text = crs.projjson().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let Some(text) = text else {
            let message = format!("{crs} has no PROJJSON, which GeoParquet needs");
            return Err(Problem::new(Code::CRS_NOT_FOUND, message).into());
        };
        column["crs"] = text;
    }
    let mut columns = serde_json::Map::new();
    columns.insert(geometry.to_owned(), column);
    Ok(json!({ "version": "1.1.0", "primary_column": geometry, "columns": columns }).to_string())
}

/// Reads the metadata.
pub(super) fn read(text: &str) -> Result<Geo, Error> {
    let refuse = |message: String| Err(Error::from(Problem::new(Code::CORRUPTED_HEADER, message)));
    let Ok(geo) = serde_json::from_str::<Value>(text) else {
        return refuse("the geo metadata is not JSON".into());
    };
    let Some(name) = geo["primary_column"].as_str() else {
        return refuse("the geo metadata names no primary column".into());
    };
    let column = &geo["columns"][name];
    let encoding = column["encoding"].as_str().unwrap_or("WKB");
    if !encoding.eq_ignore_ascii_case("WKB") {
        return refuse(format!("the geometry encoding {encoding} is not supported, only WKB"));
    }
    let crs = match column.get("crs") {
        None => Some(Crs::wgs84()),
        Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.parse::<Crs>()?),
        Some(other) => Some(other.to_string().parse::<Crs>()?),
    };
    let none = Vec::new();
    let types = column["geometry_types"].as_array().unwrap_or(&none);
    let mut shapes = Vec::new();
    let mut dim = Dim::Xy;
    for name in types.iter().filter_map(Value::as_str) {
        if name.ends_with(" Z") {
            dim = Dim::Xyz;
        }
        let plain = name.split(' ').next().unwrap_or_default();
        shapes.extend(Shape::ALL.into_iter().find(|shape| shape.name() == plain));
    }
    let shape = shapes.first().copied().filter(|first| shapes.iter().all(|shape| shape == first));
    let covering = column["covering"]["bbox"]["xmin"][0].as_str().map(str::to_owned);
    Ok(Geo { column: name.to_owned(), crs, shape, dim, covering })
}
