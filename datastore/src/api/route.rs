//! Every route, with its path and method. Router, OpenAPI document, metrics and admission derive from it.

use axum::http::Method;
use datastore_api::{File, PlanFormat};
use percent_encoding::percent_decode_str;

use crate::api::query::RawQuery;
use crate::kind::Kind;

/// The route of a request. Errors of Burrito's routes have Burrito's texts; all others are problem documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    GetPlan,
    PutPlan,
    GetLogs,
    PutLogs,
    AppendLogs,
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
    GetState,
    PostState,
    DeleteState,
    LockState,
    UnlockState,
    States,
    PutSnapshot,
    RestoreState,
    RemoveLock,
    UndeleteState,
    GetLease,
    TakeLease,
    RenewLease,
    ReleaseLease,
    GetTool,
    PutTool,
    GetDocument,
    PutDocument,
    DeleteDocument,
    Statuses,
    LayerMetrics,
    Namespaces,
    Layers,
    Changes,
    Approvals,
    OfferApproval,
    ClaimApproval,
    SignIn,
    PostSignIn,
    SignOut,
    SignInAtIssuer,
    SignInCallback,
    OpenApi,
    Healthz,
    Readyz,
    Metrics,
    /// The page for people.
    Page,
    /// A file of the page.
    PageFile,
    /// Any other path.
    Unknown,
}

/// Callers must authenticate on every path below this one, except for the OpenAPI document.
const API: &str = "/api";

/// The path of a state that is not in the default workspace.
pub(crate) const STATE_IN_WORKSPACE: &str = "/api/state/{namespace}/{layer}/{workspace}";

impl Route {
    /// All but `Unknown`. The first route of a path also represents methods that the path does not accept.
    pub(crate) const ALL: [Self; 53] = [
        Self::GetPlan,
        Self::PutPlan,
        Self::GetLogs,
        Self::PutLogs,
        Self::AppendLogs,
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
        Self::GetState,
        Self::PostState,
        Self::DeleteState,
        Self::LockState,
        Self::UnlockState,
        Self::States,
        Self::PutSnapshot,
        Self::RestoreState,
        Self::RemoveLock,
        Self::UndeleteState,
        Self::GetLease,
        Self::TakeLease,
        Self::RenewLease,
        Self::ReleaseLease,
        Self::GetTool,
        Self::PutTool,
        Self::GetDocument,
        Self::PutDocument,
        Self::DeleteDocument,
        Self::Statuses,
        Self::LayerMetrics,
        Self::Namespaces,
        Self::Layers,
        Self::Changes,
        Self::Approvals,
        Self::OfferApproval,
        Self::ClaimApproval,
        Self::SignIn,
        Self::PostSignIn,
        Self::SignOut,
        Self::SignInAtIssuer,
        Self::SignInCallback,
        Self::OpenApi,
        Self::Healthz,
        Self::Readyz,
        Self::Metrics,
        Self::Page,
        Self::PageFile,
    ];

    /// The route of a request, also where its method is not allowed: a HEAD is a GET.
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let mut candidates = Self::ALL.into_iter().filter(|route| route.matches(path));
        let Some(first) = candidates.next() else { return Self::Unknown };
        if first.method() == *method {
            return first;
        }
        candidates.find(|route| route.method() == *method).unwrap_or(first)
    }

    /// Whether it has this path, or one of this form.
    fn matches(self, path: &str) -> bool {
        let template = self.path();
        if !template.contains('{') {
            return template == path;
        }
        path_parameters(template, path).is_some()
            || self.is_state() && path_parameters(STATE_IN_WORKSPACE, path).is_some()
    }

    /// The parameters in a path of this route, decoded, by the names in its template.
    pub(crate) fn path_parameters(self, path: &str) -> Vec<(&'static str, String)> {
        let template = self.path();
        let found = path_parameters(template, path)
            .or_else(|| path_parameters(STATE_IN_WORKSPACE, path).filter(|_| self.is_state()));
        found.unwrap_or_default()
    }

    /// Whether it is the address of a state, as terraform and tofu use it.
    pub(crate) fn is_state(self) -> bool {
        matches!(
            self,
            Self::GetState
                | Self::PostState
                | Self::DeleteState
                | Self::LockState
                | Self::UnlockState
        )
    }

    /// Whether a parameter is a part of its path.
    pub(crate) fn has_in_path(self, parameter: &str) -> bool {
        self.path().contains(&format!("{{{parameter}}}"))
            || self.is_state() && parameter == "workspace"
    }

    /// Whether the credential of a lease is accepted: for its state, for the versions of that state, and to renew it.
    pub(crate) fn takes_credential(self) -> bool {
        self.is_state() || matches!(self, Self::States | Self::RenewLease)
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::GetPlan | Self::PutPlan => "/api/plans",
            Self::GetLogs | Self::PutLogs | Self::AppendLogs => "/api/logs",
            Self::GetBundle | Self::PutBundle => "/api/repository/revision/bundle",
            Self::GetArtifact | Self::PutArtifact => "/api/artifacts",
            Self::Attempts | Self::ClaimAttempt => "/api/attempts",
            Self::GetApplied | Self::PutApplied => "/api/applied",
            Self::Runs => "/api/runs",
            Self::Encrypt => "/api/encrypt",
            Self::GetState
            | Self::PostState
            | Self::DeleteState
            | Self::LockState
            | Self::UnlockState => "/api/state/{namespace}/{layer}",
            Self::States | Self::PutSnapshot => "/api/states",
            Self::RestoreState => "/api/states/restore",
            Self::RemoveLock => "/api/states/unlock",
            Self::UndeleteState => "/api/states/undelete",
            Self::GetLease | Self::TakeLease | Self::RenewLease | Self::ReleaseLease => {
                "/api/leases/{namespace}/{layer}"
            }
            Self::GetTool | Self::PutTool => "/api/tools/{namespace}/{layer}",
            Self::GetDocument | Self::PutDocument | Self::DeleteDocument => "/api/documents",
            Self::Statuses => "/api/statuses",
            Self::LayerMetrics => "/api/metrics",
            Self::Namespaces => "/api/namespaces",
            Self::Layers => "/api/layers",
            Self::Changes => "/api/changes",
            Self::Approvals | Self::OfferApproval => "/api/approvals",
            Self::ClaimApproval => "/api/approvals/claim",
            Self::SignIn | Self::PostSignIn => "/sign-in",
            Self::SignOut => "/sign-out",
            Self::SignInAtIssuer => "/sign-in/oidc/{issuer}",
            Self::SignInCallback => "/sign-in/oidc/{issuer}/callback",
            Self::OpenApi => "/api/openapi.json",
            Self::Healthz => "/healthz",
            Self::Readyz => "/readyz",
            Self::Metrics => "/metrics",
            Self::Page => "/",
            Self::PageFile => "/ui/{file}",
            Self::Unknown => "other",
        }
    }

    pub(crate) fn method(self) -> Method {
        match self {
            Self::PutPlan
            | Self::PutLogs
            | Self::PutBundle
            | Self::PutArtifact
            | Self::PutApplied
            | Self::PutSnapshot
            | Self::RenewLease
            | Self::PutDocument
            | Self::PutTool => Method::PUT,
            Self::AppendLogs
            | Self::ClaimAttempt
            | Self::Encrypt
            | Self::PostState
            | Self::RestoreState
            | Self::RemoveLock
            | Self::UndeleteState
            | Self::OfferApproval
            | Self::ClaimApproval
            | Self::PostSignIn
            | Self::SignOut
            | Self::TakeLease => Method::POST,
            Self::DeleteState | Self::ReleaseLease | Self::DeleteDocument => Method::DELETE,
            Self::LockState => custom(b"LOCK"),
            Self::UnlockState => custom(b"UNLOCK"),
            _ => Method::GET,
        }
    }

    /// Whether the body of the request becomes an object.
    pub(crate) fn is_upload(self) -> bool {
        match self {
            Self::RenewLease | Self::PutTool => false,
            Self::PostState | Self::AppendLogs => true,
            _ => self.method() == Method::PUT,
        }
    }

    /// Whether the answer is built in memory, from a listing of the storage.
    pub(crate) fn is_listing(self) -> bool {
        matches!(
            self,
            Self::Attempts
                | Self::ClaimAttempt
                | Self::Runs
                | Self::States
                | Self::Statuses
                | Self::LayerMetrics
                | Self::Namespaces
                | Self::Layers
                | Self::Approvals
                | Self::OfferApproval
                | Self::ClaimApproval
        )
    }

    /// Whether it is a health check, which is answered even when no connection is left for others.
    pub(crate) fn is_probe(self) -> bool {
        matches!(self, Self::Healthz | Self::Readyz)
    }

    /// Whether the time until the head of the answer is limited. An upload has its own minimum rate, an encryption works
    /// through the whole storage, a state that is restored is read and written first, and a plan whose changes are listed is
    /// read.
    pub(crate) fn has_deadline(self) -> bool {
        !self.is_upload() && !matches!(self, Self::Encrypt | Self::RestoreState | Self::Changes)
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
            Self::Changes => Kind::Json,
            Self::GetLogs | Self::PutLogs | Self::AppendLogs => Kind::Log,
            Self::GetBundle | Self::PutBundle => Kind::Bundle,
            Self::GetArtifact | Self::PutArtifact => {
                let name = query.text("name").and_then(|name| name.parse().ok());
                name.map_or(Kind::Artifact, |name| Kind::from(&File::Other(name)))
            }
            Self::GetState | Self::PostState | Self::PutSnapshot => Kind::State,
            Self::GetDocument | Self::PutDocument | Self::DeleteDocument => {
                let name = query.text("name").and_then(|name| name.parse().ok());
                name.map_or(Kind::Outputs, |name| Kind::of_document(&name))
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
            Self::GetState => &[Kind::State],
            Self::GetDocument => &[Kind::Status, Kind::Outputs],
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

/// Whether a path begins like the address of a state, however it is spelled.
pub(crate) fn is_like_state(path: &str) -> bool {
    let path = percent_decode_str(path).decode_utf8_lossy().to_lowercase();
    let mut parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    parts.next() == Some("api") && matches!(parts.next(), Some("state" | "states"))
}

/// A method of `WebDAV`, which `http` has no constant for.
fn custom(name: &[u8]) -> Method {
    Method::from_bytes(name).unwrap_or_default()
}

/// The parameters that a path has where its template has `{name}`; `None` if it has another form. A segment with invalid UTF-8
/// has replacement characters, which no name may have.
fn path_parameters(template: &'static str, path: &str) -> Option<Vec<(&'static str, String)>> {
    let (mut parameters, mut segments) = (Vec::new(), path.split('/'));
    for expected in template.split('/') {
        let segment = segments.next()?;
        match expected.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(_) if segment.is_empty() => return None,
            Some(name) => {
                let value = percent_decode_str(segment).decode_utf8_lossy().into_owned();
                parameters.push((name, value));
            }
            None if segment != expected => return None,
            None => {}
        }
    }
    segments.next().is_none().then_some(parameters)
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
        let workspace = "/api/state/a/b%2Fc/%C3%A9";
        assert_eq!(Route::of(&Method::DELETE, workspace), Route::DeleteState);
        let parameters = [("namespace", "a"), ("layer", "b/c"), ("workspace", "é")];
        let parameters = parameters.map(|(name, value)| (name, value.to_owned()));
        assert_eq!(Route::GetState.path_parameters(workspace), parameters);
        for path in [
            "",
            "/ui",
            "/ui/",
            "/api",
            "/api/",
            "/api/plans/",
            "/api/other",
            "other",
            "/api/state/a",
            "/api/state/a/",
            "/api/state//b",
            "/api/state/a/b/",
            "/api/state/a/b/c/d",
            "/api/leases/a/b/c",
            "/api/tools/a",
        ] {
            assert_eq!(Route::of(&Method::GET, path), Route::Unknown, "{path}");
        }
    }

    #[test]
    fn wrong_addresses_of_states_are_recognized() {
        for path in [
            "/api/state",
            "/api/state/a",
            "/api/state/a/b/",
            "/api/state/a/b/c/d",
            "/api/State/a/b",
            "/api//state/a/b",
            "//api/state/a/b",
            "/api/state%2Fa%2Fb",
            "/api%2fstate/a/b",
            "/api/./state/a/b",
            "/api/states/a/b",
        ] {
            assert!(is_like_state(path), "{path}");
        }
        for path in ["/", "/api", "/api/stat/a/b", "/api/plans/state", "/state/a/b"] {
            assert!(!is_like_state(path), "{path}");
        }
    }

    #[test]
    fn every_path_below_api_needs_a_caller_but_the_document() {
        let needs_caller = |path| Route::of(&Method::GET, path).needs_caller(path);
        for path in ["/api", "/api/", "/api/plans", "/api/other", "/api/openapi.json/"] {
            assert!(needs_caller(path), "{path}");
        }
        for path in
            ["/api/openapi.json", "/healthz", "/readyz", "/metrics", "/apis", "/", "/ui/app.js"]
        {
            assert!(!needs_caller(path), "{path}");
        }
    }
}
