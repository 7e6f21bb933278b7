//! The values that a layer takes from the `outputs.json` of others. They stay as the tool has printed them: a number may have
//! more digits than a program keeps.

use std::collections::BTreeMap;
use std::path::Path;

use datastore_api::Sha256;
use secrecy::{ExposeSecret as _, SecretSlice};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::order::inputs::{Input, Inputs};
use crate::process::redact::values::{Secret, add_fields, secret_unless_common};
use crate::report::inputs::Taken;
use crate::run::inputs::directory::Contents;

/// The outputs of a layer, as `output -json` prints them.
pub(crate) type Outputs<'a> = BTreeMap<String, Output<'a>>;

/// One output. It has no `Debug`: it may be secret.
#[derive(Deserialize)]
pub(crate) struct Output<'a> {
    #[serde(default)]
    sensitive: bool,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
}

impl Output<'_> {
    /// Whether it has a value.
    pub(crate) fn is_set(&self) -> bool {
        self.value.is_some_and(|value| value.get() != "null")
    }

    /// The digest of its value as a variable gets it, and as a file has it.
    pub(super) fn digests(&self) -> Option<(Sha256, Sha256)> {
        let value = self.value.filter(|_| self.is_set())?;
        Some((Sha256::of(compact(value.get()).as_bytes()), Sha256::of(&of_file(value))))
    }
}

/// A value that was taken.
pub(super) struct Value {
    pub(super) taken: Taken,
    /// JSON, or the contents of the file.
    contents: SecretSlice<u8>,
}

/// Takes a value. `None`: there is none.
pub(super) fn take(input: &Input, outputs: &Outputs<'_>) -> Option<Value> {
    let output = outputs.get(&input.output)?;
    let value = output.value.filter(|_| output.is_set())?;
    let contents = if input.is_file { of_file(value) } else { compact(value.get()).into_bytes() };
    // Nothing can be done with an empty file: a provider would take its defaults for it.
    if input.is_file && contents.trim_ascii().is_empty() {
        return None;
    }
    let taken = Taken {
        layer: input.layer.to_string(),
        output: input.output.clone(),
        variable: input.variable.clone(),
        file: input.is_file,
        sensitive: output.sensitive,
        sha256: Sha256::of(&contents),
    };
    Some(Value { taken, contents: SecretSlice::from(contents) })
}

/// A text as it is, anything else as JSON.
fn of_file(value: &RawValue) -> Vec<u8> {
    match serde_json::from_str::<String>(value.get()) {
        Ok(text) => text.into_bytes(),
        Err(_) => compact(value.get()).into_bytes(),
    }
}

/// JSON without white space between its parts: the tool indents what it prints.
fn compact(json: &str) -> String {
    let (mut is_text, mut is_escaped) = (false, false);
    let keeps = |c: &char| {
        let keeps = is_text || !c.is_ascii_whitespace();
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = is_text,
            '"' => is_text = !is_text,
            _ => {}
        }
        keeps
    };
    json.chars().filter(keeps).collect()
}

/// The files of the private directory: one for each output that is taken as a file, and one with the values of all variables.
pub(super) fn files(inputs: &Inputs, values: &[Value]) -> Vec<Contents> {
    let mut variables = Vec::from(b"{");
    let mut files = Vec::new();
    for (at, Value { taken, contents }) in values.iter().enumerate() {
        if at > 0 {
            variables.push(b',');
        }
        variables.extend(quoted(&taken.variable));
        variables.push(b':');
        if taken.file {
            variables.extend(quoted(&inputs.dir.join(&taken.variable).to_string_lossy()));
            files.push((taken.variable.clone().into(), contents.clone()));
        } else {
            variables.extend(contents.expose_secret());
        }
    }
    variables.push(b'}');
    let name = inputs.var_file();
    let name = name.file_name().map_or(&*name, Path::new).to_owned();
    files.push((name, SecretSlice::from(variables)));
    files
}

fn quoted(text: &str) -> Vec<u8> {
    serde_json::to_vec(text).expect("a text")
}

/// What is secret in the values: an output that is sensitive is so wherever it is shown.
pub(super) fn secrets(values: &[Value]) -> Vec<Secret> {
    let mut secrets = Vec::new();
    for Value { taken, contents } in values.iter().filter(|value| value.taken.sensitive) {
        let name = format!("{}:{}", taken.layer, taken.output);
        let contents = contents.expose_secret();
        if taken.file {
            secrets.extend(secret_unless_common(&name, contents));
        }
        let document = match serde_json::from_slice(contents) {
            Ok(document) => document,
            Err(_) => serde_json::Value::String(String::from_utf8_lossy(contents).into_owned()),
        };
        add_fields(&name, &document, true, &mut secrets);
    }
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(output: &str, is_file: bool, json: &str) -> Option<(String, Taken)> {
        let outputs: Outputs<'_> = serde_json::from_str(json).unwrap();
        let namespace = "default".parse().unwrap();
        let layer = crate::order::inputs::LayerRef::parse("a", &namespace).unwrap();
        let (output, variable) = (output.to_owned(), "v".to_owned());
        let value = take(&Input { layer, output, variable, is_file }, &outputs)?;
        let text = String::from_utf8(value.contents.expose_secret().to_vec()).unwrap();
        Some((text, value.taken))
    }

    const OUTPUTS: &str = r#"{
        "text": {"sensitive": true, "type": "string", "value": "a \"b\" \\ ${c} \u00fc\n"},
        "none": {"sensitive": false, "type": "string", "value": null},
        "empty": {"sensitive": false, "type": "string", "value": " \n"},
        "number": {"sensitive": false, "type": "number", "value": 12345678901234567890123},
        "object": {"sensitive": false, "type": "dynamic", "value": {
            "a b" : [ 1, "x  \" y" ],
            "c": {}
        }}
    }"#;

    #[test]
    fn values_of_any_type_are_taken_as_the_tool_has_them() {
        let text = |output, is_file| taken(output, is_file, OUTPUTS).map(|(text, _)| text);
        assert_eq!(text("text", false).unwrap(), r#""a \"b\" \\ ${c} \u00fc\n""#);
        assert_eq!(text("text", true).unwrap(), "a \"b\" \\ ${c} ü\n");
        assert_eq!(text("number", false).unwrap(), "12345678901234567890123");
        assert_eq!(text("object", true).unwrap(), r#"{"a b":[1,"x  \" y"],"c":{}}"#);
        for (output, is_file) in
            [("none", false), ("none", true), ("missing", false), ("empty", true)]
        {
            assert!(taken(output, is_file, OUTPUTS).is_none(), "{output}");
        }
        assert!(text("empty", false).is_some());
    }

    #[test]
    fn the_digest_does_not_depend_on_white_space_between_values() {
        let compacted = r#"{"object":{"sensitive":false,"value":{"a b":[1,"x  \" y"],"c":{}}}}"#;
        let digest = |json| taken("object", false, json).unwrap().1.sha256;
        assert_eq!(digest(OUTPUTS), digest(compacted));
    }

    #[test]
    fn sensitive_outputs_are_masked_whatever_their_type() {
        let redaction = crate::process::redact::Redaction::default();
        let json = r#"{"x": {"sensitive": true, "value": {"list": ["hunter2hunter2"], "n": 1234567890}},
            "y": {"sensitive": false, "value": "public-value"}}"#;
        let outputs: Outputs<'_> = serde_json::from_str(json).unwrap();
        let layer = crate::order::inputs::LayerRef::parse("a", &"d".parse().unwrap()).unwrap();
        let values = ["x", "y"].map(|name| {
            let (layer, output, variable) = (layer.clone(), name.to_owned(), name.to_owned());
            take(&Input { layer, output, variable, is_file: false }, &outputs).unwrap()
        });
        redaction.add(secrets(&values));
        assert_eq!(
            redaction.text("hunter2hunter2 1234567890 public-value"),
            "*** *** public-value"
        );
    }
}
