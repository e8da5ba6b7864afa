//! What the user fixes.

/// What the user fixes; everything else is learned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitConfig {
    /// The highest rate, in calls per second.
    pub rate_max: Option<f64>,
    /// The burst under `rate_max`, in calls.
    pub burst: Option<f64>,
    /// The most calls in flight.
    pub in_flight_max: u32,
    /// Whether to learn from refusals and headers.
    pub learn: bool,
}

impl Default for LimitConfig {
    fn default() -> LimitConfig {
        LimitConfig { rate_max: None, burst: None, in_flight_max: IN_FLIGHT_MAX, learn: true }
    }
}

impl LimitConfig {
    /// What holds for calls that both were fixed for: the lower of each.
    #[must_use]
    pub fn and(self, other: LimitConfig) -> LimitConfig {
        let lower = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        LimitConfig {
            rate_max: lower(self.rate_max, other.rate_max),
            burst: lower(self.burst, other.burst),
            in_flight_max: self.in_flight_max.min(other.in_flight_max),
            learn: self.learn || other.learn,
        }
    }
}

/// Calls in flight that are allowed by default.
const IN_FLIGHT_MAX: u32 = 64;
