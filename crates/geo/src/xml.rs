//! XML as small trees: one element of a stream at a time, or a whole small document.
//!
//! Enough for GML, and for what services say of themselves. Names lose their prefix: the documents of
//! one service do not mix elements of the same local name. A document type is refused, so that no
//! entity can be defined; depth, attributes, elements and bytes are bounded, because a tree takes many
//! times the room of its text.

use std::io::{self, BufRead, Read};

use quick_xml::events::{BytesStart, Event};
use tidegate_core::Code;

use crate::error::{Error, Problem};

/// How deep elements may nest.
pub(crate) const DEPTH_MAX: usize = 64;
/// How many elements one feature may have, and how many attributes one element.
pub(crate) const ELEMENTS_MAX: usize = 500_000;
const ATTRIBUTES_MAX: usize = 1_000;

/// An element, by its name without prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its local name.
    pub name: String,
    /// Its attributes by local name.
    pub attributes: Vec<(String, String)>,
    /// The text directly in it.
    pub text: String,
    /// The elements directly in it.
    pub children: Vec<Node>,
}

impl Node {
    /// The value of an attribute.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The first child of this name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<&Node> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Calls `f` for this element and all below, in order.
    pub fn walk<'a>(&'a self, f: &mut impl FnMut(&'a Node)) {
        f(self);
        for child in &self.children {
            child.walk(f);
        }
    }

    /// All elements of this name, however deep.
    #[must_use]
    pub fn all(&self, name: &str) -> Vec<&Node> {
        let mut found = Vec::new();
        self.walk(&mut |node| {
            if node.name == name {
                found.push(node);
            }
        });
        found
    }

    /// An element from its start tag.
    fn open(start: &BytesStart<'_>) -> Result<Node, Problem> {
        let mut node = Node { name: local(start.local_name().as_ref()), ..Node::default() };
        // The parser would compare each name with each.
        for attribute in start.attributes().with_checks(false) {
            let attribute = attribute.map_err(|e| broken(e.to_string()))?;
            let raw = String::from_utf8_lossy(&attribute.value).into_owned();
            let value = quick_xml::escape::unescape(&raw).map_err(|e| broken(e.to_string()))?.into_owned();
            node.attributes.push((local(attribute.key.local_name().as_ref()), value));
            if node.attributes.len() > ATTRIBUTES_MAX {
                return Err(broken(format!("an element of more than {ATTRIBUTES_MAX} attributes")));
            }
        }
        Ok(node)
    }
}

fn local(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

pub(crate) fn broken(message: impl Into<String>) -> Problem {
    Problem::new(Code::UNEXPECTED_BODY, format!("the XML: {}", message.into()))
}

/// Reads a whole document.
///
/// # Errors
/// Why it is none.
pub fn parse(body: &[u8]) -> Result<Node, Problem> {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let mut xml = Xml::new(body, body.len());
    let mut root = None;
    loop {
        match xml.next().map_err(of_problem)? {
            XmlToken::Start(_) | XmlToken::Empty(_) if root.is_some() => return Err(broken("two roots")),
            XmlToken::Start(node) => {
                root = Some(xml.rest(node, usize::MAX).map_err(of_problem)?);
            }
            XmlToken::Empty(node) => root = Some(node),
            XmlToken::End | XmlToken::Text => return Err(broken("text outside of the root")),
            XmlToken::Eof => return root.ok_or_else(|| broken("there is none")),
        }
    }
}

/// Text in memory has no trouble of the disk.
fn of_problem(error: Error) -> Problem {
    match error {
        Error::Problem(problem) => *problem,
        other => broken(other.to_string()),
    }
}

/// What comes next in a stream.
pub(crate) enum XmlToken {
    Start(Node),
    /// An element without content.
    Empty(Node),
    End,
    /// Text outside of a tree that is more than space; comments and the like do not show.
    Text,
    Eof,
}

/// A stream of XML.
pub(crate) struct Xml<R> {
    reader: quick_xml::Reader<Bounded<R>>,
    buffer: Vec<u8>,
    len_max: usize,
}

impl<R: BufRead> Xml<R> {
    /// A stream in which no tag, text or tree may be larger than this.
    pub(crate) fn new(input: R, len_max: usize) -> Xml<R> {
        let mut reader = quick_xml::Reader::from_reader(Bounded { input, left: 0 });
        reader.config_mut().check_end_names = true;
        Xml { reader, buffer: Vec::new(), len_max }
    }

    /// Where the stream stands.
    pub(crate) fn position(&self) -> u64 {
        self.reader.buffer_position()
    }

    pub(crate) fn next(&mut self) -> Result<XmlToken, Error> {
        loop {
            let at = self.position();
            match event(&mut self.reader, &mut self.buffer, self.len_max)? {
                Event::Start(start) => return Ok(XmlToken::Start(Node::open(&start).map_err(|p| p.at(at))?)),
                Event::Empty(start) => return Ok(XmlToken::Empty(Node::open(&start).map_err(|p| p.at(at))?)),
                Event::End(_) => return Ok(XmlToken::End),
                Event::Text(text) if !text.trim_ascii().is_empty() => return Ok(XmlToken::Text),
                Event::CData(_) | Event::GeneralRef(_) => return Ok(XmlToken::Text),
                Event::Eof => return Ok(XmlToken::Eof),
                Event::DocType(_) => return Err(broken("a document type is not allowed").at(at).into()),
                Event::Text(_) | Event::Comment(_) | Event::PI(_) | Event::Decl(_) => {}
            }
        }
    }

    /// The rest of an element whose start has been read.
    pub(crate) fn rest(&mut self, root: Node, elements_max: usize) -> Result<Node, Error> {
        let (from, len_max) = (self.position(), self.len_max as u64);
        let mut open = vec![root];
        let mut elements = 0;
        loop {
            let event = event(&mut self.reader, &mut self.buffer, self.len_max)?;
            let at = self.reader.buffer_position();
            if at - from > len_max {
                let message = format!("an element is larger than {len_max} bytes");
                return Err(Problem::new(Code::PAYLOAD_TOO_LARGE, message).at(from).into());
            }
            let depth = open.len();
            let Some(top) = open.last_mut() else {
                return Err(broken("an end without a start").at(at).into());
            };
            match event {
                Event::Start(start) => {
                    if depth >= DEPTH_MAX {
                        return Err(broken("elements nest too deep").at(at).into());
                    }
                    open.push(Node::open(&start).map_err(|p| p.at(at))?);
                    elements += 1;
                }
                Event::Empty(start) => {
                    top.children.push(Node::open(&start).map_err(|p| p.at(at))?);
                    elements += 1;
                }
                Event::Text(text) => top.text.push_str(&String::from_utf8_lossy(&text)),
                Event::CData(text) => top.text.push_str(&String::from_utf8_lossy(&text)),
                Event::GeneralRef(name) => {
                    let name = format!("&{};", String::from_utf8_lossy(&name));
                    let text = quick_xml::escape::unescape(&name);
                    top.text.push_str(&text.map_err(|e| broken(e.to_string()).at(at))?);
                }
                Event::End(_) => {
                    if !top.children.is_empty() {
                        // Space between elements.
                        top.text = top.text.trim().to_owned();
                    }
                    let Some(done) = open.pop() else { continue };
                    match open.last_mut() {
                        Some(outer) => outer.children.push(done),
                        None => return Ok(done),
                    }
                }
                Event::Eof => {
                    let problem = Problem::new(Code::TRUNCATED_BODY, "the text ends within an element");
                    return Err(problem.at(at).into());
                }
                Event::DocType(_) => return Err(broken("a document type is not allowed").at(at).into()),
                Event::Comment(_) | Event::PI(_) | Event::Decl(_) => {}
            }
            if elements > elements_max {
                let message = format!("an element holds more than {elements_max} others");
                return Err(Problem::new(Code::PAYLOAD_TOO_LARGE, message).at(from).into());
            }
        }
    }
}

/// The next event, of no more than so many bytes.
fn event<'b, R: BufRead>(
    reader: &mut quick_xml::Reader<Bounded<R>>,
    buffer: &'b mut Vec<u8>,
    len_max: usize,
) -> Result<Event<'b>, Error> {
    buffer.clear();
    let at = reader.buffer_position();
    reader.get_mut().left = len_max.saturating_add(1);
    let read = reader.read_event_into(buffer);
    if reader.get_mut().left == 0 {
        let message = format!("a tag or a text is larger than {len_max} bytes");
        return Err(Problem::new(Code::PAYLOAD_TOO_LARGE, message).at(at).into());
    }
    let at = reader.buffer_position();
    read.map_err(|error| match error {
        quick_xml::Error::Io(e) => Error::Io(io::Error::new(e.kind(), e.to_string())),
        quick_xml::Error::Syntax(_) => {
            Problem::new(Code::TRUNCATED_BODY, "the text ends within a tag").at(at).into()
        }
        other => broken(other.to_string()).at(at).into(),
    })
}

/// An input that gives no more than so many bytes until it is allowed more: the parser would gather a
/// comment without an end whole.
struct Bounded<R> {
    input: R,
    left: usize,
}

impl<R: BufRead> Read for Bounded<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let some = self.fill_buf()?;
        let len = some.len().min(room.len());
        for (to, from) in room.iter_mut().zip(some) {
            *to = *from;
        }
        self.consume(len);
        Ok(len)
    }
}

impl<R: BufRead> BufRead for Bounded<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let left = self.left;
        self.input.fill_buf().map(|some| some.get(..left).unwrap_or(some))
    }

    fn consume(&mut self, len: usize) {
        self.left = self.left.saturating_sub(len);
        self.input.consume(len);
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
        assert_eq!((root.children.len(), root.text.as_str(), root.all("z").len()), (2, "", 1));
    }

    #[test]
    fn what_is_no_document_is_refused() {
        for bad in ["", "<a>", "<a></b>", "<a/><b/>", "<!DOCTYPE a><a/>", "<a>&evil;</a>", "text", "<a/>x"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse("<a>".repeat(100_000).as_bytes()).is_err());
        let many: String = (0..2000).map(|n| format!(" a{n}='1'")).collect();
        assert!(parse(format!("<a{many}/>").as_bytes()).unwrap_err().message.contains("attributes"));
    }

    #[test]
    fn no_part_of_a_stream_is_larger_than_the_limit() {
        for text in ["<a><!-- 0123456789", "<a>0123456789</a>", "<a><b>0</b><b>1</b><b>2</b></a>"] {
            let mut xml = Xml::new(text.as_bytes(), 9);
            let Ok(XmlToken::Start(node)) = xml.next() else { panic!("{text}") };
            assert_eq!(xml.rest(node, 10).unwrap_err().code(), Code::PAYLOAD_TOO_LARGE, "{text}");
        }
    }
}
