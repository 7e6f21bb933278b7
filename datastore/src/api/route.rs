//! Every route, with its path and method. Router, OpenAPI document, metrics and admission derive from it.

use axum::http::Method;
use datastore_api::{File, PlanFormat};

use crate::api::query::RawQuery;
use crate::kind::Kind;

/// The route of a request. Errors of Burrito's routes have Burrito's texts; all others are problem documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    GetPlan,
    PutPlan,
    GetLogs,
    PutLogs,
    GetBundle,
    PutBundle,
    GetArtifact,
    PutArtifact,
    Attempts,
    ClaimAttempt,
    GetApplied,
    PutApplied,
    Runs,
    Encrypt,
    OpenApi,
    Healthz,
    Readyz,
    Metrics,
    /// Any other path.
    Unknown,
}

/// Callers must authenticate on every path below this one, except for the OpenAPI document.
const API: &str = "/api";

impl Route {
    /// All but `Unknown`. The first route of a path also represents methods that the path does not accept.
    pub(crate) const ALL: [Self; 18] = [
        Self::GetPlan,
        Self::PutPlan,
        Self::GetLogs,
        Self::PutLogs,
        Self::GetBundle,
        Self::PutBundle,
        Self::GetArtifact,
        Self::PutArtifact,
        Self::Attempts,
        Self::ClaimAttempt,
        Self::GetApplied,
        Self::PutApplied,
        Self::Runs,
        Self::Encrypt,
        Self::OpenApi,
        Self::Healthz,
        Self::Readyz,
        Self::Metrics,
    ];

    /// The route of a request, also where its method is not allowed: a HEAD is a GET.
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let mut candidates = Self::ALL.into_iter().filter(|route| route.path() == path);
        let Some(first) = candidates.next() else { return Self::Unknown };
        if first.method() == *method {
            return first;
        }
        candidates.find(|route| route.method() == *method).unwrap_or(first)
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::GetPlan | Self::PutPlan => "/api/plans",
            Self::GetLogs | Self::PutLogs => "/api/logs",
            Self::GetBundle | Self::PutBundle => "/api/repository/revision/bundle",
            Self::GetArtifact | Self::PutArtifact => "/api/artifacts",
            Self::Attempts | Self::ClaimAttempt => "/api/attempts",
            Self::GetApplied | Self::PutApplied => "/api/applied",
            Self::Runs => "/api/runs",
            Self::Encrypt => "/api/encrypt",
            Self::OpenApi => "/api/openapi.json",
            Self::Healthz => "/healthz",
            Self::Readyz => "/readyz",
            Self::Metrics => "/metrics",
            Self::Unknown => "other",
        }
    }

    pub(crate) fn method(self) -> Method {
        match self {
            Self::PutPlan
            | Self::PutLogs
            | Self::PutBundle
            | Self::PutArtifact
            | Self::PutApplied => Method::PUT,
            Self::ClaimAttempt | Self::Encrypt => Method::POST,
            _ => Method::GET,
        }
    }

    /// Whether the body of the request becomes an object.
    pub(crate) fn is_upload(self) -> bool {
        self.method() == Method::PUT
    }

    /// Whether the answer is built in memory, from a listing of the storage.
    pub(crate) fn is_listing(self) -> bool {
        matches!(self, Self::Attempts | Self::ClaimAttempt | Self::Runs)
    }

    /// Whether it is a health check, which is answered even when no connection is left for others.
    pub(crate) fn is_probe(self) -> bool {
        matches!(self, Self::Healthz | Self::Readyz)
    }

    /// Whether the time until the head of the answer is limited. An upload has its own minimum rate, and an
    /// encryption works through the whole storage.
    pub(crate) fn has_deadline(self) -> bool {
        !self.is_upload() && self != Self::Encrypt
    }

    /// Whether callers must authenticate: on every path below `/api`, also on unknown ones.
    pub(crate) fn needs_caller(self, path: &str) -> bool {
        let below = path.strip_prefix(API);
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
            && self != Self::OpenApi
    }

    /// The kind of artifact that it transfers, as a label of the metrics.
    pub(crate) fn kind(self, query: &RawQuery) -> Option<Kind> {
        Some(match self {
            Self::GetPlan | Self::PutPlan => {
                let format = query.text("format").and_then(|format| format.parse().ok());
                match format.unwrap_or(PlanFormat::Json) {
                    PlanFormat::Bin => Kind::Bin,
                    PlanFormat::Json => Kind::Json,
                    PlanFormat::Pretty => Kind::Pretty,
                    PlanFormat::Short => Kind::Short,
                }
            }
            Self::GetLogs | Self::PutLogs => Kind::Log,
            Self::GetBundle | Self::PutBundle => Kind::Bundle,
            Self::GetArtifact | Self::PutArtifact => {
                let name = query.text("name").and_then(|name| name.parse().ok());
                name.map_or(Kind::Artifact, |name| Kind::from(&File::Other(name)))
            }
            _ => return None,
        })
    }

    /// The kinds of artifacts that a GET of it can return.
    pub(crate) fn returned_kinds(self) -> &'static [Kind] {
        match self {
            Self::GetPlan => &[Kind::Bin, Kind::Json, Kind::Pretty, Kind::Short],
            Self::GetLogs => &[Kind::Log],
            Self::GetBundle => &[Kind::Bundle],
            Self::GetArtifact => &[Kind::Artifact, Kind::Workspace, Kind::Bin, Kind::Json],
            _ => &[],
        }
    }

    /// Burrito's text for an object that does not exist.
    pub(crate) fn not_found_text(self) -> Option<&'static str> {
        match self {
            Self::GetPlan | Self::PutPlan => Some("No plan for this attempt"),
            Self::GetLogs | Self::PutLogs => Some("No logs for this attempt"),
            Self::GetBundle | Self::PutBundle => Some("No bundle found for this revision"),
            _ => None,
        }
    }

    /// Burrito's text for a failure of the storage.
    pub(crate) fn storage_failure_text(self) -> Option<&'static str> {
        Some(match self {
            Self::GetPlan => "could not get plan, there's an issue with the storage backend",
            Self::PutPlan => "could not put plan, there's an issue with the storage backend",
            Self::GetLogs => "could not get logs, there's an issue with the storage backend",
            Self::PutLogs => "could not put logs, there's an issue with the storage backend",
            Self::GetBundle => {
                "could not get bundle for revision, there's an issue with the storage backend"
            }
            Self::PutBundle => {
                "could not store revision, there's an issue with the storage backend"
            }
            _ => return None,
        })
    }

    /// Whether errors have Burrito's texts. The others are problem documents (RFC 9457).
    pub(crate) fn has_burrito_texts(self) -> bool {
        self.storage_failure_text().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_found_by_its_method_and_path() {
        for route in Route::ALL {
            assert_eq!(Route::of(&route.method(), route.path()), route);
        }
        assert_eq!(Route::of(&Method::HEAD, "/api/plans"), Route::GetPlan);
        assert_eq!(Route::of(&Method::DELETE, "/api/plans"), Route::GetPlan);
        assert_eq!(Route::of(&Method::POST, "/api/attempts"), Route::ClaimAttempt);
        assert_eq!(Route::of(&Method::GET, "/api/encrypt"), Route::Encrypt);
        for path in ["", "/", "/api", "/api/", "/api/plans/", "/api/other", "other"] {
            assert_eq!(Route::of(&Method::GET, path), Route::Unknown, "{path}");
        }
    }

    #[test]
    fn every_path_below_api_needs_a_caller_but_the_document() {
        let needs_caller = |path| Route::of(&Method::GET, path).needs_caller(path);
        for path in ["/api", "/api/", "/api/plans", "/api/other", "/api/openapi.json/"] {
            assert!(needs_caller(path), "{path}");
        }
        for path in ["/api/openapi.json", "/healthz", "/readyz", "/metrics", "/apis", "/"] {
            assert!(!needs_caller(path), "{path}");
        }
    }
}
