//! The signature of one request to AWS (Signature Version 4).

use std::fmt::Write as _;

use aws_lc_rs::{digest, hmac};
use jiff::Timestamp;
use reqwest::{Client, RequestBuilder};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

/// Keys, and perhaps the token of their session.
pub(super) struct Keys {
    pub(super) id: String,
    pub(super) secret: SecretString,
    pub(super) session: Option<SecretString>,
}

/// A form that is posted to the root of a service.
pub(super) struct Signed<'a> {
    pub(super) url: &'a str,
    pub(super) body: &'a str,
    pub(super) region: &'a str,
    pub(super) service: &'a str,
    pub(super) now: Timestamp,
}

const TYPE: &str = "application/x-www-form-urlencoded; charset=utf-8";

impl Signed<'_> {
    /// The request with its signature.
    pub(super) fn request(&self, client: &Client, keys: &Keys) -> Result<RequestBuilder, String> {
        let url =
            Url::parse(self.url).map_err(|error| format!("the URL of the service: {error}"))?;
        let host = url.host_str().ok_or("the URL of the service has no host")?;
        let host = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let time = self.now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let authorization = self.authorization(&host, url.path(), &time, keys);
        let mut request = client
            .post(url)
            .header("content-type", TYPE)
            .header("x-amz-date", time)
            .header("authorization", authorization)
            .body(self.body.to_owned());
        if let Some(session) = &keys.session {
            request = request.header("x-amz-security-token", session.expose_secret());
        }
        Ok(request)
    }

    fn authorization(&self, host: &str, path: &str, time: &str, keys: &Keys) -> String {
        let mut headers = vec![("content-type", TYPE), ("host", host), ("x-amz-date", time)];
        headers.extend(
            keys.session.iter().map(|token| ("x-amz-security-token", token.expose_secret())),
        );
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let lines = headers.iter().flat_map(|(name, value)| [*name, ":", *value, "\n"]);
        let lines = lines.collect::<String>();
        let canonical = format!("POST\n{path}\n\n{lines}\n{names}\n{}", hex(&sha256(self.body)));
        let date = &time[..8];
        let scope = format!("{date}/{}/{}/aws4_request", self.region, self.service);
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&sha256(&canonical)));
        let key = format!("AWS4{}", keys.secret.expose_secret());
        let key = [date, self.region, self.service, "aws4_request"]
            .iter()
            .fold(key.into_bytes(), |key, part| mac(&key, part));
        let signature = hex(&mac(&key, &text));
        let id = &keys.id;
        format!(
            "AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn sha256(text: &str) -> Vec<u8> {
    digest::digest(&digest::SHA256, text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // A `String` is always writable.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signatures that botocore 1.43.11 (`SigV4Auth`) makes of the same requests.
    #[test]
    fn signatures_are_those_of_aws() {
        let signed = Signed {
            url: "https://sts.eu-west-1.amazonaws.com/",
            body: "Action=GetCallerIdentity&Version=2011-06-15",
            region: "eu-west-1",
            service: "sts",
            now: Timestamp::from_second(1_700_000_000).unwrap(),
        };
        for (session, expected) in EXPECTED {
            let keys = Keys {
                id: "AKIDEXAMPLE".to_owned(),
                secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
                session: session.map(SecretString::from),
            };
            let host = "sts.eu-west-1.amazonaws.com";
            let header = signed.authorization(host, "/", "20231114T221320Z", &keys);
            assert!(header.ends_with(&format!("Signature={expected}")), "{header}");
        }
    }

    const EXPECTED: [(Option<&str>, &str); 2] = [
        (None, "013e0094d19e196ef55bc894b98f2ca8db0099515a5adc4115c50ee9168e649f"),
        (
            Some("session/token=="),
            "a4b6975d6bb99360ecbd752bc0cd05e26b59059069c2073a1ddc431a401f0943",
        ),
    ];
}
