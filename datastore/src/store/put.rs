//! Writing: an object becomes visible whole, or not at all.
//!
//! What a backend says of a write over a network is not always what became of it: a put that was
//! applied may fail, or be told to be there already once it was tried again. So where the answer does
//! not settle it, what lies there does.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use datastore_api::Sha256;
use datastore_api::digest::Hasher;
use futures::future::{BoxFuture, try_join};
use futures::{FutureExt as _, Stream, TryStreamExt as _};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, ObjectStoreExt as _, PutMode, PutMultipartOptions,
    PutOptions, PutPayload, PutResult,
};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::metered::patience;
use super::parts::{Blocks, Parts};
use super::record::{FORM, METADATA};
use super::{BoxError, Key, Provider, Store, StoreError, backend, random};
use crate::seal::{Form, Sealing};

/// On what terms an object is put.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// The digest that the caller announced.
    pub sha256: Option<Sha256>,
    /// Only if nothing else is there. The same content again is no error.
    pub create: bool,
}

/// So long it may take, after what a put may take, to see what became of it.
const LOOK: Duration = Duration::from_secs(5);
/// Before each further try where the backend says that something is there, and nothing is.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(300), Duration::from_millis(900)];

/// What a put finds at its place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum There {
    Nothing,
    Same,
    Other,
}

impl Store {
    /// Stores what `body` brings, and returns its digest.
    ///
    /// It runs to its end, or cleans up, even if the caller stops waiting for it.
    pub async fn put(
        &self,
        key: &Key,
        terms: Terms,
        body: impl Stream<Item = Result<Bytes, BoxError>> + Send + Unpin + 'static,
    ) -> Result<Sha256, StoreError> {
        let path = key.path()?;
        let (store, key) = (self.clone(), key.clone());
        let upload = async move {
            let mut indexed = None;
            if let Key::File(run, attempt, _) = key {
                let entry = timeout(patience(0), store.index(&run, attempt)).await;
                indexed = entry.map_err(backend)??.map(|entry| (entry, run));
            }
            let (form, sealing) = store.sealing()?;
            let hasher = Hasher::default();
            // What comes with the body stays until the upload has ended.
            let mut body = body;
            let incoming = Incoming {
                body: &mut body,
                hasher,
                plain: 0,
                is_over: false,
                size: 0,
                form,
                sealing,
            };
            let restored = async {
                let Some((entry, run)) = &indexed else { return Ok(()) };
                timeout(patience(0), store.restore_entry(entry, run)).await.map_err(backend)?
            };
            let (sha256, ()) = try_join(store.upload(&path, terms, incoming), restored).await?;
            Ok(sha256)
        };
        ToItsEnd::of(upload, &self.uploads).await
    }

    async fn upload(
        &self,
        path: &Path,
        terms: Terms,
        mut incoming: Incoming<impl Stream<Item = Result<Bytes, BoxError>> + Unpin>,
    ) -> Result<Sha256, StoreError> {
        let mut head = Blocks::new(self.pool.clone());
        while let Some(piece) = incoming.next().await? {
            head.extend(&piece);
            if head.len() > self.traits.whole {
                let mut parts = self.start_parts(path, terms, head, incoming.form).await?;
                return match incoming.in_parts(&mut parts, terms).await {
                    Ok(received) => self.commit_parts(path, terms, parts, received).await,
                    Err(error) => {
                        parts.abort().await;
                        Err(error)
                    }
                };
            }
        }
        let received = incoming.finish(terms)?;
        self.commit_whole(path, terms, head.into_payload(), received).await
    }

    /// A small object, in one put.
    async fn commit_whole(
        &self,
        path: &Path,
        terms: Terms,
        bytes: PutPayload,
        received: Received,
    ) -> Result<Sha256, StoreError> {
        let Received { size, sha256, form, .. } = received;
        let _turn = self.turn(path).await;
        // Where the backend cannot create, the turn keeps at least our own puts apart.
        if terms.create && !self.creates() {
            match timeout(LOOK, self.there(path, &received)).await.map_err(backend)?? {
                There::Nothing => {}
                There::Same => return Ok(sha256),
                There::Other => return Err(StoreError::Exists),
            }
        }
        let attributes = self.attributes(Some(sha256), form, None);
        let carried = !attributes.is_empty();
        if !carried {
            self.announce(path, &received).await?;
        }
        let put = self.put_whole(path, terms.create, &bytes, attributes, &received).await?;
        if let Some(put) = put
            && !carried
        {
            self.record(path, put.e_tag, size, sha256, form).await?;
        }
        Ok(sha256)
    }

    /// Puts until it is known what became of it; nothing if the same bytes were there already, which
    /// may be an earlier try of ours.
    async fn put_whole(
        &self,
        path: &Path,
        create: bool,
        bytes: &PutPayload,
        attributes: Attributes,
        received: &Received,
    ) -> Result<Option<PutResult>, StoreError> {
        let look = async || {
            let there = timeout(LOOK, self.there(path, received)).await;
            there.unwrap_or_else(|late| Err(backend(late)))
        };
        let deadline = Instant::now() + patience(bytes.content_length());
        let mut is_unconditional = !create;
        let mut retried = false;
        let mut pauses = PAUSES.into_iter();
        loop {
            let options = PutOptions {
                mode: if is_unconditional { PutMode::Overwrite } else { PutMode::Create },
                attributes: attributes.clone(),
                ..PutOptions::default()
            };
            let put = self.objects.put_opts(path, bytes.clone(), options);
            let error = match timeout_at(deadline, put).await {
                // A creation that had to go without its condition may have come after another's.
                Ok(Ok(_)) if create && is_unconditional && look().await? == There::Other => {
                    return Err(StoreError::Exists);
                }
                Ok(Ok(put)) => return Ok(Some(put)),
                Ok(Err(error)) => error,
                Err(late) => Error::Generic { store: "storage", source: late.into() },
            };
            let is_there = matches!(error, Error::AlreadyExists { .. });
            if !is_there && !self.may_have_happened(&error) {
                return Err(backend(error));
            }
            match look().await {
                Ok(There::Same) => return Ok(None),
                Ok(There::Other) if create => return Err(StoreError::Exists),
                Ok(There::Other) | Err(_) => return Err(backend(error)),
                Ok(There::Nothing) if is_there => match pauses.next() {
                    Some(pause) => sleep(pause).await,
                    None => return Err(backend(error)),
                },
                // One that timed out is not tried again by `object_store`, since it is a creation.
                Ok(There::Nothing) if create && !retried && Instant::now() < deadline => {
                    retried = true;
                }
                Ok(There::Nothing) => return Err(backend(error)),
            }
            if self.is_azure() && pauses.len() == 0 {
                // Blocks of an upload that was given up lie there for a week, and only a put
                // without a condition removes them, if still nothing visible is there.
                match look().await? {
                    There::Nothing => is_unconditional = true,
                    There::Same => return Ok(None),
                    There::Other => return Err(StoreError::Exists),
                }
            }
        }
    }

    /// Whether a write that failed so may have been done all the same.
    fn may_have_happened(&self, error: &Error) -> bool {
        self.traits.provider.is_some()
            && matches!(error, Error::Generic { .. } | Error::Precondition { .. })
    }

    async fn start_parts(
        &self,
        path: &Path,
        terms: Terms,
        head: Blocks,
        form: Form,
    ) -> Result<Parts, StoreError> {
        let id = format!("{:016x}{:016x}", random(), random());
        let attributes = self.attributes(terms.sha256, form, Some(&id));
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let before = if self.is_azure() { self.tag(path).await } else { None };
        let upload = self.objects.put_multipart_opts(path, options).await.map_err(backend)?;
        Ok(Parts::new(upload, (id, before), (self.traits.part, self.traits.flying), head))
    }

    /// A large object, all of whose parts are there.
    async fn commit_parts(
        &self,
        path: &Path,
        terms: Terms,
        mut parts: Parts,
        received: Received,
    ) -> Result<Sha256, StoreError> {
        let Received { size, sha256, form, .. } = received;
        let _turn = self.turn(path).await;
        if terms.create {
            let there = self.there(path, &received).await;
            if !matches!(there, Ok(There::Nothing)) {
                parts.abort().await;
                return if there? == There::Same { Ok(sha256) } else { Err(StoreError::Exists) };
            }
        }
        if !self.traits.metadata
            && let Err(error) = self.announce(path, &received).await
        {
            parts.abort().await;
            return Err(error);
        }
        let etag = match parts.complete().await {
            Ok(put) => put.e_tag,
            Err(error) => {
                let Some(etag) = self.uploaded(path, &parts.id).await else {
                    parts.abort().await;
                    return match self.there_after(path, &received, parts.before, &error).await {
                        There::Same => Ok(sha256),
                        There::Other if terms.create => Err(StoreError::Exists),
                        There::Other => Ok(sha256),
                        There::Nothing => Err(backend(error)),
                    };
                };
                etag
            }
        };
        if terms.sha256.is_none() || !self.traits.metadata {
            self.record(path, etag, size, sha256, form).await?;
        }
        Ok(sha256)
    }

    /// Writes down ahead how an encrypted object will lie where none is yet: one whose record was lost in a
    /// power failure would be taken for plain.
    async fn announce(&self, path: &Path, received: &Received) -> Result<(), StoreError> {
        let Received { size, sha256, form, .. } = *received;
        if form == Form::Plain {
            return Ok(());
        }
        match self.objects.head(path).await {
            Err(Error::NotFound { .. }) => {
                self.record_of(path, String::new(), size, sha256, form).await
            }
            there => there.map(drop).map_err(backend),
        }
    }

    /// The tag of the object that the upload of this id has made, if it has.
    async fn uploaded(&self, path: &Path, id: &str) -> Option<Option<String>> {
        let head = self.objects.get_opts(path, GetOptions::new().with_head(true));
        let found = timeout(LOOK, head).await.ok()?.ok()?;
        let bears = found.attributes.get(&self.upload_id()).is_some_and(|there| &**there == id);
        bears.then_some(found.meta.e_tag)
    }

    /// What has overtaken an upload; nothing, if that is not why it failed.
    ///
    /// Whoever puts a blob on Azure removes the parts that others have sent for it. To them it is as
    /// if they had been first: stored, and replaced at once.
    async fn there_after(
        &self,
        path: &Path,
        received: &Received,
        before: Option<String>,
        error: &Error,
    ) -> There {
        let removed = self.is_azure() && error.to_string().contains("InvalidBlockList");
        if !removed || self.tag(path).await == before {
            return There::Nothing;
        }
        self.there(path, received).await.unwrap_or(There::Nothing)
    }

    /// The tag of what lies there now.
    async fn tag(&self, path: &Path) -> Option<String> {
        self.objects.head(path).await.ok()?.e_tag
    }

    fn is_azure(&self) -> bool {
        self.traits.provider == Some(Provider::Azure)
    }

    /// What lies at a place where these bytes are to be.
    async fn there(&self, path: &Path, received: &Received) -> Result<There, StoreError> {
        let Received { plain, sha256, .. } = *received;
        let meta = match self.look_at_path(path).await {
            Err(StoreError::NotFound) => return Ok(There::Nothing),
            meta => meta?,
        };
        let there = match meta.sha256 {
            Some(there) => there,
            // What others have stored is read only if it may be the same.
            None if meta.size != plain => return Ok(There::Other),
            None => self.computed(path).await?,
        };
        if there != sha256 {
            return Ok(There::Other);
        }
        if meta.sha256.is_none() {
            // Whoever put it has not written its digest down, or could not.
            self.record_of(path, meta.etag, meta.stored, sha256, meta.form).await?;
        }
        Ok(There::Same)
    }

    /// What an object is to carry, if the backend has a place for it: its digest if that is known, how it
    /// lies there, and the id of the upload that makes it.
    fn attributes(&self, sha256: Option<Sha256>, form: Form, upload: Option<&str>) -> Attributes {
        if !self.traits.metadata {
            return Attributes::new();
        }
        let sha256 = sha256.map(|sha256| (METADATA, sha256.to_string()));
        let form = (form != Form::Plain).then(|| (FORM, form.to_string()));
        let upload = upload.map(|id| (self.upload_id(), id.to_owned()));
        sha256.into_iter().chain(form).chain(upload).collect()
    }

    /// The name of the metadata that names an upload; Azure takes only identifiers of C#.
    fn upload_id(&self) -> Attribute {
        Attribute::Metadata(
            if self.is_azure() { "plancha_upload" } else { "plancha-upload" }.into(),
        )
    }

    /// Puts a small object of our own, of which there is only one version.
    pub(super) async fn put_own(&self, path: &Path, bytes: Bytes) -> Result<(), StoreError> {
        self.objects.put(path, bytes.into()).await.map_err(backend)?;
        Ok(())
    }
}

/// Work that goes on when nobody waits for it any more. While somebody does it is done in his task: one of
/// its own would cost a small put two changes of the core.
struct ToItsEnd<T: Send + 'static> {
    work: Option<BoxFuture<'static, T>>,
    /// So that it is waited for at the end.
    _under_way: TaskTrackerToken,
    uploads: TaskTracker,
    runtime: Handle,
}

impl<T: Send + 'static> ToItsEnd<T> {
    fn of(work: impl Future<Output = T> + Send + 'static, uploads: &TaskTracker) -> Self {
        let (work, runtime) = (Some(work.boxed()), Handle::current());
        Self { work, _under_way: uploads.token(), uploads: uploads.clone(), runtime }
    }
}

impl<T: Send + 'static> Future for ToItsEnd<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let done = ready!(work.as_mut().poll(cx));
        self.work = None;
        Poll::Ready(done)
    }
}

impl<T: Send + 'static> Drop for ToItsEnd<T> {
    fn drop(&mut self) {
        // What has panicked cannot go on.
        if let Some(work) = self.work.take()
            && !std::thread::panicking()
        {
            self.uploads.spawn_on(work, &self.runtime);
        }
    }
}

/// A body, and what is known of it so far.
struct Incoming<S> {
    body: S,
    /// Of what comes in.
    hasher: Hasher,
    plain: u64,
    is_over: bool,
    /// Of what is stored.
    size: u64,
    form: Form,
    sealing: Option<Sealing>,
}

/// What was received, as it lies there.
#[derive(Clone, Copy)]
struct Received {
    /// Of what came in.
    plain: u64,
    /// Of what lies there.
    size: u64,
    /// Of what came in.
    sha256: Sha256,
    form: Form,
}

impl<S: Stream<Item = Result<Bytes, BoxError>> + Unpin> Incoming<S> {
    async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        if self.is_over {
            return Ok(None);
        }
        let piece = self.body.try_next().await.map_err(StoreError::Upload)?;
        if let Some(piece) = &piece {
            self.hasher.update(piece);
            self.plain += piece.len() as u64;
        }
        self.is_over = piece.is_none();
        let stored = match (&mut self.sealing, piece) {
            (Some(sealing), Some(piece)) => Some(sealing.seal(&piece)),
            (Some(_), None) => self.sealing.take().map(Sealing::finish),
            (None, piece) => piece,
        };
        self.size += stored.as_ref().map_or(0, Bytes::len) as u64;
        Ok(stored)
    }

    /// Sends all that comes, up to its end.
    async fn in_parts(mut self, parts: &mut Parts, terms: Terms) -> Result<Received, StoreError> {
        while let Some(piece) = self.next().await? {
            parts.write(&piece).await?;
        }
        parts.flush().await?;
        self.finish(terms)
    }

    /// Size and digest, if that is what the caller announced.
    fn finish(self, terms: Terms) -> Result<Received, StoreError> {
        let form = self.form.of_size(self.plain);
        let received = self.hasher.finish();
        match terms.sha256 {
            Some(announced) if announced != received => {
                Err(StoreError::Digest { announced, received })
            }
            _ => Ok(Received { plain: self.plain, size: self.size, sha256: received, form }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use futures::stream::{self, BoxStream};
    use object_store::memory::InMemory;
    use object_store::{
        CopyOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, Result,
    };

    use super::super::{Inner, Traits};
    use super::*;
    use crate::seal::AtRest;

    /// Refuses some puts.
    struct Refusing<F> {
        behind: InMemory,
        refuses: F,
    }

    impl<F> fmt::Debug for Refusing<F> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            fmt::Display::fmt(self, f)
        }
    }

    impl<F> fmt::Display for Refusing<F> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("refusing")
        }
    }

    #[async_trait]
    impl<F: Fn(&Path, &PutMode) -> Result<()> + Send + Sync + 'static> ObjectStore for Refusing<F> {
        async fn put_opts(
            &self,
            path: &Path,
            payload: PutPayload,
            options: PutOptions,
        ) -> Result<PutResult> {
            (self.refuses)(path, &options.mode)?;
            self.behind.put_opts(path, payload, options).await
        }

        async fn put_multipart_opts(
            &self,
            path: &Path,
            options: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.behind.put_multipart_opts(path, options).await
        }

        async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
            self.behind.get_opts(path, options).await
        }

        fn delete_stream(
            &self,
            paths: BoxStream<'static, Result<Path>>,
        ) -> BoxStream<'static, Result<Path>> {
            self.behind.delete_stream(paths)
        }

        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            self.behind.list(prefix)
        }

        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
            self.behind.list_with_delimiter(prefix).await
        }

        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
            self.behind.copy_opts(from, to, options).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_over_blocks_that_nobody_has_committed_replaces_no_others_object() {
        for others_come in [false, true] {
            let creations = Arc::new(AtomicUsize::default());
            let counted = Arc::clone(&creations);
            // As Azure says it of blocks.
            let refuses = move |path: &Path, mode: &PutMode| {
                if *mode != PutMode::Create {
                    return Ok(());
                }
                counted.fetch_add(1, Ordering::Relaxed);
                let source = "BlobAlreadyExists".into();
                Err(Error::AlreadyExists { path: path.to_string(), source })
            };
            let azure = Arc::new(Refusing { behind: InMemory::new(), refuses });
            let provider = Some(Provider::Azure);
            let traits = Traits { provider, ..Traits::memory() };
            let store = Store(Arc::new(Inner::new(Arc::clone(&azure) as _, traits)));
            let path = Path::parse("layers/a/b/c/0/plan.bin").unwrap();
            let key = Key::at(path.as_ref()).unwrap();

            let terms = Terms { create: true, ..Terms::default() };
            let ours = stream::iter([Ok(Bytes::from_static(b"ours"))]);
            let (put, ()) = tokio::join!(store.put(&key, terms, ours), async {
                // The last look before the longest pause found nothing.
                while creations.load(Ordering::Relaxed) < 3 {
                    sleep(Duration::from_millis(10)).await;
                }
                sleep(PAUSES[2] / 2).await;
                if others_come {
                    azure.behind.put(&path, "theirs".into()).await.unwrap();
                }
            });
            let there = azure.behind.get(&path).await.unwrap().bytes().await.unwrap();
            if others_come {
                assert!(matches!(put, Err(StoreError::Exists)), "{put:?}");
                assert_eq!(there, "theirs");
            } else {
                assert_eq!(put.unwrap(), Sha256::of(b"ours"));
                assert_eq!(there, "ours");
            }
        }
    }

    #[tokio::test]
    async fn an_encrypted_object_that_lost_its_record_is_known_all_the_same() {
        let puts = AtomicUsize::default();
        // Of its record only the first is written: then the power fails.
        let refuses = move |path: &Path, _: &PutMode| {
            if path.as_ref().starts_with(".plancha/sha256/")
                && puts.fetch_add(1, Ordering::Relaxed) > 0
            {
                return Err(Error::Generic { store: "power", source: "failed".into() });
            }
            Ok(())
        };
        let disk = Refusing { behind: InMemory::new(), refuses };
        let traits = Traits { metadata: false, ..Traits::memory() };
        let at_rest = AtRest { key: Some("key".into()), encrypts: true };
        let store = Store(Arc::new(Inner::new(Arc::new(disk), traits))).at_rest(&at_rest);
        let key = Key::at("layers/a/b/c/0/notes").unwrap();
        // Neither text nor a known kind of file, and with the shortest padding.
        let plain = Bytes::from((0..1023_u32).map(|n| (n * 37 % 251) as u8).collect::<Vec<_>>());
        let body = stream::iter([Ok(plain.clone())]);
        store.put(&key, Terms::default(), body).await.unwrap_err();
        let (_, bytes) = store.open_whole(&key).await.unwrap();
        assert_eq!(bytes.try_collect::<Vec<_>>().await.unwrap().concat(), plain);
    }
}
