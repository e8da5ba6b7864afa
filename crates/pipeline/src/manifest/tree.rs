//! YAML as a tree in which every key and value has its position.
//!
//! Why not deserialize straight into the types: serde stops at the first error, and a user who
//! wrote five wrong keys should be told of all five. So the text first becomes this tree, the tree
//! is checked as a whole, and only a tree without problems becomes a manifest.
//!
//! Aliases and merge keys are resolved here. The budget limits the cost of a hostile file: nodes
//! are counted after aliases are expanded, so a bomb of nested aliases ends early.

use core::fmt;
use core::ops::Range;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Error, Location, Spanned};

use super::problem::{ManifestProblem, quoted};

/// The most nodes of a manifest, with aliases expanded.
const NODES_MAX: usize = 10_000;
/// The deepest nesting.
const DEPTH_MAX: usize = 64;

/// A byte range of the source.
pub(super) type ByteRange = Range<usize>;

/// A value and its position.
#[derive(Clone, Debug)]
pub(super) struct YamlNode {
    pub(super) place: ByteRange,
    pub(super) value: YamlValue,
}

/// A key and its position.
#[derive(Clone, Debug)]
pub(super) struct YamlKey {
    pub(super) place: ByteRange,
    pub(super) name: String,
}

/// The value of a node.
#[derive(Clone, Debug)]
pub(super) enum YamlValue {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    /// A string that is nothing but an environment variable: it takes the type required at its
    /// position.
    Env(String),
    /// A string with variables whose values are not put in, as it is written. It fits everywhere.
    Open(String),
    List(Vec<YamlNode>),
    Map(Vec<(YamlKey, YamlNode)>),
}

/// Parses a text with one YAML document.
pub(super) fn parse(text: &str) -> Result<YamlNode, ManifestProblem> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: NODES_MAX,
            max_events: 3 * NODES_MAX,
            max_depth: DEPTH_MAX,
            max_recorded_anchor_events: 10 * NODES_MAX,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 3 * NODES_MAX },
        duplicate_keys: DuplicateKeyPolicy::Error,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| explain(&error, text))
}

/// The value of `name` in `map`, or of its twin that takes a duration with a unit.
fn child<'a>(map: &'a [(YamlKey, YamlNode)], name: &str) -> Option<&'a YamlNode> {
    let twin = name.strip_suffix("_seconds");
    map.iter().find(|(key, _)| key.name == name || Some(key.name.as_str()) == twin).map(|(_, node)| node)
}

impl YamlNode {
    /// The node at the end of a path of keys.
    pub(super) fn at(&self, path: &[&str]) -> Option<&YamlNode> {
        path.iter().try_fold(self, |node, name| match &node.value {
            YamlValue::Map(map) => child(map, name),
            _ => None,
        })
    }

    /// The entries of a map; empty for anything else.
    pub(super) fn entries(&self) -> &[(YamlKey, YamlNode)] {
        if let YamlValue::Map(map) = &self.value { map } else { &[] }
    }

    /// The items of a list; empty for anything else.
    pub(super) fn items(&self) -> &[YamlNode] {
        if let YamlValue::List(items) = &self.value { items } else { &[] }
    }

    /// The text of a string.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            YamlValue::Text(text) | YamlValue::Env(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it has variables whose values are not put in.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.value, YamlValue::Open(_))
    }

    /// Calls `visit` with every node, this one first.
    pub(super) fn each(&mut self, visit: &mut impl FnMut(&mut YamlNode)) {
        visit(self);
        match &mut self.value {
            YamlValue::List(items) => items.iter_mut().for_each(|item| item.each(visit)),
            YamlValue::Map(map) => map.iter_mut().for_each(|(_, node)| node.each(visit)),
            _ => {}
        }
    }

    /// Moves every position by `by` bytes, for a text that follows others.
    pub(super) fn shift(&mut self, by: usize) {
        let moved = |place: &ByteRange| place.start + by..place.end + by;
        self.place = moved(&self.place);
        match &mut self.value {
            YamlValue::List(items) => items.iter_mut().for_each(|item| item.shift(by)),
            YamlValue::Map(map) => {
                for (key, node) in map {
                    key.place = moved(&key.place);
                    node.shift(by);
                }
            }
            _ => {}
        }
    }

    /// The position of a number in this list, or of the list.
    pub(super) fn place_of(&self, number: i128) -> ByteRange {
        let items = if let YamlValue::List(items) = &self.value { items.as_slice() } else { &[] };
        let item = items.iter().find(|item| matches!(item.value, YamlValue::Integer(n) if n == number));
        item.unwrap_or(self).place.clone()
    }
}

/// An error of the YAML parser as a problem.
fn explain(error: &Error, text: &str) -> ManifestProblem {
    let place = error.location().map_or(0..0, |location| place(&location, text));
    let (code, message, help) = match innermost(error) {
        Error::DuplicateMappingKey { key, .. } => (
            "duplicate_key",
            format!("duplicate key {}", quoted(key.as_deref().unwrap_or_default())),
            "keep one of the two",
        ),
        Error::MultipleDocuments { .. } => (
            "several_documents",
            "a second YAML document starts here".to_owned(),
            "use one document per file: remove the `---` line or split the file",
        ),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. } => (
            "too_complex",
            format!(
                "the file is too complex: at most {NODES_MAX} values, nested at most {DEPTH_MAX} levels deep, \
                 counting every use of an alias"
            ),
            "a manifest needs a few dozen values; remove nesting or aliases",
        ),
        Error::UnknownAnchor { .. } => (
            "unknown_anchor",
            "this alias refers to an undefined anchor".to_owned(),
            "define the anchor with `&name` before using it as `*name`, or quote the string",
        ),
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            ("recursive_alias", "this alias contains itself".to_owned(), "write the value out instead")
        }
        other => syntax(&strip_place(&other.without_snippet().to_string())),
    };
    ManifestProblem::new(code, place, message).help(help)
}

/// The code, message and help for a syntax error.
fn syntax(message: &str) -> (&'static str, String, &'static str) {
    if message.contains("recursion limit") {
        let message = format!("values are nested too deeply: at most {DEPTH_MAX} levels");
        return ("too_complex", message, "a manifest needs four levels; remove the nesting");
    }
    if message.starts_with("tabs") {
        return ("tab", "YAML cannot be indented with tabs".to_owned(), "indent with spaces");
    }
    ("syntax", format!("invalid YAML: {message}"), "check the indentation, colons and quotes here")
}

/// The innermost of nested errors.
fn innermost(error: &Error) -> &Error {
    match error.without_snippet() {
        Error::AliasError { error, .. } => innermost(error),
        other => other,
    }
}

/// A message of the parser without the position at its end.
fn strip_place(message: &str) -> String {
    message.split(" at line ").next().unwrap_or_default().to_owned()
}

/// The byte range of a location.
fn place(location: &Location, text: &str) -> ByteRange {
    let span = location.span();
    let offset = span.byte_offset().and_then(|offset| usize::try_from(offset).ok());
    let len = span.byte_len().and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
    let start = offset.unwrap_or_else(|| offset_of(text, location.line(), location.column()));
    start..start.saturating_add(len)
}

/// The byte offset of a line and a column, both from 1; the end if they are outside.
fn offset_of(text: &str, line: u64, column: u64) -> usize {
    let line = usize::try_from(line).unwrap_or(usize::MAX).max(1);
    let column = usize::try_from(column).unwrap_or(usize::MAX).max(1);
    let start = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let rest = text.get(start..).unwrap_or_default();
    start + rest.char_indices().nth(column - 1).map_or(rest.trim_end().len(), |(at, _)| at)
}

/// The byte range of a spanned value. The parser records the offsets of everything it reads from a
/// string.
fn bytes(location: &Location) -> ByteRange {
    place(location, "")
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<YamlNode, D::Error> {
        let spanned = Spanned::<YamlValue>::deserialize(deserializer)?;
        Ok(YamlNode { place: bytes(&spanned.referenced), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for YamlKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<YamlKey, D::Error> {
        let spanned = Spanned::<String>::deserialize(deserializer)?;
        Ok(YamlKey { place: bytes(&spanned.referenced), name: spanned.value })
    }
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<YamlValue, D::Error> {
        deserializer.deserialize_any(Build)
    }
}

/// Builds a [`YamlValue`] from what the parser reads.
struct Build;

impl<'de> Visitor<'de> for Build {
    type Value = YamlValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<YamlValue, E> {
        Ok(YamlValue::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<YamlValue, E> {
        Ok(YamlValue::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<YamlValue, E> {
        Ok(YamlValue::Integer(value))
    }

    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<YamlValue, E> {
        i128::try_from(value).map(YamlValue::Integer).map_err(|_| E::custom("the number is too large"))
    }

    fn visit_f64<E>(self, value: f64) -> Result<YamlValue, E> {
        Ok(YamlValue::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Text(value.to_owned()))
    }

    fn visit_bytes<E: serde::de::Error>(self, _: &[u8]) -> Result<YamlValue, E> {
        Err(E::custom("binary data is not allowed in a manifest"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<YamlValue, A::Error> {
        let mut list = Vec::new();
        while let Some(node) = access.next_element()? {
            list.push(node);
        }
        Ok(YamlValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<YamlValue, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = access.next_entry()? {
            if map.len() >= NODES_MAX {
                return Err(A::Error::custom("the mapping is too long"));
            }
            map.push(entry);
        }
        Ok(YamlValue::Map(map))
    }
}
