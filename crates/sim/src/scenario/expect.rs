//! Expectations of a scenario.
//!
//! An expectation is about one metric: `equals`, `at_least` and `at_most` apply to every trial,
//! `between` to the mean; `mean` with `within` compares a published or computed mean with the mean
//! of our trials. `within` is a number of standard errors of our trials (`4se`), a percentage
//! (`1%`) or an absolute number; next to `at_least` and `at_most` it is their tolerance. All
//! conditions of an expectation must hold.
//!
//! A measured value that may improve is a bound (`at_least`, `at_most`), not a value: an improvement
//! must not fail.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::stats::TrialSummary;

/// Expectations by case and metric.
pub type Expectations = BTreeMap<String, BTreeMap<String, Expectation>>;

/// The tolerance of a mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Within {
    /// A number of standard errors.
    Errors(f64),
    /// A fraction of the expected value.
    Share(f64),
    /// An absolute number.
    Plain(f64),
}

impl<'de> Deserialize<'de> for Within {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Within, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Within;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`4se`, `1%` or a number, not negative")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Within, E> {
                let (digits, make): (_, fn(f64) -> Within) = match text {
                    _ if text.ends_with("se") => (text.trim_end_matches("se"), Within::Errors),
                    _ if text.ends_with('%') => (text.trim_end_matches('%'), |x| Within::Share(x / 100.0)),
                    _ => (text, Within::Plain),
                };
                match digits.trim().parse::<f64>() {
                    Ok(x) if x >= 0.0 && x.is_finite() => Ok(make(x)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
            fn visit_f64<E: de::Error>(self, x: f64) -> Result<Within, E> {
                self.visit_str(&x.to_string())
            }
            fn visit_u64<E: de::Error>(self, x: u64) -> Result<Within, E> {
                self.visit_str(&x.to_string())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Within::Errors(x) => write!(f, "{x} se"),
            Within::Share(x) => write!(f, "{} %", x * 100.0),
            Within::Plain(x) => write!(f, "{x}"),
        }
    }
}

/// An expectation about one metric of one case.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct Expectation {
    /// The value of every trial.
    equals: Option<f64>,
    /// The range of the mean, inclusive.
    between: Option<[f64; 2]>,
    /// The lower bound of every trial.
    at_least: Option<f64>,
    /// The upper bound of every trial.
    at_most: Option<f64>,
    /// The expected mean, with the tolerance `within`.
    mean: Option<f64>,
    /// The tolerance of `mean`, `at_least` and `at_most`.
    within: Option<Within>,
    /// The unit to which `mean` was rounded when published; half of it is added to the tolerance.
    rounded: Option<f64>,
}

/// An expectation with its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckedExpectation {
    /// The name of the case.
    pub case: String,
    /// The name of the metric.
    pub metric: String,
    /// The expected value or range, as text.
    pub wanted: String,
    /// The mean over the trials; `None` if the metric is unknown.
    pub got: Option<f64>,
    /// The standard error of the mean.
    pub se: f64,
    /// Whether the expectation is met.
    pub held: bool,
}

impl Expectation {
    /// Every trial gives exactly this.
    #[must_use]
    pub fn exactly(value: f64) -> Expectation {
        Expectation { equals: Some(value), ..Expectation::default() }
    }

    /// No trial gives less than this.
    #[must_use]
    pub fn no_less_than(value: f64) -> Expectation {
        Expectation { at_least: Some(value), ..Expectation::default() }
    }

    /// No trial gives more than this.
    #[must_use]
    pub fn no_more_than(value: f64) -> Expectation {
        Expectation { at_most: Some(value), ..Expectation::default() }
    }

    /// The reason why the expectation itself is invalid, if it is.
    #[must_use]
    pub fn flaw(&self) -> Option<&'static str> {
        let bounds = [self.equals, self.at_least, self.at_most, self.mean];
        if self.between.is_none() && bounds.iter().all(Option::is_none) {
            return Some("give `equals`, `between`, `at_least`, `at_most`, or `mean` with `within`");
        }
        let taken = self.mean.or(self.at_least).or(self.at_most).is_some();
        if self.within.is_some() && !taken {
            return Some("`within` needs `mean`, `at_least` or `at_most`");
        }
        (self.mean.is_some() && self.within.is_none()).then_some("`mean` needs `within`")
    }

    /// The bound from below, if that is what is expected.
    #[must_use]
    pub const fn at_least(&self) -> Option<f64> {
        self.at_least
    }

    /// The bound from above, if that is what is expected.
    #[must_use]
    pub const fn at_most(&self) -> Option<f64> {
        self.at_most
    }

    /// Whether the result meets the expectation.
    #[must_use]
    pub fn holds(&self, got: &TrialSummary) -> bool {
        let mean = got.mean;
        let slack = |wanted: f64| match self.within {
            None => 0.0,
            Some(Within::Errors(k)) => k * got.se,
            Some(Within::Share(s)) => s * wanted.abs(),
            Some(Within::Plain(x)) => x,
        };
        let rounding = self.rounded.unwrap_or(0.0).max(0.0) / 2.0;
        got.n > 0
            && self.equals.is_none_or(|x| got.min == x && got.max == x)
            && self.between.is_none_or(|[a, b]| (a..=b).contains(&mean))
            && self.at_least.is_none_or(|x| got.min >= x - slack(x))
            && self.at_most.is_none_or(|x| got.max <= x + slack(x))
            && self.mean.is_none_or(|x| (mean - x).abs() <= slack(x) + rounding)
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.equals.map(|x| format!("= {x}")));
        parts.extend(self.between.map(|[a, b]| format!("{a} … {b}")));
        let by = |sign: char| self.within.map(|within| format!(" {sign} {within}")).unwrap_or_default();
        parts.extend(self.at_least.map(|x| format!("≥ {x}{}", by('−'))));
        parts.extend(self.at_most.map(|x| format!("≤ {x}{}", by('+'))));
        parts.extend(self.mean.map(|x| format!("{x}{}", by('±'))));
        parts.extend(self.rounded.map(|unit| format!("rounded to {unit}")));
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(yaml: &str) -> Expectation {
        serde_saphyr::from_str(yaml).unwrap()
    }

    fn summary(mean: f64, se: f64) -> TrialSummary {
        TrialSummary { n: 10, mean, se, min: mean - se, max: mean + se }
    }

    #[test]
    fn each_kind_of_check() {
        for (yaml, good, bad, words) in [
            ("{mean: 100, within: 4se}", summary(104.0, 1.0), summary(104.1, 1.0), "100 ± 4 se"),
            (
                "{mean: 100, within: 4se, rounded: 1}",
                summary(104.5, 1.0),
                summary(104.6, 1.0),
                "100 ± 4 se, rounded to 1",
            ),
            ("{mean: 100, within: 1%}", summary(101.0, 0.0), summary(101.1, 9.0), "100 ± 1 %"),
            ("{mean: 100, within: 0.5}", summary(99.5, 0.0), summary(99.4, 9.0), "100 ± 0.5"),
            ("{equals: 7}", summary(7.0, 0.0), summary(7.0, 0.1), "= 7"),
            ("{between: [1, 2]}", summary(2.0, 0.0), summary(2.1, 0.0), "1 … 2"),
            ("{at_least: 1, at_most: 2}", summary(1.5, 0.5), summary(1.5, 0.6), "≥ 1, ≤ 2"),
            (
                "{mean: 3, within: 0.5, at_most: 3.6}",
                summary(3.4, 0.2),
                summary(3.6, 0.2),
                "≤ 3.6 + 0.5, 3 ± 0.5",
            ),
            ("{at_least: 99, within: 1}", summary(98.5, 0.5), summary(98.5, 0.6), "≥ 99 − 1"),
            ("{at_most: 0.5, within: 1}", summary(1.0, 0.5), summary(1.0, 0.6), "≤ 0.5 + 1"),
        ] {
            let check = check(yaml);
            assert_eq!(check.flaw(), None, "{yaml}");
            assert!(check.holds(&good), "{yaml}");
            assert!(!check.holds(&bad), "{yaml}");
            assert_eq!(check.to_string(), words);
        }
    }

    #[test]
    fn half_a_check_is_flawed() {
        for yaml in ["{}", "{mean: 1}", "{mean: 1, at_most: 2}", "{within: 4se}", "{equals: 1, within: 4se}"]
        {
            assert!(check(yaml).flaw().is_some(), "{yaml}");
        }
        for yaml in ["{mean: 1, within: -4se}", "{mean: 1, within: x}", "{mean: 1, wthin: 4se}"] {
            assert!(serde_saphyr::from_str::<Expectation>(yaml).is_err(), "{yaml}");
        }
    }

    #[test]
    fn nothing_measured_holds_no_promise() {
        let none = TrialSummary { n: 0, mean: 0.0, se: 0.0, min: 0.0, max: 0.0 };
        assert!(!check("{between: [0, 1]}").holds(&none));
    }
}
