//! Did you mean: the known name nearest to a misspelt one.

/// The nearest of `known`, if it is near enough to be worth a guess.
#[must_use]
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = name.to_ascii_lowercase();
    let guess = known
        .iter()
        .map(|&k| (strsim::damerau_levenshtein(&name, k), k))
        .filter(|(distance, k)| *distance <= 1 + k.len() / 4)
        .min_by_key(|(distance, _)| *distance);
    guess.map(|(_, k)| k)
}

/// The guess as a question to append, or nothing.
#[must_use]
pub fn suggestion(name: &str, known: &[&str]) -> String {
    nearest(name, known).map_or_else(String::new, |guess| format!("; did you mean `{guess}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_are_near_or_not_made() {
        let known = ["ietf", "ietf-older", "retry-after", "retry-after-ms"];
        assert_eq!(nearest("itef", &known), Some("ietf"));
        assert_eq!(nearest("Retry-After", &known), Some("retry-after"));
        assert_eq!(nearest("retry_after_ms", &known), Some("retry-after-ms"));
        assert_eq!(nearest("carrier-pigeon", &known), None);
        assert_eq!(suggestion("retryafter", &known), "; did you mean `retry-after`?");
    }
}
