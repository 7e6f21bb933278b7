//! The texts of settings, parsed and shown.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};
use url::Url;

use crate::kind::Kind;
use crate::observe::log::LogFormat;
use crate::store::{Cloud, Provider, Storage};
use crate::transport::limits::Size;

/// Where to listen: the first of these that can be had.
#[derive(Debug)]
pub(super) struct Listen(pub(super) Vec<SocketAddr>);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (v4, v6): (IpAddr, IpAddr) = match text.rsplit_once(':') {
            // That is how Go writes any address: both kinds where there are both.
            Some(("", _)) => (Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()),
            Some(("localhost", _)) => (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()),
            _ => {
                let address = text.parse().map_err(|_| NO_ADDRESS.to_owned())?;
                return Ok(Self(vec![address]));
            }
        };
        let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
        let port = port.ok_or(NO_ADDRESS)?;
        Ok(Self(vec![(v4, port).into(), (v6, port).into()]))
    }
}

const NO_ADDRESS: &str = "is no address and port, like 127.0.0.1:8080, [::1]:8080 or :8080";

impl FromStr for Storage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            let path = if text.starts_with('/') { text } else { "/directory" };
            return Err(format!("is no URL: for a directory write file://{path}"));
        };
        match scheme {
            "file" => {
                let url = Url::parse(text).ok();
                if url.as_ref().is_some_and(|url| url.query().or(url.fragment()).is_some()) {
                    return Err("has a query or a fragment: in the name of a directory write %3F for ? and \
                                %23 for #"
                        .to_owned());
                }
                let path = url.and_then(|url| url.to_file_path().ok());
                path.map(Self::File).ok_or(
                    "names no absolute directory: it takes three slashes, as in file:///directory"
                        .to_owned(),
                )
            }
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => Err("has something after memory://, which takes nothing".to_owned()),
            _ if rest.split('/').next().is_some_and(|host| host.contains('@')) => {
                Err("has a user or password: credentials come from the cloud's own variables"
                    .to_owned())
            }
            _ => match Provider::of_scheme(scheme) {
                Some(provider) => Cloud::parse(provider, rest).map(Self::Cloud),
                None => {
                    Err("is of no known kind: use file:///directory, s3://bucket, gs://bucket, \
                     az://container or memory://"
                        .to_owned())
                }
            },
        }
    }
}

/// Yes or no, as Go reads it.
pub(super) struct Yes(pub(super) bool);

impl FromStr for Yes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_lowercase().as_str() {
            "1" | "t" | "true" => Ok(Self(true)),
            "0" | "f" | "false" => Ok(Self(false)),
            _ => Err("is neither true nor false".to_owned()),
        }
    }
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("is neither `text` nor `json`".to_owned()),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.iter().map(SocketAddr::to_string).collect::<Vec<_>>();
        f.write_str(&all.join(" or "))
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

/// A time, in which a day is 24 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time(pub(super) Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let span = text.parse::<Span>().ok();
        let time = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
        let time = time.and_then(|time| time.try_into().ok()).map(Self);
        time.ok_or_else(|| "is no duration like 500ms, 30s, 5m or 14d".to_owned())
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", SignedDuration::try_from(self.0).unwrap_or(SignedDuration::MAX))
    }
}

/// What holds for one kind: `KIND=VALUE`.
pub(super) struct Of<T>(pub(super) Kind, pub(super) T);

impl<T: FromStr<Err = String>> FromStr for Of<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, value) = text.split_once('=').ok_or("is not of the form KIND=VALUE")?;
        let kind = kind.parse().map_err(|reason| format!("has an {reason}"))?;
        let value = value.parse().map_err(|reason| format!("cannot be: `{value}` {reason}"))?;
        Ok(Self(kind, value))
    }
}

/// Bytes of memory, at least what one transfer may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory(pub(super) usize);

/// 4 TiB.
const MOST_MEMORY: u64 = 4 << 40;

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Size(bytes) = text.parse()?;
        if bytes > MOST_MEMORY {
            return Err(format!(
                "is more than {}, which no machine has for this",
                Size(MOST_MEMORY)
            ));
        }
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes >= 32 << 20);
        bytes.map(Self).ok_or_else(|| "is less than the 32MiB of one transfer".to_owned())
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Size(self.0 as u64).fmt(f)
    }
}
