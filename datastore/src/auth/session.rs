//! Sessions of browsers, and sign-ins that are under way: sealed cookies, so that no replica keeps any.
//!
//! A session holds who has signed in and until when, but neither a token nor any permission: each request evaluates the rules.
//! Keys are derived for each kind of cookie, so that one kind never passes as the other.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{hkdf, rand};
use axum::http::HeaderValue;
use axum::http::header::{COOKIE, HeaderMap};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use datastore_api::Sha256;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::auth::claims::Claims;

/// The longest session, in seconds. It ends earlier with its token.
pub(super) const MAX_SESSION: i64 = 8 * 60 * 60;
/// How long a sign-in at an issuer may take, in seconds.
pub(super) const MAX_SIGN_IN: i64 = 10 * 60;
/// The longest value of a cookie: browsers keep 4,096 bytes of name, value and attributes.
const MAX_VALUE: usize = 3800;

/// The keys that seal cookies: the first one seals, each one opens.
#[derive(Clone)]
pub struct SessionKeys(Arc<[Keys]>);

struct Keys {
    session: RandomizedNonceKey,
    sign_in: RandomizedNonceKey,
}

/// The two cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cookie {
    Session,
    SignIn,
}

/// A session of a browser.
#[derive(Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) of: SignedIn,
    /// Its end, in seconds since 1970.
    pub(super) until: i64,
}

/// Who has signed in.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SignedIn {
    /// A caller with a token that the rules list: its digest.
    Token(Sha256),
    /// A `ServiceAccount`: the digest of its token, which this process keeps in memory.
    Account(Sha256),
    /// An identity of an issuer, with those of its claims that rules match.
    Oidc { issuer: String, subject: String, claims: Claims },
}

/// A sign-in at an issuer that is under way.
#[derive(Serialize, Deserialize)]
pub(super) struct SignInState {
    pub(super) issuer: String,
    /// Our address, to which the issuer sends the browser back.
    pub(super) origin: String,
    pub(super) state: String,
    pub(super) nonce: String,
    /// The secret of PKCE.
    pub(super) verifier: String,
    /// The path to show then.
    pub(super) next: String,
    pub(super) until: i64,
}

/// A cookie that does not fit into what browsers keep.
#[derive(Debug)]
pub(super) struct TooLarge;

impl SessionKeys {
    /// Keys that no other process has.
    pub fn random() -> Result<Self, String> {
        let mut secret = [0; 32];
        let unavailable = |_| "the operating system provides no random numbers".to_owned();
        rand::fill(&mut secret).map_err(unavailable)?;
        Ok(Self([Keys::of(&secret)?].into()))
    }

    /// The keys of a file: one or two lines in Base64, each of at least 32 bytes. An error does not quote them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines = lines.collect::<Vec<_>>();
        if !(1..=2).contains(&lines.len()) {
            return Err(format!(
                "expected one or two keys, one a line, found {}\nhint: create one with `openssl rand -base64 32`",
                lines.len()
            ));
        }
        let keys = (1..).zip(lines).map(|(number, line): (usize, _)| {
            let bytes = BASE64_STANDARD.decode(line).or_else(|_| {
                BASE64_URL_SAFE_NO_PAD.decode(line.trim_end_matches('='))
            });
            match bytes {
                Ok(bytes) if bytes.len() >= 32 => Keys::of(&bytes),
                _ => Err(format!(
                    "key {number}: expected at least 32 bytes in Base64\nhint: create one with `openssl rand -base64 32`"
                )),
            }
        });
        keys.collect::<Result<Arc<[_]>, _>>().map(Self)
    }

    /// The value of a cookie with this content.
    pub(super) fn seal<T: Serialize>(
        &self,
        cookie: Cookie,
        content: &T,
    ) -> Result<String, TooLarge> {
        let mut bytes = serde_json::to_vec(content).map_err(|_| TooLarge)?;
        // There is at least one key.
        let keys = self.0.first().ok_or(TooLarge)?;
        let aad = Aad::from(cookie.label());
        let nonce = keys.of_cookie(cookie).seal_in_place_append_tag(aad, &mut bytes);
        let nonce = nonce.map_err(|_| TooLarge)?;
        let sealed = [nonce.as_ref().as_slice(), &bytes].concat();
        let value = BASE64_URL_SAFE_NO_PAD.encode(sealed);
        if value.len() > MAX_VALUE { Err(TooLarge) } else { Ok(value) }
    }

    /// The content of the cookie that a request has; none if it is missing, not ours or given twice.
    pub(super) fn open<T: DeserializeOwned>(
        &self,
        cookie: Cookie,
        is_secure: bool,
        headers: &HeaderMap,
    ) -> Option<T> {
        let value = cookie_value(headers, cookie.name(is_secure))
            .filter(|value| value.len() <= MAX_VALUE)?;
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(value).ok()?;
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN)?;
        self.0.iter().find_map(|keys| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut bytes = sealed.to_vec();
            let aad = Aad::from(cookie.label());
            let content = keys.of_cookie(cookie).open_in_place(nonce, aad, &mut bytes).ok()?;
            serde_json::from_slice(content).ok()
        })
    }
}

impl Keys {
    fn of(secret: &[u8]) -> Result<Self, String> {
        let unusable = |_| "the key cannot be used".to_owned();
        let key = |cookie: Cookie| {
            let mut key = [0; 32];
            let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, b"plancha").extract(secret);
            secret
                .expand(&[cookie.label().as_bytes()], &AES_256_GCM_SIV)
                .and_then(|okm| okm.fill(&mut key))
                .and_then(|()| RandomizedNonceKey::new(&AES_256_GCM_SIV, &key))
                .map_err(unusable)
        };
        Ok(Self { session: key(Cookie::Session)?, sign_in: key(Cookie::SignIn)? })
    }

    fn of_cookie(&self, cookie: Cookie) -> &RandomizedNonceKey {
        match cookie {
            Cookie::Session => &self.session,
            Cookie::SignIn => &self.sign_in,
        }
    }
}

impl Cookie {
    /// Separates the two kinds, and the versions of their content.
    fn label(self) -> &'static str {
        match self {
            Self::Session => "plancha session 1",
            Self::SignIn => "plancha sign-in 1",
        }
    }

    /// Its name. Browsers accept the prefix `__Host-` only from the very host, over TLS.
    fn name(self, is_secure: bool) -> &'static str {
        match (self, is_secure) {
            (Self::Session, true) => "__Host-plancha-session",
            (Self::Session, false) => "plancha-session",
            (Self::SignIn, true) => "__Host-plancha-sign-in",
            (Self::SignIn, false) => "plancha-sign-in",
        }
    }

    /// The header that sets it, for this many seconds; 0 removes it.
    pub(super) fn set(self, is_secure: bool, value: &str, seconds: i64) -> HeaderValue {
        let name = self.name(is_secure);
        let secure = if is_secure { "; Secure" } else { "" };
        let text =
            format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
        // A name, and Base64.
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
    }
}

/// The value of a cookie; none if it is given twice.
fn cookie_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut values = lines.flat_map(|line| line.split(';')).filter_map(|pair| {
        let (given, value) = pair.trim().split_once('=')?;
        (given == name).then_some(value)
    });
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKeys").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const OTHER: &str = "_wECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

    fn session() -> Session {
        Session { of: SignedIn::Token(Sha256::of(b"x")), until: 5 }
    }

    fn with(value: &str) -> HeaderMap {
        let cookie = format!("a=b; {}={value}", Cookie::Session.name(true));
        [(COOKIE, cookie.parse().unwrap())].into_iter().collect()
    }

    fn until(keys: &SessionKeys, headers: &HeaderMap) -> Option<i64> {
        keys.open::<Session>(Cookie::Session, true, headers).map(|session| session.until)
    }

    #[test]
    fn a_cookie_is_opened_by_its_keys_only_and_only_unchanged() {
        let keys = SessionKeys::parse(KEY).unwrap();
        let value = keys.seal(Cookie::Session, &session()).unwrap();
        assert_eq!(until(&keys, &with(&value)), Some(5));
        assert_ne!(keys.seal(Cookie::Session, &session()).unwrap(), value);
        let rotated = SessionKeys::parse(&format!("{OTHER}\n{KEY}\n")).unwrap();
        assert_eq!(until(&rotated, &with(&value)), Some(5));
        let newer = rotated.seal(Cookie::Session, &session()).unwrap();
        assert_eq!(until(&keys, &with(&newer)), None);
        for keys in [SessionKeys::parse(OTHER).unwrap(), SessionKeys::random().unwrap()] {
            assert_eq!(until(&keys, &with(&value)), None);
        }
        for at in 0..value.len() {
            let mut changed = value.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(until(&keys, &with(&changed)), None, "{at}");
        }
        let mut twice = with(&value);
        twice.append(COOKIE, twice[COOKIE].clone());
        assert_eq!(until(&keys, &twice), None);
        for broken in ["", "A", "AAAA", &value[..value.len() - 4], &"A".repeat(9000)] {
            assert_eq!(until(&keys, &with(broken)), None, "{broken}");
        }
    }

    #[test]
    fn a_cookie_of_one_kind_is_not_one_of_the_other() {
        let keys = SessionKeys::parse(KEY).unwrap();
        let value = keys.seal(Cookie::SignIn, &session()).unwrap();
        assert_eq!(until(&keys, &with(&value)), None);
        assert_eq!(keys.open::<Session>(Cookie::Session, false, &with(&value)).map(drop), None);
    }

    #[test]
    fn a_file_of_keys_has_one_or_two_of_32_bytes() {
        let error = |text: &str| SessionKeys::parse(text).unwrap_err();
        insta::assert_snapshot!(error(""), @"
        expected one or two keys, one a line, found 0
        hint: create one with `openssl rand -base64 32`
        ");
        assert!(error(&format!("{KEY}\n{KEY}\n{KEY}")).contains("found 3"));
        insta::assert_snapshot!(error(&format!("{KEY}\nc2hvcnQ=")), @"
        key 2: expected at least 32 bytes in Base64
        hint: create one with `openssl rand -base64 32`
        ");
        assert!(!format!("{:?}", SessionKeys::parse(KEY).unwrap()).contains("AAEC"));
    }

    #[test]
    fn a_cookie_is_for_this_host_and_for_no_script() {
        let set = |is_secure| Cookie::Session.set(is_secure, "v", 60).to_str().unwrap().to_owned();
        insta::assert_snapshot!(set(true), @"__Host-plancha-session=v; Path=/; Max-Age=60; HttpOnly; SameSite=Lax; Secure");
        insta::assert_snapshot!(set(false), @"plancha-session=v; Path=/; Max-Age=60; HttpOnly; SameSite=Lax");
    }

    #[test]
    fn a_session_that_is_too_large_for_a_cookie_is_an_error() {
        let claims = [("groups".to_owned(), "x".repeat(4000).into())].into_iter().collect();
        let of = SignedIn::Oidc { issuer: String::new(), subject: String::new(), claims };
        let keys = SessionKeys::random().unwrap();
        assert!(keys.seal(Cookie::Session, &Session { of, until: 0 }).is_err());
    }
}
