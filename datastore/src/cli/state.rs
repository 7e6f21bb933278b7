//! `datastore state`: what an operator does with terraform states.
//!
//! [`access`] works on the storage itself or through a datastore, [`document`] reads what `push` writes, [`table`] prints, [`tools`]
//! lists the tools of layers, and [`faults`] is what `verify` checks.

mod access;
mod document;
pub(crate) mod faults;
mod table;
mod tools;

use std::io::Write;

use datastore_api::state::{Lease, StateHead, StateKind, StateVersion, States};
use datastore_api::{StateKey, VersionId};
use serde_json::{Value, json};

use crate::cli::error::CommandError;
use crate::cli::state::access::Access;
use crate::cli::state::document::Document;
use crate::config::{StateCommand, StateOrder};
use crate::store::LayerStates;

/// The most versions in one page of a listing.
const PAGE: usize = 1000;

/// Runs one command, and writes its results to `out`.
pub async fn state(order: StateOrder, out: &mut impl Write) -> Result<(), CommandError> {
    let StateOrder { place, command } = order;
    let access = Access::open(place, command.is_change()).await?;
    match command {
        StateCommand::List { deleted, json } => list(&access, deleted, json, out).await?,
        StateCommand::Tools { prometheus, json } => {
            tools::list(&access, (prometheus, json), out).await?;
        }
        StateCommand::Versions { key, kind, limit, json } => {
            versions(&access, &key, kind, limit, json, out).await?;
        }
        StateCommand::Show { key, version: None, json } => show(&access, &key, json, out).await?,
        StateCommand::Show { key, version: Some(id), json } => {
            let version = find(&access, &key, &id).await?;
            table::version(&key, &version, json, out)?;
        }
        StateCommand::Pull(key, version) => access.pull(&key, version, out).await?,
        StateCommand::Push { key, file, force } => {
            let document = Document::open(file).await?;
            let before = access.head(&key).await?;
            let document = document.with_lineage(&key, &before).await?;
            access.push(&key, document, force).await?;
            let after = access.head(&key).await?;
            pushed(&key, &before, &after, out)?;
        }
        StateCommand::Restore(key, version) => {
            access.restore(&key, &version).await?;
            let head = access.head(&key).await?;
            writeln!(out, "restored {key} from the version {version}: {}", present(&head))?;
        }
        StateCommand::Unlock(key, id) => {
            let head = access.head(&key).await?;
            let is_locked = head.lock.is_some();
            if is_absent(&head) && !is_locked {
                return Err(CommandError::NoState(key.to_string()));
            }
            access.unlock(&key, &id).await?;
            let done = if is_locked { "unlocked" } else { "there is no lock on" };
            writeln!(out, "{done} {key}")?;
        }
        StateCommand::Remove(key) => remove(&access, &key, out).await?,
        StateCommand::Undelete(key) => {
            access.undelete(&key).await?;
            writeln!(out, "undeleted {key}: {}", present(&access.head(&key).await?))?;
        }
    }
    Ok(out.flush()?)
}

/// Lists the states of the storage. A layer that cannot be read does not hide the others.
async fn list(
    access: &Access,
    deleted: bool,
    as_json: bool,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    let (layers, damaged) = access.readable_layers().await?;
    for (layer, LayerStates { lease, states, .. }) in layers {
        for (workspace, state) in states {
            let head = state.head;
            let is_shown = head.version.is_some() || deleted && head.deleted.is_some();
            if !is_shown {
                continue;
            }
            if as_json {
                all.push(json!({
                    "namespace": layer.namespace.as_ref(),
                    "layer": layer.layer.as_ref(),
                    "workspace": workspace,
                    "head": head,
                    "last": state.last,
                    "lease": lease,
                }));
            } else {
                let name = format!("{}/{}/{workspace}", layer.namespace, layer.layer);
                rows.push(table::state_row(&name, &head, state.last.as_ref(), lease.as_ref()));
            }
        }
    }
    if as_json {
        table::print_json(&Value::Array(all), out)?;
    } else {
        table::print(table::STATES, &rows, out)?;
    }
    damaged.map_or(Ok(()), |error| Err(CommandError::State(error)))
}

async fn versions(
    access: &Access,
    key: &StateKey,
    kind: Option<StateKind>,
    limit: usize,
    as_json: bool,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let mut all = States::default();
    let mut after: Option<VersionId> = None;
    loop {
        let left = limit - all.versions.len();
        let page = access.page(key, kind, left.clamp(1, PAGE), after.as_ref()).await?;
        all.head = page.head;
        all.versions.extend(page.versions);
        all.versions.truncate(limit);
        all.next = page.next;
        after = all.next.as_deref().and_then(|next| next.parse().ok());
        if after.is_none() || all.versions.len() >= limit {
            break;
        }
    }
    if all.versions.is_empty() && is_absent(&all.head) && kind.is_none() {
        return Err(why_absent(access, key, &all.head).await?);
    }
    if as_json {
        return table::print_json(&json!(all), out);
    }
    let present = all.head.version.as_ref().map(|version| &version.version);
    let rows = all.versions.iter().map(|version| table::version_row(version, present));
    table::print(table::VERSIONS, &rows.collect::<Vec<_>>(), out)?;
    if all.next.is_some() {
        out.flush()?;
        writeln!(std::io::stderr(), "there are older ones: --limit N lists more than {limit}")?;
    }
    Ok(())
}

/// What there is of a state without a version.
async fn why_absent(
    access: &Access,
    key: &StateKey,
    head: &StateHead,
) -> Result<CommandError, CommandError> {
    let rejected = access.page(key, Some(StateKind::Rejected), 1, None).await?;
    if !rejected.versions.is_empty() {
        return Ok(CommandError::OnlyRejected(key.to_string()));
    }
    let lease = access.lease(key).await?.unwrap_or_default();
    if head.lock.is_some() || lease.is_some_and(|lease| lease.valid) {
        return Ok(CommandError::OnlyHeld(key.to_string()));
    }
    Ok(CommandError::NoState(key.to_string()))
}

fn is_absent(head: &StateHead) -> bool {
    head.version.is_none() && head.deleted.is_none()
}

/// One version of a state: also a snapshot, or a write that was refused.
async fn find(
    access: &Access,
    key: &StateKey,
    id: &VersionId,
) -> Result<StateVersion, CommandError> {
    let after = id.previous();
    for kind in [None, Some(StateKind::Rejected)] {
        let page = access.page(key, kind, 1, after.as_ref()).await?;
        if let Some(version) = page.versions.into_iter().find(|version| version.version == *id) {
            return Ok(version);
        }
    }
    Err(CommandError::NoVersion(key.to_string(), id.to_string()))
}

async fn show(
    access: &Access,
    key: &StateKey,
    as_json: bool,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let head = access.head(key).await?;
    let tool = access.tool(key).await?;
    // The right to read states does not include that to read leases.
    let lease: Result<Option<Lease>, String> = access.lease(key).await?;
    let is_leased = matches!(&lease, Ok(Some(lease)) if lease.valid);
    if is_absent(&head) && head.lock.is_none() && tool.is_none() && !is_leased {
        return Err(CommandError::NoState(key.to_string()));
    }
    if as_json {
        let StateKey { namespace, layer, workspace } = key;
        let shown = json!({
            "namespace": namespace.as_ref(),
            "layer": layer.as_ref(),
            "workspace": workspace.as_ref(),
            "head": head,
            "lease": lease.unwrap_or_default(),
            "tool": tool,
        });
        return table::print_json(&shown, out);
    }
    table::head(key, &head, lease.as_ref().map(Option::as_ref), tool.as_ref(), out)
}

fn pushed(
    key: &StateKey,
    before: &StateHead,
    after: &StateHead,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let id = |head: &StateHead| head.version.as_ref().map(|version| version.version.clone());
    if before.version.is_some() && id(before) == id(after) {
        return Ok(writeln!(out, "{key} has this content already: {}", present(after))?);
    }
    writeln!(out, "wrote {key}: {}", present(after))?;
    if let Some(version) = &before.version {
        writeln!(out, "it replaced the version {} (serial {})", version.version, version.serial)?;
        writeln!(
            out,
            "to restore that: datastore state restore {key} --version {}",
            version.version
        )?;
    }
    Ok(())
}

async fn remove(access: &Access, key: &StateKey, out: &mut impl Write) -> Result<(), CommandError> {
    let before = access.head(key).await?;
    let Some(version) = &before.version else {
        return match before.deleted {
            Some(deleted) => Ok(writeln!(out, "{key} was deleted already, at {deleted}")?),
            None => Err(CommandError::NoState(key.to_string())),
        };
    };
    access.delete(key).await?;
    writeln!(
        out,
        "deleted {key}: its last version is {} (serial {})",
        version.version, version.serial
    )?;
    Ok(writeln!(out, "to undo that: datastore state undelete {key}")?)
}

/// The present version of a state.
fn present(head: &StateHead) -> String {
    match &head.version {
        Some(version) => format!("version {}, serial {}", version.version, version.serial),
        None => "no version".to_owned(),
    }
}
