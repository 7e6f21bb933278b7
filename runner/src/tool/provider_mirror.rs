//! The tool's CLI configuration with a provider mirror: the user's own configuration, with the mirror first.
//!
//! A `direct` method beside it would not be a fallback: terraform queries all methods that match a provider, and fails if
//! one of them fails (seen with 1.11.4). For a mirror that is down or stale, `run/step.rs` runs init once more
//! without it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fs_err as fs;
use hcl_edit::structure::{Body, Structure};

use crate::cli::Environment;
use crate::version::ToolName;

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
    let first = names.iter().map(|name| home.join(name)).find(|path| path.exists());
    let entries = fs::read_dir(home.join(".terraform.d")).into_iter().flatten().flatten();
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let is_read_anyway = name == b"credentials.tfrc.json";
        (name.ends_with(b".tfrc") || name.ends_with(b".tfrc.json")) && !is_read_anyway
    };
    let mut more: Vec<_> = entries.map(|entry| entry.path()).filter(is_one).collect();
    more.sort();
    first.into_iter().chain(more).collect()
}

/// The configuration, merged from the user's own files. The error is the reason why they could not be merged, without their
/// text, which may contain a token. The tool accepts more than this parser: JSON, and quoted names.
pub(crate) fn cli_config(url: &str, own: &[PathBuf]) -> Result<String, String> {
    let mut body = Body::new();
    for file in own {
        body.extend(read(file)?);
    }
    // Quoted as JSON, and no template.
    let url = serde_json::Value::from(url).to_string().replace("${", "$${").replace("%{", "%%{");
    let mirror = format!("\n  network_mirror {{\n    url = {url}\n  }}\n");
    let blocks = |text: &str| {
        text.parse::<Body>()
            .map_err(|_| "the mirror's URL cannot be written into the configuration".to_owned())
    };
    if body.has_blocks("provider_installation") {
        for installation in body.get_blocks_mut("provider_installation") {
            // The tool requires `dev_overrides` first.
            let overrides = |part: &&Structure| {
                part.as_block().is_some_and(|block| block.has_ident("dev_overrides"))
            };
            let after = installation.body.iter().take_while(overrides).count();
            for (at, block) in blocks(&mirror)?.into_iter().enumerate() {
                installation.body.insert(after + at, block);
            }
        }
    } else {
        let text = format!("\nprovider_installation {{{mirror}}}\n");
        blocks(&text)?.into_iter().for_each(|block| body.push(block));
    }
    Ok(body.to_string())
}

fn read(file: &Path) -> Result<Body, String> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        // The tool warns about a missing file and continues.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Body::new()),
        Err(error) => return Err(error.to_string()),
    };
    text.parse::<Body>().map_err(|error| {
        let (file, at) = (file.display(), error.location());
        format!("{file}:{}:{}: not understood", at.line(), at.column())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://burrito-hermitcrab.burrito-system.svc.cluster.local/v1/providers/";

    /// The configuration beside a file of the user's that holds this.
    fn beside(own: &str) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rc");
        fs::write(&file, own).unwrap();
        cli_config(URL, &[file])
    }

    /// RN14: what upstream writes, but for white space.
    #[test]
    fn the_mirror_alone_where_the_user_has_no_ways() {
        insta::assert_snapshot!(cli_config(URL, &[]).unwrap(), @r#"
        provider_installation {
          network_mirror {
            url = "https://burrito-hermitcrab.burrito-system.svc.cluster.local/v1/providers/"
          }
        }
        "#);
        assert!(cli_config(URL, &["/nowhere/rc".into()]).unwrap().contains("network_mirror"));
    }

    #[test]
    fn the_users_own_configuration_stays() {
        let credentials = "credentials \"example.com\" {\n  token = \"t\"\n}\n";
        let merged = beside(credentials).unwrap();
        assert!(merged.starts_with(credentials) && merged.contains("network_mirror"), "{merged}");

        let merged =
            beside("provider_installation {\n  filesystem_mirror {\n    path = \"/p\"\n  }\n}\n")
                .unwrap();
        assert_eq!(merged.matches("provider_installation").count(), 1, "{merged}");
        assert!(merged.find("network_mirror") < merged.find("filesystem_mirror"), "{merged}");
        merged.parse::<Body>().unwrap();
    }

    #[test]
    fn the_users_overrides_stay_before_the_mirror() {
        let merged = beside(
            "provider_installation {\n  dev_overrides {\n    x = \"/p\"\n  }\n  direct {\n  }\n}\n",
        )
        .unwrap();
        let places = ["dev_overrides", "network_mirror", "direct"].map(|word| merged.find(word));
        assert!(places.is_sorted(), "{merged}");
    }

    #[test]
    fn a_file_that_does_not_parse_is_named_without_its_text() {
        for (own, place) in [
            ("\ncredentials \"x\" { token = \"hunter2 }\n", "rc:2:"),
            ("{\"credentials\": {\"x\": {\"token\": \"hunter2\"}}}", "rc:1:1: "),
            (
                "provider_installation {\n  dev_overrides {\n    \"hunter2/x\" = \"/p\"\n  }\n}\n",
                "rc:3:",
            ),
        ] {
            let why = beside(own).unwrap_err();
            assert!(why.contains(place) && !why.contains("hunter2"), "{why}");
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
        let merged = cli_config(URL, &own_files(&environment, ToolName::Tofu)).unwrap();
        for part in ["credentials \"a\"", "credentials \"b\"", "network_mirror"] {
            assert!(merged.contains(part), "{merged}");
        }
        fs::write(home.path().join(".tofurc"), "").unwrap();
        assert_eq!(files(&environment, ToolName::Tofu), [".tofurc", "b.tfrc"]);
        environment.tf_cli_config_file = Some("/own".into());
        assert_eq!(files(&environment, ToolName::Tofu), ["own"]);
    }
}
