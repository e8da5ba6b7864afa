//! A histogram with fixed bounds: counts per bucket, and the sum.

use super::{add, get};
use std::sync::atomic::AtomicU64;

/// Counts per bucket; each bound is the upper end of one, the last bucket has none.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    counts: Vec<AtomicU64>,
    /// In millionths, so that it can be an atomic.
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

    /// The upper ends with the count up to each, as Prometheus wants them; infinity last.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let ends = self.bounds.iter().copied().chain([f64::INFINITY]);
        ends.zip(&self.counts).scan(0, |sum, (end, count)| {
            *sum += get(count);
            Some((end, *sum))
        })
    }

    /// How many values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().map(get).sum()
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> f64 {
        get(&self.sum_millionths) as f64 / 1e6
    }

    /// The upper end of the bucket in which this share of the values lies; zero when there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = (share * self.count() as f64).ceil() as u64;
        let last = self.bounds.last().copied().unwrap_or(0.0);
        if rank == 0 {
            return 0.0;
        }
        self.cumulative().find(|(_, n)| *n >= rank).map_or(last, |(end, _)| end.min(last))
    }
}
