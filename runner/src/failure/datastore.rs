//! Errors of the datastore.

use std::error::Error;

use datastore_api::ClientError;
use reqwest::StatusCode;

use crate::failure::{Failure, Kind, disk_hint};

impl Failure {
    pub(super) fn of_datastore(cause: &ClientError, error: &dyn Error) -> Self {
        let failure = Self::new(datastore_kind(cause), error);
        let hint = hint(failure.kind, cause);
        let is_unanswered = failure.kind == Kind::Datastore && cause.is_unanswered();
        let kind = if is_unanswered { Kind::DatastoreUnanswered } else { failure.kind };
        Self { kind, hint: hint.map(str::to_owned).or(failure.hint), ..failure }
    }
}

fn hint(kind: Kind, cause: &ClientError) -> Option<&'static str> {
    if let (Kind::Datastore, ClientError::Transport { reason, .. }) = (kind, cause)
        && let Some(hint) = connection_hint(reason)
    {
        return Some(hint);
    }
    Some(match (kind, cause) {
        (_, ClientError::Token { .. }) => {
            "check that the file of --token-file (PLANCHA_TOKEN_FILE; in Burrito's pods the mounted one) or the \
             variable PLANCHA_TOKEN contains the token, and that the file can be read"
        }
        (Kind::Credentials, _) => {
            "provide a token with this permission, with --token-file or the variable PLANCHA_TOKEN (in Burrito's \
             pods: the mounted one)"
        }
        (Kind::Integrity, ClientError::Lost { .. }) => {
            "restore the file from a backup of the datastore's storage. Without one, find out first what the last apply has \
             done: without the record of its digest, nothing shows any more that there was an apply, or an approval was used"
        }
        (Kind::Integrity, _) => {
            "the stored file is damaged: `datastore verify` lists such files; restore it, or plan again"
        }
        (Kind::Datastore, ClientError::Answer { .. }) => {
            "the datastore answers, but the answer, or the stored file that the message names, is not valid: restore \
             that file (`datastore verify` lists changed ones), or check that no proxy changes the answers"
        }
        (Kind::Datastore, _) => match cause.status() {
            Some(StatusCode::INSUFFICIENT_STORAGE) => {
                "free some space in the datastore's storage, or raise its quota, then run again"
            }
            Some(StatusCode::PRECONDITION_FAILED) => {
                "another run stored this file with other contents under the same name and attempt; run again \
                 under another --run, or without --attempt"
            }
            Some(StatusCode::PAYLOAD_TOO_LARGE) => {
                "raise the limit: of a datastore `datastore serve --max-size KIND=SIZE`; of a proxy before it, \
                 the limit of a request's body (nginx: client_max_body_size), then run again"
            }
            Some(StatusCode::NOT_FOUND) => {
                "check that --datastore or PLANCHA_DATASTORE_URL (in Burrito's pods: BURRITO_DATASTORE_HOSTNAME) is \
                 the URL of the datastore itself, http://HOST[:PORT], and not of a page or a proxy"
            }
            _ => {
                "check that the datastore runs at the URL of --datastore or PLANCHA_DATASTORE_URL (in Burrito's \
                 pods: BURRITO_DATASTORE_HOSTNAME), and can be reached from here (GET /readyz), then run again"
            }
        },
        (_, ClientError::File(cause)) => return disk_hint(cause),
        _ => return None,
    })
}

/// What to do about a connection that cannot be made, by the words of the libraries.
fn connection_hint(reason: &str) -> Option<&'static str> {
    [
        (
            "InvalidContentType",
            "that port does not speak TLS: if it speaks plain http, write http:// instead of https:// (in Burrito's \
             pods: BURRITO_DATASTORE_TLS)",
        ),
        (
            "invalid HTTP version parsed",
            "that port does not speak plain http: if it speaks TLS, write https:// instead of http:// (in Burrito's \
             pods: BURRITO_DATASTORE_TLS)",
        ),
        (
            "invalid peer certificate: UnknownIssuer",
            "name the certificate of the authority that signed the datastore's, with --ca-file or PLANCHA_CA_FILE",
        ),
        (
            "failed to lookup address",
            "the host name does not resolve: correct it in --datastore or PLANCHA_DATASTORE_URL, http://HOST[:PORT] \
             (in Burrito's pods: BURRITO_DATASTORE_HOSTNAME)",
        ),
    ]
    .into_iter()
    .find_map(|(words, hint)| reason.contains(words).then_some(hint))
}

pub(super) fn datastore_kind(error: &ClientError) -> Kind {
    match (error, error.status()) {
        (_, Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) => Kind::Credentials,
        (ClientError::Token { .. } | ClientError::Setup(_), _) => Kind::Config,
        (
            ClientError::Digest { .. } | ClientError::Damaged { .. } | ClientError::Lost { .. },
            _,
        ) => Kind::Integrity,
        (ClientError::File(_), _) => Kind::Unclassified,
        _ => Kind::Datastore,
    }
}
