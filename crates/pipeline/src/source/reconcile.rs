//! Declared against received, as a pure decision.

use super::position::FeatureTally;
use crate::error::SetupError;

/// How far received may be from declared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CountTolerance {
    /// By so many features,
    pub features: u64,
    /// or by this share of the declared ones.
    pub share: f64,
}

impl CountTolerance {
    /// From a number such as `5`, or a share such as `0.1%`.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: &str) -> Result<CountTolerance, SetupError> {
        let wrong = || {
            SetupError::from(format!(
                "invalid tolerance {text:?}; expected a number such as 5, or a percentage such as 0.1%"
            ))
        };
        match text.strip_suffix('%') {
            None => Ok(CountTolerance { features: text.trim().parse().map_err(|_| wrong())?, share: 0.0 }),
            Some(share) => match share.trim().parse::<f64>() {
                Ok(share) if (0.0..=100.0).contains(&share) => {
                    Ok(CountTolerance { features: 0, share: share / 100.0 })
                }
                _ => Err(wrong()),
            },
        }
    }

    /// How many of so many declared ones.
    #[must_use]
    pub fn of(&self, declared: u64) -> u64 {
        self.features.max((self.share * declared as f64) as u64)
    }
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
pub(super) const PASSES_MAX: u32 = 5;

/// What one pass over a layer has shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pass {
    /// Declared when it began.
    pub(super) first: Option<u64>,
    /// Features that no pass before had brought.
    pub(super) fresh: u64,
    /// Features that came twice in it.
    pub(super) repeated: u64,
    /// By how much the count fell meanwhile: features went.
    pub(super) falls: u64,
    /// By how much it rose: features came.
    pub(super) rises: u64,
    /// Whether pages go on by links, which lose their place when features go. Others keep it.
    pub(super) linked: bool,
    /// Whether features can be told apart, so that another pass brings none twice.
    pub(super) known: bool,
}

impl Pass {
    /// The count was `before` and is `now`.
    pub(super) fn saw(&mut self, before: Option<u64>, now: Option<u64>) {
        if let (Some(before), Some(now)) = (before, now) {
            self.falls += before.saturating_sub(now);
            self.rises += now.saturating_sub(before);
        }
    }
}

/// Compares.
pub(super) fn judge(tally: &FeatureTally, pass: &Pass, tolerance: CountTolerance) -> Judged {
    let again = pass.known && tally.passes < PASSES_MAX;
    let (Some(first), Some(latest)) = (pass.first, tally.latest) else {
        // Repeated features are the only sign of change that is left.
        let unsure = pass.linked && pass.repeated > 0 && pass.fresh > 0;
        return if again && unsure { Judged::Again } else { Judged::End(Agreement::Undeclared) };
    };
    let had = tally.in_pass;
    let fell = pass.falls > 0;
    let still = first == latest && !fell;
    let changed = tally.moved || tally.declared != Some(latest) || !still;
    if pass.linked && fell {
        // Each feature that went may have pushed another past a seam; a pass without anything new
        // has met them all. Those that came meanwhile may be missing, and no others.
        if pass.fresh == 0 && tally.received >= latest.saturating_sub(pass.rises) {
            return Judged::End(Agreement::Changed);
        }
        if again {
            return Judged::Again;
        }
    } else {
        if had == latest {
            return Judged::End(if changed { Agreement::Changed } else { Agreement::Exact });
        }
        // Nothing was lost: what is too much went meanwhile, and what is missing came behind us. One
        // that went is no excuse for one that is missing.
        let low = latest.saturating_sub(pass.rises.max(latest.saturating_sub(first)));
        let high = first.max(latest) + pass.rises + pass.falls;
        if changed && (low..=high).contains(&had) {
            return Judged::End(Agreement::Changed);
        }
        // What is missing although nothing changed may have been left out of a page.
        if again && (changed || (had < latest && tally.passes < 2)) {
            return Judged::Again;
        }
    }
    let off = had.abs_diff(latest).max(if fell { pass.fresh } else { 0 });
    let allowed = tolerance.of(latest);
    Judged::End(if off <= allowed { Agreement::Tolerated(off) } else { Agreement::Mismatch(off) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(declared: u64, latest: u64, in_pass: u64, moved: bool, passes: u32) -> FeatureTally {
        FeatureTally {
            declared: Some(declared),
            latest: Some(latest),
            in_pass,
            received: in_pass,
            moved,
            passes,
            ..FeatureTally::default()
        }
    }

    const STRICT: CountTolerance = CountTolerance { features: 0, share: 0.0 };

    fn end(agreement: Agreement) -> Judged {
        Judged::End(agreement)
    }

    #[test]
    fn a_layer_that_stands_still_must_be_whole() {
        for linked in [false, true] {
            let pass = Pass { first: Some(9), linked, known: true, ..Pass::default() };
            let judge = |t: &FeatureTally, tolerance| judge(t, &pass, tolerance);
            assert_eq!(judge(&tally(9, 9, 9, false, 1), STRICT), end(Agreement::Exact));
            assert_eq!(judge(&tally(9, 9, 8, false, 1), STRICT), Judged::Again);
            assert_eq!(judge(&tally(9, 9, 8, false, 2), STRICT), end(Agreement::Mismatch(1)));
            assert_eq!(judge(&tally(9, 9, 10, false, 1), STRICT), end(Agreement::Mismatch(1)));
            let some = CountTolerance { features: 0, share: 0.12 };
            assert_eq!(judge(&tally(9, 9, 8, false, 2), some), end(Agreement::Tolerated(1)));
            assert_eq!(judge(&tally(9, 9, 7, false, 2), some), end(Agreement::Mismatch(2)));
        }
        let none = FeatureTally { in_pass: 5, passes: 1, ..FeatureTally::default() };
        assert_eq!(judge(&none, &Pass::default(), STRICT), end(Agreement::Undeclared));
    }

    #[test]
    fn what_keeps_its_place_loses_nothing_when_a_layer_changes() {
        let pass = Pass { first: Some(9), known: true, ..Pass::default() };
        let busy = Pass { rises: 3, falls: 2, ..pass };
        assert_eq!(judge(&tally(9, 10, 15, true, 1), &busy, STRICT), end(Agreement::Changed));
        assert_eq!(judge(&tally(9, 10, 16, true, 5), &busy, STRICT), end(Agreement::Mismatch(6)));
        assert_eq!(judge(&tally(9, 12, 10, true, 1), &pass, STRICT), end(Agreement::Changed));
        assert_eq!(
            judge(&tally(9, 7, 8, true, 1), &Pass { falls: 2, ..pass }, STRICT),
            end(Agreement::Changed)
        );
        assert_eq!(judge(&tally(9, 12, 8, true, 1), &pass, STRICT), Judged::Again);
        assert_eq!(judge(&tally(9, 12, 8, true, 5), &pass, STRICT), end(Agreement::Mismatch(4)));
        // What cannot be told apart would come twice.
        let unknown = Pass { known: false, ..pass };
        assert_eq!(judge(&tally(9, 12, 8, true, 1), &unknown, STRICT), end(Agreement::Mismatch(4)));
    }

    #[test]
    fn links_over_a_layer_that_shrinks_are_followed_until_nothing_new_comes() {
        let pass = Pass { first: Some(9), falls: 2, fresh: 7, linked: true, known: true, ..Pass::default() };
        // As many as declared, and yet one was lost for each that went.
        assert_eq!(judge(&tally(9, 7, 7, true, 1), &pass, STRICT), Judged::Again);
        let second = Pass { fresh: 1, ..pass };
        assert_eq!(judge(&tally(9, 6, 6, true, 2), &second, STRICT), Judged::Again);
        let third = Pass { fresh: 0, ..pass };
        assert_eq!(judge(&tally(9, 6, 6, true, 3), &third, STRICT), end(Agreement::Changed));
        assert_eq!(judge(&tally(9, 6, 6, true, 5), &second, STRICT), end(Agreement::Mismatch(1)));
        // Or until a pass finds the layer at rest.
        let rest = Pass { first: Some(6), falls: 0, fresh: 1, ..pass };
        assert_eq!(judge(&tally(9, 6, 6, true, 2), &rest, STRICT), end(Agreement::Changed));
        // A layer that only grows makes features come twice, and loses none.
        let grows = Pass { falls: 0, ..pass };
        assert_eq!(judge(&tally(9, 12, 10, true, 1), &grows, STRICT), end(Agreement::Changed));
    }

    #[test]
    fn a_shortfall_is_not_explained_by_features_that_went() {
        // Counted 9, fell to 7 and rose to 9 again: two may have come behind us, and no more.
        let pass = Pass { first: Some(9), falls: 2, rises: 2, known: true, ..Pass::default() };
        assert_eq!(judge(&tally(9, 9, 7, true, 5), &pass, STRICT), end(Agreement::Changed));
        assert_eq!(judge(&tally(9, 9, 6, true, 5), &pass, STRICT), end(Agreement::Mismatch(3)));
        // All that the links lead to is less than what is there.
        let pass = Pass { linked: true, rises: 0, ..pass };
        assert_eq!(judge(&tally(9, 7, 3, true, 1), &pass, STRICT), Judged::Again);
        assert_eq!(judge(&tally(9, 7, 3, true, 5), &pass, STRICT), end(Agreement::Mismatch(4)));
    }
}
