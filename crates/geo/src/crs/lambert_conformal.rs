//! The Lambert conformal conic projection, with one or two standard parallels. After transverse Mercator
//! it is the commonest method of national and state systems.
//!
//! Why not proj4rs: its inverse iterates for the latitude, which made it slower than PROJ. The series of
//! the conformal latitude, which transverse Mercator needs as well, has no iteration.

use std::f64::consts::FRAC_PI_2;

use proj4rs::Proj;

use super::simd::{BlockProjection, LONGITUDE_MAX, SLACK, Simd, around};
use super::transverse_mercator::{Series, conformal, geodetic, sine_sum, turned};

/// Angle in radians within which PROJ takes a latitude for the pole, and two parallels for one.
const CLOSE: f64 = 1e-10;

/// A Lambert conformal conic projection.
#[derive(Debug)]
pub(super) struct LambertConformal {
    /// Central meridian, in radians.
    meridian: f64,
    /// False easting, in metres.
    east: f64,
    /// False northing, in metres.
    north: f64,
    /// Length of the unit of the plane, in metres.
    unit: f64,
    /// Cone constant, n.
    cone_constant: f64,
    /// Radius of the equator in the plane, in metres.
    equator_radius: f64,
    /// Radius of the parallel of the origin in the plane, in metres.
    origin_radius: f64,
    /// Series from the geodetic to the conformal latitude.
    conformal: Series,
    /// Series from the conformal to the geodetic latitude.
    geodetic: Series,
}

impl LambertConformal {
    /// The parameters that proj4rs has parsed, if the definition is this projection in its usual form.
    pub(super) fn of(proj: &Proj, definition: &str) -> Option<LambertConformal> {
        let usual = proj.projname() == "lcc" && proj.is_normalized_axis() && !definition.contains("+over");
        let number = |start: &str| {
            let mut words = definition.split_ascii_whitespace();
            words.find_map(|word| word.strip_prefix(start))?.parse::<f64>().ok()
        };
        let first = number("+lat_1=").filter(|_| usual)?.to_radians();
        let second = number("+lat_2=").map_or(first, f64::to_radians);
        let origin = if definition.contains("+lat_0=") { proj.latitude_of_origin() } else { first };
        let (a, b) = proj.ellipse_parameters();
        let eccentricity = (1.0 - (b / a) * (b / a)).sqrt();
        // The radius of a parallel for a semi-major axis of 1, and its isometric latitude.
        let width = |lat: f64| lat.cos() / (1.0 - (eccentricity * lat.sin()).powi(2)).sqrt();
        let height = |lat: f64| lat.tan().asinh() - eccentricity * (eccentricity * lat.sin()).atanh();
        let cone_constant = if (first - second).abs() < CLOSE {
            first.sin()
        } else {
            (width(first) / width(second)).ln() / (height(second) - height(first))
        };
        let equator_radius =
            a * proj.scaling_factor() * width(first) * (cone_constant * height(first)).exp() / cone_constant;
        let at_pole = (origin.abs() - FRAC_PI_2).abs() < CLOSE;
        let n = (a - b) / (a + b);
        Some(LambertConformal {
            meridian: proj.longitude_of_origin() + proj.from_greenwich(),
            east: proj.false_easting(),
            north: proj.false_northing(),
            unit: proj.to_meter(),
            cone_constant,
            equator_radius,
            origin_radius: if at_pole {
                0.0
            } else {
                equator_radius * (-cone_constant * height(origin)).exp()
            },
            conformal: conformal(n),
            geodetic: geodetic(n),
        })
    }
}

impl BlockProjection for LambertConformal {
    #[inline]
    fn forward<const N: usize>(&self, from: Simd<N>, lat: Simd<N>) -> (Simd<N>, Simd<N>) {
        let (sin, cos) = lat.sin_cos();
        let turn = sine_sum(&self.conformal, 2.0 * sin * cos, (cos - sin) * (cos + sin));
        let (sin, cos) = turned(sin, cos, turn);
        // The isometric latitude, by its absolute value: no cancellation in the south.
        let height = sin.with(cos, |sin, cos| ((1.0 + sin.abs()) / cos).ln().copysign(sin));
        let radius = self.equator_radius * height.map(|height| (-self.cone_constant * height).exp());
        let radius = radius.with(lat, |radius, lat| {
            let is_tip = lat.abs() > FRAC_PI_2 - CLOSE && lat * self.cone_constant > 0.0;
            if is_tip { 0.0 } else { radius }
        });
        let (sin, cos) = from.map(|lon| self.cone_constant * around(lon - self.meridian)).sin_cos();
        let placed = |metres: Simd<N>| {
            let there = (metres / self.unit).only(from, |lon| lon.abs() <= LONGITUDE_MAX);
            // The opposite pole is at infinity.
            there.only(lat, |lat| {
                lat.abs() <= FRAC_PI_2 + SLACK
                    && (lat.abs() < FRAC_PI_2 - CLOSE || lat * self.cone_constant > 0.0)
            })
        };
        (placed(radius * sin + self.east), placed(self.origin_radius - radius * cos + self.north))
    }

    #[inline]
    fn inverse<const N: usize>(&self, x: Simd<N>, y: Simd<N>) -> (Simd<N>, Simd<N>) {
        let sign = self.cone_constant.signum();
        let across = sign * (x * self.unit - self.east);
        let along = sign * (self.origin_radius - (y * self.unit - self.north));
        let radius = (across * across + along * along).map(f64::sqrt);
        let height = radius.map(|radius| -(sign * radius / self.equator_radius).ln() / self.cone_constant);
        let tangent = height.map(f64::sinh);
        let cos = 1.0 / (1.0 + tangent * tangent).map(f64::sqrt);
        let sin = tangent * cos;
        let lat =
            tangent.map(f64::atan) + sine_sum(&self.geodetic, 2.0 * sin * cos, (cos - sin) * (cos + sin));
        let lat = lat.with(radius, |lat, radius| if radius == 0.0 { FRAC_PI_2.copysign(sign) } else { lat });
        let lon = across
            .with(along, |across, along| around(across.atan2(along) / self.cone_constant + self.meridian));
        (lon, lat)
    }
}
