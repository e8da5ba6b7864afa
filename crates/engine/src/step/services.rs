//! The services of a manifest, with what their steps share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_core::lane::LaneConfig;
use tidegate_core::patience;
use tidegate_core::time::seconds;
use url::Url;

use super::remote::Remote;
use crate::audit::Attempts;
use crate::cache;
use crate::call::Refusals;
use crate::http::{Allow, Client, ClientConfig, Dialect, Exchange, Trace};
use crate::lane::LaneKey;
use crate::manifest::{self, Policy};
use crate::secret::{Redactor, Secret, SecretRef};
use crate::traffic::Traffic;

/// The services of a manifest, with what they share: the traffic, the cache and the stop.
pub struct Services {
    forms: BTreeMap<String, manifest::Service>,
    pub(super) policy: Policy,
    cache: Option<PathBuf>,
    /// Set to stop a run from outside.
    pub stop: Arc<AtomicBool>,
    traffic: Traffic,
    patience: Duration,
}

impl Services {
    /// The services of a pipeline; `cache` is where answers are kept.
    #[must_use]
    pub fn new(
        manifest: &manifest::Manifest,
        cache: Option<PathBuf>,
        stop: Arc<AtomicBool>,
        traffic: Traffic,
    ) -> Services {
        let forms = manifest.pipeline.services.clone();
        // One patience for all that a run asks, whether as a source or in a step.
        let source = manifest.pipeline.source.as_ref();
        let patience = source.map_or(patience::DEFAULT, |source| seconds(source.patience_seconds));
        Services { forms, policy: Policy::from(manifest), cache, stop, traffic, patience }
    }

    /// The service of this name.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn get(&self, name: &str) -> Result<&manifest::Service, String> {
        self.forms.get(name).ok_or_else(|| format!("there is no service `{name}`"))
    }

    /// Makes a service ready to be asked.
    pub(super) fn open<T: Send + 'static>(
        &self,
        name: &str,
        base: &Url,
        dialect: Dialect<T>,
        (lane, trace): (LaneConfig, Trace),
    ) -> Result<Remote<T>, String> {
        let form = self.get(name)?;
        let allow = Allow::meant(base, form.allow_private, &[]);
        allow.url(base).map_err(|e| format!("{base}: {e}"))?;
        let client = Client::new(ClientConfig { allow, ..ClientConfig::default() }, [base])?;
        let mut redactor = Redactor::new();
        let lanes = self.traffic.lanes(&lane);
        if let Some((name, secret)) = &secret(form)? {
            redactor.add(secret);
            lanes.identify(name, secret);
        }
        // The manifest's lists of statuses are authoritative; the profile says what bodies mean.
        let mut dialect = Dialect { classifier: self.policy.classifier, ..dialect };
        dialect.classifier.reset_is_wait = !lane.limit.learn;
        let policy = self.policy.call;
        let exchange = Exchange { client, lanes, dialect, policy, redactor: Arc::new(redactor), trace };
        let cache = match &self.cache {
            Some(dir) => Some(cache::open(dir).map_err(|e| e.to_string())?),
            None => None,
        };
        let credential = form.key.as_deref().unwrap_or_default();
        Ok(Remote {
            runtime: self.traffic.runtime()?,
            exchange,
            cache,
            window: (lane.limit.in_flight_max.max(1) as usize).saturating_mul(4).min(4096),
            stop: self.stop.clone(),
            line: self.traffic.line(&LaneKey::of_url(base, credential), &policy),
            attempts: Attempts::new(name, self.traffic.enters_all()),
            patience: self.patience,
            caller: self.traffic.caller(name),
            refusals: Refusals::new(self.traffic.keeps_going()),
            not_found_is_answer: false,
        })
    }
}

/// The key of a service, and where it came from.
pub(crate) fn secret(form: &manifest::Service) -> Result<Option<(String, Secret)>, String> {
    let Some(name) = &form.key else { return Ok(None) };
    let from: SecretRef = name.parse().map_err(|e: crate::secret::SecretError| e.to_string())?;
    Ok(Some((from.to_string(), from.fetch().map_err(|e| e.to_string())?)))
}
