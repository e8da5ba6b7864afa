//! Problems that depend on values of variables, said without these values.
//!
//! Why not replace the values in the messages: a message quotes a part of a value, escapes it, or shows
//! the number that it was read as. So the message is made again, of the tree with `${NAME}` in place of
//! the values. Of the problem that the value has, only its kind and its place are used.

use super::env::OpenText;
use super::problem::ManifestProblem;
use super::tree::ByteRange;

/// The problems of a tree, said without the values. `free` are those of the tree in which the values fit
/// everywhere, `written` those of the tree with the placeholders as text.
pub(super) fn masked(
    found: Vec<ManifestProblem>,
    free: &[ManifestProblem],
    written: &[ManifestProblem],
    open: &[OpenText],
) -> Vec<ManifestProblem> {
    let of = |problem: ManifestProblem| {
        // The same without any value: it says nothing of one.
        if free.contains(&problem) {
            return problem;
        }
        let names = named(problem.place.as_ref(), open);
        match written.iter().find(|other| other.place == problem.place) {
            Some(known) => {
                let message = known.message.replace(", not the string `", ", not the value of `");
                ManifestProblem {
                    code: problem.code,
                    place: problem.place,
                    message,
                    help: known.help.clone(),
                }
            }
            None => ManifestProblem {
                code: problem.code,
                place: problem.place,
                message: format!("the value of {names} cannot be used here"),
                help: "set it to a value that fits; it is not shown, because it may be a secret".to_owned(),
            },
        }
    };
    found.into_iter().map(of).collect()
}

/// The variables of the string at a place, or of all strings.
fn named(place: Option<&ByteRange>, open: &[OpenText]) -> String {
    let here: Vec<&OpenText> = open.iter().filter(|text| Some(&text.place) == place).collect();
    let texts = if here.is_empty() { open.iter().collect() } else { here };
    let mut names: Vec<String> =
        texts.iter().flat_map(|text| &text.names).map(|name| format!("`${{{name}}}`")).collect();
    names.sort();
    names.dedup();
    names.join(" or ")
}
