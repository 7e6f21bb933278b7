//! Many writes of states at once.

use std::time::Duration;

use bytes::Bytes;
use datastore::store::{Announced, BoxError, Claims, Origin, StateError, Storage, Store};
use datastore_api::StateKey;
use futures::{Stream, stream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{advance, timeout};

use super::documents::document;

/// Writes the state of a layer.
async fn write(
    store: Store,
    namespace: &str,
    layer: usize,
    body: impl Stream<Item = Result<Bytes, BoxError>> + Send + Unpin + 'static,
) -> Result<(), StateError> {
    let key = StateKey {
        namespace: namespace.parse().unwrap(),
        layer: format!("layer-{layer}").parse().unwrap(),
        workspace: "default".parse().unwrap(),
    };
    let (claims, origin) = (Claims::default(), Origin::default());
    store.write_state(&key, &claims, origin, false, Announced::default(), Box::new(body)).await
}

#[test]
fn beside_any_number_of_unfinished_writes_other_namespaces_write_and_threads_are_free() {
    let threads = 64;
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(threads).build();
    runtime.unwrap().block_on(async {
        let store = Store::open(&Storage::Memory).unwrap();
        let mut unfinished = JoinSet::new();
        for layer in 0..2 * threads {
            unfinished.spawn(write(store.clone(), "team-a", layer, stream::pending()));
        }
        for layer in 0..2 * threads {
            let body = stream::iter([Ok(document("l", 1, "a").into())]);
            let written = tokio::spawn(write(store.clone(), "team-b", layer, body));
            timeout(Duration::from_mins(1), written).await.unwrap().unwrap().unwrap();
        }
        let thread = tokio::task::spawn_blocking(|| ());
        timeout(Duration::from_mins(1), thread).await.unwrap().unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn a_write_that_gets_no_reader_in_time_is_refused() {
    let store = Store::open(&Storage::Memory).unwrap();
    let mut writes = JoinSet::new();
    for layer in 0..64 {
        writes.spawn(write(store.clone(), "team-a", layer, stream::pending()));
    }
    // The clock does not advance by itself while threads wait.
    let mut refused = None;
    for _ in 0..60 {
        refused = refused.or(writes.try_join_next());
        advance(Duration::from_secs(1)).await;
    }
    let refused = refused.unwrap().unwrap().unwrap_err();
    assert_eq!(refused.to_string(), "too many states are written at once; try again");
}
