//! The tool's CLI configuration when a mirror of providers is to be asked: the user's own, with the
//! mirror before everything else.
//!
//! A `direct` beside it would be no fallback: terraform asks all the ways that fit a provider, and fails
//! where one of them does (seen with 1.11.4), so that either outage would be one. The way past a mirror
//! that is down, or stale, is a second init without it; [`crate::action`] takes it.

use std::io;
use std::path::Path;

use fs_err as fs;
use hcl_edit::structure::Body;

/// The configuration, made of the user's own file if there is one.
pub(crate) fn cli_config(url: &str, own: Option<&Path>) -> io::Result<String> {
    let own = match own.map(fs::read_to_string) {
        None => String::new(),
        // The tool warns of a missing file, and goes on; so do we.
        Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Some(text) => text?,
    };
    let invalid = |error: &dyn std::error::Error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("the CLI configuration: {error}"))
    };
    let mut body = own.parse::<Body>().map_err(|error| invalid(&error))?;
    // Quoted as JSON, and no template.
    let url = serde_json::Value::from(url).to_string().replace("${", "$${").replace("%{", "%%{");
    let mirror = format!("\n  network_mirror {{\n    url = {url}\n  }}\n");
    let blocks = |text: &str| text.parse::<Body>().map_err(|error| invalid(&error));
    if body.has_blocks("provider_installation") {
        for installation in body.get_blocks_mut("provider_installation") {
            for (at, block) in blocks(&mirror)?.into_iter().enumerate() {
                installation.body.insert(at, block);
            }
        }
    } else {
        let text = format!("\nprovider_installation {{{mirror}}}\n");
        blocks(&text)?.into_iter().for_each(|block| body.push(block));
    }
    Ok(body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://burrito-hermitcrab.burrito-system.svc.cluster.local/v1/providers/";

    /// RN14: what upstream writes, but for white space.
    #[test]
    fn the_mirror_alone_where_the_user_has_no_ways() {
        insta::assert_snapshot!(cli_config(URL, None).unwrap(), @r#"
        provider_installation {
          network_mirror {
            url = "https://burrito-hermitcrab.burrito-system.svc.cluster.local/v1/providers/"
          }
        }
        "#);
    }

    #[test]
    fn the_users_own_configuration_stays() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("rc");
        let credentials = "credentials \"example.com\" {\n  token = \"t\"\n}\n";
        fs::write(&own, credentials).unwrap();
        let merged = cli_config(URL, Some(&own)).unwrap();
        assert!(merged.starts_with(credentials) && merged.contains("network_mirror"), "{merged}");

        let installation =
            "provider_installation {\n  filesystem_mirror {\n    path = \"/p\"\n  }\n}\n";
        fs::write(&own, installation).unwrap();
        let merged = cli_config(URL, Some(&own)).unwrap();
        assert_eq!(merged.matches("provider_installation").count(), 1, "{merged}");
        assert!(merged.find("network_mirror") < merged.find("filesystem_mirror"), "{merged}");
        assert!(merged.parse::<Body>().is_ok());

        assert!(cli_config(URL, Some(&dir.path().join("missing"))).is_ok());
        fs::write(&own, "{").unwrap();
        assert!(cli_config(URL, Some(&own)).is_err());
    }
}
