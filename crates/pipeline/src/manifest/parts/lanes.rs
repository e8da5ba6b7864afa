//! Checks `lanes`.

use super::{PartsChecker, YamlNode};
use crate::secret::SecretRef;

impl PartsChecker<'_> {
    /// Checks the server at which machines share rates: a reference, or a URL without a password.
    pub(super) fn lanes(&mut self, pipeline: &YamlNode) {
        let Some(lanes) = pipeline.at(&["lanes"]) else { return };
        let scope = pipeline.at(&["rate_limit", "scope"]);
        if let Some(scope) = scope.filter(|scope| scope.text() == Some("process")) {
            let message = "`scope: process` shares nothing, and `lanes` shares with other machines";
            self.report("given_twice", scope.place.clone(), message, "keep one of the two");
        }
        let node = lanes.at(&["url"]).unwrap_or(lanes);
        let Some(text) = node.text().filter(|text| text.parse::<SecretRef>().is_err()) else { return };
        let help = "use `redis://host`, `postgres://user@host/database`, `nats://host` or `env:NAME`";
        match url::Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "postgres" | "postgresql") => self.database(Some(node)),
            // A user without a password is the token of NATS.
            Ok(url) if url.password().is_some() || !url.username().is_empty() => {
                let help = "put the URL into an environment variable or a file, and refer to it: `env:LANES_URL`, `file:PATH`";
                self.report("secret", node.place.clone(), "a manifest must not contain a password", help);
            }
            Ok(url) if matches!(url.scheme(), "redis" | "rediss" | "nats" | "tls") => {}
            _ => self.report("range", node.place.clone(), "lanes cannot be shared there", help),
        }
    }
}
