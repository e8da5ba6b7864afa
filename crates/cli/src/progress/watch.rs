//! A line of progress of work that is awaited, redrawn while it goes on and erased at its end.

use std::io::{self, Write};
use std::time::Duration;

/// The time between two lines.
const TICK: Duration = Duration::from_millis(200);

/// Does the work and shows how far it is.
pub(crate) async fn watched<T>(work: impl Future<Output = T>, line: impl Fn() -> String) -> T {
    let mut work = std::pin::pin!(work);
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            biased;
            done = &mut work => {
                let _ = write!(io::stderr(), "\r\x1b[K");
                return done;
            }
            _ = tick.tick() => {
                let _ = io::stderr().write_all(format!("\r\x1b[K{}", line()).as_bytes());
            }
        }
    }
}
