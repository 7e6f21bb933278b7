//! Development overrides in the tool's CLI configuration: directories whose binaries replace packages of providers. The
//! tool checks them with no lock file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fs_err as fs;
use hcl_edit::Ident;
use hcl_edit::expr::Expression;
use hcl_edit::structure::Body;

use crate::tool::cli_config::{self, INSTALLATION, OVERRIDES};
use crate::version::ToolName;

/// The directories in these files, by the full addresses of their providers. A relative one is below `dir`, in which the
/// tool runs. A file that is not understood is a warning if it names overrides.
pub(crate) fn dev_overrides(
    files: &[PathBuf],
    tool: ToolName,
    dir: &Path,
) -> BTreeMap<String, PathBuf> {
    let mut all = BTreeMap::new();
    for file in files {
        // The tool itself reports a file that cannot be read.
        let Ok(text) = fs::read_to_string(file) else { continue };
        if !text.contains(OVERRIDES) {
            continue;
        }
        let Ok(body) = cli_config::parse(&text) else {
            let file = file.display();
            tracing::warn!(
                "{file}: {OVERRIDES} is not understood, so its providers are not compared"
            );
            continue;
        };
        let overrides = overrides(&body).into_iter();
        all.extend(overrides.map(|(name, to)| (address(&name, tool), dir.join(to))));
    }
    all
}

/// The names of the providers, and their directories.
fn overrides(body: &Body) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for installation in body.get_blocks(INSTALLATION) {
        let values = installation.body.attributes().filter(|part| part.key.as_str() == OVERRIDES);
        for (key, value) in values.filter_map(|part| part.value.as_object()).flatten() {
            let name = key.as_expr().and_then(Expression::as_str);
            let name = name.or_else(|| key.as_ident().map(Ident::as_str));
            if let (Some(name), Some(to)) = (name, value.expr().as_str()) {
                found.push((name.to_owned(), to.to_owned()));
            }
        }
    }
    found
}

/// The full address of a provider, with the tool's own registry if it names none.
fn address(name: &str, tool: ToolName) -> String {
    let registry = match tool {
        ToolName::Tofu => "registry.opentofu.org",
        ToolName::Terraform | ToolName::Terragrunt => "registry.terraform.io",
    };
    match name.matches('/').count() {
        0 => format!("{registry}/hashicorp/{name}"),
        1 => format!("{registry}/{name}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_read_as_the_tool_writes_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rc");
        let read = |text: &str, tool| {
            fs::write(&file, text).unwrap();
            let found = dev_overrides(std::slice::from_ref(&file), tool, Path::new("/work"));
            found
                .into_iter()
                .map(|(name, to)| format!("{name} {}", to.display()))
                .collect::<Vec<_>>()
        };
        let block = "# dev_overrides { }\ndisable_checkpoint = true\nprovider_installation {\n  dev_overrides {\n    \
            \"hashicorp/null\" = \"/a\"\n    \"example.com/x/y\" = \"b\"\n  }\n  direct {}\n}\n";
        let terraform = ["example.com/x/y /work/b", "registry.terraform.io/hashicorp/null /a"]
            .map(str::to_owned);
        assert_eq!(read(block, ToolName::Terraform), terraform);
        let tofu = read(&block.replace("hashicorp/", ""), ToolName::Tofu);
        assert_eq!(tofu[1], "registry.opentofu.org/hashicorp/null /a");
        let json = r#"{"provider_installation": [{"dev_overrides": {"hashicorp/null": "/a", "example.com/x/y": "b"}}]}"#;
        assert_eq!(read(json, ToolName::Terraform), terraform);
        for none in
            ["", "provider_installation {\n  direct {}\n}\n", "dev_overrides }", "{dev_overrides"]
        {
            assert_eq!(read(none, ToolName::Terraform), Vec::<String>::new(), "{none}");
        }
    }
}
