//! The formats of lists of versions that vendors and mirrors publish.

use std::collections::HashMap;
use std::sync::LazyLock;

use futures::{StreamExt as _, TryStreamExt as _};
use regex::Regex;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::release::download::http::Http;
use crate::release::download::url::shown;
use crate::release::error::ReleaseError;
use crate::release::versions::layout::{ListAt, ListFormat};
use crate::version::Version;

/// A page of a hundred releases of `OpenTofu` has half of it.
const MAX_LIST: u64 = 32 << 20;
/// Of a paged list: entries per page, the most pages, and concurrent requests.
const PER_PAGE: usize = 100;
const MAX_PAGES: usize = 50;
const PAGES_AT_ONCE: usize = 4;

/// A fetched list.
pub(in crate::release) struct FetchedList {
    /// Not all of these texts need be versions.
    pub(in crate::release) versions: Vec<String>,
    pub(in crate::release) etag: Option<String>,
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

/// One release in GitHub's list.
#[derive(Deserialize)]
struct Release {
    tag_name: String,
    #[serde(default)]
    draft: bool,
    /// A release may be listed hours before its files exist.
    #[serde(default)]
    assets: Option<Vec<IgnoredAny>>,
}

/// Fetches a list; `None` if it still has this `etag`.
pub(in crate::release) async fn fetch(
    http: &Http,
    at: &ListAt,
    etag: Option<&str>,
) -> Result<Option<FetchedList>, ReleaseError> {
    let url = match at.format {
        ListFormat::GitHub => page_url(&at.url, 1),
        ListFormat::Index | ListFormat::Api | ListFormat::Html | ListFormat::HtmlText => {
            at.url.clone()
        }
    };
    if at.format == ListFormat::GitHub {
        http.authenticate(&at.url).await?;
    }
    let Some(first) = http.get_changed(&url, MAX_LIST, etag).await? else { return Ok(None) };
    let parsed = |body: &[u8]| {
        parse(at.format, body)
            .map_err(|reason| ReleaseError::NotAList { url: shown(&at.url), reason })
    };
    let Page { mut versions, entries } = parsed(&first.body)?;
    if at.format == ListFormat::GitHub && entries >= PER_PAGE {
        let last = first.last_page.as_deref().and_then(page_number).unwrap_or(MAX_PAGES);
        let page = async |number| -> Result<Page, ReleaseError> {
            parsed(&http.get(&page_url(&at.url, number), MAX_LIST).await?)
        };
        // If the last page is unknown: one after another, until one is not full.
        let at_once = if first.last_page.is_some() { PAGES_AT_ONCE } else { 1 };
        let pages = futures::stream::iter(2..=last.min(MAX_PAGES)).map(page).buffered(at_once);
        let mut pages = std::pin::pin!(pages);
        while let Some(page) = pages.try_next().await? {
            versions.extend(page.versions);
            if page.entries < PER_PAGE {
                break;
            }
        }
    }
    Ok(Some(FetchedList { versions, etag: first.etag }))
}

fn page_url(url: &str, page: usize) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}per_page={PER_PAGE}&page={page}")
}

/// The number of the page in a URL.
fn page_number(url: &str) -> Option<usize> {
    let url = url::Url::parse(url).ok()?;
    url.query_pairs().find(|(name, _)| name == "page")?.1.parse().ok()
}

/// The versions on one page, and the number of its entries.
#[derive(Debug)]
pub(in crate::release) struct Page {
    pub(in crate::release) versions: Vec<String>,
    entries: usize,
}

/// Parses a list; the error is a reason for messages.
pub(in crate::release) fn parse(format: ListFormat, body: &[u8]) -> Result<Page, String> {
    let text_of = |error: serde_json::Error| error.to_string();
    let page = |versions: Vec<String>| Page { entries: versions.len(), versions };
    Ok(match format {
        ListFormat::Index => {
            let index: Index = serde_json::from_slice(body).map_err(text_of)?;
            page(index.versions.into_keys().collect())
        }
        ListFormat::Api => {
            let api: Api = serde_json::from_slice(body).map_err(text_of)?;
            page(api.versions.into_iter().map(|version| version.id).collect())
        }
        ListFormat::GitHub => {
            let releases: Vec<Release> = serde_json::from_slice(body).map_err(text_of)?;
            let entries = releases.len();
            let is_complete = |release: &Release| {
                !release.draft && release.assets.as_ref().is_none_or(|assets| !assets.is_empty())
            };
            let tags = releases.into_iter().filter(is_complete).map(|release| release.tag_name);
            Page { versions: tags.map(|tag| without_v(&tag).to_owned()).collect(), entries }
        }
        ListFormat::Html | ListFormat::HtmlText => {
            let found = if format == ListFormat::Html { links(body) } else { texts(body) };
            if found.is_empty() {
                return Err("it has no links to versions".to_owned());
            }
            page(found)
        }
    })
}

fn without_v(tag: &str) -> &str {
    tag.strip_prefix('v').unwrap_or(tag)
}

/// The address of a link, in one of three groups.
static HREF: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?i)\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))"#)
        .expect("the pattern is valid")
});

/// The end of a link.
static LINK_END: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)</a\s*>").expect("the pattern is valid"));

/// The versions among the last path segments of a page's links.
fn links(body: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(body);
    let addresses = HREF.captures_iter(&text).map(|link| {
        let address = link.iter().skip(1).flatten().next().map_or("", |address| address.as_str());
        let path = address.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
        path.rsplit('/').next().unwrap_or_default().to_owned()
    });
    listed(addresses)
}

/// The versions among the texts of a page's links.
fn texts(body: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(body);
    let labels = LINK_END.split(&text).filter_map(|link| {
        let (_, label) = link.rsplit_once('>')?;
        Some(label.trim().trim_end_matches('/').to_owned())
    });
    listed(labels)
}

/// The names that are versions, each once. The number of a page or a year is none.
fn listed(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut found = Vec::new();
    for name in names {
        let name = without_v(&name);
        let is_version = name.parse::<Version>().is_ok_and(|version| version.is_written_out());
        if is_version && !found.iter().any(|known| known == name) {
            found.push(name.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests;
