//! Reads settings: the flag, else a variable, else Burrito's file, else a default; and notes which.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use secrecy::SecretString;

use crate::config::Setting;
use crate::config::burrito::File;
use crate::config::values::{Of, Time, Yes};
use crate::kind::Kind;
use crate::store::encryption::AtRest;
use crate::store::{Cloud, Provider, Storage, Variables};
use crate::transport::limits::{Size, Sizes};
use crate::transport::tls::TlsFiles;

/// What the program finds around it.
#[derive(Clone, Copy)]
pub(super) struct Outside<'a> {
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    pub(super) file: &'a dyn Fn(&Path) -> io::Result<String>,
}

impl Outside<'_> {
    /// A variable; an empty one is none.
    pub(super) fn env(&self, name: &str) -> Option<String> {
        (self.env)(name).filter(|text| !text.is_empty())
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<String> {
        (self.file)(path)
    }
}

/// A text that somebody gave.
pub(super) struct Given {
    /// The flag, variable or file that it came from.
    pub(super) source: &'static str,
    /// The same, and in a file where it stands.
    pub(super) place: String,
    pub(super) text: String,
}

const AZURE_ACCOUNT: &str = "BURRITO_DATASTORE_STORAGE_AZURE_STORAGEACCOUNT";
/// What Azure's own variable for it is.
const ACCOUNT_NAME: &str = "AZURE_STORAGE_ACCOUNT_NAME";
const KEY: &str = "BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY";
const ENCRYPTION: &str = "BURRITO_DATASTORE_STORAGE_ENCRYPTION_ENABLED";
const TLS: &str = "BURRITO_DATASTORE_TLS";
/// Where Burrito's chart mounts the certificate.
const BURRITOS: &str = "/etc/burrito/tls";
/// Which of Burrito's buckets counts, if it has several.
const BUCKETS: [(&str, &str); 3] = [
    ("BURRITO_DATASTORE_STORAGE_AZURE_CONTAINER", "az"),
    ("BURRITO_DATASTORE_STORAGE_GCS_BUCKET", "gs"),
    ("BURRITO_DATASTORE_STORAGE_S3_BUCKET", "s3"),
];

/// Reads settings, and notes where each came from.
pub(super) struct Settings<'a> {
    pub(super) outside: Outside<'a>,
    burrito: File,
    pub(super) all: Vec<Setting>,
    /// What was set and has no effect, or not the one that was meant.
    pub(super) warnings: Vec<String>,
}

impl<'a> Settings<'a> {
    pub(super) fn new(outside: Outside<'a>) -> Result<Self, String> {
        let burrito = File::find(outside)?;
        Ok(Self { outside, burrito, all: Vec::new(), warnings: Vec::new() })
    }

    /// What this variable says, else if it is Burrito's what its file says.
    pub(super) fn variable(&self, name: &'static str) -> Option<Given> {
        if let Some(text) = self.outside.env(name) {
            return Some(Given { source: name, place: name.to_owned(), text });
        }
        let text = self.burrito.text(name)?.to_owned();
        let key = name.trim_start_matches("BURRITO_").to_lowercase().replace('_', ".");
        let source = self.burrito.place;
        Some(Given { source, place: format!("{source}: {key}"), text })
    }

    /// The flag, else the first of these variables.
    pub(super) fn given(
        &self,
        flag: Option<String>,
        name: &'static str,
        variables: &[&'static str],
    ) -> Option<Given> {
        let flag = flag.map(|text| Given { source: name, place: name.to_owned(), text });
        flag.or_else(|| variables.iter().find_map(|name| self.variable(name)))
    }

    /// The flag, else the first of these variables, else the default.
    pub(super) fn take<T: FromStr<Err = String> + Display>(
        &mut self,
        flag: Option<String>,
        name: &'static str,
        variables: &[&'static str],
        default: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let (source, value) = match self.given(flag, name, variables) {
            Some(Given { source, place, text }) => (source, parse(&place, &text)?),
            None => ("default", default()?),
        };
        self.note(name, &value, source);
        Ok(value)
    }

    /// Whether this variable of Burrito's says yes.
    pub(super) fn says_yes(&self, variable: &'static str) -> Result<bool, String> {
        let Some(Given { place, text, .. }) = self.variable(variable) else { return Ok(false) };
        parse(&place, &text).map(|Yes(yes)| yes)
    }

    pub(super) fn time(
        &mut self,
        flag: Option<String>,
        name: &'static str,
        default: Duration,
    ) -> Result<Duration, String> {
        self.take(flag, name, &[], || Ok(Time(default))).map(|Time(time)| time)
    }

    pub(super) fn storage(&mut self, flag: Option<String>) -> Result<Storage, String> {
        let given = self.given(flag, "--storage", &["PLANCHA_STORAGE"]);
        let (source, storage) = match given {
            Some(Given { source, place, text }) => (source, parse(&place, &text)?),
            None => self.burritos_storage()?.map_or_else(|| self.default_storage(), Ok)?,
        };
        self.note("--storage", &storage, source);
        let Storage::Cloud(cloud) = storage else { return Ok(storage) };
        // A cloud is reached as its own variables say; most of them are secret.
        let account = self.variable(AZURE_ACCOUNT).filter(|_| cloud.provider == Provider::Azure);
        let variables = Variables::read(cloud.provider, &|name| match (name, &account) {
            (ACCOUNT_NAME, Some(account)) => Some(account.text.clone()),
            _ => self.outside.env(name),
        });
        for name in variables.names() {
            let account = account.as_ref().filter(|_| name == ACCOUNT_NAME);
            self.note(name, &"set", account.map_or(name, |account| account.source));
        }
        Ok(Storage::Cloud(Cloud { variables, ..cloud }))
    }

    /// The key comes by its variable only, so that it is in no file that others read.
    pub(super) fn at_rest(&mut self, flag: Option<String>) -> Result<AtRest, String> {
        let key = self.outside.env(KEY).map(SecretString::from);
        if key.is_some() {
            self.note("encryption key", &"set", KEY);
        }
        let ordered = self.given(flag, "--at-rest", &["PLANCHA_AT_REST"]);
        if let Some(Given { place, text, .. }) = &ordered
            && text != "burrito"
        {
            return Err(format!(
                "{place}: `{text}` is not `burrito`: leave it out for what lies there as it comes"
            ));
        }
        let encrypts = ordered.is_some() || self.says_yes(ENCRYPTION)?;
        let given = ordered.or_else(|| self.variable(ENCRYPTION));
        if let Some(Given { source, place, text }) = given {
            self.note("encryption", &encrypts, source);
            if encrypts && key.is_none() {
                return Err(format!(
                    "{place} is {text}, and {KEY} is not set: set it to the key, from a secret; nothing \
                     is kept in plain in the meantime"
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
        let given = self.variable(TLS).map(|given| given.source);
        let (source, files) = match (cert, key) {
            (Some(cert), Some(key)) => ("--tls-cert", TlsFiles { cert, key }),
            (None, None) if !self.says_yes(TLS)? => return Ok(None),
            (None, None) => {
                let [cert, key] = ["tls.crt", "tls.key"].map(|name| Path::new(BURRITOS).join(name));
                (given.unwrap_or(TLS), TlsFiles { cert, key })
            }
            (Some(_), None) => return Err("--tls-cert needs --tls-key beside it".to_owned()),
            (None, Some(_)) => return Err("--tls-key needs --tls-cert beside it".to_owned()),
        };
        self.note("--tls-cert", &files, source);
        Ok(Some(files))
    }

    fn burritos_storage(&self) -> Result<Option<(&'static str, Storage)>, String> {
        for (variable, scheme) in BUCKETS {
            if let Some(Given { source, place, text }) = self.variable(variable) {
                let storage = parse(&place, &format!("{scheme}://{text}"))?;
                // Said so that a mistake is told; we always use the path, which works everywhere.
                self.says_yes("BURRITO_DATASTORE_STORAGE_S3_USEPATHSTYLE")?;
                return Ok(Some((source, storage)));
            }
        }
        let mock = "BURRITO_DATASTORE_STORAGE_MOCK";
        let source = self.variable(mock).map_or(mock, |given| given.source);
        Ok(self.says_yes(mock)?.then_some((source, Storage::Memory)))
    }

    fn default_storage(&self) -> Result<(&'static str, Storage), String> {
        let absolute =
            |name| self.outside.env(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let data =
            absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
        let data = data.ok_or(
            "neither HOME nor XDG_DATA_HOME says where to store: name a directory with --storage or \
             PLANCHA_STORAGE, like file:///var/lib/plancha",
        )?;
        Ok(("default", Storage::File(data.join("plancha/datastore"))))
    }

    /// The size limits; `max_object` is what the storage can take at most.
    pub(super) fn sizes(&mut self, given: &[String], max_object: u64) -> Result<Sizes, String> {
        let mut sizes = Sizes::default();
        let mut changed = Vec::new();
        for text in given {
            let Of(kind, Size(bytes)) = parse("--max-size", text)?;
            if bytes == 0 {
                return Err(format!(
                    "--max-size {text}: every upload of this kind would be refused; the least is {kind}=1"
                ));
            }
            if bytes > max_object {
                let max = Size(max_object);
                return Err(format!(
                    "--max-size {text}: this storage takes at most {max} an object"
                ));
            }
            sizes.set(kind, bytes);
            changed.push(kind);
        }
        for kind in Kind::ALL {
            let source = if changed.contains(&kind) { "--max-size" } else { "default" };
            self.note("--max-size", &format_args!("{kind}={}", Size(sizes.of(kind))), source);
        }
        Ok(sizes)
    }

    pub(super) fn note(&mut self, name: &'static str, value: &dyn Display, source: &'static str) {
        self.all.push(Setting { name, value: value.to_string(), source });
    }

    /// Where a setting came from; to be named in a refusal.
    pub(super) fn source(&self, name: &'static str) -> &'static str {
        let setting = self.all.iter().find(|setting| setting.name == name);
        setting
            .map_or(name, |setting| if setting.source == "default" { name } else { setting.source })
    }
}

pub(super) fn parse<T: FromStr<Err = String>>(place: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|reason| format!("{place}: `{}` {reason}", without_user(text)))
}

/// A text without the user and password of a URL.
fn without_user(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}
