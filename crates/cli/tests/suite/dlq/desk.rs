//! A directory with a store of letters, and runs of the built binary in it.

use std::ops::Deref;
use std::process::{Child, Command};

use serde_json::Value;

use crate::common::running::{Ran, Running};
use crate::common::workdir::Workdir;

pub(crate) struct Desk {
    dir: Workdir,
    store: String,
}

impl Deref for Desk {
    type Target = Workdir;
    fn deref(&self) -> &Workdir {
        &self.dir
    }
}

/// Seven features: two good ones and five that each need another remedy.
pub(crate) const PARCELS: &str = r#"{"type":"FeatureCollection","features":[
{"type":"Feature","id":1,"properties":{"name":"good"},"geometry":{"type":"Polygon","coordinates":[[[16.3,48.2],[16.4,48.2],[16.4,48.3],[16.3,48.2]]]}},
{"type":"Feature","id":2,"properties":{"name":"bow tie"},"geometry":{"type":"Polygon","coordinates":[[[15.4125,47.0],[15.6,47.2],[15.6,47.0],[15.4125,47.2],[15.4125,47.0]]]}},
{"type":"Feature","id":3,"properties":{"name":"unclosed"},"geometry":{"type":"Polygon","coordinates":[[[14.2,48.3],[14.3,48.3],[14.3,48.4],[14.2,48.4]]]}},
{"type":"Feature","id":4,"properties":{"name":"swapped"},"geometry":{"type":"Point","coordinates":[48.2,116.3]}},
{"type":"Feature","id":5,"properties":{"name":"no crs"},"crs":"Nowhere Grid","geometry":{"type":"Point","coordinates":[600000,200000]}},
{"type":"Feature","id":6,"properties":{"name":"too far"},"geometry":{"type":"LineString","coordinates":[[170,0],[190,10]]}},
{"type":"Feature","id":7,"properties":{"name":"good too"},"geometry":{"type":"Point","coordinates":[9.7,47.5]}}
]}"#;

impl Desk {
    pub(crate) fn new() -> Desk {
        Desk { dir: Workdir::new(), store: "letters.db".into() }
    }

    /// With its store at this path.
    pub(crate) fn at(store: &str) -> Desk {
        Desk { store: store.into(), ..Desk::new() }
    }

    /// With the letters of [`PARCELS`].
    pub(crate) fn parcels() -> Desk {
        let desk = Desk::new();
        desk.write("parcels.geojson", PARCELS);
        let ran = desk.dlq(&["capture", "parcels.geojson", "--into", "out.geojson", "--format", "json"]);
        assert_eq!(ran.code, 4, "{}", ran.stderr);
        assert_eq!(ran.json()["committed"], 2);
        assert_eq!(ran.json()["new_letters"], 5);
        desk
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.dir.command(args);
        command.env("TIDEGATE_USER", "tester").env("NO_COLOR", "1").env("COLUMNS", "300");
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        end(self.command(args).spawn().unwrap())
    }

    /// `tidegate dlq` on this store.
    pub(crate) fn dlq(&self, args: &[&str]) -> Ran {
        self.run(&[&["dlq", "--store", &self.store], args].concat())
    }

    pub(crate) fn start(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }

    /// All letters, the oldest first.
    pub(crate) fn letters(&self) -> Vec<Value> {
        let ran = self.dlq(&["ls", "--closed", "--oldest", "-n", "100000", "--format", "json"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.json().as_array().unwrap().clone()
    }

    pub(crate) fn states(&self) -> Vec<String> {
        self.letters().iter().map(|l| l["state"].as_str().unwrap().to_owned()).collect()
    }

    /// The id of the letter with this code.
    pub(crate) fn id(&self, code: &str) -> String {
        let found = self.letters().into_iter().find(|l| l["failure"]["code"] == code);
        found.unwrap_or_else(|| panic!("no {code}"))["id"].as_str().unwrap().to_owned()
    }

    /// The features of `out.geojson` by name.
    pub(crate) fn out(&self) -> Vec<(String, Value)> {
        let file: Value = serde_json::from_str(&self.read("out.geojson")).unwrap();
        let features = file["features"].as_array().unwrap().iter();
        features
            .map(|f| (f["properties"]["name"].as_str().unwrap().to_owned(), f["geometry"].clone()))
            .collect()
    }

    /// How many entries the audit has; it must be whole.
    pub(crate) fn audited(&self) -> u64 {
        let ran = self.dlq(&["audit", "--verify"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.json()["entries"].as_u64().unwrap()
    }

    /// The acts of the audit about one letter.
    pub(crate) fn acts(&self, id: &str) -> Vec<String> {
        let story = self.dlq(&["show", id, "--format", "json"]).json();
        story["audit"].as_array().unwrap().iter().map(|e| e["act"].as_str().unwrap().to_owned()).collect()
    }
}

pub(crate) fn end(child: Child) -> Ran {
    Running::of(child).end()
}
