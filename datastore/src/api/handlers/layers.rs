//! `/api/namespaces` and `/api/layers`: what there is, as far as the caller may read it.

use axum::extract::State;
use axum::{Extension, Json};
use datastore_api::Name;
use datastore_api::layers::{LayerRun, Layers, ListedLayer, Namespaces};

use crate::api::error::{ApiError, Cause};
use crate::api::handlers::runs::Limit;
use crate::api::params::{FromOpenParams, FromParams, OpenQuery, Params, Query};
use crate::api::route::Route;
use crate::auth::{Access, Verb};
use crate::kind::Kind;
use crate::observe::context::RequestContext;
use crate::store::{Source, Store, Summary};

pub(crate) struct NamespacePage {
    limit: Limit,
    after: Option<Name>,
}

pub(crate) struct LayerPage {
    namespace: Name,
    limit: Limit,
    after: Option<Name>,
}

pub(crate) async fn namespaces(
    State(store): State<Store>,
    OpenQuery(NamespacePage { limit, after }): OpenQuery<NamespacePage>,
    Extension(context): Extension<RequestContext>,
) -> Result<Json<Namespaces>, ApiError> {
    let page = store.namespaces(after, limit.0, |namespace| may(&context, Access::list(namespace)));
    let page = page.await.map_err(Route::Namespaces.error())?;
    let names = page.items.iter().map(Name::to_string).collect();
    Ok(Json(Namespaces { namespaces: names, next: page.next.map(|next| next.to_string()) }))
}

pub(crate) async fn layers(
    State(store): State<Store>,
    Query(LayerPage { namespace, limit, after }): Query<LayerPage>,
    Extension(context): Extension<RequestContext>,
) -> Result<Json<Layers>, ApiError> {
    let page = store.layers(&namespace, after, limit.0).await.map_err(Route::Layers.error())?;
    let layers = page.items.into_iter();
    let layers = layers.map(|(name, summary)| shown(&context, &namespace, &name, summary));
    Ok(Json(Layers { layers: layers.collect(), next: page.next.map(|next| next.to_string()) }))
}

/// A layer, without what the caller may not read of it.
fn shown(context: &RequestContext, namespace: &Name, name: &Name, summary: Summary) -> ListedLayer {
    let may = |kind, verb| may(context, Access::of(namespace, kind, verb));
    let Summary { last_run, source, status, .. } = summary;
    let may_read_result = match source {
        Some(Source::Record) => may(Kind::Artifact, Verb::Read),
        Some(Source::Short) => may(Kind::Short, Verb::Read),
        None => true,
    };
    let last_run = last_run.map(|run| if may_read_result { run } else { without_result(run) });
    let status = status.filter(|_| may(Kind::Status, Verb::List));
    ListedLayer { name: name.to_string(), last_run, status }
}

/// What a caller may know who may list runs and attempts.
fn without_result(run: LayerRun) -> LayerRun {
    LayerRun {
        action: None,
        outcome: None,
        counts: None,
        revision: None,
        tool: None,
        tool_version: None,
        ..run
    }
}

fn may(context: &RequestContext, access: Access) -> bool {
    context.caller().is_some_and(|caller| caller.may(access))
}

impl FromOpenParams for NamespacePage {
    const ROUTE: Route = Route::Namespaces;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        let limit = params.optional("limit")?.unwrap_or(Limit(50));
        Ok(Self { limit, after: params.optional("after")? })
    }
}

impl FromParams for LayerPage {
    const ROUTE: Route = Route::Layers;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        let namespace = params.required("namespace")?;
        let limit = params.optional("limit")?.unwrap_or(Limit(50));
        Ok(Self { namespace, limit, after: params.optional("after")? })
    }

    fn access(&self) -> Access<'_> {
        Access::list(&self.namespace)
    }
}
