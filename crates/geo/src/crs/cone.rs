//! Lambert's conformal cone, with one parallel or two: after the transverse Mercator projection the
//! one that most national and state systems are in.
//!
//! Why not proj4rs: on the way back it searches for each latitude, which made it slower than PROJ. The
//! series of the conformal latitude, which the transverse Mercator projection has anyway, leads there
//! at once.

use std::f64::consts::FRAC_PI_2;

use proj4rs::Proj;

use super::lanes::{LONGITUDE_MAX, Lanes, Projects, SLACK, around};
use super::mercator::{Series, conformal, geodetic, sine_sum, turned};

/// Within this of a pole PROJ takes a latitude for the pole, and two parallels for one, in radians.
const CLOSE: f64 = 1e-10;

/// A conformal conic projection.
#[derive(Debug)]
pub(super) struct Cone {
    meridian: f64,
    east: f64,
    north: f64,
    /// How many metres the unit has.
    unit: f64,
    /// How fast the cone's angle grows with the longitude.
    share: f64,
    /// The radius of the equator on the cone.
    equator: f64,
    /// The radius of the parallel of the origin.
    origin: f64,
    conformal: Series,
    geodetic: Series,
}

impl Cone {
    /// What proj4rs has made of a definition, if it is this projection in its usual form.
    pub(super) fn of(proj: &Proj, definition: &str) -> Option<Cone> {
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
        // The radius of a parallel on an ellipsoid of radius 1, and its isometric latitude.
        let width = |lat: f64| lat.cos() / (1.0 - (eccentricity * lat.sin()).powi(2)).sqrt();
        let height = |lat: f64| lat.tan().asinh() - eccentricity * (eccentricity * lat.sin()).atanh();
        let share = if (first - second).abs() < CLOSE {
            first.sin()
        } else {
            (width(first) / width(second)).ln() / (height(second) - height(first))
        };
        let equator = a * proj.scaling_factor() * width(first) * (share * height(first)).exp() / share;
        let at_pole = (origin.abs() - FRAC_PI_2).abs() < CLOSE;
        let n = (a - b) / (a + b);
        Some(Cone {
            meridian: proj.longitude_of_origin() + proj.from_greenwich(),
            east: proj.false_easting(),
            north: proj.false_northing(),
            unit: proj.to_meter(),
            share,
            equator,
            origin: if at_pole { 0.0 } else { equator * (-share * height(origin)).exp() },
            conformal: conformal(n),
            geodetic: geodetic(n),
        })
    }
}

impl Projects for Cone {
    #[inline]
    fn forward<const N: usize>(&self, from: Lanes<N>, lat: Lanes<N>) -> (Lanes<N>, Lanes<N>) {
        let (sin, cos) = lat.sin_cos();
        let turn = sine_sum(&self.conformal, 2.0 * sin * cos, (cos - sin) * (cos + sin));
        let (sin, cos) = turned(sin, cos, turn);
        // The isometric latitude, by its absolute value: no digits are lost in the south.
        let height = sin.with(cos, |sin, cos| ((1.0 + sin.abs()) / cos).ln().copysign(sin));
        let radius = self.equator * height.map(|height| (-self.share * height).exp());
        let radius = radius.with(lat, |radius, lat| {
            let is_tip = lat.abs() > FRAC_PI_2 - CLOSE && lat * self.share > 0.0;
            if is_tip { 0.0 } else { radius }
        });
        let (sin, cos) = from.map(|lon| self.share * around(lon - self.meridian)).sin_cos();
        let placed = |metres: Lanes<N>| {
            let there = (metres / self.unit).only(from, |lon| lon.abs() <= LONGITUDE_MAX);
            // The other pole is nowhere.
            there.only(lat, |lat| {
                lat.abs() <= FRAC_PI_2 + SLACK && (lat.abs() < FRAC_PI_2 - CLOSE || lat * self.share > 0.0)
            })
        };
        (placed(radius * sin + self.east), placed(self.origin - radius * cos + self.north))
    }

    #[inline]
    fn inverse<const N: usize>(&self, x: Lanes<N>, y: Lanes<N>) -> (Lanes<N>, Lanes<N>) {
        let sign = self.share.signum();
        let across = sign * (x * self.unit - self.east);
        let along = sign * (self.origin - (y * self.unit - self.north));
        let radius = (across * across + along * along).map(f64::sqrt);
        let height = radius.map(|radius| -(sign * radius / self.equator).ln() / self.share);
        let tangent = height.map(f64::sinh);
        let cos = 1.0 / (1.0 + tangent * tangent).map(f64::sqrt);
        let sin = tangent * cos;
        let lat =
            tangent.map(f64::atan) + sine_sum(&self.geodetic, 2.0 * sin * cos, (cos - sin) * (cos + sin));
        let lat = lat.with(radius, |lat, radius| if radius == 0.0 { FRAC_PI_2.copysign(sign) } else { lat });
        let lon =
            across.with(along, |across, along| around(across.atan2(along) / self.share + self.meridian));
        (lon, lat)
    }
}
