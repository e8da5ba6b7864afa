//! Reads a response body with limits on size and compression ratio; the caller limits the time.
//!
//! A body that ends before its declared length is a failure, and nothing of it is used. Compressed
//! bodies are decompressed as a stream, so a decompression bomb is stopped at the limit.

use super::failure::HttpFailure;
use super::pool::ResponseBody;
use bytes::{Bytes, BytesMut};
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use hyper::body::Body;
use std::io::{self, Write};
use tidegate_core::signal::Network;

/// Limits of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// The largest size of a body after decompression, in bytes.
    pub bytes_max: u64,
    /// The highest compression ratio: bytes after decompression per byte before. Bodies below 64 KiB are
    /// exempt.
    pub ratio_max: u64,
}

impl Default for BodyLimits {
    /// 64 MiB, and a ratio of 100.
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
            // A body in a single chunk, the usual case, is returned without copying.
            let Some(first) = next(&mut body).await? else { return Ok(Bytes::new()) };
            if body.is_end_stream() {
                return if first.len() as u64 > limits.bytes_max {
                    Err(too_many(limits.bytes_max))
                } else {
                    Ok(first)
                };
            }
            let mut whole = BodySegments::new(declared.min(limits.bytes_max));
            let mut data = Some(first);
            while let Some(piece) = data {
                if (whole.len + piece.len()) as u64 > limits.bytes_max {
                    return Err(too_many(limits.bytes_max));
                }
                whole.push(&piece);
                data = next(&mut body).await?;
            }
            return Ok(whole.join());
        }
        Encoding::Gzip => {
            MultiGzDecoder::new(DecompressionBuffer { limits: *limits, packed: 0, out: BodySegments::new(0) })
        }
    };
    while let Some(data) = next(&mut body).await? {
        let unpacked = sink.get_mut();
        unpacked.packed = unpacked.packed.saturating_add(data.len() as u64);
        sink.write_all(&data).map_err(|e| {
            of_limit(&e)
                .unwrap_or_else(|| HttpFailure::Malformed("cannot decompress the response body".into()))
        })?;
    }
    let packed = sink.get_ref().packed;
    match sink.finish() {
        _ if packed == 0 => Ok(Bytes::new()),
        Ok(unpacked) => Ok(unpacked.out.join()),
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
        Some(_) => Err(HttpFailure::Malformed("the response body has an unexpected encoding".into())),
    }
}

/// The parts of a body. A buffer that grows is copied into one of twice its size, so a body at the
/// limit would take three times the limit; parts take what was received, and are joined when the
/// body is complete.
struct BodySegments {
    full: Vec<Vec<u8>>,
    last: Vec<u8>,
    len: usize,
}

/// The size of a part.
const SEGMENT: usize = 1 << 20;

impl BodySegments {
    fn new(declared: u64) -> BodySegments {
        let last = Vec::with_capacity(declared.min(RATIO_FREE) as usize);
        BodySegments { full: Vec::new(), last, len: 0 }
    }

    fn push(&mut self, mut data: &[u8]) {
        self.len += data.len();
        while !data.is_empty() {
            if self.last.len() == SEGMENT {
                self.full.push(std::mem::replace(&mut self.last, Vec::with_capacity(SEGMENT)));
            }
            let (now, rest) = data.split_at(data.len().min(SEGMENT - self.last.len()));
            self.last.extend_from_slice(now);
            data = rest;
        }
    }

    fn join(self) -> Bytes {
        if self.full.is_empty() {
            return self.last.into();
        }
        let mut whole = BytesMut::with_capacity(self.len);
        for part in self.full {
            whole.extend_from_slice(&part);
        }
        whole.extend_from_slice(&self.last);
        whole.freeze()
    }
}

/// The output buffer of the decompressor, bounded by size and by ratio.
struct DecompressionBuffer {
    limits: BodyLimits,
    /// The number of compressed bytes read so far.
    packed: u64,
    out: BodySegments,
}

impl Write for DecompressionBuffer {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let after = (self.out.len + data.len()) as u64;
        let swollen = self.packed.saturating_mul(self.limits.ratio_max).max(RATIO_FREE);
        if after > self.limits.bytes_max.min(swollen) {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.out.push(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn of_limit(error: &io::Error) -> Option<HttpFailure> {
    (error.kind() == io::ErrorKind::FileTooLarge).then(|| {
        HttpFailure::TooLarge("the decompressed body exceeds body_bytes_max or the ratio limit".into())
    })
}

fn truncated() -> HttpFailure {
    HttpFailure::Network(Network::Truncated, "the response body is truncated".into())
}

fn too_many(max: u64) -> HttpFailure {
    HttpFailure::TooLarge(format!("the response body is larger than body_bytes_max, {max} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_no_more_than_what_came_and_join_to_it() {
        let (mut parts, mut whole) = (BodySegments::new(10), Vec::new());
        for n in 0..700_u32 {
            let piece = vec![n as u8; 9_973];
            parts.push(&piece);
            whole.extend(piece);
        }
        let held: usize = parts.full.iter().map(Vec::capacity).sum::<usize>() + parts.last.capacity();
        assert!(held <= whole.len() + SEGMENT, "{held} for {}", whole.len());
        assert_eq!(parts.join(), whole);
    }
}
