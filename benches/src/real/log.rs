//! What the access log of a proxy says: calls, refusals, and whose calls were taken.
//!
//! A line is the status and the query: `200 q=17+Harbour+Street` or, from nginx, without `q=`. The
//! number is the row, and each client has rows of its own.

/// Calls and refusals of one run, and the parts of the clients.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Shares {
    pub(crate) calls: u64,
    pub(crate) refused: u64,
    /// Rows of each client that were answered when the first client had all of its own.
    done: Vec<u64>,
    /// Whether a client got all of its rows; else there is nothing to compare.
    over: bool,
}

impl Shares {
    /// Reads the log of `clients` clients with `rows` rows each.
    pub(crate) fn of(log: &str, clients: u64, rows: u64) -> Shares {
        let mut shares = Shares { done: vec![0; clients as usize], ..Shares::default() };
        for line in log.lines() {
            let mut words = line.split_whitespace();
            let Some(status) = words.next().and_then(|word| word.parse::<u16>().ok()) else { continue };
            // A connection that brought no request is no call.
            let Some(row) = words.next().and_then(row) else { continue };
            shares.calls += 1;
            if !(200..300).contains(&status) {
                shares.refused += 1;
                continue;
            }
            if let Some(done) = shares.done.get_mut((row / rows.max(1)) as usize).filter(|_| !shares.over) {
                *done += 1;
                shares.over = *done >= rows;
            }
        }
        shares
    }

    /// The parts in per cent of an equal share; `–` if every client lost rows.
    pub(crate) fn words(&self) -> String {
        if !self.over {
            return "–".to_owned();
        }
        let all = self.done.iter().sum::<u64>().max(1) as f64;
        let part = |done: &u64| format!("{:.0}", 100.0 * *done as f64 * self.done.len() as f64 / all);
        self.done.iter().map(part).collect::<Vec<_>>().join(" ")
    }
}

/// The row that a query asks for.
fn row(query: &str) -> Option<u64> {
    let text = query.trim_start_matches('?');
    let text = text.split('&').find_map(|pair| pair.strip_prefix("q=")).unwrap_or(text);
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_refusals_and_shares_until_the_first_is_done() {
        let log =
            "200 0+Harbour+Street\n503 2+Harbour+Street\n200 ?q=1%20Harbour\n200 ?x=1&q=3\n400 -\n200 2+H\n";
        let shares = Shares::of(log, 2, 2);
        assert_eq!((shares.calls, shares.refused), (5, 1));
        assert_eq!(shares.words(), "200 0", "what came after the first was done does not count");
        let even = Shares::of("200 0+a\n200 2+a\n200 1+a\n", 2, 2);
        assert_eq!(even.words(), "133 67");
        assert_eq!(Shares::of("200 0+a\n503 2+a\n", 2, 2).words(), "–");
    }
}
