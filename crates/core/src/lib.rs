//! The decisions of Tidegate, and nothing else.
//!
//! Every decision about a record (is this answer an error, may it be retried, when, may another
//! call go out now) is made here, by functions of their arguments. Time and chance are arguments
//! too: nothing in this crate can read a clock, draw a random number, open a socket or start a
//! thread. The compiler holds that wall: the crate is `no_std` and links only `alloc`, `libm`
//! and `sha2`. So the simulator, which drives this crate in virtual time, runs the code that
//! ships; and because the floating-point functions come from `libm` and not from the operating
//! system, the same seed gives the same trace on every machine.
//!
//! The flow, in the words of the code:
//!
//! record ([`key`]) → [`signal`] → [`classify`] → verdict ([`verdict`]) → [`lane`]
//! ([`limit`], [`breaker`], [`retry`]) → [`call`] ([`patience`], [`refusal`]) → gate → sink + ledger | dead letter
//! ([`letter`])
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod alert;
pub mod breaker;
pub mod call;
pub mod chance;
pub mod classify;
pub mod hex;
pub mod hint;
pub mod key;
pub mod lane;
pub mod letter;
pub mod limit;
pub mod patience;
pub mod refusal;
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
