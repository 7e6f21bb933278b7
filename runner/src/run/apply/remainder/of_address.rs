//! What a plan creates at one address.

use std::collections::BTreeMap;
use std::io::Read;

use serde_json::value::RawValue;

use crate::process::text::is_visible;
use crate::run::apply::remainder::document::{Change, Changed, Visit, read};
use crate::run::apply::remainder::planned::{Planned, attribute, elements};
use crate::run::plan::summary::PlanError;

/// Whether two plans create the same object at an address: with the same planned values, of which one is the last part of
/// this import ID. Without that the ID may depend on values that are unknown before an apply, and differ in each.
pub(in crate::run::apply) fn is_same_creation(
    plans: [impl Read; 2],
    address: &str,
    id: &str,
) -> Result<bool, PlanError> {
    let name = id.rsplit(['/', ':']).next().unwrap_or_default();
    if name.is_empty() {
        return Ok(false);
    }
    let name = serde_json::to_string(name)?;
    let [first, second] = plans;
    let planned = |plan| {
        with_created(plan, address, |change| {
            let values = change.planned();
            let has_name = values.known.is_some_and(|known| known.get().contains(&name));
            Ok((Planned::new(values)?, has_name))
        })
    };
    let first = planned(first)?;
    let second = with_created(second, address, |change| Planned::new(change.planned()))?;
    Ok(match (first, second) {
        (Some((first, true)), Some(second)) => first == second,
        _ => false,
    })
}

/// The import ID that follows from the planned values of the object that the plan creates at the address, by a template:
/// `${metadata.0.namespace}/${metadata.0.name}`. `None` if a part of it is unknown, empty or no text, or if the object has
/// sensitive values.
pub(in crate::run::apply) fn planned_id(
    plan: impl Read,
    address: &str,
    template: &str,
) -> Result<Option<String>, PlanError> {
    let id = with_created(plan, address, |change| id_of(change, template))?;
    Ok(id.flatten())
}

/// An object that a plan creates.
pub(in crate::run::apply) struct Creation {
    /// Whether its import ID follows from the planned values. That of a replacement is that of another object as well.
    pub(in crate::run::apply) has_id: bool,
    /// Whether there was no object before.
    pub(in crate::run::apply) is_new: bool,
}

/// The addresses at which the plan creates an object.
pub(in crate::run::apply) fn creations(
    plan: impl Read,
    template: impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, Creation>, PlanError> {
    let mut found = BTreeMap::new();
    each_creation(plan, |address, change| {
        let is_new = is_new(change);
        let id = match template(address).filter(|_| is_new) {
            Some(template) => id_of(change, &template)?,
            None => None,
        };
        found.insert(address.to_owned(), Creation { has_id: id.is_some(), is_new });
        Ok(())
    })?;
    Ok(found)
}

/// The same of one creation.
pub(super) fn id_of(change: &Change, template: &str) -> serde_json::Result<Option<String>> {
    let values = change.planned();
    let is_sensitive = values.sensitive.is_some_and(|marks| marks.get().contains("true"));
    match values.known.filter(|_| !is_sensitive) {
        Some(known) => filled(template, known),
        None => Ok(None),
    }
}

/// The template with the values.
fn filled(template: &str, values: &RawValue) -> serde_json::Result<Option<String>> {
    let (mut id, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((path, after)) = after.split_once('}') else { return Ok(None) };
        let Some(text) = text_at(values, path)? else { return Ok(None) };
        id += before;
        id += &text;
        rest = after;
    }
    id += rest;
    Ok(Some(id))
}

/// The text at a path: names of attributes and indexes with dots between them.
fn text_at(values: &RawValue, path: &str) -> serde_json::Result<Option<String>> {
    let mut value = values;
    for name in path.split('.') {
        let part = match name.parse::<usize>() {
            Ok(index) => elements(value)?.get(index).copied(),
            Err(_) => attribute(value, name)?,
        };
        let Some(part) = part else { return Ok(None) };
        value = part;
    }
    let text = serde_json::from_str::<String>(value.get()).ok();
    Ok(text.filter(|text| !text.is_empty() && text.chars().all(is_visible)))
}

/// What a function makes of the creation at an address.
fn with_created<T>(
    plan: impl Read,
    address: &str,
    make: impl Fn(&Change) -> serde_json::Result<T>,
) -> Result<Option<T>, PlanError> {
    let mut found = None;
    each_creation(plan, |of, change| {
        if of == address && is_new(change) {
            found = Some(make(change)?);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Whether there was no object before.
fn is_new(change: &Change) -> bool {
    change.actions == ["create"]
}

/// Calls a function with each address at which the plan creates an object.
fn each_creation(
    plan: impl Read,
    visit: impl FnMut(&str, &Change) -> serde_json::Result<()>,
) -> Result<(), PlanError> {
    read(plan, &mut EachCreation(visit))
}

struct EachCreation<F>(F);

impl<F: FnMut(&str, &Change) -> serde_json::Result<()>> Visit for EachCreation<F> {
    fn resource(&mut self, changed: &Changed) -> serde_json::Result<()> {
        let Changed { address, deposed, change, .. } = changed;
        if deposed.is_none() && change.actions.iter().any(|action| action == "create") {
            (self.0)(address, change)?;
        }
        Ok(())
    }

    fn output(&mut self, _: &str, _: &Change) -> serde_json::Result<()> {
        Ok(())
    }

    fn drift(&mut self) {}

    fn action(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(address: &str, actions: &str, after: &str, more: &str) -> String {
        format!(
            r#"{{"format_version":"1.2","resource_changes":[{{"address":"{address}","change":{{"actions":{actions},
            "after":{after}{more}}}}}]}}"#
        )
    }

    #[test]
    fn import_id_follows_from_planned_values() {
        let after =
            r#"{"name":"x","empty":"","number":1,"metadata":[{"name":"n","namespace":"ns"}]}"#;
        let create = plan("a_b.c", r#"["create"]"#, after, "");
        for (template, id) in [
            ("${name}", Some("x")),
            ("${metadata.0.namespace}/${metadata.0.name}", Some("ns/n")),
            ("a/${name}/b", Some("a/x/b")),
            ("${empty}", None),
            ("${number}", None),
            ("${missing}", None),
            ("${metadata.1.name}", None),
            ("${metadata}", None),
            ("${name", None),
        ] {
            let found = planned_id(create.as_bytes(), "a_b.c", template).unwrap();
            assert_eq!(found.as_deref(), id, "{template}");
        }
        let secret = plan("a_b.c", r#"["create"]"#, after, r#","after_sensitive":{"name":true}"#);
        let replaced = plan("a_b.c", r#"["delete","create"]"#, after, "");
        for (plan, address) in [(&secret, "a_b.c"), (&replaced, "a_b.c"), (&create, "a_b.d")] {
            assert_eq!(planned_id(plan.as_bytes(), address, "${name}").unwrap(), None);
        }
    }

    #[test]
    fn creation_is_the_same_if_its_values_and_the_name_are() {
        let of = |after: &str, unknown: &str| {
            plan("a_b.c", r#"["create"]"#, after, &format!(r#","after_unknown":{unknown}"#))
        };
        let earlier = of(r#"{"name":"x"}"#, r#"{"id":true,"role":true}"#);
        for (later, is_same) in [
            (earlier.clone(), true),
            (of(r#"{"name":"x","role":"r"}"#, r#"{"id":true}"#), false),
            (of(r#"{"name":"y"}"#, r#"{"id":true,"role":true}"#), false),
            (of(r#"{"name":"x","tags":{}}"#, r#"{"id":true,"role":true}"#), false),
        ] {
            for (id, has_name) in
                [("x", true), ("a/x", true), ("arn:aws:a:x", true), ("y", false), ("", false)]
            {
                let plans = [earlier.as_bytes(), later.as_bytes()];
                let found = is_same_creation(plans, "a_b.c", id).unwrap();
                assert_eq!(found, is_same && has_name, "{id} {later}");
            }
        }
        let plans = [earlier.as_bytes(), earlier.as_bytes()];
        assert!(!is_same_creation(plans, "a_b.d", "x").unwrap());
    }
}
