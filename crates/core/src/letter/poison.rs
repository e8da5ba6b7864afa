//! Decides which records are suspected of killing the process.
//!
//! A process that dies says nothing about the record that killed it: several records are in work at
//! a time, and a kill from outside looks the same. So the records in work at each death are compared.
//! Records that were in work at two deaths are tried alone, in a process of their own, and only a
//! record that kills this process too is given up.

/// The number of deaths after which suspects are tried alone.
pub const DEATHS_MAX: u32 = 2;

/// The records that were in work at every one of the last deaths, by their place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspects {
    /// The first.
    pub from: u64,
    /// The one after the last.
    pub to: u64,
    /// The number of deaths.
    pub deaths: u32,
}

impl Suspects {
    /// The suspects after a death at which the records from `landed` to `reached` were in work.
    #[must_use]
    pub fn after(before: Option<Suspects>, landed: u64, reached: u64) -> Option<Suspects> {
        let common = before.map(|known| Suspects {
            from: known.from.max(landed),
            to: known.to.min(reached),
            deaths: known.deaths.saturating_add(1),
        });
        let fresh = Suspects { from: landed, to: reached, deaths: 1 };
        common.filter(Suspects::is_some).or(Some(fresh).filter(Suspects::is_some))
    }

    /// Whether they are to be tried alone.
    #[must_use]
    pub const fn are_tried(&self) -> bool {
        self.deaths >= DEATHS_MAX
    }

    fn is_some(&self) -> bool {
        self.from < self.to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suspects(from: u64, to: u64, deaths: u32) -> Option<Suspects> {
        Some(Suspects { from, to, deaths })
    }

    #[test]
    fn records_of_two_deaths_are_tried() {
        let once = Suspects::after(None, 100, 300);
        assert_eq!(once, suspects(100, 300, 1));
        assert_eq!(once.map(|known| known.are_tried()), Some(false));
        let twice = Suspects::after(once, 150, 280);
        assert_eq!(twice, suspects(150, 280, 2));
        assert_eq!(twice.map(|known| known.are_tried()), Some(true));
    }

    #[test]
    fn other_records_are_others() {
        let once = Suspects::after(None, 100, 300);
        assert_eq!(Suspects::after(once, 300, 500), suspects(300, 500, 1), "all of the first were done");
        assert_eq!(Suspects::after(once, 300, 300), None, "nothing was in work");
        assert_eq!(Suspects::after(None, 7, 7), None);
    }
}
