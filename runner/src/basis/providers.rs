//! The providers of a run: their versions and digests, from the lock file and from development overrides.
//!
//! Terraform and tofu check each package that they start with the lock file, so its digests are compared instead of
//! the packages. A development override is in no lock file: the provider's binary is read. This module does not read where overrides are
//! configured.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use datastore_api::digest::Hasher;
use fs_err as fs;
use hcl_edit::expr::Expression;
use hcl_edit::structure::Body;

/// Digests of packages, by the addresses of their providers. A provider has several if the lock file is for several
/// platforms.
pub(crate) type Digests = BTreeMap<String, BTreeSet<String>>;

/// A larger lock file is not read.
const MAX_LOCK_FILE: u64 = 4 << 20;
/// How the digest of an unpacked package begins. Init records it for the platform on which it runs. The others are of
/// archives, for all platforms.
const OF_PACKAGE: &str = "h1:";

/// The provider versions in a lock file, by provider address. `None` if there is no readable lock file.
pub(crate) fn versions(lock_file: &Path) -> Option<BTreeMap<String, String>> {
    let body = read(lock_file)?;
    let versions = providers(&body).filter_map(|(address, provider)| {
        let version = provider.get_attribute("version")?.value.as_str()?;
        Some((address.to_owned(), version.to_owned()))
    });
    Some(versions.collect())
}

/// The binaries that could not be read, by the addresses of their providers.
pub(crate) type Unread = BTreeMap<String, io::Error>;

/// The digests of the providers' packages in a lock file, and of the binaries in these directories, which replace packages.
pub(crate) fn digests(
    lock_file: &Path,
    overrides: &BTreeMap<String, PathBuf>,
) -> (Digests, Unread) {
    let body = read(lock_file).unwrap_or_default();
    let mut digests = Digests::new();
    for (address, provider) in providers(&body) {
        let hashes = provider.get_attribute("hashes").map(|hashes| &hashes.value);
        let hashes = hashes.and_then(Expression::as_array).into_iter().flatten();
        let hashes = hashes.filter_map(|hash| hash.as_str().filter(|h| h.starts_with(OF_PACKAGE)));
        let hashes = hashes.map(str::to_owned).collect::<BTreeSet<_>>();
        if !hashes.is_empty() {
            digests.insert(address.to_owned(), hashes);
        }
    }
    let mut unread = Unread::new();
    for (address, dir) in overrides {
        match of_binaries(dir, address) {
            Ok(Some(sha256)) => {
                digests.insert(address.clone(), [format!("sha256:{sha256}")].into());
            }
            Ok(None) => {}
            Err(error) => {
                // The package in the lock file is not used.
                digests.remove(address);
                unread.insert(address.clone(), error);
            }
        }
    }
    (digests, unread)
}

/// The first provider that differs: what both sides have of it. A provider that one side does not know is not compared.
pub(crate) fn difference(theirs: &Digests, ours: &Digests) -> Option<(String, String)> {
    theirs.iter().find_map(|(address, theirs)| {
        let ours = ours.get(address).filter(|ours| theirs.is_disjoint(ours))?;
        let shown = |digests: &BTreeSet<String>| {
            let digests = digests.iter().map(String::as_str).collect::<Vec<_>>();
            format!("{address} with {}", digests.join(", "))
        };
        Some((shown(theirs), shown(ours)))
    })
}

fn read(lock_file: &Path) -> Option<Body> {
    let mut text = String::new();
    let file = fs::File::open(lock_file).ok()?;
    file.take(MAX_LOCK_FILE).read_to_string(&mut text).ok()?;
    text.parse().ok()
}

fn providers(body: &Body) -> impl Iterator<Item = (&str, &Body)> {
    let blocks = body.blocks().filter(|block| block.ident.as_str() == "provider");
    blocks.filter_map(|block| Some((block.labels.first()?.as_str(), &block.body)))
}

/// The digest of the provider's binaries in a directory: names and contents. `None` if there are none.
fn of_binaries(dir: &Path, address: &str) -> io::Result<Option<Sha256>> {
    let of_type = address.rsplit('/').next().unwrap_or_default();
    let start = format!("terraform-provider-{of_type}");
    let is_binary = |name: &str| {
        name.strip_prefix(&start)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '.']))
    };
    // The tool itself reports a directory that cannot be read.
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let mut names = names.filter(|name| name.to_str().is_some_and(is_binary)).collect::<Vec<_>>();
    names.retain(|name| dir.join(name).is_file());
    names.sort_unstable();
    let mut all = Hasher::default();
    for name in &names {
        // Each part has a fixed length: no name can be taken for the content of another.
        all.update(&Sha256::of(name.as_encoded_bytes()).0);
        all.update(&Sha256::of_reader(fs::File::open(dir.join(name))?)?.0);
    }
    Ok((!names.is_empty()).then(|| all.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NULL: &str = "registry.terraform.io/hashicorp/null";
    const LOCK_FILE: &str = "# made by init\nprovider \"registry.terraform.io/hashicorp/aws\" {\n  version = \
        \"5.1.0\"\n  constraints = \"~> 5.0\"\n  hashes = [\n    \"h1:x\",\n    \"h1:y\",\n    \"zh:z\",\n  ]\n}\n\
        provider \"registry.terraform.io/hashicorp/null\" {\n  version = \"3.0.0\"\n  hashes = [\"zh:z\"]\n}\n";

    #[test]
    fn a_lock_file_names_its_providers_versions_and_digests() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".terraform.lock.hcl");
        let none = BTreeMap::new();
        assert_eq!(versions(&path), None);
        assert_eq!(digests(&path, &none).0, Digests::new());
        fs::write(&path, LOCK_FILE).unwrap();
        let aws = "registry.terraform.io/hashicorp/aws".to_owned();
        let expected = [(aws.clone(), "5.1.0".to_owned()), (NULL.to_owned(), "3.0.0".to_owned())];
        assert_eq!(versions(&path), Some(expected.into()));
        let of_package = ["h1:x", "h1:y"].map(str::to_owned).into();
        assert_eq!(digests(&path, &none).0, [(aws, of_package)].into());
        fs::write(&path, "provider {{{").unwrap();
        assert_eq!(versions(&path), None);
        assert_eq!(digests(&path, &none).0, Digests::new());
    }

    #[test]
    fn an_override_has_the_digest_of_its_binaries() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let overrides = [(NULL.to_owned(), dir.path().to_owned())].into();
        let digests = || digests(&dir.path().join("none"), &overrides).0;
        write("terraform-provider-nullable", "x");
        assert_eq!(digests(), Digests::new());
        let mut seen = Vec::new();
        for (name, text) in [
            ("terraform-provider-null", "x"),
            ("terraform-provider-null", "y"),
            ("terraform-provider-null_v1.0.0", "x"),
            ("terraform-provider-null.exe", "x"),
        ] {
            write(name, text);
            let found = digests();
            assert!(found.contains_key(NULL) && !seen.contains(&found), "{name}");
            seen.push(found);
        }
        write("README.md", "x");
        assert_eq!(Some(&digests()), seen.last());
    }

    #[test]
    fn providers_differ_if_they_have_no_digest_in_common() {
        let of = |digests: &[&str]| -> Digests {
            let digests = digests.iter().map(|&digest| digest.to_owned());
            [(NULL.to_owned(), digests.collect())].into()
        };
        let plan = of(&["h1:a", "h1:b"]);
        for same in [of(&["h1:a"]), of(&["h1:b", "h1:c"]), Digests::new()] {
            assert_eq!(difference(&plan, &same), None);
        }
        assert_eq!(difference(&Digests::new(), &plan), None);
        let (theirs, ours) = difference(&plan, &of(&["sha256:a"])).unwrap();
        assert_eq!(theirs, format!("{NULL} with h1:a, h1:b"));
        assert_eq!(ours, format!("{NULL} with sha256:a"));
    }
}
