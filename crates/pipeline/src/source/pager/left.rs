//! How many requests are left, as far as that can be foreseen: for `tidegate plan`.

use super::{NextPage, Pager};

impl Pager {
    /// The most features that a page had; what is asked for before the first.
    #[must_use]
    pub fn page_features(&self) -> u64 {
        if self.full > 0 { self.full } else { self.service.size().max(1) }
    }

    /// Requests until the end, if the layer stays as it is; `None` where nobody says how many
    /// features there are.
    #[must_use]
    pub fn requests_left(&self) -> Option<u64> {
        let Some(next) = &self.next else { return Some(0) };
        let (per, all) = (self.page_features(), self.tally.latest);
        match next {
            NextPage::Link { .. } => Some(all?.saturating_sub(self.tally.in_pass).div_ceil(per)),
            NextPage::Offset { start, overlap } => {
                let ends = (self.service.size(), self.says);
                Some(by_offset(*start, *overlap, (all?, per), ends))
            }
            NextPage::Keys { .. } => {
                let mut left = 1;
                let mut step = next.clone();
                while let NextPage::Keys { to: Some(to), .. } = step {
                    left += 1;
                    step = self.service.range(to);
                }
                Some(left)
            }
        }
    }
}

/// Requests by offset from here on: `all` features, `per` on a page. A page that is shorter than
/// `size` is the last one, if the service says so; else one more is asked for.
fn by_offset(start: u64, overlap: bool, (all, per): (u64, u64), (size, says): (u64, bool)) -> u64 {
    let mut requests = 0;
    let mut start = start;
    let mut overlap = overlap;
    loop {
        requests += 1;
        let had = all.saturating_sub(start).min(per);
        let last = start + had >= all && had < size && says;
        if had <= u64::from(overlap) || last {
            return requests;
        }
        overlap = had > 1;
        start += had - u64::from(overlap);
    }
}

#[cfg(test)]
mod tests {
    use super::by_offset;

    #[test]
    fn pages_overlap_by_one_and_a_full_last_one_needs_another() {
        let from = |all, per, size, says| by_offset(0, false, (all, per), (size, says));
        assert_eq!(from(0, 50, 50, true), 1);
        assert_eq!(from(49, 50, 50, true), 1);
        // Full: only another request shows that nothing follows.
        assert_eq!(from(50, 50, 50, true), 2);
        // The server makes smaller pages than were asked for, and says how many there are.
        assert_eq!(from(50, 50, 1000, true), 1);
        assert_eq!(from(50, 50, 1000, false), 2);
        // 0, 49, 98, 147, 196.
        assert_eq!(from(230, 50, 1000, true), 5);
        assert_eq!(from(230, 50, 1000, false), 6);
        assert_eq!(from(3, 1, 1, true), 4);
    }
}
