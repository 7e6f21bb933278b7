//! How much of the shared memory one transfer holds.

use std::io::Write as _;
use std::time::Duration;

use datastore::transport::limits::Limits;
use support::TestDatastore;

use crate::http::{RUN, get, noise, stored};
use crate::transport::memory::{answer, connect, slow_readers};

const MIB: usize = 1 << 20;

async fn with_memory(memory: usize) -> TestDatastore {
    let wait = Duration::from_secs(3);
    TestDatastore::temporary_limited(Limits { memory, wait, ..Limits::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_reader_of_a_directory_holds_less_than_half_a_mib() {
    let datastore = with_memory(32 * MIB).await;
    stored(&datastore, &format!("plans?{RUN}&attempt=0"), noise(16 * MIB, 1)).await;
    // They stay open, and only the heads of their answers are read.
    for slow in &mut slow_readers(&datastore, 30) {
        let head = answer(slow);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_holds_one_part_and_further_parts_only_while_sending() {
    let datastore = with_memory(16 * MIB).await;
    let body = noise(8 * MIB, 1);
    let url = |number| format!("artifacts?{RUN}&attempt=1&name=a{number}");
    let mut uploads = (0..7).map(|number| (number, connect(&datastore))).collect::<Vec<_>>();
    for (number, socket) in &mut uploads {
        write!(socket, "PUT /api/{} HTTP/1.1\r\nhost: localhost\r\n", url(*number)).unwrap();
        write!(socket, "expect: 100-continue\r\ncontent-length: {}\r\n\r\n", body.len()).unwrap();
        let head = answer(socket);
        assert!(head.starts_with("HTTP/1.1 100 "), "{number}: {head}");
        socket.write_all(&body[..600 << 10]).unwrap();
    }
    for (number, socket) in &mut uploads {
        socket.write_all(&body[600 << 10..]).unwrap();
        let head = answer(socket);
        assert!(head.starts_with("HTTP/1.1 200 "), "{number}: {head}");
    }
    for number in 0..uploads.len() {
        assert!(get(&datastore, &url(number)).await.body == body, "{number}");
    }
}
