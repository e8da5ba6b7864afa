//! A web server with a file: the whole layer as one GeoJSON collection, with range requests. The
//! file is also served under a name without an extension.

use std::fmt::Write;

use super::FeatureContext;
use super::ogc;
use crate::hash;
use crate::reply::ResponseDraft;
use crate::wire::ReceivedRequest;
use crate::world;

pub(super) fn answer(context: &FeatureContext<'_>, request: &ReceivedRequest) -> ResponseDraft {
    let name = request.path().trim_start_matches("/file/");
    if !matches!(name, "parcels.geojson" | "whole/parcels.geojson" | "parcels") {
        return ResponseDraft::new(404, "text/plain", "no such file\n");
    }
    let mut body = String::from("{\"type\":\"FeatureCollection\",\"features\":[");
    for (i, id) in (0..context.view.count()).map_while(|n| context.view.nth(n)).enumerate() {
        let _ = write!(body, "{}", if i > 0 { ",\n" } else { "\n" });
        ogc::feature(&mut body, &world::parcel(context.config.seed, id), false, ogc::Coordinates::Degrees);
    }
    body.push_str("\n]}\n");
    let tag = format!("\"{:016x}\"", hash::bytes(8, body.as_bytes()));
    let whole = || ResponseDraft {
        headers: vec![("ETag", tag.clone())],
        ..ResponseDraft::new(200, "application/geo+json", body.clone()).worked()
    };
    // Paths that start with `whole` do not support ranges.
    let (Some((from, to)), false) = (range(request), name.starts_with("whole")) else { return whole() };
    if request.if_range.as_ref().is_some_and(|had| *had != tag) {
        return whole();
    }
    let total = body.len();
    let Some(part) = body.as_bytes().get(from..to.saturating_add(1).min(total)).filter(|p| !p.is_empty())
    else {
        let headers = vec![("Content-Range", format!("bytes */{total}"))];
        return ResponseDraft { headers, ..ResponseDraft::new(416, "text/plain", "beyond the end\n") };
    };
    let place = format!("bytes {from}-{}/{total}", from + part.len() - 1);
    let headers = vec![("ETag", tag.clone()), ("Content-Range", place)];
    ResponseDraft { headers, ..ResponseDraft::new(206, "application/geo+json", part).worked() }
}

pub(super) fn range(request: &ReceivedRequest) -> Option<(usize, usize)> {
    let (from, to) = request.range.as_deref()?.strip_prefix("bytes=")?.split_once('-')?;
    Some((from.parse().ok()?, if to.is_empty() { usize::MAX } else { to.parse().ok()? }))
}
