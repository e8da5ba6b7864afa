//! Conditions between the parts of a pipeline: source, steps, gates and sink.
//!
//! Separate from `rules`, because these examine lists and the meaning of strings.

mod addresses;
mod lanes;

use super::form::Check;
use super::problem::{ManifestProblem, quoted};
use super::tree::{ByteRange, YamlNode, YamlValue};
use crate::child::is_name;
use crate::gate::drift::DriftTolerance;
use crate::letter::remedy::RepairRule;
use crate::objects::AllowedObjects;
use crate::secret::secret_in_url;
use tidegate_core::Code;
use tidegate_core::letter::auto::ReplayLimit;
use tidegate_core::quote::scheme;
use tidegate_core::suggest::nearest;
use tidegate_core::taxonomy::KNOWN;

struct PartsChecker<'a> {
    problems: &'a mut Vec<ManifestProblem>,
}

/// Reports every violated condition.
pub(super) fn check(root: &YamlNode, problems: &mut Vec<ManifestProblem>) {
    addresses::check(root, problems);
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
        // A file on a web server may name a service, for its key and limits.
        let remote = source.at(&["file"]).and_then(YamlNode::text).is_some_and(|name| name.contains("://"));
        let keys: &[&str] = if remote {
            &["file", "postgis", "queue", "rasters"]
        } else {
            &["file", "postgis", "service", "queue", "rasters"]
        };
        parts.one_of(source, "source", keys);
        parts.database(source.at(&["postgis", "url"]));
        parts.source(source, &services);
    }
    if let Some(sink) = sink {
        parts.one_of(sink, "sink", &["file", "postgis"]);
        parts.database(sink.at(&["postgis", "url"]));
        parts.sink(sink);
    }
    if let Some(store) = pipeline.at(&["dead_letters", "store"]) {
        parts.letter_store(store);
    }
    parts.lanes(pipeline);
    for remedy in pipeline.at(&["dead_letters", "remedies"]).map(YamlNode::items).unwrap_or_default() {
        parts.remedy(remedy);
    }
    for action in pipeline.at(&["alerts", "actions"]).map(YamlNode::items).unwrap_or_default() {
        parts.action(action);
    }
    for rule in pipeline.at(&["dead_letters", "auto"]).map(YamlNode::items).unwrap_or_default() {
        parts.auto_remedy(rule);
    }
    let lonely = [("source", source, "sink", sink), ("sink", sink, "source", source)];
    for (name, there, other, missing) in lonely {
        if let (Some(there), None) = (there, missing) {
            let message = format!("`{name}` is given without `{other}`");
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
    for (name, service) in pipeline.at(&["services"]).map(YamlNode::entries).unwrap_or_default() {
        parts.fallback(&name.name, service, &services);
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

    /// Checks that the fallbacks of a service are other services of the manifest.
    fn fallback(&mut self, name: &str, service: &YamlNode, services: &[&str]) {
        for node in service.at(&["fallback"]).map(YamlNode::items).unwrap_or_default() {
            self.service(Some(node), services);
            if node.text() == Some(name) {
                let message = format!("{} cannot be its own fallback", quoted(name));
                self.report("repeated", node.place.clone(), message, "name another service");
            }
        }
    }

    fn one_of(&mut self, section: &YamlNode, name: &str, keys: &[&str]) {
        let given: Vec<_> =
            section.entries().iter().filter(|(key, _)| keys.contains(&key.name.as_str())).collect();
        let names = keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(" or ");
        // An unknown key is reported elsewhere, and is probably the one missing here.
        let others = [
            "layer",
            "format",
            "crs",
            "batch_size",
            "mode",
            "key",
            "deleted",
            "max_deleted",
            "history",
            "service",
            "paging",
            "spool",
            "assets",
            "tolerate",
            "since",
            "patience",
            "patience_seconds",
            "store",
        ];
        let mistyped = section.entries().iter().any(|(key, _)| !others.contains(&key.name.as_str()));
        match given.as_slice() {
            [_] => {}
            [] if matches!(section.value, YamlValue::Map(_)) && !mistyped => {
                let message = format!("`{name}` says neither {}", names.replace(" or ", " nor "));
                self.report("missing_key", section.place.clone(), message, format!("use {names}"));
            }
            [_, second, ..] => {
                let both = given.iter().map(|(key, _)| format!("`{}`", key.name)).collect::<Vec<_>>();
                let message = format!("`{name}` has both {}", both.join(" and "));
                self.report("given_twice", second.0.place.clone(), message, "keep one of the two");
            }
            [] => {}
        }
    }

    /// Checks the URL of a database that is no reference.
    fn database(&mut self, node: Option<&YamlNode>) {
        let Some(node) = node else { return };
        let Some(text) = node.text() else { return };
        // A credential in it is reported by `addresses`.
        if addresses::is_reference(text) || secret_in_url(text).is_some() {
            return;
        }
        match url::Url::parse(text) {
            Ok(url) if !matches!(url.scheme(), "postgres" | "postgresql") => {
                let help = "use `postgres://user@host/database` or `env:NAME`";
                self.report("range", node.place.clone(), "not a PostgreSQL URL", help);
            }
            Ok(_) => {}
            Err(_) => {
                let help = "use `env:NAME`, `file:PATH` or `postgres://user@host/database`";
                self.report("range", node.place.clone(), "not a database URL", help);
            }
        }
    }

    /// Checks the location of dead letters: a file, a database, or a reference to either.
    fn letter_store(&mut self, node: &YamlNode) {
        let Some(text) = node.text() else { return };
        match scheme(text) {
            _ if addresses::is_reference(text) || secret_in_url(text).is_some() => {}
            None => {}
            Some("postgres" | "postgresql") => self.database(Some(node)),
            Some(other) => {
                let message = format!("{other}:// cannot hold dead letters");
                let help = "use a file, `postgres://user@host/database` or `env:NAME`";
                self.report("range", node.place.clone(), message, help);
            }
        }
    }

    /// Checks a name in `services`.
    fn service(&mut self, node: Option<&YamlNode>, services: &[&str]) {
        let Some((node, service)) = node.and_then(|node| Some((node, node.text()?))) else { return };
        if !services.contains(&service) {
            let help = match nearest(service, services.iter().copied()) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("add `{service}:` to `pipeline.services`"),
            };
            let message = format!("unknown service {}", quoted(service));
            self.report("unknown_key", node.place.clone(), message, help);
        }
    }

    fn source(&mut self, source: &YamlNode, services: &[&str]) {
        self.service(source.at(&["service"]), services);
        let of_pages = ["paging", "spool", "assets"];
        let paged = source.entries().iter().find(|(key, _)| of_pages.contains(&key.name.as_str()));
        if let (Some((key, _)), None) = (paged, source.at(&["service"])) {
            let help = "remove it, or set `service`";
            let message = match key.name.as_str() {
                "assets" => "`assets` requires a `service`",
                _ => "`paging` and `spool` require a `service`",
            };
            self.report("range", key.place.clone(), message, help);
        }
        if let (Some(_), Some(since)) = (source.at(&["assets"]), source.at(&["since"])) {
            let message = "`since` does not go with `assets`; put a time into the URL of the service";
            self.report("range", since.place.clone(), message, "remove it");
        }
        if let Some(csv) = source.at(&["csv"]) {
            self.csv(source, csv);
        }
        self.queue(source);
        if let (Some(format), None) = (source.at(&["format"]), source.at(&["file"])) {
            let help = "remove it, or set `file`; `paging.body` is for the pages of a service";
            self.report("range", format.place.clone(), "`format` requires a `file`", help);
        }
        if let Some(node) = source.at(&["tolerate"]) {
            self.tolerance(node);
        }
        if let (Some(since), Some(_)) = (source.at(&["since"]), source.at(&["file"])) {
            let message = "`since` requires a `service` or a table; a file is read as a whole";
            self.report("range", since.place.clone(), message, "remove it");
        }
    }

    /// A queue has tasks, and only a queue has.
    fn queue(&mut self, source: &YamlNode) {
        let (queue, tasks) = (source.at(&["queue"]), source.at(&["tasks"]));
        self.objects(source.at(&["tasks", "objects"]));
        let of_queue =
            source.entries().iter().find(|(key, _)| ["group", "tasks"].contains(&key.name.as_str()));
        match (queue, tasks, of_queue) {
            (Some(queue), None, _) => {
                let message = "a `queue` requires `tasks`, with the fields of the records";
                let help = "add `tasks: { fields: { id: int, name: string } }`";
                self.report("missing_key", queue.place.clone(), message, help);
            }
            (None, _, Some((key, _))) => {
                let message = "`group` and `tasks` require a `queue`";
                self.report("range", key.place.clone(), message, "remove it, or set `queue`");
            }
            _ => {}
        }
        if let (Some(_), Some(since)) = (queue, source.at(&["since"])) {
            let message = "`since` requires a `service` or a table; a queue delivers each task once";
            self.report("range", since.place.clone(), message, "remove it");
        }
    }

    /// What may be opened by data: hosts and buckets as they can be compared.
    fn objects(&mut self, objects: Option<&YamlNode>) {
        let Some(objects) = objects else { return };
        let mut allowed = AllowedObjects::default();
        for name in ["hosts", "buckets"] {
            for node in objects.at(&[name]).map(YamlNode::items).unwrap_or_default() {
                let Some(text) = node.text() else { continue };
                let added = if name == "hosts" { allowed.host(text) } else { allowed.bucket(text) };
                if let Err(why) = added {
                    self.report("range", node.place.clone(), why.to_string(), why.help());
                }
            }
        }
    }

    fn csv(&mut self, source: &YamlNode, csv: &YamlNode) {
        if source.at(&["file"]).is_none() {
            let message = "`csv` requires a `file`";
            self.report("range", csv.place.clone(), message, "remove it, or set `file`");
        }
        if let Some(node) = csv.at(&["delimiter"])
            && let Some(Err(why)) = node.text().map(crate::run::csv_delimiter)
        {
            self.report("range", node.place.clone(), why, "remove it to detect it from the header");
        }
        if let Some(node) = csv.at(&["encoding"])
            && let Some(Err(why)) = node.text().map(crate::run::csv_encoding)
        {
            self.report("range", node.place.clone(), why, "use an encoding such as `windows-1252`");
        }
    }

    fn remedy(&mut self, remedy: &YamlNode) {
        let Some(rule) = remedy.at(&["rule"]).filter(|rule| !rule.is_open()) else { return };
        let name = rule.text().unwrap_or_default();
        let takes: &[&str] = match name {
            "crs_lookup" => &["default"],
            "make_valid" => &["tolerance"],
            "wait" => &["seconds"],
            "clip" => &["bbox"],
            "swap_axes" => &["area"],
            "remap" => &["fields"],
            "repair_raster" => &["default", "output"],
            "command" => &["command", "env"],
            _ => &[],
        };
        for (key, _) in remedy.entries().iter().filter(|(key, _)| key.name != "rule") {
            if !takes.contains(&key.name.as_str()) {
                let message = format!("rule `{name}` does not support `{}`", key.name);
                self.report("unknown_key", key.place.clone(), message, "remove it");
            }
        }
        self.passed(remedy);
        for need in ["fields", "command"].iter().filter(|need| takes.contains(need)) {
            if remedy.at(&[need]).is_none() {
                let message = format!("rule `{name}` requires `{need}`");
                self.report("missing_key", rule.place.clone(), message, format!("add `{need}:`"));
            }
        }
    }

    /// Checks the environment that a command gets. What is written there may be a value: it is not quoted.
    fn passed(&mut self, of: &YamlNode) {
        let Some(list) = of.at(&["env"]) else { return };
        for name in list.items().iter().filter(|item| item.text().is_some_and(|text| !is_name(text))) {
            let message = "`env` takes names of environment variables, not values";
            self.report(
                "secret",
                name.place.clone(),
                message,
                "write the name alone, such as `env: [GEO_KEY]`",
            );
        }
    }

    /// Checks what an alert does.
    fn action(&mut self, action: &YamlNode) {
        self.passed(action);
        if let (Some(env), None) = (action.at(&["env"]), action.at(&["command"])) {
            let help = "add `command:`, or remove `env`";
            self.report("missing_key", env.place.clone(), "`env` is given without `command`", help);
        }
    }

    fn auto_remedy(&mut self, rule: &YamlNode) {
        if let Some(limit) = rule.at(&["at_most"])
            && limit.text().is_some_and(|text| ReplayLimit::parse(text).is_none())
        {
            let message = "`at_most` is not a number of letters in a time";
            self.report("range", limit.place.clone(), message, "use a value such as `100/h`");
        }
        let Some(node) = rule.at(&["code"]).filter(|node| !node.is_open()) else { return };
        let code = node.text().unwrap_or_default();
        if Code::new(code).is_none_or(|code| KNOWN.iter().all(|(known, _)| *known != code)) {
            let near = nearest(code, KNOWN.iter().map(|(known, _)| known.as_str()));
            let help = near.map_or_else(
                || "use a code of docs/classify.md".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            self.report("range", node.place.clone(), format!("no letter has the code `{code}`"), help);
            return;
        }
        let remedy = rule.at(&["remedy"]).and_then(|remedy| remedy.text());
        if let Some(Ok(known)) = remedy.map(RepairRule::named)
            && !known.codes().is_empty()
            && known.codes().iter().all(|own| own.as_str() != code)
        {
            let own = known.codes().iter().map(|code| format!("`{code}`")).collect::<Vec<_>>().join(", ");
            let message = format!("rule `{}` does not repair `{code}`", remedy.unwrap_or_default());
            self.report("range", node.place.clone(), message, format!("it is for {own}"));
        }
    }

    fn sink(&mut self, sink: &YamlNode) {
        let mode = sink.at(&["mode"]);
        // What cannot be known is not held against anybody.
        if [mode, sink.at(&["file"]), sink.at(&["history"])].into_iter().flatten().any(YamlNode::is_open) {
            return;
        }
        let is = |wanted: &str| mode.and_then(YamlNode::text) == Some(wanted);
        let key = sink.at(&["key"]).filter(|key| !key.items().is_empty());
        let keyed = is("upsert") || is("sync");
        if let (true, Some(mode), None) = (keyed, mode, key) {
            let message = format!("`mode: {}` requires a `key`", mode.text().unwrap_or_default());
            let help = "add `key: [id]` with the fields that identify a record";
            self.report("missing_key", mode.place.clone(), message, help);
        }
        self.deletions(sink, keyed || (mode.is_none() && key.is_some()), is("sync"));
        let Some(file) = sink.at(&["file"]) else {
            if let Some((key, _)) = sink.entries().iter().find(|(key, _)| key.name == "layer") {
                self.report("range", key.place.clone(), "`layer` is not supported for a table", "remove it");
            }
            return;
        };
        let name = file.text().unwrap_or_default();
        let format = tidegate_geo::format::Format::of_path(std::path::Path::new(name));
        match format {
            None => {
                let help =
                    "use .gpkg, .geojson, .geojsonl, .geojsons, .csv, .fgb, .parquet, .gml or .esrijson";
                self.report("range", file.place.clone(), "unknown file extension for a sink", help);
            }
            Some(tidegate_geo::format::Format::Shapefile) => {
                let help = "use a GeoPackage (.gpkg) instead";
                self.report("range", file.place.clone(), "cannot write Shapefiles", help);
            }
            Some(tidegate_geo::format::Format::GeoPackage)
                if !tidegate_core::bucket::BucketAddress::is_one(name) => {}
            Some(_) => {
                let wrong = mode.filter(|_| !is("replace")).or(key.filter(|_| mode.is_none()));
                if let Some(node) = wrong {
                    let message = "this format can only be written as a whole";
                    let help = "use `mode: replace` without a key, or a .gpkg file or a table for `upsert`, `sync` and `append`";
                    self.report("range", node.place.clone(), message, help);
                }
            }
        }
    }

    /// The keys about rows that disappear, or have several versions.
    fn deletions(&mut self, sink: &YamlNode, keyed: bool, sync: bool) {
        for name in ["deleted", "max_deleted"] {
            if let (Some(node), false) = (sink.at(&[name]), sync) {
                let message = format!("`{name}` requires `mode: sync`");
                self.report("range", node.place.clone(), message, "remove it, or set `mode: sync`");
            }
        }
        let history = sink.at(&["history"]).filter(|node| matches!(node.value, YamlValue::Bool(true)));
        if let (Some(node), false) = (history, keyed) {
            let help = "set a `key`, and `mode: upsert` or `mode: sync`";
            self.report("range", node.place.clone(), "`history` requires rows written by key", help);
        }
        if let (Some(_), Some(node)) = (history, sink.at(&["deleted"])) {
            let message = "with `history`, the version of a deleted record ends; `deleted` has no effect";
            self.report("range", node.place.clone(), message, "remove `deleted`");
        }
        if let Some(node) = sink.at(&["max_deleted"]) {
            self.tolerance(node);
        }
    }

    /// A number of records, or a percentage.
    fn tolerance(&mut self, node: &YamlNode) {
        let fits = match &node.value {
            YamlValue::Open(_) => true,
            YamlValue::Integer(n) => *n >= 0,
            YamlValue::Text(text) | YamlValue::Env(text) => {
                crate::source::CountTolerance::parse(text).is_ok()
            }
            _ => false,
        };
        if !fits {
            let help = "use a number such as `5` or a percentage such as `0.1%`";
            self.report("range", node.place.clone(), "invalid tolerance", help);
        }
    }

    fn step(&mut self, step: &YamlNode, services: &[&str]) {
        if let Some(filter) = step.at(&["filter"])
            && let Some(Err(fault)) = filter.text().map(tidegate_geo::filter::parse)
        {
            let help = "compare fields with numbers or 'strings': `area > 100 and owner is not null`";
            self.report("expression", filter.place.clone(), fault.to_string(), help);
        }
        for name in ["geocode", "http"] {
            self.service(step.at(&[name, "service"]), services);
        }
        if let Some(geocode) = step.at(&["geocode"]) {
            self.geocode(geocode);
        }
        self.objects(step.at(&["raster", "objects"]));
        for key in ["set_crs", "reproject"] {
            let Some(node) = step.at(&[key]) else { continue };
            if let Some(Err(problem)) = node.text().map(str::parse::<tidegate_geo::Crs>) {
                let help = "use a coordinate reference system such as `EPSG:25832`";
                self.report("range", node.place.clone(), problem.message, help);
            }
        }
    }

    fn geocode(&mut self, geocode: &YamlNode) {
        if let (Some(place), true) = (geocode.at(&["place"]), geocode.at(&["address"]).is_some()) {
            let help = "use `address` to geocode, or `place` to reverse geocode";
            self.report("range", place.place.clone(), "the step requires either `address` or `place`", help);
        }
        let says = geocode.at(&["outcome"]).is_some() || geocode.at(&["error_code"]).is_some();
        if let Some(node) = geocode.at(&["on_failure"])
            && node.text() == Some("keep")
            && !says
        {
            let message = "failed records could not be distinguished from good ones";
            let help = "add `outcome: outcome` to mark failed records in a field";
            self.report("missing_key", node.place.clone(), message, help);
        }
    }

    /// A number, or a percentage.
    fn drift(&mut self, node: &YamlNode) {
        let fits = match &node.value {
            YamlValue::Open(_) => true,
            YamlValue::Integer(n) => *n >= 0,
            YamlValue::Float(x) => *x >= 0.0,
            YamlValue::Text(text) | YamlValue::Env(text) => DriftTolerance::parse(text).is_some(),
            _ => false,
        };
        if !fits {
            let help = "use a percentage such as `10%` or a number such as `0.05`";
            self.report("range", node.place.clone(), "invalid tolerance", help);
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
            Check::Drift => (&["fields", "tolerate"], &[]),
            _ => (&[], &[]),
        };
        for need in needs.iter().filter(|need| gate.at(&[need]).is_none()) {
            let message = format!("gate `{name}` requires `{need}`");
            self.report("missing_key", check.place.clone(), message, format!("add `{need}:` to this gate"));
        }
        for (key, _) in gate.entries() {
            let own = ["fields", "min", "max", "is", "values", "decimals", "bbox", "tolerate"]
                .contains(&key.name.as_str());
            if own && !needs.contains(&key.name.as_str()) && !takes.contains(&key.name.as_str()) {
                let message = format!("gate `{name}` does not support `{}`", key.name);
                self.report("unknown_key", key.place.clone(), message, "remove it");
            }
        }
        if let Some(node) = gate.at(&["tolerate"]) {
            self.drift(node);
        }
        let bounded = gate.at(&["min"]).is_some() || gate.at(&["max"]).is_some();
        if matches!(kind, Check::Range | Check::Count) && !bounded {
            let message = format!("gate `{name}` requires `min` or `max`");
            self.report("missing_key", check.place.clone(), message, "add one or both");
        }
        if let (Check::NullRate | Check::Count, Some(node)) = (kind, gate.at(&["severity"]))
            && node.text() == Some("reject")
        {
            let message = format!("gate `{name}` does not check single records and cannot reject them");
            self.report("range", node.place.clone(), message, "use `warn` or `halt`");
        }
    }
}
