//! Signals to stop: Ctrl-C (SIGINT) and SIGTERM.
//!
//! They are registered before the work begins. Otherwise a signal in its first moments would end the
//! process as if nobody listened.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use crate::exit::Exit;
use crate::host;
use crate::out;

/// What a run says when it is asked to stop.
pub(crate) const AFTER_CALLS: &str = "stopping after the calls in flight and the current batch";

/// On Ctrl-C or SIGTERM, sets `stop` and says what happens now; a second signal exits at once. The
/// signals are registered when this returns. A host has the signals; it asks to stop.
pub(crate) fn listen(stop: &Arc<AtomicBool>, said: &'static str) {
    if let Some(host) = host::current() {
        return host.stops(stop);
    }
    let stop = Arc::clone(stop);
    let (registered, is_registered) = mpsc::channel();
    let heard = move || -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut signals = StopSignals::listen()?;
            // Its receiver waits for it.
            let _ = registered.send(());
            signals.asked().await?;
            stop.store(true, Ordering::SeqCst);
            out::say(&format!("\n{said}; press Ctrl-C again to stop at once"));
            signals.asked().await
        })?;
        // As after `kill -9`: what is committed stays, and the command can be continued.
        #[allow(clippy::exit, reason = "the person asked twice")]
        std::process::exit(Exit::Failure as i32)
    };
    // Without this thread a signal ends the process itself, and the command can be continued as well.
    if std::thread::Builder::new().name("signals".into()).spawn(heard).is_ok() {
        // An error: the thread could not register them, and has ended.
        let _ = is_registered.recv();
    }
}

/// A flag that a host sets when it asks to stop; on the command line a signal ends the process.
pub(crate) fn of_host() -> Option<Arc<AtomicBool>> {
    let (host, stop) = (host::current()?, Arc::default());
    host.stops(&stop);
    Some(stop)
}

/// Listens for the signals.
pub(crate) struct StopSignals {
    #[cfg(unix)]
    signals: [tokio::signal::unix::Signal; 2],
}

impl StopSignals {
    /// Starts to listen. Must be called inside a tokio runtime.
    pub(crate) fn listen() -> io::Result<StopSignals> {
        Ok(StopSignals {
            #[cfg(unix)]
            signals: {
                use tokio::signal::unix::{SignalKind, signal};
                [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?]
            },
        })
    }

    /// Waits for a signal.
    pub(crate) async fn asked(&mut self) -> io::Result<()> {
        #[cfg(unix)]
        {
            let [interrupt, terminate] = &mut self.signals;
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            Ok(())
        }
        #[cfg(not(unix))]
        tokio::signal::ctrl_c().await
    }
}
