//! The document of a plan, read part by part.

use std::fmt;
use std::io::Read;
use std::rc::Rc;

use datastore_api::plan::is_readable;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::error::Category;

use crate::changes::error::UnreadablePlan;
use crate::changes::guard::{Guard, Limit, MAX_DEPTH, MAX_NUMBER, Seen};
use crate::changes::listing::{Listing, Section};
use crate::changes::resource::{ChangeSeed, ResourceSeed};
use crate::changes::value::{Budget, Node, NodeSeed};

/// How deeply the parser reads values that it keeps.
const PARSER_DEPTH: usize = 127;
/// How much memory a check, or an action of a provider, may take.
const CHECK: usize = 1 << 20;

/// The document, as far as it has been read.
struct Document<'a> {
    seen: &'a Rc<Seen>,
    format_version: Option<Box<str>>,
    listing: Listing,
    /// The sections that were read.
    sections: Vec<&'static str>,
}

/// The sections that are read.
const SECTIONS: [&str; 8] = [
    "format_version",
    "resource_changes",
    "resource_drift",
    "action_invocations",
    "output_changes",
    "checks",
    "errored",
    VALUES,
];
/// Only a state has this one.
const VALUES: &str = "values";

/// Reads a plan to its end.
pub(super) fn read(plan: impl Read) -> Result<Listing, UnreadablePlan> {
    let guard = Guard::new(plan);
    let seen = guard.seen();
    let listing = Listing::default();
    let document = Document { seen: &seen, format_version: None, listing, sections: Vec::new() };
    let mut json = serde_json::Deserializer::from_reader(guard);
    let read = json.deserialize_map(document).and_then(|read| json.end().map(|()| read));
    let Document { format_version, listing, sections, .. } =
        read.map_err(|error| reason(&error, &seen))?;
    match format_version {
        Some(_) if sections.contains(&VALUES) => Err(UnreadablePlan::State),
        Some(version) if is_readable(&version) => Ok(listing),
        Some(version) => {
            let shown = version.escape_debug().take(40).collect::<String>();
            Err(UnreadablePlan::Format(shown))
        }
        None => Err(UnreadablePlan::Value(seen.offset.get())),
    }
}

/// What is wrong, without a quotation of the plan.
fn reason(error: &serde_json::Error, seen: &Seen) -> UnreadablePlan {
    let at = seen.offset.get();
    match (seen.limit.get(), error.classify()) {
        (Some(Limit::Depth), _) => UnreadablePlan::Depth { max: MAX_DEPTH, at },
        (Some(Limit::Number), _) => UnreadablePlan::Number { max: MAX_NUMBER, at },
        (Some(Limit::Syntax), _) => UnreadablePlan::Syntax(at),
        (None, Category::Eof) => UnreadablePlan::Incomplete(at),
        (None, Category::Io) => UnreadablePlan::Read,
        (None, Category::Syntax) if seen.depth.get() > PARSER_DEPTH => {
            UnreadablePlan::Depth { max: PARSER_DEPTH, at }
        }
        (None, Category::Syntax) => UnreadablePlan::Syntax(at),
        (None, Category::Data) => UnreadablePlan::Value(at),
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plan as JSON")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some(key) = map.next_key::<Box<str>>()? {
            let Some(section) = SECTIONS.into_iter().find(|section| *section == &*key) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if self.sections.contains(&section) {
                return Err(A::Error::custom("a section is repeated"));
            }
            self.sections.push(section);
            let (seen, listing) = (self.seen, &mut self.listing);
            match section {
                "format_version" => self.format_version = Some(map.next_value()?),
                "resource_changes" => {
                    map.next_value_seed(Resources { seen, listing, section: Section::Changes })?;
                }
                "resource_drift" => {
                    map.next_value_seed(Resources { seen, listing, section: Section::Drift })?;
                }
                "action_invocations" => {
                    map.next_value_seed(Invocations { seen, listing })?;
                }
                "errored" => listing.is_errored = map.next_value()?,
                VALUES => drop(map.next_value::<IgnoredAny>()?),
                "output_changes" => map.next_value_seed(Outputs { seen, listing })?,
                _ => map.next_value_seed(Checks { seen, listing })?,
            }
        }
        Ok(self)
    }
}

/// Reads a list of resources.
struct Resources<'a> {
    seen: &'a Rc<Seen>,
    listing: &'a mut Listing,
    section: Section,
}

/// Reads a list of actions of providers that the apply runs (terraform 1.14 and later).
struct Invocations<'a> {
    seen: &'a Rc<Seen>,
    listing: &'a mut Listing,
}

/// Reads changes of outputs, by name.
struct Outputs<'a> {
    seen: &'a Rc<Seen>,
    listing: &'a mut Listing,
}

/// Reads a list of checks.
struct Checks<'a> {
    seen: &'a Rc<Seen>,
    listing: &'a mut Listing,
}

/// A section may be null. Its elements are read one at a time.
macro_rules! section {
    ($type:ident, $expected:literal, $visit:item) => {
        impl<'de> DeserializeSeed<'de> for $type<'_> {
            type Value = ();

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_any(self)
            }
        }

        impl<'de> Visitor<'de> for $type<'_> {
            type Value = ();

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($expected)
            }

            fn visit_unit<E>(self) -> Result<(), E> {
                Ok(())
            }

            $visit
        }
    };
}

section! {
    Resources, "a list of resource changes",
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(resource) = list.next_element_seed(ResourceSeed(self.seen))? {
            self.listing.add(&resource, self.section);
        }
        Ok(())
    }
}

section! {
    Invocations, "a list of actions",
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        loop {
            let budget = Budget::new(CHECK);
            let seed = NodeSeed { seen: self.seen, budget: &budget };
            let Some(invocation) = list.next_element_seed(seed)? else { return Ok(()) };
            self.listing.add_invocation(Some(&invocation).filter(|_| !budget.is_exceeded()));
        }
    }
}

section! {
    Outputs, "output changes by name",
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Box<str>>()? {
            let change = map.next_value_seed(ChangeSeed(self.seen))?;
            self.listing.add_output(&name, &change);
        }
        Ok(())
    }
}

section! {
    Checks, "a list of checks",
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        loop {
            let budget = Budget::new(CHECK);
            let seed = NodeSeed { seen: self.seen, budget: &budget };
            let Some(check) = list.next_element_seed(seed)? else { return Ok(()) };
            add_check(self.listing, &check);
            if budget.is_exceeded() {
                self.listing.leave_out();
            }
        }
    }
}

fn add_check(listing: &mut Listing, check: &Node) {
    let text = |node: Option<&Node>| node.and_then(Node::as_text).unwrap_or_default().to_owned();
    let address = text(check.get("address").and_then(|address| address.get("to_display")));
    let instances = check.get("instances").and_then(Node::as_list).unwrap_or_default();
    let problems = instances
        .iter()
        .flat_map(|instance| instance.get("problems").and_then(Node::as_list).unwrap_or_default());
    let problems = problems.filter_map(|problem| match problem.get("message") {
        Some(Node::Text(message)) => Some(message.kept.to_string()),
        _ => None,
    });
    listing.add_check(&address, &text(check.get("status")), &problems.collect::<Vec<_>>());
}
