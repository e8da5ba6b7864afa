//! The coordinate reference system of a GeoJSON source.
//!
//! GeoJSON 2008 allows a member `crs` in a collection, a feature and a geometry. The innermost one counts;
//! without any, the coordinates are WGS 84. A layer has one system, so a source with several is refused:
//! any choice would misplace the other records. A collection may name its system after its features, so
//! features without their own `crs` are decided at its end.

use tidegate_core::Code;

use super::scan::Scan;
use crate::crs::Crs;
use crate::error::Problem;

/// The systems of the records so far.
#[derive(Debug, Default)]
pub(in crate::format) struct NamedSystem {
    /// The system, the offset at which it was found, and its text; no text for the default, WGS 84.
    decided: Option<(Option<String>, u64)>,
    /// The first feature of the open collection that waits for its end.
    waiting: Option<u64>,
    /// The `crs` member of the open collection.
    collection: Option<(String, u64)>,
}

impl NamedSystem {
    /// A record with coordinates, its own `crs` member if it has one, and where it stands.
    pub(super) fn record(&mut self, own: Option<&str>, in_collection: bool, at: u64) -> Result<(), Problem> {
        match own {
            Some(text) => self.decide(Some(text), at),
            None if in_collection => {
                self.waiting.get_or_insert(at);
                Ok(())
            }
            None => self.decide(None, at),
        }
    }

    /// The `crs` member of a collection.
    pub(super) fn collection(&mut self, text: String, at: u64) -> Result<(), Problem> {
        if let Some((other, _)) = &self.collection
            && *other != text
        {
            let message = "the collection has two different crs members";
            return Err(Problem::new(Code::CRS_MISMATCH, message).at(at).under("$.crs"));
        }
        self.collection = Some((text, at));
        Ok(())
    }

    /// The end of a collection.
    pub(super) fn end_collection(&mut self) -> Result<(), Problem> {
        let (named, waiting) = (self.collection.take(), self.waiting.take());
        match (named, waiting) {
            (Some((text, at)), Some(_)) => self.decide(Some(&text), at),
            // An empty collection counts only if nothing else does.
            (Some((text, at)), None) => {
                self.decided.get_or_insert((Some(text), at));
                Ok(())
            }
            (None, Some(at)) => self.decide(None, at),
            (None, None) => Ok(()),
        }
    }

    fn decide(&mut self, text: Option<&str>, at: u64) -> Result<(), Problem> {
        let Some((first, first_at)) = &self.decided else {
            self.decided = Some((text.map(str::to_owned), at));
            return Ok(());
        };
        if first.as_deref() == text || same(first.as_deref(), text) {
            return Ok(());
        }
        let told = |text: Option<&str>| match text {
            Some(text) => match system(text) {
                Ok(Some(crs)) => crs.to_string(),
                _ => format!("{text:.80}"),
            },
            None => "WGS 84, because it has no member crs".to_owned(),
        };
        let message = format!(
            "the records are in several systems: here {}, at byte {first_at} {}",
            told(text),
            told(first.as_deref())
        );
        Err(Problem::new(Code::CRS_MISMATCH, message).at(at).under("$.crs"))
    }

    /// The text of the member that counts so far.
    pub(super) fn text(&self) -> Option<&str> {
        let open = self.collection.as_ref().map(|(text, _)| text.as_str());
        self.decided.as_ref().map_or(open, |(text, _)| text.as_deref())
    }
}

/// Whether both name one system.
fn same(a: Option<&str>, b: Option<&str>) -> bool {
    let system = |text: Option<&str>| text.map_or(Ok(Some(Crs::wgs84())), system);
    match (system(a), system(b)) {
        (Ok(Some(a)), Ok(Some(b))) => a == b || (a.is_wgs84() && b.is_wgs84()),
        _ => false,
    }
}

/// The system that a `crs` member names. `null` means unknown, which must not become WGS 84.
pub(super) fn system(text: &str) -> Result<Option<Crs>, Problem> {
    if text.trim() == "null" {
        return Ok(None);
    }
    let value = |member: &[u8]| {
        let mut scan = Scan::new(text.as_bytes(), 0);
        let mut found = None;
        while let Some(at) = memchr::memmem::find(scan.bytes.get(scan.at..).unwrap_or_default(), member) {
            scan.at += at + member.len();
            if !matches!(scan.eat(b':'), Ok(true)) {
                continue;
            }
            if let (Ok(b'"'), Ok(value)) = (scan.peek(), scan.text()) {
                found = text.get(value.start..value.end).map(str::to_owned);
            } else if let Ok(Some(number)) = scan.int() {
                found = Some(number.to_string());
            }
        }
        found
    };
    // {"type":"name","properties":{"name":"EPSG:3857"}} or {"type":"EPSG","properties":{"code":3857}}
    let Some(name) = value(b"\"name\"").or_else(|| value(b"\"code\"")) else {
        let message = format!("the crs member names no known system: {text:.80}");
        return Err(Problem::new(Code::CRS_NOT_FOUND, message).under("$.crs"));
    };
    name.parse().map(Some).map_err(|problem: Problem| problem.under("$.crs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ways_to_name_a_system() {
        let name = r#"{"type":"name","properties":{"name":"urn:ogc:def:crs:EPSG::3857"}}"#;
        assert_eq!(system(name).unwrap(), Some(Crs::epsg(3857)));
        assert_eq!(system(r#"{"type":"EPSG","properties":{"code":25832}}"#).unwrap(), Some(Crs::epsg(25832)));
        assert_eq!(system("null").unwrap(), None);
        assert_eq!(system(r#"{"type":"link"}"#).unwrap_err().code, Code::CRS_NOT_FOUND);
    }

    #[test]
    fn another_name_for_the_same_system_is_no_contradiction() {
        let mut named = NamedSystem::default();
        named.record(None, false, 0).unwrap();
        named.record(Some(r#"{"properties":{"name":"EPSG:4326"}}"#), false, 9).unwrap();
        let problem = named.record(Some(r#"{"properties":{"name":"EPSG:3857"}}"#), false, 20).unwrap_err();
        assert_eq!((problem.code, problem.offset), (Code::CRS_MISMATCH, Some(20)));
        assert!(problem.message.contains("EPSG:3857") && problem.message.contains("byte 0"), "{problem}");
    }
}
