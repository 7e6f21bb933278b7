//! The digest of an object that cannot carry it: a small JSON object beside it.
//!
//! A record names the `ETag` of the version that it describes. In a directory it is a copy of the file's own attribute,
//! or written before the object is replaced (`publish.rs`). A record that describes neither version of an object means that another program, a
//! restored backup or a failing disk has changed it.

use std::ops::Range;

use datastore_api::Sha256;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore,
    ObjectStoreExt as _,
};
use serde::{Deserialize, Serialize};

use crate::store::encryption::Form;

use crate::store::{Store, StoreError, backend, record_path};

/// The name of the metadata that holds the digest, where an object can carry it.
pub(super) const METADATA: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("sha256"));

/// The name of the metadata that holds the form at rest, if that is not plain.
pub(super) const FORM: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("form"));

/// What is known of an object's digest.
#[derive(Debug)]
pub(super) enum Known {
    /// Its digest and its form at rest.
    Digest(Sha256, Form),
    /// There is a record, but of another version of the object.
    Another(Another),
    /// No digest; perhaps the form at rest.
    Nothing(Option<Form>),
}

/// A record that does not describe the object beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Another {
    /// The digest that it records.
    pub(super) sha256: Option<Sha256>,
    /// The form at rest of the recorded version, if this one may be a copy of it.
    pub(super) form: Option<Form>,
    /// That form, whether or not this one may be a copy.
    pub(super) recorded_form: Option<Form>,
    /// Whether the object has the recorded size.
    pub(super) same_size: bool,
}

/// One version of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Version {
    pub(super) etag: String,
    pub(super) size: u64,
    /// Absent for a version that another program stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<Sha256>,
    /// The form at rest, if not plain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) form: Option<String>,
}

/// What a record file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(flatten)]
    pub(super) version: Version,
    /// The version that it replaces, or has replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<Version>,
}

impl Version {
    pub(super) fn new(etag: String, size: u64, sha256: Option<Sha256>, form: Form) -> Self {
        let form = (form != Form::Plain).then(|| form.to_string());
        Self { etag, size, sha256, form }
    }

    /// Whether it is the one with this tag and size.
    pub(super) fn is(&self, etag: &str, size: u64) -> bool {
        self.size == size && bare(&self.etag) == bare(etag)
    }

    fn form(&self) -> Result<Option<Form>, StoreError> {
        let form = self.form.as_deref().map(str::parse::<Form>);
        form.transpose().map_err(backend)
    }
}

impl Record {
    /// A record that was cut off by a power failure does not parse: it counts as none.
    pub(super) fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// The version of this tag and size, if the record describes it.
    pub(super) fn version(&self, etag: &str, size: u64) -> Option<&Version> {
        [Some(&self.version), self.before.as_ref()]
            .into_iter()
            .flatten()
            .find(|version| version.is(etag, size))
    }

    /// What it says of the version of this tag and size.
    pub(super) fn known(
        &self,
        etag: &str,
        size: u64,
        form: Option<Form>,
    ) -> Result<Known, StoreError> {
        if let Some(found) = self.version(etag, size) {
            let recorded = found.form()?;
            return Ok(match found.sha256 {
                Some(sha256) => Known::Digest(sha256, recorded.unwrap_or(Form::Plain)),
                None => Known::Nothing(form.or(recorded)),
            });
        }
        let same_size = self.version.size == size;
        let recorded_form = self.version.form()?;
        let form = form.or(recorded_form.filter(|_| same_size));
        let sha256 = self.version.sha256;
        Ok(Known::Another(Another { sha256, form, recorded_form, same_size }))
    }
}

impl Store {
    /// Records the digest of the version of an object that this tag names. In a directory only if it still is that
    /// version; whether it was.
    pub(super) async fn record(
        &self,
        path: &Path,
        etag: Option<String>,
        size: u64,
        sha256: Sha256,
        form: Form,
    ) -> Result<bool, StoreError> {
        let version = Version::new(etag.unwrap_or_default(), size, Some(sha256), form);
        if let Some(disk) = &self.disk {
            return Ok(disk.record(path, version).await?);
        }
        let json = serde_json::to_vec(&Record { version, before: None }).map_err(backend)?;
        self.put_own(&record_path(path)?, json.into()).await?;
        Ok(true)
    }

    /// The digest an object was stored with, where the object or a record has it.
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
        match Record::parse(&json) {
            Some(record) => {
                record.known(meta.e_tag.as_deref().unwrap_or_default(), meta.size, form)
            }
            None => Ok(Known::Nothing(form)),
        }
    }
}

/// A range of the version of an object that this tag names, if it is not empty. Any other version is an error, also
/// where the server ignores the condition.
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
    Err(replaced(path))
}

pub(super) fn replaced(path: &Path) -> object_store::Error {
    let path = path.to_string();
    object_store::Error::Precondition { path, source: "it was replaced".into() }
}

/// A tag as some answers write it: without quotes, and without the sign of a weak one.
pub(super) fn bare(etag: &str) -> &str {
    etag.trim_start_matches("W/").trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(etag: &str, content: &[u8]) -> Version {
        Version::new(etag.into(), content.len() as u64, Some(Sha256::of(content)), Form::Plain)
    }

    #[test]
    fn a_record_describes_the_version_that_it_replaces_as_well() {
        let record =
            Record { version: version("\"b\"", b"new"), before: Some(version("a", b"old1")) };
        let json = serde_json::to_vec(&record).unwrap();
        let record = Record::parse(&json).unwrap();
        for (etag, content) in [("b", &b"new"[..]), ("W/\"a\"", b"old1")] {
            let known = record.known(etag, content.len() as u64, None).unwrap();
            assert!(
                matches!(known, Known::Digest(sha256, Form::Plain) if sha256 == Sha256::of(content))
            );
        }
        let known = record.known("c", 3, None).unwrap();
        assert!(matches!(known, Known::Another(Another { same_size: true, .. })));
        let known = record.known("b", 4, None).unwrap();
        assert!(matches!(known, Known::Another(Another { same_size: false, .. })));
    }

    #[test]
    fn records_of_earlier_releases_are_read() {
        let digest = Sha256::of(b"x");
        let json =
            format!("{{\"etag\":\"a\",\"size\":1,\"sha256\":\"{digest}\",\"form\":\"cbc:1:\"}}");
        let known = Record::parse(json.as_bytes()).unwrap().known("a", 1, None).unwrap();
        assert!(matches!(known, Known::Digest(found, Form::Cbc(Some(1), None)) if found == digest));
    }
}
