//! The files and modules that one configuration file names literally.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::LazyLock;

use hcl_edit::Span as _;
use hcl_edit::expr::{Array, Expression, FuncCall, Traversal, TraversalOperator};
use hcl_edit::structure::{Attribute, Block, Body};
use hcl_edit::template::Element;
use hcl_edit::visit::{self, Visit};
use regex::Regex;

use crate::source::references::locals::{Locals, Use};

/// A call in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) function: String,
    pub(super) path: Named,
    /// The pattern of a `fileset`.
    pub(super) pattern: Option<String>,
    pub(super) line: usize,
    /// Whether it is in a `provider` or `connection` block: no plan contains the values there.
    pub(super) is_of_connection: bool,
    /// The local value of which it is a part.
    pub(super) local: Option<String>,
}

/// A path as the configuration writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) base: Base,
    pub(super) path: String,
    /// Whether this is the whole path, not only its beginning.
    pub(super) whole: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// The module that names it (`path.module`).
    Module,
    /// The root module (`path.root`, `path.cwd`).
    Root,
    /// No base: relative to the tool's working directory, which is the root module's.
    Relative,
}

/// The functions that read or test a file or directory: a missing one changes the plan.
pub(super) const FUNCTIONS: [&str; 11] = [
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

pub(super) type Sources = Vec<(String, usize)>;

/// The calls, the module sources, and the uses of local values of a file.
pub(super) fn contents(file: &Path, text: &str) -> (Vec<Call>, Sources, Locals) {
    let scanned = |text: &str| {
        let (calls, sources) = scan(text);
        (calls, sources, Locals::unknown())
    };
    if file.extension() == Some(OsStr::new("json")) {
        return scanned(text);
    }
    match hcl_edit::parser::parse_body(text) {
        Ok(body) => parse(text, &body),
        // The parser rejects some files that the tools accept.
        Err(_) => scanned(&without_comments(text)),
    }
}

fn parse(text: &str, body: &Body) -> (Vec<Call>, Sources, Locals) {
    let mut calls = Calls { text, ..Calls::default() };
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
    (calls.found, sources.collect(), calls.locals)
}

#[derive(Default)]
struct Calls<'a> {
    text: &'a str,
    /// The names of the blocks around this place.
    blocks: Vec<String>,
    /// The local value around this place.
    local: Option<String>,
    found: Vec<Call>,
    locals: Locals,
}

impl Calls<'_> {
    /// Whether this is in a `provider` or `connection` block. Another block of that name is one of a resource type.
    fn is_in_connection(&self) -> bool {
        let names = self.blocks.iter().map(String::as_str).collect::<Vec<_>>();
        matches!(
            names[..],
            ["provider", ..]
                | ["resource", "connection", ..]
                | ["resource" | "removed", "provisioner", "connection", ..]
        )
    }

    fn add_use(&mut self, name: Option<&str>) {
        let of = match &self.local {
            _ if self.is_in_connection() => Use::Connection,
            Some(local) => Use::Local(local.clone()),
            None => Use::Elsewhere,
        };
        self.locals.add(name, of);
    }
}

impl Visit for Calls<'_> {
    fn visit_block(&mut self, block: &Block) {
        self.blocks.push(block.ident.as_str().to_owned());
        visit::visit_block(self, block);
        self.blocks.pop();
    }

    fn visit_attr(&mut self, attribute: &Attribute) {
        if self.blocks == ["locals"] {
            self.local = Some(attribute.key.as_str().to_owned());
        }
        visit::visit_attr(self, attribute);
        self.local = None;
    }

    fn visit_expr(&mut self, expression: &Expression) {
        if is_local(expression) {
            self.add_use(None);
        }
        visit::visit_expr(self, expression);
    }

    fn visit_traversal(&mut self, traversal: &Traversal) {
        if !is_local(&traversal.expr) {
            return visit::visit_traversal(self, traversal);
        }
        let name = traversal.operators.first().and_then(|operator| match operator.value() {
            TraversalOperator::GetAttr(name) => Some(name.as_str()),
            _ => None,
        });
        self.add_use(name);
        for operator in &traversal.operators {
            self.visit_traversal_operator(operator);
        }
    }

    fn visit_func_call(&mut self, call: &FuncCall) {
        let function = call.name.name.as_str();
        let is_one = call.name.namespace.is_empty() && FUNCTIONS.contains(&function);
        let mut args = call.args.iter();
        if is_one && let Some(path) = args.next().and_then(named) {
            let pattern = args.next().filter(|_| function == "fileset").and_then(named);
            let pattern = pattern.filter(|pattern| pattern.whole).map(|pattern| pattern.path);
            let line = line_of(self.text, call.span().map_or(0, |span| span.start));
            let (function, local) = (function.to_owned(), self.local.clone());
            let is_of_connection = self.is_in_connection();
            self.found.push(Call { function, path, pattern, line, is_of_connection, local });
        }
        visit::visit_func_call(self, call);
    }
}

fn is_local(expression: &Expression) -> bool {
    expression.as_variable().is_some_and(|name| name.as_str() == "local")
}

fn line_of(text: &str, offset: usize) -> usize {
    text.get(..offset).map_or(1, |before| before.matches('\n').count() + 1)
}

/// A literal path, or the literal beginning of one.
pub(super) fn named(expression: &Expression) -> Option<Named> {
    match expression {
        Expression::String(text) => {
            Some(Named { base: Base::Relative, path: text.value().clone(), whole: true })
        }
        Expression::Parenthesis(inner) => named(inner.inner()),
        Expression::StringTemplate(template) => {
            let mut found = Named { base: Base::Relative, path: String::new(), whole: true };
            for (index, element) in template.iter().enumerate() {
                match element {
                    Element::Literal(text) => found.path.push_str(text.value()),
                    Element::Interpolation(part) if index == 0 => {
                        found = named(&part.expr).filter(|found| found.whole)?;
                    }
                    Element::Interpolation(_) | Element::Directive(_) => {
                        found.whole = false;
                        break;
                    }
                }
            }
            Some(found)
        }
        Expression::FuncCall(call) => computed(call),
        // `path.module` alone.
        other => {
            let base = base(other)?;
            Some(Named { base, path: String::new(), whole: true })
        }
    }
}

/// The path that a function makes of literal ones.
fn computed(call: &FuncCall) -> Option<Named> {
    let mut args = call.args.iter();
    let first = args.next().filter(|_| call.name.namespace.is_empty())?;
    match call.name.name.as_str() {
        "pathexpand" => named(first),
        "abspath" => {
            let is_expanded = first.as_func_call().is_some();
            let mut found = named(first)?;
            // It does not know the user's home.
            if found.path.starts_with('~') && !is_expanded {
                found.path.insert_str(0, "./");
            }
            Some(found)
        }
        "join" => joined(first.as_str()?, args.next()?.as_array()?),
        "format" => formatted(first.as_str()?, args),
        _ => None,
    }
}

fn joined(separator: &str, parts: &Array) -> Option<Named> {
    let mut parts = parts.iter().map(named);
    let mut all = parts.next()??;
    for part in parts {
        all.path.push_str(separator);
        let part = part.filter(|part| all.whole && part.base == Base::Relative);
        let Some(part) = part else { return Some(Named { whole: false, ..all }) };
        all.path.push_str(&part.path);
        all.whole = part.whole;
    }
    Some(all)
}

/// Follows `%s` and `%%`. The first other verb ends what is known, and so does a value that is not literal.
fn formatted<'a>(format: &str, mut values: impl Iterator<Item = &'a Expression>) -> Option<Named> {
    let mut all = Named { base: Base::Relative, path: String::new(), whole: true };
    let mut rest = format;
    while let Some((before, verb)) = rest.split_once('%') {
        all.path.push_str(before);
        if let Some(after) = verb.strip_prefix('%') {
            all.path.push('%');
            rest = after;
            continue;
        }
        let is_first = rest.len() == format.len() && before.is_empty();
        let value = verb.strip_prefix('s').and_then(|after| {
            let value = values.next().and_then(named)?;
            (is_first || value.base == Base::Relative).then_some((value, after))
        });
        let Some((value, after)) = value else {
            all.whole = false;
            return (!is_first).then_some(all);
        };
        if is_first {
            all.base = value.base;
        }
        all.path.push_str(&value.path);
        if !value.whole {
            return Some(Named { whole: false, ..all });
        }
        rest = after;
    }
    all.path.push_str(rest);
    Some(all)
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
        r#"\b({})\(\s*(?:(?:pathexpand|abspath)\(\s*)?(?:\\?"(?:\$\{{\s*path\.(module|root|cwd)\s*\}})?([^"\\$%]*)(\\?")?|path\.(module|root|cwd)\b)(?:\s*\)?\s*,\s*\\?"([^"\\$%]*)\\?")?"#,
        FUNCTIONS.join("|")
    );
    Regex::new(&pattern).expect("the pattern is valid")
});

static SOURCE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?m)(?:^|[{,\s])"?source"?\s*[=:]\s*"(\.\.?(?:/[^"\\$%]*)?)""#)
        .expect("the pattern is valid")
});

/// A call of a module, in text.
pub(super) static MODULE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?m)(?:^|\*/)\s*module[\s"]|"module"\s*:"#).expect("the pattern is valid")
});

/// The calls and the module sources, without a parser.
pub(super) fn scan(text: &str) -> (Vec<Call>, Sources) {
    let calls = CALL.captures_iter(text).filter_map(|found| {
        let group = |index| found.get(index).map(|found| found.as_str());
        let start = found.get(0)?.start();
        if text[..start].ends_with(':') {
            // A provider's function with this name.
            return None;
        }
        let alone = group(5);
        let base = match group(2).or(alone) {
            Some("module") => Base::Module,
            Some(_) => Base::Root,
            None => Base::Relative,
        };
        let whole = alone.is_some() || group(4).is_some();
        let path = group(3).unwrap_or_default().to_owned();
        let function = group(1)?.to_owned();
        let pattern = group(6).filter(|_| function == "fileset").map(str::to_owned);
        let line = line_of(text, start);
        let path = Named { base, path, whole };
        Some(Call { function, path, pattern, line, is_of_connection: false, local: None })
    });
    let sources = SOURCE.captures_iter(text).filter_map(|found| {
        let source = found.get(1)?;
        Some((source.as_str().to_owned(), line_of(text, source.start())))
    });
    (calls.collect(), sources.collect())
}

/// Lines that are comments as a whole are emptied.
pub(super) fn without_comments(text: &str) -> String {
    let is_comment = |line: &str| {
        let line = line.trim_start();
        line.starts_with('#') || line.starts_with("//")
    };
    let line = |line: &str| if is_comment(line) { String::new() } else { line.to_owned() };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The pattern of a `fileset`: `*`, `**`, `?`, `{a,b}` and `[a-z]`. `None` if it is none.
pub(super) fn glob(pattern: &str) -> Option<Regex> {
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
