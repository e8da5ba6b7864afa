//! What the parts of a pipeline say about each other: source, steps, gates and sink.
//!
//! A second file of rules beside `rules`, because these look at lists and at what a text means.

use super::form::Check;
use super::problem::{ManifestProblem, quoted};
use super::tree::{ByteRange, YamlNode, YamlValue};
use crate::secret::SecretRef;
use tidegate_core::suggest::nearest;

struct PartsChecker<'a> {
    problems: &'a mut Vec<ManifestProblem>,
}

/// Reports what does not fit together.
pub(super) fn check(root: &YamlNode, problems: &mut Vec<ManifestProblem>) {
    let Some(pipeline) = root.at(&["pipeline"]) else { return };
    let mut parts = PartsChecker { problems };
    let services: Vec<&str> = pipeline
        .at(&["services"])
        .map(YamlNode::entries)
        .unwrap_or_default()
        .iter()
        .map(|(k, _)| k.name.as_str())
        .collect();
    let (source, sink) = (pipeline.at(&["source"]), pipeline.at(&["sink"]));
    if let Some(source) = source {
        // A file of a web server may name a service, for its key and limits.
        let remote = source.at(&["file"]).and_then(YamlNode::text).is_some_and(|name| name.contains("://"));
        let keys: &[&str] = if remote { &["file", "postgis"] } else { &["file", "postgis", "service"] };
        parts.one_of(source, "source", keys);
        parts.database(source.at(&["postgis", "url"]));
        parts.source(source, &services);
        parts.bucket(source);
    }
    if let Some(sink) = sink {
        parts.one_of(sink, "sink", &["file", "postgis"]);
        parts.database(sink.at(&["postgis", "url"]));
        parts.sink(sink);
        parts.bucket(sink);
    }
    if let Some(store) = pipeline.at(&["dead_letters", "store"]) {
        let database = store.text().is_some_and(|text| text.starts_with("postgres"));
        parts.database(Some(store).filter(|_| database));
    }
    for remedy in pipeline.at(&["dead_letters", "remedies"]).map(YamlNode::items).unwrap_or_default() {
        parts.remedy(remedy);
    }
    let lonely = [("source", source, "sink", sink), ("sink", sink, "source", source)];
    for (name, there, other, missing) in lonely {
        if let (Some(there), None) = (there, missing) {
            let message = format!("there is a `{name}` and no `{other}`");
            parts.report(
                "missing_key",
                there.place.clone(),
                message,
                format!("add `{other}:` to `pipeline`"),
            );
        }
    }
    for step in pipeline.at(&["steps"]).map(YamlNode::items).unwrap_or_default() {
        parts.step(step, &services);
    }
    for gate in pipeline.at(&["gates"]).map(YamlNode::items).unwrap_or_default() {
        parts.gate(gate);
    }
    if let Some(key) = pipeline.at(&["audit", "key"]) {
        parts.secret(key);
    }
    for (_, service) in pipeline.at(&["services"]).map(YamlNode::entries).unwrap_or_default() {
        if let Some(key) = service.at(&["key"]) {
            parts.secret(key);
        }
    }
}

impl PartsChecker<'_> {
    fn report(
        &mut self,
        code: &'static str,
        place: ByteRange,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.problems.push(ManifestProblem::new(code, place, message).help(help));
    }

    fn one_of(&mut self, section: &YamlNode, name: &str, keys: &[&str]) {
        let given: Vec<_> =
            section.entries().iter().filter(|(key, _)| keys.contains(&key.name.as_str())).collect();
        let names = keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(" or ");
        // An unknown key is told of elsewhere, and is probably the one that is missed here.
        let others = [
            "layer",
            "crs",
            "batch_size",
            "mode",
            "key",
            "service",
            "paging",
            "spool",
            "tolerate",
            "patience",
            "patience_seconds",
            "store",
        ];
        let mistyped = section.entries().iter().any(|(key, _)| !others.contains(&key.name.as_str()));
        match given.as_slice() {
            [_] => {}
            [] if matches!(section.value, YamlValue::Map(_)) && !mistyped => {
                let message = format!("`{name}` says neither {}", names.replace(" or ", " nor "));
                self.report("missing_key", section.place.clone(), message, format!("give {names}"));
            }
            [_, second, ..] => {
                let both = given.iter().map(|(key, _)| format!("`{}`", key.name)).collect::<Vec<_>>();
                let message = format!("`{name}` says both {}", both.join(" and "));
                self.report("given_twice", second.0.place.clone(), message, "keep one of the two");
            }
            [] => {}
        }
    }

    /// The address of a database: a reference, or a URL without a password.
    fn database(&mut self, node: Option<&YamlNode>) {
        let Some(node) = node else { return };
        let Some(text) = node.text() else { return };
        if text.parse::<SecretRef>().is_ok() {
            return;
        }
        match url::Url::parse(text) {
            Ok(url) if !matches!(url.scheme(), "postgres" | "postgresql") => {
                let help = "write `postgres://user@host/database`, or `env:NAME`";
                self.report(
                    "range",
                    node.place.clone(),
                    "this is not the address of a PostgreSQL database",
                    help,
                );
            }
            Ok(url) if url.password().is_some() || url.query_pairs().any(|(key, _)| key == "password") => {
                let help =
                    "put the URL into a variable or a file and name it: `env:DATABASE_URL`, `file:PATH`";
                self.report("secret", node.place.clone(), "a password cannot stand in a manifest", help);
            }
            Ok(_) => {}
            Err(_) => {
                let help = "write `env:NAME`, `file:PATH` or `postgres://user@host/database`";
                self.report("range", node.place.clone(), "this is not the address of a database", help);
            }
        }
    }

    /// A name of `services`.
    fn service(&mut self, node: Option<&YamlNode>, services: &[&str]) {
        let Some((node, service)) = node.and_then(|node| Some((node, node.text()?))) else { return };
        if !services.contains(&service) {
            let help = match nearest(service, services.iter().copied()) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("add `{service}:` to `pipeline.services`"),
            };
            let message = format!("there is no service {}", quoted(service));
            self.report("unknown_key", node.place.clone(), message, help);
        }
    }

    fn source(&mut self, source: &YamlNode, services: &[&str]) {
        self.service(source.at(&["service"]), services);
        let of_pages = ["paging", "spool"];
        let paged = source.entries().iter().find(|(key, _)| of_pages.contains(&key.name.as_str()));
        if let (Some((key, _)), None) = (paged, source.at(&["service"])) {
            let help = "remove it, or name the `service` whose pages are meant";
            self.report("range", key.place.clone(), "only a service has pages", help);
        }
        if let Some(csv) = source.at(&["csv"]) {
            self.csv(source, csv);
        }
        if let Some(node) = source.at(&["tolerate"]) {
            let fits = match &node.value {
                YamlValue::Integer(n) => *n >= 0,
                YamlValue::Text(text) | YamlValue::Env(text) => {
                    crate::source::CountTolerance::parse(text).is_ok()
                }
                _ => false,
            };
            if !fits {
                let help = "give a number such as `5` or a share such as `0.1%`";
                self.report("range", node.place.clone(), "this is not a tolerance", help);
            }
        }
    }

    fn csv(&mut self, source: &YamlNode, csv: &YamlNode) {
        if source.at(&["file"]).is_none() {
            let message = "only a file can be read as rows of text";
            self.report("range", csv.place.clone(), message, "remove it, or name a `file`");
        }
        if let Some(node) = csv.at(&["delimiter"])
            && let Some(Err(why)) = node.text().map(crate::run::csv_delimiter)
        {
            self.report("range", node.place.clone(), why, "remove it to let it be guessed");
        }
        if let Some(node) = csv.at(&["encoding"])
            && let Some(Err(why)) = node.text().map(crate::run::csv_encoding)
        {
            self.report("range", node.place.clone(), why, "name an encoding such as `windows-1252`");
        }
    }

    fn bucket(&mut self, section: &YamlNode) {
        for name in ["access_key", "secret_key", "session_token"] {
            if let Some(node) = section.at(&["store", name]) {
                self.secret(node);
            }
        }
    }

    fn remedy(&mut self, remedy: &YamlNode) {
        let Some(rule) = remedy.at(&["rule"]) else { return };
        let name = rule.text().unwrap_or_default();
        let takes: &[&str] = match name {
            "crs_lookup" => &["default"],
            "make_valid" => &["tolerance"],
            "wait" => &["seconds"],
            "clip" => &["bbox"],
            "swap_axes" => &["area"],
            "remap" => &["fields"],
            "command" => &["command"],
            _ => &[],
        };
        for (key, _) in remedy.entries().iter().filter(|(key, _)| key.name != "rule") {
            if !takes.contains(&key.name.as_str()) {
                let message = format!("the rule `{name}` has no `{}`", key.name);
                self.report("unknown_key", key.place.clone(), message, "remove it");
            }
        }
        for need in ["fields", "command"].iter().filter(|need| takes.contains(need)) {
            if remedy.at(&[need]).is_none() {
                let message = format!("the rule `{name}` needs `{need}`");
                self.report("missing_key", rule.place.clone(), message, format!("add `{need}:`"));
            }
        }
    }

    fn secret(&mut self, node: &YamlNode) {
        if node.text().is_some_and(|text| text.parse::<SecretRef>().is_err()) {
            let message = "a secret is named, never written out";
            self.report("secret", node.place.clone(), message, "write `env:NAME` or `file:PATH`");
        }
    }

    fn sink(&mut self, sink: &YamlNode) {
        let mode = sink.at(&["mode"]);
        let is = |wanted: &str| mode.and_then(YamlNode::text) == Some(wanted);
        let key = sink.at(&["key"]).filter(|key| !key.items().is_empty());
        if let (true, Some(mode), None) = (is("upsert"), mode, key) {
            let message = "`mode: upsert` needs a `key`";
            let help = "add `key: [id]` with the fields that tell one record from another";
            self.report("missing_key", mode.place.clone(), message, help);
        }
        let Some(file) = sink.at(&["file"]) else {
            if let Some((key, _)) = sink.entries().iter().find(|(key, _)| key.name == "layer") {
                self.report("range", key.place.clone(), "a table has no `layer`", "remove it");
            }
            return;
        };
        let name = file.text().unwrap_or_default();
        let format = tidegate_geo::format::Format::of_path(std::path::Path::new(name));
        match format {
            None => {
                let help = "end it with .gpkg, .geojson, .geojsonl, .geojsons, .csv, .fgb, .parquet, .gml or .esrijson";
                self.report(
                    "range",
                    file.place.clone(),
                    "the name tells no format that can be written",
                    help,
                );
            }
            Some(tidegate_geo::format::Format::Shapefile) => {
                let help = "write a GeoPackage instead: it opens wherever a Shapefile does";
                self.report("range", file.place.clone(), "Shapefiles are read, not written", help);
            }
            Some(tidegate_geo::format::Format::GeoPackage) if !name.starts_with("s3://") => {}
            Some(_) => {
                let wrong = mode.filter(|_| !is("replace")).or(key.filter(|_| mode.is_none()));
                if let Some(node) = wrong {
                    let message = "this format can only be written whole";
                    let help = "use `mode: replace` without a key, or a .gpkg file or a table for `upsert` and `append`";
                    self.report("range", node.place.clone(), message, help);
                }
            }
        }
    }

    fn step(&mut self, step: &YamlNode, services: &[&str]) {
        if let Some(filter) = step.at(&["filter"])
            && let Some(Err(fault)) = filter.text().map(tidegate_geo::filter::parse)
        {
            let help = "compare fields with numbers or 'texts': `area > 100 and owner is not null`";
            self.report("expression", filter.place.clone(), fault.to_string(), help);
        }
        for name in ["geocode", "http"] {
            self.service(step.at(&[name, "service"]), services);
        }
        if let Some(geocode) = step.at(&["geocode"]) {
            self.geocode(geocode);
        }
        for key in ["set_crs", "reproject"] {
            let Some(node) = step.at(&[key]) else { continue };
            if let Some(Err(problem)) = node.text().map(str::parse::<tidegate_geo::Crs>) {
                let help = "name a system such as `EPSG:25832`";
                self.report("range", node.place.clone(), problem.message, help);
            }
        }
    }

    fn geocode(&mut self, geocode: &YamlNode) {
        if let (Some(place), true) = (geocode.at(&["place"]), geocode.at(&["address"]).is_some()) {
            let help = "give `address` to ask for a place, or `place` to ask for an address";
            self.report("range", place.place.clone(), "a step asks about an address or a place", help);
        }
        let says = geocode.at(&["outcome"]).is_some() || geocode.at(&["error_code"]).is_some();
        if let Some(node) = geocode.at(&["on_failure"])
            && node.text() == Some("keep")
            && !says
        {
            let message = "a record that failed would look like a good one";
            let help = "add `outcome: outcome`, so that a field says which records failed";
            self.report("missing_key", node.place.clone(), message, help);
        }
    }

    fn gate(&mut self, gate: &YamlNode) {
        let Some(check) = gate.at(&["check"]) else { return };
        let name = check.text().unwrap_or_default();
        let Ok(kind) = serde_json::from_value::<Check>(serde_json::Value::from(name)) else { return };
        let (needs, takes): (&[&str], &[&str]) = match kind {
            Check::NullRate => (&[], &["fields"]),
            Check::NotNull | Check::Unique => (&["fields"], &[]),
            Check::Precision => (&["decimals"], &[]),
            Check::Bbox => (&["bbox"], &[]),
            Check::Type => (&["fields", "is"], &[]),
            Check::Range => (&["fields"], &["min", "max"]),
            Check::OneOf => (&["fields", "values"], &[]),
            Check::Count => (&[], &["min", "max"]),
            _ => (&[], &[]),
        };
        for need in needs.iter().filter(|need| gate.at(&[need]).is_none()) {
            let message = format!("a gate `{name}` needs `{need}`");
            self.report("missing_key", check.place.clone(), message, format!("add `{need}:` to this gate"));
        }
        for (key, _) in gate.entries() {
            let own =
                ["fields", "min", "max", "is", "values", "decimals", "bbox"].contains(&key.name.as_str());
            if own && !needs.contains(&key.name.as_str()) && !takes.contains(&key.name.as_str()) {
                let message = format!("a gate `{name}` has no `{}`", key.name);
                self.report("unknown_key", key.place.clone(), message, "remove it");
            }
        }
        let bounded = gate.at(&["min"]).is_some() || gate.at(&["max"]).is_some();
        if matches!(kind, Check::Range | Check::Count) && !bounded {
            let message = format!("a gate `{name}` needs `min` or `max`");
            self.report("missing_key", check.place.clone(), message, "add one of the two, or both");
        }
        if let (Check::NullRate | Check::Count, Some(node)) = (kind, gate.at(&["severity"]))
            && node.text() == Some("reject")
        {
            let message = format!("a gate `{name}` looks at no single record and cannot reject one");
            self.report("range", node.place.clone(), message, "give `warn` or `halt`");
        }
    }
}
