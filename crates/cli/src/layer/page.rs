//! An HTML page about a file: its layers as tables and a map.

use std::fmt::Write;

use tidegate_sim::report::{escape, html};

use super::sample::Polyline;
use crate::report::map;

/// One layer of the page.
pub(crate) struct PageLayer {
    /// Its name.
    pub(crate) name: String,
    /// Its properties: names and values.
    pub(crate) facts: Vec<(String, String)>,
    /// Its fields; the first row is the header.
    pub(crate) fields: Vec<Vec<String>>,
    /// Its problems; the first row is the header.
    pub(crate) troubles: Vec<Vec<String>>,
    /// The lines to draw; in degrees if `on_land`.
    pub(crate) lines: Vec<Polyline>,
    /// Whether the coordinates are longitude and latitude.
    pub(crate) on_land: bool,
    /// The positions of the defects.
    pub(crate) defects: Vec<(f64, f64)>,
    /// Whether the layer has no problems.
    pub(crate) good: bool,
}

/// The page about a file.
pub(crate) fn page(file: &str, layers: &[PageLayer]) -> String {
    let good = layers.iter().all(|layer| layer.good);
    let (class, mark, word) =
        if good { ("good", "✓", "all records valid") } else { ("bad", "✗", "some records invalid") };
    let plural = if layers.len() == 1 { "layer" } else { "layers" };
    let header = format!(
        "<h1>{}</h1><p class=\"reason\">{} {plural}</p><span class=\"badge {class}\">{mark} {word}</span>",
        escape(file),
        layers.len(),
    );
    let mut main = String::new();
    for layer in layers {
        let _ = write!(main, "<section><h2>{}</h2>", escape(&layer.name));
        if !layer.lines.is_empty() {
            let drawn = if layer.on_land {
                map::on_land(&layer.lines, &layer.defects)
            } else {
                map::plain(&layer.lines, &layer.defects)
            };
            let _ = write!(main, "<figure>{drawn}</figure>");
        }
        main.push_str("<div class=\"tables\">");
        let head = vec!["fact".to_owned(), "value".to_owned()];
        let facts = layer.facts.iter().map(|(name, value)| vec![name.clone(), value.clone()]);
        let facts: Vec<_> = [head].into_iter().chain(facts).collect();
        for (title, rows) in [("Layer", &facts), ("Fields", &layer.fields), ("Troubles", &layer.troubles)] {
            if rows.len() > 1 {
                let _ = write!(main, "<div class=\"wide\">{}</div>", html::rows_html(title, rows));
            }
        }
        main.push_str("</div></section>");
    }
    let footer = format!("Tidegate {}. Land: Natural Earth, public domain.", env!("CARGO_PKG_VERSION"));
    html::page(&format!("{file} · Tidegate"), &header, &main, &footer)
}
