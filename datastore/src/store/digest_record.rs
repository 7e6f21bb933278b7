//! The digest of an object that cannot carry it: a small JSON object beside it.
//!
//! A record names the `ETag` of the version that it describes. In a directory it is a copy of the file's own attribute,
//! or written before the object is replaced (`publish.rs`). A record that describes neither version of an object means that another program, a
//! restored backup or a failing disk has changed it.

pub(in crate::store) mod lookup;

use std::ops::Range;

use datastore_api::Sha256;
use object_store::path::Path;
use object_store::{Attribute, GetOptions, GetRange, GetResult, ObjectStore};
use serde::{Deserialize, Serialize};

use crate::store::encryption::StoredFormat;
use crate::store::error::{StoreError, backend_error};

/// The name of the metadata that holds the digest, where an object can carry it.
pub(in crate::store) const DIGEST_ATTRIBUTE: Attribute =
    Attribute::Metadata(std::borrow::Cow::Borrowed("sha256"));

/// The name of the metadata that holds the stored format, unless it is plain and the digest is beside it.
pub(in crate::store) const FORMAT_ATTRIBUTE: Attribute =
    Attribute::Metadata(std::borrow::Cow::Borrowed("form"));

/// The result of a lookup of an object's digest.
#[derive(Debug)]
pub(in crate::store) enum DigestLookup {
    /// The digest and the stored format.
    Found(Sha256, StoredFormat),
    /// There is a record, but of another version of the object.
    Stale(StaleRecord),
    /// No digest; perhaps the stored format.
    Missing(Option<StoredFormat>),
}

/// A record that does not describe the object beside it.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct StaleRecord {
    /// The recorded digest.
    pub(in crate::store) sha256: Option<Sha256>,
    /// The recorded format, if the object may be a copy of the recorded version.
    pub(in crate::store) format: Option<StoredFormat>,
    /// The recorded format in any case.
    pub(in crate::store) recorded_format: Option<StoredFormat>,
    /// Whether the object has the recorded size.
    pub(in crate::store) same_size: bool,
}

/// One version of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::store) struct Version {
    pub(in crate::store) etag: String,
    pub(in crate::store) size: u64,
    /// Absent for a version that another program stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::store) sha256: Option<Sha256>,
    /// The stored format, if not plain.
    #[serde(rename = "form", default, skip_serializing_if = "Option::is_none")]
    pub(in crate::store) format: Option<String>,
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::store) struct Record {
    #[serde(flatten)]
    pub(in crate::store) version: Version,
    /// The version that it replaces, or has replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::store) before: Option<Version>,
}

impl Version {
    pub(in crate::store) fn new(
        etag: String,
        size: u64,
        sha256: Option<Sha256>,
        format: StoredFormat,
    ) -> Self {
        let format = (format != StoredFormat::Plain).then(|| format.to_string());
        Self { etag, size, sha256, format }
    }

    /// Whether it has this `ETag` and size.
    pub(in crate::store) fn is(&self, etag: &str, size: u64) -> bool {
        self.size == size && bare(&self.etag) == bare(etag)
    }

    fn format(&self) -> Result<Option<StoredFormat>, StoreError> {
        let format = self.format.as_deref().map(str::parse::<StoredFormat>);
        format.transpose().map_err(backend_error)
    }
}

impl Record {
    /// A record that a power failure has truncated does not parse and counts as missing.
    pub(in crate::store) fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// The version with this `ETag` and size, if the record describes it.
    pub(in crate::store) fn version(&self, etag: &str, size: u64) -> Option<&Version> {
        [Some(&self.version), self.before.as_ref()]
            .into_iter()
            .flatten()
            .find(|version| version.is(etag, size))
    }

    /// What the record contains about the version with this `ETag` and size.
    pub(in crate::store) fn known(
        &self,
        etag: &str,
        size: u64,
        format: Option<StoredFormat>,
    ) -> Result<DigestLookup, StoreError> {
        if let Some(found) = self.version(etag, size) {
            let recorded = found.format()?;
            return Ok(match found.sha256 {
                Some(sha256) => {
                    DigestLookup::Found(sha256, recorded.unwrap_or(StoredFormat::Plain))
                }
                None => DigestLookup::Missing(format.or(recorded)),
            });
        }
        let same_size = self.version.size == size;
        let recorded_format = self.version.format()?;
        let format = format.or(recorded_format.filter(|_| same_size));
        let sha256 = self.version.sha256;
        Ok(DigestLookup::Stale(StaleRecord { sha256, format, recorded_format, same_size }))
    }
}

/// Reads a range of the version with this `ETag`, or of any version if `etag` is empty. Another version is an error,
/// also where the server ignores the condition.
pub(in crate::store) async fn get_version(
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

pub(in crate::store) fn replaced(path: &Path) -> object_store::Error {
    let path = path.to_string();
    object_store::Error::Precondition { path, source: "it was replaced".into() }
}

/// An `ETag` without quotes and without the prefix of a weak one, as some servers write it.
pub(in crate::store) fn bare(etag: &str) -> &str {
    etag.trim_start_matches("W/").trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(etag: &str, content: &[u8]) -> Version {
        Version::new(
            etag.into(),
            content.len() as u64,
            Some(Sha256::of(content)),
            StoredFormat::Plain,
        )
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
                matches!(known, DigestLookup::Found(sha256, StoredFormat::Plain) if sha256 == Sha256::of(content))
            );
        }
        let known = record.known("c", 3, None).unwrap();
        assert!(matches!(known, DigestLookup::Stale(StaleRecord { same_size: true, .. })));
        let known = record.known("b", 4, None).unwrap();
        assert!(matches!(known, DigestLookup::Stale(StaleRecord { same_size: false, .. })));
    }

    #[test]
    fn records_of_earlier_releases_are_read() {
        let digest = Sha256::of(b"x");
        let json =
            format!("{{\"etag\":\"a\",\"size\":1,\"sha256\":\"{digest}\",\"form\":\"cbc:1:\"}}");
        let known = Record::parse(json.as_bytes()).unwrap().known("a", 1, None).unwrap();
        assert!(
            matches!(known, DigestLookup::Found(found, StoredFormat::Cbc(Some(1), None)) if found == digest)
        );
    }
}
