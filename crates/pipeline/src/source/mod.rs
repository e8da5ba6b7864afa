//! Remote sources: features out of WFS, OGC API Features, ArcGIS and STAC services, and whole
//! files from web servers and object stores.
//!
//! Two ways to use one:
//!
//! - [`Job::pager`] gives pages: the text of each new feature as GeoJSON, and a [`Position`]. This
//!   is what a run keeps of a source that is spooled.
//! - [`Job::source`] gives [`FeatureSource`]: batches of one schema, and a position after each. This is
//!   what a pipeline reads.
//!
//! ```no_run
//! # use tidegate_pipeline::source::{FeatureSource, Job, LayerBefore};
//! # async fn run(job: Job) -> Result<(), Box<dyn std::error::Error>> {
//! let clock = tidegate_client::lane::Clock::system();
//! let mut source = job.source(clock, None, LayerBefore::default()).await?;
//! while let Some(chunk) = source.next().await? {
//!     // Commit the batch, `chunk.marks` and `chunk.position.to_json()` in one transaction.
//!     println!("{} features of {}", chunk.batch.len(), source.layer().name);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `next` gives `None` only when declared and received agree; a mismatch that is not tolerated is
//! an error. Whatever ends a source early, the last position stays good: a new source of the same
//! job goes on from it.
//!
//! | file | holds |
//! |---|---|
//! | `service_kind` | the kinds of services, and how a URL or a profile tells one |
//! | `wire` | requests through the lane; links judged |
//! | `page` | a page cut into features |
//! | `page_size` | how many to ask for |
//! | `feature_id` | the identifier of a feature as a field |
//! | `service` | what a paged service has to know |
//! | `wfs`, `ogcapi`, `esri`, `stac` | the services |
//! | `gml`, `esri_json` | their own languages |
//! | `extent`, `axis_order` | where a layer is, and which coordinate comes first |
//! | `pager` | from page to page, each feature once, none left out |
//! | `identifiers`, `position`, `reconcile` | what was received, where we stand, whether it is all |
//! | `batches` | from pages to batches |
//! | `file` | whole files, piece by piece |

mod axis_order;
mod batches;
mod error;
mod esri;
mod esri_json;
mod extent;
mod feature_id;
pub mod file;
pub mod glob;
mod gml;
mod identifiers;
mod ogcapi;
mod page;
mod page_size;
mod pager;
mod position;
mod reconcile;
mod service;
mod service_kind;
mod since;
mod stac;
mod wfs;
mod wire;

pub use axis_order::AxisOrder;
pub use error::{SourceError, Trouble};
pub use esri::{EsriOptions, EsriPaging};
pub use identifiers::IdentifierHash;
pub use ogcapi::OgcOptions;
pub use pager::{Pager, PagerConfig, Pulled};
pub use position::{FeatureTally, Position};
pub use reconcile::{Agreement, CountTolerance};
pub use service_kind::ServiceKind;
pub use since::{ChangeMark, ChangedSince};
pub use stac::StacOptions;
pub use wfs::WfsOptions;
pub use wire::{Wire, WireConfig};

use crate::lane::Clock;
use async_trait::async_trait;
use service::PagedLayer;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use tidegate_core::hex::hex;
use tidegate_geo::format::{Layer, Rejected};
use tidegate_geo::wkb::Shape;
use tidegate_geo::{Batch, Bounds, Crs, Schema};

/// Some features, and where the source stands after them.
pub struct Chunk {
    /// The features; may be empty.
    pub batch: Batch,
    /// Records that cannot be read, each with its reason and its text.
    pub rejected: Vec<Rejected>,
    /// The number of the first record of this chunk in the source. Records within the chunk are
    /// counted from 0.
    pub first_record: u64,
    /// Marks of features that the position does not carry. Store them too: a resume needs all of
    /// those up to its position ([`LayerBefore::marks`]).
    pub marks: Vec<IdentifierHash>,
    /// Where the source stands after this chunk. Store it together with what the chunk becomes.
    pub position: Position,
}

/// A source of features.
#[async_trait]
pub trait FeatureSource: Send {
    /// Name, fields, reference system and declared number of what is read.
    fn layer(&self) -> &Layer;

    /// The shape of the first features. Others may follow, unless the layer's schema says the same.
    fn shape(&self) -> Option<Shape>;

    /// The way to the service.
    fn wire(&self) -> &Wire;

    /// The next features; `None` after the last, when declared and received agree.
    ///
    /// # Errors
    /// When it cannot go on. The last position stays good.
    async fn next(&mut self) -> Result<Option<Chunk>, SourceError>;

    /// What was counted so far.
    fn tally(&self) -> FeatureTally;

    /// How declared and received compare; known at the end.
    fn agreement(&self) -> Option<Agreement>;

    /// Where the layer is, in degrees on WGS 84, as the service declares it.
    fn extent(&self) -> Option<Bounds>;

    /// Requests until the end, if that can be foreseen, and features on a page.
    fn foreseen(&self) -> (Option<u64>, u64);
}

/// What an earlier run knew of a layer, so that going on is the same as not having stopped.
#[derive(Clone, Debug, Default)]
pub struct LayerBefore {
    /// The fields. Without them they are what the service describes, widened by what the first
    /// page shows.
    pub schema: Option<Arc<Schema>>,
    /// The shape of the first features.
    pub shape: Option<Shape>,
    /// The reference system.
    pub crs: Option<Crs>,
    /// The marks of what was received up to the position.
    pub marks: Vec<IdentifierHash>,
}

/// Which service, and what to ask of it.
#[derive(Clone, Debug)]
pub enum Ask {
    /// A Web Feature Service.
    Wfs(WfsOptions),
    /// OGC API Features.
    Ogc(OgcOptions),
    /// An ArcGIS FeatureServer or MapServer.
    Esri(EsriOptions),
    /// A STAC API.
    Stac(StacOptions),
}

/// A layer to be read.
pub struct Job {
    /// The way to the service.
    pub wire: WireConfig,
    /// What to ask.
    pub ask: Ask,
    /// How to take pages.
    pub pager: PagerConfig,
}

impl Job {
    /// The name of this job: the same for the same address and question.
    #[must_use]
    pub fn id(&self) -> String {
        let mut hash = Sha256::new();
        for part in [self.wire.url.as_str(), self.wire.profile.name(), &format!("{:?}", self.ask)] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let whole: [u8; 32] = hash.finalize().into();
        hex(&whole[..8])
    }

    /// Opens the layer, page by page.
    ///
    /// # Errors
    /// When the service does not answer, or has no such layer.
    pub async fn pager(self, clock: Clock, from: Option<Position>) -> Result<Pager, SourceError> {
        let id = self.id();
        let url = self.wire.url.clone();
        let wire = Wire::new(self.wire, clock)?;
        let service: Arc<dyn PagedLayer> = match self.ask {
            Ask::Wfs(options) => Arc::new(wfs::Wfs::open(&wire, &url, options).await?),
            Ask::Ogc(options) => Arc::new(ogcapi::Ogc::open(&wire, &url, options).await?),
            Ask::Esri(options) => Arc::new(esri::Esri::open(&wire, &url, options).await?),
            Ask::Stac(options) => Arc::new(stac::Stac::open(&wire, &url, options).await?),
        };
        Pager::open(wire, service, self.pager, id, from).await
    }

    /// Opens the layer, batch by batch, from a position of an earlier run and with what that run
    /// knew. A record that does not fit the schema is rejected with its reason.
    ///
    /// # Errors
    /// When the service does not answer, or has no such layer.
    pub async fn source(
        self,
        clock: Clock,
        from: Option<Position>,
        known: LayerBefore,
    ) -> Result<Box<dyn FeatureSource>, SourceError> {
        let resumed = from.is_some();
        let pager = self.pager(clock, from).await?;
        Ok(Box::new(batches::Batches::open(pager, known, resumed).await?))
    }
}
