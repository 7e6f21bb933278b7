//! Whether a lock is the one that the tool of this run took and left when it ended. Only such a lock is freed.
//!
//! The tool never prints the ID of a lock that it takes, but the backend `http` has it in the URL of a refused state. Else the
//! holder that the lock server names must be an apply that this machine began while the tool ran, and the tool must say that it
//! could not release its lock, and not that another one exists.

use std::io::BufReader;

use jiff::Timestamp;

use crate::process::Log;
use crate::source::regular;
use crate::tool::diagnostics::lock_info::{has_own_info, is_lock_error, lock_id, lock_info};
use crate::tool::diagnostics::{Diagnostics, each_line};

/// What is known of the lock that the tool took.
#[derive(Debug, Default)]
pub(super) struct OwnLock {
    /// The IDs that the tool's errors name.
    ids: Vec<String>,
    /// Whether the tool says that it could not release the lock.
    is_left: bool,
    /// When the tool ran.
    ran: Option<(Timestamp, Timestamp)>,
    host: Option<String>,
}

impl OwnLock {
    /// By the output of an apply that began at `started` and has ended.
    pub(super) fn of(log: &Log, started: Timestamp) -> Self {
        let output = Log::output_of(log.path());
        let mut own = Self {
            ran: Some((started, Timestamp::now())),
            host: std::fs::read_to_string("/proc/sys/kernel/hostname").ok(),
            ..Self::default()
        };
        let open = || regular::open(&output).map(BufReader::new);
        // Without an output nothing is known, and the lock stays.
        if let Ok(reader) = open() {
            let mut block = SaveError::default();
            let read = each_line(reader, |line| {
                if block.contains(line) {
                    own.ids.extend(id_in_url(line));
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
        for error in errors.iter() {
            let text = format!("{}\n{}", error.summary, error.detail);
            // The lock that this error describes is the one that exists, which may be that of another process.
            self.is_left |=
                text.contains("Error releasing the state lock") && !text.contains("does not match");
        }
    }

    /// The ID of the lock that has refused a command, if it is this one. The error is why that is not certain.
    pub(super) fn id_in(&self, output: &str) -> Result<String, String> {
        let errors = Diagnostics::read(output.as_bytes()).unwrap_or_default();
        let error = errors.iter().find(|error| is_lock_error(error));
        let text = error.map(|error| format!("{}\n{}", error.summary, error.detail));
        let text = text.ok_or("the tool does not say who holds it")?;
        let id = lock_id(&text).ok_or("its ID is not known")?;
        if self.ids.iter().any(|own| own == id) {
            return Ok(id.to_owned());
        }
        if has_own_info(&text) {
            return Err("it is not known who holds it".to_owned());
        }
        let ours = self.is_left && self.is_holder(&text);
        if ours { Ok(id.to_owned()) } else { Err("another process may hold it".to_owned()) }
    }

    /// Whether the holder is an apply that this machine began while the tool ran.
    fn is_holder(&self, text: &str) -> bool {
        let of = |label: &str| lock_info(text, label);
        let host = of("Who:").and_then(|who| who.rsplit_once('@')).map(|(_, host)| host);
        let is_host = host.is_some() && host == self.host.as_deref().map(str::trim);
        let created = of("Created:").and_then(go_time);
        let is_time = created
            .zip(self.ran)
            .is_some_and(|(created, (first, last))| first <= created && created <= last);
        is_host && is_time && of("Operation:") == Some("OperationTypeApply")
    }
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

/// A time as Go prints it: `2026-11-22 01:57:02.5 +0000 UTC`.
fn go_time(text: &str) -> Option<Timestamp> {
    let mut words = text.split_whitespace();
    let (date, time, zone) = (words.next()?, words.next()?, words.next()?);
    format!("{date}T{time}{zone}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "8fddc8f0-2359-6730-022a-e7f868d40c4b";

    fn held(error: &str, id: &str, who: &str, operation: &str, created: &str) -> String {
        format!(
            "╷\n│ Error: Error acquiring the state lock\n│ \n│ Error message: {error}\n│ Lock Info:\n│   ID:        {id}\n\
             │   Path:      b/k\n│   Operation: {operation}\n│   Who:       {who}\n│   Version:   1.11.4\n\
             │   Created:   {created}\n│   Info:      \n│ \n│ \n│ Terraform acquires a state lock\n╵\n"
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

    #[test]
    fn lock_that_the_tool_found_instead_of_its_own_is_not_its_own() {
        let text = |error: &str| {
            format!(
                "Error: Error releasing the state lock\n\nError message: failed to unlock: {error}\nLock Info:\n  ID:        {ID}\n  Who:       alice@elsewhere\n"
            )
        };
        for (error, is_left) in [
            ("lock ID \"1\" does not match existing lock (\"8fddc8f0\")", false),
            ("operation error DynamoDB: 503", true),
        ] {
            let mut own = OwnLock::default();
            own.read_errors(&Diagnostics::read(text(error).as_bytes()).unwrap());
            assert_eq!((own.ids.len(), own.is_left), (0, is_left), "{error}");
        }
    }

    fn own(ids: &[&str], is_left: bool) -> OwnLock {
        let time = |text: &str| text.parse().unwrap();
        OwnLock {
            ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            is_left,
            ran: Some((time("2026-11-23T13:00:00Z"), time("2026-11-23T13:10:00Z"))),
            host: Some("pod-1\n".to_owned()),
        }
    }

    #[test]
    fn only_a_lock_of_the_dead_tool_is_its_own() {
        let s3 = |who: &str, operation: &str, created: &str| {
            held("operation error S3: PutObject, PreconditionFailed", ID, who, operation, created)
        };
        let (apply, during) = ("OperationTypeApply", "2026-11-23 13:05:00.5 +0000 UTC");
        let ours = s3("root@pod-1", apply, during);
        assert_eq!(own(&[], true).id_in(&ours).unwrap(), ID);
        assert_eq!(own(&[ID], false).id_in(&ours).unwrap(), ID);
        for (lock, output) in [
            // The tool has not said that it could not release its lock.
            (own(&[], false), ours),
            (own(&[], true), s3("root@pod-2", apply, during)),
            (own(&[], true), s3("root", apply, during)),
            (own(&[], true), s3("root@pod-1", "OperationTypePlan", during)),
            (own(&[], true), s3("root@pod-1", apply, "2026-11-23 12:59:59 +0000 UTC")),
            (own(&[], true), s3("root@pod-1", apply, "2026-11-23 13:10:01 +0000 UTC")),
            (own(&[], true), s3("root@pod-1", apply, "yesterday")),
            (own(&["other"], true), "Error: Error acquiring the state lock\n\ndenied\n".to_owned()),
            (own(&[ID], true), "Error: no such host\n".to_owned()),
        ] {
            lock.id_in(&output).unwrap_err();
        }
    }

    /// The `Lock Info` of the backend http is that of the refused command.
    #[test]
    fn lock_of_the_backend_http_is_known_by_the_url_of_the_refused_state() {
        let (push, other) = ("e3b00f68-a6f9-b78b-e6a2-3c0b68ff9c34", "11111111-2222-3333-4444");
        let now = "2026-11-23 13:05:00.5 +0000 UTC";
        let output = |holder: &str| {
            let error = format!("HTTP remote state already locked:\n│ ID={holder}");
            held(&error, push, "root@pod-1", "OperationTypeApply", now)
        };
        let line = format!("│ http://127.0.0.1:1/state?ID={ID} giving");
        let id = id_in_url(&line).unwrap();
        assert_eq!(own(&[&id], true).id_in(&output(ID)).unwrap(), ID);
        own(&[&id], true).id_in(&output(other)).unwrap_err();
        own(&[], true).id_in(&output(ID)).unwrap_err();
        for line in [
            format!("x (local-exec): http://h/state?ID={ID}"),
            format!("see what?ID={ID}"),
            "http://h/?ID=1".to_owned(),
        ] {
            assert_eq!(id_in_url(&line), None, "{line}");
        }
    }
}
