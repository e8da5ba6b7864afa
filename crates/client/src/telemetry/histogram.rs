//! A histogram with fixed bounds: a count per bucket, and the sum.

use super::sample::SampleValue;
use super::{add, get};
use std::sync::atomic::AtomicU64;

/// Counts per bucket. Each bound is the upper limit of a bucket; the last bucket has none.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    counts: Vec<AtomicU64>,
    /// The sum in millionths, so that it can be an atomic integer.
    sum_millionths: AtomicU64,
}

impl Histogram {
    /// An empty histogram.
    #[must_use]
    pub fn new(bounds: &'static [f64]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum_millionths: AtomicU64::new(0) }
    }

    /// Counts one value.
    pub fn observe(&self, value: f64) {
        let place = self.bounds.iter().position(|b| value <= *b).unwrap_or(self.bounds.len());
        add(&self.counts[place], 1);
        add(&self.sum_millionths, (value * 1e6) as u64);
    }

    /// The counts per bucket; the last has no upper limit.
    pub fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        self.counts.iter().map(get)
    }

    /// The histogram as the value of a sample.
    #[must_use]
    pub fn value(&self) -> SampleValue {
        let counts = self.counts.iter().map(get).collect();
        SampleValue::Histogram { ends: self.bounds.to_vec(), counts, sum: self.sum() }
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().map(get).sum()
    }

    /// The sum of the values.
    #[must_use]
    pub fn sum(&self) -> f64 {
        get(&self.sum_millionths) as f64 / 1e6
    }
}

/// The upper limit of the bucket that contains this quantile; zero if there are no values, the last
/// limit for values beyond it.
#[must_use]
pub fn quantile(ends: &[f64], counts: &[u64], share: f64) -> f64 {
    let rank = (share * counts.iter().sum::<u64>() as f64).ceil() as u64;
    let last = ends.last().copied().unwrap_or(0.0);
    if rank == 0 {
        return 0.0;
    }
    let mut so_far = 0;
    let place = counts.iter().position(|n| {
        so_far += n;
        so_far >= rank
    });
    place.and_then(|at| ends.get(at)).copied().unwrap_or(last)
}
