//! Reads each setting from the first source that has it (flag, variable, Burrito's file, default), and records which
//! source that was.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use datastore_api::HumanDuration;
use secrecy::SecretString;

use crate::config::burrito::File;
use crate::config::sources::{RawSetting, Sources};
use crate::config::values::{GoBool, PerKind};
use crate::kind::Kind;
use crate::store::encryption::AtRest;
use crate::store::{Cloud, Provider, Storage, Variables};
use crate::transport::limits::{Size, Sizes};
use crate::transport::tls::TlsFiles;

/// A setting in effect, as `check` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name of its flag.
    pub name: &'static str,
    /// Its value; `set` for a secret.
    pub value: String,
    /// The flag, variable or file that it came from, or `default`.
    pub source: &'static str,
}

const AZURE_ACCOUNT: &str = "BURRITO_DATASTORE_STORAGE_AZURE_STORAGEACCOUNT";
/// Azure's own variable for the account.
const ACCOUNT_NAME: &str = "AZURE_STORAGE_ACCOUNT_NAME";
const KEY: &str = "BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY";
const ENCRYPTION: &str = "BURRITO_DATASTORE_STORAGE_ENCRYPTION_ENABLED";
const TLS: &str = "BURRITO_DATASTORE_TLS";
/// The directory in which Burrito's chart mounts the certificate.
const BURRITO_TLS_DIR: &str = "/etc/burrito/tls";
/// Whether no other process keeps states in the storage.
const SINGLE_REPLICA: &str = "PLANCHA_SINGLE_REPLICA";

/// Burrito's buckets. The first one that is set is used.
const BUCKETS: [(&str, &str); 3] = [
    ("BURRITO_DATASTORE_STORAGE_AZURE_CONTAINER", "az"),
    ("BURRITO_DATASTORE_STORAGE_GCS_BUCKET", "gs"),
    ("BURRITO_DATASTORE_STORAGE_S3_BUCKET", "s3"),
];

/// Reads settings, and records where each came from.
pub(super) struct Settings<'a> {
    pub(super) sources: Sources<'a>,
    burrito: File,
    pub(super) all: Vec<Setting>,
    /// Settings without effect, or with another one than was probably intended.
    pub(super) warnings: Vec<String>,
}

impl<'a> Settings<'a> {
    pub(super) fn new(sources: Sources<'a>) -> Result<Self, String> {
        let burrito = File::find(sources)?;
        Ok(Self { sources, burrito, all: Vec::new(), warnings: Vec::new() })
    }

    /// This variable, else the same setting in Burrito's file.
    pub(super) fn variable(&self, name: &'static str) -> Option<RawSetting> {
        if let Some(text) = self.sources.env(name) {
            return Some(RawSetting { source: name, location: name.to_owned(), text });
        }
        let text = self.burrito.text(name)?.to_owned();
        let key = name.trim_start_matches("BURRITO_").to_lowercase().replace('_', ".");
        let source = self.burrito.path;
        Some(RawSetting { source, location: format!("{source}: {key}"), text })
    }

    /// The flag, else the first of these variables that is set.
    pub(super) fn raw(
        &self,
        flag: Option<String>,
        name: &'static str,
        variables: &[&'static str],
    ) -> Option<RawSetting> {
        let flag = flag.map(|text| RawSetting { source: name, location: name.to_owned(), text });
        flag.or_else(|| variables.iter().find_map(|name| self.variable(name)))
    }

    /// The flag, else the first of these variables that is set, else the default.
    pub(super) fn take<T: FromStr<Err: Display> + Display>(
        &mut self,
        flag: Option<String>,
        name: &'static str,
        variables: &[&'static str],
        default: impl FnOnce() -> T,
    ) -> Result<T, String> {
        let (source, value) = match self.raw(flag, name, variables) {
            Some(RawSetting { source, location, text }) => (source, parse(&location, &text)?),
            None => ("default", default()),
        };
        self.record(name, &value, source);
        Ok(value)
    }

    /// Whether this variable of Burrito's is set, and true.
    pub(super) fn flag_is_set(&self, variable: &'static str) -> Result<bool, String> {
        let Some(RawSetting { location, text, .. }) = self.variable(variable) else {
            return Ok(false);
        };
        parse(&location, &text).map(|GoBool(is_set)| is_set)
    }

    pub(super) fn duration(
        &mut self,
        flag: Option<String>,
        name: &'static str,
        default: Duration,
    ) -> Result<Duration, String> {
        let duration = self.take(flag, name, &[], || HumanDuration(default));
        duration.map(|HumanDuration(duration)| duration)
    }

    pub(super) fn storage(&mut self, flag: Option<String>) -> Result<Storage, String> {
        let raw = self.raw(flag, "--storage", &["PLANCHA_STORAGE"]);
        let (source, storage) = match raw {
            Some(RawSetting { source, location, text }) => (source, parse(&location, &text)?),
            None => self.burrito_storage()?.map_or_else(|| self.default_storage(), Ok)?,
        };
        self.record("--storage", &storage, source);
        let Storage::Cloud(cloud) = storage else { return Ok(storage) };
        // The cloud's own variables have the region and the credentials.
        let account = self.variable(AZURE_ACCOUNT).filter(|_| cloud.provider == Provider::Azure);
        let variables = Variables::read(cloud.provider, &|name| match (name, &account) {
            (ACCOUNT_NAME, Some(account)) => Some(account.text.clone()),
            _ => self.sources.env(name),
        });
        let cloud = Cloud { variables, ..cloud };
        if let Some(name) = cloud.missing() {
            return Err(format!(
                "{name} is not set\nhint: set it, or Burrito's {AZURE_ACCOUNT}, to the name of the storage account"
            ));
        }
        cloud.check_default_credentials(self.sources.env("HOME").as_deref())?;
        cloud.check().map_err(|(name, reason)| {
            let account = account.as_ref().filter(|_| name == ACCOUNT_NAME);
            format!(
                "{}: invalid value: {reason}",
                account.map_or(name, |account| &account.location)
            )
        })?;
        for name in cloud.variables.names() {
            let account = account.as_ref().filter(|_| name == ACCOUNT_NAME);
            self.record(name, &"set", account.map_or(name, |account| account.source));
        }
        Ok(Storage::Cloud(cloud))
    }

    /// Only a variable sets the key, so that no file that others read has it.
    pub(super) fn at_rest(&mut self, flag: Option<String>) -> Result<AtRest, String> {
        let key = self.sources.env(KEY).map(SecretString::from);
        if key.is_some() {
            self.record("encryption key", &"set", KEY);
        }
        let format = self.raw(flag, "--at-rest", &["PLANCHA_AT_REST"]);
        if let Some(RawSetting { location, text, .. }) = &format
            && text != "burrito"
        {
            return Err(format!(
                "{location}: invalid value `{text}`: expected burrito\nhint: to store files unencrypted, leave it out"
            ));
        }
        let encrypts = format.is_some() || self.flag_is_set(ENCRYPTION)?;
        let raw = format.or_else(|| self.variable(ENCRYPTION));
        if let Some(RawSetting { source, location, text }) = raw {
            self.record("encryption", &encrypts, source);
            if encrypts && key.is_none() {
                return Err(format!(
                    "{location} is {text}, but {KEY} is not set\nhint: set {KEY} to the encryption key, from a secret"
                ));
            }
        }
        Ok(AtRest { key, encrypts })
    }

    pub(super) fn tls(
        &mut self,
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
    ) -> Result<Option<TlsFiles>, String> {
        let burrito = self.variable(TLS).map(|raw| raw.source);
        let (source, files) = match (cert, key) {
            (Some(cert), Some(key)) => ("--tls-cert", TlsFiles { cert, key }),
            (None, None) if !self.flag_is_set(TLS)? => return Ok(None),
            (None, None) => {
                let [cert, key] =
                    ["tls.crt", "tls.key"].map(|name| Path::new(BURRITO_TLS_DIR).join(name));
                (burrito.unwrap_or(TLS), TlsFiles { cert, key })
            }
            (Some(_), None) => return Err("--tls-cert requires --tls-key".to_owned()),
            (None, Some(_)) => return Err("--tls-key requires --tls-cert".to_owned()),
        };
        self.record("--tls-cert", &files, source);
        Ok(Some(files))
    }

    fn burrito_storage(&self) -> Result<Option<(&'static str, Storage)>, String> {
        for (variable, scheme) in BUCKETS {
            if let Some(RawSetting { source, location, text }) = self.variable(variable) {
                let storage = parse(&location, &format!("{scheme}://{text}"))?;
                // Only checked: we always use path style, which works with every S3 server.
                self.flag_is_set("BURRITO_DATASTORE_STORAGE_S3_USEPATHSTYLE")?;
                return Ok(Some((source, storage)));
            }
        }
        let mock = "BURRITO_DATASTORE_STORAGE_MOCK";
        let source = self.variable(mock).map_or(mock, |raw| raw.source);
        Ok(self.flag_is_set(mock)?.then_some((source, Storage::Memory)))
    }

    fn default_storage(&self) -> Result<(&'static str, Storage), String> {
        let absolute =
            |name| self.sources.env(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let data =
            absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
        let data = data.ok_or(
            "no storage is set, and neither HOME nor XDG_DATA_HOME is an absolute directory\nhint: set --storage or \
             PLANCHA_STORAGE, such as file:///var/lib/plancha",
        )?;
        Ok(("default", Storage::File(data.join("plancha/datastore"))))
    }

    /// Whether no other process keeps states in the storage.
    pub(super) fn single_replica(&mut self, flag: bool) -> Result<bool, String> {
        let (source, is_set) = match self.variable(SINGLE_REPLICA) {
            _ if flag => ("--single-replica", true),
            Some(RawSetting { source, location, text }) => {
                let GoBool(is_set) = parse(&location, &text)?;
                (source, is_set)
            }
            None => return Ok(false),
        };
        self.record("--single-replica", &is_set, source);
        Ok(is_set)
    }

    /// The size limits. `max_object` is the largest object that the storage accepts.
    pub(super) fn sizes(&mut self, flags: &[String], max_object: u64) -> Result<Sizes, String> {
        let mut sizes = Sizes::default();
        let mut changed = Vec::new();
        for text in flags {
            let PerKind(kind, Size(bytes)) = parse("--max-size", text)?;
            if kind == Kind::Lease {
                return Err(format!("--max-size: invalid value `{text}`: leases are no uploads"));
            }
            if bytes == 0 {
                return Err(format!(
                    "--max-size: invalid value `{text}`: expected at least {kind}=1, since 0 would refuse every upload"
                ));
            }
            if bytes > max_object {
                let max = Size(max_object);
                return Err(format!(
                    "--max-size: invalid value `{text}`: expected at most {max}, the largest object of this storage"
                ));
            }
            if changed.contains(&kind) {
                return Err(format!("--max-size: `{kind}` is set twice\nhint: set each kind once"));
            }
            sizes.set(kind, bytes);
            changed.push(kind);
        }
        // Leases are no uploads.
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Lease) {
            let source = if changed.contains(&kind) { "--max-size" } else { "default" };
            self.record("--max-size", &format_args!("{kind}={}", Size(sizes.of(kind))), source);
        }
        Ok(sizes)
    }

    pub(super) fn record(&mut self, name: &'static str, value: &dyn Display, source: &'static str) {
        self.all.push(Setting { name, value: value.to_string(), source });
    }

    /// The source of a setting, as errors name it: its flag for a default.
    pub(super) fn source(&self, name: &'static str) -> &'static str {
        let setting = self.all.iter().find(|setting| setting.name == name);
        setting
            .map_or(name, |setting| if setting.source == "default" { name } else { setting.source })
    }
}

pub(super) fn parse<T: FromStr<Err: Display>>(location: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|reason| {
        format!("{location}: invalid value `{}`: {reason}", without_credentials(text))
    })
}

/// A text without the user and password of a URL, and without its query and fragment, which may be a token.
fn without_credentials(text: &str) -> String {
    let (text, hidden) = match text.find(['?', '#']) {
        Some(end) => (&text[..=end], "***"),
        None => (text, ""),
    };
    let (scheme, rest) = match text.find("://") {
        Some(end) => text.split_at(end + "://".len()),
        None => ("", text),
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}{host}{path}{hidden}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_value_is_shown_without_what_may_be_a_secret() {
        for (text, expected) in [
            ("https://u:hush@host/b", "https://host/b"),
            ("https://a.example.com/c?sv=1&sig=hush", "https://a.example.com/c?***"),
            ("s3://b/p#hush", "s3://b/p#***"),
            ("u:hush@b", "b"),
            ("s3://b/a@c", "s3://b/a@c"),
            ("/srv/x", "/srv/x"),
        ] {
            assert_eq!(without_credentials(text), expected);
        }
    }
}
