//! From which versions of terraform to which versions of tofu a layer can be migrated: a table, which a file of the user's can
//! replace. The built-in one follows OpenTofu's migration guides.

use std::path::Path;

use serde::Deserialize;

use crate::run::migrate::error::MigrationError;
use crate::version::{Constraint, Version};

const BUILT_IN: &str = include_str!("version_paths.json");
/// The maximum size of the user's table, in bytes.
const MAX_TABLE: u64 = 1 << 20;

/// One row. The first one whose `from` allows the version of terraform counts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// Versions of terraform.
    from: String,
    /// The versions of tofu to which they can be migrated.
    to: Option<String>,
    /// Why they cannot, and what to do first.
    refused: Option<String>,
}

/// The table.
#[derive(Debug)]
pub(super) struct VersionPaths(Vec<(Constraint, Result<Constraint, String>)>);

impl VersionPaths {
    /// The table in this file, else the built-in one.
    pub(super) fn load(file: Option<&Path>) -> Result<Self, MigrationError> {
        let Some(file) = file else {
            return Ok(Self::parse(BUILT_IN).expect("the built-in table can be read"));
        };
        let read = || {
            let size = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
            if size > MAX_TABLE {
                return Err(format!("it has {size} bytes, and {MAX_TABLE} are allowed"));
            }
            Self::parse(&std::fs::read_to_string(file).map_err(|error| error.to_string())?)
        };
        read().map_err(|reason| MigrationError::Table { file: file.to_owned(), reason })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let rows: Vec<Row> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let constraint = |text: &str| text.parse::<Constraint>().map_err(|error| error.to_string());
        let row = |Row { from, to, refused }: Row| match (to, refused) {
            (Some(to), None) => Ok((constraint(&from)?, Ok(constraint(&to)?))),
            (None, Some(reason)) => Ok((constraint(&from)?, Err(reason))),
            _ => Err(format!("the row of `{from}` needs `to` or `refused`, and not both")),
        };
        Ok(Self(rows.into_iter().map(row).collect::<Result<_, String>>()?))
    }

    /// Refuses a path that is not in the table.
    pub(super) fn check(&self, from: &Version, to: &Version) -> Result<(), MigrationError> {
        let row = self.0.iter().find(|(versions, _)| versions.allows(from));
        let reason = match row {
            Some((_, Ok(allowed))) if allowed.allows(to) => return Ok(()),
            Some((_, Ok(allowed))) => format!("from there, tofu {allowed} is needed"),
            Some((_, Err(reason))) => reason.clone(),
            None => "no migration from that version is known".to_owned(),
        };
        Err(MigrationError::Path { from: from.to_string(), to: to.to_string(), reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(table: &VersionPaths, from: &str, to: &str) -> Result<(), String> {
        let checked = table.check(&from.parse().unwrap(), &to.parse().unwrap());
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn built_in_table_follows_the_guides() {
        let table = VersionPaths::load(None).unwrap();
        for (from, to, refusal) in [
            ("0.14.8", "1.12.5", Some("first update to terraform 1.5.7")),
            ("1.5.6", "1.6.2", Some("first update to terraform 1.5.7")),
            ("1.5.7", "1.6.2", None),
            ("1.5.7", "1.6.1", Some("tofu >= 1.6.2 is needed")),
            ("1.9.5", "1.10.0", Some("first update to terraform 1.9.8")),
            ("1.9.8", "1.9.0", None),
            ("1.9.8", "1.8.9", Some("tofu >= 1.9.0 is needed")),
            ("1.11.4", "1.10.10", None),
            ("1.99.0", "1.12.0", Some("no migration from that version is known")),
        ] {
            let checked = check(&table, from, to);
            match refusal {
                None => assert_eq!(checked, Ok(()), "{from} {to}"),
                Some(text) => assert!(checked.as_ref().unwrap_err().contains(text), "{checked:?}"),
            }
        }
    }

    #[test]
    fn a_table_of_the_user_replaces_it_and_a_wrong_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("paths.json");
        std::fs::write(&file, r#"[{"from": ">= 0.14", "to": ">= 1.6"}]"#).unwrap();
        let table = VersionPaths::load(Some(&file)).unwrap();
        assert_eq!(check(&table, "0.14.8", "1.12.5"), Ok(()));
        assert!(check(&table, "0.13.0", "1.12.5").is_err());
        for (text, reason) in [
            ("", "EOF"),
            ("{}", "expected a sequence"),
            (r#"[{"from": ">= 0.14"}]"#, "needs `to` or `refused`"),
            (r#"[{"from": "new", "to": ">= 1"}]"#, "new"),
            (r#"[{"from": "1.2.3", "to": ">= 1", "why": "x"}]"#, "unknown field"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = VersionPaths::load(Some(&file)).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("paths.json"), "{error}");
        }
        let missing = VersionPaths::load(Some(&dir.path().join("none"))).unwrap_err();
        assert!(missing.to_string().contains("No such file"), "{missing}");
    }
}
