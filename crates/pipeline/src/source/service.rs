//! What a paged service has to know, and nothing more: the shared pager does the rest.

use super::error::SourceError;
use super::page::FeaturePage;
use super::position::NextPage;
use super::wire::Wire;
use crate::http::{Request, Response};
use async_trait::async_trait;
use tidegate_geo::{Bounds, Crs, Schema};

/// A layer of a paged service.
#[async_trait]
pub(super) trait PagedLayer: Send + Sync {
    /// Its name.
    fn layer(&self) -> &str;

    /// The first step of a pass.
    fn first(&self) -> NextPage;

    /// The request of a step.
    fn request(&self, wire: &Wire, step: &NextPage) -> Result<Request, SourceError>;

    /// A step in words, for messages.
    fn name(&self, step: &NextPage) -> String {
        match step {
            NextPage::Offset { start, .. } => format!("{}, features from {start}", self.layer()),
            NextPage::Keys { from: i64::MIN, to: None } => format!("{}, all keys", self.layer()),
            NextPage::Keys { from: i64::MIN, to: Some(to) } => format!("{}, keys below {to}", self.layer()),
            NextPage::Keys { from, to: None } => format!("{}, keys from {from}", self.layer()),
            NextPage::Keys { from, to: Some(to) } => format!("{}, keys {from} to {}", self.layer(), to - 1),
            NextPage::Link { .. } => format!("{}, a page", self.layer()),
        }
    }

    /// Reads a page. Why it is none makes its attempt a failed one.
    fn read(&self, response: &Response) -> Result<FeaturePage, String>;

    /// What tells a feature, given by its text, from all others.
    fn identity(&self, feature: &[u8]) -> Option<Box<str>> {
        super::page::identity(feature)
    }

    /// Features asked for on one page.
    fn size(&self) -> u64;

    /// The first page was refused for what it asks. Whether it can ask for less: then it is asked for
    /// anew, from the first step.
    fn relent(&self) -> bool {
        false
    }

    /// Where pages go by keys: the range that begins here.
    fn range(&self, from: i64) -> NextPage {
        NextPage::Keys { from, to: None }
    }

    /// Asks how many features there are now; `None` if the service does not say.
    async fn count(&self, wire: &Wire) -> Result<Option<u64>, SourceError>;

    /// Where keys can be listed: those that were there at the start, are there now, and are not
    /// among the received ones. This decides what no count can: whether one was lost.
    async fn missing(
        &self,
        wire: &Wire,
        received: &(dyn for<'a> Fn(&'a str) -> bool + Sync),
    ) -> Result<Option<Vec<i64>>, SourceError> {
        let _ = (wire, received);
        Ok(None)
    }

    /// The fields, as the service describes them.
    fn described(&self) -> Option<&Schema> {
        None
    }

    /// Where the layer is, in degrees on WGS 84, as the service declares it.
    fn extent(&self) -> Option<Bounds> {
        None
    }

    /// The reference system of what it sends, where no page says it.
    fn crs(&self) -> Option<Crs> {
        None
    }
}
