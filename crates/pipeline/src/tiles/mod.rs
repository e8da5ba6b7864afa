//! Tiles of a map service into a file or a directory: each once, resumable.
//!
//! A service is described by the template of its addresses, so XYZ, TMS, WMTS and WMS are one thing:
//! `{z}`, `{x}`, `{y}` (rows from the north), `{-y}` (rows from the south), the names of WMTS
//! (`{TileMatrix}`, `{TileCol}`, `{TileRow}`), and `{bbox}` in metres of Web Mercator for GetMap.
//!
//! The calls go through the lane of the host like all others. A tile ends in one of three ways: it
//! is there, the service has none (204, 404), or it failed; only the first two are in the book of the
//! output, so that the next fetch asks for the rest. What a tile is, its bytes say (`judge`): an error page,
//! XML, JSON or text in a 200 is none, whatever it is called.

mod judge;
mod pmtiles;
mod store;

pub use store::{TileCounts, TileEnd, TileStore, TileStoreError};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::http::StatusCode;
use futures_util::{StreamExt, stream};
use tidegate_core::call::CallPolicy;
use tidegate_core::content::ContentKind;
use tidegate_core::lane::LaneConfig;
use tidegate_core::{Code, Rng, VerdictKind, quote};
use tidegate_geo::tile::{TileCover, TileId};
use url::Url;

use crate::call::{self, CallOutcome, Later, RefusalCounter, SettingsOf};
use crate::http::{
    self, Allow, Answered, Client, ClientConfig, Exchange, ParsedResponse, Request, Response, ServiceDialect,
    Trace,
};
use crate::lane::{Clock, LaneStates, Lanes};
use crate::profile::Profile;
use crate::secret::Redactor;
use judge::TileContent;

/// Tiles that are written in one transaction, at most.
const BATCH: usize = 16;
/// How long a tile waits for others at most. What is lost if the process is killed is fetched again.
const WRITE_AFTER: Duration = Duration::from_millis(500);
/// The failures that are listed.
const LISTED: usize = 10;
/// The bytes in which a message is looked for, and its characters that are shown.
const SAID_BYTES_MAX: usize = 64 << 10;
const SAID_CHARS_MAX: usize = 200;

/// The address of each tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TileTemplate(String);

impl TileTemplate {
    /// Reads a template; `None` if the text names no tile.
    #[must_use]
    pub fn parse(url: &str) -> Option<TileTemplate> {
        // A URL that was parsed before has its braces escaped.
        let text = url.replace("%7B", "{").replace("%7D", "}");
        let has = |names: [&str; 2]| names.iter().any(|name| text.contains(name));
        let is_tile = has(["{z}", "{TileMatrix}"])
            && has(["{x}", "{TileCol}"])
            && (has(["{y}", "{-y}"]) || text.contains("{TileRow}"));
        (is_tile || text.contains("{bbox}")).then_some(TileTemplate(text))
    }

    /// The template as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address of a tile.
    ///
    /// # Errors
    /// When it is no URL.
    pub fn url(&self, tile: TileId) -> Result<Url, String> {
        let [west, south, east, north] = tile.mercator_box();
        let (z, x, y) = (tile.z.to_string(), tile.x.to_string(), tile.y.to_string());
        let text = self
            .0
            .replace("{z}", &z)
            .replace("{TileMatrix}", &z)
            .replace("{x}", &x)
            .replace("{TileCol}", &x)
            .replace("{-y}", &tile.row_from_south().to_string())
            .replace("{y}", &y)
            .replace("{TileRow}", &y)
            .replace("{bbox}", &format!("{west},{south},{east},{north}"));
        Url::parse(&text).map_err(|e| format!("{text}: {e}"))
    }

    /// The extension of the files: the format that the address names, else `png`.
    #[must_use]
    pub fn extension(&self) -> &'static str {
        self.named().unwrap_or("png")
    }

    /// Whether the address names vector tiles, if it names a format.
    fn is_vector(&self) -> Option<bool> {
        self.named().map(|extension| extension == "pbf")
    }

    /// The format that the end of the path names, or a query asks for.
    fn named(&self) -> Option<&'static str> {
        let text = self.0.to_ascii_lowercase();
        let path = text.split('?').next().unwrap_or_default();
        let known = [
            ("jpg", "jpg"),
            ("jpeg", "jpg"),
            ("webp", "webp"),
            ("pbf", "pbf"),
            ("mvt", "pbf"),
            ("png", "png"),
        ];
        let by_path = known.iter().find(|(end, _)| path.ends_with(&format!(".{end}")));
        let by_query = || known.iter().find(|(name, _)| text.contains(&format!("image/{name}")));
        by_path.or_else(by_query).map(|(_, extension)| *extension)
    }
}

/// What is fetched, and how.
pub struct TileJob {
    /// The addresses.
    pub template: TileTemplate,
    /// The tiles.
    pub cover: TileCover,
    /// How the service answers.
    pub profile: Profile,
    /// The policy of a call.
    pub policy: CallPolicy,
    /// The limits of the lane.
    pub lane: LaneConfig,
    /// The longest wait that the service may ask for.
    pub patience: Duration,
    /// The User-Agent.
    pub user_agent: Option<String>,
    /// The addresses that are allowed: a private address, other hosts.
    pub allow: (bool, Vec<String>),
    /// The directory where the waits that a server asked for are kept.
    pub state: std::path::PathBuf,
}

/// What came of a fetch.
#[derive(Clone, Debug, Default)]
pub struct TileReport {
    /// The number of calls.
    pub calls: u64,
    /// The tiles that were there before.
    pub known: u64,
    /// The tiles that could not be fetched.
    pub failed: u64,
    /// The first of them, with the reason.
    pub failures: Vec<String>,
    /// What the output holds of the tiles that were asked for.
    pub counts: TileCounts,
    /// Why it ended before its time.
    pub ended: Option<TileStop>,
}

/// Why a fetch ended before its time. What came is in the output.
#[derive(Clone, Debug)]
pub enum TileStop {
    /// The service asks for more time.
    Later(Later),
    /// The service refuses every tile.
    Refused(String),
    /// It was interrupted.
    Stopped,
}

/// The end of one call.
type TileOutcome = (TileId, Result<CallOutcome<Answered<TileContent>>, Later>);

impl TileJob {
    /// Fetches what the output does not hold yet. `progress` gets the number of tiles that ended.
    ///
    /// # Errors
    /// When the service cannot be called at all, or the output cannot be written.
    pub fn run(
        &self,
        store: &mut TileStore,
        stop: &AtomicBool,
        progress: &dyn Fn(u64),
    ) -> Result<TileReport, String> {
        let first = self.cover.tiles().next().ok_or("no tiles")?;
        let base = self.template.url(first)?;
        let mut config = ClientConfig {
            allow: Allow::meant(&base, self.allow.0, &self.allow.1),
            ..ClientConfig::default()
        };
        config.body.bytes_max = self.profile.body_bytes_max();
        if let Some(agent) = &self.user_agent {
            config.user_agent =
                agent.parse().map_err(|_| format!("the User-Agent {agent:?} is not a valid header value"))?;
        }
        let clock = Clock::system();
        let lanes = Lanes::new(&self.lane, clock).keeping(LaneStates::open_within(
            &self.state,
            clock,
            self.lane.wait_max,
        ));
        let ServiceDialect { classifier, hints, read } = self.profile.plain_dialect();
        let is_vector = self.template.is_vector();
        let dialect = ServiceDialect {
            classifier: classifier.for_lane(&self.lane),
            hints,
            read: Arc::new(move |response: &Response| {
                let content = TileContent::of(&response.body);
                let is_tile = response.status == StatusCode::OK;
                let strange = || content.finding(is_vector).filter(|_| is_tile);
                (read(response).0.or_else(strange), content)
            }),
        };
        let exchange = Exchange {
            client: Client::new(config, [&base]).map_err(|e| e.to_string())?,
            lanes: lanes.clone(),
            dialect,
            policy: self.policy,
            redactor: Arc::new(Redactor::new()),
            trace: Trace::Off,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|e| e.to_string())?;
        let report = runtime.block_on(self.fetch(&exchange, store, stop, progress));
        lanes.flush();
        report
    }

    async fn fetch(
        &self,
        exchange: &Exchange<TileContent>,
        store: &mut TileStore,
        stop: &AtomicBool,
        progress: &dyn Fn(u64),
    ) -> Result<TileReport, String> {
        let mut report = TileReport::default();
        let refusals = RefusalCounter::new(false);
        let at_once = self.lane.limit.in_flight_max.clamp(1, 64) as usize;
        let mut tiles = self.cover.tiles();
        let (mut ended, mut is_over) = (0, false);
        let mut calls = stream::FuturesUnordered::new();
        let mut came: Vec<(TileId, TileEnd)> = Vec::new();
        let mut written = Instant::now();
        loop {
            while !is_over && calls.len() < at_once {
                if stop.load(Ordering::Relaxed) {
                    report.ended = Some(TileStop::Stopped);
                    is_over = true;
                    break;
                }
                let Some(tile) = tiles.next() else { break };
                if store.has(tile)? {
                    report.known += 1;
                    ended += 1;
                    continue;
                }
                calls.push(self.call(exchange, tile));
            }
            let Some((tile, outcome)) = calls.next().await else { break };
            match self.end(outcome, &refusals) {
                Ok((end, attempts)) => {
                    report.calls += attempts;
                    came.push((tile, end));
                }
                Err(TileFailure::Stop(why)) => {
                    // Calls that are out come home; nothing new is sent.
                    report.ended.get_or_insert(why);
                    is_over = true;
                }
                Err(TileFailure::Tile(why, attempts)) => {
                    report.calls += attempts;
                    report.failed += 1;
                    if report.failures.len() < LISTED {
                        report.failures.push(format!("{}/{}/{}: {why}", tile.z, tile.x, tile.y));
                    }
                }
            }
            ended += 1;
            if came.len() >= BATCH || calls.is_empty() || written.elapsed() >= WRITE_AFTER {
                store.put(&came)?;
                came.clear();
                written = Instant::now();
            }
            progress(ended);
        }
        store.put(&came)?;
        report.counts = store.count(self.cover.tiles())?;
        let there = report.counts.tiles + report.counts.nothing;
        if report.ended.is_none() && there == self.cover.count() {
            store.finish()?;
        }
        Ok(report)
    }

    async fn call(&self, exchange: &Exchange<TileContent>, tile: TileId) -> TileOutcome {
        let request = match self.template.url(tile) {
            Ok(url) => Request::get(url),
            // The first address was checked, and only numbers differ.
            Err(said) => {
                let until = exchange.lanes.clock().wall();
                return (tile, Err(Later { code: Code::BAD_REQUEST, until, said }));
            }
        };
        let lane = exchange.lane(&request);
        let seed = u64::from(tile.z) << 58 ^ u64::from(tile.x) << 29 ^ u64::from(tile.y);
        let ask = |number| exchange.call_in(&lane, &request, Rng::fork(seed, u64::from(number)));
        (tile, call::patient(&lane, self.patience, ask).await)
    }

    fn end(
        &self,
        outcome: Result<CallOutcome<Answered<TileContent>>, Later>,
        refusals: &RefusalCounter,
    ) -> Result<(TileEnd, u64), TileFailure> {
        let outcome = outcome.map_err(|later| TileFailure::Stop(TileStop::Later(later)))?;
        let attempts = u64::from(outcome.attempts());
        let is_none = outcome.verdict.kind == VerdictKind::NoMatch || outcome.verdict.code == Code::NOT_FOUND;
        if is_none {
            return Ok((TileEnd::Nothing, attempts));
        }
        if let Some(why) = refusals.count(&outcome.verdict) {
            let host = self.template.as_str().split('/').nth(2).unwrap_or_default();
            let said = call::refused(&why, host, "", &SettingsOf::Options);
            return Err(TileFailure::Stop(TileStop::Refused(said)));
        }
        match outcome.value {
            Some(Ok(answer)) if outcome.next == tidegate_core::call::Next::Accept => {
                let (kind, data) = (answer.read.kind, answer.response.body.to_vec());
                Ok((TileEnd::Bytes { kind, data }, attempts))
            }
            value => {
                let status = outcome.verdict.status.map(|status| format!(" ({status})")).unwrap_or_default();
                let said = match &value {
                    Some(Ok(answer)) => said(answer),
                    _ => String::new(),
                };
                Err(TileFailure::Tile(format!("{}{status}{said}", outcome.verdict.code), attempts))
            }
        }
    }
}

/// What came in place of a tile: the message in it, or else what it is.
fn said(answer: &ParsedResponse<TileContent>) -> String {
    let body = &answer.response.body;
    let start = body.get(..body.len().min(SAID_BYTES_MAX)).unwrap_or_default();
    if let Some(message) = http::message(start) {
        let message: String = message.split_whitespace().collect::<Vec<_>>().join(" ");
        let short: String = message.chars().take(SAID_CHARS_MAX).collect();
        return format!(": the service said {}", quote::said(&short));
    }
    match answer.read.kind {
        ContentKind::Empty if !answer.response.status.is_success() => String::new(),
        kind => format!(": the service sent {}", kind.name()),
    }
}

/// Why a tile is not there.
enum TileFailure {
    /// It failed, after so many attempts.
    Tile(String, u64),
    /// The fetch ends.
    Stop(TileStop),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_names_each_tile() {
        let tile = TileId { z: 2, x: 1, y: 0 };
        for (template, url) in [
            ("https://t.test/%7Bz%7D/%7Bx%7D/%7By%7D.png", "https://t.test/2/1/0.png"),
            ("https://t.test/{z}/{x}/{-y}.pbf", "https://t.test/2/1/3.pbf"),
            ("https://t.test/wmts?m={TileMatrix}&c={TileCol}&r={TileRow}", "https://t.test/wmts?m=2&c=1&r=0"),
        ] {
            assert_eq!(TileTemplate::parse(template).unwrap().url(tile).unwrap().as_str(), url);
        }
        let wms = TileTemplate::parse("https://t.test/wms?bbox={bbox}&format=image/jpeg").unwrap();
        let url = wms.url(TileId { z: 1, x: 1, y: 0 }).unwrap();
        assert!(url.as_str().contains("bbox=0,0,20037508.342789244,20037508.342789244"), "{url}");
        assert_eq!(wms.extension(), "jpg");
        assert_eq!(TileTemplate::parse("https://t.test/{z}/{x}"), None);
    }
}
