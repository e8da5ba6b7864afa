//! Decides when the failures of a batch are one incident and not many letters.
//!
//! If a credential expires during a run, every record fails for the same reason, and millions of
//! letters would add no information. If more than a share of a batch fails with one fingerprint, the
//! batch is not committed, one incident is opened, and the pipeline is suspended until a person
//! closes it.

use super::fingerprint::Fingerprint;

/// The threshold of an incident.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// The share (0 to 1) of the batch that the records with one fingerprint must exceed.
    pub share: f64,
    /// The minimum number of records with one fingerprint.
    pub least: u64,
}

impl Default for Threshold {
    /// More than half of the batch, and at least 20 records.
    fn default() -> Threshold {
        Threshold { share: 0.5, least: 20 }
    }
}

impl Threshold {
    /// If a batch of `len` records is an incident, its fingerprint and count: the most frequent
    /// fingerprint, the smallest of equally frequent ones.
    pub fn judge(
        &self,
        len: u64,
        failed: impl IntoIterator<Item = (Fingerprint, u64)>,
    ) -> Option<(Fingerprint, u64)> {
        let most =
            failed.into_iter().max_by_key(|(fingerprint, n)| (*n, core::cmp::Reverse(*fingerprint)))?;
        (most.1 >= self.least && most.1 as f64 > self.share * len as f64).then_some(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incident_is_more_than_a_share_of_one_story() {
        let half = Threshold::default();
        let (a, b) = (Fingerprint(1), Fingerprint(2));
        assert_eq!(half.judge(100, [(a, 51), (b, 49)]), Some((a, 51)));
        assert_eq!(half.judge(100, [(a, 50), (b, 50)]), None, "a half is not more than a half");
        assert_eq!(half.judge(20, [(a, 19)]), None, "too few to say");
        assert_eq!(half.judge(20, [(b, 20)]), Some((b, 20)));
        assert_eq!(half.judge(0, []), None);
        assert_eq!(Threshold { share: 0.0, least: 1 }.judge(9, [(b, 2), (a, 2)]), Some((a, 2)));
    }
}
