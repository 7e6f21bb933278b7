//! `health`: asks a datastore on this machine whether it is ready, as the health check of a container does. It knows
//! `/readyz` and nothing else of the service.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use datastore_api::chain;

use crate::cli::error::CommandError;

/// How long one request may take. A container's health check allows 10 s for all of them.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Asks the datastore that listens on one of these addresses. It is ready if `/readyz` answers 200.
pub async fn health(listen: &[SocketAddr]) -> Result<(), CommandError> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(TIMEOUT)
        // It asks itself and sends nothing secret. The certificate is for the name that others use.
        .tls_danger_accept_invalid_certs(true)
        .build()
        .map_err(|error| CommandError::NotReady(chain(&error)))?;
    let mut reason = "port 0 is any free port: name the real one with --listen".to_owned();
    for address in listen.iter().flat_map(asked) {
        for scheme in ["http", "https"] {
            match client.get(format!("{scheme}://{address}/readyz")).send().await {
                Ok(response) if response.status().is_success() => return Ok(()),
                Ok(response) => {
                    let status = response.status();
                    let text = response.text().await.unwrap_or_default();
                    let reason = format!("{address}: {status}: {}", text.trim());
                    return Err(CommandError::NotReady(reason));
                }
                Err(error) => {
                    let nothing_listens = scheme == "http" && error.is_connect();
                    reason = chain(&error);
                    if nothing_listens {
                        break;
                    }
                }
            }
        }
    }
    Err(CommandError::NotReady(reason))
}

/// The addresses on which a server can be asked that listens on this one.
fn asked(listen: &SocketAddr) -> Vec<SocketAddr> {
    let loopback: &[IpAddr] = match listen.ip() {
        _ if listen.port() == 0 => &[],
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => &[IpAddr::V4(Ipv4Addr::LOCALHOST)],
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
            &[IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
        }
        ip => return vec![SocketAddr::new(ip, listen.port())],
    };
    loopback.iter().map(|ip| SocketAddr::new(*ip, listen.port())).collect()
}
