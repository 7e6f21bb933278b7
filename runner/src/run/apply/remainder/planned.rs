//! A planned value in the form in which two plans are compared: digests of what is known, and the places of what is not.
//! It has no part of a value, which may be secret and large.

use std::borrow::Cow;
use std::collections::BTreeMap;

use datastore_api::Sha256;
use serde::de::Error as _;
use serde_json::value::RawValue;

/// No planned value is nested deeper.
const MAX_DEPTH: usize = 256;

/// A planned value, with the parts of it that are unknown or sensitive: three documents of the same shape. The numbers are
/// texts, because a number of the tool has any length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Value<'a> {
    /// Missing, if it is null or unknown.
    pub(super) known: Option<&'a RawValue>,
    /// `true`, or an object or a list that has it somewhere.
    pub(super) unknown: Option<&'a RawValue>,
    pub(super) sensitive: Option<&'a RawValue>,
}

/// What is compared of a planned value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Planned {
    Unknown { is_sensitive: bool },
    Known(Sha256),
    Object { is_sensitive: bool, attributes: BTreeMap<String, Planned> },
    List { is_sensitive: bool, elements: Vec<Planned> },
}

/// One level of a document.
enum Shape<'a> {
    Object(BTreeMap<Cow<'a, str>, &'a RawValue>),
    List(Vec<&'a RawValue>),
    Scalar,
}

fn shape(raw: &RawValue) -> serde_json::Result<Shape<'_>> {
    Ok(match raw.get().as_bytes().first() {
        Some(b'{') => Shape::Object(serde_json::from_str(raw.get())?),
        Some(b'[') => Shape::List(serde_json::from_str(raw.get())?),
        _ => Shape::Scalar,
    })
}

fn is_true(raw: Option<&RawValue>) -> bool {
    raw.is_some_and(|raw| raw.get() == "true")
}

/// Whether a value has an unknown part.
fn has_unknown(unknown: Option<&RawValue>, depth: usize) -> serde_json::Result<bool> {
    let Some(unknown) = unknown.filter(|unknown| unknown.get().contains("true")) else {
        return Ok(false);
    };
    if is_true(Some(unknown)) {
        return Ok(true);
    }
    let depth = deeper(depth)?;
    let parts = match shape(unknown)? {
        Shape::Object(attributes) => attributes.into_values().collect(),
        Shape::List(elements) => elements,
        Shape::Scalar => Vec::new(),
    };
    for part in parts {
        if has_unknown(Some(part), depth)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn deeper(depth: usize) -> serde_json::Result<usize> {
    if depth == MAX_DEPTH {
        return Err(serde_json::Error::custom("a planned value is nested too deeply"));
    }
    Ok(depth + 1)
}

/// The parts of an object or a list by name or index; the names are those of all three documents.
enum Parts<'a> {
    Object(BTreeMap<Cow<'a, str>, Value<'a>>),
    List(Vec<Value<'a>>),
    Scalar,
}

impl<'a> Value<'a> {
    fn is_null(self) -> bool {
        self.known.is_none_or(|value| value.get() == "null")
    }

    /// Without marks, if all of it is sensitive: its parts have no further ones.
    fn marked(self) -> (bool, Self) {
        let is_sensitive = is_true(self.sensitive);
        let sensitive = self.sensitive.filter(|_| !is_sensitive);
        (is_sensitive, Self { sensitive, ..self })
    }

    fn parts(self) -> serde_json::Result<Parts<'a>> {
        // An object of which nothing is known has no value.
        let value = self.known.filter(|_| !self.is_null()).or(self.unknown);
        let Some(value) = value else { return Ok(Parts::Scalar) };
        let of = |raw: Option<&'a RawValue>| raw.map(shape).transpose();
        let (unknown, sensitive) = (of(self.unknown)?, of(self.sensitive)?);
        Ok(match shape(value)? {
            Shape::Object(names) => {
                let mut parts = BTreeMap::<_, Value<'a>>::new();
                if !self.is_null() {
                    for (name, value) in names {
                        parts.entry(name).or_default().known = Some(value);
                    }
                }
                if let Some(Shape::Object(unknown)) = unknown {
                    for (name, unknown) in unknown {
                        parts.entry(name).or_default().unknown = Some(unknown);
                    }
                }
                if let Some(Shape::Object(sensitive)) = sensitive {
                    for (name, mark) in sensitive {
                        if let Some(part) = parts.get_mut(&name) {
                            part.sensitive = Some(mark);
                        }
                    }
                }
                Parts::Object(parts)
            }
            Shape::List(elements) => {
                let part = |of: &Option<Shape<'a>>, index: usize| match of {
                    Some(Shape::List(elements)) => elements.get(index).copied(),
                    _ => None,
                };
                let is_null = self.is_null();
                let elements = elements.into_iter().enumerate().map(|(index, value)| Value {
                    known: (!is_null).then_some(value),
                    unknown: part(&unknown, index),
                    sensitive: part(&sensitive, index),
                });
                Parts::List(elements.collect())
            }
            Shape::Scalar => Parts::Scalar,
        })
    }

    /// The digest of a value of which everything is known.
    fn digest(self) -> serde_json::Result<Sha256> {
        let mut text = Vec::new();
        self.write(&mut text, true, 0)?;
        Ok(Sha256::of(&text))
    }

    /// Writes the value with its marks, the names in one order. `all`: with what is sensitive.
    fn write(self, text: &mut Vec<u8>, all: bool, depth: usize) -> serde_json::Result<()> {
        let depth = deeper(depth)?;
        let (is_sensitive, value) = self.marked();
        if is_sensitive {
            text.push(b'!');
            if !all {
                return Ok(());
            }
        }
        if value.is_null() {
            text.extend_from_slice(b"null");
            return Ok(());
        }
        match (Self { unknown: None, ..value }).parts()? {
            Parts::Object(parts) => {
                text.push(b'{');
                for (name, part) in parts {
                    serde_json::to_writer(&mut *text, &name)?;
                    text.push(b':');
                    part.write(text, all, depth)?;
                    text.push(b',');
                }
                text.push(b'}');
            }
            Parts::List(parts) => {
                text.push(b'[');
                for part in parts {
                    part.write(text, all, depth)?;
                    text.push(b',');
                }
                text.push(b']');
            }
            Parts::Scalar => text.extend(value.known.iter().flat_map(|raw| raw.get().bytes())),
        }
        Ok(())
    }
}

/// The digest of a document.
pub(super) fn digest(value: &RawValue) -> serde_json::Result<Sha256> {
    Value { known: Some(value), ..Value::default() }.digest()
}

/// Digests of the attributes of an object, without what is sensitive in them.
pub(super) fn insensitive(object: Value<'_>) -> serde_json::Result<BTreeMap<String, Sha256>> {
    let (is_sensitive, inner) = object.marked();
    let parts = match inner.parts()? {
        Parts::Object(parts) if !is_sensitive => parts,
        _ => return Ok(BTreeMap::new()),
    };
    let digest = |(name, part): (Cow<'_, str>, Value<'_>)| {
        let mut text = Vec::new();
        part.write(&mut text, false, 0)?;
        Ok((name.into_owned(), Sha256::of(&text)))
    };
    parts.into_iter().map(digest).collect()
}

/// One attribute of an object.
pub(super) fn attribute<'a>(
    object: &'a RawValue,
    name: &str,
) -> serde_json::Result<Option<&'a RawValue>> {
    Ok(match shape(object)? {
        Shape::Object(attributes) => attributes.get(name).copied(),
        _ => None,
    })
}

/// The elements of a list.
pub(super) fn elements(list: &RawValue) -> serde_json::Result<Vec<&RawValue>> {
    Ok(match shape(list)? {
        Shape::List(elements) => elements,
        _ => Vec::new(),
    })
}

impl Planned {
    /// The value of a resource or an output. The attributes of an object are compared one by one, so that a difference
    /// has a name.
    pub(super) fn new(value: Value<'_>) -> serde_json::Result<Self> {
        Self::at(value, 0)
    }

    fn at(value: Value<'_>, depth: usize) -> serde_json::Result<Self> {
        let (is_sensitive, inner) = value.marked();
        if is_true(inner.unknown) {
            return Ok(Self::Unknown { is_sensitive });
        }
        if depth > 0 && !has_unknown(inner.unknown, depth)? {
            return Ok(Self::Known(value.digest()?));
        }
        let deeper = deeper(depth)?;
        Ok(match inner.parts()? {
            Parts::Object(parts) => {
                let attributes = parts
                    .into_iter()
                    .map(|(name, part)| Ok((name.into_owned(), Self::at(part, deeper)?)));
                let attributes = attributes.collect::<serde_json::Result<_>>()?;
                Self::Object { is_sensitive, attributes }
            }
            Parts::List(parts) => {
                let elements = parts.into_iter().map(|part| Self::at(part, deeper));
                let elements = elements.collect::<serde_json::Result<_>>()?;
                Self::List { is_sensitive, elements }
            }
            Parts::Scalar => Self::Known(value.digest()?),
        })
    }

    /// The attributes in which a value of the new plan is not this one; the empty name is that of the whole value. What was
    /// unknown may be known.
    pub(super) fn differences(&self, new: Value<'_>) -> serde_json::Result<Vec<String>> {
        let whole = || vec![String::new()];
        let Self::Object { is_sensitive, attributes } = self else {
            return Ok(if self.agrees(new, 0)? { Vec::new() } else { whole() });
        };
        match object_of(new, *is_sensitive)? {
            Some(parts) => differing(attributes, &parts, 0),
            None => Ok(whole()),
        }
    }

    fn agrees(&self, new: Value<'_>, depth: usize) -> serde_json::Result<bool> {
        let depth = deeper(depth)?;
        let (is_new_sensitive, inner) = new.marked();
        Ok(match self {
            Self::Unknown { is_sensitive } => !is_sensitive || is_new_sensitive,
            Self::Known(digest) => !has_unknown(new.unknown, depth)? && new.digest()? == *digest,
            Self::Object { is_sensitive, attributes } => match object_of(new, *is_sensitive)? {
                Some(parts) => differing(attributes, &parts, depth)?.is_empty(),
                None => false,
            },
            Self::List { is_sensitive, elements } => match inner.parts()? {
                Parts::List(new)
                    if *is_sensitive == is_new_sensitive
                        && !is_true(inner.unknown)
                        && new.len() == elements.len() =>
                {
                    agree_in_order(elements, &new, depth)? || agree_as_set(elements, &new, depth)?
                }
                _ => false,
            },
        })
    }
}

/// The attributes of a value that is an object, is known to be one, and is as sensitive as the other.
fn object_of(
    new: Value<'_>,
    is_sensitive: bool,
) -> serde_json::Result<Option<BTreeMap<Cow<'_, str>, Value<'_>>>> {
    let (is_new_sensitive, inner) = new.marked();
    if is_new_sensitive != is_sensitive || is_true(inner.unknown) {
        return Ok(None);
    }
    Ok(match inner.parts()? {
        Parts::Object(parts) => Some(parts),
        _ => None,
    })
}

/// The names of the attributes that differ.
fn differing(
    attributes: &BTreeMap<String, Planned>,
    new: &BTreeMap<Cow<'_, str>, Value<'_>>,
    depth: usize,
) -> serde_json::Result<Vec<String>> {
    let mut names = Vec::new();
    for (name, planned) in attributes {
        let new = new.get(&**name).copied().unwrap_or_default();
        if !planned.agrees(new, depth)? {
            names.push(name.clone());
        }
    }
    for (name, new) in new {
        let is_there = attributes.contains_key(&**name);
        if !is_there && (!new.is_null() || has_unknown(new.unknown, depth)?) {
            names.push(name.clone().into_owned());
        }
    }
    Ok(names)
}

fn agree_in_order(
    elements: &[Planned],
    new: &[Value<'_>],
    depth: usize,
) -> serde_json::Result<bool> {
    for (planned, new) in elements.iter().zip(new) {
        if !planned.agrees(*new, depth)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the elements agree in another order: those of a set are listed in the order of their values, which becomes
/// another one when an unknown one is known. Plans do not tell sets from lists. In a list such an element has a fixed place.
fn agree_as_set(elements: &[Planned], new: &[Value<'_>], depth: usize) -> serde_json::Result<bool> {
    let mut left = new.to_vec();
    let certainty = |planned: &&Planned| match planned {
        Planned::Known(_) => 0,
        Planned::Object { .. } | Planned::List { .. } => 1,
        Planned::Unknown { .. } => 2,
    };
    let mut ordered = elements.iter().collect::<Vec<_>>();
    ordered.sort_by_key(certainty);
    for planned in ordered {
        let mut found = None;
        for (index, new) in left.iter().enumerate() {
            if planned.agrees(*new, depth)? {
                found = Some(index);
                break;
            }
        }
        let Some(index) = found else { return Ok(false) };
        left.swap_remove(index);
    }
    Ok(true)
}
