//! The configuration of `datastore state`: which states, where they are, and what is done.

use std::path::{Path, PathBuf};

use datastore_api::client::{Settings as ClientSettings, Token};
use datastore_api::state::{DEFAULT_WORKSPACE, StateKind};
use datastore_api::{Name, StateKey, VersionId};
use secrecy::SecretString;
use url::Url;

use crate::cli::args::state::{
    Changed, Ls, PlaceFlags, Pull, Push, Restore, Show, StateSubcommand, Tools, Unlock,
};
use crate::config::StorageConfig;
use crate::config::settings::{Settings, parse};
use crate::config::sources::Sources;

/// How many versions are listed by default.
const LIMIT: usize = 50;

/// A command of `datastore state`.
#[derive(Debug)]
pub struct StateOrder {
    /// Where the states are.
    pub place: StatePlace,
    /// What is done.
    pub command: StateCommand,
}

/// Where states are.
#[derive(Debug)]
pub enum StatePlace {
    /// In this storage.
    Storage(StorageConfig),
    /// In the datastore with this URL.
    Datastore(ClientSettings),
}

/// What `datastore state` does.
#[derive(Debug)]
pub enum StateCommand {
    /// List the states of the storage.
    List {
        /// Whether deleted ones are listed as well.
        deleted: bool,
        /// Whether JSON is printed.
        json: bool,
    },
    /// List the tools of the layers.
    Tools {
        /// Whether metrics are printed.
        prometheus: bool,
        /// Whether JSON is printed.
        json: bool,
    },
    /// List the versions of a state.
    Versions {
        /// The state.
        key: StateKey,
        /// Only these, instead of versions that were the state and snapshots.
        kind: Option<StateKind>,
        /// The most versions.
        limit: usize,
        /// Whether JSON is printed.
        json: bool,
    },
    /// Show a state or one of its versions.
    Show {
        /// The state.
        key: StateKey,
        /// The version.
        version: Option<VersionId>,
        /// Whether JSON is printed.
        json: bool,
    },
    /// Print a document.
    Pull(StateKey, Option<VersionId>),
    /// Write a document.
    Push {
        /// The state.
        key: StateKey,
        /// The file; `None` for standard input.
        file: Option<PathBuf>,
        /// Whether it may have any lineage and serial.
        force: bool,
    },
    /// Make an old version the state again.
    Restore(StateKey, VersionId),
    /// Remove the lock with this ID.
    Unlock(StateKey, String),
    /// Delete a state.
    Remove(StateKey),
    /// Undo a deletion.
    Undelete(StateKey),
}

impl StateCommand {
    /// Whether it changes a state.
    pub(crate) fn is_change(&self) -> bool {
        !matches!(
            self,
            Self::List { .. }
                | Self::Tools { .. }
                | Self::Versions { .. }
                | Self::Show { .. }
                | Self::Pull(..)
        )
    }
}

impl StateOrder {
    pub(super) fn read(subcommand: StateSubcommand, sources: Sources) -> Result<Self, String> {
        let (place, command) = command(subcommand)?;
        let place = place_of(place, sources)?;
        if let (StateCommand::List { .. }, StatePlace::Datastore(_)) = (&command, &place) {
            return Err("state ls: a datastore does not list all states in this version\nhint: name one, as \
                        NAMESPACE/LAYER[/WORKSPACE], or list those of the storage with --storage"
                .to_owned());
        }
        if let (StateCommand::Tools { .. }, StatePlace::Datastore(_)) = (&command, &place) {
            return Err("state tools: a datastore does not list all layers in this version\nhint: list those of the storage \
                        with --storage, or show one with `datastore state show`"
                .to_owned());
        }
        Ok(Self { place, command })
    }
}

fn command(subcommand: StateSubcommand) -> Result<(PlaceFlags, StateCommand), String> {
    Ok(match subcommand {
        StateSubcommand::Ls(Ls { key, snapshots, rejected, limit, deleted, json, place }) => {
            let kind = match (snapshots, rejected) {
                (true, _) => Some(StateKind::Snapshot),
                (_, true) => Some(StateKind::Rejected),
                _ => None,
            };
            let limit = limit.unwrap_or(LIMIT);
            let command = match key {
                Some(key) => StateCommand::Versions { key: state_key(&key)?, kind, limit, json },
                None => StateCommand::List { deleted, json },
            };
            (place, command)
        }
        StateSubcommand::Tools(Tools { prometheus, json, place }) => {
            (place, StateCommand::Tools { prometheus, json })
        }
        StateSubcommand::Show(Show { key, version, json, place }) => {
            let version = version.map(|version| version_id(&version)).transpose()?;
            (place, StateCommand::Show { key: state_key(&key)?, version, json })
        }
        StateSubcommand::Pull(Pull { key, version, place }) => {
            let version = version.map(|version| version_id(&version)).transpose()?;
            (place, StateCommand::Pull(state_key(&key)?, version))
        }
        StateSubcommand::Push(Push { key, file, force, place }) => {
            let file = (file != Path::new("-")).then_some(file);
            (place, StateCommand::Push { key: state_key(&key)?, file, force })
        }
        StateSubcommand::Restore(Restore { key, version, place }) => {
            (place, StateCommand::Restore(state_key(&key)?, version_id(&version)?))
        }
        StateSubcommand::Unlock(Unlock { key, id, place }) => {
            if id.is_empty() {
                return Err(
                    "--id: expected the ID of the lock, as `datastore state show` prints it"
                        .to_owned(),
                );
            }
            (place, StateCommand::Unlock(state_key(&key)?, id))
        }
        StateSubcommand::Rm(Changed { key, place }) => {
            (place, StateCommand::Remove(state_key(&key)?))
        }
        StateSubcommand::Undelete(Changed { key, place }) => {
            (place, StateCommand::Undelete(state_key(&key)?))
        }
    })
}

fn state_key(text: &str) -> Result<StateKey, String> {
    let invalid = |reason: &str| {
        let shown = text.escape_debug();
        format!("invalid state `{shown}`: {reason}\nhint: `datastore state ls` lists the states")
    };
    let names = text.split('/').collect::<Vec<_>>();
    let (namespace, layer, workspace) = match names[..] {
        [namespace, layer] => (namespace, layer, DEFAULT_WORKSPACE),
        [namespace, layer, workspace] => (namespace, layer, workspace),
        _ => return Err(invalid("expected NAMESPACE/LAYER or NAMESPACE/LAYER/WORKSPACE")),
    };
    let name = |text: &str| text.parse::<Name>().map_err(|error| invalid(&error.to_string()));
    let (namespace, layer, workspace) = (name(namespace)?, name(layer)?, name(workspace)?);
    Ok(StateKey { namespace, layer, workspace })
}

fn version_id(text: &str) -> Result<VersionId, String> {
    text.parse().map_err(|_| {
        let shown = text.escape_debug();
        format!(
            "--version: invalid value `{shown}`: expected an id as `datastore state ls KEY` lists it, 16 and 16 hex digits \
             with a `-`"
        )
    })
}

fn place_of(place: PlaceFlags, sources: Sources) -> Result<StatePlace, String> {
    let PlaceFlags { storage, url, token_file, ca_file } = place;
    let Some(url) = url else {
        let mut settings = Settings::new(sources)?;
        let at_rest = settings.at_rest(None)?;
        let storage = settings.storage(storage)?;
        return Ok(StatePlace::Storage(StorageConfig { storage, at_rest }));
    };
    let DatastoreUrl(url) = parse("--url", &url)?;
    let file = |name| sources.env(name).map(PathBuf::from);
    let token =
        match (token_file.or_else(|| file("PLANCHA_TOKEN_FILE")), sources.env("PLANCHA_TOKEN")) {
            (Some(file), _) => Token::File(file),
            (None, Some(token)) => Token::Text(SecretString::from(token)),
            (None, None) => Token::None,
        };
    let ca_files = ca_file.or_else(|| file("PLANCHA_CA_FILE")).into_iter().collect();
    Ok(StatePlace::Datastore(ClientSettings { token, ca_files, ..ClientSettings::new(url) }))
}

/// The URL of a datastore.
struct DatastoreUrl(Url);

impl std::str::FromStr for DatastoreUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let url = Url::parse(text).map_err(|_| EXPECTED_URL)?;
        let is_plain = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        let is_http = matches!(url.scheme(), "http" | "https");
        if is_http && is_plain && url.has_host() { Ok(Self(url)) } else { Err(EXPECTED_URL) }
    }
}

const EXPECTED_URL: &str = "expected http://HOST[:PORT] or https://HOST[:PORT], without a user, a query and a fragment\nhint: the \
                            token belongs into --token-file or PLANCHA_TOKEN";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_two_or_three_names() {
        let shown = |text: &str| state_key(text).map(|key| key.to_string());
        assert_eq!(shown("team-a/network").unwrap(), "team-a/network/default");
        assert_eq!(shown("team-a/network/blue").unwrap(), "team-a/network/blue");
        for text in ["", "network", "a/b/c/d", "a/", "/b", "a//c", "a/..", "a/b/."] {
            let error = shown(text).unwrap_err();
            assert!(error.starts_with(&format!("invalid state `{text}`: ")), "{error}");
        }
    }

    #[test]
    fn a_url_with_secrets_or_of_another_scheme_is_refused() {
        for text in ["http://127.0.0.1:8080", "https://plancha.example.com/below"] {
            text.parse::<DatastoreUrl>().unwrap();
        }
        for text in ["", "x", "file:///srv", "http://a:b@h", "https://h/?token=x", "https://h/#x"] {
            assert!(text.parse::<DatastoreUrl>().is_err(), "{text}");
        }
    }
}
