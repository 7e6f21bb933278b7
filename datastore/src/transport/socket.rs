//! A connection's socket, which knows how long it may be silent.
//!
//! hyper itself has one limit for the head of a request, which also ends a connection that merely
//! waits for the next request, and none for a reader that stalls.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::CancellationToken;

use crate::auth::caller::KnownCaller;
use crate::transport::limits::Limits;
use crate::transport::upload_body::RateMeter;

/// After a refusal, what the caller still sends is read for so long, and thrown away: closing at once
/// would reset the connection, and the refusal with it.
const LINGER: Duration = Duration::from_secs(10);
/// The same after the last answer of a drain: the caller may have sent more requests behind the one that was
/// answered, and unread bytes make the kernel reset the connection.
const LINGER_AT_END: Duration = Duration::from_secs(2);

/// The state of a connection: set by the service, read by the socket.
#[derive(Debug)]
pub(super) struct Stage {
    at: AtomicU8,
    opened: Instant,
    /// Milliseconds after it was opened at which its last answer ended.
    idle_since: AtomicU64,
    /// Whether a caller has shown a valid token on it.
    is_known: Arc<AtomicBool>,
    /// Cancelled once it is to be closed, so that others have room.
    evicted: CancellationToken,
    /// Answers that are not written yet: the next request may come while one waits in the buffer.
    answers: AtomicUsize,
    lingers: AtomicBool,
    /// Bytes of an answer wait because the caller does not read.
    is_writing: AtomicBool,
    /// The service ends: no further request is read.
    is_closing: AtomicBool,
    /// An answer was under way when the service began to end, or came after that.
    answers_at_end: AtomicBool,
}

/// The head of a request is being read.
const HEAD: u8 = 0;
/// A request is being answered.
const BUSY: u8 = 1;
/// The next request is waited for.
const IDLE: u8 = 2;

impl Default for Stage {
    fn default() -> Self {
        Self {
            at: AtomicU8::new(HEAD),
            opened: Instant::now(),
            idle_since: AtomicU64::default(),
            is_known: Arc::default(),
            evicted: CancellationToken::new(),
            answers: AtomicUsize::default(),
            lingers: AtomicBool::default(),
            is_writing: AtomicBool::default(),
            is_closing: AtomicBool::default(),
            answers_at_end: AtomicBool::default(),
        }
    }
}

impl Stage {
    /// Since when it has been idle; none if it is busy, closing, or a known caller's.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let is_spared =
            self.is_busy() || self.is_known.load(Ordering::Relaxed) || self.evicted.is_cancelled();
        let since = Duration::from_millis(self.idle_since.load(Ordering::Relaxed));
        (!is_spared).then(|| self.opened + since)
    }

    /// Set once a caller has shown a valid token.
    pub(super) fn known(&self) -> KnownCaller {
        KnownCaller(Arc::clone(&self.is_known))
    }

    /// It is to be closed, so that others have room.
    pub(super) fn evict(&self) {
        self.evicted.cancel();
    }

    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Whether a request is being answered, or bytes of an answer are not written yet: over TLS they are copied,
    /// so that the answer itself may be gone before they are.
    pub(super) fn is_busy(&self) -> bool {
        self.at.load(Ordering::Relaxed) == BUSY || self.is_writing.load(Ordering::Relaxed)
    }

    /// No further request is read from now on.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        if self.is_busy() {
            self.answers_at_end.store(true, Ordering::Relaxed);
        }
    }

    /// How long the socket reads, after its own end, what the caller still sends: a refusal must arrive even if
    /// the caller never stops sending, and so must the last answer of a drain. A head that is not over yet was
    /// refused for its length.
    fn lingers(&self) -> Option<Duration> {
        if self.lingers.load(Ordering::Relaxed) || self.at.load(Ordering::Relaxed) == HEAD {
            return Some(LINGER);
        }
        self.answers_at_end.load(Ordering::Relaxed).then_some(LINGER_AT_END)
    }
}

/// Its end is the end of a request.
pub(super) struct Answering(Arc<Stage>);

impl Answering {
    pub(super) fn begin(stage: Arc<Stage>) -> Self {
        stage.answers.fetch_add(1, Ordering::Relaxed);
        stage.at.store(BUSY, Ordering::Relaxed);
        if stage.is_closing.load(Ordering::Relaxed) {
            stage.answers_at_end.store(true, Ordering::Relaxed);
        }
        Self(stage)
    }

    /// The caller must receive the refusal.
    pub(super) fn linger(&self) {
        self.0.lingers.store(true, Ordering::Relaxed);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if self.0.answers.fetch_sub(1, Ordering::Relaxed) == 1 {
            let idle_since = u64::try_from(self.0.opened.elapsed().as_millis());
            self.0.idle_since.store(idle_since.unwrap_or(u64::MAX), Ordering::Relaxed);
            self.0.at.store(IDLE, Ordering::Relaxed);
        }
    }
}

/// A socket that gives up on a silent caller.
pub(super) struct Socket {
    tcp: TcpStream,
    stage: Arc<Stage>,
    /// Limits for [`HEAD`] and [`IDLE`], and for a write.
    head: Duration,
    keep_alive: Duration,
    idle: Duration,
    /// Runs while a request is waited for.
    silence: Option<(u8, Pin<Box<Sleep>>)>,
    /// Runs while the caller takes nothing of what we write.
    stalled: Option<(Instant, Pin<Box<Sleep>>)>,
    pace: RateMeter,
    /// Runs after the end.
    linger: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    pub(super) fn new(tcp: TcpStream, stage: Arc<Stage>, limits: &Limits) -> Self {
        let Limits { head, keep_alive, idle, .. } = *limits;
        let pace = RateMeter::default();
        Self {
            tcp,
            stage,
            head,
            keep_alive,
            idle,
            silence: None,
            stalled: None,
            pace,
            linger: None,
        }
    }

    /// Fails once the request that is waited for should have come.
    fn check_silence(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let at = self.stage.at.load(Ordering::Relaxed);
        let limit = match at {
            HEAD => self.head,
            IDLE => self.keep_alive,
            _ => {
                self.silence = None;
                return Ok(());
            }
        };
        let silence = match &mut self.silence {
            Some((since, silence)) if *since == at => silence,
            silence => &mut silence.insert((at, Box::pin(sleep(limit)))).1,
        };
        match silence.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::TimedOut, "no request came")),
            Poll::Pending => Ok(()),
        }
    }

    /// What became of a write; fails once the caller has taken too little for too long.
    fn written(
        &mut self,
        cx: &mut Context<'_>,
        wrote: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let slow = |text| io::Error::new(io::ErrorKind::TimedOut, text);
        match wrote {
            Poll::Ready(Ok(bytes)) => {
                self.stage.is_writing.store(false, Ordering::Relaxed);
                let waited =
                    self.stalled.take().map_or(Duration::ZERO, |(since, _)| since.elapsed());
                if self.pace.is_too_slow(waited, bytes) {
                    return Poll::Ready(Err(slow("the answer is read too slowly")));
                }
                wrote
            }
            Poll::Pending => {
                self.stage.is_writing.store(true, Ordering::Relaxed);
                let idle = self.idle;
                let (_, stalled) =
                    self.stalled.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(idle))));
                ready!(stalled.as_mut().poll(cx));
                Poll::Ready(Err(slow("the answer is not read")))
            }
            Poll::Ready(Err(_)) => wrote,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.tcp).poll_read(cx, buffer);
        if read.is_ready() && buffer.filled().len() > before {
            // The head's time begins with its first byte, whatever the one before has left.
            let begun =
                self.stage.at.compare_exchange(IDLE, HEAD, Ordering::Relaxed, Ordering::Relaxed);
            if begun.is_ok() {
                self.silence = None;
            }
        }
        self.check_silence(cx)?;
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.tcp).poll_write(cx, bytes);
        self.written(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.tcp).poll_write_vectored(cx, pieces);
        self.written(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let linger = match &mut this.linger {
            Some(linger) => linger,
            none => {
                ready!(Pin::new(&mut this.tcp).poll_shutdown(cx))?;
                let Some(linger) = this.stage.lingers() else { return Poll::Ready(Ok(())) };
                none.insert(Box::pin(sleep(linger)))
            }
        };
        let mut waste = [0; 16 << 10];
        loop {
            if linger.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(&mut waste);
            ready!(Pin::new(&mut this.tcp).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
