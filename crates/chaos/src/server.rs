//! Accepts connections and delivers responses, with or without faults.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::host::{self, HostAddresses};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::fate::BodyDelivery;
use super::reply::ResponseDraft;
use super::state::{ResponsePlan, ServerState};
use super::stats::Counter;
use super::wire::{self, ReceivedRequest, RequestReadError};

/// The number of pieces in which a slow body is sent.
const PIECES: usize = 10;

/// Resolves when the server is told to stop.
async fn over(state: &ServerState) {
    // An error means that the sender, and with it the server, is gone.
    let _ = state.over.subscribe().wait_for(|over| *over).await;
}

/// Resolves when the server stops, for whatever reason. `ready` is called as soon as a signal would be heard.
pub(crate) async fn ended(state: &ServerState, ready: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    #[cfg(unix)]
    let asked = {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        async move {
            tokio::select! {
                _ = interrupt.recv() => Ok(()),
                _ = terminate.recv() => Ok(()),
            }
        }
    };
    #[cfg(not(unix))]
    let asked = tokio::signal::ctrl_c();
    ready()?;
    tokio::select! {
        () = over(state) => Ok(()),
        result = asked => result,
    }
}

/// Accepts connections until the server stops.
pub(crate) async fn accept(state: Arc<ServerState>, listener: TcpListener) {
    loop {
        tokio::select! {
            () = over(&state) => return,
            taken = listener.accept() => match taken {
                Ok((stream, _)) => {
                    state.counters.count(Counter::Connections);
                    tokio::spawn(connection(Arc::clone(&state), stream));
                }
                // Most likely out of file descriptors: wait until others are closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
        }
    }
}

/// Counts a request as done, even if its task is dropped.
struct Flight<'a>(&'a ServerState);

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.counters.leave(self.0.clock.nanos());
    }
}

async fn connection(state: Arc<ServerState>, mut stream: TcpStream) {
    // Avoids delays of small responses.
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::with_capacity(4 * 1024);
    loop {
        let request = match wire::read(&mut stream, &mut buffer).await {
            Ok(request) => request,
            Err(RequestReadError::Gone) => return,
            Err(RequestReadError::Wrong(status)) => {
                let reply = ResponseDraft::new(status, "text/plain", "this is not a request\n");
                let _ = whole(&state, &mut stream, &reply, true, false).await;
                return;
            }
        };
        let head = request.method == "HEAD";
        // Before anything else: a web site must neither read what we say, nor stop us.
        if !host::is_ours(&request.host, HostAddresses::Loopback, &state.config.hosts) {
            let words = "unknown host name; use a loopback address or localhost, or start with `chaos --allow-host NAME`\n";
            let _ =
                whole(&state, &mut stream, &ResponseDraft::new(421, "text/plain", words), true, head).await;
            return;
        }
        if let Some(reply) = state.admin(&request) {
            let close = !request.keep_alive;
            let sent = whole(&state, &mut stream, &reply, close, head).await;
            if request.path() == "/__quit" {
                state.quit();
            }
            if sent.is_err() || close {
                return;
            }
            continue;
        }
        let number = state.counters.count(Counter::Requests);
        let served = serve(&state, &mut stream, &request, number).await;
        if state.config.stop_after.is_some_and(|n| number >= n) {
            state.quit();
        }
        if !served.unwrap_or(false) {
            return;
        }
    }
}

/// Serves one request; returns whether the connection can be reused.
async fn serve(
    state: &ServerState,
    stream: &mut TcpStream,
    request: &ReceivedRequest,
    number: u64,
) -> io::Result<bool> {
    let in_flight = state.counters.enter(state.clock.nanos());
    let flight = Flight(state);
    let ResponsePlan { reply, delivery, service, replay } = state.decide(request, number, in_flight);
    state.alarm.wait(service).await;
    let head = request.method == "HEAD";
    let delivery = if head && delivery != BodyDelivery::ResetAtOnce { BodyDelivery::Whole } else { delivery };
    let counters = &state.counters;
    let delivered = match delivery {
        BodyDelivery::Whole => {
            let close = !request.keep_alive;
            // Count before writing: a client that has the response must find it in the statistics.
            counters.answered(reply.status);
            state.settle(request, &reply, replay, true);
            drop(flight);
            whole(state, stream, &reply, close, head).await?;
            return Ok(!close);
        }
        BodyDelivery::Slow(span) => {
            counters.count(Counter::Slow);
            slow(state, stream, &reply, span).await.is_ok()
        }
        BodyDelivery::ResetAtOnce => {
            counters.count(Counter::Resets);
            false
        }
        BodyDelivery::ResetInBody => {
            counters.count(Counter::Resets);
            half(state, stream, &reply).await?;
            false
        }
        BodyDelivery::CutLength => {
            counters.count(Counter::Cuts);
            half(state, stream, &reply).await?;
            false
        }
        BodyDelivery::CutChunk => {
            counters.count(Counter::Cuts);
            broken_chunk(state, stream, &reply).await?;
            false
        }
        BodyDelivery::Hang(span) => {
            counters.count(Counter::Hangs);
            hang(state, stream, span).await;
            false
        }
    };
    if delivered {
        counters.answered(reply.status);
    }
    state.settle(request, &reply, replay, delivered);
    if matches!(delivery, BodyDelivery::ResetAtOnce | BodyDelivery::ResetInBody) {
        // Closing with a linger of zero sends a TCP reset.
        stream.set_zero_linger()?;
    }
    Ok(delivered && request.keep_alive)
}

async fn whole(
    state: &ServerState,
    stream: &mut TcpStream,
    reply: &ResponseDraft,
    close: bool,
    head: bool,
) -> io::Result<()> {
    let mut bytes = reply.head(state.wall(), close, false);
    if !head {
        bytes.extend_from_slice(&reply.body);
    }
    stream.write_all(&bytes).await
}

/// Sends the head with the full length and half of the body.
async fn half(state: &ServerState, stream: &mut TcpStream, reply: &ResponseDraft) -> io::Result<()> {
    let length = (reply.body.len() as u64).max(64);
    let stated =
        ResponseDraft { stated_length: Some(length), status: reply.status.max(200), ..reply.clone() };
    let mut bytes = stated.head(state.wall(), false, false);
    bytes.extend_from_slice(reply.body.get(..reply.body.len() / 2).unwrap_or_default());
    stream.write_all(&bytes).await
}

/// Sends a chunk that is shorter than its declared length.
async fn broken_chunk(state: &ServerState, stream: &mut TcpStream, reply: &ResponseDraft) -> io::Result<()> {
    let mut bytes = reply.head(state.wall(), false, true);
    bytes.extend_from_slice(format!("{:x}\r\n", reply.body.len().max(64)).as_bytes());
    bytes.extend_from_slice(reply.body.get(..reply.body.len() / 2).unwrap_or_default());
    stream.write_all(&bytes).await
}

/// Sends the body in pieces.
async fn slow(
    state: &ServerState,
    stream: &mut TcpStream,
    reply: &ResponseDraft,
    span: Duration,
) -> io::Result<()> {
    stream.write_all(&reply.head(state.wall(), false, false)).await?;
    for piece in reply.body.chunks(reply.body.len().div_ceil(PIECES).max(1)) {
        state.alarm.wait(span / PIECES as u32).await;
        stream.write_all(piece).await?;
    }
    Ok(())
}

/// Sends nothing until the client disconnects, the time is over or the server stops.
async fn hang(state: &ServerState, stream: &mut TcpStream, span: Duration) {
    let gone = async {
        let mut bin = [0u8; 1024];
        while stream.read(&mut bin).await.is_ok_and(|n| n > 0) {}
    };
    tokio::select! {
        () = gone => {}
        () = tokio::time::sleep(span) => {}
        () = over(state) => {}
    }
}
