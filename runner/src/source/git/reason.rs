//! What git's messages mean; they are stable in the C locale.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use nix::sys::signal::Signal;

use crate::process::url_secrets::{Parameters, masked};
use crate::source::error::CheckoutError;
use crate::source::git::source::GitSource;

/// Added to the reason if `known_hosts` has another key of the host.
pub(crate) const CHANGED_KEY: &str = "known_hosts has another key of this host.";

const NOT_WHOLE: &str = "it needs commits that are not in it";

/// What git and git LFS say if credentials are refused.
const REFUSED: [&str; 9] = [
    "Authentication failed",
    "could not read Username",
    "could not read Password",
    "Permission denied (",
    "Host key verification failed",
    "error: 401",
    "error: 403",
    // Of git LFS.
    "Authentication required",
    "Authorization error",
];
/// What they say of a server that does not answer, or not now.
const UNREACHABLE: [&str; 22] = [
    "Could not resolve",
    "Failed to connect",
    "Connection refused",
    "Connection reset",
    "timed out",
    "unable to access",
    "early EOF",
    "hung up unexpectedly",
    "Could not read from remote",
    // Of git LFS.
    "dial tcp",
    "i/o timeout",
    "connection reset",
    "TLS handshake",
    "tls: ",
    "x509: ",
    "Client.Timeout",
    "context deadline exceeded",
    "unexpected EOF",
    "Server error",
    "Rate limit",
    "Bandwidth limit",
    "LFS budget",
];

/// Why git failed, from its standard error and its end.
pub(super) fn failure(source: &GitSource, stderr: &str, status: ExitStatus) -> CheckoutError {
    let says = |any: &[&str]| any.iter().any(|text| stderr.contains(text));
    let url = source.url.clone();
    let reason = match reason_of(stderr, status) {
        reason if says(&["HOST IDENTIFICATION HAS CHANGED"]) => format!("{reason} {CHANGED_KEY}"),
        reason => reason,
    };
    // Of a bundle git takes every name that looks like a commit.
    let lacks = |revision: &String| {
        source.is_bundle() && stderr.contains(&format!("bad object {revision}"))
    };
    if says(&["couldn't find remote ref", "not our ref", "request for unadvertised object"])
        || source.revision.as_ref().is_some_and(lacks)
    {
        no_such_revision(source)
    } else if status.signal().is_some() {
        CheckoutError::Git { reason }
    } else if source.is_bundle() {
        let needs_more = says(&["lacks these prerequisite commits"]);
        let reason = if needs_more { NOT_WHOLE.to_owned() } else { reason };
        CheckoutError::BadBundle { file: url, reason }
    } else if says(&REFUSED) {
        CheckoutError::Credentials { url, reason }
    } else if says(&["No user exists for uid"]) {
        CheckoutError::Git { reason }
    } else if says(&[
        "not found",
        "does not appear to be a git repository",
        "dubious ownership",
        "error: 404",
    ]) {
        CheckoutError::NoSuchRepository { url, reason }
    } else if says(&UNREACHABLE) {
        CheckoutError::Network { url, reason }
    } else {
        CheckoutError::Git { reason }
    }
}

pub(super) fn no_such_revision(source: &GitSource) -> CheckoutError {
    let revision = source.revision.clone().unwrap_or_else(|| "HEAD".to_owned());
    CheckoutError::NoSuchRevision { url: source.url.clone(), revision }
}

/// The reason, and the signal that ended git: what it printed before may be no error.
pub(super) fn reason_of(stderr: &str, status: ExitStatus) -> String {
    let Some(signal) = status.signal() else { return reason(stderr) };
    let name = Signal::try_from(signal).map_or_else(|_| signal.to_string(), |s| s.to_string());
    let memory = if signal == Signal::SIGKILL as i32 { ", perhaps for lack of memory" } else { "" };
    let printed = if stderr.trim().is_empty() {
        String::new()
    } else {
        format!("; it had printed: {}", reason(stderr))
    };
    format!("{name} killed it{memory}{printed}")
}

/// The line with the cause: from git itself, or from ssh.
fn reason(stderr: &str) -> String {
    let lines = || stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = |prefix: &str| lines().find(|line| line.starts_with(prefix));
    let line = first("fatal:").or_else(|| first("error:")).or_else(|| lines().next());
    let line = match line {
        Some(line) if line.starts_with("fatal: Could not read from remote repository") => {
            let before = lines().take_while(|before| *before != line);
            // Ssh prints its advice before the line with the cause.
            before.last().unwrap_or(line)
        }
        line => line.unwrap_or("it printed nothing"),
    };
    let line = ["fatal: ", "error: ", "ssh: ", "ERROR: "]
        .iter()
        .fold(line, |line, prefix| line.strip_prefix(prefix).unwrap_or(line));
    // Git shows the URLs of submodules as they are written.
    masked(without_url(line), Parameters::All)
}

/// Removes the URL before the cause: every message of the runner names it already.
fn without_url(line: &str) -> &str {
    let cause = line.strip_prefix("unable to access '").and_then(|rest| rest.split_once("': "));
    cause.map_or(line, |(_, cause)| cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_the_cause_without_a_password() {
        for (printed, shown) in [
            (
                "fatal: clone of 'https://u:p/w@x.example/a?b=p' into 'm' failed; see git://y/z",
                "clone of 'https://***@x.example/a?b=***' into 'm' failed; see git://y/z",
            ),
            (
                "ssh: connect to host h port 22: Connection refused\r\n\
                 fatal: Could not read from remote repository.\n\nPlease make sure",
                "connect to host h port 22: Connection refused",
            ),
            (
                "@@@@@\nIT IS POSSIBLE\nHost key verification failed.\r\n\
                 fatal: Could not read from remote repository.\n",
                "Host key verification failed.",
            ),
            (
                "fatal: Could not read from remote repository.\n",
                "Could not read from remote repository.",
            ),
            (
                "fatal: unable to access 'https://u:p@h/x/': Could not resolve host: h",
                "Could not resolve host: h",
            ),
            (
                "ERROR: Repository not found.\nfatal: Could not read from remote repository.",
                "Repository not found.",
            ),
            ("", "it printed nothing"),
        ] {
            assert_eq!(reason(printed), shown);
        }
    }

    #[test]
    fn a_signal_that_ended_git_is_named() {
        let killed = |signal, printed| reason_of(printed, ExitStatus::from_raw(signal));
        assert_eq!(killed(9, ""), "SIGKILL killed it, perhaps for lack of memory");
        assert_eq!(killed(11, "error: no\n"), "SIGSEGV killed it; it had printed: no");
        assert_eq!(killed(0x100, "fatal: no"), "no");
    }
}
