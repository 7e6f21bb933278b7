//! The objects and uploads of the fake cloud.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use axum::body::Bytes;
use jiff::{SignedDuration, Timestamp};

/// Objects and uploads.
pub(super) struct Bucket {
    pub(super) objects: BTreeMap<String, Object>,
    pub(super) uploads: HashMap<String, Upload>,
    pub(super) ignores_conditions: bool,
    /// Those of a completion alone.
    pub(super) ignores_completions: bool,
    /// The status and code of each PUT that has the condition of a creation, if the server does not support it.
    pub(super) rejects_creations: Option<(u16, &'static str)>,
    /// The status and code of each completion that has a condition, if the server does not support it.
    pub(super) rejects_completions: Option<(u16, &'static str)>,
    /// Those of a replacement alone.
    pub(super) ignores_updates: bool,
    /// A completion returns another ETag than the object has.
    pub(super) returns_wrong_etags: bool,
    /// An error about clock skew does not contain the time.
    pub(super) hides_time: bool,
    pub(super) is_missing: bool,
    pub(super) page_size: usize,
    pub(super) ahead: SignedDuration,
    versions: u64,
}

/// One object. Its bytes are kept in the pieces that they came in.
#[derive(Clone)]
pub(super) struct Object {
    pub(super) data: Vec<Bytes>,
    pub(super) size: usize,
    pub(super) version: u64,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) modified: Timestamp,
}

/// A multipart upload.
pub(super) struct Upload {
    pub(super) key: String,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) initiated: Timestamp,
    pub(super) parts: BTreeMap<u32, (u64, Vec<Bytes>)>,
}

/// A page of a listing.
pub(super) struct Page<'a> {
    pub(super) objects: Vec<(&'a String, &'a Object)>,
    pub(super) prefixes: Vec<String>,
    pub(super) next: Option<String>,
}

/// Why an upload cannot be completed.
pub(super) enum Incomplete {
    NoSuchUpload,
    TooSmall,
    WrongPart,
}

const LEAST_PART: usize = 5 << 20;

impl Default for Bucket {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            uploads: HashMap::new(),
            ignores_conditions: false,
            ignores_completions: false,
            rejects_creations: None,
            rejects_completions: None,
            ignores_updates: false,
            returns_wrong_etags: false,
            hides_time: false,
            is_missing: false,
            page_size: 1000,
            ahead: SignedDuration::ZERO,
            versions: 0,
        }
    }
}

impl Object {
    pub(super) fn etag(&self) -> String {
        format!("\"{:032x}\"", self.version)
    }
}

impl Bucket {
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::now() + self.ahead
    }

    /// Whether S3 would refuse a request that was made now.
    pub(super) fn is_skewed(&self) -> bool {
        self.ahead.abs() > SignedDuration::from_mins(15)
    }

    fn next_version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    pub(super) fn put(
        &mut self,
        key: String,
        data: Vec<Bytes>,
        metadata: Vec<(String, String)>,
    ) -> Object {
        let size = data.iter().map(Bytes::len).sum();
        let version = self.next_version();
        let object = Object { data, size, version, metadata, modified: self.now() };
        self.objects.insert(key, object.clone());
        object
    }

    pub(super) fn begin(&mut self, key: String, metadata: Vec<(String, String)>) -> String {
        // An id with characters that must be escaped, as real ones have.
        let id = format!("upload/{}+=", self.next_version());
        let upload = Upload { key, metadata, initiated: self.now(), parts: BTreeMap::new() };
        self.uploads.insert(id.clone(), upload);
        id
    }

    pub(super) fn part(&mut self, id: &str, number: u32, data: Vec<Bytes>) -> Option<u64> {
        let version = self.next_version();
        self.uploads.get_mut(id)?.parts.insert(number, (version, data));
        Some(version)
    }

    /// Makes an object of the parts that are named by their numbers and tags.
    pub(super) fn complete(
        &mut self,
        id: &str,
        named: &[(u32, String)],
    ) -> Result<Object, Incomplete> {
        let upload = self.uploads.get(id).ok_or(Incomplete::NoSuchUpload)?;
        let mut data = Vec::new();
        for (at, (number, tag)) in named.iter().enumerate() {
            let Some((version, part)) = upload.parts.get(number) else {
                return Err(Incomplete::WrongPart);
            };
            if !tag.contains(&format!("{version:032x}")) {
                return Err(Incomplete::WrongPart);
            }
            let size = part.iter().map(Bytes::len).sum::<usize>();
            if size < LEAST_PART && at + 1 < named.len() {
                return Err(Incomplete::TooSmall);
            }
            data.extend(part.iter().cloned());
        }
        let upload = self.uploads.remove(id).ok_or(Incomplete::NoSuchUpload)?;
        Ok(self.put(upload.key, data, upload.metadata))
    }

    /// The keys after `after` that begin with `prefix`; those that have the delimiter behind it
    /// only by what they begin with.
    pub(super) fn list(&self, prefix: &str, delimiter: &str, after: &str, keys: usize) -> Page<'_> {
        let from = if after >= prefix {
            Bound::Excluded(after.to_owned())
        } else {
            Bound::Included(prefix.to_owned())
        };
        let mut page = Page { objects: Vec::new(), prefixes: Vec::new(), next: None };
        let mut last = String::new();
        for (key, object) in self.objects.range((from, Bound::Unbounded)) {
            let Some(rest) = key.strip_prefix(prefix) else { break };
            let end = rest.find(delimiter).filter(|_| !delimiter.is_empty());
            let folded = end.map(|end| format!("{prefix}{}", &rest[..end + delimiter.len()]));
            if folded.as_ref().is_some_and(|folded| {
                page.prefixes.last() == Some(folded) || after.starts_with(folded.as_str())
            }) {
                last.clone_from(key);
                continue;
            }
            if page.objects.len() + page.prefixes.len() >= keys.min(self.page_size) {
                page.next = Some(last);
                break;
            }
            last.clone_from(key);
            match folded {
                Some(folded) => page.prefixes.push(folded),
                None => page.objects.push((key, object)),
            }
        }
        page
    }
}
