//! What an order was made of, and the name under which it may be delivered again. A repeated order is compared with the
//! record of its apply. Values of variables are never recorded, only one salted digest of all of them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use datastore_api::Sha256;
use datastore_api::digest::Hasher;
use fs_err as fs;
use secrecy::{ExposeSecret as _, SecretSlice};
use serde::{Deserialize, Serialize};

use crate::cli::Variable;
use crate::source::references::installed::Called;
use crate::tool::argv::PlanOptions;

/// The first bytes of what is hashed: no digest of one kind is one of another.
const INPUTS: &str = "plancha: inputs of an order, version 1";
const KEY: &str = "plancha: key of an order, version 1";

/// What an order without a stored plan was made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OrderRecord {
    /// The commit, with `-dirty` where code differs from it.
    pub(crate) revision: Option<String>,
    /// The digest of the root module's configuration files, before init.
    pub(crate) configuration_sha256: Option<Sha256>,
    /// The digest of all files of an archive or a copy, and in a directory that is used in place of those that the
    /// configuration names.
    #[serde(default)]
    pub(crate) source_sha256: Option<Sha256>,
    /// The directories of the modules that the code calls by a path which is not literal, after init: their files count as well.
    #[serde(default, skip_serializing_if = "Called::is_empty")]
    pub(crate) called_modules: Called,
    /// None where a file with variables could not be read, or only once.
    inputs: Option<Inputs>,
}

/// The variables and arguments of an order, as one digest. The salt keeps equal ones of two orders from having the same
/// digest, and a table of likely values from being of use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Inputs {
    /// Random bytes, in base64.
    salt: String,
    sha256: Sha256,
}

/// Variables and arguments for the tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToolInputs<'a> {
    pub(crate) options: &'a PlanOptions,
    /// `TF_VAR_*` and `TF_CLI_ARGS*`.
    pub(crate) variables: &'a BTreeMap<OsString, SecretSlice<u8>>,
}

impl OrderRecord {
    /// The record of an order.
    pub(crate) fn new(
        revision: Option<String>,
        configuration_sha256: Option<Sha256>,
        source_sha256: Option<Sha256>,
        inputs: ToolInputs<'_>,
    ) -> Self {
        if let Some(file) = inputs.read_once() {
            tracing::warn!(
                "--var-file {} is a pipe, which only the tool can read: its values are not recorded, so a repeated order is \
                 not compared with the variables and arguments of this one; name a file to have them compared",
                file.display()
            );
        }
        Self {
            revision,
            configuration_sha256,
            source_sha256,
            called_modules: Called::new(),
            inputs: Inputs::new(inputs),
        }
    }

    /// How the order `ours` differs from this one. What one side does not know is not compared.
    pub(crate) fn difference(&self, ours: &Self, inputs: ToolInputs<'_>) -> Option<String> {
        if let (Some(theirs), Some(ours)) = (&self.revision, &ours.revision)
            && theirs != ours
        {
            return Some(format!("another revision: {theirs}; now it is {ours}"));
        }
        if let (Some(theirs), Some(ours)) = (self.configuration_sha256, ours.configuration_sha256)
            && theirs != ours
        {
            return Some(format!(
                "another configuration: sha256 {theirs}; now it is sha256 {ours}"
            ));
        }
        if let (Some(theirs), Some(ours)) = (self.source_sha256, ours.source_sha256)
            && theirs != ours
        {
            return Some(format!("another source: sha256 {theirs}; now it is sha256 {ours}"));
        }
        let recorded = self.inputs.as_ref()?;
        (recorded.is_of(inputs) == Some(false))
            .then(|| "other variables or arguments (only their digest is recorded)".to_owned())
    }
}

impl Inputs {
    /// `None`: something cannot be read twice.
    fn new(inputs: ToolInputs<'_>) -> Option<Self> {
        let mut salt = [0; 32];
        aws_lc_rs::rand::fill(&mut salt).ok()?;
        let sha256 = inputs.digest(&salt)?;
        Some(Self { salt: BASE64_STANDARD.encode(salt), sha256 })
    }

    /// Whether these are the recorded ones. `None`: that cannot be found out.
    fn is_of(&self, inputs: ToolInputs<'_>) -> Option<bool> {
        let salt = BASE64_STANDARD.decode(&self.salt).ok()?;
        Some(inputs.digest(&salt)? == self.sha256)
    }
}

impl ToolInputs<'_> {
    /// The first file with variables that is no plain file.
    fn read_once(&self) -> Option<&Path> {
        let is_plain = |file: &Path| fs::metadata(file).is_ok_and(|file| file.is_file());
        let mut files = self.options.variables.iter().filter_map(|variable| match variable {
            Variable::File(file) => Some(&**file),
            Variable::Value(_) => None,
        });
        files.find(|file| !is_plain(file))
    }

    fn digest(self, salt: &[u8]) -> Option<Sha256> {
        let Self { options, variables } = self;
        let PlanOptions { variables: values, targets, replaces, args, destroy, no_lock: _ } =
            options;
        let mut parts = Parts::default();
        parts.add(INPUTS, salt);
        for variable in values {
            match variable {
                Variable::Value(value) => parts.add("var", value.as_bytes()),
                Variable::File(file) => {
                    // The path may be another one in every delivery. Its end decides how the tool reads the file.
                    let is_json = file.extension().is_some_and(|end| end == "json");
                    let kind = if is_json { "var-file, JSON" } else { "var-file" };
                    parts.add(kind, &contents(file).ok()??.0);
                }
            }
        }
        let lists = [("target", targets), ("replace", replaces), ("argument", args)];
        for (kind, values) in lists {
            for value in values {
                parts.add(kind, value.as_bytes());
            }
        }
        if *destroy {
            parts.add("mode", b"destroy");
        }
        for (name, value) in variables {
            parts.add("variable", name.as_encoded_bytes());
            parts.add("value", value.expose_secret());
        }
        Some(parts.0.finish())
    }
}

/// The digest of a file with variables. `None`: it is not a plain file, and can perhaps be read only once.
fn contents(path: &Path) -> io::Result<Option<Sha256>> {
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    Sha256::of_reader(fs::File::open(path)?).map(Some)
}

/// Hashes parts, each with its length: no part can be taken for the beginning of another.
#[derive(Default)]
struct Parts(Hasher);

impl Parts {
    fn add(&mut self, kind: &str, bytes: &[u8]) {
        for part in [kind.as_bytes(), bytes] {
            self.0.update(&(part.len() as u64).to_be_bytes());
            self.0.update(part);
        }
    }
}

/// The key of an order, as it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OrderKey {
    /// The digest of the key.
    pub(crate) sha256: Sha256,
    /// How many applies under this key came before. `--again` repeats an order.
    pub(crate) index: u32,
}

impl OrderKey {
    /// The key of an order's first apply.
    pub(crate) fn first(key: &str) -> Self {
        let mut parts = Parts::default();
        parts.add(KEY, key.as_bytes());
        Self { sha256: parts.0.finish(), index: 0 }
    }

    /// The key of the next apply.
    pub(crate) fn next(self) -> Self {
        Self { index: self.index.saturating_add(1), ..self }
    }

    /// The digest under which the apply is recorded in the layer, beside the digests of plans.
    pub(crate) fn record_sha256(self) -> Sha256 {
        let mut parts = Parts::default();
        parts.add(KEY, &self.sha256.0);
        parts.add("index", &self.index.to_be_bytes());
        parts.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_changes_the_digest_and_none_is_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            fs::write(dir.path().join(name), text).unwrap();
            dir.path().join(name)
        };
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let none = PlanOptions::default;
        let of_file = |name: &str, text: &str| Variable::File(file(name, text));
        let (a, b) = (of_file("a.tfvars", "x = 1"), of_file("b.tfvars", "x = 2"));
        let json = of_file("a.tfvars.json", "x = 1");
        let value = |text: &str| Variable::Value(text.to_owned());
        let set = |variables: &[&Variable]| PlanOptions {
            variables: variables.iter().map(|&variable| variable.clone()).collect(),
            ..PlanOptions::default()
        };
        let options = [
            none(),
            set(&[&a]),
            set(&[&json]),
            set(&[&a, &b]),
            set(&[&b, &a]),
            set(&[&a, &value("x=1")]),
            set(&[&value("x=1"), &a]),
            set(&[&value("x=1")]),
            set(&[&value("x="), &value("1")]),
            PlanOptions { targets: texts(&["x=1"]), ..none() },
            PlanOptions { replaces: texts(&["x=1"]), ..none() },
            PlanOptions { args: texts(&["x=1"]), ..none() },
            PlanOptions { destroy: true, ..none() },
        ];
        let secret = BTreeMap::from([(OsString::from("TF_VAR_x"), b"secret".to_vec().into())]);
        let unset = BTreeMap::new();
        let inputs = options.iter().map(|options| ToolInputs { options, variables: &unset });
        let inputs = inputs.chain([ToolInputs { options: &options[0], variables: &secret }]);
        let inputs = inputs.collect::<Vec<_>>();
        for (i, ours) in inputs.iter().enumerate() {
            let recorded = Inputs::new(*ours).unwrap();
            assert_ne!(recorded, Inputs::new(*ours).unwrap(), "salted");
            assert!(!serde_json::to_string(&recorded).unwrap().contains("secret"));
            for (j, theirs) in inputs.iter().enumerate() {
                assert_eq!(recorded.is_of(*theirs), Some(i == j), "{i} {j}");
            }
        }
        let moved = set(&[&of_file("moved.tfvars", "x = 1")]);
        let same = Inputs::new(inputs[1]).unwrap();
        assert_eq!(same.is_of(ToolInputs { options: &moved, variables: &unset }), Some(true));
        let unreadable = set(&[&Variable::File("/dev/null".into())]);
        assert_eq!(same.is_of(ToolInputs { options: &unreadable, variables: &unset }), None);
    }

    #[test]
    fn keys_of_an_order_are_neither_equal_nor_digests_of_the_text() {
        let (a, b) = (OrderKey::first("a"), OrderKey::first("b"));
        let digests = [a, a.next(), b, b.next()].map(OrderKey::record_sha256);
        for (i, digest) in digests.iter().enumerate() {
            assert!(!digests[i + 1..].contains(digest) && *digest != Sha256::of(b"a"));
        }
    }
}
