//! Lanes that machines share.

use tokio::runtime::Handle;

use super::Traffic;
use crate::error::SetupError;
use crate::lane::{Fleet, LaneScope, WhenUnreachable};
use crate::lock::lock;
use crate::manifest::{FleetFallback, Manifest, RateScope};
use crate::secret::{SecretRef, fetch_given};
use std::sync::Arc;

/// The variable with the URL of the server for runs whose manifest names none.
pub(crate) const VARIABLE: &str = "TIDEGATE_LANES";

impl Traffic {
    /// Lanes are shared with other machines, if the manifest or the environment says so. Call it before anything
    /// is sent.
    ///
    /// # Errors
    /// When the URL is missing or cannot be used.
    pub fn with_fleet(mut self, manifest: &Manifest) -> Result<Traffic, SetupError> {
        let pipeline = &manifest.pipeline;
        let (url, when, named) = match &pipeline.lanes {
            Some(lanes) => {
                let url = fetch_given(&lanes.url).map_err(|e| format!("`lanes`: {e}"))?;
                (url, lanes.when_unreachable, "`lanes`")
            }
            None if pipeline.rate_limit.scope == RateScope::Process => return Ok(self),
            None => match SecretRef::Env(VARIABLE.to_owned()).fetch() {
                Ok(url) => (url, FleetFallback::default(), VARIABLE),
                Err(_) => return Ok(self),
            },
        };
        let when = match when {
            FleetFallback::Stop => WhenUnreachable::Stop,
            FleetFallback::Share => WhenUnreachable::Share,
        };
        let fleet = Fleet::new(&url, when).map_err(|why| format!("{named}: {why}"))?;
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.lanes = shared.lanes.clone().sharing(LaneScope::Fleet(fleet));
        }
        Ok(self)
    }

    /// Leaves the fleet when the result is dropped, so that another process owns the lanes at once.
    #[must_use]
    pub(crate) fn leaving(&self) -> Leaving {
        Leaving(self.clone())
    }
}

/// A run that leaves its fleet at its end.
pub(crate) struct Leaving(Traffic);

impl Drop for Leaving {
    fn drop(&mut self) {
        let runtime = lock(&self.0.runtime).clone();
        // Without a runtime there was no call. Within one, nothing can be waited for.
        if let Some(runtime) = runtime.filter(|_| Handle::try_current().is_err()) {
            runtime.block_on(self.0.shared.lanes.leave());
        }
    }
}
