//! An issuer of ID tokens (OpenID Connect), as configured.

use std::fmt;
use std::str::FromStr;

use secrecy::SecretString;
use url::Url;

use crate::auth::site::is_loopback;

/// An issuer of ID tokens, and for whom they must be.
#[derive(Clone, Debug)]
pub struct Oidc {
    /// The issuer.
    pub issuer: IssuerUrl,
    /// The audience of tokens that programs send; none accepts no such token.
    pub audience: Option<String>,
    /// For people who sign in with a browser; without it, they cannot.
    pub client: Option<OidcClient>,
}

/// The client that is registered at an issuer for browsers.
#[derive(Clone, Debug)]
pub struct OidcClient {
    /// Its id, which is the audience of its ID tokens.
    pub id: String,
    /// Its secret; none for a public client.
    pub secret: Option<SecretString>,
    /// The scopes to request beside `openid`.
    pub scopes: Vec<String>,
}

/// The URL of an issuer, exactly as its tokens have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerUrl {
    text: String,
    url: Url,
}

impl IssuerUrl {
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The URL of the document that describes the issuer.
    pub(super) fn discovery(&self) -> String {
        format!("{}/.well-known/openid-configuration", self.text.trim_end_matches('/'))
    }

    /// Whether it is on this machine, where it may speak plain HTTP.
    pub(super) fn is_plain(&self) -> bool {
        self.url.scheme() == "http"
    }

    /// Its name in our addresses: host, port and path, without characters that would need an escape.
    pub(crate) fn name(&self) -> String {
        let text = self.text.split_once("://").map_or(&*self.text, |(_, rest)| rest);
        let name = text.trim_end_matches('/').to_ascii_lowercase();
        name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-")
    }

    /// The address of ours to which it sends browsers back. Each issuer has its own, so that no issuer can pass as another.
    pub(crate) fn redirect_uri(&self, origin: &str) -> String {
        format!("{origin}/sign-in/oidc/{}/callback", self.name())
    }
}

impl FromStr for IssuerUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected the URL of an issuer, such as https://accounts.example.com";
        let url = text.parse::<Url>().map_err(|_| expected)?;
        let host = url.host_str().ok_or(expected)?;
        match url.scheme() {
            "https" => {}
            "http" if is_loopback(host) => {}
            "http" => {
                return Err("expected https://: ID tokens are verified with keys of this address");
            }
            _ => return Err(expected),
        }
        let is_bare = url.username().is_empty()
            && url.password().is_none()
            && url.query().or(url.fragment()).is_none();
        if is_bare { Ok(Self { text: text.to_owned(), url }) } else { Err(expected) }
    }
}

impl fmt::Display for IssuerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_https_or_on_this_machine() {
        let name = |text: &str| text.parse::<IssuerUrl>().map(|issuer| issuer.name());
        assert_eq!(name("https://gitlab.com"), Ok("gitlab.com".to_owned()));
        assert_eq!(
            name("https://sso.example.com:8443/realms/A_b/"),
            Ok("sso.example.com-8443-realms-a-b".to_owned())
        );
        assert_eq!(name("http://127.0.0.1:5556/dex"), Ok("127.0.0.1-5556-dex".to_owned()));
        for text in [
            "",
            "x",
            "http://dex.example.com",
            "ftp://a",
            "https://u:p@a",
            "https://a?b",
            "https://a#b",
        ] {
            assert!(name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let secret = Some("hush".into());
        let client = OidcClient { id: "c".to_owned(), secret, scopes: Vec::new() };
        assert!(!format!("{client:?}").contains("hush"));
    }
}
