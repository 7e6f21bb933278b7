//! JSON of others, read as a value.
//!
//! `serde_json` has a private name for the text of a raw value. It parses that text anew wherever an object of that name is read
//! as a [`Value`], and each time with the whole limit of depth: a few KiB of others could exhaust the stack, which ends the
//! process. Here the name is one like any other.

use std::fmt;
use std::ops::Deref;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The name of raw values.
const RAW: &str = "$serde_json::private::RawValue";

/// A value of any form, at most as deep as `serde_json` reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plain(pub Value);

/// An object of any form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlainObject(pub Map<String, Value>);

impl Deref for Plain {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

struct AnyValue;

impl Plain {
    /// How deep it is: 0 for a text, a number, a Boolean or null.
    pub fn levels(&self) -> usize {
        levels(&self.0)
    }

    /// Whether a member of it has the name of raw values, so that it is another value for who reads it without this module.
    pub fn has_raw_name(&self) -> bool {
        has_raw_name(&self.0)
    }
}

fn levels(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(levels).max().unwrap_or_default(),
        Value::Object(members) => 1 + members.values().map(levels).max().unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn has_raw_name(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.iter().any(has_raw_name),
        Value::Object(members) => {
            members.iter().any(|(name, value)| name == RAW || has_raw_name(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue).map(Self)
    }
}

impl<'de> Deserialize<'de> for PlainObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Plain::deserialize(deserializer)? {
            Plain(Value::Object(object)) => Ok(Self(object)),
            Plain(_) => Err(D::Error::custom("expected an object")),
        }
    }
}

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Plain(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Plain(value))) = members.next_entry::<String, Plain>()? {
            object.insert(name, value);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_read_as_it_is_written() {
        let value = json!({
            "a": [1, -2, 1.5, 18_446_744_073_709_551_615_u64, true, null, "é\n"],
            "b": {"": {}, "c": []},
        });
        let text = value.to_string();
        assert_eq!(serde_json::from_str::<Plain>(&text).unwrap(), Plain(value.clone()));
        let PlainObject(object) = serde_json::from_str(&text).unwrap();
        assert_eq!(Value::Object(object), value);
        serde_json::from_str::<PlainObject>("[]").unwrap_err();
    }

    #[test]
    fn a_text_under_the_name_of_raw_values_stays_a_text_and_the_depth_is_limited() {
        let raw = json!([{"a": {RAW: "[[[1]]]"}}]);
        let plain = serde_json::from_str::<Plain>(&raw.to_string()).unwrap();
        assert!(plain.has_raw_name() && plain.levels() == 3);
        assert_eq!(plain, Plain(raw));
        assert!(!Plain(json!([{"a": RAW}])).has_raw_name());
        for (levels, is_read) in [(127, true), (128, false)] {
            let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            assert_eq!(serde_json::from_str::<Plain>(&text).is_ok(), is_read, "{levels}");
        }
    }
}
