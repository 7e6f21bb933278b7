//! Pages of a layer's runs.
//!
//! S3, Google Cloud Storage and Azure list in the order of keys, page by page, so a page costs the
//! same however many runs there are; its cursor holds their token. A directory is listed whole.

use std::collections::{HashSet, VecDeque};
use std::io;

use datastore_api::key::{RunInfo, Runs};
use datastore_api::{Name, Sha256};
use futures::TryStreamExt as _;
use futures::future::try_join_all;
use object_store::ObjectStoreExt as _;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;

use super::index::parse_entry;
use super::janitor::is_staged;
use super::{Store, StoreError, backend, index_prefix, parse};

/// So many runs of the pages before are known again. A run has an entry for each attempt, and is
/// shown once as long as no more runs than these began between two of its attempts.
const REMEMBERED: usize = 100;
/// Hex digits by which one is known again.
const DIGITS: usize = 12;
/// Listings for one page, where one brings too few because runs were tried again.
const LISTINGS: usize = 8;
/// Names that are read at once, of runs whose name is no part of their entry.
const READS: usize = 8;

/// Where a page begins.
#[derive(Default)]
struct Cursor {
    /// Runs that were shown last, the newest at the end.
    seen: VecDeque<String>,
    /// The backend's token of the next listing.
    token: Option<String>,
}

impl Store {
    /// A page of a layer's runs, newest first; `after` is the cursor that the page before named.
    pub async fn runs(
        &self,
        namespace: &Name,
        layer: &Name,
        limit: usize,
        after: Option<&str>,
    ) -> Result<Runs, StoreError> {
        let prefix = parse(&index_prefix(namespace.as_ref(), layer.as_ref()))?;
        let (entries, next) = match &self.pages {
            Some(pages) => self.page(&**pages, &prefix, limit, after).await?,
            None => self.page_of_all(&prefix, limit, after).await?,
        };
        let mut runs = Vec::new();
        for some in entries.chunks(READS) {
            let infos = try_join_all(some.iter().map(|entry| self.run_info(&prefix, entry)));
            runs.extend(infos.await?.into_iter().flatten());
        }
        Ok(Runs { runs, next })
    }

    /// A page at the price of a page.
    async fn page(
        &self,
        pages: &dyn PaginatedListStore,
        prefix: &Path,
        limit: usize,
        after: Option<&str>,
    ) -> Result<(Vec<String>, Option<String>), StoreError> {
        let full = format!("{}{prefix}/", self.below());
        let mut cursor = after.map(Cursor::parse).unwrap_or_default();
        let mut entries = Vec::new();
        for _ in 0..LISTINGS {
            let options = PaginatedListOptions {
                max_keys: Some(limit.saturating_sub(entries.len())),
                page_token: cursor.token.take(),
                ..PaginatedListOptions::default()
            };
            let page = pages.list_paginated(Some(&full), options).await.map_err(backend)?;
            cursor.token = page.page_token;
            let mut found = page.result.objects;
            // The token is the caller's word: a backend that believes it must not lead elsewhere.
            found.retain(|meta| meta.location.as_ref().starts_with(&full));
            found.sort_by(|a, b| a.location.cmp(&b.location));
            for entry in found.iter().filter_map(|meta| meta.location.filename()) {
                if let Some((_, run)) = parse_entry(entry)
                    && cursor.shows(run)
                {
                    entries.push(entry.to_owned());
                }
            }
            if cursor.token.is_none() || entries.len() >= limit {
                break;
            }
        }
        Ok((entries, cursor.text()))
    }

    /// A page at the price of the whole listing.
    async fn page_of_all(
        &self,
        prefix: &Path,
        limit: usize,
        after: Option<&str>,
    ) -> Result<(Vec<String>, Option<String>), StoreError> {
        let found = self.entries(prefix).await?;
        let mut entries = found.iter().map(String::as_str).collect::<Vec<_>>();
        entries.sort_unstable();

        // A run with several attempts stands here for each of them: the newest counts.
        let mut seen = HashSet::new();
        entries.retain(|entry| parse_entry(entry).is_some_and(|(_, run)| seen.insert(run)));
        entries.retain(|entry| after.is_none_or(|after| *entry > after));

        let next = entries.get(limit).and_then(|_| entries.get(limit.checked_sub(1)?));
        let next = next.map(|entry| (*entry).to_owned());
        Ok((entries.into_iter().take(limit).map(str::to_owned).collect(), next))
    }

    /// The names of all entries of a layer, in no order.
    async fn entries(&self, prefix: &Path) -> Result<Vec<String>, StoreError> {
        let Some(root) = &self.traits.root else {
            let found = self.objects.list(Some(prefix)).map_err(backend);
            let names = found.map_ok(|meta| meta.location.filename().map(str::to_owned));
            return names.try_filter_map(async |name| Ok(name)).try_collect().await;
        };
        // `object_store` asks for the size and the time of each, at ten times the price.
        let directory = root.join(prefix.as_ref());
        let names = tokio::task::spawn_blocking(move || names(&directory)).await;
        names.map_err(backend)?.map_err(backend)
    }

    async fn run_info(&self, prefix: &Path, entry: &str) -> Result<Option<RunInfo>, StoreError> {
        let Some((millisecond, run)) = parse_entry(entry) else { return Ok(None) };
        let started = jiff::Timestamp::from_millisecond(millisecond).map_err(backend)?.to_string();
        if let Some(run) = run.strip_prefix('-') {
            return Ok(Some(RunInfo { run: run.to_owned(), started }));
        }
        let run = self.entry_content(prefix, entry).await?;
        Ok(run.map(|run| RunInfo { run, started }))
    }

    /// The name of a run whose entry is only a digest of it; none if that was deleted meanwhile.
    pub(super) async fn entry_content(
        &self,
        prefix: &Path,
        entry: &str,
    ) -> Result<Option<String>, StoreError> {
        let content = match self.objects.get(&parse(&format!("{prefix}/{entry}"))?).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            content => content?.bytes().await?,
        };
        String::from_utf8(content.into()).map(Some).map_err(backend)
    }
}

/// The names in a directory that are no staged files; none if there is no such directory.
fn names(directory: &std::path::Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        if let Ok(name) = entry?.file_name().into_string()
            && !is_staged(&name)
        {
            names.push(name);
        }
    }
    Ok(names)
}

impl Cursor {
    /// `<what was seen>.<token>`; one that we have not made begins at the newest run.
    fn parse(text: &str) -> Self {
        let Some((seen, token)) = text.split_once('.') else { return Self::default() };
        let seen = seen.as_bytes().chunks(DIGITS).map(|mark| String::from_utf8_lossy(mark));
        Self { seen: seen.map(Into::into).collect(), token: Some(token.to_owned()) }
    }

    fn text(self) -> Option<String> {
        let token = self.token?;
        Some(format!("{}.{token}", self.seen.into_iter().collect::<String>()))
    }

    /// Whether a run is to be shown, which then counts as seen.
    fn shows(&mut self, run: &str) -> bool {
        let mut mark = Sha256::of(run.as_bytes()).to_string();
        mark.truncate(DIGITS);
        if self.seen.contains(&mark) {
            return false;
        }
        if self.seen.len() >= REMEMBERED {
            self.seen.pop_front();
        }
        self.seen.push_back(mark);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_knows_again_what_was_shown_and_where_to_go_on() {
        let mut cursor = Cursor { token: Some("a.token=/".to_owned()), ..Cursor::default() };
        assert!(cursor.shows("-r1"));
        assert!(cursor.shows("-r2"));
        assert!(!cursor.shows("-r1"));
        let mut cursor = Cursor::parse(&cursor.text().unwrap());
        assert_eq!(cursor.token.as_deref(), Some("a.token=/"));
        assert!(!cursor.shows("-r2"));
        for run in 0..2 * REMEMBERED {
            cursor.shows(&format!("-other-{run}"));
        }
        assert!(cursor.shows("-r2"), "it is forgotten");
        assert!(cursor.text().unwrap().len() < 1300);
        assert_eq!(Cursor::default().text(), None);
    }

    #[test]
    fn runs_whose_digests_begin_alike_are_all_shown() {
        let mut cursor = Cursor::default();
        // `sha256` of these has the same first 6 digits.
        let alike = |run: &str| Sha256::of(run.as_bytes()).to_string()[..6].to_owned();
        let mut seen = std::collections::HashMap::new();
        let both = (0..100_000).find_map(|number| {
            let run = format!("-run-{number}");
            seen.insert(alike(&run), run.clone()).map(|other| [other, run])
        });
        for run in both.unwrap() {
            assert!(cursor.shows(&run), "{run}");
        }
    }
}
