//! Errors of the checkout.

use std::io;
use std::path::{Path, PathBuf};

use reqwest::StatusCode;

use crate::failure::datastore::datastore_kind;
use crate::failure::step::after_stop;
use crate::failure::{Failure, Kind};
use crate::process::quoted;
use crate::source::archive::{ArchiveError, Refusal};
use crate::source::error::CheckoutError;
use crate::source::git::CHANGED_KEY;
use crate::source::regular;
use crate::source::work_dir::mark;

const NO_ROOM: &str =
    "free some space there, or set --work-dir or TMPDIR to a directory with more, and run again";

impl From<&CheckoutError> for Failure {
    fn from(error: &CheckoutError) -> Self {
        let failure = Self::new(kind(error), error);
        match error {
            CheckoutError::EmptySubmodule { next, .. } | CheckoutError::LfsPointer { next, .. } => {
                failure.with_hint(&format!("{next}; --no-submodules plans without it"))
            }
            CheckoutError::Datastore(cause) if cause.status() == Some(StatusCode::FORBIDDEN) => failure
                .with_hint(
                    "the repository is in another namespace than this service account: the datastore's \
                     policy (PLANCHA_POLICY) must let the account read that namespace's bundles",
                ),
            CheckoutError::Io(cause)
            | CheckoutError::Archive { error: ArchiveError::File(_, cause), .. } => {
                failure.with_hint(of_io(cause))
            }
            CheckoutError::Archive { error, .. } => failure.with_hint(&of_archive(error)),
            CheckoutError::Stopped(stop) => failure.with_hint(after_stop(*stop)),
            CheckoutError::BadBundle { .. } => failure.with_hint(
                "make the bundle again with its whole history: `git bundle create FILE --all`; `git bundle verify FILE` \
                 shows what it needs",
            ),
            CheckoutError::FlatName { .. }
            | CheckoutError::SameFlatPath { .. }
            | CheckoutError::FlatFileAbove { .. } => failure.with_hint(OTHER_SEPARATOR),
            CheckoutError::NoModule { candidates, .. } => failure.with_hint(&of_modules(candidates)),
            CheckoutError::NoBundle(_) | CheckoutError::NotInBundle { .. } => failure
                .with_hint("let Burrito's controllers sync the repository again: they create its bundles"),
            CheckoutError::OtherHistory { .. } => failure.with_hint(
                "nothing was applied; name the repository or bundle that the plan was made of, or plan again",
            ),
            CheckoutError::OutdatedSubmodule { .. } => failure.with_hint(
                "check that .gitmodules has a URL that git can fetch from here, or name a new --work-dir",
            ),
            CheckoutError::OtherSource { dir, .. } => failure.with_hint(&format!(
                "name another --work-dir; if it is the same code under a new address or path, empty the file {}",
                mark(dir).display()
            )),
            CheckoutError::ForeignCode { .. } => failure.with_hint(
                "move these files out of it, or name another --work-dir: a kept one has no other code than the source",
            ),
            CheckoutError::HiddenChanges { .. } => failure.with_hint(
                "save your changes elsewhere and delete these files, which the next run writes again; or name another \
                 --work-dir",
            ),
            CheckoutError::Busy(_) => {
                failure.with_hint("wait until that run has ended, or name another --work-dir")
            }
            CheckoutError::GitRuns { .. } => failure.with_hint(
                "wait until that process has ended, or find it with `fuser -v` on the file and end it, and run again",
            ),
            CheckoutError::StateInTheWay { .. } => failure.with_hint(
                "move the state to a backend or another directory, or name another --work-dir",
            ),
            _ => match of_place(error).or_else(|| of_git(error)) {
                Some(next) => failure.with_hint(&next),
                None => failure,
            },
        }
    }
}

const OTHER_SEPARATOR: &str =
    "rename the file (the key of the ConfigMap), or use another separator with --unflatten";

fn kind(error: &CheckoutError) -> Kind {
    match error {
        CheckoutError::NotADirectory { .. }
        | CheckoutError::ForeignFiles(_)
        | CheckoutError::OtherSource { .. }
        | CheckoutError::ForeignCode { .. }
        | CheckoutError::HiddenChanges { .. }
        | CheckoutError::Busy(_)
        | CheckoutError::GitRuns { .. }
        | CheckoutError::StateInTheWay { .. }
        | CheckoutError::NoSuchPath { .. }
        | CheckoutError::FilePath { .. }
        | CheckoutError::Unreadable(_)
        | CheckoutError::LinkAbove(_)
        | CheckoutError::Beside { .. }
        | CheckoutError::NoModule { .. }
        | CheckoutError::FlatName { .. }
        | CheckoutError::SameFlatPath { .. }
        | CheckoutError::FlatFileAbove { .. }
        | CheckoutError::BadBundle { .. }
        | CheckoutError::Outside { .. }
        | CheckoutError::NoSuchRevision { .. }
        | CheckoutError::NoSuchRepository { .. }
        | CheckoutError::EmptySubmodule { .. }
        | CheckoutError::OutdatedSubmodule { .. }
        | CheckoutError::LeftOut { .. }
        | CheckoutError::MayBeLeftOut { .. }
        | CheckoutError::LfsPointer { .. } => Kind::Config,
        CheckoutError::OtherHistory { .. } => Kind::Integrity,
        CheckoutError::Credentials { .. } => Kind::Credentials,
        CheckoutError::Network { .. } => Kind::Network,
        CheckoutError::NoBundle(_) | CheckoutError::NotInBundle { .. } => Kind::Config,
        CheckoutError::Datastore(cause) => datastore_kind(cause),
        CheckoutError::Io(cause) if cause.kind() == io::ErrorKind::PermissionDenied => Kind::Config,
        CheckoutError::Git { .. } | CheckoutError::Io(_) | CheckoutError::Unread(_) => {
            Kind::Unclassified
        }
        CheckoutError::Archive { error: ArchiveError::File(..), .. } => Kind::Unclassified,
        CheckoutError::Archive { .. } => Kind::Config,
        CheckoutError::Stopped(stop) => Kind::Stopped(*stop),
    }
}

/// What to do about a file that cannot be read or written.
fn of_io(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => NO_ROOM,
        io::ErrorKind::PermissionDenied => {
            "make it readable for this user; if it is to be written, set --work-dir or TMPDIR to a directory that can be"
        }
        _ => "set --work-dir or TMPDIR to a directory that can be created and written",
    }
}

/// What to do about an archive that cannot be unpacked.
fn of_archive(error: &ArchiveError) -> String {
    match error {
        ArchiveError::Empty | ArchiveError::Unknown(_) => {
            "a source is a directory, a git URL, a git bundle, or a tar archive, plain or compressed with gzip or zstd"
        }
        ArchiveError::BadEnd | ArchiveError::BadHeader => {
            "transfer or make the file again: `tar -tf FILE` lists a whole one"
        }
        ArchiveError::Trailing => {
            "make one archive of all files: `tar -A` joins archives that are not compressed, `cat` does not"
        }
        ArchiveError::Refused { reason: Refusal::Twice, .. } => {
            "make the archive again: `tar -r` and `tar -u` add a file that is in it already"
        }
        ArchiveError::Refused { reason: Refusal::Sparse, .. } => {
            "make the archive again without sparse files: GNU tar without --sparse, bsdtar with --no-read-sparse"
        }
        ArchiveError::Refused { reason: Refusal::TooLong(_), .. } => {
            "make the archive again with a shorter name: a name may have 255 bytes, and a path 4095 with the directory of the run"
        }
        ArchiveError::Refused { reason: Refusal::Other(_), .. } => {
            "make the archive again without this entry"
        }
        ArchiveError::Window => "compress it again without --long, or with --long=27 at most",
        ArchiveError::TooLarge(_) => "make an archive of the code alone",
        ArchiveError::Read(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
            "make the file readable for this user"
        }
        ArchiveError::Read(_) | ArchiveError::File(..) => {
            "check that the file is whole and can be read: `tar -tf FILE` lists it"
        }
    }
    .to_owned()
}

/// What to do about a module in `dir` of the source `root` that reads `path` beside the source.
fn of_beside(path: &Path, root: &Path, dir: &Path) -> String {
    let above = root.ancestors().find(|above| path.starts_with(above)).unwrap_or(root);
    let module = dir.strip_prefix(above).unwrap_or(dir).display();
    format!(
        "name a source that contains both: {} with --path {module}; or a writable directory, which is used in place",
        above.display()
    )
}

/// What to do about a file that a sparse checkout leaves out.
fn of_left_out(file: &Path) -> String {
    // Without the cone mode git takes the command only there.
    let top = file.ancestors().skip(1).find(|dir| dir.join(".git").exists());
    let top = quoted(&top.unwrap_or(Path::new(".")).display().to_string());
    format!(
        "add its directory with `git -C {top} sparse-checkout add DIR`, or check everything out with \
         `git -C {top} sparse-checkout disable`"
    )
}

/// What to do about a source, or a place in it, that cannot be read or copied.
fn of_place(error: &CheckoutError) -> Option<String> {
    let next = match error {
        CheckoutError::FilePath { path } => return Some(of_file(path)),
        CheckoutError::Beside { path, root, dir, .. } => return Some(of_beside(path, root, dir)),
        CheckoutError::LeftOut { file, .. } | CheckoutError::MayBeLeftOut { file } => {
            return Some(of_left_out(file));
        }
        CheckoutError::Unreadable(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
            "make it readable for this user, or remove it from the source"
        }
        CheckoutError::Unreadable(_) => {
            "check it with `ls -l`: a link must not lead to itself, and its file system must be readable"
        }
        CheckoutError::LinkAbove(_) => {
            "remove the link from the source; only a writable directory, which is used in place, may have it"
        }
        CheckoutError::NoSuchPath { .. } | CheckoutError::Outside { .. } => {
            "name a directory inside the source with --path (in a layer: spec.path), or leave it out for the source itself"
        }
        _ => return None,
    };
    Some(next.to_owned())
}

/// What to do about a path that is a file.
fn of_file(path: &Path) -> String {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let place = "its directory with --path (in a layer: spec.path)";
    above.map_or_else(
        || "leave out --path (in a layer: spec.path): the file is in the source itself".to_owned(),
        |above| format!("name {place}: {}", quoted(&above.display().to_string())),
    )
}

/// What to do about an archive without a module at its root or path.
fn of_modules(candidates: &[PathBuf]) -> String {
    let paths = candidates.iter().map(|path| match path.display().to_string() {
        path if path.is_empty() => "leave out --path".to_owned(),
        path => format!("--path {}", quoted(&path)),
    });
    match paths.collect::<Vec<_>>().join(", or ") {
        none if none.is_empty() => "name an archive that contains .tf or .tofu files".to_owned(),
        paths => paths,
    }
}

/// What to do about a repository that git cannot fetch.
fn of_git(error: &CheckoutError) -> Option<String> {
    Some(match error {
        CheckoutError::NoSuchRevision { url, revision } if url.starts_with('/') => {
            let head = if revision == "HEAD" { "the bundle has no HEAD: " } else { "" };
            format!(
                "{head}name a branch, a tag or a commit with --revision; `git bundle list-heads {}` lists them",
                quoted(&regular::in_command(Path::new(url)))
            )
        }
        CheckoutError::NoSuchRevision { revision, .. } if revision == "HEAD" => {
            "the repository is empty, or its HEAD is a branch that does not exist: name a branch, a tag or a commit \
             with --revision"
                .to_owned()
        }
        CheckoutError::NoSuchRevision { url, .. } => format!(
            "name a branch, a tag or a commit with --revision; `git ls-remote {url}` lists branches and tags"
        ),
        CheckoutError::NoSuchRepository { reason, .. } if reason.contains("dubious ownership") => {
            "the repository belongs to another user: `git config --global --add safe.directory DIR` allows it"
                .to_owned()
        }
        CheckoutError::NoSuchRepository { url, .. } => format!(
            "correct the URL; if it is right, your credentials may not read it: try `git ls-remote {url}`"
        ),
        CheckoutError::Credentials { url, reason } => credentials(url, reason),
        CheckoutError::Network { url, reason } => network(url, reason),
        CheckoutError::Git { reason } if reason.contains("No space left") => NO_ROOM.to_owned(),
        CheckoutError::Git { reason } if reason.contains("No user exists for uid") => {
            "ssh needs an entry of this user in /etc/passwd: add one, run as another user, or use an https URL"
                .to_owned()
        }
        CheckoutError::Git { reason } if reason.starts_with("SIG") => {
            "run again; if a signal ends git again, find out what sent it, or give the run more memory".to_owned()
        }
        CheckoutError::Git { reason } if reason.contains("git cannot be started") => {
            "install git, or name a directory as the source".to_owned()
        }
        CheckoutError::Git { .. } => {
            "run again; if git fails again, try the same with git itself, and check the disk of --work-dir or TMPDIR".to_owned()
        }
        _ => return None,
    })
}

/// What to do if git LFS has failed; `reason` is why git did.
fn lfs(reason: &str) -> Option<String> {
    let is_lfs =
        reason.contains("smudge filter lfs failed") || reason.contains("Error downloading object");
    is_lfs.then(|| {
        "the server of git LFS does not give the files: see to it that `git lfs fetch` works there; if no code reads them, set \
         GIT_LFS_SKIP_SMUDGE=1"
            .to_owned()
    })
}

fn credentials(url: &str, reason: &str) -> String {
    if let Some(hint) = lfs(reason) {
        hint
    } else if reason.contains(CHANGED_KEY) {
        "find out whether the host really has a new key, as it publishes it; only then replace the key in known_hosts: \
         someone may answer in its place"
            .to_owned()
    } else if reason.contains("Host key verification failed") {
        "add the host's key to known_hosts (`ssh-keyscan HOST`), after comparing it with the one that the host \
         publishes"
            .to_owned()
    } else if url.starts_with("http") {
        format!(
            "provide a user and a token in the URL or with a git credential helper; try `git ls-remote {url}`"
        )
    } else {
        format!(
            "provide an SSH key that the host accepts (ssh-agent, ~/.ssh/config); try `git ls-remote {url}`"
        )
    }
}

fn network(url: &str, reason: &str) -> String {
    let contains = |any: &[&str]| any.iter().any(|text| reason.contains(text));
    let scp_like = !url.contains("://");
    if let Some(hint) = lfs(reason) {
        hint
    } else if contains(&["wrong version number", "unexpected TLS packet", "packet length too long"])
    {
        "that port does not speak TLS: if it speaks plain http, write http:// instead of https://"
            .to_owned()
    } else if contains(&["SSL certificate problem", "certificate verification failed"]) {
        "name the certificate of the authority that signed the host's with GIT_SSL_CAINFO=FILE, or git's setting \
         http.sslCAInfo: --ca-file is not for git"
            .to_owned()
    } else if contains(&["Could not resolve"]) {
        "the host name does not resolve: correct it in the URL, or check the DNS of this machine"
            .to_owned()
    } else if contains(&["onnection refused", "Failed to connect"]) && scp_like {
        "check that an SSH server listens on port 22 of that host; another port needs a URL: \
         ssh://USER@HOST:PORT/PATH"
            .to_owned()
    } else if contains(&["onnection refused", "Failed to connect"]) {
        "check that the server listens on that host and port, then run again".to_owned()
    } else {
        format!("run again when the host can be reached; try `git ls-remote {url}`")
    }
}
