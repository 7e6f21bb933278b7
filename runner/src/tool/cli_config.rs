//! The tool's CLI configuration: its files, and their text as blocks. It does not know what the blocks mean.
//!
//! The tool parses the first version of HCL, or JSON. It accepts more than a parser of today's HCL: above all, the names in
//! `dev_overrides` are in quotes. In a [`Body`] this block is therefore an attribute with an object as its value. Other
//! names in quotes are not understood.

pub(crate) mod dev_overrides;
pub(crate) mod provider_mirror;

use std::path::PathBuf;

use fs_err as fs;
use hcl_edit::structure::Body;
use serde_json::{Map, Value};

use crate::cli::Environment;
use crate::version::ToolName;

/// The block with the sources of providers.
pub(crate) const INSTALLATION: &str = "provider_installation";
/// In it, the directories that replace packages of providers.
pub(crate) const OVERRIDES: &str = "dev_overrides";

/// The files that the tool reads by default, in its order.
pub(crate) fn own_files(environment: &Environment, tool: ToolName) -> Vec<PathBuf> {
    if let Some(file) = &environment.tf_cli_config_file {
        return vec![file.clone()];
    }
    let Some(home) = &environment.home else { return Vec::new() };
    let names: &[_] = match tool {
        ToolName::Tofu => &[".tofurc", ".terraformrc"],
        ToolName::Terraform | ToolName::Terragrunt => &[".terraformrc"],
    };
    let of_tofu = environment.config_home.as_ref().filter(|_| tool == ToolName::Tofu);
    let of_tofu = of_tofu.map(|dir| dir.join("opentofu"));
    let other = of_tofu.as_ref().map(|dir| dir.join("tofurc"));
    let mut files = names.iter().map(|name| home.join(name)).chain(other);
    let first = files.find(|path| path.exists());
    let dir = home.join(".terraform.d");
    let dir = of_tofu.filter(|_| !dir.exists()).unwrap_or(dir);
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let is_read_anyway = name == b"credentials.tfrc.json";
        (name.ends_with(b".tfrc") || name.ends_with(b".tfrc.json")) && !is_read_anyway
    };
    let mut more: Vec<_> = entries.map(|entry| entry.path()).filter(is_one).collect();
    more.sort();
    first.into_iter().chain(more).collect()
}

/// Parses a configuration in HCL or JSON. The error is the line and the column where it is not understood.
pub(crate) fn parse(text: &str) -> Result<Body, (usize, usize)> {
    if !text.trim_start().starts_with('{') {
        return parse_hcl(&with_objects(text));
    }
    let config = serde_json::from_str::<Map<_, _>>(text);
    let config = config.map_err(|error| (error.line(), error.column()))?;
    // A place in the HCL would be none in the file.
    of_json(&config).ok_or((1, 1)).and_then(|text| parse_hcl(&text).map_err(|_| (1, 1)))
}

fn parse_hcl(text: &str) -> Result<Body, (usize, usize)> {
    text.parse().map_err(|error: hcl_edit::parser::Error| {
        let location = error.location();
        (location.line(), location.column())
    })
}

/// The text of a parsed configuration, in the HCL that the tool reads.
pub(crate) fn format(body: &Body) -> String {
    let text = body.to_string();
    let mut parts = text.split(OVERRIDES);
    let mut blocks = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let block = part.strip_prefix(" =").filter(|block| block.trim_start().starts_with('{'));
        blocks += OVERRIDES;
        blocks += block.unwrap_or(part);
    }
    blocks
}

/// Turns blocks of overrides into objects: only the names in objects may be in quotes.
fn with_objects(text: &str) -> String {
    let mut parts = text.split(OVERRIDES);
    let mut objects = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        objects += OVERRIDES;
        objects += if part.trim_start().starts_with('{') { " =" } else { "" };
        objects += part;
    }
    objects
}

/// The configuration in HCL. `None`: it has another form than the tool documents.
fn of_json(config: &Map<String, Value>) -> Option<String> {
    let mut parts = Vec::new();
    for (name, value) in config {
        match name.as_str() {
            INSTALLATION => {
                for methods in objects(value)? {
                    parts.push(format!("{name} {{\n{}}}\n", methods_of_json(methods)?));
                }
            }
            "credentials" | "credentials_helper" | "host" => {
                for (label, value) in objects(value)?.into_iter().flatten() {
                    let label = Value::from(label.as_str());
                    for fields in objects(value)? {
                        parts.push(format!("{name} {label} {{\n{}}}\n", attributes(fields, "  ")));
                    }
                }
            }
            _ => parts.push(format!("{name} = {}\n", expression(value))),
        }
    }
    Some(parts.concat())
}

fn methods_of_json(methods: &Map<String, Value>) -> Option<String> {
    let mut parts = Vec::new();
    for (name, value) in methods {
        for fields in objects(value)? {
            parts.push(if name == OVERRIDES {
                let lines = fields.iter().map(|(provider, to)| {
                    format!("    {} = {}\n", Value::from(provider.as_str()), expression(to))
                });
                format!("  {name} = {{\n{}  }}\n", lines.collect::<Vec<_>>().concat())
            } else {
                format!("  {name} {{\n{}  }}\n", attributes(fields, "    "))
            });
        }
    }
    Some(parts.concat())
}

fn attributes(fields: &Map<String, Value>, indent: &str) -> String {
    let line =
        |(name, value): (&String, &Value)| format!("{indent}{name} = {}\n", expression(value));
    fields.iter().map(line).collect::<Vec<_>>().concat()
}

/// A value in HCL. Its objects have `=` where those of JSON have `:`.
fn expression(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| {
                format!("{} = {}", Value::from(name.as_str()), expression(value))
            });
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Array(values) => {
            format!("[{}]", values.iter().map(expression).collect::<Vec<_>>().join(", "))
        }
        scalar => scalar.to_string(),
    }
}

/// The objects of a block, which JSON can repeat in a list.
fn objects(value: &Value) -> Option<Vec<&Map<String, Value>>> {
    match value {
        Value::Array(values) => values.iter().map(Value::as_object).collect(),
        value => Some(vec![value.as_object()?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hcl_is_written_as_it_was_read() {
        for text in [
            "# dev_overrides { }\nprovider_installation {\n  dev_overrides {\n    \"a/b\" = \"/p\" # x\n    c = \"/q\"\n  }\n  \
             direct {}\n}\n",
            "provider_installation {\n  dev_overrides{ \"a/b\" = \"/p\" }\n}\n",
            "host \"h\" {\n  services = {\n    \"modules.v1\" = \"https://h/\"\n  }\n}\n",
            "plugin_cache_dir = \"$HOME/dev_overrides\"\n",
        ] {
            assert_eq!(format(&parse(text).unwrap()), text);
        }
    }

    #[test]
    fn json_is_written_as_hcl() {
        let json = r#"{
            "disable_checkpoint": true,
            "credentials": {"a": {"token": "t\"$"}, "b": {"token": "u"}},
            "host": [{"h": {"services": {"modules.v1": "https://h/"}}}],
            "provider_installation": [{
                "dev_overrides": {"a/b": "/p"},
                "filesystem_mirror": [{"path": "/m", "include": ["x/*", "y/*"]}],
                "direct": {}
            }]
        }"#;
        insta::assert_snapshot!(format(&parse(json).unwrap()), @r#"
        disable_checkpoint = true
        credentials "a" {
          token = "t\"$"
        }
        credentials "b" {
          token = "u"
        }
        host "h" {
          services = { "modules.v1" = "https://h/" }
        }
        provider_installation {
          dev_overrides {
            "a/b" = "/p"
          }
          filesystem_mirror {
            path = "/m"
            include = ["x/*", "y/*"]
          }
          direct {
          }
        }
        "#);
    }

    #[test]
    fn place_of_an_error_is_known() {
        for (text, place) in [
            ("a = 1\nb = \n", 2),
            ("{\n\"a\": 1", 2),
            ("[1]", 1),
            (r#"{"provider_installation": "direct"}"#, 1),
            (r#"{"a name": 1}"#, 1),
        ] {
            assert_eq!(parse(text).unwrap_err().0, place, "{text}");
        }
    }

    #[test]
    fn without_a_variable_the_files_are_those_of_the_home() {
        let home = tempfile::tempdir().unwrap();
        let mut environment = Environment::default();
        environment.home = Some(home.path().to_owned());
        let files = |environment: &Environment, tool| {
            let files = own_files(environment, tool);
            let names = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(files(&environment, ToolName::Terraform).is_empty());
        fs::create_dir(home.path().join(".terraform.d")).unwrap();
        for (name, host) in [
            (".terraformrc", "a"),
            (".terraform.d/b.tfrc", "b"),
            (".terraform.d/x.txt", "x"),
            (".terraform.d/credentials.tfrc.json", "c"),
        ] {
            fs::write(home.path().join(name), format!("credentials \"{host}\" {{\n}}")).unwrap();
        }
        assert_eq!(files(&environment, ToolName::Terraform), [".terraformrc", "b.tfrc"]);
        assert_eq!(files(&environment, ToolName::Tofu), [".terraformrc", "b.tfrc"]);
        fs::write(home.path().join(".tofurc"), "").unwrap();
        assert_eq!(files(&environment, ToolName::Tofu), [".tofurc", "b.tfrc"]);
        // Tofu's, if the home has none.
        environment.config_home = Some(home.path().join("xdg"));
        fs::create_dir_all(home.path().join("xdg/opentofu")).unwrap();
        for name in ["tofurc", "d.tfrc"] {
            fs::write(home.path().join("xdg/opentofu").join(name), "").unwrap();
        }
        assert_eq!(files(&environment, ToolName::Tofu), [".tofurc", "b.tfrc"]);
        fs::remove_file(home.path().join(".tofurc")).unwrap();
        fs::remove_file(home.path().join(".terraformrc")).unwrap();
        assert_eq!(files(&environment, ToolName::Tofu), ["tofurc", "b.tfrc"]);
        fs::remove_dir_all(home.path().join(".terraform.d")).unwrap();
        assert_eq!(files(&environment, ToolName::Tofu), ["tofurc", "d.tfrc"]);
        assert!(files(&environment, ToolName::Terraform).is_empty());
        environment.tf_cli_config_file = Some("/own".into());
        assert_eq!(files(&environment, ToolName::Tofu), ["own"]);
    }
}
