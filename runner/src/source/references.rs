//! What the configuration of a root module refers to inside of the source: the modules that it calls by
//! a path, the files and directories that it names literally, and the files that the tool reads by
//! itself. It reads and never changes anything, and does not know what git is.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use fs_err as fs;
use hcl_edit::Span as _;
use hcl_edit::expr::{Expression, FuncCall, TraversalOperator};
use hcl_edit::structure::{Block, Body};
use hcl_edit::template::Element;
use hcl_edit::visit::{self, Visit};
use regex::Regex;

/// No configuration file that a person or a generator writes is larger.
const MAX_FILE: u64 = 16 << 20;

/// A tree with more local modules than this is none that a person wrote.
const MAX_MODULES: usize = 1000;

/// Files of a literally named directory that are looked at.
const MAX_FILES: usize = 10_000;

/// How a git LFS pointer begins (git-lfs, docs/spec.md).
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1";

/// What a configuration refers to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct References {
    /// Paths without `..`, and the place that names each first.
    pub(super) paths: BTreeMap<PathBuf, String>,
    /// Files that the tool would read and that are git LFS pointers, and the place that names each;
    /// empty where the tool reads the file by itself.
    pub(super) pointers: BTreeMap<PathBuf, String>,
}

/// Reads the root module in `root`, and every module that it calls by a path.
pub(super) fn read(root: &Path) -> io::Result<References> {
    let mut references = References::default();
    let mut seen = BTreeSet::from([root.to_owned()]);
    let mut to_do = vec![root.to_owned()];
    references.paths.insert(root.to_owned(), "the working directory".to_owned());
    while let Some(module) = to_do.pop() {
        for (path, place) in references.read_module(root, &module)? {
            if path.is_dir() && seen.len() < MAX_MODULES && seen.insert(path.clone()) {
                to_do.push(path.clone());
            }
            references.paths.entry(path).or_insert(place);
        }
    }
    Ok(references)
}

/// A call in a file.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    function: String,
    path: Named,
    /// The pattern of a `fileset`.
    pattern: Option<String>,
    line: usize,
}

/// A path as the configuration writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    base: Base,
    path: String,
    /// Whether that is all of it, and not only the beginning.
    whole: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    /// The module that names it (`path.module`).
    Module,
    /// The root module (`path.root`, `path.cwd`).
    Root,
    /// The directory in which the tool works, which is the root module's: nothing is said.
    Unsaid,
}

/// The functions that read a file, a directory, or look for one: whatever is missing changes the plan.
const FUNCTIONS: [&str; 11] = [
    "file",
    "filebase64",
    "filebase64sha256",
    "filebase64sha512",
    "fileexists",
    "filemd5",
    "fileset",
    "filesha1",
    "filesha256",
    "filesha512",
    "templatefile",
];

impl References {
    /// Reads the files of one module. Returns the modules that it calls, with the places of the calls.
    fn read_module(&mut self, root: &Path, module: &Path) -> io::Result<Vec<(PathBuf, String)>> {
        let mut called = Vec::new();
        for file in files(module)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_values = is_values(&name);
            let of_root = is_values || name == "terragrunt.hcl";
            let is_read = is_configuration(&name) || (of_root && module == root);
            if !is_read {
                continue;
            }
            if is_pointer(&file) {
                self.pointers.insert(file, String::new());
                continue;
            }
            if is_values {
                continue;
            }
            let Some(text) = text(&file) else { continue };
            let (calls, sources) = contents(&file, &text);
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
            for call in calls {
                self.call(root, module, &call, &place(call.line))?;
            }
        }
        Ok(called)
    }

    fn call(&mut self, root: &Path, module: &Path, call: &Call, place: &str) -> io::Result<()> {
        let named = call.path.path.as_str();
        let (base, relative) = match call.path.base {
            Base::Module => (module, named.trim_start_matches('/')),
            Base::Root => (root, named.trim_start_matches('/')),
            Base::Unsaid => (root, named),
        };
        let is_directory = call.function == "fileset" || !call.path.whole;
        let literal = match relative.rsplit_once('/') {
            _ if call.path.whole => relative,
            Some((directory, _)) => directory,
            None => "",
        };
        let path = normal(&base.join(literal));
        if !is_directory && is_pointer(&path) {
            self.pointers.insert(path.clone(), place.to_owned());
        }
        if let Some(pattern) = call.pattern.as_deref().and_then(glob) {
            let mut budget = MAX_FILES;
            self.pointers_in(&path, &path, &pattern, place, &mut budget)?;
        }
        self.paths.entry(path).or_insert_with(|| place.to_owned());
        Ok(())
    }

    /// Finds the pointers among the files of a `fileset`.
    fn pointers_in(
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
                    self.pointers_in(top, &path, pattern, place, budget)?;
                }
            } else if pattern.is_match(&below.to_string_lossy()) && is_pointer(&path) {
                self.pointers.insert(path, place.to_owned());
            }
        }
        Ok(())
    }
}

/// The regular files of a directory, in order; none if there is no such directory.
fn files(dir: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        other => other?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<BTreeSet<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.is_file()).collect())
}

fn is_configuration(name: &str) -> bool {
    [".tf", ".tf.json", ".tofu", ".tofu.json"].iter().any(|end| name.ends_with(end))
        && !name.starts_with('.')
}

/// Whether the tool reads variables from it by itself.
fn is_values(name: &str) -> bool {
    let name = name.strip_suffix(".json").unwrap_or(name);
    name == "terraform.tfvars" || name.ends_with(".auto.tfvars")
}

/// Whether a regular file is one; one that cannot be read is for the tool to report.
fn is_pointer(file: &Path) -> bool {
    file.is_file() && beginning(file, POINTER.len() as u64).is_ok_and(|head| head == POINTER)
}

/// `None` for a file that cannot be read, or that is too large: that is for the tool to report.
fn text(file: &Path) -> Option<String> {
    let bytes = beginning(file, MAX_FILE + 1).ok()?;
    let fits = bytes.len() as u64 <= MAX_FILE;
    fits.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

fn beginning(file: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Without `.` and `..`, and without following links: so git names its files.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

type Sources = Vec<(String, usize)>;

/// The calls and the module sources of a file.
fn contents(file: &Path, text: &str) -> (Vec<Call>, Sources) {
    if file.extension() == Some(OsStr::new("json")) {
        return scan(text);
    }
    match hcl_edit::parser::parse_body(text) {
        Ok(body) => parse(text, &body),
        // The parser refuses some files that the tools accept.
        Err(_) => scan(&without_comments(text)),
    }
}

fn parse(text: &str, body: &Body) -> (Vec<Call>, Sources) {
    let mut calls = Calls { text, found: Vec::new() };
    calls.visit_body(body);
    // Of terragrunt.hcl, the module that it runs; terraform's own block of that name has no source.
    let is_module = |block: &&Block| matches!(block.ident.as_str(), "module" | "terraform");
    let modules = body.blocks().filter(is_module);
    let sources = modules.filter_map(|module| {
        let source =
            module.body.attributes().find(|attribute| attribute.key.as_str() == "source")?;
        let named = named(&source.value)?;
        let line = line_of(text, source.span().map_or(0, |span| span.start));
        named.whole.then_some((named.path, line))
    });
    (calls.found, sources.collect())
}

struct Calls<'a> {
    text: &'a str,
    found: Vec<Call>,
}

impl Visit for Calls<'_> {
    fn visit_func_call(&mut self, call: &FuncCall) {
        let function = call.name.name.as_str();
        let is_one = call.name.namespace.is_empty() && FUNCTIONS.contains(&function);
        let mut args = call.args.iter();
        if is_one && let Some(path) = args.next().and_then(named) {
            let pattern = args.next().filter(|_| function == "fileset").and_then(named);
            let pattern = pattern.filter(|pattern| pattern.whole).map(|pattern| pattern.path);
            let line = line_of(self.text, call.span().map_or(0, |span| span.start));
            self.found.push(Call { function: function.to_owned(), path, pattern, line });
        }
        visit::visit_func_call(self, call);
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.get(..offset).map_or(1, |before| before.matches('\n').count() + 1)
}

/// A literal path, or the literal beginning of one.
fn named(expression: &Expression) -> Option<Named> {
    match expression {
        Expression::String(text) => {
            Some(Named { base: Base::Unsaid, path: text.value().clone(), whole: true })
        }
        Expression::Parenthesis(inner) => named(inner.inner()),
        Expression::StringTemplate(template) => {
            let mut found = Named { base: Base::Unsaid, path: String::new(), whole: true };
            for (index, element) in template.iter().enumerate() {
                match element {
                    Element::Literal(text) => found.path.push_str(text.value()),
                    Element::Interpolation(part) if index == 0 => found.base = base(&part.expr)?,
                    Element::Interpolation(_) | Element::Directive(_) => {
                        found.whole = false;
                        break;
                    }
                }
            }
            Some(found)
        }
        // `path.module` alone.
        other => {
            let base = base(other)?;
            Some(Named { base, path: String::new(), whole: true })
        }
    }
}

fn base(expression: &Expression) -> Option<Base> {
    let traversal = expression.as_traversal()?;
    let is_path = traversal.expr.as_variable().is_some_and(|name| name.as_str() == "path");
    let [operator] = traversal.operators.as_slice() else { return None };
    let TraversalOperator::GetAttr(name) = operator.value() else { return None };
    match name.as_str() {
        "module" if is_path => Some(Base::Module),
        "root" | "cwd" if is_path => Some(Base::Root),
        _ => None,
    }
}

/// A call of one of the functions, in text; quotes are escaped in JSON.
static CALL: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = format!(
        r#"\b({})\(\s*(?:\\?"(?:\$\{{\s*path\.(module|root|cwd)\s*\}})?([^"\\$%]*)(\\?")?|path\.(module|root|cwd)\b)(?:\s*,\s*\\?"([^"\\$%]*)\\?")?"#,
        FUNCTIONS.join("|")
    );
    Regex::new(&pattern).expect("a pattern of ours is well-formed")
});

static SOURCE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?m)(?:^|[{,\s])"?source"?\s*[=:]\s*"(\.\.?(?:/[^"\\$%]*)?)""#)
        .expect("a pattern of ours is well-formed")
});

/// The same without a parser.
fn scan(text: &str) -> (Vec<Call>, Sources) {
    let calls = CALL.captures_iter(text).filter_map(|found| {
        let group = |index| found.get(index).map(|found| found.as_str());
        let start = found.get(0)?.start();
        if text[..start].ends_with(':') {
            // A provider's function of this name.
            return None;
        }
        let alone = group(5);
        let base = match group(2).or(alone) {
            Some("module") => Base::Module,
            Some(_) => Base::Root,
            None => Base::Unsaid,
        };
        let whole = alone.is_some() || group(4).is_some();
        let path = group(3).unwrap_or_default().to_owned();
        let function = group(1)?.to_owned();
        let pattern = group(6).filter(|_| function == "fileset").map(str::to_owned);
        let line = line_of(text, start);
        Some(Call { function, path: Named { base, path, whole }, pattern, line })
    });
    let sources = SOURCE.captures_iter(text).filter_map(|found| {
        let source = found.get(1)?;
        Some((source.as_str().to_owned(), line_of(text, source.start())))
    });
    (calls.collect(), sources.collect())
}

/// Lines that are comments as a whole are emptied.
fn without_comments(text: &str) -> String {
    let is_comment = |line: &str| {
        let line = line.trim_start();
        line.starts_with('#') || line.starts_with("//")
    };
    let line = |line: &str| if is_comment(line) { String::new() } else { line.to_owned() };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The pattern of a `fileset`: `*`, `**`, `?`, `{a,b}` and `[a-z]`. `None` if it is none.
fn glob(pattern: &str) -> Option<Regex> {
    let mut regex = String::from("^");
    let mut rest = pattern.chars().peekable();
    let mut depth = 0;
    while let Some(c) = rest.next() {
        match c {
            '*' if rest.next_if_eq(&'*').is_some() => {
                let slash = rest.next_if_eq(&'/').is_some();
                regex.push_str(if slash { "(?:.*/)?" } else { ".*" });
            }
            '*' => regex.push_str("[^/]*"),
            '?' => regex.push_str("[^/]"),
            '{' => {
                depth += 1;
                regex.push_str("(?:");
            }
            '}' if depth > 0 => {
                depth -= 1;
                regex.push(')');
            }
            ',' if depth > 0 => regex.push('|'),
            '[' | ']' | '-' => regex.push(c),
            '\\' => regex.push_str(&regex::escape(&rest.next()?.to_string())),
            c => regex.push_str(&regex::escape(&c.to_string())),
        }
    }
    regex.push('$');
    Regex::new(&regex).ok()
}

#[cfg(test)]
mod tests;
