//! URLs without their secrets, and the paths of `file://` URLs.

use std::path::PathBuf;

use url::Url;

use crate::release::error::ReleaseError;

/// The URL without what may be a secret in it: a password, a user (often a token), a query (a signature).
pub(in crate::release) fn shown(url: &str) -> String {
    let Ok(mut shown) = Url::parse(url) else {
        let end = url.find(['?', '#']).unwrap_or(url.len());
        let from = url[..end].rfind('@').map_or(0, |at| at + 1);
        return url[from..end].to_owned();
    };
    let has_user = !shown.username().is_empty() || shown.password().is_some();
    if shown.query().is_none() && !has_user {
        return url.to_owned();
    }
    shown.set_query(None);
    if has_user && (shown.set_username("***").is_err() || shown.set_password(None).is_err()) {
        return String::new();
    }
    shown.into()
}

/// The path of a `file://` URL; `None` for other schemes.
pub(in crate::release) fn local(url: &str) -> Result<Option<PathBuf>, ReleaseError> {
    if !url.starts_with("file:") {
        return Ok(None);
    }
    let path = Url::parse(url).ok().and_then(|url| url.to_file_path().ok());
    path.map(Some).ok_or_else(|| ReleaseError::Scheme(url.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_a_url_are_not_shown() {
        for (url, expected) in [
            ("https://me:hunter2@host/x", "https://***@host/x"),
            ("https://hunter2@host/x", "https://***@host/x"),
            ("https://hunter2:x-oauth-basic@host/x", "https://***@host/x"),
            ("https://:hunter2@host/x", "https://***@host/x"),
            ("https://host/x.zip?sig=hunter2", "https://host/x.zip"),
            ("https://me:hunter2@host:nonsense/x?sig=hunter2", "host:nonsense/x"),
            ("https://host/x", "https://host/x"),
            ("file:///srv/mirror", "file:///srv/mirror"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
