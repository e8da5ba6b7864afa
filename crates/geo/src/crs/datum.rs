//! Datum shifts by Helmert transformation with three or seven parameters, in geocentric coordinates.
//!
//! Datums are a few hundred metres apart, so longitude and latitude change by a small angle. Only that
//! angle is computed and added: the first terms of the arc tangent's series are enough, and no digits
//! are lost. The latitude comes from Bowring's formula, which is exact to a nanometre within kilometres
//! of the ellipsoid. Why not proj4rs: it iterates, which took most of the time of every system with
//! parameters.

use std::f64::consts::FRAC_PI_2;

use proj4rs::Proj;

use super::simd::{Simd, around, in_blocks};

/// Largest tangent for which four terms of the series give the angle to the last bit.
const SMALL: f64 = 0.003;
/// Largest latitude in radians, a little beyond the pole; the projection decides about the rest.
const LATITUDE_MAX: f64 = 1.001 * FRAC_PI_2;

/// Distance from the geocentre in metres below which the formulas do not converge.
const CORE: f64 = 100_000.0;

const WGS84: Ellipsoid = Ellipsoid { a: 6_378_137.0, b: 6_356_752.314_245_179 };
/// Difference of squared eccentricities below which GRS 80 and WGS 84 count as one ellipsoid.
const SAME: f64 = 5e-11;

/// An ellipsoid of revolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ellipsoid {
    /// Semi-major axis, in metres.
    a: f64,
    /// Semi-minor axis, in metres.
    b: f64,
}

impl Ellipsoid {
    /// The ellipsoid of a definition.
    pub(super) fn of(proj: &Proj) -> Ellipsoid {
        let (a, b) = proj.ellipse_parameters();
        Ellipsoid { a, b }
    }

    /// Geocentric X, Y and Z in metres, from longitude and latitude in radians and height in metres.
    pub(super) fn out_of(self, lon: f64, lat: f64, height: f64) -> (f64, f64, f64) {
        let ((sin_lon, cos_lon), (sin, cos)) = (lon.sin_cos(), lat.sin_cos());
        let square = self.square();
        let radius = self.a / (1.0 - square * sin * sin).sqrt();
        let out = (radius + height) * cos;
        (out * cos_lon, out * sin_lon, ((1.0 - square) * radius + height) * sin)
    }

    /// The inverse of [`Ellipsoid::out_of`], by Bowring's formula until it converges; NaN near the
    /// geocentre, which has no latitude.
    pub(super) fn upon(self, x: f64, y: f64, z: f64) -> (f64, f64, f64) {
        const ROUNDS_MAX: usize = 8;
        let Ellipsoid { a, b } = self;
        let square = self.square();
        let out = x.hypot(y);
        if out.hypot(z) < CORE {
            return (f64::NAN, f64::NAN, f64::NAN);
        }
        // The parametric latitude.
        let mut around = (a * z).atan2(b * out);
        let mut lat = f64::NAN;
        for _ in 0..ROUNDS_MAX {
            let (sin, cos) = around.sin_cos();
            let next = (z + square / (1.0 - square) * b * sin.powi(3)).atan2(out - square * a * cos.powi(3));
            let moved = (next - lat).abs();
            lat = next;
            if moved < 1e-15 {
                break;
            }
            around = (b * lat.sin()).atan2(a * lat.cos());
        }
        let (sin, cos) = lat.sin_cos();
        (y.atan2(x), lat, out * cos + z * sin - a * (1.0 - square * sin * sin).sqrt())
    }

    /// The square of the eccentricity.
    fn square(self) -> f64 {
        1.0 - (self.b / self.a) * (self.b / self.a)
    }
}

/// The shift between a datum and WGS 84, in both directions.
#[derive(Debug)]
pub(super) struct Datum {
    to_wgs84: Helmert,
    from_wgs84: Helmert,
}

/// A Helmert transformation from the ellipsoid `from` to `to`.
#[derive(Debug)]
struct Helmert {
    from: Ellipsoid,
    to: Ellipsoid,
    /// Rotation matrix times scale.
    matrix: [[f64; 3]; 3],
    /// Translation, in metres.
    step: [f64; 3],
}

impl Datum {
    /// The shift of a definition; `None` if it has no parameters, or those of WGS 84 itself.
    pub(super) fn of(proj: &Proj, definition: &str) -> Option<Datum> {
        let here = Ellipsoid::of(proj);
        let parameters =
            definition.split_ascii_whitespace().find_map(|word| word.strip_prefix("+towgs84="))?;
        let parameters: Vec<f64> =
            parameters.split(',').map(|number| number.parse().unwrap_or(0.0)).collect();
        let same = here.a == WGS84.a && (here.square() - WGS84.square()).abs() < SAME;
        if same && parameters.iter().all(|number| *number == 0.0) {
            return None;
        }
        let parameter = |at: usize| parameters.get(at).copied().unwrap_or(0.0);
        let turn = |at: usize| (parameter(at) / 3600.0).to_radians();
        let (x, y, z, scale) = (turn(3), turn(4), turn(5), 1.0 + parameter(6) * 1e-6);
        let step = [parameter(0), parameter(1), parameter(2)];
        // The inverse of a small rotation is the opposite rotation.
        let turned = |x: f64, y: f64, z: f64, scale: f64| {
            [[1.0, -z, y], [z, 1.0, -x], [-y, x, 1.0]].map(|row| row.map(|number| number * scale))
        };
        let inverse = turned(-x, -y, -z, 1.0 / scale);
        let inverse_step = inverse.map(|row| -(row[0] * step[0] + row[1] * step[1] + row[2] * step[2]));
        Some(Datum {
            to_wgs84: Helmert { from: here, to: WGS84, matrix: turned(x, y, z, scale), step },
            from_wgs84: Helmert { from: WGS84, to: here, matrix: inverse, step: inverse_step },
        })
    }

    /// Longitudes and latitudes in radians to WGS 84, at their heights or at height 0; NaN beyond the poles.
    pub(super) fn forward(&self, x: &mut [f64], y: &mut [f64], z: Option<&mut [f64]>) {
        self.to_wgs84.all(x, y, z);
    }

    /// The inverse of [`Datum::forward`].
    pub(super) fn inverse(&self, x: &mut [f64], y: &mut [f64], z: Option<&mut [f64]>) {
        self.from_wgs84.all(x, y, z);
    }
}

impl Helmert {
    fn all(&self, x: &mut [f64], y: &mut [f64], z: Option<&mut [f64]>) {
        let Some(z) = z else {
            return in_blocks(x, y, |x, y| self.level(x, y), |x, y| self.level(x, y));
        };
        for ((x, y), z) in x.iter_mut().zip(y).zip(z) {
            (Simd([*x]), Simd([*y]), Simd([*z])) = self.block(Simd([*x]), Simd([*y]), Simd([*z]));
        }
    }

    /// At height 0.
    #[inline]
    fn level<const N: usize>(&self, lon: Simd<N>, lat: Simd<N>) -> (Simd<N>, Simd<N>) {
        let (lon, lat, _) = self.block(lon, lat, Simd([0.0; N]));
        (lon, lat)
    }

    #[inline]
    fn block<const N: usize>(
        &self,
        lon: Simd<N>,
        lat: Simd<N>,
        height: Simd<N>,
    ) -> (Simd<N>, Simd<N>, Simd<N>) {
        let (sin_lon, cos_lon) = lon.sin_cos();
        let (sin, cos) = lat.sin_cos();
        // To geocentric coordinates.
        let square = self.from.square();
        let radius = self.from.a / (1.0 - square * (sin * sin)).map(f64::sqrt);
        let out = (radius + height) * cos;
        let (x, y, z) = (out * cos_lon, out * sin_lon, ((1.0 - square) * radius + height) * sin);
        let [to_x, to_y, to_z] = [0, 1, 2].map(|i| {
            let row = self.matrix[i];
            row[0] * x + row[1] * y + row[2] * z + self.step[i]
        });
        // Back to the change of longitude and of latitude.
        let turned_lon = small_angle(to_y * cos_lon - to_x * sin_lon, to_x * cos_lon + to_y * sin_lon);
        let Ellipsoid { a, b } = self.to;
        let out = (to_x * to_x + to_y * to_y).map(f64::sqrt);
        let (up, along) = (a * to_z, b * out);
        let length = 1.0 / (up * up + along * along).map(f64::sqrt);
        let (up, along) = (up * length, along * length);
        let square = self.to.square();
        let up = to_z + square / (1.0 - square) * b * (up * up * up);
        let along = out - square * a * (along * along * along);
        let turned_lat = small_angle(up * cos - along * sin, along * cos + up * sin);
        let placed = |angle: Simd<N>| angle.only(lat, |lat| lat.abs() <= LATITUDE_MAX);
        let (to_lon, to_lat) = (placed((lon + turned_lon).map(around)), placed(lat + turned_lat));
        let (sin, cos) = (lat + turned_lat).sin_cos();
        let height = out * cos + to_z * sin - a * (1.0 - square * (sin * sin)).map(f64::sqrt);
        (to_lon, to_lat, height)
    }
}

/// The angle `atan2(y, x)`, which is small except near a pole.
#[inline]
fn small_angle<const N: usize>(y: Simd<N>, x: Simd<N>) -> Simd<N> {
    let tangent = y / x;
    let is_small = |tangent: f64, x: f64| x > 0.0 && tangent.abs() <= SMALL;
    let small = tangent.small_atan();
    if tangent.0.iter().zip(x.0).all(|(tangent, x)| is_small(*tangent, x)) {
        return small;
    }
    Simd(std::array::from_fn(
        |i| {
            if is_small(tangent.0[i], x.0[i]) { small.0[i] } else { y.0[i].atan2(x.0[i]) }
        },
    ))
}
