//! What the configuration of a root module refers to inside of the source: modules called by a path, files and directories
//! named literally, and files that the tool reads by itself. It changes nothing, and does not know git.

mod calls;
pub(super) mod computed;
pub(crate) mod installed;
mod left_out;
mod locals;
pub(super) mod reads;
mod remote_state;
mod search;
mod workspace_name;

pub(crate) use remote_state::{RemoteState, remote_state};
pub(crate) use workspace_name::names_workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use datastore_api::Sha256;
use datastore_api::digest::Hasher;
use fs_err as fs;
use regex::Regex;

use crate::source::path::normal;
use crate::source::references::calls::{Base, Call, MODULE, contents, glob};
use crate::source::references::installed::{Called, Installed, installed};
use crate::source::references::locals::Locals;
use crate::tool::{file_names, state_file};

/// Larger than any configuration file in use.
const MAX_FILE: u64 = 16 << 20;

/// More local modules than any configuration in use has.
const MAX_MODULES: usize = 1000;

/// The most files that are examined for a `fileset`.
const MAX_FILES: usize = 10_000;

/// How a git LFS pointer begins (git-lfs, docs/spec.md).
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1";

/// What a configuration refers to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct References {
    /// Paths without `..`, with the place of the first reference.
    pub(super) paths: BTreeMap<PathBuf, String>,
    /// Those among them that are named by an absolute path.
    pub(super) absolute: BTreeSet<PathBuf>,
    /// Files that the tool would read but that are git LFS pointers, with the place of the reference; empty if the tool
    /// reads the file by itself.
    pub(super) pointers: BTreeMap<PathBuf, String>,
    /// The directories of the root module, and of the modules that are called by a path, also of missing ones.
    modules: BTreeSet<PathBuf>,
    /// Directories whose missing files no tool reports, with the pattern of a `fileset` where it is known, and the place of
    /// the first reference.
    sets: BTreeMap<(PathBuf, Option<String>), String>,
    /// The configuration files of all modules.
    pub(super) code: BTreeSet<PathBuf>,
    /// Other files of the source that the tool reads: values of variables, and files that expressions name literally.
    pub(super) files: BTreeSet<PathBuf>,
    /// Files of the machine or of its user, which are not of the source, as expressions name them: by an absolute path, or
    /// one that begins with `~`; with the pattern of a `fileset`.
    pub(super) outside: BTreeSet<(String, Option<String>)>,
}

/// Reads the root module in `root`, and every module that it calls by a path: by a literal one, and `called`, those of which
/// only init knows.
pub(super) fn read(root: &Path, called: &Called) -> io::Result<References> {
    let mut references = References::default();
    references.modules.insert(root.to_owned());
    references.paths.insert(root.to_owned(), "the working directory".to_owned());
    references.read_modules(root, root)?;
    for (dir, name) in called {
        let path = normal(&root.join(dir));
        if references.modules.insert(path.clone()) {
            let place = format!("the module `{name}`");
            references.paths.entry(path.clone()).or_insert(place);
            references.read_modules(root, &path)?;
        }
    }
    Ok(references)
}

/// The directories of the modules that the module in `root` calls by a path which is not literal, after init. The tool keeps
/// its data in `data_dir`.
pub(crate) fn called(root: &Path, data_dir: &Path) -> io::Result<Called> {
    let root = normal(&std::path::absolute(root)?);
    let modules = root.join(data_dir).join("modules");
    let mut found = installed(&modules)?;
    found.retain(|module| !root.join(&module.dir).starts_with(&modules));
    let path = |module: &Installed| normal(&root.join(&module.dir));
    // The root module itself is always listed. Without a call the tool leaves the list of an earlier init as it is.
    if found.iter().all(|module| path(module) == root) || !has_module_call(&root)? {
        return Ok(Called::new());
    }
    let literal = read(&root, &Called::new())?.modules;
    found.retain(|module| !literal.contains(&path(module)));
    Ok(found.into_iter().map(|module| (module.dir, module.key)).collect())
}

/// Whether the files of a module call others.
fn has_module_call(module: &Path) -> io::Result<bool> {
    let is_code = |file: &PathBuf| {
        file.file_name().is_some_and(|name| is_configuration(&name.to_string_lossy()))
    };
    let mut code = files(module)?.into_iter().filter(is_code).filter_map(|file| text(&file));
    Ok(code.any(|text| MODULE.is_match(&text)))
}

/// One digest of the files that the module in `root` reads of its source: its configuration, that of the modules that it
/// calls by a path, and the files that they name literally.
pub(crate) fn digest(root: &Path, called: &Called) -> io::Result<Sha256> {
    let mut all = Hasher::default();
    for (path, file) in named(root, called)? {
        let metadata = fs::metadata(&file).ok().filter(Metadata::is_file);
        // A file that cannot be read is one for the tool to report.
        let Some((mode, contents)) = metadata.map(|of| of.mode()).zip(fs::File::open(&file).ok())
        else {
            continue;
        };
        // Each part has a fixed length: no name can be taken for the content of another.
        all.update(&Sha256::of(path.as_os_str().as_bytes()).0);
        all.update(&[if mode & 0o100 == 0 { b'f' } else { b'x' }]);
        all.update(&Sha256::of_reader(contents)?.0);
    }
    Ok(all.finish())
}

/// The files that the module in `root` reads of its source, each with the way to it from there.
pub(crate) fn named(root: &Path, called: &Called) -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let root = normal(&std::path::absolute(root)?);
    let References { code, files, .. } = read(&root, called)?;
    Ok(code.union(&files).map(|file| (from(&root, file), file.clone())).collect())
}

/// The files outside of the source that the module in `root` names, by these names, whether they exist or not; but not for
/// connections and providers, whose credentials are no part of a plan. `home` is the user's.
pub(crate) fn outside(
    root: &Path,
    home: Option<&Path>,
    called: &Called,
) -> io::Result<BTreeMap<PathBuf, PathBuf>> {
    let root = normal(&std::path::absolute(root)?);
    let mut all = BTreeMap::new();
    for (name, pattern) in read(&root, called)?.outside {
        let path = match name.strip_prefix('~') {
            Some(below) => home.map(|home| home.join(below.trim_start_matches('/'))),
            None => Some(PathBuf::from(&name)),
        };
        let (Some(path), name) = (path, PathBuf::from(name)) else { continue };
        let Some(pattern) = pattern else {
            all.insert(name, path);
            continue;
        };
        let mut found = References::default();
        if let Some(pattern) = glob(&pattern) {
            found.files_in(&path, &path, &pattern, "", &mut MAX_FILES.clone())?;
        }
        let below = |file: &PathBuf| name.join(file.strip_prefix(&path).unwrap_or(file));
        all.extend(found.files.into_iter().map(|file| (below(&file), file)));
    }
    Ok(all)
}

/// The way from a directory to a file: the source may be in another directory in every run.
fn from(root: &Path, file: &Path) -> PathBuf {
    let common = root.ancestors().find(|above| file.starts_with(above)).unwrap_or(root);
    let up = root.strip_prefix(common).unwrap_or(root).components().map(|_| Component::ParentDir);
    let down = file.strip_prefix(common).unwrap_or(file).components();
    up.chain(down).collect()
}

impl References {
    /// Reads a module, and every module that it calls by a literal path.
    fn read_modules(&mut self, root: &Path, module: &Path) -> io::Result<()> {
        let mut to_do = vec![module.to_owned()];
        while let Some(module) = to_do.pop() {
            for (path, place) in self.read_module(root, &module)? {
                let has_room = self.modules.len() < MAX_MODULES;
                if has_room && self.modules.insert(path.clone()) && path.is_dir() {
                    to_do.push(path.clone());
                }
                self.paths.entry(path).or_insert(place);
            }
        }
        Ok(())
    }

    /// Reads the files of one module. Returns the modules that it calls, with the places of the calls.
    fn read_module(&mut self, root: &Path, module: &Path) -> io::Result<Vec<(PathBuf, String)>> {
        let (mut called, mut all_calls, mut locals) = (Vec::new(), Vec::new(), Locals::default());
        for file in files(module)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_values = is_values(&name);
            let of_root = is_values || name == "terragrunt.hcl";
            let is_read = is_configuration(&name) || (of_root && module == root);
            if !is_read {
                continue;
            }
            let read = if is_configuration(&name) { &mut self.code } else { &mut self.files };
            read.insert(file.clone());
            if is_pointer(&file) {
                self.pointers.insert(file, String::new());
                continue;
            }
            if is_values {
                continue;
            }
            let Some(text) = text(&file) else {
                locals.extend(Locals::unknown());
                continue;
            };
            let (calls, sources, of_file) = contents(&file, &text);
            locals.extend(of_file);
            let place = |line: usize| match line {
                0 => file.display().to_string(),
                line => format!("{}:{line}", file.display()),
            };
            let is_path = |source: &str| {
                ["./", "../"].iter().any(|start| source.starts_with(start))
                    || source == "."
                    || source == ".."
            };
            for (source, line) in sources.into_iter().filter(|(source, _)| is_path(source)) {
                // `//` only separates a package from a directory in it.
                called.push((normal(&module.join(source.replace("//", "/"))), place(line)));
            }
            all_calls.extend(calls.into_iter().map(|call| (place(call.line), call)));
        }
        let of_connections = locals.only_of_connections();
        for (place, mut call) in all_calls {
            let local = call.local.as_deref();
            call.is_of_connection |= local.is_some_and(|local| of_connections.contains(local));
            self.call(root, module, &call, &place)?;
        }
        Ok(called)
    }

    fn call(&mut self, root: &Path, module: &Path, call: &Call, place: &str) -> io::Result<()> {
        let named = call.path.path.as_str();
        let is_outside = call.path.base == Base::Relative && named.starts_with(['/', '~']);
        let is_set = call.function == "fileset";
        if is_outside
            && call.path.whole
            && call.pattern.is_some() == is_set
            && !call.is_of_connection
        {
            self.outside.insert((named.to_owned(), call.pattern.clone()));
        }
        if is_outside && named.starts_with('~') {
            return Ok(());
        }
        let (base, relative) = match call.path.base {
            Base::Module => (module, named.trim_start_matches('/')),
            Base::Root => (root, named.trim_start_matches('/')),
            Base::Relative => (root, named),
        };
        let is_directory = is_set || !call.path.whole;
        let literal = match relative.rsplit_once('/') {
            _ if call.path.whole => relative,
            Some((directory, _)) => directory,
            None => "",
        };
        let path = normal(&base.join(literal));
        let pattern = call.pattern.as_deref();
        let (path, pattern) = match pattern.filter(|_| call.path.whole) {
            Some(pattern) => {
                let (path, pattern) = cleaned(&path, pattern);
                (path, Some(pattern))
            }
            None => (path, pattern),
        };
        if !is_directory && is_pointer(&path) {
            self.pointers.insert(path.clone(), place.to_owned());
        }
        if !is_directory && !is_outside && path.is_file() {
            self.files.insert(path.clone());
        }
        if let Some(pattern) = pattern.and_then(glob).filter(|_| !is_outside) {
            let mut budget = MAX_FILES;
            self.files_in(&path, &path, &pattern, place, &mut budget)?;
        }
        // A missing file of any other function is an error of the tool's.
        if is_set || (is_directory && call.function == "fileexists") {
            let pattern = pattern.filter(|_| call.path.whole).map(str::to_owned);
            self.sets.entry((path.clone(), pattern)).or_insert_with(|| place.to_owned());
        }
        if is_outside {
            self.absolute.insert(path.clone());
        }
        self.paths.entry(path).or_insert_with(|| place.to_owned());
        Ok(())
    }

    /// Finds the files of a `fileset`, and the pointers among them.
    fn files_in(
        &mut self,
        top: &Path,
        dir: &Path,
        pattern: &Regex,
        place: &str,
        budget: &mut usize,
    ) -> io::Result<()> {
        let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
        for entry in entries {
            if *budget == 0 {
                break;
            }
            *budget -= 1;
            let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
            let below = path.strip_prefix(top).unwrap_or(&path);
            if kind.is_dir() {
                if path.file_name().is_none_or(|name| name != ".git" && name != ".terraform") {
                    self.files_in(top, &path, pattern, place, budget)?;
                }
            } else if pattern.is_match(&below.to_string_lossy()) {
                if is_pointer(&path) {
                    self.pointers.insert(path.clone(), place.to_owned());
                }
                self.files.insert(path);
            }
        }
        Ok(())
    }
}

/// The directory and the pattern of a `fileset`, without `..` in the pattern: the tools clean both together.
fn cleaned<'a>(dir: &Path, pattern: &'a str) -> (PathBuf, &'a str) {
    let literal = pattern.find(['*', '?', '[', '{', '\\']).map_or(pattern, |glob| &pattern[..glob]);
    match literal.rsplit_once('/') {
        Some((above, _)) if above.split('/').any(|part| part == "..") => {
            let dir = normal(&dir.join(above.trim_start_matches('/')));
            (dir, &pattern[above.len() + 1..])
        }
        _ => (dir.to_owned(), pattern),
    }
}

/// The regular files of a directory, in order; none if there is no such directory.
fn files(dir: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        other => other?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<BTreeSet<_>>>()?;
    // What the runner has added is no code.
    Ok(paths.into_iter().filter(|path| path.is_file() && !state_file::is_own(path)).collect())
}

fn is_configuration(name: &str) -> bool {
    file_names::is_code(name) && !name.starts_with('.')
}

/// Whether the tool reads variables from it by itself.
fn is_values(name: &str) -> bool {
    let name = name.strip_suffix(".json").unwrap_or(name);
    name == "terraform.tfvars" || name.ends_with(".auto.tfvars")
}

/// Whether a file is a git LFS pointer; the tool reports a file that cannot be read.
fn is_pointer(file: &Path) -> bool {
    file.is_file() && beginning(file, POINTER.len() as u64).is_ok_and(|head| head == POINTER)
}

/// `None` for a file that cannot be read or is too large, which the tool reports.
pub(super) fn text(file: &Path) -> Option<String> {
    let bytes = beginning(file, MAX_FILE + 1).ok()?;
    let fits = bytes.len() as u64 <= MAX_FILE;
    fits.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

fn beginning(file: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
