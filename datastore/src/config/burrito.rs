//! Burrito's configuration: `config.yaml`, and the variables that override it.
//!
//! A setting has one name, that of its variable: `BURRITO_DATASTORE_STORAGE_S3_BUCKET` is
//! `datastore: {storage: {s3: {bucket: ...}}}` in the file. Keys may be written in any case. Burrito's other programs
//! read the same file, so unknown keys are ignored. A scalar keeps its text: `0123e4` is not a number here.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::path::Path;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error, IntoDeserializer as _, MapAccess, SeqAccess, Visitor,
};

use crate::config::sources::Sources;

/// The settings of a file, by the names of their variables.
#[derive(Debug, Default)]
pub(super) struct File {
    /// The path of the file.
    pub(super) path: &'static str,
    root: Section<Root>,
}

/// The keys that the datastore reads. The encryption key is not among them: it is a secret, and only its variable is
/// read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Root {
    controller: Section<Controller>,
    datastore: Section<Datastore>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Controller {
    #[serde(rename = "mainnamespace")]
    main_namespace: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Datastore {
    addr: Option<String>,
    tls: Option<String>,
    #[serde(rename = "serviceaccounts", deserialize_with = "comma_list")]
    service_accounts: Option<String>,
    storage: Section<Storage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Storage {
    mock: Option<String>,
    s3: Section<S3>,
    gcs: Section<Gcs>,
    azure: Section<Azure>,
    encryption: Section<Encryption>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct S3 {
    bucket: Option<String>,
    #[serde(rename = "usepathstyle")]
    use_path_style: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Gcs {
    bucket: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Azure {
    #[serde(rename = "storageaccount")]
    storage_account: Option<String>,
    container: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Encryption {
    enabled: Option<String>,
}

impl File {
    /// Reads the first file that exists in `/etc/burrito`, `$HOME/.burrito` and the working directory.
    pub(super) fn find(sources: Sources) -> Result<Self, String> {
        let home = sources.env("HOME").map(|home| format!("{home}/.burrito/config.yaml"));
        let files = [
            ("/etc/burrito/config.yaml", Some("/etc/burrito/config.yaml".to_owned())),
            ("~/.burrito/config.yaml", home),
            ("./config.yaml", Some("config.yaml".to_owned())),
        ];
        for (shown, path) in files {
            let Some(path) = path else { continue };
            match sources.file(Path::new(&path)) {
                Ok(yaml) => return Self::parse(shown, &yaml),
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(format!("{shown} cannot be read: {error}")),
            }
        }
        Ok(Self::default())
    }

    fn parse(path: &'static str, yaml: &str) -> Result<Self, String> {
        // A file of nothing but comments has no document.
        let is_empty = yaml.lines().all(|line| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#') || line == "---"
        });
        if is_empty {
            return Ok(Self { path, ..Self::default() });
        }
        let root = serde_saphyr::from_str(yaml).map_err(|error| {
            let error = error.to_string();
            // The further lines quote the file.
            let reason = error.lines().next().unwrap_or_default();
            let reason = reason.trim_start_matches("error: ");
            format!(
                "Burrito's configuration {path} is malformed: {reason}\nhint: correct it; if another program's file has this \
                 name, start in another directory"
            )
        })?;
        Ok(Self { path, root })
    }

    /// The text of the setting with this variable, if the file has it.
    pub(super) fn text(&self, variable: &str) -> Option<&str> {
        let Root { controller, datastore } = &self.root.0;
        let Datastore { addr, tls, service_accounts, storage } = &datastore.0;
        let Storage { mock, s3, gcs, azure, encryption } = &storage.0;
        let text = match variable {
            "BURRITO_CONTROLLER_MAINNAMESPACE" => &controller.0.main_namespace,
            "BURRITO_DATASTORE_ADDR" => addr,
            "BURRITO_DATASTORE_TLS" => tls,
            "BURRITO_DATASTORE_SERVICEACCOUNTS" => service_accounts,
            "BURRITO_DATASTORE_STORAGE_MOCK" => mock,
            "BURRITO_DATASTORE_STORAGE_S3_BUCKET" => &s3.0.bucket,
            "BURRITO_DATASTORE_STORAGE_S3_USEPATHSTYLE" => &s3.0.use_path_style,
            "BURRITO_DATASTORE_STORAGE_GCS_BUCKET" => &gcs.0.bucket,
            "BURRITO_DATASTORE_STORAGE_AZURE_STORAGEACCOUNT" => &azure.0.storage_account,
            "BURRITO_DATASTORE_STORAGE_AZURE_CONTAINER" => &azure.0.container,
            "BURRITO_DATASTORE_STORAGE_ENCRYPTION_ENABLED" => &encryption.0.enabled,
            _ => return None,
        };
        text.as_deref().filter(|text| !text.is_empty())
    }
}

fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | IsADirectory)
}

/// A mapping whose keys may be written in any case. Without a value it is empty.
#[derive(Debug, Default)]
struct Section<T>(T);

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Section<T> {
    fn deserialize<D: Deserializer<'de>>(yaml: D) -> Result<Self, D::Error> {
        yaml.deserialize_option(SectionVisitor(PhantomData)).map(Self)
    }
}

struct SectionVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for SectionVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_none<E: Error>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, yaml: D) -> Result<T, D::Error> {
        yaml.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(LowercaseKeys(map)))
    }
}

struct LowercaseKeys<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for LowercaseKeys<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let key = self.0.next_key::<String>()?;
        key.map(|key| seed.deserialize(key.to_lowercase().into_deserializer())).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

/// Texts, or one text with commas. The result has commas; an empty list is `,`, which differs from no list.
fn comma_list<'de, D: Deserializer<'de>>(yaml: D) -> Result<Option<String>, D::Error> {
    struct CommaList;

    impl<'de> Visitor<'de> for CommaList {
        type Value = Option<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list, or one text with commas")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Some(text.to_owned()))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut texts = Vec::new();
            while let Some(text) = items.next_element::<String>()? {
                texts.push(text);
            }
            Ok(Some(if texts.is_empty() { ",".to_owned() } else { texts.join(",") }))
        }
    }

    yaml.deserialize_any(CommaList)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(yaml: &str) -> Result<File, String> {
        File::parse("/etc/burrito/config.yaml", yaml)
    }

    fn settings(file: &File) -> Vec<String> {
        let names = [
            "CONTROLLER_MAINNAMESPACE",
            "DATASTORE_ADDR",
            "DATASTORE_SERVICEACCOUNTS",
            "DATASTORE_STORAGE_AZURE_CONTAINER",
            "DATASTORE_STORAGE_AZURE_STORAGEACCOUNT",
            "DATASTORE_STORAGE_ENCRYPTION_ENABLED",
            "DATASTORE_STORAGE_GCS_BUCKET",
            "DATASTORE_STORAGE_MOCK",
            "DATASTORE_STORAGE_S3_BUCKET",
            "DATASTORE_STORAGE_S3_USEPATHSTYLE",
            "DATASTORE_TLS",
        ];
        let names = names.map(|name| format!("BURRITO_{name}"));
        let set = names.iter().filter_map(|name| Some(format!("{name}={}", file.text(name)?)));
        set.collect()
    }

    #[test]
    fn ds24_keys_are_read_in_any_case_and_unknown_ones_are_ignored() {
        let file = parse(
            "
            controller: {MainNamespace: burrito-system, types: [layer], timers: {driftDetection: 1h}}
            hermitcrab: {enabled: true}
            redis: [1, {a: b}]
            datastore:
              ADDR: ':8080'
              tls: true
              hostname: x.example
              serviceAccounts: [a/b, c/d]
              storage: {s3: {Bucket: from-file, usePathStyle: true}, gcs: {}, azure: }
            ",
        )
        .unwrap();
        insta::assert_snapshot!(settings(&file).join("\n"), @"
        BURRITO_CONTROLLER_MAINNAMESPACE=burrito-system
        BURRITO_DATASTORE_ADDR=:8080
        BURRITO_DATASTORE_SERVICEACCOUNTS=a/b,c/d
        BURRITO_DATASTORE_STORAGE_S3_BUCKET=from-file
        BURRITO_DATASTORE_STORAGE_S3_USEPATHSTYLE=true
        BURRITO_DATASTORE_TLS=true
        ");
    }

    #[test]
    fn ds24_a_scalar_keeps_its_text() {
        for text in ["0123e4", "007", "1_000", "0x1f", "1e3", "no", "12:30:00"] {
            let file =
                parse(&format!("datastore: {{storage: {{gcs: {{bucket: {text}}}}}}}")).unwrap();
            assert_eq!(file.text("BURRITO_DATASTORE_STORAGE_GCS_BUCKET"), Some(text));
        }
    }

    #[test]
    fn a_list_may_be_one_text_and_the_encryption_key_is_not_read() {
        let file = parse(
            "datastore: {serviceAccounts: 'a/b,c/d', storage: {encryption: {key: hush, enabled: true}}}",
        )
        .unwrap();
        assert_eq!(file.text("BURRITO_DATASTORE_SERVICEACCOUNTS"), Some("a/b,c/d"));
        assert_eq!(file.text("BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY"), None);
        assert!(!format!("{file:?}").contains("hush"));
    }

    #[test]
    fn an_empty_file_has_no_settings_and_a_malformed_one_is_an_error() {
        for yaml in ["", "# nothing\n", "---\n", "datastore:\n", "other: 1\n", "{}"] {
            assert_eq!(settings(&parse(yaml).unwrap()), [""; 0], "{yaml}");
        }
        let malformed = |yaml| parse(yaml).unwrap_err().lines().next().unwrap().to_owned();
        insta::assert_snapshot!(malformed("datastore: [1"), @"Burrito's configuration /etc/burrito/config.yaml is malformed: line 1 column 12: expected mapping start");
        assert!(parse("- a").unwrap_err().contains("another program's file"));
        insta::assert_snapshot!(malformed("datastore: storage"), @"Burrito's configuration /etc/burrito/config.yaml is malformed: line 1 column 12: expected mapping start");
        insta::assert_snapshot!(malformed("- a\n- b"), @"Burrito's configuration /etc/burrito/config.yaml is malformed: line 1 column 1: expected mapping start");
        insta::assert_snapshot!(malformed("datastore: {addr: [1]}"), @"Burrito's configuration /etc/burrito/config.yaml is malformed: line 1 column 19: expected string scalar");
        insta::assert_snapshot!(malformed("datastore: {serviceAccounts: {a: b}}"), @"Burrito's configuration /etc/burrito/config.yaml is malformed: line 1 column 30: invalid type: map, expected a list, or one text with commas");
    }
}
