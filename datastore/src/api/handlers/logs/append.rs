//! `POST /api/logs`: appends to the log of a run that works.

use axum::extract::State;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use datastore_api::{Attempt, File, RunKey};

use crate::api::error::{ApiError, Cause, UPLOAD_OFFSET, value};
use crate::api::openapi::{DescribeResponse, Operation};
use crate::api::params::{FromParams, Params, Query};
use crate::api::route::Route;
use crate::api::transfer::AppendBody;
use crate::auth::{Access, Verb};
use crate::kind::Kind;
use crate::store::{Append, Appended, Store};
use crate::transport::limits::Limits;

const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// The parameters of an append.
pub(crate) struct Parameters {
    run: RunKey,
    attempt: Attempt,
    offset: u64,
    complete: bool,
}

/// The bytes are stored.
pub(crate) struct Stored(Appended);

pub(crate) async fn append(
    State(store): State<Store>,
    State(limits): State<Limits>,
    Query(Parameters { run, attempt, offset, complete }): Query<Parameters>,
    body: AppendBody,
) -> Result<Stored, ApiError> {
    let appended = async {
        let append = Append { offset, bytes: body.bytes().await?, complete };
        let max = limits.sizes.of(Kind::Log);
        Ok::<_, Cause>(store.append_log(&run, attempt, &append, max).await?)
    };
    appended.await.map(Stored).map_err(Route::AppendLogs.error())
}

impl IntoResponse for Stored {
    fn into_response(self) -> Response {
        let Appended { end, sha256 } = self.0;
        let mut response = (StatusCode::OK, [(UPLOAD_OFFSET, end.to_string())]).into_response();
        if let Some(sha256) = sha256 {
            response.headers_mut().insert(REPR_DIGEST, value(&sha256.to_repr_digest()));
        }
        response
    }
}

impl DescribeResponse for Stored {
    fn describe(operation: &mut Operation) {
        operation.answer(
            "200",
            "The bytes are stored, perhaps since an earlier request; `Upload-Offset` is the size of the log. A log that \
             is complete has `Repr-Digest`.",
        );
        operation.answer(
            "409",
            "The log has other bytes there, or another size, which is `Upload-Offset`, or is complete.",
        );
    }
}

impl FromParams for Parameters {
    const ROUTE: Route = Route::AppendLogs;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        let (run, attempt) = (params.run()?, params.required("attempt")?);
        let (offset, complete) = (params.required("offset")?, params.flag("complete")?);
        Ok(Self { run, attempt, offset, complete })
    }

    fn access(&self) -> Access<'_> {
        Access::file(&self.run, &File::Log, Verb::Append)
    }
}
