//! The sinks that the suite runs against.

use std::sync::Arc;

use tidegate_geo::{Batch, Crs, Kind, Schema, Value};

use super::TaskTable;
use crate::manifest::{Manifest, WriteMode};
use crate::sink::{ManagedColumns, RunTime, Sink, SinkTarget, Spec};
use crate::traffic::Traffic;

/// A sink of its own for each test; it goes with the test.
pub(super) struct Place {
    pub(super) spec: Spec,
    _folder: Option<tempfile::TempDir>,
    pub(super) schema: Option<String>,
}

pub(super) fn spec(target: SinkTarget) -> Spec {
    let manifest: Manifest = serde_json::from_value(serde_json::json!({ "pipeline": {
        "id": "parcels",
        "retry_policy": { "max_attempts": 1, "base_delay_seconds": 1.0, "retryable_status_codes": [] },
        "tolerance": { "max_null_rate": 1.0, "halt_on_geometry_invalid": false } } }))
    .unwrap();
    Spec {
        pipeline: "parcels#w1".into(),
        schema: Arc::new(Schema::new([("id".to_owned(), Kind::Text)])),
        crs: Crs::wgs84(),
        mode: WriteMode::Upsert,
        key: vec!["id".into()],
        managed: ManagedColumns::None,
        at: RunTime::default(),
        resume: false,
        must_exist: false,
        atomic: false,
        by_number: false,
        by_tasks: true,
        target,
        traffic: Traffic::new(&manifest, None, None),
    }
}

pub(super) fn geopackage() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(SinkTarget::GeoPackage(folder.path().join("out.gpkg"), "parcels".into()));
    Place { spec, _folder: Some(folder), schema: None }
}

#[cfg(feature = "postgres")]
fn database() -> String {
    std::env::var("TIDEGATE_TEST_DATABASE").unwrap_or_else(|_| "postgres://postgres@127.0.0.1/test".into())
}

#[cfg(feature = "postgres")]
pub(super) fn execute(sql: &str) -> u64 {
    let mut client = crate::sink::postgis::config(&database()).unwrap().connect().unwrap();
    if sql.starts_with("SELECT") {
        client.execute(sql, &[]).unwrap()
    } else {
        client.batch_execute(sql).map(|()| 0).unwrap()
    }
}

#[cfg(feature = "postgres")]
pub(super) fn table() -> Place {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let schema = format!("tidegate_tasks_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}"));
    let table = crate::manifest::SinkTable {
        url: database(),
        schema: schema.clone(),
        table: "parcels".into(),
        geometry_column: "geom".into(),
    };
    Place { spec: spec(SinkTarget::Table(table)), _folder: None, schema: Some(schema) }
}

impl Drop for Place {
    fn drop(&mut self) {
        #[cfg(feature = "postgres")]
        if let Some(schema) = &self.schema {
            execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE"));
        }
    }
}

impl Place {
    pub(super) fn tasks(&self) -> Box<dyn TaskTable> {
        self.spec.open_tasks().unwrap()
    }

    pub(super) fn sink(&self, worker: &str) -> Box<dyn Sink> {
        Spec { pipeline: format!("parcels#{worker}"), ..self.spec.clone() }.open().unwrap()
    }

    pub(super) fn batch(&self, ids: &[&str]) -> Batch {
        let mut batch = Batch::new(self.spec.schema.clone());
        for id in ids {
            batch.push_point(1.0, 2.0, [Value::Text(id)]).unwrap();
        }
        batch
    }
}
