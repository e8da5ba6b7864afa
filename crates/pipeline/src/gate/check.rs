//! The check of a gate on one record.

use tidegate_core::Code;
use tidegate_geo::column::Column;
use tidegate_geo::limits::RecordLimits;
use tidegate_geo::mapping::{Owned, coerce};
use tidegate_geo::validity::{Checker, NotSimple, is_simple};
use tidegate_geo::wkb::{self, Cursor, Event, Shape};
use tidegate_geo::{Batch, Bounds, Kind, Problem, Value};

use super::GateFindings;
use crate::manifest::{Check, Gate, YamlScalar};
use crate::step::{self, Flow};

/// A check with the indexes of its fields.
pub(super) struct BoundCheck {
    check: Check,
    fields: Vec<(usize, String)>,
    checker: Checker,
    limits: RecordLimits,
    kind: Option<Kind>,
    min: Option<f64>,
    max: Option<f64>,
    values: Vec<String>,
    decimals: u32,
    bounds: Option<Bounds>,
}

impl BoundCheck {
    pub(super) fn new(form: &Gate, flow: &Flow) -> Result<BoundCheck, String> {
        let mut fields = Vec::new();
        for name in &form.fields {
            fields.push((flow.field(name)?, name.clone()));
        }
        if form.check == Check::NullRate && fields.is_empty() {
            fields =
                flow.schema.fields().iter().enumerate().map(|(at, field)| (at, field.name.clone())).collect();
        }
        let bounds = match form.bbox.as_slice() {
            [min_x, min_y, max_x, max_y] => {
                Some(Bounds { min_x: *min_x, min_y: *min_y, max_x: *max_x, max_y: *max_y })
            }
            _ => None,
        };
        if matches!(form.check, Check::Rfc7946 | Check::AxisOrder)
            && flow.crs.as_ref().is_some_and(|crs| !crs.is_wgs84())
        {
            return Err("it requires longitude and latitude, but the records are in another coordinate reference system".into());
        }
        Ok(BoundCheck {
            check: form.check,
            fields,
            checker: Checker::within(&flow.limits),
            limits: flow.limits,
            kind: form.is.map(step::kind),
            min: form.min,
            max: form.max,
            values: form.values.iter().filter_map(spelt).collect(),
            decimals: form.decimals.unwrap_or(0),
            bounds,
        })
    }

    /// The problem of a record, if there is one.
    pub(super) fn record(&mut self, batch: &Batch, row: usize) -> Option<Problem> {
        let geometry = batch.geometry(row);
        match self.check {
            Check::Rfc7946 => rfc7946(geometry?),
            Check::IsValid => self
                .checker
                .first_flaw(geometry?)
                .map(|flaw| Problem::new(flaw.reason.code(), flaw.to_string())),
            Check::IsSimple => is_simple(geometry?, &self.limits).err().map(|why| match why {
                NotSimple::At(x, y) => wrong(format!("the geometry intersects itself at ({x} {y})")),
                NotSimple::TooCostly(bound) => Problem::new(Code::REPAIR_TOO_COSTLY, bound.to_string()),
            }),
            Check::NotEmpty => match geometry {
                None => Some(wrong("no geometry".into())),
                Some(wkb) => wkb::is_empty(wkb).then(|| wrong("the geometry is empty".into())),
            },
            Check::Precision => precision(geometry?, self.decimals),
            Check::Bbox => {
                let (found, to) = (batch.bounds(row)?, self.bounds?);
                let inside = found.min_x >= to.min_x
                    && found.min_y >= to.min_y
                    && found.max_x <= to.max_x
                    && found.max_y <= to.max_y;
                (!inside).then(|| {
                    wrong(format!(
                        "[{}, {}, {}, {}] is outside the bounding box",
                        found.min_x, found.min_y, found.max_x, found.max_y
                    ))
                })
            }
            Check::AxisOrder => {
                let found = batch.bounds(row)?;
                let off = found.min_y < -90.0 || found.max_y > 90.0;
                off.then(|| {
                    wrong(format!(
                        "latitude {} is out of range; are longitude and latitude swapped?",
                        if found.max_y > 90.0 { found.max_y } else { found.min_y }
                    ))
                })
            }
            Check::NotNull | Check::Type | Check::Range | Check::OneOf => self
                .fields
                .iter()
                .find_map(|(at, name)| self.value(batch.value(row, *at)).map(|problem| problem.under(name))),
            Check::NullRate | Check::Unique | Check::Count | Check::Drift => None,
        }
    }

    fn value(&self, value: Value<'_>) -> Option<Problem> {
        let refuse = |message: String| Some(Problem::new(Code::SCHEMA_MISMATCH, message));
        match (self.check, value) {
            (Check::NotNull, Value::Null) => refuse("no value".into()),
            (Check::NotNull, Value::Text(text)) if text.trim().is_empty() => {
                refuse("the value is blank".into())
            }
            (Check::NotNull, _) | (_, Value::Null) => None,
            (Check::Type, value) => coerce(value, self.kind.unwrap_or(Kind::Text), &[], None).err(),
            (Check::Range, value) => {
                let Ok(Owned::Real(number)) = coerce(value, Kind::Real, &[], None) else {
                    return refuse(format!("{} is not a number", shown(value)));
                };
                match (self.min.filter(|min| number < *min), self.max.filter(|max| number > *max)) {
                    (Some(min), _) => refuse(format!("{number} is below {min}")),
                    (_, Some(max)) => refuse(format!("{number} is above {max}")),
                    _ => None,
                }
            }
            (_, value) => {
                let text = shown(value);
                (!self.values.contains(&text)).then(|| {
                    Problem::new(Code::SCHEMA_MISMATCH, format!("{text:?} is not one of the allowed values"))
                })
            }
        }
    }

    pub(super) fn nulls(&self, batch: &Batch, found: &mut GateFindings) {
        found.looked = (batch.len() * self.fields.len()) as u64;
        let nulls = |at: usize| batch.columns().get(at).map_or(batch.len(), Column::nulls);
        found.failed = self.fields.iter().map(|(at, _)| nulls(*at) as u64).sum();
        // The columns know how many; the values are looked at only to name the first.
        let first = |row: usize| self.fields.iter().find(|(at, _)| batch.value(row, *at) == Value::Null);
        if found.failed > 0
            && let Some((row, (_, name))) = (0..batch.len()).find_map(|row| Some((row, first(row)?)))
        {
            found.first = Some((batch.record(row), format!("{name} is null")));
        }
    }

    /// The key that identifies a record.
    pub(super) fn key(&self, batch: &Batch, row: usize) -> [u8; 16] {
        let fields: Vec<usize> = self.fields.iter().map(|(at, _)| *at).collect();
        step::hash(batch, row, &fields, false)
    }

    pub(super) fn repeated(&self, batch: &Batch, row: usize) -> Problem {
        let names: Vec<&str> = self.fields.iter().map(|(_, name)| name.as_str()).collect();
        let values: Vec<String> = self.fields.iter().map(|(at, _)| shown(batch.value(row, *at))).collect();
        let message = format!("another record has the same {}", values.join(", "));
        Problem::new(Code::CONSTRAINT_VIOLATION, message).under(names.join(", "))
    }
}

fn wrong(message: String) -> Problem {
    Problem::new(Code::INVALID_GEOMETRY, message)
}

/// A value as text, shortened.
fn shown(value: Value<'_>) -> String {
    match coerce(value, Kind::Text, &[], None) {
        Ok(Owned::Text(text)) => text.chars().take(60).collect(),
        _ => "null".into(),
    }
}

fn spelt(scalar: &YamlScalar) -> Option<String> {
    Some(match scalar {
        YamlScalar::Null => return None,
        YamlScalar::Bool(b) => shown(Value::Bool(*b)),
        YamlScalar::Int(i) => shown(Value::Int(*i)),
        YamlScalar::Float(x) => shown(Value::Real(*x)),
        YamlScalar::Text(text) => text.clone(),
    })
}

/// Whether any coordinate has that many decimal places. A number has fewer exactly if it is the
/// double closest to a number with one place less.
fn precision(wkb: &[u8], decimals: u32) -> Option<Problem> {
    if decimals == 0 {
        return None;
    }
    let scale = 10f64.powi(i32::try_from(decimals).unwrap_or(15) - 1);
    let carries = |x: f64| x.is_finite() && (x * scale).round() / scale != x;
    let mut cursor = Cursor::default();
    let mut any = false;
    while let Ok(Some(event)) = cursor.next(wkb) {
        if let Event::Coords(run) = event {
            for (x, y) in run.xy(wkb) {
                // An empty point has NaN coordinates.
                any |= x.is_finite() || y.is_finite();
                if carries(x) || carries(y) {
                    return None;
                }
            }
        }
    }
    any.then(|| wrong(format!("no coordinate has {decimals} decimal places")))
}

/// The first violation of RFC 7946 that can still be detected after parsing.
fn rfc7946(wkb: &[u8]) -> Option<Problem> {
    let mut cursor = Cursor::default();
    let mut open: Vec<Shape> = Vec::new();
    let mut rings = 0;
    while let Ok(Some(event)) = cursor.next(wkb) {
        match event {
            Event::Begin { shape, dim, .. } => {
                if dim.has_m() {
                    return Some(wrong("a position has an M value".into()));
                }
                open.push(shape);
                rings = 0;
            }
            Event::Coords(run) => {
                for (x, y) in run.xy(wkb) {
                    if x.is_nan() && y.is_nan() {
                        continue;
                    }
                    if !(x.abs() <= 180.0 && y.abs() <= 90.0) {
                        return Some(wrong(format!(
                            "({x} {y}) is outside the range of longitude and latitude"
                        )));
                    }
                }
                if open.last() == Some(&Shape::LineString) && run.count == 1 {
                    return Some(wrong("a line has only one position".into()));
                }
                if open.last() == Some(&Shape::Polygon) {
                    if run.count < 4 {
                        return Some(wrong(format!("a ring has {} positions, fewer than four", run.count)));
                    }
                    let points: Vec<(f64, f64)> = run.xy(wkb).collect();
                    if points.first() != points.last() {
                        return Some(wrong("a ring is not closed".into()));
                    }
                    let area: f64 = points
                        .windows(2)
                        .map(|w| match w {
                            [a, b] => a.0 * b.1 - b.0 * a.1,
                            _ => 0.0,
                        })
                        .sum();
                    if (rings == 0 && area < 0.0) || (rings > 0 && area > 0.0) {
                        let which = if rings == 0 {
                            "the outer ring is clockwise"
                        } else {
                            "a hole is counterclockwise"
                        };
                        return Some(wrong(which.into()));
                    }
                    rings += 1;
                }
            }
            Event::End(_) => drop(open.pop()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wkb(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        tidegate_geo::wkt::read(text, &mut out).unwrap();
        out
    }

    #[test]
    fn decimal_places_are_counted_as_they_are_written() {
        for (text, decimals, passes) in [
            ("POINT (16.373819 48)", 6, true),
            ("POINT (16.37382 48.2)", 6, false),
            ("POINT (16.37382 48.2)", 5, true),
            ("POINT (0.1 0.3)", 1, true),
            ("POINT (0.1 0.3)", 2, false),
            ("POINT (1 2)", 1, false),
            ("LINESTRING (1 2, 1.000001 2)", 6, true),
            ("POINT EMPTY", 6, true),
        ] {
            assert_eq!(precision(&wkb(text), decimals).is_none(), passes, "{text} {decimals}");
        }
    }

    #[test]
    fn the_structure_of_rfc_7946() {
        for (text, says) in [
            ("POLYGON ((0 0, 4 0, 4 4, 0 0))", None),
            ("POLYGON ((0 0, 4 4, 4 0, 0 0))", Some("clockwise")),
            ("POLYGON ((0 0, 9 0, 9 9, 0 0), (5 2, 6 2, 6 3, 5 2))", Some("counterclockwise")),
            ("POINT (181 0)", Some("outside the range")),
            ("POINT M (1 2 3)", Some("M value")),
            ("POLYGON ((0 0, 4 0, 4 4))", Some("fewer than four")),
            ("POINT EMPTY", None),
        ] {
            let found = rfc7946(&wkb(text)).map(|problem| problem.message);
            match says {
                None => assert_eq!(found, None, "{text}"),
                Some(says) => {
                    assert!(found.as_ref().is_some_and(|found| found.contains(says)), "{text}: {found:?}");
                }
            }
        }
    }
}
