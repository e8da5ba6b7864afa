#![doc = include_str!("../README.md")]
//!
//! It links only `alloc`, `libm` and `sha2`. The floating-point functions come from `libm` and not from the
//! operating system, so the same seed gives the same trace on every machine.
//!
//! The data flow, by module:
//!
//! record ([`key`]) → [`signal`] → [`classify`] → verdict ([`verdict`]) → [`lane`]
//! ([`limit`], [`breaker`], [`retry`]) → [`call`] ([`patience`], [`refusal`], [`fallback`]) → gate → sink + ledger | dead letter
//! ([`letter`])
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod alert;
pub mod breaker;
pub mod bucket;
pub mod call;
pub mod chance;
pub mod classify;
pub mod content;
pub mod fallback;
pub mod hex;
pub mod hint;
pub mod host;
pub mod key;
pub mod lane;
pub mod letter;
pub mod limit;
pub mod part;
pub mod patience;
pub mod quote;
pub mod refusal;
pub mod renewal;
pub mod retry;
pub mod signal;
pub mod suggest;
pub mod taxonomy;
pub mod time;
pub mod verdict;

pub use chance::{Chance, Rng};
pub use taxonomy::Code;
pub use time::{Mono, Now, Wall};
pub use verdict::{Verdict, VerdictKind};
