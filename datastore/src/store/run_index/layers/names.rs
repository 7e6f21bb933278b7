//! The names one level below several prefixes, in the order of their keys, where `a-b/` comes before `a/`.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::io;
use std::path::Path as FilePath;

use datastore_api::Name;
use object_store::list::PaginatedListOptions;

use crate::store::backend::metered::IDLE_TIMEOUT;
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::parse;

/// Names that are read one after the other.
pub(in crate::store) struct Names<'a> {
    store: &'a Store,
    roots: Vec<Root>,
    after: Option<Name>,
    /// Names of one request.
    batch: usize,
    /// Requests to the storage so far.
    pub(in crate::store) requests: usize,
}

/// One prefix.
struct Root {
    /// Without a `/` at its end.
    prefix: String,
    found: VecDeque<Name>,
    token: Option<String>,
    is_complete: bool,
}

/// A name, and for each prefix whether there is anything below it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store) struct FoundName {
    pub(in crate::store) name: Name,
    pub(in crate::store) is_below: Vec<bool>,
}

/// Compares two names as keys: with the `/` that follows them.
pub(in crate::store) fn in_key_order(a: &Name, b: &Name) -> Ordering {
    let bytes = |name: &Name| name.as_ref().bytes().chain([b'/']).collect::<Vec<_>>();
    bytes(a).cmp(&bytes(b))
}

impl Store {
    /// The names below these prefixes that come after this one.
    pub(in crate::store) fn names_below<const N: usize>(
        &self,
        prefixes: [String; N],
        after: Option<Name>,
        batch: usize,
    ) -> Names<'_> {
        let root =
            |prefix| Root { prefix, found: VecDeque::new(), token: None, is_complete: false };
        let roots = prefixes.map(root).into();
        Names { store: self, roots, after, batch: batch.clamp(1, 1000), requests: 0 }
    }

    /// Every name below a prefix, where the backend has no pages.
    async fn all_names(&self, prefix: &str) -> Result<Vec<Name>, StoreError> {
        let path = parse(prefix)?;
        let names = if let Some(disk) = &self.disk {
            let location = path.clone();
            let list = move |root: &FilePath| directories(&root.join(location.as_ref()));
            disk.run_job("list", IDLE_TIMEOUT, &path, list).await.map_err(backend_error)?
        } else {
            let listed = self.objects.list_with_delimiter(Some(&path)).await;
            let found = listed.map_err(backend_error)?.common_prefixes;
            found.iter().filter_map(|path| Some(path.filename()?.to_owned())).collect()
        };
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }
}

impl Names<'_> {
    /// The next name; `None` at the end.
    pub(in crate::store) async fn next(&mut self) -> Result<Option<FoundName>, StoreError> {
        for at in 0..self.roots.len() {
            while self.roots[at].found.is_empty() && !self.roots[at].is_complete {
                self.fetch(at).await?;
            }
        }
        let fronts = self.roots.iter().filter_map(|root| root.found.front());
        let Some(name) = fronts.min_by(|a, b| in_key_order(a, b)).cloned() else {
            return Ok(None);
        };
        let is_below = self.roots.iter_mut();
        let is_below =
            is_below.map(|root| root.found.pop_front_if(|front| *front == name).is_some());
        let is_below = is_below.collect();
        self.after = Some(name.clone());
        Ok(Some(FoundName { name, is_below }))
    }

    /// Lists more names of one prefix.
    async fn fetch(&mut self, at: usize) -> Result<(), StoreError> {
        let root = &mut self.roots[at];
        let mut names = if let Some(pages) = &self.store.pages {
            let full = format!("{}{}/", self.store.prefix(), root.prefix);
            let options = PaginatedListOptions {
                // After all that is below the last name. Not every server takes this with a delimiter: names are compared, too.
                offset: self.after.as_ref().map(|after| format!("{full}{after}0")),
                delimiter: Some("/".into()),
                max_keys: Some(self.batch),
                page_token: root.token.take(),
                ..PaginatedListOptions::default()
            };
            self.requests += 1;
            let listed = pages.list_paginated(Some(&full), options).await.map_err(backend_error)?;
            root.is_complete = listed.page_token.is_none();
            root.token = listed.page_token;
            let found = listed.result.common_prefixes;
            let found = found.iter().filter_map(|path| path.filename()?.parse::<Name>().ok());
            found.collect()
        } else {
            root.is_complete = true;
            self.store.all_names(&root.prefix).await?
        };
        if let Some(after) = &self.after {
            names.retain(|name| in_key_order(name, after) == Ordering::Greater);
        }
        names.sort_by(in_key_order);
        names.dedup();
        root.found.extend(names);
        Ok(())
    }
}

/// The names of directories in a directory; none if it is missing.
fn directories(directory: &FilePath) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && entry.path().is_dir()
        {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_keys() {
        let mut names =
            ["a", "a-b", "a.b", "a0", "b", "é", "a b"].map(|name| name.parse().unwrap());
        names.sort_by(in_key_order);
        let names = names.map(|name: Name| name.to_string());
        assert_eq!(names, ["a b", "a-b", "a.b", "a", "a0", "b", "é"]);
    }
}
