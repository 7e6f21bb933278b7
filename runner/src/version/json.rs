//! JSON as terraform reads it: keys may be duplicated, and nesting is not limited.
//!
//! Only the outermost levels are kept, which contain requirements and modules.

use std::fmt;
use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::version::error::VersionError;
use crate::version::syntax::Literal;

/// A module's source is at the fifth level, with lists around the objects.
const MAX_DEPTH: usize = 16;

/// A value.
#[derive(Debug, PartialEq)]
pub(super) enum Json {
    /// Keys and their values, in the order of the file.
    Object(Vec<(String, Json)>),
    List(Vec<Json>),
    Text(String),
    /// Its digits.
    Number(String),
    Null,
    /// A boolean, or a value that is nested too deep to be kept.
    Other,
}

impl Json {
    /// Reads a document.
    pub(super) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value = Level(0).deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(value)
    }

    /// All members of this name in an object, or in a list of objects: a block may be either.
    pub(super) fn members<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Json> {
        let named = self.entries().filter(move |(key, _)| *key == name);
        named.map(|(_, value)| value)
    }

    /// All members of an object, or of a list of objects.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &Json)> {
        let list = match self {
            Self::List(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        let objects = list.iter().filter_map(|value| match value {
            Self::Object(entries) => Some(entries),
            _ => None,
        });
        objects.flatten().map(|(key, value)| (key.as_str(), value))
    }

    /// Without evaluating templates.
    pub(super) fn literal(&self) -> Literal {
        match self {
            Self::Null => Literal::Null,
            Self::Text(text) if !text.contains("${") && !text.contains("%{") => {
                Literal::Text(text.clone())
            }
            Self::Number(number) => Literal::Text(number.clone()),
            _ => Literal::Unknown,
        }
    }
}

/// Reads a file.
pub(super) fn parse(path: &Path, text: &str) -> Result<Json, VersionError> {
    Json::parse(text).map_err(|error| VersionError::Syntax {
        path: path.to_owned(),
        line: error.line(),
        column: error.column(),
        message: "not JSON".to_owned(),
        text: text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default().to_owned(),
    })
}

/// The values of a key in a text that is not valid JSON, each with its line. Every occurrence of the quoted key that a
/// colon follows counts.
pub(super) fn values_of(text: &str, key: &str) -> Vec<(usize, Literal)> {
    let key = format!("\"{key}\"");
    let (mut counted, mut line) = (0, 1);
    let mut values = Vec::new();
    for (at, _) in text.match_indices(&key) {
        line += text[counted..at].matches('\n').count();
        counted = at;
        if let Some(value) = text[at + key.len()..].trim_start().strip_prefix(':') {
            values.push((line, literal_at(value.trim_start())));
        }
    }
    values
}

/// The value that a text begins with, unless it is a number, an object or a list.
fn literal_at(text: &str) -> Literal {
    if text.starts_with("null") {
        return Literal::Null;
    }
    if !text.starts_with('"') {
        return Literal::Unknown;
    }
    let value = serde_json::Deserializer::from_str(text).into_iter::<String>().next();
    value.and_then(Result::ok).map_or(Literal::Unknown, |value| Json::Text(value).literal())
}

/// A value at this many levels below the document.
#[derive(Clone, Copy)]
struct Level(usize);

impl Level {
    fn below(self) -> Self {
        Self(self.0 + 1)
    }
}

impl<'de> DeserializeSeed<'de> for Level {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        if self.0 == MAX_DEPTH {
            // Without recursion.
            return deserializer.deserialize_ignored_any(IgnoredAny).map(|_| Json::Other);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Number(number.to_string()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Number(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Json, E> {
        let number = serde_json::Number::from_f64(number);
        Ok(number.map_or(Json::Other, |number| Json::Number(number.to_string())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.below())? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = items.next_key()? {
            entries.push((key, items.next_value_seed(self.below())?));
        }
        Ok(Json::Object(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_a_key_is_kept() {
        let json = Json::parse(r#"{"a": [{"b": 1}, {"b": "x", "b": null}], "a": {"b": 1.5}}"#);
        let json = json.unwrap();
        let values: Vec<_> = json.members("a").flat_map(|a| a.members("b")).collect();
        let number = |text: &str| Json::Number(text.to_owned());
        let expected = [number("1"), Json::Text("x".to_owned()), Json::Null, number("1.5")];
        assert_eq!(values, expected.iter().collect::<Vec<_>>());
        for text in ["", "{", "{} x", "{\"a\": }", "nul"] {
            Json::parse(text).unwrap_err();
        }
    }

    #[test]
    fn values_are_found_in_a_text_that_is_no_json() {
        let text =
            "{\"terraform\": {\n\"required_version\" : \">= 1.0\",},\n\"x\": \"required_version\"";
        let found = values_of(text, "required_version");
        let [(2, Literal::Text(value))] = found.as_slice() else { panic!("{}", found.len()) };
        assert_eq!(value, ">= 1.0");
        let unknown = values_of("\"v\": \"${x}\" \"v\": [", "v");
        assert!(matches!(unknown.as_slice(), [(1, Literal::Unknown), (1, Literal::Unknown)]));
    }

    #[test]
    fn any_depth_can_be_read() {
        let deep = 1 << 20;
        let text = format!("{{\"a\": {}{}, \"b\": 1}}", "[".repeat(deep), "]".repeat(deep));
        assert_eq!(Json::parse(&text).unwrap().members("b").count(), 1);
        Json::parse(&"[".repeat(deep)).unwrap_err();
    }
}
