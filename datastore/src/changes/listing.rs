//! The list of changes: what is listed, within limits, and how it is written as JSON.
//!
//! Attributes are written when they come, and searched for sensitive texts at the end, when all of these are known.

use std::ops::Range;

use crate::changes::compare::{Attribute, Comparison, Pair, Step, Unknown};
use crate::changes::marks::Marks;
use crate::changes::resource::{Change, Resource};
use crate::changes::secrets::{Search, Secrets};
use crate::changes::value::{Node, shown, write_list, write_text};

/// The version of the list.
pub(crate) const VERSION: u32 = 4;

/// The most bytes that are shown of all attributes, of one of them, and of all else that is listed.
const MAX_VALUES: usize = 8 << 20;
const MAX_VALUE: usize = 256 << 10;
const MAX_HEADS: usize = 6 << 20;
/// The most bytes that are kept of these in memory, with what is searched and not shown of long texts: 2304 characters after 4096.
const MAX_KEPT_VALUES: usize = 13 << 20;
const MAX_KEPT_HEADS: usize = 10 << 20;
/// The most attributes of all resources, and of one.
const MAX_ATTRIBUTES: usize = 200_000;
const MAX_OF_RESOURCE: usize = 1000;

/// What is written in place of a sensitive text where a text is expected.
const HIDDEN: &str = "(sensitive value)";

/// The changes that are listed.
#[derive(Debug, Default)]
pub(super) struct Listing {
    counts: Counts,
    resources: Vec<Entry>,
    drift: Vec<Entry>,
    outputs: Vec<Entry>,
    checks: Vec<CheckEntry>,
    /// Beginnings of entries, one after the other.
    heads: Vec<u8>,
    /// How many bytes are shown of them.
    shown_heads: usize,
    /// Attributes of all entries.
    attributes: Vec<Slot>,
    values: Vec<u8>,
    shown_values: usize,
    secrets: Secrets,
    left_out: LeftOut,
    /// Whether planning failed, so that the plan is only a part.
    pub(super) is_errored: bool,
}

/// How many resources are changed in each way. A replaced one counts only as that; a move and an import are counted beside
/// what else is done.
#[derive(Debug, Default)]
struct Counts {
    create: u64,
    update: u64,
    delete: u64,
    replace: u64,
    read: u64,
    forget: u64,
    moved: u64,
    import: u64,
    /// Actions of providers.
    invoke: u64,
}

/// What is not listed.
#[derive(Debug, Default)]
struct LeftOut {
    /// Resources, outputs and checks.
    entries: u64,
    attributes: u64,
}

/// A resource or an output.
#[derive(Debug)]
struct Entry {
    /// An object without its end, in `heads`.
    head: Range<usize>,
    /// What an import is of: it may be sensitive.
    importing: Option<Range<usize>>,
    attributes: Range<usize>,
    is_too_large: bool,
}

/// An attribute in `values`: its path, and its values.
#[derive(Debug)]
struct Slot {
    start: usize,
    values: usize,
    end: usize,
    is_sensitive: bool,
    /// Written at the end: `unknown` and `replaces`.
    is_unknown: bool,
    replaces: bool,
}

/// A check: an object without its end, and its problems.
#[derive(Debug)]
struct CheckEntry {
    head: Range<usize>,
    problems: Vec<Range<usize>>,
}

/// In which list a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Changes,
    /// What was changed outside of the tool.
    Drift,
}

impl Listing {
    /// Adds the change of a resource, if it is one.
    pub(super) fn add(&mut self, resource: &Resource, section: Section) {
        let change = &resource.change;
        let is_moved = resource.moved_from().is_some() && section == Section::Changes;
        let importing = change.importing();
        if section == Section::Changes {
            self.counts.add(&change.actions(), is_moved, importing.is_some());
        }
        if change.is_no_op() && !is_moved && importing.is_none() {
            // Its sensitive texts may be in others.
            change.values().collect(&mut self.secrets);
            return;
        }
        let head = |out: &mut Vec<u8>| write_resource(out, resource);
        let written = self.head(head).and_then(|head| match importing {
            Some(id) => Some((head, Some(self.head(|out| id.write(out))?))),
            None => Some((head, None)),
        });
        let Some((head, importing)) = written else {
            change.values().collect(&mut self.secrets);
            self.leave_out();
            return;
        };
        let attributes = self.attributes(change);
        let entry = Entry { head, importing, attributes, is_too_large: change.is_too_large };
        let list = match section {
            Section::Changes => &mut self.resources,
            Section::Drift => &mut self.drift,
        };
        list.push(entry);
    }

    /// Adds an action of a provider that the apply runs, as a resource without attributes. `None`: it is too large.
    pub(super) fn add_invocation(&mut self, invocation: Option<&Node>) {
        self.counts.invoke += 1;
        // Its sensitive texts may be in others. Without marks it has none.
        let member = |name| invocation.and_then(|node| node.get(name));
        if let (Some(values), Some(marks)) = (member("config_values"), member("config_sensitive")) {
            self.secrets.collect(values, Marks::sensitive(Some(marks)));
        }
        let head = invocation.and_then(|node| self.head(|out| write_invocation(out, node)));
        let Some(head) = head else {
            self.leave_out();
            return;
        };
        let end = self.attributes.len();
        let entry = Entry { head, importing: None, attributes: end..end, is_too_large: false };
        self.resources.push(entry);
    }

    /// Adds the change of an output, if it is one.
    pub(super) fn add_output(&mut self, name: &str, change: &Change) {
        let pair = change.values();
        pair.collect(&mut self.secrets);
        if change.is_no_op() {
            return;
        }
        let head = self.head(|out| {
            out.extend_from_slice(b"{\"name\":");
            write_text(out, name);
            out.extend_from_slice(b",\"actions\":");
            write_list(out, *b"[]", change.actions(), write_text);
        });
        let Some(head) = head else {
            self.leave_out();
            return;
        };
        let start = self.attributes.len();
        if !change.is_too_large {
            let Pair { before, after, hidden_before, hidden_after, .. } = pair;
            let sensitive = hidden_before.any() || hidden_after.any() || pair.is_hidden();
            let unknown = pair.unknown();
            self.push(&Attribute { path: &[], before, after, sensitive, unknown }, change);
        }
        let is_too_large = self.attributes.len() == start;
        let entry =
            Entry { head, importing: None, attributes: start..self.attributes.len(), is_too_large };
        self.outputs.push(entry);
    }

    /// Adds a check with its problems.
    pub(super) fn add_check(&mut self, address: &str, status: &str, problems: &[String]) {
        let head = self.head(|out| {
            out.extend_from_slice(b"{\"address\":");
            write_text(out, address);
            out.extend_from_slice(b",\"status\":");
            write_text(out, status);
        });
        let Some(head) = head else {
            self.leave_out();
            return;
        };
        let written = problems.iter().map_while(|text| self.head(|out| write_text(out, text)));
        let written = written.collect::<Vec<_>>();
        if written.len() < problems.len() {
            self.leave_out();
        }
        self.checks.push(CheckEntry { head, problems: written });
    }

    /// Counts a resource, an output or a check that is not listed, or only a part of it.
    pub(super) fn leave_out(&mut self) {
        self.left_out.entries += 1;
    }

    /// Writes the beginning of an entry; `None` if there is no room.
    fn head(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Option<Range<usize>> {
        let start = self.heads.len();
        write(&mut self.heads);
        let shown = self.shown_heads + shown_size(&self.heads[start..]);
        if shown > MAX_HEADS || self.heads.len() > MAX_KEPT_HEADS {
            self.heads.truncate(start);
            return None;
        }
        self.shown_heads = shown;
        Some(start..self.heads.len())
    }

    /// Adds the attributes of a resource that change.
    fn attributes(&mut self, change: &Change) -> Range<usize> {
        let start = self.attributes.len();
        if change.is_too_large {
            self.left_out.attributes += 1;
            return start..start;
        }
        let mut secrets = std::mem::take(&mut self.secrets);
        let mut comparison = Comparison::new(&mut secrets, |attribute: Attribute<'_, '_>| {
            if self.attributes.len() - start == MAX_OF_RESOURCE {
                self.left_out.attributes += 1;
            } else {
                self.push(&attribute, change);
            }
        });
        comparison.compare(change.values());
        self.secrets = secrets;
        start..self.attributes.len()
    }

    fn push(&mut self, attribute: &Attribute<'_, '_>, change: &Change) {
        let start = self.values.len();
        write_list(&mut self.values, *b"[]", attribute.path, |out, step| match step {
            Step::Key(key) => write_text(out, key),
            Step::Index(at) => out.extend_from_slice(at.to_string().as_bytes()),
        });
        let values = self.values.len();
        if !attribute.sensitive {
            write_value(&mut self.values, "before", attribute.before);
            if attribute.unknown != Unknown::All {
                write_value(&mut self.values, "after", attribute.after);
            }
        }
        let end = self.values.len();
        let size = shown_size(&self.values[start..]);
        let shown = self.shown_values + size;
        let fits = shown <= MAX_VALUES && end <= MAX_KEPT_VALUES && size <= MAX_VALUE;
        if !fits || self.attributes.len() == MAX_ATTRIBUTES {
            self.values.truncate(start);
            self.left_out.attributes += 1;
            return;
        }
        self.shown_values = shown;
        self.attributes.push(Slot {
            start,
            values,
            end,
            is_sensitive: attribute.sensitive,
            is_unknown: attribute.unknown != Unknown::Nothing,
            replaces: change.replaces(attribute.path),
        });
    }

    /// The list as JSON.
    pub(super) fn into_json(mut self) -> Vec<u8> {
        let search = std::mem::take(&mut self.secrets).into_search();
        let mut out = Vec::with_capacity(self.shown_heads + self.shown_values + (1 << 10));
        out.extend_from_slice(format!("{{\"version\":{VERSION},\"counts\":").as_bytes());
        self.counts.write(&mut out);
        if self.is_errored {
            out.extend_from_slice(b",\"errored\":true");
        }
        for (name, list) in [("resources", &self.resources), ("drift", &self.drift)] {
            out.extend_from_slice(format!(",\"{name}\":").as_bytes());
            write_list(&mut out, *b"[]", list, |out, entry| {
                self.write_entry(out, entry, &search);
            });
        }
        out.extend_from_slice(b",\"outputs\":");
        write_list(&mut out, *b"[]", &self.outputs, |out, entry| {
            self.write_output(out, entry, &search);
        });
        out.extend_from_slice(b",\"checks\":");
        write_list(&mut out, *b"[]", &self.checks, |out, check| {
            write_shown(out, &self.heads[check.head.clone()]);
            out.extend_from_slice(b",\"problems\":");
            write_list(out, *b"[]", &check.problems, |out, problem| {
                write_unless_found(out, &self.heads[problem.clone()], &search);
            });
            out.push(b'}');
        });
        let truncated = match self.left_out {
            LeftOut { entries: 0, attributes: 0 } => "null".to_owned(),
            LeftOut { entries, attributes } => {
                format!("{{\"resources\":{entries},\"attributes\":{attributes}}}")
            }
        };
        out.extend_from_slice(format!(",\"truncated\":{truncated}}}\n").as_bytes());
        out
    }

    /// Writes a resource.
    fn write_entry(&self, out: &mut Vec<u8>, entry: &Entry, search: &Search) {
        write_shown(out, &self.heads[entry.head.clone()]);
        out.extend_from_slice(b",\"importing\":");
        match &entry.importing {
            None => out.extend_from_slice(b"null"),
            Some(id) => write_unless_found(out, &self.heads[id.clone()], search),
        }
        if entry.is_too_large {
            out.extend_from_slice(b",\"too_large\":true");
        }
        let slots = &self.attributes[entry.attributes.clone()];
        out.extend_from_slice(b",\"attributes\":");
        write_list(out, *b"[]", slots, |out, slot| {
            let path = &self.values[slot.start..slot.values];
            out.extend_from_slice(b"{\"path\":");
            if search.finds(path) {
                write_list(out, *b"[]", [HIDDEN], write_text);
                out.extend_from_slice(b",\"sensitive\":true}");
                return;
            }
            write_shown(out, path);
            self.write_slot(out, slot, search);
            out.push(b'}');
        });
        out.push(b'}');
    }

    fn write_output(&self, out: &mut Vec<u8>, entry: &Entry, search: &Search) {
        write_shown(out, &self.heads[entry.head.clone()]);
        if entry.is_too_large {
            out.extend_from_slice(b",\"too_large\":true");
        }
        for slot in &self.attributes[entry.attributes.clone()] {
            self.write_slot(out, slot, search);
        }
        out.push(b'}');
    }

    /// Writes the values of an attribute, and what is known of them.
    fn write_slot(&self, out: &mut Vec<u8>, slot: &Slot, search: &Search) {
        let values = &self.values[slot.values..slot.end];
        if slot.is_sensitive || search.finds(values) {
            out.extend_from_slice(b",\"sensitive\":true");
        } else {
            write_shown(out, values);
        }
        if slot.is_unknown {
            out.extend_from_slice(b",\"unknown\":true");
        }
        if slot.replaces {
            out.extend_from_slice(b",\"replaces\":true");
        }
    }
}

impl Counts {
    fn add(&mut self, actions: &[&str], is_moved: bool, is_import: bool) {
        self.moved += u64::from(is_moved);
        self.import += u64::from(is_import);
        if actions.contains(&"create") && actions.contains(&"delete") {
            self.replace += 1;
            return;
        }
        for action in actions {
            match *action {
                "create" => self.create += 1,
                "update" => self.update += 1,
                "delete" => self.delete += 1,
                "read" => self.read += 1,
                "forget" => self.forget += 1,
                _ => {}
            }
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let Self { create, update, delete, replace, read, forget, moved, import, invoke } = self;
        let text = format!(
            r#"{{"create":{create},"update":{update},"delete":{delete},"replace":{replace},"read":{read},"forget":{forget},"move":{moved},"import":{import},"invoke":{invoke}}}"#
        );
        out.extend_from_slice(text.as_bytes());
    }
}

/// Writes what is known of a resource besides its attributes: an object without its end.
fn write_resource(out: &mut Vec<u8>, resource: &Resource) {
    const FIELDS: [(&str, &str); 8] = [
        ("address", "address"),
        ("module", "module_address"),
        ("mode", "mode"),
        ("type", "type"),
        ("name", "name"),
        ("index", "index"),
        ("reason", "action_reason"),
        ("deposed", "deposed"),
    ];
    write_fields(out, &FIELDS, |member| resource.get(member));
    out.extend_from_slice(b",\"actions\":");
    write_list(out, *b"[]", resource.change.actions(), write_text);
    out.extend_from_slice(b",\"previous_address\":");
    resource.moved_from().unwrap_or(&Node::Null).write(out);
}

/// Writes what is known of an action of a provider, as of a resource: its reason is what it runs before or after.
fn write_invocation(out: &mut Vec<u8>, invocation: &Node) {
    const FIELDS: [(&str, &str); 5] = [
        ("address", "address"),
        ("module", "module_address"),
        ("type", "type"),
        ("name", "name"),
        ("index", "index"),
    ];
    write_fields(out, &FIELDS, |member| invocation.get(member).unwrap_or(&Node::Null));
    let text = |node: Option<&Node>| node.and_then(Node::as_text).unwrap_or_default().to_owned();
    out.extend_from_slice(b",\"mode\":\"action\",\"reason\":");
    match invocation.get("lifecycle_action_trigger") {
        Some(trigger) => {
            let event = text(trigger.get("action_trigger_event"));
            let resource = text(trigger.get("triggering_resource_address"));
            write_text(out, &format!("{event} of {resource}"));
        }
        None => Node::Null.write(out),
    }
    out.extend_from_slice(b",\"deposed\":null,\"actions\":[\"invoke\"],\"previous_address\":null");
}

/// Writes an object without its end: these fields, by the names that they have here and in the plan.
fn write_fields<'a>(out: &mut Vec<u8>, fields: &[(&str, &str)], get: impl Fn(&str) -> &'a Node) {
    for (at, (name, member)) in fields.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b"{" } else { b"," });
        out.extend_from_slice(format!("\"{name}\":").as_bytes());
        match get(member) {
            // The root module has no address.
            Node::Null if *name == "module" => out.extend_from_slice(b"\"\""),
            node => node.write(out),
        }
    }
}

/// Writes a value, and its length if it is cut.
fn write_value(out: &mut Vec<u8>, name: &str, value: Option<&Node>) {
    out.extend_from_slice(format!(",\"{name}\":").as_bytes());
    value.unwrap_or(&Node::Null).write(out);
    if let Some(Node::Text(text)) = value
        && text.is_cut()
    {
        out.extend_from_slice(format!(",\"{name}_length\":{}", text.chars).as_bytes());
    }
}

fn write_unless_found(out: &mut Vec<u8>, json: &[u8], search: &Search) {
    if search.finds(json) { write_text(out, HIDDEN) } else { write_shown(out, json) }
}

/// Writes what is shown of JSON.
fn write_shown(out: &mut Vec<u8>, json: &[u8]) {
    shown(json).for_each(|part| out.extend_from_slice(part));
}

/// How many bytes are shown of JSON.
fn shown_size(json: &[u8]) -> usize {
    shown(json).map(<[u8]>::len).sum()
}
