//! The digest of an object that cannot carry it: a small JSON object beside it.
//!
//! A record names the `ETag` of the object that it was written for. Where that is not the object's,
//! somebody else has put the object there (upstream, a restored backup), and its digest is unknown.

use std::ops::Range;

use datastore_api::Sha256;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore,
    ObjectStoreExt as _,
};
use serde::{Deserialize, Serialize};

use crate::seal::Form;

use super::{Store, StoreError, backend, record_path};

/// The name of the metadata that holds the digest, where an object can carry it.
pub(super) const METADATA: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("sha256"));

/// The name of the metadata that says how it lies there, if not as it was put.
pub(super) const FORM: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("form"));

/// What is known of an object's digest.
pub(super) enum Known {
    /// This is it, and so the object lies there.
    Digest(Sha256, Form),
    /// There is a record, but of another version of the object; perhaps how that lay there, if this one
    /// may be a copy of it.
    Another(Option<Form>),
    /// No digest; perhaps how it lies there.
    Nothing(Option<Form>),
}

#[derive(Serialize, Deserialize)]
struct Record {
    etag: String,
    size: u64,
    sha256: Sha256,
    /// How it lies there, if not as it was put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    form: Option<String>,
}

impl Store {
    /// Writes down the digest of the object that was just put.
    pub(super) async fn record(
        &self,
        path: &Path,
        etag: Option<String>,
        size: u64,
        sha256: Sha256,
        form: Form,
    ) -> Result<(), StoreError> {
        self.record_of(path, etag.unwrap_or_default(), size, sha256, form).await
    }

    /// Writes down the digest of the version of an object that this tag names.
    pub(super) async fn record_of(
        &self,
        path: &Path,
        etag: String,
        size: u64,
        sha256: Sha256,
        form: Form,
    ) -> Result<(), StoreError> {
        let form = (form != Form::Plain).then(|| form.to_string());
        let json = serde_json::to_vec(&Record { etag, size, sha256, form }).map_err(backend)?;
        self.put_own(&record_path(path)?, json.into()).await
    }

    /// The digest an object was stored with.
    pub(super) async fn digest(
        &self,
        meta: &ObjectMeta,
        attributes: &Attributes,
    ) -> Result<Known, StoreError> {
        let form = attributes.get(&FORM).map(|text| text.parse::<Form>());
        let form = form.transpose().map_err(backend)?;
        if let Some(carried) = attributes.get(&METADATA).and_then(|text| text.parse().ok()) {
            return Ok(Known::Digest(carried, form.unwrap_or(Form::Plain)));
        }
        let json = match self.objects.get(&record_path(&meta.location)?).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(Known::Nothing(form)),
            found => found?.bytes().await?,
        };
        // One that does not parse was cut off by a power failure: as good as none.
        let Ok(record) = serde_json::from_slice::<Record>(&json) else {
            return Ok(Known::Nothing(form));
        };
        let etag = meta.e_tag.as_deref().unwrap_or_default();
        if record.size != meta.size {
            return Ok(Known::Another(form));
        }
        let recorded = record.form.map(|text| text.parse::<Form>()).transpose().map_err(backend)?;
        if bare(&record.etag) == bare(etag) {
            return Ok(Known::Digest(record.sha256, recorded.unwrap_or(Form::Plain)));
        }
        Ok(Known::Another(form.or(recorded)))
    }
}

/// A part of the version of an object that this tag names, if it is not empty; of no other version, though not
/// every server heeds the condition.
pub(super) async fn get_version(
    objects: &dyn ObjectStore,
    path: &Path,
    etag: &str,
    range: Range<u64>,
) -> object_store::Result<GetResult> {
    let tag = Some(etag.to_owned()).filter(|etag| !etag.is_empty());
    let options = GetOptions::new().with_range(Some(GetRange::Bounded(range))).with_if_match(tag);
    let found = objects.get_opts(path, options).await?;
    let there = found.meta.e_tag.as_deref().unwrap_or_default();
    if etag.is_empty() || there.is_empty() || bare(there) == bare(etag) {
        return Ok(found);
    }
    let path = path.to_string();
    Err(object_store::Error::Precondition { path, source: "it was replaced".into() })
}

/// A tag as some answers write it: without quotes, and without the sign of a weak one.
fn bare(etag: &str) -> &str {
    etag.trim_start_matches("W/").trim_matches('"')
}
