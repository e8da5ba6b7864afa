//! A small XML document as a tree of local names.
//!
//! Enough for capabilities, descriptions and counts. Namespaces are dropped: the documents of one
//! service do not mix elements of the same local name. Depth is bounded, a document type refused.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

const DEPTH_MAX: usize = 64;

/// An element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// Its local name.
    pub(super) name: String,
    /// Its attributes by local name.
    pub(super) attributes: Vec<(String, String)>,
    /// The text directly in it.
    pub(super) text: String,
    /// The elements directly in it.
    pub(super) children: Vec<Node>,
}

impl Node {
    /// The value of an attribute.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The first child of this name.
    pub(super) fn child(&self, name: &str) -> Option<&Node> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Calls `f` for this element and all below, in order.
    pub(super) fn walk<'a>(&'a self, f: &mut impl FnMut(&'a Node)) {
        f(self);
        for child in &self.children {
            child.walk(f);
        }
    }

    /// All elements of this name, however deep.
    pub(super) fn all(&self, name: &str) -> Vec<&Node> {
        let mut found = Vec::new();
        self.walk(&mut |node| {
            if node.name == name {
                found.push(node);
            }
        });
        found
    }
}

/// Reads a document.
///
/// # Errors
/// Why it is none.
pub(super) fn parse(body: &[u8]) -> Result<Node, String> {
    let mut reader = Reader::from_reader(body);
    let mut open: Vec<Node> = Vec::new();
    let mut root = None;
    loop {
        let event = reader.read_event().map_err(|e| format!("the XML cannot be read: {e}"))?;
        match event {
            Event::Start(tag) => {
                if open.len() >= DEPTH_MAX {
                    return Err("the XML nests too deep".into());
                }
                open.push(node(&tag)?);
            }
            Event::Empty(tag) => {
                let node = node(&tag)?;
                close(node, &mut open, &mut root)?;
            }
            Event::End(_) => {
                let node = open.pop().ok_or("the XML closes what was not open")?;
                close(node, &mut open, &mut root)?;
            }
            Event::Text(text) => add(&mut open, &String::from_utf8_lossy(&text)),
            Event::CData(text) => add(&mut open, &String::from_utf8_lossy(&text)),
            Event::GeneralRef(name) => {
                let name = String::from_utf8_lossy(&name);
                let text = quick_xml::escape::unescape(&format!("&{name};"))
                    .map_err(|_| format!("the XML has an unknown entity {name:?}"))?
                    .into_owned();
                add(&mut open, &text);
            }
            Event::DocType(_) => return Err("the XML has a document type".into()),
            Event::Eof => break,
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
        }
    }
    match root {
        Some(root) if open.is_empty() => Ok(root),
        _ => Err("the XML ends before it is complete".into()),
    }
}

fn node(tag: &BytesStart<'_>) -> Result<Node, String> {
    let name = String::from_utf8_lossy(tag.local_name().as_ref()).into_owned();
    let mut attributes = Vec::new();
    for attribute in tag.attributes().with_checks(false) {
        let attribute = attribute.map_err(|e| format!("the XML cannot be read: {e}"))?;
        let key = String::from_utf8_lossy(attribute.key.local_name().as_ref()).into_owned();
        let value = String::from_utf8_lossy(&attribute.value);
        let value =
            quick_xml::escape::unescape(&value).map_err(|e| format!("the XML cannot be read: {e}"))?;
        attributes.push((key, value.into_owned()));
    }
    Ok(Node { name, attributes, ..Node::default() })
}

fn close(mut node: Node, open: &mut [Node], root: &mut Option<Node>) -> Result<(), String> {
    if !node.children.is_empty() {
        // White space between elements.
        node.text = node.text.trim().to_owned();
    }
    match open.last_mut() {
        Some(parent) => parent.children.push(node),
        None if root.is_none() => *root = Some(node),
        None => return Err("the XML has two roots".into()),
    }
    Ok(())
}

fn add(open: &mut [Node], text: &str) {
    if let Some(node) = open.last_mut() {
        node.text.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_local_names() {
        let root =
            parse(b"<?xml version='1.0'?><a:x xmlns:a='u' b='1 &amp; 2'>\n <y>p &lt; q&#33;</y><z/></a:x>")
                .unwrap();
        assert_eq!((root.name.as_str(), root.attribute("b")), ("x", Some("1 & 2")));
        assert_eq!(root.child("y").map(|y| y.text.as_str()), Some("p < q!"));
        assert_eq!((root.children.len(), root.text.as_str()), (2, ""));
    }

    #[test]
    fn what_is_no_document_is_refused() {
        for bad in ["", "<a>", "<a></b>", "<a/><b/>", "<!DOCTYPE a><a/>", "<a>&evil;</a>", "text"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse("<a>".repeat(100_000).as_bytes()).is_err());
    }
}
