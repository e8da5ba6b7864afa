//! A stream of bytes between an owner and a member, carried in frames.
//!
//! What is written while a frame is on its way goes into the next one, and there are at least
//! [`GATHER`] between two. So owner and member talk in batches when there is much to say, and at once when
//! there is little.

use super::LATE_MAX;
use super::frame::{BODY_SOFT_MAX, FleetFrame, FrameHead};
use super::link::FleetLink;
use crate::lane::share::meeting_place::LaneStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, duplex, split};
use tokio::sync::mpsc;

/// The time between two frames of one thread.
const GATHER: Duration = Duration::from_millis(5);
/// Bytes that one side may have written before the other has read them.
const BUFFER_BYTES: usize = 64 << 10;

/// Opens a thread. `head` is the last frame of the other side or, for a member that begins, the first one of
/// its own. `peer` is the inbox of the other side.
pub(super) fn open(link: &Arc<FleetLink>, head: FrameHead, peer: String, is_owner: bool) -> LaneStream {
    let frames = link.listen(&head.thread, is_owner);
    let (near, far) = duplex(BUFFER_BYTES);
    let thread = Thread {
        link: link.clone(),
        head: FrameHead { from: link.inbox.clone(), to_owner: !is_owner, end: false, seq: 0, ..head.clone() },
        peer,
    };
    // The owner has the first frame of a member already.
    let expected = if is_owner { head.seq } else { 0 };
    link.speaking.fetch_add(1, Ordering::AcqRel);
    tokio::spawn(async move {
        let speaking = Speaking(&thread.link.speaking);
        let (read, write) = split(far);
        let (mut said, mut heard) = (0, Heard::new(expected));
        tokio::select! {
            () = thread.speak(read, &mut said, !is_owner) => {}
            () = thread.hear(write, frames, &mut heard) => {}
        }
        thread.link.forget(&thread.head.thread, is_owner);
        if !heard.ended {
            let _ = thread.link.send(&thread.peer, &thread.frame(said, true, String::new())).await;
        }
        drop(speaking);
    });
    Box::new(near)
}

/// Counts a thread until it has ended.
struct Speaking<'a>(&'a AtomicUsize);

impl Drop for Speaking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Thread {
    link: Arc<FleetLink>,
    head: FrameHead,
    peer: String,
}

/// What came from the other side.
struct Heard {
    /// The number of the next frame.
    expected: u64,
    /// The smallest difference between both clocks, in milliseconds: that of the fastest frame.
    offset_ms: Option<i128>,
    /// The other side has said that it ends.
    ended: bool,
}

impl Heard {
    fn new(expected: u64) -> Heard {
        Heard { expected, offset_ms: None, ended: false }
    }

    /// Whether a frame may be used: it is the next one, and not late.
    fn accepts(&mut self, head: &FrameHead, now_ms: u64) -> bool {
        self.ended |= head.end;
        let offset = i128::from(now_ms) - i128::from(head.at_ms);
        let least = self.offset_ms.map_or(offset, |least| least.min(offset));
        self.offset_ms = Some(least);
        let in_turn = head.seq == self.expected && !head.end;
        self.expected += 1;
        in_turn && offset - least <= LATE_MAX.as_millis() as i128
    }
}

impl Thread {
    fn frame(&self, seq: u64, end: bool, body: String) -> FleetFrame {
        FleetFrame { head: FrameHead { seq, end, at_ms: self.link.clock_ms(), ..self.head.clone() }, body }
    }

    /// Sends what is written. A member begins with an empty frame, so that the owner knows of it.
    async fn speak(&self, from: impl AsyncRead + Unpin, said: &mut u64, opens: bool) {
        let mut lines = BufReader::with_capacity(BODY_SOFT_MAX, from);
        let mut body = String::new();
        if opens {
            if self.link.send(&self.peer, &self.frame(0, false, String::new())).await.is_err() {
                return;
            }
            *said = 1;
        }
        loop {
            match lines.read_line(&mut body).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            while body.len() < BODY_SOFT_MAX && lines.buffer().contains(&b'\n') {
                if lines.read_line(&mut body).await.is_err() {
                    return;
                }
            }
            let frame = self.frame(*said, false, std::mem::take(&mut body));
            *said += 1;
            if self.link.send(&self.peer, &frame).await.is_err() {
                return;
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Writes what comes, until the other side ends, a frame is missing or it is late.
    async fn hear(
        &self,
        mut to: impl AsyncWrite + Unpin,
        mut frames: mpsc::Receiver<FleetFrame>,
        heard: &mut Heard,
    ) {
        while let Some(frame) = frames.recv().await {
            let is_ours = frame.head.epoch == self.head.epoch && frame.head.lane == self.head.lane;
            if !is_ours || !heard.accepts(&frame.head, self.link.clock_ms()) {
                return;
            }
            if to.write_all(frame.body.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(seq: u64, at_ms: u64) -> FrameHead {
        let text = String::new;
        FrameHead {
            lane: text(),
            epoch: 1,
            thread: text(),
            from: text(),
            to_owner: true,
            seq,
            at_ms,
            end: false,
        }
    }

    #[test]
    fn a_frame_that_is_missing_or_late_ends_the_thread() {
        // The clocks differ by 1,000 s; the fastest frame took 10 ms.
        let mut heard = Heard::new(0);
        assert!(heard.accepts(&head(0, 1_000_000), 30));
        assert!(heard.accepts(&head(1, 1_000_100), 110));
        assert!(heard.accepts(&head(2, 1_000_200), 2_210), "2 s late");
        assert!(!heard.accepts(&head(3, 1_000_300), 2_311), "more than 2 s late");
        let mut heard = Heard::new(0);
        assert!(heard.accepts(&head(0, 0), 0));
        assert!(!heard.accepts(&head(2, 0), 0), "one is missing");
        let mut heard = Heard::new(0);
        assert!(!heard.accepts(&FrameHead { end: true, ..head(0, 0) }, 0));
        assert!(heard.ended);
    }
}
