//! A message between owner and member through a server: a head, and lines of the protocol.
//!
//! The head is one line of JSON. Frames of a thread are numbered, because a server may lose messages when
//! a connection breaks; whoever misses one ends the thread.

use serde::{Deserialize, Serialize};

/// The lines of a frame, in bytes, beyond which no further line is added. PostgreSQL carries fewer than 8,000
/// bytes in a message.
pub(super) const BODY_SOFT_MAX: usize = 4_000;

/// What a frame belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FrameHead {
    pub(super) lane: String,
    pub(super) epoch: u64,
    /// The name of the thread, chosen by the member.
    pub(super) thread: String,
    /// The inbox of the sender.
    pub(super) from: String,
    /// Whether it is for the owner.
    pub(super) to_owner: bool,
    /// Its number in the thread and direction.
    pub(super) seq: u64,
    /// When it was sent, in milliseconds of the sender's own clock.
    pub(super) at_ms: u64,
    /// Whether the thread ends.
    #[serde(default)]
    pub(super) end: bool,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FleetFrame {
    pub(super) head: FrameHead,
    pub(super) body: String,
}

impl FleetFrame {
    pub(super) fn parse(text: &str) -> Option<FleetFrame> {
        let (head, body) = text.split_once('\n')?;
        Some(FleetFrame { head: serde_json::from_str(head).ok()?, body: body.to_owned() })
    }

    pub(super) fn text(&self) -> String {
        // Numbers and strings can always be written.
        let mut text = serde_json::to_string(&self.head).unwrap_or_default();
        text.push('\n');
        text.push_str(&self.body);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_arrives_as_it_was_and_anything_else_is_none() {
        let head = FrameHead {
            lane: "ab".into(),
            epoch: 7,
            thread: "t".into(),
            from: "me".into(),
            to_owner: true,
            seq: 3,
            at_ms: 9,
            end: false,
        };
        for body in ["", "\"alive\"\n", "{}\n{}\n"] {
            let frame = FleetFrame { head: head.clone(), body: body.to_owned() };
            assert_eq!(FleetFrame::parse(&frame.text()), Some(frame));
        }
        for bad in ["", "\n", "{}\n", "no json\nx", "[1]"] {
            assert_eq!(FleetFrame::parse(bad), None, "{bad:?}");
        }
    }
}
