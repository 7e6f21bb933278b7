//! `memory`: what transfers of any size hold, over a directory and over a double of S3.

use std::time::Duration;

use axum::body::Bytes;
use support::{Dialect, FakeCloud};
use tempfile::TempDir;

use super::clouds::{Place, UNSIGNED};
use super::{MIB, PIECE, Programs, Server};

/// The largest file that there may be.
const SIZES: [(usize, usize); 4] = [(64 * MIB, 1), (512 * MIB, 1), (4096 * MIB, 1), (64 * MIB, 8)];

pub(super) async fn memory(programs: &Programs) {
    println!("memory: MiB, each line a server of its own; idle is before, and 3 s after");
    let dir = TempDir::new().unwrap();
    let directory = format!("file://{}", dir.path().join("store").display());
    measure(programs, &directory, &[]).await;
    let double = FakeCloud::start(Dialect::S3);
    double.share(Bytes::from(vec![PIECE[0]; MIB]));
    let mut variables = double.variables();
    variables.push((UNSIGNED.0, UNSIGNED.1.to_owned()));
    measure(programs, double.url(), &variables).await;
}

async fn measure(programs: &Programs, storage: &str, variables: &[(&'static str, String)]) {
    println!("  {}", storage.split("://").next().unwrap());
    for (size, at_once) in SIZES {
        let server = Server::over(&programs.datastore, storage, variables);
        tokio::time::sleep(Duration::from_millis(500)).await;
        let before = server.rss();
        let place = Place::new(
            format!("{}/api/artifacts?namespace=n&layer=l&run=r", server.url),
            "&attempt=0&name=a",
        );
        futures::future::join_all((0..at_once).map(|key| place.put(key, size))).await;
        let put = server.rss_peak();
        futures::future::join_all((0..at_once).map(|key| place.get(key, size))).await;
        let got = server.rss_peak();
        tokio::time::sleep(Duration::from_secs(3)).await;
        println!(
            "    {at_once} x {:4} MiB: idle {before:.1}, PUT at most {put:.1} ({:.1} each), then GET {got:.1}; idle {:.1}",
            size / MIB,
            (put - before) / at_once as f64,
            server.rss()
        );
    }
}
