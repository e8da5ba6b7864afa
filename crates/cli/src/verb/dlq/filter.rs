//! The filter options that all `dlq` commands share.

use clap_complete::ArgValueCandidates;
use tidegate_core::Code;
use tidegate_core::letter::{FailureClass, Fingerprint, LetterId, LetterState};
use tidegate_core::time::calendar::{days_from_civil, days_in_month};
use tidegate_ledger::letter::LetterFilter;
use tidegate_pipeline::manifest::duration;

use super::{CommandFailure, OpenLetterStore, usage};

/// Which letters
#[derive(clap::Args, Default)]
#[command(next_help_heading = "Which letters")]
pub(super) struct FilterArgs {
    /// Select by id, or unique suffix of an id
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    id: Vec<String>,
    /// Select by code, such as TIMEOUT
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    #[arg(add = ArgValueCandidates::new(crate::complete::codes))]
    code: Vec<Code>,
    /// Select by class: transient, fatal, poison, systemic, ambiguous
    #[arg(long, value_name = "CLASS", value_delimiter = ',')]
    class: Vec<FailureClass>,
    /// Select by state: captured, scheduled, review, validated, resolved, dead, …
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    state: Vec<LetterState>,
    /// Select by group, as listed by `stats`
    #[arg(long, value_name = "HEX", value_delimiter = ',')]
    fingerprint: Vec<Fingerprint>,
    /// Select by pipeline
    #[arg(long, value_name = "NAME")]
    pipeline: Option<String>,
    /// Select by stage
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,
    /// Select by service
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Rejected since: 24h, 7d, 2026-11-01 or 2026-11-01T12:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Rejected before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Intersecting this bounding box: west,south,east,north in degrees
    #[arg(long, value_name = "BOX", value_parser = bbox, allow_hyphen_values = true)]
    bbox: Option<[f64; 4]>,
    /// In this coordinate reference system, as declared by the record
    #[arg(long, value_name = "CRS")]
    crs: Option<String>,
    /// With all these words in the message
    #[arg(long, value_name = "WORDS")]
    text: Option<String>,
    /// Number of failed replays: 1, or 1..3
    #[arg(long, value_name = "N", value_parser = generation)]
    generation: Option<(u32, u32)>,
}

/// Parses a bounding box: west, south, east, north.
pub(super) fn bbox(text: &str) -> Result<[f64; 4], String> {
    let numbers: Vec<f64> = text.split(',').filter_map(|n| n.trim().parse().ok()).collect();
    match <[f64; 4]>::try_from(numbers) {
        Ok([w, s, e, n]) if w <= e && s <= n => Ok([w, s, e, n]),
        _ => Err(format!("invalid bounding box {text:?}; expected west,south,east,north")),
    }
}

fn generation(text: &str) -> Result<(u32, u32), String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str, other| if text.is_empty() { Ok(other) } else { text.parse() };
    match (number(from, 0), number(to, u32::MAX)) {
        (Ok(from), Ok(to)) if from <= to => Ok((from, to)),
        _ => Err(format!("invalid number of failed replays {text:?}; expected 1 or 1..3")),
    }
}

/// Parses a date or an age; returns milliseconds since 1970.
pub(in crate::verb) fn time(text: &str, now_ms: i64) -> Result<i64, String> {
    if let Some(ago) = duration::parse(text) {
        return Ok(now_ms - ago.as_millis() as i64);
    }
    let wrong = || {
        format!("invalid time {text:?}; expected a value such as 24h, 7d, 2026-11-01 or 2026-11-01T12:00:00Z")
    };
    let (date, clock) = text.trim_end_matches('Z').split_once('T').unwrap_or((text, "00:00:00"));
    let parts = |text: &str, between: char| -> Option<Vec<i64>> {
        text.split(between).map(|n| n.parse().ok()).collect()
    };
    let (Some(date), Some(clock)) = (parts(date, '-'), parts(clock, ':')) else { return Err(wrong()) };
    let ([year, month @ 1..=12, day @ 1..=31], [hour @ 0..=23, minute @ 0..=59, second @ 0..=60]) =
        (date.as_slice(), clock.as_slice())
    else {
        return Err(wrong());
    };
    if !(0..=9999).contains(year) || *day > days_in_month(*year, *month) {
        return Err(wrong());
    }
    let days = days_from_civil(*year, *month, *day);
    Ok((days * 86_400 + hour * 3600 + minute * 60 + second) * 1000)
}

impl FilterArgs {
    pub(super) fn filter(&self, desk: &mut OpenLetterStore) -> Result<LetterFilter, CommandFailure> {
        let ids = self.id.iter().map(|id| desk.id(id)).collect::<Result<Vec<LetterId>, CommandFailure>>()?;
        let at =
            |text: &Option<String>| text.as_deref().map(|t| time(t, desk.now_ms)).transpose().map_err(usage);
        Ok(LetterFilter {
            ids,
            codes: self.code.iter().map(ToString::to_string).collect(),
            classes: self.class.clone(),
            states: self.state.clone(),
            fingerprints: self.fingerprint.clone(),
            pipeline: self.pipeline.clone(),
            stage: self.stage.clone(),
            service: self.service.clone(),
            since_ms: at(&self.since)?,
            until_ms: at(&self.until)?,
            bbox: self.bbox,
            crs: self.crs.clone(),
            text: self.text.clone(),
            generation_min: self.generation.map(|g| g.0),
            generation_max: self.generation.map(|g| g.1),
            ..LetterFilter::default()
        })
    }

    /// The filter of a command that changes letters: an empty one is refused without --all.
    pub(super) fn bounded(
        &self,
        desk: &mut OpenLetterStore,
        all: bool,
    ) -> Result<LetterFilter, CommandFailure> {
        let filter = self.filter(desk)?;
        if filter.is_empty() && !all {
            return Err(usage("no filter given; pass --all to select every letter"));
        }
        Ok(filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_boxes_and_generations() {
        assert_eq!(time("1970-01-02", 0), Ok(86_400_000));
        assert_eq!(time("2026-11-14T23:59:59Z", 0), Ok(1_794_700_799_000));
        assert_eq!(time("2000-02-29", 0), Ok(951_782_400_000));
        assert_eq!(time("24h", 86_400_000), Ok(0));
        assert!(time("yesterday", 0).is_err() && time("2026-13-01", 0).is_err());
        assert_eq!(bbox("-9,46,17,49"), Ok([-9.0, 46.0, 17.0, 49.0]));
        assert!(bbox("9,46,8,49").is_err() && bbox("1,2,3").is_err());
        assert_eq!((generation("2"), generation("1..")), (Ok((2, 2)), Ok((1, u32::MAX))));
    }
}
