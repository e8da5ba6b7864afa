//! The misbehaving provider, seen from outside: over raw TCP, on a clock turned by hand.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

mod books;
mod client;
mod faults;
mod shapes;
mod throttle;

#[test]
fn it_starts_from_asynchronous_code_too() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let server = runtime.block_on(async { tidegate_chaos::Chaos::start(tidegate_chaos::Config::default()) });
    assert_eq!(client::get(&server.unwrap(), "/").status, 200);
}
