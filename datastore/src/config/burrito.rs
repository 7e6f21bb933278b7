//! Burrito's configuration: `config.yaml`, and the variables that go over it.
//!
//! A setting has one name, that of its variable: `BURRITO_DATASTORE_STORAGE_S3_BUCKET` is
//! `datastore: {storage: {s3: {bucket: ...}}}` in the file, where keys may be written in any case.
//! The file is shared with Burrito's other programs, so what is not in [`SCHEMA`] is passed over,
//! whatever it is. What is text stays as it was written: nothing guesses what `0123e4` is.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::config::settings::Outside;

/// What the file said, by the names of variables.
#[derive(Debug, Default)]
pub(super) struct File {
    /// Where it lies.
    pub(super) place: &'static str,
    texts: BTreeMap<String, String>,
}

enum Node {
    Section(&'static [(&'static str, Node)]),
    Text,
    /// Texts, which may also be written as one, with commas.
    List,
}

/// The keys that the datastore reads. The key of the encryption is not among them: it is a secret,
/// and comes by its variable only.
const SCHEMA: Node = Node::Section(&[
    ("controller", Node::Section(&[("mainnamespace", Node::Text)])),
    ("datastore", Node::Section(DATASTORE)),
]);
const DATASTORE: &[(&str, Node)] = &[
    ("addr", Node::Text),
    ("tls", Node::Text),
    ("serviceaccounts", Node::List),
    ("storage", Node::Section(STORAGE)),
];
const STORAGE: &[(&str, Node)] = &[
    ("mock", Node::Text),
    ("s3", Node::Section(&[("bucket", Node::Text), ("usepathstyle", Node::Text)])),
    ("gcs", Node::Section(&[("bucket", Node::Text)])),
    ("azure", Node::Section(&[("storageaccount", Node::Text), ("container", Node::Text)])),
    ("encryption", Node::Section(&[("enabled", Node::Text)])),
];

impl File {
    /// Reads the first that there is: in `/etc/burrito`, `$HOME/.burrito`, the working directory.
    pub(super) fn find(outside: Outside) -> Result<Self, String> {
        let home = outside.env("HOME").map(|home| format!("{home}/.burrito/config.yaml"));
        let places = [
            ("/etc/burrito/config.yaml", Some("/etc/burrito/config.yaml".to_owned())),
            ("~/.burrito/config.yaml", home),
            ("./config.yaml", Some("config.yaml".to_owned())),
        ];
        for (place, path) in places {
            let Some(path) = path else { continue };
            match outside.file(Path::new(&path)) {
                Ok(yaml) => return Self::parse(place, &yaml),
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(format!("{place} cannot be read: {error}")),
            }
        }
        Ok(Self::default())
    }

    fn parse(place: &'static str, yaml: &str) -> Result<Self, String> {
        let mut texts = BTreeMap::new();
        let seed = Seed { node: &SCHEMA, name: "BURRITO".to_owned(), texts: &mut texts };
        // Nothing but comments is nothing at all.
        let is_empty = yaml.lines().all(|line| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#') || line == "---"
        });
        if !is_empty {
            let read =
                serde_saphyr::with_deserializer_from_str(yaml, |yaml| seed.deserialize(yaml));
            read.map_err(|error| {
                let error = error.to_string();
                // The rest of the message is a picture of the file.
                let reason = error.lines().next().unwrap_or_default();
                let reason = reason.trim_start_matches("error: ");
                format!("{place} is malformed: {reason}")
            })?;
        }
        Ok(Self { place, texts })
    }

    /// What the file says of the setting with this variable.
    pub(super) fn text(&self, variable: &str) -> Option<&str> {
        self.texts.get(variable).map(String::as_str).filter(|text| !text.is_empty())
    }
}

fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | IsADirectory)
}

/// Reads one node of the schema from whatever stands there.
struct Seed<'a> {
    node: &'a Node,
    name: String,
    texts: &'a mut BTreeMap<String, String>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, yaml: D) -> Result<(), D::Error> {
        match self.node {
            Node::Section(_) => yaml.deserialize_option(self),
            Node::List => yaml.deserialize_any(self),
            Node::Text => {
                let text: Option<String> = serde::Deserialize::deserialize(yaml)?;
                self.texts.extend(text.map(|text| (self.name, text)));
                Ok(())
            }
        }
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if matches!(self.node, Node::List) { "a list" } else { "a mapping" };
        let key = self.name.trim_start_matches("BURRITO").trim_start_matches('_').to_lowercase();
        match key.replace('_', ".").as_str() {
            "" => f.write_str(what),
            key => write!(f, "{what} at `{key}`"),
        }
    }

    fn visit_some<D: Deserializer<'de>>(self, yaml: D) -> Result<(), D::Error> {
        yaml.deserialize_map(self)
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Node::Section(keys) = self.node else {
            return Err(A::Error::custom(format_args!("expected {}", Expected(&self))));
        };
        while let Some(key) = map.next_key::<String>()? {
            let key = key.to_lowercase();
            match keys.iter().find(|(known, _)| *known == key) {
                Some((_, node)) => {
                    let name = format!("{}_{}", self.name, key.to_uppercase());
                    map.next_value_seed(Seed { node, name, texts: &mut *self.texts })?;
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.texts.insert(self.name, text.to_owned());
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = items.next_element::<String>()? {
            texts.push(text);
        }
        // A list of nothing is not the same as no list.
        let list = if texts.is_empty() { ",".to_owned() } else { texts.join(",") };
        self.texts.insert(self.name, list);
        Ok(())
    }
}

/// A visitor as the word for what it expects.
struct Expected<'a, 'b>(&'a Seed<'b>);

impl fmt::Display for Expected<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Visitor::expecting(self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(yaml: &str) -> Result<File, String> {
        File::parse("/etc/burrito/config.yaml", yaml)
    }

    #[test]
    fn ds24_keys_are_read_in_any_case_and_unknown_ones_passed_over() {
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
        let all = file.texts.iter().map(|(name, text)| format!("{name}={text}"));
        insta::assert_snapshot!(all.collect::<Vec<_>>().join("\n"), @"
        BURRITO_CONTROLLER_MAINNAMESPACE=burrito-system
        BURRITO_DATASTORE_ADDR=:8080
        BURRITO_DATASTORE_SERVICEACCOUNTS=a/b,c/d
        BURRITO_DATASTORE_STORAGE_S3_BUCKET=from-file
        BURRITO_DATASTORE_STORAGE_S3_USEPATHSTYLE=true
        BURRITO_DATASTORE_TLS=true
        ");
    }

    #[test]
    fn ds24_text_stays_as_it_was_written() {
        for text in ["0123e4", "007", "1_000", "0x1f", "1e3", "no", "12:30:00"] {
            let file =
                parse(&format!("datastore: {{storage: {{gcs: {{bucket: {text}}}}}}}")).unwrap();
            assert_eq!(file.text("BURRITO_DATASTORE_STORAGE_GCS_BUCKET"), Some(text));
        }
    }

    #[test]
    fn a_list_may_be_one_text_and_the_key_of_the_encryption_is_not_read() {
        let file = parse(
            "datastore: {serviceAccounts: 'a/b,c/d', storage: {encryption: {key: hush, enabled: true}}}",
        )
        .unwrap();
        assert_eq!(file.text("BURRITO_DATASTORE_SERVICEACCOUNTS"), Some("a/b,c/d"));
        assert_eq!(file.text("BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY"), None);
        assert!(!format!("{file:?}").contains("hush"));
    }

    #[test]
    fn nothing_is_nothing_and_what_is_malformed_is_named() {
        for yaml in ["", "# nothing\n", "---\n", "datastore:\n", "other: 1\n", "{}"] {
            assert!(parse(yaml).unwrap().texts.is_empty(), "{yaml}");
        }
        let malformed = |yaml| parse(yaml).unwrap_err();
        insta::assert_snapshot!(malformed("datastore: [1"), @"/etc/burrito/config.yaml is malformed: line 1 column 12: expected mapping start");
        insta::assert_snapshot!(malformed("datastore: storage"), @"/etc/burrito/config.yaml is malformed: line 1 column 12: expected mapping start");
        insta::assert_snapshot!(malformed("- a\n- b"), @"/etc/burrito/config.yaml is malformed: line 1 column 1: expected mapping start");
        insta::assert_snapshot!(malformed("datastore: {addr: [1]}"), @"/etc/burrito/config.yaml is malformed: line 1 column 19: expected string scalar");
        insta::assert_snapshot!(malformed("datastore: {serviceAccounts: {a: b}}"), @"/etc/burrito/config.yaml is malformed: line 1 column 30: expected a list at `datastore.serviceaccounts`");
    }
}
