//! `minio=MINIO`: PUT and GET over MinIO, a server of S3 that others wrote, in turn with MinIO itself and with the
//! bare hop ([`super::pass`]) before it. Who asks it directly does so by URLs that are signed beforehand.
//! Then `gc` and `reindex` over it ([`super::tend`]).

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder};
use tempfile::TempDir;

use super::clouds::{Place, UNSIGNED, compare, hashing};
use super::{MIB, Programs, Server, tend};

const USER: &str = "testtest";

pub(super) async fn minio(programs: &Programs, program: &str) {
    let minio = Minio::start(program);
    let variables = minio.variables();
    let through = Place::through(Server::over(&programs.datastore, "s3://bucket", &variables));
    let bucket = Arc::new(minio.bucket());
    let direct = Place::signed("direct", minio.url.clone(), None, Arc::clone(&bucket));
    let mut command = Command::new(std::env::current_exe().unwrap());
    let hop = Server::run(command.args(["pass-through", &minio.url]));
    let hop = Place::signed("bare hop", minio.url.clone(), Some(hop), Arc::clone(&bucket));
    println!("minio: over MinIO, sha256 both ways; against MinIO itself, and a bare hop before it");
    println!("  sha256 alone, on this machine in this minute: {:.2} cpu-s/GB", hashing());
    for (size, rounds) in [(8 * MIB, 30), (256 * MIB, 5)] {
        compare("loopback", size, rounds, &[&through, &direct, &hop]).await;
    }
    tend::over_bucket(programs, &variables, &bucket).await;
}

/// The server, until it is dropped.
pub(super) struct Minio {
    url: String,
    child: Child,
    _files: TempDir,
}

impl Minio {
    pub(super) fn start(program: &str) -> Self {
        let files = TempDir::new().unwrap();
        std::fs::create_dir(files.path().join("bucket")).unwrap();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let mut command = Command::new(program);
        command.env("MINIO_ROOT_USER", USER).env("MINIO_ROOT_PASSWORD", USER);
        command.env("MINIO_BROWSER", "off").args(["server", "--quiet", "--address"]);
        command.arg(free.to_string()).arg(files.path());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while TcpStream::connect(free).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "MinIO did not start");
            sleep(Duration::from_millis(10));
        }
        // It listens before it answers.
        sleep(Duration::from_secs(2));
        Self { url: format!("http://{free}"), child, _files: files }
    }

    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        let variables = [
            ("AWS_ENDPOINT_URL_S3", &*self.url),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", USER),
            ("AWS_SECRET_ACCESS_KEY", USER),
            ("AWS_REGION", "us-east-1"),
            UNSIGNED,
        ];
        variables.map(|(name, value)| (name, value.to_owned())).into()
    }

    fn bucket(&self) -> AmazonS3 {
        let builder = AmazonS3Builder::new().with_endpoint(&self.url).with_allow_http(true);
        let builder = builder.with_bucket_name("bucket").with_region("us-east-1");
        builder.with_access_key_id(USER).with_secret_access_key(USER).build().unwrap()
    }
}

impl Drop for Minio {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
