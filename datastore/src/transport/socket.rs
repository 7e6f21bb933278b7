//! The socket of a connection, with timeouts for idle and slow callers.
//!
//! hyper has one timeout for the head of a request. It would also end a connection that waits for its next request, and
//! there is none for a caller that does not read the response.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::auth::caller::KnownCaller;
use crate::transport::limits::Limits;
use crate::transport::upload_body::RateMeter;

/// How long the rest of a request is read and discarded after an error response. Closing immediately would reset the
/// connection, and the caller would lose the response.
const LINGER: Duration = Duration::from_secs(10);
/// The same after the last response of a drain: the caller may already have sent further requests, and unread bytes
/// make the kernel reset the connection.
const DRAIN_LINGER: Duration = Duration::from_secs(2);
/// The same once the connection is to be closed to make room: its caller usually has the response by then.
const EVICTED_LINGER: Duration = Duration::from_millis(250);
/// How long a connection may be open, or the head of a request take, before it may be closed to make room.
const EVICT_GRACE: Duration = Duration::from_secs(1);

/// The state of a connection. The service sets it, and the socket reads it.
#[derive(Debug)]
pub(super) struct Stage {
    phase: AtomicU8,
    opened: Instant,
    /// When its last response ended, in milliseconds after `opened`.
    idle_since: AtomicU64,
    /// When the head of its current request began, in milliseconds after `opened`.
    head_since: AtomicU64,
    /// Whether a valid token was sent on it.
    is_known: Arc<AtomicBool>,
    /// Cancelled when it is to be closed to make room for others.
    evicted: CancellationToken,
    /// Requests whose response is not written yet: the next request may arrive while a response is in the buffer.
    active: AtomicUsize,
    /// Whether the caller must receive the response to its last request even if it still sends.
    lingers: AtomicBool,
    /// Whether bytes of a response wait because the caller does not read.
    is_writing: AtomicBool,
    /// Whether the service drains: no further request is read.
    is_closing: AtomicBool,
    /// Whether the socket was shut down, and still reads and discards.
    is_lingering: AtomicBool,
    /// Whether a request was in flight when the drain began, or arrived after that or after the eviction. Counts until
    /// the caller must have received the response.
    active_at_drain: AtomicBool,
}

/// Phase: the head of a request is being read.
const HEAD: u8 = 0;
/// Phase: a request is in flight.
const BUSY: u8 = 1;
/// Phase: waiting for the next request.
const IDLE: u8 = 2;

impl Default for Stage {
    fn default() -> Self {
        Self {
            phase: AtomicU8::new(HEAD),
            opened: Instant::now(),
            idle_since: AtomicU64::default(),
            head_since: AtomicU64::default(),
            is_known: Arc::default(),
            evicted: CancellationToken::new(),
            active: AtomicUsize::default(),
            lingers: AtomicBool::default(),
            is_writing: AtomicBool::default(),
            is_closing: AtomicBool::default(),
            is_lingering: AtomicBool::default(),
            active_at_drain: AtomicBool::default(),
        }
    }
}

impl Stage {
    /// The last place of a connection without a valid token in the order of eviction.
    pub(super) const LAST_UNKNOWN: u8 = 1;
    /// The last place of all.
    pub(super) const LAST: u8 = 3;

    /// The place in the order in which connections are closed to make room: first those that wait for their next
    /// request, then those without a complete head after [`EVICT_GRACE`], each by time. Those with a valid token come last, and
    /// wait as long as that before. None if it must stay open: it is busy, new, or already evicted.
    pub(super) fn eviction_order(&self) -> Option<(u8, Instant)> {
        if self.is_busy() || self.is_evicted() {
            return None;
        }
        let is_known = self.is_known.load(Ordering::Relaxed);
        let is_idle = self.phase.load(Ordering::Relaxed) == IDLE;
        let since = self.at(if is_idle { &self.idle_since } else { &self.head_since });
        let place = 2 * u8::from(is_known) + u8::from(!is_idle);
        (place == 0 || since.elapsed() >= EVICT_GRACE).then_some((place, since))
    }

    /// The flag to set when a valid token was sent.
    pub(super) fn known(&self) -> KnownCaller {
        KnownCaller(Arc::clone(&self.is_known))
    }

    /// Requests that it is closed to make room for others. A request that has arrived is still answered.
    pub(super) fn evict(&self) {
        self.evicted.cancel();
    }

    pub(super) fn is_evicted(&self) -> bool {
        self.evicted.is_cancelled()
    }

    /// The time that is this many milliseconds after it was opened.
    fn at(&self, millis: &AtomicU64) -> Instant {
        self.opened + Duration::from_millis(millis.load(Ordering::Relaxed))
    }

    /// Milliseconds since it was opened.
    fn age(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether a request is in flight, or bytes of a response are not written yet. (With TLS, bytes are copied into a
    /// buffer, so the response may end before they are written.)
    pub(super) fn is_busy(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == BUSY || self.is_writing.load(Ordering::Relaxed)
    }

    /// Marks that no further request is read.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        // After an error response it lingers in any case, but its shutdown may not have begun.
        if self.is_busy()
            || self.lingers.load(Ordering::Relaxed)
            || self.is_lingering.load(Ordering::Relaxed)
        {
            self.active_at_drain.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a response was on its way when the drain began, or has been since.
    pub(super) fn was_active_at_drain(&self) -> bool {
        self.active_at_drain.load(Ordering::Relaxed)
    }

    /// How long the socket still reads and discards after it was shut down. An error response must arrive even if the
    /// caller never stops sending, and so must the last response of a drain. In the phase [`HEAD`], the head was
    /// rejected for its length, unless the connection is closed to make room.
    fn lingers(&self) -> Option<Duration> {
        let is_rejected_head = self.phase.load(Ordering::Relaxed) == HEAD && !self.is_evicted();
        if self.lingers.load(Ordering::Relaxed) || is_rejected_head {
            return Some(LINGER);
        }
        self.active_at_drain.load(Ordering::Relaxed).then_some(DRAIN_LINGER)
    }
}

/// A request in flight, until it is dropped.
pub(super) struct ActiveRequest(Arc<Stage>);

impl ActiveRequest {
    pub(super) fn begin(stage: Arc<Stage>) -> Self {
        stage.active.fetch_add(1, Ordering::Relaxed);
        stage.phase.store(BUSY, Ordering::Relaxed);
        stage.lingers.store(false, Ordering::Relaxed);
        if stage.is_closing.load(Ordering::Relaxed) || stage.is_evicted() {
            stage.active_at_drain.store(true, Ordering::Relaxed);
        }
        Self(stage)
    }

    /// Marks that the caller must receive the response even if it still sends.
    pub(super) fn linger(&self) {
        self.0.lingers.store(true, Ordering::Relaxed);
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if self.0.active.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.idle_since.store(self.0.age(), Ordering::Relaxed);
            self.0.phase.store(IDLE, Ordering::Relaxed);
        }
    }
}

/// A socket that fails if the caller is idle or too slow.
pub(super) struct Socket {
    tcp: TcpStream,
    stage: Arc<Stage>,
    evicted: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Timeouts for the phases [`HEAD`] and [`IDLE`], and for a write.
    head: Duration,
    keep_alive: Duration,
    idle: Duration,
    /// The timeout of the phases [`HEAD`] and [`IDLE`]. It stays while a request is in flight: to move it to a later time
    /// takes no lock, unlike a new one.
    request_timeout: Option<Pin<Box<Sleep>>>,
    /// Since when the caller has not read, and the timeout for that.
    stalled: Option<(Instant, Pin<Box<Sleep>>)>,
    rate: RateMeter,
    /// The end of reading and discarding after the shutdown.
    linger: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    pub(super) fn new(tcp: TcpStream, stage: Arc<Stage>, limits: &Limits) -> Self {
        let Limits { head, keep_alive, idle, .. } = *limits;
        let rate = RateMeter::default();
        let evicted = Box::pin(stage.evicted.clone().cancelled_owned());
        Self {
            tcp,
            stage,
            evicted,
            head,
            keep_alive,
            idle,
            request_timeout: None,
            stalled: None,
            rate,
            linger: None,
        }
    }

    /// Fails if the next request, or the rest of its head, has not arrived in time.
    fn check_request_timeout(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Self { stage, request_timeout, head, keep_alive, .. } = self;
        let end = match stage.phase.load(Ordering::Relaxed) {
            HEAD => stage.at(&stage.head_since) + *head,
            IDLE => stage.at(&stage.idle_since) + *keep_alive,
            _ => return Ok(()),
        };
        let timeout = request_timeout.get_or_insert_with(|| Box::pin(sleep_until(end)));
        if timeout.deadline() != end {
            timeout.as_mut().reset(end);
        }
        match timeout.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::TimedOut, "no request received")),
            Poll::Pending => Ok(()),
        }
    }

    /// Fails if the connection is to be closed to make room, unless a request is in flight or has arrived. The kernel is
    /// asked for unread bytes, because tokio may not know of them yet; if it has some, tokio wakes the task.
    fn check_eviction(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.stage.is_busy()
            || self.evicted.as_mut().poll(cx).is_pending()
            || rustix::io::ioctl_fionread(&self.tcp)? > 0
        {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, "closed to make room for others"))
    }

    /// Checks the result of a write. Fails if the caller reads too slowly, or not at all.
    fn check_write(
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
                if self.rate.is_too_slow(waited, bytes) {
                    return Poll::Ready(Err(slow("the response is read too slowly")));
                }
                wrote
            }
            Poll::Pending => {
                self.stage.is_writing.store(true, Ordering::Relaxed);
                let idle = self.idle;
                let (_, stalled) =
                    self.stalled.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(idle))));
                ready!(stalled.as_mut().poll(cx));
                Poll::Ready(Err(slow("the response is not read")))
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
            // The timeout of a head starts with its first byte.
            if self.stage.phase.load(Ordering::Relaxed) == IDLE {
                self.stage.head_since.store(self.stage.age(), Ordering::Relaxed);
            }
            // Any other phase stays.
            let phase = &self.stage.phase;
            phase.compare_exchange(IDLE, HEAD, Ordering::Relaxed, Ordering::Relaxed).ok();
        }
        if read.is_pending() {
            self.check_request_timeout(cx)?;
            self.check_eviction(cx)?;
        }
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
        self.check_write(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.tcp).poll_write_vectored(cx, pieces);
        self.check_write(cx, wrote)
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
                this.stage.is_lingering.store(true, Ordering::Relaxed);
                none.insert(Box::pin(sleep(linger)))
            }
        };
        if this.evicted.as_mut().poll(cx).is_ready() {
            let soon = Instant::now() + EVICTED_LINGER;
            if linger.deadline() > soon {
                linger.as_mut().reset(soon);
            }
        }
        let mut discarded = [0; 16 << 10];
        loop {
            if linger.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(&mut discarded);
            ready!(Pin::new(&mut this.tcp).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// The socket of a connection that waits for its next request, and the caller's end.
    async fn idle() -> (Socket, Arc<Stage>, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let caller = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (tcp, _) = listener.accept().await.unwrap();
        let stage = Arc::<Stage>::default();
        drop(ActiveRequest::begin(Arc::clone(&stage)));
        (Socket::new(tcp, Arc::clone(&stage), &Limits::default()), stage, caller)
    }

    #[tokio::test]
    async fn an_evicted_connection_still_reads_a_request_that_has_arrived() {
        let (mut socket, stage, mut caller) = idle().await;
        let mut bytes = [0; 64];
        // Now tokio knows that nothing has arrived. It learns of the request only when this thread waits again.
        let read = tokio::time::timeout(Duration::from_millis(20), socket.read(&mut bytes)).await;
        assert!(read.is_err(), "{read:?}");
        caller.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        stage.evict();
        assert_eq!(socket.read(&mut bytes).await.unwrap(), 16);
        // The next request would come too late.
        drop(ActiveRequest::begin(Arc::clone(&stage)));
        let closed = socket.read(&mut bytes).await.unwrap_err();
        assert_eq!(closed.kind(), io::ErrorKind::ConnectionAborted);
    }

    #[tokio::test]
    async fn an_evicted_connection_without_a_request_is_closed_at_once() {
        let (mut socket, stage, _caller) = idle().await;
        let evict = async { stage.evict() };
        let mut bytes = [0; 64];
        let (closed, ()) = tokio::join!(socket.read(&mut bytes), evict);
        assert_eq!(closed.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }

    #[tokio::test(start_paused = true)]
    async fn an_evicted_connection_lingers_only_for_a_moment() {
        let (mut socket, stage, _caller) = idle().await;
        let refused = ActiveRequest::begin(Arc::clone(&stage));
        refused.linger();
        drop(refused);
        let began = Instant::now();
        let evict = async {
            sleep(Duration::from_secs(1)).await;
            assert_eq!(stage.eviction_order().unwrap().0, 0);
            stage.evict();
        };
        let (closed, ()) = tokio::join!(socket.shutdown(), evict);
        closed.unwrap();
        assert_eq!(began.elapsed().as_secs(), 1, "instead of {LINGER:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_valid_token_makes_room_after_all_others() {
        let waiting = |is_known: bool| {
            let stage = Arc::<Stage>::default();
            stage.is_known.store(is_known, Ordering::Relaxed);
            drop(ActiveRequest::begin(Arc::clone(&stage)));
            stage
        };
        let (known, idle) = (waiting(true), waiting(false));
        assert_eq!(known.eviction_order(), None, "its next request may be on its way");
        tokio::time::advance(EVICT_GRACE).await;
        let without_head = Arc::<Stage>::default();
        tokio::time::advance(EVICT_GRACE).await;
        let place = |stage: &Stage| stage.eviction_order().unwrap();
        assert!(place(&idle) < place(&without_head) && place(&without_head) < place(&known));
        let _busy = ActiveRequest::begin(Arc::clone(&known));
        assert_eq!(known.eviction_order(), None);
    }

    #[test]
    fn refused_upload_counts_for_a_drain_that_begins_before_its_connection_is_shut_down() {
        let stage = Arc::<Stage>::default();
        let refused = ActiveRequest::begin(Arc::clone(&stage));
        refused.linger();
        drop(refused);
        stage.close();
        assert!(stage.was_active_at_drain());
        let next = Arc::<Stage>::default();
        ActiveRequest::begin(Arc::clone(&next)).linger();
        drop(ActiveRequest::begin(Arc::clone(&next)));
        next.close();
        assert!(!next.was_active_at_drain(), "its last request was answered and read as a whole");
    }
}
