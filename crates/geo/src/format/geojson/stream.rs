//! Splitting a stream of GeoJSON into records.
//!
//! One grammar covers every framing: a document is a sequence of values with white space or record
//! separators between them, and each value is a collection, a feature or a geometry. One collection is
//! `.geojson`, one feature per line is newline-delimited GeoJSON, a separator before each is RFC 8142.
//!
//! Memory does not depend on the size of the file: the stream holds a window of it, which grows only for a
//! larger record, up to a limit. A record that crosses the end of the window is parsed again when more has
//! been read; that is one record in a thousand.

use std::io::Read;

use tidegate_core::Code;

use super::geometry::raw;
use super::named::NamedSystem;
use super::scan::{Scan, Stop};
use crate::batch::Span;
use crate::error::{Error, Problem};
use crate::wkb::Shape;

const WINDOW: usize = 1 << 18;
const SEPARATOR: u8 = 0x1e;
const BOM: &[u8] = b"\xEF\xBB\xBF";

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Between top-level values.
    Top,
    /// Within a collection, before a member or its end.
    Members { first: bool },
    /// Within the features of a collection, before one or their end.
    Features { first: bool },
    /// After text that is not JSON, looking for the next record.
    Lost,
}

/// A record's place.
#[derive(Clone, Copy, Debug)]
pub(in crate::format) struct Place {
    pub(in crate::format) record: u64,
    /// Its place in the collection that holds it, if one does.
    pub(in crate::format) in_collection: Option<u64>,
    /// Where the scanned text begins in the source.
    pub(in crate::format) base: u64,
}

/// What one step of the stream gave.
#[derive(Debug)]
pub(in crate::format) enum Found {
    /// The handler has seen a record, which stood here.
    Record(Span),
    /// A top-level value was not JSON; the stream goes on at the next.
    Broken(Problem),
    /// The end.
    End,
}

pub(in crate::format) struct Stream<R> {
    input: R,
    window: Vec<u8>,
    /// How much of the window holds text.
    filled: usize,
    at: usize,
    base: u64,
    ended: bool,
    state: State,
    record: u64,
    in_collection: u64,
    record_len_max: usize,
    /// Whether there was anything but space.
    pub(in crate::format) seen: bool,
    /// What the records say of their system.
    pub(in crate::format) named: NamedSystem,
    /// What the open collection has said of itself.
    collection: Collection,
    /// Whether a collection need not say what it is, as in Esri JSON.
    pub(in crate::format) untyped: bool,
    /// The other members of a collection, by name, as long as they are small.
    pub(in crate::format) members: Vec<(String, String)>,
}

/// What a collection must say once, in any order: that it is one, and its features.
#[derive(Clone, Debug, Default)]
struct Collection {
    /// Where it begins.
    at: u64,
    typed: bool,
    has_features: bool,
}

impl Collection {
    /// The member `type`, whose text is given.
    fn name(&mut self, text: &str, at: u64) -> Result<(), Problem> {
        if text != "\"FeatureCollection\"" {
            let message =
                format!("the type of an object with features is \"FeatureCollection\", not {text:.60}");
            return Err(Problem::new(Code::UNEXPECTED_BODY, message).at(at).under("$.type"));
        }
        if std::mem::replace(&mut self.typed, true) {
            return Err(twice("type", at));
        }
        Ok(())
    }

    fn end(&self) -> Result<(), Problem> {
        let missing = match (self.typed, self.has_features) {
            (true, true) => return Ok(()),
            (false, _) => "an object with features needs a member \"type\": \"FeatureCollection\"",
            (true, false) => "a FeatureCollection needs a member \"features\"",
        };
        Err(Problem::new(Code::UNEXPECTED_BODY, missing).at(self.at).under("$"))
    }
}

fn twice(name: &str, at: u64) -> Problem {
    let message = format!("the collection has the member {name:?} twice");
    Problem::new(Code::UNEXPECTED_BODY, message).at(at).under(format!("$.{name}"))
}

/// How large a kept member may be, and how many are kept.
const MEMBER_LEN_MAX: usize = 1 << 18;
const MEMBERS_MAX: usize = 64;

impl<R: Read> Stream<R> {
    pub(in crate::format) fn new(input: R, record_len_max: usize) -> Stream<R> {
        Stream {
            input,
            window: Vec::new(),
            filled: 0,
            at: 0,
            base: 0,
            ended: false,
            state: State::Top,
            record: 0,
            in_collection: 0,
            record_len_max,
            seen: false,
            named: NamedSystem::default(),
            collection: Collection::default(),
            untyped: false,
            members: Vec::new(),
        }
    }

    /// How many records have been seen.
    pub(in crate::format) fn records(&self) -> u64 {
        self.record
    }

    /// Goes to the next record and lets `handle` read it. It may be called more than once for the
    /// same record, when the first time ran into the end of the window.
    pub(in crate::format) fn step(
        &mut self,
        mut handle: impl FnMut(&mut Scan<'_>, Place) -> Result<(), Stop>,
    ) -> Result<Found, Error> {
        loop {
            let mut scan = Scan::new(self.window.get(..self.filled).unwrap_or_default(), self.at);
            let place = Place { record: self.record, in_collection: None, base: self.base };
            let went = match self.state {
                State::Top => top(&mut scan, self.base, |scan| handle(scan, place)),
                State::Members { first } => member(&mut scan, first),
                State::Features { first } => {
                    let place = Place { in_collection: Some(self.in_collection), ..place };
                    feature(&mut scan, first, |scan| handle(scan, place))
                }
                State::Lost => lost(&mut scan, self.ended),
            };
            match went {
                Ok(Went::Record(start)) => {
                    self.seen = true;
                    let end = scan.at;
                    let offset = self.base + start as u64;
                    self.at = end;
                    self.record += 1;
                    if let State::Features { .. } = self.state {
                        self.in_collection += 1;
                        self.state = State::Features { first: false };
                    }
                    return Ok(Found::Record(Span { offset, len: (end - start) as u64 }));
                }
                Ok(Went::To(state)) => {
                    let at = scan.at;
                    self.seen = true;
                    self.passes(state, at)?;
                    self.at = at;
                    self.state = state;
                }
                Ok(Went::Member(name, start, end)) => {
                    let text = String::from_utf8_lossy(scan.bytes.get(start..end).unwrap_or_default());
                    let at = self.base + start as u64;
                    if name == "type" && !self.untyped {
                        self.collection.name(&text, at)?;
                    }
                    if name == "crs" {
                        self.named.collection(text.into_owned(), at)?;
                    } else if text.len() <= MEMBER_LEN_MAX && self.members.len() < MEMBERS_MAX {
                        self.members.push((name, text.into_owned()));
                    }
                    self.at = scan.at;
                    self.state = State::Members { first: false };
                }
                Err(Stop::More) if !self.ended => {
                    if self.state == State::Lost {
                        self.at = scan.at;
                    }
                    self.fill()?;
                }
                Err(Stop::More) => {
                    if self.state == State::Top && self.is_blank() {
                        return Ok(Found::End);
                    }
                    let end = self.filled;
                    return self.broken(end, Code::TRUNCATED_BODY, "the text ends within a value");
                }
                Err(Stop::Bad(at, message)) => return self.broken(at, Code::UNEXPECTED_BODY, message),
            }
        }
    }

    /// What must be so when a collection begins, comes to its features or ends.
    fn passes(&mut self, to: State, at: usize) -> Result<(), Problem> {
        match (self.state, to) {
            (State::Top, State::Members { .. }) => {
                self.in_collection = 0;
                // Its brace has been read.
                self.collection =
                    Collection { at: self.base + at.saturating_sub(1) as u64, ..Collection::default() };
            }
            (State::Members { .. }, State::Features { .. }) => {
                let again = std::mem::replace(&mut self.collection.has_features, true);
                if again && !self.untyped {
                    return Err(twice("features", self.base + at as u64));
                }
            }
            (State::Members { .. }, State::Top) => {
                if !self.untyped {
                    self.collection.end()?;
                }
                self.named.end_collection()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A record with coordinates has been read, with this `crs` member of its own.
    pub(in crate::format) fn saw_crs(&mut self, own: Option<(usize, usize)>, at: u64) -> Result<(), Problem> {
        let window = self.window.get(..self.filled).unwrap_or_default();
        let text =
            own.map(|(start, end)| String::from_utf8_lossy(window.get(start..end).unwrap_or_default()));
        self.named.record(text.as_deref(), matches!(self.state, State::Features { .. }), at)
    }

    /// Text that is not JSON: a broken line is one lost record, a broken collection is the end.
    fn broken(&mut self, at: usize, code: Code, message: &str) -> Result<Found, Error> {
        let problem = Problem::new(code, message).of_record(self.record).at(self.base + at as u64);
        if self.state != State::Top {
            return Err(problem.under(format!("$.features[{}]", self.in_collection)).into());
        }
        let blank = |b: &&u8| matches!(**b, b' ' | b'\n' | b'\r' | b'\t' | SEPARATOR);
        let rest = self.window().get(self.at..).unwrap_or_default();
        self.at = self.filled.min(self.at + rest.iter().take_while(blank).count() + 1);
        self.state = State::Lost;
        self.record += 1;
        Ok(Found::Broken(problem.under("$")))
    }

    fn is_blank(&self) -> bool {
        let rest = self.window().get(self.at..).unwrap_or_default();
        let rest = if self.base == 0 && self.at == 0 { rest.strip_prefix(BOM).unwrap_or(rest) } else { rest };
        rest.iter().all(|b| matches!(b, b' ' | b'\n' | b'\r' | b'\t' | &SEPARATOR))
    }

    /// The bytes of the record found last, from its start.
    pub(in crate::format) fn bytes(&self, span: Span) -> &[u8] {
        let start = usize::try_from(span.offset.saturating_sub(self.base)).unwrap_or(usize::MAX);
        self.window.get(start..self.at).unwrap_or_default()
    }

    /// The whole window, which places given to the handler refer to.
    pub(in crate::format) fn window(&self) -> &[u8] {
        self.window.get(..self.filled).unwrap_or_default()
    }

    /// Reads once: what a pipe gives now is handled now.
    fn fill(&mut self) -> Result<(), Error> {
        let left = self.filled - self.at;
        if left > self.record_len_max {
            let message = format!("a record is larger than {} bytes", self.record_len_max);
            let problem = Problem::new(Code::PAYLOAD_TOO_LARGE, message);
            return Err(problem.of_record(self.record).at(self.base + self.at as u64).into());
        }
        self.window.copy_within(self.at..self.filled, 0);
        self.base += self.at as u64;
        (self.at, self.filled) = (0, left);
        if left * 2 > self.window.len() || self.window.is_empty() {
            self.window.resize(WINDOW.max(left * 2), 0);
        }
        loop {
            match self.input.read(self.window.get_mut(left..).unwrap_or_default()) {
                Ok(0) => self.ended = true,
                Ok(len) => self.filled += len,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e.into()),
            }
            return Ok(());
        }
    }
}

enum Went {
    Record(usize),
    To(State),
    Member(String, usize, usize),
}

type StreamStep = Result<Went, Stop>;

fn top(scan: &mut Scan<'_>, base: u64, handle: impl FnOnce(&mut Scan<'_>) -> Result<(), Stop>) -> StreamStep {
    if base == 0 && scan.at == 0 && scan.bytes.starts_with(BOM) {
        scan.at = 3;
    }
    while scan.peek()? == SEPARATOR {
        scan.at += 1;
    }
    let start = scan.at;
    if scan.peek()? != b'{' {
        return Err(Stop::Bad(scan.at, "expected a GeoJSON object"));
    }
    if is_collection(*scan)? {
        scan.at += 1;
        return Ok(Went::To(State::Members { first: true }));
    }
    handle(scan)?;
    Ok(Went::Record(start))
}

/// Decides by the first member that tells.
fn is_collection(mut scan: Scan<'_>) -> Result<bool, Stop> {
    scan.at += 1;
    let mut more = !scan.eat(b'}')?;
    while more {
        let key = scan.key()?;
        match raw(&scan, key) {
            b"features" => return Ok(true),
            b"geometry" | b"properties" | b"coordinates" | b"geometries" => return Ok(false),
            b"type" if scan.peek()? == b'"' => {
                let text = scan.text()?;
                let name = raw(&scan, text);
                if name == b"FeatureCollection" {
                    return Ok(true);
                }
                if name == b"Feature" || Shape::ALL.iter().any(|shape| shape.name().as_bytes() == name) {
                    return Ok(false);
                }
            }
            _ => scan.skip()?,
        }
        more = scan.comma_or(b'}')?;
    }
    Ok(false)
}

fn member(scan: &mut Scan<'_>, first: bool) -> StreamStep {
    if first {
        if scan.eat(b'}')? {
            return Ok(Went::To(State::Top));
        }
    } else if !scan.comma_or(b'}')? {
        return Ok(Went::To(State::Top));
    }
    let key = scan.key()?;
    let value = scan.peek()?;
    match raw(scan, key) {
        b"features" if value == b'[' => {
            scan.at += 1;
            Ok(Went::To(State::Features { first: true }))
        }
        b"features" => Err(Stop::Bad(scan.at, "features must be an array")),
        name => {
            let name = String::from_utf8_lossy(name).into_owned();
            let start = scan.at;
            scan.skip()?;
            Ok(Went::Member(name, start, scan.at))
        }
    }
}

fn feature(
    scan: &mut Scan<'_>,
    first: bool,
    handle: impl FnOnce(&mut Scan<'_>) -> Result<(), Stop>,
) -> StreamStep {
    let ends = if first { scan.eat(b']')? } else { !scan.comma_or(b']')? };
    if ends {
        return Ok(Went::To(State::Members { first: false }));
    }
    scan.peek()?;
    let start = scan.at;
    handle(scan)?;
    Ok(Went::Record(start))
}

/// From the start of a broken record, goes to the next place that looks like the start of one: a
/// separator, or a brace at the start of a line.
fn lost(scan: &mut Scan<'_>, ended: bool) -> StreamStep {
    let rest = scan.bytes.get(scan.at..).unwrap_or_default();
    let starts = |at: usize| match rest.get(at) {
        Some(&SEPARATOR) => true,
        _ => rest.get(at + 1) == Some(&b'{'),
    };
    if let Some(at) = memchr::memchr2_iter(b'\n', SEPARATOR, rest).find(|at| starts(*at)) {
        scan.at += at;
        return Ok(Went::To(State::Top));
    }
    let cut_line = !ended && rest.last() == Some(&b'\n');
    scan.at = scan.bytes.len() - usize::from(cut_line);
    if ended { Ok(Went::To(State::Top)) } else { Err(Stop::More) }
}
