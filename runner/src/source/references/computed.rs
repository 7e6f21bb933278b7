//! Which files of a set a configuration may name by paths that it computes: in a local value, by a variable, in a loop.
//!
//! It knows literal strings, and the literal beginnings and ends of computed paths. It evaluates nothing.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use hcl_edit::expr::{Expression, FuncCall};
use hcl_edit::template::{Element, StringTemplate};
use hcl_edit::visit::{self, Visit};

use crate::source::path::normal;
use crate::source::references::calls::{Base, FUNCTIONS, Named, named, scan};
use crate::source::references::{References, text};

/// A path that a file computes.
#[derive(Debug, PartialEq, Eq)]
struct Computed {
    /// The literal beginning. `None`: it begins with what is computed.
    start: Option<Named>,
    /// The literal end.
    end: String,
}

/// The functions with which a missing file is no error.
const SILENT: &[&str] = &["fileexists", "fileset"];

/// What one file has.
#[derive(Debug, Default)]
struct Found {
    /// The functions whose paths are looked for.
    functions: &'static [&'static str],
    literals: Vec<Named>,
    computed: Vec<Computed>,
}

/// What all files have, as absolute paths.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Files or directories that literal strings name.
    literals: BTreeSet<PathBuf>,
    /// Directories, of literal strings that begin with `path.module` or the like.
    directories: BTreeSet<PathBuf>,
    /// Where a computed path is, how the rest of it begins, and how it ends.
    computed: Vec<(PathBuf, String, String)>,
    /// Whether a path has neither a literal beginning nor a literal end.
    is_any_unknown: bool,
}

/// The files among `files` that the configuration may name. `root` is the source's root, `module` its root module.
pub(crate) fn may_name<'a>(
    references: &References,
    root: &Path,
    module: &Path,
    files: impl Iterator<Item = &'a Path>,
) -> BTreeSet<PathBuf> {
    let names = Names::read(references, root, module, &FUNCTIONS);
    files.filter(|file| names.may_be(&root.join(file))).map(Path::to_owned).collect()
}

/// The first of some missing files, absolute and without links, that the configuration may look for by a computed path where
/// the tool reports no missing file.
pub(in crate::source) fn may_miss<'a>(
    references: &References,
    module: &Path,
    files: &'a [PathBuf],
) -> Option<&'a PathBuf> {
    let names = silent(references, module);
    files.iter().find(|file| names.may_be(file))
}

/// The computed paths with which the tool reports no missing file.
pub(super) fn silent(references: &References, module: &Path) -> Names {
    let names = Names::read(references, Path::new("/"), module, SILENT);
    Names { literals: BTreeSet::new(), ..names }
}

impl Names {
    /// The same, without directories that hold the module: they are too much.
    pub(super) fn beside(mut self, module: &Path) -> Self {
        self.directories.retain(|dir| !module.starts_with(dir));
        self
    }

    /// What all files of a configuration have.
    fn read(
        references: &References,
        root: &Path,
        module: &Path,
        functions: &'static [&'static str],
    ) -> Self {
        let mut names = Self::default();
        for file in references.code.iter().chain(&references.files) {
            let is_code = references.code.contains(file);
            let is_values = file.to_string_lossy().contains(".tfvars");
            let Some(text) = (is_code || is_values).then(|| text(file)).flatten() else { continue };
            let own = file.parent().unwrap_or(module);
            names.add(found(file, &text, functions), root, own, module);
        }
        names
    }

    fn add(&mut self, found: Found, root: &Path, own: &Path, module: &Path) {
        for Named { base, path, .. } in found.literals {
            let path = path.trim_start_matches(|c| c == '/' && base != Base::Relative);
            if path.is_empty() {
                continue;
            }
            let bases = match base {
                Base::Module => &[own][..],
                Base::Root => &[module],
                Base::Relative => &[module, own],
            };
            self.literals.extend(bases.iter().map(|base| normal(&base.join(path))));
            if base != Base::Relative {
                self.directories.extend(bases.iter().map(|base| normal(&base.join(path))));
            }
        }
        for Computed { start, end } in found.computed {
            let Some(Named { base, path, .. }) = start else {
                self.is_any_unknown |= end.is_empty();
                self.computed
                    .extend((!end.is_empty()).then(|| (root.to_owned(), String::new(), end)));
                continue;
            };
            let base = if base == Base::Module { own } else { module };
            let (dir, rest) = path.rsplit_once('/').unwrap_or(("", &path));
            let dir = normal(&base.join(dir.trim_start_matches('/')));
            if dir == base && rest.is_empty() && end.is_empty() {
                self.is_any_unknown = true;
            } else {
                self.computed.push((dir, rest.to_owned(), end));
            }
        }
    }

    /// Whether a file may have one of the names.
    pub(super) fn may_be(&self, file: &Path) -> bool {
        let is_computed = self.computed.iter().any(|(dir, start, end)| {
            let below = file.strip_prefix(dir).map(|below| below.to_string_lossy().into_owned());
            // The end may begin with the slash after a directory.
            below.is_ok_and(|below| {
                below.starts_with(start) && format!("/{below}").ends_with(end.as_str())
            })
        });
        let is_in_named = || self.directories.iter().any(|dir| file.starts_with(dir));
        is_computed || self.literals.contains(file) || self.is_any_unknown && is_in_named()
    }
}

fn found(file: &Path, text: &str, functions: &'static [&'static str]) -> Found {
    let mut found = Found { functions, ..Found::default() };
    let is_json = file.extension() == Some(OsStr::new("json"));
    if !is_json && let Ok(body) = hcl_edit::parser::parse_body(text) {
        found.visit_body(&body);
        return found;
    }
    let calls = scan(text).0.into_iter();
    let calls = calls.filter(|call| functions.contains(&call.function.as_str()));
    let (whole, parts): (Vec<_>, Vec<_>) = calls.map(|call| call.path).partition(|path| path.whole);
    // Without a parser, strings are what is between two quotes.
    let strings = text.split('"').map(|path| path.trim_end_matches('\\').to_owned());
    let literal = |path| Named { base: Base::Relative, path, whole: true };
    found.literals = whole.into_iter().chain(strings.map(literal)).collect();
    let computed = |start| Computed { start: Some(start), end: String::new() };
    found.computed = parts.into_iter().map(computed).collect();
    found
}

impl Visit for Found {
    fn visit_expr(&mut self, expression: &Expression) {
        if matches!(expression, Expression::String(_) | Expression::StringTemplate(_)) {
            self.literals.extend(named(expression).filter(|named| named.whole));
        }
        visit::visit_expr(self, expression);
    }

    fn visit_func_call(&mut self, call: &FuncCall) {
        let function = call.name.name.as_str();
        let mut args = call.args.iter();
        if call.name.namespace.is_empty()
            && self.functions.contains(&function)
            && let Some(path) = args.next()
        {
            self.computed.extend(match (function, args.next()) {
                ("fileset", Some(pattern)) => computed_set(path, pattern),
                _ => computed(path),
            });
        }
        visit::visit_func_call(self, call);
    }
}

/// The path of a call, if it is computed.
fn computed(path: &Expression) -> Option<Computed> {
    let start = named(path);
    if start.as_ref().is_some_and(|start| start.whole) {
        return None;
    }
    let end = match path {
        Expression::StringTemplate(template) => literal_end(template),
        _ => String::new(),
    };
    Some(Computed { start, end })
}

/// The paths of a `fileset`, if its directory or its pattern is computed.
fn computed_set(dir: &Expression, pattern: &Expression) -> Option<Computed> {
    let start = named(dir);
    let whole = pattern.as_str();
    if whole.is_some() && start.as_ref().is_some_and(|start| start.whole) {
        return None;
    }
    let (begin, pattern) = match pattern {
        Expression::StringTemplate(template) => (literal_start(template), literal_end(template)),
        _ => ("", whole.unwrap_or_default().to_owned()),
    };
    let begin = begin.split(['*', '?', '[', '{', '\\']).next().unwrap_or_default();
    let start = start.map(|start| {
        let path = start.path.trim_end_matches('/');
        let path = format!("{path}/{}", begin.trim_start_matches('/'));
        if start.whole { Named { path, ..start } } else { start }
    });
    let end = pattern.rsplit(['*', '?', '}', ']']).next().unwrap_or_default();
    Some(Computed { start, end: end.to_owned() })
}

fn literal_start(template: &StringTemplate) -> &str {
    match template.iter().next() {
        Some(Element::Literal(text)) => text.value(),
        _ => "",
    }
}

fn literal_end(template: &StringTemplate) -> String {
    match template.iter().last() {
        Some(Element::Literal(text)) => text.value().clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use fs_err as fs;

    use super::*;
    use crate::source::references::installed::Called;
    use crate::source::references::read;

    /// Which of `files` this code in `live` may name.
    fn named(code: &str, files: &[&str]) -> Vec<String> {
        named_in(&[("live/main.tf", code)], files)
    }

    fn named_in(configuration: &[(&str, &str)], files: &[&str]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let empty = files.iter().map(|file| (*file, ""));
        for (file, text) in empty.chain(configuration.iter().copied()) {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let module = dir.path().join("live");
        let references = read(&module, &Called::new()).unwrap();
        let files = files.iter().map(Path::new);
        let found = may_name(&references, dir.path(), &module, files);
        found.into_iter().map(|path| path.display().to_string()).collect()
    }

    const FILES: [&str; 6] = [
        "docs/x.md",
        "live/README.md",
        "live/a.md",
        "live/x/b.json",
        "live/x/c.md",
        "other/b.json",
    ];

    #[test]
    fn computed_paths_may_name_what_has_their_beginning_and_end() {
        for (code, expected) in [
            ("x = file(\"${path.module}/x/${var.y}\")", &["live/x/b.json", "live/x/c.md"][..]),
            ("x = file(\"${path.module}/${var.y}.json\")", &["live/x/b.json"]),
            ("x = file(\"${path.module}/x/b${var.y}\")", &["live/x/b.json"]),
            ("x = file(\"x/${var.y}\")", &["live/x/b.json", "live/x/c.md"]),
            ("x = file(\"${var.dir}/b.json\")", &["live/x/b.json", "other/b.json"]),
            ("x = file(\"${var.dir}/README.md\")", &["live/README.md"]),
            ("f = \"${path.module}/a.md\"\n  x = file(local.f)", &["live/a.md"]),
            ("x = [for f in [\"a.md\"] : file(\"${path.module}/${f}\")]", &["live/a.md"]),
            (
                "d = \"${path.module}/x\"\n  x = file(\"${local.d}/${var.y}\")",
                &["live/x/b.json", "live/x/c.md"],
            ),
            ("x = fileset(\"${path.module}/x\", var.y)", &["live/x/b.json", "live/x/c.md"]),
            ("x = fileset(\"${path.module}/${var.y}\", \"*.json\")", &["live/x/b.json"]),
            (
                "x = templatefile(var.y, { v = file(\"${path.module}/x/${var.y}.md\") })",
                &["live/x/c.md"],
            ),
        ] {
            assert_eq!(named(&format!("locals {{\n  {code}\n}}\n"), &FILES), expected, "{code}");
        }
    }

    #[test]
    fn plain_code_names_none() {
        for code in [
            "x = 1",
            "x = file(var.y)",
            "x = file(\"${path.module}/${var.y}\")",
            "x = \"see docs/x.md and README\"",
            "d = \"${path.module}/x\"",
            "x = fileset(path.module, \"*.json\")",
            "x = file(\"/etc/hostname\")",
            "x = provider::x::file(var.y)",
        ] {
            let named = named(&format!("locals {{\n  {code}\n}}\n"), &FILES);
            assert_eq!(named, [] as [&str; 0], "{code}");
        }
    }

    #[test]
    fn called_modules_and_values_count_and_so_does_what_cannot_be_parsed() {
        let call = ("live/main.tf", "module \"m\" {\n  source = \"../m\"\n}\n");
        let m = "output \"x\" {\n  value = file(\"${path.module}/x/${var.y}\")\n}\n";
        let twice = "locals {\n  a = { b = 1, b = 2 }\n}\n";
        assert_eq!(named_in(&[call, ("m/m.tf", m)], &["m/x/a", "live/x/a"]), ["m/x/a"]);
        let json = r#"{"output": {"x": {"value": "${file(\"${path.module}/x/${var.y}\")}"}}}"#;
        assert_eq!(named_in(&[call, ("m/m.tf.json", json)], &["m/x/a", "live/x/a"]), ["m/x/a"]);
        let refused = format!("{m}{twice}");
        assert!(hcl_edit::parser::parse_body(&refused).is_err());
        assert_eq!(named_in(&[call, ("m/m.tf", &refused)], &["m/x/a"]), ["m/x/a"]);
        let values = ("live/terraform.tfvars", "files = [\"x/a\"]\n");
        assert_eq!(named_in(&[call, values], &["m/x/a", "live/x/a"]), ["live/x/a"]);
    }
}
