//! The change of a resource or an output, as the plan has it.

use std::rc::Rc;

use serde::de::DeserializeSeed;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::changes::compare::{Pair, Step};
use crate::changes::guard::Seen;
use crate::changes::marks::Marks;
use crate::changes::value::{Budget, Node, NodeSeed};

/// How much memory the values of one resource may take, and all else of it.
const VALUES: usize = 16 << 20;
const HEAD: usize = 256 << 10;

/// The change of a resource. What a plan does not have is null.
#[derive(Debug, Default)]
pub(super) struct Resource {
    members: Members<{ RESOURCE.len() }>,
    pub(super) change: Change,
}

/// The values of a change.
#[derive(Debug, Default)]
pub(super) struct Change {
    members: Members<{ CHANGE.len() }>,
    /// Values were skipped, because they need too much memory.
    pub(super) is_too_large: bool,
}

type Members<const N: usize> = [Option<Node>; N];

/// The members of a resource that are read, besides `change`.
const RESOURCE: [&str; 9] = [
    "address",
    "previous_address",
    "module_address",
    "mode",
    "type",
    "name",
    "index",
    "deposed",
    "action_reason",
];
/// The members of a change that are read. The first two are small.
const CHANGE: [&str; 8] = [
    "actions",
    "importing",
    "before",
    "after",
    "after_unknown",
    "before_sensitive",
    "after_sensitive",
    "replace_paths",
];
const SMALL: usize = 2;

impl Resource {
    /// The member of this name; null if it is missing.
    pub(super) fn get(&self, name: &str) -> &Node {
        member(&RESOURCE, &self.members, name).unwrap_or(&Node::Null)
    }

    /// The address before, if the resource is moved.
    pub(super) fn moved_from(&self) -> Option<&Node> {
        let (before, now) = (self.get("previous_address"), self.get("address"));
        (*before != Node::Null && before != now).then_some(before)
    }
}

impl Change {
    fn get(&self, name: &str) -> Option<&Node> {
        member(&CHANGE, &self.members, name)
    }

    /// What is done.
    pub(super) fn actions(&self) -> Vec<&str> {
        let actions = self.get("actions").and_then(Node::as_list).unwrap_or_default();
        actions.iter().filter_map(Node::as_text).collect()
    }

    pub(super) fn is_no_op(&self) -> bool {
        matches!(self.actions()[..], [] | ["no-op"])
    }

    /// Whether it takes an object into the state, and the ID or the identity of that; null if neither is known.
    pub(super) fn importing(&self) -> Option<&Node> {
        let importing = self.get("importing").filter(|importing| **importing != Node::Null)?;
        let named = importing.get("id").or_else(|| importing.get("identity"));
        Some(named.unwrap_or(&Node::Null))
    }

    pub(super) fn values(&self) -> Pair<'_> {
        Pair {
            before: self.get("before"),
            after: self.get("after"),
            hidden_before: Marks::sensitive(self.get("before_sensitive")),
            hidden_after: Marks::sensitive(self.get("after_sensitive")),
            unknown: Marks::unknown(self.get("after_unknown")),
        }
    }

    /// Whether an attribute is why the resource is replaced.
    pub(super) fn replaces(&self, path: &[Step]) -> bool {
        let paths = self.get("replace_paths").and_then(Node::as_list).unwrap_or_default();
        paths.iter().filter_map(Node::as_list).any(|cause| {
            !cause.is_empty() && cause.iter().zip(path).all(|(cause, step)| is_step(cause, *step))
        })
    }
}

fn is_step(node: &Node, step: Step) -> bool {
    match (node, step) {
        (Node::Text(text), Step::Key(key)) => *text.kept == *key,
        (Node::Number(number), Step::Index(at)) => number.parse() == Ok(at),
        _ => false,
    }
}

fn member<'a, const N: usize>(
    names: &[&str; N],
    members: &'a Members<N>,
    name: &str,
) -> Option<&'a Node> {
    let at = names.iter().position(|known| *known == name)?;
    members[at].as_ref()
}

/// Reads a resource.
#[derive(Clone, Copy)]
pub(super) struct ResourceSeed<'a>(pub(super) &'a Rc<Seen>);

/// Reads a change.
#[derive(Clone, Copy)]
pub(super) struct ChangeSeed<'a>(pub(super) &'a Rc<Seen>);

impl<'de> DeserializeSeed<'de> for ResourceSeed<'_> {
    type Value = Resource;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Resource, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> DeserializeSeed<'de> for ChangeSeed<'_> {
    type Value = Change;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Change, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ResourceSeed<'_> {
    type Value = Resource;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the change of a resource")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Resource, A::Error> {
        let head = Budget::new(HEAD);
        let (mut members, mut change) = (Members::default(), None);
        while let Some(key) = map.next_key::<Box<str>>()? {
            if *key == *"change" {
                let first = change.replace(map.next_value_seed(ChangeSeed(self.0))?);
                refuse_second(first.as_ref())?;
            } else if let Some(at) = RESOURCE.iter().position(|known| **known == *key) {
                let seed = NodeSeed { seen: self.0, budget: &head };
                let first: Option<Node> = members[at].replace(map.next_value_seed(seed)?);
                refuse_second(first.as_ref())?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        let change = change.ok_or_else(|| A::Error::missing_field("change"))?;
        if head.is_exceeded() {
            return Err(A::Error::custom("an address is too long"));
        }
        Ok(Resource { members, change })
    }
}

impl<'de> Visitor<'de> for ChangeSeed<'_> {
    type Value = Change;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a change")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Change, A::Error> {
        let (head, values) = (Budget::new(HEAD), Budget::new(VALUES));
        let mut members: Members<{ CHANGE.len() }> = Members::default();
        while let Some(key) = map.next_key::<Box<str>>()? {
            let Some(at) = CHANGE.iter().position(|known| **known == *key) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let budget = if at < SMALL { &head } else { &values };
            let seed = NodeSeed { seen: self.0, budget };
            let first = members[at].replace(map.next_value_seed(seed)?);
            refuse_second(first.as_ref())?;
        }
        if head.is_exceeded() {
            return Err(A::Error::custom("there are too many actions"));
        }
        let is_too_large = values.is_exceeded();
        if is_too_large {
            // Some values or marks are missing: none is used.
            members[SMALL..].fill(None);
        }
        Ok(Change { members, is_too_large })
    }
}

/// A repeated key is an error: other readers may use its other value.
fn refuse_second<T, E: serde::de::Error>(first: Option<&T>) -> Result<(), E> {
    if first.is_some() { Err(E::custom("a key is repeated")) } else { Ok(()) }
}
