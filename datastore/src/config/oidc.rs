//! `--auth oidc=ISSUER,...`: issuers of ID tokens, and for whom they must be.

use std::path::PathBuf;
use std::str::FromStr;

use secrecy::SecretString;

use crate::auth::{IssuerUrl, Oidc, OidcClient};
use crate::config::sources::Sources;

/// An issuer of `--auth`, with the options that follow it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OidcMode {
    pub(super) issuer: IssuerUrl,
    audience: Option<String>,
    client_id: Option<String>,
    secret_file: Option<PathBuf>,
    scopes: Vec<String>,
}

/// The scopes of a client, unless others are named: they have the claims that rules use most.
const SCOPES: [&str; 2] = ["profile", "email"];

impl OidcMode {
    pub(super) fn new(issuer: &str) -> Result<Self, String> {
        let issuer = IssuerUrl::from_str(issuer)?;
        let (audience, client_id, secret_file, scopes) = (None, None, None, Vec::new());
        Ok(Self { issuer, audience, client_id, secret_file, scopes })
    }

    /// Adds an option; false if there is none of this name.
    pub(super) fn add(&mut self, name: &str, value: &str) -> Result<bool, String> {
        if !["audience", "client-id", "client-secret-file", "scope"].contains(&name) {
            return Ok(false);
        }
        let text = value.to_owned();
        if text.is_empty() || text.contains(char::is_control) {
            return Err(format!("`{name}` of oidc={} has no value", self.issuer));
        }
        let is_twice = match name {
            "audience" => self.audience.replace(text).is_some(),
            "client-id" => self.client_id.replace(text).is_some(),
            "client-secret-file" => self.secret_file.replace(text.into()).is_some(),
            _ => {
                self.scopes.push(text);
                false
            }
        };
        if is_twice {
            return Err(format!("`{name}` of oidc={} is set twice", self.issuer));
        }
        Ok(true)
    }

    /// Reads the secret, and checks that the options fit together.
    pub(super) fn read(self, sources: Sources) -> Result<Oidc, String> {
        let Self { issuer, audience, client_id, secret_file, scopes } = self;
        let at = format!("--auth oidc={issuer}");
        match (&audience, &client_id) {
            (None, None) => {
                return Err(format!(
                    "{at}: for whom must its tokens be?\nhint: add audience=NAME for programs, client-id=ID for people \
                     who sign in with a browser, or both"
                ));
            }
            (Some(audience), Some(client)) if audience == client => {
                return Err(format!(
                    "{at}: `audience` and `client-id` are both `{client}`: then a token of a browser would pass as one \
                     of a program\nhint: use two names"
                ));
            }
            (_, None) if secret_file.is_some() || !scopes.is_empty() => {
                return Err(format!("{at}: client-secret-file and scope need client-id"));
            }
            _ => {}
        }
        let Some(id) = client_id else { return Ok(Oidc { issuer, audience, client: None }) };
        let secret = secret_file.map(|file| {
            let text = sources.file(&file).map_err(|error| error.to_string());
            let text = text.map(|text| text.trim().to_owned()).and_then(|text| {
                if text.is_empty() { Err("the file is empty".to_owned()) } else { Ok(text) }
            });
            text.map(SecretString::from)
                .map_err(|reason| format!("{at}: client-secret-file: {}: {reason}", file.display()))
        });
        let scopes = if scopes.is_empty() { SCOPES.map(str::to_owned).to_vec() } else { scopes };
        Ok(Oidc {
            issuer,
            audience,
            client: Some(OidcClient { id, secret: secret.transpose()?, scopes }),
        })
    }
}
