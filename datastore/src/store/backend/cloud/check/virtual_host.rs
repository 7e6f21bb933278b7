//! The endpoint of an S3 server with the bucket in its host.

use url::{Host, Url};

use crate::store::backend::cloud::bucket::Cloud;
use crate::store::backend::cloud::check::Invalid;
use crate::store::backend::cloud::provider::Provider;

const VIRTUAL_HOST: &str = "AWS_VIRTUAL_HOSTED_STYLE_REQUEST";

impl Cloud {
    /// The endpoint with the bucket in its host, if an endpoint is set and [`VIRTUAL_HOST`] is true.
    ///
    /// `object_store` expects this one. Without the bucket, the server would take the first part of each key for it.
    pub(in crate::store) fn virtual_endpoint(&self) -> Result<Option<String>, Invalid> {
        if self.provider != Provider::S3 || !self.variables.is_true(VIRTUAL_HOST) {
            return Ok(None);
        }
        let endpoint = self.variables.endpoint(self.provider);
        let url = endpoint.and_then(|name| Url::parse(self.variables.get(name)?).ok());
        let is_http = url.as_ref().is_some_and(|url| url.scheme() == "http");
        if !is_host_part(&self.bucket, is_http) {
            return Err(refused(&format!(
                "the bucket's name `{}` cannot be a part of a host{}",
                self.bucket,
                if self.bucket.contains('.') { ": no certificate is valid for it" } else { "" }
            )));
        }
        let (Some(name), Some(mut url)) = (endpoint, url) else { return Ok(None) };
        let Some(Host::Domain(host)) = url.host() else {
            return Err(refused(&format!("the host in {name} is an IP address")));
        };
        if host.strip_prefix(&self.bucket).is_some_and(|rest| rest.starts_with('.')) {
            return Err(refused(&format!(
                "the host in {name} begins with the bucket's name, which is added to it: write it without the bucket"
            )));
        }
        let host = format!("{}.{host}", self.bucket);
        url.set_host(Some(&host)).map_err(|error| (name, error.to_string()))?;
        Ok(Some(url.as_str().trim_end_matches('/').to_owned()))
    }
}

fn refused(why: &str) -> Invalid {
    (VIRTUAL_HOST, format!("{why}\nhint: leave {VIRTUAL_HOST} out; the bucket is then in the path"))
}

/// Whether a bucket's name can be one label of a host or, without TLS, several. A certificate is valid for one.
fn is_host_part(bucket: &str, may_have_dots: bool) -> bool {
    let is_label = |label: &str| {
        let is_char = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        let is_at_edge = label.starts_with('-') || label.ends_with('-');
        (1..=63).contains(&label.len()) && label.bytes().all(is_char) && !is_at_edge
    };
    bucket.split('.').all(is_label) && (may_have_dots || !bucket.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::backend::cloud::variables::Variables;

    fn endpoint(bucket: &str, url: &str) -> Result<Option<String>, Invalid> {
        let texts = [("AWS_ENDPOINT_URL", url), (VIRTUAL_HOST, "yes"), ("AWS_ALLOW_HTTP", "1")];
        let find = |name: &str| {
            let found = texts.iter().find(|(variable, _)| *variable == name)?;
            Some(found.1.to_owned())
        };
        let cloud = Cloud::parse(Provider::S3, &format!("{bucket}/prefix")).unwrap();
        let cloud = Cloud { variables: Variables::read(Provider::S3, &find), ..cloud };
        cloud.check()?;
        cloud.virtual_endpoint()
    }

    #[test]
    fn bucket_is_put_into_the_host_of_the_endpoint() {
        for (bucket, url, expected) in [
            ("b-1", "https://s3.example.com", "https://b-1.s3.example.com"),
            ("b-1", "http://localhost:9000/", "http://b-1.localhost:9000"),
            ("b-1", "https://example.com/base/", "https://b-1.example.com/base"),
            ("b", "https://bucket.vpce-1.example.com", "https://b.bucket.vpce-1.example.com"),
            ("a.b", "http://example.com", "http://a.b.example.com"),
        ] {
            assert_eq!(endpoint(bucket, url).unwrap().unwrap(), expected);
        }
        assert_eq!(endpoint("b-1", "").unwrap(), None, "the endpoint of AWS");
    }

    #[test]
    fn a_pair_that_would_name_another_bucket_is_refused() {
        for (bucket, url, expected) in [
            ("b-1", "http://127.0.0.1:9000", "the host in AWS_ENDPOINT_URL is an IP address"),
            ("b-1", "https://[::1]:9000", "the host in AWS_ENDPOINT_URL is an IP address"),
            ("b-1", "https://b-1.example.com", "begins with the bucket's name"),
            ("a.b", "https://example.com", "no certificate is valid"),
            ("a.b", "", "no certificate is valid"),
            ("a_b", "https://example.com", "cannot be a part of a host"),
            ("A", "http://example.com", "cannot be a part of a host"),
            ("a-", "http://example.com", "cannot be a part of a host"),
        ] {
            let (name, reason) = endpoint(bucket, url).unwrap_err();
            assert_eq!(name, VIRTUAL_HOST);
            assert!(reason.contains(expected), "{reason}");
            assert!(reason.contains("hint: leave AWS_VIRTUAL"), "{reason}");
        }
    }
}
