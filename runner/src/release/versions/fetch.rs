//! The published versions.
//!
//! A list is cached as plain versions for an hour, then revalidated with its `ETag`. The old list is used while the site
//! cannot be reached.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::release::cache_file::{private_dir, replace};
use crate::release::download::http::Http;
use crate::release::download::url::shown;
use crate::release::error::ReleaseError;
use crate::release::versions::formats::{self, FetchedList};
use crate::release::versions::layout::ListAt;
use crate::release::versions::site::Site;
use crate::version::{Request, Version};

const FRESH_SECONDS: u64 = 3600;

/// The published versions, in no order.
#[derive(Debug)]
pub(in crate::release) struct List {
    pub(in crate::release) versions: Vec<Version>,
    /// Where it comes from, for messages.
    pub(in crate::release) source: String,
    /// Why an old list is used instead of a newer one, if so.
    pub(in crate::release) old: Option<String>,
}

impl List {
    /// The versions nearest to a request that no version satisfies, for messages.
    pub(in crate::release) fn nearest(&self, request: &Request) -> String {
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
            ([], _) => "the list is empty".to_owned(),
            ([one], Request::Exact(_)) => format!("the nearest is {one}"),
            ([one], _) => format!("the newest is {one}"),
            ([one, other, ..], _) => format!("the nearest are {one} and {other}"),
        }
    }
}

/// A list in the cache.
#[derive(Debug, Serialize, Deserialize)]
struct CachedList {
    /// The first URL of the list, without a password.
    url: String,
    /// The URL that had the list, if it was another.
    #[serde(default)]
    answered: Option<String>,
    etag: Option<String>,
    /// Seconds since 1970.
    fetched: u64,
    versions: Vec<String>,
}

/// The list of a site; `cache` is Plancha's directory in the user's cache.
///
/// The next of several URLs is requested only if one does not exist or is not a list.
pub(in crate::release) async fn fetch(
    http: &Http,
    site: &Site,
    cache: Option<&Path>,
    refresh: bool,
) -> Result<List, ReleaseError> {
    let Some(first) = site.lists.first() else { return Err(ReleaseError::Nowhere) };
    let file = file(site, cache);
    let cached = file.as_deref().and_then(|file| read(file, &shown(&first.url)));
    let now = now();
    if let Some(cached) = &cached
        && !refresh
        && cached.is_fresh(now)
    {
        return Ok(list(cached, "from the cache", None));
    }
    let (cached, how) = match (fetch_first(http, site, cached.as_ref()).await, cached) {
        (Ok(Some((list, at))), _) => {
            let answered = (at.url != first.url).then(|| shown(&at.url));
            let FetchedList { versions, etag } = list;
            let cached =
                CachedList { url: shown(&first.url), answered, etag, fetched: now, versions };
            (cached, "fetched now")
        }
        (Ok(None), Some(cached)) => {
            (CachedList { fetched: now, ..cached }, "checked now, unchanged")
        }
        (Err(error), Some(cached)) if error.is_outage() => {
            tracing::warn!("using the list of versions from an old cache: {error}");
            return Ok(list(&cached, "from an old cache", Some(error.to_string())));
        }
        (Err(error), _) => return Err(error),
        (Ok(None), None) => {
            return Err(ReleaseError::Refused { url: shown(&first.url), status: 304 });
        }
    };
    if let Some(file) = file {
        write(&file, &cached);
    }
    Ok(list(&cached, how, None))
}

/// Whether the cached list is fresh, so that no request is needed.
pub(in crate::release) fn is_fresh(site: &Site, cache: Option<&Path>) -> bool {
    let cached = || read(&file(site, cache)?, &shown(&site.lists.first()?.url));
    cached().is_some_and(|cached| cached.is_fresh(now()))
}

/// The file of the cached list; `None` for lists on a disk, which are always read again.
fn file(site: &Site, cache: Option<&Path>) -> Option<PathBuf> {
    site.lists.first().filter(|first| !first.url.starts_with("file:"))?;
    Some(cache?.join("lists").join(format!("{}.json", site.tool)))
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

impl CachedList {
    fn is_fresh(&self, now: u64) -> bool {
        now.checked_sub(self.fetched).is_some_and(|age| age < FRESH_SECONDS)
    }
}

/// Fetches the first URL that has a list; `None` if the cached list is still current.
async fn fetch_first<'s>(
    http: &Http,
    site: &'s Site,
    cached: Option<&CachedList>,
) -> Result<Option<(FetchedList, &'s ListAt)>, ReleaseError> {
    let mut refusal = None;
    for at in &site.lists {
        let same = |cached: &&CachedList| {
            *cached.answered.as_ref().unwrap_or(&cached.url) == shown(&at.url)
        };
        let etag = cached.filter(same).and_then(|cached| cached.etag.as_deref());
        match formats::fetch(http, at, etag).await {
            Ok(fetched) => return Ok(fetched.map(|list| (list, at))),
            Err(error @ (ReleaseError::NotFound(_) | ReleaseError::NotAList { .. })) => {
                refusal.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(refusal.unwrap_or(ReleaseError::Nowhere))
}

fn list(cached: &CachedList, how: &str, old: Option<String>) -> List {
    let url = cached.answered.as_ref().unwrap_or(&cached.url);
    List {
        versions: cached.versions.iter().filter_map(|version| version.parse().ok()).collect(),
        source: format!("{url} ({how})"),
        old,
    }
}

/// Reads the cached list; one of another URL, or one that does not parse, counts as missing.
fn read(file: &Path, url: &str) -> Option<CachedList> {
    let cached: CachedList = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    (cached.url == url).then_some(cached)
}

/// Writes the cached list. After an error the next run downloads the list again.
fn write(file: &Path, cached: &CachedList) {
    let write = || {
        private_dir(file.parent().unwrap_or(Path::new(".")))?;
        replace(file, &serde_json::to_vec(cached)?)
    };
    if let Err(error) = write() {
        tracing::debug!("cannot cache {}: {error}", file.display());
    }
}
