//! A layer: Burrito's `TerraformLayer` (`config.terraform.padok.cloud/v1alpha1`), read from a manifest or a cluster, and
//! the annotations that a run writes to it. Only the fields that the runner uses are known here.

mod file;
mod kubernetes;

use std::collections::BTreeMap;

use datastore_api::{Attempt, Name};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::version::ToolName;

pub(crate) use crate::order::layer::file::{LayerError, LayerFile};
pub(crate) use crate::order::layer::kubernetes::{Cluster, ClusterError, ClusterFault, Order};

/// The prefix of the runner's annotations.
const PREFIX: &str = "runner.terraform.padok.cloud/";

/// A `TerraformLayer`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Layer {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) metadata: Metadata,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) spec: LayerSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

/// The `spec` of a `TerraformLayer`. Fields that the runner does not use may hold anything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LayerSpec {
    pub(crate) path: Option<String>,
    /// Branch or tag; may be a whole ref.
    pub(crate) branch: Option<String>,
    pub(crate) repository: Option<RepositoryRef>,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) terraform: ToolSpec,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) opentofu: ToolSpec,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) terragrunt: ToolSpec,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) remediation_strategy: RemediationStrategy,
}

/// The `TerraformRepository` of a layer.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RepositoryRef {
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<String>,
}

/// A `TerraformRepository`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Repository {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) spec: RepositorySpec,
}

/// The `spec` of a `TerraformRepository`. Its tools have the same fields as a layer's, but its field `repository` holds
/// a URL, where a layer's is a [`RepositoryRef`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RepositorySpec {
    repository: Option<RepositoryUrl>,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) terraform: ToolSpec,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) opentofu: ToolSpec,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) terragrunt: ToolSpec,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) remediation_strategy: RemediationStrategy,
}

/// The address of a repository.
#[derive(Clone, Debug, Deserialize)]
struct RepositoryUrl {
    url: Option<String>,
}

impl RepositorySpec {
    /// The URL of the repository.
    pub(crate) fn url(&self) -> Option<&str> {
        self.repository.as_ref()?.url.as_deref()
    }
}

/// Whether a tool is enabled, and in which version. An empty version is the same as none.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ToolSpec {
    pub(crate) enabled: Option<bool>,
    pub(crate) version: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RemediationStrategy {
    pub(crate) apply_without_plan_artifact: Option<bool>,
}

/// A field that is `null` gets its default, like a missing one.
fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Parses an object. The error names the field that cannot be read.
fn parse<T: DeserializeOwned>(json: &str) -> Result<T, String> {
    let deserializer = &mut serde_json::Deserializer::from_str(json);
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let text = error.to_string();
        // The line number is that of the API's answer, which the user does not see.
        text.split(" at line ").next().unwrap_or_default().to_owned()
    })
}

impl Layer {
    /// The value of the runner's annotation `key` (`plan-run`, `plan-sum` ...), unless empty.
    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.own_annotation(&format!("{PREFIX}{key}"))
    }

    /// An annotation by its whole name. An empty one counts as missing.
    pub(crate) fn own_annotation(&self, name: &str) -> Option<&str> {
        let value = self.metadata.annotations.as_ref()?.get(name)?;
        (!value.is_empty()).then_some(value)
    }
}

/// A layer, and the place that its annotations are written to.
#[derive(Debug)]
pub(crate) enum LayerHandle {
    /// A manifest.
    File(LayerFile),
    /// The Kubernetes API.
    Cluster { cluster: Cluster, namespace: Name, name: Name, layer: Box<Layer> },
}

impl LayerHandle {
    /// The layer as it was read.
    pub(crate) fn layer(&self) -> &Layer {
        match self {
            Self::File(file) => file.layer(),
            Self::Cluster { layer, .. } => layer,
        }
    }

    /// Sets the annotations. Those without a value are removed.
    pub(crate) async fn annotate(&self, annotations: &Annotations) -> Result<(), LayerError> {
        match self {
            Self::File(file) => file.annotate(annotations).await,
            Self::Cluster { cluster, namespace, name, .. } => {
                Ok(cluster.annotate(namespace, name, annotations).await?)
            }
        }
    }
}

/// The settings of a layer and its repository, merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EffectiveSpec {
    /// Terraform or OpenTofu, if one of them is enabled.
    pub(crate) tool: Option<ToolName>,
    /// The version of the tool, if one is set.
    pub(crate) version: Option<String>,
    /// The version of terragrunt, if it is enabled; empty if none is set.
    pub(crate) terragrunt: Option<String>,
    pub(crate) apply_without_plan: bool,
}

impl EffectiveSpec {
    /// Burrito's rules (`api/v1alpha1/common.go`): the layer wins over the repository. If the layer enables one tool, the
    /// other is disabled. If both are enabled, terraform wins.
    pub(crate) fn new(layer: &LayerSpec, repository: &RepositorySpec) -> Self {
        let enabled = |own: &ToolSpec, other: &ToolSpec, inherited: &ToolSpec| {
            other.enabled != Some(true) && own.enabled.or(inherited.enabled).unwrap_or(false)
        };
        let version = |own: &ToolSpec, inherited: &ToolSpec| {
            let named = [&own.version, &inherited.version];
            named.into_iter().flatten().find(|version| !version.is_empty()).cloned()
        };
        let terraform = enabled(&layer.terraform, &layer.opentofu, &repository.terraform);
        let opentofu = enabled(&layer.opentofu, &layer.terraform, &repository.opentofu);
        let (tool, named) = match (terraform, opentofu) {
            (true, _) => {
                (Some(ToolName::Terraform), version(&layer.terraform, &repository.terraform))
            }
            (false, true) => (Some(ToolName::Tofu), version(&layer.opentofu, &repository.opentofu)),
            (false, false) => (None, None),
        };
        let terragrunt = layer.terragrunt.enabled.or(repository.terragrunt.enabled);
        let unplanned = layer
            .remediation_strategy
            .apply_without_plan_artifact
            .or(repository.remediation_strategy.apply_without_plan_artifact);
        Self {
            tool,
            version: named,
            terragrunt: (terragrunt == Some(true))
                .then(|| version(&layer.terragrunt, &repository.terragrunt).unwrap_or_default()),
            apply_without_plan: unplanned == Some(true),
        }
    }
}

/// Annotations to write, in this order. Those without a value are removed, because they describe an earlier run.
pub(crate) type Annotations = Vec<(String, Option<String>)>;

/// Annotations for a message: `plan-date=..., plan-run=...`.
pub(crate) fn shown(annotations: &Annotations) -> String {
    let one = |(name, value): &(String, Option<String>)| {
        let name = name.rsplit('/').next().unwrap_or(name);
        match value {
            Some(value) => format!("{name}={value}"),
            None => format!("{name} (removed)"),
        }
    };
    annotations.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn annotation(key: &str, value: Option<String>) -> (String, Option<String>) {
    (format!("{PREFIX}{key}"), value)
}

/// The annotations of a plan. `sum` is its digest in base64, or the layer's `apply-sum` if the plan changes nothing.
pub(crate) fn plan_annotations(
    now: Timestamp,
    run: &Name,
    attempt: Attempt,
    sum: String,
    revision: Option<&str>,
) -> Annotations {
    vec![
        annotation("plan-date", Some(unix_date(now))),
        annotation("plan-run", Some(format!("{run}/{attempt}"))),
        annotation("plan-sum", Some(sum)),
        annotation("plan-commit", revision.map(str::to_owned)),
    ]
}

/// The annotations of an apply. `sum` is the plan's digest in base64: the controllers compare it with `plan-sum`.
pub(crate) fn apply_annotations(
    now: Timestamp,
    sum: Option<&str>,
    revision: Option<&str>,
) -> Annotations {
    vec![
        annotation("apply-date", Some(unix_date(now))),
        annotation("apply-sum", sum.map(str::to_owned)),
        annotation("apply-commit", revision.map(str::to_owned)),
    ]
}

/// A date in Go's format `time.UnixDate`, always in UTC. Burrito's controllers parse exactly this format, and ignore the
/// offset of any other time zone.
fn unix_date(now: Timestamp) -> String {
    now.to_zoned(TimeZone::UTC).strftime("%a %b %e %H:%M:%S UTC %Y").to_string()
}

#[cfg(test)]
mod tests {
    use datastore_api::Sha256;

    use super::*;

    fn spec<T: DeserializeOwned>(yaml: &str) -> T {
        serde_saphyr::from_str(yaml).unwrap()
    }

    /// RN08, RN09.
    #[test]
    fn a_layer_goes_before_its_repository_by_upstreams_rules() {
        let merged =
            |layer: &str, repository: &str| EffectiveSpec::new(&spec(layer), &spec(repository));
        let tool = |layer, repository| merged(layer, repository).tool;
        let (tf, tofu) = (Some(ToolName::Terraform), Some(ToolName::Tofu));
        assert_eq!(tool("path: .", "path: ."), None);
        assert_eq!(tool("terraform: {enabled: true}", "opentofu: {enabled: true}"), tf);
        assert_eq!(tool("opentofu: {enabled: true}", "terraform: {enabled: true}"), tofu);
        assert_eq!(tool("terraform: {enabled: false}", "terraform: {enabled: true}"), None);
        assert_eq!(tool("path: .", "{terraform: {enabled: true}, opentofu: {enabled: true}}"), tf);
        let both = "{terraform: {enabled: true}, opentofu: {enabled: true}}";
        assert_eq!(tool(both, "path: ."), None, "each keeps the other out");

        let version = |layer, repository| merged(layer, repository).version;
        let repository = "terraform: {enabled: true, version: \"1.5.7\"}";
        assert_eq!(version("path: .", repository).as_deref(), Some("1.5.7"));
        assert_eq!(version("terraform: {version: \"\"}", repository).as_deref(), Some("1.5.7"));
        assert_eq!(version("terraform: {version: \"1.9\"}", repository).as_deref(), Some("1.9"));

        let terragrunt = "terragrunt: {enabled: true, version: \"1.0.0\"}";
        assert_eq!(merged("path: .", terragrunt).terragrunt, Some("1.0.0".to_owned()));
        assert_eq!(merged("terragrunt: {enabled: false}", terragrunt).terragrunt, None);
        let unplanned = "remediationStrategy: {applyWithoutPlanArtifact: true}";
        assert!(merged("path: .", unplanned).apply_without_plan);
        let planned = "remediationStrategy: {applyWithoutPlanArtifact: false}";
        assert!(!merged(planned, unplanned).apply_without_plan);
    }

    /// RN09: each of the 81 combinations, by the getters of upstream's `common.go`, word for word.
    #[test]
    fn rn09_every_combination_of_enabled_chooses_upstreams_tool() {
        let states = [None, Some(true), Some(false)];
        let tool = |enabled| ToolSpec { enabled, version: None };
        let getter = |other: Option<bool>, layer: Option<bool>, repository: Option<bool>| {
            if other == Some(true) {
                return false;
            }
            match layer {
                Some(enabled) => enabled,
                None => repository.unwrap_or(false),
            }
        };
        let mut seen = 0;
        for (lt, lo) in states.iter().flat_map(|a| states.iter().map(move |b| (*a, *b))) {
            for (rt, ro) in states.iter().flat_map(|a| states.iter().map(move |b| (*a, *b))) {
                let expected = match (getter(lo, lt, rt), getter(lt, lo, ro)) {
                    (true, _) => Some(ToolName::Terraform),
                    (false, true) => Some(ToolName::Tofu),
                    (false, false) => None,
                };
                let layer =
                    LayerSpec { terraform: tool(lt), opentofu: tool(lo), ..LayerSpec::default() };
                let repository = RepositorySpec {
                    terraform: tool(rt),
                    opentofu: tool(ro),
                    ..RepositorySpec::default()
                };
                let merged = EffectiveSpec::new(&layer, &repository);
                assert_eq!(merged.tool, expected, "{lt:?} {lo:?} {rt:?} {ro:?}");
                seen += 1;
            }
        }
        assert_eq!(seen, 81);
    }

    fn fixture<T: DeserializeOwned>(yaml: &str) -> T {
        let object: serde_json::Value = serde_saphyr::from_str(yaml).unwrap();
        parse(&object.to_string()).unwrap()
    }

    /// Each object sets every documented field once, as Burrito's users and controllers write them.
    #[test]
    fn real_objects_with_every_documented_field_are_read() {
        let layer: Layer = fixture(include_str!("../../../tests/fixtures/burrito/layer.yaml"));
        let repository: Repository =
            fixture(include_str!("../../../tests/fixtures/burrito/repository.yaml"));
        let run: kubernetes::Run =
            fixture(include_str!("../../../tests/fixtures/burrito/run.yaml"));
        let spec = &layer.spec;
        assert_eq!(spec.path.as_deref(), Some("live/vpc"));
        assert_eq!(spec.branch.as_deref(), Some("main"));
        let named = spec.repository.as_ref().unwrap();
        assert_eq!(
            (named.name.as_deref(), named.namespace.as_deref()),
            (Some("infra"), Some("team"))
        );
        let expected = EffectiveSpec {
            tool: Some(ToolName::Tofu),
            version: Some("1.9.4".to_owned()),
            terragrunt: Some("1.0.0".to_owned()),
            apply_without_plan: true,
        };
        assert_eq!(EffectiveSpec::new(spec, &RepositorySpec::default()), expected);
        assert_eq!(EffectiveSpec::new(&LayerSpec::default(), &repository.spec), expected);
        assert_eq!(repository.spec.url(), Some("https://git.example.com/platform/infra.git"));
        assert_eq!(run.spec.layer.revision, "0123456789abcdef0123456789abcdef01234567");
        assert_eq!((&*run.spec.artifact.run, &*run.spec.artifact.attempt), ("vpc-plan-x4k2q", "0"));
        let attempt = run.attempt(Some("vpc-apply-2-jw5gh")).unwrap();
        assert_eq!(attempt, kubernetes::OrderedAttempt::Recorded(Attempt(1)));
    }

    #[test]
    fn fields_that_are_null_have_their_defaults() {
        let layer: Layer = parse(
            r#"{"metadata": null, "spec": {"path": null, "repository": {"name": null},
                "terraform": null, "opentofu": {"enabled": null}, "remediationStrategy": null}}"#,
        )
        .unwrap();
        assert_eq!(
            EffectiveSpec::new(&layer.spec, &RepositorySpec::default()),
            EffectiveSpec::default()
        );
        assert!(parse::<kubernetes::Run>(r#"{"spec": null, "status": null}"#).is_ok());
        assert!(parse::<Repository>("{}").is_ok());
    }

    #[test]
    fn dates_are_gos_unix_dates_with_a_space_padded_day() {
        let date = |text: &str| unix_date(text.parse().unwrap());
        assert_eq!(date("2026-08-01T09:05:03Z"), "Sat Aug  1 09:05:03 UTC 2026");
        assert_eq!(date("2026-11-20T23:59:59+02:00"), "Fri Nov 20 21:59:59 UTC 2026");
    }

    #[test]
    fn a_plan_and_an_apply_leave_burritos_annotations() {
        let now = "2026-08-01T09:05:03Z".parse().unwrap();
        let sum = Sha256::of(b"").to_base64();
        let run = "r".parse().unwrap();
        let plan = plan_annotations(now, &run, Attempt(2), sum, Some("abc"));
        let lines = |annotations: Annotations| {
            let line = |(key, value): (String, Option<String>)| {
                key + "=" + value.as_deref().unwrap_or("(none)") + "\n"
            };
            annotations.into_iter().map(line).collect::<String>()
        };
        insta::assert_snapshot!(lines(plan), @r"
        runner.terraform.padok.cloud/plan-date=Sat Aug  1 09:05:03 UTC 2026
        runner.terraform.padok.cloud/plan-run=r/2
        runner.terraform.padok.cloud/plan-sum=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=
        runner.terraform.padok.cloud/plan-commit=abc
        ");
        insta::assert_snapshot!(lines(apply_annotations(now, Some("sum="), None)), @r"
        runner.terraform.padok.cloud/apply-date=Sat Aug  1 09:05:03 UTC 2026
        runner.terraform.padok.cloud/apply-sum=sum=
        runner.terraform.padok.cloud/apply-commit=(none)
        ");
    }
}
