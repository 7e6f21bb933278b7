//! Release sites that were unreachable a short time ago.
//!
//! One small file in the user's cache. If there is an alternative to downloading, these sites get no request. If the file
//! is missing, broken or not writable, a run takes longer, but never fails.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;

use fs_err as fs;
use url::Url;

use crate::release::cache_file::{private_dir, replace};

/// How long a failure is remembered.
const REMEMBERED_SECONDS: u64 = 600;

/// The record; without a directory it stores nothing.
#[derive(Clone, Debug)]
pub(in crate::release) struct UnreachableSites {
    dir: Option<PathBuf>,
}

/// When each site could not be reached, in seconds since 1970.
type Failures = BTreeMap<String, u64>;

impl UnreachableSites {
    /// `dir` is Plancha's directory in the user's cache.
    pub(in crate::release) fn new(dir: Option<PathBuf>) -> Self {
        Self { dir }
    }

    /// The site of a URL and the seconds since it was unreachable, if that was a short time ago.
    pub(in crate::release) fn recent_failure(&self, url: &str) -> Option<(String, u64)> {
        let site = site(url)?;
        let at = self.failures().get(&site).copied()?;
        let seconds = now().checked_sub(at).filter(|seconds| *seconds < REMEMBERED_SECONDS)?;
        Some((site, seconds))
    }

    /// Records that a site was unreachable, or removes it from the record.
    pub(in crate::release) fn remember(&self, url: &str, failed: bool) {
        let (Some(dir), Some(site)) = (&self.dir, site(url)) else { return };
        let mut failures = self.failures();
        if !failed && !failures.contains_key(&site) {
            return;
        }
        let now = now();
        failures.retain(|_, at| now.checked_sub(*at).is_some_and(|age| age < REMEMBERED_SECONDS));
        failures.remove(&site);
        failures.extend(failed.then_some((site, now)));
        let write = || {
            private_dir(dir)?;
            replace(&dir.join("sites.json"), &serde_json::to_vec_pretty(&failures)?)
        };
        if let Err(error) = write() {
            tracing::debug!("cannot record which sites are unreachable: {error}");
        }
    }

    fn failures(&self) -> Failures {
        let read = || {
            let text = fs::read(self.dir.as_ref()?.join("sites.json")).ok()?;
            serde_json::from_slice(&text).ok()
        };
        read().unwrap_or_default()
    }
}

/// Scheme, host and port.
fn site(url: &str) -> Option<String> {
    let origin = Url::parse(url).ok()?.origin();
    origin.is_tuple().then(|| origin.ascii_serialization())
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_remembered_for_its_site_and_for_ten_minutes() {
        let dir = tempfile::tempdir().unwrap();
        let sites = UnreachableSites::new(Some(dir.path().join("cache")));
        assert_eq!(sites.recent_failure("https://a/x"), None);
        sites.remember("https://user:secret@a/x?token=1", true);
        let (site, seconds) = sites.recent_failure("https://a/y").unwrap();
        assert!(site == "https://a" && seconds < 60, "{site} {seconds}");
        assert_eq!(sites.recent_failure("https://a:444/y"), None);
        let file = dir.path().join("cache/sites.json");
        assert!(!std::fs::read_to_string(&file).unwrap().contains("secret"));
        sites.remember("https://a/z", false);
        assert_eq!(sites.recent_failure("https://a/y"), None);

        for (age, counts) in [(590, true), (610, false)] {
            std::fs::write(&file, format!("{{\"https://a\": {}}}", now() - age)).unwrap();
            assert_eq!(sites.recent_failure("https://a/x").is_some(), counts, "{age}");
        }
        for text in ["{\"https://a\": 99999999999}", "{", "[]"] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(sites.recent_failure("https://a/x"), None);
        }
        UnreachableSites::new(None).remember("https://a", true);
    }
}
