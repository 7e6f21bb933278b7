//! Which versions are published.
//!
//! A list is kept as plain versions, believed for an hour, then asked for again with its `ETag`. An old
//! one stands in while the site cannot be reached.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::Path;
use std::time::SystemTime;

use fs_err as fs;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::error::ReleaseError;
use super::http::{Http, shown};
use super::memory::{private_dir, replace};
use crate::version::{Request, ToolName, Version};

const FRESH_SECONDS: u64 = 3600;
const MAX_LIST: u64 = 64 << 20;

/// The published versions, in no order.
#[derive(Debug)]
pub(super) struct List {
    pub(super) versions: Vec<Version>,
    /// Where it comes from, for people.
    pub(super) source: String,
    /// Whether it stands in for a newer one that cannot be had.
    pub(super) is_old: bool,
}

impl List {
    /// What there is instead of something that is not in the list, for people.
    pub(super) fn nearest(&self, request: &Request) -> String {
        let largest =
            |versions: Vec<&Version>| versions.into_iter().max_by(|a, b| a.compare(b)).cloned();
        let smallest =
            |versions: Vec<&Version>| versions.into_iter().min_by(|a, b| a.compare(b)).cloned();
        let stable = self.versions.iter().filter(|version| !version.is_prerelease());
        let near: Vec<Version> = match request {
            Request::Exact(wanted) => {
                let side =
                    |order| stable.clone().filter(move |other| other.compare(wanted) == order);
                let below = largest(side(Ordering::Less).collect());
                below.into_iter().chain(smallest(side(Ordering::Greater).collect())).collect()
            }
            _ => largest(stable.collect()).into_iter().collect(),
        };
        match (near.as_slice(), request) {
            ([], _) => "the list of versions is empty".to_owned(),
            ([one], Request::Exact(_)) => format!("the nearest is {one}"),
            ([one], _) => format!("the newest is {one}"),
            ([one, other, ..], _) => format!("the nearest are {one} and {other}"),
        }
    }
}

/// A list as it is kept.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    url: String,
    etag: Option<String>,
    /// Seconds since 1970.
    fetched: u64,
    versions: Vec<String>,
}

/// releases.hashicorp.com's index.json
#[derive(Deserialize)]
#[expect(clippy::zero_sized_map_values, reason = "serde reads no keys without values")]
struct Index {
    versions: HashMap<String, IgnoredAny>,
}

/// get.opentofu.org's api.json
#[derive(Deserialize)]
struct Api {
    versions: Vec<ApiVersion>,
}

#[derive(Deserialize)]
struct ApiVersion {
    id: String,
}

/// The list of `tool` at `url`; `cache` is Plancha's directory in the user's cache.
pub(super) async fn fetch(
    http: &Http,
    tool: ToolName,
    url: &str,
    cache: Option<&Path>,
    refresh: bool,
) -> Result<List, ReleaseError> {
    let file = cache.map(|cache| cache.join("lists").join(format!("{tool}.json")));
    let kept = file.as_deref().and_then(|file| read(file, url));
    let now =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let age = |kept: &Kept| now.checked_sub(kept.fetched);
    if let Some(kept) = &kept
        && !refresh
        && age(kept).is_some_and(|age| age < FRESH_SECONDS)
    {
        return Ok(list(kept, "kept for an hour", false));
    }
    let etag = kept.as_ref().and_then(|kept| kept.etag.as_deref());
    let (kept, how) = match (http.get_changed(url, MAX_LIST, etag).await, kept) {
        (Ok(Some(answer)), _) => {
            let versions = parse(tool, &answer.body)
                .map_err(|source| ReleaseError::NotAList { url: shown(url), source })?;
            (Kept { url: url.to_owned(), etag: answer.etag, fetched: now, versions }, "asked now")
        }
        (Ok(None), Some(kept)) => (Kept { fetched: now, ..kept }, "asked now, unchanged"),
        (Err(error), Some(kept)) if error.is_outage() => {
            tracing::warn!("using the list of versions kept from before: {error}");
            return Ok(list(&kept, "kept from before", true));
        }
        (Err(error), _) => return Err(error),
        (Ok(None), None) => return Err(ReleaseError::Refused { url: shown(url), status: 304 }),
    };
    if let Some(file) = file {
        keep(&file, &kept);
    }
    Ok(list(&kept, how, false))
}

fn list(kept: &Kept, how: &str, is_old: bool) -> List {
    List {
        versions: kept.versions.iter().filter_map(|version| version.parse().ok()).collect(),
        source: format!("{} ({how})", shown(&kept.url)),
        is_old,
    }
}

fn parse(tool: ToolName, body: &[u8]) -> Result<Vec<String>, serde_json::Error> {
    let versions = match tool {
        ToolName::Terraform => {
            serde_json::from_slice::<Index>(body)?.versions.into_keys().collect()
        }
        ToolName::Tofu => {
            let versions = serde_json::from_slice::<Api>(body)?.versions.into_iter();
            versions.map(|version| version.id).collect()
        }
    };
    Ok(versions)
}

/// A kept list of another address, or one that does not parse, is none.
fn read(file: &Path, url: &str) -> Option<Kept> {
    let kept: Kept = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    (kept.url == url).then_some(kept)
}

/// That it cannot be kept costs the next run a download, no more.
fn keep(file: &Path, kept: &Kept) {
    let write = || {
        private_dir(file.parent().unwrap_or(Path::new(".")))?;
        replace(file, &serde_json::to_vec(kept)?)
    };
    if let Err(error) = write() {
        tracing::debug!("not keeping {}: {error}", file.display());
    }
}
