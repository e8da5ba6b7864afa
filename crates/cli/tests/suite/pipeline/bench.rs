//! A directory with a manifest, its data and what came of a run.

use std::fs;
use std::ops::Deref;
use std::path::Path;

use serde_json::Value;

use crate::common::running::Ran;
use crate::common::workdir::Workdir;

pub(crate) struct Bench(Workdir);

impl Deref for Bench {
    type Target = Workdir;
    fn deref(&self) -> &Workdir {
        &self.0
    }
}

/// What every manifest of these tests has besides its parts.
const POLICY: &str = "
  retry_policy: { max_attempts: 3, base_delay: 10ms, retryable_status_codes: [429, 503] }
";

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench(Workdir::new())
    }

    /// A manifest of these parts, indented by two.
    pub(crate) fn manifest(&self, parts: &str) {
        let tolerance = if parts.contains("tolerance:") {
            ""
        } else {
            "  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }\n"
        };
        self.write("m.yaml", &format!("pipeline:\n  id: test\n{}{POLICY}{tolerance}", indent(parts)));
    }

    pub(crate) fn tidegate(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// Runs the manifest; the result is JSON.
    pub(crate) fn run(&self, more: &[&str]) -> Ran {
        self.tidegate(&[&["run", "m.yaml", "--format", "json"], more].concat())
    }

    /// Runs the manifest and asserts how it ends.
    pub(crate) fn runs(&self, code: i32) -> Value {
        let ran = self.run(&[]);
        assert_eq!(ran.code, code, "{}\n{}", ran.stdout, ran.stderr);
        ran.json()
    }

    /// Runs the manifest and asserts that it cannot begin, with these words.
    pub(crate) fn refused(&self, says: &str) {
        let ran = self.run(&[]);
        assert_eq!(ran.code, 2, "{}\n{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(says), "{says:?} is not in\n{}", ran.stderr);
    }

    /// The features of a GeoJSON lines file that was written.
    pub(crate) fn features(&self, name: &str) -> Vec<Value> {
        self.read(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The properties of those.
    pub(crate) fn properties(&self, name: &str) -> Vec<Value> {
        self.features(name).iter().map(|feature| feature["properties"].clone()).collect()
    }

    /// The records that were rejected: number, stage, code, field.
    pub(crate) fn rejects(&self) -> Vec<(u64, String, String, String)> {
        let path = self.path(".tidegate/test/rejects.ndjson");
        if !path.exists() {
            return Vec::new();
        }
        let text = fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| {
                let reject: Value = serde_json::from_str(line).unwrap();
                let problem = &reject["problems"][0];
                let word = |value: &Value| value.as_str().unwrap().to_owned();
                (
                    reject["record"].as_u64().unwrap(),
                    word(&reject["stage"]),
                    word(&problem["code"]),
                    word(&problem["field"]),
                )
            })
            .collect()
    }

    /// The rows of a query of a GeoPackage, each as text.
    pub(crate) fn sql(&self, file: &str, sql: &str) -> Vec<String> {
        let db = rusqlite::Connection::open(self.path(file)).unwrap();
        let mut statement = db.prepare(sql).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| {
            let cell = |at| {
                row.get::<_, rusqlite::types::Value>(at).map(|value| match value {
                    rusqlite::types::Value::Null => "null".to_owned(),
                    rusqlite::types::Value::Integer(i) => i.to_string(),
                    rusqlite::types::Value::Real(x) => x.to_string(),
                    rusqlite::types::Value::Text(text) => text,
                    rusqlite::types::Value::Blob(blob) => format!("{} bytes", blob.len()),
                })
            };
            (0..columns).map(cell).collect::<Result<Vec<_>, _>>().map(|cells| cells.join("|"))
        });
        rows.unwrap().map(Result::unwrap).collect()
    }
}

fn indent(text: &str) -> String {
    text.lines().filter(|line| !line.trim().is_empty()).map(|line| format!("  {line}\n")).collect()
}

/// A point feature on one line.
pub(crate) fn point(x: f64, y: f64, properties: &str) -> String {
    format!(
        r#"{{"type":"Feature","properties":{properties},"geometry":{{"type":"Point","coordinates":[{x},{y}]}}}}"#
    ) + "\n"
}

/// A polygon feature on one line.
pub(crate) fn polygon(ring: &str, properties: &str) -> String {
    format!(
        r#"{{"type":"Feature","properties":{properties},"geometry":{{"type":"Polygon","coordinates":[[{ring}]]}}}}"#
    ) + "\n"
}

pub(crate) const SQUARE: &str = "[0,0],[4,0],[4,4],[0,4],[0,0]";
pub(crate) const BOW_TIE: &str = "[0,0],[2,2],[2,0],[0,2],[0,0]";

/// Whether a file of this name is there.
pub(crate) fn there(path: &Path) -> bool {
    path.exists()
}

/// A CSV file of so many different addresses.
pub(crate) fn addresses(n: usize) -> String {
    let rows: String = (1..=n).map(|i| format!("{i},{i} Harbour Road\n")).collect();
    format!("id,street\n{rows}")
}
