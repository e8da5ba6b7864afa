//! The decisions about dead letters.
//!
//! A dead letter is a record that was given up, with everything needed to understand, repair and
//! replay it. The store, the remedies and the replay are in other crates. This module decides the
//! class of a failure ([`class`]), which letters form a group ([`fingerprint`]), when a batch is an
//! incident ([`incident`]), which records may have killed the process ([`poison`]), which state transitions are allowed ([`state`]), the key of a replay
//! ([`lineage`]), which letters are replayed unasked ([`auto`]), what the message of a sealed letter leaves out ([`withhold`]), how coarse positions in texts are ([`mod@blur`]), and the id of a letter ([`id`]).

pub mod auto;
pub mod blur;
pub mod class;
pub mod fingerprint;
pub mod id;
pub mod incident;
pub mod lineage;
pub mod poison;
pub mod state;
pub mod withhold;

pub use blur::blur;
pub use class::FailureClass;
pub use fingerprint::Fingerprint;
pub use id::{LetterId, LetterIds};
pub use state::LetterState;
