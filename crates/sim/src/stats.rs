//! Means with standard errors in one numerically stable pass (Welford).

use serde::Serialize;

/// Summary statistics of a value over several trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TrialSummary {
    /// The number of trials.
    pub n: u64,
    /// The mean of their values.
    pub mean: f64,
    /// The standard error of the mean; 0 for a single trial.
    pub se: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

/// Collects one value per trial.
#[derive(Clone, Copy, Debug)]
pub struct TrialTally {
    /// The number of trials.
    n: u64,
    mean: f64,
    /// Sum of the squared deviations from the mean.
    squares: f64,
    min: f64,
    max: f64,
}

impl Default for TrialTally {
    fn default() -> TrialTally {
        TrialTally { n: 0, mean: 0.0, squares: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY }
    }
}

impl TrialTally {
    /// Adds the value of one trial.
    pub fn add(&mut self, x: f64) {
        self.n += 1;
        let off = x - self.mean;
        self.mean += off / self.n as f64;
        self.squares += off * (x - self.mean);
        self.min = self.min.min(x);
        self.max = self.max.max(x);
    }

    /// The summary so far; all zero before the first trial.
    #[must_use]
    pub fn summary(&self) -> TrialSummary {
        let n = self.n as f64;
        match self.n {
            0 => TrialSummary { n: 0, mean: 0.0, se: 0.0, min: 0.0, max: 0.0 },
            1 => TrialSummary { n: 1, mean: self.mean, se: 0.0, min: self.min, max: self.max },
            _ => TrialSummary {
                n: self.n,
                mean: self.mean,
                se: (self.squares / (n - 1.0) / n).sqrt(),
                min: self.min,
                max: self.max,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_error_of_a_small_sample() {
        let mut tally = TrialTally::default();
        assert_eq!(tally.summary().mean, 0.0);
        [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].into_iter().for_each(|x| tally.add(x));
        let s = tally.summary();
        assert_eq!((s.n, s.mean, s.min, s.max), (8, 5.0, 2.0, 9.0));
        assert!((s.se - (32.0f64 / 7.0 / 8.0).sqrt()).abs() < 1e-12);
    }
}
