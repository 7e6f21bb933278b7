//! The expiry of a JSON web token. Its signature is not verified: the service that gets it does that.

use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::Value;

use crate::source::regular;

/// No token is larger.
const MAX_TOKEN: u64 = 1 << 20;
/// The clock of this machine may be ahead by so much.
const LEEWAY_SECONDS: i64 = 60;

/// When a token expires. `None`: the text is no JWT, or the token has no expiry.
pub(crate) fn expires(token: &str) -> Option<Timestamp> {
    let mut parts = token.trim().split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let exp = &serde_json::from_slice::<Value>(&claims).ok()?["exp"];
    // A number with a fraction is allowed.
    #[expect(clippy::cast_possible_truncation, reason = "a fraction of a second does not matter")]
    let seconds = exp.as_i64().or_else(|| exp.as_f64().map(|seconds| seconds as i64))?;
    Timestamp::from_second(seconds).ok()
}

/// Whether a token with this expiry is expired by any clock.
pub(super) fn is_expired(expires: Timestamp, now: Timestamp) -> bool {
    expires.as_second().saturating_add(LEEWAY_SECONDS) < now.as_second()
}

/// The text of a token's file.
pub(super) fn read(file: &Path) -> io::Result<String> {
    let bytes = regular::beginning(file, MAX_TOKEN)?;
    let bytes = bytes.ok_or_else(|| io::Error::other("it is not a file"))?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(claims: &str) -> String {
        format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn expiry_of_a_token_is_read_and_other_texts_have_none() {
        let seconds = |token: &str| expires(token).map(Timestamp::as_second);
        assert_eq!(seconds(&token(r#"{"exp": 1700000000}"#)), Some(1_700_000_000));
        assert_eq!(
            seconds(&format!("{}\n", token(r#"{"exp":1700000000.5}"#))),
            Some(1_700_000_000)
        );
        for text in
            ["", "a.b.c", "hvs.CAESI", &token("{}"), &token(r#"{"exp":"soon"}"#), "a.b.c.d.e"]
        {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn token_is_expired_only_if_clocks_cannot_be_the_cause() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert!(!is_expired(at(1000), at(990)));
        assert!(!is_expired(at(1000), at(1060)));
        assert!(is_expired(at(1000), at(1061)));
    }
}
