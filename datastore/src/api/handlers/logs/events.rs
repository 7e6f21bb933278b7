//! A followed log as server-sent events.
//!
//! The `id` of an event is the offset of the byte after it, so `Last-Event-ID` is where a reader continues. No event ends within
//! a character, or between CR and LF: such bytes wait for the next event.

use std::fmt::Write as _;

/// Tells browsers how soon they connect again, in milliseconds.
pub(super) const START: &str = "retry: 1000\n\n";
/// Without text, so that proxies do not close the connection.
pub(super) const HEARTBEAT: &str = ":\n\n";

/// Makes events of a log.
#[derive(Debug)]
pub(super) struct Events {
    /// The offset of the first byte that no event has.
    at: u64,
    /// Bytes that wait for the next ones.
    waiting: Vec<u8>,
}

impl Events {
    pub(super) fn new(at: u64) -> Self {
        Self { at, waiting: Vec::new() }
    }

    /// The event of these bytes; empty if all of them must wait.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        self.waiting.extend_from_slice(bytes);
        let end = whole(&self.waiting);
        self.take(end)
    }

    /// The event of what still waits.
    pub(super) fn rest(&mut self) -> String {
        self.take(self.waiting.len())
    }

    /// The last event.
    pub(super) fn end(&self, why: &str) -> String {
        format!("event: end\nid: {}\ndata: {why}\n\n", self.at)
    }

    fn take(&mut self, end: usize) -> String {
        if end == 0 {
            return String::new();
        }
        let rest = self.waiting.split_off(end);
        let bytes = std::mem::replace(&mut self.waiting, rest);
        self.at += bytes.len() as u64;
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
        let mut event = format!("id: {}\n", self.at);
        for line in text.split(['\n', '\r']) {
            // A `String` is always writable.
            let _ = writeln!(event, "data: {line}");
        }
        event.push('\n');
        event
    }
}

/// How many bytes end with a whole character, and not between CR and LF.
fn whole(bytes: &[u8]) -> usize {
    // A character has at most four bytes.
    let start = bytes.len().saturating_sub(4);
    let last = (start..bytes.len()).rev().find(|at| bytes[*at] & 0xc0 != 0x80);
    match last {
        Some(at) if is_incomplete(&bytes[at..]) => at,
        Some(at) if bytes[at] == b'\r' && at + 1 == bytes.len() => at,
        _ => bytes.len(),
    }
}

/// Whether these bytes could still become a character.
pub(super) fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text of events, as a browser joins it, and their ids.
    fn read(events: &str) -> (String, Vec<usize>) {
        let (mut text, mut ids) = (String::new(), Vec::new());
        for event in events.split_terminator("\n\n") {
            let data = event.lines().filter_map(|line| line.strip_prefix("data: "));
            text.push_str(&data.collect::<Vec<_>>().join("\n"));
            ids.extend(
                event.lines().filter_map(|line| line.strip_prefix("id: ")?.parse::<usize>().ok()),
            );
        }
        (text, ids)
    }

    proptest! {
        #[test]
        fn no_event_cuts_a_character_or_a_line_break(
            text in proptest::collection::vec(
                prop_oneof![Just("\r\n"), Just("\n"), Just("\r"), Just("\u{20ac}"), Just("🌯"), Just("é"), Just("a")],
                0..40,
            ),
            size in 1_usize..6,
        ) {
            let text = text.concat();
            let mut events = Events::new(0);
            let mut sent = String::new();
            for piece in text.as_bytes().chunks(size) {
                sent.push_str(&events.push(piece));
            }
            sent.push_str(&events.rest());
            let (joined, ids) = read(&sent);
            prop_assert_eq!(joined, text.replace("\r\n", "\n").replace('\r', "\n"));
            for id in &ids {
                prop_assert!(text.is_char_boundary(*id));
                prop_assert!(!(text[..*id].ends_with('\r') && text[*id..].starts_with('\n')));
            }
            prop_assert!(text.is_empty() || ids.last() == Some(&text.len()));
        }
    }

    #[test]
    fn invalid_bytes_are_replaced_and_counted() {
        let mut events = Events::new(5);
        assert_eq!(events.push(b"a\xff\xe2\x82"), "id: 7\ndata: a\u{fffd}\n\n");
        assert_eq!(events.push(b""), "");
        assert_eq!(events.rest(), "id: 9\ndata: \u{fffd}\n\n");
        assert_eq!(events.end("complete"), "event: end\nid: 9\ndata: complete\n\n");
    }
}
