//! The id of a letter: a UUID of version 7.
//!
//! Its first 48 bits are the time in milliseconds, so new ids are appended at the end of an index,
//! and the order of ids is the order of time. The ids of one generator strictly increase, also when
//! the clock steps back.

use crate::chance::Chance;
use core::fmt;
use core::str::FromStr;

/// A UUID of version 7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LetterId(pub u128);

impl LetterId {
    /// The bytes, in big-endian order.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The id with these bytes; `None` if there are not exactly 16.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<LetterId> {
        bytes.try_into().ok().map(|bytes| LetterId(u128::from_be_bytes(bytes)))
    }

    /// The time of the id, in milliseconds since 1970.
    #[must_use]
    pub const fn millis(self) -> i64 {
        (self.0 >> 80) as i64
    }
}

impl fmt::Display for LetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        let (a, b, c) = ((n >> 96) as u32, (n >> 80) as u16, (n >> 64) as u16);
        let (d, e) = ((n >> 48) as u16, n & 0xffff_ffff_ffff);
        write!(f, "{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
    }
}

impl FromStr for LetterId {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<LetterId, &'static str> {
        let wrong = "an id must be a UUID such as 0199a2b4-77aa-7000-8000-0123456789ab";
        let dashes = [8, 13, 18, 23];
        if text.len() != 36 || !text.is_ascii() {
            return Err(wrong);
        }
        let mut n = 0u128;
        for (i, c) in text.chars().enumerate() {
            match c.to_digit(16) {
                None if c == '-' && dashes.contains(&i) => {}
                Some(digit) if !dashes.contains(&i) => n = n << 4 | u128::from(digit),
                _ => return Err(wrong),
            }
        }
        Ok(LetterId(n))
    }
}

/// Generates strictly increasing ids.
#[derive(Clone, Copy, Debug, Default)]
pub struct LetterIds {
    /// The last id generated; 0 before the first.
    last: u128,
}

impl LetterIds {
    /// The next id. `now_ms` is in milliseconds since 1970.
    pub fn next(&mut self, now_ms: i64, chance: &mut impl Chance) -> LetterId {
        const VERSION: u128 = 0x7 << 76;
        const VARIANT: u128 = 0b10 << 62;
        let time = u128::from(now_ms.clamp(0, (1 << 48) - 1).cast_unsigned()) << 80;
        let (high, low) = (u128::from(chance.bits() & 0xfff), u128::from(chance.bits() >> 2));
        let fresh = time | VERSION | high << 64 | VARIANT | low;
        self.last =
            if fresh > self.last { fresh } else { after(self.last, u128::from(chance.bits() >> 32) + 1) };
        LetterId(self.last)
    }
}

/// The id `step` after `last`: adds to its 74 random bits, with a carry into its time.
fn after(last: u128, step: u128) -> u128 {
    let free = (last >> 64 & 0xfff) << 62 | last & ((1 << 62) - 1);
    let sum = free + step;
    let time = (last >> 80) + (sum >> 74);
    time << 80 | 0x7 << 76 | (sum >> 62 & 0xfff) << 64 | 0b10 << 62 | sum & ((1 << 62) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Rng;
    use alloc::string::ToString;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ids_rise_and_say_what_they_are(seed: u64, times in prop::collection::vec(0i64..1 << 48, 1..50)) {
            let (mut ids, mut rng, mut last) = (LetterIds::default(), Rng::new(seed), LetterId(0));
            for time in times {
                let id = ids.next(time, &mut rng);
                prop_assert!(id > last && id.millis() >= time);
                prop_assert_eq!((id.0 >> 76 & 15, id.0 >> 62 & 3), (7, 2));
                prop_assert_eq!(id.to_string().parse(), Ok(id));
                prop_assert_eq!(LetterId::from_bytes(&id.to_bytes()), Some(id));
                last = id;
            }
        }

        #[test]
        fn the_successor_is_an_id_too(free in (1u128 << 74) - 5000..1 << 74, step in 1u128..5000) {
            let last = 5 << 80 | 7 << 76 | (free >> 62) << 64 | 2 << 62 | free & ((1 << 62) - 1);
            let next = after(last, step);
            prop_assert!(next > last);
            prop_assert_eq!((next >> 76 & 15, next >> 62 & 3), (7, 2));
        }
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in
            ["", "0199a2b4", "0199a2b4-77aa-7000-8000-0123456789aé", "0199a2b4x77aa-7000-8000-0123456789ab"]
        {
            assert!(text.parse::<LetterId>().is_err(), "{text}");
        }
    }
}
