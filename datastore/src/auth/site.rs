//! The address that browsers have of the datastore, and which requests come from its own pages.
//!
//! A browser sends requests for any page that it shows. `Origin` and `Sec-Fetch-Site` say which page that is, and `Host`
//! says which name the browser has resolved: a page of another site can give its own name the address of this
//! machine (DNS rebinding).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use axum::http::header::{HOST, HeaderMap, ORIGIN};
use url::{Host, Url};

/// The address that browsers have of the datastore: its scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    /// As browsers write it, without a path.
    origin: String,
    is_secure: bool,
}

/// Which addresses browsers may have of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(super) public_url: Option<PublicUrl>,
    /// Whether it listens on loopback addresses only: then browsers on this machine use these.
    pub(super) is_loopback: bool,
    /// Whether it speaks TLS.
    pub(super) has_tls: bool,
}

/// Why a request is refused that a page of another site may have sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    Host,
    Origin,
    CrossSite,
}

impl Site {
    /// Whether people can sign in with a browser.
    pub(super) fn has_browsers(&self) -> bool {
        self.public_url.is_some() || self.is_loopback
    }

    /// The address at which the browser of a request has reached us; none if it may not use that one.
    pub(super) fn address(&self, headers: &HeaderMap) -> Option<PublicUrl> {
        if let Some(public) = &self.public_url {
            return Some(public.clone());
        }
        let host =
            text(headers, HOST.as_str()).filter(|host| self.is_loopback && is_loopback(host))?;
        let scheme = if self.has_tls { "https" } else { "http" };
        Some(PublicUrl { origin: format!("{scheme}://{host}"), is_secure: self.has_tls })
    }

    /// Checks that a page of ours has sent a form.
    pub(super) fn check_form(&self, headers: &HeaderMap) -> Result<PublicUrl, Foreign> {
        let address = self.address(headers).ok_or(Foreign::Host)?;
        let is_ours = headers.get_all(ORIGIN).iter().count() == 1
            && text(headers, ORIGIN.as_str())
                .is_some_and(|origin| origin.eq_ignore_ascii_case(&address.origin));
        if is_ours { Ok(address) } else { Err(Foreign::Origin) }
    }

    /// Checks a request where callers are not authenticated. On loopback addresses only programs and pages of this machine may
    /// send requests: not pages of other sites, which a browser on this machine shows.
    pub(super) fn check_open(&self, headers: &HeaderMap) -> Result<(), Foreign> {
        if !self.is_loopback {
            return Ok(());
        }
        let public = self.public_url.as_ref().map(|public| public.origin.as_str());
        let is_public = |host: &str| public.is_some_and(|public| host_of(public) == Some(host));
        let host = match headers.get(HOST) {
            Some(_) => text(headers, HOST.as_str()).ok_or(Foreign::Host)?,
            // Only HTTP/1.0 has none, and no browser speaks it.
            None => "",
        };
        if !(host.is_empty() || is_loopback(host) || is_public(&host.to_ascii_lowercase())) {
            return Err(Foreign::Host);
        }
        for origin in headers.get_all(ORIGIN) {
            let origin = origin.to_str().map_err(|_| Foreign::Origin)?;
            let is_same = host_of(origin).is_some_and(|of| of.eq_ignore_ascii_case(host));
            if !is_same && public != Some(origin) {
                return Err(Foreign::Origin);
            }
        }
        match text(headers, SEC_FETCH_SITE) {
            Some("cross-site") => Err(Foreign::CrossSite),
            _ => Ok(()),
        }
    }
}

/// The relation of the page that has sent a request to us.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Whether a session counts for a request, which a page of another site may have sent: only where a person follows a link
/// from there. Browsers that do not say where a request comes from are protected by `SameSite`.
pub(super) fn may_use_session(headers: &HeaderMap) -> bool {
    let is_ours = matches!(text(headers, SEC_FETCH_SITE), None | Some("same-origin" | "none"));
    is_ours || text(headers, "sec-fetch-mode") == Some("navigate")
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The host and port of an origin, as the header `Host` has them.
fn host_of(origin: &str) -> Option<&str> {
    let (scheme, host) = origin.split_once("://")?;
    matches!(scheme, "http" | "https").then_some(host)
}

/// Whether a host, with or without a port, is a name or an address of this machine that no other site can have.
pub(super) fn is_loopback(host: &str) -> bool {
    let name = match host.rfind(']') {
        Some(end) => &host[..=end],
        None => host.split(':').next().unwrap_or_default(),
    };
    match Host::parse(name) {
        Ok(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Ok(Host::Ipv4(address)) => address.is_loopback(),
        Ok(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        Err(_) => false,
    }
}

impl PublicUrl {
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether cookies are for encrypted connections only.
    pub(super) fn is_secure(&self) -> bool {
        self.is_secure
    }
}

impl FromStr for PublicUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected https://HOST or https://HOST:PORT, without a path";
        let url = text.parse::<Url>().map_err(|_| expected)?;
        let is_secure = match (url.scheme(), url.host_str()) {
            ("https", Some(_)) => true,
            ("http", Some(host)) if is_loopback(host) => false,
            ("http", _) => {
                return Err(
                    "expected https://: sessions need an encrypted connection, except on a loopback \
                            address\nhint: serve TLS (--tls-cert) or put a proxy with TLS in front",
                );
            }
            _ => return Err(expected),
        };
        let is_bare = url.username().is_empty()
            && url.password().is_none()
            && url.path() == "/"
            && url.query().or(url.fragment()).is_none();
        if !is_bare {
            return Err(expected);
        }
        Ok(Self { origin: url.origin().ascii_serialization(), is_secure })
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)
    }
}

impl Foreign {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Host => {
                "the request is for another host: its Host is neither a loopback address nor --public-url"
            }
            Self::Origin => {
                "the request comes from a page of another site: its Origin is not this datastore"
            }
            Self::CrossSite => {
                "the request comes from a page of another site (Sec-Fetch-Site: cross-site)"
            }
        }
    }
}

/// Whether an address reaches this machine only.
pub(crate) fn is_loopback_address(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    fn site(public_url: Option<&str>, is_loopback: bool) -> Site {
        let public_url = public_url.map(|url| url.parse().unwrap());
        Site { public_url, is_loopback, has_tls: false }
    }

    #[test]
    fn only_names_and_addresses_of_this_machine_are_loopback() {
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "a.localhost:1",
            "127.0.0.1",
            "127.9.9.9:80",
            "[::1]:80",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "x",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "10.0.0.1",
            "[::2]:80",
            "0.0.0.0",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_public_url_is_https_or_loopback_without_a_path() {
        let origin =
            |text: &str| text.parse::<PublicUrl>().map(|url| (url.to_string(), url.is_secure));
        assert_eq!(
            origin("https://Plancha.Example.com/"),
            Ok(("https://plancha.example.com".to_owned(), true))
        );
        assert_eq!(origin("https://a:443"), Ok(("https://a".to_owned(), true)));
        assert_eq!(
            origin("http://localhost:8080"),
            Ok(("http://localhost:8080".to_owned(), false))
        );
        for text in [
            "",
            "a",
            "https://",
            "ftp://a",
            "http://a",
            "https://a/b",
            "https://u@a",
            "https://a?x",
            "https://a#x",
        ] {
            assert!(origin(text).is_err(), "{text}");
        }
    }

    #[test]
    fn pages_of_other_sites_reach_no_loopback_datastore_without_authentication() {
        let check = |pairs: &[(&str, &str)]| site(None, true).check_open(&headers(pairs));
        let ours = ("host", "localhost:8080");
        assert_eq!(check(&[ours]), Ok(()));
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(
            check(&[ours, ("origin", "http://localhost:8080"), ("sec-fetch-site", "same-origin")]),
            Ok(())
        );
        assert_eq!(check(&[("host", "evil.example:8080")]), Err(Foreign::Host));
        for origin in [
            "http://evil.example",
            "null",
            "http://localhost:3000",
            "http://127.0.0.1:8080",
            "file://",
        ] {
            assert_eq!(check(&[ours, ("origin", origin)]), Err(Foreign::Origin), "{origin}");
        }
        assert_eq!(check(&[ours, ("sec-fetch-site", "cross-site")]), Err(Foreign::CrossSite));
        let public = site(Some("https://plancha.example"), true);
        let named = ("host", "plancha.example");
        assert_eq!(
            public.check_open(&headers(&[named, ("origin", "https://plancha.example")])),
            Ok(())
        );
        assert_eq!(
            public.check_open(&headers(&[named, ("origin", "https://evil.example")])),
            Err(Foreign::Origin)
        );
        assert_eq!(site(None, false).check_open(&headers(&[("host", "any.example")])), Ok(()));
    }

    #[test]
    fn forms_are_accepted_only_of_our_own_pages() {
        let check = |site: &Site, pairs: &[(&str, &str)]| {
            site.check_form(&headers(pairs)).map(|url| url.origin)
        };
        let public = site(Some("https://plancha.example"), false);
        let ours = ("origin", "https://plancha.example");
        assert_eq!(check(&public, &[ours]), Ok("https://plancha.example".to_owned()));
        for foreign in
            [&[][..], &[("origin", "https://evil.example")], &[("origin", "null")], &[ours, ours]]
        {
            assert_eq!(check(&public, foreign), Err(Foreign::Origin));
        }
        let local = site(None, true);
        let host = ("host", "127.0.0.1:8080");
        assert!(check(&local, &[host, ("origin", "http://127.0.0.1:8080")]).is_ok());
        assert_eq!(
            check(&local, &[host, ("origin", "http://localhost:8080")]),
            Err(Foreign::Origin)
        );
        assert_eq!(
            check(&site(None, false), &[host, ("origin", "http://127.0.0.1:8080")]),
            Err(Foreign::Host)
        );
        let evil = [("host", "evil.example"), ("origin", "http://evil.example")];
        assert_eq!(check(&local, &evil), Err(Foreign::Host));
    }

    #[test]
    fn a_session_counts_only_for_our_pages_and_followed_links() {
        let may = |pairs: &[(&str, &str)]| may_use_session(&headers(pairs));
        assert!(
            may(&[])
                && may(&[("sec-fetch-site", "same-origin")])
                && may(&[("sec-fetch-site", "none")])
        );
        for site in ["cross-site", "same-site"] {
            assert!(!may(&[("sec-fetch-site", site), ("sec-fetch-mode", "no-cors")]));
            assert!(may(&[("sec-fetch-site", site), ("sec-fetch-mode", "navigate")]));
        }
    }
}
