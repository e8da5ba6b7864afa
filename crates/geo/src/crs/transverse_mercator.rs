//! The transverse Mercator projection of an ellipsoid: UTM, Gauss-Krüger and most national grids.
//!
//! Krüger's series to the sixth power of the third flattening, in the form of Poder and Engsager, as in
//! PROJ: exact to nanometres within 40° of the central meridian, and with the domain of PROJ.
//!
//! Why not proj4rs: most data is in such a system, and proj4rs calls a dozen transcendental functions
//! for each position. Here, within 5.7° of the central meridian, it is one; the others are of angles so
//! small that a few terms of their series are exact. Positions are processed in blocks ([`Simd`]).

use std::f64::consts::FRAC_PI_2;

use proj4rs::Proj;

use super::simd::{BlockProjection, LONGITUDE_MAX, SLACK, Simd, around, one_by_one};

/// Distance from the central meridian in radians within which the short series are exact to the last bit.
const NEAR: f64 = 0.1;
/// Largest easting that PROJ accepts, in rectifying radii.
const FARTHEST: f64 = 2.623_395_162_778;

/// Coefficients of a series in the sines of the even multiples of an angle.
pub(super) type Series = [f64; 6];

/// A transverse Mercator projection.
#[derive(Debug)]
pub(super) struct TransverseMercator {
    /// Central meridian, in radians.
    meridian: f64,
    /// False easting, in metres.
    east: f64,
    /// False northing minus the northing of the latitude of origin, in metres.
    north: f64,
    /// Rectifying radius times the scale factor on the central meridian, in metres.
    radius: f64,
    /// Length of the unit of the plane, in metres.
    unit: f64,
    /// Series from the geodetic to the conformal latitude.
    conformal: Series,
    /// Series from the conformal to the geodetic latitude.
    geodetic: Series,
    /// Series from the conformal sphere to the plane.
    plane: Series,
    /// Series from the plane to the conformal sphere.
    sphere: Series,
}

impl TransverseMercator {
    /// The parameters that proj4rs has parsed, if the definition is this projection in its usual form.
    pub(super) fn of(proj: &Proj, definition: &str) -> Option<TransverseMercator> {
        let (a, b) = proj.ellipse_parameters();
        let usual = matches!(proj.projname(), "tmerc" | "utm" | "etmerc")
            && proj.is_normalized_axis()
            && a > b
            && !["+approx", "+algo", "+over"].iter().any(|word| definition.contains(word));
        usual.then(|| {
            let n = (a - b) / (a + b);
            let length = a / (1.0 + n) * polynomial(n * n, [1.0, 1.0 / 4.0, 1.0 / 64.0, 1.0 / 256.0]);
            let mut projection = TransverseMercator {
                meridian: proj.longitude_of_origin() + proj.from_greenwich(),
                east: proj.false_easting(),
                north: 0.0,
                radius: proj.scaling_factor() * length,
                unit: 1.0,
                conformal: conformal(n),
                geodetic: geodetic(n),
                plane: plane(n),
                sphere: sphere(n),
            };
            let (mut lon, mut lat) = ([projection.meridian], [proj.latitude_of_origin()]);
            projection.project(&mut lon, &mut lat);
            projection.north = proj.false_northing() - lat[0];
            projection.unit = proj.to_meter();
            projection
        })
    }
}

impl BlockProjection for TransverseMercator {
    #[inline]
    fn forward<const N: usize>(&self, from: Simd<N>, lat: Simd<N>) -> (Simd<N>, Simd<N>) {
        let lon = from.map(|lon| around(lon - self.meridian));
        let is_near = lon.all(|lon| lon.abs() <= NEAR);
        if !is_near && N > 1 {
            return one_by_one(from, lat, |lon, lat| self.forward(lon, lat));
        }
        // The conformal latitude.
        let (sin, cos) = lat.sin_cos();
        let turn = sine_sum(&self.conformal, 2.0 * sin * cos, (cos - sin) * (cos + sin));
        let (sin, cos) = turned(sin, cos, turn);
        // The conformal sphere in transverse aspect: the angle along the central meridian, and the
        // hyperbolic angle across it, whose tangent is `across`.
        let (sin_lon, less) = if is_near { near_sin_cos(lon) } else { far_sin_cos(lon) };
        let (across, along) = (cos * sin_lon, cos + cos * less);
        let square = sin * sin + along * along;
        let (north, east) = if is_near {
            // The transverse latitude differs little from the conformal one.
            let tangent = -sin * cos * less / (cos * along + sin * sin);
            (lat + (turn + tangent.small_atan()), small_atanh(across))
        } else {
            (
                sin.with(along, f64::atan2),
                across.with(square, |across, square| (across / square.sqrt()).asinh()),
            )
        };
        // From the sphere to the plane, by the doubled angles.
        let scale = 1.0 / square;
        let (step_north, step_east) = complex_sine_sum(
            &self.plane,
            (2.0 * sin * along * scale, (along - sin) * (along + sin) * scale),
            (2.0 * across * scale, (1.0 + across * across) * scale),
        );
        let (north, east) = (north + step_north, east + step_east);
        let placed = |angle: Simd<N>, offset: f64| {
            let place = (self.radius * angle + offset) / self.unit;
            let place = place.only(east, |east| east.abs() <= FARTHEST);
            let place = place.only(lat, |lat| lat.abs() <= FRAC_PI_2 + SLACK);
            place.only(from, |lon| lon.abs() <= LONGITUDE_MAX)
        };
        (placed(east, self.east), placed(north, self.north))
    }

    #[inline]
    fn inverse<const N: usize>(&self, x: Simd<N>, y: Simd<N>) -> (Simd<N>, Simd<N>) {
        let east = (x * self.unit - self.east) / self.radius;
        let north = (y * self.unit - self.north) / self.radius;
        // From the plane to the sphere in transverse aspect, by the doubled angles.
        let (sin, cos) = north.sin_cos();
        let grown = east.map(|east| (2.0 * east).exp());
        let (step_north, step_east) = complex_sine_sum(
            &self.sphere,
            (2.0 * sin * cos, (cos - sin) * (cos + sin)),
            (0.5 * (grown - 1.0 / grown), 0.5 * (grown + 1.0 / grown)),
        );
        let (sin, cos) = turned(sin, cos, step_north);
        let across = (east + step_east).map(f64::sinh);
        let along = (across * across + cos * cos).map(f64::sqrt);
        let (lon, lat) = (across.with(cos, f64::atan2), sin.with(along, f64::atan2));
        // From the conformal latitude.
        let scale = 1.0 / (sin * sin + along * along);
        let turn = sine_sum(&self.geodetic, 2.0 * sin * along * scale, (along - sin) * (along + sin) * scale);
        let placed = |angle: Simd<N>| angle.only(east, |east| east.abs() <= FARTHEST);
        (placed(lon.map(|lon| around(lon + self.meridian))), placed(lat + turn))
    }
}

/// Sine and cosine minus one of angles up to [`NEAR`].
#[inline]
fn near_sin_cos<const N: usize>(angle: Simd<N>) -> (Simd<N>, Simd<N>) {
    const SIN: [f64; 6] =
        [1.0, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5_040.0, 1.0 / 362_880.0, -1.0 / 39_916_800.0];
    const COS: [f64; 6] =
        [-1.0 / 2.0, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40_320.0, -1.0 / 3_628_800.0, 1.0 / 479_001_600.0];
    let square = angle * angle;
    (angle * square.polynomial(SIN), square * square.polynomial(COS))
}

/// Sine and cosine minus one of any angle.
#[inline]
fn far_sin_cos<const N: usize>(angle: Simd<N>) -> (Simd<N>, Simd<N>) {
    let (sin, cos) = angle.sin_cos();
    (sin, cos - 1.0)
}

/// Sine and cosine of an angle plus a small one (at most 0.004), by the sum formulas.
#[inline]
pub(super) fn turned<const N: usize>(sin: Simd<N>, cos: Simd<N>, turn: Simd<N>) -> (Simd<N>, Simd<N>) {
    let square = turn * turn;
    let by_sin = turn * square.polynomial([1.0, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5_040.0]);
    let by_cos = square * square.polynomial([-1.0 / 2.0, 1.0 / 24.0, -1.0 / 720.0]);
    (sin + (sin * by_cos + cos * by_sin), cos + (cos * by_cos - sin * by_sin))
}

/// The inverse hyperbolic tangent of numbers up to [`NEAR`].
#[inline]
fn small_atanh<const N: usize>(tangent: Simd<N>) -> Simd<N> {
    const TERMS: [f64; 8] =
        [1.0, 1.0 / 3.0, 1.0 / 5.0, 1.0 / 7.0, 1.0 / 9.0, 1.0 / 11.0, 1.0 / 13.0, 1.0 / 15.0];
    tangent * (tangent * tangent).polynomial(TERMS)
}

fn polynomial<const K: usize>(x: f64, terms: [f64; K]) -> f64 {
    let Simd([sum]) = Simd([x]).polynomial(terms);
    sum
}

/// The sum of `series[k] sin 2(k + 1) angle`, by Clenshaw, from sine and cosine of the double angle.
#[inline]
pub(super) fn sine_sum<const N: usize>(series: &Series, sin: Simd<N>, cos: Simd<N>) -> Simd<N> {
    let (mut sum, mut last) = (Simd([0.0; N]), Simd([0.0; N]));
    for term in series.iter().rev() {
        (sum, last) = (2.0 * cos * sum + (*term - last), sum);
    }
    sin * sum
}

/// As [`sine_sum`], of complex angles: from sine and cosine of the double real part and their
/// hyperbolic counterparts of the double imaginary part.
#[inline]
fn complex_sine_sum<const N: usize>(
    series: &Series,
    (sin, cos): (Simd<N>, Simd<N>),
    (sinh, cosh): (Simd<N>, Simd<N>),
) -> (Simd<N>, Simd<N>) {
    let zero = (Simd([0.0; N]), Simd([0.0; N]));
    let times = |a: (Simd<N>, Simd<N>), b: (Simd<N>, Simd<N>)| (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0);
    let double_cos = (2.0 * cos * cosh, -2.0 * sin * sinh);
    let (mut sum, mut last) = (zero, zero);
    for term in series.iter().rev() {
        let next = times(double_cos, sum);
        (sum, last) = ((next.0 + (*term - last.0), next.1 - last.1), sum);
    }
    times((sin * cosh, cos * sinh), sum)
}

/// The terms of a series: the term of twice the angle begins with the first power of the third
/// flattening, that of four times the angle with the second, and so on.
fn series(n: f64, terms: [[f64; 6]; 6]) -> Series {
    let mut power = 1.0;
    terms.map(|terms| {
        power *= n;
        power * polynomial(n, terms)
    })
}

/// From the geodetic to the conformal latitude.
pub(super) fn conformal(n: f64) -> Series {
    series(
        n,
        [
            [-2.0, 2.0 / 3.0, 4.0 / 3.0, -82.0 / 45.0, 32.0 / 45.0, 4_642.0 / 4_725.0],
            [5.0 / 3.0, -16.0 / 15.0, -13.0 / 9.0, 904.0 / 315.0, -1_522.0 / 945.0, 0.0],
            [-26.0 / 15.0, 34.0 / 21.0, 8.0 / 5.0, -12_686.0 / 2_835.0, 0.0, 0.0],
            [1_237.0 / 630.0, -12.0 / 5.0, -24_832.0 / 14_175.0, 0.0, 0.0, 0.0],
            [-734.0 / 315.0, 109_598.0 / 31_185.0, 0.0, 0.0, 0.0, 0.0],
            [444_337.0 / 155_925.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        ],
    )
}

/// From the conformal to the geodetic latitude.
pub(super) fn geodetic(n: f64) -> Series {
    series(
        n,
        [
            [2.0, -2.0 / 3.0, -2.0, 116.0 / 45.0, 26.0 / 45.0, -2_854.0 / 675.0],
            [7.0 / 3.0, -8.0 / 5.0, -227.0 / 45.0, 2_704.0 / 315.0, 2_323.0 / 945.0, 0.0],
            [56.0 / 15.0, -136.0 / 35.0, -1_262.0 / 105.0, 73_814.0 / 2_835.0, 0.0, 0.0],
            [4_279.0 / 630.0, -332.0 / 35.0, -399_572.0 / 14_175.0, 0.0, 0.0, 0.0],
            [4_174.0 / 315.0, -144_838.0 / 6_237.0, 0.0, 0.0, 0.0, 0.0],
            [601_676.0 / 22_275.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        ],
    )
}

/// From the sphere to the plane: along a meridian, from the conformal to the rectifying latitude.
fn plane(n: f64) -> Series {
    series(
        n,
        [
            [1.0 / 2.0, -2.0 / 3.0, 5.0 / 16.0, 41.0 / 180.0, -127.0 / 288.0, 7_891.0 / 37_800.0],
            [13.0 / 48.0, -3.0 / 5.0, 557.0 / 1_440.0, 281.0 / 630.0, -1_983_433.0 / 1_935_360.0, 0.0],
            [61.0 / 240.0, -103.0 / 140.0, 15_061.0 / 26_880.0, 167_603.0 / 181_440.0, 0.0, 0.0],
            [49_561.0 / 161_280.0, -179.0 / 168.0, 6_601_661.0 / 7_257_600.0, 0.0, 0.0, 0.0],
            [34_729.0 / 80_640.0, -3_418_889.0 / 1_995_840.0, 0.0, 0.0, 0.0, 0.0],
            [212_378_941.0 / 319_334_400.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        ],
    )
}

/// From the plane to the sphere.
fn sphere(n: f64) -> Series {
    series(
        n,
        [
            [-1.0 / 2.0, 2.0 / 3.0, -37.0 / 96.0, 1.0 / 360.0, 81.0 / 512.0, -96_199.0 / 604_800.0],
            [-1.0 / 48.0, -1.0 / 15.0, 437.0 / 1_440.0, -46.0 / 105.0, 1_118_711.0 / 3_870_720.0, 0.0],
            [-17.0 / 480.0, 37.0 / 840.0, 209.0 / 4_480.0, -5_569.0 / 90_720.0, 0.0, 0.0],
            [-4_397.0 / 161_280.0, 11.0 / 504.0, 830_251.0 / 7_257_600.0, 0.0, 0.0, 0.0],
            [-4_583.0 / 161_280.0, 108_847.0 / 3_991_680.0, 0.0, 0.0, 0.0, 0.0],
            [-20_648_693.0 / 638_668_800.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        ],
    )
}
