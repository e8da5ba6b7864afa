//! One element of XML as a small tree.

use std::io::BufRead;

use quick_xml::events::{BytesStart, Event};
use tidegate_core::Code;

use crate::error::{Error, Problem};

/// How deep elements may nest, and how many one feature may have.
const DEPTH_MAX: usize = 64;

/// An element, by its name without prefix.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Node {
    pub(super) name: String,
    /// Attributes by name without prefix.
    pub(super) attributes: Vec<(String, String)>,
    pub(super) text: String,
    pub(super) children: Vec<Node>,
}

impl Node {
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn child(&self, name: &str) -> Option<&Node> {
        self.children.iter().find(|child| child.name == name)
    }

    /// An element from its start tag.
    pub(super) fn open(start: &BytesStart<'_>) -> Result<Node, Problem> {
        let mut node = Node { name: local(start.local_name().as_ref()), ..Node::default() };
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|e| broken(e.to_string()))?;
            let raw = String::from_utf8_lossy(&attribute.value).into_owned();
            let value = quick_xml::escape::unescape(&raw).map_err(|e| broken(e.to_string()))?.into_owned();
            node.attributes.push((local(attribute.key.local_name().as_ref()), value));
        }
        Ok(node)
    }
}

fn local(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

pub(super) fn broken(message: impl Into<String>) -> Problem {
    Problem::new(Code::UNEXPECTED_BODY, format!("the XML: {}", message.into()))
}

/// Reads the rest of an element whose start tag has been read.
pub(super) fn rest<R: BufRead>(
    xml: &mut quick_xml::Reader<R>,
    root: Node,
    buffer: &mut Vec<u8>,
    len_max: usize,
) -> Result<Node, Error> {
    let from = xml.buffer_position();
    let mut open = vec![root];
    loop {
        buffer.clear();
        let event = xml.read_event_into(buffer).map_err(|e| failed(xml, &e))?;
        let at = xml.buffer_position();
        if at - from > len_max as u64 {
            let message = format!("a feature is larger than {len_max} bytes");
            return Err(Problem::new(Code::PAYLOAD_TOO_LARGE, message).at(from).into());
        }
        let top = open.last_mut();
        match event {
            Event::Start(start) => {
                if open.len() >= DEPTH_MAX {
                    return Err(broken("elements nest too deep").at(at).into());
                }
                open.push(Node::open(&start)?);
            }
            Event::Empty(start) => {
                let node = Node::open(&start)?;
                if let Some(top) = top {
                    top.children.push(node);
                }
            }
            Event::Text(text) => {
                let raw = String::from_utf8_lossy(&text).into_owned();
                top.into_iter().for_each(|top| top.text.push_str(&raw));
            }
            Event::CData(text) => {
                let raw = String::from_utf8_lossy(&text).into_owned();
                top.into_iter().for_each(|top| top.text.push_str(&raw));
            }
            Event::GeneralRef(name) => {
                let name = String::from_utf8_lossy(&name).into_owned();
                let text =
                    quick_xml::escape::unescape(&format!("&{name};")).map(std::borrow::Cow::into_owned);
                let text = text.map_err(|e| broken(e.to_string()).at(at))?;
                top.into_iter().for_each(|top| top.text.push_str(&text));
            }
            Event::End(_) => {
                let Some(done) = open.pop() else { return Err(broken("an end without a start").into()) };
                match open.last_mut() {
                    Some(outer) => outer.children.push(done),
                    None => return Ok(done),
                }
            }
            Event::Eof => {
                return Err(Problem::new(Code::TRUNCATED_BODY, "the text ends within a feature")
                    .at(at)
                    .into());
            }
            Event::DocType(_) => return Err(broken("a document type is not allowed").at(at).into()),
            Event::Comment(_) | Event::PI(_) | Event::Decl(_) => {}
        }
    }
}

/// An error of the parser: of the disk, or of the text.
pub(super) fn failed<R>(xml: &quick_xml::Reader<R>, error: &quick_xml::Error) -> Error {
    match error {
        quick_xml::Error::Io(e) => Error::Io(std::io::Error::new(e.kind(), e.to_string())),
        quick_xml::Error::Syntax(_) => {
            let problem = Problem::new(Code::TRUNCATED_BODY, "the text ends within a tag");
            problem.at(xml.buffer_position()).into()
        }
        other => broken(other.to_string()).at(xml.buffer_position()).into(),
    }
}
