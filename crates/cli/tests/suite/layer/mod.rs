//! `convert`, `inspect` and `check`, through the built binary.

mod check;
mod convert;
mod crs;
mod inspect;

use std::ops::Deref;

use crate::common::workdir::Workdir;

/// A directory with the files that most tests begin with.
pub(crate) struct Desk(Workdir);

impl Deref for Desk {
    type Target = Workdir;
    fn deref(&self) -> &Workdir {
        &self.0
    }
}

/// A good polygon, a bow tie, a ring that is not closed, a line with a repeated position.
const FOUR: &str = r#"{"type":"FeatureCollection","features":[
{"type":"Feature","id":7,"properties":{"n":1,"name":"good"},"geometry":{"type":"Polygon","coordinates":[[[0,0],[4,0],[4,4],[0,0]]]}},
{"type":"Feature","properties":{"n":2,"name":"bow"},"geometry":{"type":"Polygon","coordinates":[[[10,0],[12,2],[12,0],[10,2],[10,0]]]}},
{"type":"Feature","properties":{"n":3,"name":"open"},"geometry":{"type":"Polygon","coordinates":[[[20,0],[22,0],[22,2],[20,2]]]}},
{"type":"Feature","properties":{"n":4,"name":null},"geometry":{"type":"LineString","coordinates":[[30,0],[30,0],[31,5]]}}
]}
"#;

impl Desk {
    pub(crate) fn new() -> Desk {
        let desk = Desk(Workdir::new());
        desk.write("four.geojson", FOUR);
        desk.write("places.csv", "name,pop,lon,lat\nWien,2000000,16.37,48.21\nGraz,300000,15.44,47.07\n");
        desk
    }

    /// Runs a verb; words of the form `@name` are files on the desk.
    pub(crate) fn run(&self, args: &[&str]) -> crate::common::Ran {
        let full = |arg: &&str| match arg.strip_prefix('@') {
            Some(name) => self.path(name).display().to_string(),
            None => (*arg).to_owned(),
        };
        let args: Vec<String> = args.iter().map(full).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        crate::common::tidegate(&args)
    }

    pub(crate) fn json(&self, args: &[&str]) -> (i32, serde_json::Value) {
        let ran = self.run(args);
        let value = serde_json::from_str(&ran.stdout);
        (ran.code, value.unwrap_or_else(|e| panic!("{e}: {}{}", ran.stdout, ran.stderr)))
    }
}
