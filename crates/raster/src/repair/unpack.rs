//! Whether a packed block is whole, how long it is, and what proves it.
//!
//! A repair asks more of a codec than a reader does: where the packed bytes end by themselves, how
//! many bytes they hold if not the number that the header explains, and whether a checksum was passed.
//! Nothing is unpacked beyond a limit.

use flate2::{Decompress, FlushDecompress, Status};
use weezl::LzwStatus;

use super::report::Proof;

/// How often a block may be larger than the header explains and still be measured: 8 bits that are 64.
const MEASURED_MAX: u64 = 8;

/// What a block turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockContent {
    /// It holds what the header explains; so many packed bytes were needed.
    Whole { packed_len: u64, proof: Proof },
    /// It ends by itself, with another number of bytes.
    OtherSize(u64),
    /// It holds more than any mistake in the header explains.
    TooLarge,
    /// It cannot be unpacked.
    Broken,
}

/// The codecs that can be told apart here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockCodec {
    Plain,
    Deflate,
    Zstd,
    Lzw,
    PackBits,
    /// Whatever cannot be checked here.
    Other,
}

impl BlockCodec {
    pub(super) fn of(compression: u64) -> BlockCodec {
        match compression {
            1 => BlockCodec::Plain,
            8 | 32946 => BlockCodec::Deflate,
            50000 => BlockCodec::Zstd,
            5 => BlockCodec::Lzw,
            32773 => BlockCodec::PackBits,
            _ => BlockCodec::Other,
        }
    }

    /// The number of the tag.
    pub(super) fn number(self) -> Option<u64> {
        Some(match self {
            BlockCodec::Plain => 1,
            BlockCodec::Deflate => 8,
            BlockCodec::Zstd => 50000,
            BlockCodec::Lzw => 5,
            BlockCodec::PackBits => 32773,
            BlockCodec::Other => return None,
        })
    }

    /// Whether packed bytes say themselves where they end.
    pub(super) fn ends_by_itself(self) -> bool {
        matches!(self, BlockCodec::Deflate | BlockCodec::Zstd | BlockCodec::Lzw)
    }

    /// The codec whose mark the bytes begin with.
    pub(super) fn sniff(packed: &[u8]) -> Option<BlockCodec> {
        match packed {
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(BlockCodec::Zstd),
            [cmf, flags, ..]
                if cmf & 0x0f == 8
                    && cmf >> 4 <= 7
                    && (u16::from(*cmf) * 256 + u16::from(*flags)) % 31 == 0
                    && flags & 0x20 == 0 =>
            {
                Some(BlockCodec::Deflate)
            }
            _ => None,
        }
    }
}

/// Unpacks a block of which `expected` bytes are explained. What it holds goes to `into`.
pub(super) fn unpack(codec: BlockCodec, packed: &[u8], expected: u64, into: &mut Vec<u8>) -> BlockContent {
    into.clear();
    match codec {
        BlockCodec::Plain => plain(packed, expected, into),
        BlockCodec::Deflate => deflate(packed, expected, into),
        BlockCodec::Zstd => zstd_frame(packed, expected, into),
        BlockCodec::Lzw => lzw(packed, expected, into),
        BlockCodec::PackBits => pack_bits(packed, expected, into),
        BlockCodec::Other if packed.is_empty() => BlockContent::Broken,
        BlockCodec::Other => BlockContent::Whole { packed_len: packed.len() as u64, proof: Proof::None },
    }
}

fn plain(packed: &[u8], expected: u64, into: &mut Vec<u8>) -> BlockContent {
    let len = usize::try_from(expected).unwrap_or(usize::MAX);
    match packed.get(..len) {
        Some(bytes) => {
            into.extend_from_slice(bytes);
            // A plain block that is a multiple of its size was not made by this header.
            if packed.len() > len && packed.len().is_multiple_of(len.max(1)) {
                return BlockContent::OtherSize(packed.len() as u64);
            }
            BlockContent::Whole { packed_len: expected, proof: Proof::Size }
        }
        None => BlockContent::OtherSize(packed.len() as u64),
    }
}

fn deflate(packed: &[u8], expected: u64, into: &mut Vec<u8>) -> BlockContent {
    let mut state = Decompress::new(true);
    let mut scratch = vec![0; 1 << 16];
    let cap = expected.saturating_mul(MEASURED_MAX).saturating_add(1 << 10);
    loop {
        let (was_in, was_out) = (state.total_in(), state.total_out());
        let rest = packed.get(was_in as usize..).unwrap_or_default();
        let Ok(status) = state.decompress(rest, &mut scratch, FlushDecompress::None) else {
            return BlockContent::Broken;
        };
        let got = (state.total_out() - was_out) as usize;
        if state.total_out() <= expected {
            into.extend_from_slice(scratch.get(..got).unwrap_or_default());
        }
        if state.total_out() > cap {
            return BlockContent::TooLarge;
        }
        if status == Status::StreamEnd {
            break;
        }
        if state.total_in() == was_in && got == 0 {
            return BlockContent::Broken;
        }
    }
    if state.total_out() != expected {
        return BlockContent::OtherSize(state.total_out());
    }
    BlockContent::Whole { packed_len: state.total_in(), proof: Proof::Checksum }
}

fn zstd_frame(packed: &[u8], expected: u64, into: &mut Vec<u8>) -> BlockContent {
    let Ok(len) = zstd::zstd_safe::find_frame_compressed_size(packed) else { return BlockContent::Broken };
    let Some(frame) = packed.get(..len) else { return BlockContent::Broken };
    if let Ok(Some(told)) = zstd::zstd_safe::get_frame_content_size(frame) {
        if told > expected.saturating_mul(MEASURED_MAX).saturating_add(1 << 10) {
            return BlockContent::TooLarge;
        }
        if told != expected {
            return BlockContent::OtherSize(told);
        }
    }
    let Ok(room) = usize::try_from(expected) else { return BlockContent::TooLarge };
    let Ok(bytes) = zstd::bulk::decompress(frame, room) else { return BlockContent::Broken };
    if bytes.len() as u64 != expected {
        return BlockContent::OtherSize(bytes.len() as u64);
    }
    *into = bytes;
    // The third bit of the descriptor after the mark: a checksum follows the frame.
    let checked = frame.get(4).is_some_and(|descriptor| descriptor & 4 != 0);
    let proof = if checked { Proof::Checksum } else { Proof::Size };
    BlockContent::Whole { packed_len: len as u64, proof }
}

fn pack_bits(packed: &[u8], expected: u64, into: &mut Vec<u8>) -> BlockContent {
    let mut at = 0;
    while (into.len() as u64) < expected {
        let Some(head) = packed.get(at) else { return BlockContent::OtherSize(into.len() as u64) };
        at += 1;
        match *head as i8 {
            -128 => {}
            run if run < 0 => {
                let Some(byte) = packed.get(at) else { return BlockContent::Broken };
                into.resize(into.len() + (1 - isize::from(run)) as usize, *byte);
                at += 1;
            }
            run => {
                let end = at + run as usize + 1;
                let Some(bytes) = packed.get(at..end) else { return BlockContent::Broken };
                into.extend_from_slice(bytes);
                at = end;
            }
        }
    }
    if into.len() as u64 != expected {
        return BlockContent::OtherSize(into.len() as u64);
    }
    BlockContent::Whole { packed_len: at as u64, proof: Proof::None }
}

/// LZW as TIFF has it: most significant bit first, codes one longer a code early.
fn lzw(packed: &[u8], expected: u64, into: &mut Vec<u8>) -> BlockContent {
    let mut state = weezl::decode::Decoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8);
    let mut scratch = vec![0; 1 << 16];
    let cap = expected.saturating_mul(MEASURED_MAX).saturating_add(1 << 10);
    let (mut used, mut got) = (0usize, 0u64);
    loop {
        let step = state.decode_bytes(packed.get(used..).unwrap_or_default(), &mut scratch);
        used += step.consumed_in;
        got += step.consumed_out as u64;
        if got <= expected {
            into.extend_from_slice(scratch.get(..step.consumed_out).unwrap_or_default());
        }
        if got > cap {
            return BlockContent::TooLarge;
        }
        match step.status {
            Ok(LzwStatus::Done) => break,
            // Some writers leave the end code out.
            Ok(LzwStatus::NoProgress) if got == expected => break,
            Ok(LzwStatus::Ok) if step.consumed_in + step.consumed_out > 0 => {}
            _ => return BlockContent::Broken,
        }
    }
    if got != expected {
        return BlockContent::OtherSize(got);
    }
    BlockContent::Whole { packed_len: used as u64, proof: Proof::None }
}
