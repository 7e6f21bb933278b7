//! What the credentials of a run depend on, and who uses them.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::tool::preflight::configuration::{Configuration, Settings};
use crate::tool::preflight::variables::{Credentials, text};

/// What the credentials of a run depend on.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    pub(crate) configuration: &'a Configuration,
    /// The variables that providers and backends read.
    pub(crate) variables: &'a Credentials,
    pub(crate) home: Option<&'a Path>,
    /// Where the tool and its providers run.
    pub(crate) dir: &'a Path,
    pub(crate) now: Timestamp,
    /// Whether arguments may leave out some of the providers (`-target`).
    pub(crate) is_targeted: bool,
    /// Whether arguments may replace settings of the backend (`-backend-config`).
    pub(crate) has_backend_arguments: bool,
}

/// A provider or a backend that the configuration uses.
#[derive(Clone, Debug)]
pub(super) struct User<'a> {
    /// `the provider aws`, `the backend s3`
    pub(super) name: String,
    /// Its blocks. A provider may have several, or none.
    pub(super) blocks: Vec<&'a Settings>,
    /// Whether it is the backend.
    pub(super) is_backend: bool,
    /// Whether it is started for certain.
    pub(super) is_started: bool,
}

impl User<'_> {
    /// Whether one of its blocks has one of these settings.
    pub(super) fn has_any(&self, names: &[&str]) -> bool {
        self.blocks.iter().any(|block| names.iter().any(|name| block.has(name)))
    }

    /// Whether a setting is there whose value is not known before the tool runs.
    pub(super) fn is_computed(&self, name: &str) -> bool {
        self.blocks.iter().any(|block| block.has(name) && block.literal(name).is_none())
    }

    /// The first literal value of a setting.
    pub(super) fn literal(&self, name: &str) -> Option<&str> {
        self.blocks.iter().find_map(|block| block.literal(name))
    }
}

impl Question<'_> {
    /// Those of these providers and this backend that the configuration uses.
    pub(super) fn users(&self, providers: &[&str], backend: &str) -> Vec<User<'_>> {
        let configuration = self.configuration;
        let of_provider = |name: &&str| {
            let is_started = configuration.has_resources_of(name);
            let blocks = configuration.providers_named(name);
            let is_used = is_started || !blocks.is_empty();
            is_used.then(|| User {
                name: format!("the provider {name}"),
                blocks,
                is_backend: false,
                is_started: is_started && configuration.is_complete() && !self.is_targeted,
            })
        };
        let backend = configuration.backend(backend).map(|settings| User {
            name: format!("the backend {backend}"),
            blocks: vec![settings],
            is_backend: true,
            is_started: configuration.is_complete() && !self.has_backend_arguments,
        });
        providers.iter().filter_map(of_provider).chain(backend).collect()
    }

    /// The value of a variable.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        text(self.variables, name)
    }

    /// A file that a variable names, as the tool finds it.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    pub(super) fn is_any_set(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.variable(name).is_some())
    }
}
