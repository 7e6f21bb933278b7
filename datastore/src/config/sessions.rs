//! Settings of sessions: the address that browsers have, and the keys that seal cookies.

use std::net::SocketAddr;
use std::path::Path;

use crate::auth::site::is_loopback_address;
use crate::auth::{Auth, PublicUrl, SessionKeys, SessionSettings};
use crate::config::settings::{Settings, parse};
use crate::config::sources::RawSetting;

impl Settings<'_> {
    pub(super) fn sessions(
        &mut self,
        public_url: Option<String>,
        key_file: Option<String>,
    ) -> Result<SessionSettings, String> {
        let mut settings = SessionSettings::default();
        if let Some(RawSetting { source, location, text }) =
            self.raw(public_url, "--public-url", &["PLANCHA_PUBLIC_URL"])
        {
            let url = parse::<PublicUrl>(&location, &text)?;
            self.record("--public-url", &url, source);
            settings.public_url = Some(url);
        }
        if let Some(RawSetting { source, location, text: file }) =
            self.raw(key_file, "--session-key-file", &["PLANCHA_SESSION_KEY_FILE"])
        {
            let at = |reason: String| format!("{location}: {file}: {reason}");
            let text =
                self.sources.file(Path::new(&file)).map_err(|error| at(error.to_string()))?;
            settings.keys = Some(SessionKeys::parse(&text).map_err(at)?);
            self.record("--session-key-file", &file, source);
        }
        Ok(settings)
    }

    /// Records the addresses to register at issuers. People can sign in there only if the datastore has an address for browsers.
    pub(super) fn redirect_uris(
        &mut self,
        auth: &Auth,
        sessions: &SessionSettings,
        listen: &[SocketAddr],
    ) -> Result<(), String> {
        let Auth::Callers(callers) = auth else { return Ok(()) };
        let clients = callers.oidc.iter().filter(|oidc| oidc.client.is_some());
        for oidc in clients.collect::<Vec<_>>() {
            let origin = match &sessions.public_url {
                Some(url) => url.to_string(),
                None if listen.iter().all(|address| is_loopback_address(address.ip())) => {
                    "(the address that the browser shows)".to_owned()
                }
                None => {
                    return Err(format!(
                        "--auth oidc={}: people cannot sign in without the address that their browsers use\nhint: set \
                         --public-url, such as https://plancha.example.com",
                        oidc.issuer
                    ));
                }
            };
            let uri = oidc.issuer.redirect_uri(&origin);
            self.record("redirect URI", &uri, "--public-url");
        }
        Ok(())
    }
}
