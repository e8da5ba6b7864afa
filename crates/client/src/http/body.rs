//! Reads a body with limits: on bytes, on how much it may swell, and, by its caller, on time.
//!
//! A body that ends before its declared end is a failure and never data, so nothing of it is
//! kept. Compressed bodies are unpacked as they come: the limits stop a bomb at the limit, not
//! after it.

use super::failure::HttpFailure;
use super::pool::ResponseBody;
use bytes::{Bytes, BytesMut};
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use hyper::body::Body;
use std::io::{self, Write};
use tidegate_core::signal::Network;

/// How large an answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// The largest size of a body after decompression, in bytes.
    pub bytes_max: u64,
    /// The highest compression ratio: bytes after decompression per byte before. Bodies below 64 KiB are
    /// exempt.
    pub ratio_max: u64,
}

impl Default for BodyLimits {
    /// 64 MiB, 100:1.
    fn default() -> BodyLimits {
        BodyLimits { bytes_max: 64 * 1024 * 1024, ratio_max: 100 }
    }
}

const RATIO_FREE: u64 = 64 * 1024;

pub(super) async fn read(
    mut body: ResponseBody,
    headers: &HeaderMap,
    limits: &BodyLimits,
) -> Result<Bytes, HttpFailure> {
    let declared = body.size_hint().lower();
    if declared > limits.bytes_max {
        return Err(too_many(limits.bytes_max));
    }
    let mut sink = match encoding(headers)? {
        Encoding::Identity => {
            // A body in one piece, the usual case, is passed on without a copy.
            let Some(first) = next(&mut body).await? else { return Ok(Bytes::new()) };
            if body.is_end_stream() {
                return if first.len() as u64 > limits.bytes_max {
                    Err(too_many(limits.bytes_max))
                } else {
                    Ok(first)
                };
            }
            let mut whole = BytesMut::with_capacity(first.len().max(declared.min(RATIO_FREE) as usize));
            whole.extend_from_slice(&first);
            while let Some(data) = next(&mut body).await? {
                if (whole.len() + data.len()) as u64 > limits.bytes_max {
                    return Err(too_many(limits.bytes_max));
                }
                whole.extend_from_slice(&data);
            }
            return Ok(whole.freeze());
        }
        Encoding::Gzip => {
            MultiGzDecoder::new(DecompressionBuffer { limits: *limits, packed: 0, out: Vec::new() })
        }
    };
    while let Some(data) = next(&mut body).await? {
        let unpacked = sink.get_mut();
        unpacked.packed = unpacked.packed.saturating_add(data.len() as u64);
        sink.write_all(&data).map_err(|e| {
            of_limit(&e)
                .unwrap_or_else(|| HttpFailure::Malformed("the packed body cannot be unpacked".into()))
        })?;
    }
    let packed = sink.get_ref().packed;
    match sink.finish() {
        _ if packed == 0 => Ok(Bytes::new()),
        Ok(unpacked) => Ok(unpacked.out.into()),
        Err(e) => Err(of_limit(&e).unwrap_or_else(truncated)),
    }
}

async fn next(body: &mut ResponseBody) -> Result<Option<Bytes>, HttpFailure> {
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            Err(_) => return Err(truncated()),
        }
    }
    Ok(None)
}

enum Encoding {
    Identity,
    Gzip,
}

fn encoding(headers: &HeaderMap) -> Result<Encoding, HttpFailure> {
    match headers.get(header::CONTENT_ENCODING).map(http::HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => Ok(Encoding::Identity),
        Some(name) if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") => {
            Ok(Encoding::Gzip)
        }
        Some(_) => Err(HttpFailure::Malformed("the body has an encoding that was not asked for".into())),
    }
}

/// The output buffer of the decompressor, bounded by size and by ratio.
struct DecompressionBuffer {
    limits: BodyLimits,
    /// Compressed bytes read so far.
    packed: u64,
    out: Vec<u8>,
}

impl Write for DecompressionBuffer {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let after = (self.out.len() + data.len()) as u64;
        let swollen = self.packed.saturating_mul(self.limits.ratio_max).max(RATIO_FREE);
        if after > self.limits.bytes_max.min(swollen) {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.out.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn of_limit(error: &io::Error) -> Option<HttpFailure> {
    (error.kind() == io::ErrorKind::FileTooLarge)
        .then(|| HttpFailure::TooLarge("the unpacked body is over a limit of size or ratio".into()))
}

fn truncated() -> HttpFailure {
    HttpFailure::Network(Network::Truncated, "the body ended before its end".into())
}

fn too_many(max: u64) -> HttpFailure {
    HttpFailure::TooLarge(format!("the body has more than {max} bytes"))
}
