//! The layer on whose behalf something is printed, where one process works on several: it begins each line.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

thread_local! {
    /// That of the future which is polled by this thread.
    static CURRENT: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// The label of what is printed now by this thread.
pub(crate) fn current() -> Option<Arc<str>> {
    CURRENT.with_borrow(Clone::clone)
}

/// A future whose lines have a label.
pub(crate) struct Labelled<F> {
    label: Arc<str>,
    future: Pin<Box<F>>,
}

impl<F: Future> Labelled<F> {
    pub(crate) fn new(label: &str, future: F) -> Self {
        Self { label: label.into(), future: Box::pin(future) }
    }
}

impl<F: Future> Future for Labelled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let before = CURRENT.replace(Some(Arc::clone(&self.label)));
        let polled = self.future.as_mut().poll(context);
        CURRENT.set(before);
        polled
    }
}

/// Puts a label before each line of a text that comes in pieces.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    label: Option<Arc<str>>,
    /// The beginning of a line that has not ended.
    open: Vec<u8>,
}

/// A longer line is printed in parts.
const MAX_LINE: usize = 64 << 10;

impl Lines {
    /// With the label of the future that is polled now.
    pub(crate) fn of_current() -> Self {
        Self { label: current(), open: Vec::new() }
    }

    /// What can be printed after this piece. Without a label that is the piece.
    pub(crate) fn push<'a>(&'a mut self, piece: &'a [u8], out: &'a mut Vec<u8>) -> &'a [u8] {
        let Some(label) = &self.label else { return piece };
        out.clear();
        for line in piece.split_inclusive(|byte| *byte == b'\n') {
            self.open.extend_from_slice(line);
            if line.ends_with(b"\n") || self.open.len() > MAX_LINE {
                labelled(label, &mut self.open, out);
            }
        }
        out
    }

    /// The rest of a text that does not end with a line.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(label) = self.label.as_ref().filter(|_| !self.open.is_empty()) {
            labelled(label, &mut self.open, &mut out);
            out.push(b'\n');
        }
        out
    }
}

fn labelled(label: &str, line: &mut Vec<u8>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("[{label}] ").as_bytes());
    out.append(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_line_has_the_label_of_its_future() {
        let text = |pieces: &[&str]| {
            let mut lines = Lines::of_current();
            let (mut text, mut out) = (Vec::new(), Vec::new());
            for piece in pieces {
                text.extend_from_slice(lines.push(piece.as_bytes(), &mut out));
            }
            text.extend_from_slice(&lines.finish());
            String::from_utf8(text).unwrap()
        };
        assert_eq!(text(&["a\nb", "c"]), "a\nbc");
        let of_layer = Labelled::new("x", async {
            tokio::task::yield_now().await;
            text(&["a\nb", "c\n\nd"])
        });
        let (labelled, other) = tokio::join!(of_layer, async { text(&["a\n"]) });
        assert_eq!(labelled, "[x] a\n[x] bc\n[x] \n[x] d\n");
        assert_eq!(other, "a\n");
    }
}
