//! Declared against received, as a pure decision.

use super::position::Tally;

/// How far received may be from declared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// By so many features,
    pub features: u64,
    /// or by this share of the declared ones.
    pub share: f64,
}

/// How declared and received compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// They are the same.
    Exact,
    /// The layer changed while it was read, and what was received fits in.
    Changed,
    /// The service does not say how many there are.
    Undeclared,
    /// They differ by this many, which is tolerated.
    Tolerated(u64),
    /// They differ by this many.
    Mismatch(u64),
}

/// What to do at the end of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    End(Agreement),
    /// Read the layer once more; what is known already is left out.
    Again,
}

/// The most passes over a layer that changes.
pub(super) const PASSES_MAX: u32 = 3;

/// Compares. `ordered` pages keep their place when features come and go; others can lose one at
/// the seam of two pages, and only another pass finds it. `first` was declared when this pass
/// began, `known` says that features can be told apart.
pub(super) fn judge(
    tally: &Tally,
    first: Option<u64>,
    ordered: bool,
    known: bool,
    tolerance: Tolerance,
) -> Judged {
    let (Some(first), Some(latest)) = (first, tally.latest) else {
        return Judged::End(Agreement::Undeclared);
    };
    let had = tally.in_pass;
    let changed = tally.moved || first != latest || tally.declared != Some(latest);
    if had == latest {
        return Judged::End(if changed { Agreement::Changed } else { Agreement::Exact });
    }
    let between = (first.min(latest)..=first.max(latest)).contains(&had);
    if ordered && first != latest && between {
        return Judged::End(Agreement::Changed);
    }
    if known && changed && tally.passes < PASSES_MAX {
        return Judged::Again;
    }
    let off = had.abs_diff(latest);
    let allowed = tolerance.features.max((tolerance.share * latest as f64) as u64);
    Judged::End(if off <= allowed { Agreement::Tolerated(off) } else { Agreement::Mismatch(off) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(declared: u64, latest: u64, in_pass: u64, moved: bool, passes: u32) -> Tally {
        Tally { declared: Some(declared), latest: Some(latest), in_pass, moved, passes, ..Tally::default() }
    }

    #[test]
    fn a_layer_that_stands_still_must_be_whole() {
        let strict = Tolerance::default();
        let judge = |t: &Tally, tolerance| judge(t, t.declared, false, true, tolerance);
        assert_eq!(judge(&tally(9, 9, 9, false, 1), strict), Judged::End(Agreement::Exact));
        assert_eq!(judge(&tally(9, 9, 8, false, 1), strict), Judged::End(Agreement::Mismatch(1)));
        assert_eq!(judge(&tally(9, 9, 10, false, 1), strict), Judged::End(Agreement::Mismatch(1)));
        let some = Tolerance { features: 0, share: 0.12 };
        assert_eq!(judge(&tally(9, 9, 8, false, 1), some), Judged::End(Agreement::Tolerated(1)));
        assert_eq!(judge(&tally(9, 9, 7, false, 1), some), Judged::End(Agreement::Mismatch(2)));
        let none = Tally { in_pass: 5, passes: 1, ..Tally::default() };
        assert_eq!(judge(&none, strict), Judged::End(Agreement::Undeclared));
    }

    #[test]
    fn a_layer_that_changes_is_read_again_until_it_fits() {
        let strict = Tolerance::default();
        let end = |a| Judged::End(a);
        // Ordered pages lose nothing: what lies between the counts came or went meanwhile.
        assert_eq!(judge(&tally(9, 12, 10, true, 1), Some(9), true, true, strict), end(Agreement::Changed));
        assert_eq!(judge(&tally(9, 12, 8, true, 1), Some(9), true, true, strict), Judged::Again);
        // Links may have lost one.
        assert_eq!(judge(&tally(9, 12, 10, true, 1), Some(9), false, true, strict), Judged::Again);
        assert_eq!(judge(&tally(9, 12, 12, true, 2), Some(12), false, true, strict), end(Agreement::Changed));
        assert_eq!(
            judge(&tally(9, 12, 11, true, 3), Some(12), false, true, strict),
            end(Agreement::Mismatch(1))
        );
        // What cannot be told apart would come twice.
        assert_eq!(
            judge(&tally(9, 12, 10, true, 1), Some(9), false, false, strict),
            end(Agreement::Mismatch(2))
        );
    }
}
