//! The datastore: its token, whether it is ready, what the caller may do there, and its clock.

use datastore_api::client::{Condition, Token, Upload};
use datastore_api::{Attempt, Client, ClientError, Name, RunKey, chain};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use secrecy::{ExposeSecret as _, SecretString};

use crate::cli::{DoctorArgs, Environment};
use crate::order::datastore::{FLAG, client_settings};
use crate::order::doctor::check::{Check, limited};
use crate::order::job::JobError;
use crate::order::pod;
use crate::run::artifacts::{REPORT, other};
use crate::source::regular;
use crate::tool::preflight::token_expires;

/// Clocks that differ by more make signatures and tokens invalid.
const MAX_SKEW_SECONDS: u64 = 30;
const CREDENTIALS: u8 = 5;
const CONFIG: u8 = 8;
const DATASTORE: u8 = 10;
const RULES: &str = "add a rule of the datastore for this caller (--policy, PLANCHA_POLICY)";

pub(super) async fn checks(args: &DoctorArgs, environment: &Environment) -> Vec<Check> {
    let client = match client(args, environment) {
        Ok(Some(client)) => client,
        Ok(None) => {
            return vec![Check::ok("datastore", "no datastore is configured: nothing is stored")];
        }
        Err(error) => {
            let hint = "correct the flag or variable that is named";
            return vec![Check::fail("datastore", CONFIG, error.to_string(), hint)];
        }
    };
    let namespace = namespace(args, environment);
    let layer = environment.pod.layer.as_deref().and_then(|layer| layer.parse().ok());
    let layer = layer.or_else(|| "doctor".parse::<Name>().ok());
    let runs = async {
        match (&namespace, &layer) {
            (Some(namespace), Some(layer)) => {
                limited(client.runs(namespace, layer, None)).await.map(|runs| runs.map(drop))
            }
            _ => Err("the namespace is not valid".to_owned()),
        }
    };
    let written = async {
        let (namespace, layer) = (namespace.clone()?, layer.clone()?);
        let run = RunKey { namespace, layer, run: "doctor".parse().ok()? };
        let (file, nothing) = (other(REPORT), Upload::mismatch());
        let put = client.put_file(&run, Attempt(0), &file, &nothing, Condition::Create);
        limited(put).await.ok()?.err()
    };
    let (health, runs, written) = tokio::join!(limited(client.health()), runs, written);
    let url = client.settings().url.as_str().trim_end_matches('/').to_owned();
    let clock = match &health {
        Ok(Ok(health)) => health.date.as_deref().and_then(|date| clock(date, Timestamp::now())),
        _ => None,
    };
    let ready = match health {
        Ok(Ok(health)) => {
            let version = health.version.map_or_else(
                || "it is Burrito's, or says no version".to_owned(),
                |version| format!("version {version}"),
            );
            Check::ok("datastore", format!("{url} is ready, {version}"))
        }
        Ok(Err(error)) => unreachable(&chain(&error)),
        Err(reason) => unreachable(&format!("{url}: {reason}")),
    };
    let token = token(&client.settings().token, &runs);
    let namespace = namespace.map(|name| name.to_string()).unwrap_or_default();
    [Some(token), Some(ready), rights(&namespace, &runs, written.as_ref()), clock]
        .into_iter()
        .flatten()
        .collect()
}

fn unreachable(reason: &str) -> Check {
    let hint = "check that the datastore runs at this URL, that it is ready (/readyz), and proxies, DNS and --ca-file";
    Check::fail("datastore", DATASTORE, reason, hint)
}

/// The datastore of the flags; in a pod of Burrito's the one that the controllers set. It is asked once.
fn client(args: &DoctorArgs, environment: &Environment) -> Result<Option<Client>, JobError> {
    let ca_file = args.tools.ca_file.as_deref();
    let settings = if environment.pod.layer.is_some() {
        Some(pod::client_settings(&environment.pod, &args.datastore, ca_file)?)
    } else {
        client_settings(&args.datastore, ca_file, environment)?
    };
    let Some(mut settings) = settings else { return Ok(None) };
    (settings.retries, settings.notify) = (0, None);
    Client::new(settings).map(Some).map_err(|error| JobError::Config(format!("{FLAG}: {error}")))
}

/// The namespace of the flag, the pod, or the default one.
pub(super) fn namespace(args: &DoctorArgs, environment: &Environment) -> Option<Name> {
    let of_pod = || environment.pod.namespace.as_deref().unwrap_or("default").parse().ok();
    args.namespace.clone().or_else(of_pod)
}

/// Whether there is a token, whether it can be read, and whether it is accepted.
fn token(token: &Token, runs: &Result<Result<(), ClientError>, String>) -> Check {
    const PROVIDE: &str = "provide a token with --token-file or PLANCHA_TOKEN";
    let (place, text) = match token {
        Token::None => (None, None),
        Token::Text(text) => (Some("PLANCHA_TOKEN".to_owned()), Some(text.clone())),
        Token::File(file) => {
            let place = file.display().to_string();
            let read = regular::check_named(file).and_then(|()| std::fs::read_to_string(file));
            match read.map(SecretString::from) {
                Ok(text) => (Some(place), Some(text)),
                Err(error) => {
                    return Check::fail("token", CREDENTIALS, format!("{place}: {error}"), PROVIDE);
                }
            }
        }
    };
    let named = place.as_deref().unwrap_or_default();
    let place = match &place {
        Some(place) => format!("a token is in {place}"),
        None => "no token is set".to_owned(),
    };
    let expires = text.as_ref().and_then(|text| token_expires(text.expose_secret()));
    let now = Timestamp::now();
    match (&text, expires, runs) {
        (Some(text), _, _) if text.expose_secret().trim().is_empty() => {
            Check::fail("token", CREDENTIALS, format!("{named} is empty"), PROVIDE)
        }
        (_, Some(at), _) if at < now => Check::fail(
            "token",
            CREDENTIALS,
            format!("the token in {named} expired at {at}"),
            PROVIDE,
        ),
        (_, _, Ok(Err(error))) if error.status().is_some_and(|status| status.as_u16() == 401) => {
            let reason = chain(error);
            let text = match &text {
                Some(_) => format!("{place}, and the datastore refuses it: {reason}"),
                None => format!("{place}, and the datastore requires one: {reason}"),
            };
            Check::fail("token", CREDENTIALS, text, PROVIDE)
        }
        (_, at, Ok(answer)) => {
            let until = at.map(|at| format!(", until {at}")).unwrap_or_default();
            let is_answered = answer.as_ref().err().is_none_or(|error| {
                error.status().is_some() || matches!(error, ClientError::Answer { .. })
            });
            let accepted = if is_answered {
                "the datastore accepts it"
            } else {
                "the datastore has not answered"
            };
            let accepted = if text.is_none() && is_answered {
                "the datastore does not require one"
            } else {
                accepted
            };
            Check::ok("token", format!("{place}{until}; {accepted}"))
        }
        (_, _, Err(_)) => Check::ok("token", format!("{place}; the datastore has not answered")),
    }
}

/// Whether the caller may list runs of the namespace, and store their files.
fn rights(
    namespace: &str,
    runs: &Result<Result<(), ClientError>, String>,
    written: Option<&ClientError>,
) -> Option<Check> {
    let error = match runs {
        Ok(Ok(())) => return Some(write_rights(namespace, written)),
        Ok(Err(error)) => error,
        Err(_) => return None,
    };
    if let ClientError::Answer { .. } = error {
        let hint = "check that this is the URL of a datastore, and not of something else";
        return Some(Check::fail("rights", DATASTORE, chain(error), hint));
    }
    match error.status()?.as_u16() {
        // The token is the cause.
        401 => None,
        403 => {
            let text =
                format!("runs of the namespace {namespace} may not be listed: {}", chain(error));
            Some(Check::fail("rights", CREDENTIALS, text, RULES))
        }
        404 => {
            Some(Check::ok("rights", "the datastore is Burrito's, which lists no runs: not known"))
        }
        _ => Some(Check::fail("rights", DATASTORE, chain(error), "read the log of the datastore")),
    }
}

/// What the answer to an upload that is not stored says, where runs may be listed.
fn write_rights(namespace: &str, written: Option<&ClientError>) -> Check {
    let listed = format!("runs of the namespace {namespace} may be listed");
    let status = written.and_then(ClientError::status).map(|status| status.as_u16());
    match (status, written) {
        (Some(400), _) => Check::ok("rights", format!("{listed}, and their files stored")),
        (Some(401 | 403), Some(error)) => {
            let text = format!("{listed}, but their files not be stored: {}", chain(error));
            Check::fail("rights", CREDENTIALS, text, RULES)
        }
        _ => {
            Check::ok("rights", format!("{listed}; whether their files may be stored is not known"))
        }
    }
}

/// Compares the clock of this machine with that of the datastore.
fn clock(date: &str, now: Timestamp) -> Option<Check> {
    let theirs = rfc2822::parse(date).ok()?.timestamp();
    let seconds = now.as_second().abs_diff(theirs.as_second());
    Some(if seconds > MAX_SKEW_SECONDS {
        let side = if now > theirs { "ahead of" } else { "behind" };
        let text = format!("this machine is {seconds} s {side} the datastore");
        Check::warn(
            "clock",
            text,
            "set the clock (NTP): services refuse requests and tokens of another time",
        )
    } else {
        Check::ok("clock", format!("{seconds} s from that of the datastore"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_may_differ_by_half_a_minute() {
        let now = "2026-11-23T10:00:00Z".parse().unwrap();
        for (date, line) in [
            ("Mon, 23 Nov 2026 09:59:31 GMT", "ok   clock: 29 s from"),
            ("Mon, 23 Nov 2026 09:59:29 GMT", "warn clock: this machine is 31 s ahead of"),
            ("Mon, 23 Nov 2026 10:02:00 GMT", "warn clock: this machine is 120 s behind"),
        ] {
            let shown = clock(date, now).unwrap().to_string();
            assert!(shown.starts_with(line), "{date}: {shown}");
        }
        assert_eq!(clock("now", now), None);
    }
}
