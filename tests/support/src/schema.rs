//! Burrito's own resource definitions, applied to objects as an API server applies them: unknown fields
//! are pruned, defaults are set, and what the schema forbids is refused.
//!
//! It knows types, `required`, `enum`, maps, lists and `x-kubernetes-int-or-string`, and the two rules in
//! CEL that Burrito has. It does not know patterns, formats and lengths: nothing here depends on them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

/// The schemas of Burrito's resources, by their plural names.
#[derive(Clone, Debug)]
pub struct Schemas(HashMap<String, Value>);

const FILES: [&str; 4] = [
    "terraformlayers.yaml",
    "terraformpullrequests.yaml",
    "terraformrepositories.yaml",
    "terraformruns.yaml",
];

impl Schemas {
    /// The directory with the definitions of Burrito's chart. `None`: it is not on this machine. With
    /// `CI=true` that is an error, since the tests would then accept objects that no real API server does.
    #[expect(clippy::disallowed_methods, reason = "CI says what must be there")]
    #[expect(clippy::print_stderr, reason = "a check that is skipped should say so")]
    pub fn directory() -> Option<PathBuf> {
        let shared =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/burrito_crds");
        if shared.is_dir() {
            return Some(shared);
        }
        let required = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(!required, "CI=true, but Burrito's CRDs are missing: {}", shared.display());
        eprintln!("skipped: objects are not checked against Burrito's CRDs ({})", shared.display());
        None
    }

    /// Burrito's schemas, where [`Self::directory`] has them.
    pub fn load() -> Option<Self> {
        let directory = Self::directory()?;
        let schema = |file: &&str| {
            let text = std::fs::read_to_string(directory.join(file)).unwrap();
            let mut definition: Value = serde_saphyr::from_str(&text).unwrap();
            let plural = definition["spec"]["names"]["plural"].as_str().unwrap().to_owned();
            (plural, definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take())
        };
        Some(Self(FILES.iter().map(schema).collect()))
    }

    /// The schema of a resource.
    pub fn of(&self, plural: &str) -> &Value {
        &self.0[plural]
    }

    /// Prunes an object, sets its defaults and validates it. Returns the fields that were pruned.
    pub fn admit(&self, plural: &str, object: &mut Value) -> Result<Vec<String>, String> {
        let mut pruned = Vec::new();
        let whole = object.as_object_mut().ok_or("not an object")?;
        for field in ["spec", "status"] {
            if let Some(value) = whole.get_mut(field) {
                let schema = &self.0[plural]["properties"][field];
                prune(value, schema, field, &mut pruned);
                validate(value, schema, field)?;
            }
        }
        Ok(pruned)
    }
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema["properties"].as_object()
}

fn prune(value: &mut Value, schema: &Value, path: &str, pruned: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (number, item) in items.iter_mut().enumerate() {
                prune(item, &schema["items"], &format!("{path}[{number}]"), pruned);
            }
        }
        Value::Object(fields) => {
            if schema["x-kubernetes-preserve-unknown-fields"] == true {
                return;
            }
            let any = &schema["additionalProperties"];
            let known = |name: &str| {
                let known = properties(schema).and_then(|properties| properties.get(name));
                known.or(Some(any).filter(|any| !any.is_null()))
            };
            let unknown = fields.keys().filter(|name| known(name).is_none()).cloned();
            for name in unknown.collect::<Vec<_>>() {
                fields.remove(&name);
                pruned.push(format!("{path}.{name}"));
            }
            for (name, default) in properties(schema).into_iter().flatten() {
                if !default["default"].is_null() && !fields.contains_key(name) {
                    fields.insert(name.clone(), default["default"].clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(schema) = known(name) {
                    prune(value, schema, &format!("{path}.{name}"), pruned);
                }
            }
        }
        _ => {}
    }
}

fn validate(value: &Value, schema: &Value, path: &str) -> Result<(), String> {
    let fits = match schema["type"].as_str() {
        _ if schema["x-kubernetes-int-or-string"] == true => value.is_i64() || value.is_string(),
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some(other) => panic!("{path}: the double does not know the type {other}"),
        None => true,
    };
    if !(fits || value.is_null() && schema["nullable"] == true) {
        return Err(format!("{path}: Invalid value: {value}: must be of type {}", schema["type"]));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        return Err(format!("{path}: Unsupported value: {value}: supported values: {allowed:?}"));
    }
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        rule_holds(value, rule["message"].as_str().unwrap_or_default(), path)?;
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        if value.get(required.as_str().unwrap_or_default()).is_none() {
            return Err(format!(
                "{path}.{}: Required value",
                required.as_str().unwrap_or_default()
            ));
        }
    }
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        validate(item, &schema["items"], &format!("{path}[{number}]"))?;
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        let known = properties(schema).and_then(|properties| properties.get(name));
        let schema = known.unwrap_or(&schema["additionalProperties"]);
        validate(field, schema, &format!("{path}.{name}"))?;
    }
    Ok(())
}

/// Burrito has two rules in CEL. A third one must be added here before tests can rely on the double.
fn rule_holds(value: &Value, message: &str, path: &str) -> Result<(), String> {
    let both = |enabled: bool| {
        ["terraform", "opentofu"].iter().all(|tool| value[*tool]["enabled"] == enabled)
    };
    let broken = match message {
        "Both terraform.enabled and opentofu.enabled cannot be true at the same time" => both(true),
        "Both terraform.enabled and opentofu.enabled cannot be false at the same time" => {
            both(false)
        }
        other => panic!("{path}: the double does not know the rule `{other}`"),
    };
    if broken { Err(format!("{path}: Invalid value: {message}")) } else { Ok(()) }
}
