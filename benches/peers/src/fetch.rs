//! The paged layer by bare reqwest: from link to link, each page asked for once.
//!
//! What a person would write without a library: the page into a value, its features out as lines,
//! on to `next`. The first page that fails ends it.

use std::error::Error;
use std::io::{self, BufWriter, Write};

use serde_json::Value;

/// Writes each feature that comes to standard output, one a line.
pub async fn layer(http: &reqwest::Client, url: &str) -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut next = Some(format!("{url}/ogc/collections/parcels/items?limit=1000"));
    while let Some(url) = next {
        let body = http.get(url).send().await?.error_for_status()?.bytes().await?;
        let page: Value = serde_json::from_slice(&body)?;
        let list = |name| page[name].as_array().into_iter().flatten();
        for feature in list("features") {
            writeln!(out, "{feature}")?;
        }
        let link = list("links").find(|link| link["rel"] == "next");
        next = link.and_then(|link| link["href"].as_str()).map(str::to_owned);
    }
    Ok(out.flush()?)
}
