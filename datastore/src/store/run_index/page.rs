//! Pages of a layer's runs.
//!
//! S3, Google Cloud Storage and Azure list in the order of keys, page by page, so the cost of a page does not grow with the
//! number of runs. A directory is listed completely. A cursor is the end of a page: the time of its last entry, which the
//! page has shown, and digests, so it reveals neither a key nor the backend.

use std::cmp::Ordering;
use std::collections::{HashSet, VecDeque};
use std::io;

use datastore_api::key::{RunInfo, Runs};
use datastore_api::{Name, Sha256};
use futures::TryStreamExt as _;
use futures::future::try_join_all;
use object_store::ObjectStoreExt as _;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;

use crate::store::backend::directory::staged::is_staged;
use crate::store::backend::metered::IDLE_TIMEOUT;
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{index_prefix, parse};
use crate::store::run_index::entry::parse_entry;

/// Runs that are kept in a cursor. A run has an entry for each attempt, and is shown once unless more runs than these
/// started between two attempts.
const MAX_SEEN: usize = 100;
/// Hex digits of a remembered digest.
const MARK_DIGITS: usize = 12;
/// The most listings for one page, where retried runs make pages short.
const MAX_LISTINGS: usize = 8;
/// Entries of a listing that searches for the end of the previous page.
const SKIP_BATCH: usize = 1000;
/// Hex digits of an entry's time, and of the digest of a layer.
const TIME_DIGITS: usize = 16;
const LAYER_DIGITS: usize = 8;
/// Names of runs that are read in parallel, where the entry has only a digest.
const PARALLEL_READS: usize = 8;

/// Where a page begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cursor {
    /// The last entry of the page before.
    after: Option<Position>,
    /// The runs shown last, the newest at the end.
    seen: VecDeque<String>,
}

/// The position of an entry: its time and the beginning of its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Position {
    time: String,
    mark: String,
}

impl Store {
    /// A page of a layer's runs, newest first; `after` is the cursor of the previous page.
    pub async fn runs(
        &self,
        namespace: &Name,
        layer: &Name,
        limit: usize,
        after: Option<&str>,
    ) -> Result<Runs, StoreError> {
        let prefix = parse(&index_prefix(namespace.as_ref(), layer.as_ref()))?;
        let cursor = match after.filter(|after| !after.is_empty()) {
            Some(after) => Cursor::parse(after, &prefix).ok_or(StoreError::Cursor)?,
            None => Cursor::default(),
        };
        let (entries, next) = match &self.pages {
            Some(pages) => self.page(&**pages, &prefix, limit, cursor).await?,
            None => self.page_from_full_listing(&prefix, limit, cursor).await?,
        };
        let next = next.and_then(|next| next.text(&prefix));
        let mut runs = Vec::new();
        for some in entries.chunks(PARALLEL_READS) {
            let infos = try_join_all(some.iter().map(|entry| self.run_info(&prefix, entry)));
            runs.extend(infos.await?.into_iter().flatten());
        }
        Ok(Runs { runs, next })
    }

    /// A page from page-by-page listings.
    async fn page(
        &self,
        pages: &dyn PaginatedListStore,
        prefix: &Path,
        limit: usize,
        cursor: Cursor,
    ) -> Result<(Vec<String>, Option<Cursor>), StoreError> {
        let full = format!("{}{prefix}/", self.prefix());
        let offset = cursor.after.as_ref().map(|after| format!("{full}{}", after.time));
        let mut page = Page::new(cursor, limit);
        let (mut token, mut listings) = (None, 0);
        while listings < MAX_LISTINGS || page.entries.is_empty() {
            let options = PaginatedListOptions {
                offset: offset.clone(),
                max_keys: Some(page.next_listing_size()),
                page_token: token,
                ..PaginatedListOptions::default()
            };
            let listed = pages.list_paginated(Some(&full), options).await.map_err(backend_error)?;
            token = listed.page_token;
            let mut found = listed.result.objects;
            found.retain(|meta| meta.location.as_ref().starts_with(&full));
            found.sort_by(|a, b| a.location.cmp(&b.location));
            let names = found.iter().filter_map(|meta| meta.location.filename());
            match page.take(names, token.is_none()) {
                Outcome::Full => return Ok((page.entries, Some(page.cursor))),
                Outcome::Lost => token = None,
                Outcome::All if token.is_none() => return Ok((page.entries, None)),
                Outcome::All => {}
            }
            listings += 1;
        }
        Ok((page.entries, Some(page.cursor)))
    }

    /// A page from a listing of all entries.
    async fn page_from_full_listing(
        &self,
        prefix: &Path,
        limit: usize,
        cursor: Cursor,
    ) -> Result<(Vec<String>, Option<Cursor>), StoreError> {
        let found = self.entries(prefix).await?;
        let mut entries = found.iter().map(String::as_str).collect::<Vec<_>>();
        entries.sort_unstable();

        // A run has an entry for each attempt: the newest counts.
        let mut seen = HashSet::new();
        entries.retain(|entry| parse_entry(entry).is_some_and(|(_, run)| seen.insert(run)));
        if let Some(after) = cursor.after {
            let here = entries.iter().position(|entry| after.compare(entry) == Relation::Here);
            let begin = match here {
                Some(here) => here + 1,
                None => entries.partition_point(|entry| after.compare(entry) == Relation::Earlier),
            };
            entries.drain(..begin);
        }
        let next = entries.get(limit).and_then(|_| entries.get(limit.checked_sub(1)?));
        let next =
            next.map(|entry| Cursor { after: Some(Position::of(entry)), seen: VecDeque::new() });
        Ok((entries.into_iter().take(limit).map(str::to_owned).collect(), next))
    }

    /// The names of all entries of a layer, in no order.
    async fn entries(&self, prefix: &Path) -> Result<Vec<String>, StoreError> {
        let Some(disk) = &self.disk else {
            let found = self.objects.list(Some(prefix)).map_err(backend_error);
            let names = found.map_ok(|meta| meta.location.filename().map(str::to_owned));
            return names.try_filter_map(async |name| Ok(name)).try_collect().await;
        };
        // `object_store` reads size and time of each file, which takes ten times as long.
        let location = prefix.clone();
        let list = move |root: &std::path::Path| names(&root.join(location.as_ref()));
        disk.run_job("list", IDLE_TIMEOUT, prefix, list).await.map_err(backend_error)
    }

    async fn run_info(&self, prefix: &Path, entry: &str) -> Result<Option<RunInfo>, StoreError> {
        let Some((millisecond, run)) = parse_entry(entry) else { return Ok(None) };
        let started =
            jiff::Timestamp::from_millisecond(millisecond).map_err(backend_error)?.to_string();
        if let Some(run) = run.strip_prefix('-') {
            return Ok(Some(RunInfo { run: run.to_owned(), started }));
        }
        let run = self.entry_content(prefix, entry).await?;
        Ok(run.map(|run| RunInfo { run, started }))
    }

    /// The name of a run whose entry has only a digest; `None` if the entry was deleted.
    pub(in crate::store) async fn entry_content(
        &self,
        prefix: &Path,
        entry: &str,
    ) -> Result<Option<String>, StoreError> {
        let content = match self.objects.get(&parse(&format!("{prefix}/{entry}"))?).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            content => content?.bytes().await?,
        };
        String::from_utf8(content.into()).map(Some).map_err(backend_error)
    }
}

/// The names of files in a directory without staged ones; none if the directory is missing.
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

/// A page that is being filled.
struct Page {
    /// Where the page before ended, if there was one.
    from: Option<Position>,
    /// Whether that position has not been reached yet, and whether entries with its time were skipped meanwhile.
    is_before: bool,
    has_skipped: bool,
    cursor: Cursor,
    entries: Vec<String>,
    limit: usize,
}

/// The result of adding a listing to a page.
enum Outcome {
    /// All entries were added.
    All,
    /// The page is full.
    Full,
    /// The entry at the end of the previous page was deleted, and entries with its time were skipped that were not
    /// shown.
    Lost,
}

impl Page {
    fn new(cursor: Cursor, limit: usize) -> Self {
        let from = cursor.after.clone();
        let is_before = from.is_some();
        Self { from, is_before, has_skipped: false, cursor, entries: Vec::new(), limit }
    }

    /// How many entries to list next.
    fn next_listing_size(&self) -> usize {
        if self.has_skipped && self.is_before {
            return SKIP_BATCH;
        }
        self.limit - self.entries.len() + usize::from(self.is_before)
    }

    fn take<'a>(&mut self, names: impl Iterator<Item = &'a str>, is_last: bool) -> Outcome {
        for name in names {
            let Some((_, run)) = parse_entry(name) else { continue };
            match self.from.as_ref().map_or(Relation::Past, |from| from.compare(name)) {
                Relation::Earlier => continue,
                Relation::Here => {
                    self.is_before = false;
                    continue;
                }
                Relation::Same if self.is_before => {
                    self.has_skipped = true;
                    continue;
                }
                Relation::Past if self.is_before && self.has_skipped => return self.restart(),
                Relation::Same | Relation::Past => self.is_before = false,
            }
            if self.entries.len() >= self.limit {
                return Outcome::Full;
            }
            self.cursor.after = Some(Position::of(name));
            if self.cursor.insert_new(run) {
                self.entries.push(name.to_owned());
            }
        }
        match () {
            () if is_last && self.is_before && self.has_skipped => self.restart(),
            () if self.entries.len() >= self.limit && !is_last => Outcome::Full,
            () => Outcome::All,
        }
    }

    /// Restarts at the first entry with that time. The cursor recognises the entries already shown.
    fn restart(&mut self) -> Outcome {
        self.is_before = false;
        Outcome::Lost
    }
}

/// Where an entry is relative to the end of the previous page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Earlier,
    /// At the same time, before or after it.
    Same,
    Here,
    Past,
}

impl Position {
    fn of(entry: &str) -> Self {
        let time = entry.get(..TIME_DIGITS).unwrap_or_default().to_owned();
        Self { time, mark: mark(entry) }
    }

    fn compare(&self, entry: &str) -> Relation {
        match entry.get(..TIME_DIGITS).unwrap_or_default().cmp(self.time.as_str()) {
            Ordering::Less => Relation::Earlier,
            Ordering::Greater => Relation::Past,
            Ordering::Equal if mark(entry) == self.mark => Relation::Here,
            Ordering::Equal => Relation::Same,
        }
    }
}

fn mark(text: &str) -> String {
    let mut mark = Sha256::of(text.as_bytes()).to_string();
    mark.truncate(MARK_DIGITS);
    mark
}

/// A digest of the layer, which a cursor of another layer does not have.
fn layer_mark(prefix: &Path) -> String {
    let mut mark = mark(prefix.as_ref());
    mark.truncate(LAYER_DIGITS);
    mark
}

impl Cursor {
    /// Parses `<layer><time><digest of the entry><digests of shown runs>`; `None` if it is not a cursor of the layer
    /// at `prefix`.
    fn parse(text: &str, prefix: &Path) -> Option<Self> {
        let is_hex = text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        let rest = text.strip_prefix(&*layer_mark(prefix)).filter(|_| is_hex)?;
        let (time, rest) = rest.split_at_checked(TIME_DIGITS)?;
        let (mark, rest) = rest.split_at_checked(MARK_DIGITS)?;
        if !rest.len().is_multiple_of(MARK_DIGITS) || rest.len() > MAX_SEEN * MARK_DIGITS {
            return None;
        }
        let seen = rest.as_bytes().chunks(MARK_DIGITS).map(|mark| String::from_utf8_lossy(mark));
        let after = Position { time: time.to_owned(), mark: mark.to_owned() };
        Some(Self { after: Some(after), seen: seen.map(Into::into).collect() })
    }

    fn text(self, prefix: &Path) -> Option<String> {
        let Position { time, mark } = self.after?;
        let seen = self.seen.into_iter().collect::<String>();
        Some(format!("{}{time}{mark}{seen}", layer_mark(prefix)))
    }

    /// Adds a run to those shown; `false` if it was shown already.
    fn insert_new(&mut self, run: &str) -> bool {
        let mark = mark(run);
        if self.seen.contains(&mark) {
            return false;
        }
        if self.seen.len() >= MAX_SEEN {
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
    fn a_cursor_restores_the_position_and_the_shown_runs() {
        let prefix = Path::from("a/b");
        let after = Some(Position::of("fffffe74301a97fe-r2"));
        let mut cursor = Cursor { after: after.clone(), ..Cursor::default() };
        assert!(cursor.insert_new("-r1"));
        assert!(cursor.insert_new("-r2"));
        assert!(!cursor.insert_new("-r1"));
        let text = cursor.text(&prefix).unwrap();
        assert_eq!(Cursor::parse(&text, &Path::from("a/c")), None, "of another layer");
        let mut cursor = Cursor::parse(&text, &prefix).unwrap();
        assert_eq!(cursor.after, after);
        assert!(!cursor.insert_new("-r2"));
        for run in 0..2 * MAX_SEEN {
            cursor.insert_new(&format!("-other-{run}"));
        }
        assert!(cursor.insert_new("-r2"), "it is forgotten");
        assert!(cursor.text(&prefix).unwrap().len() < 1300);
        assert_eq!(Cursor::default().text(&prefix), None);
        for foreign in ["", "x", &text[1..], &text[..text.len() - 1], &text.to_uppercase()] {
            assert_eq!(Cursor::parse(foreign, &prefix), None, "{foreign}");
        }
    }

    #[test]
    fn runs_with_similar_digests_are_all_shown() {
        let mut cursor = Cursor::default();
        // `sha256` of these has the same first 6 digits.
        let alike = |run: &str| Sha256::of(run.as_bytes()).to_string()[..6].to_owned();
        let mut seen = std::collections::HashMap::new();
        let run_both = (0..100_000).find_map(|number| {
            let run = format!("-run-{number}");
            seen.insert(alike(&run), run.clone()).map(|other| [other, run])
        });
        for run in run_both.unwrap() {
            assert!(cursor.insert_new(&run), "{run}");
        }
    }
}
