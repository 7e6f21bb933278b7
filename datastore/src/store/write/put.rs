//! Stores an object so that it becomes visible as a whole, or not at all.
//!
//! The response to a write over a network does not always match its result: a put that was applied may fail, or be refused
//! because its own first try has created the object. Where the response is not conclusive, the stored object decides.

use std::time::Duration;

use bytes::Bytes;
use datastore_api::{Attempt, RunKey, Sha256};
use futures::Stream;
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, PutResult,
};
use tokio::time::{Instant, sleep, timeout_at};

use crate::store::backend::cloud::provider::Provider;
use crate::store::backend::metered::{NoAnswer, STAT_TIMEOUT, in_time, put_timeout};
use crate::store::digest_record::{DIGEST_ATTRIBUTE, FORMAT_ATTRIBUTE};
use crate::store::encryption::StoredFormat;
use crate::store::error::{BoxError, StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{Key, LivePart};
use crate::store::write::conditions::{Existing, PutConditions};
use crate::store::write::deadline::{WholeBody, with_deadline};
use crate::store::write::directory::DirectoryPut;
use crate::store::write::lease::CreateRight;
use crate::store::write::parts::Blocks;
use crate::store::write::upload::{IncomingBody, Received};

/// Pauses before each retry where the backend reports an existing object and none is found.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(300), Duration::from_millis(900)];

impl Store {
    /// Stores `body`, and returns its digest.
    ///
    /// The upload finishes or cleans up even if the caller stops waiting for it.
    pub async fn put(
        &self,
        key: &Key,
        conditions: PutConditions,
        body: impl Stream<Item = Result<Bytes, BoxError>> + Send + Unpin + 'static,
    ) -> Result<Sha256, StoreError> {
        let path = key.object_path()?;
        let (store, key) = (self.clone(), key.clone());
        let whole = WholeBody::default();
        let received = whole.clone();
        let upload = async move {
            let (format, encryptor) = store.encryptor(key.kind())?;
            // The body owns the permits of the request, so it is kept until the upload ends.
            let mut body = body;
            let body = IncomingBody::new(&mut body, format, encryptor);
            let of_attempt = match &key {
                Key::File(run, attempt, _)
                | Key::Live(run, attempt, LivePart::Piece(0) | LivePart::Ledger) => {
                    Some((run.clone(), *attempt))
                }
                _ => None,
            };
            let stored = store.upload(&path, conditions, body, of_attempt, &received).await?;
            store.note_change(&key).await?;
            Ok(stored)
        };
        with_deadline(self.uploads.spawn(upload), whole).await
    }

    /// Stores a body. A run is in the index before a file of it becomes visible.
    pub(in crate::store) async fn upload(
        &self,
        path: &Path,
        conditions: PutConditions,
        mut body: IncomingBody<impl Stream<Item = Result<Bytes, BoxError>> + Unpin>,
        of_attempt: Option<(RunKey, Attempt)>,
        whole: &WholeBody,
    ) -> Result<Sha256, StoreError> {
        let mut head = Blocks::new(self.pool.clone());
        while let Some(piece) = body.next().await? {
            head.extend(&piece);
            if head.len() > self.backend.single_put_max {
                let mut parts = self.start_parts(path, conditions, head, body.format()).await?;
                let received = async {
                    let received = body.send_parts(&mut parts, conditions).await?;
                    Ok((received, self.index_upload(of_attempt).await?))
                };
                return match received.await {
                    Ok((received, indexed)) => {
                        let commit = Box::pin(self.commit(path, conditions, parts, received));
                        self.commit_indexed(indexed, commit).await
                    }
                    Err(error) => {
                        parts.abort().await;
                        Err(error)
                    }
                };
            }
        }
        let received = body.finish(conditions)?;
        whole.received(head.len());
        let indexed = self.index_upload(of_attempt).await?;
        let commit = Box::pin(self.commit_whole(path, conditions, head.into_payload(), received));
        self.commit_indexed(indexed, commit).await
    }

    /// Stores a small object with a single put.
    async fn commit_whole(
        &self,
        path: &Path,
        conditions: PutConditions,
        bytes: PutPayload,
        received: Received,
    ) -> Result<Sha256, StoreError> {
        let Received { sha256, .. } = received;
        let _key_lock = self.key_lock(path).await;
        let replaced = self.replaced_version(path, conditions).await?;
        if let Some(disk) = &self.disk {
            let content = DirectoryPut::Bytes(bytes);
            let put = self.put_to_directory(disk, path, conditions, replaced, &received, content);
            return put.await;
        }
        if let Some(version) = replaced {
            return self.update_whole(path, version, bytes, received, conditions.written).await;
        }
        let lease = match self.acquire_create_right(path, conditions, &received).await? {
            CreateRight::Granted(lease) => lease,
            CreateRight::AlreadyExists(Existing::Identical) => return Ok(sha256),
            CreateRight::AlreadyExists(_) => return Err(StoreError::Exists),
        };
        let stored = self.put_small(path, conditions, bytes, received).await;
        self.release(lease).await;
        stored
    }

    async fn put_small(
        &self,
        path: &Path,
        conditions: PutConditions,
        bytes: PutPayload,
        received: Received,
    ) -> Result<Sha256, StoreError> {
        let Received { size, sha256, format, .. } = received;
        // Where the backend cannot create conditionally, the lock of the key excludes at least puts of this process.
        if conditions.create && self.creates() != Some(true) {
            match in_time(STAT_TIMEOUT, "look at the object", self.existing(path, &received))
                .await
                .map_err(backend_error)??
            {
                Existing::Absent => {}
                Existing::Identical => return Ok(sha256),
                Existing::Different => return Err(StoreError::Exists),
            }
        }
        let attributes = self.attributes(Some(sha256), format, None, None);
        let carried = !attributes.is_empty();
        let put = self.put_whole(path, conditions.create, &bytes, attributes, &received).await?;
        if let Some(put) = put
            && !carried
        {
            self.record(path, put.e_tag, size, sha256, format).await?;
        }
        Ok(sha256)
    }

    /// Puts until the result is known. `None` if the same bytes exist already, perhaps from an earlier attempt of this
    /// put.
    async fn put_whole(
        &self,
        path: &Path,
        create: bool,
        bytes: &PutPayload,
        attributes: Attributes,
        received: &Received,
    ) -> Result<Option<PutResult>, StoreError> {
        let existing = async || {
            let there = self.existing(path, received);
            let there = in_time(STAT_TIMEOUT, "look at the object", there).await;
            there.unwrap_or_else(|late| Err(backend_error(late)))
        };
        let limit = put_timeout(bytes.content_length());
        let deadline = Instant::now() + limit;
        let mut is_unconditional = !create || self.creation_mode() == PutMode::Overwrite;
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
                // A put without the condition may have replaced another caller's object.
                Ok(Ok(_))
                    if create && is_unconditional && existing().await? == Existing::Different =>
                {
                    return Err(StoreError::Exists);
                }
                Ok(Ok(put)) => return Ok(Some(put)),
                Ok(Err(error)) => error,
                Err(_) => NoAnswer { waits_for: "put", limit }.into(),
            };
            let is_there = matches!(error, Error::AlreadyExists { .. });
            if !is_there && !self.may_have_succeeded(&error) {
                return Err(backend_error(error));
            }
            match existing().await {
                Ok(Existing::Identical) => return Ok(None),
                Ok(Existing::Different) if create => return Err(StoreError::Exists),
                Ok(Existing::Different) | Err(_) => return Err(backend_error(error)),
                Ok(Existing::Absent) if is_there => match pauses.next() {
                    Some(pause) => sleep(pause).await,
                    None => return Err(backend_error(error)),
                },
                // `object_store` does not retry a creation that timed out.
                Ok(Existing::Absent) if create && !retried && Instant::now() < deadline => {
                    retried = true;
                }
                Ok(Existing::Absent) => return Err(backend_error(error)),
            }
            if self.is_azure() && pauses.len() == 0 {
                // Azure keeps the blocks of an abandoned upload for a week, and only an unconditional put removes
                // them. It is sent only if there still is no visible object.
                match existing().await? {
                    Existing::Absent => is_unconditional = true,
                    Existing::Identical => return Ok(None),
                    Existing::Different => return Err(StoreError::Exists),
                }
            }
        }
    }

    /// Whether a failed write may have succeeded on the server.
    fn may_have_succeeded(&self, error: &Error) -> bool {
        self.backend.provider.is_some()
            && matches!(error, Error::Generic { .. } | Error::Precondition { .. })
    }

    pub(in crate::store) fn is_azure(&self) -> bool {
        self.backend.provider == Some(Provider::Azure)
    }

    /// Compares the object at `path` with a received body.
    pub(in crate::store) async fn existing(
        &self,
        path: &Path,
        received: &Received,
    ) -> Result<Existing, StoreError> {
        let Received { plain, sha256, .. } = *received;
        let meta = match self.stat_now(path).await {
            Err(StoreError::NotFound) => return Ok(Existing::Absent),
            // An unreadable object differs.
            Err(
                StoreError::Corrupt(_)
                | StoreError::NoKey(_)
                | StoreError::WrongKey(_)
                | StoreError::Ambiguous(_)
                | StoreError::Unreadable(_),
            ) => return Ok(Existing::Different),
            meta => meta?,
        };
        match meta.sha256 {
            Some(there) if there == sha256 => return Ok(Existing::Identical),
            Some(_) => return Ok(Existing::Different),
            // An object of another program is read only if its size matches.
            None if meta.size != plain => return Ok(Existing::Different),
            None => {}
        }
        let (meta, there) = self.computed(path).await?;
        if there != sha256 {
            return Ok(Existing::Different);
        }
        // The digest of this object was not recorded when it was stored.
        self.record(path, Some(meta.etag), meta.stored, sha256, meta.format).await?;
        Ok(Existing::Identical)
    }

    /// The metadata of a new object, where the backend supports it: its digest if known, its stored format, the id
    /// of the upload, and when its content was stored if it was before. The format of a plain object is that of one with a digest. Without a digest it is written, too:
    /// a killed process may leave the object without its record, and not every content shows that it is plain.
    pub(in crate::store) fn attributes(
        &self,
        sha256: Option<Sha256>,
        format: StoredFormat,
        upload: Option<&str>,
        written: Option<Timestamp>,
    ) -> Attributes {
        if !self.backend.metadata {
            return Attributes::new();
        }
        let sha256 = sha256.map(|sha256| (DIGEST_ATTRIBUTE, sha256.to_string()));
        let format = (format != StoredFormat::Plain || sha256.is_none())
            .then(|| (FORMAT_ATTRIBUTE, format.to_string()));
        let upload = upload.map(|id| (self.upload_id(), id.to_owned()));
        let written = written.map(|time| (self.written_time(), time.to_string()));
        sha256.into_iter().chain(format).chain(upload).chain(written).collect()
    }

    /// The name of the metadata with the upload's id. Azure accepts only C# identifiers.
    pub(in crate::store) fn upload_id(&self) -> Attribute {
        Attribute::Metadata(
            if self.is_azure() { "plancha_upload" } else { "plancha-upload" }.into(),
        )
    }

    /// The name of the metadata with the time at which the content was stored, on a version that has only changed its form.
    pub(in crate::store) fn written_time(&self) -> Attribute {
        Attribute::Metadata(
            if self.is_azure() { "plancha_written" } else { "plancha-written" }.into(),
        )
    }

    /// Puts a small internal object, whose content never changes.
    pub(in crate::store) async fn put_internal(
        &self,
        path: &Path,
        bytes: Bytes,
    ) -> Result<(), StoreError> {
        self.objects.put(path, bytes.into()).await.map_err(backend_error)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{FutureExt as _, future, stream};
    use object_store::memory::InMemory;

    use super::*;
    use crate::store::backend::metered::Calls;
    use crate::store::backend::storage::Backend;
    use crate::store::handle::Inner;
    use crate::store::write::double::{Call, Hooked};

    #[tokio::test(start_paused = true)]
    async fn a_creation_over_uncommitted_blocks_never_replaces_another_object() {
        for others_come in [false, true] {
            let creations = Arc::new(AtomicUsize::default());
            let counted = Arc::clone(&creations);
            // Azure's answer while uncommitted blocks of the object exist; its lease has none.
            let before = move |call: Call<'_>| {
                let path = match call {
                    Call::Put(path, PutMode::Create) if path.as_ref().starts_with("layers/") => {
                        path
                    }
                    _ => return future::ready(Ok(())).boxed(),
                };
                counted.fetch_add(1, Ordering::Relaxed);
                let source = "BlobAlreadyExists".into();
                future::ready(Err(Error::AlreadyExists { path: path.to_string(), source })).boxed()
            };
            let azure = Arc::new(Hooked { inner: InMemory::new(), before });
            let provider = Some(Provider::Azure);
            let backend = Backend { provider, ..Backend::memory() };
            let store =
                Store(Arc::new(Inner::new(Arc::clone(&azure) as _, backend, Calls::default())));
            let path = Path::parse("layers/a/b/c/0/plan.bin").unwrap();
            let key = Key::from_path(path.as_ref()).unwrap();

            let conditions = PutConditions { create: true, ..PutConditions::default() };
            let ours = stream::iter([Ok(Bytes::from_static(b"ours"))]);
            let (put, ()) = tokio::join!(store.put(&key, conditions, ours), async {
                // The check before the longest pause has found nothing.
                while creations.load(Ordering::Relaxed) < 3 {
                    sleep(Duration::from_millis(10)).await;
                }
                sleep(PAUSES[2] / 2).await;
                if others_come {
                    azure.inner.put(&path, "theirs".into()).await.unwrap();
                }
            });
            let there = azure.inner.get(&path).await.unwrap().bytes().await.unwrap();
            if others_come {
                assert!(matches!(put, Err(StoreError::Exists)), "{put:?}");
                assert_eq!(there, "theirs");
            } else {
                assert_eq!(put.unwrap(), Sha256::of(b"ours"));
                assert_eq!(there, "ours");
            }
        }
    }
}
