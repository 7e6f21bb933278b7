//! The tool that an order asks for.

use crate::order::job::JobError;
use crate::order::layer::{Layer, LayerSpec, Merged, RepositorySpec, ToolSpec};
use crate::version::ToolName;

type Request = Option<(String, &'static str)>;

/// The tool, and the version of it, that the flags or the layer ask for.
pub(super) fn tool(
    flag: Option<ToolName>,
    version: Option<String>,
    layer: Option<&Layer>,
) -> Result<(Option<ToolName>, Request), JobError> {
    let spec = layer.map(|layer| &layer.spec);
    let merged = spec.map(|spec| Merged::new(spec, &RepositorySpec::default())).unwrap_or_default();
    let enabled = |tool: &ToolSpec| tool.enabled == Some(true);
    if spec.is_some_and(|spec| enabled(&spec.terraform) && enabled(&spec.opentofu)) {
        let both = "the layer enables both terraform and opentofu; one of them is meant";
        return Err(JobError::Config(both.to_owned()));
    }
    let enabled = merged.tool;
    if let Some(spec) = spec.filter(|_| flag.is_none() && enabled.is_none()) {
        check_disabled(spec)?;
    }
    let version_of = |tool: &ToolSpec| tool.version.clone().filter(|version| !version.is_empty());
    let asked = spec.map(|spec| (version_of(&spec.terraform), version_of(&spec.opentofu)));
    // A version alone names its tool, too.
    let implied = match &asked {
        Some((Some(_), None)) => Some(ToolName::Terraform),
        Some((None, Some(_))) => Some(ToolName::Tofu),
        _ => None,
    };
    let tool = flag.or(enabled).or(implied);
    let asked = asked.and_then(|(terraform, opentofu)| match tool {
        Some(ToolName::Terraform) => Some((terraform?, "the layer's spec.terraform.version")),
        Some(ToolName::Tofu) => Some((opentofu?, "the layer's spec.opentofu.version")),
        Some(ToolName::Terragrunt) | None => None,
    });
    let request = version.map(|version| (version, "--tool-version")).or(asked);
    Ok((tool, request))
}

/// As Burrito, which runs no tool where one is disabled and none enabled. Where the layer leaves both open, the
/// code decides.
fn check_disabled(spec: &LayerSpec) -> Result<(), JobError> {
    for (field, tool, other) in
        [("terraform", &spec.terraform, "opentofu"), ("opentofu", &spec.opentofu, "terraform")]
    {
        if tool.enabled == Some(false) {
            return Err(JobError::Config(format!(
                "the layer's spec.{field}.enabled is false and no tool is enabled: set \
                 spec.{other}.enabled or spec.{field}.enabled to true, or name the tool with --tool"
            )));
        }
    }
    Ok(())
}
