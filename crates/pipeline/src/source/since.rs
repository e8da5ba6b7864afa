//! What has changed: the mark up to which a layer was read, and the request for what comes after it,
//! in the words of each kind of service.

use serde::{Deserialize, Serialize};
use tidegate_core::time::calendar::rfc3339;
use tidegate_geo::format::moment_of;
use tidegate_geo::{Batch, Value};
use url::Url;

use super::service_kind::ServiceKind;

/// A value of the field that tells when a record was changed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeMark {
    /// A number.
    Number(i64),
    /// A time, in microseconds since 1970.
    Micros(i64),
}

const MICROS_PER_SECOND: i64 = 1_000_000;

impl ChangeMark {
    /// The mark of a value; `None` if it is neither a time nor an integer.
    #[must_use]
    pub fn of(value: Value<'_>) -> Option<ChangeMark> {
        match value {
            Value::Int(n) => Some(ChangeMark::Number(n)),
            Value::Text(text) if text.len() == 10 => {
                moment_of(&format!("{text}T00:00:00Z")).map(|(micros, _)| ChangeMark::Micros(micros))
            }
            Value::Text(text) => moment_of(text).map(|(micros, _)| ChangeMark::Micros(micros)),
            Value::Null | Value::Bool(_) | Value::Real(_) | Value::Bytes(_) | Value::Json(_) => None,
        }
    }

    /// The highest mark of a field in a batch, and the number of records below `from`.
    #[must_use]
    pub fn highest(batch: &Batch, field: &str, from: Option<ChangeMark>) -> (Option<ChangeMark>, u64) {
        let Some(at) = batch.schema().position(field) else { return (None, 0) };
        let marks = (0..batch.len()).filter_map(|row| ChangeMark::of(batch.value(row, at)));
        marks.fold((None, 0), |(highest, early), mark| {
            (highest.max(Some(mark)), early + u64::from(from.is_some_and(|from| mark < from)))
        })
    }

    /// The mark so many seconds earlier. Numbers have no overlap.
    #[must_use]
    pub fn less(self, seconds: f64) -> ChangeMark {
        match self {
            ChangeMark::Number(_) => self,
            ChangeMark::Micros(micros) => {
                ChangeMark::Micros(micros.saturating_sub((seconds * MICROS_PER_SECOND as f64) as i64))
            }
        }
    }

    /// The mark, but no time after this one, in milliseconds since 1970: a record from the future must
    /// not hide the changes until then.
    #[must_use]
    pub fn at_most(self, millis: i64) -> ChangeMark {
        match self {
            ChangeMark::Number(_) => self,
            ChangeMark::Micros(micros) => ChangeMark::Micros(micros.min(millis.saturating_mul(1000))),
        }
    }

    /// The time rounded down to a second, as RFC 3339; a number as it is.
    fn text(self) -> String {
        match self {
            ChangeMark::Number(n) => n.to_string(),
            ChangeMark::Micros(micros) => rfc3339(micros.div_euclid(MICROS_PER_SECOND).saturating_mul(1000)),
        }
    }

    /// The literal of SQL.
    fn sql(self) -> String {
        match self {
            ChangeMark::Number(n) => n.to_string(),
            ChangeMark::Micros(_) => {
                format!("TIMESTAMP '{}'", self.text().replace('T', " ").trim_end_matches('Z'))
            }
        }
    }

    /// The literal of CQL2 text.
    fn cql(self) -> String {
        match self {
            ChangeMark::Number(n) => n.to_string(),
            ChangeMark::Micros(_) => format!("TIMESTAMP('{}')", self.text()),
        }
    }
}

impl std::fmt::Display for ChangeMark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text())
    }
}

/// The condition that a field is not below a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedSince {
    /// The field.
    pub field: String,
    /// The mark.
    pub from: ChangeMark,
}

impl ChangedSince {
    /// Adds the condition to the URL of a layer. That of a WFS goes into its requests for features only.
    ///
    /// # Errors
    /// When the URL has a condition of its own that it cannot be combined with.
    pub fn restrict(&self, url: &mut Url, kind: ServiceKind) -> Result<(), String> {
        let named = |url: &Url, name: &str| {
            url.query_pairs().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.into_owned())
        };
        let refuse = |name: &str| {
            Err(format!("source.since: the URL has a `{name}` of its own; remove it, or remove `since`"))
        };
        let set = |url: &mut Url, pairs: &[(&str, &str)]| {
            let others: Vec<(String, String)> = url
                .query_pairs()
                .filter(|(n, _)| !pairs.iter().any(|(name, _)| n.eq_ignore_ascii_case(name)))
                .map(|(n, v)| (n.into(), v.into()))
                .collect();
            url.query_pairs_mut().clear().extend_pairs(others).extend_pairs(pairs);
        };
        let ChangedSince { field, from } = self;
        match kind {
            ServiceKind::Esri => {
                let own = named(url, "where").filter(|own| !own.trim().is_empty() && own.trim() != "1=1");
                let ours = format!("{field} >= {}", from.sql());
                let both = own.map_or_else(|| ours.clone(), |own| format!("({own}) AND {ours}"));
                set(url, &[("where", &both)]);
            }
            // A time that the standard has a parameter for needs no filter language.
            ServiceKind::Ogc | ServiceKind::Stac if field == "datetime" => {
                if named(url, "datetime").is_some() {
                    return refuse("datetime");
                }
                set(url, &[("datetime", &format!("{}/..", from.text()))]);
            }
            ServiceKind::Ogc | ServiceKind::Stac => {
                if named(url, "filter").is_some() {
                    return refuse("filter");
                }
                let filter = format!("{field} >= {}", from.cql());
                set(url, &[("filter", &filter), ("filter-lang", "cql2-text")]);
            }
            ServiceKind::Wfs => {
                let own = ["filter", "cql_filter", "bbox", "featureid", "resourceid"];
                if let Some(name) = own.iter().find(|name| named(url, name).is_some()) {
                    return refuse(name);
                }
            }
            ServiceKind::File => {}
        }
        Ok(())
    }

    /// The filter of a WFS, of version 1.1 if `old`.
    #[must_use]
    pub(super) fn fes(&self, old: bool) -> String {
        let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let (prefix, space, name) = if old {
            ("ogc", "http://www.opengis.net/ogc", "PropertyName")
        } else {
            ("fes", "http://www.opengis.net/fes/2.0", "ValueReference")
        };
        let (field, literal) = (escape(&self.field), self.from.text());
        let is = "PropertyIsGreaterThanOrEqualTo";
        format!(
            "<{prefix}:Filter xmlns:{prefix}=\"{space}\"><{prefix}:{is}><{prefix}:{name}>{field}</{prefix}:{name}><{prefix}:Literal>{literal}</{prefix}:Literal></{prefix}:{is}></{prefix}:Filter>"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(from: ChangeMark) -> ChangedSince {
        ChangedSince { field: "EDITED".into(), from }
    }

    fn time(text: &str) -> ChangeMark {
        ChangeMark::of(Value::Text(text)).unwrap()
    }

    fn asked(kind: ServiceKind, url: &str, since: &ChangedSince) -> Result<Vec<(String, String)>, String> {
        let mut url = Url::parse(url).unwrap();
        since.restrict(&mut url, kind)?;
        Ok(url.query_pairs().map(|(n, v)| (n.into(), v.into())).collect())
    }

    #[test]
    fn marks_are_times_and_numbers() {
        assert_eq!(time("2026-11-17T06:00:00+02:00"), time("2026-11-17T04:00:00Z"));
        assert_eq!(time("2026-11-17"), time("2026-11-17T00:00:00Z"));
        assert!(time("2026-11-17T06:00:00.5Z") > time("2026-11-17T06:00:00Z"));
        assert_eq!(ChangeMark::of(Value::Text("yesterday, I think")), None);
        let noon = time("2026-11-17T12:00:00Z");
        assert_eq!(noon.less(600.0), time("2026-11-17T11:50:00Z"));
        assert_eq!(time("2999-01-01T00:00:00Z").at_most(0), ChangeMark::Micros(0));
        assert_eq!(ChangeMark::Number(7).less(600.0).at_most(0), ChangeMark::Number(7));
    }

    #[test]
    fn each_service_is_asked_in_its_own_words() {
        let changed = since(time("2026-11-17T06:00:00.9Z"));
        let one = |kind, url| asked(kind, url, &changed).unwrap();
        let pair = |n: &str, v: &str| (n.to_owned(), v.to_owned());
        assert_eq!(
            one(ServiceKind::Esri, "http://x/0?where=A%3D1"),
            [pair("where", "(A=1) AND EDITED >= TIMESTAMP '2026-11-17 06:00:00'")]
        );
        assert_eq!(
            asked(ServiceKind::Esri, "http://x/0", &since(ChangeMark::Number(7))).unwrap(),
            [pair("where", "EDITED >= 7")]
        );
        assert_eq!(
            one(ServiceKind::Ogc, "http://x/items?limit=5"),
            [
                pair("limit", "5"),
                pair("filter", "EDITED >= TIMESTAMP('2026-11-17T06:00:00Z')"),
                pair("filter-lang", "cql2-text")
            ]
        );
        let mut datetime = changed.clone();
        datetime.field = "datetime".into();
        assert_eq!(
            asked(ServiceKind::Stac, "http://x/search", &datetime).unwrap(),
            [pair("datetime", "2026-11-17T06:00:00Z/..")]
        );
        assert!(asked(ServiceKind::Wfs, "http://x/wfs?BBOX=1,2,3,4", &changed).unwrap_err().contains("bbox"));
        assert_eq!(
            changed.fes(false),
            "<fes:Filter xmlns:fes=\"http://www.opengis.net/fes/2.0\"><fes:PropertyIsGreaterThanOrEqualTo><fes:ValueReference>EDITED</fes:ValueReference><fes:Literal>2026-11-17T06:00:00Z</fes:Literal></fes:PropertyIsGreaterThanOrEqualTo></fes:Filter>"
        );
        assert!(changed.fes(true).contains("<ogc:PropertyName>EDITED</ogc:PropertyName>"));
    }
}
