//! A web server with files of a directory, read by ranges: `/raster/NAME`, and the same as objects of any
//! bucket. A fault of ranges spoils an answer in a way that its headers do not show.

use std::fs;
use std::path::{Component, Path};

use super::file::range;
use crate::config::{Config, RangeFault};
use crate::hash;
use crate::reply::ResponseDraft;
use crate::wire::ReceivedRequest;

const TIFF: &str = "image/tiff";
/// By how many bytes a shifted answer is off.
const SHIFT: usize = 16;

/// The file of this name; nothing if the server has no directory or no such file.
pub(super) fn answer(
    config: &Config,
    name: &str,
    request: &ReceivedRequest,
    fault: Option<RangeFault>,
) -> Option<ResponseDraft> {
    let name = Path::new(name);
    let is_plain = name.components().all(|part| matches!(part, Component::Normal(_)));
    let held = config.rasters.as_ref().filter(|_| is_plain).and_then(|dir| fs::read(dir.join(name)).ok())?;
    let tag = match fault {
        Some(RangeFault::WrongEtag) => "\"00000000deadbeef\"".to_owned(),
        _ => format!("\"{:016x}\"", hash::bytes(8, &held)),
    };
    let headers = vec![
        ("ETag", tag.clone()),
        ("Accept-Ranges", "bytes".to_owned()),
        ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT".to_owned()),
    ];
    if request.if_match.as_ref().is_some_and(|wanted| *wanted != tag) && fault.is_none() {
        return Some(ResponseDraft::new(412, "text/plain", "the file is another\n"));
    }
    let total = held.len();
    if request.method == "HEAD" {
        let stated_length = Some(total as u64);
        return Some(ResponseDraft { headers, stated_length, ..ResponseDraft::new(200, TIFF, "") });
    }
    let wanted = range(request).filter(|_| fault != Some(RangeFault::Whole));
    let Some((from, to)) = wanted else {
        return Some(ResponseDraft { headers, ..ResponseDraft::new(200, TIFF, held).worked() });
    };
    let to = to.saturating_add(1).min(total);
    let Some(part) = held.get(from..to).filter(|part| !part.is_empty()) else {
        let headers = vec![("Content-Range", format!("bytes */{total}"))];
        return Some(ResponseDraft { headers, ..ResponseDraft::new(416, "text/plain", "beyond the end\n") });
    };
    let mut headers = headers;
    headers.push(("Content-Range", format!("bytes {from}-{}/{total}", to - 1)));
    let moved = |by: usize| held.iter().cycle().skip((from + by) % total).take(part.len()).copied().collect();
    let body: Vec<u8> = match fault {
        Some(RangeFault::WrongLength) => part.get(..part.len() / 2).unwrap_or_default().to_vec(),
        Some(RangeFault::Shifted) => moved(SHIFT),
        Some(RangeFault::Swapped) => moved(total / 2),
        Some(RangeFault::Zeros) => vec![0; part.len()],
        _ => part.to_vec(),
    };
    Some(ResponseDraft { headers, ..ResponseDraft::new(206, TIFF, body).worked() })
}
