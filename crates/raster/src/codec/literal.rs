//! Deflate without a search for repetitions: bytes by their frequency, and runs of one byte.
//!
//! The differences of measured values are mostly noise. A search for repetitions then takes nine tenths of the
//! time, and what it finds by chance makes the block longer. Here every part of a block is read twice: once to
//! count its bytes, once to write them. Runs are kept, because nodata is a run.

use super::huffman::{BitCode, code_lengths, codes};

/// Bytes that share one code.
const PART_LEN: usize = 128 << 10;
/// Symbols of bytes, the end, and lengths.
const SYMBOLS: usize = 286;
const END: usize = 256;
/// The longest code, so that four of them fit into a word with what is left of the last byte.
const CODE_LEN_MAX: u32 = 14;
/// The order in which the lengths of the codes of lengths are written.
const LENGTH_ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
const RUN_MAX: usize = 258;
const RUN_MIN: usize = 3;

/// Some bytes as they are, and how often the last of them is repeated after that.
struct ByteSpan {
    bytes: usize,
    repeats: usize,
}

/// A symbol of lengths, the number of extra bits, and the extra bits.
fn run_symbol(len: usize) -> (usize, u32, u64) {
    let over = len - RUN_MIN;
    match over {
        0..8 => (257 + over, 0, 0),
        255.. => (285, 0, 0),
        _ => {
            let bits = over.ilog2() - 2;
            let symbol = 261 + 4 * bits as usize + (over >> bits) - 4;
            (symbol, bits, (over & ((1 << bits) - 1)) as u64)
        }
    }
}

/// Splits a run into lengths that a code has; none of them is too short.
fn run_lengths(mut len: usize) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let taken = match len {
            0 => return None,
            1..=RUN_MAX => len,
            // Leave enough for another.
            _ if len - RUN_MAX < RUN_MIN => RUN_MAX - RUN_MIN,
            _ => RUN_MAX,
        };
        len -= taken;
        Some(taken)
    })
}

/// Finds runs: those that fill eight bytes side by side.
fn spans(bytes: &[u8], out: &mut Vec<ByteSpan>) {
    out.clear();
    let mut start = 0;
    let mut at = 0;
    while let Some(word) = bytes.get(at..at + 8) {
        let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
        if word != word.rotate_left(8) {
            at += 8;
            continue;
        }
        let value = word as u8;
        let run = bytes[at..].iter().take_while(|byte| **byte == value).count();
        out.push(ByteSpan { bytes: at + 1 - start, repeats: run - 1 });
        at += run;
        start = at;
    }
    out.push(ByteSpan { bytes: bytes.len() - start, repeats: 0 });
}

/// Bits, the lowest first.
struct BitSink<'a> {
    out: &'a mut [u8],
    at: usize,
    held: u64,
    count: u32,
}

impl BitSink<'_> {
    #[inline(always)]
    fn add(&mut self, bits: u64, count: u32) {
        self.held |= bits << self.count;
        self.count += count;
    }

    #[inline(always)]
    fn put(&mut self, code: BitCode) {
        self.add(code.bits.into(), code.len.into());
    }

    /// Writes whole bytes; fewer than eight bits stay.
    #[inline(always)]
    fn flush(&mut self) {
        if let Some(to) = self.out.get_mut(self.at..self.at + 8) {
            to.copy_from_slice(&self.held.to_le_bytes());
        }
        self.at += self.count as usize / 8;
        self.held >>= self.count & !7;
        self.count &= 7;
    }
}

/// Symbols of the code lengths, with their extra bits.
fn length_symbols(lengths: &[u8]) -> Vec<(usize, u32, u64)> {
    let mut out = Vec::new();
    let mut rest = lengths;
    while let [first, ..] = rest {
        let run = rest.iter().take_while(|len| *len == first).count();
        let taken = match (first, run) {
            (0, 11..) => {
                let taken = run.min(138);
                out.push((18, 7, taken as u64 - 11));
                taken
            }
            (0, 3..) => {
                out.push((17, 3, run as u64 - 3));
                run
            }
            (_, 4..) => {
                let taken = run.min(7);
                out.push((usize::from(*first), 0, 0));
                out.push((16, 2, taken as u64 - 4));
                taken
            }
            _ => {
                out.push((usize::from(*first), 0, 0));
                1
            }
        };
        rest = &rest[taken..];
    }
    out
}

/// What a part is written by.
struct PartPlan {
    spans: Vec<ByteSpan>,
    lengths: [u8; SYMBOLS],
    symbols: Vec<(usize, u32, u64)>,
    symbol_lengths: [u8; 19],
    /// Bits of all.
    bits: u64,
}

impl PartPlan {
    fn new(part: &[u8]) -> PartPlan {
        let mut made = Vec::new();
        spans(part, &mut made);
        // Four tables: the same byte twice in a row does not wait for itself.
        let mut tables = [[0u32; 256]; 4];
        let mut counts = [0u32; SYMBOLS];
        let mut extra = 0;
        let mut at = 0;
        for span in &made {
            let (fours, rest) = part[at..at + span.bytes].as_chunks::<4>();
            for four in fours {
                for (table, byte) in tables.iter_mut().zip(four) {
                    table[usize::from(*byte)] += 1;
                }
            }
            rest.iter().for_each(|byte| tables[0][usize::from(*byte)] += 1);
            at += span.bytes + span.repeats;
            for len in run_lengths(span.repeats) {
                let (symbol, bits, _) = run_symbol(len);
                counts[symbol] += 1;
                extra += u64::from(bits) + 1;
            }
        }
        for table in tables {
            counts.iter_mut().zip(table).for_each(|(count, more)| *count += more);
        }
        counts[END] = 1;
        let lengths = code_lengths(&counts, CODE_LEN_MAX);
        let mut both = lengths.to_vec();
        both.push(1);
        let symbols = length_symbols(&both);
        let mut symbol_counts = [0; 19];
        symbols.iter().for_each(|(symbol, ..)| symbol_counts[*symbol] += 1);
        let symbol_lengths = code_lengths(&symbol_counts, 7);
        let of_symbols =
            symbols.iter().map(|(symbol, bits, _)| u64::from(symbol_lengths[*symbol]) + u64::from(*bits));
        let of_bytes = counts.iter().zip(lengths).map(|(count, len)| u64::from(*count) * u64::from(len));
        let bits = 3 + 14 + 19 * 3 + of_symbols.sum::<u64>() + of_bytes.sum::<u64>() + extra;
        PartPlan { spans: made, lengths, symbols, symbol_lengths, bits }
    }

    fn write(&self, part: &[u8], is_last: bool, out: &mut BitSink<'_>) {
        out.add(u64::from(is_last) | 2 << 1, 3);
        out.add((SYMBOLS as u64 - 257) | (19 - 4) << 10, 14);
        out.flush();
        for at in LENGTH_ORDER {
            out.add(self.symbol_lengths[at].into(), 3);
            out.flush();
        }
        let symbol_codes = codes(&self.symbol_lengths);
        for (symbol, count, bits) in &self.symbols {
            out.put(symbol_codes[*symbol]);
            out.add(*bits, *count);
            out.flush();
        }
        let codes = codes(&self.lengths);
        let (of_bytes, _) = codes.split_at(256);
        let of_bytes: &[BitCode; 256] = of_bytes.try_into().unwrap_or(&[BitCode { bits: 0, len: 0 }; 256]);
        let mut at = 0;
        for span in &self.spans {
            let (fours, rest) = part[at..at + span.bytes].as_chunks::<4>();
            for four in fours {
                // Two by two, so that codes do not wait for each other.
                let [a, b, c, d] = four.map(|byte| of_bytes[usize::from(byte)]);
                let ((ab, ab_len), (cd, cd_len)) = (a.and(b), c.and(d));
                out.add(ab | cd << ab_len, ab_len + cd_len);
                out.flush();
            }
            for byte in rest {
                out.put(of_bytes[usize::from(*byte)]);
                out.flush();
            }
            at += span.bytes + span.repeats;
            for len in run_lengths(span.repeats) {
                let (symbol, count, bits) = run_symbol(len);
                out.put(codes[symbol]);
                out.add(bits, count);
                // The only distance: one byte back.
                out.add(0, 1);
                out.flush();
            }
        }
        out.put(codes[END]);
        out.flush();
    }
}

/// The length of the packed bytes.
pub(super) fn packed_len(bytes: &[u8]) -> usize {
    let bits: u64 = bytes.chunks(PART_LEN).map(|part| PartPlan::new(part).bits).sum();
    6 + bits.div_ceil(8) as usize
}

/// Packs bytes, at least one, as zlib does, with its checksum.
pub(super) fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x78, 0x9c];
    let mut state = (out.len(), 0, 0);
    let parts = bytes.len().div_ceil(PART_LEN);
    out.reserve(bytes.len());
    for (index, part) in bytes.chunks(PART_LEN).enumerate() {
        let plan = PartPlan::new(part);
        // Whole words are written.
        out.resize(state.0 + plan.bits as usize / 8 + 16, 0);
        let (at, held, count) = state;
        let mut sink = BitSink { out: &mut out, at, held, count };
        plan.write(part, index + 1 == parts, &mut sink);
        state = (sink.at, sink.held, sink.count);
    }
    let (at, held, count) = state;
    out.truncate(at);
    if count > 0 {
        out.push(held as u8);
    }
    out.extend_from_slice(&libdeflater::adler32(bytes).to_be_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use libdeflater::Decompressor;
    use proptest::prelude::*;

    fn unpacked(packed: &[u8], len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        assert_eq!(Decompressor::new().zlib_decompress(packed, &mut out), Ok(len));
        out
    }

    /// Bytes that look like noise.
    fn noise(len: usize, mask: u8) -> Vec<u8> {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8 & mask
        };
        (0..len).map(|_| next()).collect()
    }

    proptest! {
        #[test]
        fn any_decoder_reads_it(parts in prop::collection::vec((any::<u8>(), 1usize..700, any::<bool>()), 1..40)) {
            let mut bytes = Vec::new();
            for (value, len, is_run) in parts {
                bytes.extend((0..len).map(|at| if is_run { value } else { value.wrapping_mul(at as u8) }));
            }
            let packed = pack(&bytes);
            prop_assert_eq!(packed.len(), packed_len(&bytes));
            prop_assert_eq!(unpacked(&packed, bytes.len()), bytes);
        }
    }

    #[test]
    fn parts_of_their_own_statistics_follow_each_other() {
        let mut bytes = noise(PART_LEN + 5, 0x0f);
        bytes.extend(std::iter::repeat_n(7, PART_LEN));
        bytes.extend(noise(PART_LEN / 2, 0xff));
        let packed = pack(&bytes);
        assert_eq!(unpacked(&packed, bytes.len()), bytes);
        assert!(packed.len() < PART_LEN / 2 + PART_LEN / 2 + 4096, "{}", packed.len());
    }

    #[test]
    fn runs_have_symbols_of_their_own() {
        for (len, symbol) in [
            (3, (257, 0, 0)),
            (10, (264, 0, 0)),
            (11, (265, 1, 0)),
            (18, (268, 1, 1)),
            (19, (269, 2, 0)),
            (130, (280, 4, 15)),
            (131, (281, 5, 0)),
            (257, (284, 5, 30)),
            (258, (285, 0, 0)),
        ] {
            assert_eq!(run_symbol(len), symbol, "{len}");
        }
        for len in [3, 258, 259, 260, 261, 516, 517, 1000] {
            let parts: Vec<usize> = run_lengths(len).collect();
            assert_eq!(parts.iter().sum::<usize>(), len);
            assert!(parts.iter().all(|part| (RUN_MIN..=RUN_MAX).contains(part)), "{parts:?}");
        }
    }
}
