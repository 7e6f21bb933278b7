//! The program `datastore state`, over storages that several processes reach.

use std::io::Write as _;
use std::process::Stdio;

use reqwest::Method;
use serde_json::Value;
use support::{Dialect, FakeCloud};
use tempfile::TempDir;

use crate::http::CLIENT;
use crate::program::process::{Running, program};

/// A storage that several processes reach.
pub(crate) struct Place {
    pub(crate) storage: String,
    pub(crate) variables: Vec<(&'static str, String)>,
    directory: Option<TempDir>,
    pub(crate) cloud: Option<FakeCloud>,
}

/// Where a command finds the states.
pub(crate) enum Way {
    Storage,
    Datastore(Running),
}

/// What a command printed.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) message: String,
}

impl Place {
    pub(crate) fn directory() -> Self {
        let directory = TempDir::new().unwrap();
        let storage = format!("file://{}", directory.path().display());
        Self { storage, variables: Vec::new(), directory: Some(directory), cloud: None }
    }

    pub(crate) fn bucket() -> Self {
        let cloud = FakeCloud::start(Dialect::S3);
        let (storage, variables) = (cloud.url().to_owned(), cloud.variables());
        Self { storage, variables, directory: None, cloud: Some(cloud) }
    }

    pub(crate) fn each() -> [Self; 2] {
        [Self::directory(), Self::bucket()]
    }

    pub(crate) fn root(&self) -> std::path::PathBuf {
        self.directory.as_ref().unwrap().path().to_owned()
    }

    /// Each storage, with each way to it.
    pub(crate) fn each_way() -> Vec<(Self, Way)> {
        let mut ways = Vec::new();
        for place in Self::each() {
            ways.push((place, Way::Storage));
        }
        for place in Self::each() {
            let datastore = place.serve(&[]);
            ways.push((place, Way::Datastore(datastore)));
        }
        ways
    }

    pub(crate) fn serve(&self, flags: &[&str]) -> Running {
        Running::over(&self.storage, &self.variables, flags)
    }

    pub(crate) fn state(&self, way: &Way, words: &[&str]) -> Ended {
        self.with_input(way, words, "")
    }

    pub(crate) fn with_input(&self, way: &Way, words: &[&str], input: &str) -> Ended {
        let url = match way {
            Way::Storage => String::new(),
            Way::Datastore(datastore) => format!("http://{}", datastore.address),
        };
        let place = match way {
            Way::Storage => ["--storage", &self.storage],
            Way::Datastore(_) => ["--url", &url],
        };
        let mut command = program(&[&["state"], words, &place].concat());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        ended(&mut command, input)
    }

    /// A request to a datastore that serves this storage until then.
    pub(crate) async fn request(&self, way: &Way, method: &str, rest: &str, body: String) -> u16 {
        let own;
        let datastore = match way {
            Way::Datastore(datastore) => datastore,
            Way::Storage => {
                own = self.serve(&[]);
                &own
            }
        };
        send(datastore, method, rest, body).await
    }
}

pub(crate) async fn send(datastore: &Running, method: &str, rest: &str, body: String) -> u16 {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let url = format!("http://{}/api/{rest}", datastore.address);
    CLIENT.request(method, url).body(body).send().await.unwrap().status().as_u16()
}

#[expect(clippy::disallowed_types, reason = "a test of the program must start it")]
pub(crate) fn ended(command: &mut std::process::Command, input: &str) -> Ended {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that reads nothing may have ended.
    let _written = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        message: String::from_utf8(output.stderr).unwrap(),
    }
}

/// What a command prints that succeeds.
#[track_caller]
pub(crate) fn done(ended: Ended) -> String {
    assert_eq!((ended.code, &*ended.message), (0, ""), "{ended:?}");
    ended.out
}

#[track_caller]
pub(crate) fn json(ended: Ended) -> Value {
    serde_json::from_str(&done(ended)).unwrap()
}
