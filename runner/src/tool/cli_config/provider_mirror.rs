//! The tool's CLI configuration with a provider mirror: the user's own configuration, with the mirror first.
//!
//! A `direct` method beside it would not be a fallback: terraform queries all methods that match a provider, and fails if
//! one of them fails (seen with 1.11.4). For a mirror that is down or stale, `run/step.rs` runs init once more
//! without it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fs_err as fs;
use hcl_edit::structure::{Body, Structure};

use crate::tool::cli_config::{self, INSTALLATION, OVERRIDES};

/// The configuration, merged from the user's own files. The error is the reason why they could not be merged, without their
/// text, which may contain a token.
pub(crate) fn with_mirror(url: &str, own: &[PathBuf]) -> Result<String, String> {
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
    if body.has_blocks(INSTALLATION) {
        for installation in body.get_blocks_mut(INSTALLATION) {
            // The tool requires them first.
            let overrides = |part: &&Structure| {
                part.as_attribute().is_some_and(|part| part.key.as_str() == OVERRIDES)
            };
            let after = installation.body.iter().take_while(overrides).count();
            for (at, block) in blocks(&mirror)?.into_iter().enumerate() {
                installation.body.insert(after + at, block);
            }
        }
    } else {
        let text = format!("\n{INSTALLATION} {{{mirror}}}\n");
        blocks(&text)?.into_iter().for_each(|block| body.push(block));
    }
    Ok(cli_config::format(&body))
}

fn read(file: &Path) -> Result<Body, String> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        // The tool warns about a missing file and continues.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Body::new()),
        Err(error) => return Err(error.to_string()),
    };
    cli_config::parse(&text).map_err(|(line, column)| {
        let file = file.display();
        format!("{file}:{line}:{column}: not understood")
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
        with_mirror(URL, &[file])
    }

    /// RN14: what upstream writes, but for white space.
    #[test]
    fn the_mirror_alone_where_the_user_has_no_ways() {
        insta::assert_snapshot!(with_mirror(URL, &[]).unwrap(), @r#"
        provider_installation {
          network_mirror {
            url = "https://burrito-hermitcrab.burrito-system.svc.cluster.local/v1/providers/"
          }
        }
        "#);
        assert!(with_mirror(URL, &["/nowhere/rc".into()]).unwrap().contains("network_mirror"));
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
    fn all_files_of_the_user_are_merged() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|host| {
            let file = dir.path().join(host);
            fs::write(&file, format!("credentials \"{host}\" {{\n}}")).unwrap();
            file
        });
        let merged = with_mirror(URL, &files).unwrap();
        for part in ["credentials \"a\"", "credentials \"b\"", "network_mirror"] {
            assert!(merged.contains(part), "{merged}");
        }
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
    fn quoted_names_of_overrides_stay_as_the_tool_requires_them() {
        for own in [
            "provider_installation {\n  dev_overrides {\n    \"hashicorp/null\" = \"/p\"\n  }\n  direct {}\n}\n",
            r#"{"provider_installation": [{"dev_overrides": {"hashicorp/null": "/p"}, "direct": {}}]}"#,
        ] {
            let merged = beside(own).unwrap();
            let overrides = "dev_overrides {\n    \"hashicorp/null\" = \"/p\"\n  }\n";
            assert!(merged.contains(overrides), "{merged}");
            let places =
                ["dev_overrides", "network_mirror", "direct {"].map(|word| merged.find(word));
            assert!(places.is_sorted() && places[0].is_some(), "{merged}");
        }
    }

    #[test]
    fn a_file_that_does_not_parse_is_named_without_its_text() {
        for (own, place) in [
            ("\ncredentials \"x\" { token = \"hunter2 }\n", "rc:2:"),
            ("{\"credentials\":\n {\"x\": {\"token\": \"hunter2\"}}", "rc:2:"),
        ] {
            let why = beside(own).unwrap_err();
            assert!(why.contains(place) && !why.contains("hunter2"), "{why}");
        }
    }
}
