//! Random distributions: normal, exponential, and durations drawn from them.
//!
//! The mathematical functions come from `libm`, not from the operating system, so that a seed gives
//! the same trace on every machine. Normal draws use a ziggurat of 256 equal areas: 98.8 % of them
//! cost one random word, one multiplication and one comparison.

use core::time::Duration;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use tidegate_core::Chance;
use tidegate_core::time::seconds;

/// The number of layers of the ziggurat.
const LAYERS: usize = 256;
/// The start of the tail, in standard deviations, for 256 layers.
const TAIL: f64 = 3.654_152_885_361_009;
/// The area of every layer, for 256 layers.
const AREA: f64 = 0.004_928_673_233_99;

/// The right edges of the layers and the heights of the curve there.
struct Ziggurat {
    x: [f64; LAYERS + 1],
    y: [f64; LAYERS + 1],
}

fn bell(x: f64) -> f64 {
    libm::exp(-0.5 * x * x)
}

static ZIGGURAT: LazyLock<Ziggurat> = LazyLock::new(|| {
    let (mut x, mut y) = ([0.0; LAYERS + 1], [1.0; LAYERS + 1]);
    x[0] = AREA / bell(TAIL);
    y[0] = 0.0;
    x[1] = TAIL;
    y[1] = bell(TAIL);
    for i in 2..LAYERS {
        y[i] = y[i - 1] + AREA / x[i - 1];
        x[i] = libm::sqrt(-2.0 * libm::log(y[i]));
    }
    Ziggurat { x, y }
});

/// A generator of standard normal draws. It holds the table, so that a loop looks it up once.
#[derive(Clone, Copy)]
pub struct Normal(&'static Ziggurat);

impl Default for Normal {
    fn default() -> Normal {
        Normal::new()
    }
}

impl core::fmt::Debug for Normal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Normal")
    }
}

impl Normal {
    /// The standard normal distribution.
    #[must_use]
    pub fn new() -> Normal {
        Normal(&ZIGGURAT)
    }

    /// Draws a value.
    #[inline]
    pub fn draw(self, chance: &mut impl Chance) -> f64 {
        let bits = chance.bits();
        let layer = bits as usize & (LAYERS - 1);
        // 55 bits above the layer: sign and magnitude in one.
        let x = ((bits as i64) >> 8) as f64 * (1.0 / (1u64 << 55) as f64) * self.0.x[layer];
        if x.abs() < self.0.x[layer + 1] { x } else { self.rare(layer, x, chance) }
    }

    /// The edge of a layer, or the tail.
    #[cold]
    fn rare(self, layer: usize, x: f64, chance: &mut impl Chance) -> f64 {
        if layer == 0 {
            loop {
                let far = -libm::log(1.0 - chance.unit()) / TAIL;
                let high = -libm::log(1.0 - chance.unit());
                if 2.0 * high > far * far {
                    return if x < 0.0 { -(TAIL + far) } else { TAIL + far };
                }
            }
        }
        let (low, high) = (self.0.y[layer], self.0.y[layer + 1]);
        if chance.between(low, high) < bell(x) { x } else { self.draw(chance) }
    }
}

/// An exponential draw with this mean.
pub fn exponential(mean: f64, chance: &mut impl Chance) -> f64 {
    -mean * libm::log(1.0 - chance.unit())
}

/// A duration in seconds, fixed or random.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RandomDuration {
    /// Always this duration.
    Constant(f64),
    /// The absolute value of a normal draw.
    Normal {
        /// Mean in seconds.
        mean: f64,
        /// Standard deviation in seconds.
        deviation: f64,
    },
    /// Exponential with this mean in seconds.
    Exponential(f64),
}

impl Default for RandomDuration {
    fn default() -> RandomDuration {
        RandomDuration::Constant(0.0)
    }
}

impl RandomDuration {
    /// Draws a duration.
    pub fn draw(&self, chance: &mut impl Chance) -> Duration {
        seconds(match *self {
            RandomDuration::Constant(s) => s,
            RandomDuration::Normal { mean, deviation } => {
                (mean + deviation * Normal::new().draw(chance)).abs()
            }
            RandomDuration::Exponential(mean) => exponential(mean, chance),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::Rng;

    #[test]
    fn the_layers_close_at_the_top() {
        let z = &*ZIGGURAT;
        let top = z.x[LAYERS - 1] * (1.0 - z.y[LAYERS - 1]);
        assert!((top / AREA - 1.0).abs() < 1e-8, "{top}");
    }

    #[test]
    fn normal_has_the_moments_and_tails_of_the_normal() {
        let (normal, mut rng) = (Normal::new(), Rng::new(3));
        let n = 4_000_000;
        let (mut moments, mut beyond) = ([0.0; 4], [0u32; 5]);
        for _ in 0..n {
            let x = normal.draw(&mut rng);
            for (power, sum) in moments.iter_mut().enumerate() {
                *sum += x.powi(power as i32 + 1);
            }
            for (edge, count) in beyond.iter_mut().enumerate() {
                *count += u32::from(x > edge as f64);
            }
        }
        let scale = f64::from(n);
        for (sum, (mean, deviation)) in moments.iter().zip([(0.0, 1.0), (1.0, 1.42), (0.0, 3.88), (3.0, 9.8)])
        {
            assert!((sum / scale - mean).abs() < 4.0 * deviation / scale.sqrt(), "{moments:?}");
        }
        let upper = [0.5, 0.158_655_254, 0.022_750_132, 0.001_349_898, 0.000_031_671];
        for (&count, p) in beyond.iter().zip(upper) {
            let (expected, deviation) = (p * scale, (p * (1.0 - p) * scale).sqrt());
            assert!((f64::from(count) - expected).abs() < 4.0 * deviation, "{count} for {expected}");
        }
    }

    #[test]
    fn spans_have_their_means() {
        let mut rng = Rng::new(4);
        for (span, mean) in [
            (RandomDuration::Constant(0.25), 0.25),
            (RandomDuration::Normal { mean: 0.01, deviation: 0.002 }, 0.01),
            (RandomDuration::Exponential(0.01), 0.01),
        ] {
            let n = 200_000;
            let sum: f64 = (0..n).map(|_| span.draw(&mut rng).as_secs_f64()).sum();
            assert!((sum / f64::from(n) / mean - 1.0).abs() < 0.01, "{span:?}: {}", sum / f64::from(n));
        }
    }
}
