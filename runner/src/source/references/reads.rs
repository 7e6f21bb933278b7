//! What the configuration may read in its work tree, so that a copy of a part of that has it also where git ignores it.
//!
//! It takes every string of the code that is the path of something for a path: what a provider reads is named by one, and a file
//! too many in a copy does no harm. It evaluates nothing.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use regex::Regex;

use crate::source::path::{first_link, normal, resolve};
use crate::source::references::calls::glob;
use crate::source::references::computed::{self, Names};
use crate::source::references::installed::Called;
use crate::source::references::{read, text};

/// No path leads through more links.
const MAX_LINKS: usize = 40;

/// The references to a directory with which a path may begin.
const BASES: [&str; 3] = ["${path.module}/", "${path.root}/", "${path.cwd}/"];

/// What a root module may read in its work tree.
#[derive(Debug)]
pub(in crate::source) struct Reads {
    /// Files and directories that are named, with the links on the way to them; but no directory that holds the module.
    named: BTreeSet<PathBuf>,
    /// The directories and patterns of `fileset`.
    sets: Vec<(PathBuf, Regex)>,
    /// Paths that are computed where the tool reports no missing file.
    computed: Names,
}

impl Reads {
    /// What the module in `module` may read in the work tree with the top `top`. Both paths are without links.
    pub(in crate::source) fn of(top: &Path, module: &Path) -> io::Result<Self> {
        let references = read(module, &Called::new())?;
        let computed = computed::silent(&references, module).beside(module);
        let sets = references.sets.keys().filter_map(|(dir, pattern)| {
            Some((resolve(dir).ok()?, pattern.as_deref().and_then(glob)?))
        });
        let mut reads = Self { named: BTreeSet::new(), sets: sets.collect(), computed };
        let files = references.code.iter().chain(&references.files);
        let paths = references.paths.keys().chain(files.clone());
        let mut paths = paths.cloned().collect::<BTreeSet<_>>();
        for file in files {
            let is_values = || file.to_string_lossy().contains(".tfvars");
            if (references.code.contains(file) || is_values())
                && let Some(text) = text(file)
            {
                let own = file.parent().unwrap_or(module);
                add_strings(&text, top, [own, module], &mut paths);
            }
        }
        for path in paths {
            if std::fs::symlink_metadata(&path).is_ok() {
                reads.add(module, path);
            }
        }
        Ok(reads)
    }

    /// Whether a computed path may be this one, by its full path.
    pub(in crate::source) fn may_be_computed(&self, path: &Path) -> bool {
        self.computed.may_be(path)
    }

    /// Whether the module names this, by its full path.
    pub(in crate::source) fn has(&self, path: &Path) -> bool {
        let is_in_set = |(dir, pattern): &(PathBuf, Regex)| {
            let below = path.strip_prefix(dir);
            below.is_ok_and(|below| pattern.is_match(&below.to_string_lossy()))
        };
        path.ancestors().any(|above| self.named.contains(above)) || self.sets.iter().any(is_in_set)
    }

    fn add(&mut self, module: &Path, mut path: PathBuf) {
        for _ in 0..MAX_LINKS {
            let Some((link, target)) = first_link(Path::new("/"), &path) else { break };
            self.named.insert(link);
            path = target;
        }
        if !module.starts_with(&path) {
            self.named.insert(path);
        }
    }
}

/// Adds the paths that the strings of a file may be. Where a path begins with what is computed, that may be any directory
/// above the two `dirs`; where it goes on with it, only its beginning is known.
fn add_strings(text: &str, top: &Path, dirs: [&Path; 2], paths: &mut BTreeSet<PathBuf>) {
    for string in text.split('"') {
        let string = string.trim_end_matches('\\');
        let of_base = BASES.iter().find_map(|base| string.strip_prefix(base));
        let computed = || string.strip_prefix("${")?.split_once("}/").map(|(_, rest)| rest);
        let (path, is_computed) = match (of_base, computed()) {
            (Some(path), _) => (path, false),
            (None, Some(path)) => (path, true),
            (None, None) if string.contains('/') => (string, false),
            (None, None) => continue,
        };
        let path = match path.split_once("${") {
            Some((start, _)) => start.rsplit_once('/').map_or("", |(dir, _)| dir),
            None => path,
        };
        if path.is_empty() || path.starts_with(['/', '~']) || path.contains(['\n', '\0']) {
            continue;
        }
        for dir in dirs {
            let above = dir.ancestors().take_while(|above| is_computed && above.starts_with(top));
            paths.extend(above.chain([dir]).map(|dir| normal(&dir.join(path))));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use fs_err as fs;

    use super::*;

    const FILES: [&str; 6] = [
        "common.tfvars",
        "dist/assets/app.js",
        "dist/index.html",
        "lambda/node_modules/x.js",
        "modules/a/x_override.tf",
        "other/index.html",
    ];

    /// Which of these files the module in `live/vpc` with this code may read.
    fn read_by(code: &str) -> Vec<&'static str> {
        read_in(&[("live/vpc/main.tf", code)], &[])
    }

    fn read_in(code: &[(&str, &str)], links: &[(&str, &str)]) -> Vec<&'static str> {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        let empty = FILES.iter().map(|file| (*file, ""));
        for (file, text) in empty.chain(code.iter().copied()) {
            fs::create_dir_all(top.join(file).parent().unwrap()).unwrap();
            fs::write(top.join(file), text).unwrap();
        }
        for (link, target) in links {
            symlink(target, top.join(link)).unwrap();
        }
        let reads = Reads::of(&top, &top.join("live/vpc")).unwrap();
        let is_read = |path: &Path| reads.has(path) || reads.may_be_computed(path);
        FILES.into_iter().filter(|file| is_read(&top.join(file))).collect()
    }

    #[test]
    fn what_the_code_names_is_read_and_nothing_else() {
        let dist = &["dist/assets/app.js", "dist/index.html"][..];
        for (code, expected) in [
            ("x = fileset(\"${path.module}/../../dist\", \"**\")", dist),
            ("x = fileset(join(\"/\", [path.module, \"..\", \"..\", \"dist\"]), \"**\")", dist),
            ("d = \"../../dist\"\n  x = fileset(local.d, \"**\")", dist),
            ("r = \"${path.module}/../..\"\n  d = \"${local.r}/dist\"", dist),
            ("x = fileset(\"${path.module}/../..\", \"dist/*\")", &["dist/index.html"]),
            ("x = fileset(path.module, \"../../dist/**\")", dist),
            ("x = fileset(path.module, \"x/../../../dist/*\")", dist),
            ("x = fileset(path.module, \"../../dist/${var.x}/**\")", dist),
            ("x = fileset(\"${path.module}/../..\", \"other/${var.x}/**\")", &["other/index.html"]),
            ("x = fileset(\"${path.module}/../..\", \"${var.x}/**\")", &FILES),
            (
                "x = fileset(\"../..\", \"${var.d}/index.html\")",
                &["dist/index.html", "other/index.html"],
            ),
            ("x = fileexists(\"../../other/index.html\")", &["other/index.html"]),
            ("x = { source_dir = \"../../lambda/${var.x}\" }", &["lambda/node_modules/x.js"]),
            ("x = \"${path.module}/../..\"", &[]),
            (
                "r = \"${path.module}/../..\"\n  x = fileset(\"${local.r}/other/${var.x}\", \"**\")",
                &["other/index.html"],
            ),
            ("x = [\"..\", \"../..\", \"dist\", \"/dist\", \"https://dist/\"]", &[]),
            ("x = \"${var.x}/${var.y}/dist\"", &[]),
            ("x = fileset(path.module, \"**\")", &[]),
        ] {
            assert_eq!(read_by(&format!("locals {{\n  {code}\n}}\n")), expected, "{code}");
        }
    }

    #[test]
    fn called_modules_links_and_values_count_and_so_does_what_is_not_parsed() {
        let call = "module \"a\" {\n  source = \"../../modules/a\"\n}\n";
        assert_eq!(read_by(call), ["modules/a/x_override.tf"]);
        let json = r#"{"locals": {"x": "${fileset(\"${path.module}/../../other\", \"*\")}"}}"#;
        assert_eq!(read_in(&[("live/vpc/main.tf.json", json)], &[]), ["other/index.html"]);
        let twice = "locals {\n  x = { a = 1, a = file(\"../../other/index.html\") }\n}\n";
        assert_eq!(read_by(twice), ["other/index.html"]);
        let values = ("live/vpc/terraform.tfvars", "dir = \"../../other\"\n");
        assert_eq!(read_in(&[values], &[]), ["other/index.html"]);
        let links = [("again.tfvars", "common.tfvars"), ("live/x", "../other")];
        let code = ("live/vpc/main.tf", "locals {\n  x = file(\"../x/index.html\")\n}\n");
        assert_eq!(read_in(&[code], &links), ["other/index.html"]);
        let variables = ("live/vpc/terraform.tfvars", "../../again.tfvars");
        let read = read_in(&[code], &[&links[..], &[variables]].concat());
        assert_eq!(read, ["common.tfvars", "other/index.html"]);
    }
}
