//! The providers and the backend that a configuration uses, as far as its files say it literally.

use std::collections::BTreeMap;
use std::path::Path;

use hcl_edit::expr::Expression;
use hcl_edit::structure::{Block, BlockLabel, Body};
use serde_json::Value;

/// The settings of a block: the value of each, if it is a literal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings(BTreeMap<String, Option<String>>);

impl Settings {
    /// Whether a setting or a block has this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The value of a setting, if it is a literal.
    pub(super) fn literal(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_deref().filter(|text| !text.is_empty())
    }

    fn of_hcl(body: &Body) -> Self {
        let attributes = body.attributes().map(|attribute| {
            let value = match &attribute.value {
                Expression::String(text) => Some(text.value().clone()),
                Expression::Bool(value) => Some(value.value().to_string()),
                _ => None,
            };
            (attribute.key.as_str().to_owned(), value)
        });
        let blocks = body.blocks().map(|block| match label(block, 0) {
            Some(name) if block.ident.as_str() == "dynamic" => (name.to_owned(), None),
            _ => (block.ident.as_str().to_owned(), None),
        });
        Self(attributes.chain(blocks).collect())
    }

    fn of_json(settings: &Value) -> Self {
        let settings = settings.as_object().into_iter().flatten().map(|(name, value)| {
            let literal = match value {
                Value::String(text) if !text.contains("${") => Some(text.clone()),
                Value::Bool(value) => Some(value.to_string()),
                _ => None,
            };
            (name.clone(), literal)
        });
        Self(settings.collect())
    }
}

/// What the files of a configuration use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Configuration {
    /// The types of resources and data sources.
    types: Vec<String>,
    /// The blocks of providers, by the names of the providers.
    providers: Vec<(String, Settings)>,
    /// The sources of providers, by their names.
    sources: Vec<(String, String)>,
    backends: Vec<(String, Settings)>,
    /// Whether a file could not be read.
    is_incomplete: bool,
}

impl Configuration {
    /// Adds a file of the root module, or of one that it calls by a path: the backend of that is not used.
    pub(crate) fn add(&mut self, file: &Path, is_of_root: bool) {
        let backends = self.backends.len();
        self.add_file(file);
        if !is_of_root {
            self.backends.truncate(backends);
        }
    }

    fn add_file(&mut self, file: &Path) {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (name, is_json) = match name.strip_suffix(".json") {
            Some(name) => (name, true),
            None => (&*name, false),
        };
        match name.rsplit_once('.') {
            Some((_, "tf")) => {}
            // A file of tofu replaces another one.
            Some((_, "tofu")) => self.is_incomplete = true,
            _ => return,
        }
        let text = fs_err::read_to_string(file).unwrap_or_default();
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let is_read = if is_json {
            serde_json::from_str(text).ok().map(|value| self.add_json(&value))
        } else {
            hcl_edit::parser::parse_body(text).ok().map(|body| self.add_hcl(&body))
        };
        self.is_incomplete |= is_read.is_none();
    }

    fn add_hcl(&mut self, body: &Body) {
        for block in body.blocks() {
            match (block.ident.as_str(), label(block, 0)) {
                ("resource" | "data" | "ephemeral", Some(kind)) => self.types.push(kind.to_owned()),
                ("provider", Some(name)) => {
                    self.providers.push((name.to_owned(), Settings::of_hcl(&block.body)));
                }
                ("terraform", None) => self.add_terraform(&block.body),
                _ => {}
            }
        }
    }

    fn add_terraform(&mut self, body: &Body) {
        for block in body.blocks() {
            match (block.ident.as_str(), label(block, 0)) {
                ("backend", Some(kind)) => {
                    self.backends.push((kind.to_owned(), Settings::of_hcl(&block.body)));
                }
                ("cloud", _) => self.backends.push(("cloud".to_owned(), Settings::default())),
                ("required_providers", _) => {
                    for attribute in block.body.attributes() {
                        let object = attribute.value.as_object().into_iter().flatten();
                        let source = object
                            .filter(|(key, _)| {
                                key.as_ident().is_some_and(|key| key.as_str() == "source")
                            })
                            .find_map(|(_, value)| value.expr().as_str());
                        if let Some(source) = source {
                            self.sources
                                .push((attribute.key.as_str().to_owned(), source.to_owned()));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn add_json(&mut self, file: &Value) {
        for kind in ["resource", "data", "ephemeral"] {
            for value in each(&file[kind]) {
                self.types
                    .extend(value.as_object().into_iter().flatten().map(|(kind, _)| kind.clone()));
            }
        }
        for (name, blocks) in each(&file["provider"]).filter_map(Value::as_object).flatten() {
            for block in each(blocks) {
                self.providers.push((name.clone(), Settings::of_json(block)));
            }
        }
        for terraform in each(&file["terraform"]) {
            for (kind, blocks) in each(&terraform["backend"]).filter_map(Value::as_object).flatten()
            {
                for block in each(blocks) {
                    self.backends.push((kind.clone(), Settings::of_json(block)));
                }
            }
            let required = each(&terraform["required_providers"]).filter_map(Value::as_object);
            for (name, provider) in required.flatten() {
                if let Some(source) = provider["source"].as_str() {
                    self.sources.push((name.clone(), source.to_owned()));
                }
            }
        }
    }

    /// Whether all of it is known, so that something may be certain.
    pub(super) fn is_complete(&self) -> bool {
        !self.is_incomplete
    }

    /// Whether resources are of this provider, and it is the well-known one of this name. Under another name as well, it is
    /// not known which of the two a resource uses.
    pub(super) fn has_resources_of(&self, provider: &str) -> bool {
        let is_of = |kind: &String| kind.split('_').next() == Some(provider);
        let is_known = |(name, source): &(String, String)| {
            let (owner, kind) = source.rsplit_once('/').unwrap_or_default();
            let is_of_hashicorp = owner == "hashicorp" || owner.ends_with("/hashicorp");
            if name == provider { kind == provider && is_of_hashicorp } else { kind != provider }
        };
        self.types.iter().any(is_of) && self.sources.iter().all(is_known)
    }

    /// The blocks of a provider, under each name that it has.
    pub(super) fn providers_named(&self, provider: &str) -> Vec<&Settings> {
        let is_of = |(name, source): &(String, String)| {
            name != provider && source.rsplit('/').next() == Some(provider)
        };
        let renamed = self.sources.iter().filter(|source| is_of(source)).map(|(name, _)| name);
        let local = renamed.map(String::as_str).chain([provider]).collect::<Vec<_>>();
        let found = self.providers.iter().filter(|(name, _)| local.contains(&&**name));
        found.map(|(_, block)| block).collect()
    }

    /// The settings of the backend, if it is of this type. Several are an error that the tool reports, or an override.
    pub(super) fn backend(&self, kind: &str) -> Option<&Settings> {
        match &self.backends[..] {
            [(known, settings)] if known == kind => Some(settings),
            _ => None,
        }
    }
}

fn label(block: &Block, index: usize) -> Option<&str> {
    block.labels.get(index).map(BlockLabel::as_str)
}

/// A value, or those of a list.
fn each(value: &Value) -> impl Iterator<Item = &Value> {
    match value {
        Value::Array(values) => values.iter(),
        Value::Null => [].iter(),
        value => std::slice::from_ref(value).iter(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Configuration {
        let dir = tempfile::tempdir().unwrap();
        let mut configuration = Configuration::default();
        for (name, text) in files {
            fs_err::write(dir.path().join(name), text).unwrap();
            configuration.add(&dir.path().join(name), true);
        }
        configuration
    }

    #[test]
    fn hcl_and_json_say_the_same() {
        let hcl = r#"terraform {
  required_providers {
    aws = { source = "hashicorp/aws", version = "~> 5.0" }
  }
  backend "s3" {
    bucket  = "b"
    profile = "state"
  }
}
provider "aws" {
  region = var.region
  dynamic "assume_role" {
    for_each = []
    content {}
  }
}
data "aws_caller_identity" "c" {}
"#;
        let json = r#"{"terraform": {"required_providers": {"aws": {"source": "registry.terraform.io/hashicorp/aws"}},
            "backend": {"s3": {"bucket": "b", "profile": "state"}}},
            "provider": {"aws": [{"region": "${var.region}", "assume_role": {}}]},
            "data": [{"aws_caller_identity": {"c": {}}}]}"#;
        for file in [("main.tf", hcl), ("main.tf.json", json)] {
            let configuration = read(&[file, ("x.tfvars", "{{")]);
            assert!(
                configuration.is_complete() && configuration.has_resources_of("aws"),
                "{file:?}"
            );
            let backend = configuration.backend("s3").unwrap();
            assert_eq!(backend.literal("profile"), Some("state"), "{file:?}");
            assert!(configuration.backend("gcs").is_none());
            let [provider] = configuration.providers_named("aws")[..] else { panic!("{file:?}") };
            assert!(provider.has("assume_role") && provider.has("region"), "{provider:?}");
            assert_eq!(provider.literal("region"), None);
        }
    }

    #[test]
    fn provider_of_another_source_and_files_that_cannot_be_read_are_not_certain() {
        let other = "terraform {\n  required_providers {\n    aws = {\n      source = \"acme/aws\"\n    }\n  }\n}\n";
        let resource = ("r.tf", "resource \"aws_vpc\" \"v\" {}\n");
        assert!(read(&[resource]).has_resources_of("aws"));
        assert!(!read(&[resource]).has_resources_of("awscc"));
        assert!(!read(&[resource, ("v.tf", other)]).has_resources_of("aws"));
        let renamed = "terraform {\n  required_providers {\n    amazon = {\n      source = \"hashicorp/aws\"\n    }\n  }\n}\nprovider \"amazon\" {}\n";
        let renamed = read(&[resource, ("v.tf", renamed)]);
        assert!(!renamed.has_resources_of("aws"));
        assert_eq!(renamed.providers_named("aws").len(), 1);
        assert!(!read(&[resource, ("bad.tf", "resource {{")]).is_complete());
        assert!(!read(&[resource, ("r.tofu", "")]).is_complete());
    }
}
