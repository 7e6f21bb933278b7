//! The values that a plan marks as sensitive, in the output of `show -json`. It is read as a stream, one resource at a time.
//!
//! Beside every value the format has a value of the same shape, in which `true` marks what is sensitive: `after` and
//! `after_sensitive`, `values` and `sensitive_values`, `value` and `sensitive`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufReader, Read};

use datastore_api::json::Plain;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::process::redact::values::{Secret, add_fields};

/// What a message calls the values.
const NAME: &str = "a sensitive value of the plan";
/// The values and their marks.
const PAIRS: [(&str, &str); 4] = [
    ("before", "before_sensitive"),
    ("after", "after_sensitive"),
    ("values", "sensitive_values"),
    ("value", "sensitive"),
];

/// The sensitive values of a plan: of resources, data sources and outputs, planned and in the state before, and of the
/// variables of its root module.
pub(crate) fn of_plan(json: impl Read) -> Result<Vec<Secret>, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_reader(BufReader::new(json));
    let mut secrets = Vec::new();
    let at = Place { at: At::Document, secrets: &mut secrets };
    at.deserialize(&mut json)?;
    // The same value is planned, in the state, and in outputs.
    secrets.sort_by(|a, b| a.value.expose_secret().cmp(b.value.expose_secret()));
    secrets.dedup_by(|a, b| a.value.expose_secret() == b.value.expose_secret());
    Ok(secrets)
}

/// Where in the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Document,
    /// The state before: its `values` are a whole module.
    State,
    /// Modules, resources and changes.
    Any,
    /// Names of users, and their values.
    Outputs,
}

struct Place<'a> {
    at: At,
    secrets: &'a mut Vec<Secret>,
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plan as JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { at, secrets } = self;
        while items.next_element_seed(Place { at, secrets: &mut *secrets })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { at, secrets } = self;
        let mut held = BTreeMap::<String, Value>::new();
        let mut variables = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            let within = match (at, key.as_str()) {
                (At::Document, "resource_changes" | "resource_drift" | "planned_values") => At::Any,
                (At::Document, "output_changes") | (At::Any, "outputs") => At::Outputs,
                (At::Document, "prior_state") => At::State,
                (At::Document, "variables") => {
                    variables = map.next_value()?;
                    continue;
                }
                (At::Document, "configuration") => {
                    let Configuration { root_module } = map.next_value()?;
                    add_variables(&root_module.variables, &variables, secrets);
                    continue;
                }
                (At::State, "values") | (At::Outputs, _) => At::Any,
                (At::Document | At::State, _) => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                (At::Any, key) => {
                    if PAIRS.iter().any(|(value, mark)| [*value, *mark].contains(&key)) {
                        held.insert(key.to_owned(), map.next_value()?);
                        continue;
                    }
                    At::Any
                }
            };
            map.next_value_seed(Place { at: within, secrets: &mut *secrets })?;
        }
        for (value, mark) in PAIRS {
            if let (Some(value), Some(mark)) = (held.get(value), held.get(mark)) {
                add_marked(value, mark, secrets);
            }
        }
        Ok(())
    }
}

/// Adds the parts of a value that are marked.
fn add_marked(value: &Value, mark: &Value, secrets: &mut Vec<Secret>) {
    match (value, mark) {
        (value, Value::Bool(true)) => add_fields(NAME, value, true, secrets),
        (Value::Object(fields), Value::Object(marks)) => {
            for (name, mark) in marks {
                fields.get(name).into_iter().for_each(|field| add_marked(field, mark, secrets));
            }
        }
        (Value::Array(items), Value::Array(marks)) => {
            items.iter().zip(marks).for_each(|(item, mark)| add_marked(item, mark, secrets));
        }
        _ => {}
    }
}

fn add_variables(
    declared: &BTreeMap<String, Declared>,
    values: &BTreeMap<String, Given>,
    secrets: &mut Vec<Secret>,
) {
    let given =
        values.iter().filter(|(name, _)| declared.get(*name).is_some_and(|it| it.sensitive));
    given.for_each(|(name, given)| add_fields(name, &given.value, true, secrets));
}

/// The value of a variable.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Given {
    value: Plain,
}

/// What is read of the configuration in a plan.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Configuration {
    root_module: RootModule,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RootModule {
    variables: BTreeMap<String, Declared>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Declared {
    sensitive: bool,
}
