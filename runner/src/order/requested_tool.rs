//! The tool that the flags or the layer request.

use crate::order::job::JobError;
use crate::order::layer::{EffectiveSpec, Layer, LayerSpec, RepositorySpec, ToolSpec};
use crate::version::ToolName;

type Request = Option<(String, &'static str)>;

/// The tool and its version, as far as the flags or the layer request them.
pub(super) fn requested_tool(
    flag: Option<ToolName>,
    version: Option<String>,
    layer: Option<&Layer>,
) -> Result<(Option<ToolName>, Request), JobError> {
    let spec = layer.map(|layer| &layer.spec);
    let merged =
        spec.map(|spec| EffectiveSpec::new(spec, &RepositorySpec::default())).unwrap_or_default();
    let enabled = |tool: &ToolSpec| tool.enabled == Some(true);
    if spec.is_some_and(|spec| enabled(&spec.terraform) && enabled(&spec.opentofu)) {
        let both = "the layer enables both terraform and opentofu: enable only one of them";
        return Err(JobError::Config(both.to_owned()));
    }
    let enabled = merged.tool;
    if let Some(spec) = spec.filter(|_| flag.is_none() && enabled.is_none()) {
        check_disabled(spec)?;
    }
    let version_of = |tool: &ToolSpec| tool.version.clone().filter(|version| !version.is_empty());
    let requested = spec.map(|spec| (version_of(&spec.terraform), version_of(&spec.opentofu)));
    // A version without `enabled` also selects its tool.
    let implied = match &requested {
        Some((Some(_), None)) => Some(ToolName::Terraform),
        Some((None, Some(_))) => Some(ToolName::Tofu),
        _ => None,
    };
    let tool = flag.or(enabled).or(implied);
    let requested = requested.and_then(|(terraform, opentofu)| match tool {
        Some(ToolName::Terraform) => Some((terraform?, "the layer's spec.terraform.version")),
        Some(ToolName::Tofu) => Some((opentofu?, "the layer's spec.opentofu.version")),
        Some(ToolName::Terragrunt) | None => None,
    });
    let request = version.map(|version| (version, "--tool-version")).or(requested);
    Ok((tool, request))
}

/// Refuses a layer that disables one tool and enables none, as Burrito does. If the layer sets neither, the code
/// decides.
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
