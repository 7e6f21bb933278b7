//! Why a release could not be resolved or installed, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use datastore_api::Sha256;

use crate::release::download::cause;
use crate::release::verify::signature::SignatureError;
use crate::source::path::{CHANGE_DIRECTORY, NO_CURRENT_DIRECTORY};
use crate::version::{ToolName, Version, VersionError};

/// The kind of an error, which decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// Credentials are missing or not enough.
    Credentials,
    /// The network, or a service that may answer later.
    Network,
    /// The request cannot be satisfied or understood.
    Config,
    /// A digest, signature or archive is wrong.
    Integrity,
    /// Anything else, such as a full disk.
    Other,
}

/// Why a command of this module failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The arguments cannot be used.
    #[error("{0}")]
    Usage(String),
    /// No version could be found for the directory.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// The release could not be resolved, installed or copied.
    #[error(transparent)]
    Release(#[from] ReleaseError),
}

/// Why a release could not be resolved or installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReleaseError {
    /// No published version satisfies the request.
    #[error(
        "no published version of {tool} matches `{request}` (requested by {origin}){refusing}; {nearest} in {list}"
    )]
    NoSuchVersion {
        tool: ToolName,
        request: String,
        origin: String,
        nearest: String,
        /// The constraints that no version satisfies together, or nothing.
        refusing: Box<str>,
        /// The URL of the list, and its age.
        list: String,
    },
    /// The constraints contradict each other.
    #[error("no version of {tool} satisfies all constraints: these conflict: {one}; {two}")]
    Conflict { tool: ToolName, one: String, two: String },
    /// The version exists, but one of its files does not.
    #[error(
        "{tool} {version} is published, but {url} does not exist: an incomplete mirror, or a release still being uploaded"
    )]
    NoSuchFile { tool: ToolName, version: Version, url: String },
    /// The version exists, but not for this platform.
    #[error("{tool} {version} is not built for {platform}, only for {built}, as {sums_url} says")]
    NoBuild { tool: ToolName, version: String, platform: String, built: String, sums_url: String },
    /// The vendor has published neither digests nor signatures.
    #[error("{tool} {version} was published without digests, so it cannot be verified")]
    NoSums { tool: ToolName, version: Version },
    /// 404.
    #[error("{0} does not exist (404)")]
    NotFound(String),
    /// Another status that a retry will not change.
    #[error("{url} answered {status}")]
    Refused { url: String, status: u16 },
    /// A status that may change: 429 or 5xx.
    #[error("{url} still answered {status} after {tries} tries")]
    Busy { url: String, status: u16, tries: usize, after: Option<Duration> },
    /// 403 or 429 with the headers of a rate limit.
    #[error("{url} refuses requests until {until} (rate limit)")]
    RateLimit { url: String, until: String },
    /// No connection: DNS, refused, no route, or no answer in five seconds.
    #[error("cannot connect to {url}{by}")]
    Unreachable {
        url: String,
        /// ` through the proxy ...`, or nothing.
        by: String,
        #[source]
        source: reqwest::Error,
    },
    /// The server sent nothing for too long.
    #[error("{url} stopped responding (timeout)")]
    Timeout {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// The transfer exceeded its total time limit.
    #[error("{url} took longer than {} s to download (timeout)", .limit.as_secs())]
    TooSlow { url: String, limit: Duration },
    /// The TLS handshake failed: the certificate, or a server without TLS.
    #[error("the TLS handshake with {url} failed")]
    Tls {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// The proxy refused the connection.
    #[error("the proxy {proxy} did not connect to {url}")]
    Proxy {
        url: String,
        proxy: String,
        #[source]
        source: reqwest::Error,
    },
    /// 407: the proxy requires credentials.
    #[error("the proxy {proxy} requires a user and a password for {url} (407)")]
    ProxyRefused { url: String, proxy: String },
    /// The connection failed for another reason, or broke: a reset, an early end.
    #[error("the transfer of {url} failed")]
    Transfer {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// Redirected in a circle, or from https to http.
    #[error("{url} has a redirect that is not allowed")]
    Redirect {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// The response exceeds its size limit.
    #[error("{url} is larger than {} MiB", .limit >> 20)]
    TooLarge { url: String, limit: u64 },
    /// The list of versions does not parse.
    #[error("{url} is not a list of versions: {reason}")]
    NotAList { url: String, reason: String },
    /// A response does not parse.
    #[error("{url}: {reason}")]
    NotUnderstood { url: String, reason: String },
    /// The archive's digest differs from the published one.
    #[error("{url} has the SHA-256 {actual}, but {expected} is signed for it")]
    WrongDigest { url: String, expected: Sha256, actual: Sha256 },
    /// The archive is not among the published digests.
    #[error("{url} has no line for {file}")]
    NoDigest { url: String, file: String },
    /// The signature of the digests is not valid.
    #[error("{url} is not signed by a key that is trusted for {tool}")]
    Signature {
        url: String,
        tool: ToolName,
        #[source]
        source: SignatureError,
    },
    /// The vendor's key is needed and could not be fetched.
    #[error("the signature {signature} needs the key {fingerprint}, which could not be fetched")]
    NoKey {
        signature: String,
        fingerprint: &'static str,
        #[source]
        source: Box<ReleaseError>,
    },
    /// A required signature does not exist.
    #[error("{0} does not exist, but releases of {1} must be signed")]
    NoSignature(String, ToolName),
    /// The fetched key has another fingerprint.
    #[error("{url} does not contain the key {fingerprint}")]
    WrongKey { url: String, fingerprint: &'static str },
    /// A file that a flag, a variable or tenv names cannot be read.
    #[error("a required file cannot be read")]
    Unreadable(#[source] io::Error),
    /// A keyring file cannot be read.
    #[error("--keyring (PLANCHA_KEYRING): {} cannot be read", .path.display())]
    NoKeyring {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A keyring file holds no keys.
    #[error("the keyring {} contains no OpenPGP public key", .path.display())]
    Keyring {
        path: PathBuf,
        #[source]
        source: SignatureError,
    },
    /// The file of `--ca-file` does not parse.
    #[error("{} contains no PEM certificates, or a damaged one", .0.display())]
    CaFile(PathBuf),
    /// A mirror's URL has an unsupported scheme.
    #[error("{0}: unsupported scheme: expected http://, https:// or file:///DIR")]
    Scheme(String),
    /// tenv's file of mirrors does not parse.
    #[error(
        "{}:{line}:{column}: invalid syntax: expected a tool on a line (`terraform:`), and its settings indented \
         below it (`  url: ...`)",
        .path.display()
    )]
    RemoteConfSyntax { path: PathBuf, line: u64, column: u64 },
    /// tenv's file of mirrors is too large.
    #[error("{} is larger than {} KiB", .path.display(), .limit >> 10)]
    RemoteConfSize { path: PathBuf, limit: u64 },
    /// A variable or setting has an invalid value.
    #[error("{name}: {reason}")]
    Variable { name: String, reason: String },
    /// The archive does not contain exactly one file with the tool's name.
    #[error("{url} is not an archive of {program}: {reason}")]
    Archive { url: String, program: &'static str, reason: String },
    /// The release is another one than its address says.
    #[error("{url} has {tool} {printed}, not {version}")]
    OtherVersion { url: String, tool: ToolName, version: String, printed: String },
    /// An installed binary has changed since its installation.
    #[error("{} has the SHA-256 {actual}, but {recorded} was installed", .path.display())]
    Changed { path: PathBuf, recorded: Sha256, actual: Sha256 },
    /// No installed version satisfies the request, and `--offline` forbids requests.
    #[error(
        "no installed version of {tool} matches `{request}` (requested by {origin}), and --offline forbids network \
         access"
    )]
    Offline { tool: ToolName, request: String, origin: String },
    /// The site was unreachable a short time ago, and there is an alternative.
    #[error("{site} was skipped: it could not be reached {seconds} s ago (--refresh tries again)")]
    Skipped { site: String, seconds: u64 },
    /// The site did not respond within a second, and there is an alternative.
    #[error("{url} did not answer within {} s", .limit.as_secs())]
    NoAnswer { url: String, limit: Duration },
    /// A directory or file for tools cannot be written, or is a file in the place of a directory.
    #[error("{what}: cannot write to {}", .dir.display())]
    ReadOnly {
        dir: PathBuf,
        what: String,
        #[source]
        source: io::Error,
    },
    /// No directory for tools is known.
    #[error("there is no directory to install tools in: neither HOME nor XDG_CACHE_HOME is set")]
    Nowhere,
    /// A relative path is below a directory that was removed.
    #[error("{NO_CURRENT_DIRECTORY}")]
    NoCurrentDirectory,
    /// The disk or the quota is full.
    #[error("the disk is full: no room for {what} in {}", .dir.display())]
    DiskFull {
        dir: PathBuf,
        what: String,
        #[source]
        source: io::Error,
    },
    /// Another error of the file system.
    #[error("a file or directory cannot be used")]
    Io(#[from] io::Error),
    /// Stdout cannot be written.
    #[error("stdout cannot be written")]
    Stdout(#[source] io::Error),
    /// The HTTP client cannot be created, for example without system certificates.
    #[error("the HTTPS client cannot be created")]
    Client(#[source] reqwest::Error),
}

impl ReleaseError {
    /// Every error, one line each, and no wildcard: a new variant must choose.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSuchVersion { .. } | Self::NoSuchFile { .. } => ErrorKind::Config,
            Self::Conflict { .. } => ErrorKind::Config,
            Self::NoBuild { .. } | Self::NotFound(_) => ErrorKind::Config,
            Self::NoSums { .. } => ErrorKind::Integrity,
            Self::Refused { status: 401 | 403, .. } => ErrorKind::Credentials,
            Self::ProxyRefused { .. } => ErrorKind::Credentials,
            Self::Refused { .. } => ErrorKind::Config,
            Self::Busy { .. } | Self::RateLimit { .. } => ErrorKind::Network,
            Self::Unreachable { .. } | Self::Transfer { .. } => ErrorKind::Network,
            Self::Timeout { .. } | Self::TooSlow { .. } => ErrorKind::Network,
            Self::Tls { .. } | Self::Proxy { .. } => ErrorKind::Network,
            Self::Redirect { .. } => ErrorKind::Config,
            Self::TooLarge { .. } => ErrorKind::Integrity,
            Self::NotAList { .. } | Self::NotUnderstood { .. } => ErrorKind::Config,
            Self::WrongDigest { .. } | Self::NoDigest { .. } => ErrorKind::Integrity,
            Self::Signature { .. } | Self::NoSignature(..) | Self::WrongKey { .. } => {
                ErrorKind::Integrity
            }
            Self::NoKey { source, .. } => source.kind(),
            Self::Keyring { .. } | Self::NoKeyring { .. } => ErrorKind::Config,
            Self::CaFile(_) | Self::Scheme(_) => ErrorKind::Config,
            Self::Variable { .. } => ErrorKind::Config,
            Self::RemoteConfSyntax { .. } | Self::RemoteConfSize { .. } => ErrorKind::Config,
            Self::Archive { .. } | Self::Changed { .. } => ErrorKind::Integrity,
            Self::OtherVersion { .. } => ErrorKind::Integrity,
            Self::Unreadable(_) | Self::Offline { .. } => ErrorKind::Config,
            Self::Nowhere | Self::NoCurrentDirectory => ErrorKind::Config,
            Self::Skipped { .. } | Self::NoAnswer { .. } => ErrorKind::Network,
            Self::ReadOnly { .. } => ErrorKind::Config,
            Self::DiskFull { .. } | Self::Io(_) => ErrorKind::Other,
            Self::Stdout(_) | Self::Client(_) => ErrorKind::Other,
        }
    }

    /// What the user can do about it.
    pub(crate) fn next(&self) -> &'static str {
        let hint = self.version_hint().or_else(|| self.site_hint());
        let hint = hint.or_else(|| self.verification_hint()).or_else(|| self.local_hint());
        hint.unwrap_or("check the mirror")
    }

    /// The request and the version.
    fn version_hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoSuchVersion { refusing, .. } if !refusing.is_empty() => {
                "change one of these constraints, or request a version with --tool-version"
            }
            Self::Conflict { .. } => {
                "change one of these constraints, or request a version with --tool-version"
            }
            Self::NoSuchVersion { .. } => {
                "request a version that exists, or update the list of versions with --refresh"
            }
            Self::NoSuchFile { .. } => "try again in an hour, or complete the mirror",
            Self::NoBuild { .. } => {
                "choose a version that is built for this platform, or another platform with TENV_ARCH"
            }
            Self::NoSums { .. } => {
                "choose a newer version: the runner installs only what it can verify"
            }
            Self::Offline { .. } => {
                "leave out --offline (PLANCHA_OFFLINE), or install the version first with `runner install`"
            }
            _ => return None,
        })
    }

    /// The site and the way to it.
    fn site_hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Refused { status: 401 | 403, url }
                if url.contains("/repos/") || url.contains("/app/installations") =>
            {
                "check the token in TENV_GITHUB_TOKEN, or TENV_GITHUB_APP_ID and the other TENV_GITHUB_APP_ variables"
            }
            Self::Refused { status: 401 | 403, .. } => {
                "set TFENV_REMOTE_USER and TFENV_REMOTE_PASSWORD (TOFUENV_, TG_) for that mirror, or ask its operator \
                 for access"
            }
            Self::ProxyRefused { .. } => {
                "set both in the variable of the proxy: HTTPS_PROXY=http://USER:PASSWORD@HOST"
            }
            Self::NotFound(_)
            | Self::Refused { .. }
            | Self::NotAList { .. }
            | Self::NotUnderstood { .. } => "check the mirror's address",
            Self::Busy { .. } => "try again later",
            Self::RateLimit { .. } => {
                "wait, set a token in TENV_GITHUB_TOKEN, or request an exact version, which needs no list"
            }
            Self::Unreachable { .. } => {
                "check the network and proxies (HTTPS_PROXY, NO_PROXY), or name a mirror \
                 (--releases-url, --tofu-url, --terragrunt-url)"
            }
            Self::Timeout { .. } | Self::TooSlow { .. } => "run again, or use a nearer mirror",
            Self::Tls { source, .. } if cause::is_plain(source) => {
                "that port does not speak TLS: if it speaks plain http, write http:// instead of https://"
            }
            Self::Tls { source, .. } if cause::says(source, "CaUsedAsEndEntity") => {
                "the server's own certificate is an authority's (CA:TRUE): give the server one with CA:FALSE that \
                 an authority has signed, and name the authority's with --ca-file"
            }
            Self::Tls { .. } => {
                "if a private authority issued the certificate, add its certificate with --ca-file; else check the \
                 address"
            }
            Self::Proxy { .. } => {
                "check HTTPS_PROXY and NO_PROXY, or ask the operator of the proxy"
            }
            Self::Transfer { .. } => "try again",
            Self::Redirect { .. } | Self::TooLarge { .. } => "check the mirror",
            Self::Skipped { .. } => "run again with --refresh",
            Self::NoAnswer { .. } => "run again, or use a nearer mirror",
            _ => return None,
        })
    }

    /// Digests, signatures and keys.
    fn verification_hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::WrongDigest { .. } | Self::NoDigest { .. } => {
                "check the mirror; do not use that file"
            }
            Self::Signature { .. } => {
                "do not use that release; a mirror with a key of its own needs --keyring"
            }
            Self::NoKey { .. } => "supply the key with --keyring",
            Self::WrongKey { .. } => "supply the vendor's key with --keyring",
            Self::Archive { .. } | Self::OtherVersion { .. } | Self::NoSignature(..) => {
                "check the mirror; do not use that release"
            }
            Self::Changed { .. } => {
                "find out why it changed, then delete it: the next run installs it again"
            }
            _ => return None,
        })
    }

    /// Settings and files of this machine.
    fn local_hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Unreadable(_) | Self::NoKeyring { .. } => {
                "check that it exists and can be read, or name another"
            }
            Self::Keyring { .. } => "export the key again: gpg --armor --export KEY",
            Self::CaFile(_) => "name a file of PEM certificates",
            Self::Scheme(_) => "name a mirror with an http, https or file URL",
            Self::RemoteConfSyntax { .. } | Self::RemoteConfSize { .. } => {
                "correct that file, or name another in TENV_REMOTE_CONF"
            }
            Self::Variable { .. } => "correct the variable, or unset it",
            Self::ReadOnly { .. } => {
                "name a writable directory with --bin-dir (BURRITO_RUNNER_RUNNERBINARYPATH), or put the \
                 version on PATH, which a plan or apply then uses; without --bin-dir, tools are installed below \
                 XDG_CACHE_HOME, else HOME"
            }
            Self::Nowhere => {
                "name one with --bin-dir, or put the version on PATH, which a plan or apply then uses"
            }
            Self::NoCurrentDirectory => CHANGE_DIRECTORY,
            Self::DiskFull { .. } => {
                "free some space (or raise the quota), or name a directory on another disk"
            }
            Self::Stdout(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                "check the program that reads the output"
            }
            Self::Stdout(_) => {
                "check where stdout goes: free some space there, or write to another file"
            }
            Self::Io(_) => "check that it can be written, or name another directory",
            Self::Client(_) => "check the system's certificates",
            _ => return None,
        })
    }

    /// Adds what was to be written and where, if the disk is full or the directory cannot be written.
    pub(super) fn with_target(self, what: &str, dir: &Path) -> Self {
        const FULL: [io::ErrorKind; 3] =
            [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
        const READ_ONLY: [io::ErrorKind; 3] = [
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::ReadOnlyFilesystem,
            io::ErrorKind::NotADirectory,
        ];
        match self {
            Self::Io(source) if FULL.contains(&source.kind()) => {
                Self::DiskFull { dir: dir.to_owned(), what: what.to_owned(), source }
            }
            Self::Io(source) if READ_ONLY.contains(&source.kind()) => {
                Self::ReadOnly { dir: dir.to_owned(), what: what.to_owned(), source }
            }
            other => other,
        }
    }

    /// Whether there was no connection, or none was allowed: only then another version may be used instead.
    pub(super) fn is_unreachable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Offline { .. } => true,
            Self::Skipped { .. } | Self::NoAnswer { .. } => true,
            Self::NoKey { source, .. } => source.is_unreachable(),
            _ => false,
        }
    }

    /// Whether the directory for tools is missing or cannot be written: a program on `PATH` may be used instead.
    pub(super) fn is_unwritable(&self) -> bool {
        matches!(self, Self::ReadOnly { .. } | Self::DiskFull { .. } | Self::Nowhere)
    }

    /// Whether an old list may be used instead: the site did not refuse the request.
    pub(super) fn is_outage(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::RateLimit { .. } | Self::Proxy { .. })
            || matches!(self, Self::TooSlow { .. } | Self::Tls { .. })
            || matches!(self, Self::Skipped { .. } | Self::NoAnswer { .. })
            || self.is_transient()
    }

    /// Whether a retry may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::Timeout { .. } => true,
            Self::Transfer { source, .. } => !cause::is_misunderstanding(source),
            _ => false,
        }
    }
}
