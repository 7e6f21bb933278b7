//! How the layers of one command have ended: a table, and one exit code.

use datastore_api::status::RunResult;

use crate::execute::Ended;
use crate::process::Stop;

/// The exit code of a layer that was not started, because one before it has failed.
const BLOCKED: u8 = 12;
/// Of several exit codes the first of these decides.
const PRECEDENCE: [u8; 13] = [1, 64, 9, 5, 8, 7, 4, 10, 11, 6, 3, BLOCKED, 2];

/// One layer.
#[derive(Debug)]
pub(super) struct Row {
    layer: String,
    /// `None`: it was not started, because of a signal.
    exit: Option<u8>,
    result: &'static str,
    text: String,
    /// The layer because of which it was not started.
    blocker: Option<String>,
}

impl Row {
    pub(super) fn new(layer: &str) -> Self {
        let (layer, text) = (layer.to_owned(), String::new());
        Self { layer, exit: None, result: "not started", text, blocker: None }
    }

    /// The row of this layer, after one before it has failed. If that one is no failure for the caller (`--exit-zero-on-skip`),
    /// neither is this one.
    pub(super) fn blocked_by(&self, by: &Self) -> Self {
        let exit = if by.exit == Some(0) { 0 } else { BLOCKED };
        Self {
            layer: self.layer.clone(),
            exit: Some(exit),
            result: RunResult::Blocked.as_str(),
            text: format!("by {}", by.layer),
            blocker: Some(by.layer.clone()),
        }
    }

    /// The layer because of which this one was not started.
    pub(super) fn blocker(&self) -> Option<&str> {
        self.blocker.as_deref()
    }

    /// Records its end. Returns whether others may build on it.
    pub(super) fn end(&mut self, ended: &Ended) -> bool {
        self.exit = Some(ended.exit);
        self.result = ended.result.as_str();
        self.text.clone_from(&ended.text);
        let is_good =
            matches!(ended.result, RunResult::Unchanged | RunResult::Applied | RunResult::Changes);
        is_good && matches!(ended.exit, 0 | 2)
    }
}

/// The table, with a headline.
pub(super) fn lines(command: &str, rows: &[Row]) -> Vec<String> {
    let width = rows.iter().map(|row| row.layer.len()).max().unwrap_or_default();
    let row = |row: &Row| {
        let exit = row.exit.map_or_else(|| "-".to_owned(), |exit| exit.to_string());
        format!("{:width$}  {:11}  {exit:>3}  {}", row.layer, row.result, row.text)
            .trim_end()
            .to_owned()
    };
    let headline = format!("{command}: {} layers (layer, result, exit code)", rows.len());
    [headline].into_iter().chain(rows.iter().map(row)).collect()
}

/// One exit code for all of them.
pub(super) fn exit_code(rows: &[Row], stop: Option<Stop>) -> u8 {
    match stop {
        Some(Stop::Interrupt) => return 130,
        Some(Stop::Terminate | Stop::Hangup) => return 143,
        _ => {}
    }
    let codes = rows.iter().filter_map(|row| row.exit).collect::<Vec<_>>();
    let first = PRECEDENCE.into_iter().find(|code| codes.contains(code));
    // A code that the list does not have is a failure, too.
    first.or_else(|| codes.into_iter().max()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_exit_code_stands_for_all() {
        let rows = |codes: &[u8]| {
            let row = |code: &u8| Row { exit: Some(*code), ..Row::new("a") };
            exit_code(&codes.iter().map(row).collect::<Vec<_>>(), None)
        };
        for (codes, expected) in [
            (&[0, 0][..], 0),
            (&[0, 2], 2),
            (&[2, 12, 3], 3),
            (&[12, 6], 6),
            (&[6, 8, 9], 9),
            (&[9, 1], 1),
            (&[0, 130], 130),
            (&[], 0),
        ] {
            assert_eq!(rows(codes), expected, "{codes:?}");
        }
        assert_eq!(exit_code(&[Row::new("a")], Some(Stop::Terminate)), 143);
    }

    #[test]
    fn layers_behind_one_that_is_skipped_with_code_0_have_code_0_too() {
        for (exit, expected) in [(0, 0), (3, BLOCKED), (8, BLOCKED), (BLOCKED, BLOCKED)] {
            let by = Row { exit: Some(exit), ..Row::new("a") };
            let blocked = Row::new("b").blocked_by(&by);
            assert_eq!(blocked.exit, Some(expected), "{exit}");
            assert_eq!(Row::new("c").blocked_by(&blocked).exit, Some(expected), "{exit}");
        }
    }
}
