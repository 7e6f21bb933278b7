//! Multipart uploads that a killed process has left in a bucket: invisible, and paid for.
//!
//! `object_store` does not list them, so this does: on S3 by a signed URL, on Google Cloud Storage by its XML API with the
//! token of `object_store`. Azure removes uncommitted blocks after a week.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::AUTHORIZATION;
use jiff::{SignedDuration, Timestamp};
use object_store::aws::AmazonS3;
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody};
use object_store::gcp::GoogleCloudStorage;
use object_store::multipart::MultipartStore as _;
use object_store::path::Path;
use object_store::signer::{SignedUrlOptions, Signer as _};
use serde::Deserialize;
use url::Url;

use crate::store::backend::cloud::document::check_root;
use crate::store::backend::response::answer_error;
use crate::store::error::BoxError;
use crate::store::key::Key;

/// An upload of this age is abandoned.
const AGE: SignedDuration = SignedDuration::from_hours(24);
/// How long the signed URL of a listing is valid. S3 accepts other requests with clocks that differ by 15 minutes, and
/// compares this time with its own clock.
const URL_TTL: Duration = Duration::from_mins(20);
/// The most bytes of an answer that an error shows.
const MAX_ERROR: usize = 2000;
/// The most pages in one sweep; the next sweep continues.
const MAX_PAGES: usize = 100;

/// A bucket whose abandoned uploads are aborted.
#[derive(Clone, Debug)]
pub(in crate::store) struct Abandoned {
    pub(in crate::store) lister: UploadLister,
    pub(in crate::store) client: HttpClient,
}

/// An upload that exists is not in the list.
#[derive(Debug, thiserror::Error)]
#[error("the list of uploads does not show an upload that was started")]
pub(in crate::store) struct Unlisted;

/// Signs the requests that list uploads, and aborts uploads.
#[derive(Clone, Debug)]
pub(in crate::store) enum UploadLister {
    S3(Arc<AmazonS3>),
    /// With the URL of the bucket. Without signatures no token is sent.
    Gcs {
        gcs: Arc<GoogleCloudStorage>,
        url: Url,
        signs: bool,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Page {
    #[serde(rename = "Upload")]
    uploads: Vec<Upload>,
    is_truncated: bool,
    next_key_marker: String,
    next_upload_id_marker: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Upload {
    key: String,
    #[serde(rename = "UploadId")]
    id: String,
    initiated: Timestamp,
}

impl Abandoned {
    /// Aborts our uploads that are older than a day at `now`, and returns how many. Ours are those of artifacts and
    /// probes below `prefix`.
    pub(in crate::store) async fn sweep(
        &self,
        prefix: &str,
        now: Timestamp,
    ) -> Result<usize, BoxError> {
        let (mut swept, mut marker) = (0, (String::new(), String::new()));
        for _ in 0..MAX_PAGES {
            let page = self.page(prefix, &marker).await?;
            for upload in page.uploads {
                let ours = upload.key.strip_prefix(prefix);
                let is_ours = ours.is_some_and(|key| {
                    Key::from_path(key).is_some() || key.starts_with(".plancha/probe/")
                });
                if is_ours && now.duration_since(upload.initiated) > AGE {
                    let path = Path::parse(&upload.key)?;
                    let aborted = match &self.lister {
                        UploadLister::S3(s3) => s3.abort_multipart(&path, &upload.id).await,
                        UploadLister::Gcs { gcs, .. } => {
                            gcs.abort_multipart(&path, &upload.id).await
                        }
                    };
                    match aborted {
                        // Another replica has aborted it.
                        Err(object_store::Error::NotFound { .. }) => {}
                        aborted => {
                            aborted?;
                            swept += 1;
                        }
                    }
                }
            }
            if !page.is_truncated {
                break;
            }
            marker = (page.next_key_marker, page.next_upload_id_marker);
        }
        Ok(swept)
    }

    /// Lists the uploads of this key, which has one. Fails with [`Unlisted`] if they are none.
    pub(in crate::store) async fn try_list(&self, key: &str) -> Result<(), BoxError> {
        let page = self.page(key, &(String::new(), String::new())).await?;
        let is_listed = page.uploads.iter().any(|upload| upload.key == key);
        if is_listed { Ok(()) } else { Err(Unlisted.into()) }
    }

    async fn page(&self, prefix: &str, (key, id): &(String, String)) -> Result<Page, BoxError> {
        let mut query = vec![("uploads", ""), ("prefix", prefix)];
        if !key.is_empty() {
            query.extend([("key-marker", key.as_str()), ("upload-id-marker", id.as_str())]);
        }
        let request = self.lister.request(query).await?;
        let (parts, body) = self.client.execute(request).await?.into_parts();
        let body = body.bytes().await?;
        if !parts.status.is_success() {
            let text = String::from_utf8_lossy(&body[..body.len().min(MAX_ERROR)]);
            let right = match &self.lister {
                UploadLister::S3(_) => "s3:ListBucketMultipartUploads",
                UploadLister::Gcs { .. } => "storage.multipartUploads.list",
            };
            return Err(answer_error(parts.status, &text, right));
        }
        check_root("ListMultipartUploadsResult", &body)?;
        Ok(quick_xml::de::from_reader(&*body)?)
    }
}

impl UploadLister {
    /// An authorized GET of the bucket.
    async fn request(&self, query: Vec<(&str, &str)>) -> Result<HttpRequest, BoxError> {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        let url = match self {
            Self::S3(s3) => {
                let options = SignedUrlOptions::new().with_query(query);
                let method = request.method().clone();
                s3.signed_url_opts(method, &Path::default(), URL_TTL, &options).await?
            }
            Self::Gcs { gcs, url, signs } => {
                let credential = gcs.credentials().get_credential().await?;
                if *signs && !credential.bearer.is_empty() {
                    let mut bearer =
                        HeaderValue::from_str(&format!("Bearer {}", credential.bearer))?;
                    bearer.set_sensitive(true);
                    request.headers_mut().insert(AUTHORIZATION, bearer);
                }
                let mut url = url.clone();
                url.query_pairs_mut().extend_pairs(query);
                url
            }
        };
        *request.uri_mut() = url.as_str().parse()?;
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_s3_is_parsed() {
        let xml = "<?xml version=\"1.0\"?><ListMultipartUploadsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
            <Bucket>b</Bucket><KeyMarker/><UploadIdMarker></UploadIdMarker><NextKeyMarker>k</NextKeyMarker>\
            <NextUploadIdMarker>i</NextUploadIdMarker><MaxUploads>2</MaxUploads><IsTruncated>true</IsTruncated>\
            <Upload><Key>a&amp;b</Key><UploadId>1</UploadId><Initiator><ID>x</ID></Initiator>\
            <StorageClass>STANDARD</StorageClass><Initiated>2026-11-20T20:48:33.000Z</Initiated></Upload>\
            <Upload><Key>c</Key><UploadId>2</UploadId><Initiated>2026-11-20T20:48:33Z</Initiated></Upload>\
            </ListMultipartUploadsResult>";
        let page: Page = quick_xml::de::from_reader(xml.as_bytes()).unwrap();
        assert_eq!((page.uploads.len(), &*page.uploads[0].key), (2, "a&b"));
        assert!(
            page.is_truncated && page.next_key_marker == "k" && page.next_upload_id_marker == "i"
        );
        let none = "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>";
        let none: Page = quick_xml::de::from_reader(none.as_bytes()).unwrap();
        assert!(none.uploads.is_empty() && !none.is_truncated);
    }
}
