//! When a temporary credential is fetched anew.
//!
//! A credential is renewed before it expires, so that no request is signed with one that expires on
//! its way. The margin is five minutes, or a quarter of the lifetime if that is shorter: a service
//! that issues short-lived credentials is not asked for each request. If the renewal fails, the old
//! credential is used while it is valid, and the service is asked again after a pause.

use crate::time::Wall;

/// The longest time before the expiry at which a credential is renewed, in milliseconds.
const MARGIN_MS_MAX: i64 = 300_000;
/// The pause after a failed renewal while the credential is still valid, in milliseconds.
const PAUSE_MS: i64 = 10_000;

/// What to do with a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Use it.
    Fresh,
    /// Fetch a new one; if that fails, use it.
    Due,
    /// Fetch a new one. It is no longer valid.
    Expired,
}

/// The times of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CredentialTimes {
    /// When it was fetched.
    pub fetched: Wall,
    /// When it expires; `None` means never.
    pub expires: Option<Wall>,
    /// When its renewal last failed.
    pub failed: Option<Wall>,
}

impl CredentialTimes {
    /// What to do with the credential now.
    #[must_use]
    pub fn renewal(&self, now: Wall) -> Renewal {
        let Some(expires) = self.expires else { return Renewal::Fresh };
        let left = expires.millis_since(now);
        let margin = (expires.millis_since(self.fetched) / 4).clamp(0, MARGIN_MS_MAX);
        if left <= 0 {
            Renewal::Expired
        } else if left > margin || self.failed.is_some_and(|at| now.millis_since(at) < PAUSE_MS) {
            Renewal::Fresh
        } else {
            Renewal::Due
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Wall {
        Wall::from_secs(seconds)
    }

    #[test]
    fn a_credential_is_renewed_before_it_expires() {
        let hour = CredentialTimes { fetched: at(0), expires: Some(at(3600)), failed: None };
        let short = CredentialTimes { expires: Some(at(60)), ..hour };
        let failed = CredentialTimes { failed: Some(at(3301)), ..hour };
        let never = CredentialTimes { expires: None, ..hour };
        let past = CredentialTimes { fetched: at(100), expires: Some(at(50)), failed: None };
        for (times, now, wanted) in [
            (hour, 3299, Renewal::Fresh),
            (hour, 3300, Renewal::Due),
            (hour, 3599, Renewal::Due),
            (hour, 3600, Renewal::Expired),
            (short, 44, Renewal::Fresh),
            (short, 45, Renewal::Due),
            (failed, 3302, Renewal::Fresh),
            (failed, 3311, Renewal::Due),
            (failed, 3600, Renewal::Expired),
            (never, i64::MAX / 2000, Renewal::Fresh),
            (past, 100, Renewal::Expired),
        ] {
            assert_eq!(times.renewal(at(now)), wanted, "{times:?} at {now}");
        }
    }
}
