//! The format of rules: YAML, or JSON.

use std::collections::BTreeMap;

use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::tool::diagnosis::class::Class;
use crate::tool::diagnosis::error::RulesError;

/// Bytes that a compiled pattern may take.
const MAX_PATTERN: usize = 1 << 20;

/// A rule: errors whose text matches a pattern are of a class.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) class: Class,
    pub(crate) regex: Regex,
    /// Providers to whose resources it applies; empty for all.
    pub(crate) providers: Vec<String>,
    pub(crate) priority: u8,
    pub(crate) explanation: Option<String>,
    /// Where the message is documented, or was seen.
    pub(crate) source: Option<String>,
    pub(crate) import_id: Option<ImportId>,
    /// Whether, and when, such an error leaves open what was done.
    pub(super) unanswered: Option<Unanswered>,
    /// Whether it comes from `--rules`.
    pub(crate) is_users: bool,
}

impl Rule {
    /// Whether it is the runner's own rule with this ID: one of the user may have the same.
    pub(super) fn is_builtin(&self, id: &str) -> bool {
        !self.is_users && self.id == id
    }
}

/// That the text names the ID with which the resource is imported, in the pattern's group `id`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImportId {
    /// Types whose import ID this is; empty for all. `*` at the end matches any text.
    #[serde(default)]
    pub(crate) types: Vec<String>,
    /// Types whose import ID this is not.
    #[serde(default)]
    pub(crate) not_types: Vec<String>,
    /// The ID, made of groups of the pattern: `projects/${project}/datasets/${dataset}`.
    #[serde(default)]
    pub(crate) format: Option<String>,
    /// The ID, made of planned values of the resource: `${metadata.0.namespace}/${metadata.0.name}`.
    #[serde(default)]
    pub(crate) planned: Option<String>,
}

/// Which texts leave open whether the request was carried out.
#[derive(Clone, Debug)]
pub(super) struct Unanswered {
    only: Option<Regex>,
    unless: Option<Regex>,
}

impl Unanswered {
    /// Whether this text does.
    pub(super) fn is(&self, text: &str) -> bool {
        let matches = |regex: &Regex| regex.is_match(text.as_bytes());
        self.only.as_ref().is_none_or(matches) && !self.unless.as_ref().is_some_and(matches)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnansweredEntry {
    #[serde(default)]
    only: Option<String>,
    #[serde(default)]
    unless: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    rules: Vec<RuleEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleEntry {
    id: Spanned<String>,
    class: Class,
    pattern: Spanned<String>,
    #[serde(default)]
    provider: Vec<String>,
    #[serde(default)]
    priority: Option<u8>,
    #[serde(default)]
    explanation: Option<String>,
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    import_id: Option<ImportId>,
    #[serde(default)]
    unanswered: Option<UnansweredEntry>,
}

/// The names of the groups in a format: `$name` and `${name}`, but not `$$`.
pub(super) fn groups(format: &str) -> Vec<&str> {
    let (mut names, mut rest) = (Vec::new(), format);
    while let Some((_, after)) = rest.split_once('$') {
        let is_other = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let (name, end) = match after.strip_prefix('{') {
            Some(inner) => (inner.split('}').next().unwrap_or_default(), after),
            None => after.split_at(after.find(is_other).unwrap_or(after.len())),
        };
        rest = end.strip_prefix('$').unwrap_or(end);
        if !name.is_empty() {
            names.push(name);
        }
    }
    names
}

/// Parses a file of rules.
pub(super) fn parse(text: &str, is_users: bool) -> Result<Vec<Rule>, RulesError> {
    let file: RuleFile = serde_saphyr::from_str(text).map_err(|error: serde_saphyr::Error| {
        let line = error.location().map_or(1, |location| location.line());
        let text = error.to_string();
        let reason = text.lines().next().unwrap_or_default();
        // It begins with the line and the column.
        let (_, after) = reason.split_once(" column ").unwrap_or_default();
        let reason = after.split_once(": ").map_or(reason, |(_, reason)| reason).to_owned();
        RulesError { line, reason }
    })?;
    let mut lines = BTreeMap::new();
    let mut rules = Vec::new();
    for entry in file.rules {
        let line = entry.id.referenced.line();
        let refused = |reason: String| RulesError { line, reason };
        let id = entry.id.value.as_str();
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if id.is_empty() || !id.chars().all(is_name) {
            return Err(refused(format!(
                "the id {id:?} is not valid: expected letters, digits, `-`, `_` and `.`"
            )));
        }
        if let Some(first) = lines.insert(id.to_owned(), line) {
            return Err(refused(format!("the id {id} is that of the rule in line {first}, too")));
        }
        rules.push(entry.compile(is_users)?);
    }
    Ok(rules)
}

impl RuleEntry {
    fn compile(self, is_users: bool) -> Result<Rule, RulesError> {
        let Self { id: Spanned { value: id, .. }, class, pattern, .. } = self;
        let line = pattern.referenced.line();
        let refused = |reason: String| RulesError { line, reason: format!("rule {id}: {reason}") };
        let compiled = |pattern: &str| compiled(pattern).map_err(refused);
        let regex = compiled(&pattern.value)?;
        if regex.is_match(b"") {
            return Err(refused("the pattern matches every text".to_owned()));
        }
        let has_group = |name: &str| regex.capture_names().flatten().any(|group| group == name);
        let import_id = self.import_id;
        let is_named = |id: &ImportId| id.format.is_some() || id.planned.is_some();
        if import_id.as_ref().is_some_and(|id| !is_named(id)) && !has_group("id") {
            return Err(refused(
                "import_id needs a group (?P<id>...) in the pattern, a format, or planned"
                    .to_owned(),
            ));
        }
        let unanswered = match self.unanswered {
            Some(UnansweredEntry { only, unless }) => Some(Unanswered {
                only: only.as_deref().map(compiled).transpose()?,
                unless: unless.as_deref().map(compiled).transpose()?,
            }),
            None => None,
        };
        let format = import_id.as_ref().and_then(|id| id.format.as_deref()).unwrap_or_default();
        if let Some(missing) = groups(format).into_iter().find(|name| !has_group(name)) {
            return Err(refused(format!(
                "the format of import_id names the group {missing:?}, which the pattern does not have"
            )));
        }
        Ok(Rule {
            class,
            regex,
            providers: self.provider,
            priority: self.priority.unwrap_or_else(|| class.default_priority()),
            explanation: self.explanation,
            source: self.source,
            import_id,
            unanswered,
            is_users,
            id,
        })
    }
}

/// Without Unicode `\b` and `\w` are much faster. `(?u)` switches it on.
fn compiled(pattern: &str) -> Result<Regex, String> {
    let regex = RegexBuilder::new(pattern).unicode(false).size_limit(MAX_PATTERN).build();
    regex.map_err(|error| {
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default();
        format!("the pattern is not valid: {}", last.trim_start_matches("error: "))
    })
}
