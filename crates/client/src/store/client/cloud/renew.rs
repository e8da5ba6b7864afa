//! Credentials that expire: fetched once for all requests, and renewed in the middle of a run.
//!
//! The library asks for the credential when it signs a request, within the attempt. So a service of
//! credentials that is down is a failed attempt like any other: it is tried again by the policy of
//! the call, and reported with its own words. A store can also refuse a credential before its time,
//! because it was revoked or because clocks differ. Then it is renewed once; if the new one is
//! refused as well, the refusal stands.

use super::super::wire::{ObservedExchange, note};
use crate::lane::Clock;
use crate::lock::lock;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use object_store::{CredentialProvider, Error};
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::{Arc, Mutex};
use tidegate_core::Wall;
use tidegate_core::renewal::{CredentialTimes, Renewal};
use tidegate_core::signal::Finding;

/// Why no credential was issued.
#[derive(Clone, Debug)]
pub(in crate::store) struct CredentialFault {
    pub(in crate::store) finding: Finding,
    pub(in crate::store) words: String,
}

/// A credential as it was issued.
pub(super) struct Issued<T> {
    pub(super) credential: T,
    /// The header that shows it to the store.
    pub(super) shown: String,
    pub(super) expires: Option<Wall>,
}

type Issuance<T> = Result<Issued<T>, CredentialFault>;
type IssueFn<T> = Box<dyn Fn() -> BoxFuture<'static, Issuance<T>> + Send + Sync>;

/// A credential with its times.
struct HeldCredential<T> {
    credential: Arc<T>,
    times: CredentialTimes,
}

/// A credential that is renewed when it is due.
pub(super) struct RenewingCredential<T> {
    clock: Clock,
    ask: IssueFn<T>,
    held: tokio::sync::Mutex<Option<HeldCredential<T>>>,
    watch: Arc<CredentialWatch>,
}

impl<T> RenewingCredential<T> {
    pub(super) fn new<F>(clock: Clock, ask: impl Fn() -> F + Send + Sync + 'static) -> RenewingCredential<T>
    where
        F: Future<Output = Issuance<T>> + Send + 'static,
    {
        let ask: IssueFn<T> = Box::new(move || Box::pin(ask()));
        RenewingCredential { clock, ask, held: tokio::sync::Mutex::new(None), watch: Arc::default() }
    }

    pub(super) fn watch(&self) -> Arc<CredentialWatch> {
        self.watch.clone()
    }
}

impl<T> fmt::Debug for RenewingCredential<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RenewingCredential")
    }
}

#[async_trait::async_trait]
impl<T: fmt::Debug + Send + Sync + 'static> CredentialProvider for RenewingCredential<T> {
    type Credential = T;

    async fn get_credential(&self) -> object_store::Result<Arc<T>> {
        // Held over the fetch: all requests wait for one renewal.
        let mut held = self.held.lock().await;
        let now = self.clock.wall();
        let state = match held.as_ref() {
            Some(_) if self.watch.is_refused() => Renewal::Expired,
            Some(held) => held.times.renewal(now),
            None => Renewal::Expired,
        };
        if let (Renewal::Fresh, Some(held)) = (state, held.as_ref()) {
            return Ok(held.credential.clone());
        }
        match ((self.ask)().await, held.as_mut()) {
            (Ok(issued), _) => {
                self.watch.issue(&issued.shown);
                let credential = Arc::new(issued.credential);
                let times = CredentialTimes { fetched: now, expires: issued.expires, failed: None };
                *held = Some(HeldCredential { credential: credential.clone(), times });
                Ok(credential)
            }
            (Err(fault), Some(held)) if state == Renewal::Due => {
                tracing::warn!(why = fault.words, "the credential was not renewed; it is still valid");
                held.times.failed = Some(now);
                Ok(held.credential.clone())
            }
            (Err(fault), _) => {
                let source = fault.words.clone().into();
                note(ObservedExchange::Credential(fault));
                Err(Error::Generic { store: "credentials", source })
            }
        }
    }
}

/// Which credential is in use, and whether the store has accepted or refused it.
#[derive(Debug, Default)]
pub(in crate::store) struct CredentialWatch(Mutex<CredentialStanding>);

#[derive(Debug, Default)]
struct CredentialStanding {
    digest: [u8; 32],
    accepted: bool,
    refused: bool,
}

fn digest(shown: &[u8]) -> [u8; 32] {
    Sha256::digest(shown).into()
}

impl CredentialWatch {
    fn issue(&self, shown: &str) {
        let digest = digest(shown.as_bytes());
        *lock(&self.0) = CredentialStanding { digest, ..CredentialStanding::default() };
    }

    fn is_refused(&self) -> bool {
        lock(&self.0).refused
    }

    /// The credential that a request shows.
    pub(in crate::store) fn shown(headers: &HeaderMap) -> Option<[u8; 32]> {
        let header = headers.get("x-amz-security-token").or_else(|| headers.get("authorization"))?;
        Some(digest(header.as_bytes()))
    }

    /// A request with this credential was accepted.
    pub(in crate::store) fn accept(&self, shown: [u8; 32]) {
        let mut standing = lock(&self.0);
        standing.accepted |= standing.digest == shown;
    }

    /// A request with this credential was refused. Returns whether to try another.
    pub(in crate::store) fn refuse(&self, shown: [u8; 32]) -> bool {
        let mut standing = lock(&self.0);
        if standing.digest == shown {
            standing.refused |= standing.accepted;
            return standing.refused;
        }
        true
    }
}
