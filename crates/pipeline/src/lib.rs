#![doc = include_str!("../README.md")]
//!
//! | module | holds |
//! |---|---|
//! | [`manifest`] | the YAML that a person writes: form, schema, checks, policy |
//! | [`source`] | where records come from: files, OGC services, ArcGIS, STAC |
//! | [`step`] | what is done to a record, here or by a service |
//! | [`gate`] | what must hold before a batch is committed |
//! | [`sink`] | where records go, with the checkpoint |
//! | [`run`] | a pipeline from source to sink, resumed where it stopped |
//! | [`preset`] | manifests made of the options of a command |
//! | [`traffic`] | one runtime and one set of lanes for all that a run sends |
//! | [`telemetry`] | the registry of a run |
//! | [`alert`] | what a run says when something is wrong |
//! | [`doctor`] | what could stop a run, looked at before it starts |
//! | [`error`] | why a part of a pipeline cannot be set up |
#![forbid(unsafe_code)]

pub mod alert;
pub mod doctor;
pub mod error;
pub mod gate;
pub mod manifest;
pub mod preset;
pub mod run;
pub mod sink;
pub mod source;
pub mod step;
#[cfg(not(feature = "object-store"))]
#[path = "no_store.rs"]
pub mod store;
pub mod telemetry;
pub mod traffic;

// What a pipeline is made on, under the names that it has there.
#[cfg(feature = "object-store")]
use tidegate_client::store;
use tidegate_client::{cache, call, durable, http, lane, lock, profile, secret};
use tidegate_ledger::{audit, letter};
