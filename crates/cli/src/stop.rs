//! Signals to stop: Ctrl-C (SIGINT) and SIGTERM.

use std::io;

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
