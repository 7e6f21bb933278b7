//! Which versions are published.
//!
//! A list is kept as plain versions, believed for an hour, then asked for again with its `ETag`. An old
//! one stands in while the site cannot be reached.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::release::cache_file::{private_dir, replace};
use crate::release::download::http::Http;
use crate::release::download::url::shown;
use crate::release::error::ReleaseError;
use crate::release::versions::formats::{self, Asked};
use crate::release::versions::layout::ListAt;
use crate::release::versions::site::Site;
use crate::version::{Request, Version};

const FRESH_SECONDS: u64 = 3600;

/// The published versions, in no order.
#[derive(Debug)]
pub(in crate::release) struct List {
    pub(in crate::release) versions: Vec<Version>,
    /// Where it comes from, for people.
    pub(in crate::release) source: String,
    /// Why it stands in for a newer one, if it does.
    pub(in crate::release) old: Option<String>,
}

impl List {
    /// What there is instead of something that is not in the list, for people.
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
            ([], _) => "there is none at all".to_owned(),
            ([one], Request::Exact(_)) => format!("the nearest is {one}"),
            ([one], _) => format!("the newest is {one}"),
            ([one, other, ..], _) => format!("the nearest are {one} and {other}"),
        }
    }
}

/// A list as it is kept.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// The address that was to be asked, without a password.
    url: String,
    /// The one that answered, if it was another.
    #[serde(default)]
    answered: Option<String>,
    etag: Option<String>,
    /// Seconds since 1970.
    fetched: u64,
    versions: Vec<String>,
}

/// The list of a site; `cache` is Plancha's directory in the user's cache.
///
/// The next of several addresses is asked only when one does not exist or is no list.
pub(in crate::release) async fn fetch(
    http: &Http,
    site: &Site,
    cache: Option<&Path>,
    refresh: bool,
) -> Result<List, ReleaseError> {
    let Some(first) = site.lists.first() else { return Err(ReleaseError::Nowhere) };
    let file = file(site, cache);
    let kept = file.as_deref().and_then(|file| read(file, &shown(&first.url)));
    let now = now();
    if let Some(kept) = &kept
        && !refresh
        && kept.is_fresh(now)
    {
        return Ok(list(kept, "kept for an hour", None));
    }
    let (kept, how) = match (ask_all(http, site, kept.as_ref()).await, kept) {
        (Ok(Some((list, at))), _) => {
            let answered = (at.url != first.url).then(|| shown(&at.url));
            let Asked { versions, etag } = list;
            let kept = Kept { url: shown(&first.url), answered, etag, fetched: now, versions };
            (kept, "asked now")
        }
        (Ok(None), Some(kept)) => (Kept { fetched: now, ..kept }, "asked now, unchanged"),
        (Err(error), Some(kept)) if error.is_outage() => {
            tracing::warn!("using the list of versions kept from before: {error}");
            return Ok(list(&kept, "kept from before", Some(error.to_string())));
        }
        (Err(error), _) => return Err(error),
        (Ok(None), None) => {
            return Err(ReleaseError::Refused { url: shown(&first.url), status: 304 });
        }
    };
    if let Some(file) = file {
        keep(&file, &kept);
    }
    Ok(list(&kept, how, None))
}

/// Whether the list can be had without asking anybody.
pub(in crate::release) fn is_fresh(site: &Site, cache: Option<&Path>) -> bool {
    let kept = || read(&file(site, cache)?, &shown(&site.lists.first()?.url));
    kept().is_some_and(|kept| kept.is_fresh(now()))
}

/// Where the list is kept. What lies on a disk is read again: that costs less than to be wrong.
fn file(site: &Site, cache: Option<&Path>) -> Option<PathBuf> {
    site.lists.first().filter(|first| !first.url.starts_with("file:"))?;
    Some(cache?.join("lists").join(format!("{}.json", site.tool)))
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

impl Kept {
    fn is_fresh(&self, now: u64) -> bool {
        now.checked_sub(self.fetched).is_some_and(|age| age < FRESH_SECONDS)
    }
}

/// The first list that is one, or `None` if it is the kept one.
async fn ask_all<'s>(
    http: &Http,
    site: &'s Site,
    kept: Option<&Kept>,
) -> Result<Option<(Asked, &'s ListAt)>, ReleaseError> {
    let mut refusal = None;
    for at in &site.lists {
        let same = |kept: &&Kept| *kept.answered.as_ref().unwrap_or(&kept.url) == shown(&at.url);
        let etag = kept.filter(same).and_then(|kept| kept.etag.as_deref());
        match formats::ask(http, at, etag).await {
            Ok(asked) => return Ok(asked.map(|asked| (asked, at))),
            Err(error @ (ReleaseError::NotFound(_) | ReleaseError::NotAList { .. })) => {
                refusal.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(refusal.unwrap_or(ReleaseError::Nowhere))
}

fn list(kept: &Kept, how: &str, old: Option<String>) -> List {
    let url = kept.answered.as_ref().unwrap_or(&kept.url);
    List {
        versions: kept.versions.iter().filter_map(|version| version.parse().ok()).collect(),
        source: format!("{url} ({how})"),
        old,
    }
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
