//! Scenario files: parameters, a reason, and exact expectations.
//!
//! A scenario is data, so a team can test its retry policy without writing code, and tests, the
//! command and other languages read the same file. It gives its reason in one sentence, because an
//! expectation without a reason is easily changed by mistake later. Unknown keys are errors with
//! their position, because a misspelt expectation would otherwise always hold.

pub mod expect;

use serde::Deserialize;

use crate::compare;
use crate::contention::Contention;
use crate::limiter::LimiterSpec;
use crate::outcome::ScenarioOutcome;
use crate::rival::Rival;
use crate::world::policy::ClientPolicy;
use crate::world::{self, CaseSpec, WorldCase, WorldSpec};
use expect::Expectations;
use tidegate_core::suggest::{nearest, question};

/// The most YAML nodes of a scenario.
const NODES_MAX: usize = 10_000;

/// One scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct Scenario {
    /// A short name.
    pub name: String,
    /// One sentence on why it exists.
    pub reason: String,
    /// The manifest whose policy is that of the clients, unless a `client` section says otherwise. A
    /// relative path starts at the directory of the scenario.
    pub include: Option<String>,
    /// The seed of the random generator.
    #[serde(default = "one")]
    pub seed: u64,
    /// Trials per case.
    #[serde(default = "one")]
    pub trials: u32,
    /// The names of the metrics to show; all by default.
    #[serde(default)]
    pub show: Vec<String>,
    /// The names of the cases to plot; the first six by default.
    #[serde(default)]
    pub plot: Vec<String>,
    /// Experiment: many writers on one row.
    pub contention: Option<Contention>,
    /// Experiment: clients and a server.
    pub world: Option<WorldSpec>,
    /// Experiment: how well the limiter finds an unknown limit.
    pub limiter: Option<LimiterSpec>,
    /// Variants of the world; if there are none, there is one case called `run`.
    #[serde(default)]
    pub cases: Vec<CaseSpec>,
    /// The expected metrics, by case.
    #[serde(default)]
    pub expect: Expectations,
}

fn one<T: From<u8>>() -> T {
    T::from(1)
}

/// The error with its position, and a suggestion.
fn words(error: &serde_saphyr::Error) -> String {
    let guess = match error.without_snippet() {
        serde_saphyr::Error::SerdeUnknownField { field, expected, .. } => {
            nearest(field, expected.iter().copied())
        }
        serde_saphyr::Error::SerdeUnknownVariant { variant, expected, .. } => {
            nearest(variant, expected.iter().copied())
        }
        _ => None,
    };
    let text = error.to_string();
    guess.map_or_else(|| text.clone(), |guess| format!("{}\nhelp: did you mean `{guess}`?", text.trim_end()))
}

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct ScenarioOptions {
    /// The seed, instead of the scenario's.
    pub seed: Option<u64>,
    /// The number of trials per case, instead of the scenario's.
    pub trials: Option<u32>,
    /// The names of additional policies to run.
    pub compare: Vec<String>,
    /// The policy of the manifest that the scenario includes, which the caller has read.
    pub included: Option<ClientPolicy>,
}

/// Why a scenario cannot be run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a scenario; the message says where and why.
    Parse(String),
    /// It is a scenario with invalid values.
    Invalid(String),
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Error::Parse(text) | Error::Invalid(text) => f.write_str(text),
        }
    }
}

impl core::error::Error for Error {}

fn invalid(error: impl core::error::Error) -> Error {
    Error::Invalid(error.to_string())
}

impl Scenario {
    /// Parses and validates a scenario.
    ///
    /// # Errors
    /// With line, column and snippet if the text is invalid.
    pub fn parse(text: &str) -> Result<Scenario, Error> {
        let options = serde_saphyr::options! {
            // Many cases may share one anchor; the size of expanded aliases is still bounded.
            budget: serde_saphyr::budget! { max_nodes: NODES_MAX, enforce_alias_anchor_ratio: false },
        };
        let scenario: Scenario = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| Error::Parse(words(&error)))?;
        scenario.flaw().map_or(Ok(scenario), |flaw| Err(Error::Invalid(flaw)))
    }

    fn flaw(&self) -> Option<String> {
        if self.trials == 0 {
            return Some("`trials` must be at least 1".to_owned());
        }
        if let Some(world) = &self.world
            && let Err(flaw) = world::cases(world, &self.cases)
        {
            return Some(flaw.to_string());
        }
        if let Some(flaw) = self.limiter.as_ref().and_then(LimiterSpec::flaw) {
            return Some(flaw);
        }
        if self.include.is_some() && self.world.is_none() {
            return Some("`include` needs a `world`".to_owned());
        }
        let questions = [self.contention.is_some(), self.world.is_some(), self.limiter.is_some()];
        if questions.iter().filter(|asked| **asked).count() != 1 {
            return Some("give one of `contention`, `world` and `limiter`".to_owned());
        }
        let names: Vec<&str> = self.cases.iter().map(|case| case.name.as_str()).collect();
        if let Some(stranger) = self.plot.iter().find(|name| !names.contains(&name.as_str())) {
            return Some(format!("plot: there is no case `{stranger}`{}", question(stranger, &names)));
        }
        for (case, metrics) in &self.expect {
            for (metric, check) in metrics {
                if let Some(flaw) = check.flaw() {
                    return Some(format!("expect.{case}.{metric}: {flaw}"));
                }
            }
        }
        None
    }

    /// Runs the scenario.
    ///
    /// # Errors
    /// When a policy to compare with is unknown.
    pub fn run(&self, options: &ScenarioOptions) -> Result<ScenarioOutcome, Error> {
        let seed = options.seed.unwrap_or(self.seed);
        let trials = options.trials.unwrap_or(self.trials).max(1);
        let mut outcome = ScenarioOutcome {
            name: self.name.clone(),
            reason: self.reason.trim().to_owned(),
            seed,
            trials,
            ..ScenarioOutcome::default()
        };
        if let Some(contention) = &self.contention {
            if !options.compare.is_empty() {
                return Err(Error::Invalid("the contention table compares all policies already".to_owned()));
            }
            contention.run(seed, trials, &mut outcome);
        }
        if let Some(limiter) = &self.limiter {
            let rivals: Result<Vec<Rival>, _> = options.compare.iter().map(|n| Rival::named(n)).collect();
            let rivals = rivals.map_err(invalid)?;
            limiter.run(seed, trials, &mut outcome);
            outcome.check(&self.expect);
            limiter.compare(&rivals, seed, trials, &mut outcome);
            self.choose(&mut outcome);
            return Ok(outcome);
        }
        let worlds = match &self.world {
            Some(world) => self.worlds(world, options.included)?,
            None => Vec::new(),
        };
        let rivals = compare::worlds(&worlds, &options.compare).map_err(invalid)?;
        world::run(&worlds, seed, trials, &mut outcome);
        outcome.check(&self.expect);
        if !rivals.is_empty() {
            outcome.plots.clear();
            outcome.cases.clear();
            world::run(&rivals, seed, trials, &mut outcome);
        }
        self.choose(&mut outcome);
        Ok(outcome)
    }

    /// The worlds of all cases; those without a `client` section have the included policy.
    fn worlds(&self, world: &WorldSpec, included: Option<ClientPolicy>) -> Result<Vec<WorldCase>, Error> {
        let mut worlds = world::cases(world, &self.cases).map_err(invalid)?;
        if self.include.is_none() {
            return Ok(worlds);
        }
        let policy = included.ok_or_else(|| {
            Error::Invalid("the manifest that the scenario includes was not read".to_owned())
        })?;
        let has_client = |at: usize| {
            world.client.is_some() || self.cases.get(at).is_some_and(|case| case.with.client.is_some())
        };
        for (_, case) in worlds.iter_mut().enumerate().filter(|(at, _)| !has_client(*at)) {
            case.world.policy = policy;
        }
        Ok(worlds)
    }

    /// Keeps the metrics to show, in the order of the scenario.
    fn choose(&self, outcome: &mut ScenarioOutcome) {
        outcome.choose_lines(&self.plot);
        if !self.show.is_empty() {
            let place = |name: &str| self.show.iter().position(|s| s == name);
            for case in &mut outcome.cases {
                case.metrics.retain(|m| place(m.name).is_some());
                case.metrics.sort_by_key(|m| place(m.name));
            }
        }
    }
}
