//! Double-double arithmetic: numbers of two doubles, with about 106 bits.

/// A number as the sum of two doubles, the second below the last bit of the first.
#[derive(Clone, Copy)]
pub(super) struct Double {
    pub(super) high: f64,
    pub(super) low: f64,
}

impl Double {
    /// The sum of two doubles and what rounding took from it.
    fn sum(a: f64, b: f64) -> Double {
        let high = a + b;
        let part = high - a;
        Double { high, low: (a - (high - part)) + (b - part) }
    }

    pub(super) fn difference(a: f64, b: f64) -> Double {
        Double::sum(a, -b)
    }

    pub(super) fn times(self, other: Double) -> Double {
        let high = self.high * other.high;
        let lost = self.high.mul_add(other.high, -high);
        let low = lost + (self.high * other.low + self.low * other.high);
        Double::settled(high, low)
    }

    pub(super) fn minus(self, other: Double) -> Double {
        let highs = Double::difference(self.high, other.high);
        let lows = Double::difference(self.low, other.low);
        let first = Double::settled(highs.high, highs.low + lows.high);
        Double::settled(first.high, first.low + lows.low)
    }

    fn settled(high: f64, low: f64) -> Double {
        let sum = high + low;
        Double { high: sum, low: low + (high - sum) }
    }

    /// By Dekker's division, whose last bit decides ties as GEOS decides them.
    pub(super) fn over(self, other: Double) -> Double {
        let first = self.high / other.high;
        let taken = Double::product(first, other.high);
        let rest = (((self.high - taken.high) - taken.low) + self.low) - first * other.low;
        Double::settled(first, rest / other.high)
    }

    /// The product of two doubles, exactly.
    pub(super) fn product(a: f64, b: f64) -> Double {
        let high = a * b;
        Double { high, low: a.mul_add(b, -high) }
    }

    /// The nearest double.
    pub(super) fn rounded(self) -> f64 {
        self.high + self.low
    }
}
