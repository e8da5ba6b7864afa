//! The list of a source with `assets`: one record per asset of each item of a STAC API.
//!
//! The items are spooled as those of any service. The list is written to the state directory once, so that
//! a resumed run has the same records in the same order. An item without an asset that is asked for becomes
//! a record without a path, which the step `raster` makes a dead letter: it is not left out in silence.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::{Value, json};
use tidegate_core::bucket::BucketAddress;
use url::Url;

use super::build::RunContext;
use super::fetched::Fetched;
use super::paged::{Make, unless};
use super::rasters::{NAME, judged};
use super::spooled::spool;
use crate::download::stac::safe;
use crate::durable;
use crate::http::Allow;
use crate::lane::Clock;
use crate::manifest::{Manifest, ServiceSpec, SourceSpec};
use crate::source::{Ask, Pulled};
use crate::step::StepError;

/// What is listed, and where to.
pub(super) struct AssetListing<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) from: &'a SourceSpec,
    /// The name of the service.
    pub(super) name: &'a str,
    pub(super) dir: &'a Path,
}

impl AssetListing<'_> {
    /// Writes the list, or finds the one of the run that is resumed. Unless it is to be `whole`, the first
    /// page is enough: it shows the fields.
    pub(super) fn list(
        &self,
        make: &Make,
        (resume, whole): (bool, bool),
        context: &RunContext,
    ) -> Result<Fetched, StepError> {
        let job = make().map_err(StepError::Broken)?;
        if !matches!(job.ask, Ask::Stac(_)) {
            let what = format!("`assets` requires a STAC API, and services.{} is another service", self.name);
            return Err(StepError::Broken(what));
        }
        let path = self.dir.join(NAME);
        let disk = |e: std::io::Error| StepError::Broken(format!("{}: {e}", path.display()));
        let mut fetched = None;
        let is_there = resume && path.exists();
        let mut text = String::new();
        if whole {
            let spooled = spool(make, self.dir, resume, context)?;
            if !is_there {
                let items = BufReader::new(File::open(&spooled.path).map_err(disk)?);
                for line in items.lines() {
                    let line = line.map_err(disk)?;
                    let line = line.trim_end().trim_end_matches(',');
                    // The first and the last line are those of the collection around the items.
                    if line.starts_with("{\"type\":\"Feature\"") {
                        self.add(line.as_bytes(), &mut text)?;
                    }
                }
            }
            fetched = Some(spooled);
        } else {
            durable::make_dir(self.dir).map_err(disk)?;
            let page = context.traffic.runtime()?.block_on(unless(&context.stop, async {
                let mut pager = job.pager(Clock::system(), None).await?;
                pager.next().await
            }))?;
            for item in page.iter().flat_map(Pulled::features) {
                self.add(item, &mut text)?;
            }
        }
        if !is_there {
            durable::replace(&path, text.as_bytes()).map_err(disk)?;
        }
        let text = fs::read_to_string(&path).map_err(disk)?;
        // A list of an earlier attempt tells which assets there were, not whom to ask.
        let count = judged(&path, &text, |address| self.address(address).is_ok_and(|own| own == address))?;
        if count == 0 {
            return Err(StepError::Broken(format!("services.{}: no item was found", self.name)));
        }
        let (stamp, told) = fetched.map_or((None, None), |fetched| (fetched.stamp, fetched.told));
        Ok(Fetched { path, stamp, told, features: Some(count), extent: None })
    }

    /// Adds the records of an item.
    fn add(&self, item: &[u8], out: &mut String) -> Result<(), StepError> {
        let broken = |what: String| StepError::Broken(format!("services.{}: {what}", self.name));
        let item: Value =
            serde_json::from_slice(item).map_err(|e| broken(format!("cannot read an item: {e}")))?;
        let properties = item.get("properties").unwrap_or(&Value::Null);
        let text = |value: Option<&Value>| match value {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        };
        let id = text(item.get("id"));
        for asset in &self.from.assets {
            let href = properties.pointer("/assets").and_then(|assets| assets.get(asset)?.get("href"));
            let path = match href.and_then(Value::as_str) {
                Some(href) => Some(
                    self.address(href)
                        .map_err(|what| broken(format!("asset {asset} of item {id}: {what}")))?,
                ),
                None => None,
            };
            let record = json!({
                "type": "Feature",
                "id": format!("{id}/{asset}"),
                "properties": {
                    "path": path,
                    "name": format!("{}_{}.tif", safe(&id), safe(asset)),
                    "item": id,
                    "collection": properties.get("collection"),
                    "asset": asset,
                    "datetime": properties.get("datetime"),
                },
                "geometry": item.get("geometry"),
            });
            out.push_str(&record.to_string());
            out.push('\n');
        }
        Ok(())
    }

    /// The address of an asset. It comes from the service, so it must be where the manifest allows.
    fn address(&self, href: &str) -> Result<String, String> {
        let service = self.manifest.pipeline.services.get(self.name).cloned().unwrap_or_default();
        let ServiceSpec { url, allow_private, allow_hosts, .. } = service;
        let help = format!("; if you trust it, add it to services.{}.allow_hosts", self.name);
        if let Some(bucket) = BucketAddress::parse(href) {
            return match allow_hosts.iter().any(|host| host == bucket.bucket) {
                true => Ok(href.to_owned()),
                false => Err(format!("the bucket {} is not allowed{help}", bucket.bucket)),
            };
        }
        let base = Url::parse(url.as_deref().unwrap_or_default()).map_err(|e| e.to_string())?;
        let found = base.join(href).map_err(|e| format!("invalid link: {e}"))?;
        Allow::meant(&base, allow_private, &allow_hosts).url(&found).map_err(|why| format!("{why}{help}"))?;
        Ok(found.to_string())
    }
}
