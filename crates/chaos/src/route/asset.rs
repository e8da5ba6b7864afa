//! The assets of STAC items: images of a few kilobytes with their size and SHA-256 (`B04`, `B08`), and
//! one of several megabytes with its size only (`visual`). Range requests are answered. A request to
//! `assets/process` by POST is made into an image. With a directory of rasters, a file `B04.tif` in it is the
//! asset `B04` of every item.

use std::fs;

use sha2::{Digest, Sha256};
use tidegate_core::hex::hex;

use super::file::range;
use crate::config::Config;
use crate::hash;
use crate::quirk::Quirk;
use crate::reply::ResponseDraft;
use crate::wire::ReceivedRequest;

const TIFF: &str = "image/tiff";
const NAMES: [&str; 3] = ["B04", "B08", "visual"];
/// The size of `visual`, in bytes: more than two pieces of a download.
const VISUAL_BYTES: usize = 17 << 20;

/// The content of an asset.
fn content(config: &Config, id: u64, name: &str) -> Vec<u8> {
    let own = config.rasters.as_ref().and_then(|dir| fs::read(dir.join(format!("{name}.tif"))).ok());
    if let Some(own) = own {
        return own;
    }
    let seed = hash::bytes(hash::mix(config.seed ^ id), name.as_bytes());
    let length = if name == "visual" { VISUAL_BYTES } else { 3000 + (seed % 3000) as usize };
    let mut out = b"II*\0".to_vec();
    let mut block = hash::mix(seed).to_le_bytes().to_vec();
    while block.len() < length {
        let next = hash::mix(seed ^ block.len() as u64).to_le_bytes();
        block.extend_from_slice(&next);
    }
    block.truncate(length - out.len());
    out.append(&mut block);
    out
}

/// The members of `assets`.
pub(super) fn members(config: &Config, id: u64, base: &str) -> String {
    let member = |name: &&str| {
        let small = *name != "visual";
        let held = if small { content(config, id, name) } else { Vec::new() };
        let size = if small { held.len() } else { VISUAL_BYTES } + usize::from(config.has(Quirk::WrongSize));
        let sum = Sha256::digest(if config.has(Quirk::WrongChecksum) { b"else".as_slice() } else { &held });
        let sum = if small { format!(",\"file:checksum\":\"1220{}\"", hex(&sum)) } else { String::new() };
        format!(
            "\"{name}\":{{\"href\":\"{base}/assets/{id}/{name}.tif\",\
             \"type\":\"image/tiff; application=geotiff\",\"file:size\":{size}{sum}}}"
        )
    };
    NAMES.iter().map(member).collect::<Vec<_>>().join(",")
}

pub(super) fn answer(config: &Config, path: &str, request: &ReceivedRequest) -> ResponseDraft {
    if config.has(Quirk::ErrorImage) {
        return ResponseDraft::new(200, "image/png", b"\x89PNG\r\n\x1a\n: internal error".as_slice())
            .worked();
    }
    if path == "assets/process" && request.method == "POST" {
        let body = content(config, hash::bytes(9, &request.body), "process");
        return ResponseDraft::new(200, TIFF, body).worked();
    }
    let none = || ResponseDraft::new(404, "text/plain", "no such asset\n");
    let Some((id, name)) = path.trim_start_matches("assets/").trim_end_matches(".tif").split_once('/') else {
        return none();
    };
    let (Ok(id), Some(name)) = (id.parse::<u64>(), NAMES.iter().find(|one| **one == name)) else {
        return none();
    };
    let held = content(config, id, name);
    let tag = ("ETag", format!("\"{:016x}\"", hash::bytes(8, &held)));
    let Some((from, to)) =
        range(request).filter(|_| request.if_range.as_ref().is_none_or(|had| *had == tag.1))
    else {
        return ResponseDraft { headers: vec![tag], ..ResponseDraft::new(200, TIFF, held).worked() };
    };
    let total = held.len();
    let Some(part) = held.get(from..to.saturating_add(1).min(total)).filter(|part| !part.is_empty()) else {
        let headers = vec![("Content-Range", format!("bytes */{total}"))];
        return ResponseDraft { headers, ..ResponseDraft::new(416, "text/plain", "beyond the end\n") };
    };
    let place = format!("bytes {from}-{}/{total}", from + part.len() - 1);
    let headers = vec![tag, ("Content-Range", place)];
    ResponseDraft { headers, ..ResponseDraft::new(206, TIFF, part).worked() }
}
