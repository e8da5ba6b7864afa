//! How numbers are spelt in text formats: the shortest text that reads back as the same number,
//! and no needless `.0`.

/// Appends a finite number. (What is not finite is spelt as Rust does; JSON writers ask first.)
pub(crate) fn real(out: &mut Vec<u8>, x: f64) {
    if x == x.trunc() && x.abs() < 1e15 && (x != 0.0 || x.is_sign_positive()) {
        return int(out, x as i64);
    }
    out.extend_from_slice(ryu::Buffer::new().format(x).as_bytes());
}

/// Appends a whole number.
pub(crate) fn int(out: &mut Vec<u8>, i: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(i).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_spellings() {
        for (x, text) in [(1.0, "1"), (-0.0, "-0.0"), (0.1, "0.1"), (1e300, "1e300"), (-12.5, "-12.5")] {
            let mut out = Vec::new();
            real(&mut out, x);
            assert_eq!(out, text.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn every_number_reads_back(x in any::<f64>().prop_filter("finite", |x| x.is_finite())) {
            let mut out = Vec::new();
            real(&mut out, x);
            let back: f64 = std::str::from_utf8(&out).unwrap().parse().unwrap();
            prop_assert_eq!(back.to_bits(), x.to_bits());
        }
    }
}
