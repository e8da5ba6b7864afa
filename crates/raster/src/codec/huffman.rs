//! Huffman's codes, as deflate has them.

/// The number of bits of each symbol: Huffman's, of at most `most` bits.
pub(super) fn code_lengths<const N: usize>(counts: &[u32; N], most: u32) -> [u8; N] {
    let mut lengths = [0; N];
    let mut counts: Vec<(u32, usize)> =
        counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(at, count)| (*count, at)).collect();
    if let [(_, only)] = counts[..] {
        lengths[only] = 1;
        return lengths;
    }
    loop {
        counts.sort_unstable();
        let depths = depths(&counts);
        if depths.iter().all(|depth| *depth <= most) {
            for ((_, at), depth) in counts.iter().zip(depths) {
                lengths[*at] = depth as u8;
            }
            return lengths;
        }
        // Rare symbols come closer to the others, and their codes become shorter.
        counts.iter_mut().for_each(|(count, _)| *count = (*count >> 1) | 1);
    }
}

/// The depth of each leaf of Huffman's tree; the leaves come by rising counts.
fn depths(leaves: &[(u32, usize)]) -> Vec<u32> {
    let count = leaves.len();
    // Nodes: the leaves, then the inner ones in the order in which they are made, which is that of their counts.
    let mut weights: Vec<u64> = leaves.iter().map(|(count, _)| u64::from(*count)).collect();
    let mut parents = vec![0; 2 * count];
    let (mut leaf, mut inner) = (0, count);
    while weights.len() + 1 < 2 * count {
        let mut least = || {
            let is_leaf = leaf < count && (inner >= weights.len() || weights[leaf] <= weights[inner]);
            let next = if is_leaf { &mut leaf } else { &mut inner };
            *next += 1;
            *next - 1
        };
        let (a, b) = (least(), least());
        (parents[a], parents[b]) = (weights.len(), weights.len());
        weights.push(weights[a] + weights[b]);
    }
    let mut depths = vec![0; weights.len()];
    for at in (0..weights.len().saturating_sub(1)).rev() {
        depths[at] = depths[parents[at]] + 1;
    }
    depths.truncate(count);
    depths
}

/// A code and its number of bits, for each symbol.
#[derive(Clone, Copy, Default)]
pub(super) struct BitCode {
    pub(super) bits: u16,
    pub(super) len: u8,
}

impl BitCode {
    /// This code and the next, and their number of bits.
    #[inline(always)]
    pub(super) fn and(self, next: BitCode) -> (u64, u32) {
        (u64::from(self.bits) | u64::from(next.bits) << self.len, u32::from(self.len + next.len))
    }
}

/// The code of each symbol, by their lengths.
pub(super) fn codes<const N: usize>(lengths: &[u8; N]) -> [BitCode; N] {
    let mut of_length = [0u16; 16];
    lengths.iter().filter(|len| **len > 0).for_each(|len| of_length[usize::from(*len)] += 1);
    let mut next = [0u16; 16];
    let mut code = 0;
    for len in 1..16 {
        code = (code + of_length[len - 1]) << 1;
        next[len] = code;
    }
    let mut out = [BitCode::default(); N];
    for (out, len) in out.iter_mut().zip(lengths).filter(|(_, len)| **len > 0) {
        let code = &mut next[usize::from(*len)];
        *out = BitCode { bits: code.reverse_bits() >> (16 - len), len: *len };
        *code += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_never_too_long() {
        // Counts that grow like this make the deepest tree.
        let mut counts = [0u32; 286];
        let (mut a, mut b) = (1, 1);
        for count in counts.iter_mut().take(40) {
            *count = a;
            (a, b) = (b, a + b);
        }
        let lengths = code_lengths(&counts, 14);
        assert_eq!(lengths.iter().copied().max(), Some(14));
        let filled: f64 = lengths.iter().filter(|len| **len > 0).map(|len| 0.5f64.powi((*len).into())).sum();
        assert_eq!(filled, 1.0);
    }
}
