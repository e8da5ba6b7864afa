//! "Did you mean": suggests a known name for a misspelt one.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The number of characters that are compared, which bounds the cost of a very long name.
const CHARS_MAX: usize = 64;

/// The most similar name of `known`. The edit distance must be at most one, plus one for every four
/// characters, or one name must be a prefix of the other with at least three characters. The
/// comparison is case-insensitive.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let fold = |text: &str| text.chars().take(CHARS_MAX).flat_map(char::to_lowercase).collect::<Vec<char>>();
    let name = fold(name);
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let folded = fold(candidate);
        let shared = name.len().min(folded.len());
        let begins = shared >= 3 && name.iter().zip(&folded).all(|(a, b)| a == b);
        let distance = distance(&name, &folded);
        if (begins || distance <= 1 + folded.len() / 4) && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// `; did you mean …?` to append to a sentence; empty without a suggestion.
#[must_use]
pub fn question(name: &str, known: &[&str]) -> String {
    nearest(name, known.iter().copied())
        .map_or_else(String::new, |guess| format!("; did you mean `{guess}`?"))
}

/// The optimal string alignment distance: the number of insertions, deletions, substitutions and
/// transpositions of adjacent characters.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, y) in b.iter().enumerate() {
            let cost = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX / 2);
            let mut least = (cost(&last, j) + usize::from(x != y)).min(cost(&last, j + 1) + 1);
            least = least.min(cost(&row, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if swapped {
                least = least.min(cost(&before, j - 1) + 1);
            }
            row.push(least);
        }
        before = core::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(a: &str, b: &str) -> usize {
        distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>())
    }

    #[test]
    fn edits_are_counted() {
        for (a, b, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("file", "fiel", 1),
            ("kitten", "sitting", 3),
            ("ab", "ba", 1),
            ("é", "e", 1),
        ] {
            assert_eq!((between(a, b), between(b, a)), (edits, edits), "{a} {b}");
        }
    }

    #[test]
    fn guesses_are_near_or_not_made() {
        let known = ["ietf", "ietf-older", "retry-after", "retry-after-ms", "int"];
        let near = |name: &str| nearest(name, known);
        assert_eq!(near("itef"), Some("ietf"));
        assert_eq!(near("Retry-After"), Some("retry-after"));
        assert_eq!(near("retry_after_ms"), Some("retry-after-ms"));
        assert_eq!(near("integer"), Some("int"));
        assert_eq!(near("carrier-pigeon"), None);
        assert_eq!(near(""), None);
        assert_eq!(question("retryafter", &known), "; did you mean `retry-after`?");
        assert_eq!(question("pigeon", &known), "");
    }
}
