//! The misbehaving provider, seen from outside: over raw TCP, on a clock turned by hand.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

mod books;
mod client;
mod faults;
mod shapes;
mod throttle;
