//! The services of a manifest, with what their steps share.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_core::call::WhileOpen;
use tidegate_core::fallback::FallbackOn;
use tidegate_core::lane::LaneConfig;
use tidegate_core::time::seconds;
use url::Url;

use super::asker::Asker;
use super::dispatch::{Dispatcher, ServiceLink};
use super::remote::{OnMissing, Remote, RemoteKind, RemoteProvider};
use super::window::RecordWindow;
use crate::cache::{self, CachePlace};
use crate::call::RefusalCounter;
use crate::http::{Allow, Client, ClientConfig, Exchange, ServiceDialect, Trace};
use crate::lane::LaneKey;
use crate::manifest::{self, Policy};
use crate::profile::Profiles;
use crate::raster::RasterKey;
use crate::secret::{NamedSecret, Redactor, SecretRef};
use crate::traffic::Traffic;

/// The default window of a remote step: this many records, or this many batches of the source if
/// that is more.
const WINDOW_RECORDS: usize = 16 * 1024;
const WINDOW_BATCHES: usize = 4;

/// The services of a manifest, with what they share: the traffic, the cache and the stop.
pub struct Services {
    forms: BTreeMap<String, (manifest::ServiceSpec, Policy)>,
    /// The catalogue that the source takes its assets from.
    assets_of: Option<String>,
    cache: Option<CachePlace>,
    window: usize,
    /// Set to stop a run from outside.
    pub stop: Arc<AtomicBool>,
    traffic: Traffic,
    patience: Duration,
    /// The number of the run, under which failures are cached; 0 for a replay, which caches none.
    run: u64,
}

impl Services {
    /// The services of a pipeline; `cache` is the place of the response cache.
    #[must_use]
    pub fn new(
        manifest: &manifest::Manifest,
        cache: Option<CachePlace>,
        stop: Arc<AtomicBool>,
        traffic: Traffic,
        run: u64,
    ) -> Services {
        let forms = manifest.pipeline.services.iter();
        let forms =
            forms.map(|(name, form)| (name.clone(), (form.clone(), Policy::of_service(manifest, form))));
        let forms = forms.collect();
        let batch = manifest.pipeline.source.as_ref().map_or(0, |source| source.batch_size as usize);
        let window = WINDOW_RECORDS.max(batch.saturating_mul(WINDOW_BATCHES));
        let patience = traffic.patience();
        let source = manifest.pipeline.source.as_ref().filter(|source| !source.assets.is_empty());
        let assets_of = source.and_then(|source| source.service.clone());
        Services { forms, assets_of, cache, window, stop, traffic, patience, run }
    }

    /// The key of the catalogue that the source takes its assets from.
    ///
    /// # Errors
    /// If it cannot be read, or sent.
    pub(super) fn asset_key(&self) -> Result<Option<RasterKey>, String> {
        let Some(name) = &self.assets_of else { return Ok(None) };
        let (form, _) = self.get(name)?;
        let (Some(key), Some(address)) = (secret(form)?, form.url.as_deref()) else { return Ok(None) };
        let profiles = form.profiles.as_deref().map(Path::new);
        let profile = Profiles::one(form.profile.as_deref().unwrap_or("stac"), profiles);
        let credentials = profile.map_err(|e| e.to_string())?.credentials(Some(&key));
        Ok(Some(RasterKey {
            home: Url::parse(address).map_err(|e| format!("services.{name}: {e}"))?,
            credentials: credentials.map_err(|e| format!("services.{name}: {e}"))?,
            key,
        }))
    }

    /// The calls of the run.
    pub(super) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// The service of this name, and the policy for calls to it.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn get(&self, name: &str) -> Result<(&manifest::ServiceSpec, &Policy), String> {
        let (form, policy) = self.forms.get(name).ok_or_else(|| format!("no service `{name}`"))?;
        Ok((form, policy))
    }

    /// A step, ready to ask the service of this name, and its fallbacks instead. `provider` makes the
    /// part of each.
    pub(super) fn open<K: RemoteKind>(
        &self,
        name: &str,
        provider: impl Fn(&str) -> Result<ProviderParts<K>, String>,
        on: OnMissing,
    ) -> Result<Remote<K>, String> {
        let (form, _) = self.get(name)?;
        let falls = form.falls();
        // From the last to the first: each knows the next.
        let mut fallbacks: Vec<RemoteProvider<K>> = Vec::new();
        for (at, name) in form.fallback.iter().enumerate().rev() {
            let parts = provider(name).map_err(|e| format!("fallback `{name}`: {e}"))?;
            let next = fallbacks.last().map(|next| (next.dispatcher.asker(), falls));
            let place = u8::try_from(at + 1).map_err(|_| "too many fallbacks")?;
            fallbacks.push(self.connect((name, place), parts, next)?);
        }
        let next = fallbacks.last().map(|next| (next.dispatcher.asker(), falls));
        let first = self.connect((name, 0), provider(name)?, next)?;
        fallbacks.reverse();
        Ok(Remote {
            first,
            fallbacks,
            window: RecordWindow::new(form.window.map_or(self.window, |records| records as usize)),
            stop: self.stop.clone(),
            on,
        })
    }

    /// The part of a step that asks one service.
    fn connect<K: RemoteKind>(
        &self,
        (name, place): (&str, u8),
        ProviderParts { kind, base, dialect, lane, trace }: ProviderParts<K>,
        next: Option<(Asker<K>, FallbackOn)>,
    ) -> Result<RemoteProvider<K>, String> {
        let (form, policy) = self.get(name)?;
        let base = &base;
        let allow = Allow::meant(base, form.allow_private, &form.allow_hosts);
        let trust = if self.traffic.is_from_options() {
            "pass --allow-private or --allow-host"
        } else {
            "set `allow_private: true` or `allow_hosts` on the service"
        };
        allow.url(base).map_err(|e| format!("{base}: {e}; if you trust it, {trust}"))?;
        let mut client = ClientConfig { allow, ..ClientConfig::default() };
        if let Some(bytes_max) = kind.body_bytes_max() {
            client.body.bytes_max = bytes_max;
        }
        let client = Client::new(client, [base]).map_err(|e| e.to_string())?;
        let mut redactor = Redactor::new();
        let lanes = self.traffic.lanes(&lane);
        if let Some(NamedSecret { name, secret }) = &secret(form)? {
            redactor.add(secret);
            lanes.identify(name, secret);
        }
        // The manifest's lists of statuses are authoritative; the profile says what bodies mean.
        let mut dialect = dialect;
        if policy.lists_statuses {
            dialect.classifier = policy.classifier;
        }
        dialect.classifier = dialect.classifier.for_lane(&lane);
        let mut policy = policy.call;
        if next.as_ref().is_some_and(|(_, on)| on.circuit_open) {
            policy.while_open = WhileOpen::Park;
        }
        let exchange = Exchange { client, lanes, dialect, policy, redactor: Arc::new(redactor), trace };
        let (cache, cached) = match self.cache.as_ref().filter(|_| form.cache) {
            Some(place) => cache::open(place).map(|(writer, reader)| (Some(writer), Some(reader))),
            None => Ok((None, None)),
        }
        .map_err(|e| e.to_string())?;
        let credential = form.key.as_deref().unwrap_or_default();
        let link = ServiceLink {
            exchange,
            cache,
            in_flight_max: lane.limit.in_flight_max.max(1),
            line: self.traffic.line(name, &LaneKey::of_url(base, credential), &policy),
            caller: self.traffic.caller(name),
            patience: self.patience,
            refusals: RefusalCounter::new(self.traffic.keeps_going()),
            cache_max_age: seconds(form.cache_max_age_seconds),
            run: self.run,
            driver: form.profile.clone().unwrap_or_else(|| "http".into()),
            base: base.to_string(),
            provider: place,
        };
        let kind = Arc::new(kind);
        let dispatcher = Dispatcher::new(kind.clone(), link, cached, next, self.traffic.runtime()?);
        Ok(RemoteProvider { name: name.to_owned(), kind, dispatcher })
    }
}

/// What a kind of step needs to ask one service.
pub(super) struct ProviderParts<K: RemoteKind> {
    pub(super) kind: K,
    pub(super) base: Url,
    pub(super) dialect: ServiceDialect<K::Parsed>,
    pub(super) lane: LaneConfig,
    pub(super) trace: Trace,
}

/// The key of a service, and where it came from.
pub(crate) fn secret(form: &manifest::ServiceSpec) -> Result<Option<NamedSecret>, String> {
    let Some(name) = &form.key else { return Ok(None) };
    let from: SecretRef = name.parse().map_err(|e: crate::secret::SecretError| e.to_string())?;
    let secret = from.fetch().map_err(|e| e.to_string())?;
    Ok(Some(NamedSecret { name: from.to_string(), secret }))
}
