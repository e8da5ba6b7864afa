//! `dlq map`: the letters on a map, as one self-contained page.
//!
//! The script of the page only inserts text, never markup, and the content security policy blocks
//! everything external. So a message from a hostile service cannot inject code.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate_core::letter::blur;
use tidegate_core::quote::shell;
use tidegate_core::time::calendar::rfc3339;
use tidegate_ledger::audit::AuditEvent;
use tidegate_ledger::letter::store::LetterPage;
use tidegate_ledger::letter::{Letter, LetterError, LetterFilter, LetterStore};

use super::filter::FilterArgs;
use super::list::coarse;
use super::rasters::RasterLetters;
use super::subject::record;
use super::{Done, OpenLetterStore};
use crate::exit::Exit;
use crate::out;
use crate::progress::thousands;
use crate::report::LAND;

/// Write an interactive map of letters as one self-contained HTML file
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    filter: FilterArgs,
    /// Output file
    #[arg(short, long, value_name = "FILE.html")]
    output: PathBuf,
    /// Maximum number of letters, newest first
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5000)]
    limit: u32,
    /// Show exact coordinates; the reason is recorded in the audit
    #[arg(long, value_name = "WHY")]
    reveal: Option<String>,
    /// With --reveal, show pictures of the rasters in this directory that letters name
    #[arg(long, value_name = "DIR", requires = "reveal")]
    rasters: Option<PathBuf>,
}

pub(super) fn run(args: &Args, desk: &mut OpenLetterStore) -> Done {
    let filter = args.filter.filter(desk)?;
    let exact = args.reveal.is_some();
    if let Some(why) = &args.reveal {
        let detail = json!({ "verb": "map", "why": why });
        desk.store.enter(AuditEvent::new(desk.now_ms, "reveal", detail))?;
    }
    let mut drawing = Drawing::new(exact, args.rasters.as_deref());
    drawing.add(&mut desk.store, &filter, args.limit)?;
    std::fs::write(&args.output, drawing.page(desk.now_ms, None))?;
    out::say(&format!("{}: {}", args.output.display(), drawing.told()));
    Ok(Exit::Done)
}

/// The letters to draw, possibly of several stores.
pub(in crate::verb) struct Drawing {
    letters: Vec<Value>,
    /// The number of matching letters, drawn or not.
    all: u64,
    exact: bool,
    rasters: RasterLetters,
}

impl Drawing {
    /// An empty map; pictures are those of rasters in a directory.
    pub(in crate::verb) fn new(exact: bool, rasters: Option<&Path>) -> Drawing {
        Drawing { letters: Vec::new(), all: 0, exact, rasters: RasterLetters::in_directory(rasters) }
    }

    /// Adds the newest letters of a store.
    pub(in crate::verb) fn add(
        &mut self,
        store: &mut LetterStore,
        filter: &LetterFilter,
        limit: u32,
    ) -> Result<(), LetterError> {
        self.all += store.count(filter)?;
        let command = format!(" --store {}", shell(&store.place().to_string()));
        let rows = store.find(filter, LetterPage { limit, newest_first: true, payload: false })?;
        for row in &rows {
            let mut shown = dot(&row.letter, self.exact, &command);
            self.rasters.add(store, &row.letter, self.exact, &mut shown)?;
            self.letters.push(shown);
        }
        Ok(())
    }

    /// A sentence with the number of letters.
    fn told(&self) -> String {
        format!(
            "{} of {} letters, {}",
            thousands(self.letters.len() as u64),
            thousands(self.all),
            if self.exact { "exact coordinates" } else { "coordinates rounded to 0.1 degrees" }
        )
    }

    /// Renders the page. A served page has a nonce for its style and script.
    pub(in crate::verb) fn page(&self, now_ms: i64, served: Option<&str>) -> String {
        html(&self.letters, self.exact, &self.told(), &rfc3339(now_ms), served)
    }
}

/// The content security policy: only style and script with this nonce, and pictures that are in the page.
pub(in crate::verb) fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; style-src 'nonce-{nonce}' 'unsafe-hashes'; script-src 'nonce-{nonce}'; \
         img-src data:; base-uri 'none'; form-action 'none'"
    )
}

fn dot(letter: &Letter, exact: bool, command: &str) -> Value {
    let s = letter.spatial.as_ref();
    let middle = s.and_then(|s| match (&s.defect, s.bbox) {
        (Some(defect), _) => Some((defect.lon, defect.lat)),
        // Of a box that exceeds the range of degrees, the middle of the part within it.
        (None, Some([w, s, e, n])) if w <= 180.0 && e >= -180.0 && s <= 90.0 && n >= -90.0 => {
            Some((f64::midpoint(w.max(-180.0), e.min(180.0)), f64::midpoint(s.max(-90.0), n.min(90.0))))
        }
        (None, _) => None,
    });
    let middle = middle.filter(|(x, y)| x.abs() <= 180.0 && y.abs() <= 90.0);
    let place = |x: f64| if exact { x } else { coarse(x) };
    let said = |text: &str| if exact { text.to_owned() } else { blur(text) };
    let f = &letter.failure;
    json!({
        "id": letter.id.to_string(), "code": f.code.as_str(), "class": f.class.as_str(), "state": letter.state.as_str(),
        "message": said(&f.message), "normal": letter.normal_message(), "fingerprint": letter.fingerprint().to_string(),
        "pipeline": letter.pipeline, "stage": letter.stage, "service": f.service, "times": letter.times,
        "record": record(letter), "first": rfc3339(letter.first_failed_ms()), "last": rfc3339(letter.last_seen_ms),
        "generation": letter.lineage.generation, "crs": s.map(|s| s.source_crs.as_str()),
        "defect": s.and_then(|s| s.defect.as_ref()).map(|d| said(&d.reason)),
        "source": format!("{} {}", letter.source.uri, letter.source.position).trim(),
        "store": command, "lon": middle.map(|m| place(m.0)), "lat": middle.map(|m| place(m.1)),
    })
}

/// The view around the letters, twice as wide as high.
fn view(letters: &[Value]) -> [f64; 4] {
    let all = letters.iter().filter_map(|l| Some((l["lon"].as_f64()?, l["lat"].as_f64()?)));
    let (mut w, mut n, mut e, mut s) = (f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY);
    for (lon, lat) in all {
        let (x, y) = ((lon + 180.0) * 10.0, (90.0 - lat) * 10.0);
        (w, n, e, s) = (w.min(x), n.min(y), e.max(x), s.max(y));
    }
    if w > e {
        return [0.0, 0.0, 3600.0, 1800.0];
    }
    let width = ((e - w) * 1.2).max((s - n) * 2.4).clamp(60.0, 3600.0);
    [f64::midpoint(w, e) - width / 2.0, f64::midpoint(n, s) - width / 4.0, width, width / 2.0]
}

fn html(letters: &[Value], exact: bool, told: &str, made: &str, served: Option<&str>) -> String {
    let nonce = served.unwrap_or("page");
    let home = if served.is_some() { "<a href=\"/\">overview</a>" } else { "" };
    let data = json!({ "letters": letters, "view": view(letters), "exact": exact }).to_string();
    // Only `<` could close the script element.
    let data = data.replace('<', "\\u003c");
    let options: String = ["fingerprint", "code", "class", "state", "pipeline", "stage", "service", "crs"]
        .map(|name| format!("<option>{name}</option>"))
        .concat();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Dead letters · Tidegate</title><style nonce=\"{nonce}\">{css}</style></head><body>\
         <header><h1>Dead letters</h1>{home}<p>{told}, {made}</p>\
         <label>group by <select id=\"by\">{options}</select></label>\
         <input id=\"text\" type=\"search\" placeholder=\"filter by text\" aria-label=\"filter by text\">\
         <p id=\"shown\" aria-live=\"polite\"></p></header>\
         <main id=\"map\"><svg role=\"img\" aria-label=\"Map of dead letters\"><path class=\"land\" d=\"{land}\"/>\
         <g id=\"extents\"></g><g id=\"dots\"></g></svg><div id=\"zoom\"><button id=\"in\" aria-label=\"zoom in\">+</button>\
         <button id=\"out\" aria-label=\"zoom out\">−</button><button id=\"all\" aria-label=\"show all\">⤢</button></div>\
         <footer>Land: Natural Earth, public domain</footer></main>\
         <aside><h2>Groups</h2><div id=\"groups\"></div>\
         <details id=\"unplaced\" hidden></details><div id=\"story\"><p>Select a point to see its details.</p></div></aside>\
         <script id=\"data\" type=\"application/json\" nonce=\"{nonce}\">{data}</script>\
         <script nonce=\"{nonce}\">{js}</script></body></html>\n",
        policy = policy(nonce),
        css = include_str!("map.css"),
        js = include_str!("map.js"),
        land = LAND.trim_end(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_message_stays_a_message() {
        let mut letter = Letter::default();
        letter.failure.message = "</script><script>alert(1)</script>".into();
        let page = html(&[dot(&letter, false, "")], false, "1 letter", "now", None);
        assert_eq!(page.matches("<script").count(), 2);
        assert!(page.contains("\\u003c/script>"));
        assert_eq!(view(&[dot(&letter, false, "")]), [0.0, 0.0, 3600.0, 1800.0]);
    }
}
