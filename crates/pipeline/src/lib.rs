#![doc = include_str!("../README.md")]
//!
//! | module | holds |
//! |---|---|
//! | [`manifest`] | the YAML manifest: types, schema, checks, policy |
//! | [`source`] | remote sources: files, OGC services, ArcGIS, STAC |
//! | [`step`] | steps that change records, locally or by a service |
//! | [`gate`] | checks before a batch is committed |
//! | [`sink`] | sinks, with their checkpoints |
//! | [`run`] | a run from source to sink, with resume |
//! | [`queue`] | the queue of a pipeline and the table of its tasks |
//! | [`raster`] | rasters by their address, local or remote |
//! | [`preset`] | manifests built from command-line options |
//! | [`tiles`] | tiles of map services into a file or a directory |
//! | [`traffic`] | the runtime and the lanes that all calls of a run share |
//! | [`telemetry`] | the metrics of a run |
//! | [`alert`] | alerts and their actions |
//! | [`download`] | objects by list, each once |
//! | [`doctor`] | checks what could prevent a run |
//! | [`error`] | why a part of a pipeline cannot be set up |
#![forbid(unsafe_code)]

pub mod alert;
pub mod doctor;
pub mod download;
pub mod error;
pub mod gate;
pub mod manifest;
pub mod preset;
pub mod queue;
pub mod raster;
pub mod run;
pub mod sink;
pub mod source;
pub mod step;
pub mod telemetry;
pub mod tiles;
pub mod traffic;
pub mod worker;

// Modules of other crates, under their own names.
use tidegate_client::{cache, call, child, durable, http, lane, lock, objects, profile, secret, store};
use tidegate_ledger::{audit, letter};
