//! Whether a lock is the one that the tool of this run took and left when it ended. Only such a lock is freed.
//!
//! The tool never prints the ID of a lock that it takes. It prints that of one that it could not release: the backend `http` in
//! the URL of a refused state, the backend `s3` in the error of the release. Without its ID no lock is freed: a holder of the
//! same name may be another process.

use std::io::BufReader;

use anstream::adapter::strip_str;

use crate::process::Log;
use crate::source::regular;
use crate::tool::diagnostics::lock_info::{is_lock_error, lock_id};
use crate::tool::diagnostics::{Diagnostic, Diagnostics, each_line};

/// The summary of the tool's error.
const RELEASE: &str = "Error releasing the state lock";

/// The IDs of the locks that the tool took, as far as it has named them.
#[derive(Debug, Default)]
pub(super) struct OwnLock(Vec<String>);

impl OwnLock {
    /// By the output of an apply that has ended.
    pub(super) fn of(log: &Log) -> Self {
        let (output, mut own) = (Log::output_of(log.path()), Self::default());
        let open = || regular::open(&output).map(BufReader::new);
        // Without an output nothing is known, and the lock stays.
        if let Ok(reader) = open() {
            let mut block = SaveError::default();
            let read = each_line(reader, |line| {
                let line = strip_str(line).to_string();
                if block.contains(&line) {
                    own.0.extend(id_in_url(&line));
                }
            });
            read.unwrap_or_else(|error| tracing::debug!("{error}"));
        }
        if let Ok(errors) = open().and_then(Diagnostics::read) {
            own.read_errors(&errors);
        }
        own
    }

    fn read_errors(&mut self, errors: &Diagnostics) {
        let of_release = errors.iter().filter(|error| error.summary == RELEASE);
        self.0.extend(of_release.filter_map(|error| id_in_release(&error.detail)));
    }

    /// The ID of the lock that has refused a command, if it is this one. The error is why that is not certain.
    pub(super) fn id_in(&self, output: &str) -> Result<String, String> {
        let errors = Diagnostics::read(output.as_bytes()).unwrap_or_default();
        let error = errors.iter().find(|error| is_lock_error(error));
        let text = error.map(Diagnostic::text).ok_or("the tool does not say who holds it")?;
        let id = lock_id(&text).ok_or("its ID is not known")?;
        if self.0.iter().any(|own| own == id) {
            return Ok(id.to_owned());
        }
        Err("another process may hold it".to_owned())
    }
}

/// The own lock's ID in the error of a release, as the backend s3 words it: `failed to retrieve lock info for lock ID "..."`, or
/// `lock ID "..." does not match existing lock ("...")`.
fn id_in_release(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("lock ID \"")?;
    let (id, _) = rest.split_once('"')?;
    (id.len() >= 16).then(|| id.to_owned())
}

/// Whether lines belong to the tool's own error about the state, in a box or without. Other errors quote the output of
/// programs.
#[derive(Debug, Default)]
struct SaveError {
    is_inside: bool,
}

impl SaveError {
    fn contains(&mut self, line: &str) -> bool {
        let line = line.strip_prefix("│ ").unwrap_or(line).trim_end();
        if line.starts_with("Error: ") || line.starts_with("Warning: ") || line == "╵" {
            self.is_inside = line == "Error: Failed to save state";
        }
        self.is_inside
    }
}

/// The lock's ID in the URL of a refused state: `POST http://host/state?ID=...`, as terraform and tofu print it.
fn id_in_url(line: &str) -> Option<String> {
    if ["(local-exec): ", "(remote-exec): "].iter().any(|name| line.contains(name)) {
        return None;
    }
    let (before, after) = line.split_once("?ID=").or_else(|| line.split_once("&ID="))?;
    let is_url = before.rsplit(char::is_whitespace).next()?.starts_with("http");
    let is_id = |sign: char| sign.is_ascii_alphanumeric() || sign == '-';
    let id = after.split(|sign| !is_id(sign)).next()?;
    (is_url && id.len() >= 16).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "8fddc8f0-2359-6730-022a-e7f868d40c4b";

    fn held(error: &str, id: &str) -> String {
        format!(
            "╷\n│ Error: Error acquiring the state lock\n│ \n│ Error message: {error}\n│ Lock Info:\n│   ID:        {id}\n\
             │   Path:      b/k\n│   Operation: OperationTypeApply\n│   Who:       root@pod-1\n│   Version:   1.11.4\n\
             │   Created:   2026-11-23 13:05:00.5 +0000 UTC\n│   Info:      \n│ \n│ \n│ Terraform acquires a state lock\n╵\n"
        )
    }

    #[test]
    fn only_the_error_about_the_state_names_the_own_lock() {
        let boxed =
            |headline: &str, text: &str| format!("╷\n│ Error: {headline}\n│ \n│ {text}\n╵\n");
        let url = format!("POST http://h/state?ID={ID} giving up");
        for (output, is_named) in [
            (boxed("Failed to save state", &url), true),
            (boxed("local-exec provisioner error", &url), false),
            (format!("\nError: Failed to save state\n\nError saving state:\n{url}\n"), true),
            (format!("\nError: Failed to save state\n\nx\n\nError: other\n\n{url}\n"), false),
            (format!("{}{url}\n", boxed("Failed to save state", "x")), false),
        ] {
            let mut block = SaveError::default();
            let named =
                output.lines().any(|line| block.contains(line) && id_in_url(line).is_some());
            assert_eq!(named, is_named, "{output}");
        }
    }

    /// Errors of terraform 1.11.4 with the backend s3.
    #[test]
    fn error_of_a_release_names_the_own_lock_and_not_the_one_that_exists() {
        let text = |summary: &str, error: &str| {
            format!(
                "Error: {summary}\n\nError message: failed to unlock: {error}\nLock Info:\n  ID:        11111111-2222-3333-4444\n  Who:       root@pod-1\n"
            )
        };
        let own = format!("failed to retrieve lock info for lock ID \"{ID}\": ThrottlingException");
        let other = format!("lock ID \"{ID}\" does not match existing lock (\"11111111-2222\")");
        for (summary, error, ids) in [
            (RELEASE, &*own, &[ID][..]),
            (RELEASE, &*other, &[ID]),
            (RELEASE, "operation error DynamoDB: DeleteItem, 503", &[]),
            ("local-exec provisioner error", &*own, &[]),
        ] {
            let mut own = OwnLock::default();
            own.read_errors(&Diagnostics::read(text(summary, error).as_bytes()).unwrap());
            assert_eq!(own.0, ids, "{error}");
        }
    }

    #[test]
    fn only_a_lock_whose_id_the_tool_has_named_is_its_own() {
        let own = |ids: &[&str]| OwnLock(ids.iter().map(|id| (*id).to_owned()).collect());
        let s3 = held("operation error S3: PutObject, PreconditionFailed", ID);
        assert_eq!(own(&[ID]).id_in(&s3).unwrap(), ID);
        // The `Lock Info` of the backend http is that of the refused command.
        let push = "e3b00f68-a6f9-b78b-e6a2-3c0b68ff9c34";
        let http = held(&format!("HTTP remote state already locked:\n│ ID={ID}"), push);
        assert_eq!(own(&[ID]).id_in(&http).unwrap(), ID);
        for (own, output) in [
            (own(&[]), s3.clone()),
            (own(&["11111111-2222-3333-4444"]), s3),
            (own(&[push]), http),
            (own(&[ID]), "Error: Error acquiring the state lock\n\ndenied\n".to_owned()),
            (own(&[ID]), "Error: no such host\n".to_owned()),
        ] {
            own.id_in(&output).unwrap_err();
        }
    }

    #[test]
    fn id_is_read_from_urls_of_the_tool() {
        let line = format!("│ http://127.0.0.1:1/state?ID={ID} giving");
        assert_eq!(id_in_url(&line).unwrap(), ID);
        for line in [
            format!("x (local-exec): http://h/state?ID={ID}"),
            format!("see what?ID={ID}"),
            "http://h/?ID=1".to_owned(),
        ] {
            assert_eq!(id_in_url(&line), None, "{line}");
        }
    }
}
