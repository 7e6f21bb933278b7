//! What an apply has done so far, by the lines that the tool prints.

use std::collections::HashSet;
use std::io::{self, BufRead};

use crate::report::Counts;
use crate::run::apply::remainder::imported::Imports;
use crate::tool::diagnostics::{Action, Phase, Progress, ProgressReader, each_line};

/// What a run's apply has done so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    /// The addresses at which it has started to create, update or delete an object.
    pub(super) started: HashSet<String>,
    /// Those at which it has created one.
    pub(super) created: HashSet<String>,
    /// Objects that exist, and that it imports.
    pub(super) imports: Imports,
}

impl Done {
    /// Adds what the output of a try shows. Returns how many changes that has completed. `may_repeat`: the tool may have
    /// been run twice.
    pub(super) fn add(&mut self, output: impl BufRead, may_repeat: bool) -> io::Result<Counts> {
        let (mut reader, mut counts) = (ProgressReader::new(may_repeat), Counts::default());
        each_line(output, |line| {
            if let Some(progress) = reader.line(line) {
                self.add_progress(progress, &mut counts);
            }
        })?;
        Ok(counts)
    }

    fn add_progress(&mut self, progress: Progress, counts: &mut Counts) {
        let Progress { address, action, phase, .. } = progress;
        if !action.changes() {
            return;
        }
        if phase != Phase::Completed {
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
            Action::Delete => counts.delete += 1,
            _ => {}
        }
    }
}
