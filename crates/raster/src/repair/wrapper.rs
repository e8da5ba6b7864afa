//! What the file is, if it is not a TIFF: empty, zeros, an error message, text-mode damage, or a TIFF
//! inside something else.
//!
//! These come first because no search in such a file may ever find a picture by chance. What is
//! wrapped is unwrapped; what never was a picture is refused with that reason.

use std::io::{self, Read, Write};

use flate2::read::GzDecoder;
use tidegate_core::Code;
use tidegate_core::content::{self, ContentKind};

use super::input::RepairInput;
use super::report::{FieldChange, RepairError, RepairRefusal, broken, too_large};

/// The largest file that is unpacked from gzip.
const UNPACKED_LEN_MAX: u64 = 64 << 30;
/// How much text is looked at to understand an error message.
const MESSAGE_LEN_MAX: u64 = 64 << 10;
/// How far line ends are counted.
const LINES_LEN_MAX: u64 = 4 << 20;
/// Line feeds in a row that all follow a carriage return: one in 256 would by chance.
const MANGLED_MIN: usize = 6;

/// Words in the answer of a service that is busy.
const BUSY: [&str; 9] = [
    "SlowDown",
    "ServiceUnavailable",
    "ServerBusy",
    "InternalError",
    "RequestTimeout",
    "OperationTimedOut",
    "Too Many Requests",
    "Service Unavailable",
    "Bad Gateway",
];

/// The picture inside the file, and how it was unwrapped.
pub(super) fn unwrap(input: RepairInput, changes: &mut Vec<FieldChange>) -> Result<RepairInput, RepairError> {
    let head = input.up_to(0, 16)?;
    if head.is_empty() {
        return Err(broken("the file is empty"));
    }
    if head.iter().all(|byte| *byte == 0) && is_all_zero(&input)? {
        return Err(broken("the file holds nothing but zero bytes"));
    }
    if head.starts_with(&[0x1f, 0x8b, 8]) {
        let unpacked = gunzip(&input)?;
        changes.push(FieldChange::new("wrapping", "gzip", "none", "the checksum of gzip"));
        return unwrap_inner(unpacked, changes);
    }
    if head.starts_with(b"HTTP/1.") || head.starts_with(b"HTTP/2") {
        return behind_http(input, changes);
    }
    if let Some(refusal) = error_document(&input)? {
        return Err(refusal.into());
    }
    if is_mangled(&input)? {
        return Err(broken(
            "every line feed follows a carriage return: the file went through a transfer in text mode; fetch it again in binary mode",
        ));
    }
    Ok(input)
}

/// One wrapping inside another is enough; a third is refused, so that the depth is bounded.
fn unwrap_inner(input: RepairInput, changes: &mut Vec<FieldChange>) -> Result<RepairInput, RepairError> {
    if changes.len() > 2 {
        return Err(broken("the file is wrapped more than twice"));
    }
    unwrap(input, changes)
}

fn is_all_zero(input: &RepairInput) -> io::Result<bool> {
    let mut reader = input.reader()?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(true),
            n if buffer.get(..n).is_some_and(|read| read.iter().any(|byte| *byte != 0)) => {
                return Ok(false);
            }
            _ => {}
        }
    }
}

fn gunzip(input: &RepairInput) -> Result<RepairInput, RepairError> {
    // Zeros pack a thousandfold; a picture that does is refused later by its pixels.
    let cap = input.len().saturating_mul(1100).saturating_add(1 << 20).min(UNPACKED_LEN_MAX);
    let mut file = tempfile::tempfile()?;
    let mut unpacked = GzDecoder::new(io::BufReader::new(input.reader()?)).take(cap);
    let mut buffer = vec![0; 1 << 16];
    let mut len = 0u64;
    loop {
        let n = match unpacked.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) => {
                return Err(broken(format!("a gzip file that cannot be unpacked: {error}")));
            }
        };
        file.write_all(buffer.get(..n).unwrap_or_default())?;
        len += n as u64;
    }
    if len >= cap {
        return Err(too_large("the gzip file unpacks to more than a picture of its size can"));
    }
    Ok(RepairInput::new(file)?)
}

/// The body of an HTTP response that was saved with its head.
fn behind_http(input: RepairInput, changes: &mut Vec<FieldChange>) -> Result<RepairInput, RepairError> {
    let start = input.up_to(0, MESSAGE_LEN_MAX)?;
    let Some(end) = start.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Err(broken("the head of an HTTP response without an end"));
    };
    let head = String::from_utf8_lossy(start.get(..end).unwrap_or_default()).into_owned();
    let status: u16 = head.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    if status != 200 {
        let mut refusal = RepairRefusal::new(
            Code::ERROR_DOCUMENT,
            format!("the file is an HTTP response with status {status}"),
        );
        refusal.transient = matches!(status, 408 | 429 | 500 | 502 | 503 | 504);
        return Err(refusal.into());
    }
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    if field("transfer-encoding").is_some() || field("content-encoding").is_some() {
        return Err(broken("the body of the saved HTTP response is encoded; fetch the file again"));
    }
    let from = end as u64 + 4;
    let rest = input.len().saturating_sub(from);
    let len = field("content-length").and_then(|text| text.parse::<u64>().ok()).unwrap_or(rest);
    changes.push(FieldChange::new(
        "wrapping",
        format!("{from} bytes of an HTTP response in front"),
        "none",
        "the end of the head",
    ));
    unwrap_inner(input.window(from, len), changes)
}

/// An error message that was saved under the name of the picture.
fn error_document(input: &RepairInput) -> io::Result<Option<RepairRefusal>> {
    let start = input.up_to(0, MESSAGE_LEN_MAX)?;
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&start).trim_ascii_start();
    let kind = match (ContentKind::of(&start), text) {
        (ContentKind::Html | ContentKind::Xml, [_, next, ..])
            if next.is_ascii_alphabetic() || matches!(next, b'!' | b'?') =>
        {
            "XML or HTML"
        }
        (ContentKind::Json, [_, next, ..]) if next.is_ascii_graphic() || next.is_ascii_whitespace() => "JSON",
        _ => return Ok(None),
    };
    let said = content::exception(&start).map(|report| report.text).filter(|text| !text.is_empty());
    let text = said.unwrap_or_else(|| String::from_utf8_lossy(text).into_owned());
    let busy = BUSY.iter().find(|word| text.contains(**word));
    let said: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(120).collect();
    let mut refusal =
        RepairRefusal::new(Code::ERROR_DOCUMENT, format!("the file is a document in {kind}, not a raster"));
    refusal.excerpt = Some(said);
    refusal.transient = busy.is_some();
    Ok(Some(refusal))
}

/// Whether every line feed follows a carriage return, and there are too many for chance.
fn is_mangled(input: &RepairInput) -> io::Result<bool> {
    let bytes = input.up_to(0, LINES_LEN_MAX)?;
    let mut count = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == b'\n' {
            if at == 0 || bytes.get(at - 1) != Some(&b'\r') {
                return Ok(false);
            }
            count += 1;
        }
    }
    Ok(count >= MANGLED_MIN)
}
