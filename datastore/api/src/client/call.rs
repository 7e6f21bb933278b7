//! Calls: method, path and query.

use std::borrow::Cow;

use reqwest::Method;

use crate::key::{Attempt, BundleKey, File, RunKey};

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: Cow<'static, str>,
    pub(super) query: Vec<(&'static str, String)>,
}

pub(super) fn run_query(run: &RunKey) -> Vec<(&'static str, String)> {
    vec![
        ("namespace", run.namespace.to_string()),
        ("layer", run.layer.to_string()),
        ("run", run.run.to_string()),
    ]
}

pub(super) fn file_call(
    method: Method,
    run: &RunKey,
    attempt: Option<Attempt>,
    file: &File,
) -> Call {
    let mut query = run_query(run);
    query.extend(attempt.map(|attempt| ("attempt", attempt.to_string())));
    let path = match file {
        File::Plan(format) => {
            query.push(("format", format.as_str().to_owned()));
            "/api/plans"
        }
        File::Log => "/api/logs",
        File::Other(name) => {
            query.push(("name", name.to_string()));
            "/api/artifacts"
        }
    };
    Call { method, path: path.into(), query }
}

pub(super) fn bundle_call(method: Method, key: &BundleKey) -> Call {
    let query = vec![
        ("namespace", key.namespace.to_string()),
        ("name", key.name.to_string()),
        ("ref", key.git_ref.to_string()),
        ("revision", key.revision.to_string()),
    ];
    Call { method, path: "/api/repository/revision/bundle".into(), query }
}
