//! `health`: asks a datastore on this machine whether it is ready, as the health check of a container does. It knows
//! `/readyz` and nothing else of the service.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use datastore_api::chain;
use reqwest::header::SERVER;

use crate::cli::error::CommandError;

/// What to do if another program has the address.
const NAME_IT: &str = "name the address of the datastore with --listen";
/// How long one request may take. A container's health check allows 10 s for all of them.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Asks the datastore that listens on one of these addresses. It is ready if `/readyz` answers 200, and says that the
/// answer is that of a datastore.
pub async fn health(listen: &[SocketAddr]) -> Result<(), CommandError> {
    let not_ready = |reason, hint| Err(CommandError::NotReady(reason, hint));
    let client = match client() {
        Ok(client) => client,
        Err(error) => return not_ready(chain(&error), "no request could be sent"),
    };
    let mut failure = ("port 0 is any free port".to_owned(), "name the real one with --listen");
    for address in listen.iter().flat_map(asked) {
        let mut errors = Vec::new();
        for scheme in ["http", "https"] {
            match client.get(format!("{scheme}://{address}/readyz")).send().await {
                Ok(response) if !is_ours(&response) => {
                    // A datastore with TLS answers plain HTTP in this way, too.
                    failure = (of_another(address, &response), NAME_IT);
                }
                Ok(response) if response.status().is_success() => return Ok(()),
                Ok(response) => {
                    let status = response.status();
                    let text = response.text().await.unwrap_or_default();
                    let reason = format!("{address}: {status}: {}", text.trim());
                    return not_ready(reason, "its log says why");
                }
                Err(error) if scheme == "http" && error.is_connect() => {
                    failure = (chain(&error), "start it, or name its address with --listen");
                    break;
                }
                // An answer to plain HTTP says more than that there is no TLS.
                Err(_) if failure.1 == NAME_IT => {}
                Err(error) => {
                    errors.push(chain(&error));
                    failure = (errors.join("; "), "its log says why");
                }
            }
        }
    }
    let (reason, hint) = failure;
    not_ready(reason, hint)
}

/// Whether a datastore answers on this address, ready or not.
pub(super) async fn is_running(listen: SocketAddr) -> bool {
    let Ok(client) = client() else { return false };
    for address in asked(&listen) {
        for scheme in ["http", "https"] {
            let answer = client.get(format!("{scheme}://{address}/healthz")).send().await;
            if answer.is_ok_and(|response| is_ours(&response)) {
                return true;
            }
        }
    }
    false
}

fn client() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(TIMEOUT)
        // It asks itself and sends nothing secret. The certificate is for the name that others use.
        .tls_danger_accept_invalid_certs(true)
        .build()
}

/// Whether an answer is that of a datastore.
fn is_ours(response: &reqwest::Response) -> bool {
    response.headers().get(SERVER).is_some_and(|server| server == "plancha")
}

/// What another program has answered.
fn of_another(address: SocketAddr, response: &reqwest::Response) -> String {
    let server = response.headers().get(SERVER).and_then(|server| server.to_str().ok());
    let server =
        server.map_or_else(|| "no header Server".to_owned(), |name| format!("Server: {name}"));
    format!("{address}: another program answers {} ({server})", response.status())
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
