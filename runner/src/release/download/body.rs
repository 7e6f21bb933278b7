//! Bodies of responses: read whole, bounded in size, decompressed.

use std::io::Read as _;

use reqwest::Response;

use crate::release::download::http_error;
use crate::release::download::url::shown;
use crate::release::error::ReleaseError;

pub(super) async fn whole(
    url: &str,
    mut response: Response,
    limit: u64,
) -> Result<Vec<u8>, ReleaseError> {
    let mut body = Vec::new();
    while let Some(piece) =
        response.chunk().await.map_err(|error| http_error::failed(url, error))?
    {
        body.extend_from_slice(&piece);
        check_size(url, body.len() as u64, limit)?;
    }
    Ok(body)
}

pub(super) fn check_size(url: &str, size: u64, limit: u64) -> Result<(), ReleaseError> {
    if size > limit { Err(ReleaseError::TooLarge { url: shown(url), limit }) } else { Ok(()) }
}

pub(super) fn inflated(url: &str, body: &[u8], limit: u64) -> Result<Vec<u8>, ReleaseError> {
    let mut whole = Vec::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(body).take(limit + 1);
    match decoder.read_to_end(&mut whole) {
        Ok(_) => check_size(url, whole.len() as u64, limit).map(|()| whole),
        Err(error) => {
            Err(ReleaseError::NotAList { url: shown(url), reason: format!("broken gzip: {error}") })
        }
    }
}

/// The address with `rel="last"` in a `Link` header.
pub(super) fn last_page(link: &str) -> Option<String> {
    let last = link.split(',').find(|part| part.contains("rel=\"last\""))?;
    let (_, rest) = last.split_once('<')?;
    rest.split_once('>').map(|(url, _)| url.to_owned())
}

/// Adds the operation to an error of a file without a name.
pub(super) fn while_doing(doing: &str, error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("{doing}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_page_is_read_from_a_link_header() {
        assert_eq!(
            last_page("<https://a?page=2>; rel=\"next\", <https://a?page=9>; rel=\"last\"")
                .unwrap(),
            "https://a?page=9"
        );
        assert_eq!(last_page("<https://a?page=2>; rel=\"next\""), None);
    }
}
