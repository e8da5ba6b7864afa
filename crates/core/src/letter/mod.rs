//! What is decided about a dead letter.
//!
//! A dead letter is a record that was given up, with everything needed to understand, repair and
//! replay it. Its store, its remedies and its replay act elsewhere; here is what they decide by:
//! what kind of failure it is ([`class`]), which letters are the same story ([`fingerprint`]), when
//! a batch is not a heap of letters but one incident ([`incident`]), where a letter may go from
//! where it is ([`state`]), under which key it is replayed ([`lineage`]), and its name ([`id`]).

pub mod class;
pub mod fingerprint;
pub mod id;
pub mod incident;
pub mod lineage;
pub mod state;

pub use class::FailureClass;
pub use fingerprint::Fingerprint;
pub use id::{LetterId, LetterIds};
pub use state::LetterState;
