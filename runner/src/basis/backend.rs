//! The backend of a configuration: its type, and the settings that identify the state, from init's record in the data
//! directory. Credentials are never recorded.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use datastore_api::Sha256;
use datastore_api::state::StateKey;
use fs_err as fs;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use crate::process::url_secrets;

/// A backend's type and the settings that identify its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Backend {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// By the names of the table [`FIELDS`]; a value that is not known is left out.
    #[serde(flatten)]
    identity: BTreeMap<String, Value>,
}

/// The values of the variables in [`variable_names`]. A connection string may contain a password.
pub(crate) type Variables = BTreeMap<&'static str, SecretString>;

/// One part of a backend's identity.
struct Field {
    name: &'static str,
    /// Its settings in the configuration, of which the first that is set counts. A dot separates a block from its
    /// setting.
    settings: &'static [&'static str],
    /// The variables that the backend reads if no setting is set.
    variables: &'static [&'static str],
    /// The default of the backend. None: the value is then unknown and not compared.
    default: Option<&'static str>,
}

const fn field(
    name: &'static str,
    settings: &'static [&'static str],
    variables: &'static [&'static str],
    default: Option<&'static str>,
) -> Field {
    Field { name, settings, variables, default }
}

/// The identity of each known type. Values of `http`, `pg` and `local` are stored without their secret parts.
const FIELDS: &[(&str, &[Field])] = &[
    (
        "s3",
        &[
            field("bucket", &["bucket"], &[], None),
            field("key", &["key"], &[], None),
            field("workspace_key_prefix", &["workspace_key_prefix"], &[], Some("env:")),
            field("region", &["region"], &["AWS_REGION", "AWS_DEFAULT_REGION"], None),
            field(
                "endpoint",
                &["endpoints.s3", "endpoint"],
                &["AWS_ENDPOINT_URL_S3", "AWS_S3_ENDPOINT", "AWS_ENDPOINT_URL"],
                Some(""),
            ),
        ],
    ),
    (
        "gcs",
        &[
            field("bucket", &["bucket"], &["GOOGLE_BACKEND_BUCKET"], None),
            field("prefix", &["prefix"], &[], Some("")),
        ],
    ),
    (
        "azurerm",
        &[
            field("account", &["storage_account_name"], &[], None),
            field("container", &["container_name"], &[], None),
            field("key", &["key"], &[], None),
        ],
    ),
    (
        "http",
        &[
            field("address", &["address"], &["TF_HTTP_ADDRESS"], None),
            field("query_sha256", &["address"], &["TF_HTTP_ADDRESS"], None),
        ],
    ),
    (
        "kubernetes",
        &[
            field("namespace", &["namespace"], &["KUBE_NAMESPACE"], Some("default")),
            field("secret_suffix", &["secret_suffix"], &[], None),
        ],
    ),
    (
        "pg",
        &[
            field("host", &["conn_str"], &["PG_CONN_STR"], None),
            field("database", &["conn_str"], &["PG_CONN_STR"], None),
            field("schema", &["schema_name"], &["PG_SCHEMA_NAME"], Some("terraform_remote_state")),
        ],
    ),
    ("remote", REMOTE),
    ("cloud", REMOTE),
    // A state in the datastore of the run, whatever the address is at which the run reaches it.
    (
        DATASTORE,
        &[
            field("namespace", &["namespace"], &[], None),
            field("layer", &["layer"], &[], None),
            field("workspace", &["workspace"], &[], None),
        ],
    ),
    ("local", &[field("path", &["path"], &[], Some("terraform.tfstate"))]),
];

/// The type of a state in the datastore.
pub(crate) const DATASTORE: &str = "datastore";

const REMOTE: &[Field] = &[
    field("host", &["hostname"], &["TF_CLOUD_HOSTNAME"], Some("app.terraform.io")),
    field("organization", &["organization"], &["TF_CLOUD_ORGANIZATION"], None),
    field("workspace", &["workspaces.name"], &[], None),
];

/// The variables that replace settings of a backend.
pub(crate) fn variable_names() -> impl Iterator<Item = &'static str> {
    let fields = FIELDS.iter().flat_map(|(_, fields)| fields.iter());
    fields.flat_map(|field| field.variables.iter().copied())
}

impl Backend {
    /// The backend of the module in `dir`, after init. `data_dirs` are the data directories that were
    /// found. If there is none, or they differ, as in a terragrunt cache of several sources, the backend is unknown.
    pub(crate) fn of_module(
        dir: &Path,
        data_dirs: &[PathBuf],
        workspace: &str,
        variables: &Variables,
    ) -> Option<Self> {
        let mut found = data_dirs.iter().map(|data_dir| {
            let text = fs::read(data_dir.join("terraform.tfstate")).ok();
            Self::from_record(text.as_deref(), dir, workspace, variables)
        });
        let first = found.next()??;
        found.all(|other| other.as_ref() == Some(&first)).then_some(first)
    }

    /// The backend that init recorded. Without a record it is `local`. `None` if the record cannot be read.
    fn from_record(
        text: Option<&[u8]>,
        dir: &Path,
        workspace: &str,
        variables: &Variables,
    ) -> Option<Self> {
        let record = match text {
            Some(text) => serde_json::from_slice(text).ok()?,
            None => Value::Null,
        };
        if let Some(kind) = record["state_store"]["type"].as_str() {
            return Some(Self { kind: format!("state_store {kind}"), identity: BTreeMap::new() });
        }
        let kind = record["backend"]["type"].as_str().unwrap_or("local").to_owned();
        Some(Self::new(kind, &record["backend"]["config"], dir, workspace, variables))
    }

    /// A backend with these settings, of the module in `dir`.
    pub(crate) fn new(
        kind: String,
        config: &Value,
        dir: &Path,
        workspace: &str,
        variables: &Variables,
    ) -> Self {
        let fields = FIELDS.iter().find(|(known, _)| *known == kind).map_or(&[][..], |(_, f)| f);
        let mut identity = BTreeMap::new();
        for field in fields {
            let text = match setting(config, field.settings) {
                Some(text) => Some(text),
                None => field
                    .variables
                    .iter()
                    .find_map(|name| variables.get(name))
                    .map(|value| value.expose_secret().to_owned()),
            };
            let text = match (&*kind, field.name) {
                ("http", "query_sha256") => text.and_then(|text| query_digest(&text)),
                // The slash at its end may be that of another state.
                ("http", _) => text.and_then(|text| address(&text)),
                ("s3", "endpoint") => text
                    .and_then(|text| address(&text))
                    .map(|url| url.trim_end_matches('/').to_owned()),
                ("pg", "host" | "database") => text.and_then(|text| connection(&text, field.name)),
                ("remote" | "cloud", "workspace") => Some(text.unwrap_or_else(|| {
                    let prefix = setting(config, &["workspaces.prefix"]).unwrap_or_default();
                    format!("{prefix}{workspace}")
                })),
                ("local", "path") => text.map(|text| local_path(&text, dir)),
                _ => text,
            };
            if let Some(text) = text.or_else(|| field.default.map(str::to_owned)) {
                identity.insert(field.name.to_owned(), Value::String(text));
            }
        }
        Self { kind, identity }
    }

    /// The address of a backend `http`, without its query.
    pub(crate) fn address(&self) -> Option<&str> {
        (self.kind == "http").then(|| self.identity.get("address")?.as_str()).flatten()
    }

    /// Whether the configuration itself has this setting, in one of the data directories.
    pub(crate) fn sets(data_dirs: &[PathBuf], name: &str) -> bool {
        data_dirs.iter().any(|data_dir| {
            let record = fs::read(data_dir.join("terraform.tfstate")).ok();
            let record = record.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
            record.is_some_and(|record| setting(&record["backend"]["config"], &[name]).is_some())
        })
    }

    /// A `local` backend whose state is in this file.
    pub(crate) fn of_file(file: &Path) -> Self {
        let path = Value::String(file.display().to_string());
        Self { kind: "local".to_owned(), identity: BTreeMap::from([("path".to_owned(), path)]) }
    }

    /// The value of one of the settings that identify the state, if it is known.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.identity.get(name)?.as_str()
    }

    /// The backend of a state in the datastore.
    pub(crate) fn in_datastore(key: &StateKey) -> Self {
        let StateKey { namespace, layer, workspace } = key;
        let parts = [("namespace", namespace), ("layer", layer), ("workspace", workspace)];
        let identity = parts.map(|(name, value)| (name.to_owned(), value.as_ref().into()));
        Self { kind: DATASTORE.to_owned(), identity: identity.into() }
    }

    /// The state file of a `local` backend, relative to the module or absolute.
    pub(crate) fn state_file(&self) -> Option<&Path> {
        let path = (self.kind == "local").then(|| self.identity.get("path"))?;
        let path = path.and_then(|path| path.as_str()).filter(|path| !path.is_empty());
        Some(Path::new(path.unwrap_or("terraform.tfstate")))
    }

    /// Whether each directory of code has a state of its own: a `local` one at a relative path.
    pub(crate) fn is_beside_code(&self) -> bool {
        self.state_file().is_some_and(Path::is_relative)
    }

    /// The variables that this type of backend reads its identity from.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &'static str> {
        let fields = FIELDS.iter().filter(|(known, _)| *known == self.kind);
        fields.flat_map(|(_, fields)| *fields).flat_map(|field| field.variables.iter().copied())
    }

    /// Identifies the state of this workspace on one machine, whatever code it is of. `None` if the identity is not known
    /// completely, or depends on where the run is: a relative path, or a cluster.
    pub(crate) fn state_key(&self, workspace: &str) -> Option<Sha256> {
        let (_, fields) = FIELDS.iter().find(|(known, _)| *known == self.kind)?;
        // The name of a bucket is known without its region.
        let is_known =
            |field: &Field| field.name == "region" || self.identity.contains_key(field.name);
        let is_elsewhere = ["local", "kubernetes"].contains(&&*self.kind);
        if is_elsewhere || !fields.iter().all(is_known) {
            return None;
        }
        let mut identity = self.identity.clone();
        identity.remove("region");
        let key = serde_json::to_vec(&(&self.kind, identity, workspace)).ok()?;
        Some(Sha256::of(&key))
    }

    /// Whether type and identity are the same, as far as both sides know them. Absolute
    /// paths of local states are not compared, because they differ between machines.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        let is_absolute = |value: &Value| {
            self.kind == "local" && value.as_str().is_some_and(|p| p.starts_with('/'))
        };
        // Records of earlier releases have no digest, and no slash at the end of the address.
        let ignores_slash = self.is_http_without_digest() || other.is_http_without_digest();
        let trimmed = |value: &Value| Some(value.as_str()?.trim_end_matches('/').to_owned());
        self.kind == other.kind
            && self.identity.iter().all(|(name, value)| {
                other.identity.get(name).is_none_or(|theirs| {
                    theirs == value
                        || is_absolute(value)
                        || is_absolute(theirs)
                        || ignores_slash && trimmed(theirs) == trimmed(value)
                })
            })
    }

    /// Whether these are two local states at absolute paths of this machine. If the directory of a plan's state is not here,
    /// the plan may be of another machine, on which the same state has another path.
    pub(crate) fn is_other_file(&self, ours: &Self) -> bool {
        let file = |of: &Self| {
            let file = of.state_file().filter(|file| file.is_absolute())?;
            Some(fs::canonicalize(file.parent()?).ok()?.join(file.file_name()?))
        };
        let (theirs, here) = (file(self), ours.state_file().filter(|here| here.is_absolute()));
        theirs.is_some() && here.is_some() && theirs != file(ours)
    }

    fn is_http_without_digest(&self) -> bool {
        self.kind == "http" && !self.identity.contains_key("query_sha256")
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        for (name, value) in &self.identity {
            let name = match &**name {
                "query_sha256" => "SHA-256 of the query of the address",
                name => name,
            };
            write!(f, ", {name} {value}")?;
        }
        Ok(())
    }
}

/// The first of these settings that is set.
fn setting(config: &Value, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| {
        let value = name.split('.').try_fold(config, |value, part| match value {
            // A nested block may be recorded as a list of one.
            Value::Array(items) => items.first()?.get(part),
            value => value.get(part),
        })?;
        value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    })
}

/// A URL without what may be a credential in it. `None` if the text is no URL with a host.
fn address(text: &str) -> Option<String> {
    let url = Url::parse(text).ok().filter(Url::has_host)?;
    let url = url_secrets::without_secrets(&url);
    Some(
        if url.path() == "/" { url.as_str().trim_end_matches('/') } else { url.as_str() }
            .to_owned(),
    )
}

/// Parameters, in lower case, that differ from one signed URL to the next.
const OF_SIGNED_URLS: &[&str] = &[
    "awsaccesskeyid",
    "expires",
    "googleaccessid",
    "key-pair-id",
    "ossaccesskeyid",
    "policy",
    "saoid",
    "scid",
    "sdd",
    "se",
    "si",
    "sip",
    "ske",
    "skoid",
    "sks",
    "skt",
    "sktid",
    "skv",
    "sp",
    "spr",
    "sr",
    "srt",
    "ss",
    "st",
    "suoid",
    "sv",
];

/// The digest of a URL's query, without the parameters that differ although the state is the same: known credentials,
/// and in a signed URL the others of its signature. Empty if there are no others. A digest, because the others may be
/// secret, too. `None` if the text is not a URL.
fn query_digest(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    let is_signed = url.query_pairs().any(|(name, _)| url_secrets::is_signature(&name));
    let varies = |name: &str| {
        let name = name.to_ascii_lowercase();
        let prefixes = ["x-amz-", "x-goog-", "x-ms-", "x-oss-"];
        let is_of_signature = OF_SIGNED_URLS.contains(&&*name)
            || prefixes.iter().any(|prefix| name.starts_with(prefix));
        // `auth` may as well name an account.
        url_secrets::is_secret(&name) && name != "auth" || is_signed && is_of_signature
    };
    let mut pairs: Vec<_> = url.query_pairs().filter(|(name, _)| !varies(name)).collect();
    if pairs.is_empty() {
        return Some(String::new());
    }
    pairs.sort();
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    Some(Sha256::of(query.extend_pairs(pairs).finish().as_bytes()).to_string())
}

/// Host (with its port) or database of a connection string, which is a URL or `name=value` pairs.
fn connection(text: &str, name: &str) -> Option<String> {
    if let Ok(url) = Url::parse(text)
        && matches!(url.scheme(), "postgres" | "postgresql")
    {
        return match name {
            "host" => {
                let port = url.port().filter(|port| *port != 5432);
                let port = port.map(|port| format!(":{port}")).unwrap_or_default();
                Some(format!("{}{port}", url.host_str()?))
            }
            _ => Some(url.path().trim_matches('/').to_owned()).filter(|name| !name.is_empty()),
        };
    }
    // A quoted value, such as a password, may contain text that looks like a pair.
    if text.contains('\'') || text.contains("://") {
        return None;
    }
    let value = |key: &str| {
        let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
        pairs.filter(|(name, _)| *name == key).map(|(_, value)| value.to_owned()).next_back()
    };
    match name {
        "host" => {
            let port = value("port").filter(|port| port != "5432");
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            Some(format!("{}{port}", value("host")?))
        }
        _ => value("dbname"),
    }
}

/// A path relative to the module, if it is inside the module.
fn local_path(text: &str, dir: &Path) -> String {
    let path = Path::new(text);
    let inside = path.strip_prefix(dir).unwrap_or(path);
    let mut clean = PathBuf::new();
    for component in inside.components().filter(|component| *component != Component::CurDir) {
        clean.push(component);
    }
    clean.display().to_string()
}

/// The maximal depth of a module below terragrunt's cache.
const CACHE_DEPTH: usize = 12;
/// A larger cache is not searched.
const MAX_DIRECTORIES: usize = 10_000;

/// The data directories of the module in `dir`: one, except in a cache of terragrunt, which has one for each source.
/// Empty if terragrunt keeps them elsewhere.
pub(crate) fn data_dirs(dir: &Path, configured: Option<&Path>, terragrunt: bool) -> Vec<PathBuf> {
    let name = configured.unwrap_or(Path::new(".terraform"));
    let own = dir.join(name);
    let cache = dir.join(".terragrunt-cache");
    if !terragrunt || name.is_absolute() {
        return vec![own];
    }
    let mut found = Vec::new();
    let mut open = vec![(cache, 0)];
    let mut seen = 0;
    while let Some((parent, depth)) = open.pop() {
        seen += 1;
        if seen > MAX_DIRECTORIES {
            return Vec::new();
        }
        let data_dir = parent.join(name);
        if data_dir.is_dir() {
            found.push(data_dir);
            continue;
        }
        if depth == CACHE_DEPTH {
            continue;
        }
        let entries = fs::read_dir(&parent).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        open.extend(directories.map(|entry| (entry.path(), depth + 1)));
    }
    if found.is_empty() && own.is_dir() { vec![own] } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(record: &str, variables: &[(&'static str, &str)]) -> Backend {
        let variables = variables.iter().map(|(name, value)| (*name, (*value).into()));
        let variables = variables.collect::<Variables>();
        let dir = Path::new("/work/module");
        Backend::from_record(Some(record.as_bytes()), dir, "blue", &variables).unwrap()
    }

    fn of(kind: &str, config: &str) -> String {
        let record = format!(r#"{{"backend": {{"type": "{kind}", "config": {config}}}}}"#);
        backend(&record, &[]).to_string()
    }

    #[test]
    fn state_is_identified_only_by_a_backend_that_is_known_completely() {
        let key = |kind: &str, config: &str, workspace: &str| {
            let record = format!(r#"{{"backend": {{"type": "{kind}", "config": {config}}}}}"#);
            backend(&record, &[]).state_key(workspace)
        };
        let s3 = key("s3", r#"{"bucket": "b", "key": "k"}"#, "default");
        assert!(s3.is_some());
        let with_region = r#"{"bucket": "b", "key": "k", "region": "eu-west-1"}"#;
        assert_eq!(key("s3", with_region, "default"), s3);
        assert_ne!(key("s3", with_region, "prod"), s3);
        assert_ne!(key("s3", r#"{"bucket": "b", "key": "l"}"#, "default"), s3);
        for (kind, config) in [
            ("s3", r#"{"key": "k"}"#),
            ("local", "{}"),
            ("kubernetes", r#"{"secret_suffix": "s"}"#),
            ("swift", r#"{"container": "c"}"#),
        ] {
            assert_eq!(key(kind, config, "default"), None, "{kind}");
        }
    }

    /// Type, settings, and the identity that is recorded. `SK` is a secret.
    const IDENTITIES: &[(&str, &str, &str)] = &[
        (
            "s3",
            r#"{"bucket": "b", "key": "k", "region": "eu-west-1", "access_key": "AK", "secret_key": "SK"}"#,
            r#"s3, bucket "b", endpoint "", key "k", region "eu-west-1", workspace_key_prefix "env:""#,
        ),
        (
            "s3",
            r#"{"bucket": "b", "key": "k", "workspace_key_prefix": "w", "endpoints": {"s3": "http://u:p@127.0.0.1:9/"}}"#,
            r#"s3, bucket "b", endpoint "http://127.0.0.1:9", key "k", workspace_key_prefix "w""#,
        ),
        ("gcs", r#"{"bucket": "b", "credentials": "SK"}"#, r#"gcs, bucket "b", prefix """#),
        (
            "azurerm",
            r#"{"storage_account_name": "a", "container_name": "c", "key": "k", "access_key": "SK"}"#,
            r#"azurerm, account "a", container "c", key "k""#,
        ),
        (
            "http",
            r#"{"address": "https://u:SK@Host/state/x?token=SK#SK", "username": "u", "password": "SK"}"#,
            r#"http, address "https://host/state/x", SHA-256 of the query of the address """#,
        ),
        (
            "kubernetes",
            r#"{"secret_suffix": "x", "namespace": null, "token": "SK"}"#,
            r#"kubernetes, namespace "default", secret_suffix "x""#,
        ),
        (
            "pg",
            r#"{"conn_str": "postgres://u:SK@h:5433/db?sslmode=disable"}"#,
            r#"pg, database "db", host "h:5433", schema "terraform_remote_state""#,
        ),
        (
            "pg",
            r#"{"conn_str": "host=h port=5432 dbname=db user=u password=SK", "schema_name": "s"}"#,
            r#"pg, database "db", host "h", schema "s""#,
        ),
        (
            "pg",
            r#"{"conn_str": "password='x host=SK dbname=SK' host=h"}"#,
            r#"pg, schema "terraform_remote_state""#,
        ),
        (
            "remote",
            r#"{"organization": "o", "token": "SK", "workspaces": [{"name": null, "prefix": "net-"}]}"#,
            r#"remote, host "app.terraform.io", organization "o", workspace "net-blue""#,
        ),
        (
            "cloud",
            r#"{"hostname": "tfe", "organization": "o", "workspaces": {"name": "w", "tags": null}}"#,
            r#"cloud, host "tfe", organization "o", workspace "w""#,
        ),
        (
            "cloud",
            r#"{"organization": "o"}"#,
            r#"cloud, host "app.terraform.io", organization "o", workspace "blue""#,
        ),
        ("local", r#"{"path": null}"#, r#"local, path "terraform.tfstate""#),
        ("local", r#"{"path": "./s/x.tfstate"}"#, r#"local, path "s/x.tfstate""#),
        ("local", r#"{"path": "/work/module/s"}"#, r#"local, path "s""#),
        ("local", r#"{"path": "/srv/s"}"#, r#"local, path "/srv/s""#),
        ("consul", r#"{"path": "p", "access_token": "SK"}"#, "consul"),
    ];

    #[test]
    fn each_type_has_its_identity() {
        for &(kind, config, expected) in IDENTITIES {
            let shown = of(kind, config);
            assert_eq!(shown, expected);
            assert!(!shown.contains("SK"), "{shown}");
        }
    }

    #[test]
    fn variables_stand_in_for_settings() {
        let http = r#"{"backend": {"type": "http", "config": {"address": null}}}"#;
        let variables = [("TF_HTTP_ADDRESS", "https://u:p@h/env?token=1")];
        assert_eq!(
            backend(http, &variables).to_string(),
            r#"http, address "https://h/env", SHA-256 of the query of the address """#
        );
        assert_eq!(backend(http, &[]).to_string(), "http");
        let pg = r#"{"backend": {"type": "pg", "config": {}}}"#;
        let variables = [("PG_CONN_STR", "postgres://u:p@h/db"), ("PG_SCHEMA_NAME", "s")];
        assert_eq!(
            backend(pg, &variables).to_string(),
            r#"pg, database "db", host "h", schema "s""#
        );
        assert!(variable_names().any(|name| name == "KUBE_NAMESPACE"));
    }

    #[test]
    fn backends_agree_as_far_as_both_sides_know() {
        let s3 = |config: &str| {
            backend(&format!(r#"{{"backend": {{"type": "s3", "config": {config}}}}}"#), &[])
        };
        let here = s3(r#"{"bucket": "b", "key": "dev", "region": "r"}"#);
        assert!(here.agrees_with(&s3(r#"{"bucket": "b", "key": "dev"}"#)), "no region is known");
        assert!(!here.agrees_with(&s3(r#"{"bucket": "b", "key": "prod", "region": "r"}"#)));
        assert!(!here.agrees_with(&s3(r#"{"bucket": "b", "key": "dev", "endpoint": "http://x"}"#)));
        let local = |path: &str| {
            let record = r#"{"backend": {"type": "local", "config": {"path": "P"}}}"#;
            backend(&record.replace('P', path), &[])
        };
        assert!(!here.agrees_with(&local("a")));
        assert!(!local("a").agrees_with(&local("b")));
        assert!(
            local("/home/me/a").agrees_with(&local("/ci/a")),
            "absolute paths are not compared"
        );
        let dir = tempfile::tempdir().unwrap();
        let here = |name: &str| local(dir.path().join(name).to_str().unwrap());
        assert!(here("a").is_other_file(&here("b")), "those of this machine are");
        assert!(here("a").is_other_file(&here("missing/a")));
        assert!(
            !here("a").is_other_file(&here("a")) && !here("missing/a").is_other_file(&here("a"))
        );
        assert!(!here("a").is_other_file(&local("a")) && !local("a").is_other_file(&here("a")));
    }

    #[test]
    fn states_that_an_http_backend_distinguishes_by_the_query_differ() {
        let http = |query: &str| {
            let config = format!(r#"{{"address": "https://h/state{query}"}}"#);
            backend(&format!(r#"{{"backend": {{"type": "http", "config": {config}}}}}"#), &[])
        };
        let here = http("?state=dev&ref=main&token=SK");
        assert!(!here.to_string().contains("dev") && !here.to_string().contains("SK"), "{here}");
        assert!(here.agrees_with(&http("?ref=main&state=dev&token=other")), "a rotated token");
        assert!(!here.agrees_with(&http("?state=prod&ref=main")));
        assert!(!here.agrees_with(&http("")));
        for signature in
            ["X-Amz-Date=2&X-Amz-Signature=SK", "sig=SK&se=2026", "Signature=SK&Expires=1"]
        {
            let signed = |state: &str| http(&format!("?state={state}&ref=main&{signature}"));
            assert!(here.agrees_with(&signed("dev")), "{signature}");
            assert!(!here.agrees_with(&signed("prod")), "{signature}");
        }
        assert!(!http("?auth=alpha").agrees_with(&http("?auth=beta")));
        assert!(!http("").agrees_with(&http("/")), "another path");
        let earlier = r#"{"type":"http","address":"https://h/state"}"#;
        let earlier = serde_json::from_str::<Backend>(earlier).unwrap();
        assert!(here.agrees_with(&earlier), "an earlier record");
        // Records without a digest have no slash at the end of the address.
        let with_slash = http("/?state=dev");
        assert!(with_slash.agrees_with(&earlier) && earlier.agrees_with(&with_slash));
        assert!(!http("/other").agrees_with(&earlier));
    }

    #[test]
    fn it_reads_back_as_it_was_stored() {
        let stored = backend(r#"{"backend": {"type": "gcs", "config": {"bucket": "b"}}}"#, &[]);
        let json = serde_json::to_string(&stored).unwrap();
        assert_eq!(json, r#"{"type":"gcs","bucket":"b","prefix":""}"#);
        assert_eq!(serde_json::from_str::<Backend>(&json).unwrap(), stored);
        // A later version may record more, and in other types.
        let later = r#"{"type":"gcs","bucket":"b","prefix":"","soft_delete":true}"#;
        assert!(stored.agrees_with(&serde_json::from_str(later).unwrap()));
    }

    #[test]
    fn a_module_without_a_record_has_a_local_state() {
        let dir = tempfile::tempdir().unwrap();
        let found = |terragrunt| {
            let dirs = data_dirs(dir.path(), None, terragrunt);
            Backend::of_module(dir.path(), &dirs, "default", &Variables::new())
        };
        assert_eq!(found(false).unwrap().to_string(), r#"local, path "terraform.tfstate""#);
        assert_eq!(found(true), None, "terragrunt may keep it elsewhere");
        fs::create_dir(dir.path().join(".terraform")).unwrap();
        fs::write(dir.path().join(".terraform/terraform.tfstate"), "no json").unwrap();
        assert_eq!(found(false), None, "unreadable is unknown");
    }

    #[test]
    fn below_a_terragrunt_cache_the_data_directories_must_agree() {
        let dir = tempfile::tempdir().unwrap();
        let write = |source: &str, bucket: &str| {
            let data_dir = dir.path().join(".terragrunt-cache").join(source).join(".terraform");
            fs::create_dir_all(&data_dir).unwrap();
            let record =
                format!(r#"{{"backend": {{"type": "gcs", "config": {{"bucket": "{bucket}"}}}}}}"#);
            fs::write(data_dir.join("terraform.tfstate"), record).unwrap();
        };
        let found = || {
            let dirs = data_dirs(dir.path(), None, true);
            Backend::of_module(dir.path(), &dirs, "default", &Variables::new())
        };
        write("hash/source/modules/vpc", "b");
        assert_eq!(found().unwrap().to_string(), r#"gcs, bucket "b", prefix """#);
        write("hash/other", "b");
        assert!(found().is_some());
        write("hash/third", "another");
        assert_eq!(found(), None);
    }
}
