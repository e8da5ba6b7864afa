//! Checksums as catalogues state them: a multihash in hexadecimal (`file:checksum` of STAC).

use sha2::{Digest, Sha256, Sha512};
use std::io::{self, Read};
use tidegate_core::hex::{hex, unhex_all};

/// The first bytes that are kept: enough for what a service says in place of a file.
const HEAD_BYTES: usize = 16 << 10;

/// A stated checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedChecksum {
    function: HashFunction,
    digest: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HashFunction {
    Sha256,
    Sha512,
}

impl StatedChecksum {
    /// Reads a multihash. `None` if it is not one, or its function is neither SHA-256 nor SHA-512.
    #[must_use]
    pub fn parse(text: &str) -> Option<StatedChecksum> {
        let bytes = unhex_all(text.trim())?;
        let [function, length, digest @ ..] = bytes.as_slice() else { return None };
        let function = match (function, length) {
            (0x12, 32) => HashFunction::Sha256,
            (0x13, 64) => HashFunction::Sha512,
            _ => return None,
        };
        (digest.len() == usize::from(*length)).then(|| StatedChecksum { function, digest: digest.to_vec() })
    }
}

/// The sums of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileSums {
    pub(super) bytes: u64,
    /// SHA-256, in hexadecimal.
    pub(super) sha256: String,
    /// Whether the stated checksum is right; `None` if none was stated.
    pub(super) agrees: Option<bool>,
    /// The first bytes.
    pub(super) head: Vec<u8>,
}

/// Reads a file to its end.
pub(super) fn sums(mut file: impl Read, stated: Option<&StatedChecksum>) -> io::Result<FileSums> {
    let (mut sha256, mut sha512) = (Sha256::new(), Sha512::new());
    let wide = stated.is_some_and(|stated| stated.function == HashFunction::Sha512);
    let (mut bytes, mut head) = (0u64, Vec::new());
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut buffer)?;
        let Some(part) = buffer.get(..read).filter(|part| !part.is_empty()) else { break };
        if let Some(room) = HEAD_BYTES.checked_sub(head.len()).filter(|room| *room > 0) {
            head.extend_from_slice(part.get(..room).unwrap_or(part));
        }
        bytes += part.len() as u64;
        sha256.update(part);
        if wide {
            sha512.update(part);
        }
    }
    let sha256 = sha256.finalize();
    let agrees = stated.map(|stated| match stated.function {
        HashFunction::Sha256 => sha256[..] == *stated.digest,
        HashFunction::Sha512 => sha512.finalize()[..] == *stated.digest,
    });
    Ok(FileSums { bytes, sha256: hex(&sha256), agrees, head })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multihash_is_compared() {
        let abc = "1220ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let stated = StatedChecksum::parse(abc);
        assert!(stated.is_some());
        let agrees = |text: &str| sums(text.as_bytes(), stated.as_ref()).ok().and_then(|sums| sums.agrees);
        assert_eq!((agrees("abc"), agrees("abd")), (Some(true), Some(false)));
        for other in ["", "12", "1221aa", "d50110900150983cd24fb0d6963f7d28e17f72", "xyz"] {
            assert_eq!(StatedChecksum::parse(other), None, "{other}");
        }
    }
}
