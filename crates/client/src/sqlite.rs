//! How every SQLite file of ours starts: in WAL mode, even if several processes create it at once.
//!
//! SQLite waits for a lock (`busy_timeout`), but not for this change: two connections that switch a
//! new file to WAL at the same time get "database is locked" at once. So we wait here.

use rusqlite::{Connection, ErrorCode};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(10);

/// Switches the file to WAL mode. Waits up to `busy` for other connections, now and in later calls.
///
/// # Errors
/// When others hold the file for longer than `busy`, or SQLite refuses the file.
pub fn write_ahead(connection: &Connection, busy: Duration) -> rusqlite::Result<()> {
    connection.busy_timeout(busy)?;
    let began = Instant::now();
    loop {
        match connection.pragma_update(None, "journal_mode", "wal") {
            Err(e) if e.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && began.elapsed() < busy => {
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}
