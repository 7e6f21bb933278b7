//! What an apply has done so far, by the lines that the tool prints.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead};

use crate::report::Counts;
use crate::run::apply::remainder::document::Change;
use crate::run::apply::remainder::imported::Imports;
use crate::run::apply::remainder::of_address::id_of;
use crate::tool::diagnostics::{Action, Phase, Progress, ProgressReader, each_line, is_address};

/// What a run's apply has done so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    /// The addresses at which it has started to create, update or delete an object.
    pub(super) started: HashSet<String>,
    /// Those at which it has created one.
    pub(super) created: HashSet<String>,
    /// Those at which it was to create one, and got no answer: it may exist. Each with how the import ID follows from the
    /// planned values.
    pub(super) unanswered: HashMap<String, Option<String>>,
    /// Whether the log hides a part of an address, so that it is not known what was done.
    pub(super) has_masked: bool,
    /// Objects that exist, and that it imports.
    pub(super) imports: Imports,
    /// Those at which it has started to create one.
    pub(super) creating: HashSet<String>,
    /// Those of which it has deleted the object, or the object that was deposed under this key.
    pub(super) deleted: HashSet<(String, Option<String>)>,
    /// By address the objects that the last try has started to delete.
    deleting: HashMap<String, Vec<Option<String>>>,
}

/// Whether a line may say what was done, if the log hides a part of it.
fn may_be_progress(line: &str) -> bool {
    let head = line.split_once(": ").map_or("", |(head, _)| head);
    line.contains("***") && (head.contains("***") || is_address(head))
}

impl Done {
    /// Adds what the output of a try shows. Returns how many changes that has completed. `may_repeat`: the tool may have
    /// been run twice.
    pub(super) fn add(&mut self, output: impl BufRead, may_repeat: bool) -> io::Result<Counts> {
        let (mut reader, mut counts) = (ProgressReader::new(may_repeat), Counts::default());
        self.deleting.clear();
        each_line(output, |line| match reader.line(line) {
            Some(progress) => self.add_progress(progress, &mut counts),
            None => self.has_masked |= may_be_progress(line),
        })?;
        Ok(counts)
    }

    fn add_progress(&mut self, progress: Progress, counts: &mut Counts) {
        let Progress { address, deposed, action, phase, .. } = progress;
        if !action.changes() {
            return;
        }
        self.has_masked |= address.contains("***");
        if phase == Phase::Started && action == Action::Delete {
            self.deleting.entry(address.clone()).or_default().push(deposed.clone());
        }
        if phase != Phase::Completed {
            if action == Action::Create {
                self.creating.insert(address.clone());
            }
            self.started.insert(address);
            return;
        }
        match action {
            Action::Create => {
                self.created.insert(address);
                counts.create += 1;
            }
            Action::Import => {
                if let Some(imported) = self.imports.get_mut(&address) {
                    imported.is_pending = false;
                }
            }
            Action::Update => counts.update += 1,
            Action::Delete => {
                self.add_deleted(address, deposed);
                counts.delete += 1;
            }
            _ => {}
        }
    }

    /// Adds an object that is deleted. The tool may leave out its key, and then only the beginning of the deletion says
    /// which object it is.
    fn add_deleted(&mut self, address: String, deposed: Option<String>) {
        let key = match self.deleting.get(&address).map(Vec::as_slice) {
            Some([key]) if deposed.is_none() => key.clone(),
            // Which one is not known.
            Some([_, _, ..]) if deposed.is_none() => return,
            _ => deposed,
        };
        self.deleted.insert((address, key));
    }

    /// Whether the object that a plan is to create may exist, and nothing keeps it unique.
    pub(super) fn may_exist(&self, address: &str, change: &Change) -> serde_json::Result<bool> {
        let Some(template) = self.unanswered.get(address) else { return Ok(false) };
        let id = template.as_ref().map(|template| id_of(change, template)).transpose()?;
        Ok(id.flatten().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masked_lines_of_the_tool_hide_what_was_done() {
        for (line, is_hidden) in [
            ("aws_vpc.***: Creation complete after 0s [id=1]", true),
            ("a_b.c[\"***\"]: Creating...", true),
            ("a_b.c: *** *** after 0s [id=1]", true),
            ("a_b.c (local-exec): the token is ***", false),
            ("a_b.c: Creation complete after 0s [id=1]", false),
        ] {
            let mut done = Done::default();
            done.add(format!("{line}\n").as_bytes(), false).unwrap();
            assert_eq!(done.has_masked, is_hidden, "{line}");
        }
    }
}
