//! What Rego modules declare and call, as their syntax tree says. The engine finds an unknown function only when it is
//! called, which may be with the first plan that a policy should deny. So it is looked for here, before.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::BUILTINS;
use serde::Deserialize;
use serde_json::Value;

/// The modules of a policy.
pub(super) struct Modules {
    modules: Vec<Module>,
}

struct Module {
    file: String,
    /// The path of its package.
    package: Vec<String>,
    /// The paths that its imports name, by their names here.
    imports: BTreeMap<String, Vec<String>>,
    rules: Vec<Value>,
}

#[derive(Deserialize)]
struct Entry {
    source: Source,
    ast: Ast,
}

#[derive(Deserialize)]
struct Source {
    file: String,
    contents: String,
}

#[derive(Deserialize)]
struct Ast {
    package: Reference,
    imports: Vec<Import>,
    rules: Vec<Value>,
}

#[derive(Deserialize)]
struct Reference {
    refr: Value,
}

#[derive(Deserialize)]
struct Import {
    refr: Value,
    #[serde(rename = "as")]
    name: Option<Span>,
}

/// Where in the source.
#[derive(Deserialize)]
struct Span {
    start: usize,
    end: usize,
}

impl Modules {
    /// Reads the syntax tree of the engine.
    pub(super) fn read(ast: &str) -> Result<Self, String> {
        let entries = serde_json::from_str::<Vec<Entry>>(ast).map_err(|error| error.to_string())?;
        Ok(Self { modules: entries.into_iter().map(Module::new).collect() })
    }

    /// The names of the rules that decide, in their order. Whatever could make a decision fail unseen is an error.
    pub(super) fn rules(&self, package: &str) -> Result<Vec<String>, String> {
        self.check_calls()?;
        let mut found = Vec::new();
        for module in self.modules.iter().filter(|module| module.package == [package]) {
            for rule in &module.rules {
                let path = rule_path(rule).unwrap_or_default();
                let Some(name) = path.first().filter(|name| is_deciding(name)) else { continue };
                if is_boolean(rule) || is_function(rule) || path.len() > 1 {
                    return Err(format!(
                        "{}: the rule {name} is no set of messages: write `{name} contains MESSAGE if {{ ... }}`, or \
                         `{name}[MESSAGE] {{ ... }}` in Rego v0",
                        module.place(rule)
                    ));
                }
                if !found.contains(name) {
                    found.push(name.clone());
                }
            }
        }
        if !found.iter().any(|name| !name.starts_with("warn")) {
            return Err(format!(
                "no rule `deny` or `violation`, nor one with such a name and a suffix, is in `package {package}`: \
                 nothing could be denied"
            ));
        }
        Ok(found)
    }

    /// Whether every function that is called exists.
    fn check_calls(&self) -> Result<(), String> {
        let functions = self.functions();
        for module in &self.modules {
            let mut calls = Vec::new();
            module.rules.iter().for_each(|rule| find_calls(rule, &mut calls));
            for (path, call) in calls {
                let name = path.join(".");
                if name != "print"
                    && !BUILTINS.contains_key(name.as_str())
                    && !functions.contains(&module.full(&path))
                {
                    return Err(format!("{}: there is no function {name}", module.place(call)));
                }
            }
        }
        Ok(())
    }

    /// The full paths of all functions that the modules declare.
    fn functions(&self) -> BTreeSet<Vec<String>> {
        let of_module = |module: &Module| {
            let paths = module.rules.iter().filter(|rule| is_function(rule)).filter_map(rule_path);
            paths.map(|path| module.own(&path)).collect::<Vec<_>>()
        };
        self.modules.iter().flat_map(of_module).collect()
    }
}

impl Module {
    fn new(entry: Entry) -> Self {
        let import = |import: &Import| {
            let path = path(&import.refr)?;
            let name = import.name.as_ref();
            let name = name.and_then(|span| entry.source.contents.get(span.start..span.end));
            Some((name.or(path.last().map(String::as_str))?.to_owned(), path))
        };
        Self {
            package: path(&entry.ast.package.refr).unwrap_or_default(),
            imports: entry.ast.imports.iter().filter_map(import).collect(),
            file: entry.source.file,
            rules: entry.ast.rules,
        }
    }

    /// The full path of something that this module declares.
    fn own(&self, path: &[String]) -> Vec<String> {
        let data = "data".to_owned();
        [&data].into_iter().chain(&self.package).chain(path).cloned().collect()
    }

    /// The full path of a function that this module calls.
    fn full(&self, path: &[String]) -> Vec<String> {
        match path.split_first() {
            Some((first, _)) if first == "data" => path.to_vec(),
            Some((first, rest)) if self.imports.contains_key(first) => {
                self.imports[first].iter().chain(rest).cloned().collect()
            }
            _ => self.own(path),
        }
    }

    /// `FILE:LINE:COLUMN`
    fn place(&self, node: &Value) -> String {
        let span = spans(node).unwrap_or(&Value::Null);
        let number = |name: &str| span[name].as_u64().unwrap_or(1);
        format!("{}:{}:{}", self.file, number("line"), number("col"))
    }
}

/// The first span of a node.
fn spans(node: &Value) -> Option<&Value> {
    match node {
        Value::Object(fields) => match fields.get("span") {
            Some(span) => Some(span),
            None => fields.values().find_map(spans),
        },
        _ => None,
    }
}

/// Whether this is the name of a rule that denies or warns.
fn is_deciding(name: &str) -> bool {
    let rest = ["deny", "violation", "warn"].iter().find_map(|word| name.strip_prefix(word));
    rest.is_some_and(|rest| {
        let is_part =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric());
        rest.is_empty() || rest.strip_prefix('_').is_some_and(|rest| rest.split('_').all(is_part))
    })
}

/// The head of a rule: how it is written, and what it has.
fn head(rule: &Value) -> Option<(&str, &Value)> {
    let head = rule.get("Spec")?.get("head")?.as_object()?;
    head.iter().next().map(|(form, head)| (form.as_str(), head))
}

fn rule_path(rule: &Value) -> Option<Vec<String>> {
    let of_default = || rule.get("Default").and_then(|default| default.get("refr"));
    let refr = head(rule).and_then(|(_, head)| head.get("refr")).or_else(of_default)?;
    path(refr)
}

fn is_function(rule: &Value) -> bool {
    let arguments = rule.get("Default").and_then(|default| default.get("args")?.as_array());
    head(rule).is_some_and(|(form, _)| form == "Func")
        || arguments.is_some_and(|args| !args.is_empty())
}

/// Whether a rule only becomes true, and says nothing.
fn is_boolean(rule: &Value) -> bool {
    head(rule).is_some_and(|(form, head)| form == "Compr" && head["assign"].is_null())
}

/// The path that a reference names, up to the first part that is no constant.
fn path(refr: &Value) -> Option<Vec<String>> {
    if let Some(name) = refr.get("Var") {
        return Some(vec![name.get("value")?.as_str()?.to_owned()]);
    }
    if let Some(dot) = refr.get("RefDot") {
        let mut names = path(dot.get("refr")?)?;
        names.push(dot.get("field")?.get(1)?.as_str()?.to_owned());
        return Some(names);
    }
    let bracket = refr.get("RefBrack")?;
    let mut names = path(bracket.get("refr")?)?;
    if let Some(name) = bracket.get("index")?.get("String") {
        names.push(name.get("value")?.as_str()?.to_owned());
    }
    Some(names)
}

/// All calls in a part of the tree, with the paths of their functions.
fn find_calls<'a>(node: &'a Value, calls: &mut Vec<(Vec<String>, &'a Value)>) {
    match node {
        Value::Object(fields) => {
            if let Some(call) = fields.get("Call")
                && let Some(path) = call.get("fcn").and_then(path)
            {
                calls.push((path, call));
            }
            fields.values().for_each(|value| find_calls(value, calls));
        }
        Value::Array(list) => list.iter().for_each(|item| find_calls(item, calls)),
        _ => {}
    }
}
