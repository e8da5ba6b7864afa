//! A workbench: a directory, and runs of the built binary in it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tidegate_chaos::{Chaos, Config, Handle, world};

pub(crate) use crate::common::provider::{fault, until_asked};
use crate::common::running::{Ran, Running};
use crate::common::workdir::Workdir;

/// Every way to page, as path and options.
pub(crate) const WAYS: [(&str, &str, &[&str]); 8] = [
    ("wfs", "/wfs", &[]),
    ("wfs gml", "/wfs", &["--body", "gml"]),
    ("wfs 1.1", "/wfs", &["--wfs-version", "1.1.0"]),
    ("ogcapi", "/ogc", &["--profile", "ogcapi"]),
    ("esri ids", "/arcgis/rest/services/parcels/FeatureServer", &[]),
    ("esri offset", "/arcgis/rest/services/parcels/FeatureServer/0", &["--paging", "offset"]),
    ("esri geojson", "/arcgis/rest/services/parcels/FeatureServer/0", &["--body", "geojson"]),
    ("stac", "/stac", &["--page-size", "100"]),
];

/// Does this for every way, all at once: most of the time is waiting.
pub(crate) fn each_way(work: impl Fn(&str, &str, &[&str]) + Sync) {
    std::thread::scope(|scope| {
        for (name, path, args) in WAYS {
            let work = &work;
            scope.spawn(move || work(name, path, args));
        }
    });
}

/// A directory for one test.
pub(crate) struct Bench(Workdir);

impl Deref for Bench {
    type Target = Workdir;
    fn deref(&self) -> &Workdir {
        &self.0
    }
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench(Workdir::new())
    }

    /// `tidegate fetch` into `out.geojsonl`, unless told otherwise, with the summary as JSON.
    pub(crate) fn command(&self, url: &str, args: &[&str]) -> Command {
        let mut command = self.0.command(&["fetch", url, "--quiet", "--format", "json"]);
        if !args.contains(&"-o") {
            command.args(["-o", "out.geojsonl"]);
        }
        command.args(args).env("COLUMNS", "100").env("NO_COLOR", "1");
        command
    }

    pub(crate) fn fetch(&self, url: &str, args: &[&str]) -> Ran {
        self.start(url, args).end()
    }

    pub(crate) fn start(&self, url: &str, args: &[&str]) -> Running {
        Running::of(self.command(url, args).spawn().unwrap())
    }

    /// The features of `out.geojsonl`.
    pub(crate) fn features(&self) -> Vec<Value> {
        self.read("out.geojsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// How often each parcel is in `out.geojsonl`.
    pub(crate) fn parcels(&self) -> BTreeMap<u64, u32> {
        let mut all = BTreeMap::new();
        for feature in self.features() {
            *all.entry(number(&feature)).or_default() += 1;
        }
        all
    }

    /// All files below the directory, without what a run keeps of itself in its state. What it keeps
    /// of its source is among them.
    pub(crate) fn files(&self) -> Vec<String> {
        let name = |path: &PathBuf| path.strip_prefix(self.root()).unwrap().to_string_lossy().into_owned();
        let mut files: Vec<String> = self.0.files().iter().map(name).collect();
        files.retain(|name| !name.starts_with(".tidegate/") || name.contains("/source/"));
        files.sort();
        files
    }
}

/// What the source counted, by its name in the result.
pub(crate) fn counted(ran: &Ran, name: &str) -> u64 {
    ran.json()["source"][name].as_u64().unwrap_or_else(|| panic!("{name} of the source in {}", ran.stdout))
}

/// How declared and received compare.
pub(crate) fn verdict(ran: &Ran) -> String {
    ran.json()["source"]["verdict"].as_str().unwrap_or_else(|| panic!("{}", ran.stdout)).to_owned()
}

/// The number of a parcel.
pub(crate) fn number(feature: &Value) -> u64 {
    let properties = &feature["properties"];
    let id = properties.get("OBJECTID").or_else(|| properties.get("id"));
    id.and_then(Value::as_u64).unwrap_or_else(|| panic!("{feature}"))
}

/// Whether a feature is the parcel that the server of this seed has under its number.
pub(crate) fn is_true(seed: u64, feature: &Value) -> bool {
    let parcel = world::parcel(seed, number(feature));
    let properties = &feature["properties"];
    let corner = |x: f64, y: f64| {
        let ring = feature["geometry"]["coordinates"][0].as_array();
        let is = |p: &Value| p[0].as_f64() == Some(x) && p[1].as_f64() == Some(y);
        ring.is_some_and(|ring| ring.len() == 5 && ring.iter().any(is))
    };
    properties["name"] == parcel.name
        && properties["zone"] == parcel.zone
        && properties["area"].as_f64() == Some(parcel.area)
        && properties["updated"].as_str().is_some_and(|t| t.starts_with("202"))
        && corner(parcel.lon, parcel.lat)
}

pub(crate) const SEED: u64 = 1;

/// A layer of so many features in pages of at most so many.
pub(crate) fn layer(features: u64, page_max: u64) -> Config {
    Config { features, page_max, threads: 1, seed: SEED, ..Config::default() }
}

/// A server with the seed of the configuration.
pub(crate) fn chaos(config: Config) -> Handle {
    Chaos::start(config).unwrap()
}

/// One request of another client.
pub(crate) fn get(server: &Handle, target: &str) {
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}
