//! Which layers a layer needs, and which of their outputs it takes: flags and annotations of its manifest, parsed once. Values
//! are not known here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use datastore_api::{Name, RunKey};

use crate::cli::{InputArgs, Variable};
use crate::order::layer::Layer;

/// The annotation that lists the layers which a layer needs, separated by commas.
const NEEDS: &str = "plancha/needs";
/// The annotations that list the outputs which a layer takes, separated by commas.
const VAR_FROM: &str = "plancha/var-from";
const FILE_FROM: &str = "plancha/file-from";
/// The annotation that lists the outputs which must have a value after an apply, separated by commas.
const REQUIRED: &str = "plancha/required-outputs";
/// The file with the values of variables, in the private directory of the layer.
const VAR_FILE: &str = "inputs.tfvars.json";
/// The longest name of an output or variable, in bytes: a file is named by it.
const MAX_NAME: usize = 200;

/// What cannot be meant.
#[derive(Debug)]
pub(crate) enum InputError {
    /// By a flag.
    Flag(String),
    /// By the manifest.
    Manifest(String),
}

/// A layer, as another one names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LayerRef {
    pub(crate) namespace: Name,
    pub(crate) name: Name,
}

impl LayerRef {
    /// `NAME` in this namespace, or `NAMESPACE/NAME`.
    pub(crate) fn parse(text: &str, namespace: &Name) -> Result<Self, String> {
        let name = |text: &str| text.parse::<Name>().map_err(|error| error.to_string());
        Ok(match text.split_once('/') {
            Some((namespace, layer)) => Self { namespace: name(namespace)?, name: name(layer)? },
            None => Self { namespace: namespace.clone(), name: name(text)? },
        })
    }
}

impl fmt::Display for LayerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One output that a layer takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) layer: LayerRef,
    pub(crate) output: String,
    /// The variable that gets the value, or the path of the file with it.
    pub(crate) variable: String,
    pub(crate) is_file: bool,
}

impl Input {
    /// `LAYER:OUTPUT[=VAR]`; of a file `LAYER:OUTPUT=VAR`.
    fn parse(text: &str, is_file: bool, namespace: &Name) -> Result<Self, String> {
        let form = if is_file { "LAYER:OUTPUT=VAR" } else { "LAYER:OUTPUT[=VAR]" };
        let wrong = |reason: &str| format!("`{text}`: {reason}: expected {form}");
        let (from, variable) = match text.split_once('=') {
            Some((from, variable)) => (from, Some(variable.trim())),
            None if is_file => return Err(wrong("it names no variable")),
            None => (text, None),
        };
        let (layer, output) = from.rsplit_once(':').ok_or_else(|| wrong("it names no output"))?;
        let output = output.trim();
        let variable = variable.unwrap_or(output);
        for name in [output, variable] {
            if !is_identifier(name) {
                return Err(wrong(&format!("`{name}` is no name of an output or variable")));
            }
        }
        let layer = LayerRef::parse(layer.trim(), namespace).map_err(|reason| wrong(&reason))?;
        Ok(Self { layer, output: output.to_owned(), variable: variable.to_owned(), is_file })
    }
}

/// Whether this can be the name of an output or variable, and so of a file.
pub(crate) fn is_identifier(text: &str) -> bool {
    let starts = |c: char| c.is_alphabetic() || c == '_';
    text.starts_with(starts)
        && text.len() <= MAX_NAME
        && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

/// What a layer takes from others, and what others may expect of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    /// By the names of the variables.
    pub(crate) list: Vec<Input>,
    /// The directory in which all layers have theirs.
    pub(crate) base: PathBuf,
    /// Whether the user has named it.
    pub(crate) is_named: bool,
    /// The private directory of this layer, below that.
    pub(crate) dir: PathBuf,
    /// All layers that it needs.
    pub(crate) needs: BTreeSet<LayerRef>,
    /// Those that are not among the layers of the command.
    pub(crate) elsewhere: Vec<LayerRef>,
    /// The outputs that must have a value after an apply.
    pub(crate) required: BTreeSet<String>,
    /// Whether the layer is destroyed although others need it (`--force-with-dependants`).
    pub(crate) force_with_dependants: bool,
}

impl Inputs {
    /// Those of flags and manifest. A flag wins over an annotation that sets the same variable.
    pub(crate) fn new(
        args: &InputArgs,
        layer: Option<&Layer>,
        run: &RunKey,
    ) -> Result<Self, InputError> {
        let namespace = &run.namespace;
        let of_flags = of_flags(args, namespace).map_err(InputError::Flag)?;
        let of_layer = layer.map(|layer| of_layer(layer, namespace)).transpose();
        let mut by_variable = of_layer.map_err(InputError::Manifest)?.unwrap_or_default();
        by_variable.extend(of_flags);
        let list = by_variable.into_values().collect::<Vec<_>>();
        let mut needs = needs_of(layer, &list, namespace).map_err(InputError::Manifest)?;
        needs.extend(needs_of_flags(&args.needs, run).map_err(InputError::Flag)?);
        let own = LayerRef { namespace: namespace.clone(), name: run.layer.clone() };
        if needs.contains(&own) {
            return Err(InputError::Manifest(format!("the layer {own} needs itself")));
        }
        let is_elsewhere = |layer: &&LayerRef| !args.in_command.contains(&layer.to_string());
        let elsewhere = needs.iter().filter(is_elsewhere).cloned().collect();
        let base = args.inputs_dir.clone().unwrap_or_else(default_base);
        let base = std::path::absolute(&base).unwrap_or(base);
        Ok(Self {
            list,
            dir: base.join(namespace.as_ref()).join(run.layer.as_ref()),
            base,
            is_named: args.inputs_dir.is_some(),
            needs,
            elsewhere,
            required: required(args, layer)?,
            force_with_dependants: false,
        })
    }

    /// The file with the values of variables. It comes before those of the user, whose values win.
    pub(crate) fn var_file(&self) -> PathBuf {
        self.dir.join(VAR_FILE)
    }

    /// Has the tool read them, if there are any, before the values that the user gives.
    pub(crate) fn add_to(&self, variables: &mut Vec<Variable>) {
        if !self.list.is_empty() {
            variables.insert(0, Variable::File(self.var_file()));
        }
    }
}

/// The layers that a manifest needs, also those whose outputs it takes.
pub(crate) fn needs(layer: &Layer, namespace: &Name) -> Result<BTreeSet<LayerRef>, String> {
    let list = of_layer(layer, namespace)?.into_values().collect::<Vec<_>>();
    needs_of(Some(layer), &list, namespace)
}

fn needs_of(
    layer: Option<&Layer>,
    list: &[Input],
    namespace: &Name,
) -> Result<BTreeSet<LayerRef>, String> {
    let named = layer.into_iter().flat_map(|layer| entries(layer, NEEDS));
    let named = named.map(|text| {
        LayerRef::parse(text, namespace)
            .map_err(|reason| format!("the annotation {NEEDS}: `{text}`: {reason}"))
    });
    named.chain(list.iter().map(|input| Ok(input.layer.clone()))).collect()
}

/// The needs of this layer among those of `--needs`.
fn needs_of_flags(needs: &[String], run: &RunKey) -> Result<BTreeSet<LayerRef>, String> {
    let mut found = BTreeSet::new();
    for text in needs {
        let wrong = |reason: &str| format!("--needs `{text}`: {reason}");
        let form = || wrong("expected LAYER=NEEDED[,NEEDED...]");
        let (layer, needed) = text.split_once('=').ok_or_else(form)?;
        let parse =
            |name: &str| LayerRef::parse(name.trim(), &run.namespace).map_err(|why| wrong(&why));
        let layer = parse(layer)?;
        if layer.namespace == run.namespace && layer.name == run.layer {
            for need in needed.split(',') {
                found.insert(parse(need)?);
            }
        }
    }
    Ok(found)
}

/// What flags set.
fn of_flags(args: &InputArgs, namespace: &Name) -> Result<BTreeMap<String, Input>, String> {
    let of = |flag: &str, texts: &[String], is_file| {
        let one = |text: &String| {
            Input::parse(text, is_file, namespace).map_err(|why| format!("{flag} {why}"))
        };
        texts.iter().map(one).collect::<Result<Vec<_>, _>>()
    };
    let vars = of("--var-from", &args.var_from, false)?;
    let files = of("--file-from", &args.file_from, true)?;
    by_variable(vars.into_iter().chain(files))
}

/// What the annotations of a manifest set.
fn of_layer(layer: &Layer, namespace: &Name) -> Result<BTreeMap<String, Input>, String> {
    let of = |name: &'static str, is_file| {
        let one = move |text: &str| {
            Input::parse(text, is_file, namespace)
                .map_err(|why| format!("the annotation {name}: {why}"))
        };
        entries(layer, name).map(one).collect::<Result<Vec<_>, _>>()
    };
    by_variable(of(VAR_FROM, false)?.into_iter().chain(of(FILE_FROM, true)?))
}

/// Each variable is set once.
fn by_variable(inputs: impl Iterator<Item = Input>) -> Result<BTreeMap<String, Input>, String> {
    let mut found = BTreeMap::new();
    for input in inputs {
        let variable = input.variable.clone();
        if let Some(other) = found.insert(variable.clone(), input) {
            let Input { layer, output, .. } = other;
            return Err(format!(
                "the variable {variable} is set twice, also to {layer}:{output}: leave one out"
            ));
        }
    }
    Ok(found)
}

/// The entries of an annotation.
fn entries<'a>(layer: &'a Layer, name: &str) -> impl Iterator<Item = &'a str> {
    let text = layer.own_annotation(name).unwrap_or_default();
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

fn required(args: &InputArgs, layer: Option<&Layer>) -> Result<BTreeSet<String>, InputError> {
    let of_layer = layer.into_iter().flat_map(|layer| entries(layer, REQUIRED));
    let of_layer = of_layer.map(|name| (name, REQUIRED));
    let of_flags = args.require_output.iter().map(|name| (name.trim(), "--require-output"));
    let mut names = BTreeSet::new();
    for (name, place) in of_layer.chain(of_flags) {
        if !is_identifier(name) {
            let text = format!("{place} `{name}`: this is no name of an output");
            let is_flag = place != REQUIRED;
            return Err(if is_flag { InputError::Flag(text) } else { InputError::Manifest(text) });
        }
        names.insert(name.to_owned());
    }
    Ok(names)
}

/// The directory for the private directories of all layers. It is the same in every container of one image and user.
fn default_base() -> PathBuf {
    std::env::temp_dir().join(format!("plancha-inputs-{}", nix::unistd::geteuid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(args: &InputArgs, annotations: &str) -> Result<Inputs, String> {
        let layer = format!("{{\"metadata\": {{\"annotations\": {{{annotations}}}}}}}");
        let layer: Layer = serde_json::from_str(&layer).unwrap();
        let name = |text: &str| text.parse::<Name>().unwrap();
        let run = RunKey { namespace: name("team"), layer: name("helm"), run: name("r") };
        Inputs::new(args, Some(&layer), &run)
            .map_err(|(InputError::Flag(text) | InputError::Manifest(text))| text)
    }

    fn flags(vars: &[&str], files: &[&str]) -> InputArgs {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        InputArgs { var_from: owned(vars), file_from: owned(files), ..InputArgs::default() }
    }

    #[test]
    fn flags_and_annotations_are_merged_and_what_is_taken_is_needed() {
        let annotations = r#""plancha/needs": "dns", "plancha/var-from": "cluster:name, ops/net:zone=region",
            "plancha/file-from": "cluster:kubeconfig=kubeconfig_path""#;
        let args = InputArgs {
            in_command: vec!["team/cluster".to_owned()],
            needs: vec!["helm=late,ops/later".to_owned(), "other=x".to_owned()],
            ..flags(&["other:name"], &[])
        };
        let found = inputs(&args, annotations).unwrap();
        let shown = |input: &Input| {
            let Input { layer, output, variable, is_file } = input;
            format!("{layer}:{output}={variable}{}", if *is_file { " file" } else { "" })
        };
        assert_eq!(
            found.list.iter().map(shown).collect::<Vec<_>>(),
            [
                "team/cluster:kubeconfig=kubeconfig_path file",
                "team/other:name=name",
                "ops/net:zone=region"
            ]
        );
        let elsewhere = found.elsewhere.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(elsewhere, ["ops/later", "ops/net", "team/dns", "team/late", "team/other"]);
        assert!(found.dir.ends_with("team/helm"), "{:?}", found.dir);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_place() {
        for (vars, files, text) in [
            (&["cluster"][..], &[][..], "--var-from `cluster`: it names no output"),
            (&["cluster:a=../x"], &[], "`../x` is no name"),
            (&["cluster:"], &[], "`` is no name"),
            (&["../x:a"], &[], "--var-from `../x:a`"),
            (&[], &["cluster:a"], "--file-from `cluster:a`: it names no variable"),
            (&["a:x", "b:x"], &[], "the variable x is set twice, also to team/a:x"),
            (&["a:x"], &["b:y=x"], "set twice"),
            (&["helm:x"], &[], "needs itself"),
        ] {
            let error = inputs(&flags(vars, files), "").unwrap_err();
            assert!(error.contains(text), "{error}");
        }
        let error = inputs(&flags(&[], &[]), r#""plancha/file-from": "x""#).unwrap_err();
        assert!(error.contains("the annotation plancha/file-from: `x`"), "{error}");
        let error = inputs(&flags(&[], &[]), r#""plancha/required-outputs": "a b""#).unwrap_err();
        assert!(error.contains("plancha/required-outputs `a b`"), "{error}");
    }
}
