//! `gc`: what `gc` and `reindex` do in a second, over a directory and, with `minio=MINIO`, over MinIO beside what that
//! does itself: PUTs of empty objects, 16 in flight, and bulk deletion.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use object_store::aws::AmazonS3;
use object_store::{ObjectStore as _, ObjectStoreExt as _};
use tempfile::TempDir;

use super::{Programs, Server, body};

const RUNS: usize = 2000;
const FILES: [&str; 3] = ["bin", "json", "short"];
const IN_FLIGHT: usize = 16;

pub(super) async fn over_directory(programs: &Programs) {
    let dir = TempDir::new().unwrap();
    let storage = format!("file://{}", dir.path().display());
    println!("gc: {RUNS} runs of {} artifacts, in layers of 200 runs", FILES.len());
    fill(&Server::over(&programs.datastore, &storage, &[])).await;
    std::fs::remove_dir_all(dir.path().join(".plancha/runs")).unwrap();
    let reindexed = timed(&programs.datastore, &["reindex"], &storage, &[]);
    println!("  directory: reindex {:.0} entries/s", RUNS as f64 / reindexed);
    let swept = timed(&programs.datastore, &GC, &storage, &[]);
    println!("  directory: gc {:.0} artifacts/s", (RUNS * FILES.len()) as f64 / swept);
}

/// All but the newest run of each layer.
const GC: [&str; 5] = ["gc", "--keep-runs", "1", "--min-age", "0s"];

pub(super) async fn over_bucket(
    programs: &Programs,
    variables: &[(&'static str, String)],
    bucket: &AmazonS3,
) {
    println!("gc: {RUNS} runs of {} artifacts, in layers of 200 runs, over MinIO", FILES.len());
    fill(&Server::over(&programs.datastore, "s3://bucket", variables)).await;
    let keys = (0..RUNS * FILES.len()).map(|i| format!("yard/{i}")).collect::<Vec<_>>();
    let since = Instant::now();
    let puts = stream::iter(&keys).map(async |key| bucket.put(&(&**key).into(), "".into()).await);
    puts.buffer_unordered(IN_FLIGHT).try_collect::<Vec<_>>().await.unwrap();
    let put_rate = keys.len() as f64 / since.elapsed().as_secs_f64();
    let deleted = remove(bucket, "yard").await;
    remove(bucket, ".plancha/runs").await;
    let reindexed =
        RUNS as f64 / timed(&programs.datastore, &["reindex"], "s3://bucket", variables);
    println!(
        "  reindex {reindexed:.0} entries/s; MinIO's own PUTs, {IN_FLIGHT} in flight, {put_rate:.0}/s: {:.2} x",
        reindexed / put_rate
    );
    let swept = timed(&programs.datastore, &GC, "s3://bucket", variables);
    let artifacts = (RUNS * FILES.len()) as f64 / swept;
    println!(
        "  gc {artifacts:.0} artifacts/s; MinIO's own bulk deletion {deleted:.0}/s: {:.2} x",
        artifacts / deleted
    );
}

/// Removes all below a prefix, as fast as the server takes it; how many in a second.
async fn remove(bucket: &AmazonS3, prefix: &str) -> f64 {
    let listed = bucket.list(Some(&prefix.into())).map_ok(|meta| meta.location);
    let listed = listed.try_collect::<Vec<_>>().await.unwrap();
    let count = listed.len();
    let since = Instant::now();
    let paths = stream::iter(listed.into_iter().map(Ok)).boxed();
    bucket.delete_stream(paths).try_collect::<Vec<_>>().await.unwrap();
    count as f64 / since.elapsed().as_secs_f64()
}

async fn fill(server: &Server) {
    let http = reqwest::Client::new();
    let puts = (0..RUNS).flat_map(|run| FILES.map(|format| (run, format)));
    let puts = stream::iter(puts).map(async |(run, format)| {
        let query =
            format!("namespace=gc&layer=l{}&run=r{run}&attempt=0&format={format}", run / 200);
        let put = http.put(format!("{}/api/plans?{query}", server.url)).body(body(100, false));
        assert_eq!(put.send().await.unwrap().status(), 200);
    });
    let since = Instant::now();
    let stored = puts.buffer_unordered(IN_FLIGHT).count().await;
    println!(
        "  stored at {:.0}/s, {IN_FLIGHT} in flight",
        stored as f64 / since.elapsed().as_secs_f64()
    );
}

/// Seconds that a command takes.
fn timed(
    program: &Path,
    args: &[&str],
    storage: &str,
    variables: &[(&'static str, String)],
) -> f64 {
    let mut command = Command::new(program);
    command.args(args).args(["--storage", storage]);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let since = Instant::now();
    let status = command.stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{args:?}: {status}");
    since.elapsed().as_secs_f64()
}
