//! Reads the changes of a plan in the output of `show -json` as a stream, one change at a time.

use std::fmt;
use std::io::{BufReader, Read};
use std::marker::PhantomData;

use datastore_api::plan::is_readable;
use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use crate::run::apply::remainder::planned::Value;
use crate::run::plan::summary::PlanError;

/// A change of a resource or an output.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Changed {
    /// The address of a resource, the name of an output.
    pub(super) address: String,
    previous_address: Option<String>,
    /// The key of an object that an apply could not destroy.
    pub(super) deposed: Option<String>,
    pub(super) action_reason: Option<String>,
    pub(super) change: Change,
}

/// What changes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Change {
    pub(super) actions: Vec<String>,
    pub(super) before: Option<Box<RawValue>>,
    after: Option<Box<RawValue>>,
    after_unknown: Option<Box<RawValue>>,
    after_sensitive: Option<Box<RawValue>>,
    /// terraform 1.12 and later: what identifies the object for its provider.
    pub(super) before_identity: Option<Box<RawValue>>,
    /// The attributes for which it is replaced, each as a path.
    pub(super) replace_paths: Vec<Box<RawValue>>,
    pub(super) importing: Option<Box<RawValue>>,
}

/// A resource in the state of which the plan was made.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Prior {
    pub(super) address: String,
    mode: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    values: Option<Box<RawValue>>,
    sensitive_values: Option<Box<RawValue>>,
}

impl Prior {
    fn is_data(&self) -> bool {
        self.mode == "data"
    }

    pub(super) fn values(&self) -> Value<'_> {
        let (known, sensitive) = (self.values.as_deref(), self.sensitive_values.as_deref());
        Value { known, unknown: None, sensitive }
    }
}

impl Changed {
    /// The address before, if the resource is moved.
    pub(super) fn moved_from(&self) -> Option<&str> {
        self.previous_address.as_deref().filter(|previous| *previous != self.address)
    }
}

impl Change {
    /// Whether the plan does nothing here but keep what is there.
    pub(super) fn is_no_op(&self) -> bool {
        self.actions.iter().all(|action| action == "no-op") && self.importing.is_none()
    }

    pub(super) fn planned(&self) -> Value<'_> {
        Value {
            known: self.after.as_deref(),
            unknown: self.after_unknown.as_deref(),
            sensitive: self.after_sensitive.as_deref(),
        }
    }
}

/// Takes the changes of a plan as they are read.
pub(super) trait Visit {
    fn resource(&mut self, changed: &Changed) -> serde_json::Result<()>;
    fn output(&mut self, name: &str, change: &Change) -> serde_json::Result<()>;
    /// The value of a variable of the root module.
    fn variable(&mut self, _name: String, _value: &RawValue) -> serde_json::Result<()> {
        Ok(())
    }
    /// A data source that was read for the plan.
    fn data(&mut self, _read: &Prior) -> serde_json::Result<()> {
        Ok(())
    }
    /// A change that was made outside of the tool.
    fn drift(&mut self);
    /// An action that the apply invokes.
    fn action(&mut self);
}

/// Reads a plan to its end.
pub(super) fn read<V: Visit>(json: impl Read, visit: &mut V) -> Result<(), PlanError> {
    let mut format_version = String::new();
    let document = Document { format_version: &mut format_version, visit };
    let mut json = serde_json::Deserializer::from_reader(BufReader::new(json));
    json.deserialize_map(document)?;
    json.end()?;
    if !is_readable(&format_version) {
        return Err(PlanError::Format(format_version));
    }
    Ok(())
}

struct Document<'a, V> {
    format_version: &'a mut String,
    visit: &'a mut V,
}

impl<'de, V: Visit> Visitor<'de> for Document<'_, V> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plan as JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let visit = self.visit;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "format_version" => *self.format_version = map.next_value()?,
                "resource_changes" => {
                    map.next_value_seed(list(|changed: Changed| visit.resource(&changed)))?;
                }
                "variables" => map.next_value_seed(Variables(&mut *visit))?,
                "prior_state" => {
                    let way = &["values", "root_module"];
                    map.next_value_seed(Module { way, visit: &mut *visit })?;
                }
                "output_changes" => map.next_value_seed(Outputs(&mut *visit))?,
                "resource_drift" => map.next_value_seed(list(|_: IgnoredAny| {
                    visit.drift();
                    Ok(())
                }))?,
                "action_invocations" => map.next_value_seed(list(|_: IgnoredAny| {
                    visit.action();
                    Ok(())
                }))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// A list, or null, whose elements go to a function.
struct List<T, F>(F, PhantomData<T>);

fn list<T, F: FnMut(T) -> serde_json::Result<()>>(each: F) -> List<T, F> {
    List(each, PhantomData)
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> serde_json::Result<()>> DeserializeSeed<'de>
    for List<T, F>
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> serde_json::Result<()>> Visitor<'de> for List<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element()? {
            (self.0)(element).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// The changes of outputs by name, or null.
struct Outputs<'a, V>(&'a mut V);

impl<'de, V: Visit> DeserializeSeed<'de> for Outputs<'_, V> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, V: Visit> Visitor<'de> for Outputs<'_, V> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("output changes by name")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((name, change)) = map.next_entry::<String, Change>()? {
            self.0.output(&name, &change).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// The values of variables by name, or null.
struct Variables<'a, V>(&'a mut V);

impl<'de, V: Visit> DeserializeSeed<'de> for Variables<'_, V> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, V: Visit> Visitor<'de> for Variables<'_, V> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("variables by name")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
            self.0.variable(name, &value).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// The resources of a module and of those that it calls. `way`: the names that lead to it.
struct Module<'a, V> {
    way: &'static [&'static str],
    visit: &'a mut V,
}

impl<'de, V: Visit> DeserializeSeed<'de> for Module<'_, V> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, V: Visit> Visitor<'de> for Module<'_, V> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a module with its resources")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { way, visit } = self;
        while let Some(key) = map.next_key::<String>()? {
            match (way, key.as_str()) {
                ([next, way @ ..], key) if key == *next => {
                    map.next_value_seed(Module { way, visit: &mut *visit })?;
                }
                ([], "resources") => map.next_value_seed(list(|resource: Prior| {
                    if resource.is_data() { visit.data(&resource) } else { Ok(()) }
                }))?,
                ([], "child_modules") => map.next_value_seed(Modules(&mut *visit))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The modules that a module calls, or null.
struct Modules<'a, V>(&'a mut V);

impl<'de, V: Visit> DeserializeSeed<'de> for Modules<'_, V> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, V: Visit> Visitor<'de> for Modules<'_, V> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of modules")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Module { way: &[], visit: &mut *self.0 })?.is_some() {}
        Ok(())
    }
}
