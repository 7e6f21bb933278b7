//! What a plan is bound to: `binding.json`, stored beside it once and never replaced by another plan's.
//!
//! An apply compares it with what it finds, and refuses every difference. The document may be signed. This module does
//! not depend on who may read or write it in the datastore.

mod renderings;
mod report;
mod signature;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use datastore_api::{Attempt, RunKey, Sha256};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub(crate) use renderings::{RENDERINGS, Renderings, file_name};
pub(crate) use signature::{KeyError, SigningKey, VerifyKey};

use crate::basis::backend::Backend;
use crate::basis::binding::signature::Signature;
use crate::basis::modules::Modules;
use crate::basis::named_files::NamedFiles;
use crate::basis::outside_files::OutsideFiles;
use crate::basis::place::PlanPlace;
use crate::basis::plan_file::StateVersion;
use crate::basis::providers::{self, Digests, Unread};
use crate::release::Installed;
use crate::report::inputs::InputsReport;
use crate::report::{
    AbsolutePaths, DESTROY, PLAN, PlanRecord, PlanReport, PlanTimes, Report, ToolRecord,
};
use crate::source::references::installed::Called;

/// Its name beside the plan.
pub(crate) const FILE: &str = "binding.json";
/// The version of the document that this runner writes.
const VERSION: u32 = 1;

/// What a plan is bound to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Binding {
    version: u32,
    namespace: String,
    layer: String,
    run: String,
    /// The attempt under which the plan is stored. Earlier runners did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<Attempt>,
    /// The digest of `plan.bin`.
    pub(crate) plan: Sha256,
    /// Whether `runner destroy` has made the plan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    destroy: bool,
    /// Whether the arguments of the plan had `-destroy`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    destroy_mode: bool,
    /// What people read of the plan. Earlier runners did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    renderings: Option<Renderings>,
    /// The snapshot of the working directory, if there is one.
    pub(crate) workspace: Option<Workspace>,
    /// The digest of `.terraform.lock.hcl`, after the plan.
    pub(crate) lock_file_sha256: Option<Sha256>,
    pub(crate) tool: BoundTool,
    pub(crate) terragrunt: Option<BoundTool>,
    pub(crate) place: Option<PlanPlace>,
    /// The path of the code, where it is in no known repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// When its run began and when it was made. Earlier runners did not record it.
    #[serde(flatten)]
    pub(crate) times: PlanTimes,
    pub(crate) backend: Option<Backend>,
    pub(crate) revision: Option<String>,
    /// The branch, tag or commit that the order named.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    named_revision: Option<String>,
    pub(crate) configuration_sha256: Option<Sha256>,
    /// The digest of the code that was unpacked, or copied from a directory that is dirty or without git, before init.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_sha256: Option<Sha256>,
    /// One digest of the files that the module reads of its source, before init.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code_sha256: Option<Sha256>,
    /// The files that the configuration names, where no commit records what they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    named_files: Option<NamedFiles>,
    /// Files outside of the source that the configuration names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outside_files: Option<OutsideFiles>,
    /// The directory in which the plan was made, if values of the plan contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    absolute_paths: Option<AbsolutePaths>,
    /// The directories of the modules that the code calls by a path which is not literal.
    #[serde(default, skip_serializing_if = "Called::is_empty")]
    called_modules: Called,
    /// The modules that init had downloaded.
    #[serde(default, skip_serializing_if = "Modules::is_empty")]
    modules: Modules,
    /// The providers' versions, by their addresses.
    pub(crate) providers: Option<BTreeMap<String, String>>,
    /// The digests of the providers' packages, for the tool's platform.
    #[serde(default, skip_serializing_if = "Digests::is_empty")]
    provider_digests: Digests,
    /// The dependencies for which terragrunt used mock outputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) mocks: Vec<String>,
    /// The layer's `apply-sum`, where the plan changes nothing and it became the layer's `plan-sum`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept_sum: Option<String>,
    /// The outputs of other layers with which the plan was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inputs: Option<InputsReport>,
    /// The layer's own outputs that the plan changes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    changed_outputs: BTreeSet<String>,
    /// The tool's arguments, without the values of variables.
    arguments: Vec<String>,
    /// The version of the state that the plan was made of.
    pub(crate) state: Option<StateVersion>,
    /// Whether the document that was read has a signature, verified or not.
    #[serde(skip)]
    pub(crate) is_signed: bool,
}

/// The snapshot of a plan's working directory, `workspace.tar.zst`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Workspace {
    pub(crate) sha256: Sha256,
    /// The working directory inside the snapshot.
    pub(crate) path: PathBuf,
    /// The directory of which the snapshot was made.
    pub(crate) directory: PathBuf,
    /// Which values of the plan contain that directory. They are wrong in another one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) absolute_paths: Vec<String>,
}

/// A tool that made the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BoundTool {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The digest of its binary.
    pub(crate) sha256: Sha256,
    /// The operating system and the architecture of the binary.
    platform: String,
}

/// The binding does not hold.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindingError {
    #[error("the {FILE} of the plan {plan} cannot be read: {reason}")]
    Unreadable { plan: String, reason: String },
    #[error("the plan {plan} has no {FILE}, although its run.json records one")]
    Missing { plan: String },
    #[error("the plan {plan} is not signed, and --verify-key requires a signature")]
    Unsigned { plan: String },
    #[error("run.json of {plan} differs from its signed {FILE}: {what}")]
    Report { plan: String, what: String },
    #[error("the signature of the plan {plan} is not of the key of --verify-key: {reason}")]
    Signature { plan: String, reason: String },
    #[error(
        "--no-plan makes its own plan, which is not signed, and --verify-key requires a signature"
    )]
    Unplanned,
    #[error("the provider {provider} cannot be compared with that of the plan {plan}: {reason}")]
    UnreadProvider { plan: String, provider: String, reason: String },
    #[error("the plan {plan} is bound to another {what}: {theirs}; here it is {ours}")]
    Differs { plan: String, what: &'static str, theirs: String, ours: String },
}

/// The document: the binding and its signature.
#[derive(Debug, Deserialize)]
struct Document {
    binding: Box<RawValue>,
    #[serde(default)]
    signature: Option<Signature>,
}

/// The part of the binding that every version has.
#[derive(Debug, Deserialize)]
struct Versioned {
    version: u32,
}

impl BoundTool {
    fn new(tool: &Installed) -> Self {
        let (name, version) = (tool.tool.to_string(), tool.version.to_string());
        Self { name, version, sha256: tool.sha256, platform: platform() }
    }

    /// The difference between the plan's binary and this one: both digests. Binaries of different platforms differ.
    fn difference(&self, ours: &Installed) -> Option<(String, String)> {
        let differs = self.platform == platform() && self.sha256 != ours.sha256;
        let named = |sha256| format!("{} {} with the sha256 {sha256}", self.name, self.version);
        differs.then(|| (named(self.sha256), named(ours.sha256)))
    }
}

/// The operating system and the architecture of this process, with Rust's names.
fn platform() -> String {
    format!("{}_{}", std::env::consts::OS, std::env::consts::ARCH)
}

/// What the binding of a new plan takes from its run.
pub(crate) struct Bound<'a> {
    pub(crate) run: &'a RunKey,
    pub(crate) attempt: Attempt,
    pub(crate) plan: Sha256,
    pub(crate) renderings: Option<Renderings>,
    pub(crate) workspace: Option<Workspace>,
    pub(crate) report: &'a Report,
    pub(crate) source: Option<&'a str>,
    pub(crate) tool: &'a Installed,
    pub(crate) terragrunt: Option<&'a Installed>,
    pub(crate) provider_digests: Digests,
    pub(crate) arguments: Vec<String>,
    pub(crate) state: Option<StateVersion>,
}

impl Binding {
    /// The binding of a new plan.
    pub(crate) fn new(bound: Bound<'_>) -> Self {
        let Bound {
            run,
            attempt,
            plan,
            renderings,
            workspace,
            report,
            source,
            tool,
            terragrunt,
            provider_digests,
            arguments,
            state,
        } = bound;
        Self {
            version: VERSION,
            namespace: run.namespace.to_string(),
            layer: run.layer.to_string(),
            run: run.run.to_string(),
            attempt: Some(attempt),
            plan,
            destroy: report.action == DESTROY,
            destroy_mode: report.destroy_mode,
            renderings,
            workspace,
            lock_file_sha256: report.lock_file_sha256,
            tool: BoundTool::new(tool),
            terragrunt: terragrunt.map(BoundTool::new),
            place: report.place.clone(),
            source: source.map(str::to_owned),
            times: PlanTimes { started: Some(report.started), planned: report.planned },
            backend: report.backend.clone(),
            revision: report.revision.clone(),
            named_revision: report.named_revision.clone(),
            configuration_sha256: report.configuration_sha256,
            source_sha256: report.source_sha256,
            code_sha256: report.code_sha256,
            named_files: report.named_files.clone(),
            outside_files: report.outside_files.clone(),
            absolute_paths: report.absolute_paths.clone(),
            called_modules: report.called_modules.clone(),
            modules: report.modules.clone(),
            providers: report.providers.clone(),
            provider_digests,
            mocks: report.mocks.clone(),
            kept_sum: report.kept_sum.clone(),
            inputs: report.inputs.clone(),
            changed_outputs: report.changed_outputs.clone(),
            arguments,
            state,
            is_signed: false,
        }
    }

    /// Where the code comes from: the repository, or else its path.
    pub(crate) fn source(&self) -> Option<&str> {
        let repository = self.place.as_ref().and_then(|place| place.repository.as_deref());
        repository.or(self.source.as_deref())
    }

    /// The tool's arguments, without the values of variables.
    pub(crate) fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// The document, signed if there is a key.
    pub(crate) fn to_json(&self, key: Option<&SigningKey>) -> String {
        let binding = serde_json::to_string(self);
        let binding = binding.expect("a binding has only text keys and whole numbers");
        let signature = key.map(|key| key.sign(binding.as_bytes()));
        let signature = serde_json::to_string(&signature);
        let signature = signature.expect("a signature has only text");
        format!("{{\"binding\":{binding},\n\"signature\":{signature}}}\n")
    }

    /// Reads the document of a plan of this attempt, if that is known, and verifies its signature if there is a key.
    pub(crate) fn parse(
        json: &[u8],
        plan: &str,
        (run, attempt): (&RunKey, Option<Attempt>),
        key: Option<&VerifyKey>,
    ) -> Result<Self, BindingError> {
        let unreadable =
            |reason: String| BindingError::Unreadable { plan: plan.to_owned(), reason };
        let document = serde_json::from_slice::<Document>(json);
        let Document { binding, signature } =
            document.map_err(|error| unreadable(error.to_string()))?;
        let is_signed = signature.is_some();
        if let Some(key) = key {
            let signature =
                signature.ok_or_else(|| BindingError::Unsigned { plan: plan.to_owned() })?;
            key.verify(binding.get().as_bytes(), &signature)
                .map_err(|reason| BindingError::Signature { plan: plan.to_owned(), reason })?;
        }
        let parsing = |error: serde_json::Error| unreadable(error.to_string());
        let Versioned { version } = serde_json::from_str(binding.get()).map_err(parsing)?;
        if version != VERSION {
            return Err(unreadable(format!(
                "it has version {version}, and this runner reads version {VERSION}"
            )));
        }
        let read = serde_json::from_str::<Self>(binding.get()).map_err(parsing)?;
        let read = Self { is_signed, ..read };
        let theirs = format!("{}/{}", read.namespace, read.layer);
        let ours = format!("{}/{}", run.namespace, run.layer);
        same(plan, "layer", &theirs, &ours)?;
        same(plan, "run", &read.run, run.run.as_ref())?;
        match (read.attempt, attempt) {
            (Some(theirs), Some(ours)) => {
                same(plan, "attempt", &theirs.to_string(), &ours.to_string())?;
            }
            (None, _) if key.is_some() => {
                let reason = "an earlier version wrote it, without the attempt; plan again";
                return Err(unreadable(reason.to_owned()));
            }
            _ => {}
        }
        Ok(read)
    }

    /// The plan's record, of which `binding.json` has all that an apply compares.
    pub(crate) fn record(&self, record: Option<PlanRecord>) -> PlanRecord {
        let of = |tool: &BoundTool| ToolRecord {
            name: tool.name.clone(),
            version: tool.version.clone(),
        };
        let own = record.as_ref().and_then(|record| record.plan.as_ref());
        let plan = PlanReport {
            sha256: self.plan,
            run: own.and_then(|own| own.run.clone()),
            attempt: own.and_then(|own| own.attempt),
            counts: self.counts().or_else(|| own.and_then(|own| own.counts)),
        };
        PlanRecord {
            action: if self.destroy { DESTROY } else { PLAN }.to_owned(),
            plan: Some(plan),
            revision: self.revision.clone(),
            named_revision: self.named_revision.clone(),
            tool: Some(of(&self.tool)),
            terragrunt: self.terragrunt.as_ref().map(of),
            place: self.place.clone(),
            backend: self.backend.clone(),
            configuration_sha256: self.configuration_sha256,
            source_sha256: self.source_sha256,
            code_sha256: self.code_sha256,
            named_files: self.named_files.clone(),
            outside_files: self.outside_files.clone(),
            absolute_paths: self.absolute_paths(),
            called_modules: self.called_modules.clone(),
            modules: self.modules.clone(),
            providers: self.providers.clone(),
            mocks: self.mocks.clone(),
            arguments: Some(self.arguments.clone()),
            destroy_mode: self.destroy_mode,
            bound: true,
            kept_sum: self.kept_sum.clone(),
            inputs: self.inputs.clone(),
            changed_outputs: self.changed_outputs.clone(),
            times: self.times.or(record.as_ref().map(|record| record.times)),
            applies_in_snapshot: self.applies_in_snapshot(),
            ..record.unwrap_or_default()
        }
    }

    /// Whether there is a snapshot, and the plan does not contain its directory, nor has its state there.
    fn applies_in_snapshot(&self) -> bool {
        let state = self.backend.as_ref().and_then(Backend::state_file);
        let is_tied = state.is_some_and(Path::is_relative) || self.absolute_paths().is_some();
        self.workspace.is_some() && !is_tied
    }

    /// Which values of the plan contain its directory. Earlier runners recorded them only for a snapshot.
    fn absolute_paths(&self) -> Option<AbsolutePaths> {
        let of_snapshot = || {
            let Workspace { path, directory, absolute_paths, .. } = self.workspace.as_ref()?;
            let (directory, values) = (directory.join(path), absolute_paths.clone());
            (!values.is_empty()).then_some(AbsolutePaths { directory, values })
        };
        self.absolute_paths.clone().or_else(of_snapshot)
    }

    /// Refuses other bytes of the plan.
    pub(crate) fn check_plan(&self, plan: &str, sha256: Sha256) -> Result<(), BindingError> {
        same(plan, "plan", &format!("sha256 {}", self.plan), &format!("sha256 {sha256}"))
    }

    /// Refuses another binary of a tool, where it is for the platform on which the plan was made.
    pub(crate) fn check_tools(
        &self,
        plan: &str,
        tool: &Installed,
        terragrunt: Option<&Installed>,
    ) -> Result<(), BindingError> {
        let of_terragrunt = self.terragrunt.as_ref().zip(terragrunt);
        for (theirs, ours) in [(&self.tool, tool)].into_iter().chain(of_terragrunt) {
            if let Some((theirs, ours)) = theirs.difference(ours) {
                return same(plan, "binary", &theirs, &ours);
            }
        }
        Ok(())
    }

    /// Whether the package of a provider is compared: on the platform on which the plan was made.
    pub(crate) fn compares_provider(&self, address: &str) -> bool {
        self.tool.platform == platform() && self.provider_digests.contains_key(address)
    }

    /// Refuses another package of a provider that is compared, and one that could not be read.
    pub(crate) fn check_providers(
        &self,
        plan: &str,
        ours: &Digests,
        unread: &Unread,
    ) -> Result<(), BindingError> {
        if self.tool.platform != platform() {
            return Ok(());
        }
        if let Some((provider, error)) = unread.first_key_value() {
            let (plan, provider) = (plan.to_owned(), provider.clone());
            return Err(BindingError::UnreadProvider { plan, provider, reason: error.to_string() });
        }
        match providers::difference(&self.provider_digests, ours) {
            Some((theirs, ours)) => same(plan, "provider", &theirs, &ours),
            None => Ok(()),
        }
    }

    /// Refuses other bytes of the snapshot.
    pub(crate) fn check_snapshot(&self, plan: &str, sha256: Sha256) -> Result<(), BindingError> {
        let theirs = self.workspace.as_ref().map(|workspace| workspace.sha256);
        same(plan, "snapshot", &shown(theirs), &shown(Some(sha256)))
    }

    /// Refuses another lock file.
    pub(crate) fn check_lock_file(
        &self,
        plan: &str,
        sha256: Option<Sha256>,
    ) -> Result<(), BindingError> {
        same(plan, "lock file", &shown(self.lock_file_sha256), &shown(sha256))
    }

    /// Refuses another version of the state.
    pub(crate) fn check_state(&self, plan: &str, ours: &StateVersion) -> Result<(), BindingError> {
        let Some(theirs) = &self.state else { return Ok(()) };
        if theirs.lineage != ours.lineage && !theirs.lineage.is_empty() {
            let ours = if ours.lineage.is_empty() { "no state" } else { &ours.lineage };
            return same(plan, "lineage of the state", &theirs.lineage, ours);
        }
        let serial = |of: &StateVersion| of.serial.to_string();
        same(plan, "serial of the state", &serial(theirs), &serial(ours))
    }
}

fn shown(sha256: Option<Sha256>) -> String {
    sha256.map_or_else(|| "none".to_owned(), |sha256| format!("sha256 {sha256}"))
}

/// Refuses a difference.
fn same(plan: &str, what: &'static str, theirs: &str, ours: &str) -> Result<(), BindingError> {
    if theirs == ours {
        return Ok(());
    }
    let (plan, theirs, ours) = (plan.to_owned(), theirs.to_owned(), ours.to_owned());
    Err(BindingError::Differs { plan, what, theirs, ours })
}
