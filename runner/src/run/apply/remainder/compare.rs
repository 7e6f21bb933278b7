//! Whether a new plan is a *remainder* of a reviewed one: it changes nothing that the reviewed plan does not change, and
//! that in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use datastore_api::Sha256;
use serde_json::value::RawValue;

use crate::run::apply::remainder::differences::Differences;
use crate::run::apply::remainder::document::{Change, Changed, Prior, Visit, read};
use crate::run::apply::remainder::done::Done;
use crate::run::apply::remainder::imported::{Creation, Imports, NOT_IMPORTED, missing};
use crate::run::apply::remainder::planned::{Planned, attribute, digest, insensitive};
use crate::run::plan::summary::PlanError;

/// Compares the output of `show -json` of two plans, of which the first was reviewed, and then partly applied by this run.
/// Without differences the new plan is a remainder. Of both plans only digests are kept in memory.
///
/// * A resource has the same actions, on the same object, for the same reason and with the same planned values. What was
///   unknown in the reviewed plan may be known; what was sensitive stays so.
/// * An object that this run's apply has left tainted is replaced where the reviewed plan creates or replaces it. Of a
///   replacement that this run's apply has started the other half may be left: the creation, or the deletion of the old object.
/// * An object that this run imports, where the reviewed plan creates it, is kept or updated in place, with the planned values.
/// * What the reviewed plan moves, imports, forgets or reads may be moved, imported, forgotten and read as it says.
/// * What this run's apply has created or deleted to the end is not created or deleted again.
/// * A creation or replacement that the new plan lacks must have been made by this run's apply: the reason for it may be lost.
/// * What data sources have returned for the reviewed plan they return now, unless it is sensitive or depends on the request.
/// * Variables have the same values, and outputs the same planned values.
/// * Changes outside of the tool count where they change an action or a value. A plan that changes no resource has only those,
///   and is no remainder with them. Plans that invoke actions are not compared.
pub(super) fn compare(
    reviewed: impl Read,
    new: impl Read,
    done: &Done,
) -> Result<Differences, PlanError> {
    let imported = done.imports.keys().cloned().collect();
    let mut plan = Reviewed { imported, ..Reviewed::default() };
    read(reviewed, &mut plan)?;
    let (differences, unimported) = (Differences::default(), done.imports.clone());
    let variables = BTreeMap::new();
    let mut comparison = Comparison { reviewed: plan, done, differences, unimported, variables };
    read(new, &mut comparison)?;
    Ok(comparison.finish())
}

/// The changes of the reviewed plan.
#[derive(Debug, Default)]
struct Reviewed {
    /// By address and key of a deposed object.
    resources: BTreeMap<(String, Option<String>), Resource>,
    outputs: BTreeMap<String, Output>,
    variables: Variables,
    /// The attributes of data sources that it has read, by address.
    data: BTreeMap<String, BTreeMap<String, Sha256>>,
    invokes_actions: bool,
    /// The addresses of what this run imports.
    imported: BTreeSet<String>,
}

/// Digests of the values by name.
type Variables = BTreeMap<String, Sha256>;

#[derive(Debug)]
struct Resource {
    actions: Vec<String>,
    reason: Option<String>,
    moved_from: Option<String>,
    importing: Option<Sha256>,
    object: Option<Sha256>,
    replace_paths: BTreeSet<String>,
    after: Planned,
    /// Its values, if this run imports it instead.
    creation: Option<Creation>,
    /// Whether the new plan changes it as well.
    is_left: bool,
}

#[derive(Debug)]
struct Output {
    is_deleted: bool,
    after: Planned,
}

impl Visit for Reviewed {
    fn resource(&mut self, changed: &Changed) -> serde_json::Result<()> {
        let Changed { address, deposed, action_reason, change, .. } = changed;
        if change.is_no_op() && changed.moved_from().is_none() {
            return Ok(());
        }
        let is_imported = deposed.is_none() && self.imported.contains(address);
        let resource = Resource {
            actions: change.actions.clone(),
            reason: action_reason.clone(),
            moved_from: changed.moved_from().map(str::to_owned),
            importing: change.importing.as_deref().map(digest).transpose()?,
            object: object(change)?,
            replace_paths: replace_paths(change),
            after: Planned::new(change.planned())?,
            creation: is_imported.then(|| Creation::new(change.planned())).transpose()?,
            is_left: false,
        };
        self.resources.insert((address.clone(), deposed.clone()), resource);
        Ok(())
    }

    fn output(&mut self, name: &str, change: &Change) -> serde_json::Result<()> {
        if !change.is_no_op() {
            let output = Output {
                is_deleted: is(change, &["delete"]),
                after: Planned::new(change.planned())?,
            };
            self.outputs.insert(name.to_owned(), output);
        }
        Ok(())
    }

    fn variable(&mut self, name: String, value: &RawValue) -> serde_json::Result<()> {
        self.variables.insert(name, digest(value)?);
        Ok(())
    }

    fn data(&mut self, read: &Prior) -> serde_json::Result<()> {
        self.data.insert(read.address.clone(), insensitive(read.values())?);
        Ok(())
    }

    fn drift(&mut self) {}

    fn action(&mut self) {
        self.invokes_actions = true;
    }
}

/// Why an object is not created again whose ID nothing keeps unique.
const UNANSWERED: &str = "a failed try was to create it and got no answer, so it may exist: look for it, import it, or \
    plan again";

fn creates(actions: &[String]) -> bool {
    actions.iter().any(|action| action == "create")
}

fn is(change: &Change, actions: &[&str]) -> bool {
    change.actions == actions
}

fn is_replacement(actions: &[String]) -> bool {
    creates(actions) && actions.iter().any(|action| action == "delete")
}

/// Whether an attribute of a data source depends on the request, so that it differs in each: the session of a role, the date of
/// an answer, a lease.
fn is_of_request(kind: &str, attribute: &str) -> bool {
    matches!(
        (kind, attribute),
        ("aws_caller_identity", "arn" | "user_id")
            | ("http", "response_headers")
            | (_, "lease_id" | "lease_start_time" | "lease_duration")
    )
}

/// What identifies the object that a change begins with: its identity or ID, else all of its values.
fn object(change: &Change) -> serde_json::Result<Option<Sha256>> {
    let Some(before) = change.before.as_deref() else { return Ok(None) };
    if let Some(identity) = &change.before_identity {
        return digest(identity).map(Some);
    }
    let id = attribute(before, "id")?.filter(|id| id.get() != "null");
    digest(id.unwrap_or(before)).map(Some)
}

fn replace_paths(change: &Change) -> BTreeSet<String> {
    change.replace_paths.iter().map(|path| path.get().to_owned()).collect()
}

/// The comparison with a new plan as that is read.
struct Comparison<'a> {
    reviewed: Reviewed,
    done: &'a Done,
    differences: Differences,
    /// The objects that the new plan does not import.
    unimported: Imports,
    /// The variables of the new plan.
    variables: Variables,
}

impl Visit for Comparison<'_> {
    fn resource(&mut self, changed: &Changed) -> serde_json::Result<()> {
        if changed.change.is_no_op() && changed.moved_from().is_none() {
            return Ok(());
        }
        let Some(difference) = self.difference(changed)? else { return Ok(()) };
        let deposed = changed.deposed.as_ref().map(|key| format!(" (deposed object {key})"));
        let what = format!("{}{}:", changed.address, deposed.unwrap_or_default());
        self.differences.add(&what, &difference);
        Ok(())
    }

    fn output(&mut self, name: &str, change: &Change) -> serde_json::Result<()> {
        if change.is_no_op() {
            return Ok(());
        }
        let what = format!("output {name}:");
        match self.reviewed.outputs.get(name) {
            None => self.differences.add(&what, "its change is not in the reviewed plan"),
            Some(output) if output.is_deleted != is(change, &["delete"]) => {
                self.differences.add(&what, "it is deleted in only one of the plans");
            }
            Some(output) if !output.after.differences(change.planned())?.is_empty() => {
                self.differences.add(&what, "its planned value differs");
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn variable(&mut self, name: String, value: &RawValue) -> serde_json::Result<()> {
        self.variables.insert(name, digest(value)?);
        Ok(())
    }

    fn data(&mut self, read: &Prior) -> serde_json::Result<()> {
        let Some(theirs) = self.reviewed.data.get(&read.address) else { return Ok(()) };
        let ours = insensitive(read.values())?;
        let names = theirs.keys().chain(ours.keys()).collect::<BTreeSet<_>>();
        let is_other = |name: &&String| {
            theirs.get(*name) != ours.get(*name) && !is_of_request(&read.kind, name)
        };
        let names = names.into_iter().filter(is_other).map(String::as_str).collect::<Vec<_>>();
        if !names.is_empty() {
            let difference = format!("what is read differs in {}", names.join(", "));
            self.differences.add(&format!("{}:", read.address), &difference);
        }
        Ok(())
    }

    fn drift(&mut self) {
        if self.reviewed.resources.is_empty() {
            let difference = "only changes that were made outside of the tool, which may be different ones by now";
            self.differences.add("the reviewed plan has", difference);
        }
    }

    fn action(&mut self) {
        self.reviewed.invokes_actions = true;
    }
}

impl Comparison<'_> {
    /// What of the whole reviewed plan is not in the new one.
    fn finish(mut self) -> Differences {
        if self.reviewed.invokes_actions {
            self.differences.add("the plan", "invokes actions, which are not compared");
        }
        for ((address, _), resource) in &self.reviewed.resources {
            let is_lost = creates(&resource.actions)
                && !resource.is_left
                && !self.done.created.contains(address)
                && !self.done.imports.contains_key(address);
            if is_lost {
                let is_replaced = is_replacement(&resource.actions);
                let what = if is_replaced { "replacement" } else { "creation" };
                let difference =
                    format!("its reviewed {what} was not made, and is not planned any more");
                self.differences.add(&format!("{address}:"), &difference);
            }
        }
        if let Some(address) = missing(&self.unimported) {
            self.differences.add(&format!("{address}:"), NOT_IMPORTED);
        }
        let (theirs, ours) = (&self.reviewed.variables, &self.variables);
        let names = theirs.keys().chain(ours.keys()).collect::<BTreeSet<_>>();
        for name in names.into_iter().filter(|name| theirs.get(*name) != ours.get(*name)) {
            self.differences.add(&format!("variable {name}:"), "its value differs");
        }
        self.differences
    }

    /// Why the change of a resource is not in the reviewed plan.
    fn difference(&mut self, changed: &Changed) -> serde_json::Result<Option<String>> {
        let Changed { address, deposed, change, .. } = changed;
        let (done, is_started) = (self.done, self.done.started.contains(address));
        if deposed.is_none() && creates(&change.actions) && done.created.contains(address) {
            return Ok(Some(
                "a failed try has created it, and it is to be created again".to_owned(),
            ));
        }
        let is_tainted = changed.action_reason.as_deref() == Some("replace_because_tainted");
        if creates(&change.actions) && !is_tainted && done.may_exist(address, change)? {
            return Ok(Some(UNANSWERED.to_owned()));
        }
        let key = (address.clone(), deposed.clone());
        let is_deleted = done.deleted.contains(&key);
        if is_deleted && is(change, &["delete"]) {
            return Ok(Some(
                "a failed try has deleted it, and it is to be deleted again".to_owned(),
            ));
        }
        let object = object(change)?;
        let Some(reviewed) = self.reviewed.resources.get_mut(&key) else {
            let is_old = is_started && is(change, &["delete"]) && self.is_replaced(changed)?;
            let difference = format!("{} is not in the reviewed plan", shown(&change.actions));
            return Ok((!is_old).then_some(difference));
        };
        reviewed.is_left = true;
        let is_whole = deposed.is_none() && reviewed.actions == ["create"];
        let imported = self.done.imports.get(address).filter(|_| is_whole);
        if let Some(imported) = imported.filter(|_| !is(change, &["create"])) {
            if change.importing.is_some() {
                self.unimported.remove(address);
            }
            let difference = imported.difference(change)?;
            return match &reviewed.creation {
                Some(creation) if difference.is_none() => creation.difference(change),
                _ => Ok(difference),
            };
        }
        let is_tainted = is_tainted
            && done.creating.contains(address)
            && deposed.is_none()
            && object != reviewed.object
            && is_replacement(&change.actions)
            && creates(&reviewed.actions);
        if is_deleted && !is_tainted && is_replacement(&change.actions) {
            let difference = "a failed try has deleted its object, and it is to be replaced again";
            return Ok(Some(difference.to_owned()));
        }
        let is_half = is_started && is(change, &["create"]) && is_replacement(&reviewed.actions);
        if reviewed.actions != change.actions && !is_tainted && !is_half {
            let (theirs, ours) = (shown(&reviewed.actions), shown(&change.actions));
            return Ok(Some(format!("{ours} is planned, and {theirs} was reviewed")));
        }
        if !is_tainted
            && !is_half
            && let Some(difference) = reviewed.circumstances(changed)?
        {
            return Ok(Some(difference));
        }
        reviewed.differing_values(change)
    }

    /// Whether the object to delete is the one that the reviewed plan replaces after its successor is created.
    fn is_replaced(&self, changed: &Changed) -> serde_json::Result<bool> {
        let replaced = self.reviewed.resources.get(&(changed.address.clone(), None));
        let replaced = replaced.filter(|replaced| replaced.actions == ["create", "delete"]);
        let theirs = replaced.and_then(|replaced| replaced.object);
        Ok(changed.deposed.is_some() && theirs.is_some() && object(&changed.change)? == theirs)
    }
}

impl Resource {
    /// Which planned values differ.
    fn differing_values(&self, change: &Change) -> serde_json::Result<Option<String>> {
        let names = self.after.differences(change.planned())?;
        Ok(match names.as_slice() {
            [] => None,
            [name] if name.is_empty() => Some("its planned values differ".to_owned()),
            names => Some(format!("its planned values differ in {}", names.join(", "))),
        })
    }

    /// What differs but for the planned values.
    fn circumstances(&self, changed: &Changed) -> serde_json::Result<Option<String>> {
        let change = &changed.change;
        let is_read = is(change, &["read"]);
        if !is_read && object(change)? != self.object {
            return Ok(Some("it is another object than the reviewed one".to_owned()));
        }
        if !is_read && changed.action_reason != self.reason {
            let reason = |reason: &Option<String>| reason.clone().unwrap_or("none".to_owned());
            let (theirs, ours) = (reason(&self.reason), reason(&changed.action_reason));
            return Ok(Some(format!("the reason is {ours}, and {theirs} was reviewed")));
        }
        if !replace_paths(change).is_subset(&self.replace_paths) {
            return Ok(Some("it is replaced because of other attributes".to_owned()));
        }
        let moved_from = changed.moved_from();
        if moved_from.is_some() && moved_from != self.moved_from.as_deref() {
            return Ok(Some("it is moved, and was not in the reviewed plan".to_owned()));
        }
        let importing = change.importing.as_deref().map(digest).transpose()?;
        if importing.is_some() && importing != self.importing {
            return Ok(Some("it is imported, and was not so in the reviewed plan".to_owned()));
        }
        Ok(None)
    }
}

fn shown(actions: &[String]) -> String {
    match actions {
        [action] => action.clone(),
        actions if is_replacement(actions) => "replace".to_owned(),
        actions => actions.join(" and "),
    }
}
