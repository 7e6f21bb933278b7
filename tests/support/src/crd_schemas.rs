//! Schemas of Burrito's resources, applied to objects as an API server applies them: unknown fields are pruned,
//! defaults are set, and what the schema forbids is refused.
//!
//! It knows types, `required`, `enum`, maps, lists and `x-kubernetes-int-or-string`, and Burrito's two rules in
//! CEL. It does not know patterns, formats and lengths: no test depends on them.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value};

/// The schemas of Burrito's resources, by their plural names.
#[derive(Clone, Debug, Default)]
pub struct CrdSchemas(HashMap<String, Value>);

const PLURALS: [&str; 3] = ["terraformlayers", "terraformrepositories", "terraformruns"];

impl CrdSchemas {
    /// Burrito's full definitions if they are available, else [`Self::own`].
    pub fn load() -> Self {
        let directory = crate::shared_data("burrito_crds");
        directory.map_or_else(Self::own, |directory| Self::burritos(&directory))
    }

    /// The project's own, written from the fields that Burrito documents.
    pub fn own() -> Self {
        let text = include_str!("../../fixtures/burrito/schemas.yaml");
        let mut all: Value = serde_saphyr::from_str(text).unwrap();
        Self(PLURALS.map(|plural| (plural.to_owned(), all[plural].take())).into())
    }

    /// The definitions that Burrito's chart installs, from a directory.
    pub fn burritos(directory: &Path) -> Self {
        let schema = |plural: &str| {
            let text = std::fs::read_to_string(directory.join(format!("{plural}.yaml"))).unwrap();
            let mut definition: Value = serde_saphyr::from_str(&text).unwrap();
            let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            (plural.to_owned(), schema.take())
        };
        Self(PLURALS.map(schema).into())
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
        Some(other) => panic!("{path}: CrdSchemas does not know the type {other}"),
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

/// Burrito has two rules in CEL. A third one must be added here before tests can rely on it.
fn rule_holds(value: &Value, message: &str, path: &str) -> Result<(), String> {
    let both = |enabled: bool| {
        ["terraform", "opentofu"].iter().all(|tool| value[*tool]["enabled"] == enabled)
    };
    let broken = match message {
        "Both terraform.enabled and opentofu.enabled cannot be true at the same time" => both(true),
        "Both terraform.enabled and opentofu.enabled cannot be false at the same time" => {
            both(false)
        }
        other => panic!("{path}: CrdSchemas does not know the rule `{other}`"),
    };
    if broken { Err(format!("{path}: Invalid value: {message}")) } else { Ok(()) }
}
