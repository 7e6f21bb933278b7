//! Values of settings: parsed from text, and shown as text.
//!
//! An error begins with `expected` or names what is invalid; the caller adds the setting and the text. A line that
//! begins with `hint:` says what to do.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use url::Url;

use crate::kind::Kind;
use crate::observe::log::LogFormat;
use crate::store::{Cloud, Provider, Storage};
use crate::transport::limits::Size;

/// Addresses to listen on, as [`crate::listen`] does.
#[derive(Debug)]
pub(super) struct Listen(pub(super) Vec<SocketAddr>);

impl FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (v4, v6): (IpAddr, IpAddr) = match text.rsplit_once(':') {
            // Go writes all addresses this way: IPv6 and IPv4, where the host has both.
            Some(("", _)) => (Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()),
            Some(("localhost", _)) => (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()),
            _ => {
                let address = text.parse().map_err(|_| EXPECTED_ADDRESS)?;
                return Ok(Self(vec![address]));
            }
        };
        let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
        let port = port.ok_or(EXPECTED_ADDRESS)?;
        Ok(Self(vec![(v4, port).into(), (v6, port).into()]))
    }
}

const EXPECTED_ADDRESS: &str =
    "expected an IP address and a port, such as 127.0.0.1:8080, [::1]:8080 or :8080";
const EXPECTED_STORAGE: &str =
    "expected file:///DIRECTORY, s3://BUCKET, gs://BUCKET, az://CONTAINER or memory://";

impl FromStr for Storage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            let hint = if text.starts_with('/') {
                format!("\nhint: for a directory, write file://{text}")
            } else {
                String::new()
            };
            return Err(format!("{EXPECTED_STORAGE}{hint}"));
        };
        match scheme {
            "file" => {
                let url = Url::parse(text).ok();
                if url.as_ref().is_some_and(|url| url.query().or(url.fragment()).is_some()) {
                    return Err("unexpected query or fragment\nhint: in the name of a directory, write %3F \
                                for `?` and %23 for `#`"
                        .to_owned());
                }
                let path = url.and_then(|url| url.to_file_path().ok());
                let expected = "expected an absolute path after three slashes: file:///DIRECTORY";
                // The path of `file://` alone is the root of the file system.
                let path = path.filter(|path| path.parent().is_some());
                path.map(Self::File).ok_or(expected.to_owned())
            }
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => Err("expected memory:// with nothing after it".to_owned()),
            _ if rest.split('/').next().is_some_and(|host| host.contains('@')) => {
                Err("unexpected user or password\nhint: set the credentials in the variables of the cloud"
                    .to_owned())
            }
            _ => match Provider::of_scheme(scheme) {
                Some(provider) => Cloud::parse(provider, rest).map(Self::Cloud),
                None => Err(EXPECTED_STORAGE.to_owned()),
            },
        }
    }
}

/// A boolean in the spellings that Go accepts.
pub(super) struct GoBool(pub(super) bool);

impl FromStr for GoBool {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_lowercase().as_str() {
            "1" | "t" | "true" => Ok(Self(true)),
            "0" | "f" | "false" => Ok(Self(false)),
            _ => Err("expected true or false"),
        }
    }
}

/// Whether something is served.
pub(super) struct OnOff(pub(super) bool);

impl FromStr for OnOff {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "on" => Ok(Self(true)),
            "off" => Ok(Self(false)),
            _ => Err("expected on or off"),
        }
    }
}

impl fmt::Display for OnOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "on" } else { "off" })
    }
}

impl FromStr for LogFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("expected text or json"),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.iter().map(SocketAddr::to_string).collect::<Vec<_>>();
        f.write_str(&all.join(" and "))
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// A value for one kind of artifact: `KIND=VALUE`.
pub(super) struct PerKind<T>(pub(super) Kind, pub(super) T);

impl<T: FromStr<Err: fmt::Display>> FromStr for PerKind<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, value) = text.split_once('=').ok_or("expected KIND=VALUE")?;
        let kind = kind.parse()?;
        let value = value.parse().map_err(|reason: T::Err| reason.to_string())?;
        Ok(Self(kind, value))
    }
}

/// Bytes of memory for all transfers, enough for at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory(pub(super) usize);

/// 32 MiB: what one transfer may hold.
const MIN_MEMORY: u64 = 32 << 20;
/// 4 TiB.
const MAX_MEMORY: u64 = 4 << 40;

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Size(bytes) = text.parse()?;
        let bytes = Some(bytes).filter(|bytes| (MIN_MEMORY..=MAX_MEMORY).contains(bytes));
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        bytes.map(Self).ok_or_else(|| {
            format!("expected a size from {} to {}", Size(MIN_MEMORY), Size(MAX_MEMORY))
        })
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Size(self.0 as u64).fmt(f)
    }
}
