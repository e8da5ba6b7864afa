//! The fields that a step `raster` adds: what the raster is in any case, what its pixels are if they were
//! read, and what a repair did.

use tidegate_geo::{Kind, Value};

use super::RasterDone;
use crate::manifest::RasterStep;

const ALWAYS: &[(&str, Kind)] = &[
    ("width", Kind::Int),
    ("height", Kind::Int),
    ("bands", Kind::Int),
    ("sample", Kind::Text),
    ("crs", Kind::Text),
    ("pixel_x", Kind::Real),
    ("pixel_y", Kind::Real),
    ("grid_offset", Kind::Real),
    ("sha256", Kind::Text),
];

const OF_PIXELS: &[(&str, Kind)] = &[
    ("nodata_share", Kind::Real),
    ("min", Kind::Real),
    ("max", Kind::Real),
    ("mean", Kind::Real),
    ("band_nodata_share", Kind::Json),
    ("band_min", Kind::Json),
    ("band_max", Kind::Json),
    ("band_mean", Kind::Json),
];

const OF_REPAIR: &[(&str, Kind)] =
    &[("outcome", Kind::Text), ("proof", Kind::Text), ("pixels_lost", Kind::Int)];

/// The fields of a step, in their order.
pub(super) struct RasterFields([&'static [(&'static str, Kind)]; 3]);

impl RasterFields {
    pub(super) fn of(form: &RasterStep) -> RasterFields {
        let if_so = |so: bool, fields: &'static [(&'static str, Kind)]| if so { fields } else { &[][..] };
        RasterFields([ALWAYS, if_so(form.survey, OF_PIXELS), if_so(form.repair.is_some(), OF_REPAIR)])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, Kind)> {
        self.0.into_iter().flatten().copied()
    }
}

/// The value of a field.
pub(super) fn value<'a>(name: &str, done: &'a RasterDone) -> Value<'a> {
    let (s, report) = (&done.survey, done.report.as_ref());
    let real = |value: Option<f64>| value.map_or(Value::Null, Value::Real);
    let text = |value: Option<&'a str>| value.map_or(Value::Null, Value::Text);
    let of_bands = |value: &'a Option<String>| value.as_deref().map_or(Value::Null, Value::Json);
    match name {
        "width" => Value::Int(s.width.into()),
        "height" => Value::Int(s.height.into()),
        "bands" => Value::Int(s.bands.into()),
        "sample" => Value::Text(&s.sample),
        "crs" => text(s.crs.as_deref()),
        "pixel_x" => real(s.pixel.map(|(x, _)| x)),
        "pixel_y" => real(s.pixel.map(|(_, y)| y)),
        "grid_offset" => real(s.grid_offset),
        "sha256" => text(done.sha256.as_deref()),
        "nodata_share" => real(s.nodata_share),
        "min" => real(s.min),
        "max" => real(s.max),
        "mean" => real(s.mean),
        "band_nodata_share" => of_bands(&s.of_bands.nodata_share),
        "band_min" => of_bands(&s.of_bands.min),
        "band_max" => of_bands(&s.of_bands.max),
        "band_mean" => of_bands(&s.of_bands.mean),
        "outcome" => text(report.map(|report| report.outcome.word())),
        "proof" => text(report.map(|report| report.proof.word())),
        "pixels_lost" => report.map_or(Value::Null, |report| Value::Int(report.pixels_lost as i64)),
        _ => Value::Null,
    }
}
