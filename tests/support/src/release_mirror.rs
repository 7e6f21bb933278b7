//! A signed mirror of releases in the official layouts, on loopback, until it is dropped.
//!
//! Its key is made for it and thrown away with it. What it serves is in memory and may be replaced,
//! and every path may be given a fault.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{Cursor, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use datastore_api::Sha256;
use pgp::composed::{
    ArmorOptions, DetachedSignature, KeyType, SecretKeyParamsBuilder, SignedPublicKey,
    SignedSecretKey,
};
use pgp::crypto::hash::HashAlgorithm;
use pgp::ser::Serialize as _;
use pgp::types::Password;
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// How much of a body is sent at once.
const PIECE: usize = 64 * 1024;

/// A mirror that serves until it is dropped.
pub struct ReleaseMirror {
    dir: TempDir,
    address: String,
    key: SignedSecretKey,
    site: Arc<Mutex<Site>>,
    _shutdown: DropGuard,
}

/// A tool that has releases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MirroredTool {
    /// In the layout of releases.hashicorp.com.
    Terraform,
    /// In the layout of OpenTofu's releases on GitHub, with an `api.json`.
    Tofu,
    /// In the layout of Terragrunt's releases on GitHub, with an `api.json`.
    Terragrunt,
}

/// What happens to requests of one path.
#[derive(Clone, Copy)]
pub enum MirrorFault {
    /// This status, the first so many times.
    Status(u16, usize),
    /// The connection breaks after so many bytes, the first so many times.
    Cut(usize, usize),
    /// A wait before every 64 KiB.
    Slow(Duration),
    /// A redirect to itself.
    Circle,
    /// This status with this header.
    Answer(u16, &'static [(&'static str, &'static str)]),
    /// A body that never ends.
    Endless,
    /// The connection is taken, and nothing is ever said.
    Silent,
}

#[derive(Default)]
struct Site {
    /// With their tags, which cost more to make than the rest of an answer.
    files: HashMap<String, (Bytes, String)>,
    versions: HashMap<&'static str, Vec<String>>,
    faults: HashMap<String, MirrorFault>,
    /// Further headers of the answers for a path.
    headers: HashMap<String, Vec<(&'static str, String)>>,
    requests: Vec<String>,
    /// The credentials that came with the last request for a path.
    credentials: HashMap<String, String>,
}

impl MirroredTool {
    /// The name of its binary.
    pub fn program(self) -> &'static str {
        match self {
            Self::Terraform => "terraform",
            Self::Tofu => "tofu",
            Self::Terragrunt => "terragrunt",
        }
    }

    fn list(self) -> &'static str {
        match self {
            Self::Terraform => "/terraform/index.json",
            Self::Tofu => "/tofu/api.json",
            Self::Terragrunt => "/terragrunt/api.json",
        }
    }
}

impl ReleaseMirror {
    /// A mirror without releases. Serves in a thread of its own.
    pub fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let key = throwaway_key();
        std::fs::write(dir.path().join("keyring.asc"), armored(&key)).unwrap();
        let site = Arc::new(Mutex::new(Site::default()));
        let shutdown = CancellationToken::new();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(site.clone());
        let stopped = shutdown.clone().cancelled_owned();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = stopped => {}
                    served = async { axum::serve(listener, router).await } => served.unwrap(),
                }
            });
        });
        let mirror = Self { dir, address, key, site, _shutdown: shutdown.drop_guard() };
        for tool in [MirroredTool::Terraform, MirroredTool::Tofu, MirroredTool::Terragrunt] {
            mirror.list(tool);
        }
        mirror
    }

    /// The public key of the mirror.
    pub fn keyring(&self) -> PathBuf {
        self.dir.path().join("keyring.asc")
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The base that `--releases-url`, `--tofu-url` or `--terragrunt-url` takes.
    pub fn url(&self, tool: MirroredTool) -> String {
        match tool {
            MirroredTool::Terraform => self.address.clone(),
            MirroredTool::Tofu => format!("{}/tofu", self.address),
            MirroredTool::Terragrunt => format!("{}/terragrunt", self.address),
        }
    }

    /// Adds a release for this platform, zipped and signed.
    pub fn add(&self, tool: MirroredTool, version: &str, binary: &[u8]) {
        let platform = format!("terragrunt_{}", platform());
        let name = if tool == MirroredTool::Terragrunt { &platform } else { tool.program() };
        let archive = zipped(&[("LICENSE.txt", b"none", 0o644), (name, binary, 0o755)]);
        self.add_archive(tool, version, archive);
    }

    /// Adds a release whose archive is this.
    pub fn add_archive(&self, tool: MirroredTool, version: &str, archive: Vec<u8>) {
        let sums = format!(
            "{}  other_{}\n{}  {}\n",
            Sha256::of(b"another"),
            archive_name(tool, version),
            Sha256::of(&archive),
            archive_name(tool, version),
        );
        self.put(&self.archive_path(tool, version), archive);
        self.put_sums(tool, version, sums.into_bytes());
        self.site.lock().unwrap().versions.entry(tool.program()).or_default().push(version.into());
        self.list(tool);
    }

    /// Adds a release that is a script, which prints its version as the tool does.
    pub fn add_script(&self, tool: MirroredTool, version: &str) {
        self.add(tool, version, script(version).as_bytes());
    }

    /// Replaces the sums of a release, and signs them.
    pub fn put_sums(&self, tool: MirroredTool, version: &str, sums: Vec<u8>) {
        self.put(&self.signature_path(tool, version), self.sign(&sums));
        self.put(&self.sums_path(tool, version), sums);
    }

    /// A detached signature by the mirror's key.
    pub fn sign(&self, data: &[u8]) -> Vec<u8> {
        let password = Password::empty();
        let rng = rand::thread_rng();
        DetachedSignature::sign_binary_data(
            rng,
            &self.key.primary_key,
            &password,
            HashAlgorithm::Sha256,
            data,
        )
        .and_then(|signature| signature.to_bytes())
        .unwrap()
    }

    /// Replaces a file.
    pub fn put(&self, path: &str, contents: Vec<u8>) {
        let etag = format!("\"{}\"", Sha256::of(&contents));
        self.site.lock().unwrap().files.insert(path.to_owned(), (contents.into(), etag));
    }

    /// What it has at a path.
    pub fn file(&self, path: &str) -> Vec<u8> {
        self.site.lock().unwrap().files[path].0.to_vec()
    }

    /// Removes a file.
    pub fn remove(&self, path: &str) {
        self.site.lock().unwrap().files.remove(path);
    }

    /// From now on this happens to a path.
    pub fn fault(&self, path: &str, fault: MirrorFault) {
        self.site.lock().unwrap().faults.insert(path.to_owned(), fault);
    }

    /// From now on a path is answered with this header, too.
    pub fn header(&self, path: &str, name: &'static str, value: &str) {
        let mut site = self.site.lock().unwrap();
        site.headers.entry(path.to_owned()).or_default().push((name, value.to_owned()));
    }

    /// The credentials that came with the last request for a path.
    pub fn credentials(&self, path: &str) -> Option<String> {
        self.site.lock().unwrap().credentials.get(path).cloned()
    }

    /// How often a path was requested.
    pub fn requests(&self, path: &str) -> usize {
        self.site.lock().unwrap().requests.iter().filter(|requested| *requested == path).count()
    }

    /// How many requests there were.
    pub fn all_requests(&self) -> usize {
        self.site.lock().unwrap().requests.len()
    }

    /// The path of the list of versions.
    pub fn list_path(&self, tool: MirroredTool) -> &'static str {
        tool.list()
    }

    /// The path of a release's archive for this platform.
    pub fn archive_path(&self, tool: MirroredTool, version: &str) -> String {
        format!("{}/{}", directory(tool, version), archive_name(tool, version))
    }

    /// The path of a release's sums.
    pub fn sums_path(&self, tool: MirroredTool, version: &str) -> String {
        let directory = directory(tool, version);
        match tool {
            MirroredTool::Terragrunt => format!("{directory}/SHA256SUMS"),
            _ => format!("{directory}/{}_{version}_SHA256SUMS", tool.program()),
        }
    }

    /// The path of the signature of a release's sums.
    pub fn signature_path(&self, tool: MirroredTool, version: &str) -> String {
        let ending = match tool {
            MirroredTool::Terraform => "sig",
            MirroredTool::Tofu | MirroredTool::Terragrunt => "gpgsig",
        };
        format!("{}.{ending}", self.sums_path(tool, version))
    }

    fn list(&self, tool: MirroredTool) {
        let versions = self.site.lock().unwrap().versions.get(tool.program()).cloned();
        let versions = versions.unwrap_or_default();
        let list = match tool {
            MirroredTool::Terraform => {
                let versions = versions.into_iter().map(|version| {
                    let release = serde_json::json!({"name": "terraform", "version": version});
                    (version, release)
                });
                let versions: serde_json::Map<_, _> = versions.collect();
                serde_json::json!({"name": "terraform", "versions": versions})
            }
            MirroredTool::Tofu | MirroredTool::Terragrunt => {
                let version = |id| serde_json::json!({"id": id, "files": []});
                let versions: Vec<_> = versions.into_iter().map(version).collect();
                serde_json::json!({"versions": versions})
            }
        };
        self.put(tool.list(), list.to_string().into_bytes());
    }
}

/// A script that prints this version as the tool does.
pub fn script(version: &str) -> String {
    format!(
        "#!/bin/sh\n[ \"$*\" = 'version -json' ] && echo '{{\"terraform_version\": \"{version}\"}}'\n"
    )
}

/// A zip archive of these entries: name, contents, mode.
pub fn zipped(entries: &[(&str, &[u8], u32)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, contents, mode) in entries {
        let options =
            SimpleFileOptions::default().compression_level(Some(1)).unix_permissions(*mode);
        zip.start_file(*name, options).unwrap();
        zip.write_all(contents).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// The tool and version of a binary, as it says itself.
pub fn identify(binary: &Path) -> (MirroredTool, String) {
    #![expect(clippy::disallowed_types, reason = "the mirror asks the tool itself")]
    let output = std::process::Command::new(binary)
        .args(["version", "-json"])
        .env("CHECKPOINT_DISABLE", "1")
        .output()
        .unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let version = answer["terraform_version"].as_str().unwrap().to_owned();
    let tofu = binary.file_name().is_some_and(|name| name == "tofu");
    (if tofu { MirroredTool::Tofu } else { MirroredTool::Terraform }, version)
}

/// A key that signs and certifies.
pub fn throwaway_key() -> SignedSecretKey {
    let params = SecretKeyParamsBuilder::default()
        .key_type(KeyType::Ed25519Legacy)
        .can_certify(true)
        .can_sign(true)
        .primary_user_id("A throw-away key of Plancha's tests".into())
        .build()
        .unwrap();
    params.generate(rand::thread_rng()).unwrap()
}

fn armored(key: &SignedSecretKey) -> String {
    SignedPublicKey::from(key.clone()).to_armored_string(ArmorOptions::default()).unwrap()
}

fn directory(tool: MirroredTool, version: &str) -> String {
    match tool {
        MirroredTool::Terraform => format!("/terraform/{version}"),
        MirroredTool::Tofu => format!("/tofu/v{version}"),
        MirroredTool::Terragrunt => format!("/terragrunt/v{version}"),
    }
}

/// This platform, as Go names it.
pub fn platform() -> String {
    let os = if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS };
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    format!("{os}_{arch}")
}

fn archive_name(tool: MirroredTool, version: &str) -> String {
    match tool {
        MirroredTool::Terragrunt => format!("terragrunt_{}.zip", platform()),
        _ => format!("{}_{version}_{}.zip", tool.program(), platform()),
    }
}

async fn answer(State(site): State<Arc<Mutex<Site>>>, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path().to_owned();
    let (contents, fault, further) = {
        let mut site = site.lock().unwrap();
        site.requests.push(path.clone());
        let credentials = headers.get(header::AUTHORIZATION);
        let credentials = credentials.map(|text| text.to_str().unwrap().to_owned());
        site.credentials.remove(&path);
        site.credentials.extend(credentials.map(|credentials| (path.clone(), credentials)));
        // Pages of one list differ by their queries.
        let whole = uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        let contents = site.files.get(&whole).or_else(|| site.files.get(&path)).cloned();
        (contents, site.fault(&path), site.headers.get(&path).cloned().unwrap_or_default())
    };
    match (fault, contents) {
        (Some(MirrorFault::Silent), _) => std::future::pending().await,
        (Some(MirrorFault::Endless), _) => {
            let zeros = Bytes::from_static(&[b' '; PIECE]);
            let endless = futures::stream::repeat_with(move || Ok::<_, Infallible>(zeros.clone()));
            Body::from_stream(endless).into_response()
        }
        (Some(MirrorFault::Answer(status, headers)), _) => {
            let mut response = StatusCode::from_u16(status).unwrap().into_response();
            for (name, value) in headers {
                response.headers_mut().insert(*name, value.parse().unwrap());
            }
            response
        }
        (Some(MirrorFault::Status(status, _)), _) => {
            StatusCode::from_u16(status).unwrap().into_response()
        }
        (Some(MirrorFault::Circle), _) => {
            (StatusCode::FOUND, [(header::LOCATION, path)]).into_response()
        }
        (_, None) => StatusCode::NOT_FOUND.into_response(),
        (fault, Some((contents, etag))) => {
            if headers.get(header::IF_NONE_MATCH).is_some_and(|tag| *tag == *etag) {
                return StatusCode::NOT_MODIFIED.into_response();
            }
            let length = contents.len();
            let headers = [(header::ETAG, etag), (header::CONTENT_LENGTH, length.to_string())];
            let mut response = (headers, body(contents, fault)).into_response();
            for (name, value) in further {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            response
        }
    }
}

impl Site {
    /// The fault of a path, which may be used up by this.
    fn fault(&mut self, path: &str) -> Option<MirrorFault> {
        let fault = self.faults.get_mut(path)?;
        let met = *fault;
        match fault {
            MirrorFault::Status(_, times) | MirrorFault::Cut(_, times) => {
                if *times == 0 {
                    return None;
                }
                *times -= 1;
            }
            MirrorFault::Slow(_)
            | MirrorFault::Circle
            | MirrorFault::Answer(..)
            | MirrorFault::Endless
            | MirrorFault::Silent => {}
        }
        Some(met)
    }
}

fn body(contents: Bytes, fault: Option<MirrorFault>) -> Body {
    let pieces = futures::stream::unfold(0, move |sent| {
        let contents = contents.clone();
        async move {
            let mut end = contents.len().min(sent + PIECE);
            match fault {
                Some(MirrorFault::Slow(wait)) => tokio::time::sleep(wait).await,
                Some(MirrorFault::Cut(after, _)) if sent >= after => {
                    return Some((Err(std::io::Error::other("cut")), sent));
                }
                Some(MirrorFault::Cut(after, _)) => end = end.min(after),
                _ => {}
            }
            (sent < contents.len()).then(|| (Ok(contents.slice(sent..end)), end))
        }
    });
    Body::from_stream(pieces)
}
