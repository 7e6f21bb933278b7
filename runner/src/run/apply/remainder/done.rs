//! What an apply has done so far, by the lines that the tool prints.

use std::collections::HashSet;
use std::io::{self, BufRead};

use crate::report::Counts;
use crate::tool::diagnostics::each_line;

/// What a run's apply has done so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    /// The addresses at which it has started to create, update or delete an object.
    pub(super) started: HashSet<String>,
    /// Those at which it has created one.
    pub(super) created: HashSet<String>,
}

impl Done {
    /// Adds what the output of a try shows. Returns how many changes that has completed.
    pub(super) fn add(&mut self, output: impl BufRead) -> io::Result<Counts> {
        let (mut counts, mut has_ended) = (Counts::default(), false);
        each_line(output, |line| {
            // An error may quote any line.
            has_ended |= line.trim_start_matches("\u{2502} ").starts_with("Error: ");
            if !has_ended {
                self.line(line, &mut counts);
            }
        })?;
        Ok(counts)
    }

    fn line(&mut self, line: &str, counts: &mut Counts) {
        if ["(local-exec): ", "(remote-exec): "].iter().any(|name| line.contains(name)) {
            return;
        }
        let found = VERBS.iter().find_map(|verb| {
            let (address, _) = line.rsplit_once(&format!(": {verb}"))?;
            Some((address, *verb))
        });
        let Some((address, verb)) = found else { return };
        // The deletion of an object that a replacement has left begins with its key as well.
        let address = address.split_once(" (deposed ").map_or(address, |(address, _)| address);
        match verb {
            CREATED => {
                self.created.insert(address.to_owned());
                counts.create += 1;
            }
            UPDATED => counts.update += 1,
            DELETED => counts.delete += 1,
            _ => {
                self.started.insert(address.to_owned());
            }
        }
    }
}

const CREATED: &str = "Creation complete after ";
const UPDATED: &str = "Modifications complete after ";
const DELETED: &str = "Destruction complete after ";
const VERBS: [&str; 6] =
    ["Creating...", "Modifying...", "Destroying...", CREATED, UPDATED, DELETED];
