//! Extracts a few values from a JSON document without building a tree.
//!
//! Parsing an answer needs five numbers and strings from a body of any structure; a tree would
//! allocate every value. Instead the pointers of all rules and answers are merged into one trie
//! when the profile is loaded, and the parser walks trie and document together: it keeps the values
//! at the ends of pointers and skips the rest. Skipped parts are still validated as JSON, without
//! recursion, so that no nesting depth can exhaust the stack; recursion is only as deep as the
//! pointers.
//!
//! If an object has duplicate keys, the last one applies.

use super::Broken;
use super::pointer::{Pointer, Pointers};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// The most answers kept of one body; services rank them.
pub(super) const ITEMS_MAX: usize = 100;

/// The JSON value at the end of a pointer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum JsonLeaf<'a> {
    #[default]
    Absent,
    Null,
    Bool(bool),
    Number(f64),
    Text(Cow<'a, str>),
    /// An array or an object, with the number of its elements.
    Many(usize),
}

/// The values of one element of a list.
pub(super) type ListItem<'a> = [JsonLeaf<'a>; FIELDS];
/// The number of values of a list element.
pub(super) const FIELDS: usize = 5;

/// The values extracted from one document.
#[derive(Debug, Default)]
pub(super) struct ExtractedValues<'a> {
    leaves: Vec<JsonLeaf<'a>>,
    lists: Vec<Option<Vec<ListItem<'a>>>>,
}

impl<'a> ExtractedValues<'a> {
    /// The value of the pointer with this index.
    pub(super) fn leaf(&self, at: usize) -> &JsonLeaf<'a> {
        self.leaves.get(at).unwrap_or(&JsonLeaf::Absent)
    }

    /// The elements of a list, if the document has an array there.
    pub(super) fn list(&self, at: usize) -> Option<&[ListItem<'a>]> {
        self.lists.get(at)?.as_deref()
    }
}

/// The JSON pointers of a profile as one trie.
#[derive(Clone, Debug, Default)]
pub(super) struct PointerTrie {
    root: TrieNode,
    /// The number of values.
    leaves: usize,
    /// The number of lists.
    lists: usize,
}

#[derive(Clone, Debug, Default)]
struct TrieNode {
    leaf: Option<usize>,
    list: Option<(usize, Box<TrieNode>)>,
    children: Vec<(String, TrieNode)>,
}

impl TrieNode {
    fn at(&mut self, steps: &[String]) -> &mut TrieNode {
        let Some((first, rest)) = steps.split_first() else { return self };
        let place = self.children.iter().position(|(name, _)| name == first).unwrap_or_else(|| {
            self.children.push((first.clone(), TrieNode::default()));
            self.children.len() - 1
        });
        self.children[place].1.at(rest)
    }

    fn child(&self, name: &str) -> Option<&TrieNode> {
        self.children.iter().find(|(n, _)| n == name).map(|(_, node)| node)
    }
}

impl PointerTrie {
    /// Adds a pointer; returns the index of its value.
    pub(super) fn leaf(&mut self, pointer: &Pointer) -> usize {
        let leaves = &mut self.leaves;
        *self.root.at(pointer.steps()).leaf.get_or_insert_with(|| {
            *leaves += 1;
            *leaves - 1
        })
    }

    /// Adds a list with the pointers inside each element; returns its index. There is at most one
    /// list per pointer.
    pub(super) fn list(&mut self, pointer: &Pointer, fields: [Option<&Pointers>; FIELDS]) -> usize {
        let node = self.root.at(pointer.steps());
        let mut item = TrieNode::default();
        for (i, field) in fields.into_iter().enumerate() {
            for pointer in field.into_iter().flat_map(Pointers::iter) {
                item.at(pointer.steps()).leaf = Some(i);
            }
        }
        node.list = Some((self.lists, Box::new(item)));
        self.lists += 1;
        self.lists - 1
    }

    /// Extracts the values from a document.
    pub(super) fn pull<'a>(&self, body: &'a [u8]) -> Result<ExtractedValues<'a>, Broken> {
        let text = std::str::from_utf8(body)
            .map_err(|e| if e.error_len().is_none() { Broken::Cut } else { Broken::Bad })?;
        self.walk(text).map_err(|e| if e.is_eof() { Broken::Cut } else { Broken::Bad })
    }

    fn walk<'a>(&self, text: &'a str) -> Result<ExtractedValues<'a>, serde_json::Error> {
        let mut out =
            ExtractedValues { leaves: vec![JsonLeaf::Absent; self.leaves], lists: vec![None; self.lists] };
        let mut parser = serde_json::Deserializer::from_str(text);
        TrieWalk { node: &self.root, leaves: &mut out.leaves, lists: &mut out.lists }
            .deserialize(&mut parser)?;
        parser.end()?;
        Ok(out)
    }
}

/// The state of the parser at one node of the trie.
struct TrieWalk<'p, 'o, 'a> {
    node: &'p TrieNode,
    leaves: &'o mut [JsonLeaf<'a>],
    lists: &'o mut [Option<Vec<ListItem<'a>>>],
}

impl<'a> TrieWalk<'_, '_, 'a> {
    fn keep(self, leaf: JsonLeaf<'a>) {
        if let Some(slot) = self.node.leaf.and_then(|i| self.leaves.get_mut(i)) {
            // Of several pointers for one value, a scalar takes precedence over none, and a number
            // over a string (an `accuracy` of "rooftop" beside a `score`).
            let less = matches!(
                (&*slot, &leaf),
                (_, JsonLeaf::Null | JsonLeaf::Many(_)) | (JsonLeaf::Number(_), JsonLeaf::Text(_))
            );
            if *slot == JsonLeaf::Absent || !less {
                *slot = leaf;
            }
        }
    }
}

impl<'a> DeserializeSeed<'a> for TrieWalk<'_, '_, 'a> {
    type Value = ();
    fn deserialize<D: Deserializer<'a>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for TrieWalk<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.keep(JsonLeaf::Null);
        Ok(())
    }

    fn visit_bool<E>(self, v: bool) -> Result<(), E> {
        self.keep(JsonLeaf::Bool(v));
        Ok(())
    }

    fn visit_f64<E>(self, v: f64) -> Result<(), E> {
        self.keep(JsonLeaf::Number(v));
        Ok(())
    }

    fn visit_i64<E>(self, v: i64) -> Result<(), E> {
        self.keep(JsonLeaf::Number(v as f64));
        Ok(())
    }

    fn visit_u64<E>(self, v: u64) -> Result<(), E> {
        self.keep(JsonLeaf::Number(v as f64));
        Ok(())
    }

    fn visit_borrowed_str<E>(self, v: &'a str) -> Result<(), E> {
        self.keep(JsonLeaf::Text(Cow::Borrowed(v)));
        Ok(())
    }

    fn visit_str<E>(self, v: &str) -> Result<(), E> {
        if self.node.leaf.is_some() {
            self.keep(JsonLeaf::Text(Cow::Owned(v.to_owned())));
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let mut count = 0;
        while let Some(child) = map.next_key_seed(TrieKey(self.node))? {
            count += 1;
            match child {
                Some(node) => {
                    map.next_value_seed(TrieWalk {
                        node,
                        leaves: &mut *self.leaves,
                        lists: &mut *self.lists,
                    })?;
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        self.keep(JsonLeaf::Many(count));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        let count = match &self.node.list {
            Some((number, node)) => {
                let (items, count) = items(&mut seq, node)?;
                let slot = self.lists.get_mut(*number).ok_or_else(|| A::Error::custom("no such list"))?;
                *slot = Some(items);
                count
            }
            None if self.node.children.is_empty() => skip(&mut seq)?,
            None => {
                let mut count = 0_usize;
                let mut name = String::new();
                loop {
                    name.clear();
                    let _ = fmt::Write::write_fmt(&mut name, format_args!("{count}"));
                    let more = match self.node.child(&name) {
                        Some(node) => seq
                            .next_element_seed(TrieWalk {
                                node,
                                leaves: &mut *self.leaves,
                                lists: &mut *self.lists,
                            })?
                            .is_some(),
                        None => seq.next_element::<IgnoredAny>()?.is_some(),
                    };
                    if !more {
                        break count;
                    }
                    count += 1;
                }
            }
        };
        self.keep(JsonLeaf::Many(count));
        Ok(())
    }
}

fn skip<'a, A: SeqAccess<'a>>(seq: &mut A) -> Result<usize, A::Error> {
    let mut count = 0;
    while seq.next_element::<IgnoredAny>()?.is_some() {
        count += 1;
    }
    Ok(count)
}

fn items<'a, A: SeqAccess<'a>>(seq: &mut A, node: &TrieNode) -> Result<(Vec<ListItem<'a>>, usize), A::Error> {
    let mut items = Vec::new();
    while items.len() < ITEMS_MAX {
        let mut item = ListItem::default();
        if seq.next_element_seed(TrieWalk { node, leaves: &mut item, lists: &mut [] })?.is_none() {
            let count = items.len();
            return Ok((items, count));
        }
        items.push(item);
    }
    let count = ITEMS_MAX + skip(seq)?;
    Ok((items, count))
}

/// Deserializes an object key into the branch of the trie that it leads to.
struct TrieKey<'p>(&'p TrieNode);

impl<'a, 'p> DeserializeSeed<'a> for TrieKey<'p> {
    type Value = Option<&'p TrieNode>;
    fn deserialize<D: Deserializer<'a>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_str(self)
    }
}

impl<'p> Visitor<'_> for TrieKey<'p> {
    type Value = Option<&'p TrieNode>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.child(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Pointer {
        Pointer::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn paths_lists_and_indices() {
        let mut plan = PointerTrie::default();
        let code = plan.leaf(&at("/error/code"));
        let error = plan.leaf(&at("/error"));
        let second = plan.leaf(&at("/a/1"));
        let many = |text: &str| serde_json::from_str::<Pointers>(text).unwrap();
        let (x, y) = (many(r#""/g/0""#), many(r#"["/y", "/g/1"]"#));
        let list = plan.list(&at("/r"), [Some(&x), Some(&y), None, None, None]);
        let body = br#"{"a":[1,"two",3],"error":{"code":498,"x":[{}]},"r":[{"g":[1.5,-2]},{"g":[]},7]}"#;
        let got = plan.pull(body).unwrap();
        assert_eq!(got.leaf(code), &JsonLeaf::Number(498.0));
        assert_eq!(got.leaf(error), &JsonLeaf::Many(2));
        assert_eq!(got.leaf(second), &JsonLeaf::Text("two".into()));
        let items = got.list(list).unwrap();
        assert_eq!(items.len(), 3);
        assert_eq!(items[0][..2], [JsonLeaf::Number(1.5), JsonLeaf::Number(-2.0)]);
        assert_eq!(items[1], ListItem::default());
        assert_eq!(plan.pull(br#"{"r":{}}"#).unwrap().list(list), None);
    }

    #[test]
    fn a_coordinate_is_read_to_the_last_bit() {
        let mut plan = PointerTrie::default();
        let a = plan.leaf(&at("/a"));
        let got = plan.pull(br#"{"a":-122.08429670000001}"#).unwrap();
        assert_eq!(got.leaf(a), &JsonLeaf::Number(-122.08429670000001));
    }

    #[test]
    fn what_is_unusual_is_read_all_the_same() {
        let mut plan = PointerTrie::default();
        let a = plan.leaf(&at("/a"));
        for (body, text) in [(r#"{"a":"\u00e9\n"}"#, "\u{e9}\n"), (r#"{"\u0061":"x","b":"\\"}"#, "x")] {
            assert_eq!(plan.pull(body.as_bytes()).unwrap().leaf(a), &JsonLeaf::Text(text.into()));
        }
        let deep = format!("{}{}", "[".repeat(40), "]".repeat(40));
        assert!(plan.pull(deep.as_bytes()).is_ok());
    }

    #[test]
    fn depth_tails_and_cuts_are_errors() {
        let plan = PointerTrie::default();
        let deep = "[".repeat(100_000);
        let broken = |body: &[u8]| plan.pull(body).unwrap_err();
        assert_eq!(broken(deep.as_bytes()), Broken::Cut);
        assert_eq!(broken(b"{} x"), Broken::Bad);
        assert_eq!(broken(b"{\"a\":\"\xff\"}"), Broken::Bad);
        assert_eq!(broken(b"{\"a\":"), Broken::Cut);
        assert_eq!(broken(b"{\"a\":\"\xc3"), Broken::Cut);
        assert_eq!(broken(b""), Broken::Cut);
    }

    #[test]
    fn a_long_list_is_counted_but_not_kept() {
        let mut plan = PointerTrie::default();
        let whole = plan.leaf(&at(""));
        let list = plan.list(&at(""), [None; FIELDS]);
        let body = format!("[{}0]", "0,".repeat(999));
        let got = plan.pull(body.as_bytes()).unwrap();
        assert_eq!(got.leaf(whole), &JsonLeaf::Many(1000));
        assert_eq!(got.list(list).unwrap().len(), ITEMS_MAX);
    }
}
