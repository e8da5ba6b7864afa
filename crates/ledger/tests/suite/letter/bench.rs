//! Stores to test with, and letters to put.

use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_core::letter::FailureClass;
use tidegate_core::{Code, letter::LetterState};
use tidegate_ledger::letter::{
    Defect, Failure, Letter, LetterAttempt, LetterStore, LetterStoreLocation, Letters, Payload, Spatial,
};

/// The time of the first letter.
pub(crate) const T0: i64 = 1_790_000_000_000;

/// A store that is gone when the test is over.
pub(crate) struct Bench {
    pub(crate) place: LetterStoreLocation,
    dir: tempfile::TempDir,
    schema: Option<(String, String)>,
}

/// Where the PostgreSQL of the tests is.
fn server() -> String {
    std::env::var("TIDEGATE_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/test".into())
}

impl Bench {
    pub(crate) fn sqlite() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        Bench { place: LetterStoreLocation::File(dir.path().join("letters.db")), dir, schema: None }
    }

    pub(crate) fn postgres() -> Bench {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let schema = format!("letters_{}_{n}", std::process::id());
        let url = format!("{}?schema={schema}", server());
        Bench {
            place: url.parse().unwrap(),
            dir: tempfile::tempdir().unwrap(),
            schema: Some((server(), schema)),
        }
    }

    pub(crate) fn letters(&self) -> Letters {
        Letters::open(&self.place).unwrap()
    }

    pub(crate) fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Runs statements behind the back of the store.
    pub(crate) fn execute(&self, sql: &str) {
        match &self.schema {
            None => {
                rusqlite::Connection::open(self.dir().join("letters.db"))
                    .unwrap()
                    .execute_batch(sql)
                    .unwrap();
            }
            Some((server, schema)) => {
                let mut client = postgres::Client::connect(server, postgres::NoTls).unwrap();
                client.batch_execute(&format!("SET search_path TO {schema}; {sql}")).unwrap();
            }
        }
    }

    pub(crate) fn store(&self) -> LetterStore {
        LetterStore::open(&self.place).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some((server, schema)) = &self.schema
            && let Ok(mut client) = postgres::Client::connect(server, postgres::NoTls)
        {
            let _ = client.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE"));
        }
    }
}

/// Letter number `n`: every third a bad geometry, the others a timeout; a grid of places.
pub(crate) fn letter(n: u64) -> Letter {
    let bad = n.is_multiple_of(3);
    let (lon, lat) = ((n % 360) as f64 - 180.0, (n / 360 % 160) as f64 - 80.0);
    Letter {
        pipeline: if n.is_multiple_of(2) { "parcels" } else { "roads" }.into(),
        stage: if bad { "gate" } else { "geocode" }.into(),
        idempotency_key: format!("src:{n:064x}"),
        effect_key: format!("src#{n}"),
        content_type: "application/geo+json".into(),
        payload: Payload { received: format!("{{\"n\":{n}}}").into_bytes(), current: None },
        spatial: Some(Spatial {
            bbox: Some([lon, lat, lon + 0.25, lat + 0.25]),
            source_crs: if bad { "EPSG:31256" } else { "EPSG:4326" }.into(),
            geometry_type: "Polygon".into(),
            vertices: 5,
            defect: bad.then(|| Defect { lon, lat, reason: "Self-intersection".into() }),
            ..Spatial::default()
        }),
        failure: Failure {
            class: if bad { FailureClass::Fatal } else { FailureClass::Transient },
            code: if bad { Code::INVALID_GEOMETRY } else { Code::TIMEOUT },
            message: if bad {
                format!("Self-intersection[{lon} {lat}] in parcel {n}")
            } else {
                format!("no answer within 30 s for row {n}")
            },
            service: if bad { String::new() } else { "geo.example".into() },
            driver: if bad { "geojson" } else { "pelias" }.into(),
            attempts: vec![LetterAttempt {
                at_ms: T0,
                verdict: "TIMEOUT".into(),
                status: None,
                delay_ms: 1000,
                ..LetterAttempt::default()
            }],
            worker: "host/1".into(),
            failed_ms: T0 + n as i64 * 1000,
            ..Failure::default()
        },
        state: LetterState::Captured,
        ..Letter::default()
    }
    .retained_for(60)
}
