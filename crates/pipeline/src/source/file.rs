//! A whole file from a web server or an object store, into a local one.
//!
//! Over HTTP it comes in pieces by `Range`, and a piece is to a file what a page is to a layer: a
//! record of its own, retried and checkpointed. A file that changes between two pieces (its
//! `ETag` or date tells) is begun anew, never mixed. A server without ranges sends it whole. From
//! an object store the store's own driver resumes within a run.

use super::error::{SourceError, Trouble};
use super::wire::Wire;
use crate::durable;
use crate::profile::Profile;
use crate::store::ObjectStoreClient;
use http::{HeaderValue, header};
use serde::{Deserialize, Serialize};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use tidegate_core::{Code, VerdictKind};
use tidegate_geo::format::Format;
use url::Url;

/// Bytes of one piece.
pub const PIECE_BYTES: u64 = 8 << 20;
/// How often a file may change under our hands.
const CHANGES_MAX: u32 = 3;

/// Where a download stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePosition {
    /// Bytes that are there.
    pub bytes: u64,
    /// Bytes in all, as the server says.
    pub total: Option<u64>,
    /// The server's mark of this very content.
    pub mark: Option<String>,
    /// Whether all is there.
    pub done: bool,
    /// What the server calls its format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// How a web server that only serves files speaks.
///
/// # Errors
/// Never, unless the program is broken.
pub fn profile() -> Result<Profile, SourceError> {
    let form = serde_saphyr::from_str(
        "name: file\nabout: A file on a web server.\n\
         auth: { header: Authorization, scheme: Bearer, optional: true }\nhint: { floor: 1s }\n\
         timeout: 60s\nin_flight: 4\n",
    );
    form.map_err(|e| SourceError::setup(e.to_string()))
        .and_then(|form| Profile::new(form).map_err(|e| SourceError::setup(e.to_string())))
}

/// Fetches the next piece into `path`.
///
/// # Errors
/// When it cannot be had or written. The position stays good.
pub async fn piece(
    wire: &Wire,
    url: &Url,
    path: &Path,
    at: &FilePosition,
) -> Result<FilePosition, SourceError> {
    let mut at = at.clone();
    for _ in 0..CHANGES_MAX {
        let mut request = wire.get(url.clone());
        let range = format!("bytes={}-{}", at.bytes, at.bytes + PIECE_BYTES - 1);
        insert(&mut request.headers, header::RANGE, &range)?;
        // Packed pieces do not add up to the file.
        insert(&mut request.headers, header::ACCEPT_ENCODING, "identity")?;
        if let Some(mark) = &at.mark {
            insert(&mut request.headers, header::IF_RANGE, mark)?;
        }
        let what = format!("{}, bytes from {}", file_name(url), at.bytes);
        let response = match wire.ask(&request, &what).await {
            // There is nothing after the last byte.
            Err(error) if at.bytes > 0 && error.message.contains("416") => {
                return Ok(FilePosition { done: true, ..at });
            }
            other => other?,
        };
        let text = |name| response.headers.get(name).and_then(|v: &HeaderValue| v.to_str().ok());
        let mark =
            text(header::ETAG).filter(|tag| !tag.starts_with("W/")).or_else(|| text(header::LAST_MODIFIED));
        let mark = mark.map(str::to_owned);
        let content_type = text(header::CONTENT_TYPE).map(str::to_owned);
        if response.status.as_u16() != 206 {
            let bytes = response.body.len() as u64;
            write(path, 0, &response.body).map_err(|e| disk(path, &e))?;
            return Ok(FilePosition { bytes, total: Some(bytes), mark, done: true, content_type });
        }
        let Some((start, total)) = text(header::CONTENT_RANGE).and_then(content_range) else {
            return Err(SourceError::broken(
                Code::UNEXPECTED_BODY,
                format!("{what}: partial response without Content-Range"),
            ));
        };
        if start != at.bytes || (at.mark.is_some() && mark != at.mark) {
            at = FilePosition::default();
            continue;
        }
        write(path, start, &response.body).map_err(|e| disk(path, &e))?;
        let bytes = start + response.body.len() as u64;
        let done = total.map_or(response.body.is_empty(), |total| bytes >= total);
        if !done && response.body.is_empty() {
            return Err(SourceError::broken(Code::TRUNCATED_BODY, format!("{what}: empty partial response")));
        }
        return Ok(FilePosition { bytes, total, mark, done, content_type });
    }
    Err(SourceError::broken(
        Code::CONFLICT,
        format!("{} keeps changing while it is downloaded", file_name(url)),
    ))
}

/// Fetches what a request is made into, at once, into `path`.
///
/// # Errors
/// When it cannot be had or written.
pub async fn made(wire: &Wire, url: &Url, body: &str, path: &Path) -> Result<FilePosition, SourceError> {
    let request = wire.post(url.clone(), body.to_owned());
    let response = wire.ask(&request, &file_name(url)).await?;
    let bytes = response.body.len() as u64;
    write(path, 0, &response.body).map_err(|e| disk(path, &e))?;
    let content_type = response.content_type().map(str::to_owned);
    Ok(FilePosition { bytes, total: Some(bytes), mark: None, done: true, content_type })
}

/// Fetches an object of a store into `path`.
///
/// # Errors
/// When it cannot be had or written.
pub async fn object(
    store: &ObjectStoreClient,
    key: &str,
    path: &Path,
    mut told: impl FnMut(u64, u64),
) -> Result<FilePosition, SourceError> {
    let trouble = |error: crate::store::StoreError| {
        let mut out = SourceError::broken(error.verdict.code, error.to_string());
        if error.is_later() {
            let clock = store.lanes().clock();
            out.trouble = Trouble::TryLater(clock.wall_of(error.verdict.until().unwrap_or_default()));
        } else if matches!(
            error.verdict.kind,
            VerdictKind::Throttled { .. } | VerdictKind::Transient { .. } | VerdictKind::QuotaSpent { .. }
        ) {
            out.trouble = Trouble::Down;
        }
        out
    };
    let mut object = store.get(key).await.map_err(trouble)?;
    let total = object.meta.size;
    let file = durable::private(path).and_then(|file| file.set_len(0).map(|()| file));
    let mut file = file.map_err(|e| disk(path, &e))?;
    let mut bytes = 0;
    while let Some(piece) = object.next().await.map_err(trouble)? {
        file.write_all(&piece).map_err(|e| disk(path, &e))?;
        bytes += piece.len() as u64;
        told(bytes, total);
    }
    file.sync_all().map_err(|e| disk(path, &e))?;
    Ok(FilePosition {
        bytes,
        total: Some(total),
        mark: object.meta.etag.clone(),
        done: true,
        content_type: None,
    })
}

/// The last part of a URL's path.
#[must_use]
pub fn file_name(url: &Url) -> String {
    url.path_segments().and_then(|mut s| s.next_back()).unwrap_or_default().to_owned()
}

/// A local name for a file of this name: its ending tells the format, the rest is not trusted.
///
/// # Errors
/// When its format is not known, or is more than a file; `address` stands for it in the message.
pub fn local_name(name: &str, address: &str) -> Result<String, SourceError> {
    let extension = Path::new(name).extension().and_then(|e| e.to_str()).unwrap_or_default();
    let extension: String = extension.chars().filter(char::is_ascii_alphanumeric).collect();
    let local = format!("file.{extension}");
    match Format::of_path(Path::new(&local)) {
        Some(Format::Shapefile) => Err(SourceError::setup(
            "a Shapefile consists of several files; download all of them, for example with `store get`, and read the .shp",
        )),
        Some(_) => Ok(local),
        None => Err(SourceError::setup(format!(
            "{address}: {name:?} has no supported file extension (.gpkg, .geojson, .geojsonl, .fgb, \
             .csv, .parquet, .gml); name its format with `source.format` (`fetch --input-format`); if it is a \
             service, set its profile"
        ))),
    }
}

/// Whether a name has no extension, so that only the server can tell the format.
#[must_use]
pub fn is_untyped(name: &str) -> bool {
    Path::new(name).extension().is_none()
}

/// A local name for a file whose own name does not tell the format: what the server calls it does.
///
/// # Errors
/// When that does not tell it either; `address` stands for it in the message.
pub fn typed_name(content_type: Option<&str>, address: &str) -> Result<String, SourceError> {
    let whole = content_type.unwrap_or_default().to_ascii_lowercase();
    let extension = match whole.split(';').next().unwrap_or_default().trim() {
        "application/geo+json" | "application/vnd.geo+json" | "application/json" => "geojson",
        "application/geo+json-seq" | "application/x-ndjson" | "application/ndjson" => "geojsonl",
        "application/geopackage+sqlite3" | "application/x-sqlite3" | "application/vnd.sqlite3" => "gpkg",
        "application/flatgeobuf" | "application/vnd.flatgeobuf" => "fgb",
        "application/vnd.apache.parquet" | "application/x-parquet" => "parquet",
        "application/gml+xml" => "gml",
        "text/csv" => "csv",
        _ => {
            let named =
                content_type.map_or("no Content-Type".into(), |kind| format!("Content-Type {kind:?}"));
            return Err(SourceError::setup(format!(
                "{address}: neither the name nor the response ({named}) identifies the format; name it \
                 with `source.format` (`fetch --input-format`): gpkg, geojson, geojsonl, fgb, csv, parquet, gml"
            )));
        }
    };
    Ok(format!("file.{extension}"))
}

fn insert(headers: &mut http::HeaderMap, name: header::HeaderName, value: &str) -> Result<(), SourceError> {
    let value = HeaderValue::from_str(value)
        .map_err(|_| SourceError::setup(format!("invalid value for the header {name}")))?;
    headers.insert(name, value);
    Ok(())
}

fn write(path: &Path, at: u64, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = durable::private(path)?;
    file.set_len(at)?;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)?;
    file.sync_data()
}

fn disk(path: &Path, error: &std::io::Error) -> SourceError {
    SourceError::disk(format!("cannot write {}: {error}", path.display()))
}

/// The first byte and the total of `bytes 0-99/1234`; the total may be `*`.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes")?.trim().split_once('/')?;
    Some((range.split_once('-')?.0.trim().parse().ok()?, total.trim().parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_as_servers_write_them() {
        assert_eq!(content_range("bytes 0-99/1234"), Some((0, Some(1234))));
        assert_eq!(content_range("bytes 100-199/*"), Some((100, None)));
        assert_eq!(content_range("bytes */1234"), None);
        assert_eq!(content_range("items 0-1/2"), None);
        assert!(profile().is_ok());
    }
}
