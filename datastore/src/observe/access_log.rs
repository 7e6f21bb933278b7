//! Writes the log line of a request: an audit line for a refusal or a write, otherwise an access line.
//!
//! A line contains the path, but never the whole query and no header of the caller, because one of them is the token.

use crate::auth::caller::Caller;
use crate::observe::context::RequestContext;
use crate::observe::log::IMMEDIATE;

/// Longest text of a caller in a line, in bytes. No valid name is longer, and no caller may fill the log.
const SHORT: usize = 256;

fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(SHORT)]
}

/// A parameter of the query, shortened for a line.
fn parameter<'a>(context: &'a RequestContext, name: &str) -> Option<&'a str> {
    context.query().text(name).map(short)
}

pub(super) fn access(context: &RequestContext) {
    let status = context.status().map(|status| status.as_u16());
    let message = if context.is_aborted() {
        "request ended by the drain timeout"
    } else if status.is_some() {
        "request"
    } else {
        "request left by its caller"
    };
    tracing::info!(
        id = context.id(),
        method = %context.method(),
        path = short(context.path()),
        namespace = parameter(context, "namespace"),
        layer = parameter(context, "layer"),
        run = parameter(context, "run"),
        status,
        bytes_in = context.bytes_in(),
        bytes_out = context.bytes_out(),
        ms = u64::try_from(context.elapsed().as_millis()).ok(),
        "{message}",
    );
}

/// The line of an unknown caller is queued: otherwise each of its requests could make us wait for the log.
pub(super) fn audit(context: &RequestContext, message: &str) {
    let caller = context.caller().map(Caller::name);
    let sha256 = context.sha256().map(|sha256| sha256.to_string());
    macro_rules! line {
        ($($target:tt)*) => { tracing::info!(
            $($target)*
            parent: None,
            id = context.id(),
            caller,
            method = %context.method(),
            path = short(context.path()),
            namespace = parameter(context, "namespace"),
            layer = parameter(context, "layer"),
            run = parameter(context, "run"),
            attempt = parameter(context, "attempt"),
            format = parameter(context, "format"),
            name = parameter(context, "name"),
            "ref" = parameter(context, "ref"),
            revision = parameter(context, "revision"),
            status = context.status().map(|status| status.as_u16()),
            sha256,
            bytes_in = context.bytes_in(),
            ms = u64::try_from(context.elapsed().as_millis()).ok(),
            "{message}",
        ) };
    }
    if caller.is_some() {
        line!(target: IMMEDIATE,);
    } else {
        line!();
    }
}
