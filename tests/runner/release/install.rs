//! `runner install`: downloads, refused files, and leftovers of a killed install.

#![expect(clippy::disallowed_methods, reason = "tests look for terraform where the shell would")]

use std::io::{Cursor, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use datastore_api::Sha256;
use support::release_mirror::{identify, script, zipped};
use support::{Ended, MirrorFault, MirroredTool, ReleaseMirror};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::release::resolve::Case;
use MirroredTool::{Terraform, Tofu};

const V: &str = "1.9.8";

impl Case {
    pub(crate) fn install(&self, args: &[&str]) -> Ended {
        self.run(&[&["install"], args].concat())
    }

    /// The path of the binary that is installed.
    pub(crate) fn installed(&self, args: &[&str]) -> PathBuf {
        let ended = self.install(args);
        assert_eq!(ended.code, 0, "{ended:?}");
        PathBuf::from(ended.stdout.trim_end())
    }

    /// Refused with this code and these words; nothing is installed, and nothing else was taken.
    fn refused(&self, args: &[&str], code: i32, words: &str) {
        self.on_path(Terraform, V);
        let ended = self.install(args);
        assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{words}: {ended:?}");
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
        assert_eq!(self.left(), Vec::<String>::new(), "{words}");
    }

    pub(crate) fn bin_dir(&self) -> PathBuf {
        self.sandbox.path("cache/plancha/bin")
    }

    /// The files in the tools' directories, without locks and complete versions.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for tool in ["Terraform", "OpenTofu"] {
            for entry in std::fs::read_dir(self.bin_dir().join(tool)).into_iter().flatten() {
                let path = entry.unwrap().path();
                let lock = path.extension().is_some_and(|extension| extension == "lock");
                let whole = ["terraform", "tofu"].iter().any(|name| path.join(name).is_file());
                if !lock && !whole {
                    left.push(path.display().to_string());
                }
            }
        }
        left
    }

    pub(crate) fn archive(&self) -> String {
        self.mirror.archive_path(Terraform, V)
    }

    pub(crate) fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).spawn().unwrap()
    }
}

#[test]
fn release_is_installed_once_and_reused() {
    let case = Case::new();
    let first = case.install(&["terraform@~> 1.9.0"]);
    assert_eq!(first.code, 0, "{first:?}");
    let path = case.bin_dir().join("Terraform/1.9.8/terraform");
    assert_eq!(first.stdout, format!("{}\n", path.display()));
    assert!(first.stderr.contains("downloading http://127.0.0.1:"), "{first:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), script(V));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(case.left(), Vec::<String>::new());

    let requests = case.mirror.all_requests();
    assert_eq!(requests, 4, "list, archive, sums, signature");
    let second = case.install(&["terraform@~> 1.9.0"]);
    assert_eq!(second.stdout, first.stdout);
    assert!(second.stderr.contains("already installed in "), "{second:?}");
    assert_eq!(case.mirror.all_requests(), requests);
}

#[test]
fn both_tools_are_installed_in_tenvs_layout() {
    let case = Case::new();
    let bin_dir = case.sandbox.path("tools");
    let arguments = |tool| ["install", tool, "--bin-dir", bin_dir.to_str().unwrap()];
    for (tool, path) in
        [("terraform@1.5.7", "Terraform/1.5.7/terraform"), ("tofu@1.6.0", "OpenTofu/1.6.0/tofu")]
    {
        let ended = case.run(&arguments(tool));
        assert_eq!(ended.stdout, format!("{}\n", bin_dir.join(path).display()), "{ended:?}");
    }
}

#[test]
fn real_terraform_is_downloaded_verified_and_run() {
    let real = real_terraform();
    let (tool, version) = identify(&real);
    let case = Case::new();
    let binary = std::fs::read(&real).unwrap();
    case.mirror.add(tool, &version, &binary);
    let path = case.installed(&[&format!("terraform@{version}")]);
    assert_eq!(Sha256::of(&std::fs::read(&path).unwrap()), Sha256::of(&binary));
    assert_eq!(identify(&path).1, version);
}

#[test]
fn archive_with_an_unsigned_digest_is_refused() {
    let case = Case::new();
    case.mirror.put(&case.archive(), zipped(&[("terraform", b"#!/bin/sh\necho evil\n", 0o755)]));
    case.refused(&["terraform@1.9.8"], 9, "is signed for it");
    assert_eq!(case.mirror.requests(&case.archive()), 1, "it is not tried again");
}

#[test]
fn unsigned_sums_are_refused() {
    let case = Case::new();
    let path = case.mirror.sums_path(Terraform, V);
    let archive = Path::new(&case.archive()).file_name().unwrap().to_str().unwrap().to_owned();
    let sums = format!("{}  {archive}\n", Sha256::of(b"anything"));
    case.mirror.put(&path, sums.into_bytes());
    case.refused(&["terraform@1.9.8"], 9, "differs from the one that the key");

    let sums = format!("{}  other.zip\n", Sha256::of(b"anything"));
    case.mirror.put_sums(Terraform, V, sums.into_bytes());
    case.refused(&["terraform@1.9.8"], 9, &format!("has no line for {archive}"));
}

#[test]
fn signature_by_an_untrusted_key_is_refused() {
    let case = Case::new();
    let mut command = case.command(&["install", "terraform@1.9.8"]);
    let ended = Ended::from(command.env_remove("PLANCHA_KEYRING").output().unwrap());
    assert_eq!(ended.code, 9, "{ended:?}");
    assert!(ended.stderr.contains("made by the unknown key"), "{ended:?}");

    let stranger = ReleaseMirror::start();
    let mut command = case.command(&["install", "terraform@1.9.8"]);
    let ended = Ended::from(command.env("PLANCHA_KEYRING", stranger.keyring()).output().unwrap());
    assert_eq!(ended.code, 9, "{ended:?}");

    // One of several keys is enough.
    let mut command = case.command(&["install", "terraform@1.9.8", "--keyring"]);
    command.arg(stranger.keyring()).arg("--keyring").arg(case.mirror.keyring());
    let ended = Ended::from(command.env_remove("PLANCHA_KEYRING").output().unwrap());
    assert_eq!(ended.code, 0, "{ended:?}");
}

#[test]
fn a_broken_signature_is_refused() {
    let case = Case::new();
    let path = case.mirror.signature_path(Terraform, V);
    for (signature, words) in
        [(Vec::new(), "not an OpenPGP signature"), (b"<html>".to_vec(), "not an OpenPGP signature")]
    {
        case.mirror.put(&path, signature);
        case.refused(&["terraform@1.9.8"], 9, words);
    }
    case.mirror.remove(&path);
    case.refused(
        &["terraform@1.9.8"],
        9,
        "does not exist, but releases of terraform must be signed",
    );
    case.mirror.fault(&path, MirrorFault::Status(403, 99));
    case.refused(&["terraform@1.9.8"], 5, "answered 403");
}

#[test]
fn second_signature_of_an_old_release_is_accepted() {
    let case = Case::new();
    let path = case.mirror.signature_path(Terraform, V);
    let stranger = ReleaseMirror::start();
    let good = case.mirror.sign(&sums_of(&case, &case.mirror.archive_path(Terraform, V)));
    case.mirror.put(&path, stranger.sign(b"by a key of then"));
    case.mirror.put(&path.replace(".sig", ".72D7468F.sig"), good);
    case.installed(&["terraform@1.9.8"]);
}

/// Sums that name the archive which the mirror has at this path, put in place of the others.
fn sums_of(case: &Case, path: &str) -> Vec<u8> {
    let archive = zipped(&[("terraform", script(V).as_bytes(), 0o755)]);
    let name = Path::new(path).file_name().unwrap().to_str().unwrap();
    let sums = format!("{}  {name}\n", Sha256::of(&archive)).into_bytes();
    case.mirror.put(path, archive);
    case.mirror.put(&case.mirror.sums_path(Terraform, V), sums.clone());
    sums
}

#[test]
fn unsigned_old_opentofu_is_a_warning_or_refused() {
    let case = Case::new();
    let old = "1.6.0-alpha1";
    case.mirror.add_script(Tofu, old);
    case.mirror.remove(&case.mirror.signature_path(Tofu, old));
    let refused = case.install(&["tofu@1.6.0-alpha1", "--require-signature"]);
    assert_eq!(refused.code, 9, "{refused:?}");
    let ended = case.install(&["tofu@1.6.0-alpha1"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stderr.contains("was never signed; only its digest is checked"), "{ended:?}");

    case.mirror.remove(&case.mirror.signature_path(Tofu, "1.6.0"));
    assert_eq!(case.install(&["tofu@1.6.0"]).code, 9);
}

/// A zip archive with a symbolic link.
fn with_link() -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.add_symlink("terraform", "/bin/sh", SimpleFileOptions::default()).unwrap();
    zip.finish().unwrap().into_inner()
}

/// A zip archive that declares this size of its binary.
fn declaring_a_size_of(size: u32) -> Vec<u8> {
    let mut archive = zipped(&[("terraform", &vec![0; 100_000], 0o755)]);
    for (mark, offset) in [(b"PK\x03\x04", 22), (b"PK\x01\x02", 24)] {
        let at = archive.windows(4).position(|window| window == mark).unwrap() + offset;
        archive[at..at + 4].copy_from_slice(&size.to_le_bytes());
    }
    archive
}

#[test]
fn only_the_binary_is_unpacked() {
    let binary = script(V).into_bytes();
    let damaged = {
        let mut archive = zipped(&[("terraform", &[7; 5000], 0o755)]);
        let mark = archive.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
        archive[mark + 16] ^= 1;
        archive
    };
    let mut twice = ZipWriter::new(Cursor::new(Vec::new()));
    for name in ["terraform", "terrafor_"] {
        twice.start_file(name, SimpleFileOptions::default()).unwrap();
        twice.write_all(&binary).unwrap();
    }
    let mut twice = twice.finish().unwrap().into_inner();
    let name = b"terrafor_";
    let places: Vec<_> =
        (0..twice.len() - name.len()).filter(|&at| twice[at..].starts_with(name)).collect();
    for at in places {
        twice[at + 8] = b'm';
    }

    for (archive, words) in [
        (zipped(&[("../terraform", &binary, 0o755)]), "a path"),
        (zipped(&[("/terraform", &binary, 0o755)]), "a path"),
        (zipped(&[("bin/terraform", &binary, 0o755)]), "a path"),
        (zipped(&[("..\\terraform", &binary, 0o755)]), "a path"),
        (zipped(&[("README", &binary, 0o644)]), "it contains no terraform"),
        (zipped(&[("terraform.exe", &binary, 0o755)]), "it contains no terraform"),
        (zipped(&[("terraform", b"", 0o755)]), "has 0 of 0 bytes"),
        (with_link(), "is a link or a special file"),
        (declaring_a_size_of(99), "larger than"),
        (declaring_a_size_of(100_001), "100000 of 100001 bytes"),
        (declaring_a_size_of(u32::MAX - 1), "declares a size of 4294967294 bytes"),
        (damaged, "is damaged"),
        (twice, "two of the same name"),
        (b"not a zip archive".to_vec(), "it cannot be read as a zip archive"),
        (Vec::new(), "it cannot be read as a zip archive"),
    ] {
        let case = Case::new();
        case.mirror.add_archive(Terraform, V, archive);
        case.refused(&["terraform@1.9.8"], 9, words);
        let parent = case.bin_dir().parent().unwrap().to_owned();
        assert!(!parent.join("terraform").exists() && !case.bin_dir().join("terraform").exists());
    }
}

#[test]
fn other_files_of_the_archive_are_not_unpacked() {
    let case = Case::new();
    let entries: [(&str, &[u8], u32); 3] = [
        ("../../evil", b"x", 0o755),
        ("terraform", b"#!/bin/sh\n", 0o4777),
        ("LICENSE.txt", b"x", 0o644),
    ];
    case.mirror.add_archive(Terraform, V, zipped(&entries));
    let path = case.installed(&["terraform@1.9.8"]);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
    let mut beside: Vec<_> = std::fs::read_dir(path.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    beside.sort();
    assert_eq!(beside, ["last-use.txt", "sha256", "terraform"]);
    assert!(!case.bin_dir().join("evil").exists());
}

#[test]
fn unknown_version_is_reported_with_close_ones() {
    let case = Case::new();
    case.on_path(Terraform, "1.5.8");
    let words = "no published version of terraform matches `1.5.8` (requested by the command line); \
                 the nearest are 1.5.7 and 1.9.8";
    case.refused(&["terraform@1.5.8"], 8, words);
    case.mirror.remove(&case.archive());
    case.refused(&["terraform@1.9.8"], 8, "terraform 1.9.8 is published, but http://");
}

#[test]
fn transient_errors_are_retried() {
    let case = Case::new();
    case.mirror.fault(&case.archive(), MirrorFault::Cut(100, 2));
    case.mirror.fault(&case.mirror.sums_path(Terraform, V), MirrorFault::Status(500, 1));
    case.installed(&["terraform@1.9.8"]);
    assert_eq!(case.mirror.requests(&case.archive()), 3);
}

#[test]
fn permanent_errors_select_no_other_version() {
    for (fault, code) in [
        (MirrorFault::Cut(100, 99), 6),
        (MirrorFault::Status(500, 99), 6),
        (MirrorFault::Status(403, 99), 5),
        (MirrorFault::Circle, 8),
    ] {
        let case = Case::new();
        case.mirror.fault(&case.archive(), fault);
        case.refused(&["terraform@1.9.8"], code, "/terraform_1.9.8_");
    }
}

#[test]
fn path_is_used_last_and_must_match_the_requested_version() {
    let case = Case::new();
    let refused = case.run_without_network(&["install", "terraform@1.9.8"]);
    assert_eq!(refused.code, 6, "{refused:?}");
    case.on_path(Terraform, "1.9.9");
    let other = case.run_without_network(&["install", "terraform@1.9.8"]);
    assert_eq!(other.code, 6, "{other:?}");
    assert!(other.stderr.contains("is 1.9.9, which does not match `1.9.8`"), "{other:?}");
    let path = case.run_without_network(&["install", "terraform@1.9.9"]);
    assert_eq!(
        path.stdout,
        format!("{}\n", case.sandbox.path("bin/terraform").display()),
        "{path:?}"
    );
    assert!(path.stderr.contains("(on PATH: http://127.0.0.1:1 was skipped"), "{path:?}");
    let offline = case.install(&["terraform@1.9.9", "--offline"]);
    assert!(offline.stderr.contains("(on PATH: --offline forbids network access)"), "{offline:?}");
    assert_eq!(case.install(&["terraform@1.9.8", "--offline"]).code, 8);
    // With a connection the release goes before PATH.
    case.on_path(Terraform, V);
    assert!(case.installed(&["terraform@1.9.8"]).starts_with(case.bin_dir()));
}

/// The real terraform that is on PATH, as scripts/test sees to.
fn real_terraform() -> PathBuf {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|dir| dir.join("terraform"))
        .find(|path| path.is_file());
    found.expect("terraform is on PATH").canonicalize().unwrap()
}

#[test]
fn version_of_a_program_on_path_is_cached() {
    let case = Case::new();
    let real = real_terraform();
    let version = identify(&real).1;
    std::os::unix::fs::symlink(&real, case.sandbox.path("bin/terraform")).unwrap();
    for _ in 0..2 {
        let ended = case.install(&[&format!("terraform@{version}"), "--offline"]);
        assert_eq!(ended.code, 0, "{ended:?}");
        let memory = case.sandbox.path("cache/plancha/binaries.json");
        let memory = std::fs::read_to_string(memory).unwrap();
        assert!(memory.contains("bin/terraform") && memory.contains(&version), "{memory}");
    }
}

#[test]
fn version_of_a_directory_dependent_program_on_path_is_not_cached() {
    let case = Case::new();
    // As the shims of tenv and tfenv do.
    let shim = "#!/bin/sh\nread v < chosen\nprintf '{\"terraform_version\": \"%s\"}' \"$v\"\n";
    case.sandbox.script("terraform", shim);
    let asked = |dir: &str, version: &str| {
        let words = ["terraform", dir, "--offline"];
        case.sandbox.write(&format!("{dir}/.terraform-version"), version);
        case.install(&words).code
    };
    case.sandbox.write("a/chosen", "1.9.9");
    case.sandbox.write("b/chosen", "1.9.10");
    assert_eq!((asked("a", "1.9.9"), asked("b", "1.9.10"), asked("a", "1.9.10")), (0, 0, 8));
    case.sandbox.write("a/chosen", "1.9.10");
    assert_eq!((asked("a", "1.9.10"), asked("a", "1.9.9")), (0, 8));
    assert!(!case.sandbox.path("cache/plancha/binaries.json").exists());
}

#[test]
fn a_changed_binary_is_not_used() {
    let case = Case::new();
    let path = case.installed(&["terraform@1.9.8"]);
    // Touched, but the same: only looked at again.
    std::fs::copy(&path, path.with_extension("copy")).unwrap();
    std::fs::rename(path.with_extension("copy"), &path).unwrap();
    assert_eq!(case.installed(&["terraform@1.9.8"]), path);

    let evil = script(V).replace("echo", "ohce");
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    std::fs::write(&path, evil).unwrap();
    // Not even with its old size and time.
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    let ended = case.install(&["terraform@1.9.8"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (9, ""), "{ended:?}");
    assert!(ended.stderr.contains("was installed"), "{ended:?}");

    std::fs::remove_file(&path).unwrap();
    assert_eq!(case.installed(&["terraform@1.9.8"]), path);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), script(V));
}

#[test]
fn cache_is_private_and_may_be_deleted() {
    let case = Case::new();
    let path = case.installed(&["terraform@1.9.8"]);
    let memory = case.sandbox.path("cache/plancha/binaries.json");
    assert_eq!(std::fs::metadata(&memory).unwrap().permissions().mode() & 0o777, 0o600);
    let cache = case.sandbox.path("cache/plancha");
    assert_eq!(std::fs::metadata(cache).unwrap().permissions().mode() & 0o777, 0o700);
    for nonsense in ["", "{", "[]", "{\"binaries\": {\"/x\": 1}}"] {
        std::fs::write(&memory, nonsense).unwrap();
        assert_eq!(case.installed(&["terraform@1.9.8"]), path);
        assert!(
            std::fs::read_to_string(&memory).unwrap().contains("Terraform/1.9.8"),
            "{nonsense}"
        );
    }
}

#[test]
fn partial_installs_do_not_count_and_are_removed() {
    let case = Case::new();
    let tools = case.bin_dir().join("Terraform");
    std::fs::create_dir_all(tools.join(V)).unwrap();
    std::fs::write(tools.join(".1.9.8=abc"), "half").unwrap();
    std::fs::write(tools.join(".1.9.9=abc"), "another version's").unwrap();
    std::fs::write(tools.join(".1.9.8.lock"), "").unwrap();
    case.installed(&["terraform@1.9.8"]);
    assert_eq!(case.left(), [tools.join(".1.9.9=abc").display().to_string()]);
}

#[test]
fn lock_file_of_a_dead_process_does_not_block() {
    let case = Case::new();
    case.mirror.fault(&case.archive(), MirrorFault::Slow(Duration::from_mins(1)));
    let mut child = case.start(&["install", "terraform@1.9.8"]);
    support::eventually("the download has started", || case.mirror.requests(&case.archive()) == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    case.mirror.fault(&case.archive(), MirrorFault::Status(500, 0));
    case.installed(&["terraform@1.9.8"]);
}

#[test]
fn file_named_by_a_flag_must_match_its_declared_type() {
    let case = Case::new();
    case.sandbox.write("nonsense", "nonsense");
    case.refused(&["terraform@1.9.8", "--keyring", "missing"], 8, "missing");
    case.refused(
        &["terraform@1.9.8", "--keyring", "nonsense"],
        8,
        "nonsense contains no OpenPGP public key",
    );
    case.refused(&["terraform@1.9.8", "--ca-file", "missing"], 8, "missing");
    case.refused(
        &["terraform@1.9.8", "--ca-file", "nonsense"],
        8,
        "nonsense contains no PEM certificates",
    );
    let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    case.sandbox.write("damaged.pem", damaged);
    case.refused(
        &["terraform@1.9.8", "--ca-file", "damaged.pem"],
        8,
        "damaged.pem contains no PEM certificates, or a damaged one",
    );
    case.sandbox.write("file", "");
    case.refused(&["terraform@1.9.8", "--bin-dir", "file/bin"], 8, "Not a directory");
}
