//! Checks `lanes`.

use super::{PartsChecker, YamlNode, addresses};
use crate::secret::secret_in_url;

impl PartsChecker<'_> {
    /// Checks the server at which machines share rates: a reference, or a URL of one of these.
    pub(super) fn lanes(&mut self, pipeline: &YamlNode) {
        let Some(lanes) = pipeline.at(&["lanes"]) else { return };
        let scope = pipeline.at(&["rate_limit", "scope"]);
        if let Some(scope) = scope.filter(|scope| scope.text() == Some("process")) {
            let message = "`scope: process` shares nothing, and `lanes` shares with other machines";
            self.report("given_twice", scope.place.clone(), message, "keep one of the two");
        }
        let node = lanes.at(&["url"]).unwrap_or(lanes);
        let is_here = |text: &&str| !addresses::is_reference(text) && secret_in_url(text).is_none();
        let Some(text) = node.text().filter(is_here) else { return };
        let help = "use `redis://host`, `postgres://user@host/database`, `nats://host` or `env:NAME`";
        match url::Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "postgres" | "postgresql") => self.database(Some(node)),
            Ok(url) if matches!(url.scheme(), "redis" | "rediss" | "nats" | "tls") => {}
            _ => self.report("range", node.place.clone(), "lanes cannot be shared there", help),
        }
    }
}
